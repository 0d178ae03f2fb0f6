"""Reading and writing of open files in threads, a piece at a time. Knows no stores."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from runenv.artifacts.backends.backend import CHUNK_BYTES
from runenv.artifacts.backends.threads import Leading
from runenv.errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from runenv.artifacts.backends.backend import Chunks
    from runenv.artifacts.backends.threads import Threads

__all__ = ("check_regular", "read_pieces", "write_all")

READ_AHEAD: Final = 4
"""Pieces that may wait for who works on them."""


def check_regular(path: Path, mode: int) -> None:
    """Refuse what is no regular file.

    Raises:
        IsADirectoryError: it is a folder.
        ArtifactError: it is something else, such as a FIFO.
    """
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise ArtifactError(f"{str(path)!r} is no regular file")


@asynccontextmanager
async def read_pieces(
    threads: Threads, fd: int, start: int, end: int | None, *, see: Callable[[bytes], object] | None = None
) -> AsyncGenerator[Chunks]:
    """Give what is in a file in pieces, and read on while one is worked on; close the file when nobody reads it.

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

    async def pieces() -> Chunks:
        while piece := await reading.get():
            yield piece

    reading = Leading(threads, read, READ_AHEAD)
    try:
        yield pieces()
    finally:
        try:
            await reading.stop()
        finally:
            await threads.run(os.close, fd)


def write_all(fd: int, data: bytes) -> None:
    """Write all of it, however many calls that takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
