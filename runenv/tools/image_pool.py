"""`Workers`: a few image workers, started when an image comes, ended when none has come for a while.

A thread for each worker, which starts it, asks it and ends it, so that any number of event loops and threads may use
the same workers and none of them owns one: agent frameworks call `asyncio.run` for each call of a tool. What a worker
is and answers is `image_process.py`'s business.

No pool of a library, looked at on 2026-11-28. `anyio.to_process` 4.16 unpickles what the worker says, so that whoever
takes over a decoder has the host too; it runs the host's main module in the worker, hands it the whole environment,
sets no limits, kills one process and not the group, and its workers belong to one event loop.
`concurrent.futures.ProcessPoolExecutor` unpickles as well, breaks for all callers when one worker dies, cannot end one
that hangs, and forks or imports the main module. Neither bounds an answer.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import deque
from concurrent.futures import Future
from functools import cache
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

import anyio.to_thread

from runenv.tools.image_process import PROGRAM, WorkerProcess
from runenv.tools.image_wire import Facts, Outcome

if TYPE_CHECKING:
    from runenv.tools.image_wire import Task

__all__ = ("Workers",)

MAX_WORKERS: Final = 2
"""Bounds the images that are worked on at the same time; each may take all the memory that its task allows."""
IDLE_SECONDS: Final = 30.0
"""After which a worker without work ends."""
MAX_WAIT: Final = 120.0
"""Seconds that an image may wait for a worker before it is given up."""
GIVEN_UP: Final = Facts(Outcome.NO_WORKER, detail="the workers were closed")

_log = logging.getLogger(__name__)


class _Job:
    """An image that somebody waits for."""

    def __init__(self, task: Task, data: bytes) -> None:
        self.task = task
        self.data = data
        self.future: Future[tuple[Facts, bytes]] = Future()
        self.give_up_at = time.monotonic() + MAX_WAIT
        self._lock = threading.Lock()
        self._worker: WorkerProcess | None = None
        self._aborted = False

    @property
    def is_aborted(self) -> bool:
        """Nobody waits for it any more."""
        return self._aborted

    def run(self, worker: WorkerProcess) -> tuple[Facts, bytes]:
        """Ask a worker."""
        with self._lock:
            self._worker = worker
            if self._aborted:
                return GIVEN_UP, b""
        try:
            return worker.ask(self.task, self.data)
        finally:
            with self._lock:
                self._worker = None

    def abort(self) -> None:
        """Kill the worker that has it, now or later."""
        with self._lock:
            self._aborted = True
            if self._worker is not None:
                self._worker.kill()


class Workers:
    """Image workers of this process. Nothing is started before the first image.

    Args:
        count: how many at most.
        idle: seconds without work after which one ends.
        program: what they run; another one in tests.
    """

    def __init__(self, count: int = MAX_WORKERS, *, idle: float = IDLE_SECONDS, program: str = PROGRAM) -> None:
        self._count = count
        self._idle = idle
        self._program = program
        self._reset()
        _pools.add(self)
        _forks_are_watched()

    def _reset(self) -> None:
        """Begin anew; in a forked child too, which has none of its parent's threads."""
        self._changed = threading.Condition()
        self._waiting: deque[_Job] = deque()
        self._running: set[_Job] = set()
        self._threads: set[threading.Thread] = set()
        self._ending: set[threading.Thread] = set()
        self._free = 0
        self._closings = 0

    async def run(self, task: Task, data: bytes) -> tuple[Facts, bytes]:
        """Have an image worked on, and return what was found and the result.

        Cancelling the waiting task kills the worker that has the image.
        """
        job = _Job(task, data)
        with self._changed:
            self._waiting.append(job)
            if self._free < len(self._waiting) and len(self._threads) < self._count:
                self._start(job)
            self._changed.notify()
        try:
            return await asyncio.wrap_future(job.future)
        except asyncio.CancelledError:
            job.abort()
            raise

    def _start(self, job: _Job) -> None:
        """Start a thread; where the system has none to give, the job waits for another, or is given up."""
        thread = threading.Thread(target=self._serve, args=(self._closings,), name="runenv-images", daemon=True)
        self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError as error:
            self._threads.discard(thread)
            if not self._threads:
                self._waiting.remove(job)
                job.future.set_result((Facts(Outcome.NO_WORKER, detail=str(error)), b""))

    async def aclose(self) -> None:
        """End all workers; images that are worked on or wait are given up. A later image starts new ones."""
        with self._changed:
            self._closings += 1
            threads = self._threads | self._ending
            self._threads, self._free = set(), 0
            waiting, running = tuple(self._waiting), tuple(self._running)
            self._waiting.clear()
            self._changed.notify_all()
        for job in running:
            job.abort()
        for job in waiting:
            if job.future.set_running_or_notify_cancel():
                job.future.set_result((GIVEN_UP, b""))
        for thread in threads:
            await anyio.to_thread.run_sync(thread.join)

    def _serve(self, born: int) -> None:
        """Work on images with one worker, until there is none for a while. Runs in a thread."""
        worker: WorkerProcess | None = None
        try:
            while (job := self._next(born)) is not None:
                try:
                    worker, answer = self._work(worker, job)
                    job.future.set_result(answer)
                except BaseException as error:
                    job.future.set_exception(error)
                    raise
                finally:
                    with self._changed:
                        self._running.discard(job)
                del job, answer  # an idle thread holds no image
        finally:
            if worker is not None:
                worker.end()
            with self._changed:
                self._threads.discard(threading.current_thread())
                self._ending.discard(threading.current_thread())

    def _next(self, born: int) -> _Job | None:
        """Wait for an image; None when the thread is to end."""
        until = time.monotonic() + self._idle
        with self._changed:
            while self._closings == born:
                while self._waiting:
                    job = self._waiting.popleft()
                    if job.future.set_running_or_notify_cancel():
                        self._running.add(job)
                        return job
                self._free += 1
                woken = self._changed.wait(until - time.monotonic())
                if self._closings != born:
                    break
                self._free -= 1
                if not woken and not self._waiting:
                    break
            # With the lock held: whoever comes now starts another.
            self._threads.discard(threading.current_thread())
            self._ending.add(threading.current_thread())
            return None

    def _work(self, worker: WorkerProcess | None, job: _Job) -> tuple[WorkerProcess | None, tuple[Facts, bytes]]:
        if time.monotonic() > job.give_up_at:
            return worker, (Facts(Outcome.NO_WORKER, detail="all workers are busy with other images"), b"")
        if worker is not None and worker.has_ended:
            worker.end()
            worker = None
        if worker is None:
            try:
                worker = WorkerProcess(self._program)
            except OSError as error:
                _log.warning("the image worker cannot be started: %s", error)
                return None, (Facts(Outcome.NO_WORKER, detail=str(error)), b"")
        facts, image = job.run(worker)
        if facts.outcome is Outcome.CRASHED and not job.is_aborted:
            _log.warning("the image worker ended over a file of format %s: %s", job.task.format, facts.detail)
        return worker, (facts, image)


_pools: Final[WeakSet[Workers]] = WeakSet()


@cache
def _forks_are_watched() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_start_anew)


def _start_anew() -> None:
    for pool in _pools:
        pool._reset()  # noqa: SLF001 - of this module
