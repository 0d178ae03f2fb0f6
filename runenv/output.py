r"""Turns the bytes that a command wrote into a bounded `Output`: bytes in, text for a model out. Pure.

`runenv.envs` calls `render` with what the guest kept of a stream; below are only `runenv.types` and the standard
library. Nothing here reads a stream or knows where a spill file is made.

`Output.text` is decoded as UTF-8 with replacement, and is what a terminal would show of each line: CRLF is a line end,
a carriage return or backspace moves back so that later text overwrites older text cell by cell (a character is a cell),
"erase line" erases, moves within the line move. Every other escape sequence is removed, BEL too; an unterminated one
takes at most its own introducer and parameters with it. What is left of the control characters is made visible, NUL as
U+2400 and so on, C1 as U+FFFD; tab, newline and everything that Unicode calls text stay, whatever their direction.
Moves between lines are not followed: each frame of a display that redraws several lines is shown.

A cut is made on the raw bytes first and both sides are cleaned after it. So the numbers in the marker are exact counts
of the raw stream: bytes of the head, bytes left out, bytes of the tail are the total, and a byte that only cleaning
removed is not "left out". All work is linear in what was kept.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

from runenv.types import Output

__all__ = ("render",)

_WINDOW_FACTOR: Final = 8
"""Raw bytes per character of the limit that are looked at for each side; bounds the work when far more was kept."""
_GROWTH_STEPS: Final = 3
"""How often a side that cleaning made shorter is extended to use what it may."""
_NEAR: Final = 4
"""A line end within the last 1/4 of a side is near enough to cut there."""
_MAX_PARAMETERS: Final = 128
"""Bytes of parameters that belong to one control sequence; what follows more of them is text."""

_WHOLE_CHARACTER: Final = 4
"""Bytes of the longest character in UTF-8."""
_BROKEN_SEQUENCE: Final = "surrogateescape"
"""Decodes each undecodable byte to one character, so that a character position has an exact byte position."""

# Each alternative starts with a literal: then the regex engine skips to the next candidate at the speed of memchr.
_MOVE_WITHIN_LINE: Final = r"\[[0-9]{0,4}[CDGK]"
_MOTION: Final = re.compile(rf"(\r\r*|\x08\x08*|\x1b{_MOVE_WITHIN_LINE})")
_SEQUENCE_BODY: Final = (
    rf"(?:\[[0-?]{{0,{_MAX_PARAMETERS}}}+[ -/]{{0,4}}+[@-~]?"  # CSI: colours, modes, cursor
    r"|[\]PX^_][^\x07\x1b\n]*+(?:\x07|\x1b\\)"  # OSC, DCS, SOS, PM, APC: titles, links, images
    r"|[ -/]{1,4}+[0-~]?"  # character sets
    r"|[0-~])?"  # two characters: save cursor, reset, or the introducer of an unterminated string
)
_SEQUENCE: Final = re.compile(rf"\x1b{_SEQUENCE_BODY}")
_REMOVED: Final = re.compile(rf"\x1b(?!{_MOVE_WITHIN_LINE}){_SEQUENCE_BODY}")
_SPECIAL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_HIDDEN: Final = re.compile(r"[\x00-\x07\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]")
_PICTURES: Final[dict[str, str]] = {
    **{chr(code): chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\b\t\n\r\x1b"},
    "\a": "",
    "\x7f": "\u2421",
    **dict.fromkeys(map(chr, range(0x80, 0xA0)), "\ufffd"),
}

_EMPTY: Final = Output()


def render(
    head: bytes,
    tail: bytes,
    *,
    total_bytes: int,
    total_lines: int,
    max_chars: int,
    spill_path: str | None,
    spilled_bytes: int,
) -> Output:
    """Make the `Output` of one finished stream.

    Args:
        head: the first bytes of the stream.
        tail: its last bytes. Together with `head` the whole stream, or there is a gap that was never sent.
        total_bytes: length of the whole stream.
        total_lines: newline bytes in the whole stream.
        max_chars: bound of `Output.text` in characters, the marker included.
        spill_path: file in the env that holds the stream from its start, or None.
        spilled_bytes: how much of the stream that file holds.

    Returns:
        The output; its text is cut in the middle, at line ends where one is near, when it would not fit.

    Raises:
        ValueError: the counts say less than the bytes show.
    """
    if not total_bytes and not head and not tail:
        return _EMPTY
    data = head + tail if tail else head
    omitted = total_bytes - len(data)
    if omitted < 0:
        raise ValueError(f"a stream of {total_bytes} bytes cannot have {len(data)} bytes kept")
    if not omitted:
        text = _whole(data, max_chars)
        if text is not None:
            return Output(data=data, text=text, total_bytes=total_bytes)
        head = tail = data
    marker = _Marker(max_chars, total_bytes, total_lines, spill_path, spilled_bytes)
    window = _WINDOW_FACTOR * max_chars
    first = _first_part(_complete_end(head[:window]), marker.room - marker.room // 2)
    last = _last_part(_complete_start(tail[max(0, len(tail) - window) :]), marker.room // 2)
    if not omitted:  # both come from the same bytes; they may meet but not overlap
        last = last[max(0, len(first) + len(last) - total_bytes) :]
    return Output(
        data=data,
        text=marker.between(first, last),
        truncated=True,
        total_bytes=total_bytes,
        omitted_bytes=omitted,
        spill_path=spill_path,
        spilled_bytes=spilled_bytes,
    )


class _Marker:
    """The line that stands at the cut, and the room that it leaves."""

    def __init__(
        self, max_chars: int, total_bytes: int, total_lines: int, spill_path: str | None, spilled_bytes: int
    ) -> None:
        self._max_chars = max_chars
        self._total_bytes = total_bytes
        self._total_lines = total_lines
        if spill_path is None or not spilled_bytes:
            self._where = "; the whole output was not kept"
        elif spilled_bytes < total_bytes:
            self._where = f"; its first {_count(spilled_bytes, 'byte')} are in {spill_path}"
        else:
            self._where = f"; the whole output is in {spill_path}"
        if len(self._line(total_bytes, total_lines)) > max_chars // 2:
            self._where = ""  # a very long path: the text matters more, and `Output.spill_path` has it
        self.room = max(0, max_chars - len(self._line(total_bytes, total_lines)) - len("\n\n"))

    def _line(self, omitted_bytes: int, omitted_lines: int) -> str:
        omitted = f"{_count(omitted_bytes, 'byte')} ({_count(omitted_lines, 'line')})"
        return f"[... {omitted} left out{self._where} ...]"

    def between(self, first: bytes, last: bytes) -> str:
        """Clean both sides and join them with the marker between."""
        shown_lines = first.count(b"\n") + last.count(b"\n")
        if shown_lines > self._total_lines:
            raise ValueError(f"a stream of {self._total_lines} lines cannot have {shown_lines} lines kept")
        line = self._line(self._total_bytes - len(first) - len(last), self._total_lines - shown_lines)
        before = _clean(first.decode(errors="replace"))
        after = _clean(last.decode(errors="replace"))
        if before and not before.endswith("\n"):
            before += "\n"
        if after:
            after = "\n" + after
        return (before + line + after)[: self._max_chars]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _whole(data: bytes, max_chars: int) -> str | None:
    """The cleaned text of a whole stream, or None when it does not fit or is too much to look at."""
    if len(data) > _WINDOW_FACTOR * max_chars:
        return None
    text = data.decode(errors="replace")
    if len(text) > max_chars and not _SPECIAL.search(text):
        return None
    text = _clean(text)
    return text if len(text) <= max_chars else None


def _first_part(data: bytes, max_chars: int) -> bytes:
    """The longest beginning of `data` that is sure to fit when cleaned, at a line end where one is near."""
    text = data.decode(errors=_BROKEN_SEQUENCE)
    end = max_chars
    for _ in range(_GROWTH_STEPS):  # cleaning never makes text longer, so what it takes away can be added
        spare = max_chars - len(_clean(text[:end])) if end < len(text) else 0
        if spare <= max_chars // _NEAR:
            break
        end += spare
    if end >= len(text):
        return data
    line_end = text.rfind("\n", end - end // _NEAR, end) + 1
    return text[: line_end or _sequence_around(text, end)[0]].encode(errors=_BROKEN_SEQUENCE)


def _last_part(data: bytes, max_chars: int) -> bytes:
    """The longest end of `data` that is sure to fit when cleaned, from a line start where one is near."""
    text = data.decode(errors=_BROKEN_SEQUENCE)
    size = max_chars
    for _ in range(_GROWTH_STEPS):
        spare = max_chars - len(_clean(text[len(text) - size :])) if size < len(text) else 0
        if spare <= max_chars // _NEAR:
            break
        size += spare
    if size >= len(text):
        return data
    start = len(text) - size
    line_start = text.find("\n", start - 1, start + size // _NEAR) + 1
    return text[line_start or _sequence_around(text, start)[1] :].encode(errors=_BROKEN_SEQUENCE)


def _sequence_around(text: str, position: int) -> tuple[int, int]:
    """Where the escape sequence that `position` would split begins and ends; twice `position` when there is none."""
    begin = text.rfind("\x1b", max(0, position - _MAX_PARAMETERS), position)
    found = _SEQUENCE.match(text, begin) if begin >= 0 else None
    return found.span() if found and found.end() > position else (position, position)


def _complete_end(data: bytes) -> bytes:
    """Without the first bytes of a character whose rest was cut off."""
    last = data[-_WHOLE_CHARACTER:]
    _, used = codecs.utf_8_decode(last, "replace", False)  # noqa: FBT003 - its only spelling
    return data[: len(data) - len(last) + used]


def _complete_start(data: bytes) -> bytes:
    """Without the last bytes of a character whose beginning was cut off."""
    rest = data[: _WHOLE_CHARACTER - 1].lstrip(bytes(range(0x80, 0xC0)))
    return data[min(len(data), _WHOLE_CHARACTER - 1) - len(rest) :]


def _clean(text: str) -> str:
    """What a terminal shows of each line. Never longer than `text`."""
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    if not _SPECIAL.search(text):
        return text
    if "\x1b" in text:
        text = _REMOVED.sub("", text)
    if _HIDDEN.search(text):
        for hidden, shown in _PICTURES.items():  # far faster than str.translate, which is slow past ASCII
            text = text.replace(hidden, shown)
    if not _MOTION.search(text):
        return text
    return "\n".join([_overwrite(line) if _MOTION.search(line) else line for line in text.split("\n")])


def _overwrite(line: str) -> str:
    """Apply the moves within one line. The cursor never leaves what is written, so nothing grows but by writing."""
    cells: list[str] = []
    column = 0
    for number, piece in enumerate(_MOTION.split(line)):
        if number % 2 == 0:
            cells[column : column + len(piece)] = piece
            column += len(piece)
        elif piece[0] == "\r":
            column = 0
        elif piece[0] == "\b":
            column = max(0, column - len(piece))
        else:
            column = _move(cells, column, piece[-1], int(piece[2:-1] or 0))
    return "".join(cells)


def _move(cells: list[str], column: int, letter: str, amount: int) -> int:
    """Follow one control sequence; return the new column."""
    if letter == "K":
        if amount == 0:
            del cells[column:]
        elif amount == 2:  # noqa: PLR2004 - "2K" is the whole line; a move to its start always goes with it
            cells.clear()
            return 0
        return column
    if letter == "G":
        return min(len(cells), max(1, amount) - 1)
    if letter == "D":
        return max(0, column - max(1, amount))
    if column == len(cells):
        cells.append(" ")  # a gap of any width past the end is one blank
    return min(len(cells), column + max(1, amount))
