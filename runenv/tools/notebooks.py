"""Jupyter notebooks as a text of cells and their outputs, for `file_read`, and the images among the outputs.

The text is paged as that of any file; an image comes with the page on which its place is. Pure but for the images.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

from anyio import to_thread

from runenv.types import TextPart

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from runenv.tools.text import Shown
    from runenv.tools.tool import Context
    from runenv.types import Part

__all__ = ("Notebook", "render", "with_images")

MAX_IMAGES: Final = 8
"""Images of one answer."""
IMAGE_BYTES: Final = 1_000_000
"""Of each of them as it is shown, so that they fit a request together."""
OUTPUT_CHARS: Final = 10_000
"""Characters of one output, so that those of one cell do not hide the others."""
OUTPUT_LINES: Final = 300
"""Lines of one output, for the same reason."""
_TERMINAL: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-Z\\-_]")
_IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_TAKEN: Final = ("text/plain", "text/markdown", "application/json", "text/html", "image/svg+xml")
"""Forms of an output; the first that is there is shown."""


@dataclass(slots=True)
class Notebook:
    """A notebook as text.

    Attributes:
        cells: how many there are.
        text: of all of them.
        images: by the number of the line where its place is, base64 of an image.
    """

    cells: int = 0
    text: str = ""
    images: dict[int, str] = field(default_factory=dict)


async def render(data: bytes) -> Notebook | None:
    """Return a notebook as text, or None when it is none."""
    return await to_thread.run_sync(_render, data)


async def with_images(text: str, notebook: Notebook, shown: Shown, context: Context) -> tuple[Part, ...]:
    """Return an answer with the images whose places are in it.

    Args:
        text: of the answer.
        notebook: it is of this one.
        shown: these lines of it.
        context: of the toolset.
    """
    lines = [line for line in notebook.images if shown.first <= line <= shown.last]
    limits = context.image_limits
    smaller = dataclasses.replace(limits, max_bytes=min(limits.max_bytes, IMAGE_BYTES))
    parts: list[Part] = [TextPart(text)]
    for line in lines[:MAX_IMAGES]:
        try:
            data = base64.b64decode(notebook.images[line])
        except (binascii.Error, ValueError):
            parts.append(TextPart(f"[image of line {line}: its base64 is damaged]"))
            continue
        name = f"image of line {line}"
        shown_image = await context.shown(data, name, smaller)
        parts += (TextPart(f"[{name}:]"), *shown_image)
    if len(lines) > MAX_IMAGES:
        rest = lines[MAX_IMAGES]
        parts.append(TextPart(f"[{len(lines) - MAX_IMAGES} more images are not shown: for them use offset={rest}]"))
    return tuple(parts)


def _render(data: bytes) -> Notebook | None:
    """Read the JSON. Runs in a thread: it may be deep or large."""
    try:
        content: object = json.loads(data)
    except (ValueError, RecursionError):
        return None
    cells = content.get("cells") if isinstance(content, dict) else None
    if not isinstance(cells, list):
        return None
    notebook, lines = Notebook(), list[str]()
    for number, cell in enumerate(cells, 1):
        notebook.cells += 1
        if isinstance(cell, dict):
            _cell(number, cast("Mapping[str, object]", cell), lines, notebook.images)
    notebook.text = "\n".join((*lines, ""))
    return notebook


def _cell(number: int, cell: Mapping[str, object], lines: list[str], images: dict[int, str]) -> None:
    kind = _text(cell.get("cell_type")) or "unknown"
    run = cell.get("execution_count")
    executed = f", executed as [{run}]" if isinstance(run, int) else ""
    lines.append(f"--- cell {number}: {_one_line(kind)}{executed} ---")
    lines.extend(_lines(_text(cell.get("source"))))
    outputs = cell.get("outputs")
    for output in outputs if isinstance(outputs, list) else ():
        if isinstance(output, dict):
            _output(number, cast("Mapping[str, object]", output), lines, images)


def _output(number: int, output: Mapping[str, object], lines: list[str], images: dict[int, str]) -> None:
    kind = output.get("output_type")
    if kind == "stream":
        lines.append(f"--- {_one_line(_text(output.get('name')) or 'output')} of cell {number} ---")
        lines.extend(_cut(_text(output.get("text"))))
        return
    if kind == "error":
        lines.append(f"--- error of cell {number} ---")
        trace = output.get("traceback")
        text = "\n".join(map(_text, trace)) if isinstance(trace, list) and trace else ""
        lines.extend(_cut(text or f"{_text(output.get('ename'))}: {_text(output.get('evalue'))}"))
        return
    data = output.get("data")
    if not isinstance(data, dict):
        return
    lines.append(f"--- output of cell {number} ---")
    image = next((kind for kind in _IMAGES if kind in data), None)
    if image is not None:
        lines.append(f"[{image}]")
        images[len(lines)] = "".join(_text(data[image]).split())
    form = next((kind for kind in _TAKEN if kind in data), None)
    if form is not None and not (image is not None and form == "text/plain"):  # which says "<Figure size ...>"
        value = data[form]
        lines.extend(_cut(json.dumps(value) if form == "application/json" else _text(value)))
    elif image is None:
        lines.append(f"[{', '.join(_one_line(str(kind)) for kind in list(data)[:5]) or 'nothing'}]")


def _text(value: object) -> str:
    """Return a text of the format: one, or a list of lines."""
    if isinstance(value, list):
        return "".join(piece for piece in value if isinstance(piece, str))
    return value if isinstance(value, str) else ""


def _one_line(text: str) -> str:
    return " ".join(text.split())[:80]


def _lines(text: str) -> Iterator[str]:
    yield from (line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")) if text else ()


def _cut(text: str) -> Iterator[str]:
    """Give the lines of an output without terminal codes, at most so many of them and of their characters."""
    plain = _TERMINAL.sub("", text)
    kept = "\n".join(plain[:OUTPUT_CHARS].split("\n", OUTPUT_LINES)[:OUTPUT_LINES])
    yield from _lines(kept)
    if len(kept) + 1 < len(plain):
        yield f"[cut: {len(plain) - len(kept):,} more characters; they are in the notebook's JSON]"
