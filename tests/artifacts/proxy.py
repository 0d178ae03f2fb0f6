"""A small HTTP proxy in front of an S3 server that fails as networks and services do, for chosen requests.

One request for each connection, so that requests can be told apart. It runs in the test's own event loop.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = ("Fault", "Proxy", "all_forbidden", "first_of_each", "lists_forbidden", "none_fails")

Fault: TypeAlias = Literal["drop", "refuse", "forbid", "lose", "cut"]
"""What becomes of a request: dropped before it arrives; answered with 503, or with 403; done, but the answer is lost;
answered, but the connection breaks in the middle of the content."""
Decide: TypeAlias = "Callable[[str, str], Fault | None]"
"""Called with the method and the target of a request."""

CUT_BYTES: Final = 100_000
"""How much of an answer passes before it is cut."""
ANSWERS: Final = {
    "refuse": b"HTTP/1.1 503 Slow Down\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
    "forbid": b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
}
BODY: Final = b"<?xml version='1.0'?><Error><Code>Broken</Code>\n<Message>not now</Message></Error>"


def none_fails(method: str, target: str) -> Fault | None:  # noqa: ARG001
    """Let everything pass."""
    return None


def all_forbidden(method: str, target: str) -> Fault | None:  # noqa: ARG001
    """Refuse everything for good."""
    return "forbid"


def lists_forbidden(method: str, target: str) -> Fault | None:  # noqa: ARG001
    """Refuse all listings for good."""
    return "forbid" if "list-type" in target else None


class Proxy:
    """Use as `async with Proxy(server.endpoint, decide) as proxy`; then `proxy.endpoint` stands for the server.

    Args:
        endpoint: of the server behind it.
        decide: says for each request what becomes of it; may be replaced at any time.
    """

    def __init__(self, endpoint: str, decide: Decide = none_fails) -> None:
        self.decide = decide
        self.requests: list[tuple[str, str]] = []
        self.faults = 0
        self._behind = urlsplit(endpoint)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def endpoint(self) -> str:
        """Where it listens."""
        host, port = self._server.sockets[0].getsockname()
        return f"http://{host}:{port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=1024 * 1024)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Listen no more, and break what is under way."""
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._serve(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, target = head.split(b" ")[0].decode(), head.split(b" ")[1].decode()
        self.requests.append((method, target))
        fault = self.decide(method, target)
        self.faults += fault is not None
        if fault == "drop":
            return
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        body = await reader.readexactly(int(length[1]) if length else 0)
        if fault in {"refuse", "forbid"}:
            writer.write(ANSWERS[fault] % (len(BODY), BODY))
            await _finish(writer)
            return
        from_server, to_server = await asyncio.open_connection(self._behind.hostname, self._behind.port)
        try:
            head = re.sub(rb"(?i)\r\nconnection:[^\r]*", b"", head)
            to_server.write(head.removesuffix(b"\r\n") + b"Connection: close\r\n\r\n" + body)
            await to_server.drain()
            await self._relay(from_server, writer, fault)
        finally:
            to_server.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: Fault | None) -> None:
        passed = 0
        while chunk := await reader.read(65536):
            if fault == "lose":
                continue
            if fault == "cut":
                chunk = chunk[: CUT_BYTES - passed]
            writer.write(chunk)
            await writer.drain()
            passed += len(chunk)
            if fault == "cut" and passed == CUT_BYTES:
                break
        if fault is None:
            await _finish(writer)
        elif fault == "cut":
            await asyncio.sleep(0)
            writer.write_eof()


async def _finish(writer: asyncio.StreamWriter) -> None:
    await writer.drain()
    writer.close()
    await writer.wait_closed()


def first_of_each(fault: Fault, *, times: int = 1) -> Decide:
    """Fail as many requests of each method, and let the others pass."""
    failed: dict[str, int] = {}

    def decide(method: str, target: str) -> Fault | None:
        kind = f"{method} {'list' if 'list-type' in target else ''}"
        failed[kind] = failed.get(kind, 0) + 1
        return fault if failed[kind] <= times else None

    return decide
