"""Cases of kind images from public bug reports, as far as the wires answer them; the image tool answers the rest."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest

from runenv.providers import anthropic, fit, limits, mcp
from runenv.types import ImagePart
from tests.providers.samples import HANDLE, READ, encoded, header_only_png, image, result
from tests.providers.vendors import WIRES, as_json, texts

if TYPE_CHECKING:
    from collections.abc import Iterator

SVG = b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>'
HTML = b"<!DOCTYPE html><title>404</title>"
JSON = b'{"error": "not found"}'
INI = b"[a]\nb = c\n"
BMP = encoded("BMP")
TIFF = encoded("TIFF")
HEIC = b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00heicmif1" + bytes(40)
GOOD = encoded("PNG", (60, 60), seed=4)


def images_in(node: object) -> Iterator[dict[str, Any]]:
    """The image blocks of any wire."""
    if isinstance(node, dict):
        if node.get("type") in {"image", "input_image", "image_url"} or "inlineData" in node or "image" in node:
            yield node
        for value in node.values():
            yield from images_in(value)
    elif isinstance(node, list):
        for value in node:
            yield from images_in(value)


@pytest.mark.parametrize("name", WIRES)
@pytest.mark.parametrize("data", [SVG, HTML, JSON, INI, BMP, TIFF, HEIC], ids="svg html json ini bmp tiff heic".split())
@pytest.mark.parametrize("declared", ["image/png", "image/jpeg", "image/svg+xml", "image/heic"])
def test_C054_C059_C060_what_is_no_image_for_a_vendor_is_never_an_image_block(
    name: str, data: bytes, declared: str
) -> None:
    """Whatever its name says; a line with the handle stands for it."""
    messages = WIRES[name].results([(READ, result(ImagePart(data, declared, HANDLE)))])
    WIRES[name].check(messages)
    assert not list(images_in(messages))
    assert any("does not take its format" in text and HANDLE in text for text in texts(messages))


@pytest.mark.parametrize("name", WIRES)
@pytest.mark.parametrize(
    "data",
    [
        GOOD[: len(GOOD) * 6 // 10],
        GOOD[:8],
        GOOD[:33] + bytes(range(256)) * 4,
        encoded("JPEG", (60, 60), seed=4)[:-200],
    ],
    ids=["60 percent", "signature", "header and noise", "jpeg cut"],
)
def test_C056_a_damaged_image_is_never_an_image_block(name: str, data: bytes) -> None:
    """It would be refused now and in every later turn."""
    messages = WIRES[name].results([(READ, result(image(data)))])
    WIRES[name].check(messages)
    assert not list(images_in(messages))
    kind = "png" if data.startswith(GOOD[:8]) else "jpeg"
    assert f"damaged or cut off; image/{kind}, {len(data):,} bytes" in as_json(messages)


def test_C057_an_image_that_is_small_in_bytes_and_large_in_pixels_does_not_pass() -> None:
    """10,000 x 800 alone; 2,162 x 322 only once there are more than 20."""
    wide, banner, tall = header_only_png(10_000, 800), header_only_png(2162, 322), header_only_png(1, 20_000)
    assert not list(images_in(anthropic.tool_result(READ, result(image(wide), image(tall)))))
    content = anthropic.tool_result(READ, result(image(banner)))["content"]
    assert [block["type"] for block in content] == ["image"]
    turn = [(READ, result(image(banner), *(image(encoded("PNG", seed=seed)) for seed in range(21))))]
    request = {"messages": anthropic.tool_results(turn)}
    fitted = fit(request, limits.ANTHROPIC)
    assert fitted.removed == ("messages.0.content.0.content.0",)
    assert fit({"messages": request["messages"]}, limits.OPENAI).removed == ()


@pytest.mark.parametrize("name", ["anthropic", "bedrock", "mcp"])
def test_C058_an_image_beyond_the_bytes_is_a_line(name: str) -> None:
    """10 MB of PNG."""
    messages = WIRES[name].results(
        [(READ, result(image(header_only_png(1900, 1900, padding=10_000_000), handle=HANDLE)))]
    )
    assert not list(images_in(messages))
    assert len(as_json(messages)) < 1000
    assert HANDLE in as_json(messages)


@pytest.mark.parametrize("name", WIRES)
def test_C065_image_bytes_appear_once_as_an_image(name: str) -> None:
    """A tool that returns data URIs in JSON, two of them: both are images, none is skipped, no base64 is text."""
    first, second = encoded("PNG", (40, 40), seed=1), encoded("PNG", (40, 40), seed=2)
    text = json.dumps({"shots": [uri(first), uri(second)]})
    messages = WIRES[name].results([(READ, result(text))])
    WIRES[name].check(messages)
    assert len(list(images_in(messages))) == 2
    for data in (first, second):
        assert as_json(messages).count(base(data)) == 1
        assert not any(base(data) in said for said in texts(messages))


@pytest.mark.parametrize("name", WIRES)
def test_C065_a_structured_mirror_of_an_image_part_is_taken_out(name: str) -> None:
    """The image stays where it is; the mirror says so."""
    data = encoded("PNG", (180, 180), seed=3)
    mirror = json.dumps({"data": base(data), "mimeType": "image/png"})
    messages = WIRES[name].results([(READ, result(mirror, image(data)))])
    WIRES[name].check(messages)
    assert len(list(images_in(messages))) == 1
    assert as_json(messages).count(base(data)) == 1
    assert any("[base64 left out: the image is a part of this turn]" in said for said in texts(messages))


def test_C065_mcp_has_no_structured_copy() -> None:
    """One `content`, one flag."""
    assert set(mcp.tool_result(READ, result(image()))) == {"content", "isError"}


def test_C065_base64_that_was_cut_is_not_shown_as_an_image() -> None:
    """A middle truncation went through it (esengine/DeepSeek-Reasonix#6227)."""
    cut = f"before {uri(GOOD)[:3000]}\n[... cut ...]\nafter"
    (block,) = anthropic.tool_result(READ, result(cut))["content"]
    assert block["text"].startswith("before [2,978 characters of base64 left out: image/png]\n[... cut ...]")


def test_C065_a_page_full_of_icons_does_not_fill_the_turn() -> None:
    """Eight of them are shown at most."""
    page = " ".join(uri(encoded("PNG", (5, 5), seed=seed)) for seed in range(30))
    content = anthropic.tool_result(READ, result(page))["content"]
    assert [block["type"] for block in content] == ["text"] + ["image"] * 8
    assert content[0]["text"].count("base64 left out") == 22


@pytest.mark.parametrize(
    "text",
    [
        "sha512-9j/4AAQSkZJRgABAQAAAQABAAD",
        "/9j/notes/of/a/very/long/path/that/goes/on/and/on/and/on/and/on/for/ever",
        "data:text/plain;base64,aGVsbG8gd29ybGQsIHRoaXMgaXMgYSB0ZXh0",
        "UklGRg==",
        "UklGRAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIn0",
    ],
)
def test_other_base64_and_what_looks_like_it_stays(text: str) -> None:
    """Tokens, hashes, paths, texts."""
    (block,) = anthropic.tool_result(READ, result(text))["content"]
    assert block["text"] == text


def base(data: bytes) -> str:
    """As base64."""
    return base64.b64encode(data).decode()


def uri(data: bytes) -> str:
    """As a data URI."""
    return f"data:image/png;base64,{base(data)}"
