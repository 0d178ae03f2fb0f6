"""A vendor refused a request for its media: the same request without what was refused. Pure.

An image that a vendor refuses stays in the history and fails every later turn. So a caller strips and tries again:

    for _ in range(4):
        try:
            return await send(request)
        except VendorError as error:
            lighter = strip_media(error, request)
            if not lighter.removed:
                raise
            request = lighter.request

It never loops: every time an image less is left, and an error that is not about media strips nothing.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from runenv.providers.spots import Lighter, find, without

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from runenv.providers.spots import Path, Spot

__all__ = ("strip_media",)

_MEDIA_STATUS: Final = frozenset({400, 413, 415, 422, 424})
"""HTTP statuses by which vendors refuse media; others (429, 500) are about something else, whatever they say."""
_TOO_LARGE_STATUS: Final = 413
_MAX_TEXT: Final = 64 * 1024
"""Characters of an error that are read."""
_MAX_DEPTH: Final = 8
"""Levels of an error's body that are read."""

_PLACE: Final = re.compile(r"(?<![\w.])(?:messages|input|contents)(?:\.?\[\d{1,6}\]|\.\w{1,40}){1,16}")
"""Anthropic, OpenAI, Gemini and Bedrock each in their manner: `messages.1.content.0.tool_result.content.0.image`,
`messages.[2].content.[1].image_url`, `contents[0].parts[2].inline_data`, `messages.1.member.content.2.member.image`."""
_STEP: Final = re.compile(r"\w+")

_NO_EYES: Final = re.compile(
    r"only supported by certain models|support image input|image input (?:modality )?is not"
    r"|(?:does not|doesn't|do not|don't|cannot|not) support (?:the )?(?:image(?!/|[ _](?:format|type))|vision)"
    r"|images? (?:is|are) not supported|not a multimodal model",
    re.IGNORECASE,
)
_SUM: Final = re.compile(
    r"too many images|too much media|request_too_large|request (?:entity|body|payload)?\s?(?:is )?too large"
    r"|payload too large|exceeds the maximum (?:allowed )?size|request payload size exceeds",
    re.IGNORECASE,
)
_COUNTS: Final = re.compile(r"(\d{1,6})[ a-z]{0,30}\+ (\d{1,6})[ a-z]{0,30}> (\d{1,6})")
_MEDIA: Final = re.compile(r"\bimages?\b|image_|_image\b|inline_?data|multimodal|base64", re.IGNORECASE)

_REFUSED: Final = "the vendor refused it"
_BLIND: Final = "the model takes no images"
_SUM_REFUSED: Final = "the request was too large"


@dataclass(frozen=True, slots=True)
class _Facts:
    """What an error says."""

    status: int | None
    text: str
    paths: tuple[str, ...]


def strip_media(error: object, request: Any) -> Lighter:  # noqa: ANN401 - JSON
    """Return the request without the images that a vendor refused; a line with the handle stands for each.

    Where the error names places, exactly the images there go. For a model without eyes all go; where all images
    together were too much, the oldest: as many as the error says, or half of their bytes. An error about media that
    says no more takes those of the newest turn that has any. What the model said itself always stays.

    Args:
        error: the SDK's exception, the body of the response, or its text.
        request: as it was sent, in the vendor's form, or its list of messages; it is not changed.
    """
    facts = _facts(error)
    spots = [spot for spot in find(request) if not spot.document and not spot.fixed]
    if not spots or (facts.status is not None and facts.status not in _MEDIA_STATUS):
        return Lighter(request, ())
    if _NO_EYES.search(facts.text):
        return without(request, [(spot, _BLIND) for spot in spots])
    named = _named(request, spots, facts)
    if named:
        return without(request, [(spot, _REFUSED) for spot in named])
    if facts.status == _TOO_LARGE_STATUS or _SUM.search(facts.text):
        return without(request, [(spot, _SUM_REFUSED) for spot in _oldest(spots, facts.text)])
    if _MEDIA.search(facts.text):
        return without(request, [(spot, _REFUSED) for spot in spots if spot.turn == spots[-1].turn])
    return Lighter(request, ())


def _oldest(spots: Sequence[Spot], text: str) -> Sequence[Spot]:
    """Return the oldest images: as many as there are too many, or else those that have half of all bytes."""
    counts = _COUNTS.search(text)
    if counts:
        return spots[: max(1, int(counts[1]) + int(counts[2]) - int(counts[3]))]
    taken = list(accumulate(spot.wire_bytes for spot in spots))
    return spots[: bisect_left(taken, taken[-1] / 2) + 1]


def _named(request: object, spots: Sequence[Spot], facts: _Facts) -> list[Spot]:
    """Return the images at the places that an error names."""
    by_path = {spot.path: spot for spot in spots}
    found: dict[Path, Spot] = {}
    for place in facts.paths or tuple(match[0] for match in _PLACE.finditer(facts.text)):
        way = _resolved(request, place)
        for length in range(len(way), 0, -1):
            if way[:length] in by_path:
                found[way[:length]] = by_path[way[:length]]
                break
    return [spot for spot in spots if spot.path in found]


def _resolved(request: object, place: str) -> Path:
    """Return the way that a vendor's path means in a request, as far as it can be followed.

    Steps that the JSON does not have are left out: a path may name the kind of a block (`tool_result`, `image`). Where
    `member` follows an index, AWS counts from 1.
    """
    steps: list[str] = _STEP.findall(place)
    from_one = "member" in steps
    node: object = request
    way: list[str | int] = []
    for number, step in enumerate(steps):
        if isinstance(node, Mapping):
            key = _key(node, step)
            if key is not None:
                node = node[key]
                way.append(key)
            elif number == 0:
                return ()
        elif isinstance(node, list | tuple) and step.isdecimal():
            index = int(step) - from_one
            if not 0 <= index < len(node):
                break
            node = node[index]
            way.append(index)
    return tuple(way)


def _key(node: Mapping[object, object], step: str) -> str | None:
    """Return the key that a step means: `tool_result` is `toolResult` in Bedrock's JSON."""
    if step in node:
        return step
    plain = step.replace("_", "").lower()
    return next((key for key in node if isinstance(key, str) and key.replace("_", "").lower() == plain), None)


def _facts(error: object) -> _Facts:
    bodies: list[object] = [error]
    status: object = None
    if isinstance(error, Mapping):
        inner = error.get("error")
        status = inner.get("code") if isinstance(inner, Mapping) else None
    if isinstance(error, BaseException):
        response = getattr(error, "response", None)
        metadata = response.get("ResponseMetadata") if isinstance(response, Mapping) else None
        status = metadata.get("HTTPStatusCode") if isinstance(metadata, Mapping) else None
        status = status or getattr(error, "status_code", None) or getattr(error, "code", None)
        bodies = [str(error), getattr(error, "body", None), getattr(error, "param", None), response]
        bodies.append(getattr(error, "details", None))
    text = "\n".join(text for body in bodies for text in _strings(body))[:_MAX_TEXT]
    paths = tuple(path for body in bodies for path in _paths(body))
    return _Facts(status if isinstance(status, int) else None, text, paths)


def _strings(value: object, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping) and depth < _MAX_DEPTH:
        for inner in value.values():
            yield from _strings(inner, depth + 1)
    elif isinstance(value, list | tuple) and depth < _MAX_DEPTH:
        for inner in value:
            yield from _strings(inner, depth + 1)


def _paths(value: object, depth: int = 0) -> Iterator[str]:
    """The places that Anthropic lists in an error's `details`."""
    if isinstance(value, Mapping) and depth < _MAX_DEPTH:
        listed = value.get("paths")
        if isinstance(listed, list | tuple):
            yield from (path for path in listed if isinstance(path, str))
        for inner in value.values():
            yield from _paths(inner, depth + 1)
