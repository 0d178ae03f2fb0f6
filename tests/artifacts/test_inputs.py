"""Blobs in incoming messages: saved, named in their place in each vendor's form; the message is never touched."""

from __future__ import annotations

import base64
import copy
import json
import re
from typing import TYPE_CHECKING, Any, Final

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from runenv.artifacts.artifact import Scope
from runenv.artifacts.handles import parse, placeholder
from runenv.artifacts.inputs import save_inputs
from runenv.artifacts.inputs.decoding import decode
from runenv.artifacts.store import ArtifactStore
from runenv.errors import ArtifactError, LimitError, StoreError
from runenv.types import FilePart, ImagePart, TextPart, ToolResult

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from runenv.artifacts.artifact import Record
    from runenv.testing.contract.store import Place

pytestmark = pytest.mark.anyio

SCOPE: Final = "run-1"
PNG: Final = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4
PDF: Final = b"%PDF-1.7\n" + bytes(range(256)) * 4
WAV: Final = b"RIFF\x00\x00\x00\x00WAVEfmt " + bytes(range(256))
B64: Final = {name: base64.b64encode(data).decode() for name, data in [("png", PNG), ("pdf", PDF), ("wav", WAV)]}
URI: Final = f"data:image/png;base64,{B64['png']}"
PDF_URI: Final = f"data:application/pdf;base64,{B64['pdf']}"
TEXT: Final = {"type": "text", "text": "What is this?"}


@pytest.fixture
async def store(anywhere: Place) -> AsyncIterator[ArtifactStore]:
    """A store of each kind."""
    async with ArtifactStore.open(anywhere.url, options=anywhere.options) as opened:
        yield opened


async def kept(store: ArtifactStore) -> list[Record]:
    """Everything that is stored."""
    return [record async for record in store.list(SCOPE)]


ANTHROPIC_IMAGE: Final = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": B64["png"]},
    "cache_control": {"type": "ephemeral"},
}
ANTHROPIC_PDF: Final = {
    "type": "document",
    "source": {"type": "base64", "media_type": "application/pdf", "data": B64["pdf"]},
    "title": "The plan",
    "citations": {"enabled": True},
}
GEMINI_RESPONSE: Final = {
    "name": "shot",
    "response": {"output": "done"},
    "parts": [{"inlineData": {"mimeType": "image/png", "data": B64["png"]}}],
}

# What comes in, and what goes on with P for the placeholder; [data] of what is saved.
FORMS: Final[dict[str, tuple[Any, Any, list[bytes]]]] = {
    "anthropic image": (
        {"role": "user", "content": [TEXT, ANTHROPIC_IMAGE]},
        {"role": "user", "content": [TEXT, {"type": "text", "text": "P", "cache_control": {"type": "ephemeral"}}]},
        [PNG],
    ),
    "anthropic document": (
        {"role": "user", "content": [{**ANTHROPIC_PDF, "context": "Draft 3."}]},
        {"role": "user", "content": [{"type": "text", "text": "P\nDraft 3."}]},
        [PDF],
    ),
    "anthropic tool result": (
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t", "is_error": True, "content": [ANTHROPIC_PDF, TEXT]}
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t",
                    "is_error": True,
                    "content": [{"type": "text", "text": "P"}, TEXT],
                }
            ],
        },
        [PDF],
    ),
    "anthropic document of blocks": (
        {"type": "document", "source": {"type": "content", "content": [TEXT, ANTHROPIC_PDF]}},
        {"type": "document", "source": {"type": "content", "content": [TEXT, {"type": "text", "text": "P"}]}},
        [PDF],
    ),
    "openai responses": (
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "look"},
                {"type": "input_image", "image_url": URI, "detail": "high"},
                {"type": "input_file", "filename": "plan.pdf", "file_data": PDF_URI},
                {"type": "input_audio", "input_audio": {"data": B64["wav"], "format": "wav"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "look"},
                {"type": "input_text", "text": "P"},
                {"type": "input_text", "text": "P"},
                {"type": "input_text", "text": "P"},
            ],
        },
        [PNG, PDF, WAV],
    ),
    "openai function output": (
        [{"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "image_url": URI}]}],
        [{"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "P"}]}],
        [PNG],
    ),
    "openai chat": (
        {
            "role": "user",
            "name": "ann",
            "content": [
                TEXT,
                {"type": "image_url", "image_url": {"url": URI, "detail": "low"}},
                {"type": "file", "file": {"file_data": PDF_URI, "filename": "plan.pdf"}},
                {"type": "input_audio", "input_audio": {"data": B64["wav"], "format": "wav"}},
            ],
        },
        {"role": "user", "name": "ann", "content": [TEXT, *[{"type": "text", "text": "P"}] * 3]},
        [PNG, PDF, WAV],
    ),
    "gemini": (
        {
            "role": "user",
            "parts": [
                {"text": "look"},
                {"inlineData": {"mimeType": "image/png", "data": B64["png"]}, "thoughtSignature": "c2ln"},
                {"inline_data": {"mime_type": "application/pdf", "data": PDF, "display_name": "plan.pdf"}},
            ],
        },
        {"role": "user", "parts": [{"text": "look"}, {"text": "P", "thoughtSignature": "c2ln"}, {"text": "P"}]},
        [PNG, PDF],
    ),
    "gemini function response": (
        {"role": "user", "parts": [{"functionResponse": GEMINI_RESPONSE}]},
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "shot", "response": {"output": "done", "artifacts": ["P"]}}}],
        },
        [PNG],
    ),
    "bedrock": (
        {
            "role": "user",
            "content": [
                {"document": {"name": "plan", "format": "pdf", "source": {"bytes": PDF}}},
                {"toolResult": {"toolUseId": "t", "content": [{"image": {"format": "png", "source": {"bytes": PNG}}}]}},
            ],
        },
        {"role": "user", "content": [{"text": "P"}, {"toolResult": {"toolUseId": "t", "content": [{"text": "P"}]}}]},
        [PDF, PNG],
    ),
    "mcp": (
        {
            "isError": False,
            "content": [
                {"type": "image", "data": B64["png"], "mimeType": "image/png", "_meta": {"a": 1}},
                {"type": "audio", "data": B64["wav"], "mimeType": "audio/wav"},
                {
                    "type": "resource",
                    "resource": {"uri": "file:///a/plan.pdf", "mimeType": "application/pdf", "blob": B64["pdf"]},
                },
            ],
        },
        {
            "isError": False,
            "content": [{"type": "text", "text": "P", "_meta": {"a": 1}}, *[{"type": "text", "text": "P"}] * 2],
        },
        [PNG, WAV, PDF],
    ),
    "mcp sampling": (
        {"role": "user", "content": {"type": "image", "data": B64["png"], "mimeType": "image/png"}},
        {"role": "user", "content": {"type": "text", "text": "P"}},
        [PNG],
    ),
    "neutral blocks": (
        [TEXT, {"type": "image", "data": PNG, "media_type": "image/png"}, {"data": bytearray(PDF)}],
        [TEXT, {"type": "text", "text": "P"}, {"type": "text", "text": "P"}],
        [PNG, PDF],
    ),
}
UNTOUCHED: Final[dict[str, Any]] = {
    "text": {"role": "user", "content": f"look: {URI}"},
    "text block": {"role": "user", "content": [{"type": "text", "text": URI}]},
    "anthropic url": {"content": [{"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}]},
    "anthropic file": {"content": [{"type": "document", "source": {"type": "file", "file_id": "file_1"}}]},
    "anthropic text": {"content": [{"type": "document", "source": {"type": "text", "data": "abcd"}}]},
    "openai url": {"content": [{"type": "input_image", "image_url": "https://example.org/a.png"}]},
    "openai file": {"content": [{"type": "input_file", "file_id": "file_1"}]},
    "chat url": {"content": [{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]},
    "gemini file": {"parts": [{"fileData": {"mimeType": "image/png", "fileUri": "gs://b/a.png"}}]},
    "mcp link": {"content": [{"type": "resource_link", "uri": "file:///a", "name": "a"}]},
    "mcp text": {"content": [{"type": "resource", "resource": {"uri": "file:///a", "text": "abcd"}}]},
    "arguments": {"content": [{"type": "tool_use", "id": "t", "name": "up", "input": {"content": [ANTHROPIC_IMAGE]}}]},
    "gemini arguments": {"parts": [{"functionCall": {"name": "up", "args": {"content": [ANTHROPIC_IMAGE]}}}]},
    "an artifact": [ImagePart(PNG, "image/png", handle="runenv+file://00000000-0000-4000-8000-000000000000")],
    "any data": {"content": [{"data": "abcd"}, {"type": "reasoning", "data": "abcd"}, None, 7, "x"]},
    "nothing": {"role": "user", "content": None},
    "no message": [],
}


def marked(value: Any, records: list[Record]) -> Any:  # noqa: ANN401
    """A new message with every placeholder as P."""
    text = json.dumps(value)
    for record in records:
        text = text.replace(json.dumps(placeholder(record))[1:-1], "P")
    return json.loads(text)


@pytest.mark.parametrize("form", FORMS)
async def test_P5_blobs_become_placeholders_in_every_form(store: ArtifactStore, form: str) -> None:
    """Bytes are saved exactly, a text block of the same vendor names each, and the caller's message is as it was."""
    message, expected, contents = FORMS[form]
    before = copy.deepcopy(message)
    new, records = await save_inputs(message, store, scope=SCOPE)
    assert message == before
    assert marked(new, records) == expected
    assert [await store.get(record.handle, scope=SCOPE) for record in records] == contents
    assert not re.search(r"[A-Za-z0-9+/]{40}", re.sub("[0-9a-f-]{36}", "", json.dumps(new)))


@pytest.mark.parametrize("form", UNTOUCHED)
async def test_P5_what_is_no_blob_stays(store: ArtifactStore, form: str) -> None:
    """References, texts, arguments of calls, artifacts: the very same message comes back."""
    message = UNTOUCHED[form]
    new, records = await save_inputs(message, store, scope=SCOPE)
    assert new is message
    assert records == []
    assert await kept(store) == []


async def test_neutral_parts_become_file_parts(store: ArtifactStore) -> None:
    """An image by itself, or in the result of a tool, whose flag stays."""
    result = ToolResult((TextPart("shot"), ImagePart(PNG, "image/png")), is_error=True)
    parts: tuple[object, ...] = (result, ImagePart(PNG, "image/png"))
    (new, part), (record, same) = await save_inputs(parts, store, scope=SCOPE)
    file = FilePart(record.handle, record.name, "image/png", len(PNG), record.sha256)
    assert same == record
    assert part == file
    assert new == ToolResult((TextPart("shot"), file), is_error=True)


async def test_names_come_from_the_message_or_are_made(store: ArtifactStore) -> None:
    """With an extension by what the bytes are; a prefix names those of one call."""
    message = FORMS["openai responses"][0]
    await save_inputs(message, store, scope=SCOPE, prefix="upload_7")
    _, records = await save_inputs(message, store, scope=SCOPE, prefix="upload_7")
    assert [record.name for record in records] == ["upload_7_1.png", "plan.pdf", "upload_7_3.wav"]
    assert [record.version for record in records] == [1, 1, 1]
    _, (record,) = await save_inputs(ANTHROPIC_PDF, store, scope=SCOPE)
    assert record.name == "The plan.pdf"
    _, (record,) = await save_inputs(ANTHROPIC_IMAGE, store, scope=SCOPE)
    assert re.fullmatch(r"input_[0-9a-f]{8}_1\.png", record.name)


@pytest.mark.parametrize(
    ("given_name", "kept_name"),
    [
        ("../../etc/passwd.pdf", "passwd.pdf"),
        ("C:\\docs\\plan.pdf", "plan.pdf"),
        ("user:plan.pdf", "user_plan.pdf"),
        ("a\nb\0.pdf", "ab.pdf"),
        ("x" * 300 + ".pdf", "x" * 116 + ".pdf"),
        ("..", "in_1.pdf"),
        ("con.pdf", "in_1.pdf"),
        ("", "in_1.pdf"),
        ("Übersicht (neu).pdf", "Übersicht (neu).pdf"),
    ],
)
async def test_a_name_from_outside_is_only_a_name(store: ArtifactStore, given_name: str, kept_name: str) -> None:
    """It chooses no folder and no wider scope, and an odd one is no reason to refuse a message."""
    message = {"content": [{"type": "input_file", "filename": given_name, "file_data": PDF_URI}]}
    _, (record,) = await save_inputs(message, store, scope=Scope(run="r", user="u"), prefix="in")
    assert record.name == kept_name
    assert record.scope == Scope(run="r", user="u")


async def test_equal_blobs_of_a_call_are_one_artifact(store: ArtifactStore) -> None:
    """A history that carries the same picture in every turn."""
    history = [FORMS["anthropic image"][0]] * 3
    new, records = await save_inputs(history, store, scope=SCOPE)
    assert len(new) == len(records) == 3
    assert len({record.handle for record in records}) == len(await kept(store)) == 1


async def test_P5_all_or_nothing(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third of four cannot be saved: the error is raised, and the first two are gone again."""
    put, calls = ArtifactStore.put, iter([None, None, StoreError("the disk is full")])

    async def failing(self: ArtifactStore, *arguments: Any, **options: Any) -> str:  # noqa: ANN401
        error = next(calls)
        if error is not None:
            raise error
        return await put(self, *arguments, **options)

    monkeypatch.setattr(ArtifactStore, "put", failing)
    message = FORMS["openai chat"][0]
    before = copy.deepcopy(message)
    with pytest.raises(StoreError, match="the disk is full"):
        await save_inputs(message, store, scope=SCOPE)
    assert message == before
    assert await kept(store) == []


async def test_a_cancelled_call_leaves_nothing(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same when it is not an error that ends it."""
    put, reached = ArtifactStore.put, anyio.Event()

    async def hanging(self: ArtifactStore, *arguments: Any, **options: Any) -> str:  # noqa: ANN401
        if await kept(store):
            reached.set()
            await anyio.sleep_forever()
        return await put(self, *arguments, **options)

    monkeypatch.setattr(ArtifactStore, "put", hanging)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: save_inputs(FORMS["openai chat"][0], store, scope=SCOPE))
            await reached.wait()
            group.cancel_scope.cancel()
    assert await kept(store) == []


@pytest.mark.parametrize(
    ("block", "where"),
    [
        ({"type": "image", "data": "not base64!", "mimeType": "image/png"}, "message.content[1]"),
        ({"type": "image", "data": "AAAAA", "mimeType": "image/png"}, "message.content[1]"),
        ({"type": "input_image", "image_url": "data:image/png;base64"}, "message.content[1]"),
        ({"content": [TEXT, {"type": "image", "data": "ä", "mimeType": "x/y"}]}, "message.content[1].content[1]"),
    ],
)
async def test_what_is_no_base64_is_refused(store: ArtifactStore, block: dict[str, object], where: str) -> None:
    """By its place, before anything is saved: the vendor would refuse it too, and say less."""
    with pytest.raises(ArtifactError, match=f"the blob at {re.escape(where)} is"):
        await save_inputs({"content": [ANTHROPIC_IMAGE, block]}, store, scope=SCOPE)
    assert await kept(store) == []


@pytest.mark.parametrize("limits", [{"max_blobs": 2}, {"max_bytes": 2_000}])
async def test_a_message_has_bounds(store: ArtifactStore, limits: dict[str, Any]) -> None:
    """Of count and of bytes, for each message; nothing is saved of one that breaks them."""
    message = FORMS["openai chat"][0]
    with pytest.raises(LimitError, match="allowed"):
        await save_inputs(message, store, scope=SCOPE, **limits)
    assert await kept(store) == []
    history = [FORMS["anthropic image"][0]] * 5
    _, records = await save_inputs(history, store, scope=SCOPE, **limits)
    assert len(records) == 5


@given(st.binary(max_size=50), st.sampled_from(["standard", "url-safe", "wrapped", "bare"]))
def test_C091_base64_in_any_alphabet_gives_the_bytes(data: bytes, form: str) -> None:
    """URL-safe as Gemini's SDK writes it, wrapped as in mails, without padding."""
    text = base64.b64encode(data).decode()
    written = {
        "standard": text,
        "url-safe": base64.urlsafe_b64encode(data).decode(),
        "wrapped": "\r\n".join(text[at : at + 5] for at in range(0, len(text), 5)),
        "bare": text.rstrip("="),
    }[form]
    assert decode(written, "here") == data
    assert decode(f"data:application/octet-stream;base64,{written}", "here") == data


def test_a_data_uri_may_be_plain_text() -> None:
    """Percent-encoded, with a comma in it."""
    assert decode("data:text/plain;charset=utf-8,a%2Cb,%C3%BC", "here") == "a,b,ü".encode()


class Blob(BaseModel):
    """As in a vendor's SDK: bytes, and names in camel case outside."""

    data: bytes
    mime_type: str = Field(alias="mimeType")


class Part(BaseModel):
    """The same."""

    text: str | None = None
    inline_data: Blob | None = Field(default=None, alias="inlineData")
    thought_signature: bytes | None = Field(default=None, alias="thoughtSignature")


class Content(BaseModel):
    """The same."""

    role: str
    parts: list[Part]


async def test_objects_of_a_vendor_come_back_as_such(store: ArtifactStore) -> None:
    """Made again from their fields; the caller's are as they were."""
    blob = Part(inlineData=Blob(data=PNG, mimeType="image/png"), thoughtSignature=b"\xff")
    message = Content(role="user", parts=[Part(text="look"), blob])
    new, (record,) = await save_inputs(message, store, scope=SCOPE)
    assert isinstance(new, Content)
    assert new.parts == [Part(text="look"), Part(text=placeholder(record), thoughtSignature=b"\xff")]
    assert message.parts[1] is blob
    assert blob.inline_data is not None
    plain = Content(role="user", parts=[Part(text="look")])
    assert (await save_inputs(plain, store, scope=SCOPE))[0] is plain


async def test_a_message_of_any_depth_is_survived(store: ArtifactStore) -> None:
    """What is too deep, or goes in circles, stays as it is."""
    deep: dict[str, Any] = dict(ANTHROPIC_IMAGE)
    for _ in range(5_000):
        deep = {"content": [deep]}
    assert (await save_inputs(deep, store, scope=SCOPE))[0] is deep
    circle: dict[str, Any] = {"content": []}
    circle["content"].append(circle)
    assert (await save_inputs(circle, store, scope=SCOPE))[0] is circle


async def test_a_placeholder_can_be_given_to_a_tool(store: ArtifactStore) -> None:
    """It is a reference like any other."""
    new, (record,) = await save_inputs(ANTHROPIC_PDF, store, scope=SCOPE)
    assert parse(str(new["text"])) == record.handle
