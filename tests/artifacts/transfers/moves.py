"""What the tests of transfers share: envs and stores to move between, and an env that does something in the middle."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable

    from runenv.artifacts import ArtifactStore, Record
    from runenv.env import RunEnv

__all__ = (
    "FLAT_BYTES",
    "MIB",
    "SCOPE",
    "Meddled",
    "damage",
    "left_in",
    "names",
    "noise",
    "until_names",
    "written_bytes",
)

MIB: Final = 1024 * 1024
SCOPE: Final = "run-1"
FLAT_BYTES: Final = 64 * MIB
"""What moving any number of bytes may cost this process at most."""


class Meddled:
    """An env as it is, but when the first piece of a stream has passed, something happens."""

    def __init__(self, env: RunEnv, meddle: Callable[[], Awaitable[object]]) -> None:
        self._env = env
        self._meddle = meddle

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the env has
        return getattr(self._env, name)

    @asynccontextmanager
    async def open_read(self, path: str) -> AsyncGenerator[AsyncIterator[bytes]]:
        async with self._env.open_read(path) as chunks:
            yield self._watched(chunks)

    @asynccontextmanager
    async def open_read_tree(self, path: str, **patterns: Any) -> AsyncGenerator[Any]:  # noqa: ANN401 - as above
        streams: Any = self._env
        async with streams.open_read_tree(path, **patterns) as chunks:
            yield self._watched(chunks)

    async def write(self, path: str, data: AsyncIterable[bytes], **options: Any) -> None:  # noqa: ANN401 - as above
        await self._env.write(path, self._watched(data), **options)

    async def write_tree(self, path: str, stream: AsyncIterable[bytes]) -> Any:  # noqa: ANN401 - as above
        streams: Any = self._env
        return await streams.write_tree(path, self._watched(stream))

    async def _watched(self, chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        first = True
        async for chunk in chunks:
            yield chunk
            if first:
                first = False
                await self._meddle()


def noise(size: int) -> bytes:
    """Return bytes that no store holds yet."""
    return os.urandom(min(size, MIB)) * -(-size // MIB) if size > MIB else os.urandom(size)


async def damage(store: ArtifactStore, record: Record) -> None:
    """Change a byte of what a store holds, behind its back."""
    data = bytearray(await store.get(record.handle, scope=record.scope))
    data[-1] ^= 1
    backend: Any = store._backend
    path = store.path(record)
    if path is None:
        backend._payloads._kept[record.sha256] = bytes(data)
    elif path.startswith("s3://"):
        key = f"payloads/{record.handle.rpartition('/')[2]}"
        await backend._bucket.put(key, bytes(data))
    else:
        Path(path).chmod(0o600)
        Path(path).write_bytes(data)


async def left_in(store: ArtifactStore) -> list[str]:
    """Return what a store holds: names that it lists, and content that nobody refers to."""
    found = [record.name async for record in store.list(SCOPE)]
    backend: Any = store._backend
    if hasattr(backend, "_bucket"):
        return found + [meta["path"] async for meta in backend._bucket.list("payloads")]
    payloads = backend._payloads
    found += await anyio.to_thread.run_sync(lambda: tuple(payloads.kept()))
    return found + list(getattr(payloads, "_written", ()))


async def names(env: RunEnv, path: str = ".") -> list[str]:
    """Return what is in a folder of the env."""
    return [entry.path for entry in await env.list(path)]


async def until_names(env: RunEnv, expected: list[str]) -> None:
    """Wait until the working folder holds just these: what an env undoes is gone soon, not at once."""
    with anyio.fail_after(10):
        while await names(env) != expected:
            await anyio.lowlevel.checkpoint()


def written_bytes() -> int:
    """Return how much this process has written to storage."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes:"))
