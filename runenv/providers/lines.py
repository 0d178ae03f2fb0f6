"""The one-line texts that stand for files and images where a model reads, and making any text fit for a wire. Pure.

A line that names an image's artifact stands directly before the image and carries its hash beside the handle, so that
`spots` finds the handle of an image again in a request where only base64 is left of it. What a tool printed may look
like such a line; where a line stands is what it cannot choose.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final

from runenv import placeholders
from runenv.placeholders import HASH_DIGITS, MAX_NAME, MAX_TYPE, START, harmless

if TYPE_CHECKING:
    from runenv.types import FilePart

__all__ = (
    "called_in",
    "encodable",
    "file_line",
    "handles_in",
    "image_line",
    "left_out_line",
    "origin_line",
    "short_hash",
    "shown",
)

MAX_ORIGIN: Final = 60
"""Characters that are shown of the path of the file that an image came from."""
_NAMED: Final = re.compile(
    rf"^\[(?:image: |{re.escape(START)})[^\n]*sha256 ([0-9a-f]{{12}}), (runenv\+file://[0-9a-f-]{{36}})\]$",
    re.MULTILINE,
)
_ORIGIN: Final = re.compile(r"Image \d+, from tool '[^']*', call '(.*)':")


def encodable(text: str) -> str:
    """Return a text that UTF-8 can hold: surrogates in pairs become their character, others U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def shown(text: str) -> str:
    """Return a foreign name as it may stand in quotes on a line for a model: no line ends, controls or brackets."""
    return harmless(text, MAX_NAME)


def file_line(part: FilePart) -> str:
    """Return the line that stands for an artifact: name, type, size, hash and handle."""
    return encodable(placeholders.file_line(part))


def image_line(media_type: str, data: bytes, handle: str) -> str:
    """Return the line that names the artifact of an image shown with it."""
    return f"[image: {_described(media_type, len(data), short_hash(data), handle)}]"


def origin_line(number: int, tool: str, call_id: str) -> str:
    """Return the line before an image that stands outside of its result: of which tool and call it is."""
    call = f", call {shown(call_id)!r}" if call_id else ""
    return f"Image {number}, from tool {shown(tool)!r}{call}:"


def called_in(line: str) -> str:
    """Return the call's id that an `origin_line` names, or an empty text for any other."""
    found = _ORIGIN.fullmatch(line)
    return found[1] if found else ""


def left_out_line(
    reason: str, media_type: str | None, size: int | None, sha256: str, handle: str | None, origin: str = ""
) -> str:
    """Return the line that stands for an image that is not shown.

    Args:
        reason: why, one clause.
        media_type: of the image, where known.
        size: its bytes, where known.
        sha256: its short hash; used with a handle only.
        handle: of its artifact, where known.
        origin: path of the file that it came from, where known.
    """
    described = _described(media_type, size, sha256, handle)
    source = f"from {harmless(origin, MAX_ORIGIN)!r}" if origin else ""
    return f"[image left out: {'; '.join(filter(None, (reason, ', '.join(filter(None, (source, described))))))}]"


def short_hash(data: bytes) -> str:
    """Return the beginning of the SHA-256 of an image."""
    return hashlib.sha256(data).hexdigest()[:HASH_DIGITS]


def handles_in(text: str) -> dict[str, set[str]]:
    """Return the handles that lines of a text name, by short hash; only what is a line for an image or file counts."""
    found: dict[str, set[str]] = {}
    for sha256, handle in _NAMED.findall(text):
        found.setdefault(sha256, set()).add(handle)
    return found


def _described(media_type: str | None, size: int | None, sha256: str, handle: str | None) -> str:
    facts = [
        harmless(media_type, MAX_TYPE) if media_type else "",
        "" if size is None else f"{size:,} bytes",
        f"sha256 {sha256}, {encodable(handle)}" if handle else "",
    ]
    return ", ".join(fact for fact in facts if fact)
