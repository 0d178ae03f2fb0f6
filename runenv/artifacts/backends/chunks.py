"""`joined`: a stream in chunks that are worth a step of their own. Knows nothing of artifacts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runenv.artifacts.backends.backend import Chunks

__all__ = ("joined",)


async def joined(chunks: Chunks, least_bytes: int) -> Chunks:
    """Yield what a stream holds in chunks of at least so many bytes, but for the last.

    A chunk that is large enough is given on as it is; smaller ones are gathered, and copied once.
    """
    waiting: list[bytes] = []
    size = 0
    async for chunk in chunks:
        waiting.append(chunk)
        size += len(chunk)
        if size >= least_bytes:
            yield b"".join(waiting)  # of one alone this is no copy
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)
