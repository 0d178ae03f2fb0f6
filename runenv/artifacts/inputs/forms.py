"""How each vendor writes bytes into a message, and the text block that the same vendor takes in their place. Data only.

Read from the vendors' own types (anthropic 2.14, openai 3.57, google-genai 3.6, mcp 2.3, the service model of Bedrock's
Converse). Every function looks at one block and says what blob it is, or None; a block that refers to bytes elsewhere
(URL, file id) is none. Keys that belong to the blob go with it; every other one, such as `cache_control`, `_meta` or
`thoughtSignature`, stays in the block that replaces it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from runenv.artifacts.inputs.decoding import is_data_uri, uri_type

__all__ = ("Blob", "Block", "recognise")

Block: TypeAlias = Mapping[str, object]

_BYTES: Final = (bytes, bytearray, memoryview)
_MEDIA: Final = frozenset({"image", "audio", "video", "document", "file"})
_RESPONSES: Final = frozenset({"input_text", "input_image", "input_file"})
_AUDIO: Final = {"mp3": "audio/mpeg", "wav": "audio/wav"}
_BEDROCK: Final = {"image": "image", "video": "video", "audio": "audio", "document": "application"}
_BEDROCK_TEXTS: Final = {"txt": "text/plain", "md": "text/markdown", "csv": "text/csv", "html": "text/html"}
_GEMINI_MEDIA: Final = frozenset(
    "inlineData inline_data videoMetadata video_metadata mediaResolution media_resolution mediaProcessing "  # noqa: SIM905
    "media_processing documentMetadata document_metadata".split()
)


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes within a message.

    Attributes:
        data: the bytes, base64, or a `data:` URI.
        media_type: as declared, or None.
        filename: as given, or None.
        replace: makes the block that stands in its place, from the text in it.
    """

    data: str | bytes | bytearray | memoryview
    media_type: str | None
    filename: str | None
    replace: Callable[[str], dict[str, object]]


def recognise(block: Block, siblings: frozenset[str]) -> Blob | None:
    """Return the blob that a block is.

    Args:
        block: a part of a message's content.
        siblings: the types of all blocks beside it, by which one form of two vendors is told apart.
    """
    kind = block.get("type")
    if not isinstance(kind, str):
        return _gemini(block) or _bedrock(block) or _plain(block, kind="")
    return (
        _anthropic(block)
        or _openai_image(block, kind)
        or _openai_file(block, kind)
        or _openai_audio(block, kind, siblings)
        or _mcp_resource(block, kind)
        or _plain(block, kind)
    )


def _anthropic(block: Block) -> Blob | None:
    source = _mapping(block.get("source"))
    data = _data(source.get("data"))
    if source.get("type") != "base64" or data is None:
        return None
    context = _text(block.get("context"))
    consumed = {"source", "title", "context", "citations"}

    def replace(text: str) -> dict[str, object]:
        return _replaced(block, consumed, "text", f"{text}\n{context}" if context else text)

    return Blob(data, _text(source.get("media_type")), _text(block.get("title")), replace)


def _openai_image(block: Block, kind: str) -> Blob | None:
    """Both the Responses form, whose `image_url` is a text, and the Chat form, where a mapping holds it."""
    if kind not in {"input_image", "image_url"}:
        return None
    url = block.get("image_url")
    url = _mapping(url).get("url") if not isinstance(url, str) else url
    if not isinstance(url, str) or not is_data_uri(url):
        return None
    text_kind = "input_text" if kind == "input_image" else "text"
    return Blob(url, uri_type(url), None, _replacer(block, {"image_url", "detail", "file_id"}, text_kind))


def _openai_file(block: Block, kind: str) -> Blob | None:
    if kind == "input_file":
        inner, consumed, text_kind = block, {"file_data", "filename", "file_id", "file_url", "detail"}, "input_text"
    elif kind == "file":
        inner, consumed, text_kind = _mapping(block.get("file")), {"file"}, "text"
    else:
        return None
    data = _data(inner.get("file_data"))
    if data is None:
        return None
    declared = uri_type(data) if isinstance(data, str) else None
    return Blob(data, declared, _text(inner.get("filename")), _replacer(block, consumed, text_kind))


def _openai_audio(block: Block, kind: str, siblings: frozenset[str]) -> Blob | None:
    audio = _mapping(block.get("input_audio"))
    data = _data(audio.get("data"))
    if kind != "input_audio" or data is None:
        return None
    format_ = _text(audio.get("format")) or ""
    text_kind = "input_text" if siblings & _RESPONSES else "text"
    declared = _AUDIO.get(format_, f"audio/{format_}") if format_ else None
    return Blob(data, declared, None, _replacer(block, {"input_audio"}, text_kind))


def _mcp_resource(block: Block, kind: str) -> Blob | None:
    resource = _mapping(block.get("resource"))
    data = _data(resource.get("blob"))
    if kind != "resource" or data is None:
        return None
    uri = (_text(resource.get("uri")) or str(resource.get("uri") or "")).partition("?")[0]
    return Blob(data, _media_type(resource), uri.rpartition("/")[2] or None, _replacer(block, {"resource"}, "text"))


def _plain(block: Block, kind: str) -> Blob | None:
    """MCP's images and audio, neutral blocks, and those of LangChain: the data beside its type."""
    name = next((name for name in ("data", "base64") if _data(block.get(name)) is not None), None)
    data = _data(block.get(name)) if name else None
    declared = _media_type(block)
    if name is None or data is None or (kind and kind not in _MEDIA):
        return None
    if isinstance(data, str) and (not kind or (declared is None and not is_data_uri(data))):
        return None  # any text may be called "data"; without a word about what it is, it is none of ours
    if declared is None and isinstance(data, str):
        declared = uri_type(data)
    consumed = {name, "mimeType", "mime_type", "media_type", "filename", "source_type"}
    return Blob(data, declared, _text(block.get("filename")), _replacer(block, consumed, "text"))


def _gemini(block: Block) -> Blob | None:
    inline = _mapping(block.get("inlineData")) or _mapping(block.get("inline_data"))
    data = _data(inline.get("data"))
    if data is None:
        return None
    filename = _text(inline.get("displayName")) or _text(inline.get("display_name"))
    return Blob(data, _media_type(inline), filename, _replacer(block, _GEMINI_MEDIA, None))


def _bedrock(block: Block) -> Blob | None:
    for key, family in _BEDROCK.items():
        inner = _mapping(block.get(key))
        data = _data(_mapping(inner.get("source")).get("bytes"))
        if data is not None:
            format_ = _text(inner.get("format")) or "octet-stream"
            declared = _BEDROCK_TEXTS.get(format_, f"{family}/{format_}")
            return Blob(data, declared, _text(inner.get("name")), _replacer(block, {key}, None))
    return None


def _replacer(
    block: Block, consumed: set[str] | frozenset[str], kind: str | None
) -> Callable[[str], dict[str, object]]:
    return lambda text: _replaced(block, consumed, kind, text)


def _replaced(block: Block, consumed: set[str] | frozenset[str], kind: str | None, text: str) -> dict[str, object]:
    head: dict[str, object] = {"text": text} if kind is None else {"type": kind, "text": text}
    return head | {key: value for key, value in block.items() if key not in consumed and key not in head}


def _mapping(value: object) -> Block:
    return value if isinstance(value, Mapping) else {}


def _data(value: object) -> str | bytes | bytearray | memoryview | None:
    return value if isinstance(value, (str, *_BYTES)) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _media_type(block: Block) -> str | None:
    return _text(block.get("mimeType")) or _text(block.get("mime_type")) or _text(block.get("media_type"))
