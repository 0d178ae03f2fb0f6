"""The event loop in the background that all sync envs of this process share; in a thread of its own, while one is open.

Above is `runenv.sync`, whose envs each hold a `Share`: it starts work on the loop, waits for it in the caller's thread,
and ends it when that wait is interrupted. Knows nothing of what an env does.

After a fork the parent's envs are of no use in the child: they say so, closing them does nothing, and new ones get a
loop of the child's own.

The loop is not anyio's `BlockingPortalProvider`, as the design had it (2026-11-28, anyio 4.16): when a program ends
without closing an env, that one's generator waits for its thread for ever, and the interpreter hangs.
"""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from runenv.errors import EnvClosedError, EnvError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ("Share",)

INTERRUPT_TIMEOUT: Final = 20.0
"""Bounds the wait for the end of work that was interrupted; an env has killed a command's tree by then."""
CLOSE_TIMEOUT: Final = 60.0
"""Bounds the wait for a close that was interrupted; it is not cancelled, since it would leave things behind."""
LOOK_INTERVAL: Final = 0.05
"""Seconds between two looks at whether the current task was cancelled, when there is one."""

_CLOSED: Final = "this env was closed during the call"
T = TypeVar("T")


class _Work(Generic[T]):
    """One call on the background loop, and its end as the waiting thread sees it. The methods run on the loop."""

    def __init__(self, function: Callable[[], Awaitable[T]]) -> None:
        self.outcome: Future[T] = Future()
        self._function = function
        self._task: asyncio.Task[None] | None = None
        self._interrupted = False

    def start(self) -> None:
        if not self._interrupted:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def interrupt(self) -> None:
        self._interrupted = True
        if self._task is not None:
            self._task.cancel()
        elif not self.outcome.done():
            self.outcome.set_exception(EnvClosedError(_CLOSED))

    async def _run(self) -> None:
        try:
            value = await self._function()
        except asyncio.CancelledError:
            self.outcome.set_exception(EnvClosedError(_CLOSED))
        except BaseException as error:  # noqa: BLE001 - it is raised where it belongs, in the waiting thread
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(value)


class _Loop:
    """An event loop in a thread of its own, from its first user to its last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._thread: threading.Thread | None = None
        self._ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    def enter(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._thread is None:
                self._ready = Future()
                self._thread = threading.Thread(target=self._run, name="runenv-loop", daemon=True)
                self._thread.start()
            try:
                loop, _ = self._ready.result()
            except OSError:
                self._thread = None
                raise
            self._users += 1
            return loop

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users or self._thread is None:
                return
            thread, self._thread = self._thread, None
            loop, stop = self._ready.result()
            loop.call_soon_threadsafe(stop.set)
            thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._until_stopped())
        except OSError as error:  # no descriptors left for a loop
            self._ready.set_exception(error)

    async def _until_stopped(self) -> None:
        stop = asyncio.Event()
        self._ready.set_result((asyncio.get_running_loop(), stop))
        await stop.wait()


_loops: Final[dict[int, _Loop]] = {}
"""The background loop by process, so that a forked child gets another one."""


class Share:
    """One env's share of the background loop: from `start` to `stop`, once."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may call the env, too
        self._works: set[_Work[Any]] = set()
        self._shared: _Loop | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0
        self._stopping = False
        self._stopped = threading.Event()

    def start(self) -> None:
        """Take part in the loop.

        Raises:
            EnvClosedError: this share was used before.
            OSError: the system has no room for a loop.
        """
        with self._lock:
            if self._shared is not None or self._stopping:
                raise EnvClosedError("this env was opened before: make another one with open_env_sync")
            self._process = os.getpid()
            self._shared = _loops.setdefault(self._process, _Loop())
            self._loop = self._shared.enter()

    def run(self, function: Callable[[], Awaitable[T]]) -> T:
        """Run on the loop and wait; when the wait is interrupted, end the work first.

        Raises:
            EnvClosedError: not between `start` and `stop`, or not in the process of the start.
            EnvError: called on the loop itself.
            BaseException: what the function raised.
        """
        work = _Work(function)
        try:
            self._begin(work)
            return _result(work.outcome)
        except BaseException:
            if work in self._works and not work.outcome.done():
                self._interrupt(work)
                wait([work.outcome], INTERRUPT_TIMEOUT)
            raise
        finally:
            with self._lock:
                self._works.discard(work)

    def stop(self, aclose: Callable[[], Awaitable[None]]) -> None:
        """Close the env, end what still runs in it, and leave the loop, which ends with the last env."""
        if self._process not in {0, os.getpid()}:
            return
        self._check_thread()
        with self._lock:
            loop, first, self._stopping = self._loop, not self._stopping, True
        if loop is None:
            return
        if not first:
            self._stopped.wait(CLOSE_TIMEOUT)
            return
        work = _Work(aclose)
        try:
            loop.call_soon_threadsafe(work.start)
            _result(work.outcome)
        finally:
            wait([work.outcome], CLOSE_TIMEOUT)  # it goes on when the wait for it was interrupted
            self._leave(work)

    def _leave(self, closing: _Work[None]) -> None:
        with self._lock:
            works = [closing, *self._works]
        for work in works:
            self._interrupt(work)
        if not wait([work.outcome for work in works], INTERRUPT_TIMEOUT).not_done:
            assert self._shared is not None  # noqa: S101 - there is a loop, so there was a start
            self._shared.leave()
        # Otherwise something cannot be ended; waiting for it with the loop would be for ever.
        self._stopped.set()

    def _begin(self, work: _Work[T]) -> None:
        if self._process not in {0, os.getpid()}:
            raise EnvClosedError("this env was opened by the process that this one was forked from: open another one")
        self._check_thread()
        with self._lock:
            if self._loop is None or self._stopping:
                raise EnvClosedError("this env is not open")
            self._works.add(work)
            self._loop.call_soon_threadsafe(work.start)

    def _interrupt(self, work: _Work[Any]) -> None:
        assert self._loop is not None  # noqa: S101 - work is begun on a loop
        self._loop.call_soon_threadsafe(work.interrupt)

    def _check_thread(self) -> None:
        if self._loop is not None and _running_loop() is self._loop:
            raise EnvError("a sync env cannot be used on its own background loop, where it would wait for itself")


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _result(outcome: Future[T]) -> T:
    """Wait for the outcome; in a task also for the task's cancellation, which nobody else can notice meanwhile."""
    task = asyncio.current_task() if _running_loop() is not None else None
    if task is None:
        return outcome.result()
    before = task.cancelling()
    while True:
        try:
            return outcome.result(LOOK_INTERVAL)
        except TimeoutError:
            if outcome.done():  # it came just now, or the error is its own
                return outcome.result()
            if task.cancelling() > before:
                raise asyncio.CancelledError from None
