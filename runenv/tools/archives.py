"""What is in a zip or tar archive, for `file_read`: names, sizes and times. Nothing is ever unpacked.

The archive stays in the env, of which the few blocks that tell something are asked. It is hostile, and may be built so
that its list is endless, or slow to read: all work here grows with what was read, which is bounded, and nothing that is
read counts twice. What was found until a bound is shown, and that there is more is said.

The headers are walked on the event loop, in slices of a block, and only what is compressed goes through a thread, a
piece of at most 64 KiB at a time, so that a cancel ends it (`archive_streams.py`, `archive_tar.py`). Decided on
2026-11-28 against `tarfile` and `zipfile`, of which the former searches for 17 s in a pax header of 80 KB, with a
pattern that holds the lock of the interpreter; and against them in the workers of images, which would end without a
list where this gives one, and would have to ask for ranges of the file while they work.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from runenv.artifacts.extensions import ZIP_BASED
from runenv.tools import archive_tar, documents
from runenv.tools.archive_streams import DamagedError, EndedError, Packed, Plain, Ranges
from runenv.tools.opened import count
from runenv.tools.text import visible

if TYPE_CHECKING:
    from runenv.tools.opened import Opened

__all__ = ("is_archive", "show")

MEMBERS: Final = 200
"""Members that are listed."""
MAX_MEMBERS: Final = 20_000
"""Members that are counted."""
NAME_CHARS: Final = 200
"""Characters of a member's name, with where a link leads."""

_COMPRESSED: Final = frozenset({"application/gzip", "application/x-bzip2", "application/x-xz"})
_END: Final = struct.Struct("<4s4H2LH")
_END_MARK: Final = b"PK\5\6"
_END64: Final = struct.Struct("<4sQ2H2L4Q")
_LOCATOR_BYTES: Final = 20
"""What stands between the end of a zip and the record of its large numbers, where it has one."""
_ENTRY: Final = struct.Struct("<4s6H3L5H2L")
_MAX_COMMENT: Final = 0xFFFF
_EXTRA_BYTES: Final = 1024
"""Of the fields beside an entry of a zip that are looked at."""
_IN_64: Final = 0xFFFF_FFFF
"""As a size of a member: it is in a field of 64 bits beside the entry."""


@dataclass(slots=True)
class _Listing:
    """What was found."""

    kind: str
    lines: list[str]
    members: int = 0
    total: int = 0
    ended: str = ""

    def add(self, name: str, size: int, when: str) -> None:
        if self.members >= MAX_MEMBERS:
            raise EndedError(f"Counting ended at {MAX_MEMBERS:,}.")
        self.members += 1
        self.total += size
        if len(self.lines) < MEMBERS:
            name = visible(name[: NAME_CHARS + 1]).replace("\n", "\u240a").replace("\t", "\u2409")
            name = name if len(name) <= NAME_CHARS else f"{name[:NAME_CHARS]}..."
            self.lines.append(f"{size:>12,}  {when:16}  {name}")


def is_archive(kind: str) -> bool:
    """Say whether files of a type are listed. Those of office programs are not: their members tell nothing."""
    is_zip = kind == "application/zip" or (kind in ZIP_BASED and not kind.startswith("application/vnd."))
    return is_zip or kind == "application/x-tar" or kind in _COMPRESSED


async def show(file: Opened) -> str:
    """List an archive."""
    listing = await _list(file)
    if isinstance(listing, str):
        return documents.show(file, listing)
    most = f" The first {len(listing.lines):,} are listed." if listing.members > len(listing.lines) else ""
    at_least = "at least " if listing.ended else ""
    use = "python -m zipfile -l" if listing.kind == "zip" else "tar tf"
    how = file.context.hint("exec", f"To list all or to unpack, use exec ({use}).")
    said = f"{listing.kind} with {at_least}{count(listing.members, 'member')}, {listing.total:,} bytes unpacked"
    head = f"[{file.about} | {said}]"
    notes = f"{most}{listing.ended}{how}".strip()
    return "\n".join((head, *listing.lines, *([f"[{notes}]"] if notes else [])))


async def _list(file: Opened) -> _Listing | str:
    """List an archive, or say why there is no list."""
    is_compressed = file.kind in _COMPRESSED
    is_tar = is_compressed or file.kind == "application/x-tar"
    listing = _Listing("tar" if is_tar else "zip", [])
    ranges = Ranges(file)
    try:
        if not is_tar:
            await _zip(ranges, listing)
        else:
            await archive_tar.walk(Packed(ranges, file.kind) if is_compressed else Plain(ranges), listing.add)
    except EndedError as error:
        listing.ended = f" {error}"
    except DamagedError as error:
        if not listing.members and is_compressed:
            return "This is compressed; it is not shown."
        if not listing.members:
            return f"This archive is damaged, or of a kind that cannot be listed here ({error})."
        listing.ended = f" What follows is damaged ({error})."
    if not listing.members and is_compressed and not listing.ended:
        return "This is compressed; it is not shown."
    return listing


async def _zip(ranges: Ranges, listing: _Listing) -> None:
    """Walk the directory at the end of a zip."""
    at, size = await _directory(ranges)
    end = at + size
    while at < end:
        fields = _unpack(_ENTRY, await ranges.read(at, _ENTRY.size), b"PK\1\2")
        flags, time, date, unpacked = fields[3], fields[5], fields[6], fields[9]
        lengths = name_bytes, extra_bytes, _ = fields[10:13]
        name = await ranges.read(at + _ENTRY.size, name_bytes)
        if unpacked == _IN_64:
            extra = await ranges.read(at + _ENTRY.size + name_bytes, min(extra_bytes, _EXTRA_BYTES))
            unpacked = _unpacked_size(extra)
        at += _ENTRY.size + sum(lengths)
        shown = name.decode("utf-8" if flags & 0x800 else "cp437", "replace")
        when = f"{1980 + (date >> 9)}-{date >> 5 & 15:02}-{date & 31:02} {time >> 11:02}:{time >> 5 & 63:02}"
        listing.add(f"{shown} (encrypted)" if flags & 1 else shown, unpacked, when)


async def _directory(ranges: Ranges) -> tuple[int, int]:
    """Return where the directory of a zip begins, and its bytes. What stands before the zip is skipped."""
    first = max(0, ranges.size - _END.size - _MAX_COMMENT)
    tail = await ranges.read(first, ranges.size - first)
    found = tail.rfind(_END_MARK, 0, max(0, len(tail) - _END.size + len(_END_MARK)))
    if found < 0:
        raise DamagedError("it has no directory")
    *_, size, _, _ = _unpack(_END, tail[found : found + _END.size], _END_MARK)
    end = first + found
    if (await ranges.read(end - _LOCATOR_BYTES, _LOCATOR_BYTES)).startswith(b"PK\6\7"):
        end -= _LOCATOR_BYTES + _END64.size
        *_, size, _ = _unpack(_END64, await ranges.read(end, _END64.size), b"PK\6\6")
    if size > end:
        raise DamagedError("its directory is longer than the file")
    return end - size, size


def _unpack(form: struct.Struct, data: bytes, mark: bytes) -> tuple[int, ...]:
    if len(data) < form.size or not data.startswith(mark):
        raise DamagedError("its directory is not whole")
    return form.unpack(data)


def _unpacked_size(extra: bytes) -> int:
    """Return the size that is in the field for large ones, where it comes first."""
    at = 0
    while at + 12 <= len(extra):
        kind, size = struct.unpack_from("<HH", extra, at)
        if kind == 1:
            return int.from_bytes(extra[at + 4 : at + 12], "little")
        at += 4 + size
    return _IN_64
