"""`Texts`: numbered lines of text files of any size, a window at a time. Streamed, in flat memory, bounded in time.

Pages are made by `runenv.artifacts.paging`, as those of artifacts are. But an artifact is read to its end once, to know
how long it is; a file of an env may be larger than anyone has time for, and it changes. So a file is scanned only as
far as one call has time, the places that were passed are remembered while its size and time stay the same, and a total
is told where it is known. Which encoding a file has is `encodings.py`'s business, what is a text `reading.py`'s.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from runenv.artifacts.lines import START, Position, Text, after, slices
from runenv.artifacts.paging import Index, Page, Window, page

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable
    from contextlib import AbstractAsyncContextManager

__all__ = ("ANSWER_CHARS", "FRAME_CHARS", "LINES", "Opener", "Position", "Shown", "Texts", "in_memory", "visible")

Opener: TypeAlias = "Callable[[int], AbstractAsyncContextManager[AsyncIterator[bytes]]]"
"""Opens the bytes of a file from an offset on."""

LINES: Final = 2_000
"""Lines of one answer."""
ANSWER_CHARS: Final = 50_000
"""Characters of one answer, everything included."""
FRAME_CHARS: Final = 1_500
"""What of an answer is kept for the lines before and behind the text."""
SCAN_SECONDS: Final = 0.3
"""Bounds the scan for a line that is far away, so that an answer comes within a second."""
PAGE_SECONDS: Final = 0.25
"""Bounds the reading of a page beyond that: one of endless lines."""
APART_BYTES: Final = 1536 * 1024
"""More than an index leaves between two places that it knows: a page is read that far whatever the time."""
REMEMBERED: Final = 64
"""Files of which it is known where their lines are."""

_CUT: Final = re.compile(r" \[cut: goes on at column=\d+\]\n\Z")
_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f]")
_MISLEADING: Final = re.compile("[\x80-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_PICTURES: Final = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"} | {0x7F: 0x2421}


@dataclass(frozen=True, slots=True)
class Shown:
    """A window of a text.

    Attributes:
        text: its lines, each with its number before a tab. Empty when its start was not reached or is not there.
        first: number of the first one, 0 when there is none.
        last: number of the last one.
        next: what is not shown begins here; None when nothing follows.
        cut: where the first line that was cut goes on, or None.
        lines: of the text, as far as is known.
        is_total: that is all of them.
        offset: the byte up to which lines were counted.
        unended: the last line was not followed to its end: it is too long.
    """

    text: str
    first: int
    last: int
    next: Position | None
    cut: Position | None
    lines: int
    is_total: bool
    offset: int
    unended: bool = False


@dataclass(slots=True)
class _Scan:
    """How far the lines of a file are known."""

    codec: str
    index: Index = field(default_factory=Index)
    at: Position = START
    offset: int = 0
    ended: bool = False

    @property
    def lines(self) -> int:
        """The number of lines passed; a newline at the end begins none."""
        return self.at.line if self.at.column > 1 else self.at.line - 1

    async def advance(self, open_at: Opener, to: Position | None, until: float | None) -> None:
        """Go on until a place is passed, the text ends or the time is over."""
        if self.ended or (to is not None and self.at > to):
            return
        text, begun_at = Text(self.codec, self.at), self.offset
        async with open_at(begun_at) as chunks, aclosing(slices(chunks)) as pieces:
            async for data in pieces:
                self.at = after(self.at, text.decode(data))
                self.offset = begun_at + text.offset
                self.index.add(self.at, self.offset)
                if (to is not None and self.at > to) or (until is not None and time.monotonic() > until):
                    return
        self.at = after(self.at, text.decode(b"", final=True))
        self.ended = True


class Texts:
    """What is known of the text files of one env."""

    def __init__(self) -> None:
        self._scans: OrderedDict[Hashable, _Scan] = OrderedDict()

    async def window(
        self, key: Hashable, open_at: Opener, codec: str, start: Position, limit: int, *, bounded: bool
    ) -> Shown:
        """Return lines of a text.

        Args:
            key: names the file and its state; the same key has the same content.
            open_at: opens it.
            codec: of Python; its decoder keeps no state but undecoded bytes.
            start: the first character; with a column above 1 only the rest of that line is shown.
            limit: lines at most.
            bounded: the work ends when its time is over; false for what is in memory.
        """
        began = time.monotonic()
        until = began + SCAN_SECONDS if bounded else None
        scan = self._scan(key, codec)
        await scan.advance(open_at, start, until)
        if start.line > scan.lines if scan.ended else scan.at < start:
            return _shown(Page(""), scan)
        window = Window(start, start.line + limit - 1, limit, ANSWER_CHARS - FRAME_CHARS)
        begin, byte = scan.index.before(start)
        least = min(scan.offset - byte, APART_BYTES)
        timed = _Timed(least, began + SCAN_SECONDS + PAGE_SECONDS if bounded else None)
        async with open_at(byte) as chunks, aclosing(timed.pieces(chunks)) as pieces:
            found = await page(pieces, codec, begin, window)
        if timed.is_over and found.next is None:
            return _broken_off(found, scan)
        await scan.advance(open_at, None, until)
        return _shown(found, scan)

    def _scan(self, key: Hashable, codec: str) -> _Scan:
        known = self._scans.pop(key, None)
        if known is None or known.codec != codec:
            known = _Scan(codec)
        self._scans[key] = known
        while len(self._scans) > REMEMBERED:
            self._scans.popitem(last=False)
        return known


class _Timed:
    """Ends a stream when its time is over, but not before its first so many bytes."""

    def __init__(self, least: int, until: float | None) -> None:
        self.is_over = False
        self._least = least
        self._until = until

    async def pieces(self, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
        async for chunk in chunks:
            yield chunk
            self._least -= len(chunk)
            if self._until is not None and self._least <= 0 and time.monotonic() > self._until:
                self.is_over = True
                return


def in_memory(data: bytes) -> Opener:
    """Return what opens bytes."""
    return lambda offset: _Held(data, offset)


class _Held:
    """Bytes in memory, as a stream of one chunk."""

    def __init__(self, data: bytes, offset: int) -> None:
        self._data = data
        self._offset = offset

    async def __aenter__(self) -> AsyncIterator[bytes]:
        return self._chunks()

    async def __aexit__(self, *exc: object) -> None:
        pass

    async def _chunks(self) -> AsyncIterator[bytes]:
        yield self._data[self._offset :]


def visible(text: str) -> str:
    """Show characters that move what is around them, but for tabs and newlines.

    Control characters of ASCII as the pictures of them that Unicode has; others, and those that end a line or turn the
    direction of writing, as `<U+202E>`.
    """
    if _CONTROL.search(text):
        text = text.translate(_PICTURES)
    return text if text.isascii() else _MISLEADING.sub(lambda found: f"<U+{ord(found[0]):04X}>", text)


def _shown(found: Page, scan: _Scan) -> Shown:
    """Say what follows a page too: `paging` knows only what of a window did not fit."""
    follows = found.next
    if follows is None and found.last:
        follows = Position(found.last + 1)
    if follows is not None and scan.ended and follows.line > scan.lines:
        follows = None
    lines = max(scan.lines, found.last)
    return Shown(found.text, found.first, found.last, follows, found.cut, lines, scan.ended, scan.offset)


def _broken_off(found: Page, scan: _Scan) -> Shown:
    """Say what is known of a page whose stream was ended early: its last line may go on.

    That line is left out where its text does not say that it was cut, and it is not the only one.
    """
    shown = replace(_shown(found, scan), is_total=False)
    before = found.text[: found.text.rfind("\n", 0, -1) + 1]
    if _CUT.search(found.text) or not before:
        return replace(shown, next=None, unended=True)
    return replace(shown, text=before, last=found.last - 1, next=Position(found.last))
