"""The link against a scripted peer over an in-memory transport: every order of events, by hand."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import struct
import tracemalloc
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from runenv.errors import EnvClosedError, EnvError, EnvLostError, EnvStartError, LimitError
from runenv.guest import link as link_module
from runenv.guest.frames import (
    GUEST_WINDOW,
    HOST_WINDOW,
    MAX_DATA,
    MAX_PAYLOAD,
    TOKEN_BYTES,
    VERSION,
    Channel,
    Frame,
    FrameDecoder,
    Kind,
    Tag,
    Verb,
    encode,
    encode_fields,
)
from runenv.guest.link import Link

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from runenv.guest.call import Call

pytestmark = pytest.mark.anyio

PATH = [(Tag.PATH, b"f")]
PATIENCE = 5.0


class Wire(asyncio.Transport):
    """The guest's side: holds what the host wrote, says what a test wants, and can be as slow as one likes."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self.link = link
        self.writes: list[bytes] = []
        self.frames: list[Frame] = []
        self.aborted = self.closed = False
        self.keeps_open = False
        self._decoder = FrameDecoder()
        link.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed, "written after close"
        self.writes.append(bytes(data))
        self.frames += self._decoder.feed(bytes(data))

    def close(self) -> None:
        self.closed = True
        if not self.keeps_open:
            asyncio.get_running_loop().call_soon(self.link.connection_lost, None)

    def abort(self) -> None:
        if not self.aborted:
            self.aborted = self.closed = True
            asyncio.get_running_loop().call_soon(self.link.connection_lost, None)

    def say(self, kind: Kind, call: int = 0, payload: bytes = b"", channel: int = 0) -> None:
        self.link.data_received(encode(call, kind, payload, channel))

    def result(self, call: Call, *fields: tuple[Tag, int | bytes]) -> None:
        self.say(Kind.RESULT, call.number, encode_fields(fields))

    def error(self, call: Call, *fields: tuple[Tag, int | bytes]) -> None:
        self.say(Kind.ERROR, call.number, encode_fields(fields))

    def data(self, call: Call, payload: bytes, channel: Channel = Channel.MAIN) -> None:
        self.say(Kind.DATA, call.number, payload, channel)

    def credit(self, call: Call, size: int) -> None:
        self.say(Kind.CREDIT, call.number, struct.pack("<I", size))

    def said(self, kind: Kind, call: Call | None = None) -> list[bytes]:
        """Return the payloads of the host's frames of a kind."""
        number = 0 if call is None else call.number
        return [frame.payload for frame in self.frames if frame.kind is kind and frame.call == number]


async def connect(*, explain: Callable[[], Coroutine[object, object, str | None]] | None = None) -> tuple[Link, Wire]:
    """Return a link that was greeted, and the guest's side of it."""
    link = Link(explain=explain)
    wire = Wire(link)
    greeting = asyncio.ensure_future(link.hello([(Tag.WORKDIR, b"/w")]))
    await settle()
    wire.say(Kind.HELLO, payload=encode_fields([(Tag.VERSION, VERSION), (Tag.SHELL, b"/bin/sh")]))
    assert (await greeting)[Tag.SHELL] == b"/bin/sh"
    return link, wire


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def start(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Start a task and let it run until it waits."""
    task = asyncio.ensure_future(work)
    await settle()
    return task


# -- greeting


async def test_hello_carries_the_version_and_the_fields() -> None:
    """The guest can refuse a host of another version by the first bytes it sees."""
    link, wire = await connect()
    assert wire.frames == [
        Frame(0, Kind.HELLO, 0, encode_fields([(Tag.VERSION, VERSION), (Tag.WORKDIR, b"/w")])),
    ]
    assert not link.has_ended


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (
            encode(0, Kind.BYE, encode_fields([(Tag.MESSAGE, b"cannot open /w:\n no such folder")])),
            "cannot open /w: no",
        ),
        (encode(0, Kind.HELLO, encode_fields([(Tag.VERSION, VERSION + 1)])), f"version {VERSION + 1}"),
        (encode(0, Kind.HELLO), "version None"),
        (encode(0, Kind.PONG), "before it was greeted"),
        (encode(3, Kind.RESULT), "before it was greeted"),
        (b"sh: not found\n", "broke the protocol"),
    ],
    ids=["bye", "version", "no version", "pong", "result", "no frames"],
)
async def test_a_guest_that_does_not_greet_back_is_a_start_error(payload: bytes, words: str) -> None:
    """The reason is in the message, in one line."""
    link = Link()
    wire = Wire(link)
    greeting = await start(link.hello([]))
    link.data_received(payload)
    with anyio.fail_after(PATIENCE), pytest.raises(EnvStartError, match=words):
        await greeting
    await settle()
    assert wire.aborted


async def test_a_guest_that_never_answers_is_a_start_error() -> None:
    """The time for the greeting is bounded."""
    link = Link()
    Wire(link)
    with pytest.raises(EnvStartError, match="did not answer within"):
        await link.hello([], timeout=0.01)


async def test_a_guest_that_speaks_first_is_refused() -> None:
    """Bytes before the host's hello are a breach."""
    link = Link()
    wire = Wire(link)
    wire.say(Kind.HELLO, payload=encode_fields([(Tag.VERSION, VERSION)]))
    with pytest.raises(EnvStartError, match="before it was greeted"):
        await link.hello([])


async def test_too_much_environment_is_a_start_error() -> None:
    """It would not fit the greeting."""
    link = Link()
    Wire(link)
    with pytest.raises(EnvStartError, match="environment variables"):
        await link.hello([(Tag.ENV, b"A=" + b"x" * MAX_PAYLOAD)])


# -- calls


async def test_a_small_call_with_data_is_one_write() -> None:
    """Latency: CALL, DATA and END leave together."""
    link, wire = await connect()
    before = len(wire.writes)
    call = link.call(Verb.PUT, PATH, b"content")
    assert len(wire.writes) == before + 1
    assert wire.frames[1:] == [
        Frame(call.number, Kind.CALL, Verb.PUT, encode_fields(PATH)),
        Frame(call.number, Kind.DATA, 0, b"content"),
        Frame(call.number, Kind.END, 0, b""),
    ]
    wire.result(call, (Tag.TOTAL, 7))
    assert await call.result() == {Tag.TOTAL: 7}


async def test_empty_data_is_only_an_end() -> None:
    """DATA has at least one byte."""
    link, wire = await connect()
    call = link.call(Verb.PUT, PATH, b"")
    assert [frame.kind for frame in wire.frames[1:]] == [Kind.CALL, Kind.END]
    wire.result(call)
    await call.result()


async def test_answers_go_to_their_calls_whatever_the_order() -> None:
    """Many calls share the link: each gets its own bytes, in its own time."""
    link, wire = await connect()
    calls = [link.call(Verb.GET, PATH) for _ in range(200)]
    order = list(range(200))
    random.Random(1).shuffle(order)
    for part in (b"a", b"b"):
        for index in order:
            wire.data(calls[index], b"%d%b " % (index, part))
    for index in reversed(order):
        wire.result(calls[index], (Tag.TOTAL, index))
    for index, call in enumerate(calls):
        assert await call.receive() == (Channel.MAIN, b"%da %db " % (index, index))
        assert await call.receive() is None
        assert await call.result() == {Tag.TOTAL: index}


async def test_a_reader_that_stands_still_stalls_nobody_else() -> None:
    """One call's window is full and unread; another runs from start to end meanwhile."""
    link, wire = await connect()
    slow, quick = link.call(Verb.GET, PATH), link.call(Verb.GET, PATH)
    for _ in range(HOST_WINDOW // MAX_DATA):
        wire.data(slow, bytes(MAX_DATA))
    reader = await start(quick.receive())
    assert not reader.done()
    wire.data(quick, b"here")
    with anyio.fail_after(PATIENCE):
        assert await reader == (Channel.MAIN, b"here")
        wire.result(quick)
        assert await quick.receive() is None
    assert wire.said(Kind.CREDIT, slow) == []


async def test_credit_is_granted_as_bytes_are_read_in_batches() -> None:
    """The guest can go on before the window is used up, and few frames say so."""
    link, wire = await connect()
    call = link.call(Verb.GET, PATH)
    received = granted = 0
    for _ in range(100):
        for _ in range(4):
            wire.data(call, bytes(MAX_DATA))
        for _ in range(4):
            piece = await call.receive()
            assert piece is not None
            received += len(piece[1])
    for (size,) in map(struct.Struct("<I").unpack, wire.said(Kind.CREDIT, call)):
        granted += size
    assert received == 400 * MAX_DATA
    assert received - HOST_WINDOW // 2 < granted <= received
    assert len(wire.said(Kind.CREDIT, call)) <= 2 * received // HOST_WINDOW


async def test_output_streams_are_kept_apart() -> None:
    """The channel comes with the bytes."""
    link, wire = await connect()
    call = link.call(Verb.EXEC, [])
    wire.data(call, b"out", Channel.STDOUT)
    wire.data(call, b"err", Channel.STDERR)
    wire.data(call, b"put", Channel.STDOUT)
    wire.result(call)
    received = []
    while (piece := await call.receive()) is not None:
        received.append(piece)
    assert sorted(received) == [(Channel.STDOUT, b"output"), (Channel.STDERR, b"err")]


async def test_what_was_sent_never_exceeds_the_guests_window() -> None:
    """Only credit lets more out, and all of it arrives in order."""
    link, wire = await connect()
    content = random.Random(2).randbytes(3 * GUEST_WINDOW + 5)
    call = link.call(Verb.PUT, PATH, content)
    assert sum(map(len, wire.said(Kind.DATA, call))) == GUEST_WINDOW
    for size in (1, GUEST_WINDOW - 1, GUEST_WINDOW):
        before = sum(map(len, wire.said(Kind.DATA, call)))
        wire.credit(call, size)
        assert sum(map(len, wire.said(Kind.DATA, call))) == before + size
    assert wire.said(Kind.END, call) == []
    wire.credit(call, GUEST_WINDOW)
    assert b"".join(wire.said(Kind.DATA, call)) == content
    assert wire.said(Kind.END, call) == [b""]
    assert max(map(len, wire.said(Kind.DATA, call))) <= MAX_DATA


async def test_send_waits_for_credit() -> None:
    """A stream is held back by its slow reader."""
    link, wire = await connect()
    call = link.call(Verb.PUT, PATH)
    sender = await start(call.send(bytes(GUEST_WINDOW + 1)))
    assert not sender.done()
    wire.credit(call, 1)
    assert await sender is True
    assert await call.send(b"") is True
    call.end()
    call.end()
    assert wire.said(Kind.END, call) == [b""]


async def test_send_waits_for_a_transport_that_is_full_and_goes_on_after_it() -> None:
    """No more is buffered than one write while the stream is slow."""
    link, wire = await connect()
    call, other = link.call(Verb.PUT, PATH), link.call(Verb.PUT, PATH)
    link.pause_writing()
    senders = [await start(call.send(b"one")), await start(other.send(b"two"))]
    drained = await start(link.drain())
    assert wire.said(Kind.DATA, call) == wire.said(Kind.DATA, other) == []
    assert not any(task.done() for task in (*senders, drained))
    link.resume_writing()
    with anyio.fail_after(PATIENCE):
        assert await asyncio.gather(*senders, drained) == [True, True, None]
    assert wire.said(Kind.DATA, call) == [b"one"]
    assert wire.said(Kind.DATA, other) == [b"two"]


async def test_send_stops_when_the_guest_has_answered() -> None:
    """A full disk is heard of before the last byte, and without a hang."""
    link, wire = await connect()
    call = link.call(Verb.PUT, PATH)
    sender = await start(call.send(bytes(2 * GUEST_WINDOW)))
    wire.error(call, (Tag.ERRNO, 28), (Tag.PATH, b"f"))
    with anyio.fail_after(PATIENCE):
        assert await sender is False
        assert await call.send(b"more") is False
        call.end()
        with pytest.raises(OSError, match="No space") as caught:
            await call.result()
    assert caught.value.errno == errno.ENOSPC
    assert wire.said(Kind.END, call) == []


async def test_whole_data_stops_when_the_guest_has_answered() -> None:
    """A command that ends without reading its stdin is no error and no hang."""
    link, wire = await connect()
    call = link.call(Verb.EXEC, [], bytes(2 * GUEST_WINDOW))
    wire.result(call, (Tag.EXIT_CODE, 0))
    assert await call.result() == {Tag.EXIT_CODE: 0}
    link.resume_writing()
    assert sum(map(len, wire.said(Kind.DATA, call))) == GUEST_WINDOW


async def test_sending_twice_at_once_is_an_error() -> None:
    """The bytes would mix."""
    link, _ = await connect()
    call = link.call(Verb.PUT, PATH)
    sender = await start(call.send(bytes(GUEST_WINDOW + 1)))
    with pytest.raises(EnvError, match="already sending"):
        await call.send(b"x")
    sender.cancel()


async def test_a_request_over_one_frame_is_a_limit_error() -> None:
    """And the link stays usable."""
    link, wire = await connect()
    with pytest.raises(LimitError, match="1048576"):
        link.call(Verb.EXEC, [(Tag.SHELL, b"x" * MAX_PAYLOAD)])
    call = link.call(Verb.STAT, PATH)
    wire.result(call)
    assert await call.result() == {}


async def test_ids_are_not_reused_while_they_are_open() -> None:
    """Not even after four billion calls."""
    link, wire = await connect()
    first, second = link.call(Verb.STAT, PATH), link.call(Verb.STAT, PATH)
    link._number = 0xFFFF_FFFE
    numbers = [link.call(Verb.STAT, PATH).number for _ in range(2)]
    assert numbers == [0xFFFF_FFFF, second.number + 1]
    wire.result(first)
    link._number = 0xFFFF_FFFF
    assert link.call(Verb.STAT, PATH).number == first.number


# -- errors


@pytest.mark.parametrize(
    ("number", "kind", "host_errno"),
    [
        (2, FileNotFoundError, errno.ENOENT),
        (13, PermissionError, errno.EACCES),
        (1, PermissionError, errno.EPERM),
        (17, FileExistsError, errno.EEXIST),
        (20, NotADirectoryError, errno.ENOTDIR),
        (21, IsADirectoryError, errno.EISDIR),
        (39, OSError, errno.ENOTEMPTY),
        (40, OSError, errno.ELOOP),
        (11, BlockingIOError, errno.EAGAIN),
        (999, OSError, errno.EIO),
    ],
)
async def test_error_numbers_are_taken_by_their_linux_names(number: int, kind: type[OSError], host_errno: int) -> None:
    """The right builtin with the host's own number, and the path as `filename`."""
    link, wire = await connect()
    call = link.call(Verb.STAT, PATH)
    wire.error(call, (Tag.ERRNO, number), (Tag.PATH, b"a\xff"))
    with pytest.raises(kind) as caught:
        await call.receive()
    assert type(caught.value) is kind
    assert caught.value.errno == host_errno
    assert caught.value.filename == "a\udcff"


async def test_the_guests_message_is_the_errors_text_in_one_line() -> None:
    """What it says is kept, control characters and length are not."""
    link, wire = await connect()
    call = link.call(Verb.RENAME, PATH)
    message = b"it is\n a FIFO\x1b[2J" + b"x" * 5000
    wire.error(call, (Tag.ERRNO, 22), (Tag.MESSAGE, message), (Tag.PATH, b"p"), (Tag.TARGET, b"t"))
    with pytest.raises(OSError, match="it is a FIFO") as caught:
        await call.result()
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert (caught.value.filename, caught.value.filename2) == ("p", "t")


@pytest.mark.parametrize(
    ("verb", "number", "kind"),
    [
        (Verb.GET, 27, LimitError),
        (Verb.LIST, 27, LimitError),
        (Verb.PUT, 27, OSError),
        (Verb.EXEC, 7, LimitError),
        (Verb.STAT, 7, OSError),
    ],
)
async def test_more_than_was_allowed_is_a_limit_error(verb: Verb, number: int, kind: type[Exception]) -> None:
    """For the verbs that have a limit; elsewhere the number means what it always means."""
    link, wire = await connect()
    call = link.call(verb, PATH)
    wire.error(call, (Tag.ERRNO, number), (Tag.MESSAGE, b"3 GiB"), (Tag.PATH, b"big"))
    with pytest.raises(kind, match="3 GiB"):
        await call.result()


# -- leaving early


async def test_leaving_a_call_early_cancels_it_and_drops_what_still_comes() -> None:
    """Late frames are no breach; the guest can finish, credit included, and the id is free after its answer."""
    link, wire = await connect()
    with link.call(Verb.GET, PATH) as call:
        wire.data(call, bytes(MAX_DATA))
    assert wire.said(Kind.CANCEL, call) == [b""]
    for _ in range(3 * HOST_WINDOW // MAX_DATA):
        wire.data(call, bytes(MAX_DATA))
    assert not link.has_ended
    with pytest.raises(EnvError, match="left already"):
        await call.receive()
    wire.error(call, (Tag.ERRNO, 125))
    assert not link.has_ended
    assert link._calls == {}


async def test_leaving_an_answered_call_sends_nothing() -> None:
    """The usual way out."""
    link, wire = await connect()
    with link.call(Verb.STAT, PATH) as call:
        wire.result(call)
        await call.result()
    assert wire.said(Kind.CANCEL, call) == []


async def test_cancel_keeps_waiting_for_the_answer() -> None:
    """A cancelled command answers when its tree is dead; its output is dropped, with credit, so that it can."""
    link, wire = await connect()
    with link.call(Verb.EXEC, [], bytes(2 * GUEST_WINDOW)) as call:
        wire.data(call, b"partial", Channel.STDOUT)
        call.cancel()
        call.cancel()
        waiter = await start(call.result())
        for _ in range(2 * HOST_WINDOW // MAX_DATA):
            wire.data(call, bytes(MAX_DATA), Channel.STDOUT)
        assert not waiter.done()
        wire.result(call, (Tag.SIGNAL, 9))
        assert await waiter == {Tag.SIGNAL: 9}
    assert wire.said(Kind.CANCEL, call) == [b""]


async def test_a_cancelled_reader_leaves_nothing_behind() -> None:
    """Cancelling the task that waits ends the call, and only that one."""
    link, wire = await connect()
    other = link.call(Verb.STAT, PATH)

    async def read() -> None:
        with link.call(Verb.GET, PATH) as call:
            await call.receive()

    reader = await start(read())
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert [frame.kind for frame in wire.frames[-1:]] == [Kind.CANCEL]
    wire.result(other)
    assert await other.result() == {}


async def test_a_cancelled_send_cancels_the_call() -> None:
    """Half of a piece may be out: nothing can follow it."""
    link, wire = await connect()
    call = link.call(Verb.PUT, PATH)
    sender = await start(call.send(bytes(2 * GUEST_WINDOW)))
    sender.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sender
    assert wire.said(Kind.CANCEL, call) == [b""]
    wire.credit(call, GUEST_WINDOW)
    assert sum(map(len, wire.said(Kind.DATA, call))) == GUEST_WINDOW


async def test_a_guest_that_ends_no_cancelled_call_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered of forgotten calls is bounded."""
    monkeypatch.setattr(link_module, "MAX_FORGOTTEN", 10)
    link, wire = await connect()
    for _ in range(50):
        with link.call(Verb.STAT, PATH) as call:
            pass
        wire.error(call, (Tag.ERRNO, 125))
    assert not link.has_ended
    for _ in range(11):
        with link.call(Verb.STAT, PATH):
            pass
    with pytest.raises(EnvLostError, match="does not end"):
        link.call(Verb.STAT, PATH)


# -- loss


async def test_a_lost_link_wakes_every_caller_in_the_same_turn_of_the_loop() -> None:
    """Readers, senders, and those who wait to write; and every later call."""
    link, _wire = await connect()
    calls = [link.call(Verb.GET, PATH) for _ in range(3)]
    sending = link.call(Verb.PUT, PATH)
    tasks = [await start(call.receive()) for call in calls]
    tasks.append(await start(sending.send(bytes(2 * GUEST_WINDOW))))
    link.pause_writing()
    drained = await start(link.drain())
    link.connection_lost(ConnectionResetError("reset by peer"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert all(task.done() for task in (*tasks, drained))
    for task in tasks:
        with pytest.raises(EnvLostError, match="the env was lost: reset by peer"):
            task.result()
    with pytest.raises(EnvLostError, match="reset by peer"):
        link.call(Verb.STAT, PATH)
    with pytest.raises(EnvLostError, match="reset by peer"):
        await calls[0].result()


async def test_a_call_that_was_answered_keeps_its_answer_when_the_link_is_lost() -> None:
    """Bytes that came before the end are not lost with it."""
    link, wire = await connect()
    call = link.call(Verb.GET, PATH)
    wire.data(call, b"x")
    wire.result(call, (Tag.TOTAL, 1))
    link.connection_lost(None)
    assert await call.receive() == (Channel.MAIN, b"x")
    assert await call.receive() is None
    assert await call.result() == {Tag.TOTAL: 1}
    assert await call.send(b"late") is False


async def test_the_guests_goodbye_is_the_reason() -> None:
    """It knows best; nobody else is asked."""

    async def explain() -> str:
        raise AssertionError("asked")

    link, wire = await connect(explain=explain)
    call = link.call(Verb.STAT, PATH)
    wire.say(Kind.BYE, payload=encode_fields([(Tag.MESSAGE, b"out of memory")]))
    with pytest.raises(EnvLostError, match=r"the env was lost: out of memory$"):
        await call.result()
    await settle()
    assert wire.aborted


async def test_the_envs_explanation_is_added_to_the_loss() -> None:
    """Open and later calls say why, where it can be found out."""
    asked = anyio.Event()

    async def explain() -> str:
        asked.set()
        await asyncio.sleep(0)
        return "the container was removed"

    link, _ = await connect(explain=explain)
    call = link.call(Verb.STAT, PATH)
    waiter = await start(call.result())
    link.connection_lost(None)
    with anyio.fail_after(PATIENCE):
        await asked.wait()
        with pytest.raises(EnvLostError, match=r"the guest ended \(the container was removed\)"):
            await waiter
    with pytest.raises(EnvLostError, match="the container was removed"):
        link.call(Verb.STAT, PATH)


@pytest.mark.parametrize("way", ["hangs", "fails", "knows nothing"])
async def test_an_explanation_that_does_not_come_delays_but_does_not_replace_the_loss(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time is bounded, its errors are nobody's."""
    monkeypatch.setattr(link_module, "EXPLAIN_TIMEOUT", 0.01)

    async def explain() -> str | None:
        if way == "hangs":
            await anyio.sleep_forever()
        if way == "fails":
            raise OSError("the engine is gone, too")
        return None

    link, _ = await connect(explain=explain)
    waiter = await start(link.call(Verb.STAT, PATH).result())
    link.connection_lost(None)
    with anyio.fail_after(PATIENCE), pytest.raises(EnvLostError, match=r"the guest ended$"):
        await waiter


async def test_a_loss_is_final() -> None:
    """Bytes that come after it are not looked at, and the first reason stands."""
    link, wire = await connect()
    call = link.call(Verb.STAT, PATH)
    link.lose("first")
    link.lose("second")
    wire.result(call)
    with pytest.raises(EnvLostError, match="first"):
        await call.result()


# -- silence


class Clock:
    """Runs the link's timers by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.timers: list[tuple[Callable[..., object], tuple[object, ...]]] = []
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "call_later", self._call_later)

    def _call_later(self, delay: float, callback: Callable[..., object], *args: object) -> asyncio.TimerHandle:
        assert delay == link_module.PING_INTERVAL
        self.timers.append((callback, args))
        loop = asyncio.get_running_loop()
        return asyncio.TimerHandle(loop.time() + delay, callback, args, loop)

    def tick(self) -> None:
        """Let ten seconds go by."""
        timers, self.timers = self.timers, []
        for callback, args in timers:
            callback(*args)


async def test_a_silent_guest_is_pinged_and_then_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six pings without a byte are a minute; any byte starts anew."""
    link, wire = await connect()
    clock = Clock(monkeypatch)
    call = link.call(Verb.EXEC, [])
    for _ in range(6):
        clock.tick()
    assert len(wire.said(Kind.PING)) == 6
    wire.say(Kind.PONG)
    for _ in range(6):
        clock.tick()
    assert not link.has_ended
    clock.tick()
    with pytest.raises(EnvLostError, match="silent for 60 s"):
        await call.result()
    assert clock.timers == []


async def test_nobody_is_pinged_while_no_call_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle env costs nothing, and many calls cost one timer."""
    link, wire = await connect()
    clock = Clock(monkeypatch)
    for _ in range(3):
        with link.call(Verb.STAT, PATH) as call:
            wire.result(call)
    assert len(clock.timers) == 1
    clock.tick()
    assert clock.timers == []
    assert wire.said(Kind.PING) == []


# -- foreign loops and closing


async def test_use_from_another_event_loop_is_one_clear_sentence() -> None:
    """It names what to do, and breaks nothing."""
    link, wire = await connect()

    async def use() -> None:
        link.call(Verb.STAT, PATH)

    def other_loop() -> None:
        with pytest.raises(EnvError, match=r"another event loop: .*open_env_sync"):
            asyncio.run(use())

    def no_loop() -> None:
        with pytest.raises(EnvError, match="another event loop"):
            link.call(Verb.STAT, PATH)

    await anyio.to_thread.run_sync(other_loop)
    await anyio.to_thread.run_sync(no_loop)
    call = link.call(Verb.STAT, PATH)
    wire.result(call)
    assert await call.result() == {}


async def test_closing_says_goodbye_and_ends_open_calls() -> None:
    """With the error for use after close, also for later calls."""
    link, wire = await connect()
    waiter = await start(link.call(Verb.EXEC, []).result())
    await link.aclose()
    await link.aclose()
    assert wire.said(Kind.BYE) == [b""]
    assert wire.closed
    assert not wire.aborted
    with pytest.raises(EnvClosedError):
        await waiter
    with pytest.raises(EnvClosedError):
        link.call(Verb.STAT, PATH)


async def test_closing_a_link_that_was_never_connected_is_harmless() -> None:
    """A start may fail early."""
    link = Link()
    await link.aclose()
    with pytest.raises(EnvClosedError):
        link.loop  # noqa: B018 - it is the access that raises


async def test_closing_cuts_a_stream_that_does_not_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guest that does not read cannot hold up the close."""
    monkeypatch.setattr(link_module, "CLOSE_TIMEOUT", 0.01)
    link, wire = await connect()
    wire.keeps_open = True
    with anyio.fail_after(PATIENCE):
        await link.aclose()
    assert wire.aborted


# -- another stream

TOKEN = bytes(range(TOKEN_BYTES))


async def test_a_link_goes_on_over_the_stream_that_follows() -> None:
    """The guest is asked over the first one; calls go over the second, and the end of that is the link's."""
    link, first = await connect()
    refusal = link.connect(b"/s", TOKEN)
    assert first.said(Kind.CONNECT) == [encode_fields([(Tag.PATH, b"/s"), (Tag.TOKEN, TOKEN)])]
    second = Wire(link)
    assert refusal.cancelled()
    call = link.call(Verb.GET, PATH)
    assert first.said(Kind.CALL, call) == []
    assert len(second.said(Kind.CALL, call)) == 1
    second.data(call, b"content")
    second.result(call)
    assert await call.receive() == (Channel.MAIN, b"content")
    waiter = await start(link.call(Verb.STAT, PATH).result())
    link.connection_lost(None)
    with pytest.raises(EnvLostError, match="the guest ended"):
        await waiter


async def test_half_a_frame_of_the_first_stream_is_none_of_the_second() -> None:
    """Each has a decoder of its own."""
    link, _ = await connect()
    refusal = link.connect(b"/s", TOKEN)
    link.data_received(encode(0, Kind.PONG)[:5])
    second = Wire(link)
    assert refusal.cancelled()
    call = link.call(Verb.STAT, PATH)
    second.result(call)
    assert await call.result() == {}


async def test_a_guest_that_cannot_connect_stays_on_its_stream() -> None:
    """It says why, with a number of Linux."""
    link, wire = await connect()
    refusal = link.connect(b"/s", TOKEN)
    wire.say(Kind.CONNECT, payload=encode_fields([(Tag.ERRNO, 13)]))
    error = await refusal
    assert (error.errno, error.strerror) == (errno.EACCES, "Permission denied")
    call = link.call(Verb.STAT, PATH)
    wire.result(call)
    assert await call.result() == {}


@pytest.mark.parametrize("ended", ["before", "meanwhile"])
async def test_nobody_waits_for_a_guest_that_is_gone(ended: str) -> None:
    """Whoever asked it looks why the link has ended."""
    link, wire = await connect()
    if ended == "before":
        link.lose("gone")
    refusal = link.connect(b"/s", TOKEN)
    link.lose("gone")
    assert refusal.cancelled()
    assert len(wire.said(Kind.CONNECT)) == (ended == "meanwhile")
    assert "gone" in str(await link.ended())


async def test_closing_a_link_that_has_moved_says_goodbye_on_its_stream() -> None:
    """The first one belongs to its carrier."""
    link, first = await connect()
    refusal = link.connect(b"/s", TOKEN)
    second = Wire(link)
    await link.aclose()
    assert refusal.cancelled()
    assert second.said(Kind.BYE) == [b""]
    assert second.closed
    assert first.said(Kind.BYE) == []
    assert not first.closed


CONNECTS: dict[str, bytes] = {
    "without a number": b"",
    "with number zero": encode_fields([(Tag.ERRNO, 0)]),
    "with a number that is none": encode_fields([(Tag.ERRNO, 4096)]),
    "with a token": encode_fields([(Tag.TOKEN, TOKEN)]),
    "with broken fields": b"x",
}


@pytest.mark.parametrize("payload", CONNECTS.values(), ids=CONNECTS.keys())
async def test_a_damaged_answer_to_connect_is_a_breach(payload: bytes) -> None:
    """Over the first stream the guest may only say why it stays."""
    link, wire = await connect()
    refusal = link.connect(b"/s", TOKEN)
    wire.say(Kind.CONNECT, payload=payload)
    assert refusal.cancelled()
    assert "broke the protocol" in str(await link.ended())


@pytest.mark.parametrize("moved", [False, True])
async def test_an_answer_that_nobody_waits_for_is_a_breach(moved: bool) -> None:  # noqa: FBT001 - two cases
    """A second refusal, and one after the connection."""
    link, wire = await connect()
    refusal = link.connect(b"/s", TOKEN)
    if moved:
        wire = Wire(link)
    else:
        wire.say(Kind.CONNECT, payload=encode_fields([(Tag.ERRNO, 2)]))
        assert not link.has_ended
    assert refusal.done()
    wire.say(Kind.CONNECT, payload=encode_fields([(Tag.ERRNO, 2)]))
    assert "unexpected CONNECT frame" in str(await link.ended())
    assert wire.aborted


# -- hostile guests


LINK, CALL, NOBODY = 0, 1, 9
BREACHES: dict[str, list[tuple[Kind, int, bytes, int]]] = {
    "more data than granted": [(Kind.DATA, CALL, bytes(MAX_DATA), 0)] * (HOST_WINDOW // MAX_DATA + 1),
    "data for nobody": [(Kind.DATA, NOBODY, b"x", 0)],
    "result for nobody": [(Kind.RESULT, NOBODY, b"", 0)],
    "a second result": [(Kind.RESULT, CALL, b"", 0)] * 2,
    "data after the result": [(Kind.RESULT, CALL, b"", 0), (Kind.DATA, CALL, b"x", 0)],
    "data on another channel": [(Kind.DATA, CALL, b"x", Channel.STDOUT)],
    "data on no channel": [(Kind.DATA, CALL, b"x", 77)],
    "data without bytes": [(Kind.DATA, CALL, b"", 0)],
    "credit for nothing": [(Kind.CREDIT, CALL, struct.pack("<I", 1), 0)],
    "credit of nothing": [(Kind.CREDIT, CALL, struct.pack("<I", 0), 0)],
    "credit that is no number": [(Kind.CREDIT, CALL, b"123", 0)],
    "end from the guest": [(Kind.END, CALL, b"", 0)],
    "cancel from the guest": [(Kind.CANCEL, CALL, b"", 0)],
    "call from the guest": [(Kind.CALL, CALL, b"", 0)],
    "ping of a call": [(Kind.PING, CALL, b"", 0)],
    "a second hello": [(Kind.HELLO, LINK, encode_fields([(Tag.VERSION, VERSION)]), 0)],
    "ping from the guest": [(Kind.PING, LINK, b"", 0)],
    "pong without ping": [(Kind.PONG, LINK, b"", 0)],
    "data for the link": [(Kind.DATA, LINK, b"x", 0)],
    "error without a number": [(Kind.ERROR, CALL, encode_fields([(Tag.MESSAGE, b"x")]), 0)],
    "error number zero": [(Kind.ERROR, CALL, encode_fields([(Tag.ERRNO, 0)]), 0)],
    "error number below zero": [(Kind.ERROR, CALL, encode_fields([(Tag.ERRNO, -2)]), 0)],
    "fields cut short": [(Kind.RESULT, CALL, b"x", 0)],
    "result with a channel": [(Kind.RESULT, CALL, b"", 1)],
    "bye with broken fields": [(Kind.BYE, LINK, b"x", 0)],
    "connect without being asked": [(Kind.CONNECT, LINK, encode_fields([(Tag.ERRNO, 2)]), 0)],
    "connect of a call": [(Kind.CONNECT, CALL, encode_fields([(Tag.ERRNO, 2)]), 0)],
}


@pytest.mark.parametrize("frames", BREACHES.values(), ids=BREACHES.keys())
async def test_a_breach_of_the_protocol_loses_the_env_and_nothing_else(
    frames: list[tuple[Kind, int, bytes, int]],
) -> None:
    """Whatever the guest may not send ends the link, in so many words."""
    link, wire = await connect()
    call, other = link.call(Verb.GET, PATH), link.call(Verb.STAT, PATH)
    assert (call.number, other.number) == (CALL, CALL + 1)
    for kind, number, payload, channel in frames:
        wire.say(kind, number, payload, channel)
    with pytest.raises(EnvLostError, match="broke the protocol"):
        await other.result()
    await settle()
    assert wire.aborted


async def test_bytes_that_are_no_frames_lose_the_env() -> None:
    """Such as the output of something else on the same stream."""
    link, _ = await connect()
    call = link.call(Verb.STAT, PATH)
    link.data_received(b"panic: runtime error\n" * 3)
    with pytest.raises(EnvLostError, match="broke the protocol"):
        await call.result()


async def test_data_for_a_verb_that_has_none_is_a_breach() -> None:
    """STAT answers in its RESULT."""
    link, wire = await connect()
    call = link.call(Verb.STAT, PATH)
    wire.data(call, b"x")
    with pytest.raises(EnvLostError, match="DATA on channel 0"):
        await call.result()


async def test_many_tiny_frames_take_no_more_memory_than_their_bytes() -> None:
    """Bytes that wait to be read are bytes, not one object each."""
    link, _wire = await connect()
    call = link.call(Verb.EXEC, [])
    piece = b"".join(encode(call.number, Kind.DATA, b"ab", channel) for channel in (Channel.STDOUT, Channel.STDERR))
    tracemalloc.start()
    try:
        for _ in range(10_000):
            link.data_received(piece)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not link.has_ended
    assert held < 3 * 40_000 + 10_000


FUZZ_INPUTS = int(os.environ.get("RUNENV_FUZZ", "10000"))
"""Inputs of the fuzz test; a million takes some minutes."""


def _hostile(chance: random.Random, numbers: list[int]) -> bytes:
    """Return bytes that a hostile guest may send: frames that are nearly right, or nothing of the kind."""
    if chance.random() < 0.03:
        return chance.randbytes(chance.randrange(40))
    kind = chance.choice(list(Kind))
    payloads = (
        b"",
        chance.randbytes(chance.randrange(1, 40)),
        struct.pack("<I", chance.choice([0, 1, 100, GUEST_WINDOW, 2**32 - 1])),
        encode_fields(
            (tag, chance.randrange(-5, 300) if tag < Tag.PATH else chance.randbytes(chance.randrange(6)))
            for tag in chance.sample(list(Tag), chance.randrange(4))
        ),
        encode_fields([(Tag.ERRNO, chance.randrange(1, 140)), (Tag.MESSAGE, b"m"), (Tag.PATH, b"p")]),
    )
    return encode(chance.choice([0, *numbers, 99]), kind, chance.choice(payloads), chance.choice([0, 0, 0, 1, 2, 9]))


async def test_any_bytes_at_all_cause_at_worst_a_lost_env() -> None:
    """Random frames and bytes against open calls: only the package's errors and file errors come out."""
    chance = random.Random(3)
    for turn in range(FUZZ_INPUTS // 10):
        link, _wire = await connect()
        refusal = link.connect(b"/s", TOKEN) if turn % 4 == 0 else None
        calls = [link.call(chance.choice(list(Verb)), PATH, b"x" * chance.randrange(9)) for _ in range(3)]
        tasks = [asyncio.ensure_future(call.result()) for call in calls]
        for _ in range(10):
            data = _hostile(chance, [call.number for call in calls])
            cut = chance.randrange(len(data) + 1)
            link.data_received(data[:cut])
            link.data_received(data[cut:])
            if chance.random() < 0.1:
                calls[0].cancel()
            if chance.random() < 0.3:
                await asyncio.sleep(0)
        link.connection_lost(None)
        for task in tasks:
            with suppress(EnvLostError, OSError, LimitError):
                assert isinstance(await task, dict)
        assert link.has_ended
        assert refusal is None or refusal.done()
