"""The Model Context Protocol: what a server answers to `tools/list` and `tools/call`. Pure.

`structuredContent` is never written: it would repeat the content (anthropics/claude-code#70280). A file is a
`resource_link`, which the client reads from the server by its handle.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from runenv.providers.calls import checked, given, make_call, mapping
from runenv.providers.limits import COMMON
from runenv.providers.lines import encodable
from runenv.providers.pieces import File, Image, arrange

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runenv.providers.limits import Limits
    from runenv.providers.pieces import Images, Piece
    from runenv.types import FilePart, ToolCall, ToolDefinition, ToolResult

__all__ = ("tool_calls", "tool_definitions", "tool_result")

_KEYS: Final = frozenset({"params", "name", "method"})
"""Of what is read here; a caller gives at least one of them."""


def tool_definitions(definitions: Iterable[ToolDefinition]) -> list[dict[str, Any]]:
    """Return the `tools` of a `tools/list` result.

    Raises:
        ConfigError: a definition that clients would refuse.
    """
    return [
        {"name": name, "description": description, "inputSchema": schema}
        for name, description, schema in checked(definitions)
    ]


def tool_calls(request: object) -> list[ToolCall]:
    """Return the one call of a `tools/call` request; a call that cannot be read is a `BadCall`.

    Args:
        request: the request or its params, as JSON or as the SDK's object.

    Raises:
        ConfigError: it is something else, such as the reply of another vendor.
    """
    whole = given(request, "mcp", _KEYS)
    params = mapping(whole.get("params")) or whole
    number = whole.get("id", "") if "params" in whole else ""
    return [make_call(str(number), params.get("name"), params.get("arguments"))] if "name" in params else []


def tool_result(
    call: ToolCall, result: ToolResult, *, limits: Limits = COMMON, images: Images = "nested"
) -> dict[str, Any]:
    """Return the result of a `tools/call` request.

    Args:
        call: what is answered.
        result: the answer.
        limits: images beyond them are left out, and a line stands for each.
        images: "nested" or "none".

    Raises:
        ConfigError: `images` is anything else.
    """
    turn = arrange([(call, result)], limits=limits, images=images, allowed=("nested", "none"))
    return {"content": [_content(piece) for piece in turn.answers[0].pieces], "isError": result.is_error}


def _content(piece: Piece) -> dict[str, Any]:
    if isinstance(piece, Image):
        return {"type": "image", "data": base64.b64encode(piece.data).decode(), "mimeType": piece.media_type}
    if isinstance(piece, File):
        return _link(piece.part)
    return {"type": "text", "text": piece.text}


def _link(part: FilePart) -> dict[str, Any]:
    return {
        "type": "resource_link",
        "uri": encodable(part.handle),
        "name": encodable(part.filename) or "file",
        "mimeType": encodable(part.media_type),
        "size": part.size,
    }
