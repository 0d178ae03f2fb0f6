"""`Link`: many calls to one guest over one byte stream.

A plain asyncio protocol without tasks or threads of its own: users enter and leave envs from different tasks, which
rules out a task group, and a call costs one write and one wake-up. Whoever owns the byte stream (a socket's transport,
or a carrier that unpacks the engine's stream) calls `connection_made`, `data_received` and so on. A link may change its
stream once: `connect` asks the guest to, and `connection_made` is called again. Above it are the envs; below it
`call.py` and the frames.

The guest is not trusted: whatever bytes come, the worst that happens is that the link ends with `EnvLostError`, and no
more is held than the windows of the open calls, one frame and one read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from runenv.errors import EnvClosedError, EnvError, EnvLostError, EnvStartError, LimitError
from runenv.guest.call import Call
from runenv.guest.errnos import plain, system_error
from runenv.guest.frames import (
    MAX_PAYLOAD,
    VERSION,
    FrameDecoder,
    FrameError,
    Kind,
    Tag,
    Verb,
    decode_fields,
    encode,
    encode_fields,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from runenv.guest.frames import Fields, Frame

__all__ = ("Link",)

HELLO_TIMEOUT: Final = 30.0
"""Bounds the guest's answer to HELLO; a loaded engine may start a container long before it runs."""
PING_INTERVAL: Final = 10.0
"""Between two PINGs while calls are open."""
MAX_UNANSWERED: Final = 6
"""PINGs without any byte from the guest after which it is lost. Counted, not timed: a loop that its owner kept busy for
minutes has sent no PINGs and must not blame the guest."""
EXPLAIN_TIMEOUT: Final = 1.0
"""Bounds the search for the reason of a loss."""
CLOSE_TIMEOUT: Final = 2.0
"""Bounds the delivery of BYE to a guest that does not read."""
MAX_FORGOTTEN: Final = 10_000
"""Cancelled calls whose answer is still to come. A guest that keeps more of them open does not answer at all."""

_LAST_NUMBER: Final = 0xFFFF_FFFF


class Link(asyncio.Protocol):
    """The host's end of the wire to one guest.

    Args:
        explain: asked once, when the link is lost and the guest gave no reason; returns one, or None.
    """

    def __init__(self, *, explain: Callable[[], Coroutine[object, object, str | None]] | None = None) -> None:
        self._explain = explain
        self._explaining: asyncio.Task[str | None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._transport: asyncio.WriteTransport | None = None
        self._disconnected: asyncio.Future[None] | None = None
        self._decoder = FrameDecoder()
        self._calls: dict[int, Call] = {}
        self._number = 0
        self._forgotten = 0
        self._guest: Fields | None = None
        self._greeting: asyncio.Future[None] | None = None
        self._refusal: asyncio.Future[OSError] | None = None
        self._paused = False
        self._blocked: deque[asyncio.Future[None]] = deque()
        self._pinger: asyncio.TimerHandle | None = None
        self._unanswered = 0
        self._pings = 0
        self._end: tuple[type[EnvError], str] | None = None

    # -- for envs

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that the link lives in."""
        if self._loop is None:
            raise EnvClosedError("the link to the env is not connected")
        return self._loop

    @property
    def has_ended(self) -> bool:
        """It was closed or lost; every call raises."""
        return self._end is not None

    @property
    def is_paused(self) -> bool:
        """The transport has enough to do; `drain` waits for it."""
        return self._paused

    async def hello(self, fields: Iterable[tuple[Tag, int | bytes]], *, timeout: float | None = None) -> Fields:
        """Greet the guest, which must not have said anything yet, and return the fields of its answer.

        Args:
            fields: of the HELLO; VERSION is added.
            timeout: seconds to wait for the answer; `HELLO_TIMEOUT` when None.

        Raises:
            EnvStartError: it cannot serve, speaks another version, did not answer, or ended.
        """
        seconds = HELLO_TIMEOUT if timeout is None else timeout
        greeting = self._greeting = self.loop.create_future()
        payload = encode_fields([(Tag.VERSION, VERSION), *fields])
        if len(payload) > MAX_PAYLOAD:
            raise EnvStartError(f"the environment variables in the configuration are over {MAX_PAYLOAD} bytes together")
        if self._end is None:
            self.write(encode(0, Kind.HELLO, payload))
            await asyncio.wait((greeting,), timeout=seconds)
        if self._guest is None and self._end is None:
            self.lose(f"it did not answer within {seconds:g} s")
        if self._end is not None:
            raise await self.ended()
        assert self._guest is not None  # noqa: S101 - no end and no answer was handled above
        return self._guest

    def connect(self, path: bytes, token: bytes) -> asyncio.Future[OSError]:
        """Ask the guest to go on over a socket. Until it has answered, nothing may be called.

        Args:
            path: of the socket, as the guest sees it.
            token: what the guest must say first over its connection: `TOKEN_BYTES` that only it knows.

        Returns:
            Done with the reason when the guest stays on this stream, which works on; cancelled when the link ends.
            When the guest connects it is not done, and whoever listens calls `connection_made` with that transport.
        """
        assert self._refusal is None  # noqa: S101 - the guest takes it once
        assert not self._calls  # noqa: S101 - their frames would be on both streams
        self._refusal = self.loop.create_future()
        if self._end is None:
            self.write(encode(0, Kind.CONNECT, encode_fields([(Tag.PATH, path), (Tag.TOKEN, token)])))
        else:
            self._refusal.cancel()
        return self._refusal

    def call(
        self,
        verb: Verb,
        fields: Iterable[tuple[Tag, int | bytes]],
        data: bytes | bytearray | memoryview | None = None,
    ) -> Call:
        """Send a CALL at once and return it.

        Args:
            verb: what is asked for.
            fields: its fields.
            data: all that will be sent for it, with its END; it goes out as the guest takes it, the first part together
                with the CALL. None: nothing is, or `send` and `end` are used.

        Raises:
            EnvClosedError, EnvLostError: the link has ended.
            EnvError: called from another event loop than the link's.
            LimitError: the fields are too long for one frame.
        """
        self.check_loop()
        if self._end is not None:
            raise self.error()
        payload = encode_fields(fields)
        if len(payload) > MAX_PAYLOAD:
            raise LimitError(f"a request of {len(payload)} bytes is over the {MAX_PAYLOAD} that an env takes at once")
        number = self._number = self._next_number()
        call = self._calls[number] = Call(self, number, verb)
        frame = encode(number, Kind.CALL, payload, verb)
        self.write(frame if data is None else b"".join((frame, *call.load(data))))
        if self._pinger is None:
            self._unanswered = 0
            self._pinger = self.loop.call_later(PING_INTERVAL, self._ping)
        return call

    def check_loop(self) -> None:
        """Raise `EnvError` unless the running event loop is the link's."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is not self._loop:
            raise EnvError(
                "this env belongs to another event loop: open it in the loop that uses it, or use open_env_sync"
            )

    async def drain(self) -> None:
        """Wait until the transport takes bytes again, or the link ends; callers go on one by one."""
        while self._paused and self._end is None:
            waiter = self.loop.create_future()
            self._blocked.append(waiter)
            await waiter

    async def ended(self) -> EnvError:
        """Return why the link ended, as an error to raise, once the reason was looked for."""
        if self._explaining is not None:
            await asyncio.wait((self._explaining,), timeout=EXPLAIN_TIMEOUT)
        return self.error()

    def lose(self, reason: str, *, ask: bool = False) -> None:
        """Give the guest up: every open and later call raises `EnvLostError`, and the stream is cut.

        Args:
            reason: what is known, a clause.
            ask: have `explain` say why, for a guest that is merely silent.
        """
        if self._end is None:
            self._finish(EnvLostError, reason)
            if ask and self._explain is not None:
                self._look_for_reason(self._explain)
        if self._transport is not None:
            self._transport.abort()

    def error(self) -> EnvError:
        """Return why the link ended, as far as is known now, as an error to raise."""
        kind, reason = self._end or (EnvClosedError, "the env is closed")
        return kind(reason)

    async def aclose(self) -> None:
        """Say goodbye and close the stream; open calls raise `EnvClosedError`. Takes at most `CLOSE_TIMEOUT` twice."""
        if self._transport is None or self._disconnected is None:
            return
        if self._end is None:
            self.write(encode(0, Kind.BYE))
            self._finish(EnvClosedError, "the env is closed")
        self._transport.close()
        if not self._disconnected.done():
            await asyncio.wait((self._disconnected,), timeout=CLOSE_TIMEOUT)
        if not self._disconnected.done():
            self._transport.abort()
            await asyncio.wait((self._disconnected,), timeout=CLOSE_TIMEOUT)

    # -- for calls

    def write(self, data: bytes | memoryview) -> None:
        """Hand bytes to the transport, which buffers what the stream does not take."""
        if self._transport is not None:
            self._transport.write(data)

    def forget(self) -> None:
        """Count a call that was left before its answer."""
        self._forgotten += 1
        if self._forgotten > MAX_FORGOTTEN:
            self.lose("it does not end the calls that were cancelled")

    # -- for the byte stream

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the write side of the stream, or of the one that follows it."""
        assert isinstance(transport, asyncio.WriteTransport)  # noqa: S101 - a stream that cannot be written is no link
        self._loop = asyncio.get_running_loop()
        self._transport = transport
        self._decoder = FrameDecoder()
        self._paused = False
        if self._refusal is not None:
            self._refusal.cancel()  # too late for that
        self._disconnected = self._loop.create_future()

    def data_received(self, data: bytes | memoryview) -> None:
        """Take bytes from the guest."""
        self._unanswered = 0
        if self._end is not None:
            return
        try:
            for frame in self._decoder.feed(data):
                self._take(frame)
                if self.has_ended:
                    return
        except FrameError as error:
            self.lose(f"the guest broke the protocol: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        """Hear that the stream has ended."""
        if self._disconnected is not None and not self._disconnected.done():
            self._disconnected.set_result(None)
        self._paused = False
        if self._end is None:
            self._finish(EnvLostError, str(exc) if exc else "the guest ended")
            if self._explain is not None:
                self._look_for_reason(self._explain)

    def pause_writing(self) -> None:
        """Hear that the transport has enough."""
        self._paused = True

    def resume_writing(self) -> None:
        """Hear that the transport takes bytes again."""
        self._paused = False
        for call in tuple(self._calls.values()):
            if self._paused:
                break
            call.pump()
        if not self._paused:
            self._release()

    # -- inside

    def _take(self, frame: Frame) -> None:
        if self._guest is None:
            self._take_greeting(frame)
        elif frame.call:
            call = self._calls.get(frame.call)
            if call is None:
                raise FrameError(f"a frame for call {frame.call}, which is not open")
            if call.take(frame):
                del self._calls[frame.call]
                self._forgotten -= call.was_left
        elif frame.kind is Kind.BYE:
            self._take_bye(frame)
        elif frame.kind is Kind.PONG and self._pings and not frame.payload:
            self._pings -= 1
        elif frame.kind is Kind.CONNECT and self._refusal is not None and not self._refusal.done():
            self._refusal.set_result(system_error(decode_fields(frame.payload)))
        else:
            raise FrameError(f"an unexpected {frame.kind.name} frame")

    def _take_greeting(self, frame: Frame) -> None:
        if self._greeting is None or frame.call or frame.kind not in {Kind.HELLO, Kind.BYE}:
            raise FrameError("it spoke before it was greeted")
        if frame.kind is Kind.BYE:
            self._take_bye(frame)
            return
        fields = decode_fields(frame.payload)
        version = fields.get(Tag.VERSION)
        if version != VERSION:
            self.lose(f"the guest speaks version {version!r} of the protocol, this host {VERSION}")
            return
        self._guest = fields
        if not self._greeting.done():
            self._greeting.set_result(None)

    def _take_bye(self, frame: Frame) -> None:
        message = decode_fields(frame.payload).get(Tag.MESSAGE)
        reason = plain(message) if isinstance(message, bytes) else ""
        self._finish(EnvLostError, reason or "the guest said goodbye")
        if self._transport is not None:
            self._transport.abort()

    def _next_number(self) -> int:
        number = self._number % _LAST_NUMBER + 1
        while number in self._calls:
            number = number % _LAST_NUMBER + 1
        return number

    def _ping(self) -> None:
        self._pinger = None
        if self._end is not None or not self._calls:
            return
        if self._unanswered >= MAX_UNANSWERED:
            self.lose(f"the guest has been silent for {MAX_UNANSWERED * PING_INTERVAL:g} s", ask=True)
            return
        self._unanswered += 1
        self._pings += 1
        self.write(encode(0, Kind.PING))
        self._pinger = self.loop.call_later(PING_INTERVAL, self._ping)

    def _finish(self, kind: type[EnvError], reason: str) -> None:
        """End the link, once: whoever waits is woken within this turn of the loop."""
        if kind is EnvLostError:
            kind, what = (EnvStartError, "did not start") if self._guest is None else (EnvLostError, "was lost")
            reason = f"the env {what}: {reason}"
        self._end = (kind, reason)
        if self._pinger is not None:
            self._pinger.cancel()
            self._pinger = None
        if self._greeting is not None and not self._greeting.done():
            self._greeting.set_result(None)
        if self._refusal is not None:
            self._refusal.cancel()
        for call in self._calls.values():
            call.wake()
        self._calls.clear()
        self._decoder = FrameDecoder()
        self._release()

    def _look_for_reason(self, explain: Callable[[], Coroutine[object, object, str | None]]) -> None:
        self._explaining = self.loop.create_task(explain())
        self._explaining.add_done_callback(self._explained)
        self.loop.call_later(EXPLAIN_TIMEOUT, self._explaining.cancel)

    def _explained(self, task: asyncio.Task[str | None]) -> None:
        self._explaining = None
        # A failed search is no second failure: the reason that is known stands.
        reason = None if task.cancelled() or task.exception() else task.result()
        if reason and self._end is not None:
            kind, known = self._end
            self._end = (kind, f"{known} ({reason})")

    def _release(self) -> None:
        while self._blocked:
            waiter = self._blocked.popleft()
            if not waiter.done():
                waiter.set_result(None)
