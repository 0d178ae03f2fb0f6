"""Carriers: an upgraded HTTP connection as the link's byte stream, whatever comes and however it is cut."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runenv.envs.docker import carriers
from runenv.envs.docker.carriers import Carrier, Ssh, open_carrier
from runenv.envs.docker.endpoint import Endpoint
from runenv.errors import EnvStartError
from tests.envs.engines import PATIENCE, fake_ssh, until, wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

pytestmark = pytest.mark.anyio

HEAD = b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\n\r\n"


def framed(stream: int, data: bytes) -> bytes:
    """Return bytes as Docker frames them."""
    return struct.pack(">BxxxI", stream, len(data)) + data


class Sink(asyncio.Protocol):
    """A link that keeps what it is told."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.data = bytearray()
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.pauses: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert self.transport is None
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)

    def pause_writing(self) -> None:
        self.pauses.append("pause")

    def resume_writing(self) -> None:
        self.pauses.append("resume")


class Transport(asyncio.Transport):
    """A transport that goes nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def abort(self) -> None:
        self.aborted = True


def feed(carrier: Carrier, data: bytes, cuts: list[int]) -> None:
    """Give a carrier bytes in pieces."""
    ends = sorted({cut % (len(data) + 1) for cut in cuts} | {len(data)})
    start = 0
    for end in ends:
        for at in range(start, end, carriers._READ_BYTES):
            piece = data[at : min(end, at + carriers._READ_BYTES)]
            carrier.get_buffer(-1)[: len(piece)] = piece
            carrier.buffer_updated(len(piece))
        start = end


def in_loop(test: Callable[[], Awaitable[None]]) -> None:
    """Run one example of hypothesis in a loop of its own."""

    async def run() -> None:
        await test()

    asyncio.run(run())


# -- the stream


@given(
    frames=st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=300)), max_size=20),
    cuts=st.lists(st.integers(0, 7000), max_size=30),
)
def test_any_cut_of_the_stream_gives_the_same_bytes(frames: list[tuple[int, bytes]], cuts: list[int]) -> None:
    """Head, frame headers and payloads may come in any pieces; stdout goes to the link, stderr is kept."""

    async def check() -> None:
        sink, transport = Sink(), Transport()
        carrier = Carrier(b"POST", sink)
        carrier.connection_made(transport)
        feed(carrier, HEAD + b"".join(framed(stream, data) for stream, data in frames), cuts)
        assert sink.data == b"".join(data for stream, data in frames if stream == 1)
        assert sink.transport is transport
        kept = b"".join(data for stream, data in frames if stream != 1)[-4096:]
        assert bytes(carrier._stderr) == kept
        assert carrier.stderr.isprintable()
        assert carrier.upgraded.done()

    in_loop(check)


@given(junk=st.binary(min_size=1, max_size=2000), cuts=st.lists(st.integers(0, 2000), max_size=10))
def test_any_bytes_at_all_end_at_worst_in_an_error(junk: bytes, cuts: list[int]) -> None:
    """S1: no exception reaches the loop, and nothing is held but the head and the end of stderr."""

    async def check() -> None:
        for head in (b"", HEAD, b"HTTP/1.1 500 x\r\nContent-Length: 5\r\n\r\n"):
            sink, transport = Sink(), Transport()
            carrier = Carrier(b"POST", sink)
            carrier.connection_made(transport)
            feed(carrier, head + junk, cuts)
            carrier.connection_lost(None)
            assert carrier.upgraded.done()
            assert carrier.closed.done()
            if carrier.upgraded.exception() is None:
                assert sink.lost.done()

    in_loop(check)


@pytest.mark.parametrize("damage", [b"\x04\0\0\0", b"\x01\0\0\x01", b"HTTP"])
async def test_a_damaged_stream_is_cut_with_a_reason(damage: bytes) -> None:
    """A frame of a stream that Docker does not have, and what is no frame."""
    sink, transport = Sink(), Transport()
    carrier = Carrier(b"POST", sink)
    carrier.connection_made(transport)
    feed(carrier, HEAD + framed(1, b"good") + damage + b"\0\0\0\x01x", [])
    assert transport.aborted
    carrier.connection_lost(None)
    assert sink.data == b"good"
    assert "stream is damaged" in str(await sink.lost)


async def test_the_end_of_stderr_is_the_reason_of_a_loss() -> None:
    """The last 4 KiB of it, however much came."""
    sink, transport = Sink(), Transport()
    carrier = Carrier(b"POST", sink)
    carrier.connection_made(transport)
    feed(carrier, HEAD + framed(2, b"x" * 1_000_000) + framed(2, b"exec format error\n"), [])
    assert len(carrier._stderr) == 4096
    carrier.connection_lost(None)
    reason = str(await sink.lost)
    assert reason.endswith("exec format error")


async def test_a_plain_end_has_no_reason() -> None:
    """The link looks for one elsewhere then."""
    sink = Sink()
    carrier = Carrier(b"POST", sink)
    carrier.connection_made(Transport())
    feed(carrier, HEAD, [])
    carrier.connection_lost(None)
    assert await sink.lost is None


async def test_the_link_hears_when_the_socket_is_full_and_only_once_it_has_it() -> None:
    """Back-pressure goes through."""
    sink = Sink()
    carrier = Carrier(b"POST", sink)
    carrier.connection_made(Transport())
    carrier.pause_writing()
    carrier.resume_writing()
    assert sink.pauses == []
    feed(carrier, HEAD, [])
    carrier.pause_writing()
    carrier.resume_writing()
    assert sink.pauses == ["pause", "resume"]


# -- the connection

Handler = "Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]"


@contextlib.asynccontextmanager
async def engine_at(path: Path, handler: Any) -> AsyncGenerator[Endpoint]:  # noqa: ANN401 - a coroutine function
    """Serve one kind of answer on a unix socket."""
    tasks: list[asyncio.Task[None]] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        try:
            await handler(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_unix_server(accept, path)
    yield Endpoint(f"unix://{path}", "test", "unix", path=str(path))
    server.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def request_of(reader: asyncio.StreamReader) -> bytes:
    """Read a request's head and body."""
    head = await reader.readuntil(b"\r\n\r\n")
    size = next(line for line in head.split(b"\r\n") if line.startswith(b"Content-Length"))
    return head + await reader.readexactly(int(size.partition(b":")[2]))


async def test_bytes_that_come_with_the_answer_are_not_lost(tmp_path: Path) -> None:
    """One packet holds the head and the first frames: what http.client reads ahead and drops."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(HEAD + framed(1, b"first") + framed(1, b" second"))
        await writer.drain()
        assert await reader.read(100) == b"to the guest"
        writer.write(framed(1, b" third"))
        await writer.drain()

    async with engine_at(tmp_path / "s", handler) as endpoint:
        sink = Sink()
        carrier = await open_carrier(endpoint, "/v1.41/containers/x/attach", sink)
        sink.transport.write(b"to the guest")
        with anyio.fail_after(PATIENCE):
            assert await sink.lost is None
            await carrier.closed
        assert sink.data == b"first second third"


async def test_the_request_is_an_upgrade_with_a_json_body(tmp_path: Path) -> None:
    """What an exec needs."""
    seen = bytearray()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.extend(await request_of(reader))
        writer.write(HEAD)
        await reader.read()

    async with engine_at(tmp_path / "s", handler) as endpoint:
        carrier = await open_carrier(endpoint, "/v1.41/exec/x/start", Sink(), body={"Tty": False})
        carrier.abort()
        await carrier.closed
    assert seen.startswith(b"POST /v1.41/exec/x/start HTTP/1.1\r\n")
    assert b"\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n" in seen
    assert seen.endswith(b'\r\n\r\n{"Tty": false}')


async def test_an_engine_that_does_not_know_upgrades_serves_too(tmp_path: Path) -> None:
    """Older ones answer 200 and go on with the stream."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\n" + framed(1, b"hi"))
        await writer.drain()

    async with engine_at(tmp_path / "s", handler) as endpoint:
        sink = Sink()
        await open_carrier(endpoint, "/x", sink)
        await sink.lost
        assert sink.data == b"hi"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            b'HTTP/1.1 404 Not Found\r\nContent-Length: 39\r\n\r\n{"message":"No such container: \\n it"}   ',
            "No such container: it",
        ),
        (b'HTTP/1.1 409 Conflict\r\nConnection: close\r\n\r\n{"message":"is paused"}', "is paused"),
        (b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\noops", "oops"),
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 403 Forbidden"),
        (b"220 smtp.example ESMTP\r\n\r\n", "220 smtp.example ESMTP"),
        (b"HTTP/1.1 500", "HTTP/1.1 500"),
        (b"", "closed the connection without an answer"),
        (b"x" * 70_000, "is not HTTP"),
    ],
)
async def test_a_refusal_is_told_in_the_engines_words(tmp_path: Path, answer: bytes, message: str) -> None:
    """With and without a length, JSON or not, HTTP or not."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(answer)
        with contextlib.suppress(ConnectionError):
            await writer.drain()

    async with engine_at(tmp_path / "s", handler) as endpoint:
        sink = Sink()
        with anyio.fail_after(PATIENCE), pytest.raises(EnvStartError) as caught:
            await open_carrier(endpoint, "/x", sink)
        assert message in str(caught.value)
        assert sink.transport is None


async def test_an_engine_that_takes_the_request_and_hangs_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is not left open."""
    monkeypatch.setattr(carriers, "_UPGRADE_SECONDS", 0.2)
    ended = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert writer is not None
        await request_of(reader)
        with contextlib.suppress(ConnectionError):
            await reader.read()
        ended.set()

    async with engine_at(tmp_path / "s", handler) as endpoint:
        with pytest.raises(EnvStartError, match="gives no stream: it hangs"):
            await open_carrier(endpoint, "/x", Sink())
        with anyio.fail_after(PATIENCE):
            await ended.wait()


async def test_a_cancelled_request_leaves_no_connection(tmp_path: Path) -> None:
    """The task that waits for the answer is cancelled."""
    asked, ended = asyncio.Event(), asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert writer is not None
        await request_of(reader)
        asked.set()
        with contextlib.suppress(ConnectionError):
            await reader.read()
        ended.set()

    async with engine_at(tmp_path / "s", handler) as endpoint:
        task = asyncio.create_task(open_carrier(endpoint, "/x", Sink()))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with anyio.fail_after(PATIENCE):
            await ended.wait()


@pytest.mark.parametrize(
    "endpoint",
    [
        Endpoint("unix:///nonexistent", "test", "unix", path="/nonexistent"),
        Endpoint("tcp://127.0.0.1:1", "test", "tcp", host="127.0.0.1", port=1),
    ],
)
async def test_an_engine_that_went_away_is_named(endpoint: Endpoint) -> None:
    """As it may between two calls."""
    with pytest.raises(EnvStartError, match=f"the Docker engine at {endpoint.url} .* cannot be reached"):
        await open_carrier(endpoint, "/x", Sink())


async def test_a_remote_connection_is_kept_alive() -> None:
    """A dead remote engine is noticed although it says nothing."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(HEAD)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    sink = Sink()
    carrier = await open_carrier(Endpoint("tcp", "test", "tcp", host="127.0.0.1", port=port), "/x", sink)
    connection = sink.transport.get_extra_info("socket")
    assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
    carrier.abort()
    await carrier.closed
    server.close()


# -- ssh


async def test_ssh_carries_the_stream_and_is_gone_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program on PATH, started without the secrets of this process, reaped without a thread."""
    log = fake_ssh(tmp_path, str(tmp_path / "s"))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("A_SECRET", "of the host")

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(HEAD + framed(1, b"over ssh"))
        await reader.read()

    async with engine_at(tmp_path / "s", handler):
        sink = Sink()
        carrier = await open_carrier(Endpoint("ssh://me@far", "test", "ssh", host="far", user="me"), "/x", sink)
        await until(lambda: bytes(sink.data) == b"over ssh")
        assert carrier._ssh is not None
        pid = carrier._ssh._process.pid
        assert b"A_SECRET" not in Path(f"/proc/{pid}/environ").read_bytes()
        sink.transport.close()
        with anyio.fail_after(PATIENCE):
            await carrier.closed
        assert not Path(f"/proc/{pid}").exists()
    assert "-l me -- far docker system dial-stdio" in log.read_text()


async def test_what_ssh_complains_about_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that is unknown, a key that is refused: its own words."""
    program = tmp_path / "ssh"
    program.write_text("#!/bin/sh\necho 'Permission denied (publickey).' >&2\nexit 255\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with anyio.fail_after(PATIENCE), pytest.raises(EnvStartError, match=r"Permission denied \(publickey\)"):
        await open_carrier(Endpoint("ssh://far", "test", "ssh", host="far"), "/x", Sink())


async def test_a_missing_ssh_program_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of ours, not FileNotFoundError."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvStartError, match="No such file or directory: 'ssh'"):
        await open_carrier(Endpoint("ssh://far", "test", "ssh", host="far"), "/x", Sink())


def test_an_ssh_that_hangs_is_ended_with_all_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ProxyCommand, for one, is a process of its own."""
    program = tmp_path / "ssh"
    program.write_text(f"#!/bin/sh\nsleep 1000 & echo $! > {tmp_path}/child; wait\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    ssh = Ssh(Endpoint("ssh://far", "test", "ssh", host="far"))
    child = tmp_path / "child"
    wait_until(lambda: child.exists() and child.read_text().strip())
    ssh.reap()
    ssh.socket.close()
    status = Path(f"/proc/{int(child.read_text())}/stat")
    wait_until(lambda: not status.exists() or status.read_text().split()[2] == "Z")
