"""Worker threads for what blocks, such as calls of the engine's SDK, and waiting that cancellation does not end.

Knows nothing of engines or envs. Below everything in `envs` that blocks.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("MAX_THREADS", "in_thread", "outlast", "to_its_end")

_T = TypeVar("_T")

MAX_THREADS: Final = 20
"""Blocking calls of one event loop that run at a time; more wait. Not anyio's own limit: a slow engine stops nobody."""

_limiter: RunVar[anyio.CapacityLimiter] = RunVar("runenv_threads")


async def in_thread(function: Callable[[], _T], *, abandon: bool = False) -> _T:
    """Run it in a worker thread.

    A task's own `cancel` does not wait for its end: the function then runs on without us. Nor does the cancellation of
    a scope with `abandon`; without it, it waits.
    """
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(MAX_THREADS)
        _limiter.set(limiter)
    return await anyio.to_thread.run_sync(function, limiter=limiter, abandon_on_cancel=abandon)


async def to_its_end(function: Callable[[], _T]) -> _T:
    """Run a blocking function in a worker thread, and return or raise when it has ended, not before.

    For what must be undone by somebody who knows all of it: anyio alone leaves the thread behind on `Task.cancel`.

    Raises:
        asyncio.CancelledError: afterwards, if the task was cancelled meanwhile.
    """
    thread = asyncio.ensure_future(in_thread(function))
    await outlast(thread, None)
    return thread.result()


async def outlast(future: asyncio.Future[Any], timeout: float | None) -> None:
    """Wait until `future` is done, or for `timeout` seconds, even if the caller is cancelled, even repeatedly.

    Raises:
        asyncio.CancelledError: afterwards, if the task was cancelled meanwhile other than by a scope around it.
    """
    loop = asyncio.get_running_loop()
    deadline = None if timeout is None else loop.time() + timeout
    cancelled: asyncio.CancelledError | None = None
    # The scope keeps anyio's cancellation out, the loop around the wait asyncio's own.
    with anyio.CancelScope(shield=True):
        while not future.done():
            left = None if deadline is None else deadline - loop.time()
            if left is not None and left <= 0:
                break
            try:
                await asyncio.wait((future,), timeout=left)
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        raise cancelled
