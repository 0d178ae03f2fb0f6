"""What models write becomes calls, however it is written, and every call can be answered."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import anthropic.types
import google.genai.types
import mcp_types
import openai.types.chat
import openai.types.responses
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runenv.errors import ConfigError
from runenv.providers import BadCall, bedrock, gemini, mcp, openai_chat, openai_responses
from runenv.providers import anthropic as anthropic_wire
from runenv.types import ToolCall, ToolDefinition
from tests.providers.samples import DEFINITION, GOOD
from tests.providers.vendors import WIRES

if TYPE_CHECKING:
    from collections.abc import Callable

GREP: Final = ToolCall("call_1", "grep", {"pattern": "x", "limit": 3})
WRITTEN: Final = '{"pattern": "x", "limit": 3}'

ANTHROPIC: Final[dict[str, Any]] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "any",
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
    "content": [
        {"type": "thinking", "thinking": "...", "signature": "c2ln"},
        {"type": "text", "text": "I look.", "citations": None},
        {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "y"}},
        {"type": "tool_use", "id": "call_1", "name": "grep", "input": {"pattern": "x", "limit": 3}},
    ],
}
RESPONSES: Final[dict[str, Any]] = {
    "id": "resp_1",
    "object": "response",
    "output": [
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "grep", "arguments": WRITTEN},
    ],
}
CHAT: Final[dict[str, Any]] = {
    "id": "chatcmpl_1",
    "object": "chat.completion",
    "created": 1,
    "model": "any",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "logprobs": None,
            "message": {
                "role": "assistant",
                "content": None,
                "refusal": None,
                "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "grep", "arguments": WRITTEN}}
                ],
            },
        }
    ],
}
GEMINI: Final[dict[str, Any]] = {
    "candidates": [
        {
            "content": {
                "role": "model",
                "parts": [
                    {"text": "hm", "thought": True},
                    {
                        "functionCall": {"id": "call_1", "name": "grep", "args": {"pattern": "x", "limit": 3}},
                        "thoughtSignature": "c2ln",
                    },
                ],
            }
        }
    ]
}
BEDROCK: Final[dict[str, Any]] = {
    "output": {
        "message": {
            "role": "assistant",
            "content": [
                {"text": "I look."},
                {"toolUse": {"toolUseId": "srv", "name": "nova_grounding", "input": {}, "type": "server_tool_use"}},
                {"toolUse": {"toolUseId": "call_1", "name": "grep", "input": {"pattern": "x", "limit": 3}}},
            ],
        }
    },
    "stopReason": "tool_use",
}
MCP: Final[dict[str, Any]] = {
    "jsonrpc": "2.0",
    "id": "call_1",
    "method": "tools/call",
    "params": {"name": "grep", "arguments": {"pattern": "x", "limit": 3}},
}
READERS: Final[dict[str, Callable[[object], list[ToolCall]]]] = {
    "anthropic": anthropic_wire.tool_calls,
    "responses": openai_responses.tool_calls,
    "chat": openai_chat.tool_calls,
    "gemini": gemini.tool_calls,
    "bedrock": bedrock.tool_calls,
    "mcp": mcp.tool_calls,
}
RESPONSES_OF: Final[dict[str, dict[str, Any]]] = {
    "anthropic": ANTHROPIC,
    "responses": RESPONSES,
    "chat": CHAT,
    "gemini": GEMINI,
    "bedrock": BEDROCK,
    "mcp": MCP,
}


@pytest.mark.parametrize("name", READERS)
def test_a_response_gives_its_calls(name: str) -> None:
    """Only those that we must answer: nothing of the vendor's own tools."""
    before = json.dumps(RESPONSES_OF[name])
    assert READERS[name](RESPONSES_OF[name]) == [GREP]
    assert json.dumps(RESPONSES_OF[name]) == before


@pytest.mark.parametrize(
    ("name", "inner"),
    [
        ("anthropic", {"role": "assistant", "content": ANTHROPIC["content"]}),
        ("anthropic", ANTHROPIC["content"]),
        ("responses", RESPONSES["output"]),
        ("chat", CHAT["choices"][0]["message"]),
        ("gemini", GEMINI["candidates"][0]["content"]),
        ("gemini", GEMINI["candidates"][0]["content"]["parts"]),
        ("bedrock", BEDROCK["output"]["message"]),
        ("bedrock", BEDROCK["output"]["message"]["content"]),
    ],
)
def test_a_message_or_its_content_does_too(name: str, inner: object) -> None:
    """As it stands in a history."""
    assert READERS[name](inner) == [GREP]


def sdk_objects() -> dict[str, object]:
    """The same responses as the SDKs give them."""
    return {
        "anthropic": anthropic.types.Message.model_validate(ANTHROPIC),
        "responses": openai.types.responses.Response.model_construct(**RESPONSES),
        "chat": openai.types.chat.ChatCompletion.model_validate(CHAT),
        "gemini": google.genai.types.GenerateContentResponse.model_validate_json(json.dumps(GEMINI)),
        "mcp": mcp_types.CallToolRequestParams.model_validate(MCP["params"]),
    }


@pytest.mark.parametrize("name", ["anthropic", "responses", "chat", "gemini", "mcp"])
def test_the_objects_of_the_sdks_do_too(name: str) -> None:
    """Their dumps use other names than the wire in places."""
    (call,) = READERS[name](sdk_objects()[name])
    assert (call.name, dict(call.arguments)) == ("grep", {"pattern": "x", "limit": 3})
    assert call.id == ("" if name == "mcp" else "call_1")


BROKEN: Final = (
    '{"command": "ls"',
    '{"a": 1}{"b": 2}',
    "not json",
    "[1, 2]",
    '"text"',
    "NaN",
    '{"a": Infinity}',
    "[" * 100_000,
    "9" * 5000,
    "{'a': 1}",
)


@pytest.mark.parametrize("arguments", BROKEN, ids=range(len(BROKEN)))
def test_arguments_that_cannot_be_read_make_a_call_with_its_answer(arguments: str) -> None:
    """It has id and name, so that the answer reaches the model, and no arguments that a tool would act on."""
    message = {"tool_calls": [{"id": "c", "type": "function", "function": {"name": "exec", "arguments": arguments}}]}
    (call,) = openai_chat.tool_calls(message)
    assert isinstance(call, BadCall)
    assert (call.id, call.name, dict(call.arguments)) == ("c", "exec", {})
    assert call.answer.is_error
    assert "Call the tool again" in call.answer.text
    for wire in WIRES.values():
        wire.check(wire.results([(call, call.answer)]))


def test_the_answer_says_where_the_json_broke() -> None:
    """A model that cut its own call short can see it."""
    item = {"type": "function_call", "call_id": "c", "name": "exec", "arguments": '{"command": "ls"'}
    (call,) = openai_responses.tool_calls([item])
    assert isinstance(call, BadCall)
    assert call.answer.text.startswith(
        "The arguments of this call are not JSON: Expecting ',' delimiter at character 17."
    )


@pytest.mark.parametrize("nothing", ["", "  ", "null", "{}", None, {}])
def test_no_arguments_are_none(nothing: object) -> None:
    """Models write a call without arguments in all these ways."""
    (call,) = openai_chat.tool_calls({"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": nothing}}]})
    assert call == ToolCall("c", "f", {})


def test_a_call_of_a_custom_tool_is_answered() -> None:
    """Without an answer to each call the next request is refused."""
    message = {"tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}]}
    (call,) = openai_chat.tool_calls(message)
    assert isinstance(call, BadCall)
    assert (call.id, call.name) == ("c", "sql")


def test_a_call_without_a_name_is_answered() -> None:
    """And says what was wrong."""
    (call,) = gemini.tool_calls([{"functionCall": {"id": "c", "args": {}}}])
    assert isinstance(call, BadCall)
    assert "names no tool" in call.answer.text


def test_a_call_without_an_id_has_an_empty_one_and_its_result_none() -> None:
    """Gemini matches by name and order where it gives no ids."""
    (call,) = gemini.tool_calls([{"functionCall": {"name": "grep", "args": {}}}])
    assert call.id == ""
    assert "id" not in gemini.tool_result(call, GOOD)["functionResponse"]


@pytest.mark.parametrize("name", [name for name in READERS if name != "mcp"])
@pytest.mark.parametrize("arguments", ["good", "bad"])
def test_an_answer_to_ids_and_names_that_utf8_cannot_hold_can_be_sent(name: str, arguments: str) -> None:
    """JSON can write half a surrogate pair, and the answer must repeat the id: the same mark stands in both."""
    reply = json.dumps(RESPONSES_OF[name]).replace('"call_1"', r'"call_\ud800"').replace('"grep"', r'"grep\udfff"')
    if arguments == "bad":
        reply = reply.replace('{"pattern": "x", "limit": 3}', "[]").replace(json.dumps(WRITTEN), '"["')
    (call,) = READERS[name](json.loads(reply))
    assert isinstance(call, BadCall) == (arguments == "bad")
    assert (call.id, call.name) == ("call_\ufffd", "grep\ufffd")
    for wire in WIRES.values():
        json.dumps(wire.results([(call, GOOD)]), ensure_ascii=False, default=repr).encode()


def json_values() -> st.SearchStrategy[object]:
    """Any JSON, with the keys that readers look for."""
    keys = st.sampled_from(
        "content type tool_use id name input output function_call call_id arguments choices message tool_calls "
        "function custom candidates parts functionCall args toolUse toolUseId params".split()
    )
    scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5), keys)
    return st.recursive(
        scalars, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(keys, inner, max_size=5))
    )


@pytest.mark.parametrize("name", READERS)
@given(value=json_values())
def test_whatever_comes_is_read_or_refused(name: str, value: object) -> None:
    """Calls have texts for names and ids, and a mapping for arguments."""
    try:
        calls = READERS[name](value)
    except ConfigError:
        return
    for call in calls:
        assert isinstance(call.id, str)
        assert isinstance(call.name, str)
        assert call.arguments is not None
        assert call.name or isinstance(call, BadCall)


@pytest.mark.parametrize("name", READERS)
def test_what_is_no_reply_of_this_wire_is_refused(name: str) -> None:
    """To find no call in the reply of another vendor would end an agent's loop without a word."""
    for other, reply in RESPONSES_OF.items():
        if other != name:
            with pytest.raises(ConfigError, match="tool_calls"):
                READERS[name](reply)
    for nothing in (None, "a text", b"bytes", 5, {}, {"foo": 1}):
        with pytest.raises(ConfigError, match="takes a reply with"):
            READERS[name](nothing)
    assert READERS[name]([]) == []


@pytest.mark.parametrize("name", WIRES)
def test_a_definition_that_a_vendor_would_refuse_is_refused_here(name: str) -> None:
    """In a sentence that names the tool, before a request is sent."""
    define = WIRES[name].definitions
    for bad in ("", "a b", "a.b", "x" * 65, "ä"):
        with pytest.raises(ConfigError, match="must be 1 to 64 letters"):
            define([ToolDefinition(bad, "", {})])
    with pytest.raises(ConfigError, match="two tools are called 'file_read'"):
        define([DEFINITION, DEFINITION])
    with pytest.raises(ConfigError, match="'file_read' must be of type 'object', not 'array'"):
        define([ToolDefinition("file_read", "", {"type": "array"})])


def test_gemini_wants_a_letter_first() -> None:
    """Its own rule for names."""
    with pytest.raises(ConfigError, match="must begin with a letter or '_' for Gemini"):
        gemini.tool_definitions([ToolDefinition("2fast", "", {})])


@pytest.mark.parametrize("name", WIRES)
def test_a_schema_is_plain_json_of_its_own(name: str) -> None:
    """Immutable mappings and tuples of ours become dicts and lists; an empty schema says that it is an object."""
    frozen = MappingProxyType({"required": ("a",), "properties": MappingProxyType({"a": MappingProxyType({})})})
    made = WIRES[name].definitions([ToolDefinition("a", "", frozen), ToolDefinition("b", "", {})])
    WIRES[name].check_definitions(made)
    assert '{"type": "object", "properties": {"a": {}}, "required": ["a"]}' in json.dumps(made)
    assert '{"type": "object", "properties": {}}' in json.dumps(made)


def test_no_tools_are_nothing_to_send() -> None:
    """Bedrock and Gemini refuse an empty list of tools."""
    assert bedrock.tool_definitions([]) is None
    assert gemini.tool_definitions([]) == []
