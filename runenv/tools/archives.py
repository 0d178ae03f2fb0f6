"""What is in a zip or tar archive, for `file_read`: names, sizes and times. Nothing is ever unpacked.

The archive stays in the env. The standard library's readers run in a thread over `_Ranges`, which asks the env for
the few blocks that they look at, and ends them when they look at too many: an archive is hostile, and may be built so
that its list is endless. What was found until then is shown, and that there is more is said.
"""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import io
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final, Protocol, cast

from anyio import from_thread, to_thread

from runenv.artifacts.extensions import ZIP_BASED
from runenv.tools import documents
from runenv.tools.opened import count
from runenv.tools.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runenv.tools.opened import Opened

__all__ = ("is_archive", "show")

MEMBERS: Final = 200
"""Members that are listed."""
MAX_MEMBERS: Final = 20_000
"""Members of a tar that are counted."""
NAME_CHARS: Final = 200
"""Characters of a member's name."""
BLOCK_BYTES: Final = 64 * 1024
"""What is asked of the env at a time."""
MAX_BLOCKS: Final = 256
"""Bounds what is read of an archive: 16 MiB, or as many members of a tar with large ones."""
MAX_UNPACKED: Final = 32 * 1024 * 1024
"""Bytes that a compressed tar may become while it is looked through."""
HELD_BLOCKS: Final = 16
XZ_MEMORY_BYTES: Final = 128 * 1024 * 1024
"""What unpacking xz may take; a file can ask for gigabytes."""

_COMPRESSED: Final = frozenset({"application/gzip", "application/x-bzip2", "application/x-xz"})
_FAULTS: Final = (
    EOFError,
    LookupError,
    NotImplementedError,
    OSError,  # among them zipfile's and gzip's own
    OverflowError,
    RuntimeError,
    ValueError,
    lzma.LZMAError,
    struct.error,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What the standard library raises for archives that are not as they should be."""
_TYPES: Final = {
    tarfile.DIRTYPE: "/",
    tarfile.SYMTYPE: " (link)",
    tarfile.LNKTYPE: " (hard link)",
    tarfile.CHRTYPE: " (device)",
    tarfile.BLKTYPE: " (device)",
    tarfile.FIFOTYPE: " (FIFO)",
}


class _EndedError(Exception):
    """More was looked at than is allowed."""


@dataclass(slots=True)
class _Listing:
    """What was found."""

    kind: str
    lines: list[str]
    members: int = 0
    total: int = 0
    ended: str = ""

    def add(self, name: str, size: int, when: str) -> None:
        self.members += 1
        self.total += size
        if len(self.lines) < MEMBERS:
            name = visible(name).replace("\n", "\u240a").replace("\t", "\u2409")
            name = name if len(name) <= NAME_CHARS else f"{name[:NAME_CHARS]}..."
            self.lines.append(f"{size:>12,}  {when:16}  {name}")


def is_archive(kind: str) -> bool:
    """Say whether files of a type are listed. Those of office programs are not: their members tell nothing."""
    is_zip = kind == "application/zip" or (kind in ZIP_BASED and not kind.startswith("application/vnd."))
    return is_zip or kind == "application/x-tar" or kind in _COMPRESSED


async def show(file: Opened) -> str:
    """List an archive."""
    listing = await to_thread.run_sync(_list, file)
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


def _list(file: Opened) -> _Listing | str:
    """List an archive, or say why there is no list. Runs in a thread."""
    is_compressed = file.kind in _COMPRESSED
    is_tar = is_compressed or file.kind == "application/x-tar"
    listing = _Listing("tar" if is_tar else "zip", [])
    source = _Ranges(file)
    try:
        if is_tar:
            _tar(source, file.kind, listing)
        else:
            _zip(source, listing)
    except _EndedError as error:
        listing.ended = f" {error}"
    except MemoryError:
        return "It claims to need more memory than there is: it is damaged, or made to do harm."
    except _FAULTS as error:
        if not listing.members:
            if is_compressed:
                return "This is compressed; it is not shown."
            return f"This archive is damaged, or of a kind that cannot be listed here ({_line(error)})."
        listing.ended = f" What follows is damaged ({_line(error)})."
    if not listing.members and is_compressed and not listing.ended:
        return "This is compressed; it is not shown."
    return listing


def _zip(source: _Ranges, listing: _Listing) -> None:
    with zipfile.ZipFile(cast("IO[bytes]", io.BufferedReader(source))) as archive:
        for member in archive.infolist():
            year, month, day, hour, minute, _ = member.date_time
            locked = " (encrypted)" if member.flag_bits & 1 else ""
            when = f"{year}-{month:02}-{day:02} {hour:02}:{minute:02}"
            listing.add(f"{member.filename}{locked}", member.file_size, when)


def _tar(source: _Ranges, kind: str, listing: _Listing) -> None:
    stream = cast("io.BufferedReader", io.BufferedReader(source))
    with _opened_tar(stream) if kind == "application/x-tar" else _opened_stream(_unpacked(stream, kind)) as archive:
        for member in _each(archive):
            shown = f"{member.name}{_TYPES.get(member.type, '')}"
            target = f" -> {member.linkname}" if member.linkname else ""
            listing.add(f"{shown}{target}", member.size, _when(member.mtime))
            if listing.members >= MAX_MEMBERS:
                raise _EndedError(f"Counting ended at {MAX_MEMBERS:,}.")


def _opened_tar(stream: io.BufferedReader) -> tarfile.TarFile:
    return tarfile.open(fileobj=stream, mode="r:")


def _opened_stream(stream: _Readable) -> tarfile.TarFile:
    return tarfile.open(fileobj=cast("IO[bytes]", _Bounded(stream)), mode="r|")


def _unpacked(stream: io.BufferedReader, kind: str) -> _Readable:
    if kind == "application/gzip":
        return gzip.GzipFile(fileobj=stream)
    return bz2.BZ2File(stream) if kind == "application/x-bzip2" else _Xz(stream)


def _each(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    while (member := archive.next()) is not None:
        yield member
        cast("Any", archive).members.clear()  # it would keep all of them


def _when(mtime: float) -> str:
    try:
        return f"{dt.datetime.fromtimestamp(mtime, dt.UTC):%Y-%m-%d %H:%M}"
    except (ValueError, OverflowError, OSError):
        return "?"


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


class _Ranges(io.RawIOBase):
    """A file of the env that can be read anywhere, within limits. For a thread of anyio."""

    def __init__(self, file: Opened) -> None:
        super().__init__()
        self._file = file
        self._at = 0
        self._asked = 0
        self._blocks: OrderedDict[int, bytes] = OrderedDict()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size}[whence]
        if base + offset < 0:
            raise OSError("a place before the start of the file")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: object, /) -> int:
        view = memoryview(cast("bytearray", buffer))
        number, skipped = divmod(self._at, BLOCK_BYTES)
        piece = self._block(number)[skipped : skipped + len(view)] if self._at < self._file.size else b""
        view[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def _block(self, number: int) -> bytes:
        if (known := self._blocks.get(number)) is not None:
            return known
        offset = number * BLOCK_BYTES
        file = self._file
        if offset + BLOCK_BYTES <= len(file.head) or file.is_whole:
            return file.head[offset : offset + BLOCK_BYTES]
        if self._asked >= MAX_BLOCKS:
            raise _EndedError("More is not looked at here.")
        self._asked += 1
        self._blocks[number] = block = from_thread.run(_read, file, offset)
        while len(self._blocks) > HELD_BLOCKS:
            self._blocks.popitem(last=False)
        return block


async def _read(file: Opened, offset: int) -> bytes:
    return await file.context.env.read(file.path, offset=offset, length=BLOCK_BYTES)


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Bounded:
    """What comes out of a decompressor, up to a limit."""

    def __init__(self, stream: _Readable) -> None:
        self._stream = stream
        self._left = MAX_UNPACKED

    def read(self, size: int, /) -> bytes:
        if self._left <= 0:
            raise _EndedError("More is not unpacked here.")
        data = self._stream.read(min(size, self._left))
        self._left -= len(data)
        return data


class _Xz:
    """Unpacks xz within a bound of memory, which the standard library's file object has not."""

    def __init__(self, stream: _Readable) -> None:
        self._stream = stream
        self._decompressor = lzma.LZMADecompressor(memlimit=XZ_MEMORY_BYTES)

    def read(self, size: int, /) -> bytes:
        while not self._decompressor.eof:
            packed = self._stream.read(BLOCK_BYTES) if self._decompressor.needs_input else b""
            if data := self._decompressor.decompress(packed, size):
                return data
            if not packed and self._decompressor.needs_input:
                raise EOFError("it ends early")
        return b""
