"""What the bytes of an image say: type, size, frames, end."""

from __future__ import annotations

import io
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from runenv.providers.pictures import Picture, look
from tests.providers.samples import DOT, encoded, header_only_png

KINDS = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [(1, 1), (7, 5), (300, 2)])
def test_an_image_says_its_type_and_size(kind: str, size: tuple[int, int]) -> None:
    """As Pillow wrote it."""
    assert look(encoded(kind, size)) == Picture(KINDS[kind], *size, animated=False, whole=True)


@pytest.mark.parametrize("kind", ["PNG", "GIF", "WEBP"])
def test_an_animation_says_so(kind: str) -> None:
    """More than one frame."""
    assert look(encoded(kind, (6, 4), frames=3)) == Picture(KINDS[kind], 6, 4, animated=True, whole=True)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("JPEG", {"progressive": True}),
        ("JPEG", {"exif": b"Exif\x00\x00II*\x00\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xd9"}),
        ("JPEG", {"comment": b"\xff\xd9 is no end here"}),
        ("WEBP", {"lossless": True}),
        ("WEBP", {"exif": b"Exif\x00\x00II*\x00\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00"}),
        ("PNG", {"dpi": (72, 72)}),
        ("GIF", {"comment": b"hello"}),
    ],
)
def test_other_ways_to_write_it_say_the_same(kind: str, options: dict[str, object]) -> None:
    """Progressive, lossless, with metadata before the pixels; cut off, none of them is whole."""
    out = io.BytesIO()
    Image.new("RGB", (9, 8), (1, 2, 3)).save(out, kind, **options)
    assert look(out.getvalue()) == Picture(KINDS[kind], 9, 8, animated=False, whole=True)
    cut = look(out.getvalue()[:-2])
    assert cut is not None
    assert not cut.whole


def test_what_follows_the_end_does_not_matter() -> None:
    """Cameras and tools append things."""
    for kind in KINDS:
        picture = look(encoded(kind) + b"\x00trailer")
        assert picture is not None
        assert picture.whole


def test_a_png_with_a_damaged_chunk_is_not_whole() -> None:
    """By its checksum; damage in a chunk that no decoder needs does not count."""
    data = encoded("PNG", (30, 30), seed=1)
    at = data.index(b"IDAT") + 20
    broken = look(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    assert broken == Picture("image/png", 30, 30)
    text = header_only_png(3, 3, padding=10)
    at = text.index(b"tEXt") + 6
    assert look(text[:at] + b"\x01" + text[at + 1 :]) == Picture("image/png", 3, 3, whole=True)


@pytest.mark.parametrize("kind", KINDS)
@given(cut=st.integers(0, 100))
def test_an_image_cut_anywhere_is_not_whole(kind: str, cut: int) -> None:
    """Whatever share of it there is."""
    data = encoded(kind, (40, 40), seed=2)
    picture = look(data[: len(data) * cut // 101])
    assert picture is None or not picture.whole


@pytest.mark.parametrize(
    "data", [b"", b"<svg/>", b"BM6\x00", b"II*\x00", b"\x00\x00\x00\x18ftypheic", b"%PDF-1.7", b"GIF88a"]
)
def test_anything_else_is_none_of_them(data: bytes) -> None:
    """SVG, BMP, TIFF, HEIC, PDF, nothing."""
    assert look(data) is None


@given(
    head=st.sampled_from(
        [
            DOT[:8],
            DOT[:33],
            b"\xff\xd8\xff",
            b"GIF89a",
            b"RIFF\x10\x00\x00\x00WEBPVP8X",
            b"RIFF\x00\x00\x00\x00WEBPVP8L",
        ]
    ),
    tail=st.binary(max_size=60),
)
def test_no_bytes_raise(head: bytes, tail: bytes) -> None:
    """An image from a sandbox is hostile."""
    picture = look(head + tail)
    assert picture is not None
    assert picture.side >= 0


def test_a_segment_that_is_shorter_than_its_own_length_is_the_end() -> None:
    """Else a reader would stand still."""
    assert look(b"\xff\xd8\xff\xe0\x00\x00" + bytes(40)) == Picture("image/jpeg")


def test_a_size_of_nothing_is_not_whole() -> None:
    """Zero pixels cannot be shown."""
    assert look(header_only_png(0, 5)) == Picture("image/png", 0, 5)
    empty_gif = b"GIF89a" + struct.pack("<HH", 0, 0) + b"\x00\x00\x00;"
    assert look(empty_gif) == Picture("image/gif")
