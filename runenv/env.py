"""`RunEnv`: the protocol between an agent's tools and the place where its code runs. Protocols only.

Implemented by `runenv.envs`, by `runenv.testing.scripted`, and by anyone else's env; `runenv.testing.contract`
says in tests what an implementation must do. Nothing here runs anything.

Paths inside an env are POSIX strings; relative ones start at `workdir`. Sizes are bytes, times are seconds.
Every verb may raise `EnvClosedError` (not open), `EnvLostError` (the env died) and `EnvError` (used from a
foreign event loop).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from runenv.types import DEFAULT

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from runenv.types import Command, Default, ExecResult, FileInfo, GlobResult, GrepResult, Progress, TransferResult

__all__ = ("Masks", "RunEnv", "Searches", "TarStream", "TreeStreams")


@runtime_checkable
class RunEnv(Protocol):
    """A place that runs commands and holds files."""

    @property
    def id(self) -> str:
        """Short name of this env, unique on its engine or host."""
        ...

    @property
    def kind(self) -> str:
        """The `kind` of its configuration: "local", "docker", ..."""
        ...

    @property
    def workdir(self) -> str:
        """Absolute path, inside the env, where relative paths start."""
        ...

    def describe(self) -> Mapping[str, object]:
        """What this env is and what its sandbox allows, as plain data without secrets."""
        ...

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
        """Run a command to its end and return what it did.

        Args:
            command: a string for the env's shell, or a list of arguments run without a shell.
            cwd: folder to run in; the workdir when None. A missing one gives an error result that names it.
            env: variables on top of the env's own.
            user: numeric "uid" or "uid:gid" to run as; the env's user when None.
            stdin: what the command reads; end of file at once when None.
            timeout: seconds until the whole process tree is killed; None for no limit; the configured one by default.
            max_output_bytes: how much of each stream crosses the link, 1,024 to 64 MiB; the configured one when None.

        Returns:
            The result; a failure, a missing program and a timeout are results too.

        Raises:
            ConfigError: this env cannot run as `user`.
            LimitError: the command line is longer than the env takes.
            ValueError: an argument is not of its form.
        """
        ...

    async def read(
        self, path: str, *, offset: int = 0, length: int | None = None, max_bytes: int | None = None
    ) -> bytes:
        """Return the content of a file, or `length` bytes of it from `offset` (fewer at its end).

        Raises:
            LimitError: it is larger than `max_bytes` (100 MiB unless given); nothing was moved.
            FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, OSError: as for a local file;
                a FIFO, a socket or a device is refused with an OSError that names its type.
        """
        ...

    def open_read(
        self, path: str, *, offset: int = 0, length: int | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Stream a file of any size: `async with env.open_read(path) as chunks: async for chunk in chunks: ...`.

        Raises:
            OSError: as `read`, when the stream is first read.
        """
        ...

    async def write(
        self, path: str, data: bytes | AsyncIterable[bytes], *, mode: int | None = None, append: bool = False
    ) -> None:
        """Make or replace a file, atomically, or append to it; missing parents are made.

        Args:
            path: where; through a symbolic link the file it points to is replaced.
            data: bytes, or a stream of them of any size.
            mode: permission bits; an existing file keeps its own, a new one gets 0o644, when None.
            append: add to the end instead (not atomic).

        Raises:
            PermissionError, IsADirectoryError, NotADirectoryError, OSError: the old content is intact.
        """
        ...

    async def stat(self, path: str, *, follow_symlinks: bool = True) -> FileInfo:
        """Describe one entry. Raises `FileNotFoundError`, `PermissionError`, `NotADirectoryError`."""
        ...

    async def list(self, path: str = ".") -> list[FileInfo]:
        """Return the entries of a folder, sorted by name, links not followed.

        Raises:
            LimitError: more than 1,000,000 entries.
            FileNotFoundError, NotADirectoryError, PermissionError: as for a local folder.
        """
        ...

    async def mkdir(self, path: str, *, parents: bool = True, exist_ok: bool = True) -> None:
        """Make a folder. Raises `FileExistsError` when something else is there, or a folder and `exist_ok` is false."""
        ...

    async def remove(self, path: str, *, recursive: bool = False, missing_ok: bool = False) -> None:
        """Delete a file, a link or an empty folder; with `recursive` a folder and all in it. Links are not followed."""
        ...

    async def rename(self, source: str, target: str) -> None:
        """Move an entry within one file system, replacing a file at `target`; the target's parents are made."""
        ...

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
        """Copy a file or a tree from the host into the env, as a stream.

        Args:
            source: host path. Devices, FIFOs and sockets in a tree are left out and listed.
            target: path of the copy itself, not of its parent. A folder is merged into one that exists.
            include: patterns; only matching files of a tree are taken. `*` stays within a name, `**` crosses
                folders, a pattern without `/` matches names at any depth.
            exclude: patterns of files and folders that are left out; it wins over `include`.
            follow_symlinks: copy what links point to, even outside the tree, instead of the links.
            progress: called with bytes done and total.

        Raises:
            OSError: the source cannot be read or the target not be written.
        """
        ...

    async def download(
        self,
        source: str,
        target: str | Path,
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        progress: Progress | None = None,
    ) -> TransferResult:
        """Copy a file or a tree from the env to the host, as a stream; nothing lands outside `target`.

        The arguments are those of `upload`. Links that point out of the tree, devices and special bits are refused
        and listed.

        Raises:
            OSError: the source cannot be read or the target not be written.
        """
        ...

    async def aclose(self) -> None:
        """End the env and everything that runs in it; harmless when called again."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


class TarStream(Protocol):
    """A tree on its way out of an env: an async iterator of the bytes of a tar archive, and then its account."""

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> bytes: ...

    @property
    def result(self) -> TransferResult:
        """What was moved and what was refused.

        Raises:
            EnvError: the stream was not read to its end.
        """
        ...


@runtime_checkable
class TreeStreams(Protocol):
    """What an env may offer beside the verbs of `RunEnv`: trees as tar streams that never touch the host's disk.

    The archives are plain tar, in the form that GNU tar, `tarfile` and others read. They hold files, folders and
    symbolic links under relative names; nothing in them leads out of the folder that they are unpacked in.
    """

    def open_read_tree(
        self, path: str, *, include: Sequence[str] = (), exclude: Sequence[str] = ()
    ) -> AbstractAsyncContextManager[TarStream]:
        """Stream a folder of any size: `async with env.open_read_tree(path) as tar: async for chunk in tar: ...`.

        Args:
            path: the folder; names in the archive are relative to it.
            include: patterns, as those of `RunEnv.download`.
            exclude: the same.

        Raises:
            OSError: the folder cannot be read; when the stream is first read.
        """
        ...

    async def write_tree(self, path: str, stream: AsyncIterable[bytes]) -> TransferResult:
        """Make a folder from a tar archive, whoever made it, or merge it into one that exists.

        Files and links that are there are replaced, folders kept; nothing lands outside. Hard links, sparse files of
        GNU tar, devices and links that lead out of the tree are refused and listed, and so are special bits.

        Args:
            path: the folder; missing parents are made.
            stream: the archive, not compressed.

        Raises:
            OSError: the folder cannot be written, or the stream ends early or is no tar archive (EIO). What came before
                is kept, the file that was being written is not. An error of the stream itself leaves in the same way.
        """
        ...


@runtime_checkable
class Masks(Protocol):
    """What an env may offer beside the verbs of `RunEnv`: to keep its secrets out of what others log."""

    def mask(self, text: str) -> str:
        """Return a text with `***` for each value of the env's configured variables.

        Values of fewer than 6 characters stay: they would be found in every other text.
        """
        ...


@runtime_checkable
class Searches(Protocol):
    """What an env may offer beside the verbs of `RunEnv`: searches that run in it and need no program of its image.

    Folders are walked in the order of their names; links in them are not followed. `include` and `exclude` are
    patterns as those of `RunEnv.download`, on paths relative to where the search begins.
    """

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
        r"""Find lines of text files; binary files are left out.

        Args:
            pattern: a regular expression within one line: POSIX extended, and `\d \w \s \b`, `(?:...)`, lazy
                repetitions, escapes in classes, a leading `(?i)`. No lookaround, no references. Up to 4,096 characters.
            path: a folder, searched with all that is below it, or a file.
            literal: `pattern` is the text itself.
            ignore_case: letters match in both cases.
            include: only files that one of these fits.
            exclude: no files that one of these fits, and nothing below such a folder.
            context: lines before and after each match, up to 50.
            max_matches: matching lines (files, with `files_only`) after which the search ends, up to 10,000. What it
                gives is at most 1 MiB too.
            files_only: only say which files match.
            timeout: seconds after which the search ends with what it has.

        Raises:
            ValueError: the pattern is not supported; the text says what to write instead.
            FileNotFoundError, PermissionError, NotADirectoryError, OSError: `path` cannot be searched.
        """
        ...

    async def glob(
        self,
        pattern: str,
        path: str = ".",
        *,
        exclude: Sequence[str] = (),
        max_files: int = 1000,
        timeout: float = 30.0,
    ) -> GlobResult:
        """Find files by name, the newest first.

        Args:
            pattern: as one of `include`: `*.py` anywhere, `src/**/*.py` from `path` on.
            path: the folder to look in.
            exclude: no files that one of these fits, and nothing below such a folder.
            max_files: how many are given, up to 10,000, at most 1 MiB of them.
            timeout: seconds after which the search ends without a result.

        Raises:
            ValueError: the pattern is empty.
            FileNotFoundError, PermissionError, NotADirectoryError, OSError: `path` cannot be searched.
        """
        ...
