"""One exact replacement in a text: where it fits, how its lines end, and what a model is told when it does not. Pure.

A model writes newlines; where the file has CRLF they are taken for that, place by place, so that a file with mixed line
ends keeps each of them. Nothing is ever matched loosely: what nearly fits is only shown.

Both texts are hostile: all work grows with their length, not faster. So there are no patterns here, whose time and
memory a text of many lines would decide, and what is near is looked for within bounds.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from runenv.errors import ToolError
from runenv.tools.nearest import nearest
from runenv.tools.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ("Edited", "replace_text")

SHOWN_PLACES: Final = 20
"""Line numbers of an ambiguous text that are named."""
SHOWN_LINES: Final = 12
"""Lines that are shown as the nearest ones."""
SHOWN_CHARS: Final = 200
"""Characters of each of them."""
NEAR_CHARS: Final = 512 * 1024
"""Characters of a text among which what is near is looked for: a second or two of work at worst."""
NORMALIZED_CHARS: Final = 64
"""Characters that are normalised at a time: the time for a run of combining ones grows with its square."""
MAX_PLACES: Final = 1_000_000
"""Places that are replaced in one edit; each takes some memory."""
MAX_CHARS: Final = 64 * 1024 * 1024
"""Characters of an edited text: many short places may each become a long one."""
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
    source = _Source(text, old)
    if not (places := source.places(old, every=every)):
        raise ToolError(_absent(text, old, new))
    if len(places) > 1 and not every:
        raise ToolError(_ambiguous(text, [source.original(place) for place in places]))
    if len(places) > MAX_PLACES or len(text) + len(places) * len(new) > MAX_CHARS:
        raise ToolError(
            f"More than {MAX_PLACES:,} places would be replaced, or the file would have more than {MAX_CHARS:,}"
            " characters. Nothing was changed: give more of the text around the places, or change fewer at a time."
        )
    edited = "".join(_pieces(source, places, len(old), new))
    line = _line_of(text, source.original(places[0]))
    return Edited(edited, len(places), line, _excerpt(edited, line, new.count("\n") + 1))


class _Source:
    r"""A text, and where a text with "\n" as its only line end is in it.

    Args:
        text: of the file.
        old: what will be looked for; without a newline in it line ends do not matter.
    """

    def __init__(self, text: str, old: str) -> None:
        self.text = text
        self._plain = text
        self._ends = array("Q")
        if "\n" in old and "\r\n" in text:
            pieces = text.split("\r\n")
            self._plain = "\n".join(pieces)
            self._ends.extend(accumulate(len(piece) + 1 for piece in pieces[:-1]))

    def places(self, old: str, *, every: bool) -> list[int]:
        """Return where a text begins, one place more than may be at most; without `every` also within another."""
        places: list[int] = []
        at = self._plain.find(old)
        while at >= 0 and len(places) <= (MAX_PLACES if every else SHOWN_PLACES):
            places.append(at)
            at = self._plain.find(old, at + (len(old) if every else 1))
        return places

    def original(self, place: int) -> int:
        """Return where that is in the text itself."""
        return place + bisect_right(self._ends, place)


def _pieces(source: _Source, places: Sequence[int], length: int, new: str) -> Iterator[str]:
    """Return what an edited text is made of; each place gets line ends as they are around it."""
    text, at, known, end = source.text, 0, -1, "\n"
    for place in places:
        start = source.original(place)
        yield text[at:start]
        if "\n" in new and start > known:
            known = text.find("\n", start)
            end = _line_end(text, known if known >= 0 else text.rfind("\n", 0, start))
            known = known if known >= 0 else len(text)
        yield new.replace("\n", end)
        at = source.original(place + length)
    yield text[at:]


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n")


def _line_end(text: str, at: int) -> str:
    """Return the line end whose newline is at a place; -1 for none."""
    return "\r\n" if at > 0 and text[at - 1] == "\r" else "\n"


def _line_of(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _ambiguous(text: str, places: Sequence[int]) -> str:
    lines = ", ".join(str(_line_of(text, start)) for start in places[:SHOWN_PLACES])
    many = "more than " if len(places) > SHOWN_PLACES else ""
    times = min(len(places), SHOWN_PLACES)
    return (
        f"The text occurs {many}{times} times, in the lines {lines}: give more of the text around the one that you"
        " mean, or replace_all=true for all of them. Nothing was changed."
    )


def _absent(text: str, old: str, new: str) -> str:
    """Say that a text is not there, why that may be, and what is near."""
    said = ["The text was not found. Nothing was changed."]
    lines, wanted = text[:NEAR_CHARS].split("\n"), old[:NEAR_CHARS].split("\n")
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
    said.append("No line near it was found: read the file, and copy the text from there.")
    return " ".join(said)


def _loosely(lines: Sequence[str], wanted: Sequence[str]) -> int | None:
    """Find lines that differ only by how white space and some characters are written."""
    keys = [key for key in map(_loose, wanted) if key]
    if not keys:
        return None
    places = [(at, key) for at, key in enumerate(map(_loose, lines)) if key]
    text = "\n".join(key for _, key in places)
    found = text.find("\n".join(keys))
    return None if found < 0 else places[text.count("\n", 0, found)][0]


def _loose(line: str) -> str:
    if not line.isascii():
        line = line.translate(_LOOKALIKES)
        pieces = (line[at : at + NORMALIZED_CHARS] for at in range(0, len(line), NORMALIZED_CHARS))
        line = "".join(unicodedata.normalize("NFKC", piece) for piece in pieces)
    return "".join(line.split())


def _nearest(lines: Sequence[str], wanted: Sequence[str]) -> int | None:
    """Find the line that is nearest to the longest one of what was wanted, and from there where that begins."""
    longest = max(range(len(wanted)), key=lambda at: len(wanted[at].strip()))
    near = nearest(wanted[longest].strip(), (line.strip() for line in lines))
    return max(0, near[0] - longest) if near else None


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
