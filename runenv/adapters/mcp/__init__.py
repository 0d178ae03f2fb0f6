"""The MCP server: our tools and artifacts for any client of the Model Context Protocol. Needs the extra `mcp`.

    offer = Offer(config=DockerConfig(image="runenv/python"), store=store)
    await serve_stdio(offer)

One client, one env: `client.py` holds what a client has, `handlers.py` answers its requests, `stdio.py` and `http.py`
bring them here. Over stdio a client is the process that started this one; over HTTP it is a session of the protocol, so
that there only the revisions with sessions are spoken, up to 2025-11-25 (see `http.py`).
"""

from __future__ import annotations

from runenv.adapters.mcp.client import Offer
from runenv.adapters.mcp.http import Listener, serve_http
from runenv.adapters.mcp.progress import WatchedStore
from runenv.adapters.mcp.stdio import serve_stdio

__all__ = ("Listener", "Offer", "WatchedStore", "serve_http", "serve_stdio")
