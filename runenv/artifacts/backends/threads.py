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
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ("Inline", "Leading", "Threads", "Trailing", "ended", "to_its_end")

P = ParamSpec("P")
T = TypeVar("T")

_BATCH_BYTES: Final = 1024 * 1024
"""What is gathered before a thread is set to work on it, since waking one takes its time."""
_TURN_BYTES: Final = 16 * 1024 * 1024
"""What a thread works on before it turns to others that wait for one."""


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


async def ended(*works: asyncio.Future[Any]) -> None:
    """Return when works have ended; what became of them is told to nobody.

    Raises:
        asyncio.CancelledError: as `to_its_end`.
    """
    for work in works:
        work.add_done_callback(_see)
    if works:
        await to_its_end(asyncio.wait(works))


def _see(work: asyncio.Future[Any]) -> None:
    """Look at an error, which keeps the loop from logging it."""
    if not work.cancelled():
        work.exception()


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


class _Turns:
    """Work that a thread goes on with by itself, a turn of a few pieces at a time, for one task in the event loop.

    Who waits is woken when there is a reason, and not for each piece: waking a thread or the loop takes as long as
    hashing 100 KB (2026-11-28). All is decided in the loop; the thread only takes from one queue, or adds to it.
    """

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._turn: asyncio.Future[None] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._error: BaseException | None = None
        self._is_stopped = False

    async def stop(self) -> None:
        """Wait for the piece that is under way, whatever becomes of it; nothing more is done."""
        self._is_stopped = True
        while self._turn is not None:
            await ended(self._turn)
        self._error = None

    def _has_work(self) -> bool:
        raise NotImplementedError

    def _work(self, wake: Callable[[], object]) -> None:
        """Work on a few pieces, in the thread, and call `wake` when who waits may go on; at the end they are anyway."""
        raise NotImplementedError

    def _go_on(self) -> None:
        """Begin a turn, unless there is one, nothing to do, or an error that nobody has seen yet."""
        if self._turn is None and self._error is None and not self._is_stopped and self._has_work():
            wake = partial(asyncio.get_running_loop().call_soon_threadsafe, self._wake)
            self._turn = self._threads.start(partial(self._work, wake))
            self._turn.add_done_callback(self._ended)

    def _ended(self, turn: asyncio.Future[None]) -> None:
        self._turn, self._error = None, turn.exception()
        self._go_on()
        self._wake()

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error


class Trailing(_Turns):
    """Hands chunks to a function that blocks, in a thread, one after the other, while their giver goes on.

    Args:
        threads: where it runs.
        take: called with each chunk.
        ahead_bytes: how much may wait; more than a megabyte.
    """

    def __init__(self, threads: Threads, take: Callable[[bytes], object], ahead_bytes: int) -> None:
        super().__init__(threads)
        self._take = take
        self._ahead_bytes = ahead_bytes
        self._waiting: deque[bytes] = deque()
        self._given = self._taken = 0  # bytes, counted by the loop and by the thread
        self._is_ending = False

    async def put(self, chunk: bytes) -> None:
        """Give a chunk as soon as there is room for it, and raise what became of an earlier one."""
        while self._turn is not None and self._given - self._taken >= self._ahead_bytes:
            await self._wait()
        self._raise()
        self._waiting.append(chunk)
        self._given += len(chunk)
        self._go_on()

    @property
    def is_idle(self) -> bool:
        """Nothing waits, and nothing is under way."""
        return self._turn is None and not self._waiting

    async def end(self) -> None:
        """Wait for the last chunk, and raise what became of one."""
        self._is_ending = True
        self._go_on()
        while self._turn is not None:
            await asyncio.wait((self._turn,))  # cancelling who waits must not cancel it
        self._raise()

    def _has_work(self) -> bool:
        return bool(self._waiting) and (self._is_ending or self._given - self._taken >= _BATCH_BYTES)

    def _work(self, wake: Callable[[], object]) -> None:
        until = self._taken + _TURN_BYTES
        while self._waiting and self._taken < until and not self._is_stopped:
            chunk = self._waiting.popleft()
            self._take(chunk)
            self._taken += len(chunk)
            if self._waiter is not None and self._given - self._taken <= self._ahead_bytes // 2:
                wake()


class Leading(_Turns):
    """Pieces that a thread makes, a few of them before they are asked for.

    Args:
        threads: where they are made.
        make: returns the next piece, and nothing at the end.
        ahead: how many may wait.
    """

    def __init__(self, threads: Threads, make: Callable[[], bytes], ahead: int) -> None:
        super().__init__(threads)
        self._make = make
        self._ahead = ahead
        self._ready: deque[bytes] = deque()
        self._is_over = False

    async def get(self) -> bytes:
        """Return the next piece; nothing at the end. Raise what making it raised."""
        self._go_on()
        while not self._ready:
            if self._turn is None:
                self._raise()
                return b""
            await self._wait()
        piece = self._ready.popleft()
        self._go_on()
        return piece

    def _has_work(self) -> bool:
        return not self._is_over and len(self._ready) <= self._ahead // 2

    def _work(self, wake: Callable[[], object]) -> None:
        made = 0
        while not self._is_stopped and len(self._ready) < self._ahead and made < _TURN_BYTES:
            piece = self._make()
            if not piece:
                self._is_over = True
                return
            self._ready.append(piece)
            made += len(piece)
            if self._waiter is not None:
                wake()


class Inline:
    """The same without threads, for work that never waits for anything."""

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function."""
        return function(*args, **kwargs)

    def stop(self) -> None:
        """Nothing is to be ended."""
