"""`in_order`: requests that are under way at once, and answers in the order of what was asked."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, TypeVar

from runenv.artifacts.backends.threads import ended

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Callable, Coroutine
    from typing import Any

__all__ = ("in_order",)

A = TypeVar("A")
B = TypeVar("B")


async def in_order(
    items: AsyncIterable[A], work: Callable[[A], Coroutine[Any, Any, B]], ahead: int
) -> AsyncGenerator[B]:
    """Yield the result of `work` for each item, while at most `ahead` of them are under way. Closing it ends them."""
    waiting: deque[asyncio.Task[B]] = deque()
    try:
        async for item in items:
            waiting.append(asyncio.create_task(work(item)))
            if len(waiting) >= ahead:
                yield await waiting.popleft()
        while waiting:
            yield await waiting.popleft()
    finally:
        for task in waiting:
            task.cancel()
        await ended(*waiting)
