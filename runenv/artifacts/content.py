"""What a store learns of content as it passes, what it remembers of objects that it has seen, and what it refuses.

Parts of `store.py`, which is above and decides what follows.
"""

from __future__ import annotations

import hashlib
import math
import weakref
from typing import TYPE_CHECKING, Any, Final

from runenv.artifacts.artifact import Artifact
from runenv.artifacts.backends.threads import Trailing
from runenv.artifacts.media import HEAD_BYTES
from runenv.errors import ConfigError, HandleError, LimitError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runenv.artifacts.backends.backend import Chunks
    from runenv.artifacts.backends.threads import Threads

__all__ = ("Content", "Known", "check_metadata", "check_ttl")

MAX_METADATA_BYTES: Final = 16 * 1024
"""Bounds the texts that a caller keeps beside an artifact, keys included."""
HASHED_AT_ONCE: Final = 64 * 1024
"""Bytes that are hashed in the event loop, which takes less than waking a thread."""
HASHED_LATER_BYTES: Final = 2 * 1024 * 1024
"""What may wait for being hashed while its giver goes on."""


class Content:
    """What is learned of content as it passes: size, hash, first bytes. The `Witness` of a backend.

    Args:
        threads: where large chunks are hashed.
        hashed: whether the hash is wanted.
    """

    def __init__(self, threads: Threads, *, hashed: bool = True) -> None:
        self.size = 0
        self.head = bytearray()
        self._hash = hashlib.sha256() if hashed else None
        self._threads = threads

    def see(self, chunk: bytes) -> None:
        """Learn from the next chunk, at once."""
        self.size += len(chunk)
        if len(self.head) < HEAD_BYTES:
            self.head += chunk[: HEAD_BYTES - len(self.head)]
        if self._hash is not None:
            self._hash.update(chunk)

    async def watch(self, chunks: Chunks) -> Chunks:
        """Yield the same chunks, of which large ones are hashed in a thread while the caller goes on with them."""
        later = Trailing(self._threads, self.see, HASHED_LATER_BYTES)
        async for chunk in chunks:
            if self._hash is None or (len(chunk) <= HASHED_AT_ONCE and later.is_idle):
                self.see(chunk)
            else:
                await later.put(chunk)
            yield chunk
        await later.end()

    @property
    def sha256(self) -> str:
        """The hash of what was seen, in hexadecimal digits; nothing where it was not wanted."""
        return "" if self._hash is None else self._hash.hexdigest()


class Known:
    """Which handle an `Artifact` object has got, while the object lives: a cache may hand it out again and again."""

    def __init__(self) -> None:
        self._handles: dict[int, tuple[weakref.ref[Artifact], dict[object, str]]] = {}

    def get(self, data: object, memo: object) -> str | None:
        """Return the handle of an object under the same circumstances."""
        reference, known = self._handles.get(id(data), (None, {}))
        return known.get(memo) if reference is not None and reference() is data else None

    def add(self, data: object, memo: object, handle: str) -> None:
        """Remember it. A file may change: only bytes are the same for ever."""
        if not isinstance(data, Artifact) or not isinstance(data.data, bytes):
            return
        key = id(data)
        if key not in self._handles or self._handles[key][0]() is not data:
            self._handles[key] = (weakref.ref(data, lambda _: self._handles.pop(key, None)), {})
        self._handles[key][1][memo] = handle


def check_ttl(seconds: float | None) -> None:
    """Refuse a lifetime that is none.

    Raises:
        ConfigError: it is no number, not finite, or not above 0.
    """
    is_number = isinstance(seconds, (int, float))  # who has no type checker gets the same clear words
    if seconds is not None and not (is_number and math.isfinite(seconds) and seconds > 0):
        raise ConfigError("a lifetime is a finite number of seconds above 0, or None for no end")


def check_metadata(metadata: Mapping[Any, object]) -> None:
    """Refuse what is no texts, or too many.

    Raises:
        HandleError: a key or a value is no text.
        LimitError: they are larger than `MAX_METADATA_BYTES` together.
    """
    size = 0
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise HandleError(f"the metadata {key!r} is not a text with a text as its key")
        try:
            size += len(key.encode()) + len(value.encode())
        except UnicodeEncodeError as error:
            raise HandleError(
                f"the metadata {key!r} has half of a surrogate pair in it, which UTF-8 cannot hold"
            ) from error
    if size > MAX_METADATA_BYTES:
        raise LimitError(
            f"the metadata has {size} bytes and the limit is {MAX_METADATA_BYTES}: store it as an artifact"
        )
