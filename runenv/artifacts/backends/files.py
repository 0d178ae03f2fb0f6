"""Reading and writing of open files in threads, a piece at a time. Knows nothing of artifacts."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING, Final

from runenv.artifacts.backends.backend import CHUNK_BYTES
from runenv.artifacts.backends.threads import to_its_end

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from runenv.artifacts.backends.threads import Threads

__all__ = ("read_pieces", "write_all")

PIECES_AT_ONCE: Final = 2
"""Read by a thread before it wakes the event loop."""


async def read_pieces(threads: Threads, fd: int, start: int, end: int | None) -> AsyncGenerator[bytes]:
    """Yield what is in a file, and read the next piece while one is worked on. To be closed before the descriptor is.

    Args:
        threads: where it is read.
        fd: the file; where it stands is neither used nor changed.
        start: bytes from the beginning of the file.
        end: the same; None: its end, wherever that is by then.
    """

    def begin() -> asyncio.Future[list[bytes]]:
        return threads.start(partial(_read, fd, start, end))

    reading, more = begin(), True
    try:
        while more:
            if not reading.done():
                await asyncio.wait((reading,))
            pieces = reading.result()
            start += sum(map(len, pieces))
            if more := bool(pieces[-1]):
                reading = begin()
            for piece in filter(None, pieces):
                yield piece
    finally:
        if not reading.done():
            await to_its_end(asyncio.wait((reading,)))
        reading.exception()  # seen: otherwise the loop logs it


def _read(fd: int, start: int, end: int | None) -> list[bytes]:
    """Read the next pieces, of which the last is empty when there are no more."""
    pieces: list[bytes] = []
    while len(pieces) < PIECES_AT_ONCE and (not pieces or pieces[-1]):
        size = CHUNK_BYTES if end is None else min(CHUNK_BYTES, end - start)
        pieces.append(os.pread(fd, size, start))
        start += len(pieces[-1])
    return pieces


def write_all(fd: int, data: bytes) -> None:
    """Write all of it, however many calls that takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
