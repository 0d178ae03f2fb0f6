"""`GuestedEnv`: the verbs of `RunEnv` over a link to a guest. Every backend of this package is a subclass.

A backend says how the guest is started, reached and ended (`_start`, `_stop`), what may be known about its death
(`_explain_loss`) and which guest serves another user (`_link_for`); nothing it does reaches into the verbs. Below are
`life.py` (opening and closing), `requests.py` (arguments to fields), `replies.py` (fields to values), `moves.py`
(transfers) and the link.

Verbs may be called from any task of the event loop that opened the env, and opening and closing may happen in different
tasks. Progress functions of transfers are called in a worker thread.
"""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TypeVar

import anyio

from runenv.envs.guested import moves, searches, trees
from runenv.envs.guested.life import Life
from runenv.envs.guested.patterns import literal_pattern, translate
from runenv.envs.guested.replies import MAX_NUMBER, EntryReader, entry_of, exec_result, number
from runenv.envs.guested.requests import exec_request, path_bytes, pattern_fields
from runenv.envs.threads import in_thread, outlast
from runenv.errors import EnvError, LimitError
from runenv.guest.frames import Channel, Flag, FrameError, Tag, Verb
from runenv.types import DEFAULT

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from runenv.envs.guested.life import GuestedConfig
    from runenv.envs.guested.requests import Request
    from runenv.envs.guested.trees import TreeStream
    from runenv.guest.call import Call
    from runenv.guest.frames import Fields
    from runenv.guest.link import Link
    from runenv.types import Command, Default, ExecResult, FileInfo, GlobResult, GrepResult, Progress, TransferResult

__all__ = ("GuestedEnv",)

Found = TypeVar("Found")

MAX_READ_BYTES: Final = 100 * 1024 * 1024
"""What `read` returns at most unless its caller says otherwise."""
MAX_ENTRIES: Final = 1_000_000
"""Entries that `list` returns at most."""
MAX_LIST_BYTES: Final = 512 * 1024 * 1024
"""Bounds the answer to LIST against a guest that makes its names long."""
BACKSTOP: Final = 30.0
"""Seconds beyond the deadline of a command, or after its cancellation, in which the guest must have killed its tree."""
INLINE_BYTES: Final = 1024 * 1024
"""Output of a command that is rendered on the event loop; more of it would stall the loop, and goes to a thread."""
MAX_TRANSFERS: Final = 8
"""Uploads and downloads of one env at a time, each with a worker thread; others wait."""

_OVERDUE: Final = f"the guest did not end a command within {BACKSTOP:g} s after its deadline"


class GuestedEnv(Life):
    """A `RunEnv` whose commands and files a guest serves."""

    def __init__(self, config: GuestedConfig, env_id: str) -> None:
        super().__init__(config, env_id)
        self._transfers = anyio.CapacityLimiter(MAX_TRANSFERS)

    # -- commands

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
        """Run a command to its end and return what it did; see `RunEnv.exec`."""
        keep = self._settings.max_output_bytes if max_output_bytes is None else max_output_bytes
        max_chars = min(self._settings.max_text_chars, keep)
        limit = self._settings.timeout if timeout is DEFAULT else timeout
        if stdin is not None:
            stdin = _as_bytes(stdin, "stdin")
        fields = exec_request(
            command,
            cwd=cwd,
            env=env,
            has_stdin=stdin is not None,
            timeout=limit,
            keep_bytes=keep,
            spill_at_bytes=max_chars,
        )
        link = await self._ready()
        if user is not None:
            link = await self._link_for(user)
        with self._distrust(link), link.call(Verb.EXEC, fields, stdin) as call:
            backstop = (
                None
                if limit is None
                else link.loop.call_later(limit + BACKSTOP, partial(link.lose, _OVERDUE, ask=True))
            )
            try:
                stdout, stderr = await _output(call, keep)
                result = await call.result()
            except asyncio.CancelledError:
                await self._cancel(link, call)
                raise
            finally:
                if backstop is not None:
                    backstop.cancel()
            if len(stdout) + len(stderr) <= INLINE_BYTES:
                return exec_result(result, stdout, stderr, max_chars=max_chars)
            return await in_thread(lambda: exec_result(result, stdout, stderr, max_chars=max_chars))

    async def _cancel(self, link: Link, call: Call) -> None:
        """Have the command's tree killed; returns when it is, or when the guest is given up."""
        call.cancel()
        ended = link.loop.create_task(_end_of(call))
        try:
            await outlast(ended, BACKSTOP)
        finally:
            if not ended.done():
                link.lose(f"the guest did not end a cancelled command within {BACKSTOP:g} s", ask=True)

    # -- files

    async def read(
        self, path: str, *, offset: int = 0, length: int | None = None, max_bytes: int | None = None
    ) -> bytes:
        """Return the content of a file, or a part of it; see `RunEnv.read`."""
        limit = MAX_READ_BYTES if max_bytes is None else max_bytes
        if limit < 0:
            raise ValueError(f"max_bytes cannot be negative: {limit}")
        fields = _range(path, offset, length)
        fields.append((Tag.LIMIT, min(limit, MAX_NUMBER)))
        link = await self._link_at(path)
        with self._distrust(link), link.call(Verb.GET, fields) as call:
            content: bytes | bytearray = b""
            while (received := await call.receive()) is not None:
                piece = received[1]
                if len(content) + len(piece) > limit:
                    raise FrameError("more of a file than was asked for")
                if not content:
                    content = piece
                else:
                    # One growing buffer: a list of pieces would let a guest make many tiny ones.
                    content = bytearray(content) if isinstance(content, bytes) else content
                    content += piece
            if number(await call.result(), Tag.TOTAL) != len(content):
                raise FrameError("a file that was cut short")
            return bytes(content)

    @asynccontextmanager
    async def open_read(
        self, path: str, *, offset: int = 0, length: int | None = None
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Stream a file of any size; see `RunEnv.open_read`."""
        fields = _range(path, offset, length)
        link = await self._link_at(path)
        with self._distrust(link), link.call(Verb.GET, fields) as call:
            yield _Chunks(call, partial(self._distrust, link))

    async def write(
        self, path: str, data: bytes | AsyncIterable[bytes], *, mode: int | None = None, append: bool = False
    ) -> None:
        """Make or replace a file, atomically, or append to it; see `RunEnv.write`."""
        fields: Request = [(Tag.PATH, path_bytes(path))]
        if mode is not None:
            if not 0 <= mode <= 0o7777:  # noqa: PLR2004 - all permission bits there are
                raise ValueError(f"mode must be permission bits, not {mode!r}")
            fields.append((Tag.MODE, mode))
        if append:
            fields.append((Tag.FLAGS, Flag.APPEND))
        stream: AsyncIterable[bytes] | None = data if isinstance(data, AsyncIterable) else None
        whole = None if isinstance(data, AsyncIterable) else _as_bytes(data, "data")
        link = await self._ready()
        with self._distrust(link), link.call(Verb.PUT, fields, whole) as call:
            sent = len(whole or b"") if stream is None else await _send_all(call, stream)
            if number(await call.result(), Tag.TOTAL) != sent:
                raise FrameError("a file that was cut short")

    async def stat(self, path: str, *, follow_symlinks: bool = True) -> FileInfo:
        """Describe one entry; see `RunEnv.stat`."""
        fields: Request = [(Tag.PATH, path_bytes(path))]
        if not follow_symlinks:
            fields.append((Tag.FLAGS, Flag.NO_FOLLOW))
        link = await self._link_at(path)
        with self._distrust(link), link.call(Verb.STAT, fields) as call:
            return entry_of(await call.result()).info(path)

    async def list(self, path: str = ".") -> list[FileInfo]:
        """Return the entries of a folder, sorted by name; see `RunEnv.list`."""
        fields: Request = [(Tag.PATH, path_bytes(path)), (Tag.LIMIT, MAX_ENTRIES)]
        link = await self._ready()
        with self._distrust(link), link.call(Verb.LIST, fields) as call:
            reader, size = EntryReader(), 0
            while (received := await call.receive()) is not None:
                size += len(received[1])
                if size > MAX_LIST_BYTES:
                    raise LimitError(f"the entries of {path!r} are over {MAX_LIST_BYTES:,} bytes together")
                reader.feed(received[1])
            return reader.finish(number(await call.result(), Tag.TOTAL))

    async def mkdir(self, path: str, *, parents: bool = True, exist_ok: bool = True) -> None:
        """Make a folder; see `RunEnv.mkdir`."""
        flags = (Flag.PARENTS if parents else 0) | (Flag.EXIST_OK if exist_ok else 0)
        await self._ask(Verb.MKDIR, [(Tag.PATH, path_bytes(path)), (Tag.FLAGS, flags)])

    async def remove(self, path: str, *, recursive: bool = False, missing_ok: bool = False) -> None:
        """Delete a file, a link or a folder; see `RunEnv.remove`."""
        flags = (Flag.RECURSIVE if recursive else 0) | (Flag.MISSING_OK if missing_ok else 0)
        await self._ask(Verb.REMOVE, [(Tag.PATH, path_bytes(path)), (Tag.FLAGS, flags)])

    async def rename(self, source: str, target: str) -> None:
        """Move an entry within one file system; see `RunEnv.rename`."""
        await self._ask(Verb.RENAME, [(Tag.PATH, path_bytes(source)), (Tag.TARGET, path_bytes(target))])

    # -- transfers

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
        """Copy a file or a tree from the host into the env; see `RunEnv.upload`."""
        path_bytes(target)
        pattern_fields(include, exclude)
        host_path = Path(source)
        async with self._transfer() as link:
            info = await in_thread(lambda: moves.stat_source(host_path))
            if not stat.S_ISDIR(info.st_mode):
                return await moves.upload_file(link, host_path, info, target, progress)
            return await moves.upload_tree(
                link,
                host_path,
                target,
                include=include,
                exclude=exclude,
                follow_symlinks=follow_symlinks,
                progress=progress,
            )

    async def download(
        self,
        source: str,
        target: str | Path,
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        progress: Progress | None = None,
    ) -> TransferResult:
        """Copy a file or a tree from the env to the host; see `RunEnv.download`."""
        pattern_fields(include, exclude)
        info = await self.stat(source)
        async with self._transfer() as link:
            if not info.is_dir:
                return await moves.download_file(link, source, Path(target), info.size, progress)
            return await moves.download_tree(
                link, source, Path(target), include=include, exclude=exclude, progress=progress
            )

    @asynccontextmanager
    async def open_read_tree(
        self, path: str, *, include: Sequence[str] = (), exclude: Sequence[str] = ()
    ) -> AsyncGenerator[TreeStream]:
        """Stream a folder of any size; see `TreeStreams.open_read_tree`."""
        link = await self._ready()
        with self._distrust(link):
            distrust = partial(self._distrust, link)
            async with trees.open_read(link, path, include=include, exclude=exclude, distrust=distrust) as stream:
                yield stream

    async def write_tree(self, path: str, stream: AsyncIterable[bytes]) -> TransferResult:
        """Make or fill a folder from a tar archive; see `TreeStreams.write_tree`."""
        link = await self._ready()
        with self._distrust(link):
            return await trees.write(link, path, stream)

    # -- searches

    async def grep(
        self,
        pattern: str,
        path: str = ".",
        *,
        literal: bool = False,
        ignore_case: bool = False,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        context: int = 0,
        max_matches: int = 1000,
        files_only: bool = False,
        timeout: float = 30.0,
    ) -> GrepResult:
        """Find lines of text files; see `Searches.grep`."""
        wanted = (literal_pattern if literal else translate)(pattern, ignore_case=ignore_case)
        command = searches.grep_command(
            self._search_program(),
            wanted,
            path,
            include=include,
            exclude=exclude,
            context=context,
            max_matches=max_matches,
            files_only=files_only,
        )
        return await self._search(command, path, timeout, partial(searches.grep_result, path=path))

    async def glob(
        self,
        pattern: str,
        path: str = ".",
        *,
        exclude: Sequence[str] = (),
        max_files: int = 1000,
        timeout: float = 30.0,
    ) -> GlobResult:
        """Find files by name; see `Searches.glob`."""
        command = searches.glob_command(self._search_program(), pattern, path, exclude=exclude, max_files=max_files)
        return await self._search(command, path, timeout, searches.glob_result)

    # -- inside

    async def _link_at(self, path: str) -> Link:
        """Return the link to the guest that can read a path."""
        user = self._user_at(path)
        return await (self._ready() if user is None else self._link_for(user))

    async def _search(
        self, command: Sequence[str | bytes], path: str, timeout: float, read: Callable[[ExecResult], Found]
    ) -> Found:
        link = await self._link_at(path)
        done = await self.exec(
            command, user=self._user_at(path), timeout=timeout, max_output_bytes=searches.MAX_OUTPUT_BYTES
        )
        searches.check_result(done, path)
        with self._distrust(link):
            return read(done)

    async def _ask(self, verb: Verb, fields: Request) -> Fields:
        link = await self._ready()
        with self._distrust(link), link.call(verb, fields) as call:
            return await call.result()

    @asynccontextmanager
    async def _transfer(self) -> AsyncGenerator[Link]:
        link = await self._ready()
        async with self._transfers:
            with self._distrust(link):
                yield link


class _Chunks:
    """The bytes of a file as they come."""

    def __init__(self, call: Call, distrust: Callable[[], AbstractContextManager[None]]) -> None:
        self._call = call
        self._distrust = distrust  # here, not around the reader: the reader may be a verb of another env
        self._received = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        received = await self._call.receive()
        if received is None:
            with self._distrust():
                if number(await self._call.result(), Tag.TOTAL) != self._received:
                    raise FrameError("a file that was cut short")
            raise StopAsyncIteration
        self._received += len(received[1])
        return bytes(received[1])


def _range(path: str, offset: int, length: int | None) -> Request:
    if not 0 <= offset <= MAX_NUMBER or not 0 <= (length or 0) <= MAX_NUMBER:
        raise ValueError(f"offset and length must be from 0 to {MAX_NUMBER}, not {offset} and {length}")
    fields: Request = [(Tag.PATH, path_bytes(path))]
    if offset:
        fields.append((Tag.OFFSET, offset))
    if length is not None:
        fields.append((Tag.LENGTH, length))
    return fields


async def _output(call: Call, keep: int) -> tuple[bytearray, bytearray]:
    """Take what a command's guest kept of its output; growing buffers, not lists of perhaps tiny pieces."""
    stdout, stderr = bytearray(), bytearray()
    while (received := await call.receive()) is not None:
        stream = stdout if received[0] is Channel.STDOUT else stderr
        stream += received[1]
        if len(stream) > keep:
            raise FrameError("more output than was to be kept")
    return stdout, stderr


async def _send_all(call: Call, data: AsyncIterable[bytes]) -> int:
    sent = 0
    async for piece in data:
        whole = _as_bytes(piece, "a piece of data")
        sent += len(whole)
        if not await call.send(whole):
            break
    call.end()
    return sent


def _as_bytes(value: object, what: str) -> bytes:
    """Return bytes as they are, and other buffers of bytes copied."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    raise ValueError(f"{what} must be bytes, not {type(value).__name__}")


async def _end_of(call: Call) -> None:
    with suppress(OSError, LimitError, EnvError):
        await call.result()
