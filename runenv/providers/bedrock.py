"""Bedrock Converse: `toolResult` blocks with raw bytes, `format` in Bedrock's own words, `status`. Pure.

Bytes are raw because the AWS SDK encodes them; whoever writes the JSON of the HTTP API encodes them as base64 himself.
A content array may not be empty. Images inside of a tool result are taken from Claude and Nova only; others want them
beside it in the same user message (can1357/oh-my-pi#11681). Claude's rule that an error holds text only is kept here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from runenv.providers.calls import blocks, checked, given, make_call, mapping
from runenv.providers.limits import BEDROCK
from runenv.providers.pieces import File, Image, arrange

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from runenv.providers.limits import Limits
    from runenv.providers.pieces import Answer, Images, Piece
    from runenv.types import ToolCall, ToolDefinition, ToolResult

__all__ = ("images_of", "tool_calls", "tool_definitions", "tool_result", "tool_results")

_KEYS: Final = frozenset({"output", "content"})
"""Of what is read here; a caller gives at least one of them."""

_ALLOWED: Final[tuple[Images, ...]] = ("nested", "beside", "none")
_NESTED: Final = re.compile(r"anthropic\.claude|amazon\.nova", re.IGNORECASE)


def images_of(model: str) -> Images:
    """Return where a model takes images: "nested" for Claude and Nova, else "beside".

    Args:
        model: its id, profile or ARN.
    """
    return "nested" if _NESTED.search(model) else "beside"


def tool_definitions(definitions: Iterable[ToolDefinition]) -> dict[str, Any] | None:
    """Return the request's `toolConfig`, or None, which must be left out of the request, when there are no tools.

    Raises:
        ConfigError: a definition that the vendor would refuse.
    """
    tools: list[dict[str, Any]] = []
    for name, description, schema in checked(definitions):
        said = {"description": description} if description else {}
        tools.append({"toolSpec": {"name": name, **said, "inputSchema": {"json": schema}}})
    return {"tools": tools} if tools else None


def tool_calls(response: object) -> list[ToolCall]:
    """Return the calls of tools in a response; a call that cannot be read is a `BadCall`.

    Args:
        response: the response or the assistant message, or its content.

    Raises:
        ConfigError: it is something else, such as the reply of another vendor.
    """
    whole = given(response, "bedrock", _KEYS)
    message = mapping(mapping(whole.get("output")).get("message")) or whole
    uses = (mapping(block.get("toolUse")) for block in blocks(message.get("content", response)))
    return [
        make_call(use.get("toolUseId"), use.get("name"), use.get("input"))
        for use in uses
        if use and use.get("type") != "server_tool_use"
    ]


def tool_result(
    call: ToolCall, result: ToolResult, *, limits: Limits = BEDROCK, images: Images = "nested"
) -> dict[str, Any]:
    """Return the `toolResult` block of one call, for a user message of one's own.

    Args:
        call: what is answered.
        result: the answer; images of an error are left out, a line stands for each.
        limits: images beyond them are left out likewise.
        images: "nested" or "none".

    Raises:
        ConfigError: `images` is anything else.
    """
    turn = arrange([(call, result)], limits=limits, images=images, allowed=("nested", "none"), errors_take_images=False)
    return _block(turn.answers[0])


def tool_results(
    results: Sequence[tuple[ToolCall, ToolResult]], *, limits: Limits = BEDROCK, images: Images
) -> list[dict[str, Any]]:
    """Return the one user message that answers all calls of a turn.

    Args:
        results: each call with its result, in the order of the calls; without any there is no message.
        limits: images beyond them are left out, and a line stands for each.
        images: what `images_of` says of the model, or "none"; the images of errors go beside instead of nested.

    Raises:
        ConfigError: `images` is anything else.
    """
    turn = arrange(results, limits=limits, images=images, allowed=_ALLOWED, errors_take_images=False)
    content = [*map(_block, turn.answers), *map(_content, turn.outside)]
    return [{"role": "user", "content": content}] if content else []


def _block(answer: Answer) -> dict[str, Any]:
    content = [_content(piece) for piece in answer.pieces]
    status = "error" if answer.is_error else "success"
    return {"toolResult": {"toolUseId": answer.call.id, "content": content, "status": status}}


def _content(piece: Piece) -> dict[str, Any]:
    if isinstance(piece, Image):
        return {"image": {"format": piece.media_type.removeprefix("image/"), "source": {"bytes": piece.data}}}
    return {"text": piece.line if isinstance(piece, File) else piece.text}
