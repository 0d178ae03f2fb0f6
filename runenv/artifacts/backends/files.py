"""Reading and writing of open files in threads, a piece at a time. Knows nothing of artifacts."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING

from runenv.artifacts.backends.backend import CHUNK_BYTES
from runenv.artifacts.backends.threads import to_its_end

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from runenv.artifacts.backends.threads import Threads

__all__ = ("read_pieces", "write_all")


async def read_pieces(threads: Threads, fd: int, start: int, end: int | None) -> AsyncGenerator[bytes]:
    """Yield what is in a file, and read the next piece while one is worked on. To be closed before the descriptor is.

    Args:
        threads: where it is read.
        fd: the file; where it stands is neither used nor changed.
        start: bytes from the beginning of the file.
        end: the same; None: its end, wherever that is by then.
    """

    def begin() -> asyncio.Future[bytes]:
        size = CHUNK_BYTES if end is None else min(CHUNK_BYTES, end - start)
        return threads.start(partial(os.pread, fd, size, start))

    if end is not None and start >= end:
        return
    reading = begin()
    try:
        while True:
            if not reading.done():
                await asyncio.wait((reading,))
            piece = reading.result()
            if not piece:
                return
            start += len(piece)
            is_last = end is not None and start >= end
            if not is_last:
                reading = begin()
            yield piece
            if is_last:
                return
    finally:
        if not reading.done():
            await to_its_end(asyncio.wait((reading,)))
        reading.exception()  # seen: otherwise the loop logs it


def write_all(fd: int, data: bytes) -> None:
    """Write all of it, however many calls that takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
