"""`Retrieval`: a model reads what was kept out of its context, a page or a few found lines at a time.

Every answer is shorter than what would be offloaded, so that reading never goes in circles. `references.py` knows which
artifact is meant, `paging.py` reads text of any size in flat memory; this module decides what content is, and words the
answers. It never raises for what a model did wrong, and never tells one to run a tool again.
"""

from __future__ import annotations

import codecs
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from runenv.artifacts.artifact import Scope
from runenv.artifacts.handles import shown_name
from runenv.artifacts.media import HEAD_BYTES, charset, essence, is_text
from runenv.artifacts.paging import Position, Window, index, page, search
from runenv.artifacts.references import resolve
from runenv.errors import ArtifactError, ArtifactMissingError, LimitError, ToolError
from runenv.types import ImagePart, TextPart, ToolResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runenv.artifacts.artifact import Record
    from runenv.artifacts.paging import Index, Page
    from runenv.artifacts.store import ArtifactStore

__all__ = ("DEFAULT_CONTEXT", "DEFAULT_LIMIT", "OFFLOADED", "Retrieval")

T = TypeVar("T")

OFFLOADED: Final = "offloaded"
"""Key in the metadata of texts that the offloader stored; they are UTF-8 whatever characters are in them."""
DEFAULT_LIMIT: Final = 2_000
"""Lines, or places with a match, of one answer; it mostly ends earlier, by its characters."""
DEFAULT_CONTEXT: Final = 2
"""Lines shown before and after a line with a match."""

ANSWER_CHARS: Final = 10_000
"""Characters of an answer, everything included."""
MAX_IMAGE_BYTES: Final = 3_750_000
"""Bytes of an image that every vendor takes."""
_FRAME_CHARS: Final = 700
"""What of an answer is kept for the lines before and behind the text."""
_MAX_CONTEXT: Final = 10
_MAX_PATTERN: Final = 1_000
"""Characters of a pattern."""
_SHOWN_PATTERN: Final = 80
_SHOWN_ERROR: Final = 2_000
_HEX_BYTES: Final = 64
_MISSING: Final = "It is not available: go on with the preview of it that you were shown, if there was one."
_REMEMBERED_PATHS: Final = 1_000
_REMEMBERED_INDEXES: Final = 32
_IMAGES: Final = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})
_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_LEGACY: Final = "cp1252"
"""How a text is read that is no UTF-8 and does not say what it is: every byte is a character, or a replaced one."""
_SIMPLE: Final = ("ascii", "cp125", "iso8859", "koi8", "utf-8", "utf-16-", "utf-32-")
"""Beginnings of declared codes that are believed: their decoders keep nothing but undecoded bytes."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a model asks for, by its arguments."""

    start: Position
    limit: int
    from_end: bool
    pattern: str | None
    context: int

    def check(self) -> None:
        """Refuse what no answer can be.

        Raises:
            ToolError: an argument makes no sense.
        """
        if self.limit < 1:
            raise ToolError(f"the limit is {self.limit}: give at least 1")
        if self.pattern is not None and (not 1 <= len(self.pattern) <= _MAX_PATTERN or "\n" in self.pattern):
            raise ToolError(f"a pattern is a text within one line, of 1 to {_MAX_PATTERN:,} characters")

    def window(self, lines: int) -> tuple[Window, Position]:
        """Return the window within a text of so many lines, and from where on it must be read."""
        last, first = lines, self.start
        if self.from_end:
            last = lines - self.start.line + 1
            first = Position(1 if self.pattern is not None else max(1, last - self.limit + 1))
        begin = first if self.pattern is None else Position(max(1, first.line - self.context))
        return Window(first, last, self.limit, ANSWER_CHARS - _FRAME_CHARS, self.from_end), begin


class Retrieval:
    """Reads artifacts for a model.

    Args:
        store: where they are.
        scope: whose artifacts may be read.
        tool: name of the tool that calls `retrieve`, for the hints how to go on; None for hints without it.
        folders: folders of an env that hold copies of artifacts, each under the artifact's name.

    Raises:
        HandleError: the scope is none.
    """

    def __init__(
        self,
        store: ArtifactStore,
        *,
        scope: str | Scope,
        tool: str | None = "artifact_read",
        folders: Sequence[str] = (),
    ) -> None:
        self._store = store
        self._scope = Scope.of(scope)
        self._go_on = f"go on with {tool} and" if tool else "go on with"
        self._folders = tuple(folders)
        self._paths: OrderedDict[str, str] = OrderedDict()
        self._indexes: OrderedDict[str, Index] = OrderedDict()

    def remember(self, path: str, handle: str) -> None:
        """Note that a model was shown `path` for an artifact."""
        _put(self._paths, path, handle, _REMEMBERED_PATHS)

    async def retrieve(
        self,
        reference: str,
        *,
        offset: int = 1,
        limit: int = DEFAULT_LIMIT,
        column: int = 1,
        from_end: bool = False,
        pattern: str | None = None,
        context: int = DEFAULT_CONTEXT,
    ) -> ToolResult:
        """Return a part of an artifact: lines of a text, an image, or what can be said of other bytes.

        An answer has at most 10,000 characters, all included, and says how to go on. Lines and columns are counted
        from 1 (0 means 1). Without arguments it is the first page.

        Args:
            reference: a handle, a placeholder, a name (`name@2` for a version), or a path or URI as it was shown,
                with or without quotes.
            offset: first line; with `from_end` the last line, counted from the end.
            limit: lines, or places with a match, at most.
            column: character of that line to start at, for a line that was cut; then only that line is returned.
            from_end: the last lines, or matches, instead of the first.
            pattern: return only lines with this text in them, literally, in the same case.
            context: lines around each of those, at most 10.

        Returns:
            The part; an error result when it cannot be had, which says what to do instead.
        """
        asked = _Asked(
            Position(max(1, offset), max(1, column)), limit, from_end, pattern, min(max(0, context), _MAX_CONTEXT)
        )
        try:
            record = await resolve(reference, self._store, scope=self._scope, paths=self._paths, folders=self._folders)
            asked.check()
            encoding = await self._encoding(record)
            if encoding is None:
                return await self._not_text(record, pattern)
            return await self._text(record, encoding, asked)
        except ArtifactMissingError as error:
            return _error(f"{_sentence(error)} {_MISSING}")
        except (ArtifactError, LimitError, ToolError) as error:
            return _error(_sentence(error))

    async def _text(self, record: Record, encoding: str, asked: _Asked) -> ToolResult:
        lines = await self._index(record, encoding)
        size = f"{_count(lines.lines, 'line')}, {lines.chars:,} characters, {_count(record.size, 'byte')}"
        about = f"{shown_name(record.name)} | {essence(record.media_type)} | {size}"
        if not lines.lines:
            return _answer(f"[{about} | empty]")
        if asked.start.line > lines.lines:
            return _answer(
                f"[{about} | line {asked.start.line:,} is not there: give an offset from 1 to {lines.lines}]"
            )
        window, begin = asked.window(lines.lines)
        begin, byte = lines.before(begin)
        async with self._store.open_read(record.handle, scope=self._scope, offset=byte) as chunks:
            if asked.pattern is None:
                found = await page(chunks, encoding, begin, window)
            else:
                found = await search(chunks, encoding, begin, window, asked.pattern, asked.context)
        hint = self._hint(found, lines, asked)
        return _answer(f"[{about} | {_head(found, asked.pattern)}]\n{found.text}[{hint}]")

    def _hint(self, found: Page, lines: Index, asked: _Asked) -> str:
        """Say how to go on."""
        same = " and the same pattern" if asked.pattern is not None else ""
        if asked.from_end:
            rest = "Nothing is before."
            last = found.next.line if found.next is not None and same else found.first - 1
            if last > 0 and (found.next is not None or not same):
                rest = f"For what is before: {self._go_on} offset={lines.lines - last + 1}, from_end=true{same}."
        elif found.next is not None:
            column = f", column={found.next.column}" if found.next.column > 1 else ""
            rest = f"For what follows: {self._go_on} offset={found.next.line}{column}{same}."
        else:
            rest = "Nothing follows."
        if found.cut is None:
            return rest
        of = found.cut
        return f"For the rest of line {of.line}: {self._go_on} offset={of.line}, column={of.column}. {rest}"

    async def _index(self, record: Record, encoding: str) -> Index:
        known = self._indexes.get(record.handle)
        if known is None:
            async with self._store.open_read(record.handle, scope=self._scope) as chunks:
                known = await index(chunks, encoding)
            _put(self._indexes, record.handle, known, _REMEMBERED_INDEXES)
        return known

    async def _encoding(self, record: Record) -> str | None:
        """Return how a text is encoded, or None for what is no text."""
        if OFFLOADED in record.metadata:
            return "utf-8"
        if not is_text(record.media_type):
            return None
        head = await self._store.get(record.handle, scope=self._scope, length=HEAD_BYTES)
        marked = next((encoding for mark, encoding in _BOMS if head.startswith(mark)), None)
        declared = charset(record.media_type) or ""
        if marked is not None or declared.startswith(_SIMPLE):
            return marked or declared
        if 0 in head:  # a text with zeros is UTF-16 without a mark
            return "utf-16-be" if head[0] == 0 else "utf-16-le"
        try:
            codecs.utf_8_decode(head, "strict", len(head) == record.size)
        except UnicodeDecodeError:
            return _LEGACY
        return "utf-8"

    async def _not_text(self, record: Record, pattern: str | None) -> ToolResult:
        kind = essence(record.media_type) or "application/octet-stream"
        about = f"{shown_name(record.name)} | {kind} | {_count(record.size, 'byte')}"
        about = f"[{about} | sha256 {record.sha256} | {record.handle}]"
        if kind in _IMAGES and record.size <= MAX_IMAGE_BYTES and pattern is None:
            data = await self._store.get(record.handle, scope=self._scope)
            return ToolResult((TextPart(about), ImagePart(data, kind, record.handle)))
        head = await self._store.get(record.handle, scope=self._scope, length=_HEX_BYTES)
        why = "is an image too large to be shown" if kind in _IMAGES and pattern is None else "is no text"
        hint = f"This {why}. Its first bytes: {head.hex(' ')}. Give its handle to a tool that takes files."
        return ToolResult((TextPart(f"{about}\n{hint}"),), is_error=pattern is not None)


def _head(found: Page, pattern: str | None) -> str:
    if pattern is None:
        return f"lines {found.first:,} to {found.last:,}, counted from 1"
    shown = pattern if len(pattern) <= _SHOWN_PATTERN else f"{pattern[:_SHOWN_PATTERN]}..."
    matches = f"{found.matches:,} match" if found.matches == 1 else f"{found.matches:,} matches"
    where = f", here those in lines {found.first:,} to {found.last:,}" if found.matches else ""
    return f"{matches} of {shown!r}{where}"


def _answer(text: str) -> ToolResult:
    return ToolResult((TextPart(text),))


def _error(text: str) -> ToolResult:
    return ToolResult((TextPart(text if len(text) <= _SHOWN_ERROR else f"{text[:_SHOWN_ERROR]}..."),), is_error=True)


def _sentence(error: Exception) -> str:
    text = str(error.args[0]) if error.args and isinstance(error.args[0], str) else str(error)
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _put(cache: OrderedDict[str, T], key: str, value: T, limit: int) -> None:
    cache[key] = value
    cache.move_to_end(key)
    while len(cache) > limit:
        cache.popitem(last=False)
