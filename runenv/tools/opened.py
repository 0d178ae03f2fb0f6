"""`Opened`: a file of the env as `file_read` has found it, for whatever shows files of its kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from runenv.errors import ToolError

if TYPE_CHECKING:
    from runenv.tools.tool import Context

__all__ = ("HEAD_BYTES", "Opened", "count", "short")

HEAD_BYTES: Final = 64 * 1024
"""What is read of a file that is not read whole, to say what it is."""
SHOWN_PATH: Final = 300
"""Characters of a path that an answer repeats."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A file that is not empty.

    Attributes:
        context: of the toolset.
        path: as the env takes it.
        place: where it really is, as `seen.place_of` returns it.
        name: its last component.
        size: bytes; of a file that does not know its size, as in /proc, what was read.
        kind: its media type, by its content first.
        head: its first bytes, or all of it.
        is_whole: `head` is all of it.
    """

    context: Context
    path: str
    place: str
    name: str
    size: int
    kind: str
    head: bytes
    is_whole: bool

    @property
    def about(self) -> str:
        """What it is, for the first line of an answer."""
        return f"{short(self.path)} | {self.kind} | {count(self.size, 'byte')}"

    async def whole(self, max_bytes: int) -> bytes:
        """Return all of it.

        Raises:
            ToolError: it is larger than `max_bytes`.
        """
        if self.is_whole and len(self.head) <= max_bytes:
            return self.head
        if self.size > max_bytes:
            raise ToolError(
                f"{self.path!r} ({self.kind}) has {self.size:,} bytes, more than the {max_bytes:,} that are looked at."
                + self.context.hint("exec", "Make a smaller file of it with exec, and read that.")
                + self.context.hint("artifact_save", "Or hand it on with artifact_save.")
            )
        return await self.context.env.read(self.path, max_bytes=max_bytes)


def short(path: str) -> str:
    """Return a path in quotes, as an answer repeats it: of a long one the end."""
    return repr(path if len(path) <= SHOWN_PATH else f"...{path[-SHOWN_PATH:]}")


def count(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural where that belongs."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
