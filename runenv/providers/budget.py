"""A whole request within a vendor's limits: the oldest images give way to lines with their handles. Pure.

Legal images add up: a conversation of screenshots is refused as a whole, and then for ever, because the images stay in
it. Apply `fit` to every request just before it is sent, and keep the full history.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from runenv.errors import ConfigError
from runenv.providers.limits import Limits, base64_size
from runenv.providers.lines import left_out_line, short_hash
from runenv.providers.pictures import Picture, look
from runenv.providers.spots import Lighter, find, without
from runenv.types import ImagePart, TextPart, ToolResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runenv.providers.spots import Spot

__all__ = ("fit", "fit_results")

_LINE_BYTES: Final = 450
"""What the line in place of an image takes at most."""
_MAX_DEPTH: Final = 100_000
"""Levels of a request; what has more contains itself."""
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False)
_TOO_MANY: Final = "newer images need the room"


@dataclass(frozen=True, slots=True)
class _Seen:
    """An image as far as limits ask."""

    size: int
    wire_bytes: int
    picture: Picture | None
    fixed: bool = False


def fit(request: Any, limits: Limits, *, step: int = 1, reserve_bytes: int = 0) -> Lighter:  # noqa: ANN401 - JSON
    """Return a request that a vendor takes, with lines in place of images where that is needed.

    First give way the images that the vendor would not take alone, then the oldest until count and bytes fit, then the
    oldest that are too large among many. What the model said itself stays.

    Args:
        request: in the vendor's form, or its list of messages; it is not changed.
        limits: of the vendor.
        step: the oldest images give way so many at a time, so that the beginning of the conversation, which vendors
            cache, changes on every `step`th new image only. The newest image goes only when it must.
        reserve_bytes: what will be added to the request before it is sent.

    Raises:
        ConfigError: the request contains itself.
    """
    spots = [spot for spot in find(request) if limits.counts_documents or not spot.document]
    images = [_seen(spot) for spot in spots]
    bounded = limits.request_bytes is not None
    rest = reserve_bytes + _json_bytes(request) - sum(image.wire_bytes for image in images) if bounded else 0
    gone, fits = _choose(images, limits, rest, step)
    lighter = without(request, [(spots[index], reason) for index, reason in gone.items()])
    if bounded and fits:
        fits = not _over_bytes(reserve_bytes + _json_bytes(lighter.request), limits)
    return replace(lighter, fits=fits)


def fit_results(results: Sequence[ToolResult], limits: Limits, *, step: int = 1) -> list[ToolResult]:
    """Return tool results that a vendor takes in one request, as `fit` does for a request.

    Args:
        results: oldest first; they are not changed.
        limits: of the vendor; `request_bytes` counts the images and texts only.
        step: as for `fit`.
    """
    places = [(at, index) for at, result in enumerate(results) for index in range(len(result.parts))]
    images: list[_Seen] = []
    where: list[tuple[int, int]] = []
    rest = 0
    for at, index in places:
        part = results[at].parts[index]
        if isinstance(part, ImagePart):
            images.append(_Seen(len(part.data), base64_size(len(part.data)), look(part.data)))
            where.append((at, index))
        elif isinstance(part, TextPart):
            rest += len(part.text.encode(errors="surrogatepass"))
    gone, _ = _choose(images, limits, rest, step)
    fitted = [list(result.parts) for result in results]
    for number, reason in gone.items():
        at, index = where[number]
        fitted[at][index] = _line_for(fitted[at][index], reason)
    return [ToolResult(tuple(parts), result.is_error) for parts, result in zip(fitted, results, strict=True)]


def _line_for(part: object, reason: str) -> TextPart:
    assert isinstance(part, ImagePart)  # noqa: S101 - the places of images only
    sha256 = short_hash(part.data) if part.handle else ""
    picture = look(part.data)
    media_type = picture.media_type if picture else part.media_type
    return TextPart(left_out_line(reason, media_type, len(part.data), sha256, part.handle))


def _choose(images: Sequence[_Seen], limits: Limits, rest: int, step: int) -> tuple[dict[int, str], bool]:
    """Return which images give way and why, oldest first, and whether the count of the others fits.

    Args:
        images: of the request, oldest first.
        limits: of the vendor.
        rest: bytes of the request without them.
        step: the oldest give way so many at a time.
    """
    gone: dict[int, str] = {}
    for index, image in enumerate(images):
        # What we do not know the type of may be sent: Gemini takes HEIC from users.
        reason = limits.refuses(image.picture, image.size) if image.picture else None
        if reason is not None and not image.fixed:
            gone[index] = reason
    kept = [index for index in range(len(images)) if index not in gone]
    movable = [index for index in kept if not images[index].fixed]

    excess = _over_count(len(kept), limits)
    size = rest + sum(images[index].wire_bytes for index in kept) + _LINE_BYTES * len(gone)
    number = 0
    while number < len(movable):
        rounding = number % max(step, 1) and number < len(movable) - 1
        if number >= excess and not _over_bytes(size, limits) and not rounding:
            break
        size += _LINE_BYTES - images[movable[number]].wire_bytes
        gone[movable[number]] = _TOO_MANY
        number += 1
    kept = [index for index in kept if index not in gone]
    for index in _too_large_among_many(images, kept, limits):
        gone[index] = f"{limits.vendor} takes at most {limits.many_side_pixels:,} pixels a side among many images"
        kept.remove(index)
    return dict(sorted(gone.items())), not _over_count(len(kept), limits)


def _over_count(count: int, limits: Limits) -> int:
    return max(0, count - limits.images) if limits.images is not None else 0


def _over_bytes(size: int, limits: Limits) -> bool:
    return limits.request_bytes is not None and size > limits.request_bytes


def _too_large_among_many(images: Sequence[_Seen], kept: Sequence[int], limits: Limits) -> list[int]:
    """Return the images that must go because there are many: all too large ones, or the oldest until few are left."""
    if limits.many_images is None or limits.many_side_pixels is None:
        return []
    bound = limits.many_side_pixels
    large = [index for index in kept if (picture := images[index].picture) and picture.side > bound]
    spare = max(0, len(kept) - limits.many_images)
    return [index for index in large if not images[index].fixed][:spare]


def _seen(spot: Spot) -> _Seen:
    return _Seen(spot.size, spot.wire_bytes, spot.picture, spot.fixed)


def _json_bytes(request: object) -> int:
    """Return the bytes of a request as JSON, raw bytes in it as base64; keys that are no texts as texts.

    Raises:
        ConfigError: it contains itself.
    """
    size = 0
    waiting: list[tuple[object, int]] = [(request, 0)]
    while waiting:  # not by recursion: a model's arguments may be nested as deep as it likes
        node, depth = waiting.pop()
        if depth > _MAX_DEPTH:
            raise ConfigError("the request contains itself, so it cannot be sent")
        if isinstance(node, str):
            size += _text_bytes(node)
        elif isinstance(node, Mapping):
            size += max(2, len(node) + 1) + sum(_text_bytes(str(key)) + 1 for key in node)
            waiting += ((value, depth + 1) for value in node.values())
        elif isinstance(node, list | tuple):
            size += max(2, len(node) + 1)
            waiting += ((value, depth + 1) for value in node)
        elif isinstance(node, bytes | bytearray):
            size += base64_size(len(node)) + 2
        elif node is None or isinstance(node, bool | int | float):
            size += len(str(node))
        else:
            dump = getattr(node, "model_dump", None)
            waiting.append((dump() if callable(dump) else str(node), depth + 1))
    return size


def _text_bytes(text: str) -> int:
    written = _ENCODER.encode(text)
    return len(written) if written.isascii() else len(written.encode(errors="surrogatepass"))
