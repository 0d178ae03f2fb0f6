"""The vendors' own types as judges of what we write: every wire by name, and what it may be asked to do."""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import botocore.loaders  # type: ignore[import-untyped] # no stubs
import botocore.model  # type: ignore[import-untyped] # no stubs
import botocore.serialize  # type: ignore[import-untyped] # no stubs
import botocore.validate  # type: ignore[import-untyped] # no stubs
import mcp_types
from anthropic.types import MessageParam, ToolParam
from google.genai import types as genai
from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionMessageParam
from openai.types.responses import FunctionToolParam, ResponseInputItemParam
from pydantic import TypeAdapter

from runenv.providers import anthropic, bedrock, gemini, mcp, openai_chat, openai_responses
from runenv.types import ToolCall, ToolDefinition, ToolResult

Results: TypeAlias = Sequence[tuple[ToolCall, ToolResult]]


@dataclass(frozen=True)
class Wire:
    """One way to answer a turn."""

    results: Callable[[Results], list[dict[str, Any]]]
    check: Callable[[Sequence[object]], None]
    definitions: Callable[[Sequence[ToolDefinition]], Any]
    check_definitions: Callable[[Any], None]


def plain(value: object) -> object:
    """What pydantic validated, its lazy iterators read."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, str | bytes | int | float | None):
        return value
    assert isinstance(value, Sequence | Iterator)
    return [plain(item) for item in value]


@functools.cache
def adapter(type_: Any) -> TypeAdapter[Any]:  # noqa: ANN401 - a TypedDict or a union of them
    """Made once: the vendors' unions take seconds."""
    return TypeAdapter(type_)


def typed(type_: Any) -> Callable[[Sequence[object]], None]:  # noqa: ANN401 - a TypedDict or a union of them
    """A judge by TypedDict: what it does not know it would drop, so all must come back."""

    def check(values: Sequence[object]) -> None:
        for value in values:
            assert plain(adapter(type_).validate_python(value)) == value

    return check


def gemini_contents(contents: Sequence[object]) -> None:
    """Google's model, which refuses unknown keys; through JSON, where its bytes are base64."""
    for content in contents:
        parsed = genai.Content.model_validate_json(json.dumps(content))
        assert standard(parsed.model_dump(mode="json", by_alias=True, exclude_none=True)) == content


def gemini_tools(tools: Sequence[object]) -> None:
    """The same for tools."""
    for tool in tools:
        parsed = genai.Tool.model_validate_json(json.dumps(tool))
        assert parsed.model_dump(mode="json", by_alias=True, exclude_none=True) == tool


def standard(value: object) -> object:
    """The SDK writes base64 in the other alphabet."""
    if isinstance(value, dict):
        changed = {key: standard(item) for key, item in value.items()}
        if isinstance(changed.get("data"), str):
            changed["data"] = str(changed["data"]).replace("-", "+").replace("_", "/")
        return changed
    return [standard(item) for item in value] if isinstance(value, list) else value


@functools.cache
def converse() -> botocore.model.OperationModel:
    """Bedrock's operation, as AWS describes it."""
    loader = botocore.loaders.Loader()
    described = loader.load_service_model("bedrock-runtime", "service-2")
    return botocore.model.ServiceModel(described, "bedrock-runtime").operation_model("Converse")


@functools.cache
def serializer() -> Any:  # noqa: ANN401 - one of many types
    """What makes the body that is sent."""
    return botocore.serialize.create_serializer("rest-json")


def bedrock_request(messages: Sequence[object], tools: object = None) -> dict[str, Any]:
    """Validate a request as the AWS SDK does before it is sent, and return the body that it would send."""
    request: dict[str, Any] = {"modelId": "any", "messages": list(messages)}
    if tools is not None:
        request["toolConfig"] = tools
    shape = converse().input_shape
    report = botocore.validate.ParamValidator().validate(request, shape)
    assert not report.has_errors(), report.generate_report()
    body = serializer().serialize_to_request(request, converse())["body"]
    loaded = json.loads(body)
    assert isinstance(loaded, dict)
    return loaded


def bedrock_messages(messages: Sequence[object]) -> None:
    """Bedrock's rules, and two that its model does not tell: no empty content, no blank text."""
    for message in bedrock_request(messages)["messages"]:
        for block in message["content"]:
            content = block["toolResult"]["content"] if "toolResult" in block else [block]
            assert content
            assert all(piece["text"].strip() for piece in content if "text" in piece)


def mcp_results(results: Sequence[object]) -> None:
    """The official model of a result, which must give back the same JSON."""
    for result in results:
        parsed = mcp_types.CallToolResult.model_validate(result)
        assert parsed.model_dump(by_alias=True, exclude_unset=True, mode="json") == result


def mcp_tools(tools: Sequence[object]) -> None:
    """The same for tools."""
    for tool in tools:
        parsed = mcp_types.Tool.model_validate(tool)
        assert parsed.model_dump(by_alias=True, exclude_unset=True, mode="json") == tool


def of_anthropic(messages: Sequence[object]) -> None:
    """Anthropic's types, and what its API says in its refusals."""
    typed(MessageParam)(messages)
    for message in messages:
        assert isinstance(message, dict)
        is_result = [block["type"] == "tool_result" for block in message["content"]]
        assert is_result == sorted(is_result, reverse=True)
        for block in message["content"]:
            inner = block.get("content", [block])
            assert inner
            assert all(piece["text"].strip() for piece in inner if piece["type"] == "text")
            assert not block.get("is_error") or {piece["type"] for piece in inner} == {"text"}


def of_chat(messages: Sequence[object]) -> None:
    """OpenAI's types, and nothing between or after the tool messages but one message of the user."""
    typed(ChatCompletionMessageParam)(messages)
    roles = [message["role"] for message in messages if isinstance(message, dict)]
    assert roles.count("user") <= 1
    assert "user" not in roles[:-1]


def _bedrock_tools(tools: Any) -> None:  # noqa: ANN401 - JSON
    bedrock_request([{"role": "user", "content": [{"text": "hello"}]}], tools)


WIRES: Final[dict[str, Wire]] = {
    "anthropic": Wire(anthropic.tool_results, of_anthropic, anthropic.tool_definitions, typed(ToolParam)),
    "responses": Wire(
        openai_responses.tool_results,
        typed(ResponseInputItemParam),
        openai_responses.tool_definitions,
        typed(FunctionToolParam),
    ),
    "responses, images after": Wire(
        functools.partial(openai_responses.tool_results, images="after"),
        typed(ResponseInputItemParam),
        openai_responses.tool_definitions,
        typed(FunctionToolParam),
    ),
    "chat": Wire(
        openai_chat.tool_results, of_chat, openai_chat.tool_definitions, typed(ChatCompletionFunctionToolParam)
    ),
    "gemini 3": Wire(
        functools.partial(gemini.tool_results, images="nested"), gemini_contents, gemini.tool_definitions, gemini_tools
    ),
    "gemini 2.5": Wire(
        functools.partial(gemini.tool_results, images="beside"), gemini_contents, gemini.tool_definitions, gemini_tools
    ),
    "gemini, images after": Wire(
        functools.partial(gemini.tool_results, images="after"), gemini_contents, gemini.tool_definitions, gemini_tools
    ),
    "bedrock": Wire(
        functools.partial(bedrock.tool_results, images="nested"),
        bedrock_messages,
        bedrock.tool_definitions,
        _bedrock_tools,
    ),
    "bedrock, images beside": Wire(
        functools.partial(bedrock.tool_results, images="beside"),
        bedrock_messages,
        bedrock.tool_definitions,
        _bedrock_tools,
    ),
    "mcp": Wire(
        lambda results: [mcp.tool_result(call, result) for call, result in results],
        mcp_results,
        mcp.tool_definitions,
        mcp_tools,
    ),
}


def as_json(messages: object) -> str:
    """What goes over the wire, raw bytes as the AWS SDK encodes them."""

    def encode(value: object) -> str:
        assert isinstance(value, bytes)
        return base64.b64encode(value).decode()

    return json.dumps(messages, ensure_ascii=False, default=encode)


def texts(node: object) -> Iterator[str]:
    """Every text of some JSON that a model reads as text: not the data of images."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, Mapping):
        for key, value in node.items():
            if key not in {"data", "bytes", "image_url"}:
                yield from texts(value)
    elif isinstance(node, Sequence) and not isinstance(node, bytes):
        for value in node:
            yield from texts(value)
