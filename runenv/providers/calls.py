"""From what a model asks for to `ToolCall`, whatever it wrote; and the check of tool definitions. Pure.

Arguments that cannot be read become a `BadCall`: a call like any other, which must be answered like any other, with the
answer ready; `Toolset.call` gives that answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from runenv.errors import ConfigError
from runenv.providers.lines import encodable
from runenv.types import BadCall, TextPart, ToolCall, ToolResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from runenv.types import ToolDefinition

__all__ = ("blocks", "checked", "given", "make_call", "mapping", "text", "written")

_MARKS: Final = {
    "choices": "openai_chat",
    "tool_calls": "openai_chat",
    "candidates": "gemini",
    "parts": "gemini",
    "stopReason": "bedrock",
    "stop_reason": "anthropic",
    "jsonrpc": "mcp",
}
"""Fields of a reply that only one wire has."""
_CALLS: Final = (("toolUse", "toolUseId", "input"), ("functionCall", "id", "args"), ("function_call", "id", "args"))
"""Calls within a block: of Bedrock, and of Gemini in both spellings, each with the keys of its id and arguments."""
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def make_call(id: object, name: object, arguments: object) -> ToolCall:
    """Return the call that a model wrote.

    Args:
        id: the vendor's name of the call. What UTF-8 cannot hold in it becomes U+FFFD, so that it can be sent back.
        name: of the tool; likewise.
        arguments: a JSON text, or what was decoded from one; blank and None are no arguments.
    """
    called, tool = encodable(text(id)), encodable(text(name))
    if not tool:
        return _bad(called, tool, "This call names no tool.")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments, parse_constant=_no_constant) if arguments.strip() else {}
        except json.JSONDecodeError as error:
            return _bad(
                called, tool, f"The arguments of this call are not JSON: {error.msg} at character {error.pos + 1}."
            )
        except (ValueError, RecursionError):
            return _bad(called, tool, "The arguments of this call are not JSON that can be read.")
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, Mapping):
        return _bad(called, tool, "The arguments of this call are not a JSON object.")
    return ToolCall(called, tool, arguments)


def written(message: object) -> Iterator[tuple[str, object]]:
    """Yield id and arguments of every call in a message of any wire, as the model wrote them."""
    found = mapping(message)
    if found.get("type") == "function_call":
        yield text(found.get("call_id")), found.get("arguments")
    for call in blocks(found.get("tool_calls")):
        yield text(call.get("id")), mapping(call.get("function")).get("arguments")
    for block in (*blocks(found.get("content")), *blocks(found.get("parts"))):
        if block.get("type") == "tool_use":
            yield text(block.get("id")), block.get("input")
        for kind, id_key, key in _CALLS:
            if kind in block:
                call = mapping(block[kind])
                yield text(call.get(id_key)), call.get(key)


def _bad(id: str, name: str, problem: str) -> BadCall:
    advice = "Nothing was done. Call the tool again with one JSON object that follows its schema."
    return BadCall(id, name, {}, ToolResult((TextPart(f"{problem} {advice}"),), is_error=True))


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


def given(value: object, wire: str, keys: frozenset[str]) -> Mapping[str, Any]:
    """Return a message as a JSON object, and an empty one for a list, which is what a message holds.

    Args:
        value: what a caller takes for a message of this wire.
        wire: the name of its module.
        keys: of which such a message has at least one.

    Raises:
        ConfigError: it is something else, in which no call would ever be found.
    """
    found = mapping(value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return found
    other = _wire_of(found)
    if other is None and not keys & found.keys():
        raise ConfigError(f"{wire}.tool_calls takes a reply with {' or '.join(map(repr, sorted(keys)))} in it")
    if other not in {None, wire}:
        raise ConfigError(f"{wire}.tool_calls was given a reply that looks like one for {other}.tool_calls: use that")
    return found


def _wire_of(found: Mapping[str, Any]) -> str | None:
    """Return the wire that only has such messages, if that can be seen."""
    if found.get("object") == "response":
        return "openai_responses"
    return next((wire for mark, wire in _MARKS.items() if found.get(mark) is not None), None)


def mapping(value: object) -> Mapping[str, Any]:
    """Return a JSON object as it is, a vendor's SDK object as one, and an empty one for anything else."""
    if isinstance(value, Mapping):
        return value
    dump = getattr(value, "model_dump", None)
    dumped = dump() if callable(dump) else None
    return dumped if isinstance(dumped, Mapping) else {}


def blocks(value: object) -> list[Mapping[str, Any]]:
    """Return the JSON objects of a list, and none for anything else."""
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        return []
    return [block for block in map(mapping, value) if block]


def text(value: object) -> str:
    """Return a text as it is, and an empty one for anything else."""
    return value if isinstance(value, str) else ""


def checked(definitions: Iterable[ToolDefinition]) -> list[tuple[str, str, dict[str, Any]]]:
    """Return name, description and schema of tools, the schema as plain JSON of its own.

    Raises:
        ConfigError: a name that not every vendor takes or that is there twice, or a schema that is no object's.
    """
    seen: set[str] = set()
    tools: list[tuple[str, str, dict[str, Any]]] = []
    for tool in definitions:
        if not _NAME.fullmatch(tool.name):
            raise ConfigError(f"the tool name {tool.name!r} must be 1 to 64 letters, digits, '_' and '-'")
        if tool.name in seen:
            raise ConfigError(f"two tools are called {tool.name!r}; give each a name of its own")
        seen.add(tool.name)
        schema = {"type": "object", "properties": {}} | _plain_object(tool.parameters)
        if schema["type"] != "object":
            raise ConfigError(f"the parameters of tool {tool.name!r} must be of type 'object', not {schema['type']!r}")
        tools.append((tool.name, tool.description, schema))
    return tools


def _plain_object(value: Mapping[str, object]) -> dict[str, Any]:
    return {key: _plain(item) for key, item in value.items()}


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return _plain_object(value)
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
