"""One exact replacement in a text: where it fits, how its lines end, and what a model is told when it does not. Pure.

A model writes newlines; where the file has CRLF they are taken for that, place by place, so that a file with mixed line
ends keeps each of them. Nothing is ever matched loosely: what nearly fits is only shown.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from runenv.errors import ToolError
from runenv.tools.text import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("Edited", "replace_text")

SHOWN_PLACES: Final = 20
"""Line numbers of an ambiguous text that are named."""
SHOWN_LINES: Final = 12
"""Lines that are shown as the nearest ones."""
SHOWN_CHARS: Final = 200
"""Characters of each of them."""
COMPARED_LINES: Final = 20_000
"""Lines that are compared with the one that was not found."""
COMPARED_CHARS: Final = 300
"""Characters of each line that count in that."""
CLOSE: Final = 0.6
"""From which ratio on a line is near another."""
CONTEXT: Final = 3
"""Lines shown before and after a change."""

_NUMBERED: Final = re.compile(r"\s*\d+\t")
_LOOKALIKES: Final = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u2033", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"),
        **dict.fromkeys("\u200b\u200c\u200d\ufeff", None),
    }
)


@dataclass(frozen=True, slots=True)
class Edited:
    """A text after a replacement.

    Attributes:
        text: all of it.
        places: how many were replaced.
        line: the first changed line.
        excerpt: the numbered lines around it.
    """

    text: str
    places: int
    line: int
    excerpt: str


def replace_text(text: str, old: str, new: str, *, every: bool) -> Edited:
    r"""Replace the one place of a text that is `old`, or all of them.

    Args:
        text: of the file.
        old: what is there; "\n" fits CRLF too.
        new: what is put there, with line ends as they are around it.
        every: replace all places, not the only one.

    Raises:
        ToolError: it is not there, or more than once; the text says where, or what is near.
    """
    old, new = _plain(old), _plain(new)
    if not old:
        raise ToolError("The argument old is empty: give the text to replace.")
    if old == new:
        raise ToolError("The arguments old and new are the same: nothing would change.")
    pattern = re.compile(r"\r?\n".join(map(re.escape, old.split("\n"))))
    places = [match.span() for match in pattern.finditer(text)]
    if not places:
        raise ToolError(_absent(text, old, new))
    if not every:
        places = _overlapping(pattern, text, places[0][0])
        if len(places) > 1:
            raise ToolError(_ambiguous(text, places))
    pieces, at = list[str](), 0
    for start, end in places:
        pieces += (text[at:start], new.replace("\n", _line_end(text, start)))
        at = end
    edited = "".join((*pieces, text[at:]))
    line = _line_of(text, places[0][0])
    return Edited(edited, len(places), line, _excerpt(edited, line, new.count("\n") + 1))


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n")


def _overlapping(pattern: re.Pattern[str], text: str, first: int) -> list[tuple[int, int]]:
    """Find all places, those too that begin within another."""
    places: list[tuple[int, int]] = []
    at = first
    while len(places) <= SHOWN_PLACES and (match := pattern.search(text, at)) is not None:
        start = match.start()
        if not (text[start : start + 1] == "\n" and start and text[start - 1] == "\r"):  # the half of a line end
            places.append(match.span())
        at = start + 1
    return places


def _line_end(text: str, at: int) -> str:
    """Return how the line at a place ends, or the one before it where it is the last."""
    end = text.find("\n", at)
    if end < 0:
        end = text.rfind("\n", 0, at)
    return "\r\n" if end > 0 and text[end - 1] == "\r" else "\n"


def _line_of(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _ambiguous(text: str, places: Sequence[tuple[int, int]]) -> str:
    lines = ", ".join(str(_line_of(text, start)) for start, _ in places[:SHOWN_PLACES])
    many = "more than " if len(places) > SHOWN_PLACES else ""
    times = min(len(places), SHOWN_PLACES)
    return (
        f"The text occurs {many}{times} times, in the lines {lines}: give more of the text around the one that you"
        " mean, or replace_all=true for all of them. Nothing was changed."
    )


def _absent(text: str, old: str, new: str) -> str:
    """Say that a text is not there, why that may be, and what is near."""
    said = ["The text was not found. Nothing was changed."]
    lines, wanted = text.split("\n"), old.split("\n")
    if all(_NUMBERED.match(line) for line in wanted if line.strip()) and old.strip():
        said.append("Its lines begin with numbers: leave out the line numbers and the tabs that file_read shows.")
    found = _loosely(lines, wanted)
    if found is not None:
        said.append(
            f"Line {found + 1} differs from it only by white space, or by quotes, dashes or invisible characters."
            " There it is:"
        )
        return "\n".join((" ".join(said), *_numbered(lines, found, min(len(wanted), SHOWN_LINES))))
    if new.strip() and len(new) > 2 and _plain(text).count(new) == 1:  # noqa: PLR2004 - more than a bracket
        line = _plain(text).count("\n", 0, _plain(text).find(new)) + 1
        said.append(f"But the new text is there already, in line {line}: perhaps this was done before.")
    near = _nearest(lines, wanted)
    if near is not None:
        said.append("The nearest lines are:")
        return "\n".join((" ".join(said), *_numbered(lines, near, min(len(wanted) + 2, SHOWN_LINES))))
    said.append("No line is near it: read the file, and copy the text from there.")
    return " ".join(said)


def _loosely(lines: Sequence[str], wanted: Sequence[str]) -> int | None:
    """Find lines that differ only by how white space and some characters are written."""
    keys = [key for key in map(_loose, wanted) if key]
    if not keys:
        return None
    places = [(at, key) for at, key in enumerate(map(_loose, lines)) if key]
    for first in range(len(places) - len(keys) + 1):
        at, key = places[first]
        if len(keys) == 1:
            if keys[0] in key:
                return at
        elif key.endswith(keys[0]) and places[first + len(keys) - 1][1].startswith(keys[-1]):
            inner = zip(keys[1:-1], places[first + 1 : first + len(keys) - 1], strict=True)
            if all(wanted_key == place[1] for wanted_key, place in inner):
                return at
    return None


def _loose(line: str) -> str:
    plain = line if line.isascii() else unicodedata.normalize("NFKC", line).translate(_LOOKALIKES)
    return "".join(plain.split())


def _nearest(lines: Sequence[str], wanted: Sequence[str]) -> int | None:
    """Find the line that is nearest to the longest one of what was wanted, and from there where that begins."""
    longest = max(range(len(wanted)), key=lambda at: len(wanted[at].strip()))
    line = wanted[longest].strip()[:COMPARED_CHARS]
    if not line:
        return None
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(line)
    best, best_at = CLOSE, None
    for at, candidate in enumerate(lines[:COMPARED_LINES]):
        matcher.set_seq1(candidate.strip()[:COMPARED_CHARS])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and (ratio := matcher.ratio()) > best:
            best, best_at = ratio, at
    return None if best_at is None else max(0, best_at - longest)


def _numbered(lines: Sequence[str], first: int, count: int) -> list[str]:
    """Return lines as `file_read` shows them."""
    shown = [visible(line.removesuffix("\r")) for line in lines[first : first + count]]
    cut = (line if len(line) <= SHOWN_CHARS else f"{line[:SHOWN_CHARS]} [cut]" for line in shown)
    return [f"{number}\t{line}" for number, line in enumerate(cut, first + 1)]


def _excerpt(text: str, line: int, count: int) -> str:
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    first = max(0, line - 1 - CONTEXT)
    return "\n".join(_numbered(lines, first, min(count + 2 * CONTEXT, SHOWN_LINES)))
