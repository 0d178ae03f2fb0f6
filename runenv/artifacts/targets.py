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

from runenv.artifacts.backends.files import check_regular, write_all
from runenv.artifacts.backends.threads import Trailing, to_its_end

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from runenv.artifacts.backends.threads import Threads

__all__ = ("write_file",)

UNWRITTEN_BYTES: Final = 2 * 1024 * 1024
"""What may wait for being written while the next chunks come."""


async def write_file(threads: Threads, path: Path, chunks: AsyncIterator[bytes]) -> None:
    """Write a file beside its place, and put it there when it is whole.

    Raises:
        OSError: it cannot be written.
        ArtifactError: what is there is no regular file.
    """
    target = await threads.run(_prepared, path)
    part = target.with_name(f".{token_hex(8)}.part")  # without its name, which may be as long as names can be
    fd = await to_its_end(threads.start(partial(_begin, part, target)), undo=lambda fd: _finish(fd, part, None))
    writing = Trailing(threads, partial(write_all, fd), UNWRITTEN_BYTES)
    is_whole = False
    try:
        try:
            async for chunk in chunks:
                await writing.put(chunk)
            await writing.end()
            is_whole = True
        finally:
            await writing.stop()
    finally:
        await threads.run(_finish, fd, part, target if is_whole else None)


def _prepared(path: Path) -> Path:
    """Return where the file really is to be, once it can be: what a link leads to is replaced, not the link."""
    if (mode := _mode(path)) is not None:
        check_regular(path, mode)
    target = path.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def _mode(path: Path) -> int | None:
    """Return the mode of what is there, if anything is; a loop of links is an `OSError`, as everything else."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None


def _begin(part: Path, target: Path) -> int:
    """Create the file that is not whole yet, for nobody who may not read what it replaces."""
    mode = _mode(target)
    return os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666 if mode is None else mode & 0o777)


def _finish(fd: int, part: Path, target: Path | None) -> None:
    """Close a file and put it in its place, with the mode of what it replaces; or remove it."""
    try:
        os.close(fd)
        if target is not None:
            with suppress(FileNotFoundError):
                shutil.copymode(target, part)
            part.replace(target)
    finally:
        part.unlink(missing_ok=True)
