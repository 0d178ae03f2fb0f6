"""Deleting a folder that untrusted commands have filled: never through a link, however deep, whatever its modes.

Used by `local.py` on its temporary folders; knows nothing of envs.
"""

from __future__ import annotations

import os
import secrets
import stat
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ("remove_tree",)

_OWNER_ALL: Final = stat.S_IRWXU


def remove_tree(folder: Path) -> list[tuple[str, OSError]]:
    """Delete a folder, if it is there, and all in it, and return what could not be deleted and why.

    Folders inside are first moved to its top and emptied there, one after the other, so that neither the depth of the
    tree nor the length of a path is of any account.
    """
    failed: list[tuple[str, OSError]] = []
    try:
        top = _enter(str(folder), None)
    except FileNotFoundError:
        return []
    except OSError as error:
        return [(str(folder), error)]
    try:
        found = _empty(top, top, failed)
        while found:
            name = found.pop()
            try:
                inner = _enter(name, top)
                try:
                    found += _empty(inner, top, failed)
                finally:
                    os.close(inner)
                os.rmdir(name, dir_fd=top)
            except OSError as error:
                failed.append((f"{folder}/{name}", error))
    finally:
        os.close(top)
    try:
        folder.rmdir()
    except OSError as error:
        failed.append((str(folder), error))
    return failed


def _empty(folder: int, top: int, failed: list[tuple[str, OSError]]) -> list[str]:
    """Delete the files of an open folder, move its folders to the top, and return the names they have there."""
    moved: list[str] = []
    with os.scandir(folder) as entries:
        listed = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in listed:
        try:
            if not is_folder:
                os.unlink(name, dir_fd=folder)
            elif folder == top:
                moved.append(name)
            else:
                os.close(_enter(name, folder))  # one that may not be written cannot be moved either
                moved_name = secrets.token_hex(16)
                os.rename(name, moved_name, src_dir_fd=folder, dst_dir_fd=top)
                moved.append(moved_name)
        except OSError as error:
            failed.append((name, error))
    return moved


def _enter(name: str, parent: int | None) -> int:
    """Open a folder by its name, with the modes that its deletion takes."""
    pinned = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        here = f"/proc/self/fd/{pinned}"
        mode = os.fstat(pinned).st_mode
        if mode & _OWNER_ALL != _OWNER_ALL:
            os.chmod(here, stat.S_IMODE(mode) | _OWNER_ALL)  # noqa: PTH101 - by descriptor: no link can come between
        return os.open(here, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(pinned)
