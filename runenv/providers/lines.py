"""The one-line texts that stand for files and images where a model reads, and making any text fit for a wire. Pure.

A line that names an image's artifact carries the image's hash beside the handle, so that `spots` finds the handle of
an image again in a request where only base64 is left of it.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final

from runenv import placeholders
from runenv.placeholders import HASH_DIGITS, MAX_NAME, MAX_TYPE, harmless

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runenv.types import FilePart

__all__ = ("encodable", "file_line", "handles_in", "image_line", "left_out_line", "short_hash", "shown")

_NAMED: Final = re.compile(r"sha256 ([0-9a-f]{12}), (runenv\+file://[0-9a-f-]{36})\]")


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


def left_out_line(reason: str, media_type: str | None, size: int | None, sha256: str, handle: str | None) -> str:
    """Return the line that stands for an image that is not shown.

    Args:
        reason: why, one clause.
        media_type: of the image, where known.
        size: its bytes, where known.
        sha256: its short hash; used with a handle only.
        handle: of its artifact, where known.
    """
    described = _described(media_type, size, sha256, handle)
    return f"[image left out: {reason}{'; ' if described else ''}{described}]"


def short_hash(data: bytes) -> str:
    """Return the beginning of the SHA-256 of an image."""
    return hashlib.sha256(data).hexdigest()[:HASH_DIGITS]


def handles_in(texts: Iterable[str]) -> dict[str, str]:
    """Return the handles that lines in these texts name, by short hash; the first for a hash holds."""
    found: dict[str, str] = {}
    for text in texts:
        for sha256, handle in _NAMED.findall(text):
            found.setdefault(sha256, handle)
    return found


def _described(media_type: str | None, size: int | None, sha256: str, handle: str | None) -> str:
    facts = [
        harmless(media_type, MAX_TYPE) if media_type else "",
        "" if size is None else f"{size:,} bytes",
        f"sha256 {sha256}, {encodable(handle)}" if handle else "",
    ]
    return ", ".join(fact for fact in facts if fact)
