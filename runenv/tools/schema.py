"""The arguments of a tool: what a model is told of them, and how what it wrote is read. Pure.

`Arguments` is the base of one pydantic model for each tool. `parameters` makes of it a JSON schema of the few keywords
that every vendor takes, `read` makes an instance of what the model wrote. What is unambiguous is accepted: "5" for 5,
"true" for true, null for a default, one text for a list of texts. All else is refused in one text that names every
argument that is wrong, and the ones that there are.
"""

from __future__ import annotations

import difflib
import json
import reprlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, TypeAlias, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainValidator,
    ValidationError,
    WithJsonSchema,
)

from runenv.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic_core import ErrorDetails

__all__ = ("Arguments", "EnvPath", "Glob", "Globs", "check", "parameters", "read", "shown_value")

_KEYWORDS: Final = ("type", "description", "enum", "default", "minimum", "maximum")
"""What is kept of a schema beside its structure; the others are refused by one vendor or another."""
_SHOWN_VALUE: Final = 80
"""Characters of a wrong value that an answer repeats."""
_SHOWN_FAULTS: Final = 8
"""Things that are wrong which one answer names."""
MAX_PATH_BYTES: Final = 4095
"""As long as a path may be for Linux (PATH_MAX, without the NUL at its end)."""
MAX_GLOBS: Final = 64
MAX_DEPTH: Final = 64
"""Lists and objects in one another that arguments may have."""
MAX_VALUES: Final = 50_000
"""Values in them, at all depths."""
MAX_INTEGER: Final = 2**53
"""Beyond it JSON does not tell one integer from the next (RFC 8259, section 6)."""
_repr: Final = reprlib.Repr()
_repr.maxstring = _repr.maxother = 2 * _SHOWN_VALUE

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
    return _encodable(value, "a path")


def _encodable(value: str, what: str) -> str:
    try:
        size = len(value.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        raise ValueError(f"{what} cannot have half of a character in it") from None
    if size > MAX_PATH_BYTES:
        raise ValueError(f"it is too long, {what} has at most {MAX_PATH_BYTES:,} bytes and this one {size:,}")
    return value


def _glob(value: str) -> str:
    return _encodable(value, "a glob")


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


def _few(value: tuple[str, ...]) -> tuple[str, ...]:
    if len(value) > MAX_GLOBS:
        raise ValueError(f"give at most {MAX_GLOBS} of them, not {len(value):,}")
    return value


EnvPath: TypeAlias = Annotated[str, PlainValidator(_path), WithJsonSchema({"type": "string"})]
"""A path inside the env: unlike another text it may hold surrogate escapes, for names that are not UTF-8."""
Glob: TypeAlias = Annotated[str, AfterValidator(_glob)]
"""A pattern for paths."""
Globs: TypeAlias = Annotated[tuple[Glob, ...], BeforeValidator(_texts), AfterValidator(_few)]
"""Several of them; one alone is taken for a list of it."""


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


def check(arguments: object, *, tool: str) -> None:
    """Refuse arguments that no code should have to walk: hooks, records and validators do.

    Raises:
        ToolError: they are no object, or nested too deeply, or too many, or a number in them is too large.
    """
    if not isinstance(arguments, Mapping):
        raise ToolError(f"The arguments of {tool} must be one JSON object.")
    waiting: list[tuple[object, int]] = [(arguments, 0)]
    values = 0
    while waiting:
        value, depth = waiting.pop()
        if isinstance(value, int) and abs(value) > MAX_INTEGER:
            raise ToolError(f"A number in the arguments of {tool} has more than 15 digits. Give a smaller one.")
        if isinstance(value, Mapping | list | tuple):
            if depth > MAX_DEPTH:
                raise ToolError(f"The arguments of {tool} are nested more than {MAX_DEPTH} deep. Write them flat.")
            values += len(value)
            if values > MAX_VALUES:
                raise ToolError(f"The arguments of {tool} have more than {MAX_VALUES:,} values. Write them to a file.")
            waiting += [(one, depth + 1) for one in (value.values() if isinstance(value, Mapping) else value)]


def read(model: type[M], arguments: Mapping[str, object], *, tool: str) -> M:
    """Return the arguments of a call, checked.

    Args:
        model: what the tool takes.
        arguments: what the model wrote, decoded from JSON.
        tool: its name, for the answer.

    Raises:
        ToolError: something is wrong with them; the text says what, and what the tool takes.
    """
    try:
        check(arguments, tool=tool)
    except ToolError as error:
        raise ToolError(f"{error} {_usage(model, tool)}") from None
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
    more = f". And {len(wrong) - _SHOWN_FAULTS:,} more" if len(wrong) > _SHOWN_FAULTS else ""
    raise ToolError(f"{'. '.join(wrong[:_SHOWN_FAULTS])}{more}. {_usage(model, tool)}")


def shown_value(value: object) -> str:
    """Return a value as an answer may repeat it: short, on one line."""
    text = repr(value[: 2 * _SHOWN_VALUE]) if isinstance(value, str) else _repr.repr(value)
    return text if len(text) <= _SHOWN_VALUE else f"{text[:_SHOWN_VALUE]}..."


def _sentence(model: type[Arguments], detail: ErrorDetails, missing: Sequence[str]) -> str:
    name = str(detail["loc"][0]) if detail["loc"] else "arguments"
    field = model.model_fields.get(name)
    if detail["type"] == "extra_forbidden":
        near = difflib.get_close_matches(name[:_SHOWN_VALUE], missing or model.model_fields, n=1)
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
