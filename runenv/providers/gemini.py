"""Gemini: `functionResponse` parts, with images inside of them (3 and later) or beside them (2.5 and earlier). Pure.

All responses of a turn must be in one content, as many as there were calls. Up to 2.5 `functionResponse.parts` is
refused, and images are parts of the same content behind the last response; where a server counts even those
(google-gemini/gemini-cli#16135), "after" gives them a content of their own. A response holds `output` or `error` and
never a `$ref`, inline data never a display name. Parts of the model, with their `thoughtSignature`, are not touched:
append them to the history as they came.

What comes out is the JSON of the HTTP API. Google's SDK wants bytes where that has base64, and reads it so:
`types.Content.model_validate_json(json.dumps(content))`.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any, Final

from runenv.errors import ConfigError
from runenv.providers.calls import blocks, checked, given, make_call, mapping
from runenv.providers.limits import GEMINI
from runenv.providers.pieces import Text, arrange

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from runenv.providers.limits import Limits
    from runenv.providers.pieces import Answer, Image, Images
    from runenv.types import ToolCall, ToolDefinition, ToolResult

__all__ = ("images_of", "tool_calls", "tool_definitions", "tool_result", "tool_results")

_KEYS: Final = frozenset({"candidates", "parts", "promptFeedback", "prompt_feedback", "usageMetadata"})
"""Of what is read here; a caller gives at least one of them."""

_ALLOWED: Final[tuple[Images, ...]] = ("nested", "beside", "after", "none")
_VERSION: Final = re.compile(r"gemini-(\d{1,3})(?!\d)")
_NESTED_SINCE: Final = 3
"""First version that takes images inside of a functionResponse."""


def images_of(model: str) -> Images:
    """Return where a model takes images: "nested" from Gemini 3 on, else "beside", which every version reads.

    Args:
        model: its name, such as "gemini-2.5-flash", with or without a path before it.
    """
    version = _VERSION.search(model)
    return "nested" if version and int(version[1]) >= _NESTED_SINCE else "beside"


def tool_definitions(definitions: Iterable[ToolDefinition]) -> list[dict[str, Any]]:
    """Return the request's `tools`: one tool with all declarations.

    Raises:
        ConfigError: a definition that the vendor would refuse.
    """
    declarations: list[dict[str, Any]] = []
    for name, description, schema in checked(definitions):
        if not name[0].isalpha() and name[0] != "_":
            raise ConfigError(f"the tool name {name!r} must begin with a letter or '_' for Gemini")
        declarations.append({"name": name, "description": description, "parametersJsonSchema": schema})
    return [{"functionDeclarations": declarations}] if declarations else []


def tool_calls(response: object) -> list[ToolCall]:
    """Return the calls of functions in a response; a call that cannot be read is a `BadCall`.

    Args:
        response: the response (of which the first candidate counts) or the model's content, as JSON or as the SDK's
            object, or the content's parts.

    Raises:
        ConfigError: it is something else, such as the reply of another vendor.
    """
    content = given(response, "gemini", _KEYS)
    candidates = blocks(content.get("candidates"))
    if candidates:
        content = mapping(candidates[0].get("content"))
    found = (_call_in(part) for part in blocks(content.get("parts", response)))
    return [make_call(call.get("id"), call.get("name"), call.get("args")) for call in found if call]


def _call_in(part: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(part.get("functionCall")) or mapping(part.get("function_call"))


def tool_result(
    call: ToolCall, result: ToolResult, *, limits: Limits = GEMINI, images: Images = "nested"
) -> dict[str, Any]:
    """Return the `functionResponse` part of one call, for a content of one's own.

    Args:
        call: what is answered.
        result: the answer.
        limits: images beyond them are left out, and a line stands for each.
        images: "nested" or "none".

    Raises:
        ConfigError: `images` is anything else.
    """
    turn = arrange([(call, result)], limits=limits, images=images, allowed=("nested", "none"))
    return _response(turn.answers[0])


def tool_results(
    results: Sequence[tuple[ToolCall, ToolResult]], *, limits: Limits = GEMINI, images: Images
) -> list[dict[str, Any]]:
    """Return the contents that answer all calls of a turn: one, or two with "after".

    Args:
        results: each call with its result, in the order of the calls; without any there is no content.
        limits: images beyond them are left out, and a line stands for each.
        images: what `images_of` says of the model, or "after" or "none".

    Raises:
        ConfigError: `images` is anything else.
    """
    turn = arrange(results, limits=limits, images=images, allowed=_ALLOWED)
    parts = [_response(answer) for answer in turn.answers]
    outside = [_part(piece) for piece in turn.outside]
    contents = [parts, outside] if images == "after" else [[*parts, *outside]]
    return [{"role": "user", "parts": content} for content in contents if content]


def _response(answer: Answer) -> dict[str, Any]:
    text = answer.text or f"({len(answer.images)} image{'s' if len(answer.images) > 1 else ''}, see the parts)"
    response: dict[str, Any] = {"name": answer.call.name, "response": {"error" if answer.is_error else "output": text}}
    if answer.call.id:
        response = {"id": answer.call.id} | response
    if answer.images:
        response["parts"] = [_part(image) for image in answer.images]
    return {"functionResponse": response}


def _part(piece: Text | Image) -> dict[str, Any]:
    if isinstance(piece, Text):
        return {"text": piece.text}
    return {"inlineData": {"mimeType": piece.media_type, "data": base64.b64encode(piece.data).decode()}}
