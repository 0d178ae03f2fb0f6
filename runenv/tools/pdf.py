"""Pages of a PDF for `file_read`: as text, or as images of them.

The pages are made by the workers that decode images (`image_pool.py`), one after the other, each with limits of its
own; without the optional pypdfium2 a PDF is described like any other binary file. Nothing here parses a PDF.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from runenv.artifacts.media import HEAD_BYTES, media_type
from runenv.errors import ToolError
from runenv.tools import documents
from runenv.tools.image_wire import Flag, Outcome, Task
from runenv.tools.images import shared_workers
from runenv.tools.opened import count, short
from runenv.tools.text import ANSWER_CHARS, FRAME_CHARS, visible
from runenv.types import ImagePart, TextPart

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runenv.tools.image_wire import Facts
    from runenv.tools.images import ImageLimits
    from runenv.tools.opened import Opened
    from runenv.types import Part

__all__ = ("parse_pages", "show")

MAX_PAGES: Final = 20
"""Pages of one answer."""
DEFAULT_IMAGES: Final = 5
"""Pages that are shown as images when the model names none: images are dear."""
MAX_PDF_BYTES: Final = 32 * 1024 * 1024
"""Bytes of a PDF that is looked at: as much as vendors take."""
IMAGE_SIDE: Final = 1_600
"""Pixels of the longer side of a page: small print can be read, and vendors scale down what is larger."""
IMAGES_BYTES: Final = 12_000_000
"""Of all the images of one answer, so that they fit a request together."""
PAGE_SECONDS: Final = 15.0
"""Bounds the work on one page."""
ANSWER_SECONDS: Final = 45.0
"""After which no further page is begun."""
_RANGE: Final = re.compile(r"(\d{1,6})(?:-(\d{1,6})?)?")


def parse_pages(text: str) -> list[int]:
    """Read "1-5,8": pages from 1, in this order, none twice. An open end, as in "3-", takes as many as are allowed.

    Raises:
        ToolError: it is not of this form, or too many.
    """
    pages: dict[int, None] = {}
    for piece in re.split(r"[,;\s]+", re.sub(r"\s*-\s*", "-", text.strip())):
        found = _RANGE.fullmatch(piece)
        first = int(found[1]) if found else 0
        if found is None or first < 1:
            raise ToolError(f'The pages {text[:80]!r} are not understood: write them as in "1-5,8", counted from 1.')
        last = int(found[2]) if found[2] else first + MAX_PAGES - 1 if "-" in piece else first
        if last < first:
            raise ToolError(f"The pages {piece!r} run backwards: write the lower number first.")
        if last - first >= MAX_PAGES or len(pages) + last - first >= MAX_PAGES:
            raise ToolError(
                f"At most {MAX_PAGES} pages are shown in one answer: ask for fewer, then for the next ones."
            )
        pages.update(dict.fromkeys(range(first, last + 1)))
    return list(pages)


@dataclass(slots=True)
class _Answer:
    """What was found of the pages."""

    parts: list[Part] = field(default_factory=list)
    shown: list[int] = field(default_factory=list)
    empty: list[int] = field(default_factory=list)
    total: int = 0
    chars: int = 0
    next: int | None = None
    why: str = ""


async def show(file: Opened, pages: str, *, as_image: bool) -> str | tuple[Part, ...]:
    """Return pages of a PDF, or a description of one that cannot be shown.

    Raises:
        ToolError: the pages are not there, or the file is too large.
    """
    wanted = parse_pages(pages) if pages.strip() else list(range(1, (DEFAULT_IMAGES if as_image else MAX_PAGES) + 1))
    data = await file.whole(MAX_PDF_BYTES)
    answer = _Answer()
    until = time.monotonic() + ANSWER_SECONDS
    for at, number in enumerate(wanted):
        if answer.total and number > answer.total:
            continue
        if time.monotonic() > until:
            answer.next, answer.why = number, "there was no time for more"
            break
        task = _task(file.context.image_limits, data, number, len(wanted), as_image=as_image)
        facts, made = await (file.context.workers or shared_workers()).run(task, data)
        answer.total = facts.frames or answer.total
        if not answer.total and facts.outcome is not Outcome.SHOWN:
            return _failed(file, facts)
        if not _add(answer, number, facts, made, wanted[at:]):
            break
    if not answer.shown:
        raise ToolError(f"{short(file.path)} has {count(answer.total, 'page')}: there is no page {wanted[0]:,}.")
    return _worded(file, answer, wanted, as_image=as_image)


def _task(limits: ImageLimits, data: bytes, page: int, pages: int, *, as_image: bool) -> Task:
    if as_image:
        kind, max_bytes = "PDF", min(limits.max_bytes, IMAGES_BYTES // pages)
    else:
        kind, max_bytes = "PDFTEXT", 4 * ANSWER_CHARS
    return Task(
        kind,
        limits.passing,
        min(limits.max_side, IMAGE_SIDE),
        max_bytes,
        limits.max_pixels,
        limits.max_memory_bytes,
        min(limits.timeout, PAGE_SECONDS),
        len(data),
        page,
    )


def _add(answer: _Answer, number: int, facts: Facts, made: bytes, left: list[int]) -> bool:
    """Take a page; false when there is no room for it."""
    if number > answer.total > 0:
        return True
    if facts.outcome is not Outcome.SHOWN:
        answer.parts.append(TextPart(f"--- page {number} cannot be shown: {_reason(facts)} ---"))
    elif facts.media_type == "text/plain":
        text = visible(made.decode("utf-8", "replace").strip("\n"))
        if not text.strip():
            answer.empty.append(number)
        room = ANSWER_CHARS - FRAME_CHARS - answer.chars
        if len(text) > room and answer.shown:
            answer.next, answer.why = left[0], f"an answer has at most {ANSWER_CHARS:,} characters"
            return False
        cut = len(text) > room or Flag.MORE_FRAMES in facts.flags
        mark = f"\n[cut: page {number} has more than {room:,} characters]" if cut else ""
        answer.parts.append(TextPart(f"--- page {number} ---\n{text[:room]}{mark}"))
        answer.chars += len(text) + 24
    elif media_type(made[:HEAD_BYTES], None, "") == facts.media_type:
        answer.parts += (TextPart(f"[page {number}:]"), ImagePart(made, facts.media_type))
    else:
        answer.parts.append(TextPart(f"--- page {number} cannot be shown: its decoder failed ---"))
    answer.shown.append(number)
    return True


def _reason(facts: Facts) -> str:
    reasons = {
        Outcome.TIMED_OUT: "it takes too long",
        Outcome.OUT_OF_MEMORY: "it takes too much memory",
        Outcome.NO_WORKER: "try again later",
        Outcome.UNFIT: "its image is too large",
    }
    return reasons.get(facts.outcome) or facts.detail or "the decoder failed on it"


def _failed(file: Opened, facts: Facts) -> str:
    """Say why there are no pages at all."""
    if facts.outcome is Outcome.UNSUPPORTED and "installed" in facts.detail:
        why = "PDFs cannot be shown here: the extra pdf of runenv is not installed."
        return documents.show(file, why)
    if facts.outcome is Outcome.UNSUPPORTED:
        return documents.show(file, "This PDF is encrypted and cannot be shown without its password.")
    if facts.outcome is Outcome.DAMAGED:
        return documents.show(file, f"This PDF is damaged and cannot be shown ({facts.detail}).")
    return documents.show(file, f"This PDF cannot be shown: {_reason(facts)}.")


def _worded(file: Opened, answer: _Answer, wanted: list[int], *, as_image: bool) -> tuple[Part, ...]:
    """Put the words around the pages."""
    head = f"[{file.about} | {count(answer.total, 'page')} | shown: {_ranges(answer.shown)}]"
    hints: list[str] = []
    if answer.why:
        hints.append(f"Not all pages are shown: {answer.why}.")
    follows = answer.next if answer.next is not None else wanted[-1] + 1
    if follows <= answer.total:
        last = min(answer.total, follows + (DEFAULT_IMAGES if as_image else MAX_PAGES) - 1)
        hints.append(f'For what follows: pages="{follows}-{last}".')
    if missing := [number for number in wanted if number > answer.total and wanted != list(range(1, len(wanted) + 1))]:
        hints.append(f"There is no page {_ranges(missing)}.")
    if answer.empty and not as_image:
        hints.append(f'Page {_ranges(answer.empty)} has no text: look at it with show_as="image".')
    tail = [TextPart(f"[{' '.join(hints)}]")] if hints else []
    if as_image:
        return (TextPart(head), *answer.parts, *tail)
    texts = [part.text for part in (TextPart(head), *answer.parts, *tail) if isinstance(part, TextPart)]
    return (TextPart("\n".join(texts)),)


def _ranges(numbers: Iterable[int]) -> str:
    """Return numbers as in "1-5, 8"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
