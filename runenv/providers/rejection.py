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

It never loops: every time an image less is left, and an error that is not about media strips nothing. A word alone
decides nothing: tools, parameters and models are named after images too, and vendors send 400 for all of them.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from runenv.providers.spots import IMAGE_KEYS, Lighter, find, without

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from runenv.providers.spots import Path, Spot

__all__ = ("strip_media",)

_MEDIA_STATUS: Final = frozenset({400, 413, 415, 422, 424})
"""HTTP statuses by which vendors refuse media; others (429, 500) are about something else, whatever they say."""
_TOO_LARGE_STATUS: Final = 413
_STATUSES: Final = range(100, 600)
_STATUS_KEYS: Final = ("status_code", "statusCode", "code", "status")
"""Where errors have their HTTP status, if it is a number."""
_DIGITS: Final = re.compile(r"[1-5][0-9]{2}", re.ASCII)
_MAX_TEXT: Final = 64 * 1024
"""Characters of an error that are read."""
_MAX_DEPTH: Final = 8
"""Levels of an error's body that are read."""

_PLACE: Final = re.compile(r"(?<![\w.])(?:messages|input|contents)(?:\.?\[\d{1,6}\]|\.\w{1,40}){1,16}")
"""Anthropic, OpenAI, Gemini and Bedrock each in their manner: `messages.1.content.0.tool_result.content.0.image`,
`messages.[2].content.[1].image_url`, `contents[0].parts[2].inline_data`, `messages.1.member.content.2.member.image`."""
_STEP: Final = re.compile(r"\w+")

_IMAGE: Final = r"(?:image_urls?\b|images?(?![-\w]|/| (?:format|type|generation|output|edit)))"
"""What a model has no eyes for: an image, whatever its format; to draw one is another thing."""
_NO_EYES: Final = re.compile(
    r"only supported by certain models|support image input|image input (?:modality )?is not"
    rf"|(?:does not|doesn't|do not|don't|cannot|not) support (?:the )?(?:{_IMAGE}|vision)"
    r"|images? (?:is|are) not supported|not a multimodal model|unknown variant `?image_url",
    re.IGNORECASE,
)
_SUM: Final = re.compile(
    r"too many images|too much media|at most \d{1,6} images?\b|request_too_large"
    r"|request (?:entity|body|payload)?\s?(?:is )?too large"
    r"|payload too large|exceeds the maximum (?:allowed )?size|request payload size exceeds",
    re.IGNORECASE,
)
_COUNTS: Final = re.compile(r"(\d{1,6})[ a-z]{0,30}\+ (\d{1,6})[ a-z]{0,30}> (\d{1,6})")
_MEDIA: Final = re.compile(
    r"(?<![-\w])(?:images?(?![-\w]| (?:generation|models?|output|edit))|image_urls?\b|input_image\b|inline_?data\b)"
    r"|multi-?modal|\bbase64\b",
    re.IGNORECASE,
)
"""Media as such; not `image_tool`, `gpt-image` or `crop_image`."""
_REFUSAL: Final = re.compile(
    r"could not|couldn't|cannot|can't|unable to|failed|failure|(?:is|are|was|does|do|did)(?: not\b|n't)"
    r"|not (?:allowed|supported|valid)|only (?:allowed|supported)|reject|refus|invalid\b|unsupported|malformed|corrupt"
    r"|damaged|(?:must|should) (?:be|have)|exceed|too (?:large|small|big|long)|larger than|smaller than|appears to be",
    re.IGNORECASE,
)
_CODE: Final = re.compile(
    r"\b(?:invalid|unsupported|empty|failed_to_download)_(?:base64_)?image(?:_\w{1,40})?\b"
    r"|\bimage_(?:too|parse|dimensions|content|file)_\w{1,40}"
)
"""Errors of OpenAI (openai 3.57.0 types/responses/response_error.py) and of Anthropic that are about an image."""
_ELSEWHERE: Final = re.compile(
    r"\btools(?:\[|\.\d|['\"`])|\btool[ _](?:choice|name|use\b)|\bfunction(?:_declaration|[ _]name| ['\"`])"
    r"|invalid schema|schema for|(?:json|input|output|response)_?schema|\bresponse[ _]?(?:format|modalit)"
    r"|(?:unknown|unsupported|unrecognized|missing required) (?:parameter|name|field|argument)"
    r"|credit balance|billing|quota|rate.?limit|per minute|too many requests|throttl|resource.?exhausted"
    r"|organization must be|\bmodel\b.{1,80}does not exist|\bdocument\.|(?<![/'\"])\bpdfs?\b",
    re.IGNORECASE,
)
"""What an error is about that is not about images, whatever else it names."""
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s|\n")

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
    elsewhere = _ELSEWHERE.search(facts.text) is not None
    if not elsewhere and _NO_EYES.search(facts.text):
        return without(request, [(spot, _BLIND) for spot in spots])
    named = _named(request, spots, facts)
    if named:
        return without(request, [(spot, _REFUSED) for spot in named])
    if facts.status == _TOO_LARGE_STATUS or (not elsewhere and _SUM.search(facts.text)):
        return without(request, [(spot, _SUM_REFUSED) for spot in _oldest(spots, facts.text)])
    if not elsewhere and _is_refusal(facts.text):
        return without(request, [(spot, _REFUSED) for spot in spots if spot.turn == spots[-1].turn])
    return Lighter(request, ())


def _is_refusal(text: str) -> bool:
    """Say whether an error refuses media: by a code, or by a sentence that names them and says no."""
    sentences = _SENTENCE.split(text)
    return any(_CODE.search(part) or (_MEDIA.search(part) and _REFUSAL.search(part)) for part in sentences)


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
                if len(way) == length or way[length] in IMAGE_KEYS:  # else of what goes with an image: cache_control
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
    statuses: list[object] = []
    if isinstance(error, BaseException):
        response = getattr(error, "response", None)
        metadata = response.get("ResponseMetadata") if isinstance(response, Mapping) else None
        statuses = [metadata.get("HTTPStatusCode")] if isinstance(metadata, Mapping) else []
        statuses += (getattr(error, name, None) for name in _STATUS_KEYS)
        bodies = [getattr(error, name, None) for name in ("body", "param", "details")]
        bodies = [str(error), response, *bodies]
    for body in bodies:
        if isinstance(body, Mapping):
            statuses += (
                holder.get(key)
                for holder in (body.get("error"), body)
                if isinstance(holder, Mapping)
                for key in _STATUS_KEYS
            )
    text = "\n".join(text for body in bodies for text in _strings(body))[:_MAX_TEXT]
    paths = tuple(path for body in bodies for path in _paths(body))
    return _Facts(next((status for status in map(_status, statuses) if status), None), text, paths)


def _status(value: object) -> int | None:
    """Return an HTTP status that is given as a number or as a text, or None for anything else."""
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        return int(value)
    return value if isinstance(value, int) and value in _STATUSES else None


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
