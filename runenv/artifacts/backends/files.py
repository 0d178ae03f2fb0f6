"""Reading and writing of open files in threads, a piece at a time. Knows nothing of artifacts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from runenv.artifacts.backends.backend import CHUNK_BYTES
from runenv.artifacts.backends.threads import Leading

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from runenv.artifacts.backends.threads import Threads

__all__ = ("read_pieces", "write_all")

READ_AHEAD: Final = 4
"""Pieces that may wait for who works on them."""


async def read_pieces(
    threads: Threads, fd: int, start: int, end: int | None, *, see: Callable[[bytes], object] | None = None
) -> AsyncGenerator[bytes]:
    """Yield what is in a file, and read on while a piece is worked on. To be closed before the descriptor is.

    Args:
        threads: where it is read.
        fd: the file; where it stands is neither used nor changed.
        start: bytes from the beginning of the file.
        end: the same; None: its end, wherever that is by then.
        see: called with each piece in the thread that has just read it, while the processor has it at hand.
    """

    def read() -> bytes:
        nonlocal start
        piece = os.pread(fd, CHUNK_BYTES if end is None else min(CHUNK_BYTES, end - start), start)
        start += len(piece)
        if see is not None:
            see(piece)
        return piece

    reading = Leading(threads, read, READ_AHEAD)
    try:
        while piece := await reading.get():
            yield piece
    finally:
        await reading.stop()


def write_all(fd: int, data: bytes) -> None:
    """Write all of it, however many calls that takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
