"""Bytes between a worker thread that blocks on the host's disk and a call on the event loop, with back-pressure.

`send_from` runs a blocking writer against a call, `receive_into` a blocking reader. The thread ends with the call: when
the task is cancelled or the env dies, its next `write` or `read` raises. Nothing is locked and the loop never waits for
the thread. Used by `moves.py`; knows calls, not files or trees.
"""

from __future__ import annotations

import asyncio
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
import anyio.to_thread

from runenv.envs.threads import outlast

if TYPE_CHECKING:
    from collections.abc import Callable

    from runenv.guest.call import Call
    from runenv.guest.frames import Fields

__all__ = ("receive_into", "send_from")

T = TypeVar("T")

PIECE_BYTES: Final = 256 * 1024
"""What a thread hands over at a time: large enough that waking the loop costs little."""
PIECES_AHEAD: Final = 4
"""How many of them a writer may be ahead of the link."""
AHEAD_BYTES: Final = 1024 * 1024
"""How far the link may be ahead of a reader."""
THREAD_TIMEOUT: Final = 10.0
"""Bounds the wait for a thread that was told to stop; only a disk that hangs takes it."""


class _StoppedError(Exception):
    """Raised in the worker thread: nobody wants its bytes any more."""


async def send_from(call: Call, produce: Callable[[Callable[[bytes], None]], T]) -> T:
    """Run `produce(write)` in a worker thread, send what it writes to the call, and return what it returns.

    The call is not ended: whether what was sent counts is the caller's decision.

    Raises:
        OSError, LimitError: what `produce` raised, or what the guest answered.
        EnvLostError: the link broke.
    """
    outlet = _Outlet(asyncio.get_running_loop())
    thread = _start(lambda: outlet.run(produce))
    thread.add_done_callback(outlet.wake)
    try:
        while (piece := await outlet.take(thread)) is not None:
            if not await call.send(piece):
                # Answered before all was sent. An error is raised here; after a RESULT the rest is padding.
                await call.result()
    finally:
        outlet.stop()
        await _join(thread)
    return thread.result()


async def receive_into(
    call: Call, consume: Callable[[Callable[[int], bytes]], T], *, on_result: Callable[[Fields], None] | None = None
) -> T:
    """Run `consume(read)` in a worker thread, let it read what the call sends, and return what it returns.

    Args:
        call: what is received.
        consume: `read(n)` gives it up to n bytes, and none at the end, which comes only after the guest's RESULT.
        on_result: takes the RESULT before the thread hears of the end; may raise.

    Raises:
        OSError, LimitError: what `consume` raised, or what the guest answered.
        EnvLostError: the link broke.
    """
    inlet = _Inlet(asyncio.get_running_loop())
    thread = _start(lambda: consume(inlet.read))
    thread.add_done_callback(inlet.wake)
    try:
        while (received := await call.receive()) is not None and not _failed(thread):
            await inlet.put(received[1], thread)
        if not _failed(thread):
            fields = await call.result()
            if on_result is not None:
                on_result(fields)
            inlet.finish()
            await asyncio.wait((thread,))
    finally:
        inlet.stop()
        await _join(thread)
    return thread.result()


def _start(function: Callable[[], T]) -> asyncio.Task[T]:
    # A limiter of its own: how many transfers run at once is decided before their calls begin.
    limiter = anyio.CapacityLimiter(1)
    return asyncio.ensure_future(anyio.to_thread.run_sync(function, limiter=limiter))


async def _join(thread: asyncio.Task[Any]) -> None:
    await outlast(thread, THREAD_TIMEOUT)
    _failed(thread)  # looks at its error, so that asyncio does not report one that nobody needs


def _failed(thread: asyncio.Task[Any]) -> bool:
    return thread.done() and (thread.cancelled() or thread.exception() is not None)


class _Outlet:
    """Thread to loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pieces: deque[bytes] = deque()
        self._permits: SimpleQueue[None] = SimpleQueue()
        for _ in range(PIECES_AHEAD):
            self._permits.put(None)
        self._stopped = False
        self._waiter: asyncio.Future[None] | None = None
        self._small = bytearray()

    # In the thread.

    def run(self, produce: Callable[[Callable[[bytes], None]], T]) -> T:
        result = produce(self.write)
        if self._small:
            self._hand_over(bytes(self._small))
        return result

    def write(self, data: bytes) -> None:
        if self._small or len(data) < PIECE_BYTES:
            self._small += data
            if len(self._small) < PIECE_BYTES:
                return
            data = bytes(self._small)
            self._small.clear()
        self._hand_over(data)

    def _hand_over(self, data: bytes) -> None:
        self._permits.get()
        if self._stopped:
            raise _StoppedError
        self._loop.call_soon_threadsafe(self._arrive, data)

    # On the loop.

    def _arrive(self, data: bytes) -> None:
        self._pieces.append(data)
        self.wake()

    def wake(self, _: object = None) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def take(self, thread: asyncio.Task[Any]) -> bytes | None:
        """Return the next piece, or None when the thread has ended and all was taken."""
        while not self._pieces:
            if thread.done():
                return None
            self._waiter = self._loop.create_future()
            await self._waiter
        self._permits.put(None)
        return self._pieces.popleft()

    def stop(self) -> None:
        self._stopped = True
        self._permits.put(None)


class _Inlet:
    """Loop to thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pieces: SimpleQueue[bytes | bytearray | None] = SimpleQueue()
        self._ahead = 0
        self._stopped = False
        self._waiter: asyncio.Future[None] | None = None
        # The thread's own: the piece it is reading, and what it has read without saying so.
        self._piece: bytes | bytearray | None = b""
        self._position = 0
        self._read = 0

    # In the thread.

    def read(self, size: int) -> bytes:
        while self._piece is not None and self._position == len(self._piece):
            if self._read >= AHEAD_BYTES // 2:
                self._loop.call_soon_threadsafe(self._advance, self._read)
                self._read = 0
            self._piece, self._position = self._pieces.get(), 0
            if self._stopped:
                raise _StoppedError
        if self._piece is None:
            return b""
        start, self._position = self._position, min(self._position + size, len(self._piece))
        self._read += self._position - start
        if self._position - start == len(self._piece):
            return bytes(self._piece)  # the piece itself, when it is bytes already
        return bytes(memoryview(self._piece)[start : self._position])

    # On the loop.

    def _advance(self, size: int) -> None:
        self._ahead -= size
        self.wake()

    def wake(self, _: object = None) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def put(self, data: bytes | bytearray, thread: asyncio.Task[Any]) -> None:
        """Hand a piece over; waits while the thread is too far behind. A thread that has ended takes no more."""
        while self._ahead >= AHEAD_BYTES and not thread.done():
            self._waiter = self._loop.create_future()
            await self._waiter
        if not thread.done():
            self._ahead += len(data)
            self._pieces.put(data)

    def finish(self) -> None:
        self._pieces.put(None)

    def stop(self) -> None:
        self._stopped = True
        self._pieces.put(None)
