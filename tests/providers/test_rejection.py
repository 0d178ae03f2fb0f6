"""A vendor refused a request for its media: exactly what it refused goes, and the session lives on.

The texts of the errors are from public bug reports, and named for them; "like" one is a text of that form that names an
image too, or is cut.
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
    "anthropics/claude-code#6300, another place": (
        "anthropic",
        of_anthropic(
            400,
            "messages.90.content.0.image.source.base64.data: Image does not match the provided media type image/png",
        ),
    ),
    "anthropics/claude-code#3073, another place": (
        "anthropic",
        of_anthropic(
            400,
            "messages.208.content.0.tool_result.content.0.image.source.base64.media_type: Input should be "
            "'image/jpeg', 'image/png', 'image/gif' or 'image/webp'",
        ),
    ),
    "vybestack/llxprt-code#2130, no place": (
        "anthropic",
        of_anthropic(
            400,
            "The image was specified using the image/jpeg media type, but the image appears to be a image/png image",
        ),
    ),
    "anthropics/claude-code#4778, no place": (
        "anthropic",
        of_anthropic(400, "At least one of the image dimensions exceed max allowed size: 8000 pixels"),
    ),
    "ijwfly/chatgpt-tg#14": ("chat", of_openai(400, "Invalid image.")),
    "web-infra-dev/midscene#775": ("chat", of_openai(400, "Invalid image data.")),
    "acoyfellow/my-ax#89": (
        "responses",
        of_openai(
            400,
            "The image data you provided does not represent a valid image. Please check your input and try again with "
            "one of the supported image formats: ['image/jpeg', 'image/png', 'image/gif', 'image/webp'].",
        ),
    ),
    "riverscuomo/cuomputer#95, a timeout": (
        "chat",
        of_openai(400, "Timeout while downloading 20250503_162129.jpg.", code="invalid_image_url"),
    ),
    "riverscuomo/cuomputer#95, the size": (
        "chat",
        of_openai(
            400, "Failed to download image from IMG_9660.gif. Image size exceeds the limit.", code="invalid_image"
        ),
    ),
    "can1357/oh-my-pi#3421": (
        "responses",
        of_openai(400, "Invalid value: 'input_image'. Supported values are: 'input_text'."),
    ),
    "dreadnode/rigging#41": (
        "chat",
        of_openai(
            400,
            "Invalid 'messages[3]'. Image URLs are only allowed for messages with role 'user', but this message with "
            "role 'tool' contains an image URL.",
            "messages[3]",
            "invalid_value",
        ),
    ),
    "MobileLLM/ChainStream#43": (
        "chat",
        of_openai(400, "Your input image may contain content that is not allowed by our safety system."),
    ),
    "NousResearch/hermes-agent#69078": ("chat", of_openai(400, "Invalid PNG image")),
    "NousResearch/hermes-agent#69078, the base64": (
        "chat",
        of_openai(400, "base64 string of provided image cannot be decoded"),
    ),
    "anomalyco/opencode#35753": (
        "chat",
        {"errors": [{"message": "AiError: AiError: Invalid data for image - reason invalid base64 encoding"}]},
    ),
    "QwenLM/qwen-code#2505": (
        "chat",
        of_openai(
            400,
            "<400> InternalError.Algo.InvalidParameter: The image length and width do not meet the model restrictions. "
            "[height:1 or width:1 must be larger than 10]",
        ),
    ),
    "langgenius/dify#22790": (
        "chat",
        of_openai(
            400,
            "The request failed because the image format is not supported by the API. Request id: 0217531769",
            "image_url",
            "InvalidParameter.UnsupportedImageFormat",
        ),
    ),
    "boto/boto3#4415": (
        "bedrock",
        of_aws(
            "The model returned the following errors: The provided image does not match the specified image format."
        ),
    ),
    "musistudio/claude-code-router#845, another place": (
        "gemini 2.5",
        of_google("Invalid value at 'contents[9].parts[2].inline_data.data' (TYPE_BYTES), Base64 decoding failed"),
    ),
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
    "rikkahub/rikkahub#1433": (
        "chat",
        of_openai(
            400,
            "Failed to deserialize the JSON body into the target type: messages[1]: unknown variant `image_url`, "
            "expected `text` at line 1 column 679289",
        ),
    ),
    "zai-org/feedback#570": ("chat", of_openai(400, "Model do not support image input.")),
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


def test_a_server_that_takes_few_images_has_the_newest() -> None:
    """vllm-project/vllm#13513 says how many, not which."""
    error = {"object": "error", "message": "At most 1 image(s) may be provided in one request.", "code": 400}
    lighter = strip_media(error, request("chat", shots(1), shots(2)))
    assert lighter.removed == ("messages.2.content.3",)


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
    "a body with its status": {"error": {"code": 429, "message": "Bad image", "status": "EXHAUSTED"}},
    "a status that is a text": {"error": {"code": "429", "message": "Bad image", "status": "EXHAUSTED"}},
    "a status beside the error": {"error": "Bad image", "status": "503"},
    "like alasano/gpt-image-playground#29": of_openai(
        400, "Unknown parameter: 'tools[0].image_generation'.", "tools[0].image_generation", "unknown_parameter"
    ),
    "lastmile-ai/mcp-agent#200": of_openai(
        400,
        "Invalid schema for function 'convert_video_to_images': In context=('properties', 'resolution'), array schema "
        "missing items.",
        "tools[13].function.parameters",
        "invalid_function_parameters",
    ),
    "like lastmile-ai/mcp-agent#200": of_openai(
        400,
        "Invalid schema for function 'crop_image': In context=('properties', 'image'), schema must have a 'type' key.",
    ),
    "a tool's name": of_anthropic(
        400, "tools.3.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'; 'image tool' is invalid"
    ),
    "router-for-me/CLIProxyAPI#3036": of_openai(
        400, "Tool choice 'image_generation' not found in 'tools' parameter.", "tool_choice"
    ),
    "openai/codex#32208": of_openai(
        400,
        "Invalid Value: 'tools'. Function 'image_gen.imagegen' conflicts with a hosted tool in the same request.",
        "tools",
    ),
    "like BerriAI/litellm#16635": of_google(
        "* GenerateContentRequest.tools[0].function_declarations[0].name: Invalid function name. Must start with a "
        "letter or an underscore. The image tool is invalid."
    ),
    "anthropics/claude-code#66314": of_anthropic(
        400,
        "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or "
        "purchase credits.",
    ),
    "like anthropics/claude-code#66314": of_anthropic(
        400, "Your credit balance is too low to access the image model, so images cannot be read."
    ),
    "like dfinke/PowerShellAI#127": of_openai(
        400, "Billing hard limit has been reached for images: not allowed", code="billing_hard_limit_reached"
    ),
    "openai-php/client#565": of_openai(
        400,
        "Your organization must be verified to use the model `gpt-image-1`. Please go to: "
        "https://platform.openai.com/settings/organization/general and click on Verify Organization.",
    ),
    "router-for-me/CLIProxyAPI#3687": of_openai(400, "The model 'gpt-image-2' does not exist."),
    "a model for images": of_openai(400, "Unsupported value: 'temperature' does not work with gpt-image models."),
    "like google-gemini/gemini-cli#8437": (
        "429 RESOURCE_EXHAUSTED. {'error': {'message': 'You exceeded your current quota, please check your plan and "
        "billing details.', 'violations': [{'quotaDimensions': {'model': 'gemini-2.5-flash-preview-image'}}]}}"
    ),
    "a quota of images": {"message": "Cannot take more images: quota exceeded"},
    "too many requests": {"message": "Too many images in requests, throttled", "__type": "ThrottlingException"},
    "googleapis/js-genai#1322, its comment": of_google(
        "Invalid JSON payload received. Unknown name \"responseModalities\" at 'generation_config': Cannot find field."
    ),
    "an image that it cannot draw": of_google("Model does not support image generation"),
    "images that it cannot draw": of_google("Model does not support the requested response modalities: image,text"),
    "no endpoint with tools": of_openai(400, "No endpoints found that support tool use. Images are not supported."),
    "like netease-lcap/wave-agent#1368": of_anthropic(
        400, "messages.3: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_image"
    ),
    "a mark on an image": of_anthropic(
        400,
        "messages.1.content.0.tool_result.content.2.cache_control: A maximum of 4 blocks with cache_control may be "
        "provided. Found 5.",
    ),
    "a document": of_anthropic(
        400, "messages.1.content.0.document.source.base64.data: The PDF specified was not valid."
    ),
    "only the word": {"message": "image"},
}


@pytest.mark.parametrize("what", NOT_MEDIA)
def test_an_error_about_something_else_strips_nothing(what: str) -> None:
    """The request comes back as it is, and to send it again makes no sense."""
    sent = request("anthropic", shots(1), shots(2))
    sent["messages"][1]["content"][0]["content"][2]["cache_control"] = {"type": "ephemeral"}
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
    assert strip_media({"message": "image " * 10_000 + "is invalid"}, sent).removed == (
        "messages.1.content.0.content.2",
    )
