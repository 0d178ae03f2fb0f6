"""Anthropic Messages: `tool_result` blocks with images inside, `is_error`, `input_schema`. Pure.

Learned from the API's refusals: a text block may not be blank, an error must not be empty and may hold text only, and
all results of a turn belong into one user message, before anything else in it.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from runenv.providers.calls import blocks, checked, given, make_call
from runenv.providers.limits import ANTHROPIC
from runenv.providers.pieces import File, Image, arrange

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from runenv.providers.limits import Limits
    from runenv.providers.pieces import Answer, Images, Piece
    from runenv.types import ToolCall, ToolDefinition, ToolResult

__all__ = ("tool_calls", "tool_definitions", "tool_result", "tool_results")

_KEYS: Final = frozenset({"content"})
"""Of what is read here; a caller gives at least one of them."""

_ALLOWED: Final[tuple[Images, ...]] = ("nested", "beside", "none")


def tool_definitions(definitions: Iterable[ToolDefinition]) -> list[dict[str, Any]]:
    """Return the request's `tools`.

    Raises:
        ConfigError: a definition that the vendor would refuse.
    """
    return [
        {"name": name, "description": description, "input_schema": schema}
        for name, description, schema in checked(definitions)
    ]


def tool_calls(message: object) -> list[ToolCall]:
    """Return the calls of tools in a response; a call that cannot be read is a `BadCall`.

    Args:
        message: the response or assistant message as JSON or as the SDK's object, or its content.

    Raises:
        ConfigError: it is something else, such as the reply of another vendor.
    """
    content = given(message, "anthropic", _KEYS).get("content", message)
    return [
        make_call(block.get("id"), block.get("name"), block.get("input"))
        for block in blocks(content)
        if block.get("type") == "tool_use"
    ]


def tool_result(
    call: ToolCall, result: ToolResult, *, limits: Limits = ANTHROPIC, images: Images = "nested"
) -> dict[str, Any]:
    """Return the `tool_result` block of one call, for a user message of one's own.

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
    results: Sequence[tuple[ToolCall, ToolResult]], *, limits: Limits = ANTHROPIC, images: Images = "nested"
) -> list[dict[str, Any]]:
    """Return the one user message that answers all calls of a turn.

    Args:
        results: each call with its result, in the order of the calls; without any there is no message.
        limits: images beyond them are left out, and a line stands for each.
        images: "nested", "beside" or "none"; the images of errors go beside instead of nested.

    Raises:
        ConfigError: `images` is anything else.
    """
    turn = arrange(results, limits=limits, images=images, allowed=_ALLOWED, errors_take_images=False)
    content = [*map(_block, turn.answers), *map(_content, turn.outside)]
    return [{"role": "user", "content": content}] if content else []


def _block(answer: Answer) -> dict[str, Any]:
    block: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": answer.call.id,
        "content": [_content(piece) for piece in answer.pieces],
    }
    return block | {"is_error": True} if answer.is_error else block


def _content(piece: Piece) -> dict[str, Any]:
    if isinstance(piece, Image):
        data = base64.b64encode(piece.data).decode()
        return {"type": "image", "source": {"type": "base64", "media_type": piece.media_type, "data": data}}
    return {"type": "text", "text": piece.line if isinstance(piece, File) else piece.text}
