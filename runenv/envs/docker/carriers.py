"""Byte streams under a link: upgraded HTTP connections to a Docker engine, over unix socket, TCP, TLS and ssh.

A carrier asks the engine to attach to a container or to start an exec, and from the answer on it is the guest's
stdin and stdout. It knows HTTP and Docker's stream framing, not frames of ours. Above it is the link, an
`asyncio.Protocol` that a carrier feeds; below it are asyncio's transports, so no env costs a thread or a task. The
SDK is not used: its sockets lose the bytes that http.client has read ahead. The way past the engine is in
`socket_carrier.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import tempfile
from typing import TYPE_CHECKING, Final

import anyio

from runenv.envs.docker.endpoint import ssh_command, ssh_environment
from runenv.envs.threads import in_thread
from runenv.errors import EnvStartError
from runenv.guest.forks import keep_from_children

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from runenv.envs.docker.endpoint import Endpoint

__all__ = ("Carrier", "Ssh", "SshError", "open_carrier")

_SEND_BUFFER_BYTES: Final = 1024 * 1024
"""Asked of the system, which gives what it allows: what the socket takes at once asyncio need not copy."""
_READ_BYTES: Final = 256 * 1024
"""Taken from the socket at once; a unix socket holds about this much."""
_MAX_HEAD_BYTES: Final = 64 * 1024
"""Bounds the engine's HTTP head, and the text of a refusal."""
_STDERR_BYTES: Final = 4 * 1024
"""How much of the end of the guest's stderr is kept to explain a loss."""
_UPGRADE_SECONDS: Final = 15.0
"""How long the engine may take to connect and to answer a request for a stream."""
_KEEPALIVE: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
"""A remote engine that vanished without a word is noticed after a minute."""
_FRAME_HEADER: Final = struct.Struct(">II")
"""Of Docker's framing: the stream's number, in the first of four bytes, and the length of the payload."""
_STDOUT: Final = 1 << 24
_STREAMS: Final = frozenset(number << 24 for number in range(4))
_REAP_SECONDS: Final = (0.0, 0.001, 0.01, 0.1, 1.0)
"""Pauses between looks at an `ssh` that was killed."""
_SSH_END_SECONDS: Final = 1.0
"""Between the end of the stream of an `ssh` and its own."""


class SshError(ConnectionError):
    """`ssh` did not bring us to the engine."""


class Carrier(asyncio.BufferedProtocol):
    """One upgraded connection; hands the guest's stdout to `link` and keeps the end of its stderr."""

    def __init__(self, request: bytes, link: asyncio.Protocol, ssh: Ssh | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.upgraded: asyncio.Future[None] = loop.create_future()
        """Done when the stream is the guest's; fails with `EnvStartError` when the engine refuses."""
        self.closed: asyncio.Future[None] = loop.create_future()
        """Done when the connection is gone and nothing of it is left."""
        # Whoever opened it may have been cancelled, and then nobody looks at how it failed: that is no error.
        self.upgraded.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._loop = loop
        self._request = request
        self._link = link
        self._ssh = ssh
        self._transport: asyncio.Transport | None = None
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._head: bytearray | None = bytearray()
        self._partial = bytearray()  # of a frame header that came in pieces
        self._stream = 0
        self._left = 0  # bytes of the current frame that are still to come
        self._stderr = bytearray()
        self._fault: str | None = None

    @property
    def stderr(self) -> str:
        """The end of what the guest, or the engine about it, wrote to stderr."""
        return _plain(bytes(self._stderr))

    def set_protocol(self, link: asyncio.Protocol) -> None:
        """Give what comes from now on to another one; it is not told of the connection, which is there."""
        self._link = link

    def abort(self) -> None:
        """Drop the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - streams have no other
        self._transport = transport
        keep_from_children(transport)
        connection = transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        transport.write(self._request)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Lend the one buffer: what is in it has been handed on before the next read."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take the bytes that came."""
        data = self._buffer[:nbytes]
        if self._head is None:
            self._demultiplex(data)
        else:
            self._read_head(self._head, data)

    def pause_writing(self) -> None:
        """Pass on that the socket is full."""
        if self._head is None:
            self._link.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that the socket takes more."""
        if self._head is None:
            self._link.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the link, with the reason where there is one."""
        reason = self._fault or self.stderr or (self._ssh and self._ssh.complaint()) or (str(exc) if exc else "")
        if self._head is None:
            self._link.connection_lost(ConnectionError(reason) if reason else None)
        elif not self.upgraded.done():
            if self._head:
                self._refuse(self._head)
            else:
                self._fail(f"the Docker engine closed the connection without an answer{reason and ': '}{reason}")
        self._transport = None
        self._reap()

    # The engine's answer.

    def _read_head(self, head: bytearray, data: memoryview) -> None:
        head += data
        end = head.find(b"\r\n\r\n")
        if end < 0:
            if len(head) > _MAX_HEAD_BYTES:
                self._fail("the Docker engine's answer is not HTTP")
            return
        status, headers = _parse_head(head[:end])
        # Without an upgrade header on its side an engine says 200 and the stream follows all the same.
        if status in (101, 200):
            rest = bytes(head[end + 4 :])
            self._head = None
            assert self._transport is not None  # noqa: S101 - bytes come from a transport
            self._link.connection_made(self._transport)
            if not self.upgraded.done():
                self.upgraded.set_result(None)
            if rest:
                self._demultiplex(memoryview(rest))
        elif len(head) - end - 4 >= min(int(headers.get("content-length", _MAX_HEAD_BYTES)), _MAX_HEAD_BYTES):
            self._refuse(head)

    def _refuse(self, head: bytearray) -> None:
        text = bytes(head).partition(b"\r\n\r\n")[2].decode("utf-8", "replace").strip()
        try:
            text = json.loads(text)["message"]
        except (ValueError, KeyError, TypeError):
            text = text or bytes(head).partition(b"\r\n")[0].decode("latin-1")
        self._fail(f"the Docker engine gives no stream to the container: {' '.join(text.split())}")

    def _fail(self, message: str) -> None:
        if not self.upgraded.done():
            self.upgraded.set_exception(EnvStartError(message))
        self.abort()

    # The stream: frames of `u8 stream, 3 zero bytes, u32 big-endian length`.

    def _demultiplex(self, data: memoryview) -> None:
        position, size = 0, len(data)
        while position < size:
            if not self._left:
                position = self._read_frame_header(data, position)
                if self._stream not in _STREAMS:
                    self._fault = "the Docker engine's stream is damaged"
                    self.abort()
                    return
                continue
            end = min(position + self._left, size)
            piece = data[position:end]
            self._left -= end - position
            position = end
            if self._stream == _STDOUT:
                self._link.data_received(piece)  # type: ignore[arg-type] # bytes, as long as the call lasts
            else:
                self._stderr += piece
                del self._stderr[:-_STDERR_BYTES]

    def _read_frame_header(self, data: memoryview, position: int) -> int:
        """Take what there is of a frame header, and return where it ends."""
        end = min(position + _FRAME_HEADER.size - len(self._partial), len(data))
        self._partial += data[position:end]
        if len(self._partial) == _FRAME_HEADER.size:
            self._stream, self._left = _FRAME_HEADER.unpack(self._partial)
            self._partial.clear()
        return end

    def _reap(self, attempt: int = 0) -> None:
        # No thread waits for it, and no child watcher: those of older Pythons start a thread for each process.
        ssh = self._ssh
        if ssh is None or ssh.has_ended() or attempt == len(_REAP_SECONDS):
            if ssh is not None and ssh.has_ended():
                ssh.reap()
            if not self.closed.done():
                self.closed.set_result(None)
            return
        if attempt == 1:
            ssh.kill()
        self._loop.call_later(_REAP_SECONDS[attempt], self._reap, attempt + 1)


def _parse_head(head: bytearray) -> tuple[int, dict[str, str]]:
    lines = bytes(head).decode("latin-1").split("\r\n")
    words = lines[0].split(" ", 2)
    status = int(words[1]) if len(words) > 1 and words[0].startswith("HTTP/1.") and words[1].isdigit() else 0
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    if not headers.get("content-length", "0").isdigit():
        del headers["content-length"]
    return status, headers


def _plain(text: bytes) -> str:
    """Return what another program wrote as one line that is safe to show."""
    decoded = text.decode("utf-8", "replace")
    return " ".join("".join(letter if letter.isprintable() else " " for letter in decoded).split())


class Ssh:
    """An `ssh` whose stdin and stdout are our socket."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.socket, theirs = socket.socketpair()
        self._host = endpoint.host
        # A file, not a pipe: nobody has to read it for ssh to go on.
        self._stderr = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - as long as the process
        try:
            self._process = subprocess.Popen(
                ssh_command(endpoint),
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._stderr,
                env=ssh_environment(),
                start_new_session=True,
            )
        except OSError:
            self.socket.close()
            self._stderr.close()
            raise
        finally:
            theirs.close()

    def has_ended(self) -> bool:
        """Tell whether it is gone."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """End it and all it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def reap(self) -> None:
        """End it and wait for that; a moment, as it was killed."""
        self.kill()
        self._process.wait()
        self._stderr.close()

    def complaint(self) -> str:
        """Return the end of what it wrote to stderr."""
        if self._stderr.closed:
            return ""
        # A few bytes that were just written, so they are in memory: no thread is needed to read them.
        file = self._stderr.fileno()
        text = os.pread(file, _STDERR_BYTES, max(0, os.fstat(file).st_size - _STDERR_BYTES))
        return _plain(text)

    def error(self) -> SshError | None:
        """Return what to raise when it has ended by itself; waits a moment for that."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_SSH_END_SECONDS)
            return SshError(f"ssh {self._host} ended: {self.complaint() or f'exit code {self._process.returncode}'}")
        return None


async def open_carrier(
    endpoint: Endpoint, path: str, link: asyncio.Protocol, *, body: dict[str, object] | None = None
) -> Carrier:
    """Connect to the engine, POST to `path` with an upgrade, and make the connection the link's transport.

    Args:
        endpoint: where the engine is.
        path: of the request, with version and query.
        link: gets `connection_made` with the transport, then `data_received` and `connection_lost`. What it is given
            to read is valid only during the call.
        body: JSON of the request.

    Returns:
        The carrier, upgraded.

    Raises:
        EnvStartError: the engine cannot be reached, or refuses.
    """
    content = b"" if body is None else json.dumps(body).encode()
    request = (
        f"POST {path} HTTP/1.1\r\nHost: docker\r\nUser-Agent: runenv\r\nContent-Type: application/json\r\n"
        f"Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: {len(content)}\r\n\r\n"
    ).encode("latin-1") + content
    try:
        with anyio.fail_after(_UPGRADE_SECONDS):
            carrier = await _connect(endpoint, lambda ssh: Carrier(request, link, ssh))
            try:
                await carrier.upgraded
            except BaseException:
                carrier.abort()
                raise
    except TimeoutError as error:
        raise EnvStartError(f"the Docker engine at {endpoint} gives no stream: it hangs, or is overloaded") from error
    except OSError as error:
        raise EnvStartError(f"the Docker engine at {endpoint} cannot be reached: {error}") from error
    return carrier


async def _connect(endpoint: Endpoint, make: Callable[[Ssh | None], Carrier]) -> Carrier:
    loop = asyncio.get_running_loop()
    options: dict[str, Any]
    if endpoint.kind == "ssh":
        ssh = await in_thread(lambda: Ssh(endpoint))
        return (await loop.create_connection(lambda: make(ssh), sock=ssh.socket))[1]
    if endpoint.kind == "unix":
        return (await loop.create_unix_connection(lambda: make(None), endpoint.path))[1]
    options = {}
    if endpoint.tls is not None:
        options = {"ssl": await in_thread(endpoint.tls.context), "server_hostname": endpoint.host}
    transport, carrier = await loop.create_connection(lambda: make(None), endpoint.host, endpoint.port or 0, **options)
    _keep_alive(transport.get_extra_info("socket"))
    return carrier


def _keep_alive(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if option := getattr(socket, name, None):
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
