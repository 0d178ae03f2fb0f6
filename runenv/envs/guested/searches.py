"""Searches in an env: the command line of `guest search`, and what it printed as a result. Pure; used by `env.py`.

Arguments: `name=value` any number of times, then the pattern and the path. Names: `workdir`, `confine` (the spill
folder: only the workdir and that may be looked at), `needed` (see `patterns.py`), `flags` (letters: l literal,
i ignore case, f files only, n files by name), `context` (lines), `limit` (results), `bytes` (of output), `include` and
`exclude` (patterns of paths, repeated).

Output: values that end with NUL, in records. `F path`, then the lines of that file, `M` (match) or `C` (context)
`number, bytes before the text, bytes of the line, text`; or `P path, size, mtime`; at the end
`S searched, found, binary, unreadable, whole|cut`, which is missing when the deadline was first.
Exit code 2: the pattern is refused, stderr says why; 3: the path cannot be searched, stderr is the errno.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from runenv.envs.guested.requests import pattern_fields
from runenv.errors import EnvError
from runenv.guest.frames import FrameError, Tag
from runenv.types import FoundFile, GlobResult, GrepLine, GrepResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from runenv.envs.guested.patterns import Pattern
    from runenv.types import ExecResult

__all__ = ("MAX_OUTPUT_BYTES", "check_result", "glob_command", "glob_result", "grep_command", "grep_result")

MAX_OUTPUT_BYTES: Final = 1024 * 1024
"""Of a search; the guest ends it there by itself."""
MAX_RESULTS: Final = 10_000
"""Lines or files that one search may be asked for."""
MAX_CONTEXT: Final = 50
"""Lines before and after a match."""
MAX_PATTERN_BYTES: Final = 64 * 1024
"""Of include and exclude: they go on a command line, and each is tried on every path."""
_SPARE_BYTES: Final = 64 * 1024
"""Room for what the guest adds after it has noticed that it is over its limit."""
_REFUSED: Final = 2
_NO_PATH: Final = 3


def grep_command(
    place: Sequence[str | bytes],
    pattern: Pattern,
    path: str,
    *,
    include: Sequence[str],
    exclude: Sequence[str],
    context: int,
    max_matches: int,
    files_only: bool,
) -> list[str | bytes]:
    """Return the command that searches for lines. `place` is the program and where it may look."""
    if not 0 <= context <= MAX_CONTEXT:
        raise ValueError(f"context must be from 0 to {MAX_CONTEXT} lines, not {context}")
    flags = f"{'l' * pattern.is_literal}{'i' * pattern.ignore_case}{'f' * files_only}"
    return [
        *place,
        *_common(flags, include, exclude, max_matches),
        f"context={context}",
        f"needed={pattern.needed}",
        pattern.text,
        os.fsencode(path),
    ]


def glob_command(
    place: Sequence[str | bytes], pattern: str, path: str, *, exclude: Sequence[str], max_files: int
) -> list[str | bytes]:
    """Return the command that searches for names."""
    return [*place, *_common("n", (pattern,), exclude, max_files), pattern, os.fsencode(path)]


def _common(flags: str, include: Sequence[str], exclude: Sequence[str], limit: int) -> Iterator[str | bytes]:
    if not 0 < limit <= MAX_RESULTS:
        raise ValueError(f"a search gives from 1 to {MAX_RESULTS:,} results, not {limit}")
    yield f"flags={flags}"
    yield f"limit={limit}"
    yield f"bytes={MAX_OUTPUT_BYTES - _SPARE_BYTES}"
    fields = pattern_fields(include, exclude)
    if sum(len(pattern) for _, pattern in fields if isinstance(pattern, bytes)) > MAX_PATTERN_BYTES:
        raise ValueError(f"the patterns of a search have at most {MAX_PATTERN_BYTES:,} bytes together")
    for tag, pattern in fields:
        yield b"%s=%s" % (b"include" if tag is Tag.INCLUDE else b"exclude", pattern)


def check_result(result: ExecResult, path: str) -> None:
    """Raise what a search that could not be made says.

    Raises:
        ValueError: the guest does not take the pattern.
        OSError: the path cannot be searched.
        EnvError: the search did not start, or something in the env ended it.
    """
    if result.timed_out or result.ok:
        return
    said = result.stderr.text.strip()
    if result.exit_code == _REFUSED:
        raise ValueError(f"the pattern is not supported: {said.removeprefix('pattern: ')}")
    if result.exit_code == _NO_PATH and said.isascii() and said.isdigit() and len(said) < len("10000"):
        raise OSError(int(said), os.strerror(int(said)), path)
    raise EnvError(f"the search did not run to its end ({result.exit_code or result.signal}): {said[:200]}")


def grep_result(result: ExecResult, path: str) -> GrepResult:
    """Return what a search for lines found in `path`.

    Raises:
        FrameError: this is not what the guest prints.
    """
    lines: list[GrepLine] = []
    files: list[str] = []
    summary: list[bytes] = []
    for kind, values in _records(result):
        if kind == b"F":
            files.append(os.fsdecode(values[0]) or path)  # nothing: it is that file
        elif kind == b"S":
            summary = values
        elif kind in {b"M", b"C"} and files:
            number, before, length = map(_number, values[:3])
            text = values[3]
            lines.append(
                GrepLine(
                    files[-1],
                    number,
                    text.decode(errors="replace"),
                    is_match=kind == b"M",
                    omitted_before=before,
                    omitted_after=max(0, length - before - len(text)),
                )
            )
        else:
            raise FrameError("a search that found what it was not asked for")
    searched, _, binary, unreadable = map(_number, summary[:4] or [b"0"] * 4)
    complete = summary[4:] == [b"whole"]
    return GrepResult(tuple(lines), tuple(files), searched, binary, unreadable, complete, result.timed_out)


def glob_result(result: ExecResult) -> GlobResult:
    """Return what a search for names found.

    Raises:
        FrameError: this is not what the guest prints.
    """
    files: list[FoundFile] = []
    summary: list[bytes] = []
    for kind, values in _records(result):
        if kind == b"P":
            files.append(FoundFile(os.fsdecode(values[0]), _number(values[1]), float(_number(values[2]))))
        elif kind == b"S":
            summary = values
        else:
            raise FrameError("a search that found what it was not asked for")
    count = _number(summary[1]) if summary else 0
    return GlobResult(tuple(files), count, summary[4:] == [b"whole"], result.timed_out)


_VALUES: Final = {b"F": 1, b"M": 4, b"C": 4, b"P": 3, b"S": 5}


def _records(result: ExecResult) -> Iterator[tuple[bytes, list[bytes]]]:
    """The records of the output; the last one may be cut by the deadline, and is then left out."""
    values = result.stdout.data.split(b"\0")
    if result.stdout.omitted_bytes:
        raise FrameError("a search that printed more than it may")
    at = 0
    while at < len(values) - 1:
        kind = values[at]
        count = _VALUES.get(kind)
        if count is None:
            raise FrameError(f"a search that printed {kind[:20]!r}")
        if at + count > len(values) - 2:
            if result.timed_out:
                return
            raise FrameError("a search that printed half of a result")
        yield kind, values[at + 1 : at + 1 + count]
        at += 1 + count
    if not result.timed_out and (len(values) < 2 or values[-1]):  # noqa: PLR2004 - a record and what follows it
        raise FrameError("a search without an end")


def _number(value: bytes) -> int:
    text = value.removeprefix(b"-")
    if not text.isdigit() or len(text) > len(b"9223372036854775807"):
        raise FrameError(f"a search that printed {value[:20]!r} for a number")
    return int(value)
