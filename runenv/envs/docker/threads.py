"""Worker threads for what blocks: calls of the engine's SDK, and the little files around them.

Knows nothing of engines or envs. Below `engine.py` and `carriers.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("MAX_THREADS", "in_thread")

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
