"""Streams of bytes that are passed on: joined into larger chunks, or counted. Knows no artifacts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable

    from runenv.types import Progress

__all__ = ("counted", "joined")


async def joined(chunks: AsyncIterable[bytes], least_bytes: int) -> AsyncGenerator[bytes]:
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


async def counted(chunks: AsyncIterable[bytes], total: int | None, progress: Progress | None) -> AsyncGenerator[bytes]:
    """Yield the same chunks, and tell how many bytes the receiver has taken; once even where there are none."""
    done = 0
    async for chunk in chunks:
        yield chunk
        done += len(chunk)
        if progress is not None:
            progress(done, None if total is None else max(done, total))
    if progress is not None and not done:
        progress(0, total)
