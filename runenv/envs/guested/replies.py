"""What the guest answered, checked and made into the package's values. Pure; used by `env.py`.

The guest is not trusted: everything here raises `FrameError` for an answer that no honest guest gives.
"""

from __future__ import annotations

import stat
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from runenv.guest.frames import Flag, FrameError, Tag
from runenv.output import render
from runenv.types import ExecResult, FileInfo, Output, Refused

if TYPE_CHECKING:
    from runenv.guest.frames import Fields

__all__ = (
    "MAX_NUMBER",
    "MAX_REFUSED",
    "Entry",
    "EntryReader",
    "entry_of",
    "exec_result",
    "number",
    "refused_of",
    "signal_name",
)

_ENTRY: Final = struct.Struct("<IQqIIHH")
_MAX_NAME_BYTES: Final = 255
_MAX_PATH_BYTES: Final = 4096
MAX_NUMBER: Final = 2**63 - 1
"""The largest number that a field can hold."""
_MAX_EXIT_CODE: Final = 255
_MAX_SIGNAL: Final = 64
_FIRST_REALTIME: Final = 34
MAX_REFUSED: Final = 1000
"""Refused entries that a transfer lists; the others are counted."""
_MAX_REASON_BYTES: Final = 300

# Plain numbers: the operators of IntFlag take longer than all the rest of a result.
_TIMED_OUT: Final = int(Flag.TIMED_OUT)
_OOM_KILLED: Final = int(Flag.OOM_KILLED)
_BACKGROUND: Final = int(Flag.BACKGROUND)

_SIGNALS: Final = (
    "", "SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGUSR1",
    "SIGSEGV", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM", "SIGSTKFLT", "SIGCHLD", "SIGCONT", "SIGSTOP", "SIGTSTP",
    "SIGTTIN", "SIGTTOU", "SIGURG", "SIGXCPU", "SIGXFSZ", "SIGVTALRM", "SIGPROF", "SIGWINCH", "SIGIO", "SIGPWR",
    "SIGSYS",
)  # fmt: skip
"""Names of Linux's signals by number; the host's own numbers may differ."""


def number(fields: Fields, tag: Tag, *, low: int = 0, high: int = MAX_NUMBER, default: int | None = None) -> int:
    """Return a number of an answer.

    Raises:
        FrameError: it is missing and has no default, or is out of bounds.
    """
    value = fields.get(tag, default)
    if not isinstance(value, int) or not low <= value <= high:
        raise FrameError(f"an answer with {tag.name} {value!r}")
    return value


def signal_name(signal: int) -> str:
    """Return the name of a Linux signal."""
    if 0 < signal < len(_SIGNALS):
        return _SIGNALS[signal]
    if signal < _FIRST_REALTIME:
        return f"SIG{signal}"
    return "SIGRTMIN" if signal == _FIRST_REALTIME else f"SIGRTMIN+{signal - _FIRST_REALTIME}"


def exec_result(fields: Fields, stdout: bytes | bytearray, stderr: bytes | bytearray, *, max_chars: int) -> ExecResult:
    """Return the result of a command from its RESULT and what was kept of its output."""
    flags = number(fields, Tag.FLAGS, default=0)
    timed_out = bool(flags & _TIMED_OUT)
    exit_code = signal = None
    if Tag.SIGNAL in fields:
        signal = signal_name(number(fields, Tag.SIGNAL, low=1, high=_MAX_SIGNAL))
    elif Tag.EXIT_CODE in fields or not timed_out:
        exit_code = number(fields, Tag.EXIT_CODE, high=_MAX_EXIT_CODE)
    return ExecResult(
        exit_code=exit_code,
        signal=signal,
        stdout=_output(fields, stdout, _OUT, max_chars),
        stderr=_output(fields, stderr, _ERR, max_chars),
        timed_out=timed_out,
        oom_killed=bool(flags & _OOM_KILLED),
        background=bool(flags & _BACKGROUND),
        duration=number(fields, Tag.DURATION_US) / 1e6,
    )


_NO_OUTPUT: Final = Output()


@dataclass(frozen=True, slots=True)
class _StreamTags:
    total: Tag
    lines: Tag
    kept_head: Tag
    spill: Tag
    spilled: Tag


_OUT: Final = _StreamTags(Tag.OUT_TOTAL, Tag.OUT_LINES, Tag.OUT_KEPT_HEAD, Tag.OUT_SPILL, Tag.OUT_SPILLED)
_ERR: Final = _StreamTags(Tag.ERR_TOTAL, Tag.ERR_LINES, Tag.ERR_KEPT_HEAD, Tag.ERR_SPILL, Tag.ERR_SPILLED)


def _output(fields: Fields, kept: bytes | bytearray, tags: _StreamTags, max_chars: int) -> Output:
    total = number(fields, tags.total, low=len(kept))
    if not total:
        return _NO_OUTPUT
    head = number(fields, tags.kept_head, high=len(kept))
    spill = fields.get(tags.spill)
    if spill is not None and (not isinstance(spill, bytes) or not 0 < len(spill) <= _MAX_PATH_BYTES or b"\0" in spill):
        raise FrameError("an answer with a path that is none")
    whole = memoryview(kept)
    try:
        return render(
            bytes(whole[:head]),
            bytes(whole[head:]),
            total_bytes=total,
            total_lines=number(fields, tags.lines, high=total + 1),
            max_chars=max_chars,
            spill_path=None if spill is None else spill.decode("utf-8", "surrogateescape"),
            spilled_bytes=number(fields, tags.spilled, high=total, default=0),
        )
    except ValueError as error:  # the counts contradict each other, or the bytes
        raise FrameError(f"an answer that cannot be right: {error}") from error


@dataclass(frozen=True, slots=True)
class Entry:
    """One ENTRY record, exact."""

    mode: int
    size: int
    mtime_ns: int
    uid: int
    gid: int
    name: bytes
    target: bytes | None

    def info(self, path: str) -> FileInfo:
        """Return it as the protocol gives it, under a path."""
        target = None if self.target is None else self.target.decode("utf-8", "surrogateescape")
        return FileInfo(path, self.mode, self.size, self.mtime_ns / 1e9, self.uid, self.gid, target)


def entry_of(fields: Fields) -> Entry:
    """Return the one ENTRY of an answer."""
    record = fields.get(Tag.ENTRY)
    if not isinstance(record, bytes):
        raise FrameError("an answer without an ENTRY")
    found = _entry(record, 0)
    if found is None or found[1] != len(record) or found[0].name:
        raise FrameError("an answer whose ENTRY is none")
    return found[0]


class EntryReader:
    """Cuts the DATA of a LIST into entries, however it is split."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.entries: list[FileInfo] = []

    def feed(self, data: bytes | bytearray) -> None:
        """Take the next bytes; holds at most one record that is not whole."""
        self._buffer += data
        position = 0
        while (found := _entry(self._buffer, position)) is not None:
            entry, position = found
            name = entry.name
            if not name or b"/" in name or b"\0" in name or name in {b".", b".."}:
                raise FrameError(f"a folder with an entry named {name!r}")
            self.entries.append(entry.info(name.decode("utf-8", "surrogateescape")))
        del self._buffer[:position]

    def finish(self, total: int) -> list[FileInfo]:
        """Return all entries, sorted; `total` is how many the guest says it sent."""
        if self._buffer or total != len(self.entries):
            raise FrameError("a folder's entries are cut short")
        self.entries.sort(key=lambda entry: entry.path)
        return self.entries


def _entry(buffer: bytes | bytearray, position: int) -> tuple[Entry, int] | None:
    """Return the record at a position and where the next begins, or None when it is not whole."""
    start = position + _ENTRY.size
    if len(buffer) < start:
        return None
    mode, size, mtime_ns, uid, gid, name_bytes, target_bytes = _ENTRY.unpack_from(buffer, position)
    if name_bytes > _MAX_NAME_BYTES or target_bytes > _MAX_PATH_BYTES or size > MAX_NUMBER:
        raise FrameError("a folder entry out of bounds")
    end = start + name_bytes + target_bytes
    if len(buffer) < end:
        return None
    name = bytes(buffer[start : start + name_bytes])
    target = bytes(buffer[start + name_bytes : end]) if stat.S_ISLNK(mode) else None
    return Entry(mode, size, mtime_ns, uid, gid, name, target), end


def refused_of(fields: Fields) -> tuple[tuple[Refused, ...], int]:
    """Return what a tree's transfer left out in the env, and how many there were in all."""
    records = fields.get(Tag.REFUSED, [])
    if not isinstance(records, list) or len(records) > MAX_REFUSED:
        raise FrameError("an answer with too many refusals")
    refused: list[Refused] = []
    for record in records:
        path, _, reason = record[: _MAX_PATH_BYTES + _MAX_REASON_BYTES].partition(b"\0")
        refused.append(Refused(path.decode("utf-8", "surrogateescape"), reason.decode("utf-8", "replace")))
    return tuple(refused), number(fields, Tag.REFUSED_COUNT, low=len(refused), default=len(refused))
