"""A file of this host that content is written to: whole or not at all. The counterpart of `sources.py`.

Above is `store.py`; nothing here knows where the bytes come from.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Final

from runenv.artifacts.backends.files import write_all
from runenv.artifacts.backends.threads import Trailing, to_its_end
from runenv.errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from runenv.artifacts.backends.threads import Threads

__all__ = ("write_file",)

UNWRITTEN_BYTES: Final = 2 * 1024 * 1024
"""What may wait for being written while the next chunks come."""
MAX_PART_NAME: Final = 100
"""Characters of a file's name in the name of what is going to be that file."""


async def write_file(threads: Threads, path: Path, chunks: AsyncIterator[bytes]) -> None:
    """Write a file beside its place, and put it there when it is whole.

    Raises:
        OSError: it cannot be written.
        ArtifactError: what is there is no regular file.
    """
    target = await threads.run(_prepared, path)
    part = target.with_name(f".{target.name[:MAX_PART_NAME]}.{token_hex(8)}.part")
    fd = await to_its_end(threads.start(partial(_begin, part)), undo=lambda fd: _finish(fd, part, None))
    writing = Trailing(threads, partial(write_all, fd), UNWRITTEN_BYTES)
    is_whole = False
    try:
        async for chunk in chunks:
            await writing.put(chunk)
        await writing.end()
        is_whole = True
    finally:
        await writing.stop()
        await threads.run(_finish, fd, part, target if is_whole else None)


def _prepared(path: Path) -> Path:
    """Return where the file really is to be, once it can be: what a link leads to is replaced, not the link."""
    target = path.resolve()
    if target.is_dir():
        raise IsADirectoryError(21, os.strerror(21), str(path))
    if target.exists() and not target.is_file():
        raise ArtifactError(f"{str(path)!r} is no regular file")
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def _begin(part: Path) -> int:
    return os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def _finish(fd: int, part: Path, target: Path | None) -> None:
    """Close a file and put it in its place, with the mode of what it replaces; or remove it."""
    os.close(fd)
    try:
        if target is not None:
            with suppress(FileNotFoundError):
                shutil.copymode(target, part)
            part.replace(target)
    finally:
        part.unlink(missing_ok=True)
