"""The `file_list` tool: what is in a folder, and some levels below it."""

from __future__ import annotations

import datetime as dt
import posixpath
import stat
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from runenv.tools.opened import count, short
from runenv.tools.schema import Arguments, EnvPath
from runenv.tools.tool import make_tool

if TYPE_CHECKING:
    from collections.abc import Callable

    from runenv.tools.tool import Context, Tool
    from runenv.types import FileInfo

__all__ = ("FileList", "make_file_list")

ENTRIES: Final = 200
"""Entries of one answer."""
MAX_DEPTH: Final = 5
"""Levels of folders that are looked into."""
NAME_CHARS: Final = 400
"""Characters of a path, or of where a link points, that are shown."""

_TYPES: Final = {
    stat.S_IFDIR: "folder",
    stat.S_IFREG: "file",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


class FileList(Arguments):
    """What `file_list` takes."""

    path: EnvPath = "."
    """Folder to list; the working folder when left out."""
    depth: int = 1
    """How many levels to list, at most 5; 1 is the folder alone."""


def make_file_list(context: Context) -> Tool:
    """Make the tool that lists folders."""
    glob = " To find files by name use glob." if "glob" in context.tools else ""

    async def run(asked: FileList) -> str:
        path = await context.path(asked.path)
        return await _list(context, path, min(max(1, asked.depth), MAX_DEPTH))

    return make_tool(
        context,
        "file_list",
        f"""List a folder: type, size in bytes, time (UTC) and name of each entry, hidden ones too, folders first, at
        most {ENTRIES} entries.{glob}""",
        FileList,
        run,
    )


@dataclass(slots=True)
class _Found:
    """What was found, up to the limit."""

    rows: list[tuple[tuple[tuple[bool, str], ...], str]] = field(default_factory=list)
    folders: int = 0
    others: int = 0
    left_out: int = 0
    unreadable: list[str] = field(default_factory=list)
    unopened: int = 0


async def _list(context: Context, path: str, depth: int) -> str:
    """List level by level, so that what does not fit is what is deepest."""
    is_allowed = await context.paths.filter(context.env, path)
    found = _Found()
    waiting: deque[tuple[str, tuple[tuple[bool, str], ...], int]] = deque([("", (), 1)])
    while waiting:
        below, order, level = waiting.popleft()
        if len(found.rows) >= ENTRIES:
            found.unopened += 1
            continue
        try:
            entries = await context.env.list(posixpath.join(path, below) if below else path)
        except OSError:
            if not below:
                raise
            found.unreadable.append(below)
            continue
        waiting.extend(_take(found, entries, below, order, level, depth, is_allowed))
    return _worded(context, path, found, depth)


def _take(
    found: _Found,
    entries: list[FileInfo],
    below: str,
    order: tuple[tuple[bool, str], ...],
    level: int,
    depth: int,
    is_allowed: Callable[[str], bool],
) -> list[tuple[str, tuple[tuple[bool, str], ...], int]]:
    """Add what is in one folder, and return the folders in it that are to be looked into."""
    inner: list[tuple[str, tuple[tuple[bool, str], ...], int]] = []
    for entry in sorted(entries, key=lambda entry: (not entry.is_dir, entry.path)):
        name = posixpath.join(below, entry.path)
        if not is_allowed(name):
            continue
        found.folders += entry.is_dir
        found.others += not entry.is_dir
        if len(found.rows) >= ENTRIES:
            found.left_out += 1
            continue
        place = (*order, (not entry.is_dir, entry.path))
        found.rows.append((place, _row(entry, name)))
        if entry.is_dir and level < depth:
            inner.append((name, place, level + 1))
    return inner


def _row(entry: FileInfo, name: str) -> str:
    kind = _TYPES.get(stat.S_IFMT(entry.mode), "other")
    size = f"{entry.size:,}" if entry.is_file else "-"
    try:
        when = f"{dt.datetime.fromtimestamp(entry.mtime, dt.UTC):%Y-%m-%d %H:%M}"
    except (ValueError, OverflowError, OSError):
        when = "?"
    shown = _name(name) + ("/" if entry.is_dir else "")
    target = f" -> {_name(entry.target)}" if entry.target else ""
    return f"{kind:6}  {size:>14}  {when:16}  {shown}{target}"


def _name(name: str) -> str:
    """Return a name on one line; in quotes where it would be misread."""
    cut = name if len(name) <= NAME_CHARS else f"{name[:NAME_CHARS]}..."
    return cut if cut.isprintable() and cut == cut.strip() else repr(cut)


def _worded(context: Context, path: str, found: _Found, depth: int) -> str:
    levels = "" if depth == 1 else f", {depth} levels"
    head = f"[{short(path)}{levels} | {count(found.folders, 'folder')} | {count(found.others, 'other entry')}]"
    head = head.replace("other entrys", "other entries")
    if not found.rows and not found.left_out:
        return f"[{short(path)} is an empty folder]"
    notes: list[str] = []
    if found.left_out or found.unopened:
        more = f"{found.left_out:,} more entries" if found.left_out else ""
        unopened = f"{count(found.unopened, 'folder')} not looked into" if found.unopened else ""
        notes.append(
            f"Not shown: {' and '.join(filter(None, (more, unopened)))}. List a folder below, or one level."
            + context.hint("glob", "Or find files by name with glob.")
        )
    if found.unreadable:
        some = ", ".join(_name(name) for name in found.unreadable[:10])
        notes.append(f"Could not be read: {some}{', ...' if len(found.unreadable) > 10 else ''}.")  # noqa: PLR2004
    rows = [row for _, row in sorted(found.rows)]
    return "\n".join((head, *rows, *([f"[{' '.join(notes)}]"] if notes else [])))
