"""Connections of the MCP server over HTTP, before anybody has shown a token."""

from __future__ import annotations

import socket
from contextlib import AsyncExitStack, asynccontextmanager, closing
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import anyio
import httpx2
import pytest
import uvicorn
from starlette.responses import PlainTextResponse

from runenv.adapters.mcp.connections import Crowd, TimedProtocol
from tests.envs.engines import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.types import Receive, Scope, Send

pytestmark = pytest.mark.anyio


async def test_who_begins_a_request_and_does_not_go_on_is_cut_off() -> None:
    """With headers or a body that never end; whoever asks within the time, or again and again, is served."""
    async with plain_server(Crowd(request_seconds=0.5)) as port:
        for start in (b"", b"POST / HTTP/1.1\r\n", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc"):
            async with await anyio.connect_tcp("127.0.0.1", port) as slow:
                if start:
                    await slow.send(start)
                with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                    await slow.receive()
        async with httpx2.AsyncClient() as client:
            for _ in range(3):
                assert (await client.post(f"http://127.0.0.1:{port}", content=b"abc")).text == "3 bytes"


async def test_a_crowd_of_silent_connections_makes_room() -> None:
    """The one that has waited longest goes, not the one that has something to say."""
    async with plain_server(Crowd(most=10)) as port, AsyncExitStack() as crowd:
        silent = [await crowd.enter_async_context(await anyio.connect_tcp("127.0.0.1", port)) for _ in range(30)]
        async with httpx2.AsyncClient() as client:
            assert (await client.post(f"http://127.0.0.1:{port}", content=b"abc")).text == "3 bytes"
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await silent[0].receive()


@asynccontextmanager
async def plain_server(crowd: Crowd) -> AsyncGenerator[int]:
    """A server that counts the bytes of a body."""

    async def count(scope: Scope, receive: Receive, send: Send) -> None:
        size, more = 0, True
        while more:
            message = await receive()
            size, more = size + len(message.get("body", b"")), message.get("more_body", False)
        await PlainTextResponse(f"{size} bytes")(scope, receive, send)

    with closing(socket.create_server(("127.0.0.1", 0))) as bound:
        protocol = cast("Any", partial(TimedProtocol, crowd))
        server = uvicorn.Server(uvicorn.Config(count, http=protocol, lifespan="off", log_config=None))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [bound])
            await until(lambda: server.started)
            yield bound.getsockname()[1]
            server.should_exit = True
