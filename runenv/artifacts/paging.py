"""Text of any size as numbered lines: an index of it, a page of it, what is found in it. Streamed, in flat memory.

`retrieval.py` above decides what is text, opens the streams and words the answers; nothing here knows a store. A line
ends at a newline; lines and columns are counted from 1, columns in characters. A line of any length is handled in
parts, so neither a file of 200 MB nor one line of it is ever held whole.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from runenv.artifacts.lines import START, Block, Blocks, Position, Row, Text, after, slices

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ("START", "Index", "Page", "Position", "Window", "index", "page", "search")

_CHECKPOINT_BYTES: Final = 1024 * 1024
"""Bytes between two positions that an index remembers."""
_LINE_CHARS: Final = 2_000
"""Characters of a line that a page of several lines shows; the same bound as when a file of the env is read."""
_FOUND_CHARS: Final = 400
"""Characters that a search shows of one line, or around one place in a longer line."""
_CUT: Final = " [cut: goes on at column={}]"


@dataclass(frozen=True, slots=True)
class Window:
    """What is asked for.

    Attributes:
        start: first character that is wanted, or where a search begins. With a column above 1 a page is the rest of
            that one line.
        last: last line that is wanted.
        limit: lines, or places with a match, at most.
        max_chars: characters at most, line numbers and line ends included.
        from_end: where there is more than fits, the last of it is kept instead of the first.
    """

    start: Position
    last: int
    limit: int
    max_chars: int
    from_end: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """Lines of an answer.

    Attributes:
        text: the lines, each with its number before a tab.
        first: number of the first line that was asked for or has a match, 0 when there is none.
        last: number of the last one.
        cut: where the first line that is not shown to its end goes on, or None.
        next: what did not fit begins (`from_end`: ends) here; None when all of it is shown.
        matches: how often the pattern occurs in all that was searched, shown or not.
    """

    text: str
    first: int = 0
    last: int = 0
    cut: Position | None = None
    next: Position | None = None
    matches: int = 0


@dataclass(slots=True)
class Index:
    """How much text there is, and at which bytes some places of it are.

    Attributes:
        lines: number of lines; a newline at the end begins none.
        chars: number of characters.
    """

    lines: int = 0
    chars: int = 0
    _positions: list[Position] = field(default_factory=lambda: [START])
    _offsets: list[int] = field(default_factory=lambda: [0])

    def add(self, position: Position, offset: int) -> None:
        """Remember that the character at `position` begins at byte `offset`."""
        if offset - self._offsets[-1] >= _CHECKPOINT_BYTES:
            self._positions.append(position)
            self._offsets.append(offset)

    def before(self, position: Position) -> tuple[Position, int]:
        """Return the last known place that is not behind `position`, and its byte."""
        at = bisect_right(self._positions, position) - 1
        return self._positions[max(0, at)], self._offsets[max(0, at)]


async def index(chunks: AsyncIterator[bytes], encoding: str) -> Index:
    """Read a text once, to its end, and say how much it is.

    Args:
        chunks: all of its bytes.
        encoding: a codec whose decoder keeps no state but undecoded bytes: "utf-8", "utf-16-le", "cp1252", ...
    """
    result = Index()
    at, ends = START, True
    text = Text(encoding, START)
    async for data in slices(chunks):
        piece = text.decode(data)
        at = after(at, piece)
        result.chars += len(piece)
        result.add(at, text.offset)
        ends = piece.endswith("\n") if piece else ends
    piece = text.decode(b"", final=True)
    ends = piece.endswith("\n") if piece else ends
    result.chars += len(piece)
    result.lines = at.line - 1 if ends else at.line
    return result


async def page(chunks: AsyncIterator[bytes], encoding: str, begin: Position, window: Window) -> Page:
    """Return the lines of a window.

    Args:
        chunks: the bytes from `begin` on.
        encoding: as for `index`.
        begin: a place at or before the window's start.
        window: which lines.
    """
    pager = _Pager(window)
    await _run(chunks, Text(encoding, begin), Blocks(begin), pager)
    return pager.page()


async def search(
    chunks: AsyncIterator[bytes], encoding: str, begin: Position, window: Window, pattern: str, context: int
) -> Page:
    """Return the lines of a window that hold a text, and the lines around them.

    Args:
        chunks: the bytes from `begin` on.
        encoding: as for `index`.
        begin: a place at or before the window's start.
        window: where to search, and how much to show.
        pattern: what to find within a line, literally; not empty and without a newline.
        context: lines shown before and after each line with a match.
    """
    finder = _Finder(window, pattern, context)
    await _run(chunks, Text(encoding, begin), Blocks(begin, overlap=len(pattern) - 1), finder)
    return finder.page()


class _Reader(Protocol):
    """Takes blocks in order."""

    done: bool

    def take(self, block: Block) -> None: ...


class _Kept:
    """The entries of a page that fit: the first ones, or the last ones."""

    def __init__(self, window: Window) -> None:
        self.full = False
        self._window = window
        self._entries: deque[tuple[Position, str, Position | None]] = deque()
        self._chars = 0
        self._refused: Position | None = None

    def add(self, start: Position, text: str, cut: Position | None = None) -> None:
        """Take an entry; set `full` when it does not fit."""
        window = self._window
        over = self._chars + len(text) > window.max_chars or len(self._entries) >= window.limit
        if over and not window.from_end:
            self.full, self._refused = True, start
            return
        self._entries.append((start, text, cut))
        self._chars += len(text)
        while self._chars > window.max_chars or len(self._entries) > window.limit:
            self._refused, dropped, _ = self._entries.popleft()
            self._chars -= len(dropped)

    def extend(self, text: str) -> None:
        """Add a line of context to the last entry, where there is room for it."""
        if self._entries and self._chars + len(text) <= self._window.max_chars:
            start, entry, cut = self._entries.pop()
            self._entries.append((start, entry + text, cut))
            self._chars += len(text)

    def page(self, rest: Position | None = None, matches: int = 0) -> Page:
        """Close the page; `rest` is where the text goes on behind what was added."""
        return Page(
            text="".join(text for _, text, _ in self._entries).removeprefix("--\n"),
            first=self._entries[0][0].line if self._entries else 0,
            last=self._entries[-1][0].line if self._entries else 0,
            cut=next((cut for _, _, cut in self._entries if cut is not None), None),
            next=self._refused or rest,
            matches=matches,
        )


class _Pager:
    """Takes the lines of a window as they are."""

    def __init__(self, window: Window) -> None:
        self.done = False
        self._window = window
        self._kept = _Kept(window)
        self._single = window.start.column > 1 or window.limit == 1 or window.start.line == window.last
        room = window.max_chars - len(f"{window.last}\t\n")
        self._width = room if self._single else min(_LINE_CHARS, room)
        self._column = window.start.column
        self._line = ""
        self._rest: Position | None = None

    def take(self, block: Block) -> None:
        if block.last < self._window.start.line:
            return
        for row in block.rows():
            if row.start.line >= self._window.start.line:
                self._take_row(row)
            if self.done:
                return

    def _take_row(self, row: Row) -> None:
        number = row.start.line
        if number > self._window.last:
            self.done = True
            return
        skipped = max(0, self._column + len(self._line) - row.start.column)
        self._line += row.text[skipped : skipped + self._width + 1 - len(self._line)]
        if row.goes_on and not (self._single and len(self._line) > self._width):
            return
        start = Position(number, self._column)
        text, cut = self._line.removesuffix("\r"), None
        if len(text) > self._width:
            shown = self._width - len(_CUT.format(self._column + self._width))
            cut = Position(number, self._column + shown)
            text = text[:shown] + _CUT.format(cut.column)
        self._kept.add(start, f"{number}\t{text}\n", cut)
        self._line, self._column = "", 1
        self.done = self._kept.full or self._single
        if self._single and number < self._window.last:
            self._rest = Position(number + 1)

    def page(self) -> Page:
        """Close the page."""
        return self._kept.page(self._rest)


class _Finder:
    """Takes the lines with a text in them, and those around."""

    def __init__(self, window: Window, pattern: str, context: int) -> None:
        self.done = False
        self._window = window
        self._pattern = pattern
        self._context = context
        self._kept = _Kept(window)
        self._matches = 0
        self._before: deque[Row] = deque(maxlen=context)
        self._after = 0
        self._shown = 0

    def take(self, block: Block) -> None:
        """Search a block; one without a match costs no work per line."""
        if block.start.line > self._window.last:
            self.done = True
        elif self._pattern not in block.text and not self._after:
            self._remember(block)
        elif self._kept.full and block.last <= self._window.last:
            self._matches += block.text.count(self._pattern)
        else:
            for row in block.rows():
                self._take_row(row)

    def _remember(self, block: Block) -> None:
        """Keep the last lines as context of a match in the next block."""
        at, count = len(block.text), 0
        while at > 0 and count <= self._context:
            at = block.text.rfind("\n", 0, at)
            count += 1
        if at > 0:
            line = block.start.line + block.text.count("\n", 0, at + 1)
            block = Block(Position(line), block.text[at + 1 :])
        self._before.extend(block.rows())

    def _take_row(self, row: Row) -> None:
        line, window = row.start.line, self._window
        if window.start.line <= line <= window.last:
            skipped = max(0, window.start.column - row.start.column) if line == window.start.line else 0
            found = row.text.count(self._pattern, skipped)
            self._matches += found
            if found and not self._kept.full:
                self._show(row, skipped)
                return
        if line == self._shown:
            return
        if self._after:
            self._after -= 1
            self._shown = line
            self._kept.extend(f"{line}\t{_short(row)}\n")
        else:
            self._before.append(row)

    def _show(self, row: Row, skipped: int) -> None:
        line = row.start.line
        lead = "".join(
            f"{old.start.line}\t{_short(old)}\n"
            for old in self._before
            if self._shown < old.start.line < line and old.start.column == 1
        )
        first = line - lead.count("\n")
        if self._context and self._shown and first > self._shown + 1:
            lead = f"--\n{lead}"
        self._before.clear()
        if len(row.text) <= _FOUND_CHARS and row.start.column == 1 and not row.goes_on:
            self._kept.add(Position(line, skipped + 1), f"{lead}{line}>\t{_short(row)}\n")
        else:
            self._show_places(row, skipped, lead)
        self._shown, self._after = line, 0 if self._kept.full else self._context

    def _show_places(self, row: Row, skipped: int, lead: str) -> None:
        """Show what is around each match in a long line; a match that is shown so already is not shown again."""
        line, text = row.start.line, row.text
        margin = max(0, _FOUND_CHARS - len(self._pattern)) // 2
        at = text.find(self._pattern, skipped)
        while at >= 0 and not self._kept.full:
            end = at + len(self._pattern) + margin
            place = Position(line, row.start.column + at)
            around = text[max(0, at - margin) : end].removesuffix("\r")
            self._kept.add(place, f"{lead}{line}>\t[column {place.column}] {around}\n")
            lead = ""
            at = text.find(self._pattern, end)

    def page(self) -> Page:
        """Close the search."""
        return self._kept.page(matches=self._matches)


def _short(row: Row) -> str:
    text = row.text.removesuffix("\r")
    return f"{text[:_FOUND_CHARS]} [cut]" if len(text) > _FOUND_CHARS or row.goes_on else text


async def _run(chunks: AsyncIterator[bytes], text: Text, blocks: Blocks, reader: _Reader) -> None:
    """Pass a stream on to a reader, until its end or until the reader is done."""
    async with aclosing(slices(chunks)) as pieces:
        async for data in pieces:
            for block in blocks.feed(text.decode(data)):
                reader.take(block)
                if reader.done:
                    return
    for block in (*blocks.feed(text.decode(b"", final=True)), *blocks.finish()):
        reader.take(block)
