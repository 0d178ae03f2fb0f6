"""From what a model asks for to `ToolCall`, whatever it wrote; and the check of tool definitions. Pure.

Arguments that cannot be read become a `BadCall`: a call like any other, which must be answered like any other, with the
answer ready. A caller that does not look runs the tool without arguments, and the tool complains of what is missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from runenv.errors import ConfigError
from runenv.types import TextPart, ToolCall, ToolResult

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runenv.types import ToolDefinition

__all__ = ("BadCall", "blocks", "checked", "make_call", "mapping", "text")

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class BadCall(ToolCall):
    """A call whose arguments cannot be read; `arguments` is empty.

    Attributes:
        answer: the result to give for it, which tells the model what was wrong.
    """

    answer: ToolResult


def make_call(id: object, name: object, arguments: object) -> ToolCall:
    """Return the call that a model wrote.

    Args:
        id: the vendor's name of the call.
        name: of the tool.
        arguments: a JSON text, or what was decoded from one; blank and None are no arguments.
    """
    called, tool = text(id), text(name)
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


def _bad(id: str, name: str, problem: str) -> BadCall:
    advice = "Nothing was done. Call the tool again with one JSON object that follows its schema."
    return BadCall(id, name, {}, ToolResult((TextPart(f"{problem} {advice}"),), is_error=True))


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


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
