"""Blocking work in threads of one's own, and work that is finished even when nobody waits for it any more.

anyio's scopes shield from anyio's cancellation, not from `Task.cancel`: a thread would go on with a descriptor that its
owner has closed, and a record would be written after its content was removed. Knows nothing of artifacts.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

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
    """Blocking calls one after the other in a thread, a few of them behind their caller, who prepares the next ones.

    The thread goes from call to call by itself, and a caller who must wait is woken when half of those ahead are done:
    waking the event loop, or a thread, takes as long as hashing 100 KB.

    Args:
        threads: where they run.
        ahead: how many calls may wait for their turn.
    """

    def __init__(self, threads: Threads, ahead: int = 4) -> None:
        self._threads = threads
        self._ahead = ahead
        self._waiting: deque[Callable[[], object]] = deque()
        self._turn: asyncio.Future[None] | None = None  # until the thread finds nothing more to do
        self._room: asyncio.Future[None] | None = None
        self._error: BaseException | None = None

    async def run(self, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Let a call wait for its turn as soon as there is room, and raise what an earlier one raised."""
        while len(self._waiting) >= self._ahead:
            self._room = asyncio.get_running_loop().create_future()
            await self._room
        self._raise()
        self._waiting.append(partial(function, *args, **kwargs))
        if self._turn is None:
            self._begin()

    @property
    def is_idle(self) -> bool:
        """No call waits or is under way."""
        return self._turn is None

    async def end(self) -> None:
        """Wait for the last call, and raise what one raised."""
        while self._turn is not None:
            await asyncio.wait((self._turn,))  # cancelling who waits must not cancel it
        self._raise()

    async def stop(self) -> None:
        """Wait for the call that is under way whatever happens and whatever it raises; those after it are forgotten."""
        self._waiting.clear()
        while self._turn is not None:
            await to_its_end(asyncio.wait((self._turn,)))
        self._error = None

    def _begin(self) -> None:
        self._turn = self._threads.start(partial(self._work, asyncio.get_running_loop()))
        self._turn.add_done_callback(self._ended)

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        """Do what waits, in the thread. What comes after it found nothing is left to `_ended`."""
        while True:
            try:
                call = self._waiting.popleft()
            except IndexError:
                return
            call()
            if self._room is not None and len(self._waiting) <= self._ahead // 2:
                loop.call_soon_threadsafe(self._let_in)

    def _ended(self, turn: asyncio.Future[None]) -> None:
        self._turn = None
        self._error = turn.exception()
        if self._error is not None:
            self._waiting.clear()
        elif self._waiting:
            self._begin()
        self._let_in()

    def _let_in(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error


class Inline:
    """The same without threads, for work that never waits for anything."""

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function."""
        return function(*args, **kwargs)

    def stop(self) -> None:
        """Nothing is to be ended."""
