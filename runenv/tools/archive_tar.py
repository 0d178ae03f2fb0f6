"""The members of a tar, by its headers: ustar, pax, and what GNU adds to them. Pure but for the stream that is read.

Each header is read once, and what is longer than any that a program writes is not read at all: `tarfile` searches the
whole of a pax header for each digit in it, and copies all that global headers say for each member.
"""

from __future__ import annotations

import datetime as dt
import tarfile
from typing import TYPE_CHECKING, Final

from runenv.tools.archive_streams import DamagedError, EndedError, one_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from runenv.tools.archive_streams import Stream

    Note: TypeAlias = Callable[[str, int, str], None]

__all__ = ("walk",)

MAX_RECORDS: Final = 250_000
"""Records of all pax headers: some tenths of a second of work; each member has a few."""
MAX_EXTENSION: Final = 64 * 1024
"""Bytes of what a tar says of its next member beside the header."""
_TYPES: Final = {
    tarfile.DIRTYPE: "/",
    tarfile.SYMTYPE: " (link)",
    tarfile.LNKTYPE: " (hard link)",
    tarfile.CHRTYPE: " (device)",
    tarfile.BLKTYPE: " (device)",
    tarfile.FIFOTYPE: " (FIFO)",
}
"""How the types without data are shown; what has another one is followed by its data."""
_LONG: Final = {tarfile.GNUTYPE_LONGNAME: "path", tarfile.GNUTYPE_LONGLINK: "linkpath"}
_PAX: Final = frozenset({tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.XGLTYPE})
_REAL_SIZES: Final = ("GNU.sparse.realsize", "GNU.sparse.size")
_KEYWORDS: Final = frozenset(
    (b"path", b"linkpath", b"size", b"mtime", b"GNU.sparse.name", *map(str.encode, _REAL_SIZES))
)
"""What is taken of a pax header."""


async def walk(stream: Stream, note: Note) -> None:
    """Note the members of a tar, in their order.

    Args:
        stream: its bytes.
        note: called with the name, the size in bytes and the time of each.

    Raises:
        DamagedError: it is none, or not from here on.
        EndedError: the stream ended the work, or a header is too long.
    """
    said_of_all: dict[str, str] = {}
    said: dict[str, str] = {}
    records = 0
    while (header := await stream.take(tarfile.BLOCKSIZE)) and any(header):
        try:
            member = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
        except (tarfile.TarError, ValueError) as error:
            raise DamagedError(one_line(error)) from error
        if member.type in _LONG:
            name = (await _extension(stream, member)).partition(b"\0")[0]
            said[_LONG[member.type]] = name.decode("utf-8", "surrogateescape")
        elif member.type in _PAX:
            found, looked_at = _records(await _extension(stream, member), MAX_RECORDS - records)
            records += looked_at
            (said_of_all if member.type == tarfile.XGLTYPE else said).update(found)
        else:
            await _member(stream, note, member, header, {**said_of_all, **said})
            said = {}


async def _extension(stream: Stream, member: tarfile.TarInfo) -> bytes:
    """Return what stands behind a header that speaks of the next member."""
    if member.size > MAX_EXTENSION:
        raise EndedError(f"A header of {member.size:,} bytes follows, more than is looked at here.")
    size = _sized(member.size)
    data = await stream.take(_padded(size))
    if len(data) < size:
        raise DamagedError("it ends early")
    return data[:size]


def _records(data: bytes, most: int) -> tuple[dict[str, str], int]:
    """Return the records of a pax header that matter here, and how many it has.

    Raises:
        EndedError: it has more than are looked at.
    """
    found: dict[str, str] = {}
    at = number = 0
    while (blank := data.find(b" ", at, at + 10)) > at and data[at:blank].isdigit():
        end = at + int(data[at:blank])
        if end <= blank:
            break
        number += 1
        if number > most:
            raise EndedError("More headers are not looked at here.")
        keyword, _, value = data[blank + 1 : end - 1].partition(b"=")
        if keyword in _KEYWORDS:
            found[keyword.decode()] = value.decode("utf-8", "surrogateescape")
        at = end
    return found, number


async def _member(stream: Stream, note: Note, member: tarfile.TarInfo, header: bytes, said: dict[str, str]) -> None:
    """Note a member, and go on to behind its data."""
    stored = _sized(said.get("size", member.size))
    size = next((_sized(said[keyword]) for keyword in _REAL_SIZES if keyword in said), stored)
    if member.type == tarfile.GNUTYPE_SPARSE:
        size, is_longer = _sized(_octal(header[483:495])), header[482]
        while is_longer:
            more = await stream.take(tarfile.BLOCKSIZE)
            is_longer = more[504] if len(more) == tarfile.BLOCKSIZE else 0
    name = said.get("GNU.sparse.name") or said.get("path") or member.name
    shown = f"{name.rstrip('/') or '/'}{_TYPES.get(member.type, '')}"
    target = said.get("linkpath") or member.linkname
    note(f"{shown} -> {target}" if target else shown, size, _when(said.get("mtime", member.mtime)))
    if member.type not in _TYPES:
        await stream.skip(_padded(stored))


def _sized(size: str | int) -> int:
    """Return a size, if it can be one."""
    try:
        number = int(size)
    except ValueError as error:
        raise DamagedError("a size is no number") from error
    if not 0 <= number < 1 << 63:
        raise DamagedError("a size is out of range")
    return number


def _octal(field: bytes) -> int:
    if field[0] & 0x80:
        return int.from_bytes(field[1:], "big")
    try:
        return int(field.partition(b"\0")[0].strip() or b"0", 8)
    except ValueError as error:
        raise DamagedError("a size is no number") from error


def _padded(size: int) -> int:
    return -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE


def _when(mtime: str | float) -> str:
    try:
        return f"{dt.datetime.fromtimestamp(float(mtime), dt.UTC):%Y-%m-%d %H:%M}"
    except (ValueError, OverflowError, OSError):
        return "?"
