"""`ScriptedEnv`: a fake env for the tests of code that uses one. It runs nothing; commands get prepared answers.

Its files are in memory (`memory.py`) and behave as in an env, but for links, users and permissions, which it has not.
Every use is recorded.

    env = ScriptedEnv(files={"data.csv": "a,b"})
    env.on("wc -c data.csv", "3 data.csv").on(re.compile("^curl "), result(stderr="no network", exit_code=7))
    async with env:
        await code_under_test(env)
    assert env.commands == ["wc -c data.csv"]
"""

from __future__ import annotations

import inspect
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TypeAlias

from anyio import to_thread

from runenv.envs.transfer import Rewriter
from runenv.errors import EnvClosedError, EnvError, LimitError
from runenv.testing.memory import MemoryFiles
from runenv.types import DEFAULT, ExecResult, Output

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from types import TracebackType

    from runenv.types import Command, Default, FileInfo, Progress, TransferResult

__all__ = ("Answer", "Call", "ScriptedEnv", "UnexpectedCommandError", "Wanted", "result")

Answer: TypeAlias = "ExecResult | str | BaseException | Callable[[Call], ExecResult | Awaitable[ExecResult]]"
"""A result, the stdout of a command that succeeds, an error to raise, or a function of the call, async or not."""
Wanted: TypeAlias = "Command | re.Pattern[str] | Callable[[Call], bool]"
"""A command exactly, a pattern to be found in a command string, or a function that knows the call."""

_MAX_READ_BYTES: Final = 100 * 1024 * 1024
_PIECE_BYTES: Final = 128 * 1024


class UnexpectedCommandError(AssertionError):
    """A command that no answer was prepared for."""


@dataclass(frozen=True, slots=True)
class Call:
    """One use of the env: a verb and its arguments by name."""

    verb: str
    arguments: Mapping[str, object]

    @property
    def command(self) -> object:
        """What `exec` was asked to run."""
        return self.arguments["command"]


def result(stdout: str | bytes = "", stderr: str | bytes = "", *, exit_code: int = 0) -> ExecResult:
    """Make the result of a command from what it wrote and how it ended."""
    return ExecResult(exit_code, stdout=_output(stdout), stderr=_output(stderr))


def _output(what: str | bytes) -> Output:
    data = what.encode() if isinstance(what, str) else what
    return Output(data, data.decode("utf-8", "replace"), total_bytes=len(data))


class ScriptedEnv:
    """A `RunEnv` without anything behind it.

    Attributes:
        calls: every use of a verb while the env was open, in order.
    """

    def __init__(self, *, files: Mapping[str, str | bytes] | None = None, workdir: str = "/workspace") -> None:
        self.calls: list[Call] = []
        self._workdir = workdir
        self._files = MemoryFiles(workdir)
        self._answers: list[tuple[Wanted, Answer]] = []
        self._given: set[int] = set()
        self._open: bool | None = None
        for path, content in (files or {}).items():
            self._files.write(path, content.encode() if isinstance(content, str) else content)

    def on(self, command: Wanted, answer: Answer) -> Self:
        """Prepare an answer, and return the env.

        Of the answers that fit a command, the first one not yet given is given; once all were, the last one again.
        """
        self._answers.append((command, answer))
        return self

    @property
    def commands(self) -> list[object]:
        """The commands that came, in order."""
        return [call.command for call in self.calls if call.verb == "exec"]

    @property
    def files(self) -> dict[str, bytes]:
        """The content of every file by its absolute path."""
        return self._files.contents()

    @property
    def id(self) -> str:
        """Always "scripted"."""
        return "scripted"

    @property
    def kind(self) -> str:
        """Always "scripted"."""
        return "scripted"

    @property
    def workdir(self) -> str:
        """Where relative paths start."""
        return self._workdir

    def describe(self) -> Mapping[str, object]:
        """Say what it is."""
        return {"kind": self.kind, "id": self.id, "workdir": self.workdir}

    async def exec(
        self,
        command: Command,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        stdin: bytes | None = None,
        timeout: float | Default | None = DEFAULT,
        max_output_bytes: int | None = None,
    ) -> ExecResult:
        """Give the prepared answer.

        Raises:
            UnexpectedCommandError: there is none.
        """
        options = {"cwd": cwd, "env": env, "user": user, "stdin": stdin, "timeout": timeout}
        call = self._record("exec", command=command, **options, max_output_bytes=max_output_bytes)
        fitting = [number for number, (wanted, _) in enumerate(self._answers) if _fits(wanted, call)]
        if not fitting:
            known = ", ".join(repr(wanted) for wanted, _ in self._answers) or "nothing"
            raise UnexpectedCommandError(f"no answer is prepared for {command!r}, only for {known}")
        number = next((number for number in fitting if number not in self._given), fitting[-1])
        self._given.add(number)
        answer = self._answers[number][1]
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, str):
            return result(answer)
        made = answer(call) if callable(answer) else answer
        return await made if inspect.isawaitable(made) else made

    async def read(
        self, path: str, *, offset: int = 0, length: int | None = None, max_bytes: int | None = None
    ) -> bytes:
        """Return the content of a file, or a part of it."""
        self._record("read", path=path, offset=offset, length=length, max_bytes=max_bytes)
        data = self._part(path, offset, length)
        limit = _MAX_READ_BYTES if max_bytes is None else max_bytes
        if len(data) > limit:
            raise LimitError(f"{path!r} has {len(data):,} bytes, more than {limit:,}")
        return data

    @asynccontextmanager
    async def open_read(
        self, path: str, *, offset: int = 0, length: int | None = None
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Stream a file."""
        self._record("open_read", path=path, offset=offset, length=length)
        yield self._pieces(path, offset, length)

    async def write(
        self, path: str, data: bytes | AsyncIterable[bytes], *, mode: int | None = None, append: bool = False
    ) -> None:
        """Make, replace or extend a file."""
        whole = data if isinstance(data, bytes) else b"".join([piece async for piece in data])
        self._record("write", path=path, data=whole, mode=mode, append=append)
        self._files.write(path, whole, mode=mode, append=append)

    async def stat(self, path: str, *, follow_symlinks: bool = True) -> FileInfo:
        """Describe one entry."""
        self._record("stat", path=path, follow_symlinks=follow_symlinks)
        return self._files.info(path)

    async def list(self, path: str = ".") -> list[FileInfo]:
        """Return the entries of a folder."""
        self._record("list", path=path)
        return self._files.entries(path)

    async def mkdir(self, path: str, *, parents: bool = True, exist_ok: bool = True) -> None:
        """Make a folder."""
        self._record("mkdir", path=path, parents=parents, exist_ok=exist_ok)
        self._files.mkdir(path, parents=parents, exist_ok=exist_ok)

    async def remove(self, path: str, *, recursive: bool = False, missing_ok: bool = False) -> None:
        """Delete an entry."""
        self._record("remove", path=path, recursive=recursive, missing_ok=missing_ok)
        self._files.remove(path, recursive=recursive, missing_ok=missing_ok)

    async def rename(self, source: str, target: str) -> None:
        """Move an entry."""
        self._record("rename", source=source, target=target)
        self._files.rename(source, target)

    async def upload(
        self,
        source: str | Path,
        target: str,
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        follow_symlinks: bool = False,
        progress: Progress | None = None,
    ) -> TransferResult:
        """Copy a file or a folder of the host into the memory; `progress` is called once."""
        self._record("upload", source=source, target=target, include=include, exclude=exclude)

        def copy() -> TransferResult:
            return self._files.upload(
                Path(source), target, include=include, exclude=exclude, follow_symlinks=follow_symlinks
            )

        return _report(await to_thread.run_sync(copy), progress)

    async def download(
        self,
        source: str,
        target: str | Path,
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        progress: Progress | None = None,
    ) -> TransferResult:
        """Copy a file or a folder from the memory to the host; `progress` is called once."""
        self._record("download", source=source, target=target, include=include, exclude=exclude)

        def copy() -> TransferResult:
            return self._files.download(source, Path(target), include=include, exclude=exclude)

        return _report(await to_thread.run_sync(copy), progress)

    @asynccontextmanager
    async def open_read_tree(
        self, path: str, *, include: Sequence[str] = (), exclude: Sequence[str] = ()
    ) -> AsyncGenerator[_TreeStream]:
        """Stream a folder as a tar archive."""
        self._record("open_read_tree", path=path, include=include, exclude=exclude)
        yield _TreeStream(lambda: self._files.pack(path, include=include, exclude=exclude))

    async def write_tree(self, path: str, stream: AsyncIterable[bytes]) -> TransferResult:
        """Make a folder from a tar archive."""
        pieces = aiter(stream)
        rewriter = Rewriter(lambda: anext(pieces, b""))
        archive = b"".join([piece async for piece in rewriter.pieces()])
        self._record("write_tree", path=path, archive=archive)
        links, report = self._files.unpack(path, archive), rewriter.report.result()
        refused, count = (*report.refused, *links), report.refused_count + len(links)
        return replace(report, refused=refused, refused_count=count)

    async def aclose(self) -> None:
        """Close; the files and the record stay readable."""
        self._open = False

    async def __aenter__(self) -> Self:
        if self._open is not None:
            raise EnvClosedError("this scripted env was opened before: make another one")
        self._open = True
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def _record(self, verb: str, **arguments: object) -> Call:
        if not self._open:
            raise EnvClosedError("the scripted env is not open")
        call = Call(verb, arguments)
        self.calls.append(call)
        return call

    def _part(self, path: str, offset: int, length: int | None) -> bytes:
        return self._files.read(path)[offset : None if length is None else offset + length]

    async def _pieces(self, path: str, offset: int, length: int | None) -> AsyncIterator[bytes]:
        data = self._part(path, offset, length)
        for start in range(0, len(data), _PIECE_BYTES):
            yield data[start : start + _PIECE_BYTES]


class _TreeStream:
    """A folder in pieces, read when the first one is asked for."""

    def __init__(self, pack: Callable[[], tuple[bytes, TransferResult]]) -> None:
        self._pieces = self._read(pack)
        self._result: TransferResult | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        return await anext(self._pieces)

    @property
    def result(self) -> TransferResult:
        if self._result is None:
            raise EnvError("the stream of a tree was not read to its end, so what it moved is not known")
        return self._result

    async def _read(self, pack: Callable[[], tuple[bytes, TransferResult]]) -> AsyncIterator[bytes]:
        archive, result = pack()
        for start in range(0, len(archive), _PIECE_BYTES):
            yield archive[start : start + _PIECE_BYTES]
        self._result = result


def _fits(wanted: Wanted, call: Call) -> bool:
    if isinstance(wanted, re.Pattern):
        return isinstance(call.command, str) and wanted.search(call.command) is not None
    if callable(wanted):
        return wanted(call)
    if isinstance(wanted, str) or isinstance(call.command, str):
        return wanted == call.command
    return isinstance(call.command, (list, tuple)) and list(wanted) == list(call.command)


def _report(moved: TransferResult, progress: Progress | None) -> TransferResult:
    if progress is not None:
        progress(moved.bytes, moved.bytes)
    return moved
