"""OpenAI Responses: `function_call_output` items with an array of content, whose `image_url` is a plain string. Pure.

The wire has no flag for errors: an error says so in its first word.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from runenv.providers.calls import blocks, checked, given, make_call
from runenv.providers.limits import OPENAI
from runenv.providers.pieces import File, Image, Text, arrange

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from runenv.providers.limits import Limits
    from runenv.providers.pieces import Answer, Images, Piece
    from runenv.types import ToolCall, ToolDefinition, ToolResult

__all__ = ("tool_calls", "tool_definitions", "tool_result", "tool_results")

_KEYS: Final = frozenset({"output"})
"""Of what is read here; a caller gives at least one of them."""

_ALLOWED: Final[tuple[Images, ...]] = ("nested", "after", "none")
_Detail: TypeAlias = Literal["auto", "low", "high", "original"]


def tool_definitions(definitions: Iterable[ToolDefinition]) -> list[dict[str, Any]]:
    """Return the request's `tools`; not strict, because strict schemas allow no optional parameter.

    Raises:
        ConfigError: a definition that the vendor would refuse.
    """
    return [
        {"type": "function", "name": name, "description": description, "parameters": schema, "strict": False}
        for name, description, schema in checked(definitions)
    ]


def tool_calls(response: object) -> list[ToolCall]:
    """Return the calls of functions in a response; a call that cannot be read is a `BadCall`.

    Args:
        response: as JSON or as the SDK's object, or its output.

    Raises:
        ConfigError: it is something else, such as the reply of another vendor.
    """
    output = given(response, "openai_responses", _KEYS).get("output", response)
    return [
        make_call(item.get("call_id"), item.get("name"), item.get("arguments"))
        for item in blocks(output)
        if item.get("type") == "function_call"
    ]


def tool_result(
    call: ToolCall,
    result: ToolResult,
    *,
    limits: Limits = OPENAI,
    images: Images = "nested",
    detail: _Detail = "auto",
) -> dict[str, Any]:
    """Return the input item that answers one call.

    Args:
        call: what is answered.
        result: the answer.
        limits: images beyond them are left out, and a line stands for each.
        images: "nested" or "none".
        detail: how closely the model looks at images.

    Raises:
        ConfigError: `images` is anything else.
    """
    turn = arrange([(call, result)], limits=limits, images=images, allowed=("nested", "none"))
    return _item(turn.answers[0], detail)


def tool_results(
    results: Sequence[tuple[ToolCall, ToolResult]],
    *,
    limits: Limits = OPENAI,
    images: Images = "nested",
    detail: _Detail = "auto",
) -> list[dict[str, Any]]:
    """Return the input items that answer all calls of a turn.

    Args:
        results: each call with its result, in the order of the calls.
        limits: images beyond them are left out, and a line stands for each.
        images: "nested", "after" for servers that take images from users only, or "none".
        detail: how closely the model looks at images.

    Raises:
        ConfigError: `images` is anything else.
    """
    turn = arrange(results, limits=limits, images=images, allowed=_ALLOWED)
    items = [_item(answer, detail) for answer in turn.answers]
    if turn.outside:
        items.append({"role": "user", "content": [_content(piece, detail) for piece in turn.outside]})
    return items


def _item(answer: Answer, detail: str) -> dict[str, Any]:
    pieces = answer.pieces
    if answer.error_text != answer.text:
        pieces = _flagged(pieces)
    output = [_content(piece, detail) for piece in pieces]
    return {"type": "function_call_output", "call_id": answer.call.id, "output": output}


def _flagged(pieces: list[Piece]) -> list[Piece]:
    first = pieces[0]
    return [Text(f"Error: {first.text}"), *pieces[1:]] if isinstance(first, Text) else [Text("Error:"), *pieces]


def _content(piece: Piece, detail: str) -> dict[str, Any]:
    if isinstance(piece, Image):
        data = base64.b64encode(piece.data).decode()
        return {"type": "input_image", "image_url": f"data:{piece.media_type};base64,{data}", "detail": detail}
    return {"type": "input_text", "text": piece.line if isinstance(piece, File) else piece.text}
