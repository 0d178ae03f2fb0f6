"""`runenv artifacts get` and `put`: content between a store and this host, streamed, with a bar on terminals."""

import errno
import os
import stat
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Final

import anyio
import anyio.to_thread
import typer
from rich.console import Console

from runenv.cli.artifacts.listing import brief
from runenv.cli.artifacts.looking import Version, What, find
from runenv.cli.options import (
    ScopeRun,
    ScopeSession,
    ScopeUser,
    StoreOptions,
    StoreUrl,
    pairs_of,
    scope_of,
    store_of,
)
from runenv.cli.terminal import bytes_in, one_line_errors, size, transfer_bar
from runenv.errors import ConfigError
from runenv.types import DEFAULT, Default

if TYPE_CHECKING:
    from runenv.artifacts.artifact import Record, Scope
    from runenv.artifacts.store import ArtifactStore

__all__ = ("get_command", "put_command")

STREAM: Final = "-"
"""Stands for stdin or stdout."""
CHUNK_BYTES: Final = 1024 * 1024
"""Read from stdin at a time."""


def get_command(
    what: What,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="File or folder, or - for stdout.")],
    *,
    version: Version = None,
    run: ScopeRun = None,
    session: ScopeSession = None,
    user: ScopeUser = None,
    store: StoreUrl = None,
    option: StoreOptions = None,
) -> None:
    """Write an artifact to a file or to stdout.

    Into TARGET where that is a folder or ends in /, under the artifact's name, if no file has that yet; else to that
    name, whatever was there. A file appears when all of it has come and has the hash of what was stored.

    Exit status: 0, or 1 when it was not written; to stdout, what came before is wrong then.

    Examples:
        runenv artifacts get deck.pptx . --session chat-7
        runenv artifacts get runenv+file://0b54... - --run run-1 | less
    """
    with one_line_errors():
        scope = scope_of(run, session, user)
        anyio.run(_get, store_of(store, option), what, version, scope, target)


def put_command(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="File, or - for stdin.", show_default=False)],
    *,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Its name; the file's own unless given. 'user:' before it: --user's."),
    ] = None,
    media_type: Annotated[str | None, typer.Option("--type", metavar="MIME", help="What it is declared to be.")] = None,
    metadata: Annotated[
        list[str] | None, typer.Option("-m", "--metadata", metavar="NAME=VALUE", help="Text that is kept beside it.")
    ] = None,
    ttl: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Until it expires, 0: never. 24 hours with --run, else never."),
    ] = None,
    run: ScopeRun = None,
    session: ScopeSession = None,
    user: ScopeUser = None,
    store: StoreUrl = None,
    option: StoreOptions = None,
) -> None:
    """Store a file or stdin, and print its handle.

    It is the next version of its name.

    Exit status: 0, or 1 when nothing was stored.

    Example:
        tar c ./data | runenv artifacts put - --name data.tar --session chat-7
    """
    with one_line_errors():
        scope = scope_of(run, session, user)
        if source == STREAM and name is None:
            raise ConfigError("what comes from stdin needs a name: --name")
        if Path(source).is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder: make a tar or a zip of it", source)
        lifetime: Default | float | None = DEFAULT if ttl is None else ttl or None
        job = _Put(scope, source, name, media_type, pairs_of("--metadata", metadata), lifetime)
        anyio.run(job.run, store_of(store, option, make=True))


class _Put:
    """What is to be stored."""

    def __init__(
        self,
        scope: "Scope",
        source: str,
        name: str | None,
        media_type: str | None,
        metadata: dict[str, str],
        ttl: Default | float | None,
    ) -> None:
        self._scope = scope
        self._source = source
        self._name = name
        self._media_type = media_type
        self._metadata = metadata
        self._ttl = ttl

    async def run(self, store: "ArtifactStore") -> None:
        """Store it and print the handle."""
        is_stream = self._source == STREAM
        data = _stdin() if is_stream else Path(self._source)
        total = None if is_stream else await anyio.to_thread.run_sync(bytes_in, Path(self._source))
        console = Console(stderr=True)
        async with store:
            with transfer_bar(console, self._name or self._source, total) as progress:
                handle = await store.put(
                    data,
                    filename=self._name,
                    scope=self._scope,
                    media_type=self._media_type,
                    metadata=self._metadata,
                    ttl=self._ttl,
                    progress=progress,
                )
            record = await store.stat(handle, scope=self._scope)
        sys.stdout.write(f"{handle}\n")
        console.print(f"stored {brief(record)}", markup=False, highlight=False, soft_wrap=True)


async def _get(store: "ArtifactStore", what: str, version: int | None, scope: "Scope", target: str) -> None:
    console = Console(stderr=True)
    async with store:
        record = await find(store, what, version, scope)
        if target == STREAM:
            quiet = Console(stderr=True, force_terminal=False) if sys.stdout.isatty() else console
            await _copy(store, record, scope, sys.stdout.buffer, quiet)
            return
        path = await anyio.to_thread.run_sync(_path, target, record)
        if await anyio.to_thread.run_sync(_is_special, path):
            with await anyio.to_thread.run_sync(path.open, "wb", abandon_on_cancel=True) as file:
                await _copy(store, record, scope, file, console)
        else:
            with transfer_bar(console, record.name, record.size) as progress:
                await store.get_file(record.handle, path, scope=scope, progress=progress)
    console.print(f"wrote {size(record.size)} to {path}", markup=False, highlight=False, soft_wrap=True)


async def _copy(store: "ArtifactStore", record: "Record", scope: "Scope", file: IO[bytes], console: Console) -> None:
    """Write content to what is no file, as it comes."""
    from runenv.artifacts.chunks import counted

    async with store.open_read(record.handle, scope=scope) as chunks:
        with transfer_bar(console, record.name, record.size) as progress:
            async with aclosing(counted(chunks, record.size, progress)) as told:
                async for chunk in told:
                    # A reader that waits (a pager) must not keep Ctrl-C from ending us.
                    await anyio.to_thread.run_sync(_write_out, file, chunk, abandon_on_cancel=True)


def _write_out(file: IO[bytes], data: bytes) -> None:
    file.write(data)
    file.flush()


def _path(target: str, record: "Record") -> Path:
    """Return which file on this host is meant.

    Raises:
        FileExistsError: a name that comes with the artifact would replace a file.
    """
    path = Path(target)
    if not target.endswith("/") and not path.is_dir():
        return path
    path /= record.name.rpartition("/")[2]
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, "a file has that name already: name it to replace it", str(path))
    return path


def _is_special(path: Path) -> bool:
    """Say whether it is a device, a FIFO or the like, which is written to as it is."""
    return path.exists() and not path.is_file()


async def _stdin() -> AsyncGenerator[bytes]:
    """Yield what stdin has. Waiting for it can be interrupted."""
    descriptor = sys.stdin.fileno()
    can_wait = not stat.S_ISREG(os.fstat(descriptor).st_mode)
    while True:
        if can_wait:
            try:
                await anyio.wait_readable(descriptor)
            except PermissionError:  # such as /dev/null, which is always ready
                can_wait = False
        chunk = await anyio.to_thread.run_sync(os.read, descriptor, CHUNK_BYTES)
        if not chunk:
            return
        yield chunk
