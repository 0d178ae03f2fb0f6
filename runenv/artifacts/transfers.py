"""Between the files of an env and the store: streamed both ways, through this process but never its disk.

`save` and `load` move one file, `save_tree` and `load_tree` a folder as one tar artifact. What is stored was whole and
did not change meanwhile; what is written to the env has the hash that the record says, or is not there. Nothing here
knows a backend or a kind of env: above are tools and adapters, below the store and the protocols of `runenv.env`.

Both legs run at once. Into the store that has 0.8 to 0.9 of the slower leg's speed; out of it 0.7 to 0.8 from a folder,
and 0.6 to 0.7 from an S3 server on the same machine. Two cores are all in use then: for 256 MiB hashing, sending and
the guest's writing take 0.6 s of processor time, and the server 0.45 s more (2026-11-28, `scripts/bench`).
"""

from __future__ import annotations

import errno
import os
import posixpath
import secrets
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

import anyio

from runenv.artifacts.chunks import counted
from runenv.env import TreeStreams
from runenv.errors import ArtifactError, EnvError
from runenv.types import DEFAULT

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from runenv.artifacts.artifact import Record, Scope
    from runenv.artifacts.store import ArtifactStore
    from runenv.env import RunEnv
    from runenv.types import Default, FileInfo, Progress, TransferResult

__all__ = ("load", "load_tree", "save", "save_tree")

TAR: Final = "application/x-tar"
CLEANUP_TIMEOUT: Final = 30.0
"""Seconds that taking away a half made folder may take; a lost env answers at once."""


async def save(
    env: RunEnv,
    path: str,
    store: ArtifactStore,
    *,
    scope: str | Scope,
    filename: str | None = None,
    media_type: str | None = None,
    metadata: Mapping[str, str] | None = None,
    ttl: float | Default | None = DEFAULT,
    progress: Progress | None = None,
) -> str:
    """Store a file of an env as it is, and return its handle.

    Args:
        env: where the file is.
        path: the file; a link is followed.
        store: where it goes.
        scope: whose it is to be.
        filename: its name in the store, with "user:" before it at user level; the last name of `path` when None.
        media_type: as declared; what the bytes say wins.
        metadata: your own texts beside it.
        ttl: seconds until it expires, None for never; by default as the store does for this scope.
        progress: called with bytes done and total; the total is None where the env does not know it.

    Returns:
        The handle of the new version.

    Raises:
        FileNotFoundError, IsADirectoryError, PermissionError, OSError: the file cannot be read.
        ArtifactError: the file changed meanwhile, or the store failed.
        LimitError: it does not fit into the store's quotas.
        EnvError: the env was lost or is closed. In all cases nothing was stored.
    """
    info = await env.stat(path)
    if info.is_dir:
        raise IsADirectoryError(errno.EISDIR, "it is a folder, which save_tree stores", path)
    async with _begun(_steady(env, path, info, progress)) as stream:
        return await store.put(
            stream,
            filename=_last_name(env, path) if filename is None else filename,
            scope=scope,
            media_type=media_type,
            metadata=metadata,
            ttl=ttl,
        )


async def load(
    env: RunEnv,
    handle: str,
    path: str,
    store: ArtifactStore,
    *,
    scope: str | Scope,
    mode: int | None = None,
    progress: Progress | None = None,
) -> Record:
    """Write an artifact to a file of an env, atomically, and return its record.

    Args:
        env: where the file is to be.
        handle: of the artifact.
        path: the file; missing parents are made, an old content is replaced once the new one is whole.
        store: where the artifact is.
        scope: who asks.
        mode: permission bits, as in `RunEnv.write`.
        progress: called with bytes done and total.

    Raises:
        ArtifactMissingError: no such artifact in this scope.
        StoreError: the store failed, or what it holds is damaged.
        PermissionError, IsADirectoryError, OSError: the file cannot be written.
        EnvError: the env was lost or is closed. In all cases an old file is as it was, and no new one is there.
    """
    record = await store.stat(handle, scope=scope)
    async with (
        store.open_read(handle, scope=scope) as chunks,
        aclosing(counted(chunks, record.size, progress)) as stream,
    ):
        await env.write(path, stream, mode=mode)
    return record


async def save_tree(
    env: RunEnv,
    path: str,
    store: ArtifactStore,
    *,
    scope: str | Scope,
    filename: str | None = None,
    metadata: Mapping[str, str] | None = None,
    ttl: float | Default | None = DEFAULT,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    progress: Progress | None = None,
) -> tuple[str, TransferResult]:
    """Store a folder of an env as one tar archive; return its handle and what is in it.

    Args:
        env: where the folder is; it must offer `TreeStreams`.
        path: the folder. It may change meanwhile: files that did are listed as refused.
        store: where it goes.
        scope: whose it is to be.
        filename: its name in the store; the folder's name and ".tar" when None.
        metadata: your own texts beside it.
        ttl: as in `save`.
        include: patterns, as in `RunEnv.download`.
        exclude: the same.
        progress: called with bytes of the archive and None, since its total is not known.

    Raises:
        FileNotFoundError, NotADirectoryError, PermissionError, OSError: the folder cannot be read.
        StoreError: the store failed.
        LimitError: it does not fit into the store's quotas.
        EnvError: the env offers no tree streams, was lost or is closed. In all cases nothing was stored.
    """
    streams = _streams_of(env)
    _need_folder(await env.stat(path), path)
    name = f"{_last_name(env, path) or 'files'}.tar" if filename is None else filename
    async with (
        streams.open_read_tree(path, include=include, exclude=exclude) as tar,
        _begun(counted(tar, None, progress)) as stream,
    ):
        handle = await store.put(stream, filename=name, scope=scope, media_type=TAR, metadata=metadata, ttl=ttl)
        return handle, tar.result


async def load_tree(
    env: RunEnv,
    handle: str,
    path: str,
    store: ArtifactStore,
    *,
    scope: str | Scope,
    progress: Progress | None = None,
) -> TransferResult:
    """Unpack a tar artifact, whoever made it, into a folder of an env; nothing lands outside of that.

    A folder that is not there yet appears whole or not at all. One that exists is merged into: files and links are
    replaced, folders kept. For that the artifact is read twice, so that no byte of a damaged one gets there; when the
    env fails or the caller is cancelled, what came before stays.

    Args:
        env: where the folder is to be; it must offer `TreeStreams`.
        handle: of the artifact.
        path: the folder; missing parents are made.
        store: where the artifact is.
        scope: who asks.
        progress: called with bytes of the archive done and total.

    Returns:
        What was moved, and what was refused: names and links that lead out, hard links, devices, special bits.

    Raises:
        ArtifactMissingError: no such artifact in this scope.
        StoreError: the store failed, or what it holds is damaged.
        NotADirectoryError, PermissionError, OSError: the folder cannot be written, or the artifact is no tar archive.
        EnvError: the env offers no tree streams, was lost or is closed.
    """
    streams = _streams_of(env)
    record = await store.stat(handle, scope=scope)
    try:
        _need_folder(await env.stat(path), path)
    except FileNotFoundError:
        return await _load_new_tree(env, streams, record, path, store, scope, progress)
    async with store.open_read(handle, scope=scope) as chunks:
        async for _ in chunks:  # the store checks the hash
            pass
    return await _load_into(streams, record, path, store, scope, progress)


async def _load_new_tree(
    env: RunEnv,
    streams: TreeStreams,
    record: Record,
    path: str,
    store: ArtifactStore,
    scope: str | Scope,
    progress: Progress | None,
) -> TransferResult:
    """Unpack beside the place, and put it there when it is whole."""
    target = path.rstrip("/")
    unfinished = posixpath.join(posixpath.dirname(target), f".{secrets.token_hex(8)}.part")
    try:
        result = await _load_into(streams, record, unfinished, store, scope, progress)
        await env.rename(unfinished, target)
    except BaseException:
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + CLEANUP_TIMEOUT):
            with suppress(OSError, EnvError):
                await env.remove(unfinished, recursive=True, missing_ok=True)
        raise
    return result


async def _load_into(
    streams: TreeStreams,
    record: Record,
    path: str,
    store: ArtifactStore,
    scope: str | Scope,
    progress: Progress | None,
) -> TransferResult:
    async with (
        store.open_read(record.handle, scope=scope) as chunks,
        aclosing(counted(chunks, record.size, progress)) as stream,
    ):
        return await streams.write_tree(path, stream)


async def _steady(env: RunEnv, path: str, info: FileInfo, progress: Progress | None) -> AsyncGenerator[bytes]:
    """Yield the content of a file; raise before its end if it is not what it was at the beginning."""
    done = 0
    async with env.open_read(path) as chunks, aclosing(counted(chunks, info.size or None, progress)) as told:
        async for chunk in told:
            done += len(chunk)
            yield chunk
    try:
        after = await env.stat(path)
    except FileNotFoundError:
        after = None
    if after is not None and after.size == info.size == 0:  # as files of /proc say, whatever is in them
        return
    if after is None or done != info.size or (after.size, after.mtime) != (info.size, info.mtime):
        raise ArtifactError(f"{path!r} changed while it was saved, so nothing was stored: save a copy of it")


@asynccontextmanager
async def _begun(stream: AsyncGenerator[bytes]) -> AsyncGenerator[AsyncGenerator[bytes]]:
    """Give the same stream, of which the first piece was read: what cannot be read costs the store no version."""

    async def whole() -> AsyncGenerator[bytes]:
        if first:
            yield first
        async for piece in stream:
            yield piece

    async with aclosing(stream):
        first = await anext(stream, b"")
        async with aclosing(whole()) as same:
            yield same


def _streams_of(env: RunEnv) -> TreeStreams:
    if not isinstance(env, TreeStreams):
        raise EnvError(f"a {env.kind} env offers no tree streams (`TreeStreams`): move its files one by one")
    return env


def _need_folder(info: FileInfo, path: str) -> None:
    if not info.is_dir:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)


def _last_name(env: RunEnv, path: str) -> str:
    return posixpath.basename(posixpath.normpath(posixpath.join(env.workdir, path)))
