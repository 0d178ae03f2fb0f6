"""What can be put into a store, as one kind of thing: a stream of chunks, with what is known about it beforehand.

Chunks have a decent size, whatever the size of the pieces that a stream gives.
Above is `store.py`; nothing here knows where the bytes go.
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from runenv.artifacts.artifact import Artifact
from runenv.artifacts.backends.backend import CHUNK_BYTES
from runenv.artifacts.backends.files import check_regular, read_pieces
from runenv.artifacts.chunks import joined
from runenv.errors import HandleError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Mapping

    from runenv.artifacts.backends.backend import Chunks
    from runenv.artifacts.backends.threads import Threads

__all__ = ("Data", "Source", "opened")

JOINED_BYTES: Final = 512 * 1024
"""Smaller pieces are joined: a copy costs less than the turns that two threads take in the interpreter for each one
(2026-11-28, an env's pieces of 128 KiB into a folder: 420 MiB/s as they came, 510 joined)."""

Data: TypeAlias = "bytes | bytearray | memoryview | Path | AsyncIterable[bytes] | Artifact"
"""Bytes, the path of a file on this host, a stream, or all of it together."""


@dataclass(frozen=True, slots=True)
class Source:
    """What is put, and what is said about it."""

    data: bytes | bytearray | memoryview | Path | AsyncIterable[bytes]
    filename: str
    media_type: str | None
    metadata: Mapping[str, str]

    @classmethod
    def of(cls, data: Data, filename: str | None, media_type: str | None, metadata: Mapping[str, str] | None) -> Source:
        """Take apart what was given; what is said in the call goes before what an `Artifact` says.

        Raises:
            HandleError: nobody says what its name is.
            TypeError: it is nothing that can be put.
        """
        if isinstance(data, Artifact):
            return cls.of(
                data.data,
                data.filename if filename is None else filename,
                data.media_type if media_type is None else media_type,
                data.metadata if metadata is None else metadata,
            )
        if isinstance(data, str):  # a text of a model, taken for a path, would give it files of this host
            raise TypeError("a text is not taken as data: pass text.encode(), or Path(...) for a file of this host")
        if filename is None:
            if not isinstance(data, Path):
                raise HandleError("an artifact needs a name: pass filename=")
            filename = data.name
        if not isinstance(data, bytes | bytearray | memoryview | Path) and not hasattr(data, "__aiter__"):
            raise TypeError(f"an artifact is made of bytes, a path or an async stream, not of {type(data).__name__}")
        return cls(data, filename, media_type, dict(metadata or {}))


@asynccontextmanager
async def opened(source: Source, threads: Threads) -> AsyncGenerator[tuple[Chunks, int | None]]:
    """Yield the content in chunks, and its size where that is known.

    Raises:
        OSError: the file cannot be read.
        ArtifactError: it is no regular file.
    """
    data = source.data
    if isinstance(data, Path):
        path = data
        fd = await threads.open(lambda: _open(path))
        async with read_pieces(threads, fd, 0, None) as pieces:
            yield pieces, os.fstat(fd).st_size
    elif isinstance(data, bytes | bytearray | memoryview):
        whole = bytes(data)  # the caller may change what is not bytes
        yield _slices(whole), len(whole)
    else:
        yield joined(_cut(data), JOINED_BYTES), None


def _open(path: Path) -> int:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO would wait for a writer
    try:
        check_regular(path, os.fstat(fd).st_mode)
    except BaseException:
        os.close(fd)
        raise
    return fd


async def _slices(data: bytes) -> Chunks:
    for start in range(0, len(data), CHUNK_BYTES):
        yield data[start : start + CHUNK_BYTES]


async def _cut(stream: AsyncIterable[bytes]) -> Chunks:
    """Yield pieces, which may be any buffers that their giver uses again, as bytes of at most `CHUNK_BYTES`."""
    async for piece in stream:
        if len(piece) <= CHUNK_BYTES:
            yield bytes(piece)  # of bytes this is no copy
        else:
            view = memoryview(piece)
            for start in range(0, len(view), CHUNK_BYTES):
                yield bytes(view[start : start + CHUNK_BYTES])
