"""A stream of bytes as blocks of numbered lines: what `paging.py` reads. Sync but for the stream itself; flat memory.

A block is whole lines, or, of a line that is longer than is good to hold, a part. Chunks may split characters and lines
anywhere.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Final, NamedTuple

from anyio.lowlevel import checkpoint

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator

__all__ = ("START", "Block", "Blocks", "Position", "Row", "Text", "after", "slices")

_SLICE_BYTES: Final = 256 * 1024
"""Bytes decoded between two turns of the event loop."""
_PART_CHARS: Final = 64 * 1024
"""Characters of an unfinished line that are held before they are passed on as a part of it."""


class Position(NamedTuple):
    """A character of a text. Positions compare in the order of the text."""

    line: int
    column: int = 1


START: Final = Position(1)
"""Where a text begins."""


class Block(NamedTuple):
    """Whole lines with their ends, or a line or part of one without."""

    start: Position
    text: str
    goes_on: bool = False

    @property
    def last(self) -> int:
        """Number of its last line."""
        return self.start.line + self.text.count("\n", 0, -1)

    def rows(self) -> Iterator[Row]:
        """Its lines."""
        texts = self.text.split("\n")
        if not texts[-1]:
            texts.pop()
        start = self.start
        for text in texts:
            yield Row(start, text, self.goes_on)  # a block that goes on is one row
            start = Position(start.line + 1)


class Row(NamedTuple):
    """A line, or the part of one that a block holds."""

    start: Position
    text: str
    goes_on: bool


class Text:
    """Decodes slices of bytes; a byte order mark at the start of the text is none of its characters."""

    def __init__(self, encoding: str, begin: Position) -> None:
        self._decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
        self._at_start = begin == START
        self._fed = 0

    @property
    def offset(self) -> int:
        """The byte at which the next character begins."""
        return self._fed - len(self._decoder.getstate()[0])

    def decode(self, data: bytes, *, final: bool = False) -> str:
        """Return the characters that are complete now."""
        self._fed += len(data)
        text = self._decoder.decode(data, final)
        if self._at_start and text:
            self._at_start = False
            return text.removeprefix("\ufeff")
        return text


class Blocks:
    """Cuts text into blocks; after a part of a line the next block repeats its last `overlap` characters."""

    def __init__(self, begin: Position, *, overlap: int = 0) -> None:
        self._start = begin
        self._held = ""
        self._overlap = overlap

    def feed(self, text: str) -> Iterator[Block]:
        """Take text; give what of it makes blocks."""
        held = self._held + text
        whole = held.rfind("\n", len(self._held)) + 1
        if whole:
            yield Block(self._start, held[:whole])
            self._start, held = after(self._start, held[:whole]), held[whole:]
        if len(held) > _PART_CHARS + self._overlap:
            yield Block(self._start, held, goes_on=True)
            passed = len(held) - self._overlap
            self._start, held = Position(self._start.line, self._start.column + passed), held[passed:]
        self._held = held

    def finish(self) -> Iterator[Block]:
        """Give the last line, when no newline ends it."""
        if self._held or self._start.column > 1:
            yield Block(self._start, self._held or "\n")


async def slices(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """Cut chunks into slices that take the event loop no time worth speaking of."""
    async for chunk in chunks:
        for at in range(0, len(chunk), _SLICE_BYTES):
            await checkpoint()
            yield chunk[at : at + _SLICE_BYTES]


def after(start: Position, text: str) -> Position:
    """Return the position behind a text."""
    lines = text.count("\n")
    if not lines:
        return Position(start.line, start.column + len(text))
    return Position(start.line + lines, len(text) - text.rfind("\n"))
