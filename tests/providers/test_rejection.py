"""A vendor refused a request for its media: exactly what it refused goes, and the session lives on.

The texts of the errors are from public bug reports; each test names its source.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

import anthropic
import botocore.exceptions  # type: ignore[import-untyped] # no stubs
import google.genai.errors
import httpx2
import openai
import pytest

from runenv.providers import strip_media
from runenv.types import ToolCall
from tests.providers.samples import DOT64, HANDLE, encoded, image, result
from tests.providers.vendors import WIRES, as_json

if TYPE_CHECKING:
    from runenv.types import ImagePart

WORDS: Final[dict[str, dict[str, Any]]] = {
    "anthropic": {"role": "assistant", "content": [{"type": "text", "text": "next"}]},
    "responses": {"type": "function_call", "call_id": "x", "name": "f", "arguments": "{}"},
    "chat": {"role": "assistant", "content": "next"},
    "gemini 3": {"role": "model", "parts": [{"text": "next", "thoughtSignature": "c2ln"}]},
    "gemini 2.5": {"role": "model", "parts": [{"text": "next"}]},
    "bedrock": {"role": "assistant", "content": [{"text": "next"}]},
    "bedrock, images beside": {"role": "assistant", "content": [{"text": "next"}]},
}
KEYS: Final = {"gemini 3": "contents", "gemini 2.5": "contents", "responses": "input"}


def request(name: str, *turns: list[ImagePart]) -> dict[str, Any]:
    """Turns of a word of the model and a result with a text and images; messages 0 and 1, 2 and 3, and so on."""
    messages: list[dict[str, Any]] = []
    for number, shots in enumerate(turns):
        call = ToolCall(f"call_{number}", "file_read", {})
        messages += [WORDS[name], *WIRES[name].results([(call, result(f"turn {number}", *shots))])]
    return {"model": "any", KEYS.get(name, "messages"): messages}


def shots(*seeds: int) -> list[ImagePart]:
    """Images like no other, with handles."""
    return [image(encoded("PNG", (8, 8), seed=seed), handle=f"{HANDLE[:-2]}{seed:02d}") for seed in seeds]


def of_anthropic(status: int, message: str, **details: object) -> anthropic.APIStatusError:
    """The SDK's exception."""
    body: dict[str, Any] = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    if details:
        body["error"]["details"] = details
    response = httpx2.Response(status, json=body, request=httpx2.Request("POST", "https://example.org"))
    return anthropic.APIStatusError(f"Error code: {status} - {body}", response=response, body=body)


def of_openai(status: int, message: str, param: str | None = None, code: str | None = None) -> openai.APIStatusError:
    """The SDK's exception, which holds the inner object only."""
    body = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    response = httpx2.Response(status, json={"error": body}, request=httpx2.Request("POST", "https://example.org"))
    return openai.APIStatusError(f"Error code: {status} - {{'error': {body}}}", response=response, body=body)


def of_google(message: str) -> google.genai.errors.APIError:
    """The SDK's exception."""
    body = {"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}
    return google.genai.errors.ClientError(400, body)


def of_aws(message: str) -> botocore.exceptions.ClientError:
    """The SDK's exception."""
    return botocore.exceptions.ClientError(
        {
            "Error": {"Code": "ValidationException", "Message": message},
            "ResponseMetadata": {
                "HTTPStatusCode": 400,
                "HostId": "",
                "RequestId": "",
                "HTTPHeaders": {},
                "RetryAttempts": 0,
            },
        },
        "Converse",
    )


# Two turns of two images each; every error is of the first turn's second image.
EXACT: Final[dict[str, tuple[str, Any, str]]] = {
    "anthropic details": (
        "anthropic",
        of_anthropic(
            400,
            "Image dimensions exceed the limit.",
            error_code="image_dimensions_too_large",
            max_side_length_pixels=8000,
            paths=["messages.1.content.0.content.4"],
        ),
        "messages.1.content.0.content.4",
    ),
    "anthropics/claude-code#13381": (
        "anthropic",
        of_anthropic(
            400,
            "messages.1.content.0.tool_result.content.4.image.source.base64: image exceeds 5 MB maximum: 5404560 bytes "
            "> 5242880 bytes",
        ),
        "messages.1.content.0.content.4",
    ),
    "anthropics/claude-code#9375": (
        "anthropic",
        of_anthropic(
            400,
            "messages.1.content.0.tool_result.content.4.image.source.base64.data: At least one of the image dimensions "
            "exceed max allowed size for many-image requests: 2000 pixels",
        ),
        "messages.1.content.0.content.4",
    ),
    "openai responses": (
        "responses",
        of_openai(400, "The image data you provided does not represent a valid image.", "input[1].output[4].image_url"),
        "input.1.output.4",
    ),
    "openai responses, in the text": (
        "responses",
        {"error": {"message": "Invalid 'input[1].output[4].image_url'. Expected a base64-encoded data URL."}},
        "input.1.output.4",
    ),
    "openai chat": (
        "chat",
        of_openai(400, "Invalid image.", "messages.[2].content.[6].image_url", "invalid_image_format"),
        "messages.2.content.6",
    ),
    "musistudio/claude-code-router#845": (
        "gemini 2.5",
        of_google("Invalid value at 'contents[1].parts[7].inline_data.data' (TYPE_BYTES), Base64 decoding failed"),
        "contents.1.parts.7",
    ),
    "gemini, nested": (
        "gemini 3",
        of_google("Invalid value at 'contents[1].parts[0].function_response.parts[1].inline_data.data' (TYPE_BYTES)"),
        "contents.1.parts.0.functionResponse.parts.1",
    ),
    "NousResearch/hermes-agent#55429, counted from 1": (
        "bedrock",
        of_aws(
            "1 validation error detected: Value at 'messages.2.member.content.1.member.toolResult.content.5."
            "member.image.format' failed to satisfy constraint: Member must satisfy enum value set: [png, jpeg]"
        ),
        "messages.1.content.0.toolResult.content.4",
    ),
    "bedrock, in the words of the model": (
        "bedrock",
        of_aws(
            "The model returned the following errors: messages.1.content.0.tool_result.content.4.image.source.base64: "
            "Could not process image"
        ),
        "messages.1.content.0.toolResult.content.4",
    ),
}


@pytest.mark.parametrize("source", EXACT)
def test_the_image_that_an_error_names_goes_and_no_other(source: str) -> None:
    """By the vendor's own path, which each writes in its manner; a line with the handle stands for it."""
    name, error, path = EXACT[source]
    sent = request(name, shots(1, 2), shots(3, 4))
    before = copy.deepcopy(sent)
    lighter = strip_media(error, sent)
    assert lighter.removed == (path,)
    assert sent == before
    text = as_json(lighter.request)
    assert text.count("[image left out: the vendor refused it; image/png, ") == 1
    line = next(part for part in text.split("[") if part.startswith("image left out"))
    assert f"{HANDLE[:-2]}02]" in line
    key = KEYS.get(name, "messages")
    assert lighter.request[key][0] is sent[key][0]
    assert lighter.request["model"] == "any"


VAGUE: Final[dict[str, tuple[str, Any]]] = {
    "CosmosShadow/gptpdf#6": (
        "chat",
        of_openai(
            400,
            "You uploaded an unsupported image. Please make sure your image is below 20 MB in size and is of one the "
            "following formats: ['png', 'jpeg', 'gif', 'webp'].",
            code="sanitizer_server_error",
        ),
    ),
    "google-gemini/gemini-cli#5064": ("gemini 3", of_google("Unable to process input image. Please retry or report")),
    "google-gemini/gemini-cli#27244": ("gemini 2.5", of_google("Provided image is not valid.")),
    "anthropic, no place": ("anthropic", of_anthropic(400, "Could not process image")),
    "a path that is not in the request": (
        "anthropic",
        of_anthropic(400, "messages.90.content.2.image.source.base64: image exceeds 5 MB maximum"),
    ),
    "a place beyond the end": (
        "anthropic",
        of_anthropic(
            400, "messages.1.content.0.tool_result.content.77.image.source.base64: image exceeds 5 MB maximum"
        ),
    ),
    "a place in another vendor's words": ("chat", of_openai(400, "Invalid image.", "input[1].output[2].image_url")),
    "openai responses, a code": ("responses", {"error": {"code": "image_parse_error", "message": "Bad request."}}),
    "bedrock": ("bedrock", of_aws("The model returned the following errors: Could not process image")),
}


@pytest.mark.parametrize("source", VAGUE)
def test_an_error_that_names_no_place_takes_the_newest_turns_images(source: str) -> None:
    """What was sent before was accepted before."""
    name, error = VAGUE[source]
    lighter = strip_media(error, request(name, shots(1), shots(2, 3)))
    assert len(lighter.removed) == 2
    text = as_json(lighter.request)
    assert text.count("the vendor refused it") == 2
    older = strip_media(error, lighter.request)
    assert len(older.removed) == 1
    assert strip_media(error, older.request).removed == ()


BLIND: Final[dict[str, tuple[str, Any]]] = {
    "vllm-project/vllm#11629": (
        "chat",
        of_openai(
            400,
            "Invalid content type. image_url is only supported by certain models.",
            "messages.[0].content.[1].type",
        ),
    ),
    "can1357/oh-my-pi#11681": (
        "bedrock",
        of_aws("This model doesn't support the image field for user messages."),
    ),
    "openrouter": ("chat", of_openai(400, "No endpoints found that support image input")),
    "gemini": ("gemini 2.5", of_google("Image input modality is not enabled for models/any")),
}


@pytest.mark.parametrize("source", BLIND)
def test_a_model_without_eyes_loses_all_images(source: str) -> None:
    """None of them will ever be taken."""
    name, error = BLIND[source]
    lighter = strip_media(error, request(name, shots(1), shots(2, 3)))
    assert len(lighter.removed) == 3
    assert as_json(lighter.request).count("the model takes no images") == 3


@pytest.mark.parametrize(
    ("message", "gone"),
    [
        ("too many images and documents: 104 + 1 > 100", 5),
        ("Too much media: 0 document pages + 107 images > 100", 7),
    ],
)
def test_too_many_images_lose_the_oldest(message: str, gone: int) -> None:
    """As many as the error says (anthropics/claude-code#23392, #24541)."""
    lighter = strip_media(of_anthropic(400, message), request("anthropic", *(shots(seed) for seed in range(10))))
    assert [int(path.split(".")[1]) for path in lighter.removed] == [1 + 2 * number for number in range(gone)]


def test_a_request_too_large_loses_the_older_half() -> None:
    """By bytes; again and again until it fits or there is nothing left (earendil-works/pi#401)."""
    error = of_anthropic(413, "Request exceeds the maximum size")
    left = request("anthropic", *(shots(seed) for seed in range(8)))
    counts = []
    while (lighter := strip_media(error, left)).removed:
        counts.append(len(lighter.removed))
        left = lighter.request
    assert sum(counts) == 8
    assert counts[0] == 4
    assert len(counts) == 4


NOT_MEDIA: Final = {
    "a rate limit that speaks of images": of_openai(429, "Rate limit reached for images per minute"),
    "a server's fault": of_anthropic(500, "Could not process image"),
    "no right": of_anthropic(403, "image input is forbidden"),
    "another field": of_anthropic(400, "messages.1.content.0.tool_result.content.0.text: must not be blank"),
    "a tool": of_openai(400, "Invalid schema for function 'f'", "tools[0].parameters"),
    "gemini says nothing": of_google("Request contains an invalid argument."),
    "a context that is full": of_anthropic(400, "prompt is too long: 208310 tokens > 200000 maximum"),
    "nothing": "",
    "none": None,
    "a timeout": TimeoutError("timed out"),
    "a body with its status": {"error": {"code": 429, "message": "Quota exceeded for images", "status": "EXHAUSTED"}},
}


@pytest.mark.parametrize("what", NOT_MEDIA)
def test_an_error_about_something_else_strips_nothing(what: str) -> None:
    """The request comes back as it is, and to send it again makes no sense."""
    sent = request("anthropic", shots(1), shots(2))
    lighter = strip_media(NOT_MEDIA[what], sent)
    assert lighter.request is sent
    assert lighter.removed == ()


def test_a_request_without_images_strips_nothing() -> None:
    """Whatever the error says; an image of the model stays, so it does not count."""
    error = of_anthropic(413, "Request exceeds the maximum size")
    drawn = {"inlineData": {"mimeType": "image/png", "data": DOT64}, "thoughtSignature": "c2ln"}
    for sent in (
        {"messages": [{"role": "user", "content": "hello"}]},
        {"contents": [{"role": "model", "parts": [drawn]}]},
    ):
        assert strip_media(error, sent).request is sent


def test_the_list_of_messages_alone_will_do() -> None:
    """An error's path begins with `messages` all the same."""
    messages = request("anthropic", shots(1, 2))["messages"]
    error = of_anthropic(
        400, "messages.1.content.0.tool_result.content.2.image.source.base64: image exceeds 5 MB maximum"
    )
    assert strip_media(error, messages).removed == ("1.content.0.content.2",)


def test_a_hostile_error_is_read_within_bounds() -> None:
    """Depth, length and cycles of numbers: an error comes from the network."""
    deep: dict[str, object] = {}
    for _ in range(500):
        deep = {"error": deep, "paths": ["messages." + "9" * 40]}
    sent = request("anthropic", shots(1))
    assert strip_media({"message": "messages" + ".1" * 100_000, "deep": deep}, sent).removed == ()
    assert strip_media({"message": "image " * 100_000}, sent).removed == ("messages.1.content.0.content.2",)
