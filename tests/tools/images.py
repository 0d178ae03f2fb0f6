"""What the tests of images share: the files, and the look of a vendor at what would be sent to it."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import TYPE_CHECKING, Final

from PIL import Image

from runenv.tools.image_structure import whole
from runenv.tools.images import DEFAULT_LIMITS, ImageLimits
from runenv.types import ImagePart, TextPart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runenv.types import Part

FOLDER: Final = Path(__file__).parent.parent / "data" / "images"
NAMES: Final = tuple(sorted(path.name for path in FOLDER.iterdir() if path.name != "README.md"))
DECODERS: Final = {"image/png": "PNG", "image/jpeg": "JPEG", "image/webp": "WEBP"}


def file(name: str) -> bytes:
    """The bytes of one of the files."""
    return (FOLDER / name).read_bytes()


def encoded(image: Image.Image, format: str, **options: object) -> bytes:
    """A file of an image."""
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


def words(parts: Sequence[Part]) -> str:
    """The text of an answer."""
    return " ".join(part.text for part in parts if isinstance(part, TextPart))


def seen(parts: Sequence[Part], limits: ImageLimits = DEFAULT_LIMITS) -> Image.Image | None:
    """What a vendor would see, which refuses all that a vendor might refuse; None for an answer in words.

    The first frame, decoded; it is checked that an answer is one image with a text before it or without one, or a text.
    """
    *before, last = parts
    assert len(before) <= 1
    assert all(isinstance(part, TextPart) and 0 < len(part.text) < 1000 for part in before)
    if isinstance(last, TextPart):
        assert not before
        assert 0 < len(last.text) < 1000
        return None
    assert isinstance(last, ImagePart)
    assert 0 < len(last.data) <= limits.max_bytes
    image = Image.open(io.BytesIO(last.data))
    image.load()
    decoder = DECODERS[last.media_type]
    assert image.format == decoder
    assert image.mode in {"L", "RGB", "RGBA"}
    assert max(image.size) <= limits.max_side
    assert math.prod(image.size) > 0
    assert getattr(image, "n_frames", 1) == 1
    assert not image.info.keys() & {"exif", "xmp", "icc_profile", "comment", "transparency", "Author"}
    same = whole(last.data, decoder)
    assert same is not None
    assert same.usual
    assert same.stripped == last.data
    return image
