"""What a model is told of a tool's arguments, and how what it wrote is read."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from runenv.errors import ToolError
from runenv.tools.schema import Arguments, EnvPath, Globs, parameters, read, shown_value
from runenv.tools.tool import Tool  # noqa: TC001 - a fixture's type


class Wanted(Arguments):
    """What the tool of these tests takes."""

    path: EnvPath
    """File, or folder
    to look at."""
    limit: Annotated[int, Field(ge=1, le=2000)] = 2000
    """How many."""
    mode: Literal["fast", "slow"] | None = None
    """How."""
    follow: bool = False
    include: Globs = ()
    name: str | None = None
    seconds: float | None = None
    command: str | tuple[str, ...] = ""


def wanted(**arguments: object) -> Wanted:
    """Read arguments that are right."""
    return read(Wanted, {"path": "a", **arguments}, tool="look")


def refusal(arguments: dict[str, object]) -> str:
    """What is said of arguments that are wrong."""
    with pytest.raises(ToolError) as caught:
        read(Wanted, arguments, tool="look")
    return str(caught.value)


def test_a_schema_has_what_every_vendor_takes() -> None:
    """Types, descriptions on one line, bounds and choices; what may be left out is not required."""
    assert parameters(Wanted) == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "File, or folder to look at."},
            "limit": {"type": "integer", "description": "How many.", "default": 2000, "minimum": 1, "maximum": 2000},
            "mode": {"type": "string", "description": "How.", "enum": ["fast", "slow"]},
            "follow": {"type": "boolean", "default": False},
            "include": {"type": "array", "items": {"type": "string"}},
            "name": {"type": "string"},
            "seconds": {"type": "number"},
            "command": {
                "default": "",
                "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
            },
        },
        "required": ["path"],
        "additionalProperties": False,
    }


class Inner(BaseModel):
    """A part of the arguments."""

    size: int


class Outer(Arguments):
    """Arguments with a part of their own."""

    inner: Inner
    """What is inside."""
    only: Literal["this"] = "this"


def test_a_schema_has_no_references() -> None:
    """A nested model stands where it is used, a single choice is a list of one."""
    properties = cast("dict[str, Any]", parameters(Outer)["properties"])
    assert properties["inner"] == {
        "type": "object",
        "properties": {"size": {"type": "integer"}},
        "required": ["size"],
        "additionalProperties": False,
        "description": "What is inside.",
    }
    assert properties["only"] == {"type": "string", "enum": ["this"], "default": "this"}


class Anything(Arguments):
    """What cannot be described."""

    what: object = None


def test_a_type_that_cannot_be_described_is_found_when_the_tool_is_made() -> None:
    """Not when a vendor refuses it."""
    with pytest.raises(ValueError, match="cannot be described"):
        parameters(Anything)


FORBIDDEN: Final = frozenset({"$ref", "$defs", "title", "format", "const", "oneOf", "allOf", "prefixItems"})


def keywords(schema: object) -> set[str]:
    """Every key of a schema at any depth, but for the names of properties."""
    if isinstance(schema, list):
        return set[str]().union(*map(keywords, cast("list[object]", schema)))
    if not isinstance(schema, dict):
        return set()
    found = set(cast("dict[str, object]", schema))
    for key, value in cast("dict[str, object]", schema).items():
        inside = list(cast("dict[str, object]", value).values()) if key == "properties" else value
        found |= keywords(inside)
    return found


def every_tool() -> list[Tool]:
    """All tools, over a fake env that claims to search."""
    from runenv.artifacts import ArtifactStore
    from runenv.tools import toolset
    from tests.tools.fakes import SearchingEnv

    return list(toolset(SearchingEnv(), ArtifactStore.open("memory://"), scope="run"))


@pytest.mark.parametrize("tool", every_tool(), ids=lambda tool: tool.name)
def test_T1_every_tool_is_described_within_what_vendors_take(tool: Tool) -> None:
    """A name of the strictest form, a description of at most 1,024 characters, and each argument explained."""
    assert tool.name.replace("_", "").isalnum()
    assert 20 <= len(tool.definition.description) <= 1024
    assert "\n" not in tool.definition.description
    assert not keywords(tool.definition.parameters) & FORBIDDEN
    for argument in cast("dict[str, dict[str, Any]]", tool.definition.parameters["properties"]).values():
        assert argument["description"]


def test_what_is_unambiguous_is_accepted() -> None:
    """Numbers and truth as text, null for a default, one text for a list, a list written as text."""
    assert wanted(limit="5").limit == 5
    assert wanted(limit=5.0).limit == 5
    assert wanted(limit=None).limit == 2000
    assert wanted(follow="true").follow is True
    assert wanted(name=7).name == "7"
    assert wanted(seconds="1.5").seconds == 1.5
    assert wanted(include="*.py").include == ("*.py",)
    assert wanted(include='["*.py", "*.md"]').include == ("*.py", "*.md")
    assert wanted(include="[ab]*.py").include == ("[ab]*.py",)
    assert wanted(command=["ls", "-l"]).command == ("ls", "-l")
    assert wanted(nothing=None) == wanted()


def test_all_that_is_wrong_is_said_at_once() -> None:
    """With the value, and with what the tool takes."""
    said = refusal({"file_path": "x", "limit": 0, "mode": "medium"})
    assert "'path' is missing" in said
    assert "no argument 'file_path', did you mean 'path'" in said
    assert "'limit' is wrong (0)" in said
    assert "'mode' is wrong ('medium')" in said
    assert said.endswith("(optional).")
    assert "look takes path, limit (optional)" in said


def test_what_is_missing_was_meant() -> None:
    """By the name that is not there, whatever else it resembles."""
    assert "no argument 'limits', did you mean 'path'" in refusal({"limits": "x"})
    assert "no argument 'limits', did you mean 'limit'" in refusal({"path": "x", "limits": 3})


@pytest.mark.parametrize("path", ["", "a\0b", 3, None, ["a"]])
def test_a_path_is_a_text_without_nul(path: object) -> None:
    """Anything else is refused before the env sees it."""
    assert "'path'" in refusal({"path": path})


def test_a_path_may_have_bytes_that_are_no_text() -> None:
    """As surrogate escapes, which JSON can hold."""
    assert wanted(path="caf\udce9").path == "caf\udce9"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "NaN"])
def test_numbers_are_finite(value: object) -> None:
    """JSON of some models has NaN."""
    assert "'seconds' is wrong" in refusal({"path": "a", "seconds": value})


@pytest.mark.parametrize("arguments", [[], "path", None, 3])
def test_arguments_that_are_no_object_are_refused(arguments: object) -> None:
    """In words, not with an AttributeError."""
    with pytest.raises(ToolError, match="JSON object"):
        read(Wanted, cast("Any", arguments), tool="look")


@given(st.one_of(st.text(), st.lists(st.integers()), st.dictionaries(st.text(), st.text())))
def test_a_shown_value_is_short_and_on_one_line(value: object) -> None:
    """Whatever a model wrote."""
    shown = shown_value(value)
    assert len(shown) <= 83
    assert "\n" not in shown


@given(
    st.dictionaries(
        st.sampled_from(["path", "limit", "mode", "include", "command", "other"]),
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(),
            st.floats(),
            st.text(st.characters(exclude_categories=())),
            st.lists(st.text(), max_size=3),
            st.dictionaries(st.text(), st.integers(), max_size=2),
        ),
    )
)
def test_T1_whatever_a_model_writes_is_read_or_refused_in_words(arguments: dict[str, object]) -> None:
    """Never another exception."""
    try:
        read(Wanted, arguments, tool="look")
    except ToolError as error:
        assert "look takes" in str(error)  # noqa: PT017 - either is right


def test_a_tool_without_arguments_says_so() -> None:
    """Rather than an empty list."""
    with pytest.raises(ToolError, match=r"nothing takes no arguments\."):
        read(Arguments, {"x": 1}, tool="nothing")
