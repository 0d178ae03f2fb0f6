"""Blocking work in threads of one's own, and work that is finished even when nobody waits for it any more.

anyio's scopes shield from anyio's cancellation, not from `Task.cancel`: a thread would go on with a descriptor that its
owner has closed, and a record would be written after its content was removed. Knows nothing of artifacts.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ("Inline", "Threads", "to_its_end")

P = ParamSpec("P")
T = TypeVar("T")


async def to_its_end(work: Awaitable[T], *, undo: Callable[[T], object] | None = None) -> T:
    """Return or raise when `work` has ended, not before.

    Args:
        work: what is waited for.
        undo: called with a result that nobody gets any more, because the task was cancelled.

    Raises:
        asyncio.CancelledError: afterwards, if the task was cancelled meanwhile other than by a scope around it.
    """
    future: asyncio.Future[T] = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not future.done():
            try:
                await asyncio.wait((future,))
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        # Looking at the error keeps the loop from logging it.
        if not future.cancelled() and future.exception() is None and undo is not None:
            undo(future.result())
        raise cancelled
    return future.result()


class Threads:
    """A few threads, started when they are needed and ended by `stop`."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._pool: ThreadPoolExecutor | None = None

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking function to its end, whether or not the task is cancelled meanwhile."""
        return await to_its_end(self._start(lambda: function(*args, **kwargs)))

    async def open(self, function: Callable[[], int]) -> int:
        """Run a function that opens a descriptor, which is closed again when the task is cancelled meanwhile."""
        return await to_its_end(self._start(function), undo=os.close)

    def _start(self, function: Callable[[], T]) -> asyncio.Future[T]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._count, thread_name_prefix="runenv-artifacts")
        return asyncio.get_running_loop().run_in_executor(self._pool, function)

    def stop(self) -> None:
        """End the threads, each with what it is doing; they start anew when they are needed again."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None


class Inline:
    """The same without threads, for work that never waits for anything."""

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function."""
        return function(*args, **kwargs)

    def stop(self) -> None:
        """Nothing is to be ended."""
