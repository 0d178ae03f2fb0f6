"""The tools `file_write` and `file_edit`: whole files, and exact replacements in them.

Both write atomically, through the env. Neither replaces what the model does not know: `file_write` refuses a file that
exists and was not read (as most coding agents have it), both refuse one that has changed since it was read. `file_edit`
needs no reading before it: a text that is there exactly once shows that the model knows the place, from a search
perhaps. Decided on 2026-11-28.

Only an edit holds a file, of at most 10 MiB: the text may stand at any place of it, and all of it is written anew.

Calls for the same file wait for one another. What a command changes between the look and the write is lost: there is
no verb that writes only what is still as it was.
"""

from __future__ import annotations

import asyncio
import codecs
import posixpath
import stat
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from anyio import to_thread

from runenv.artifacts.handles import whole
from runenv.artifacts.media import HEAD_BYTES, is_text, media_type
from runenv.errors import ToolError
from runenv.tools.encodings import Encoding, detect, is_legacy_text, line_ends
from runenv.tools.opened import count, short
from runenv.tools.replacing import replace_text
from runenv.tools.schema import Arguments, EnvPath
from runenv.tools.seen import WHOLE_BYTES, Survey, at_first_sight, digest, knows, place_of, remember, survey
from runenv.tools.tool import make_tool

if TYPE_CHECKING:
    from runenv.tools.replacing import Edited
    from runenv.tools.tool import Context, Tool
    from runenv.types import FileInfo

__all__ = ("FileEdit", "FileWrite", "make_file_edit", "make_file_write")

THREAD_CHARS: Final = 16 * 1024
"""Characters of a text and of what is looked for in it, from which on an edit is worked out in a thread."""
_UNKNOWN: Final = "application/octet-stream"
_LATIN: Final = Encoding("latin-1", label="Latin-1", errors="strict")

_locks: Final[WeakValueDictionary[tuple[int, str], asyncio.Lock]] = WeakValueDictionary()


class FileWrite(Arguments):
    """What `file_write` takes."""

    path: EnvPath
    """File to write; a relative path starts at the working folder. Missing folders are made."""
    content: str
    """All that the file is to hold."""


class FileEdit(Arguments):
    """What `file_edit` takes."""

    path: EnvPath
    """File to change."""
    old: str
    """The text to replace, exactly as it is in the file, without line numbers."""
    new: str
    """The text to put in its place; empty to delete."""
    replace_all: bool = False
    """Replace every place, not only the one that there must be."""


def make_file_write(context: Context) -> Tool:
    """Make the tool with which a model writes files."""
    first = (
        " A file that exists must be read with file_read before it is replaced." if "file_read" in context.tools else ""
    )
    edit = " To change a part of a file use file_edit." if "file_edit" in context.tools else ""
    return make_tool(
        context,
        "file_write",
        f"Write a text file (UTF-8), new or instead of what is there.{first}{edit}",
        FileWrite,
        _Writer(context).write,
    )


def make_file_edit(context: Context) -> Tool:
    """Make the tool with which a model changes files."""
    return make_tool(
        context,
        "file_edit",
        """Replace a text in a file. It must be there exactly, white space included, and only once, unless replace_all
        is true: give enough of the lines around it. Encoding, line ends and mode of the file are kept.""",
        FileEdit,
        _Writer(context).edit,
    )


class _Writer:
    """Answers calls of the tools."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def write(self, asked: FileWrite) -> str:
        context = self._context
        if (handle := whole(asked.content)) is not None:
            how = context.hint("artifact_load", "To put what it stands for into a file use artifact_load.")
            raise ToolError(f"The content is nothing but a handle, {handle}.{how}")
        path = await self._path(asked.path)
        data = _encoded(asked.content, Encoding(errors="strict"), "content")
        place = await place_of(context, path)
        async with _lock(context, place):
            before = await self._replaced(path, place)
            await context.env.write(path, data)
            remember(context, place, await digest(data))
        said = f"{'Wrote' if before is None else 'Replaced'} {short(path)}: {_counted(data, asked.content)}."
        return f"{said}{_changes(before, asked.content)}"

    async def _replaced(self, path: str, place: str) -> Survey | None:
        """Return what there is to know of a file that is to be replaced; None when it is new.

        Raises:
            ToolError: the model does not know what it would replace.
        """
        context = self._context
        try:
            info = await self._stat(path)
            is_long = info.size > WHOLE_BYTES
            before = at_first_sight(b"", info.size) if is_long else await survey(context.env, path)
        except FileNotFoundError:
            return None
        known = knows(context, place, info, before.sha256)
        read = context.hint("file_read", "Read it with file_read first, then write it again.")
        if known is None and before.size:
            raise ToolError(f"{short(path)} exists already and was not read. Nothing was written.{read}")
        if known is False:
            raise ToolError(f"{short(path)} has changed since it was last read or written. Nothing was written.{read}")
        return before

    async def edit(self, asked: FileEdit) -> str:
        context = self._context
        path = await self._path(asked.path)
        for name, text in (("old", asked.old), ("new", asked.new)):
            _encoded(text, Encoding(errors="strict"), name)
        place = await place_of(context, path)
        async with _lock(context, place):
            info = await self._stat(path)
            data = await context.env.read(path, length=WHOLE_BYTES + 1) if info.size <= WHOLE_BYTES else None
            if data is None or len(data) > WHOLE_BYTES:
                raise ToolError(
                    f"{short(path)} has {info.size:,} bytes, more than the {WHOLE_BYTES:,} that can be edited here."
                    + context.hint("exec", "Change it with exec, for example with sed or a short program.")
                )
            if knows(context, place, info, await digest(data)) is False:
                raise ToolError(
                    f"{short(path)} has changed since it was last read or written. Nothing was changed."
                    + context.hint("file_read", "Read it again with file_read, then edit what is there now.")
                )
            if not data:
                raise ToolError(
                    f"{short(path)} is empty: there is nothing to replace."
                    + context.hint("file_write", "Write it with file_write.")
                )
            encoding, text = _text(path, data, context)
            edited = await _replace(text, asked)
            new = _encoded(edited.text, encoding, "new", path)
            await context.env.write(path, new)
            remember(context, place, await digest(new))
        many = f"{edited.places:,} places, the first" if edited.places > 1 else "the text"
        return f"Replaced {many} in line {edited.line:,} of {short(path)}. It reads now:\n{edited.excerpt}"

    async def _path(self, path: str) -> str:
        """Return the path of a file as it is passed to the env.

        Raises:
            ToolError: it is not allowed, or is that of a folder.
        """
        allowed = await self._context.path(path)
        if path.endswith("/"):
            inner = posixpath.join(path, "name.txt")
            raise ToolError(
                f"The path {short(path)} ends with a slash, as that of a folder. Nothing was written: give the path of"
                f" a file, such as {short(inner)}."
            )
        return allowed

    async def _stat(self, path: str) -> FileInfo:
        info = await self._context.env.stat(path)
        if not info.is_file and not info.is_dir:
            kind = "a FIFO" if stat.S_ISFIFO(info.mode) else "a device or a socket"
            raise ToolError(f"{short(path)} is {kind}, not a file. Use another path.")
        return info


def _lock(context: Context, place: str) -> asyncio.Lock:
    """Return the lock of a file; it lives as long as somebody has it."""
    return _locks.setdefault((id(context.env), place), asyncio.Lock())


def _text(path: str, data: bytes, context: Context) -> tuple[Encoding, str]:
    """Return the text of a file, and how to write it again."""
    head = data[:HEAD_BYTES]
    kind = media_type(head, None, path)
    if not is_text(kind) and not (kind == _UNKNOWN and is_legacy_text(head)):
        use = context.hint("exec", "Change it with exec, with a program that knows its format.")
        raise ToolError(f"{short(path)} is binary ({kind}), not text, and cannot be edited here.{use}")
    encoding = detect(data)
    try:
        return encoding, encoding.decode(data)
    except UnicodeError:  # a guess that does not hold for all of it; in Latin-1 every byte is a character
        return _LATIN, _LATIN.decode(data)


async def _replace(text: str, asked: FileEdit) -> Edited:
    def work() -> Edited:
        return replace_text(text, asked.old, asked.new, every=asked.replace_all)

    return work() if len(text) + len(asked.old) + len(asked.new) <= THREAD_CHARS else await to_thread.run_sync(work)


def _encoded(text: str, encoding: Encoding, name: str, path: str = "") -> bytes:
    try:
        return encoding.encode(text)
    except UnicodeEncodeError as error:
        wrong = error.object[error.start : error.start + 1]
        if "\ud800" <= wrong <= "\udfff":
            raise ToolError(
                f"The argument {name} holds half of a character ({wrong!a}): write the whole one."
            ) from error
        raise ToolError(
            f"{short(path)} is in {encoding.label or encoding.codec}, which has no {wrong!r}: write without it, or"
            " convert the file to UTF-8 first. Nothing was changed."
        ) from error


def _counted(data: bytes, text: str) -> str:
    lines = text.count("\n") + (not text.endswith("\n") and bool(text))
    return f"{count(len(data), 'byte')}, {count(lines, 'line')}"


def _changes(before: Survey | None, content: str) -> str:
    """Say that a file that was replaced had another encoding or other line ends; it keeps neither."""
    if before is None:
        return ""
    encoding = before.encoding
    old = [label for label in (encoding.label,) if label]
    head = codecs.getincrementaldecoder(encoding.codec)("replace").decode(before.head)
    if (ends := line_ends(head).label) and "\r\n" not in content:
        old.append(ends)
    return f" Before it had {' and '.join(old)}; now it is UTF-8 with the line ends that you wrote." if old else ""
