"""What tests of the MCP server share: clients of the official SDK at its other end, in this process and in others."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
import httpx2
from mcp import Client, StdioServerParameters, types
from mcp.client.streamable_http import streamable_http_client

from runenv.adapters.mcp import Offer, WatchedStore, serve_http
from runenv.adapters.mcp.client import Client as Ours
from runenv.adapters.mcp.handlers import make_server
from runenv.config import LocalConfig
from tests.command_line import PROGRAM, environment

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Iterator

    from runenv.adapters.mcp import Listener

Setting: TypeAlias = Any  # of any argument

__all__ = (
    "MESSAGE_BYTES",
    "TOKEN",
    "Ours",
    "Raw",
    "Setting",
    "as_blob",
    "as_text",
    "handle_of",
    "http_client",
    "in_process",
    "napping",
    "offer",
    "process",
    "python",
    "running",
    "served",
    "stdio",
    "text_of",
)

TOKEN: Final = "correct horse battery"  # noqa: S105 - of the tests
MESSAGE_BYTES: Final = 1024 * 1024


@asynccontextmanager
async def offer(**settings: Setting) -> AsyncGenerator[Offer]:
    """What clients get: a local env each, and a store in memory that they share."""
    async with WatchedStore.open("memory://") as store:
        given: dict[str, Setting] = {"config": LocalConfig(), "store": store, **settings}
        yield Offer(**given)


@asynccontextmanager
async def in_process(ours: Offer | Ours, mode: str = "legacy") -> AsyncGenerator[Client]:
    """A client of a server without a transport between them."""
    if isinstance(ours, Offer):
        ours = Ours(ours, message_bytes=MESSAGE_BYTES)
    async with Client(make_server(ours), mode=mode) as client:
        yield client


def stdio(*arguments: str, **variables: str) -> StdioServerParameters:
    """Return how a client starts `runenv mcp`."""
    return StdioServerParameters(
        command=PROGRAM[0], args=[*PROGRAM[1:], "mcp", *arguments], env=environment(**variables)
    )


@asynccontextmanager
async def served(offer: Offer, listener: Listener, **settings: Setting) -> AsyncGenerator[str]:
    """Serve over HTTP in this process, and yield where."""
    async with anyio.create_task_group() as tasks:

        async def serve() -> None:
            await serve_http(offer, listener, **settings)

        tasks.start_soon(serve)
        yield listener.url
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def http_client(url: str, token: str | None = TOKEN, mode: str = "legacy") -> AsyncGenerator[Client]:
    """A client over HTTP."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    timeout = httpx2.Timeout(30)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout) as connections,
        Client(streamable_http_client(url, http_client=connections), mode=mode) as client,
    ):
        yield client


@contextmanager
def process(*arguments: str, **variables: str) -> Generator[subprocess.Popen[bytes]]:
    """Run a command with pipes, and kill it in the end."""
    running = subprocess.Popen(
        arguments,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(**variables),
        start_new_session=True,
    )
    try:
        yield running
    finally:
        running.kill()
        running.wait()
        for pipe in (running.stdin, running.stdout, running.stderr):
            if pipe is not None:
                with suppress(OSError):  # what it did not read
                    pipe.close()


class Raw:
    """The protocol by hand, a line each way, over a server's stdin and stdout."""

    def __init__(self, server: subprocess.Popen[bytes]) -> None:
        self.server = server
        self._number = 0

    def tell(self, method: str, **params: object) -> None:
        """Send a notification."""
        self._write({"jsonrpc": "2.0", "method": method, "params": params})

    def begin(self, method: str, **params: object) -> None:
        """Send a request."""
        self._number += 1
        self._write({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})

    def ask(self, method: str, **params: object) -> dict[str, Any]:
        """Send a request, and return the result of the answer that comes next but for notifications."""
        self.begin(method, **params)
        return next(answer["result"] for answer in self.lines() if answer.get("id") == self._number)

    def lines(self) -> Iterator[dict[str, Any]]:
        """Every line that comes: each is one message of the protocol."""
        assert self.server.stdout is not None
        for line in self.server.stdout:
            message = json.loads(line)
            assert message["jsonrpc"] == "2.0"
            yield message

    def shake_hands(self, version: str) -> dict[str, Any]:
        """Begin."""
        who = {"name": "test", "version": "1"}
        answer = self.ask("initialize", protocolVersion=version, capabilities={}, clientInfo=who)
        self.tell("notifications/initialized")
        return answer

    def run(self, command: str) -> dict[str, Any]:
        """Call the tool `exec`."""
        return self.ask("tools/call", name="exec", arguments={"command": command})

    def _write(self, message: object) -> None:
        assert self.server.stdin is not None
        self.server.stdin.write(json.dumps(message).encode() + b"\n")
        self.server.stdin.flush()


def text_of(result: types.CallToolResult) -> str:
    """Return the text of a result."""
    return "\n".join(content.text for content in result.content if isinstance(content, types.TextContent))


def handle_of(result: types.CallToolResult) -> str:
    """Return the handle that a result links to."""
    (link,) = [content for content in result.content if isinstance(content, types.ResourceLink)]
    return link.uri


def python(program: str) -> tuple[str, ...]:
    """Return the command of a program."""
    return (sys.executable, "-c", program)


def as_text(contents: object) -> types.TextResourceContents:
    """Take it for text."""
    assert isinstance(contents, types.TextResourceContents)
    return contents


def as_blob(contents: object) -> types.BlobResourceContents:
    """Take it for bytes."""
    assert isinstance(contents, types.BlobResourceContents)
    return contents


def running(marker: str) -> bool:
    """Say whether a process of this host has a word in its command line."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if marker.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                return True
    return False


def napping() -> str:
    """Return an argument of `sleep` that no other process has."""
    return f"{1000 + secrets.randbelow(10**9) / 10**9:.9f}"
