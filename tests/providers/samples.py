"""Images, calls and results that the tests of the wires share."""

from __future__ import annotations

import base64
import io
import random
import struct
import zlib
from typing import Final

from PIL import Image

from runenv.types import FilePart, ImagePart, TextPart, ToolCall, ToolDefinition, ToolResult

HANDLE: Final = "runenv+file://0b2a1c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d"
OTHER: Final = "runenv+file://11111111-2222-4333-8444-555555555555"

DOT64: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
DOT: Final = base64.b64decode(DOT64)
"""A PNG of one pixel, 70 bytes."""

READ: Final = ToolCall("call_1", "file_read", {"path": "chart.png"})
RUN: Final = ToolCall("call_2", "exec", {"command": "false"})
FILE: Final = FilePart(HANDLE, "deck.pptx", "application/vnd.ms-powerpoint", 46_399, "0123456789abcdef" * 4)
GOOD: Final = ToolResult((TextPart("1 x 1 pixels"), ImagePart(DOT, "image/png"), FILE))
BAD: Final = ToolResult((TextPart("exit code 1"),), is_error=True)
DEFINITION: Final = ToolDefinition(
    "file_read",
    "Reads a file.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"], "additionalProperties": False},
)


def encoded(kind: str, size: tuple[int, int] = (4, 3), frames: int = 1, seed: int | None = None) -> bytes:
    """An image as Pillow writes it; with a seed, of noise."""
    shots = [Image.new("RGB", size, (40 * number, 90, 200)) for number in range(frames)]
    if seed is not None:
        shots[0] = Image.frombytes("RGB", size, random.Random(seed).randbytes(3 * size[0] * size[1]))
    out = io.BytesIO()
    shots[0].save(out, kind, **({"save_all": True, "append_images": shots[1:]} if frames > 1 else {}))
    return out.getvalue()


def header_only_png(width: int, height: int, padding: int = 0) -> bytes:
    """A PNG that claims a size, with its pixels missing from a sound structure; `padding` makes it longer."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    filler = chunk(b"tEXt", bytes(padding)) if padding else b""
    return b"\x89PNG\r\n\x1a\n" + header + filler + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def image(data: bytes = DOT, media_type: str = "image/png", handle: str | None = None) -> ImagePart:
    """An image part."""
    return ImagePart(data, media_type, handle)


def result(*parts: str | ImagePart | FilePart, is_error: bool = False) -> ToolResult:
    """A result of parts, texts as they are."""
    return ToolResult(tuple(TextPart(part) if isinstance(part, str) else part for part in parts), is_error)
