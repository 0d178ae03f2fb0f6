"""Both ends of a text with a notice between them: what a model sees of one that is kept elsewhere. Pure.

For text that tools gave. The output of a command is cut by `runenv.output`, which works on raw bytes and applies what a
terminal would; nothing is cleaned here, since what is shown must be found again in what is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ("NOTICE_CHARS", "Place", "preview", "shortened")

NOTICE_CHARS: Final = 300
"""Room for a notice; it is longer only where a path in it is."""
_NEAR: Final = 2
"""A line end within the last half of a side is near enough to cut there."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a whole text is.

    Attributes:
        path: where the model's own tools reach it: in the env, on the host, or an `s3://` URI.
        handle: what other tools take.
        media_type: what it is, where that is worth saying.
        tool: the tool that reads by handle, where there is one.
    """

    path: str | None = None
    handle: str | None = None
    media_type: str | None = None
    tool: str | None = None


def preview(text: str, size: int | None, chars: int, room: int, place: Place) -> str:
    """Return both ends of a text and a notice that says what is missing and where all of it is.

    Args:
        text: all of it.
        size: bytes of it where it is kept; None when that is more than `text`, which then is counted nowhere.
        chars: characters to show of it, half from each end, cut at line ends where one is near.
        room: characters that there is room for; less of the text is shown when a long path needs it.
        place: where it is.
    """
    lines = text.count("\n") + (not text.endswith("\n"))
    facts = [] if size is None else [f"{len(text):,} characters", _count(lines, "line"), _count(size, "byte")]
    if place.media_type:
        facts.append(place.media_type)
    said = f" ({', '.join(facts)})" if facts else ""
    path = None if place.handle and len(place.path or "") > room // 2 else place.path
    if path is None:
        where = f"behind the handle {place.handle}"
    else:
        where = f"in {path} (handle {place.handle})" if place.handle else f"in {path}"
    reads = f"; {place.tool} pages and searches it" if place.tool and place.handle else ""
    notice = f"[... cut here. The whole{said} is {where}{reads} ...]"
    head, tail = ends(text, min(chars, max(2, room - len(notice) - 2)))
    return _joined(head, notice, tail)


def shortened(text: str, room: int) -> str:
    """Return both ends of a text that is kept nowhere, in `room` characters, the notice included."""
    notice = f"[... cut here: of {len(text):,} characters the middle is left out, and could not be kept ...]"
    head, tail = ends(text, max(2, room - len(notice) - 2))
    return _joined(head, notice, tail)


def ends(text: str, chars: int) -> tuple[str, str]:
    """Return the beginning and the end of a text, half of `chars` each at most, at line ends where one is near."""
    half = chars // 2
    if len(text) <= 2 * half:
        return text, ""
    line_end = text.rfind("\n", half - half // _NEAR, half) + 1
    start = len(text) - half
    line_start = text.find("\n", start - 1, start + half // _NEAR - 1) + 1
    return text[: line_end or half], text[line_start or start :]


def _joined(head: str, notice: str, tail: str) -> str:
    return f"{head}{'' if head.endswith(chr(10)) else chr(10)}{notice}\n{tail}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
