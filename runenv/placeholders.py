"""The line that stands for an artifact where a model reads, and what foreign names look like in it. Pure.

Written here once for `runenv.artifacts`, which stores and reads back, and `runenv.providers`, which write requests.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from runenv.types import FilePart

__all__ = ("HASH_DIGITS", "MAX_NAME", "MAX_TYPE", "START", "file_line", "harmless", "human_size", "shown_name")

START: Final = '[artifact "'
"""How the line begins."""
MAX_NAME: Final = 80
"""Characters of a filename, a tool's name or a call's id that a model is shown."""
MAX_TYPE: Final = 100
"""Characters of a media type that a model is shown."""
HASH_DIGITS: Final = 12
"""Hexadecimal digits of a hash that a model is shown."""

_KIB: Final = 1024
_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB")
_SHOWN_AS: Final = str.maketrans({'"': "'", "`": "'", "[": "(", "]": ")", "<": "(", ">": ")"})
_INVISIBLE: Final = re.compile("[\u115f\u1160\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Fillers and variation selectors: letters and marks by category, and a way to hide text in a name."""


def file_line(part: FilePart) -> str:
    """Return the line that stands for an artifact: name, type, size, hash and handle.

    The name and the type are made harmless: no quotes, brackets, line ends, control or invisible characters, no second
    handle, at most 80 and 100 characters.
    """
    size = human_size(part.size) + (f" ({part.size:,} bytes)" if part.size >= _KIB else "")
    described = f"{harmless(part.media_type, MAX_TYPE)}, {size}, sha256 {part.sha256[:HASH_DIGITS]}"
    return f'{START}{shown_name(part.filename)}" {described}, {part.handle}]'


def shown_name(name: str) -> str:
    """Return a filename as a model may be shown it: one line without ornaments, at most 80 characters."""
    return harmless(name, MAX_NAME) or "file"


def human_size(size: int) -> str:
    """Return a number of bytes for people, such as "29.3 KiB"."""
    if size < _KIB:
        return f"{size} byte" if size == 1 else f"{size} bytes"
    power = min((size.bit_length() - 1) // 10, len(_UNITS))
    if power < len(_UNITS) and round(size / _KIB**power, 1) >= _KIB:  # 1023.97 would show as 1024.0
        power += 1
    return f"{size / _KIB**power:.1f} {_UNITS[power - 1]}"


def harmless(text: str, limit: int) -> str:
    """Make a text fit to stand in quotes on a line of its own, cut in the middle when it is long."""
    text = " ".join("".join(map(_visible, text[: 4 * limit] + text[4 * limit :][-4 * limit :])).split())
    text = text.replace("://", ":/ /").translate(_SHOWN_AS)
    if len(text) > limit:
        tail = limit // 3  # the extension is at the end
        text = f"{text[: limit - tail - 1]}\u2026{text[-tail:]}"
    return text


def _visible(character: str) -> str:
    """Keep letters, marks, numbers, punctuation and symbols; a space for spaces and controls, nothing for formats."""
    if character == " " or (character.isascii() and character.isprintable()):
        return character
    category = unicodedata.category(character)
    if category == "Cf" or _INVISIBLE.match(character):  # they change how the rest of the line is read, or hide text
        return ""
    if category in {"Cs", "Co", "Cn"}:
        return "\ufffd"
    return " " if category[0] in "CZ" else character
