"""The arguments of a tool: what a model is told of them, and how what it wrote is read. Pure.

`Arguments` is the base of one pydantic model for each tool. `parameters` makes of it a JSON schema of the few keywords
that every vendor takes, `read` makes an instance of what the model wrote. What is unambiguous is accepted: "5" for 5,
"true" for true, null for a default, one text for a list of texts. All else is refused in one text that names every
argument that is wrong, and the ones that there are.
"""

from __future__ import annotations

import difflib
import json
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, TypeAlias, TypeVar, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainValidator, ValidationError, WithJsonSchema

from runenv.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic_core import ErrorDetails

__all__ = ("Arguments", "EnvPath", "Texts", "parameters", "read", "shown_value")

_KEYWORDS: Final = ("type", "description", "enum", "default", "minimum", "maximum")
"""What is kept of a schema beside its structure; the others are refused by one vendor or another."""
_SHOWN_VALUE: Final = 80
"""Characters of a wrong value that an answer repeats."""

M = TypeVar("M", bound="Arguments")


class Arguments(BaseModel):
    """What a tool takes. The docstring under a field is its description for the model."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        coerce_numbers_to_str=True,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
    )


def _path(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("it must be a path, as text")
    if "\0" in value:
        raise ValueError("a path cannot have a NUL character in it")
    return value


def _texts(value: object) -> object:
    """Read one text as a list of it, and a list that was written as JSON within a text."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            read: object = json.loads(value)
        except ValueError:  # a pattern such as `[ab]*.py`
            return [value]
        if isinstance(read, list):
            return read
    return [value]


EnvPath: TypeAlias = Annotated[str, PlainValidator(_path), WithJsonSchema({"type": "string"})]
"""A path inside the env: unlike another text it may hold surrogate escapes, for names that are not UTF-8."""
Texts: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(_texts)]
"""Several texts; one alone is taken for a list of it."""


def parameters(model: type[Arguments]) -> dict[str, object]:
    """Return the JSON schema of a tool's arguments, as every vendor takes it.

    No titles, references, null or formats; an argument that may be left out is one that is not required.

    Raises:
        ValueError: a field has a type that this cannot say.
    """
    schema = model.model_json_schema()
    made = _object(schema, cast("dict[str, Any]", schema.get("$defs", {})))
    made.pop("description", None)  # the tool's own says it
    return made


def _object(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, object]:
    properties = {name: _plain(value, definitions) for name, value in schema.get("properties", {}).items()}
    made: dict[str, object] = {"type": "object", "properties": properties}
    if required := [name for name in schema.get("required", ()) if name in properties]:
        made["required"] = required
    made["additionalProperties"] = False
    if "description" in schema:
        made["description"] = " ".join(schema["description"].split())
    return made


def _plain(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, object]:
    """Rewrite the schema of one value."""
    if "$ref" in schema:
        named = definitions[str(schema["$ref"]).rpartition("/")[2]]
        schema = {**named, **{key: value for key, value in schema.items() if key != "$ref"}}
    choices = [choice for choice in schema.get("anyOf", ()) if choice.get("type") != "null"]
    if len(choices) == 1:
        schema = {**choices[0], **{key: value for key, value in schema.items() if key != "anyOf"}}
        return _plain(schema, definitions)
    if schema.get("type") == "object":
        return _object(schema, definitions)
    made = {key: schema[key] for key in _KEYWORDS if schema.get(key) is not None}
    if "const" in schema:
        made["enum"] = [schema["const"]]
    if "description" in made:
        made["description"] = " ".join(made["description"].split())
    if choices:
        made["anyOf"] = [_plain(choice, definitions) for choice in choices]
    elif "type" not in made:
        raise ValueError(f"a tool's argument cannot be described to every vendor: {dict(schema)!r}")
    if schema.get("type") == "array":
        made["items"] = _plain(schema["items"], definitions)
        if not made.get("default", True):  # an empty list says nothing
            del made["default"]
    return made


def read(model: type[M], arguments: Mapping[str, object], *, tool: str) -> M:
    """Return the arguments of a call, checked.

    Args:
        model: what the tool takes.
        arguments: what the model wrote, decoded from JSON.
        tool: its name, for the answer.

    Raises:
        ToolError: something is wrong with them; the text says what, and what the tool takes.
    """
    if not hasattr(arguments, "items"):
        raise ToolError(f"The arguments of {tool} must be one JSON object. {_usage(model, tool)}")
    fields = model.model_fields
    given = {
        name: value
        for name, value in arguments.items()
        if value is not None or (name in fields and fields[name].is_required())
    }
    try:
        return model.model_validate(given)
    except ValidationError as error:
        details = error.errors(include_url=False)
    missing = [name for name, field in fields.items() if field.is_required() and name not in given]
    wrong = list(dict.fromkeys(_sentence(model, detail, missing) for detail in details))
    raise ToolError(f"{'. '.join(wrong)}. {_usage(model, tool)}")


def shown_value(value: object) -> str:
    """Return a value as an answer may repeat it: short, on one line."""
    text = repr(value[: 2 * _SHOWN_VALUE]) if isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN_VALUE else f"{text[:_SHOWN_VALUE]}..."


def _sentence(model: type[Arguments], detail: ErrorDetails, missing: Sequence[str]) -> str:
    name = str(detail["loc"][0]) if detail["loc"] else "arguments"
    field = model.model_fields.get(name)
    if detail["type"] == "extra_forbidden":
        near = difflib.get_close_matches(name, missing or model.model_fields, n=1)
        parts = [known for known in model.model_fields if known in name.split("_")]
        meant = [*near, *parts, *(missing if len(missing) == 1 else ())]
        hint = f", did you mean {meant[0]!r}?" if meant else ""
        return f"There is no argument {name[:_SHOWN_VALUE]!r}{hint}".rstrip("?")
    if detail["type"] == "missing" or (detail["input"] is None and field is not None):
        return f"The argument {name!r} is missing"
    cause = detail.get("ctx", {}).get("error")
    message = (
        str(cause) if cause is not None else detail["msg"][:1].lower() + detail["msg"][1:].replace("tuple", "list")
    )
    return f"The argument {name!r} is wrong ({shown_value(detail['input'])}): {message}"


def _usage(model: type[Arguments], tool: str) -> str:
    names = [name if field.is_required() else f"{name} (optional)" for name, field in model.model_fields.items()]
    return f"{tool} takes {', '.join(names)}." if names else f"{tool} takes no arguments."
