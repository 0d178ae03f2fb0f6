"""A page of a PDF as text or as an image: the only module that imports pypdfium2. Runs in the image worker.

A file is parsed anew for each page, in a child of its own: what a hostile page does to the library ends there, and the
other pages are shown. An image of a page then goes the way of all images.
"""

from __future__ import annotations

import dataclasses
import io
from typing import TYPE_CHECKING, Any, Final

from runenv.tools.image_decoding import FAULTS, look
from runenv.tools.image_wire import Facts, Flag, Outcome

if TYPE_CHECKING:
    from runenv.tools.image_wire import Task

__all__ = ("IMAGE", "TEXT", "load", "look_page")

TEXT: Final = "PDFTEXT"
"""As a task's format: the words of a page."""
IMAGE: Final = "PDF"
"""As a task's format: how a page looks."""
MAX_SCALE: Final = 8.0
"""Pixels for a point, 1/72 inch: a page of the size of a stamp does not become one of a poster."""
MAX_CHARS: Final = 1_000_000
"""Characters of a page that are asked for."""


def load() -> Any:  # noqa: ANN401 - its types are not known where it is not installed
    """Return the library, or None where it is not installed; loaded before the fork, every child has it."""
    try:
        import pypdfium2  # type: ignore[import-not-found,import-untyped,unused-ignore]  # pyright: ignore[reportMissingImports]
    except (ImportError, OSError):  # it is there, but its shared library is not
        return None
    return pypdfium2


def look_page(data: bytes, task: Task) -> tuple[Facts, bytes]:
    """Return what was found and the text (UTF-8) or the image of a page; `frames` is the number of pages.

    A page that is not there is an outcome without a result.
    """
    pdfium = load()
    if pdfium is None:
        return Facts(Outcome.UNSUPPORTED, detail="pypdfium2 is not installed"), b""
    try:
        document = pdfium.PdfDocument(data)
        count = len(document)
        if task.page > count:
            return Facts(Outcome.UNFIT, frames=count), b""
        page = document[task.page - 1]
        return _text(page, task, count) if task.format == TEXT else _image(page, task, count)
    except pdfium.PdfiumError as error:
        locked = "assword" in str(error)
        return Facts(Outcome.UNSUPPORTED if locked else Outcome.DAMAGED, detail=" ".join(str(error).split())), b""
    except MemoryError:
        return Facts(Outcome.OUT_OF_MEMORY), b""
    except FAULTS as error:
        return Facts(Outcome.DAMAGED, detail=" ".join(str(error).split()) or type(error).__name__), b""


def _text(page: Any, task: Task, count: int) -> tuple[Facts, bytes]:  # noqa: ANN401
    words = page.get_textpage()
    chars = min(words.count_chars(), MAX_CHARS)
    text = words.get_text_range(0, chars) if chars > 0 else ""
    data = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "").encode("utf-8", "replace")
    more = Flag.MORE_FRAMES if len(data) >= task.max_bytes else Flag.NONE
    kept = data[: task.max_bytes - 1].decode("utf-8", "ignore").encode() + b"\n"  # never empty: it is a result
    return Facts(Outcome.SHOWN, more, "text/plain", 0, 1, 1, 1, 1, count), kept


def _image(page: Any, task: Task, count: int) -> tuple[Facts, bytes]:  # noqa: ANN401
    longest = max(1.0, *map(float, page.get_size()))
    image = page.render(scale=min(MAX_SCALE, task.max_side / longest)).to_pil().convert("RGB")
    out = io.BytesIO()
    image.save(out, "PNG", compress_level=1)
    facts, data = look(out.getvalue(), dataclasses.replace(task, format="PNG"))
    return dataclasses.replace(facts, frames=count), data
