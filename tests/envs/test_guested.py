"""The verbs against a scripted guest: what an honest one cannot be made to do, such as lying."""
# ruff: noqa: ASYNC110 - tests look at small files of their own, and wait for a frame

from __future__ import annotations

import asyncio
import os
import stat
import struct
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from pydantic import SecretStr

from runenv.config import LocalConfig
from runenv.envs.guested.env import GuestedEnv
from runenv.errors import ConfigError, EnvClosedError, EnvLostError, LimitError
from runenv.guest.frames import (
    VERSION,
    Channel,
    Fields,
    Frame,
    FrameDecoder,
    Kind,
    Tag,
    Verb,
    decode_fields,
    encode,
    encode_fields,
)
from runenv.guest.link import Link

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

pytestmark = pytest.mark.anyio

PATIENCE = 10.0
DONE = [
    (Tag.EXIT_CODE, 0),
    (Tag.DURATION_US, 1),
    (Tag.OUT_TOTAL, 0),
    (Tag.OUT_LINES, 0),
    (Tag.OUT_KEPT_HEAD, 0),
    (Tag.ERR_TOTAL, 0),
    (Tag.ERR_LINES, 0),
    (Tag.ERR_KEPT_HEAD, 0),
]
FILE = struct.pack("<IQqIIHH", stat.S_IFREG | 0o644, 3, 0, 0, 0, 0, 0)
FOLDER = struct.pack("<IQqIIHH", stat.S_IFDIR | 0o755, 3, 0, 0, 0, 0, 0)

Script = list[tuple[Kind, bytes]]


def result(*fields: tuple[Tag, int | bytes]) -> tuple[Kind, bytes]:
    """Return a RESULT."""
    return Kind.RESULT, encode_fields(fields)


class ScriptedGuest(asyncio.Transport):
    """Answers each call by its verb with the frames of a test; PUT and TREE_PUT once their END is there."""

    def __init__(self, link: Link, scripts: dict[Verb, Script]) -> None:
        super().__init__()
        self.link = link
        self.scripts = scripts
        self.calls: list[tuple[Verb, Fields]] = []
        self.frames: list[Frame] = []
        self._decoder = FrameDecoder()
        self._verbs: dict[int, Verb] = {}
        link.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        asyncio.get_running_loop().call_soon(self._read, bytes(data))

    def _read(self, data: bytes) -> None:
        for frame in self._decoder.feed(data):
            self.frames.append(frame)
            if frame.kind is Kind.HELLO:
                self.link.data_received(encode(0, Kind.HELLO, encode_fields([(Tag.VERSION, VERSION)])))
            if frame.kind is Kind.CALL:
                verb = self._verbs[frame.call] = Verb(frame.channel)
                self.calls.append((verb, decode_fields(frame.payload)))
                if verb not in {Verb.PUT, Verb.TREE_PUT}:
                    self._answer(frame.call)
            if frame.kind is Kind.DATA and self._verbs[frame.call] is not Verb.EXEC:
                self.link.data_received(encode(frame.call, Kind.CREDIT, struct.pack("<I", len(frame.payload))))
            if frame.kind is Kind.END:
                self._answer(frame.call)

    def _answer(self, call: int) -> None:
        verb = self._verbs[call]
        channel = Channel.STDOUT if verb is Verb.EXEC else Channel.MAIN
        for kind, payload in self.scripts.get(verb, []):
            self.link.data_received(encode(call, kind, payload, channel if kind is Kind.DATA else 0))

    def abort(self) -> None:
        asyncio.get_running_loop().call_soon(self.link.connection_lost, None)

    close = abort


class ScriptedEnv(GuestedEnv):
    """The smallest backend."""

    def __init__(self, **scripts: Script) -> None:
        super().__init__(LocalConfig(timeout=7, environment={"A": SecretStr("b")}), "scripted")
        self.guest: ScriptedGuest
        self.scripts = {Verb[name]: script for name, script in scripts.items()}
        self.stopped = 0

    async def _start(self) -> None:
        self._link = Link(explain=self._explain_loss)
        self.guest = ScriptedGuest(self._link, self.scripts)
        await self._link.hello(self._hello_fields())

    async def _stop(self) -> None:
        self.stopped += 1


# -- what the guest is asked


async def test_the_configuration_goes_to_the_guest() -> None:
    """Environment and quota in the greeting; deadline and output bounds in each command."""
    async with ScriptedEnv(EXEC=[result(*DONE)]) as env:
        await env.exec("x")
        await env.exec("x", timeout=None, max_output_bytes=1024)
        await env.exec(["x"], timeout=2, cwd="d", env={"C": "d"}, stdin=b"in")
    hello = decode_fields(env.guest.frames[0].payload)
    assert hello[Tag.ENV] == [b"A=b"]
    assert hello[Tag.SPILL_QUOTA] == LocalConfig().spill_quota_bytes
    limits = [
        {tag: fields.get(tag) for tag in (Tag.TIMEOUT_MS, Tag.KEEP, Tag.SPILL_AT)} for _, fields in env.guest.calls
    ]
    assert limits == [
        {Tag.TIMEOUT_MS: 7000, Tag.KEEP: 240_000, Tag.SPILL_AT: 30_000},
        {Tag.TIMEOUT_MS: None, Tag.KEEP: 1024, Tag.SPILL_AT: 1024},
        {Tag.TIMEOUT_MS: 2000, Tag.KEEP: 240_000, Tag.SPILL_AT: 30_000},
    ]


async def test_a_bad_argument_is_refused_before_anything_is_sent() -> None:
    """And the env is none the worse for it."""

    async def text() -> AsyncIterator[Any]:
        yield "text"

    async with ScriptedEnv(PUT=[result((Tag.TOTAL, 0))]) as env:
        for verb in (
            env.exec("a\0"),
            env.exec("x", stdin="text"),  # type: ignore[arg-type]
            env.exec("x", timeout=-1),
            env.exec("x", max_output_bytes=1),
            env.read("f", offset=-1),
            env.read("f", length=-1),
            env.read("f", max_bytes=-1),
            env.read(""),
            env.write("f", "text"),  # type: ignore[arg-type]
            env.write("f", b"", mode=0o10000),
            env.stat("a\0"),
            env.rename("a", ""),
            env.upload("/", "t", include="*"),
            env.download("f", "t", exclude="*"),
            env.open_read("f", offset=-1).__aenter__(),
        ):
            with pytest.raises(ValueError, match=r"."):
                await verb
        assert env.guest.calls == []
        with pytest.raises(ValueError, match="must be bytes, not str"):
            await env.write("f", text())
        with pytest.raises(ConfigError, match="one user"):
            await env.exec("x", user="0")
        with pytest.raises(LimitError):
            await env.exec("x" * 2_000_000)
        await env.write("f", b"")


# -- lies


LIES: dict[str, tuple[dict[str, Script], Callable[[GuestedEnv], Coroutine[Any, Any, object]]]] = {
    "more output than kept": (
        {"EXEC": [(Kind.DATA, bytes(1025)), result(*DONE)]},
        lambda env: env.exec("x", max_output_bytes=1024),
    ),
    "an empty result": ({"EXEC": [result()]}, lambda env: env.exec("x")),
    "totals below what came": ({"EXEC": [(Kind.DATA, b"abc"), result(*DONE)]}, lambda env: env.exec("x")),
    "more of a file than asked for": (
        {"GET": [(Kind.DATA, b"abcd"), result((Tag.TOTAL, 4))]},
        lambda env: env.read("f", max_bytes=3),
    ),
    "less of a file than said": ({"GET": [(Kind.DATA, b"ab"), result((Tag.TOTAL, 3))]}, lambda env: env.read("f")),
    "less written than sent": ({"PUT": [result((Tag.TOTAL, 2))]}, lambda env: env.write("f", b"abc")),
    "no entry": ({"STAT": [result()]}, lambda env: env.stat("f")),
    "fewer entries than said": ({"LIST": [result((Tag.TOTAL, 1))]}, lambda env: env.list()),
    "entries out of bounds": ({"LIST": [(Kind.DATA, b"\xff" * 40), result((Tag.TOTAL, 1))]}, lambda env: env.list()),
    "less uploaded than sent": ({"PUT": [result((Tag.TOTAL, 1))]}, lambda env: env.upload(__file__, "f")),
    "no counts of a tree": ({"TREE_PUT": [result()]}, lambda env: env.upload(os.path.dirname(__file__), "t")),  # noqa: PTH120
}


@pytest.mark.parametrize(("scripts", "use"), LIES.values(), ids=LIES.keys())
async def test_an_answer_that_cannot_be_right_loses_the_env(
    scripts: dict[str, Script], use: Callable[[GuestedEnv], Coroutine[Any, Any, object]]
) -> None:
    """It is never passed on as a result, and nothing that comes later is believed."""
    async with ScriptedEnv(**scripts) as env:
        with anyio.fail_after(PATIENCE), pytest.raises(EnvLostError, match="broke the protocol"):
            await use(env)
        with pytest.raises(EnvLostError, match="broke the protocol"):
            await env.exec("x")


@pytest.mark.parametrize(
    ("entry", "scripts"),
    [
        (FILE, {"GET": [(Kind.DATA, b"abc"), result((Tag.ENTRY, FILE), (Tag.TOTAL, 4))]}),
        (FILE, {"GET": [(Kind.DATA, b"abc"), result((Tag.TOTAL, 3))]}),
        (FOLDER, {"TREE_GET": [(Kind.DATA, bytes(1024)), result((Tag.REFUSED_COUNT, -1))]}),
    ],
    ids=["another size", "no entry", "counts of a tree"],
)
async def test_a_download_whose_answer_cannot_be_right_leaves_no_file(
    entry: bytes, scripts: dict[str, Script], tmp_path: Path
) -> None:
    """The target is put in place only when all of it is true."""
    async with ScriptedEnv(STAT=[result((Tag.ENTRY, entry))], **scripts) as env:
        with anyio.fail_after(PATIENCE), pytest.raises(EnvLostError, match="broke the protocol"):
            await env.download("f", tmp_path / "f")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


async def test_a_folder_beyond_all_bounds_is_a_limit_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host holds no more of it."""
    monkeypatch.setattr("runenv.envs.guested.env.MAX_LIST_BYTES", 40)
    record = struct.pack("<IQqIIHH", 0, 0, 0, 0, 0, 2, 0) + b"ab"
    async with ScriptedEnv(LIST=[(Kind.DATA, record * 2)]) as env:
        with pytest.raises(LimitError, match="entries of 'd'"):
            await env.list("d")


# -- streams


async def test_an_early_answer_to_a_command_needs_no_reader_of_its_input() -> None:
    """More input than any window, and nobody takes it."""
    async with ScriptedEnv(EXEC=[result(*DONE)]) as env:
        with anyio.fail_after(PATIENCE):
            assert (await env.exec("true", stdin=bytes(10_000_000))).ok


async def test_a_stream_that_fails_cancels_the_write() -> None:
    """Its error reaches the caller as it is; the guest never hears of an end."""

    async def stream() -> AsyncIterator[bytes]:
        yield b"some"
        raise ZeroDivisionError("mine")

    async with ScriptedEnv() as env:
        with pytest.raises(ZeroDivisionError, match="mine"):
            await env.write("f", stream())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [frame.kind for frame in env.guest.frames[2:]] == [Kind.DATA, Kind.CANCEL]


async def test_a_stream_is_read_no_further_than_it_is_wanted() -> None:
    """Once the guest has answered, here because the disk is full, nobody pulls the rest."""
    pulled = 0

    async def stream() -> AsyncIterator[bytes]:
        nonlocal pulled
        while True:
            pulled += 1
            yield b"x" * 1000
            await asyncio.sleep(0)

    async with ScriptedEnv() as env:
        writer = asyncio.ensure_future(env.write("f", stream()))
        while pulled < 3:
            await asyncio.sleep(0)
        number = next(frame.call for frame in env.guest.frames if frame.kind is Kind.CALL)
        env.guest.link.data_received(encode(number, Kind.ERROR, encode_fields([(Tag.ERRNO, 28), (Tag.PATH, b"f")])))
        with anyio.fail_after(PATIENCE), pytest.raises(OSError, match="No space left") as caught:
            await writer
        assert caught.value.filename == "f"


async def test_leaving_a_stream_early_cancels_its_call() -> None:
    """And the stream says so when it is used after that."""
    async with ScriptedEnv(GET=[(Kind.DATA, b"abc")]) as env:
        async with env.open_read("f") as chunks:
            assert await anext(chunks) == b"abc"
        with pytest.raises(Exception, match="left already"):
            await anext(chunks)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert env.guest.frames[-1].kind is Kind.CANCEL


async def test_a_stream_ends_where_the_file_ends() -> None:
    """As an async iterator does."""
    async with (
        ScriptedEnv(GET=[(Kind.DATA, b"ab"), (Kind.DATA, b"c"), result((Tag.TOTAL, 3))]) as env,
        env.open_read("f", offset=1, length=3) as chunks,
    ):
        assert b"".join([chunk async for chunk in chunks]) == b"abc"
    assert env.guest.calls[0][1] == {Tag.PATH: b"f", Tag.OFFSET: 1, Tag.LENGTH: 3}


async def test_output_too_large_for_the_loop_is_rendered_in_a_thread() -> None:
    """The result is the same."""
    size = 2_000_000
    totals = {Tag.OUT_TOTAL: size, Tag.OUT_KEPT_HEAD: size}
    fields = [(tag, totals.get(tag, value)) for tag, value in DONE]
    script: Script = [(Kind.DATA, b"x" * 100_000)] * 20
    async with ScriptedEnv(EXEC=[*script[:10]]) as env:
        task = asyncio.ensure_future(env.exec("x", max_output_bytes=size))
        sent = 10
        number = 1
        while sent < 20:
            await asyncio.sleep(0)
            granted = sum(
                struct.unpack("<I", frame.payload)[0] for frame in env.guest.frames if frame.kind is Kind.CREDIT
            )
            if (1 << 20) + granted >= (sent + 1) * 100_000:
                env.guest.link.data_received(encode(number, Kind.DATA, b"x" * 100_000, Channel.STDOUT))
                sent += 1
        env.guest.link.data_received(encode(number, Kind.RESULT, encode_fields(fields)))
        with anyio.fail_after(PATIENCE):
            output = (await task).stdout
    assert len(output.data) == size
    assert output.truncated


# -- backends


async def test_a_backend_that_fails_to_start_is_stopped_once() -> None:
    """Whatever came of it is taken away, and the env cannot be opened again."""

    class Failing(ScriptedEnv):
        async def _start(self) -> None:
            raise ZeroDivisionError("mine")

    env = Failing()
    with pytest.raises(ZeroDivisionError, match="mine"):
        await env.__aenter__()
    await env.aclose()
    assert env.stopped == 1
    with pytest.raises(EnvClosedError):
        await env.__aenter__()


async def test_stopping_goes_on_while_its_caller_is_cancelled_again_and_again() -> None:
    """The caller hears of it when the backend has stopped."""
    going, go_on = anyio.Event(), anyio.Event()

    class Slow(ScriptedEnv):
        async def _stop(self) -> None:
            going.set()
            await go_on.wait()
            await super()._stop()

    env = Slow()
    await env.__aenter__()
    closer = asyncio.ensure_future(env.aclose())
    await going.wait()
    for _ in range(3):
        closer.cancel()
        await asyncio.sleep(0)
    assert not closer.done()
    go_on.set()
    with anyio.fail_after(PATIENCE), pytest.raises(asyncio.CancelledError):
        await closer
    assert env.stopped == 1
    await env.aclose()
    assert env.stopped == 1


async def test_closing_an_env_that_is_starting_waits_for_the_start_and_undoes_it() -> None:
    """Nothing is made after the stop, and the opener is told."""
    go_on = anyio.Event()
    order: list[str] = []

    class Slow(ScriptedEnv):
        async def _start(self) -> None:
            await go_on.wait()
            await super()._start()
            order.append("started")

        async def _stop(self) -> None:
            order.append("stopped")

    env = Slow()
    opener = asyncio.ensure_future(env.__aenter__())
    await asyncio.sleep(0)
    closer = asyncio.ensure_future(env.aclose())
    await asyncio.sleep(0)
    go_on.set()
    with anyio.fail_after(PATIENCE):
        with pytest.raises(EnvClosedError, match="while it started"):
            await opener
        await closer
    assert order == ["started", "stopped"]


@pytest.mark.parametrize("number", [2**63, 2**100])
async def test_numbers_beyond_the_wire_are_refused_or_mean_no_limit(number: int) -> None:
    """Not an error of the encoding."""
    async with ScriptedEnv(GET=[result((Tag.TOTAL, 0))]) as env:
        assert await env.read("f", max_bytes=number) == b""
        for verb in (env.read("f", offset=number), env.read("f", length=number)):
            with pytest.raises(ValueError, match="offset and length"):
                await verb
