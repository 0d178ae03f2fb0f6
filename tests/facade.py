"""The sync facade, seen as an async env, so that the contract can be held over it.

Each verb runs in a worker thread, there in a task of an event loop that is made for this one call: as agent frameworks
use it that call `asyncio.run` for each tool call. Cancelling the caller cancels that task, which is what Ctrl-C does
inside of `asyncio.run`.
"""

# ruff: noqa: ANN401 - the arguments are those of the verbs, handed on
from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import anyio
import anyio.to_thread

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterator, Mapping
    from types import TracebackType

    from runenv.sync import SyncRunEnv
    from runenv.types import Command, ExecResult, FileInfo, TransferResult

T = TypeVar("T")
THREADS: Final = 250
"""More than any test has calls in flight."""


class Facade:
    """A `RunEnv` whose verbs are those of a `SyncRunEnv`, each called from a thread of its own."""

    def __init__(self, sync: SyncRunEnv) -> None:
        self._sync = sync
        self._limiter: anyio.CapacityLimiter | None = None

    @property
    def id(self) -> str:
        return self._sync.id

    @property
    def kind(self) -> str:
        return self._sync.kind

    @property
    def workdir(self) -> str:
        return self._sync.workdir

    def describe(self) -> Mapping[str, object]:
        return self._sync.describe()

    async def exec(self, command: Command, **options: Any) -> ExecResult:
        return await self._call(partial(self._sync.exec, command, **options))

    async def read(self, path: str, **options: Any) -> bytes:
        return await self._call(partial(self._sync.read, path, **options))

    @asynccontextmanager
    async def open_read(self, path: str, **options: Any) -> AsyncGenerator[AsyncIterator[bytes]]:
        stream = self._sync.open_read(path, **options)
        chunks = await self._call(stream.__enter__)
        try:
            yield self._iterate(chunks)
        except BaseException as error:
            details = type(error), error, error.__traceback__
            if not await self._call(lambda: stream.__exit__(*details)):
                raise
        else:
            await self._call(lambda: stream.__exit__(None, None, None))

    async def write(self, path: str, data: bytes | AsyncIterable[bytes], **options: Any) -> None:
        if isinstance(data, bytes):
            await self._call(partial(self._sync.write, path, data, **options))
            return
        loop = asyncio.get_running_loop()
        iterator = aiter(data)

        def pieces() -> Iterator[bytes]:
            while True:
                try:
                    yield asyncio.run_coroutine_threadsafe(anext(iterator), loop).result()  # type: ignore[arg-type]
                except StopAsyncIteration:
                    return

        await self._call(partial(self._sync.write, path, pieces(), **options))

    async def stat(self, path: str, **options: Any) -> FileInfo:
        return await self._call(partial(self._sync.stat, path, **options))

    async def list(self, path: str = ".") -> list[FileInfo]:
        return await self._call(partial(self._sync.list, path))

    async def mkdir(self, path: str, **options: Any) -> None:
        await self._call(partial(self._sync.mkdir, path, **options))

    async def remove(self, path: str, **options: Any) -> None:
        await self._call(partial(self._sync.remove, path, **options))

    async def rename(self, source: str, target: str) -> None:
        await self._call(partial(self._sync.rename, source, target))

    async def upload(self, *arguments: Any, **options: Any) -> TransferResult:
        return await self._call(partial(self._sync.upload, *arguments, **options))

    async def download(self, *arguments: Any, **options: Any) -> TransferResult:
        return await self._call(partial(self._sync.download, *arguments, **options))

    async def aclose(self) -> None:
        await self._call(self._sync.close)

    async def __aenter__(self) -> Self:
        await self._call(self._sync.__enter__)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._call(lambda: self._sync.__exit__(None, None, None))

    async def _iterate(self, chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
        while (chunk := await self._call(partial(next, chunks, None))) is not None:
            yield chunk

    async def _call(self, function: Callable[[], T]) -> T:
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(THREADS)
        tasks: list[asyncio.Task[Any]] = []
        cancelled = False

        async def task() -> T:
            current = asyncio.current_task()
            assert current is not None
            tasks.append(current)
            if cancelled:
                raise asyncio.CancelledError
            return function()

        thread = asyncio.ensure_future(anyio.to_thread.run_sync(lambda: asyncio.run(task()), limiter=self._limiter))
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            cancelled = True
            with anyio.CancelScope(shield=True):
                while not thread.done():  # again, since one that comes before the call has begun is not noticed
                    for current in tasks:
                        current.cancel()
                    await asyncio.wait((thread,), timeout=0.2)
            if not thread.cancelled():
                thread.exception()  # looked at: nobody needs it any more
            raise
