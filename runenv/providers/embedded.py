"""Base64 of images within a text: found, taken out, and given back as images where they are whole. Pure.

A tool that returns a screenshot as a `data:` URI, or repeats an image part in a structured mirror, would fill the
context with text that no model can read. Only what shows the first bytes of an image is taken for one, so that other
base64 stays as it is.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Final

from runenv.providers.pictures import look
from runenv.types import ImagePart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ("take_out", "without_mirrors")

_BODY: Final = r"[A-Za-z0-9+/]"
_FOUND: Final = re.compile(
    rf"(?i:data:image/[a-z0-9.+-]{{1,40}}(?:;[a-z0-9=._-]{{1,60}}){{0,3}};base64,)({_BODY}{{16,}}={{0,2}})"
    # Without a URI: an image's first bytes as base64, and so long that it is no word or path by chance.
    rf"|(?<![A-Za-z0-9+/=])((?:iVBORw0KGgo|/9j/[2-7/]|R0lGOD[dl]h|UklGR){_BODY}{{24,}}={{0,2}})",
)
_MIN_MIRROR: Final = 16
"""Characters below which base64 in a text may be there by chance."""


def take_out(text: str, show: Callable[[ImagePart], str], drop: Callable[[str, int], str]) -> str:
    """Return a text with a note in place of each base64 image.

    Args:
        text: of any length, in any form.
        show: is given each image that is whole, and returns the note.
        drop: is given the media type and the characters of each that is not, and returns the note.
    """

    def note(match: re.Match[str]) -> str:
        body = match[1] or match[2]
        data = _decoded(body)
        picture = look(data)
        if picture is not None and picture.whole:
            return show(ImagePart(data, picture.media_type))
        if picture is None and match[1] is None:
            return match[0]
        declared = match[0][5:].partition(";")[0] if match[1] is not None else ""
        return drop(picture.media_type if picture else declared, len(body))

    return _FOUND.sub(note, text)


def without_mirrors(text: str, images: Iterable[bytes], note: str) -> str:
    """Return a text with a note in place of the base64 of images that are parts themselves."""
    for data in images:
        mirror = base64.b64encode(data).decode()
        if _MIN_MIRROR <= len(mirror) <= len(text):
            text = text.replace(mirror, note)
    return text


def _decoded(body: str) -> bytes:
    """Return the bytes of base64; for what was cut in the middle of a group, all but that group."""
    body = body.rstrip("=")
    body = body[: len(body) - 1] if len(body) % 4 == 1 else body
    try:
        return base64.b64decode(body + "=" * (-len(body) % 4))
    except binascii.Error:  # pragma: no cover - the pattern admits the alphabet only
        return b""
