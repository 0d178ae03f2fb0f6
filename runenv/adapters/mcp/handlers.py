"""What the server answers to one client: its tools, their calls, its artifacts. The official SDK speaks the protocol.

A tool that fails is a result with `isError`, which the model reads. An env that fails is an error of the protocol, so
that nobody takes it for an answer of the tool: it did not come up, or it was lost, and then the next call gets a new,
empty one.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from functools import partial
from importlib.metadata import version as installed_version
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from mcp import types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.shared.exceptions import MCPError
from mcp.types.version import is_version_at_least

from runenv.adapters.mcp import resources
from runenv.adapters.mcp.progress import attended
from runenv.artifacts.handles import human_size
from runenv.errors import EnvLostError, EnvStartError, RunEnvError
from runenv.providers import mcp as wire
from runenv.types import FilePart, ImagePart, TextPart, ToolCall, ToolResult

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    import anyio
    from mcp.server.context import ServerRequestContext

    from runenv.adapters.mcp.client import Client

__all__ = ("GONE", "initialization", "make_server")

VERSION: Final = installed_version("runenv-sandbox")
"""What the server says of itself; read from disk once, and not while it serves."""
GONE: Final = "runenv.gone"
"""Key in the scope of an HTTP request of the event that its connection was lost."""
READING: Final = frozenset({"file_read", "file_list", "glob", "grep", "artifact_list", "artifact_read"})
"""Tools that change nothing: clients may call them without asking somebody."""
LINKS_SINCE: Final = "2025-06-18"
"""First revision of the protocol that has `resource_link`."""

Ctx: TypeAlias = "ServerRequestContext[Client, Any]"


def make_server(client: Client) -> Server[Client]:
    """Return the server of one client; running it lets the client come, and leave in the end."""

    @asynccontextmanager
    async def lifespan(_: Server[Client]) -> AsyncGenerator[Client]:
        async with client:
            yield client

    artifacts: dict[str, Any] = {}
    if client.offer.store is not None:
        artifacts = {
            "on_list_resources": _list_resources,
            "on_list_resource_templates": _list_templates,
            "on_read_resource": _read_resource,
        }
    return Server(
        "runenv",
        version=VERSION,
        instructions=_instructions(client),
        lifespan=lifespan,
        on_list_tools=_list_tools,
        on_call_tool=_call_tool,
        **artifacts,
    )


def initialization(server: Server[Client]) -> Any:  # noqa: ANN401 - a value of the SDK's, handed back to it
    """Return what the server says of itself in the handshake."""
    return server.create_initialization_options(NotificationOptions(resources_changed=True))


def _instructions(client: Client) -> str:
    artifacts = (
        " Files are handed on as artifacts, which are resources: artifact_save gives a handle, the resource's URI."
        if client.offer.store is not None
        else ""
    )
    if artifacts and client.offer.scope is not None:
        artifacts += " They are shared with other sessions, earlier ones included."
    return (
        "The tools work in one sandbox, which is this session's own: it starts empty and ends with the session."
        f"{artifacts}"
    )


async def _list_tools(ctx: Ctx, _: object) -> types.ListToolsResult:
    with _told():
        tools = await ctx.lifespan_context.tools()
        listed = wire.tool_definitions(tools.definitions)
    return types.ListToolsResult(
        tools=[
            types.Tool.model_validate({**one, "annotations": {"readOnlyHint": one["name"] in READING}})
            for one in listed
        ]
    )


async def _call_tool(ctx: Ctx, params: types.CallToolRequestParams) -> types.CallToolResult:
    client = ctx.lifespan_context
    call = ToolCall(str(ctx.request_id), params.name, params.arguments or {})
    tell = ctx.session.report_progress  # tells nobody where nobody asked for it
    with _told():
        result = await attended(partial(client.call, call), name=call.name, tell=tell, gone=_gone(ctx))
    if result is None:
        raise MCPError(types.CONNECTION_CLOSED, "the client did not wait for the answer")
    if client.offer.store is not None and any(isinstance(part, FilePart) for part in result.parts):
        await ctx.session.send_resource_list_changed()
    shown = wire.tool_result(call, _fitting(result, client.image_bytes))
    if not is_version_at_least(ctx.protocol_version, LINKS_SINCE):
        shown["content"] = [_without_link(content) for content in shown["content"]]
    return types.CallToolResult.model_validate(shown)


async def _list_resources(ctx: Ctx, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
    client = ctx.lifespan_context
    assert client.offer.store is not None  # noqa: S101 - else this is not registered
    return await resources.list_page(client, client.offer.store, params.cursor if params else None)


async def _list_templates(_: Ctx, __: object) -> types.ListResourceTemplatesResult:
    return resources.templates()


async def _read_resource(ctx: Ctx, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    client = ctx.lifespan_context
    assert client.offer.store is not None  # noqa: S101 - else this is not registered
    return await resources.read(client, client.offer.store, str(params.uri), version=ctx.protocol_version)


def _gone(ctx: Ctx) -> anyio.Event | None:
    """Return the event that the connection of an HTTP request was lost; a stream that is lost ends the client."""
    event: anyio.Event | None = None if ctx.request is None else ctx.request.scope.get(GONE)
    return event


def _fitting(result: ToolResult, image_bytes: int) -> ToolResult:
    """Leave out the images that one message has no room for."""
    parts: list[TextPart | ImagePart | FilePart] = []
    rest = image_bytes
    for part in result.parts:
        if not isinstance(part, ImagePart) or len(part.data) <= rest:
            parts.append(part)
            rest -= len(part.data) if isinstance(part, ImagePart) else 0
        else:
            again = f"look at {part.handle} by itself" if part.handle else "ask for fewer at a time"
            parts.append(TextPart(f"[image of {human_size(len(part.data))} left out: one answer has no room; {again}]"))
    return ToolResult(tuple(parts), result.is_error)


def _without_link(content: dict[str, Any]) -> dict[str, Any]:
    """Say in a text what older clients know no link for."""
    if content["type"] != "resource_link":
        return content
    size = human_size(content["size"])
    return {"type": "text", "text": f"{content['name']} ({content['mimeType']}, {size}): {content['uri']}"}


@contextmanager
def _told() -> Generator[None]:
    """Make errors of the env errors of the protocol."""
    try:
        yield
    except EnvLostError as error:
        text = f"the sandbox was lost, with what was only in it ({error}): the next call starts a new one"
        raise MCPError(types.INTERNAL_ERROR, text, {"error": "env_lost"}) from error
    except RunEnvError as error:
        kind = "env_not_started" if isinstance(error, EnvStartError) else "env_failed"
        raise MCPError(types.INTERNAL_ERROR, str(error), {"error": kind}) from error
