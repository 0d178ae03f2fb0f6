"""One turn on every wire, written by hand from the vendors' documentation: the whole payload, not a part of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from runenv.providers import anthropic, bedrock, gemini, mcp, openai_chat, openai_responses
from tests.providers.samples import BAD, DEFINITION, DOT, GOOD, READ, RUN

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN: Final = Path(__file__).parent / "golden"
TURN: Final = [(READ, GOOD), (RUN, BAD)]

TURNS: Final[dict[str, Callable[[], object]]] = {
    "anthropic": lambda: anthropic.tool_results(TURN),
    "openai_responses": lambda: openai_responses.tool_results(TURN),
    "openai_chat": lambda: openai_chat.tool_results(TURN),
    "gemini_3": lambda: gemini.tool_results(TURN, images="nested"),
    "gemini_2.5": lambda: gemini.tool_results(TURN, images="beside"),
    "bedrock_claude": lambda: bedrock.tool_results(TURN, images="nested"),
    "bedrock_openai": lambda: bedrock.tool_results(TURN, images="beside"),
    "mcp": lambda: [mcp.tool_result(*pair) for pair in TURN],
}
DEFINITIONS: Final[dict[str, Callable[[], object]]] = {
    "anthropic": lambda: anthropic.tool_definitions([DEFINITION]),
    "openai_responses": lambda: openai_responses.tool_definitions([DEFINITION]),
    "openai_chat": lambda: openai_chat.tool_definitions([DEFINITION]),
    "gemini_3": lambda: gemini.tool_definitions([DEFINITION]),
    "bedrock_claude": lambda: bedrock.tool_definitions([DEFINITION]),
    "mcp": lambda: mcp.tool_definitions([DEFINITION]),
}


def golden(name: str) -> dict[str, Any]:
    """A reviewed payload."""
    loaded = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def raw(node: object) -> object:
    """Bedrock's bytes are written `"bytes": "DOT"` in the file, because JSON has none."""
    if isinstance(node, dict):
        return {key: DOT if key == "bytes" else raw(value) for key, value in node.items()}
    return [raw(value) for value in node] if isinstance(node, list) else node


@pytest.mark.parametrize("name", TURNS)
def test_W1_a_turn_is_exactly_what_the_vendor_documents(name: str) -> None:
    """Text, image and file, and a failed command, as one turn."""
    assert TURNS[name]() == raw(golden(name)["turn"])


@pytest.mark.parametrize("name", DEFINITIONS)
def test_definitions_are_exactly_what_the_vendor_documents(name: str) -> None:
    """Name, description and schema."""
    assert DEFINITIONS[name]() == golden(name)["tools"]
