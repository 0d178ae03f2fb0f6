"""`CatalogedBackend`: records in an SQL catalog, content by its hash beside it. For memory and for folders.

Content is kept once for each hash, and counted: that is exact, since references are added and removed in transactions.
Content goes in a transaction of its own, after the one that removed its last reference: a process that is killed in
between leaves content that nobody refers to, which `prune` finds, and never a reference to nothing.
Above is `runenv.artifacts.store`; below are `catalog.py` and one `Payloads`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

from runenv.artifacts.backends.backend import Pruned
from runenv.artifacts.backends.catalog import PAGE, Catalog
from runenv.artifacts.backends.entry import scope_key
from runenv.artifacts.backends.failures import failures
from runenv.artifacts.backends.threads import Inline, Threads
from runenv.errors import LimitError, StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence
    from contextlib import AbstractAsyncContextManager

    from runenv.artifacts.backends.backend import Chunks, Quotas, Witness
    from runenv.artifacts.backends.entry import Entry

__all__ = ("CatalogedBackend", "Payloads")

P = ParamSpec("P")
T = TypeVar("T")


class Payloads(Protocol):
    """Content beside a catalog: first under an id, then under its hash. What is not async blocks, in a thread."""

    @property
    def in_memory(self) -> bool:
        """It waits for no disk, and neither does its catalog."""
        ...

    def open(self) -> str:
        """Make sure that the place is there; return where its catalog is."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...

    async def write(self, id: str, chunks: Chunks, witness: Witness) -> None:
        """Keep content under an id, until this process ends at the latest. What the stream raises stays what it is."""
        ...

    def discard(self, id: str) -> None:
        """Remove what is under an id, if anything is."""
        ...

    def keep(self, id: str, sha256: str, size: int, *, known: bool) -> None:
        """Move what is under an id to its hash, where the same may be already."""
        ...

    def unlink(self, sha256: str) -> int:
        """Remove what is under a hash; return how many bytes that were."""
        ...

    def kept(self) -> Iterator[str]:
        """Yield the hashes under which something is."""
        ...

    def sweep(self) -> list[int]:
        """Remove what dead processes left under ids; return the sizes."""
        ...

    def read(self, entry: Entry, offset: int, length: int, witness: Witness) -> AbstractAsyncContextManager[Chunks]:
        """Open a range of what is under the hash of an entry."""
        ...

    def uri(self, entry: Entry) -> str:
        """Say where it is."""
        ...

    def path(self, uri: str) -> str | None:
        """Say where tools reach it."""
        ...


class CatalogedBackend:
    """A `Backend` over a catalog and payloads."""

    def __init__(self, payloads: Payloads) -> None:
        self._payloads = payloads
        self._catalog: Catalog | None = None
        # A database in memory waits for nothing. Another one has one thread, since it has one connection.
        self._threads = Inline() if payloads.in_memory else Threads(1)
        self.read = payloads.read
        self.uri = payloads.uri
        self.path = payloads.path

    async def open(self) -> None:
        """Make the tables if they are not there, and remove what dead writers left."""
        try:
            await self._threads.run(self._open)
        except BaseException:  # cancelled: it may be open
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Close the catalog."""
        try:
            await self._threads.run(self._close)
        finally:
            self._threads.stop()

    async def reserve(self, scope: str, name: str, id: str) -> int:  # noqa: ARG002 - the protocol's
        """Take the next version."""
        return await self._run(Catalog.reserve, scope, name)

    async def write(self, id: str, chunks: Chunks, witness: Witness) -> None:
        """Write content beside the catalog."""
        await self._payloads.write(id, chunks, witness)

    async def discard(self, id: str) -> None:
        """Remove it again, though the store was closed meanwhile."""
        with failures("the content cannot be removed"):
            await self._threads.run(self._payloads.discard, id)

    async def commit(self, entry: Entry, quotas: Quotas) -> None:
        """Add the entry; what has expired makes room if that is needed."""
        try:
            await self._run(self._commit, entry, quotas)
        except LimitError:
            if not (await self._expire(entry.created))[0]:
                raise
            await self._run(self._commit, entry, quotas)

    async def find(self, id: str, scopes: Sequence[str]) -> Entry | None:
        """Look the handle up."""
        return await self._run(Catalog.find, id, scopes)

    async def latest(self, scope: str, prefix: str, now: float) -> AsyncIterator[Entry]:
        """Page through the names."""
        after = ""
        while page := await self._run(Catalog.latest, scope, prefix, after, now):
            for entry in page:
                yield entry
            after = page[-1].name

    async def versions(self, scope: str, name: str) -> AsyncIterator[Entry]:
        """Page through the versions."""
        below = sys.maxsize
        while page := await self._run(Catalog.versions, scope, name, below):
            for entry in page:
                yield entry
            below = page[-1].version

    async def remove(self, entry: Entry) -> None:
        """Remove the entry, and its content if that was the last reference."""
        hashes = (await self._run(Catalog.remove, entry.id))[1]
        await self._run(self._drop, hashes)

    async def clear(self, scope: str) -> int:
        """Remove page by page."""
        return (await self._by_pages(lambda catalog: catalog.clear(scope)))[0]

    async def prune(self, now: float) -> Pruned:
        """Free what is over, then what a killed process left: content without reference, and content under ids."""
        expired, freed = await self._expire(now)
        swept = await self._run(self._sweep)
        strays, stray_bytes = await self._run(self._drop_strays)
        return Pruned(expired, len(swept) + strays, freed + sum(swept) + stray_bytes)

    # -- inside

    def _open(self) -> None:
        with failures("the artifact store cannot be opened"):
            path = self._payloads.open()
            try:
                self._catalog = Catalog(path, self._check_new)
            except BaseException:
                self._payloads.close()
                raise
            self._payloads.sweep()

    def _check_new(self) -> None:
        """Refuse to begin a catalog where there is content: versions would start anew, and `prune` remove all of it."""
        if next(self._payloads.kept(), None) is not None:
            raise StoreError(
                "the artifact store has content and no catalog of it: put its catalog.sqlite back, or move the folder"
                " away to begin a new one"
            )

    def _close(self) -> None:
        if self._catalog is not None:
            self._catalog.close()
            self._payloads.close()
            self._catalog = None

    def _commit(self, catalog: Catalog, entry: Entry, quotas: Quotas) -> None:
        def keep(known: bool) -> None:  # noqa: FBT001 - called by position
            self._payloads.keep(entry.id, entry.sha256, entry.size, known=known)

        catalog.commit(entry, scope_key(entry.scope), quotas, keep)

    async def _expire(self, now: float) -> tuple[int, int]:
        return await self._by_pages(lambda catalog: catalog.expire(now))

    async def _by_pages(self, remove: Callable[[Catalog], tuple[int, list[str]]]) -> tuple[int, int]:
        """Remove pages until there are none; return how many artifacts and bytes that were."""
        count = freed = 0

        def page(catalog: Catalog) -> tuple[int, int]:
            removed, hashes = remove(catalog)
            return removed, self._drop(catalog, hashes)[1]

        while (done := await self._run(page))[0]:
            count, freed = count + done[0], freed + done[1]
        return count, freed

    def _sweep(self, _: Catalog) -> list[int]:
        return self._payloads.sweep()

    def _drop(self, catalog: Catalog, hashes: Sequence[str]) -> tuple[int, int]:
        return catalog.drop(hashes, self._payloads.unlink) if hashes else (0, 0)

    def _drop_strays(self, catalog: Catalog) -> tuple[int, int]:
        """A page at a time, so that writers of other processes need not wait for all of it."""
        count = freed = 0
        kept = list(self._payloads.kept())
        for start in range(0, len(kept), PAGE):
            strays, size = self._drop(catalog, catalog.unknown(kept[start : start + PAGE]))
            count, freed = count + strays, freed + size
        return count, freed

    async def _run(self, function: Callable[Concatenate[Catalog, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._threads.run(lambda: self._call(function, *args, **kwargs))

    def _call(self, function: Callable[Concatenate[Catalog, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._catalog is None:
            raise StoreError("the artifact store is closed")
        with failures("the artifact store failed"):
            return function(self._catalog, *args, **kwargs)
