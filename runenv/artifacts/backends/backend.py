"""`Backend`: what the store needs from a place that keeps artifacts. Protocols and the values that cross, nothing else.

Above is `runenv.artifacts.store`, which holds every policy: names, visibility, lifetimes, hashes. Below this line a
scope is a key, content is bytes under an id, and a record is an `Entry`. Implemented by `cataloged.py` (memory and
folders, over one SQL catalog) and `objects.py` (object storage).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from runenv.errors import LimitError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from contextlib import AbstractAsyncContextManager

    from runenv.artifacts.backends.entry import Entry

__all__ = (
    "CHUNK_BYTES",
    "TOMBSTONE_SECONDS",
    "UNREFERENCED_SECONDS",
    "Backend",
    "Chunks",
    "Pruned",
    "Quotas",
    "Witness",
    "check_quotas",
)

CHUNK_BYTES: Final = 1024 * 1024
"""Content travels in chunks of about this size."""
UNREFERENCED_SECONDS: Final = 24 * 3600.0
"""How long object storage keeps content that no record refers to, from when prune first saw it so."""
TOMBSTONE_SECONDS: Final = 7 * 24 * 3600.0
"""How long an artifact that expired is still told from one that never was."""

Chunks: TypeAlias = "AsyncIterator[bytes]"


class Witness(Protocol):
    """Learns of content as it passes: every chunk once and in order, before the last is given on."""

    def see(self, chunk: bytes) -> None:
        """Learn from a chunk. Blocks: for a thread that has the chunk in its hands anyway."""
        ...

    def watch(self, chunks: Chunks) -> Chunks:
        """Yield the same chunks: for a backend without such a thread."""
        ...


@dataclass(frozen=True, slots=True)
class Quotas:
    """Bounds of a store, each None for none.

    Attributes:
        max_artifact_bytes: of one artifact.
        max_bytes: of all content together; what is de-duplicated counts once.
        max_count: of all versions of all artifacts.
    """

    max_artifact_bytes: int | None = None
    max_bytes: int | None = None
    max_count: int | None = None


@dataclass(frozen=True, slots=True)
class Pruned:
    """What `prune` removed.

    Attributes:
        expired: artifacts whose time was over.
        leftovers: pieces of content that no artifact refers to: of writers that died, for the most part.
        bytes: of content that was freed.
    """

    expired: int = 0
    leftovers: int = 0
    bytes: int = 0


class Backend(Protocol):
    """A place that keeps artifacts. Errors are `StoreError` in one sentence, and hold no secrets."""

    async def open(self) -> None:
        """Make sure that the place is there and can do what is needed."""
        ...

    async def aclose(self) -> None:
        """Let go of it."""
        ...

    async def reserve(self, scope: str, name: str, id: str) -> int:
        """Return the next version of a name, for an id; nobody else gets it, now or later."""
        ...

    async def write(self, id: str, chunks: Chunks, witness: Witness) -> None:
        """Keep content that no record refers to yet; flat memory."""
        ...

    async def discard(self, id: str) -> None:
        """Remove what `write` left of content that is not going to be committed."""
        ...

    async def commit(self, entry: Entry, quotas: Quotas) -> None:
        """Make content that was written an artifact, all at once.

        Raises:
            LimitError: it does not fit into the quotas.
        """
        ...

    async def find(self, id: str, scopes: Sequence[str]) -> Entry | None:
        """Return the entry of a handle in the first of `scopes` that has it."""
        ...

    def latest(self, scope: str, prefix: str, now: float) -> AsyncIterator[Entry]:
        """Yield of each name that starts with `prefix` the highest version that has not expired, by name."""
        ...

    def versions(self, scope: str, name: str) -> AsyncIterator[Entry]:
        """Yield every version of a name that is there, highest first."""
        ...

    async def remove(self, entry: Entry) -> None:
        """Remove an artifact; its version stays taken."""
        ...

    async def clear(self, scope: str) -> int:
        """Remove every artifact of a scope and of those within it; return how many."""
        ...

    async def prune(self, now: float) -> Pruned:
        """Remove what has expired, and what nobody is going to refer to."""
        ...

    def read(self, entry: Entry, offset: int, length: int, witness: Witness) -> AbstractAsyncContextManager[Chunks]:
        """Open a range of the content, which stays readable while the artifact goes; it lies within the content."""
        ...

    def uri(self, entry: Entry) -> str:
        """Say where the content lies."""
        ...

    def path(self, uri: str) -> str | None:
        """Say where tools of the model's reach the content at one of our URIs, or None where they cannot."""
        ...


def check_quotas(quotas: Quotas, used: int, count: int) -> None:
    """Refuse what does not fit.

    Raises:
        LimitError: it would be more than a quota allows.
    """
    if quotas.max_bytes is not None and used > quotas.max_bytes:
        raise LimitError(
            f"the artifacts would take {used} bytes and the store's quota is {quotas.max_bytes}: delete some first"
        )
    if quotas.max_count is not None and count > quotas.max_count:
        raise LimitError(
            f"there are {count - 1} artifacts and the store's quota is {quotas.max_count}: delete some first"
        )
