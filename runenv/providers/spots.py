"""Where the images are in a request of any vendor, and the same request with lines in place of some. Pure.

Knows the forms of all wires at once: a request is a mapping with `messages`, `input` or `contents`, or that list alone.
Only results, and what users said, is looked into: never the arguments of calls. What the model said is counted but not
replaced, because vendors sign it (`thoughtSignature`).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeGuard

from runenv.providers.calls import make_call, text, written
from runenv.providers.limits import base64_size
from runenv.providers.lines import called_in, handles_in, left_out_line, short_hash
from runenv.providers.pictures import Picture, look

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ("IMAGE_KEYS", "Lighter", "Path", "Spot", "find", "replaced", "without")

Path: TypeAlias = "tuple[str | int, ...]"
"""Keys and indexes from the request down to a block."""

_LISTS: Final = ("messages", "input", "contents")
"""Where a request holds its messages."""
_MODEL: Final = ("assistant", "model")
_RESPONSES_MODEL: Final = ("function_call", "reasoning", "computer_call", "custom_tool_call", "image_generation_call")
"""Items of the Responses API that the model wrote, though they have no role."""
_MAX_DEPTH: Final = 8
"""Results within results that are looked into; no vendor takes any."""
_HEAD: Final = 128 * 1024
"""Characters of base64 that are decoded to learn the size in pixels; a JPEG may have large metadata before it."""
IMAGE_KEYS: Final = frozenset(
    {
        *("source", "transformations", "image_url", "detail", "file_id"),
        *("data", "mimeType", "image", "inlineData", "inline_data", "fileData", "file_data"),
        *("mediaResolution", "media_resolution", "type", "text"),
    }
)
"""Keys of a block that go with its image; all others stay."""
_RESPONSE_KEYS: Final = ("functionResponse", "function_response")
_SIGNED: Final = ("thoughtSignature", "thought_signature")


@dataclass(frozen=True, slots=True)
class Spot:
    """An image, or a document, in a request.

    Attributes:
        path: of its block.
        turn: counts what stands between two words of the model.
        data: raw bytes or base64; None for one by reference (a URL, a file id).
        fixed: it may not be replaced.
        document: it is a document, which some vendors count as an image.
        before: the text directly before it; within a response of Gemini's, whose images stand apart, all its text.
        arguments: of the call whose result it belongs to, as the model wrote them; None where that is not known.
    """

    path: Path
    turn: int
    data: bytes | str | None
    fixed: bool = False
    document: bool = False
    before: str = ""
    arguments: object = None

    @property
    def wire_bytes(self) -> int:
        """What it takes in the request."""
        if self.data is None:
            return 0
        return len(self.data) if isinstance(self.data, str) else base64_size(len(self.data))

    @property
    def size(self) -> int:
        """Its bytes, without base64."""
        if isinstance(self.data, str):
            return len(self.data) * 3 // 4 - self.data[-2:].count("=")
        return len(self.data or b"")

    @property
    def picture(self) -> Picture | None:
        """What its first bytes say of it."""
        return look(self.data[:_HEAD] if isinstance(self.data, bytes) else _decoded((self.data or "")[:_HEAD]))

    def line(self, reason: str, handles: Mapping[str, set[str]]) -> str:
        """Return the line that stands for it, with its handle and the path of its file where the request names them.

        Args:
            reason: one clause.
            handles: those that lines directly before images name, by short hash. Without a line directly before this
                one another's holds, if there is no doubt.
        """
        path = text(make_call("", "tool", self.arguments).arguments.get("path"))
        if self.data is None:
            return left_out_line(reason, None, None, "", None, path)
        picture = self.picture
        sha256 = short_hash(self.data if isinstance(self.data, bytes) else _decoded(self.data)) if handles else ""
        found = handles_in(self.before).get(sha256) or handles.get(sha256, set())
        handle = next(iter(found)) if len(found) == 1 else None
        return left_out_line(reason, picture.media_type if picture else None, self.size, sha256, handle, path)


@dataclass(frozen=True, slots=True)
class Lighter:
    """A request with fewer images.

    Attributes:
        request: a new one that shares what did not change, or the very one that was given.
        removed: paths of the images that lines stand for now, such as "messages.0.content.1"; empty: nothing changed,
            and to send it again makes no sense.
        fits: what is left is within the limits, as far as they are known.
    """

    request: Any
    removed: tuple[str, ...]
    fits: bool = True


def find(request: object) -> list[Spot]:
    """Return the images and documents of a request, oldest first.

    Args:
        request: of any vendor, or its list of messages.
    """
    found: list[Spot] = []
    turn = 0
    calls: dict[str, object] = {}
    for prefix, messages in _message_lists(request):
        for index, message in enumerate(messages):
            calls.update((called, arguments) for called, arguments in written(message) if called)
            if not isinstance(message, Mapping):
                continue
            of_model = message.get("role") in _MODEL or message.get("type") in _RESPONSES_MODEL
            turn += of_model
            walk = _Walk(turn, calls)
            for key in ("content", "parts", "output"):
                content = message.get(key)
                where = (*prefix, index, key)
                if isinstance(content, list | tuple):
                    found += walk.blocks(where, content, fixed=of_model, call=text(message.get("call_id")))
                elif key == "output" and isinstance(content, Mapping):  # a screenshot, without which there is no result
                    image = _image(content)
                    found += [Spot(where, turn, image[0], fixed=True)] if image else []
    return found


def _message_lists(request: object) -> Iterator[tuple[Path, Sequence[object]]]:
    if isinstance(request, list | tuple):
        yield (), request
    elif isinstance(request, Mapping):
        for key in _LISTS:
            messages = request.get(key)
            if isinstance(messages, list | tuple):
                yield (key,), messages


@dataclass(frozen=True, slots=True)
class _Walk:
    """Through the blocks of one message.

    Attributes:
        turn: of its images.
        calls: arguments of the calls so far, by id.
    """

    turn: int
    calls: Mapping[str, object]

    def blocks(
        self,
        path: Path,
        content: Sequence[object],
        *,
        fixed: bool,
        call: str = "",
        said: str | None = None,
        depth: int = 0,
    ) -> Iterator[Spot]:
        """Yield the images of a list of blocks.

        Args:
            path: of the list.
            content: the list.
            fixed: its images may not be replaced.
            call: id of the call whose result it is, or empty.
            said: the text that goes with its images, where that does not stand between them.
            depth: results that it is within.
        """
        for index, block in enumerate(content):
            if not isinstance(block, Mapping):
                continue
            here = (*path, index)
            held = fixed or any(key in block for key in _SIGNED)
            inner = _nested(block)
            if inner is not None:
                if depth < _MAX_DEPTH:
                    yield from self.blocks(
                        (*here, *inner.way),
                        inner.content,
                        fixed=held,
                        call=inner.call,
                        said=inner.said,
                        depth=depth + 1,
                    )
            elif block.get("type") == "document" or isinstance(block.get("document"), Mapping):
                yield Spot(here, self.turn, None, fixed=True, document=True)
            elif (image := _image(block)) is not None:
                before = _text_at(content, index - 1)
                of = call or called_in(before) or called_in(_text_at(content, index - 2))
                yield Spot(
                    here,
                    self.turn,
                    image[0],
                    fixed=held,
                    before=before if said is None else said,
                    arguments=self.calls.get(of),
                )


def _text_at(content: Sequence[object], index: int) -> str:
    """Return the text of a block, or an empty one where there is none."""
    block = content[index] if index >= 0 else None
    return text(block.get("text")) if isinstance(block, Mapping) else ""


class _Inner(NamedTuple):
    """What a tool result holds.

    Attributes:
        content: its blocks.
        way: keys from the block down to them.
        call: id of the call.
        said: its text, where that is no block.
    """

    content: Sequence[object]
    way: Path
    call: str
    said: str | None = None


def _nested(block: Mapping[str, Any]) -> _Inner | None:
    """Return what a tool result holds, or None for any other block and for a result without a list."""
    if block.get("type") == "tool_result":
        content = block.get("content")
        return _Inner(content, ("content",), text(block.get("tool_use_id"))) if _is_list(content) else None
    result = block.get("toolResult")
    if isinstance(result, Mapping) and _is_list(result.get("content")):
        return _Inner(result["content"], ("toolResult", "content"), text(result.get("toolUseId")))
    for key in _RESPONSE_KEYS:
        response = block.get(key)
        if isinstance(response, Mapping) and _is_list(response.get("parts")):
            said = response.get("response")
            texts = (text(value) for value in said.values()) if isinstance(said, Mapping) else ()
            return _Inner(response["parts"], (key, "parts"), text(response.get("id")), "\n".join(texts))
    return None


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, list | tuple) and len(value) > 0


def _image(block: Mapping[str, Any]) -> tuple[bytes | str | None] | None:
    """Return the data of an image block (None in it: by reference), or None for any other block."""
    kind = block.get("type")
    if kind in ("image_url", "input_image", "computer_screenshot"):
        url = block.get("image_url")
        url = url.get("url") if isinstance(url, Mapping) else url
        if isinstance(url, str) and url[:5].lower() == "data:":
            return (url.partition(",")[2],)
        return (None,)
    if kind == "image":
        source = block.get("source")
        return (_data(source if isinstance(source, Mapping) else block),)
    image = block.get("image")
    if isinstance(image, Mapping) and "format" in image:
        source = image.get("source")
        return (_data(source) if isinstance(source, Mapping) else None,)
    for key in ("inlineData", "inline_data", "fileData", "file_data"):
        inline = block.get(key)
        if isinstance(inline, Mapping):
            media_type = inline.get("mimeType") or inline.get("mime_type") or ""
            return (_data(inline),) if str(media_type).startswith("image/") else None
    return None


def _data(holder: Mapping[str, Any]) -> bytes | str | None:
    data = holder.get("data", holder.get("bytes"))
    return bytes(data) if isinstance(data, bytearray) else data if isinstance(data, bytes | str) else None


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode(data[: len(data) // 4 * 4])
    except (binascii.Error, ValueError):
        return b""


def without(request: object, spots: Sequence[tuple[Spot, str]]) -> Lighter:
    """Return a request with a line in place of each of these images.

    Args:
        request: as given to `find`; it is not changed.
        spots: each with the reason, one clause. Fixed ones are left as they are.
    """
    spots = [(spot, reason) for spot, reason in spots if not spot.fixed]
    if not spots:
        return Lighter(request, ())
    handles: dict[str, set[str]] = {}
    for spot in find(request):
        for sha256, found in handles_in(spot.before).items():
            handles.setdefault(sha256, set()).update(found)
    lines = {spot.path: spot.line(reason, handles) for spot, reason in spots}
    return Lighter(replaced(request, lines), tuple(".".join(map(str, path)) for path in lines))


def replaced(node: Any, lines: Mapping[Path, str]) -> Any:  # noqa: ANN401 - JSON
    """Return JSON with texts in place of the image blocks at some paths; all else is shared with the one given."""
    if () in lines:
        return _as_text(node, lines[()])
    below: dict[str | int, dict[Path, str]] = {}
    for path, line in lines.items():
        below.setdefault(path[0], {})[path[1:]] = line
    if isinstance(node, Mapping):
        changed = {
            key: _response(node[key], inner) if key in _RESPONSE_KEYS else replaced(node[key], inner)
            for key, inner in below.items()
        }
        return {**node, **changed}
    items = list(node)
    for index, inner in below.items():
        items[int(index)] = replaced(items[int(index)], inner)
    return items


def _as_text(block: Mapping[str, Any], line: str) -> dict[str, Any]:
    kind = block.get("type")
    head: dict[str, Any] = {"text": line}
    if kind is not None:
        head = {"type": "input_text" if kind == "input_image" else "text", "text": line}
    return head | {key: value for key, value in block.items() if key not in IMAGE_KEYS}


def _response(response: Mapping[str, Any], lines: Mapping[Path, str]) -> dict[str, Any]:
    """Return a functionResponse without some parts, which take no text; the lines go into what it says."""
    gone = {path[1] for path in lines}
    changed = {key: value for key, value in response.items() if key != "parts"}
    parts = [part for index, part in enumerate(response["parts"]) if index not in gone]
    if parts:
        changed["parts"] = parts
    said = response.get("response")
    said = dict(said) if isinstance(said, Mapping) else {}
    key = next((key for key in ("output", "error") if isinstance(said.get(key), str)), None)
    text = "\n".join(lines.values())
    if key is not None:
        said[key] = f"{said[key]}\n{text}"
    else:
        said["images_left_out"] = text
    changed["response"] = said
    return changed
