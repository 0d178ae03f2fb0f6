"""`Call`: one request to the guest, from its CALL frame to its RESULT or ERROR.

It counts what may be sent each way, holds what came and was not read yet, and says what the guest may not do. It has no
task: the protocol's callbacks push bytes out and wake whoever waits. Made by `link.py` only; below it are the frames.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Final, Self

from runenv.errors import EnvError
from runenv.guest.errnos import failure
from runenv.guest.frames import (
    GUEST_WINDOW,
    HOST_WINDOW,
    MAX_DATA,
    Channel,
    FrameError,
    Kind,
    Verb,
    decode_fields,
    encode,
    encode_header,
)

if TYPE_CHECKING:
    import asyncio
    from types import TracebackType

    from runenv.errors import LimitError
    from runenv.guest.frames import Fields, Frame
    from runenv.guest.link import Link

__all__ = ("Call",)

_CREDIT: Final = struct.Struct("<I")
_CREDIT_BATCH: Final = HOST_WINDOW // 2
"""Bytes read before the guest is told so: few CREDIT frames, and the guest never waits while the reader keeps up."""
_MERGE_BYTES: Final = 64 * 1024
"""Frames up to this size are joined while they wait, so that many tiny ones take no more memory than their bytes."""
_FILE: Final = (Channel.MAIN,)
_CHANNELS: Final = {
    Verb.EXEC: (Channel.STDOUT, Channel.STDERR),
    Verb.GET: _FILE,
    Verb.LIST: _FILE,
    Verb.TREE_GET: _FILE,
}
"""Where the guest may send DATA, by verb; to the other verbs it has nothing to send."""


class Call:
    """One request that is under way. A context manager: leaving it early cancels it and drops what still comes.

    One task reads it and one may send to it at the same time.
    """

    def __init__(self, link: Link, number: int, verb: Verb) -> None:
        self.number: Final = number
        self.verb: Final = verb
        self._link = link
        self._channels = _CHANNELS.get(verb, ())
        self._result: Fields | None = None
        self._error: OSError | LimitError | None = None
        self._dropping = False
        self._left = False
        self._waiter: asyncio.Future[None] | None = None
        # From the guest: how much it may still send, what waits here, and what was read and not granted again.
        self._window = HOST_WINDOW
        self._waiting: dict[int, deque[bytes | bytearray]] = {}
        self._unread = 0
        self._owed = 0
        # To the guest: how much we may still send, and what waits for that.
        self._credit = GUEST_WINDOW
        self._outgoing: memoryview | None = None
        self._end_after = False
        self._sender: asyncio.Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._is_answered():
            self._left = True
        elif not self._left:
            self.cancel()
            self._left = True
            if not self.done:
                self._link.forget()

    @property
    def done(self) -> bool:
        """The guest answered with RESULT or ERROR, or never will."""
        return self._is_answered() or self._link.has_ended

    async def send(self, data: bytes | bytearray | memoryview) -> bool:
        """Send bytes; returns when all of them are on their way.

        Returns:
            False: the guest has answered already and wants no more; `result` says why.

        Raises:
            EnvLostError: the link broke.
        """
        if self._outgoing is not None or self._end_after:
            raise EnvError("this call is already sending, or has sent its last byte")
        if not self.done and len(data):
            self._outgoing = memoryview(data).cast("B")
            try:
                self._write_outgoing()
                while self._has_outgoing() and not self.done:
                    self._sender = self._link.loop.create_future()
                    await self._sender
            except BaseException:
                self.cancel()  # a part of the data may be on its way: no more can follow it
                raise
            finally:
                self._sender = None
        await self._raise_when_lost()
        return not self.done

    def end(self) -> None:
        """Say that nothing more will be sent."""
        if not self._end_after:
            self._end_after = True
            if not self.done and not self._dropping:
                self._link.write(encode(self.number, Kind.END))

    async def receive(self) -> tuple[Channel, bytes | bytearray] | None:
        """Return the next bytes and their channel, or None once the guest has sent its RESULT and all was read.

        Raises:
            OSError, LimitError: the guest answered ERROR.
            EnvLostError: the link broke.
        """
        while True:
            if self._unread:
                return self._next()
            if self._error is not None:
                raise self._error
            if self._result is not None:
                return None
            await self._raise_when_lost()
            if self._left:
                raise EnvError("this call was left already")
            self._waiter = self._link.loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    async def result(self) -> Fields:
        """Wait for the RESULT, dropping what was not read, and return its fields.

        Raises:
            OSError, LimitError: the guest answered ERROR.
            EnvLostError: the link broke.
        """
        while await self.receive() is not None:
            pass
        assert self._result is not None  # noqa: S101 - else `receive` would have raised
        return self._result

    def cancel(self) -> None:
        """Ask the guest to end the call early and drop what it still sends; the answer is still awaited by `result`."""
        if not self._dropping:
            self._dropping = True
            self._outgoing = None
            self._waiting.clear()
            if not self.done:
                self._link.write(encode(self.number, Kind.CANCEL))
                self._grant(self._unread)
            self._unread = 0
            self.wake()

    # -- for the link

    def load(self, data: bytes | bytearray | memoryview) -> list[bytes | memoryview]:
        """Take all that will ever be sent, and return the frames of it that may go at once."""
        self._end_after = True
        self._outgoing = memoryview(data).cast("B")
        return self._outgoing_frames()

    def pump(self) -> None:
        """Send on: the transport takes bytes again."""
        if self._outgoing is not None:
            self._write_outgoing()

    def wake(self) -> None:
        """Let whoever waits look again."""
        for future in (self._waiter, self._sender):
            if future is not None and not future.done():
                future.set_result(None)

    def take(self, frame: Frame) -> bool:
        """Take a frame of this call; True when it was the last.

        Raises:
            FrameError: the guest may not send this.
        """
        if frame.kind is Kind.DATA:
            self._take_data(frame)
            return False
        if frame.channel:
            raise FrameError(f"a {frame.kind.name} frame with a channel")
        if frame.kind is Kind.CREDIT:
            self._take_credit(frame.payload)
            return False
        if frame.kind is Kind.RESULT:
            self._result = decode_fields(frame.payload)
        elif frame.kind is Kind.ERROR:
            self._error = failure(self.verb, decode_fields(frame.payload))
        else:
            raise FrameError(f"a {frame.kind.name} frame from the guest")
        self._outgoing = None
        self.wake()
        return True

    @property
    def was_left(self) -> bool:
        """Nobody waits for the answer."""
        return self._left

    # -- inside

    async def _raise_when_lost(self) -> None:
        if not self._is_answered() and self._link.has_ended:
            raise await self._link.ended()

    def _is_answered(self) -> bool:
        return self._result is not None or self._error is not None

    def _has_outgoing(self) -> bool:
        return self._outgoing is not None

    def _take_data(self, frame: Frame) -> None:
        payload, size = frame.payload, len(frame.payload)
        if frame.channel not in self._channels:
            raise FrameError(f"DATA on channel {frame.channel} of a call of {self.verb.name}")
        if not size:
            raise FrameError("DATA without bytes")
        if size > self._window:
            raise FrameError("more DATA than was granted")
        self._window -= size
        if self._dropping:
            self._grant(size)
            return
        self._unread += size
        waiting = self._waiting.get(frame.channel)
        if waiting is None:
            waiting = self._waiting[frame.channel] = deque()
        if waiting and len(waiting[-1]) + size <= _MERGE_BYTES:
            last = waiting[-1]
            if not isinstance(last, bytearray):
                last = waiting[-1] = bytearray(last)
            last += payload
        else:
            waiting.append(payload)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _next(self) -> tuple[Channel, bytes | bytearray]:
        channel, waiting = next((c, w) for c, w in self._waiting.items() if w)
        data = waiting.popleft()
        self._unread -= len(data)
        self._grant(len(data))
        return Channel(channel), data

    def _grant(self, size: int) -> None:
        self._owed += size
        if self._owed >= _CREDIT_BATCH and not self.done:
            self._window += self._owed
            self._link.write(encode(self.number, Kind.CREDIT, _CREDIT.pack(self._owed)))
            self._owed = 0

    def _take_credit(self, payload: bytes) -> None:
        if len(payload) != _CREDIT.size:
            raise FrameError("CREDIT that is no number")
        (size,) = _CREDIT.unpack(payload)
        if not 0 < size <= GUEST_WINDOW - self._credit:
            raise FrameError("CREDIT for more than was sent")
        self._credit += size
        self.pump()

    def _write_outgoing(self) -> None:
        if not self._link.is_paused:
            frames = self._outgoing_frames()
            if sum(map(len, frames)) <= _MERGE_BYTES:
                frames = [b"".join(frames)]
            for piece in frames:  # large ones as they are: joining them would copy each once more
                self._link.write(piece)

    def _outgoing_frames(self) -> list[bytes | memoryview]:
        """Return the next frames in pieces: joined once by whoever writes them, large data is copied once."""
        frames: list[bytes | memoryview] = []
        rest = self._outgoing
        while rest and self._credit:
            piece = rest[: min(MAX_DATA, self._credit)]
            self._credit -= len(piece)
            frames += (encode_header(self.number, Kind.DATA, len(piece)), piece)
            rest = rest[len(piece) :]
        self._outgoing = rest or None
        if self._outgoing is None:
            if self._end_after:
                frames.append(encode(self.number, Kind.END))
            if self._sender is not None and not self._sender.done():
                self._sender.set_result(None)
        return frames
