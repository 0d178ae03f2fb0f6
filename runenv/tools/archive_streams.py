"""The bytes of an archive in an env, within bounds: any range of a file, and a tar as a stream, compressed or not.

Nothing is held but a block and a piece. A decompressor runs in a thread, for a piece at a time, so that no archive
holds up the event loop, and a cancel ends the work. What is in an archive is the business of those who read here.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from typing import TYPE_CHECKING, Final, Protocol

from anyio import to_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from runenv.tools.opened import Opened

__all__ = ("DamagedError", "EndedError", "Packed", "Plain", "Ranges", "Stream", "one_line")

BLOCK_BYTES: Final = 64 * 1024
"""What is asked of the env at a time, and what comes out of a decompressor at a time."""
MAX_BLOCKS: Final = 256
"""Bounds what is read of an archive: 16 MiB, or as many members of a tar with large ones."""
MAX_UNPACKED: Final = 32 * 1024 * 1024
"""Bytes that a compressed tar may become while it is looked through."""
MAX_STREAMS: Final = 1_000
"""Compressed streams in one file, one behind the other."""
XZ_MEMORY_BYTES: Final = 128 * 1024 * 1024
"""What unpacking xz may take; a file can ask for gigabytes."""


class EndedError(Exception):
    """More was looked at than is allowed."""


class DamagedError(Exception):
    """The archive is not as it should be."""


class Ranges:
    """A file of the env that can be read anywhere, within limits."""

    def __init__(self, file: Opened) -> None:
        self.size = file.size
        self._file = file
        self._asked = 0
        self._number = -1
        self._block = b""

    async def read(self, at: int, size: int) -> bytes:
        """Return the bytes at a place, fewer at the end of the file."""
        pieces: list[bytes] = []
        while size > 0 and 0 <= at < self.size:
            number, skipped = divmod(at, BLOCK_BYTES)
            piece = (await self._load(number))[skipped : skipped + size]
            if not piece:
                break
            pieces.append(piece)
            at += len(piece)
            size -= len(piece)
        return b"".join(pieces)

    async def _load(self, number: int) -> bytes:
        if number == self._number:
            return self._block
        offset = number * BLOCK_BYTES
        file = self._file
        if offset + BLOCK_BYTES <= len(file.head) or file.is_whole:
            return file.head[offset : offset + BLOCK_BYTES]
        if self._asked >= MAX_BLOCKS:
            raise EndedError("More is not looked at here.")
        self._asked += 1
        self._block = await file.context.env.read(file.path, offset=offset, length=BLOCK_BYTES)
        self._number = number
        return self._block


class Stream(Protocol):
    """The bytes of a tar, once."""

    async def take(self, size: int) -> bytes:
        """Return the next bytes, fewer at the end."""
        ...

    async def skip(self, size: int) -> None:
        """Go on, at most to the end.

        Raises:
            DamagedError: that is nearer.
        """
        ...


class Plain:
    """A tar as it is in the file."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._at = 0

    async def take(self, size: int) -> bytes:
        """Return the next bytes, fewer at the end."""
        data = await self._ranges.read(self._at, size)
        self._at += len(data)
        return data

    async def skip(self, size: int) -> None:
        """Go on, at most to the end."""
        self._at += size
        if self._at > self._ranges.size:
            raise DamagedError("it ends early")


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class Packed:
    """A tar that comes out of a decompressor, up to a limit."""

    def __init__(self, ranges: Ranges, kind: str) -> None:
        self._ranges = ranges
        self._make = _DECOMPRESSORS[kind]
        self._decompressor = self._make()
        self._streams = 1
        self._at = 0
        self._packed = b""
        self._unpacked = memoryview(b"")
        self._total = 0

    async def take(self, size: int) -> bytes:
        """Return the next bytes, fewer at the end."""
        taken = bytearray()
        while len(taken) < size and (self._unpacked or await self._unpack()):
            missing = size - len(taken)
            taken += self._unpacked[:missing]
            self._unpacked = self._unpacked[missing:]
        return bytes(taken)

    async def skip(self, size: int) -> None:
        """Go on, at most to the end."""
        while size > 0:
            if not self._unpacked and not await self._unpack():
                raise DamagedError("it ends early")
            skipped = min(size, len(self._unpacked))
            self._unpacked = self._unpacked[skipped:]
            size -= skipped

    async def _unpack(self) -> bool:
        """Have the next piece; false at the end."""
        while not self._decompressor.eof or await self._next_stream():
            piece, self._packed = await to_thread.run_sync(_step, self._decompressor, self._packed)
            self._total += len(piece)
            if self._total > MAX_UNPACKED:
                raise EndedError("More is not unpacked here.")
            if piece:
                self._unpacked = memoryview(piece)
                return True
            if not self._packed and not self._decompressor.eof and not await self._fetch():
                raise DamagedError("it ends early")
        return False

    async def _next_stream(self) -> bool:
        """Begin the stream behind one that has ended, if there is one."""
        self._packed = self._decompressor.unused_data.lstrip(b"\0")
        while not self._packed:
            if not await self._fetch():
                return False
            self._packed = self._packed.lstrip(b"\0")
        self._streams += 1
        if self._streams > MAX_STREAMS:
            raise EndedError("More is not unpacked here.")
        self._decompressor = self._make()
        return True

    async def _fetch(self) -> bool:
        self._packed = await self._ranges.read(self._at, BLOCK_BYTES)
        self._at += len(self._packed)
        return bool(self._packed)


def _gzip() -> _Decompressor:
    return zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)


def _xz() -> _Decompressor:
    return lzma.LZMADecompressor(memlimit=XZ_MEMORY_BYTES)


_DECOMPRESSORS: Final[dict[str, Callable[[], _Decompressor]]] = {
    "application/gzip": _gzip,
    "application/x-bzip2": bz2.BZ2Decompressor,
    "application/x-xz": _xz,
}


def _step(decompressor: _Decompressor, data: bytes) -> tuple[bytes, bytes]:
    """Return a piece of what comes out, and the input that was not taken. Nothing comes out where more is needed."""
    try:
        piece = decompressor.decompress(data, BLOCK_BYTES)
    except (EOFError, MemoryError, OSError, ValueError, lzma.LZMAError, zlib.error) as error:
        raise DamagedError(one_line(error)) from error
    return piece, getattr(decompressor, "unconsumed_tail", b"")


def one_line(error: BaseException) -> str:
    """Return the words of an error, cut."""
    return " ".join(str(error).split())[:200] or type(error).__name__
