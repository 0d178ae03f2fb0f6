"""Handles: the short texts that stand for artifacts. Made, found, read, and shown to a model. Pure.

A handle is `runenv+file://` and a random UUID; one names one version of one artifact, and says nothing else: what it
names, and who may read it, only a store knows. Above are the store, `results.py`, `arguments.py` and the offloader.

What is a handle within a text, in one rule: the scheme and 32 hexadecimal digits in groups, in any case, where neither
side goes on as a word. `x-<handle>` and `<handle>_2` are other names that look alike; a handle right behind a handle is
two handles. Any group of digits counts, whatever version of UUID it is: a handle that a model made up must be found to
be refused.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from runenv.errors import HandleError
from runenv.placeholders import MAX_NAME, START, file_line, human_size, shown_name
from runenv.types import FilePart

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runenv.artifacts.artifact import Record

__all__ = (
    "SCHEME",
    "Match",
    "find",
    "found_in_any",
    "human_size",
    "mint",
    "parse",
    "part",
    "placeholder",
    "shown_name",
    "whole",
)

SCHEME: Final = "runenv+file"
"""The scheme of a handle's URI."""

_UUID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
# Starts with characters that have no case, so that the search runs at the speed of memchr; the scheme is checked after.
_FOUND: Final = re.compile(
    rf"://({_UUID})(?:(?=runenv\+file://)|(?![-_]*[0-9a-z]))",
    re.IGNORECASE | re.ASCII,
)
_CANONICAL: Final = re.compile(rf"{re.escape(SCHEME)}://{_UUID}")

_MAX_WHOLE: Final = 1000
"""Characters of a text that is one handle with ornaments: a markdown link, a placeholder."""

_ORNAMENTS: Final = frozenset(
    "`'\"<>()[]{}.,;:!?*_"
    "\u00ab\u00bb\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u2026\u2039\u203a\u300c\u300d\u300e\u300f"  # quotes
    "\u3001\u3002\u3010\u3011\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f"  # East Asian punctuation
    "\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"  # no width
)
_LINK_BEFORE: Final = re.compile(r"!?\[[^\[\]\n]*\]\(\s*<?")
_LINK_AFTER: Final = re.compile(r">?(?:\s+\"[^\"\n]*\")?\s*\)")


@dataclass(frozen=True, slots=True)
class Match:
    """A handle within a text.

    Attributes:
        handle: in its canonical form, lower case.
        start: index of its first character.
        end: index behind its last.
    """

    handle: str
    start: int
    end: int


def mint() -> str:
    """Return a new handle, which nobody can guess."""
    return f"{SCHEME}://{uuid.uuid4()}"


def find(text: str) -> list[Match]:
    """Return the handles in a text, in order, in time linear in its length.

    Args:
        text: of any length, in any language.
    """
    found: list[Match] = []
    end = 0
    for match in _FOUND.finditer(text):
        start = match.start() - len(SCHEME)
        if start < 0 or text[start : match.start()].lower() != SCHEME:
            continue
        if start == 0 or (found and start == end) or not _continues(text, start):
            end = match.end()
            found.append(Match(f"{SCHEME}://{match[1].lower()}", start, end))
    return found


def found_in_any(texts: Iterable[str]) -> bool:
    """Say whether some of many texts may have handles in them: never no where `find` finds one, seldom yes else."""
    return _FOUND.search("\n".join(text for text in texts if "://" in text)) is not None


def parse(text: str) -> str:
    """Return the one handle that a text is, in its canonical form.

    Args:
        text: a handle in any case, perhaps in blanks, quotes, backticks, brackets, with a full stop, as the target
            of a markdown link, or a whole placeholder.

    Raises:
        HandleError: the text is anything else.
    """
    if _CANONICAL.fullmatch(text):
        return text
    handle = whole(text)
    if handle is None:
        said = text if len(text) <= MAX_NAME else f"{text[:MAX_NAME]}..."
        raise HandleError(f"{said!r} is not a handle; one reads {SCHEME}://xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx")
    return handle


def whole(text: str) -> str | None:
    """Return the handle when a text is one and nothing else, ornaments aside as for `parse`; else None."""
    if "://" not in text:
        return None
    text = text.strip()
    if len(text) > _MAX_WHOLE or _FOUND.search(text) is None:  # an address, for the most part
        return None
    found = find(text)
    if len({match.handle for match in found}) != 1:
        return None
    before, after = text[: found[-1].start], text[found[-1].end :]
    plain = len(found) == 1 and _is_ornament(before) and _is_ornament(after)
    return found[-1].handle if plain or _is_link(before, after) or _is_placeholder(before, after) else None


def placeholder(record: Record) -> str:
    """Return the one line that stands for an artifact where a model reads, as `file_line` writes it."""
    return file_line(part(record))


def part(record: Record) -> FilePart:
    """Return the part of a tool result or message that stands for an artifact."""
    return FilePart(record.handle, record.name, record.media_type, record.size, record.sha256)


def _continues(text: str, start: int) -> bool:
    """Say whether a word runs into the character at `start`."""
    before = start - 1
    while before >= 0 and text[before] in "-_":
        before -= 1
    return before >= 0 and text[before].isascii() and (text[before].isalnum() or text[before] == "+")


def _is_ornament(text: str) -> bool:
    return all(character in _ORNAMENTS or character.isspace() for character in text)


def _is_link(before: str, after: str) -> bool:
    """Say whether what stands around a handle makes it the target of a markdown link."""
    target, closed = _LINK_BEFORE.search(before), _LINK_AFTER.match(after)
    if target is None or closed is None or target.end() != len(before):
        return False
    return _is_ornament(before[: target.start()]) and _is_ornament(after[closed.end() :])


def _is_placeholder(before: str, after: str) -> bool:
    at = before.find(START)
    return (
        at >= 0 and "\n" not in before[at:] and _is_ornament(before[:at]) and after[:1] == "]" and _is_ornament(after)
    )
