"""OpenAI Chat Completions, and the many servers that speak it. Pure.

A `tool` message takes text only, and nothing may stand between the tool messages of a turn. So the images of all
results go into one user message after the last of them, each with the tool and the call that it came from. The wire has
no flag for errors: an error says so in its first word.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from runenv.providers.calls import blocks, checked, given, make_call, mapping
from runenv.providers.limits import OPENAI
from runenv.providers.pieces import Image, Text, arrange

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from runenv.providers.limits import Limits
    from runenv.providers.pieces import Images
    from runenv.types import ToolCall, ToolDefinition, ToolResult

__all__ = ("tool_calls", "tool_definitions", "tool_results")

_KEYS: Final = frozenset({"choices", "tool_calls", "content", "role"})
"""Of what is read here; a caller gives at least one of them."""

_ALLOWED: Final[tuple[Images, ...]] = ("after", "none")
_Detail: TypeAlias = Literal["auto", "low", "high", "original"]


def tool_definitions(definitions: Iterable[ToolDefinition]) -> list[dict[str, Any]]:
    """Return the request's `tools`.

    Raises:
        ConfigError: a definition that the vendor would refuse.
    """
    return [
        {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}
        for name, description, schema in checked(definitions)
    ]


def tool_calls(message: object) -> list[ToolCall]:
    """Return the calls of tools in a response; a call that cannot be read is a `BadCall`.

    Args:
        message: the response (of which the first choice counts) or the assistant message, as JSON or as the SDK's
            object.

    Raises:
        ConfigError: it is something else, such as the reply of another vendor.
    """
    found = given(message, "openai_chat", _KEYS)
    choices = blocks(found.get("choices"))
    if choices:
        found = mapping(choices[0].get("message"))
    return [_call(call) for call in blocks(found.get("tool_calls"))]


def _call(call: Mapping[str, Any]) -> ToolCall:
    """Return one call; one of a custom tool, whose input is no JSON, must be answered too."""
    function = mapping(call.get("function"))
    if function:
        return make_call(call.get("id"), function.get("name"), function.get("arguments"))
    custom = mapping(call.get("custom"))
    return make_call(call.get("id"), custom.get("name"), [custom.get("input")])


def tool_results(
    results: Sequence[tuple[ToolCall, ToolResult]],
    *,
    limits: Limits = OPENAI,
    images: Images = "after",
    detail: _Detail = "auto",
) -> list[dict[str, Any]]:
    """Return the messages that answer all calls of a turn: one `tool` message each, then the images.

    Args:
        results: each call with its result, in the order of the calls.
        limits: images beyond them are left out, and a line stands for each.
        images: "after", or "none" for a model or server without images.
        detail: how closely the model looks at images.

    Raises:
        ConfigError: `images` is anything else.
    """
    turn = arrange(results, limits=limits, images=images, allowed=_ALLOWED)
    messages: list[dict[str, Any]] = [
        {"role": "tool", "tool_call_id": answer.call.id, "content": answer.error_text} for answer in turn.answers
    ]
    if turn.outside:
        messages.append({"role": "user", "content": [_content(piece, detail) for piece in turn.outside]})
    return messages


def _content(piece: Text | Image, detail: str) -> dict[str, Any]:
    if isinstance(piece, Text):
        return {"type": "text", "text": piece.text}
    data = base64.b64encode(piece.data).decode()
    return {"type": "image_url", "image_url": {"url": f"data:{piece.media_type};base64,{data}", "detail": detail}}
