"""Blocking work in threads of one's own, and work that is finished even when nobody waits for it any more.

anyio's scopes shield from anyio's cancellation, not from `Task.cancel`: a thread would go on with a descriptor that its
owner has closed, and a record would be written after its content was removed. Knows nothing of artifacts.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ("Inline", "Threads", "Trailing", "to_its_end")

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
        return await to_its_end(self.start(partial(function, *args, **kwargs)))

    async def open(self, function: Callable[[], int]) -> int:
        """Run a function that opens a descriptor, which is closed again when the task is cancelled meanwhile."""
        return await to_its_end(self.start(function), undo=os.close)

    def start(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Begin a blocking function, which goes on whatever becomes of who waits for it."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._count, thread_name_prefix="runenv-artifacts")
        return asyncio.get_running_loop().run_in_executor(self._pool, function)

    def stop(self) -> None:
        """End the threads, each with what it is doing; they start anew when they are needed again."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None


class Trailing:
    """Blocking calls one after the other, each in a thread while its caller prepares the next one.

    Args:
        threads: where they run.
    """

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._last: asyncio.Future[Any] | None = None

    async def run(self, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Begin a call when the last one has ended, and raise what that one raised."""
        await self.end()
        self._last = self._threads.start(partial(function, *args, **kwargs))

    @property
    def is_idle(self) -> bool:
        """No call is under way."""
        return self._last is None or self._last.done()

    async def end(self) -> None:
        """Wait for the last call, and raise what it raised."""
        if self._last is not None:
            if not self._last.done():
                await asyncio.wait((self._last,))  # cancelling who waits must not cancel it
            last, self._last = self._last, None
            last.result()

    async def stop(self) -> None:
        """Wait for the last call whatever happens, and whatever it raises."""
        if self._last is not None:
            await to_its_end(asyncio.wait((self._last,)))
            self._last.exception()  # seen: otherwise the loop logs it


class Inline:
    """The same without threads, for work that never waits for anything."""

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function."""
        return function(*args, **kwargs)

    def stop(self) -> None:
        """Nothing is to be ended."""
