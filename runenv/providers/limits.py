"""What each vendor takes, as data with its sources, and the question whether it takes one image. Pure.

The numbers were collected in November 2026 and change without notice; where sources differ, the vendor's own word
stands, and of several words the stricter. To change one: `dataclasses.replace(limits.ANTHROPIC, images=600)`, given as
`limits=` wherever limits are taken.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runenv.providers.pictures import Picture

__all__ = ("ANTHROPIC", "AZURE", "BEDROCK", "COMMON", "GEMINI", "OPENAI", "Limits", "base64_size")

_FOUR: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a vendor takes in one request; None where it sets no limit that is known.

    Attributes:
        vendor: its name, for texts.
        formats: media types of images that it takes.
        animated_gif: it takes a GIF of more than one frame.
        image_bytes: of one image.
        counts_base64: `image_bytes` bounds the length of the base64, not of the bytes in it.
        side_pixels: of the longer side of one image.
        images: in the request.
        counts_documents: documents count among the `images`.
        many_images: above so many images `many_side_pixels` holds for each.
        many_side_pixels: of the longer side of one image among many.
        request_bytes: of the whole request as sent.
        sources: where each number was found.
    """

    vendor: str
    formats: frozenset[str] = _FOUR
    animated_gif: bool = True
    image_bytes: int | None = None
    counts_base64: bool = False
    side_pixels: int | None = None
    images: int | None = None
    counts_documents: bool = False
    many_images: int | None = None
    many_side_pixels: int | None = None
    request_bytes: int | None = None
    sources: Mapping[str, str] = field(default_factory=dict[str, str])

    def refuses(self, picture: Picture | None, size: int) -> str | None:
        """Return why an image could never be sent, as a clause for the model, or None.

        Args:
            picture: what it says of itself; None when it is of no known type.
            size: its bytes, not as base64.
        """
        if picture is None or picture.media_type not in self.formats:
            return f"{self.vendor} does not take its format"
        if picture.animated and picture.media_type == "image/gif" and not self.animated_gif:
            return f"{self.vendor} takes no animated GIF"
        counted = base64_size(size) if self.counts_base64 else size
        if self.image_bytes is not None and counted > self.image_bytes:
            kind = "bytes of base64" if self.counts_base64 else "bytes"
            return f"{self.vendor} takes at most {self.image_bytes:,} {kind} an image"
        if self.side_pixels is not None and picture.side > self.side_pixels:
            return f"{self.vendor} takes at most {self.side_pixels:,} pixels a side"
        return None


def base64_size(size: int) -> int:
    """Return how many characters so many bytes are as base64."""
    return (size + 2) // 3 * 4


ANTHROPIC: Final = Limits(
    vendor="Anthropic",
    image_bytes=5 * 1024 * 1024,
    counts_base64=True,
    side_pixels=8000,
    images=100,
    counts_documents=True,
    many_images=20,
    many_side_pixels=2000,
    request_bytes=32_000_000,
    sources={
        "formats": "anthropic 2.14.0 types/base64_image_source_param.py",
        "image_bytes": "anthropic 2.14.0 lib/tools/agent_toolset.py DEFAULT_MAX_IMAGE_BASE64_BYTES; the API's refusal "
        "in anthropics/claude-code#13381 (a client in can1357/oh-my-pi#10633 reckons with 10 MB since September 2026)",
        "side_pixels": "the API's refusal in anthropics/claude-code#4778",
        "images": "the API's refusal in anthropics/claude-code#23392, which counts documents too; 600 for models with "
        "more than 200k of context by the vision guide, cited in experientiallabs/experiential#786",
        "many_images": "the vision guide, cited in charmbracelet/crush#3810",
        "many_side_pixels": "the API's refusal in anthropics/claude-code#9375",
        "request_bytes": "the API overview, 32 MB (undated)",
    },
)
OPENAI: Final = Limits(
    vendor="OpenAI",
    animated_gif=False,
    image_bytes=20_000_000,
    counts_base64=True,
    images=500,
    request_bytes=50_000_000,
    sources={
        "formats": "the API's refusal in CosmosShadow/gptpdf#6",
        "animated_gif": "crewai-files 1.15.30; the images guide (undated)",
        "image_bytes": "the API's refusal in CosmosShadow/gptpdf#6, 20 MB; whether of base64 it does not say",
        "images": "the images guide (undated), measured in earendil-works/pi#120; crewai-files 1.15.30 reckons with 10",
        "request_bytes": "the images guide, 50 MB (undated)",
    },
)
AZURE: Final = Limits(
    vendor="Azure OpenAI",
    animated_gif=False,
    image_bytes=20_000_000,
    counts_base64=True,
    images=10,
    request_bytes=50_000_000,
    sources={
        "formats": "as OpenAI",
        "animated_gif": "as OpenAI",
        "image_bytes": "crewai-files 1.15.30, 20 MB",
        "images": "crewai-files 1.15.30",
        "request_bytes": "as OpenAI",
    },
)
GEMINI: Final = Limits(
    vendor="Gemini",
    formats=frozenset({"image/png", "image/jpeg", "image/webp"}),
    request_bytes=20_000_000,
    sources={
        "formats": "the function calling guide, for parts of a functionResponse (undated); a GIF is refused in "
        "su-kaka/gcli2api#297",
        "request_bytes": "google-adk 2.13.0, 20 MB of inline data; newer guides say more",
    },
)
BEDROCK: Final = Limits(
    vendor="Bedrock",
    image_bytes=3_750_000,
    side_pixels=8000,
    images=20,
    sources={
        "formats": "botocore 1.44.8 bedrock-runtime service-2.json ImageFormat",
        "image_bytes": "botocore 1.44.8 bedrock-runtime service-2.json Message.content, 3.75 MB",
        "side_pixels": "botocore 1.44.8 bedrock-runtime service-2.json Message.content",
        "images": "botocore 1.44.8 bedrock-runtime service-2.json Message.content, of a message; here of a request",
    },
)
COMMON: Final = Limits(
    vendor="the client",
    image_bytes=3_750_000,
    side_pixels=2000,
    images=20,
    sources={
        "formats": "what Anthropic, OpenAI and Bedrock all take",
        "image_bytes": "Bedrock's, below Anthropic's 5 MiB of base64",
        "side_pixels": "Anthropic's for many images",
        "images": "Bedrock's",
    },
)
"""The strictest of all: for MCP, whose client may hand a result to any vendor."""
