"""The tool `upload`: sends a file to the demo's endpoint. The model gives a handle, the tool gets base64."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import anyio.to_thread

from runenv.artifacts.arguments import expanded
from runenv.artifacts.handles import parse
from runenv.cli.demo.agent.transcript import Sent
from runenv.cli.demo.endpoint import send
from runenv.tools.schema import Arguments
from runenv.tools.tool import Context, make_tool

if TYPE_CHECKING:
    from runenv.artifacts.artifact import Scope
    from runenv.artifacts.store import ArtifactStore
    from runenv.cli.demo.endpoint import Endpoint
    from runenv.env import RunEnv
    from runenv.tools import Tool

__all__ = ("make_upload",)


class UploadArguments(Arguments):
    """What `upload` takes."""

    name: str
    """Name of the file there."""
    content: str
    """Handle of the artifact to send."""


def make_upload(env: RunEnv, store: ArtifactStore, scope: Scope, endpoint: Endpoint, sent: list[Sent]) -> Tool:
    """Make the tool.

    Args:
        env: of the run.
        store: open.
        scope: whose artifacts may be sent.
        endpoint: where to; running.
        sent: gets what has been sent.
    """

    async def run(given: UploadArguments) -> str:
        handle = parse(given.content)
        record = await store.stat(handle, scope=scope)
        async with expanded({"content": handle}, store, scope=scope, forms={"content": "base64"}) as ready:
            content: str = ready["content"]
        data = base64.b64decode(content, validate=True)
        answer = await anyio.to_thread.run_sync(send, endpoint.port, given.name, data, len(data))
        sent.append(Sent(given.name, record, len(content)))
        return f"201 Created; the receipt:\n{answer.decode()}"

    description = """Send a file to the other machine. It is given by the handle of an artifact, which becomes the
        file's content on the way there: never write the content yourself."""
    return make_tool(Context(env=env, store=store, scope=scope), "upload", description, UploadArguments, run)
