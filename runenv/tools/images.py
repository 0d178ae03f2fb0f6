"""The image half of `file_read`: bytes that claim to be an image in, an image that every vendor takes out, or words.

What it is is told by its first bytes, never by its name. It is decoded whole, by Pillow in a worker process, before any
of it is shown, so that no damaged, mislabelled or oversized image ever reaches a model's history; what cannot be shown
is said in words that name what it is, why it is not shown and what to do instead. Here are the limits and the words;
`image_pool` has the workers, `image_decoding` the rules for pixels. Nothing here decodes an image.

The words go with an image where the picture differs from what is in the file: its size, its turn, frames left out,
another format. A file that only lost its metadata, or was made anew with the same pixels, goes without.

Decided on 2026-11-28: an image of one pixel by many is scaled like any other, never to 0 (case C057). SVG stays text:
nothing of it is rendered on the host. HEIC is shown where pillow-heif is installed, AVIF where Pillow has it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from runenv.artifacts.extensions import EXTENSIONS
from runenv.artifacts.media import HEAD_BYTES, differs, is_text, media_type
from runenv.errors import ConfigError
from runenv.tools.image_pool import Workers
from runenv.tools.image_structure import MAX_FRAMES, is_netpbm
from runenv.tools.image_wire import Facts, Flag, Outcome, Task
from runenv.types import ImagePart, TextPart

if TYPE_CHECKING:
    from runenv.types import Part

__all__ = ("DEFAULT_LIMITS", "ImageLimits", "aclose", "image_type", "prepare", "shared_workers")

FORMATS: Final = {
    "image/png": "PNG",
    "image/jpeg": "JPEG",
    "image/gif": "GIF",
    "image/webp": "WEBP",
    "image/tiff": "TIFF",
    "image/bmp": "BMP",
    "image/vnd.microsoft.icon": "ICO",
    "image/x-portable-anymap": "PPM",
    "image/avif": "AVIF",
    "image/heic": "HEIF",
    "image/heif": "HEIF",
}
"""What is decoded, and what Pillow calls it; no other decoder of Pillow's is ever tried."""
NAMES: Final = {
    "image/webp": "WebP",
    "image/vnd.microsoft.icon": "icon (ICO)",
    "image/x-portable-anymap": "Netpbm (PBM, PGM, PPM)",
    "image/heic": "HEIC",
    "image/svg+xml": "SVG",
}
"""What people call a type, where it is not what Pillow calls it."""
PASSING: Final = frozenset({"image/png", "image/jpeg", "image/webp"})
"""What every vendor takes, and is handed through when it fits."""
UNKNOWN: Final = "application/octet-stream"
MAX_NAME: Final = 120
"""Characters of a file's name that an answer repeats."""
SHOWN_HEAD_BYTES: Final = 16
"""Bytes that an answer shows of a file whose type is not known."""
_SMALLER: Final = "make a smaller copy in the sandbox and read that"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageLimits:
    """What an image may be, and may cost. The defaults are the strictest of the vendors'.

    Attributes:
        max_side: pixels of the longer side that is shown; what is larger is scaled.
        max_bytes: of the image as it is shown, before base64.
        passing: types of which an original that fits is handed through; all else becomes a PNG or a JPEG.
        max_pixels: that may be decoded; a JPEG is decoded small when it is large.
        max_input_bytes: of the file.
        max_memory_bytes: address space that the work on one image may take.
        timeout: seconds that the work on one image may take.
    """

    max_side: int = 2000
    max_bytes: int = 3_750_000
    passing: frozenset[str] = PASSING
    max_pixels: int = 50_000_000
    max_input_bytes: int = 64 * 1024 * 1024
    max_memory_bytes: int = 1280 * 1024 * 1024
    timeout: float = 30.0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            bits = 31 if field.name in {"max_side", "max_bytes"} else 62
            if isinstance(value, int | float) and not 0 < value < 1 << bits:
                raise ConfigError(f"the image limit {field.name}={value!r} must be above 0 and below 2**{bits}")
        if unknown := self.passing - PASSING:
            raise ConfigError(f"images of the types {sorted(unknown)!r} cannot pass: choose from {sorted(PASSING)!r}")


DEFAULT_LIMITS: Final = ImageLimits()


def image_type(head: bytes) -> str | None:
    """Say which kind of image a file is, by its content alone.

    Args:
        head: its first 4,096 bytes; fewer only when it has no more.

    Returns:
        The media type of what `prepare` tries to show, or None: SVG, which is text, and whatever is no image.
    """
    kind = "image/x-portable-anymap" if is_netpbm(head) else media_type(head, None, "")
    return kind if kind in FORMATS else None


async def prepare(
    data: bytes,
    *,
    name: str,
    limits: ImageLimits = DEFAULT_LIMITS,
    workers: Workers | None = None,
    can_save: bool = True,
) -> tuple[Part, ...]:
    """Make of a file what a model can look at.

    Args:
        data: all of the file, hostile or not.
        name: of the file, for the words; nothing is decided by it.
        limits: what is shown as it is, what is scaled, and what is refused.
        workers: where images are decoded; those that this process shares by default.
        can_save: the model has the tool `artifact_save`, which the words may name.

    Returns:
        An image, with a text before it where the picture is not just what the file holds; or only a text.
    """
    kind = image_type(data[:HEAD_BYTES])
    if kind is None:
        return (TextPart(_no_image(data, name, can_save=can_save)),)
    subject = f"{_shown(name)} is {_a(kind)} image of {len(data):,} bytes"
    if len(data) > limits.max_input_bytes:
        return (
            TextPart(
                f"{subject}, more than the {limits.max_input_bytes:,} that are looked at, so it is not shown: "
                f"{_either(_SMALLER, can_save=can_save)}.{_lie(kind, name)}"
            ),
        )
    task = Task(
        FORMATS[kind],
        limits.passing,
        limits.max_side,
        limits.max_bytes,
        limits.max_pixels,
        limits.max_memory_bytes,
        limits.timeout,
        len(data),
    )
    facts, image = await (workers or shared_workers()).run(task, data)
    if facts.outcome is Outcome.SHOWN and media_type(image[:HEAD_BYTES], None, "") != facts.media_type:
        facts = Facts(Outcome.CRASHED, detail="its answer made no sense")
    if facts.outcome is not Outcome.SHOWN:
        refusal = _refusal(facts, kind, limits, can_save=can_save)
        return (TextPart(f"{subject}{_size(facts)}. {refusal}{_lie(kind, name)}"),)
    note = _note(facts, kind, name)
    shown = ImagePart(image, facts.media_type)
    return (TextPart(note), shown) if note else (shown,)


async def aclose() -> None:
    """End the workers that this process shares; a later image starts new ones.

    Without it they end by themselves after a while without work, and with this process.
    """
    await shared_workers().aclose()


@cache
def shared_workers() -> Workers:
    """Return the workers that this process shares; pages of PDFs are their business too."""
    return Workers()


def _shown(name: str) -> str:
    return repr(name if len(name) <= MAX_NAME else f"{name[: MAX_NAME // 2]}...{name[-MAX_NAME // 2 :]}")


def _called(kind: str) -> str:
    return NAMES.get(kind) or FORMATS.get(kind) or kind


def _a(kind: str) -> str:
    called = _called(kind)
    return f"an {called}" if called[0] in "Ai" else f"a {called}"


def _size(facts: Facts) -> str:
    return f" and {facts.width:,} x {facts.height:,} pixels" if facts.width and facts.height else ""


def _lie(kind: str, name: str) -> str:
    """Say that the extension names another type; empty when it does not."""
    named = EXTENSIONS.get("." + name.rpartition(".")[2].lower()) if "." in name else None
    both_heif = {kind, named} == {"image/heic", "image/heif"}
    return f" Its name says {_called(named)}." if named and differs(named, kind) and not both_heif else ""


def _no_image(data: bytes, name: str, *, can_save: bool) -> str:
    """Say what a file is that is no image to be decoded, and what to do with it."""
    shown = _shown(name)
    if not data:
        return f"{shown} is empty (0 bytes), so there is no image to show: look at what should have written it."
    kind = media_type(data[:HEAD_BYTES], None, "")
    subject = f"{shown} ({len(data):,} bytes)"
    if kind == "image/svg+xml":
        return (
            f"{subject} is an SVG drawing, which is text and not shown as an image: read it as text, or convert it to "
            f"PNG in the sandbox and read that.{_lie(kind, name)}"
        )
    if is_text(kind):
        return f"{subject} is no image but text ({kind}), whatever its name says: read it as text."
    if kind != UNKNOWN:
        remedy = _either("look at it with a program in the sandbox", can_save=can_save)
        return f"{subject} is no image but {kind}, whatever its name says: {remedy}."
    return (
        f"{subject} is no image of a known type: it begins with the bytes {data[:SHOWN_HEAD_BYTES].hex(' ')}. "
        f"{_either('Look at what has written it', can_save=can_save)}."
    )


def _refusal(facts: Facts, kind: str, limits: ImageLimits, *, can_save: bool) -> str:
    """Say why an image is not shown, and what to do instead."""
    detail = f" ({facts.detail})" if facts.detail else ""
    reason, remedy = {
        Outcome.DAMAGED: (f"it is damaged: {facts.detail}", "make it again"),
        Outcome.TOO_MANY_PIXELS: (f"it has more than the {limits.max_pixels:,} pixels that are decoded", _SMALLER),
        Outcome.UNSUPPORTED: (
            f"{_called(kind)} cannot be decoded here{detail}",
            "convert it to PNG in the sandbox and read that",
        ),
        Outcome.OUT_OF_MEMORY: ("to decode it takes more memory than is allowed", _SMALLER),
        Outcome.TIMED_OUT: (f"to decode it takes longer than {limits.timeout:g} s", _SMALLER),
        Outcome.UNFIT: (f"it cannot be made to fit {limits.max_bytes:,} bytes", _SMALLER),
        Outcome.NO_WORKER: (f"there is no worker for it now{detail}", "try again"),
    }.get(facts.outcome, (f"its decoder failed{detail}", "convert it in the sandbox"))
    return f"It is not shown, because {reason}; {_either(remedy, can_save=can_save)}."


def _either(remedy: str, *, can_save: bool) -> str:
    return f"{remedy}, or hand it on as it is with artifact_save" if can_save else remedy


def _note(facts: Facts, kind: str, name: str) -> str:
    """Say in what the picture differs from the file; empty when it does not."""
    changes: list[str] = []
    if facts.frames > 1:
        what = "page" if kind == "image/tiff" else "frame"
        most = f"more than {MAX_FRAMES:,}" if Flag.MORE_FRAMES in facts.flags else f"{facts.frames:,}"
        changes.append(f"the first {what} of {most}")
    if (facts.width, facts.height) != (facts.shown_width, facts.shown_height):
        size = f"{facts.shown_width:,} x {facts.shown_height:,}"
        changes.append(f"scaled from {facts.width:,} x {facts.height:,} to {size} pixels")
    if Flag.TURNED in facts.flags:
        changes.append("turned upright by its EXIF orientation")
    if facts.media_type != kind:
        changes.append(f"converted from {_called(kind)} to {_called(facts.media_type)}")
    if facts.quality:
        changes.append(f"with quality {facts.quality} to save bytes")
    if Flag.FLATTENED in facts.flags:
        changes.append("with its transparency made white")
    if Flag.CMYK in facts.flags:
        changes.append("with its CMYK colours made RGB")
    if Flag.STRETCHED in facts.flags:
        changes.append("with its lowest value black and its highest white")
    lie = _lie(kind, name)
    if not changes and not lie:
        return ""
    shown = f"shown is {changes[0]}" if facts.frames > 1 else f"shown {changes[0]}" if changes else "shown as it is"
    return f"{_shown(name)} is {_a(kind)} image, {', '.join((shown, *changes[1:]))}.{lie}"
