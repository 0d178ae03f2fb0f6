"""A whole conversation in a vendor's JSON: requests out, replies in. Pure; `runenv.providers` has the parts of it.

What a model said goes back into the history exactly as it came, because vendors sign parts of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from runenv.providers import anthropic, limits, openai_responses
from runenv.providers.calls import blocks, mapping, text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runenv.providers import Limits
    from runenv.types import ToolCall, ToolDefinition, ToolResult

__all__ = ("ANTHROPIC", "OPENAI", "Json", "Reply", "Wire")

Json: TypeAlias = dict[str, Any]

MAX_TOKENS: Final = 8192
"""Of one reply; Anthropic wants a bound, and the errand needs far less."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model said in one turn.

    Attributes:
        text: what it said in words.
        calls: what it asks for; none at the end.
        cut: why the reply is not whole, or "". Its calls may lack something then, and are not to be run.
    """

    text: str
    calls: tuple[ToolCall, ...]
    cut: str = ""


class Wire(Protocol):
    """The form of a vendor's conversation."""

    @property
    def limits(self) -> Limits:
        """What a request may hold; it names the vendor."""
        ...

    def request(self, model: str, system: str, history: Sequence[Json], tools: Sequence[ToolDefinition]) -> Json:
        """Return the body of a request."""
        ...

    def user(self, said: str) -> Json:
        """Return what a user said, for the history."""
        ...

    def said(self, response: Mapping[str, Any]) -> list[Json]:
        """Return what the model said, for the history."""
        ...

    def reply(self, response: Mapping[str, Any]) -> Reply:
        """Return what the model said, for us."""
        ...

    def results(self, answered: Sequence[tuple[ToolCall, ToolResult]]) -> list[Json]:
        """Return the answers to all calls of a turn, for the history."""
        ...


class _Anthropic:
    limits = limits.ANTHROPIC

    def request(self, model: str, system: str, history: Sequence[Json], tools: Sequence[ToolDefinition]) -> Json:
        return {
            "model": model,
            "max_tokens": MAX_TOKENS,
            "system": system,
            "tools": anthropic.tool_definitions(tools),
            "messages": list(history),
        }

    def user(self, said: str) -> Json:
        return {"role": "user", "content": said}

    def said(self, response: Mapping[str, Any]) -> list[Json]:
        return [{"role": "assistant", "content": response.get("content", [])}]

    def reply(self, response: Mapping[str, Any]) -> Reply:
        words = [text(block.get("text")) for block in blocks(response.get("content")) if block.get("type") == "text"]
        reason = text(response.get("stop_reason"))
        cut = "" if reason in {"tool_use", "end_turn", "stop_sequence"} else reason or "no stop_reason"
        return Reply("\n".join(words), tuple(anthropic.tool_calls(response)), cut)

    def results(self, answered: Sequence[tuple[ToolCall, ToolResult]]) -> list[Json]:
        return anthropic.tool_results(answered)


class _OpenAI:
    limits = limits.OPENAI

    def request(self, model: str, system: str, history: Sequence[Json], tools: Sequence[ToolDefinition]) -> Json:
        return {
            "model": model,
            "instructions": system,
            "tools": openai_responses.tool_definitions(tools),
            "input": list(history),
        }

    def user(self, said: str) -> Json:
        return {"role": "user", "content": said}

    def said(self, response: Mapping[str, Any]) -> list[Json]:
        return list(response.get("output", []))

    def reply(self, response: Mapping[str, Any]) -> Reply:
        words = [
            text(content.get("text")) or text(content.get("refusal"))
            for item in blocks(response.get("output"))
            if item.get("type") == "message"
            for content in blocks(item.get("content"))
        ]
        cut = ""
        if response.get("status") != "completed":
            why = mapping(response.get("incomplete_details")).get("reason")
            cut = text(why) or text(mapping(response.get("error")).get("message")) or "not completed"
        return Reply("\n".join(words), tuple(openai_responses.tool_calls(response)), cut)

    def results(self, answered: Sequence[tuple[ToolCall, ToolResult]]) -> list[Json]:
        return openai_responses.tool_results(answered)


ANTHROPIC: Final[Wire] = _Anthropic()
"""Messages."""
OPENAI: Final[Wire] = _OpenAI()
"""Responses."""
