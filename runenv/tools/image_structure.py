"""Image files as bytes: is one whole, what in it is not pixels, how many frames has it. Pure; decodes nothing.

Decoders forgive much that others do not: a PNG without its end, a wrong checksum, a JPEG whose last marker is missing.
What is handed through to a vendor has to be whole for the strictest of them, and nothing in it but what shows the
picture: no place, no serial number, no thumbnail of what was cut away, no bytes behind the end.
"""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("MAX_FRAMES", "DamageError", "Whole", "gif_frames", "is_netpbm", "webp_size", "whole")

MAX_FRAMES: Final = 1000
"""Frames that are counted; what has more has "more than" that many."""

_NETPBM: Final = re.compile(rb"P[1-6](?:\s|#[^\n]*\n)++\d{1,9}(?:\s|#[^\n]*\n)++\d{1,9}\s")
_NETPBM_HEAD: Final = 1024
"""Bytes of a Netpbm file's head, comments included, that are searched for its size."""
_PNG_KEPT: Final = frozenset(
    {b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"gAMA", b"cHRM", b"sRGB", b"sBIT", b"bKGD", b"pHYs"}
)
_WEBP_KEPT: Final = frozenset({b"VP8 ", b"VP8L", b"ALPH"})
_WEBP_HEAD: Final = 1024
"""Bytes in which the first frame's own chunk is looked for, behind a canvas, colours and timing."""
_WEBP_ALPHA: Final = 0x10
"""The flag of an extended WebP that is kept; the others announce what was left out."""
_JPEG_MARKER: Final = re.compile(rb"\xff([^\x00\xff\xd0-\xd7])")
_JPEG_METADATA: Final = frozenset({*range(0xE1, 0xEE), 0xEF, 0xFE})
"""APP1 to APP15 and comments; APP0 (JFIF) and APP14 (Adobe) tell how to read the colours."""
_JPEG_FRAMES: Final = frozenset({0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF})
_JPEG_USUAL: Final = frozenset({0xC0, 0xC1, 0xC2})
"""Baseline, extended, progressive, all with Huffman codes; many decoders read no other."""
_START_OF_SCAN, _END_OF_IMAGE = 0xDA, 0xD9
_NO_LENGTH: Final = frozenset({0x01, 0xD8, _END_OF_IMAGE})
_EIGHT_BITS: Final = 8


class DamageError(ValueError):
    """The file is not whole; the message says where."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A file that is whole.

    Attributes:
        stripped: the file with nothing in it but what shows the picture.
        usual: it is coded as every decoder expects: 8 bits, no rare codes, one frame.
        frames: how many it says that it has.
        lossless: no pixel was changed to save bytes.
    """

    stripped: bytes
    usual: bool
    frames: int = 1
    lossless: bool = False


def whole(data: bytes, format: str) -> Whole | None:
    """Walk through a file.

    Args:
        data: all of it.
        format: Pillow's name of what it is.

    Returns:
        None for a format that is never handed through, whose decoder is strict enough.

    Raises:
        DamageError: it is not whole.
    """
    match format:
        case "PNG":
            return _png(data)
        case "JPEG":
            return _jpeg(data)
        case "WEBP":
            return _webp(data)
        case _:
            return None


def is_netpbm(head: bytes) -> bool:
    """Say whether a file begins as PBM, PGM or PPM do: `P1` to `P6`, a width and a height."""
    return _NETPBM.match(head[:_NETPBM_HEAD]) is not None


def _missing(data: bytes, what: str) -> DamageError:
    return DamageError(f"it ends after {len(data):,} bytes, {what}")


def _png(data: bytes) -> Whole:
    view, at, kept, frames = memoryview(data), 8, [data[:8]], 1
    while True:
        kind = data[at + 4 : at + 8]
        if len(kind) < 4:  # noqa: PLR2004
            raise _missing(data, "before its last chunk")
        end = at + 12 + struct.unpack_from(">I", data, at)[0]
        if end > len(data):
            raise _missing(data, f"inside of the chunk {kind.decode('ascii', 'replace')!r}")
        if zlib.crc32(view[at + 4 : end - 4]) != struct.unpack_from(">I", data, end - 4)[0]:
            raise DamageError(f"the checksum of its chunk {kind.decode('ascii', 'replace')!r} at byte {at:,} is wrong")
        if kind in _PNG_KEPT:
            kept.append(data[at:end])
        elif kind == b"acTL" and end - at >= 20:  # noqa: PLR2004
            frames = struct.unpack_from(">I", data, at + 8)[0] or 1
        at = end
        if kind == b"IEND":
            return Whole(b"".join(kept), usual=data[24:25] == bytes((_EIGHT_BITS,)), frames=frames, lossless=True)


def _jpeg(data: bytes) -> Whole:
    kept, usual, scanned = [data[:2]], True, False
    for marker, start, end in _segments(data):
        if marker not in _JPEG_METADATA:
            kept.append(data[start:end])
        if marker in _JPEG_FRAMES:
            usual = usual and marker in _JPEG_USUAL and data[start + 4] == _EIGHT_BITS
        scanned = scanned or marker == _START_OF_SCAN
    if not scanned:
        raise DamageError("it has no pixels: it ends before they begin")
    return Whole(b"".join(kept), usual)


def _segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Marker, start and end of each segment; a scan's codes belong to its segment. Ends with the end marker."""
    at = 2
    while True:
        found = _JPEG_MARKER.search(data, at)
        if found is None:
            raise _missing(data, "before its end marker")
        marker, start, at = found[1][0], found.start(), found.end()
        if marker not in _NO_LENGTH:
            if len(data) < at + 5:
                raise _missing(data, "inside of a segment")
            at += max(2, struct.unpack_from(">H", data, at)[0])
        if marker == _START_OF_SCAN:
            codes_end = _JPEG_MARKER.search(data, at)
            if codes_end is None:
                raise _missing(data, "before its end marker")
            at = codes_end.start()
        yield marker, start, at
        if marker == _END_OF_IMAGE:
            return


def _webp(data: bytes) -> Whole:
    end = 8 + struct.unpack_from("<I", data, 4)[0]
    if end > len(data):
        raise _missing(data, f"of the {end:,} that its head tells of")
    at, kept, frames, extended = 12, list[bytes](), 0, False
    while at + 8 <= end:
        kind, length = struct.unpack_from("<4sI", data, at)
        after = at + 8 + length + length % 2
        if kind == b"VP8X" and length >= 10:  # noqa: PLR2004
            extended = True
            kept.append(data[at : at + 8] + bytes((data[at + 8] & _WEBP_ALPHA,)) + data[at + 9 : after])
        elif kind in _WEBP_KEPT:
            kept.append(data[at:after])
        frames += kind == b"ANMF"
        at = after
    body = b"WEBP" + b"".join(kept)
    usual = bool(kept) and not frames and (extended or len(kept) == 1)
    return Whole(
        b"RIFF" + struct.pack("<I", len(body)) + body, usual, max(frames, 1), lossless=b"VP8L" in data[:_WEBP_HEAD]
    )


def webp_size(data: bytes) -> tuple[int, int] | None:
    """Width and height as the head of a WebP tells them: its decoder takes memory for them before it says them."""
    kind, body = data[12:16], data[20:30]
    if len(body) < 10:  # noqa: PLR2004
        return None
    if kind == b"VP8X":
        return 1 + int.from_bytes(body[4:7], "little"), 1 + int.from_bytes(body[7:10], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(body[1:5], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", body, 6)
        return width & 0x3FFF, height & 0x3FFF
    return None


def gif_frames(data: bytes) -> int:
    """Count the frames of a GIF, at most `MAX_FRAMES` and one; what cannot be followed ends the count."""
    at, frames = 13 + _color_table(data, 10), 0
    while frames <= MAX_FRAMES:
        kind = data[at : at + 1]
        if kind == b",":
            frames += 1
            at = _after_blocks(data, at + 11 + _color_table(data, at + 9))
        elif kind == b"!":
            at = _after_blocks(data, at + 2)
        else:
            break
    return frames


def _color_table(data: bytes, flags_at: int) -> int:
    """Bytes of the color table that flags tell of."""
    flags = int.from_bytes(data[flags_at : flags_at + 1], "big")
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _after_blocks(data: bytes, at: int) -> int:
    """Where a chain of data blocks has ended."""
    while at < len(data) and data[at]:
        at += 1 + data[at]
    return at + 1
