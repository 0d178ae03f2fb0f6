"""Images for a model: every file of the corpus has its right answer, and no bytes at all do harm."""

from __future__ import annotations

import io
import random
import struct
import subprocess
import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio
import pytest
from PIL import Image

from runenv.errors import ConfigError
from runenv.tools.image_decoding import look, prepare_formats
from runenv.tools.image_pool import Workers
from runenv.tools.image_process import PROGRAM
from runenv.tools.image_wire import Outcome, Task
from runenv.tools.images import DEFAULT_LIMITS, FORMATS, ImageLimits, image_type, prepare
from runenv.types import ImagePart, TextPart
from tests.tools.images import FOLDER, NAMES, encoded, file, seen, words

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from runenv.types import Part

pytestmark = pytest.mark.anyio

PNG, JPEG, WEBP = "image/png", "image/jpeg", "image/webp"
RED, GREEN, BLUE, WHITE, CLEAR = (255, 0, 0), (0, 128, 0), (0, 0, 255), (255, 255, 255), None
CORNERS: Final = (RED, GREEN, BLUE, WHITE)
"""Colours of the picture's quarters: above left and right, below left and right."""
FADED: Final = (RED, GREEN, BLUE, CLEAR)
GREYS: Final = ((76, 76, 76), (75, 75, 75), (29, 29, 29), WHITE)  # of ITU-R 601, as for PNG and JPEG
RAMP: Final = ((65, 65, 65), (196, 196, 196)) * 2
"""A quarter and three quarters of the way from black to white."""
COLOUR_TOLERANCE: Final = 12
"""Of 255; what a JPEG of good quality may change in a flat colour."""


@dataclass(frozen=True)
class Shown:
    """A file that is shown."""

    media_type: str
    quarters: tuple[tuple[int, int, int] | None, ...] | None = CORNERS
    size: tuple[int, int] = (40, 20)
    note: str = ""
    """What the note says; empty: there is none."""
    untouched: bool = False


@dataclass(frozen=True)
class Told:
    """A file that is not shown, and what its answer says."""

    says: str


CONVERTED: Final = "converted from {} to PNG"
UPRIGHT: Final = "turned upright"
TURNED: Final = Shown(JPEG, note=UPRIGHT)
FIRST_OF_THREE: Final = "first frame of 3"
TOO_MANY: Final = "more than the 50,000,000 pixels"

ANSWERS: Final[dict[str, Shown | Told]] = {
    "plain.png": Shown(PNG, untouched=True),
    "grey.png": Shown(PNG, GREYS, untouched=True),
    "one-bit.png": Shown(PNG, None),
    "alpha.png": Shown(PNG, FADED, untouched=True),
    "grey-alpha.png": Shown(PNG, (*GREYS[:3], CLEAR)),
    "palette.png": Shown(PNG),
    "palette-clear.png": Shown(PNG, FADED),
    "rgb-clear.png": Shown(PNG, FADED),
    "bits16.png": Shown(PNG, RAMP),
    "bits16-rgb.png": Shown(PNG, ((255, 128, 0),) * 4),
    "metadata.png": Shown(PNG),
    "turned.png": Shown(PNG, note=UPRIGHT),
    "swapped-profile.png": Shown(PNG, ((0, 255, 0), (128, 0, 0), BLUE, WHITE)),
    "animated.png": Shown(PNG, note=FIRST_OF_THREE),
    "wide.png": Shown(PNG, (WHITE,) * 4, (2000, 160), "scaled from 10,000 x 800 to 2,000 x 160 pixels"),
    "wider.png": Shown(PNG, (RED,) * 4, (2000, 298), "scaled from 2,162 x 322 to 2,000 x 298 pixels"),
    "tall.png": Shown(PNG, (RED,) * 4, (1, 2000), "scaled from 1 x 20,000 to 1 x 2,000 pixels"),
    "orientation-1.jpg": Shown(JPEG),
    **{f"orientation-{number}.jpg": TURNED for number in range(2, 9)},
    "plain.jpg": Shown(JPEG, untouched=True),
    "grey.jpg": Shown(JPEG, GREYS, untouched=True),
    "progressive.jpg": Shown(JPEG, untouched=True),
    "cmyk.jpg": Shown(JPEG, note="CMYK colours made RGB"),
    "place.jpg": Shown(JPEG),
    "plain.webp": Shown(WEBP, untouched=True),
    "lossless.webp": Shown(WEBP, FADED, untouched=True),
    "turned.webp": Shown(PNG, note=UPRIGHT),
    "place.webp": Shown(WEBP),
    "animated.webp": Shown(PNG, note="first frame of 2"),
    "still.gif": Shown(PNG, note=CONVERTED.format("GIF")),
    "clear.gif": Shown(PNG, FADED, note=CONVERTED.format("GIF")),
    "animated.gif": Shown(PNG, note=FIRST_OF_THREE),
    "plain.tiff": Shown(PNG, note=CONVERTED.format("TIFF")),
    "packed.tiff": Shown(PNG, note=CONVERTED.format("TIFF")),
    "pages.tiff": Shown(PNG, note="first page of 2"),
    "turned.tiff": Shown(PNG, note=CONVERTED.format("TIFF")),
    "bits16.tiff": Shown(PNG, RAMP, note="lowest value black"),
    "float.tiff": Shown(PNG, RAMP, note="lowest value black"),
    "cmyk.tiff": Shown(PNG, note="CMYK colours made RGB"),
    "lab.tiff": Shown(PNG, ((119, 119, 119),) * 4, note=CONVERTED.format("TIFF")),  # CIE L* 50 is sRGB 119
    "plain.bmp": Shown(PNG, note=CONVERTED.format("BMP")),
    "plain.ico": Shown(PNG, size=(32, 32), note="icon (ICO) to PNG"),
    "plain.ppm": Shown(PNG, note="Netpbm"),
    "letters.ppm": Shown(PNG, (RED, BLUE, RED, BLUE), (2, 1), "Netpbm"),
    "plain.avif": Shown(JPEG, note="converted from AVIF to JPEG"),
    "really-png.jpg": Shown(PNG, note="is a PNG image, shown as it is. Its name says JPEG.", untouched=True),
    "really-jpeg.png": Shown(JPEG, None, note="is a JPEG image, shown as it is. Its name says PNG.", untouched=True),
    "really-gif.webp": Shown(PNG, note="converted from GIF to PNG. Its name says WebP."),
    "bomb-frames.gif": Shown(PNG, None, note="first frame of more than 1,000"),
    "drawing.svg": Told("is an SVG drawing, which is text"),
    "comment.svg": Told("is an SVG drawing, which is text"),
    "entity.svg": Told("is an SVG drawing, which is text"),
    "really-svg.png": Told("Its name says PNG."),
    "really-html.jpg": Told("no image but text (text/html), whatever its name says: read it as text"),
    "really-json.png": Told("no image but text"),
    "really-settings.png": Told("no image but text"),
    "really-pdf.png": Told(
        "no image but application/pdf, whatever its name says: look at it with a program in the sandbox"
    ),
    "unknown.png": Told("it begins with the bytes 80 81 82"),
    "empty.png": Told("is empty (0 bytes)"),
    "head-only.heic": Told("HEIC cannot be decoded here (no decoder for it is installed); convert it to PNG"),
    "damaged.heic": Told("HEIC cannot be decoded here"),
    "cut.png": Told("damaged: it ends after 66 bytes"),
    "signature.png": Told("a PNG image of 8 bytes"),
    "no-end.png": Told("before its last chunk"),
    "random-body.png": Told("checksum of its chunk 'IDAT'"),
    "wrong-checksum.png": Told("checksum of its chunk 'IDAT'"),
    "cut.jpg": Told("damaged: it ends after"),
    "no-end.jpg": Told("before its end marker"),
    "head-only.jpg": Told("it has no pixels"),
    "cut.webp": Told("damaged: it ends after"),
    "cut.gif": Told("damaged: image file is truncated"),
    "zero.png": Told("it has no pixels at all"),
    "bomb-pixels.png": Told("60,000 x 60,000 pixels. It is not shown, because it has " + TOO_MANY),
    "bomb-text.png": Told("damaged"),
    "bomb-screen.gif": Told(TOO_MANY),
    "bomb.jpg": Told(TOO_MANY),
    "bomb.webp": Told(TOO_MANY),
    "bomb.ico": Told(TOO_MANY),
    "bomb.tiff": Told(TOO_MANY),
    "bomb.bmp": Told(TOO_MANY),
    "bomb.ppm": Told(TOO_MANY),
}


@pytest.fixture(scope="module")
async def workers(anyio_backend: str) -> AsyncIterator[Workers]:  # noqa: ARG001 - the scope of the loop
    """Workers for the tests of this file."""
    made = Workers()
    yield made
    await made.aclose()


@pytest.fixture
def decoders() -> Iterator[None]:
    """Pillow in this process, as a worker has it, and as it was afterwards."""
    before = Image.MAX_IMAGE_PIXELS
    prepare_formats()
    with warnings.catch_warnings():
        yield
    Image.MAX_IMAGE_PIXELS = before


def task(format: str, data: bytes, limits: ImageLimits = DEFAULT_LIMITS) -> Task:
    """The question that is asked for a file."""
    return Task(
        format,
        limits.passing,
        limits.max_side,
        limits.max_bytes,
        limits.max_pixels,
        limits.max_memory_bytes,
        limits.timeout,
        len(data),
    )


def quarters(image: Image.Image) -> Iterator[tuple[int, int, int] | None]:
    """The colours in the middle of the four quarters; None where the picture is transparent."""
    colours = image.convert("RGBA")
    for y in (image.height // 4, image.height * 3 // 4):
        for x in (image.width // 4, image.width * 3 // 4):
            pixel = colours.getpixel((x, y))
            assert isinstance(pixel, tuple)
            yield (pixel[0], pixel[1], pixel[2]) if pixel[3] else None


def alike(one: tuple[int, int, int] | None, other: tuple[int, int, int] | None) -> bool:
    """Say whether two colours look the same."""
    if one is None or other is None:
        return one is other
    return all(abs(a - b) <= COLOUR_TOLERANCE for a, b in zip(one, other, strict=True))


def test_every_file_has_an_answer() -> None:
    """And every answer a file."""
    assert sorted(NAMES) == sorted(ANSWERS)


@pytest.mark.parametrize("name", NAMES)
async def test_C054_C056_C057_C059_C060_C062_T3_W3_a_file_gives_its_right_answer(name: str, workers: Workers) -> None:
    """An image that a vendor takes with the right picture and note, or words that say what it is and what to do."""
    data, answer = file(name), ANSWERS[name]
    parts = await prepare(data, name=name, workers=workers)
    image = seen(parts)
    if isinstance(answer, Told):
        assert image is None
        assert answer.says in words(parts)
        assert repr(name) in words(parts)
        return
    assert image is not None, words(parts)
    last = parts[-1]
    assert isinstance(last, ImagePart)
    assert (last.media_type, image.size) == (answer.media_type, answer.size)
    assert answer.note in words(parts)
    assert bool(answer.note) == bool(words(parts))
    assert (last.data == data) is answer.untouched
    if answer.quarters:
        found = tuple(quarters(image))
        assert all(map(alike, found, answer.quarters)), f"{found} is not {answer.quarters}"


@pytest.mark.parametrize("name", ["metadata.png", "place.jpg", "place.webp", "orientation-6.jpg", "turned.png"])
async def test_what_is_no_picture_is_left_out(name: str, workers: Workers) -> None:
    """Place, serial number, author, and what stands behind the end."""
    before, last = file(name), (await prepare(file(name), name=name, workers=workers))[-1]
    assert isinstance(last, ImagePart)
    assert b"Exif" in before or b"eXIf" in before or b"EXIF" in before
    for secret in (b"SERIAL", b"someone", b"hidden", b"Exif", b"eXIf", b"EXIF"):
        assert secret not in last.data


SMALL: Final = [name for name in NAMES if isinstance(ANSWERS[name], Shown) and len(file(name)) < 1500]


@pytest.mark.parametrize("name", [name for name in SMALL if name != "letters.ppm"])  # a number that is cut is a number
def test_C056_every_prefix_is_an_image_or_words(name: str, decoders: None) -> None:  # noqa: ARG001
    """Wherever a file is cut: never a part of a picture, never an error."""
    data = file(name).removesuffix(b"hidden behind the end")
    decoder = FORMATS[image_type(data[:4096]) or ""]
    full = look(data, task(decoder, data))[1]
    for length in range(len(data)):
        facts, image = look(data[:length], task(decoder, data[:length]))
        if facts.outcome is Outcome.SHOWN:
            assert decoder in {"GIF", "ICO"}, f"{length} of {len(data)} bytes"  # made anew: only the end may be missing
            assert Image.open(io.BytesIO(image)).convert("RGBA") == Image.open(io.BytesIO(full)).convert("RGBA")
        else:
            assert facts.outcome in {Outcome.DAMAGED, Outcome.TOO_MANY_PIXELS}
            assert not image


@pytest.mark.parametrize("name", ["plain.png", "place.jpg", "lossless.webp", "animated.gif", "plain.tiff", "plain.ico"])
async def test_a_cut_file_is_answered(name: str, workers: Workers) -> None:
    """Through the worker, whatever is left of it."""
    data = file(name)
    for length in range(0, len(data), max(1, len(data) // 16)):
        seen(await prepare(data[:length], name=name, workers=workers))


@pytest.mark.parametrize("seed", range(10))
async def test_changed_bytes_do_no_harm(seed: int, workers: Workers) -> None:
    """Hundreds of files of which some bytes are changed, left out or repeated: an image or words, and no error."""
    chance = random.Random(seed)

    async def one(name: str, data: bytes) -> None:
        seen(await prepare(data, name=name, workers=workers))

    with anyio.fail_after(100):
        async with anyio.create_task_group() as group:
            for name in chance.sample(NAMES, 40):
                group.start_soon(one, name, changed(bytearray(file(name)), chance))


def changed(data: bytearray, chance: random.Random) -> bytes:
    """Some accidents."""
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(4):
            case 0:
                data[at : at + 1] = chance.randbytes(1)
            case 1:
                data[at : at + 4] = chance.choice((b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff", b"\0\0\0\1"))
            case 2:
                del data[at : at + chance.randint(1, 30)]
            case _:
                data[at:at] = data[at : at + chance.randint(1, 30)]
    return bytes(data)


async def test_C058_an_image_of_too_many_bytes_is_made_to_fit(workers: Workers) -> None:
    """Noise of 1,900 x 1,900 pixels, which no PNG makes small: a JPEG."""
    noise = Image.frombytes("RGB", (1900, 1900), random.Random(1).randbytes(1900 * 1900 * 3))
    data = encoded(noise, "PNG", compress_level=1)
    assert len(data) > 10_000_000
    parts = await prepare(data, name="noise.png", workers=workers)
    image = seen(parts)
    assert image is not None
    assert image.size == (1900, 1900)
    assert "converted from PNG to JPEG, with quality" in words(parts)


async def test_C058_what_no_quality_makes_fit_gets_fewer_pixels(workers: Workers) -> None:
    """And what is transparent becomes white."""
    noise = Image.frombytes("RGB", (300, 300), random.Random(2).randbytes(300 * 300 * 3)).convert("RGBA")
    noise.paste((0, 0, 0, 0), (0, 0, 150, 150))
    limits = ImageLimits(max_bytes=3000)
    parts = await prepare(encoded(noise, "PNG"), name="noise.png", limits=limits, workers=workers)
    image = seen(parts, limits)
    assert image is not None
    assert next(quarters(image)) == WHITE
    assert "scaled from 300 x 300" in words(parts)
    assert "transparency made white" in words(parts)


async def test_C058_what_cannot_be_made_to_fit_is_told(workers: Workers) -> None:
    """No broken image, however few bytes are allowed."""
    parts = await prepare(file("plain.png"), name="plain.png", limits=ImageLimits(max_bytes=50), workers=workers)
    assert seen(parts) is None
    assert "cannot be made to fit 50 bytes" in words(parts)


@pytest.mark.parametrize(("size", "shown"), [((3000, 10), (300, 1)), ((10, 3000), (1, 300)), ((400, 600), (200, 300))])
async def test_C057_both_sides_are_scaled(size: tuple[int, int], shown: tuple[int, int], workers: Workers) -> None:
    """Tall ones too, and never to nothing."""
    limits = ImageLimits(max_side=300)
    for encoder in ("PNG", "JPEG", "WEBP"):
        data = encoded(Image.new("RGB", size, "red"), encoder)
        image = seen(await prepare(data, name="a", limits=limits, workers=workers), limits)
        assert image is not None
        assert image.size == shown


@pytest.mark.parametrize("orientation", range(1, 9))
async def test_C062_a_large_photograph_is_upright(orientation: int, workers: Workers) -> None:
    """Turned once, though it is scaled as well; its size is told as people see it."""
    limits = ImageLimits(max_side=20)
    name = f"orientation-{orientation}.jpg"
    parts = await prepare(file(name), name=name, limits=limits, workers=workers)
    image = seen(parts, limits)
    assert image is not None
    assert image.size == (20, 10)
    assert "scaled from 40 x 20 to 20 x 10 pixels" in words(parts)
    red, green, blue, white = quarters(image)
    assert (red and red[0] > 200, green and green[0] < 60, blue and blue[2] > 200, white and min(white) > 200) == (
        True,
    ) * 4


async def test_a_photograph_of_many_pixels_is_decoded_small(workers: Workers) -> None:
    """A JPEG of 80 million pixels is shown, and nothing that large is ever held."""
    data = encoded(Image.new("L", (10_000, 8_000), 200), "JPEG", quality=50)
    parts = await prepare(data, name="large.jpg", workers=workers)
    image = seen(parts)
    assert image is not None
    assert "scaled from 10,000 x 8,000 to 2,000 x 1,600 pixels" in words(parts)


async def test_a_file_of_too_many_bytes_is_not_looked_at() -> None:
    """Its type and size are told, and no worker is started."""
    never = Workers(program="raise SystemExit(9)")
    data = file("plain.png") + bytes(1000)
    parts = await prepare(data, name="a.jpg", limits=ImageLimits(max_input_bytes=1000), workers=never)
    assert f"a PNG image of {len(data):,} bytes, more than the 1,000" in words(parts)
    assert "Its name says JPEG." in words(parts)


async def test_a_type_may_be_kept_from_passing(workers: Workers) -> None:
    """For a vendor that does not take it: made anew."""
    limits = ImageLimits(passing=frozenset({PNG}))
    parts = await prepare(file("lossless.webp"), name="a.webp", limits=limits, workers=workers)
    assert isinstance(parts[-1], ImagePart)
    assert parts[-1].media_type == PNG


async def test_a_page_count_without_end_is_bounded(workers: Workers) -> None:
    """A TIFF of 1,500 pages: the first is shown, "more than 1,000" are told of."""
    values = {256: 1, 257: 1, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: 1, 279: 1}
    page = struct.pack("<H", len(values)) + b"".join(
        struct.pack("<HHII", tag, 4, 1, value) for tag, value in values.items()
    )
    data = b"II*\0" + struct.pack("<I", 10) + b"\x80\0"
    for number in range(1500):
        data += page + struct.pack("<I", 10 + (number + 1) * (len(page) + 4))
    assert "first page of more than 1,000" in words(await prepare(data, name="a.tiff", workers=workers))


async def test_strange_names_are_told_in_one_line(workers: Workers) -> None:
    """Line ends, terminal codes and endless names stay out of the words."""
    name = "a\nb\x1b[31m\udcff" + "x" * 10_000 + ".jpg"
    for data in (file("plain.png"), file("cut.png"), b"", b"\x80" * 40):
        text = words(await prepare(data, name=name, workers=workers))
        assert text.isprintable()
        assert len(text) < 600


@pytest.mark.parametrize("name", NAMES)
def test_an_image_is_known_by_its_first_bytes(name: str) -> None:
    """What `prepare` tries to show, and nothing else."""
    kind = image_type(file(name)[:4096])
    assert kind is None or kind in FORMATS
    assert kind is not None or isinstance(ANSWERS[name], Told)


@pytest.mark.parametrize("text", [b"P1 is a name\n", b"P6", b"P3 of 12 pages\n", b"P7 10 10 255\n"])
def test_a_text_that_begins_like_netpbm_is_a_text(text: bytes) -> None:
    """Its first word alone is no evidence."""
    assert image_type(text) is None


async def test_heic_is_shown_where_its_decoder_is_installed() -> None:
    """By the opener that the plugin registers; here one that takes a PNG for it."""
    plugin = """
import io, sys, types
def register():
    from PIL import Image
    def opener(stream, name):
        image = Image.open(io.BytesIO(stream.read()[24:]), formats=("PNG",))
        image.format = "HEIF"
        return image
    Image.register_open("HEIF", opener, lambda head: head[8:12] == b"heic")
module = sys.modules["pillow_heif"] = types.ModuleType("pillow_heif")
module.register_heif_opener = register
"""
    workers = Workers(program=plugin + PROGRAM)
    head = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"
    parts = await prepare(head + file("plain.png"), name="photo.heic", workers=workers)
    await workers.aclose()
    assert seen(parts) is not None
    assert "converted from HEIC to JPEG" in words(parts)


@pytest.mark.parametrize("data", [b"\0\1\2\3", b"%PDF-1.7\n", b"\x89PNG\r\n\x1a\n damaged"])
async def test_words_name_no_tool_that_the_model_has_not(data: bytes, workers: Workers) -> None:
    """T1: a hint that cannot be followed costs a turn."""
    assert "artifact_save" in words(await prepare(data, name="a.png", workers=workers))
    said = words(await prepare(data, name="a.png", workers=workers, can_save=False))
    assert "artifact_save" not in said
    assert said


@pytest.mark.parametrize("bad", [{"max_side": 0}, {"timeout": -1.0}, {"max_side": 1 << 31}, {"passing": {"image/bmp"}}])
def test_limits_that_make_no_sense_are_refused(bad: dict[str, object]) -> None:
    """When they are made, not when an image comes."""
    with pytest.raises(ConfigError):
        ImageLimits(**bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("statement", ["import runenv", "import runenv.tools.images"])
def test_importing_loads_no_decoder(statement: str) -> None:
    """Pillow is loaded by the worker alone."""
    program = f"import sys; {statement}; print('PIL' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_script_makes_the_files(tmp_path: object) -> None:
    """All of them, and no others."""
    script = FOLDER.parent.parent.parent / "scripts" / "make_images.py"
    subprocess.run([sys.executable, script, str(tmp_path)], check=True)
    assert sorted(path.name for path in type(FOLDER)(str(tmp_path)).iterdir()) == sorted(NAMES)


def parts_of(parts: tuple[Part, ...]) -> list[type]:
    """The kinds of parts."""
    return [type(part) for part in parts]


async def test_an_image_as_it_is_comes_without_words(workers: Workers) -> None:
    """And with them in front of it where something was changed."""
    assert parts_of(await prepare(file("plain.png"), name="plain.png", workers=workers)) == [ImagePart]
    assert parts_of(await prepare(file("still.gif"), name="still.gif", workers=workers)) == [TextPart, ImagePart]
