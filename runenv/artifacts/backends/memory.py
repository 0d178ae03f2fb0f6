"""Artifacts in this process' memory, gone when the store is closed. The catalog is the same as a folder's."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from runenv.artifacts.backends.backend import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from runenv.artifacts.backends.backend import Chunks, Witness
    from runenv.artifacts.backends.entry import Entry

__all__ = ("MemoryPayloads",)


class MemoryPayloads:
    """Content as bytes in dictionaries."""

    in_memory = True

    def __init__(self) -> None:
        self._written: dict[str, bytes] = {}
        self._kept: dict[str, bytes] = {}

    def open(self) -> str:
        """Return where a catalog in memory is."""
        return ":memory:"

    def close(self) -> None:
        """Forget everything."""
        self._written.clear()
        self._kept.clear()

    async def write(self, id: str, chunks: Chunks, witness: Witness) -> None:
        """Collect the chunks."""
        self._written[id] = b"".join([chunk async for chunk in witness.watch(chunks)])

    def discard(self, id: str) -> None:
        """Forget what is under an id."""
        self._written.pop(id, None)

    def keep(self, id: str, sha256: str, size: int, *, known: bool) -> None:  # noqa: ARG002 - the protocol's
        """Move it to its hash."""
        self._kept.setdefault(sha256, self._written.pop(id))

    def unlink(self, sha256: str) -> int:
        """Forget what is under a hash."""
        return len(self._kept.pop(sha256, b""))

    def kept(self) -> Iterator[str]:
        """Yield the hashes."""
        yield from tuple(self._kept)

    def sweep(self) -> list[int]:
        """Nothing outlives the process."""
        return []

    @asynccontextmanager
    async def read(self, entry: Entry, offset: int, length: int, witness: Witness) -> AsyncGenerator[Chunks]:
        """Yield slices of it."""
        data = self._kept.get(entry.sha256, b"")

        async def chunks() -> Chunks:
            for start in range(offset, offset + length, CHUNK_BYTES):
                yield data[start : min(start + CHUNK_BYTES, offset + length)]

        yield witness.watch(chunks())

    def uri(self, entry: Entry) -> str:
        """Return a name that is good in this process only."""
        return f"memory:///{entry.sha256}"

    def path(self, uri: str) -> None:
        """No tool reaches this process' memory."""
