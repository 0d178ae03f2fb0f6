"""What the model knows of the files of an env: the hash of what it last read or wrote there. `Context.seen` holds it.

`file_edit` and `file_write` refuse to replace what the model does not know. A file too large to be read whole for its
hash is known by its size and time instead.
"""

from __future__ import annotations

import hashlib
import posixpath
from typing import TYPE_CHECKING, Final

from anyio import to_thread

if TYPE_CHECKING:
    from runenv.tools.tool import Context
    from runenv.types import FileInfo

__all__ = ("WHOLE_BYTES", "digest", "knows", "remember", "remember_large", "seen_key")

WHOLE_BYTES: Final = 10 * 1024 * 1024
"""Files up to this size are read whole: they can be edited, and all of them is known."""
HASHED_INLINE_BYTES: Final = 512 * 1024
"""What is hashed on the event loop; more of it goes to a thread."""


def seen_key(context: Context, path: str) -> str:
    """Return the absolute path under which a file is remembered."""
    return posixpath.normpath(posixpath.join(context.env.workdir, path))


async def digest(data: bytes) -> str:
    """Return the SHA-256 of bytes, in hexadecimal digits."""
    if len(data) <= HASHED_INLINE_BYTES:
        return hashlib.sha256(data).hexdigest()
    return await to_thread.run_sync(lambda: hashlib.sha256(data).hexdigest())


async def remember(context: Context, path: str, data: bytes) -> str:
    """Note that the model knows all that is in a file, and return the hash of it."""
    known = await digest(data)
    context.seen[seen_key(context, path)] = known
    return known


def remember_large(context: Context, path: str, info: FileInfo) -> None:
    """Note that the model has looked at a file that is too large to be hashed."""
    context.seen[seen_key(context, path)] = _state(info)


async def knows(context: Context, path: str, info: FileInfo, data: bytes | None) -> bool | None:
    """Say whether a file is what the model knows of it.

    Args:
        context: of the toolset.
        path: of the file.
        info: what it is now.
        data: its content now; None for a file that is too large.

    Returns:
        None when the model knows nothing of it.
    """
    known = context.seen.get(seen_key(context, path))
    if known is None:
        return None
    return known == _state(info) or (data is not None and known == await digest(data))


def _state(info: FileInfo) -> str:
    return f"{info.size} bytes at {info.mtime!r}"
