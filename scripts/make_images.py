"""Make the image files of `tests/data/images`: small, each with one peculiarity. What is right for each is in the test.

    python scripts/make_images.py [folder]

Written by Pillow, or byte by byte where no program writes such a file. The bytes differ between versions of Pillow and
its libraries; what the tests expect of them does not.
"""

from __future__ import annotations

import io
import struct
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from PIL import Image, ImageCms, PngImagePlugin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FOLDER: Final = Path(__file__).parent.parent / "tests" / "data" / "images"
SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
GPS_TAG, ORIENTATION_TAG, SERIAL_TAG = 0x8825, 0x0112, 0xA431
STORED: Final[dict[int, Image.Transpose | None]] = {  # how a picture lies in the file that a viewer has to make upright
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}
FRAMES_IN_BOMB: Final = 5000


def picture(width: int = 40, height: int = 20) -> Image.Image:
    """Red and green above, blue and white below."""
    made = Image.new("RGB", (width, height), "white")
    half, middle = width // 2, height // 2
    made.paste("red", (0, 0, half, middle))
    made.paste((0, 128, 0), (half, 0, width, middle))
    made.paste("blue", (0, middle, half, height))
    return made


def faded() -> Image.Image:
    """The same, its lower right quarter transparent."""
    made = picture().convert("RGBA")
    made.paste((255, 255, 255, 0), (20, 10, 40, 20))
    return made


def ramp(mode: str, low: float, high: float) -> Image.Image:
    """Grey from left to right, from one value to another."""
    made = Image.new(mode, (40, 20))
    for x in range(40):
        value = low + (high - low) * x / 39
        for y in range(20):
            made.putpixel((x, y), value if mode == "F" else round(value))
    return made


def saved(image: Image.Image, format: str, **options: object) -> bytes:
    """Encode."""
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


def chunk(kind: bytes, body: bytes) -> bytes:
    """One chunk of a PNG."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, body: bytes, *, bits: int = 8, color: int = 2, before: bytes = b"") -> bytes:
    """Make a PNG of which every number is chosen."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0))
    return SIGNATURE + header + before + chunk(b"IDAT", zlib.compress(body, 9)) + chunk(b"IEND", b"")


def exif(orientation: int = 1, *, place: bool = False) -> bytes:
    """Metadata as a camera writes them."""
    made = Image.Exif()
    made[ORIENTATION_TAG] = orientation
    if place:
        made[SERIAL_TAG] = "SERIAL-4711"
        made.get_ifd(GPS_TAG).update({1: "N", 2: (52.0, 31.0, 12.0), 3: "E", 4: (13.0, 24.0, 18.0)})
    return made.tobytes()


def swapped_profile() -> bytes:
    """Make a profile in which what is red elsewhere is green."""
    data = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    places = {}
    for at in range(132, 132 + 12 * struct.unpack_from(">I", data, 128)[0], 12):
        places[bytes(data[at : at + 4])] = at
    red, green = places[b"rXYZ"] + 4, places[b"gXYZ"] + 4
    data[red : red + 8], data[green : green + 8] = data[green : green + 8], data[red : red + 8]
    return bytes(data).replace("sRGB".encode("utf-16-be"), "Swap".encode("utf-16-be"))


def box(kind: bytes, body: bytes) -> bytes:
    """One box of an ISO media file."""
    return struct.pack(">I", 8 + len(body)) + kind + body


def riff(body: bytes) -> bytes:
    """Make a WebP of its chunks."""
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WEBP" + body


def many_frames(count: int) -> bytes:
    """Make a GIF of many frames, each of one pixel."""
    screen = b"GIF89a" + struct.pack("<HHBBB", 40, 20, 0x80, 0, 0) + b"\xff\x00\x00\x00\x00\xff"
    frame = b"," + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02\x44\x01\x00"
    return screen + frame * count + b";"


def tiff(width: int, height: int, body: bytes) -> bytes:
    """Make a TIFF, grey, of which every number is chosen."""
    entries = ((256, width), (257, height), (258, 8), (259, 1), (262, 1), (273, 8), (277, 1), (278, height))
    table = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in (*entries, (279, len(body))))
    return b"II*\0" + struct.pack("<I", 8 + len(body)) + body + struct.pack("<H", 9) + table + bytes(4)


def icon(width: int, height: int, body: bytes) -> bytes:
    """Make an icon of one picture."""
    return struct.pack("<HHHBBBBHHII", 0, 1, 1, width, height, 0, 0, 1, 32, len(body), 22) + body


def pngs() -> Iterator[tuple[str, bytes]]:
    """PNG, as every kind of pixel."""
    plain = picture()
    palette = plain.quantize(8)
    clear = palette.copy()
    clear.info["transparency"] = palette.getpixel((39, 19))
    text = PngImagePlugin.PngInfo()
    text.add_text("Author", "someone at home")
    moving = [plain, plain.transpose(Image.Transpose.ROTATE_180), plain]
    deep = b"".join(b"\0" + struct.pack(">3H", 65535, 32896, 0) * 40 for _ in range(20))
    yield "plain.png", saved(plain, "PNG")
    yield "grey.png", saved(plain.convert("L"), "PNG")
    yield "one-bit.png", saved(plain.convert("1"), "PNG")
    yield "alpha.png", saved(faded(), "PNG")
    yield "grey-alpha.png", saved(faded().convert("LA"), "PNG")
    yield "palette.png", saved(palette, "PNG")
    yield "palette-clear.png", saved(clear, "PNG", transparency=clear.info["transparency"])
    yield "rgb-clear.png", saved(plain, "PNG", transparency=(255, 255, 255))
    yield "bits16.png", saved(ramp("I;16", 0, 65535), "PNG")
    yield "bits16-rgb.png", png(40, 20, deep, bits=16)
    yield "metadata.png", saved(plain, "PNG", exif=exif(place=True), pnginfo=text) + b"hidden behind the end"
    yield "turned.png", saved(plain.transpose(Image.Transpose.ROTATE_90), "PNG", exif=exif(6))
    yield "swapped-profile.png", saved(plain, "PNG", icc_profile=swapped_profile())
    yield "animated.png", saved(plain, "PNG", save_all=True, append_images=moving[1:])
    yield "wide.png", saved(Image.new("1", (10_000, 800), 1), "PNG", optimize=True)
    yield "wider.png", saved(Image.new("RGB", (2162, 322), "red"), "PNG", optimize=True)
    yield "tall.png", saved(Image.new("RGB", (1, 20_000), "red"), "PNG", optimize=True)


def photographs() -> Iterator[tuple[str, bytes]]:
    """JPEG and WebP."""
    plain = picture()
    exact = {"quality": 95, "subsampling": 0}
    for orientation, stored in STORED.items():
        turned = plain if stored is None else plain.transpose(stored)
        yield f"orientation-{orientation}.jpg", saved(turned, "JPEG", exif=exif(orientation), **exact)
    yield "plain.jpg", saved(plain, "JPEG", **exact)
    yield "grey.jpg", saved(plain.convert("L"), "JPEG", **exact)
    yield "progressive.jpg", saved(plain, "JPEG", progressive=True, **exact)
    yield "cmyk.jpg", saved(plain.convert("CMYK"), "JPEG", quality=95)
    yield "place.jpg", saved(plain, "JPEG", exif=exif(place=True), comment=b"someone at home", **exact)
    yield "plain.webp", saved(plain, "WEBP", quality=95)
    yield "lossless.webp", saved(faded(), "WEBP", lossless=True)
    yield "turned.webp", saved(plain.transpose(Image.Transpose.ROTATE_90), "WEBP", lossless=True, exif=exif(6))
    yield "place.webp", saved(plain, "WEBP", lossless=True, exif=exif(place=True))
    others = [plain.transpose(Image.Transpose.ROTATE_180)]
    yield "animated.webp", saved(plain, "WEBP", lossless=True, save_all=True, append_images=others)


def others() -> Iterator[tuple[str, bytes]]:
    """Formats that are converted."""
    plain = picture()
    turned = plain.transpose(Image.Transpose.ROTATE_180)
    yield "still.gif", saved(plain, "GIF")
    yield "clear.gif", saved(faded(), "GIF")
    yield "animated.gif", saved(plain, "GIF", save_all=True, append_images=[turned, plain])
    yield "plain.tiff", saved(plain, "TIFF")
    yield "packed.tiff", saved(plain, "TIFF", compression="tiff_lzw")
    yield "pages.tiff", saved(plain, "TIFF", save_all=True, append_images=[turned])
    yield "turned.tiff", saved(plain.transpose(Image.Transpose.ROTATE_90), "TIFF", exif=exif(6))
    yield "bits16.tiff", saved(ramp("I;16", 1000, 4000), "TIFF")
    yield "float.tiff", saved(ramp("F", -1.5, 2.5), "TIFF")
    yield "cmyk.tiff", saved(plain.convert("CMYK"), "TIFF")
    yield "lab.tiff", saved(Image.new("LAB", (40, 20), (128, 128, 128)), "TIFF")
    yield "plain.bmp", saved(plain, "BMP")
    yield "plain.ico", saved(plain.resize((32, 32)), "ICO", sizes=[(32, 32)])
    yield "plain.ppm", saved(plain, "PPM")
    yield "letters.ppm", b"P3\n# by hand\n2 1\n255\n255 0 0  0 0 255\n"
    yield "plain.avif", saved(plain, "AVIF", quality=95, subsampling="4:4:4")


def strangers() -> Iterator[tuple[str, bytes]]:
    """What is not what its name says, and what is no image to be decoded."""
    plain = saved(picture(), "PNG")
    svg = b'<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20"><circle r="9" fill="red"/></svg>'
    entity = b'<?xml version="1.0"?><!DOCTYPE svg [<!ENTITY x SYSTEM "file:///etc/hostname">]><svg>&x;</svg>\n'
    compatible = b"heic" + bytes(4) + b"mif1heic"
    yield "drawing.svg", svg + b"\n"
    yield "comment.svg", b"\xef\xbb\xbf<!-- made by hand -->\n" + svg + b"\n"
    yield "entity.svg", entity
    yield "really-png.jpg", plain
    yield "really-jpeg.png", saved(picture(), "JPEG", quality=95)
    yield "really-gif.webp", saved(picture(), "GIF")
    yield "really-svg.png", svg + b"\n"
    yield "really-html.jpg", b"<!DOCTYPE html><html><body>404 Not Found</body></html>\n"
    yield "really-json.png", b'{"error": "not found"}\n'
    yield "really-settings.png", b"[settings]\ncolor = red\n"
    yield "really-pdf.png", b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n"
    yield "unknown.png", bytes(range(128, 256)) + bytes(64)
    yield (
        "head-only.heic",
        box(b"ftyp", compatible) + box(b"meta", bytes(4) + box(b"hdlr", bytes(8) + b"pict" + bytes(13))),
    )
    yield "damaged.heic", box(b"ftyp", compatible) + bytes(200)
    yield "empty.png", b""


def damaged() -> Iterator[tuple[str, bytes]]:
    """What was whole once, or claims to be."""
    plain = saved(picture(), "PNG")
    jpeg = saved(picture(), "JPEG", quality=95)
    start = plain.index(b"IDAT") + 4
    yield "cut.png", plain[: len(plain) * 6 // 10]
    yield "signature.png", plain[:8]
    yield "no-end.png", plain[:-12]
    yield "random-body.png", plain[:start] + bytes(value * 7 % 256 for value in range(len(plain) - start))
    yield "wrong-checksum.png", plain[: start + 9] + bytes((plain[start + 9] ^ 1,)) + plain[start + 10 :]
    yield "cut.jpg", jpeg[: len(jpeg) * 6 // 10]
    yield "no-end.jpg", jpeg[:-2]
    yield "head-only.jpg", jpeg[: jpeg.index(b"\xff\xda")] + b"\xff\xd9"
    yield "cut.webp", saved(picture(), "WEBP")[:-20]
    yield "cut.gif", saved(picture(), "GIF")[:-40]


def bombs() -> Iterator[tuple[str, bytes]]:
    """Small files that would take much."""
    text = chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(8_000_000), 9))
    huge = png(60_000, 60_000, bytes(1000))
    jpeg = bytearray(saved(picture(), "JPEG", quality=50))
    size_at = jpeg.index(b"\xff\xc0") + 5
    jpeg[size_at : size_at + 4] = struct.pack(">HH", 65_500, 65_500)
    canvas = b"VP8X" + struct.pack("<IB3x", 10, 0) + (16_382).to_bytes(3, "little") * 2
    bitmap = struct.pack("<2sIIIIiiHHIIiiII", b"BM", 154, 0, 54, 40, 60_000, 60_000, 1, 24, 0, 0, 0, 0, 0, 0)
    yield "zero.png", png(0, 0, b"")
    yield "bomb-pixels.png", huge
    yield "bomb-text.png", png(40, 20, b"".join(b"\0" + bytes(120) for _ in range(20)), before=text)
    yield "bomb-frames.gif", many_frames(FRAMES_IN_BOMB)
    yield "bomb-screen.gif", b"GIF89a" + struct.pack("<HHBBB", 65_535, 65_535, 0x80, 0, 0) + many_frames(1)[13:]
    yield "bomb.jpg", bytes(jpeg)
    yield "bomb.webp", riff(canvas + saved(picture(), "WEBP", lossless=True)[12:])
    yield "bomb.ico", icon(16, 16, huge)
    yield "bomb.tiff", tiff(100_000, 100_000, bytes(100))
    yield "bomb.bmp", bitmap + bytes(100)
    yield "bomb.ppm", b"P6 60000 60000 255\n" + bytes(100)


MAKERS: Final[tuple[Callable[[], Iterator[tuple[str, bytes]]], ...]] = (
    pngs,
    photographs,
    others,
    strangers,
    damaged,
    bombs,
)


def main() -> None:
    """Write all of them."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for maker in MAKERS:
        for name, data in maker():
            (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
