"""An image file in, an image that every vendor takes out: the only module that imports Pillow. Runs in the worker.

What comes out is upright, the first frame, grey or RGB(A) with 8 bits, in sRGB, within the pixels and the bytes asked
for: an original that is all of that already, without its metadata, or a PNG or JPEG made anew.

Decisions, 2026-11-28. Originals pass only fully decoded and stripped of metadata (place, serial numbers, thumbnails,
what stands behind the end), without loss; a palette, 16 bits, rare codes or an ICC profile other than sRGB mean a new
file, and so does every GIF: one format less on the wires, and its colours are a palette anyway. Profiles are applied
and dropped, because vendors ignore them. PNGs of 16 bits are scaled by their format's range, TIFFs of 16 or 32 by the
values that they hold, since measuring instruments use a part of the range. Transparency stays, except in a JPEG, where
it becomes white. Of an extended PNG the picture is what decoders without animation show.
"""

from __future__ import annotations

import io
import math
import struct
import warnings
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from PIL import Image, ImageCms, ImageFile, UnidentifiedImageError

from runenv.tools.image_structure import MAX_FRAMES, DamageError, gif_frames, webp_size, whole
from runenv.tools.image_wire import Facts, Flag, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runenv.tools.image_structure import Whole
    from runenv.tools.image_wire import Task

__all__ = ("look", "prepare_formats")

FAULTS: Final = (
    ArithmeticError,
    AttributeError,
    EOFError,
    ImageCms.PyCMSError,
    LookupError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    Warning,
    struct.error,
    zlib.error,
)
"""What Pillow raises for files that are not as they should be."""
QUALITIES: Final = (90, 80, 70, 55, 40)
"""Of a JPEG, until it fits; below, fewer pixels show more."""
SHRINK: Final = 0.75
"""Of each side, when no quality fits."""
MIN_SIDE: Final = 32
"""Pixels of the longer side below which an image is not made smaller to save bytes."""
ORIENTATION_TAG: Final = 0x0112
"""Of EXIF: how the camera was held."""
TURNS: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""How to make the picture of each orientation upright."""
PHOTOGRAPHS: Final = frozenset({"AVIF", "HEIF", "JPEG", "WEBP"})
"""Formats with losses: made anew as JPEG, where the picture has no transparency."""
_GREY_TABLE: Final = tuple(value * 255 // 65535 for value in range(65536))


def prepare_formats() -> None:
    """Load the decoders, so that every forked child has them."""
    Image.preinit()
    for name in ("Avif", "Bmp", "Gif", "Ico", "Jpeg", "Mpo", "Png", "Ppm", "Tiff", "WebP"):
        try:
            module = __import__(f"PIL.{name}ImagePlugin", fromlist=["*"])
        except ImportError:  # an older Pillow, or one without that library
            continue
        if name == "Avif":
            vars(module)["DEFAULT_MAX_THREADS"] = 1  # each thread takes address space for its stack
    try:
        import pillow_heif  # type: ignore[import-not-found,unused-ignore]  # pyright: ignore[reportMissingImports]
    except ImportError:
        return
    pillow_heif.register_heif_opener()


def look(data: bytes, task: Task) -> tuple[Facts, bytes]:
    """Check, decode, turn, scale and encode an image.

    Args:
        data: the file.
        task: its format and the limits.

    Returns:
        What was found and done, and the bytes of the result; empty when there is none.
    """
    if task.format not in Image.OPEN:
        return Facts(Outcome.UNSUPPORTED, detail="no decoder for it is installed"), b""
    warnings.simplefilter("ignore")
    warnings.simplefilter("error", Image.DecompressionBombWarning)
    try:
        return _look(data, task)
    except MemoryError:
        return Facts(Outcome.OUT_OF_MEMORY), b""
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        return Facts(Outcome.TOO_MANY_PIXELS, detail=_line(error)), b""
    except FAULTS as error:
        return Facts(Outcome.DAMAGED, detail=_line(error)), b""


def _look(data: bytes, task: Task) -> tuple[Facts, bytes]:
    file = whole(data, task.format)
    if task.format == "WEBP" and (size := webp_size(data)) and math.prod(size) > task.max_pixels:
        return Facts(Outcome.TOO_MANY_PIXELS, width=size[0], height=size[1]), b""
    # An icon is decoded when it is opened; of others only the head is read, and checked below with its numbers.
    Image.MAX_IMAGE_PIXELS = task.max_pixels if task.format == "ICO" else None
    try:
        image = Image.open(io.BytesIO(data), formats=(task.format,))
    except UnidentifiedImageError as error:
        raise DamageError("its head is damaged, or it has no pixels at all") from error
    with image:
        width, height = image.size
        if task.format == "JPEG":  # decoded small, with enough left for a good scaling
            image.draft(None, (2 * task.max_side, 2 * task.max_side))
        if math.prod(image.size) > task.max_pixels:
            return Facts(Outcome.TOO_MANY_PIXELS, width=width, height=height), b""
        Image.MAX_IMAGE_PIXELS = task.max_pixels
        image.load()
        frames = _frames(image, task.format, data, file)
        turn = _turn(image)
        if image.size != (width, height) and task.format != "JPEG":  # an icon's head may tell another size
            width, height = image.size
        upright = (height, width) if _swaps(turn) else (width, height)
        flags = Flag.MORE_FRAMES if frames > MAX_FRAMES else Flag.NONE
        found = Facts(Outcome.UNFIT, flags, width=upright[0], height=upright[1], frames=min(frames, MAX_FRAMES))
        if file and _passes(image, file, task, turn):
            kind = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp"}[task.format]
            return _shown(found, kind, image.size), file.stripped
        lossy = task.format in PHOTOGRAPHS and not (file and file.lossless)
        return _make(image, task, turn, found, lossy=lossy)


def _line(error: BaseException) -> str:
    """Return the error's words in one printable line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return "".join(character if character.isprintable() else "?" for character in text)


def _frames(image: ImageFile.ImageFile, format: str, data: bytes, file: Whole | None) -> int:
    """Count frames or pages, at most one more than `MAX_FRAMES`."""
    if format == "GIF":
        return max(1, gif_frames(data))
    if file is not None:
        return file.frames
    if format != "TIFF":
        return max(1, int(getattr(image, "n_frames", 1)))
    # Its own count follows every page, of which a hostile file has millions.
    with Image.open(io.BytesIO(data), formats=("TIFF",)) as pages:
        for page in range(1, MAX_FRAMES + 1):
            try:
                pages.seek(page)
            except FAULTS:
                return page
    return MAX_FRAMES + 1


def _turn(image: Image.Image) -> Image.Transpose | None:
    """Return what makes the picture upright; after loading, when a TIFF has been turned by Pillow itself."""
    try:
        return TURNS.get(image.getexif().get(ORIENTATION_TAG, 1))
    except FAULTS:
        return None  # metadata, and not pixels


def _swaps(turn: Image.Transpose | None) -> bool:
    return turn in {TURNS[5], TURNS[6], TURNS[7], TURNS[8]}


def _passes(image: Image.Image, file: Whole, task: Task, turn: Image.Transpose | None) -> bool:
    """Say whether the original, stripped, is already what is asked for."""
    kind = Image.MIME.get(task.format, "")
    return (
        kind in task.passing
        and file.usual
        and turn is None
        and image.mode in {"L", "RGB", "RGBA"}
        and "transparency" not in image.info
        and max(image.size) <= task.max_side
        and len(file.stripped) <= task.max_bytes
        and _profile(image) is None
    )


def _profile(image: Image.Image) -> ImageCms.ImageCmsProfile | None:
    """Return the profile that has to be applied, if there is one that can be read."""
    data = image.info.get("icc_profile")
    if not data or not isinstance(data, bytes) or image.mode in {"1", "L", "LA"}:
        return None
    try:
        profile = ImageCms.ImageCmsProfile(io.BytesIO(data))
        return None if "sRGB" in ImageCms.getProfileDescription(profile) else profile
    except FAULTS:
        return None


def _shown(found: Facts, kind: str, size: tuple[int, int]) -> Facts:
    return replace(found, outcome=Outcome.SHOWN, media_type=kind, shown_width=size[0], shown_height=size[1])


def _make(
    image: Image.Image, task: Task, turn: Image.Transpose | None, found: Facts, *, lossy: bool
) -> tuple[Facts, bytes]:
    flags = found.flags
    lossy = lossy and not image.has_transparency_data
    profile = _profile(image)
    if image.mode == "CMYK":
        flags |= Flag.CMYK
    if image.mode in {"I", "F"} or image.mode.startswith("I;16"):
        image, stretched = _grey(image, by_format=task.format in {"PNG", "PPM"})
        flags |= Flag.STRETCHED if stretched else Flag.NONE
    if image.mode not in {"L", "RGB", "RGBA", "CMYK"} or "transparency" in image.info:
        image = _plain(image)
    image = _scaled(image, min(1.0, task.max_side / max(image.size)))
    if profile is not None:
        image = _in_srgb(image, profile)
    if image.mode == "CMYK":
        image = image.convert("RGB")
    if turn is not None:
        image = image.transpose(turn)
        flags |= Flag.TURNED
    for kind, quality, candidate, encoded in _encodings(image, lossy=lossy):
        if len(encoded) <= task.max_bytes:
            fitted = quality if quality and not (lossy and quality == QUALITIES[0]) else 0
            if quality and image.mode == "RGBA":
                flags |= Flag.FLATTENED
            return _shown(replace(found, flags=flags, quality=fitted), kind, candidate.size), encoded
    return found, b""


def _grey(image: Image.Image, *, by_format: bool) -> tuple[Image.Image, bool]:
    """Bring 16 or 32 bits to 8: by the range of the format, or by the values that are there."""
    if by_format and image.mode != "F":
        return image.convert("I").point(_GREY_TABLE, "L"), False
    image = image.convert("F")
    low, high = (float(value) for value in cast("tuple[float, float]", image.getextrema()))
    if not (math.isfinite(low) and math.isfinite(high)):
        return image.convert("L"), False
    scale = 255 / (high - low) if high > low else 0.0
    return image.point(lambda value: value * scale + -low * scale).convert("L"), True


def _plain(image: Image.Image) -> Image.Image:
    """Return the picture in grey, RGB or RGBA."""
    if image.mode == "LAB":
        lab, srgb = ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB")
        converted = ImageCms.profileToProfile(image, lab, srgb, outputMode="RGB")
        assert converted is not None  # noqa: S101 - not made in place
        return converted
    if image.mode == "1":
        return image.convert("L")
    return image.convert("RGBA" if image.has_transparency_data else "RGB")


def _scaled(image: Image.Image, factor: float) -> Image.Image:
    if factor >= 1:
        return image
    width, height = (max(1, round(side * factor)) for side in image.size)
    return image.resize((width, height), Image.Resampling.LANCZOS, reducing_gap=2.0)


def _in_srgb(image: Image.Image, profile: ImageCms.ImageCmsProfile) -> Image.Image:
    """Apply a profile; one that does not belong to the picture's mode is left out."""
    mode = "RGBA" if image.mode == "RGBA" else "RGB"
    try:
        return ImageCms.profileToProfile(image, profile, ImageCms.createProfile("sRGB"), outputMode=mode) or image
    except FAULTS:
        return image


def _encodings(image: Image.Image, *, lossy: bool) -> Iterator[tuple[str, int, Image.Image, bytes]]:
    """Encode the picture again and again, each time with fewer bytes: type, quality, what was encoded, bytes."""
    if not lossy:
        yield "image/png", 0, image, _encoded(image, "PNG")
    while True:
        opaque = image
        if image.mode == "RGBA":
            opaque = Image.new("RGB", image.size, "white")
            opaque.paste(image, mask=image.getchannel("A"))
        for quality in QUALITIES:
            yield "image/jpeg", quality, image, _encoded(opaque, "JPEG", quality=quality)
        if max(image.size) <= MIN_SIDE:
            return
        image = _scaled(image, SHRINK)


def _encoded(image: Image.Image, format: str, **options: int) -> bytes:
    """Encode without metadata: what a picture carries is kept by Pillow when it is saved."""
    bare = image.copy() if image.info else image
    bare.info = {}
    out = io.BytesIO()
    bare.save(out, format, **options)
    return out.getvalue()
