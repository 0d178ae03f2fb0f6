"""What the bytes of an image say of themselves: type, size, frames, and whether they reach its end. Pure.

Reads headers and block structure only, never pixels, in time linear in the length, and takes any bytes. It does not
prove that an image can be decoded; the image tool does that. It catches what bricks a conversation most often: a type
that is not the bytes', and an image cut off before its end.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final

__all__ = ("Picture", "look")

_PNG: Final = b"\x89PNG\r\n\x1a\n"
_JPEG: Final = b"\xff\xd8\xff"
_GIFS: Final = (b"GIF87a", b"GIF89a")

_JPEG_BARE: Final = frozenset({0x01, *range(0xD0, 0xD8)})
"""Markers without a length: TEM and the restarts."""
_JPEG_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers of a frame header, which holds the size."""
_SOS: Final = 0xDA
_EOI: Final = b"\xff\xd9"
_GIF_EXTENSION: Final = 0x21
_GIF_IMAGE: Final = 0x2C
_GIF_TRAILER: Final = 0x3B


@dataclass(frozen=True, slots=True)
class Picture:
    """An image by its own bytes.

    Attributes:
        media_type: "image/png", "image/jpeg", "image/gif" or "image/webp".
        width: pixels; 0 where the bytes end before they say it.
        height: pixels; 0 likewise.
        animated: it has more than one frame.
        whole: its structure is sound from the header to the end.
    """

    media_type: str
    width: int = 0
    height: int = 0
    animated: bool = False
    whole: bool = False

    @property
    def side(self) -> int:
        """The longer side in pixels."""
        return max(self.width, self.height)


def look(data: bytes) -> Picture | None:
    """Return what an image says of itself, or None for what is none of the four types.

    Args:
        data: the image, or its beginning; then it is not `whole`.
    """
    if data.startswith(_PNG):
        return _png(data)
    if data.startswith(_JPEG):
        return _jpeg(data)
    if data.startswith(_GIFS):
        return _gif(data)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _webp(data)
    return None


def _png(data: bytes) -> Picture:
    """Walk the chunks; a wrong checksum counts in the critical ones, without which there is no image."""
    width = height = 0
    animated = pixels = ended = False
    view = memoryview(data)
    at = len(_PNG)
    while not ended and at + 12 <= len(data):
        size, name = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        end = at + 12 + size
        if name == b"IHDR" and size >= 8:  # noqa: PLR2004 - two numbers of four bytes
            width, height = _big(data, at + 8, 4), _big(data, at + 12, 4)
        if end > len(data):
            break
        critical = not name[0] & 0x20
        if critical and zlib.crc32(view[at + 4 : end - 4]) != _big(data, end - 4, 4):
            break
        animated |= name == b"acTL"
        pixels |= name == b"IDAT"
        ended = name == b"IEND"
        at = end
    return Picture("image/png", width, height, animated, whole=ended and pixels and width > 0 and height > 0)


def _jpeg(data: bytes) -> Picture:
    """Walk the segments up to the first scan; a thumbnail's end lies within a segment and is not taken for its own."""
    width = height = 0
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:  # noqa: PLR2004 - what every marker begins with
        marker = data[at + 1]
        if marker == 0xFF or marker in _JPEG_BARE:  # noqa: PLR2004 - a fill byte
            at += 1 if marker == 0xFF else 2  # noqa: PLR2004
            continue
        size = _big(data, at + 2, 2)
        if marker in _JPEG_FRAMES and at + 9 <= len(data):
            height, width = _big(data, at + 5, 2), _big(data, at + 7, 2)
        if marker == _SOS:
            whole = width > 0 and height > 0 and data.find(_EOI, at + 2 + size) >= 0
            return Picture("image/jpeg", width, height, whole=whole)
        if size < 2:  # noqa: PLR2004 - the length counts itself
            break
        at += 2 + size
    return Picture("image/jpeg", width, height)


def _gif(data: bytes) -> Picture:
    width, height = _little(data, 6, 2), _little(data, 8, 2)
    frames = 0
    at = 13 + _color_table(data, 10)
    while at < len(data) and data[at] != _GIF_TRAILER:
        if data[at] == _GIF_EXTENSION:
            at = _after_blocks(data, at + 2)
        elif data[at] == _GIF_IMAGE:
            frames += 1
            at = _after_blocks(data, at + 11 + _color_table(data, at + 9))
        else:
            return Picture("image/gif", width, height, frames > 1)
    whole = at < len(data) and frames > 0 and width > 0 and height > 0
    return Picture("image/gif", width, height, frames > 1, whole)


def _color_table(data: bytes, flags_at: int) -> int:
    """Return the bytes of the colour table that a GIF's flags announce."""
    flags = data[flags_at] if flags_at < len(data) else 0
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _after_blocks(data: bytes, at: int) -> int:
    """Return where a GIF goes on behind a row of data blocks."""
    while at < len(data) and data[at]:
        at += 1 + data[at]
    return at + 1


def _webp(data: bytes) -> Picture:
    width = height = 0
    animated = False
    kind = data[12:16]
    if kind == b"VP8X" and len(data) >= 30:  # noqa: PLR2004 - the header's end
        animated = bool(data[20] & 2)
        width, height = 1 + _little(data, 24, 3), 1 + _little(data, 27, 3)
    elif kind == b"VP8L" and len(data) >= 25:  # noqa: PLR2004
        bits = _little(data, 21, 4)
        width, height = 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    elif kind == b"VP8 " and len(data) >= 30:  # noqa: PLR2004
        width, height = _little(data, 26, 2) & 0x3FFF, _little(data, 28, 2) & 0x3FFF
    whole = width > 0 and height > 0 and len(data) >= 8 + _little(data, 4, 4)
    return Picture("image/webp", width, height, animated, whole)


def _big(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "big")


def _little(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")
