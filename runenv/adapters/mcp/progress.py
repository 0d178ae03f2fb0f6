"""Progress of a call that takes long, told to a client that asks for it; and a store that tells what it moves.

What is told is bytes as soon as a transfer between env and store is under way, else the seconds that the call has
taken: clients show it, and many take it as a sign of life that moves their own deadline.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import anyio

from runenv.artifacts import ArtifactStore
from runenv.artifacts.chunks import counted
from runenv.artifacts.handles import human_size
from runenv.errors import RunEnvError
from runenv.types import DEFAULT

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping

    from runenv.artifacts import Scope
    from runenv.artifacts.sources import Data
    from runenv.types import Default, Progress

__all__ = ("Tell", "WatchedStore", "attended")

INTERVAL: Final = 1.0
"""Seconds between two notifications of one call, and before the first."""

T = TypeVar("T")
Tell: TypeAlias = "Callable[[float, float | None, str], Awaitable[None]]"
"""Called as `tell(progress, total, message)`."""

_passing: Final[ContextVar[Progress | None]] = ContextVar("passing", default=None)
"""What is told of the bytes that the call under way moves through the store."""


async def attended(work: Callable[[], Awaitable[T]], *, name: str, tell: Tell, gone: anyio.Event | None) -> T | None:
    """Do what a client asked for, tell it of the progress, and stop when it does not wait any more.

    Args:
        work: what is to be done.
        name: of it, for people.
        tell: what sends a notification.
        gone: set when the connection that the answer would take is lost.

    Returns:
        What the work gave, or None when the client was gone first: the work was cancelled then.

    Raises:
        RunEnvError: as the work.
    """
    outcome: T | None = None
    failed: RunEnvError | None = None
    async with anyio.create_task_group() as watchers:
        meter = _Meter()
        watchers.start_soon(_tell, tell, name, meter)
        if gone is not None:
            watchers.start_soon(_cancel_when, gone, watchers.cancel_scope)
        token = _passing.set(meter)
        try:
            outcome = await work()
        except RunEnvError as error:  # not to leave in a group
            failed = error
        finally:
            _passing.reset(token)
        watchers.cancel_scope.cancel()
    if failed is not None:
        raise failed
    return outcome


class _Meter:
    """What a call has moved so far."""

    def __init__(self) -> None:
        self.done = 0
        self.total: int | None = None

    def __call__(self, done: int, total: int | None) -> None:
        self.done, self.total = done, total


async def _tell(tell: Tell, name: str, meter: _Meter) -> None:
    began, told = anyio.current_time(), 0.0
    while True:
        await anyio.sleep(INTERVAL)
        seconds = anyio.current_time() - began
        if meter.done:
            progress, total = float(meter.done), meter.total
            of = f" of {human_size(total)}" if total is not None else ""
            message = f"{name}: {human_size(meter.done)}{of}"
        else:
            progress, total, message = seconds, None, f"{name}: {seconds:.0f} s"
        if progress > told:  # it has to grow
            told = progress
            await tell(progress, total, message)


async def _cancel_when(gone: anyio.Event, scope: anyio.CancelScope) -> None:
    await gone.wait()
    scope.cancel()


class WatchedStore(ArtifactStore):
    """An artifact store that tells the call under way of the bytes that it moves."""

    async def put(
        self,
        data: Data,
        *,
        filename: str | None = None,
        scope: str | Scope,
        media_type: str | None = None,
        metadata: Mapping[str, str] | None = None,
        ttl: Default | float | None = DEFAULT,
        progress: Progress | None = None,
    ) -> str:
        """Keep bytes as a new version of a name; see `ArtifactStore.put`."""
        return await super().put(
            data,
            filename=filename,
            scope=scope,
            media_type=media_type,
            metadata=metadata,
            ttl=ttl,
            progress=progress or _passing.get(),
        )

    @asynccontextmanager
    async def open_read(
        self, handle: str, *, scope: str | Scope, offset: int = 0, length: int | None = None
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Open content as a stream of chunks; see `ArtifactStore.open_read`."""
        progress = _passing.get()
        async with super().open_read(handle, scope=scope, offset=offset, length=length) as chunks:
            if progress is None:
                yield chunks
            else:
                size = (await self.stat(handle, scope=scope)).size - offset
                yield counted(chunks, size if length is None else min(size, length), progress)
