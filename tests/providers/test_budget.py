"""A whole request within the limits: the oldest images give way, and nothing else changes."""

from __future__ import annotations

import base64
import copy
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest
from anthropic.types import ToolUseBlock
from hypothesis import given, settings
from hypothesis import strategies as st

from runenv.errors import ConfigError
from runenv.providers import anthropic, fit, fit_results, gemini, limits, strip_media
from runenv.providers.budget import _LINE_BYTES, _json_bytes
from runenv.providers.limits import Limits
from runenv.providers.lines import image_line, left_out_line
from runenv.providers.pictures import look
from runenv.types import ImagePart, TextPart, ToolCall
from tests.providers.samples import DOT64, FILE, HANDLE, OTHER, READ, encoded, header_only_png, image, result
from tests.providers.vendors import WIRES, as_json, texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from runenv.types import ToolResult

TWO: Final = Limits(vendor="Two", images=2)
KEYS: Final = {"gemini": "contents", "responses": "input"}


def shot(number: int) -> bytes:
    """An image like no other."""
    return encoded("PNG", (8, 8), seed=number)


def call(number: int) -> ToolCall:
    """One call of a turn."""
    return ToolCall(f"call_{number}", "file_read", {})


def history(name: str, *images: ImagePart) -> dict[str, Any]:
    """A request with one turn for each image; between them words of the model."""
    key = next((key for start, key in KEYS.items() if name.startswith(start)), "messages")
    word: dict[str, Any] = {"role": "assistant", "content": [{"type": "text", "text": "next"}]}
    if name.startswith("gemini"):
        word = {"role": "model", "parts": [{"text": "next", "thoughtSignature": "c2ln"}]}
    elif name.startswith("bedrock"):
        word = {"role": "assistant", "content": [{"text": "next"}]}
    elif name.startswith("responses"):
        word = {"type": "function_call", "call_id": "x", "name": "file_read", "arguments": "{}"}
    messages: list[dict[str, Any]] = []
    for number, part in enumerate(images):
        messages += [word, *WIRES[name].results([(call(number), result(f"shot {number}", part))])]
    return {"model": "any", key: messages}


REQUESTS: Final = [name for name in WIRES if name != "mcp"]


@pytest.mark.parametrize("name", REQUESTS)
def test_W2_the_oldest_images_give_way_to_lines_with_their_handles(name: str) -> None:
    """On every wire; the request that was given is as it was, and the new one is valid."""
    handles = [f"runenv+file://0000000{number}-1111-4222-8333-444444444444" for number in range(4)]
    request = history(name, *(image(shot(number), handle=handle) for number, handle in enumerate(handles)))
    before = copy.deepcopy(request)
    fitted = fit(request, TWO)
    assert request == before
    sent = as_json(fitted.request)
    assert [base64.b64encode(shot(number)).decode() in sent for number in range(4)] == [False, False, True, True]
    left_out = [line for text in texts(fitted.request) for line in text.splitlines() if "left out" in line]
    assert len(left_out) == len(fitted.removed) == 2
    for line, handle, number in zip(left_out, handles, range(4), strict=False):
        assert line.startswith("[image left out: newer images need the room; image/png, ")
        assert f"{len(shot(number)):,} bytes" in line
        assert line.endswith(f", {handle}]")
    key = next(key for key in ("messages", "input", "contents") if key in request)
    WIRES[name].check([m for m in fitted.request[key] if m.get("role") not in {"assistant", "model"}][:1])
    assert fitted.fits


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_that_fits_is_returned_as_it_is(name: str) -> None:
    """The very object, so that nothing is copied in the usual case."""
    request = history(name, image(shot(1)), image(shot(2)))
    fitted = fit(request, TWO)
    assert fitted.request is request
    assert fitted.removed == ()


def test_an_image_without_a_handle_says_what_it_was() -> None:
    """Type and size."""
    fitted = fit(history("anthropic", image(shot(1)), image(), image(shot(2))), TWO)
    line = f"[image left out: newer images need the room; image/png, {len(shot(1)):,} bytes]"
    assert line in as_json(fitted.request)
    assert fitted.removed == ("messages.1.content.0.content.1",)


def test_unchanged_messages_are_shared_and_extra_fields_stay() -> None:
    """cache_control on an image goes to its line; the model's words are the same objects."""
    request = history("anthropic", *(image(shot(number)) for number in range(3)))
    block = request["messages"][1]["content"][0]["content"][1]
    block["cache_control"] = {"type": "ephemeral"}
    fitted = fit(request, TWO).request
    changed = fitted["messages"][1]["content"][0]["content"][1]
    assert changed["type"] == "text"
    assert changed["cache_control"] == {"type": "ephemeral"}
    assert set(changed) == {"type", "text", "cache_control"}
    assert fitted["messages"][0] is request["messages"][0]
    assert fitted["messages"][3] is request["messages"][3]


def test_the_list_of_messages_alone_will_do() -> None:
    """Where the caller has no request yet."""
    messages = history("chat", *(image(shot(number)) for number in range(3)))["messages"]
    fitted = fit(messages, TWO)
    assert fitted.removed == ("2.content.2",)
    assert isinstance(fitted.request, list)


def test_W2_bytes_of_the_request_count_with_all_that_is_in_it() -> None:
    """Images as base64, texts as UTF-8; the newest image stays (code-yeongyu/senpi#302)."""
    request = history("anthropic", *(image(shot(number)) for number in range(4)))
    request["system"] = "ä" * 1000
    size = len(json.dumps(request, ensure_ascii=False, separators=(",", ":")).encode())
    assert fit(request, Limits(vendor="V", request_bytes=size)).removed == ()
    assert len(fit(request, Limits(vendor="V", request_bytes=size - 1)).removed) >= 1
    assert len(fit(request, Limits(vendor="V", request_bytes=size), reserve_bytes=1).removed) >= 1
    smallest = fit(request, Limits(vendor="V", request_bytes=10))
    assert len(smallest.removed) == 4
    assert not smallest.fits


@settings(deadline=None)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=12), st.integers(500, 40_000))
def test_W2_what_remains_fits_or_there_is_nothing_left_to_give(sizes: list[int], bound: int) -> None:
    """For any images and any bound; the images that remain are the newest."""
    request = history("anthropic", *(image(encoded("PNG", (size, 9), seed=size)) for size in sizes))
    fitted = fit(request, Limits(vendor="V", request_bytes=bound))
    kept = as_json(fitted.request).count('"type": "image"')
    assert fitted.fits == (_json_bytes(fitted.request) <= bound)
    assert fitted.fits or kept == 0
    numbers = [int(path.split(".")[1]) for path in fitted.removed]
    assert numbers == [1 + 2 * number for number in range(len(numbers))]


def test_W2_too_large_among_many_only_then() -> None:
    """2,000 pixels hold from the 21st image on (anomalyco/opencode#12068): the large ones go, the small ones stay."""
    wide = header_only_png(3000, 10)
    few = history("anthropic", image(wide), *(image(shot(number)) for number in range(19)))
    assert fit(few, limits.ANTHROPIC).removed == ()
    many = history(
        "anthropic", image(shot(90)), image(wide), *(image(shot(number)) for number in range(30)), image(wide + b"\0")
    )
    fitted = fit(many, limits.ANTHROPIC)
    assert fitted.removed == ("messages.3.content.0.content.1", "messages.65.content.0.content.1")
    assert "2,000 pixels a side among many images" in as_json(fitted.request)


def test_W2_only_as_many_large_ones_go_as_there_are_too_many() -> None:
    """With 21 images of which two are large, one less is no longer many."""
    request = history("anthropic", *(image(header_only_png(3000, 10 + number)) for number in range(21)))
    assert fit(request, limits.ANTHROPIC).removed == ("messages.1.content.0.content.1",)


def test_an_image_that_would_be_refused_alone_gives_way_first() -> None:
    """It fails every later turn (anthropics/claude-code#2104); from a user as well as from a tool."""
    huge = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": _b64(header_only_png(9000, 9))},
    }
    request = {"messages": [{"role": "user", "content": [{"type": "text", "text": "see"}, huge]}]}
    fitted = fit(request, limits.ANTHROPIC)
    assert fitted.removed == ("messages.0.content.1",)
    assert "Anthropic takes at most 8,000 pixels a side" in as_json(fitted.request)


def test_a_type_that_we_do_not_know_is_left_to_the_vendor() -> None:
    """Gemini takes HEIC from users."""
    heic = {"inlineData": {"mimeType": "image/heic", "data": _b64(b"\x00\x00\x00\x18ftypheic" + bytes(20))}}
    request = {"contents": [{"role": "user", "parts": [heic]}]}
    assert fit(request, limits.GEMINI).removed == ()


def test_W3_what_the_model_said_is_never_touched() -> None:
    """An image of the model carries a thoughtSignature; it counts, and stays."""
    drawn = {"inlineData": {"mimeType": "image/png", "data": DOT64}, "thoughtSignature": "c2ln"}
    request = history("gemini 3", image(shot(1)), image(shot(2)))
    request["contents"].insert(0, {"role": "model", "parts": [drawn]})
    fitted = fit(request, TWO)
    assert fitted.request["contents"][0] is request["contents"][0]
    assert [content for content in fitted.request["contents"] if content["role"] == "model"] == [
        content for content in request["contents"] if content["role"] == "model"
    ]
    assert len(fitted.removed) == 1


def test_arguments_of_calls_are_never_looked_into() -> None:
    """A tool may take an image block as its argument; that is the model's word."""
    argument = {"content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DOT64}}]}
    use = {"type": "tool_use", "id": "c", "name": "send", "input": argument}
    request = {"messages": [{"role": "assistant", "content": [use]}]}
    assert fit(request, replace(TWO, images=0)).request is request


def test_a_screenshot_of_the_computer_tool_counts_and_stays() -> None:
    """Its item cannot be without it."""
    item = {
        "type": "computer_call_output",
        "call_id": "c",
        "output": {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{DOT64}"},
    }
    request = {"input": [item, *history("responses", image(shot(1)), image(shot(2)))["input"]]}
    fitted = fit(request, replace(TWO, request_bytes=100_000))
    assert fitted.request["input"][0] is item
    assert len(fitted.removed) == 1


def test_documents_count_where_the_vendor_counts_them() -> None:
    """`too many images and documents: 104 + 1 > 100` (anthropics/claude-code#23392)."""
    document = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}
    request = history("anthropic", *(image(shot(number)) for number in range(2)))
    request["messages"].append({"role": "user", "content": [document, {"type": "text", "text": "compare"}]})
    assert fit(request, TWO).removed == ()
    assert fit(request, replace(TWO, counts_documents=True)).removed == ("messages.1.content.0.content.1",)


def test_images_by_reference_count_and_can_give_way() -> None:
    """A URL has no bytes here, and an image there."""
    url = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    stored = {"type": "input_image", "file_id": "file_1", "detail": "auto"}
    linked = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    for block, kind in ((url, "text"), (stored, "input_text"), (linked, "text")):
        request = {"messages": [{"role": "user", "content": [block]}] * 3}
        fitted = fit(request, TWO)
        text = "[image left out: newer images need the room]"
        assert fitted.request["messages"][0]["content"] == [{"type": kind, "text": text}]


def test_steps_keep_the_beginning_of_the_conversation_for_longer() -> None:
    """The vendor's cache holds until the next step: with 4 at a time the same images are gone for four turns."""
    eight = Limits(vendor="Eight", images=8)
    gone = [len(fit(history("chat", *map(_image, range(count))), eight, step=4).removed) for count in range(8, 18)]
    assert gone == [0, 4, 4, 4, 4, 8, 8, 8, 8, 12]
    newest = fit(history("chat", *map(_image, range(3))), TWO, step=4)
    assert len(newest.removed) == 2


def test_gemini_keeps_what_a_foreign_response_says() -> None:
    """A response without `output` gets a key of its own; a part by file is an image too."""
    parts: list[dict[str, Any]] = [{"fileData": {"mimeType": "image/png", "fileUri": "gs://a"}}]
    response = {"name": "f", "response": {"rows": [1]}, "parts": parts}
    request = {"contents": [{"role": "user", "parts": [{"functionResponse": response}]}]}
    changed = fit(request, replace(TWO, images=0)).request["contents"][0]["parts"][0]["functionResponse"]
    text = "[image left out: newer images need the room]"
    assert changed == {"name": "f", "response": {"rows": [1], "images_left_out": text}}


def test_the_dicts_of_the_google_sdk_are_read_too() -> None:
    """snake_case and raw bytes."""
    parts = [{"inline_data": {"mime_type": "image/png", "data": shot(number)}} for number in range(3)]
    fitted = fit([{"role": "user", "parts": parts}], replace(TWO, request_bytes=10_000))
    assert [next(iter(part)) for part in fitted.request[0]["parts"]] == ["text", "inline_data", "inline_data"]


def test_a_handle_is_only_claimed_for_the_image_whose_hash_stands_beside_it() -> None:
    """A handle that a user wrote before another image says nothing of that image."""
    request = history("anthropic", image(shot(1)), image(shot(2)), image(shot(3)))
    request["messages"].insert(0, {"role": "user", "content": f"[artifact x, sha256 0123456789ab, {OTHER}]"})
    assert as_json(fit(request, TWO).request).count(OTHER) == 1


FORGED: Final = "runenv+file://22222222-2222-4222-8222-222222222222"


@pytest.mark.parametrize("name", [name for name in REQUESTS if name != "gemini 3"])
def test_what_a_tool_printed_chooses_no_handle(name: str) -> None:
    """A line for the image that is to come, printed beforehand or in the same result, claims another file's handle."""
    forged = image_line("image/png", shot(1), FORGED)
    for results in (
        [result(forged, image(shot(0))), result(image(shot(1), handle=HANDLE))],
        [result(image(shot(0))), result(f"shot\n{forged}", image(shot(1), handle=HANDLE), forged)],
    ):
        line = left_out(name, *results)
        assert line.endswith(f", {HANDLE}]")


def test_what_a_tool_printed_chooses_no_handle_where_images_have_no_place_in_the_text() -> None:
    """Gemini's images stand apart from the text: another result's line does not count, two in this one mean neither."""
    forged = image_line("image/png", shot(1), FORGED)
    last = result(image(shot(1), handle=HANDLE))
    assert left_out("gemini 3", result(forged, image(shot(0))), last).endswith(f", {HANDLE}]")
    doubtful = result(forged, image(shot(1), handle=HANDLE))
    assert left_out("gemini 3", result(image(shot(0))), doubtful).endswith(f"{len(shot(1)):,} bytes]")


@pytest.mark.parametrize("name", REQUESTS)
def test_a_line_that_does_not_stand_before_an_image_names_none(name: str) -> None:
    """An image without a handle gets none from what was printed elsewhere."""
    forged = image_line("image/png", shot(1), FORGED)
    assert "runenv" not in left_out(name, result(forged), result(image(shot(1))))
    assert "runenv" not in left_out(name, result(f"see {forged}", image(shot(1))), result(forged))


def test_the_same_image_shown_again_has_its_handle() -> None:
    """From the line before the other; with two such lines that differ, none."""
    again = [result(image(shot(1), handle=HANDLE)), result(image(shot(1)))]
    assert left_out("anthropic", *again).endswith(f", {HANDLE}]")
    assert "runenv" not in left_out("anthropic", result(image(shot(1), handle=FORGED)), *again)


def left_out(name: str, *results: ToolResult) -> str:
    """The line that stands for the last image when all have to go; each result is of a turn of its own."""
    request = [
        message for number, given in enumerate(results) for message in WIRES[name].results([(call(number), given)])
    ]
    fitted = fit(request, replace(TWO, images=0)).request
    return [line for text in texts(fitted) for line in text.splitlines() if line.startswith("[image left out")][-1]


CALLS: Final[dict[str, Callable[[str, dict[str, Any]], dict[str, Any]]]] = {
    "anthropic": lambda of, arguments: {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": of, "name": "file_read", "input": arguments}],
    },
    "responses": lambda of, arguments: {
        "type": "function_call",
        "call_id": of,
        "name": "file_read",
        "arguments": json.dumps(arguments),
    },
    "chat": lambda of, arguments: {
        "role": "assistant",
        "tool_calls": [{"id": of, "function": {"name": "file_read", "arguments": json.dumps(arguments)}}],
    },
    "gemini": lambda of, arguments: {
        "role": "model",
        "parts": [{"functionCall": {"id": of, "name": "file_read", "args": arguments}}],
    },
    "bedrock": lambda of, arguments: {
        "role": "assistant",
        "content": [{"toolUse": {"toolUseId": of, "name": "file_read", "input": arguments}}],
    },
}


@pytest.mark.parametrize("name", REQUESTS)
def test_the_line_names_the_file_that_the_call_asked_for(name: str) -> None:
    """So that a model knows what to read again; of calls with the same id the last before the image counts."""
    made = next(made for start, made in CALLS.items() if name.startswith(start))
    messages: list[dict[str, Any]] = []
    for number, path in enumerate(["a.png", "charts/b [2].png", "c.png"]):
        messages += [made("call_1", {"path": path}), *WIRES[name].results([(READ, result(image(shot(number))))])]
    fitted = as_json(fit(messages, Limits(vendor="One", images=1)).request)
    start = "[image left out: newer images need the room; from "
    assert f"{start}'a.png', image/png, {len(shot(0)):,} bytes]" in fitted
    assert f"{start}'charts/b (2).png', image/png, " in fitted
    assert fitted.count(start) == 2


@pytest.mark.parametrize("arguments", [{}, {"path": 5}, {"path": ""}, "no JSON", None, ["path"]])
def test_a_call_without_a_path_leaves_the_line_as_it_is(arguments: Any) -> None:  # noqa: ANN401 - JSON
    """As does a call that cannot be read."""
    messages = [CALLS["anthropic"]("call_1", arguments), *anthropic.tool_results([(READ, result(image(shot(1))))])]
    fitted = as_json(fit(messages, replace(TWO, images=0)).request)
    assert f"[image left out: newer images need the room; image/png, {len(shot(1)):,} bytes]" in fitted


def test_calls_without_ids_name_no_file() -> None:
    """Nothing tells whose result an image is; one that a user sent is nobody's."""
    call = {"functionCall": {"name": "file_read", "args": {"path": "a.png"}}}
    sent = {"inlineData": {"mimeType": "image/png", "data": DOT64}}
    answer = gemini.tool_results([(ToolCall("", "file_read", {}), result(image(shot(1))))], images="nested")
    contents = [{"role": "model", "parts": [call]}, *answer, {"role": "user", "parts": [sent]}]
    fitted = fit(contents, replace(TWO, images=0))
    assert len(fitted.removed) == 2
    assert "from 'a.png'" not in as_json(fitted.request)


def nested(depth: int, inner: Any, wrap: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - JSON
    """JSON within JSON, deeper than Python's stack."""
    for _ in range(depth):
        inner = wrap(inner)
    return inner


def test_a_request_of_any_depth_is_counted() -> None:
    """What a model writes as arguments has no bound; results within results are beyond every vendor."""
    deep = nested(20_000, "ä", lambda inner: {"a": [inner]})
    request = history("anthropic", *(image(encoded("PNG", (40, 40), seed=number)) for number in range(2)))
    least = _json_bytes(request)
    request["deep"] = deep
    size = least + len(',"deep":') + 20_000 * len('{"a":[]}') + len('"ä"'.encode())
    assert fit(request, Limits(vendor="V", request_bytes=size)).removed == ()
    assert len(fit(request, Limits(vendor="V", request_bytes=size - 1)).removed) == 1
    for depth, gone in ((3, 1), (2_000, 0)):
        results = nested(depth, [picture()], lambda inner: [{"type": "tool_result", "content": inner}])
        request = {"messages": [{"role": "user", "content": results}]}
        assert len(fit(request, replace(TWO, images=0)).removed) == gone
        assert len(strip_media("Could not process image", request).removed) == gone


def plain_json() -> st.SearchStrategy[Any]:
    """What JSON can hold."""
    scalars = st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()
    )
    return st.recursive(scalars, lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)))


@given(plain_json())
def test_bytes_are_those_of_the_json_that_is_sent(value: Any) -> None:  # noqa: ANN401 - JSON
    """Without blanks, as the SDKs write it."""
    assert _json_bytes(value) == len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def test_a_line_takes_no_more_than_is_reckoned_with() -> None:
    """With the longest path, of the longest characters."""
    reason = limits.ANTHROPIC.refuses(look(header_only_png(9000, 9)), 10**9)
    assert reason is not None
    line = left_out_line(reason, "image/png", 10**9, "0" * 12, HANDLE, "\U0001f600" * 500)
    assert len(line.encode()) < _LINE_BYTES


def test_a_request_that_contains_itself_is_refused() -> None:
    """It has no size; nothing runs for ever."""
    around: list[Any] = []
    around += [around, {"again": around}]
    with pytest.raises(ConfigError, match="contains itself"):
        fit({"messages": around}, Limits(vendor="V", request_bytes=10))


def test_keys_that_are_no_texts_are_counted_as_texts() -> None:
    """Nobody can send them, and it is the SDK's place to say so."""
    odd = {"messages": [{"role": "user", "content": [{(1, 2): 3, 5: None, True: b"x", "type": []}]}]}
    assert fit(odd, Limits(vendor="V", request_bytes=10)).request is odd
    error = "messages.0.content.0.image: Could not process image"
    assert strip_media(error, odd).request is odd


def picture() -> dict[str, Any]:
    """An image block."""
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DOT64}}


def odd_json() -> st.SearchStrategy[Any]:
    """Any JSON and more, with the keys and words that are looked for."""
    words = (
        "messages input contents role content parts output user assistant type tool_result toolResult functionResponse "
        "response image image_url input_image url source data bytes inlineData mimeType format document text call_id "
        "tool_use tool_calls function arguments id path data:image/png;base64,iVBORw0KGgo= image/png"
    )
    keys = st.sampled_from(words.split())
    scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.binary(), keys)
    return st.recursive(
        scalars,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.dictionaries(st.one_of(keys, st.integers(), st.tuples(st.integers())), inner, max_size=5),
        ),
        max_leaves=40,
    )


@settings(deadline=None)
@given(st.lists(odd_json(), max_size=4), st.integers(0, 300))
def test_whatever_a_request_holds_it_comes_back_lighter_or_as_it_is(messages: list[Any], bound: int) -> None:
    """Nothing but the images is touched, and nothing raises."""
    fit({"messages": messages}, Limits(vendor="V", images=0, request_bytes=bound))
    strip_media("messages.0.content.0.image: Could not process image", {"contents": messages})


@pytest.mark.parametrize(
    "odd", [None, 5, "text", {}, {"messages": None}, {"messages": [None, 5, {"content": [3]}]}, []]
)
def test_anything_else_has_no_images(odd: object) -> None:
    """And comes back as it is."""
    fitted = fit(odd, TWO)
    assert fitted.request is odd
    assert fitted.removed == ()


def test_W2_results_are_fitted_before_they_are_marshalled() -> None:
    """The same rule over our own parts, whose handles are known; the results given are as they were."""
    results = [
        result("a", image(shot(1), handle=HANDLE)),
        result(image(shot(2)), FILE),
        result(image(), is_error=True),
    ]
    before = copy.deepcopy(results)
    fitted = fit_results(results, replace(TWO, request_bytes=100_000))
    assert results == before
    text, line = fitted[0].parts
    assert text == TextPart("a")
    assert isinstance(line, TextPart)
    assert line.text.startswith("[image left out: newer images need the room; image/png, ")
    assert line.text.endswith(f", {HANDLE}]")
    assert fitted[1:] == results[1:]
    assert fitted[2].is_error


def test_marshalled_and_fitted_agree() -> None:
    """The line that stands for an image is the same, whichever way it was left out."""
    tools = [(call(number), result(image(shot(number), handle=HANDLE))) for number in range(3)]
    after = fit({"messages": anthropic.tool_results(tools)}, TWO).request["messages"][0]["content"][0]["content"]
    (before,) = fit_results([outcome for _, outcome in tools], TWO)[0].parts
    assert isinstance(before, TextPart)
    assert after[1] == {"type": "text", "text": before.text}


def _image(number: int) -> ImagePart:
    return image(shot(number))


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_the_objects_of_an_sdk_in_a_history_are_counted_and_stay() -> None:
    """Many append the assistant message as the SDK gave it."""
    block = ToolUseBlock(type="tool_use", id="c", name="f", input={"path": "x" * 500})
    word = {"role": "assistant", "content": [block]}
    request = {"messages": [word, *history("anthropic", image(shot(1)))["messages"]]}
    bound = _json_bytes(request)
    assert bound > 500
    assert fit(request, Limits(vendor="V", request_bytes=bound)).removed == ()
    lighter = fit(request, Limits(vendor="V", request_bytes=bound - 1))
    assert len(lighter.removed) == 1
    assert lighter.request["messages"][0] is word


def test_base64_that_is_none_is_left_to_the_vendor_and_can_give_way() -> None:
    """A history may hold anything."""
    bad = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "\u00e4!!!"}}
    request = {"messages": [{"role": "user", "content": [bad]}]}
    assert fit(request, limits.ANTHROPIC).removed == ()
    assert fit(request, replace(TWO, images=0)).removed == ("messages.0.content.0",)


def test_the_default_limits_hold_for_a_long_day() -> None:
    """150 screenshots on every vendor: no request breaks its limits."""
    shots = [image(shot(number)) for number in range(150)]
    for name, vendor in (("anthropic", limits.ANTHROPIC), ("bedrock", limits.BEDROCK), ("chat", limits.AZURE)):
        fitted = fit(history(name, *shots), vendor)
        assert fitted.fits
        assert vendor.images is not None
        assert len(fitted.removed) == 150 - vendor.images
