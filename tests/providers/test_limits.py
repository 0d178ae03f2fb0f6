"""Limits are data with sources, and one image is judged by them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Final

import pytest

from runenv.providers.limits import ANTHROPIC, AZURE, BEDROCK, COMMON, GEMINI, OPENAI, Limits, base64_size
from runenv.providers.pictures import Picture, look
from tests.providers.samples import encoded, header_only_png

ALL: Final = (ANTHROPIC, AZURE, BEDROCK, COMMON, GEMINI, OPENAI)
PNG: Final = Picture("image/png", 100, 100, whole=True)


@pytest.mark.parametrize("limits", ALL, ids=lambda limits: limits.vendor)
def test_W2_every_number_has_a_source(limits: Limits) -> None:
    """And no source is of a number that is not there."""
    given = {
        field.name
        for field in fields(limits)
        if field.name not in {"vendor", "sources", "counts_base64", "counts_documents"}
        and getattr(limits, field.name) not in {None, True}
    }
    assert set(limits.sources) == given


def test_W2_anthropic_counts_base64_and_bedrock_bytes() -> None:
    """3,932,160 bytes are 5 MiB of base64 (kirodotdev/Kiro#11497); one byte more is too much."""
    assert ANTHROPIC.refuses(PNG, 3_932_160) is None
    assert ANTHROPIC.refuses(PNG, 3_932_161) == "Anthropic takes at most 5,242,880 bytes of base64 an image"
    assert BEDROCK.refuses(PNG, 3_750_000) is None
    assert BEDROCK.refuses(PNG, 3_750_001) == "Bedrock takes at most 3,750,000 bytes an image"


@pytest.mark.parametrize("size", [(8001, 10), (10, 8001)])
def test_W2_either_side_counts(size: tuple[int, int]) -> None:
    """A tall image passes where only the width is looked at (kirodotdev/KiroCrew#1273)."""
    assert ANTHROPIC.refuses(look(header_only_png(*size)), 100) == "Anthropic takes at most 8,000 pixels a side"
    assert OPENAI.refuses(look(header_only_png(*size)), 100) is None


def test_a_limit_can_be_changed() -> None:
    """They are values."""
    wide = replace(ANTHROPIC, side_pixels=10_000)
    assert wide.refuses(look(header_only_png(9000, 1)), 100) is None


def test_formats_are_the_vendors() -> None:
    """A GIF is nothing for Gemini, an animated one nothing for OpenAI, an unknown type for nobody."""
    gif, moving = look(encoded("GIF")), look(encoded("GIF", frames=2))
    assert [limits.vendor for limits in ALL if limits.refuses(gif, 100)] == ["Gemini"]
    assert [limits.vendor for limits in ALL if limits.refuses(moving, 100)] == ["Azure OpenAI", "Gemini", "OpenAI"]
    assert all(limits.refuses(None, 100) for limits in ALL)


@pytest.mark.parametrize(("size", "characters"), [(0, 0), (1, 4), (3, 4), (4, 8), (3_932_160, 5_242_880)])
def test_base64_is_a_third_longer(size: int, characters: int) -> None:
    """With its padding."""
    assert base64_size(size) == characters
