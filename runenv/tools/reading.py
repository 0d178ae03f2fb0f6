"""The `file_read` tool: what a file is, by its first bytes, and whatever shows files of that kind.

Text is shown here, as numbered lines; `text.py` finds them, `encodings.py` says what their characters are. Images,
PDFs, notebooks, archives and all else have modules of their own. Text is streamed: a file beyond its first 64 KiB
passes once for its hash and its encoding, unless it is longer than 10 MiB, and then as far as lines are shown of it.
"""

from __future__ import annotations

import codecs
import posixpath
import shlex
import stat
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Literal

from runenv.artifacts.extensions import EXTENSIONS
from runenv.artifacts.media import HEAD_BYTES as SNIFFED_BYTES
from runenv.artifacts.media import essence, is_text, media_type
from runenv.errors import ToolError
from runenv.tools import archives, documents, notebooks, pdf
from runenv.tools.encodings import detect, is_legacy_text, line_ends
from runenv.tools.images import image_type
from runenv.tools.opened import HEAD_BYTES, Opened, count, short
from runenv.tools.schema import Arguments, EnvPath
from runenv.tools.seen import (
    WHOLE_BYTES,
    Survey,
    at_first_sight,
    digest,
    forget,
    place_of,
    remember,
    remember_state,
    survey,
)
from runenv.tools.text import ANSWER_CHARS, LINES, Position, Texts, in_memory, visible
from runenv.tools.tool import make_tool

if TYPE_CHECKING:
    from collections.abc import Hashable

    from runenv.tools.text import Opener, Shown
    from runenv.tools.tool import Context, Returned, Tool
    from runenv.types import FileInfo

__all__ = ("FileRead", "make_file_read")

_UNKNOWN: Final = "application/octet-stream"
_NOTEBOOK: Final = "application/x-ipynb+json"
_SPECIAL: Final = {
    stat.S_IFIFO: "a FIFO (named pipe)",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


class FileRead(Arguments):
    """What `file_read` takes."""

    path: EnvPath
    """File to read; a relative path starts at the working folder."""
    offset: int = 1
    """First line to show, counted from 1."""
    limit: int = LINES
    """How many lines to show, at most 2000."""
    column: int = 1
    """Character of the line at offset to start at, for a line that was cut; then only that line is shown."""
    pages: str = ""
    """Pages of a PDF, such as "1-5,8", at most 20; the first ones when left out."""
    show_as: Literal["auto", "text", "image"] = "auto"
    """"image" shows the pages of a PDF as images; "text" shows a notebook as the JSON that it is."""


def make_file_read(context: Context) -> Tool:
    """Make the tool that shows files to a model."""
    see = "" if "file_list" not in context.tools else " For a folder use file_list."
    pdfs = " PDFs come as text or as images of their pages." if find_spec("pypdfium2") is not None else ""
    edit = " The line numbers are not part of the file." if "file_edit" in context.tools else ""
    return make_tool(
        context,
        "file_read",
        f"""Read a file. Text comes as numbered lines, up to 2,000 lines, 2,000 characters a line and 50,000 characters
        in all; the answer says how to go on.{edit} Images are shown.{pdfs} Notebooks come with their outputs, archives
        as a list of what is in them.{see}""",
        FileRead,
        _Reader(context).run,
    )


class _Reader:
    """Answers calls of the tool, and remembers where the lines of large files are."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._texts = Texts()

    async def run(self, asked: FileRead) -> Returned:
        context = self._context
        path = await context.path(asked.path)
        info = await context.env.stat(path)
        if (special := _SPECIAL.get(stat.S_IFMT(info.mode))) is not None:
            raise ToolError(f"{path!r} is {special}, not a file, and is not read: reading it could wait for ever.")
        place = await place_of(context, path)
        file = await self._open(path, place, info)
        if file is None:
            remember(context, place, await digest(b""))
            return f"[{short(path)} is empty: 0 bytes]"
        remember_state(context, place, info)
        return await self._show(file, info, asked)

    async def _open(self, path: str, place: str, info: FileInfo) -> Opened | None:
        """Read the first bytes of a file; None when there are none."""
        data = await self._context.env.read(path, length=HEAD_BYTES + 1)
        if not data:
            return None
        is_whole = len(data) <= HEAD_BYTES
        size = len(data) if is_whole else max(info.size, len(data))
        name = posixpath.basename(path.rstrip("/"))
        head = data[:SNIFFED_BYTES]
        kind = image_type(head) or media_type(head, None, name)
        if kind == _UNKNOWN and is_legacy_text(head):
            kind = "text/plain"
        return Opened(self._context, path, place, name, size, essence(kind) or kind, data[:HEAD_BYTES], is_whole)

    async def _show(self, file: Opened, info: FileInfo, asked: FileRead) -> Returned:
        kind, as_image = file.kind, asked.show_as == "image"
        if kind == "application/pdf":
            return await pdf.show(file, asked.pages, as_image=as_image)
        if asked.pages:
            raise ToolError(f"{file.path!r} is {kind} and has no pages: read it without the argument pages.")
        if image_type(file.head[:SNIFFED_BYTES]) is not None:
            limits = self._context.image_limits
            data = await file.whole(limits.max_input_bytes)
            return await self._context.shown(data, file.name)
        if is_text(kind):
            if as_image:
                raise ToolError(f"{file.path!r} is text ({kind}): it is shown as text only.")
            if kind == _NOTEBOOK and file.size <= WHOLE_BYTES and asked.show_as == "auto":
                data = await file.whole(WHOLE_BYTES)
                notebook = await notebooks.render(data)
                if notebook is not None:
                    return await self._notebook(file, await digest(data), notebook, asked)
            return await self._text(file, info, asked)
        if archives.is_archive(kind):
            return await archives.show(file)
        return documents.show(file)

    async def _text(self, file: Opened, info: FileInfo, asked: FileRead) -> str:
        context, path = self._context, file.path
        opener: Opener = _opener(context, path)
        if file.is_whole:
            found, opener = (
                Survey(await digest(file.head), file.size, file.head, detect(file.head)),
                in_memory(file.head),
            )
        elif info.size <= WHOLE_BYTES:
            found = await survey(context.env, path)
            file = replace(file, size=max(file.size, found.size))
        else:
            found = at_first_sight(file.head, file.size)
        key = (file.place, found.sha256, info.size, info.mtime)
        codec = found.encoding.codec
        shown = await self._window(key, opener, codec, asked, bounded=found.sha256 is None)
        head = codecs.getincrementaldecoder(codec)("replace").decode(found.head)
        notes = [note for note in (found.encoding.label, line_ends(head).label, _lie(file)) if note]
        if found.sha256 is not None:
            if file.is_whole or await self._is_as(path, info):
                remember(context, file.place, found.sha256)
            else:
                forget(context, file.place)
                notes.append("it changed while it was read: read it again")
        return _answer(file, shown, asked, notes)

    async def _is_as(self, path: str, before: FileInfo) -> bool:
        try:
            now = await self._context.env.stat(path)
        except FileNotFoundError:
            return False
        return (now.size, now.mtime) == (before.size, before.mtime)

    async def _notebook(self, file: Opened, sha256: str, notebook: notebooks.Notebook, asked: FileRead) -> Returned:
        remember(self._context, file.place, sha256)
        data = notebook.text.encode("utf-8", "backslashreplace")
        shown = await self._window(("notebook", sha256), in_memory(data), "utf-8", asked, bounded=False)
        text = _answer(file, shown, asked, [f"notebook with {count(notebook.cells, 'cell')}"])
        return await notebooks.with_images(text, notebook, shown, self._context)

    async def _window(self, key: Hashable, opener: Opener, codec: str, asked: FileRead, *, bounded: bool) -> Shown:
        start = Position(max(1, asked.offset), max(1, asked.column))
        limit = min(max(1, asked.limit), LINES)
        return await self._texts.window(key, opener, codec, start, limit, bounded=bounded)


def _opener(context: Context, path: str) -> Opener:
    return lambda offset: context.env.open_read(path, offset=offset)


def _lie(file: Opened) -> str:
    """Say that the extension names something that is no text."""
    named = EXTENSIONS.get("." + file.name.rpartition(".")[2].lower(), "") if "." in file.name else ""
    return "" if not named or is_text(named) else f"its name says {named}, but it is text"


def _answer(file: Opened, shown: Shown, asked: FileRead, notes: list[str]) -> str:
    """Word what is shown of a text, and how to go on."""
    total = count(shown.lines, "line") if shown.is_total else f"more than {count(shown.lines, 'line')}"
    about = [short(file.path), total, count(file.size, "byte"), *notes]
    first = max(1, asked.offset)
    if not shown.text:
        if shown.is_total:
            there = f"give an offset from 1 to {shown.lines}" if shown.lines else "the file has no lines"
            return f"[{' | '.join(about)} | line {first:,} is not there: {there}]"
        raise ToolError(_not_reached(file, shown, first, asked))
    if shown.text == f"{first}\t\n" and asked.column > 1:
        return f"[{' | '.join(about)} | line {first:,} ends before column {asked.column:,}]"
    text = visible(shown.text)
    if text != shown.text:
        about.append("control characters are shown as pictures, such as \u2400 for NUL, or as <U+202E>")
    if "\ufffd" in text:
        about.append("what is no character is shown as \ufffd")
    is_all = first == 1 and asked.column <= 1 and shown.next is None and shown.cut is None and not shown.unended
    if not is_all:
        about.append(f"lines {shown.first:,} to {shown.last:,}")
    return f"[{' | '.join(about)}]\n{text}{_hint(file, shown)}"[:ANSWER_CHARS]


def _hint(file: Opened, shown: Shown) -> str:
    """Say how to go on; nothing when nothing follows."""
    said: list[str] = []
    if shown.cut is not None:
        said.append(f"For the rest of line {shown.cut.line}: offset={shown.cut.line}, column={shown.cut.column}.")
    if shown.next is not None:
        column = f", column={shown.next.column}" if shown.next.column > 1 else ""
        said.append(f"For what follows: offset={shown.next.line}{column}.")
    if shown.unended:
        said.append(
            f"Line {shown.last} goes on for too long to be followed to its end here."
            + file.context.hint("exec", f"To look further use exec, such as: tail -c 1000 {shlex.quote(file.path)}")
        )
    return f"[{' '.join(said)}]" if said else ""


def _not_reached(file: Opened, shown: Shown, first: int, asked: FileRead) -> str:
    last = first + min(max(1, asked.limit), LINES) - 1
    known = f"{count(shown.lines, 'line')} {'is' if shown.lines == 1 else 'are'} known"
    command = f"sed -n '{first},{last}p;{last}q' {shlex.quote(file.path)} | cut -c 1-2000"
    return (
        f"Line {first:,} of {short(file.path)} was not reached in the time of one call: {known}"
        f" so far, in {shown.offset:,} of {file.size:,} bytes."
        " Call again with the same arguments to go on from there."
        + file.context.hint("exec", f"Or use exec: {command}")
        + file.context.hint("grep", "Or find what you look for with grep.")
    )
