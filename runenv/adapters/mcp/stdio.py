"""The server over stdin and stdout: one client, which started this process, and ends it by closing stdin.

While it serves, what anything else writes to stdout goes to stderr, so that nothing but the protocol is on it. A signal
closes the env before this process ends by it; a SIGKILL ends the env too, as its guest then sees.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Final

import anyio
from mcp.server.stdio import stdio_server

from runenv.adapters.mcp.client import Client
from runenv.adapters.mcp.handlers import initialization, make_server

if TYPE_CHECKING:
    from runenv.adapters.mcp.client import Offer

__all__ = ("serve_stdio",)

MESSAGE_BYTES: Final = 16 * 1024 * 1024
"""Of one line that we write; clients set no bound, so this one keeps their memory and ours small."""
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
END_TIMEOUT: Final = 10.0
"""Seconds that the end by a signal may take."""


async def serve_stdio(offer: Offer) -> None:
    """Serve the client at the other end of stdin and stdout until it leaves.

    Args:
        offer: what it gets.
    """
    client = Client(offer, message_bytes=MESSAGE_BYTES)
    server = make_server(client)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_end_by_signal, client)
            async with stdio_server() as (messages, answers):
                await server.run(messages, answers, initialization(server))
            tasks.cancel_scope.cancel()
    except* BrokenPipeError:
        pass  # the client is gone without closing its end first


async def _end_by_signal(client: Client) -> None:
    with anyio.open_signal_receiver(*SIGNALS) as signals:
        async for number in signals:
            with anyio.move_on_after(END_TIMEOUT):
                await client.end()
            # A thread waits for the next line of stdin, and nothing can wake it: a return would wait for it.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
