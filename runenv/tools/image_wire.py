"""What the host and its image worker say to each other: one question, one answer, as frames of fixed form.

The answer comes from a process that has read hostile bytes: it has a fixed size, every number in it is checked, and
what it may carry is bounded by the question. Standard library only, because the worker imports nothing more of us.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import Final, Self

__all__ = ("MAX_DETAIL_BYTES", "Facts", "Flag", "Outcome", "Task", "WireError")

MAX_DETAIL_BYTES: Final = 300
"""Bounds the words of a decoder that an answer repeats."""

_TASK: Final = struct.Struct(">8sBIIQQdQI")
_FACTS: Final = struct.Struct(">BBBBIIIIIHI")
_TYPES: Final = ("", "image/png", "image/jpeg", "image/webp", "image/gif", "text/plain")


class WireError(Exception):
    """The bytes are no frame."""


class Outcome(enum.IntEnum):
    """How it went. Those from `TIMED_OUT` on are said by the host, of a worker that gave no answer."""

    SHOWN = 0
    DAMAGED = enum.auto()
    TOO_MANY_PIXELS = enum.auto()
    UNSUPPORTED = enum.auto()
    OUT_OF_MEMORY = enum.auto()
    UNFIT = enum.auto()
    TIMED_OUT = enum.auto()
    CRASHED = enum.auto()
    NO_WORKER = enum.auto()


class Flag(enum.IntFlag):
    """What was done to the pixels."""

    NONE = 0
    TURNED = 1
    STRETCHED = 2
    FLATTENED = 4
    CMYK = 8
    MORE_FRAMES = 16


@dataclass(frozen=True, slots=True)
class Task:
    """What a worker is asked.

    Attributes:
        format: Pillow's name of the format, the only one that is tried.
        passing: media types of originals that may be handed through.
        max_side: pixels of the longer side of the result.
        max_bytes: of the result.
        max_pixels: that may be decoded.
        max_memory_bytes: address space that the work may take.
        timeout: seconds that the work may take.
        size: bytes of the image, which follow the frame.
        page: of a PDF, from 1; 0 for an image.
    """

    format: str
    passing: frozenset[str]
    max_side: int
    max_bytes: int
    max_pixels: int
    max_memory_bytes: int
    timeout: float
    size: int
    page: int = 0

    FRAME_BYTES = _TASK.size

    def encode(self) -> bytes:
        """Return its frame."""
        passing = sum(1 << at for at, kind in enumerate(_TYPES) if kind in self.passing)
        name = self.format.encode("ascii")
        limits = (self.max_side, self.max_bytes, self.max_pixels, self.max_memory_bytes)
        return _TASK.pack(name, passing, *limits, self.timeout, self.size, self.page)

    @classmethod
    def decode(cls, frame: bytes) -> Self:
        """Read a frame of the host, which is trusted."""
        name, passing, max_side, max_bytes, max_pixels, max_memory_bytes, timeout, size, page = _TASK.unpack(frame)
        types = frozenset(kind for at, kind in enumerate(_TYPES) if passing >> at & 1)
        decoder = name.rstrip(b"\0").decode("ascii")
        return cls(decoder, types, max_side, max_bytes, max_pixels, max_memory_bytes, timeout, size, page)


@dataclass(frozen=True, slots=True)
class Facts:
    """What a worker found.

    Attributes:
        outcome: how it went.
        flags: what was done.
        media_type: of the result; empty when there is none.
        quality: of a result that was made a JPEG to fit the bytes, else 0.
        width: of the image as people see it, upright; 0 when unknown. So are the next three.
        height: the same.
        shown_width: of the result.
        shown_height: the same.
        frames: in the file, or pages.
        detail: what the decoder said, in one line.
    """

    outcome: Outcome
    flags: Flag = Flag.NONE
    media_type: str = ""
    quality: int = 0
    width: int = 0
    height: int = 0
    shown_width: int = 0
    shown_height: int = 0
    frames: int = 0
    detail: str = ""

    FRAME_BYTES = _FACTS.size

    def encode(self, size: int) -> bytes:
        """Return its frame and the detail; `size` bytes of a result will follow."""
        detail = self.detail.encode("utf-8", "replace")[:MAX_DETAIL_BYTES]
        numbers = (self.width, self.height, self.shown_width, self.shown_height, self.frames)
        kinds = (self.outcome, self.flags, _TYPES.index(self.media_type), self.quality)
        return _FACTS.pack(*kinds, *(min(number, 0xFFFF_FFFF) for number in numbers), len(detail), size) + detail

    @classmethod
    def decode(cls, frame: bytes, task: Task) -> tuple[Self, int, int]:
        """Read an answer.

        Returns:
            What it says, and how many bytes of detail and of a result follow.

        Raises:
            WireError: it is none, or none to this question.
        """
        outcome, flags, kind, quality, *numbers, detail_bytes, size = _FACTS.unpack(frame)
        shown = outcome == Outcome.SHOWN
        if outcome > Outcome.UNFIT or kind >= len(_TYPES) or detail_bytes > MAX_DETAIL_BYTES:
            raise WireError("it has values that none may have")
        facts = cls(Outcome(outcome), Flag(flags & 31), _TYPES[kind], quality, *numbers)
        longest = max(facts.shown_width, facts.shown_height)
        if shown != bool(kind) or shown != bool(size) or size > task.max_bytes or longest > task.max_side:
            raise WireError("it does not keep to what was asked")
        if shown and (facts.media_type == "text/plain") != (task.format == "PDFTEXT"):
            raise WireError("it is of another kind than was asked for")
        if shown and not (facts.shown_width and facts.shown_height and facts.frames):
            raise WireError("it shows nothing")
        return facts, detail_bytes, size
