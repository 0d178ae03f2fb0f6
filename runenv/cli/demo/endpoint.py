"""The other machine of the demo: an HTTP endpoint on the loopback address, and the client that sends files to it.

It keeps nothing but size and SHA-256 of what arrives, so that both ends can be compared. Nothing here knows of envs,
stores or handles: it is the world outside.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import socketserver
import threading
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, BinaryIO, Final
from urllib.parse import quote, unquote

import anyio
import anyio.to_thread

from runenv.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

__all__ = ("Endpoint", "running", "send")

CHUNK_BYTES: Final = 1024 * 1024
"""What either side has in memory of a file."""
SECONDS: Final = 30.0
"""Silence on a connection after which either side gives up."""
_LOOPBACK: Final = "127.0.0.1"


class Endpoint:
    """Takes files by PUT from `start` to `stop`, which both block for a moment."""

    def __init__(self) -> None:
        self._server = _Server((_LOOPBACK, 0), _Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def start(self) -> None:
        """Begin to take files."""
        self._thread.start()

    def stop(self) -> None:
        """Let go of the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def port(self) -> int:
        """Where it listens, on the loopback address."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """What files are put under."""
        return f"http://{_LOOPBACK}:{self.port}/"

    @property
    def arrived(self) -> dict[str, tuple[int, str]]:
        """Size and SHA-256 of what has arrived, by name."""
        return dict(self._server.arrived)


@asynccontextmanager
async def running() -> AsyncGenerator[Endpoint]:
    """Run an endpoint."""
    endpoint = Endpoint()
    await anyio.to_thread.run_sync(endpoint.start)
    try:
        yield endpoint
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(endpoint.stop)


def send(port: int, name: str, content: BinaryIO | bytes, length: int) -> bytes:
    """Put a file to an endpoint and return what it answers. Blocks, for a worker thread.

    Raises:
        ToolError: it did not take the file.
        OSError: it cannot be reached.
    """
    connection = http.client.HTTPConnection(_LOOPBACK, port, timeout=SECONDS, blocksize=CHUNK_BYTES)
    try:
        connection.request("PUT", f"/{quote(name)}", body=content, headers={"Content-Length": str(length)})
        answer = connection.getresponse()
        body = answer.read(CHUNK_BYTES)
    except http.client.HTTPException as error:
        raise ToolError(f"the endpoint broke off: {error!r}") from error
    finally:
        connection.close()
    if answer.status != http.client.CREATED:
        raise ToolError(f"the endpoint answered {answer.status} {answer.reason}")
    return body


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.arrived: dict[str, tuple[int, str]] = {}
        super().__init__(address, handler)


class _Handler(BaseHTTPRequestHandler):
    timeout = SECONDS

    def do_PUT(self) -> None:
        """Hash what comes."""
        left = int(self.headers.get("Content-Length") or 0)
        size, digest = 0, hashlib.sha256()
        while left and (chunk := self.rfile.read(min(left, CHUNK_BYTES))):
            digest.update(chunk)
            size += len(chunk)
            left -= len(chunk)
        if left:
            self.close_connection = True
            return
        name, sha256 = unquote(self.path.lstrip("/")), digest.hexdigest()
        assert isinstance(self.server, _Server)  # noqa: S101 - nobody else makes handlers
        self.server.arrived[name] = (size, sha256)
        body = json.dumps({"name": name, "bytes": size, "sha256": sha256}, indent=1).encode()
        self.send_response(http.client.CREATED)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the screen is the demo's."""
