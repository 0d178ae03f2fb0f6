"""Trees of an env as tar streams, in and out: what `TreeStreams` promises, over a link.

Unlike uploads and downloads (`moves.py`) this touches no disk of the host and has no threads: each stream goes through
`transfer.Rewriter`, since neither the guest nor the maker of an archive is trusted. Used by `env.py`.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, Self

from runenv.envs import transfer
from runenv.envs.guested.replies import MAX_REFUSED, number, refused_of
from runenv.envs.guested.requests import path_bytes, pattern_fields
from runenv.envs.threads import outlast
from runenv.errors import EnvError, LimitError
from runenv.guest.frames import FrameError, Tag, Verb
from runenv.types import TransferResult

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Sequence
    from contextlib import AbstractContextManager

    from runenv.guest.call import Call
    from runenv.guest.link import Link

__all__ = ("TreeStream", "open_read", "write")

CANCEL_TIMEOUT: Final = 10.0
"""Seconds for which a guest is waited for that was told to end a tree early."""


class TreeStream:
    """A folder of an env as it comes; a `TarStream`."""

    def __init__(self, call: Call, distrust: Callable[[], AbstractContextManager[None]]) -> None:
        self._call = call
        self._distrust = distrust  # here, not around the reader: the reader may be a verb of another env
        self._rewriter = transfer.Rewriter(self._receive)
        self._pieces = self._rewriter.pieces()
        self._result: TransferResult | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        piece = await anext(self._pieces, None)
        if piece is not None:
            return piece
        if self._result is None:
            with self._distrust():
                refused, count = refused_of(await self._call.result())
            ours = self._rewriter.report.result()
            all_refused = (*refused, *ours.refused)[:MAX_REFUSED]
            self._result = TransferResult(ours.files, ours.bytes, all_refused, count + ours.refused_count)
        raise StopAsyncIteration

    @property
    def result(self) -> TransferResult:
        """What was moved and what was refused; see `TarStream.result`."""
        if self._result is None:
            raise EnvError("the stream of a tree was not read to its end, so what it moved is not known")
        return self._result

    async def aclose(self) -> None:
        """End it early."""
        await self._pieces.aclose()

    async def _receive(self) -> bytes | bytearray:
        received = await self._call.receive()
        return b"" if received is None else received[1]


@asynccontextmanager
async def open_read(
    link: Link,
    path: str,
    *,
    include: Sequence[str],
    exclude: Sequence[str],
    distrust: Callable[[], AbstractContextManager[None]],
) -> AsyncGenerator[TreeStream]:
    """Stream a folder out of the env; `distrust` is what gives up a guest that broke the protocol."""
    fields = [(Tag.PATH, path_bytes(path)), *pattern_fields(include, exclude)]
    transfer.matcher(include, exclude)  # what can match nothing is an error that the guest leaves to us
    with link.call(Verb.TREE_GET, fields) as call:
        async with aclosing(TreeStream(call, distrust)) as stream:
            yield stream


async def write(link: Link, path: str, stream: AsyncIterable[bytes]) -> TransferResult:
    """Make or fill a folder in the env from a tar archive."""
    rewriter = transfer.Rewriter(_reader(stream))
    with link.call(Verb.TREE_PUT, [(Tag.PATH, path_bytes(path))]) as call:
        try:
            async with aclosing(rewriter.pieces()) as pieces:
                async for piece in pieces:
                    if not await call.send(piece):
                        await call.result()  # an error is raised here
                        raise FrameError("it answered before it had a whole tree")
            call.end()
            fields = await call.result()
        except BaseException:
            # Whoever takes away what had come must not be overtaken by what is still on its way.
            call.cancel()
            ended = asyncio.ensure_future(_end_of(call))
            try:
                await outlast(ended, CANCEL_TIMEOUT)
            finally:
                ended.cancel()
            raise
    sent = rewriter.report.result()
    refused, count = refused_of(fields)
    return TransferResult(
        number(fields, Tag.FILES, high=sent.files),
        number(fields, Tag.TOTAL, high=sent.bytes),
        (*sent.refused, *refused)[:MAX_REFUSED],
        sent.refused_count + count,
    )


async def _end_of(call: Call) -> None:
    with suppress(OSError, LimitError, EnvError, FrameError):
        await call.result()


def _reader(stream: AsyncIterable[bytes]) -> Callable[[], Awaitable[bytes]]:
    """Return a function that returns the next bytes of a stream, and none only at its end."""
    iterator = aiter(stream)

    async def read() -> bytes:
        while (piece := await anext(iterator, None)) is not None:
            if piece:
                return piece
        return b""

    return read
