r"""Include and exclude patterns for trees, as rules that two languages implement alike.

The guest does the same in C for downloads (`src/glob.c`); `tests/envs/glob_table.py` holds both to these rules:

1. A path is relative to the tree's root. Paths and patterns are bytes (UTF-8 where text), matched byte by byte, with
   regard to case.
2. A `/` at the end makes the pattern match folders only, and is then taken off.
3. A pattern without a `/` matches the last name of a path, at any depth. One with a `/` matches the whole path; a `/`
   at its start is taken off.
4. `?` is any one byte but `/`. `*` is any number of them, none included. A leading dot is nothing special.
5. `**` is any number of bytes, `/` included; `**/` is nothing, or anything that ends with a `/`. So `**/a` is `a` at
   any depth, `a/**` everything in `a`, and `a/**/b` also `a/b`.
6. `[abc]`, `[a-z]` is one byte of a set, `[!a]` and `[^a]` one byte not in it; neither is ever a `/`. A `]` first in a
   set, and a `-` first or last, stand for themselves; an unclosed `[` is an ordinary character; a range from high to
   low is empty.
7. A backslash takes the next byte as it is, in sets too; at the end of a pattern it is an ordinary character. There is
   no `{a,b}`.

An entry that an exclude pattern matches is left out, with everything in it when it is a folder. Include patterns choose
among files and links, never folders: with any, a folder is made only for a file that is taken from it.

A pattern that can match nothing (an empty one, one with an empty name, `.`, `..` or NUL) is an error; this module finds
it, so the guest never sees one.
"""

from __future__ import annotations

import enum
import os
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ("Verdict", "matcher")

MAX_BYTES: Final = 4096
"""Of one pattern: PATH_MAX of Linux."""
_SLASH: Final = ord("/")
_STAR: Final = b"[^/]*?"
_STARS: Final = b".*?"
_FOLDERS: Final = b"(?:.*?/)??"
_NOTHING: Final = b"(?!)"


class Verdict(enum.Enum):
    """What becomes of an entry of a tree."""

    TAKE = "take"
    """Transfer it; a folder also when it is empty."""
    ENTER = "enter"
    """A folder: look inside, make it only for what is taken from it."""
    LEAVE = "leave"
    """Leave it out; of a folder also everything in it."""


def matcher(include: Sequence[str] = (), exclude: Sequence[str] = ()) -> Callable[[str, bool], Verdict]:
    """Return the function that decides on `(path, is_dir)`, for a path relative to the tree's root.

    Raises:
        ValueError: a pattern can match nothing, or has more than 4,096 bytes.
    """
    wanted = [_Glob(pattern) for pattern in include]
    unwanted = [_Glob(pattern) for pattern in exclude]
    takes_file = _either(glob for glob in wanted if not glob.folders_only)
    leaves_file = _either(glob for glob in unwanted if not glob.folders_only)
    leaves_folder = _either(unwanted)
    folder = Verdict.ENTER if include else Verdict.TAKE

    def decide(path: str, is_dir: bool) -> Verdict:  # noqa: FBT001 - the table's order: path, is_dir
        name = os.fsencode(path)
        if is_dir:
            return Verdict.LEAVE if leaves_folder(name) else folder
        if leaves_file(name) or (include and not takes_file(name)):
            return Verdict.LEAVE
        return Verdict.TAKE

    def take_all(_path: str, _is_dir: bool) -> Verdict:  # noqa: FBT001 - as above
        return Verdict.TAKE

    return decide if include or exclude else take_all


def _either(globs: Iterable[_Glob]) -> Callable[[bytes], object]:
    """Return a function that is true for a path which one of them matches."""
    expressions = [glob.expression for glob in globs]
    return re.compile(b"|".join(expressions) or _NOTHING, re.DOTALL).fullmatch


class _Glob:
    """One pattern as a regular expression."""

    def __init__(self, pattern: str) -> None:
        raw = os.fsencode(pattern)
        if len(raw) > MAX_BYTES:
            raise ValueError(
                f"a pattern has at most {MAX_BYTES:,} bytes, as the longest path, and this one {len(raw):,}"
            )
        body = raw.removesuffix(b"/")
        path = body.removeprefix(b"/")
        if b"\0" in raw or not {b"", b".", b".."}.isdisjoint(path.split(b"/")):
            raise ValueError(
                f"pattern {pattern!r} can match nothing: paths start at the tree's root, without `./`, and have no `..`"
            )
        self.folders_only = body != raw
        self.expression = _expression(path, whole=b"/" in body)


def _expression(pattern: bytes, *, whole: bool) -> bytes:
    """Translate a pattern so that no match takes exponential time.

    `**` cuts it into blocks, `*` cuts these into runs. A block may be taken where it fits first and never elsewhere,
    `(?>...)`, since that leaves most to what follows; the same holds for runs in a block. Only the last ones have to
    try on, because they must reach the end.
    """
    blocks: list[tuple[bytes, list[bytes]]] = [(b"" if whole else _FOLDERS, [b""])]
    for piece in _pieces(pattern):
        before, runs = blocks[-1]
        if piece == _STAR or (piece == _STARS and not whole):
            runs.append(b"")
        elif piece not in {_STARS, _FOLDERS}:
            runs[-1] += piece
        elif runs != [b""]:
            blocks.append((piece, [b""]))
        else:  # two `**` on end
            blocks[-1] = (piece if before in {b"", piece} else _STARS, runs)
    *others, (before, (run, *runs)) = blocks
    last = _runs(runs[:-1]) + b"".join(_STAR + final for final in runs[-1:])
    return (
        b"".join(b"(?>%b%b%b)" % (start, first, _runs(more)) for start, (first, *more) in others) + before + run + last
    )


def _runs(runs: Iterable[bytes]) -> bytes:
    return b"".join(b"(?>%b%b)" % (_STAR, run) for run in runs)


def _pieces(pattern: bytes) -> Iterator[bytes]:
    """Yield the expression of each wildcard and of each other byte."""
    at = 0
    while at < len(pattern):
        start = at
        at += 1
        match pattern[start:at]:
            case b"*" if pattern[at : at + 2] == b"*/":
                at += 2
                yield _FOLDERS
            case b"*" if pattern[at : at + 1] == b"*":
                at += 1
                yield _STARS
            case b"*":
                yield _STAR
            case b"?":
                yield b"[^/]"
            case b"[" if (found := _set(pattern, at)) is not None:
                members, at = found
                yield b"[" + b"".join(b"\\x%02x" % byte for byte in sorted(members)) + b"]" if members else _NOTHING
            case b"\\" if at < len(pattern):
                at += 1
                yield re.escape(pattern[at - 1 : at])
            case literal:
                yield re.escape(literal)


def _set(pattern: bytes, at: int) -> tuple[set[int], int] | None:
    """Read a set from after its `[`; return its members and where it ends, or None when it is not closed."""
    negated = pattern[at : at + 1] in {b"!", b"^"}
    start = at = at + negated
    members: set[int] = set()
    while at == start or pattern[at : at + 1] != b"]":
        if at >= len(pattern):
            return None
        low, at = _member(pattern, at)
        if pattern[at : at + 1] == b"-" and pattern[at + 1 : at + 2] not in {b"]", b""}:
            high, at = _member(pattern, at + 1)
            members.update(range(low, high + 1))
        else:
            members.add(low)
    return (set(range(256)) - members if negated else members) - {_SLASH}, at + 1


def _member(pattern: bytes, at: int) -> tuple[int, int]:
    at += pattern[at : at + 1] == b"\\" and at + 1 < len(pattern)
    return pattern[at], at + 1
