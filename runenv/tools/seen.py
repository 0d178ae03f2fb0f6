"""What the model knows of the files of an env: the hash of what it last read or wrote there. `Context.seen` holds it.

`file_edit` and `file_write` refuse to replace what the model does not know. A file that is no text, or too large to be
read to its end for its hash, is known by its size and time instead. A file is known by where it really is, so that a
link to it is no other file; a hard link is. `survey` reads a text once, in flat memory, for all
that has to be known of it before it is shown or replaced.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from anyio import to_thread

from runenv.tools.encodings import Detector, Encoding
from runenv.tools.opened import HEAD_BYTES
from runenv.tools.paths import real_path

if TYPE_CHECKING:
    from runenv.env import RunEnv
    from runenv.tools.tool import Context
    from runenv.types import FileInfo

__all__ = (
    "WHOLE_BYTES",
    "Survey",
    "at_first_sight",
    "digest",
    "forget",
    "knows",
    "place_of",
    "remember",
    "remember_state",
    "survey",
)

WHOLE_BYTES: Final = 10 * 1024 * 1024
"""Files up to this size are read to their end: they can be edited, and all of them is known."""
HASHED_INLINE_BYTES: Final = 512 * 1024
"""What is hashed on the event loop; more of it goes to a thread."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What one pass over a file tells.

    Attributes:
        sha256: of all of it, in hexadecimal digits; None when it has more than `WHOLE_BYTES`.
        size: bytes that were read.
        head: its first `HEAD_BYTES`.
        encoding: how it is encoded, if it is a text.
    """

    sha256: str | None
    size: int
    head: bytes
    encoding: Encoding


async def survey(env: RunEnv, path: str) -> Survey:
    """Read a file to its end, or to `WHOLE_BYTES`, and keep only its head.

    Raises:
        OSError, EnvError: as `RunEnv.open_read`.
    """
    hashed, detector, head, size = hashlib.sha256(), Detector(), b"", 0
    async with env.open_read(path) as chunks:
        async for chunk in chunks:
            size += len(chunk)
            if len(head) < HEAD_BYTES:
                head += chunk[: HEAD_BYTES - len(head)]
            detector.add(chunk)
            if size > WHOLE_BYTES:
                return Survey(None, size, head, detector.encoding())
            hashed.update(chunk)
    detector.add(b"", final=True)
    return Survey(hashed.hexdigest(), size, head, detector.encoding())


def at_first_sight(head: bytes, size: int) -> Survey:
    """Say of a longer file what its first bytes tell.

    Args:
        head: those bytes.
        size: of the file.
    """
    detector = Detector()
    detector.add(head)
    return Survey(None, size, head, detector.encoding())


async def place_of(context: Context, path: str) -> str:
    """Return the place of a file, under which it is remembered: the same for every name that leads to it.

    Args:
        context: of the toolset.
        path: as `Context.path` returned it.

    Raises:
        ToolError: the path leads through too many links or folders.
    """
    return await real_path(context.env, path)


async def digest(data: bytes) -> str:
    """Return the SHA-256 of bytes, in hexadecimal digits."""
    if len(data) <= HASHED_INLINE_BYTES:
        return hashlib.sha256(data).hexdigest()
    return await to_thread.run_sync(lambda: hashlib.sha256(data).hexdigest())


def remember(context: Context, place: str, sha256: str) -> None:
    """Note that the model knows what is in a file, by the hash of it."""
    context.seen[place] = sha256


def remember_state(context: Context, place: str, info: FileInfo) -> None:
    """Note that the model has looked at a file of which there is no hash."""
    context.seen[place] = _state(info)


def forget(context: Context, place: str) -> None:
    """Note that the model does not know what is in a file."""
    context.seen.pop(place, None)


def knows(context: Context, place: str, info: FileInfo, sha256: str | None) -> bool | None:
    """Say whether a file is what the model knows of it.

    Args:
        context: of the toolset.
        place: of the file.
        info: what it is now.
        sha256: of its content now; None for a file of which there is no hash.

    Returns:
        None when the model knows nothing of it.
    """
    known = context.seen.get(place)
    return None if known is None else known in {_state(info), sha256}


def _state(info: FileInfo) -> str:
    return f"{info.size} bytes at {info.mtime!r}"
