"""From a tar stream of unknown origin to one of ours: well-formed, and harmless wherever it is unpacked.

Reads what GNU tar, BSD tar, `tarfile` and the guest make: ustar, old and GNU headers, and the extended ones of POSIX
(pax) as far as they say names, links, sizes and times. Writes the form of `tar.py`, which the guest and all the others
read. Names are relative and never climb, links stay inside, and no name leads through a link of the same stream, so
that links cannot add up to a way out. Only files, folders and symbolic links pass; owners, special bits and everything
else that a header may say is left behind. What is left out is listed in the account, `Rewriter.report`.

Nothing waits in memory but the entry's header and a piece of its content. `unpacking.py` holds a stream to the same
rules where it meets a disk; here there is none, and nothing blocks.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import tarfile
from typing import TYPE_CHECKING, Final, NamedTuple

import anyio.lowlevel

from runenv.envs.transfer import tar
from runenv.envs.transfer.folders import RefusedError, Report, check_link, check_path

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

__all__ = ("Rewriter",)

MAX_EXTENDED_BYTES: Final = 1 << 20
"""Bounds an extended header, which is read whole; real ones with extended attributes have some 64 KiB."""
MAX_LINKS: Final = 250_000
"""Links of a stream that are remembered, 8 bytes each and their place in a set; further ones are refused."""
MAX_FILE_BYTES: Final = 2**63 - 1
"""The largest size that a header may claim; also that of Linux."""
MAX_NAME_BYTES: Final = 255
"""Bounds one name of a path; also that of Linux."""
ENTRIES_IN_A_ROW: Final = 128
"""After so many, which take about 2 ms, others on the event loop have their turn."""

_TIMES: Final = range(-(1 << 31), 1 << 33)  # 1901 to 2242; other times become the nearest of them
_PERMISSIONS: Final = 0o777
_SPECIAL_BITS: Final = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX
_TYPES: Final = {
    b"1": "a hard link",
    b"3": "a character device",
    b"4": "a block device",
    b"6": "a FIFO",
    b"S": "a sparse file in a form of its own",
}
_EXTENDED: Final = frozenset({tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE})
_SPARSE_NAME: Final = "GNU.sparse.name"
_WANTED: Final = frozenset({"path", "linkpath", "size", "mtime", _SPARSE_NAME, "GNU.sparse.major", "GNU.sparse.size"})
_LENGTH: Final = re.compile(rb"([0-9]{1,7}) ")
_NUMBER: Final = re.compile(rb"(-?[0-9]{1,18})(?:\.[0-9]*)?")
# Where GNU's sparse headers say that one more block of their map follows.
_MORE_AFTER_HEADER: Final = 482
_MORE_AFTER_BLOCK: Final = 504


class Rewriter:
    """Rewrites one stream.

    Attributes:
        report: what came through and what did not; complete when `pieces` has ended.
    """

    def __init__(self, read: Callable[[], Awaitable[bytes | bytearray]]) -> None:
        """Take a function that returns the next bytes of the stream, as many as it likes, and none at its end."""
        self.report = Report(None)
        self._entries = _Entries(read)
        self._written: list[bytes] = []
        self._writer = tar.Writer(self._written.append)
        self._links: set[int] = set()

    async def pieces(self) -> AsyncGenerator[bytes]:
        """Yield the new stream. It only ends well when the old one did.

        Raises:
            OSError: the stream ends early or is no tar stream (EIO); and what `read` raises.
        """
        entries, writer = self._entries, self._writer
        in_a_row = 0
        while (entry := await entries.next()) is not None:
            in_a_row = (in_a_row + 1) % ENTRIES_IN_A_ROW
            if not in_a_row:
                await anyio.lowlevel.checkpoint()
            size = None
            try:
                size = self._begin(entry)
            except RefusedError as refused:
                self.report.refuse(entry.header.name.rstrip("/"), str(refused))
            while piece := await entries.content():
                if size is not None:
                    writer.content(piece)
                    self.report.moved(len(piece))
                while self._written:
                    yield self._written.pop(0)
            writer.pad(size or 0)
            while self._written:
                yield self._written.pop(0)
        writer.end()
        while self._written:
            yield self._written.pop(0)

    def _begin(self, entry: _Entry) -> int | None:
        """Write the header of an entry, and return the size of the content that must follow it, if any may."""
        header = entry.header
        parts = _parts(header)
        path, mode = "/".join(parts), header.mode & _PERMISSIONS
        mtime = min(max(header.mtime, _TIMES.start), _TIMES.stop - 1)
        size = None
        if entry.is_sparse or header.kind not in {*tar.FILES, tar.FOLDER, tar.LINK}:
            kind = tarfile.GNUTYPE_SPARSE if entry.is_sparse else header.kind
            raise RefusedError(f"{_TYPES.get(kind, 'an entry of unknown type')} is not taken")
        if not parts:
            if header.kind != tar.FOLDER:
                raise RefusedError("an entry without a name")
            return None  # the tree's own folder is the caller's
        self._check_way(parts, is_folder=header.kind == tar.FOLDER)
        if header.kind == tar.LINK:
            check_link(header.link, depth=len(parts) - 1)
            if len(self._links) >= MAX_LINKS:
                raise RefusedError(f"more than {MAX_LINKS:,} links")
            self._links.add(hash(parts))
            self._writer.entry(tar.Header(tar.LINK, path, _PERMISSIONS, 0, mtime, header.link))
            return None
        if header.kind == tar.FOLDER:
            self._writer.entry(tar.Header(tar.FOLDER, f"{path}/", mode, 0, mtime))
        else:
            self._writer.entry(tar.Header(tar.FILE, path, mode, header.size, mtime))
            self.report.files += 1
            size = header.size
        if header.mode & _SPECIAL_BITS:
            self.report.refuse(path, "its setuid, setgid or sticky bit was left out")
        return size

    def _check_way(self, parts: tuple[str, ...], *, is_folder: bool) -> None:
        """See that no link of this stream is above an entry, nor where a folder is to be."""
        if self._links:
            ways = range(1, len(parts) + is_folder)
            if any(hash(parts[:length]) in self._links for length in ways):
                raise RefusedError("the way to it leads through a link or a file")


def _parts(header: tar.Header) -> tuple[str, ...]:
    name = header.name
    parts = tuple([part for part in name.split("/") if part not in {"", "."}])
    if name.startswith("/"):
        raise RefusedError("an absolute name")
    if "\0" in name or "\0" in header.link:
        raise RefusedError("a name with NUL")
    check_path("/".join(parts), parts)
    if any(len(os.fsencode(part)) > MAX_NAME_BYTES for part in parts):
        raise RefusedError(f"a name of more than {MAX_NAME_BYTES} bytes")
    return parts


class _Entry(NamedTuple):
    header: tar.Header
    is_sparse: bool


class _Entries:
    """The entries of a stream that anybody may have made, one after the other, in bounded memory."""

    def __init__(self, read: Callable[[], Awaitable[bytes | bytearray]]) -> None:
        self._read = read
        self._buffer = b""
        self._at = 0
        self._left = 0  # content of this entry that is still to come
        self._padding = 0
        self._globals: dict[str, bytes] = {}

    async def next(self) -> _Entry | None:
        """Go to the next entry, past what was not read of the last one; None at the end of the archive."""
        records = dict(self._globals)
        while True:
            while await self.content():
                pass
            await self._take(self._padding)
            self._padding = 0
            block = await self._take(tarfile.BLOCKSIZE)
            header = _decode(block)
            if header is None:
                await self._drain()
                return None
            if header.kind in tar.LONG:
                key = "path" if header.kind == tarfile.GNUTYPE_LONGNAME else "linkpath"
                records[key] = (await self._whole(header.size, tar.MAX_LONG_BYTES)).partition(b"\0")[0]
            elif header.kind in _EXTENDED:
                records.update(_records(await self._whole(header.size, MAX_EXTENDED_BYTES)))
            elif header.kind == tarfile.XGLTYPE:
                self._globals.update(_records(await self._whole(header.size, MAX_EXTENDED_BYTES)))
                records.update(self._globals)
            else:
                return await self._entry(header, records, block)

    async def content(self) -> bytes:
        """Return the next piece of this entry's content, none at its end."""
        if not self._left:
            return b""
        if self._at == len(self._buffer):
            await self._fill()
        piece = self._buffer[self._at : self._at + min(self._left, tar.CHUNK_BYTES)]
        self._at += len(piece)
        self._left -= len(piece)
        return piece

    async def _entry(self, header: tar.Header, records: Mapping[str, bytes], block: bytes) -> _Entry:
        """Put a header together with what came before it."""
        kind = header.kind
        if kind == tarfile.AREGTYPE and header.name.endswith("/"):  # as old programs wrote folders
            kind = tar.FOLDER
        size = _number(records, "size", header.size)
        if not 0 <= size <= MAX_FILE_BYTES:
            raise _broken(f"holds an entry of {size} bytes")
        if kind not in tar.WITHOUT_CONTENT:
            self._left, self._padding = size, -size % tarfile.BLOCKSIZE
        if kind == tarfile.GNUTYPE_SPARSE and block[_MORE_AFTER_HEADER]:
            while (await self._take(tarfile.BLOCKSIZE))[_MORE_AFTER_BLOCK]:
                pass
        name = records.get(_SPARSE_NAME) or records.get("path")
        link = records.get("linkpath")
        header = tar.Header(
            kind,
            os.fsdecode(name) if name else header.name,
            header.mode,
            size,
            _number(records, "mtime", header.mtime),
            os.fsdecode(link) if link else header.link,
        )
        is_sparse = kind == tarfile.GNUTYPE_SPARSE or any(key.startswith("GNU.sparse.") for key in records)
        return _Entry(header, is_sparse)

    async def _whole(self, size: int, limit: int) -> bytes:
        """Return the content of an entry that is about the next one."""
        if not 0 <= size <= limit:
            raise _broken(f"holds a name or an extended header of {size} bytes")
        self._padding = -size % tarfile.BLOCKSIZE
        return await self._take(size)

    async def _take(self, count: int) -> bytes:
        """Return the next `count` bytes, few enough to be kept."""
        if self._at + count <= len(self._buffer):
            self._at += count
            return self._buffer[self._at - count : self._at]
        taken = bytearray(self._buffer[self._at :])
        while (missing := count - len(taken)) > 0:
            await self._fill()
            taken += self._buffer[:missing]
            self._at = min(missing, len(self._buffer))
        return bytes(taken)

    async def _fill(self) -> None:
        data = await self._read()
        if not data:
            raise _broken("ended early")
        self._buffer, self._at = bytes(data), 0

    async def _drain(self) -> None:
        """Read to the end: only there is known whether the stream was whole."""
        tail = len(self._buffer) - self._at
        while tail <= tar.MAX_TAIL_BYTES and (data := await self._read()):
            tail += len(data)
        if tail > tar.MAX_TAIL_BYTES:
            raise _broken("goes on after its end")


def _decode(block: bytes) -> tar.Header | None:
    try:
        return tar.decode(block)
    except ValueError as error:
        raise _broken("holds a damaged header, or is no tar stream") from error


def _records(data: bytes) -> dict[str, bytes]:
    """Return what is wanted of an extended header: lines of `length key=value`."""
    found: dict[str, bytes] = {}
    at = 0
    while at < len(data) and data[at]:
        length = _LENGTH.match(data, at)
        end = at + int(length[1]) if length else 0
        key, equals, value = data[length.end() : end].partition(b"=") if length else (b"", b"", b"")
        if not equals or end > len(data) or not value.endswith(b"\n"):
            raise _broken("holds an extended header that is none")
        if (name := key.decode("ascii", "replace")) in _WANTED:
            found[name] = value[:-1]
        at = end
    return found


def _number(records: Mapping[str, bytes], key: str, default: int) -> int:
    """Return a number of an extended header, without its fraction."""
    if not (value := records.get(key)):
        return default
    if (found := _NUMBER.fullmatch(value)) is None:
        raise _broken(f"holds an extended header with the {key} {value[:20]!r}")
    return int(found[1])


def _broken(what: str) -> OSError:
    return OSError(errno.EIO, f"the stream of the tree {what}")
