"""What both directions share: walking folders without following links, the bounds of a path, and the account.

Below `packing.py` and `unpacking.py`. Nothing here reads or writes content.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from runenv.types import Refused, TransferResult

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType
    from typing import Self

__all__ = ("MAX_PATH_BYTES", "Folders", "RefusedError", "Report", "check_link", "check_path", "reason")

MAX_PATH_BYTES: Final = 4096
"""Bounds a path in a tree, and the target of a link; the system's own bound for whole paths."""
MAX_DEPTH: Final = 512
"""Bounds folders within folders: what common tools can still delete."""
MAX_REFUSED: Final = 1000
"""Refused entries that are listed; the others are counted."""
REPORT_BYTES: Final = 256 * 1024
"""Content between two reports of progress."""

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class RefusedError(Exception):
    """This entry is left out; says why."""


class Report:
    """Counts what was moved and lists what was not."""

    def __init__(self, on_bytes: Callable[[int], None] | None) -> None:
        self.files = 0
        self._on_bytes = on_bytes
        self._bytes = 0
        self._said = 0
        self._refused: list[Refused] = []
        self._refused_count = 0

    def moved(self, count: int) -> None:
        """Add content bytes, and say so now and then."""
        self._bytes += count
        if self._on_bytes is not None and self._bytes - self._said >= REPORT_BYTES:
            self._said = self._bytes
            self._on_bytes(self._bytes)

    def refuse(self, path: str, reason: str) -> None:
        """Add an entry that was left out."""
        self._refused_count += 1
        if len(self._refused) < MAX_REFUSED:
            self._refused.append(Refused(path[:MAX_PATH_BYTES], reason))

    def result(self) -> TransferResult:
        """Close the account."""
        if self._on_bytes is not None:
            self._on_bytes(self._bytes)
        return TransferResult(self.files, self._bytes, tuple(self._refused), self._refused_count)


class Folders:
    """The folders beneath a root, each opened from its parent by its bare name. Holds two descriptors at most."""

    def __init__(self, root: Path, *, follow_symlinks: bool = False) -> None:
        self.no_follow = 0 if follow_symlinks else os.O_NOFOLLOW
        self._root = os.open(root, _FOLDER)  # the root is the caller's word, links in it too
        self._parts: tuple[str, ...] = ()
        self._fd = self._root

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._rewind()
        os.close(self._root)

    def open(self, parts: tuple[str, ...], *, make: bool = False) -> int:
        """Return the descriptor of a folder, valid until the next call.

        Raises:
            OSError: a name on the way is missing (unless `make`), no folder, or a link.
        """
        known = len(self._parts)
        if parts[:known] != self._parts:
            self._rewind()
            known = 0
        for part in parts[known:]:
            fd = self._enter(part, make=make)
            if self._fd != self._root:
                os.close(self._fd)
            self._fd = fd
            self._parts += (part,)
        return self._fd

    def _enter(self, name: str, *, make: bool) -> int:
        try:
            return os.open(name, _FOLDER | self.no_follow, dir_fd=self._fd)
        except FileNotFoundError:
            if not make:
                raise
        with suppress(FileExistsError):  # somebody else was faster
            os.mkdir(name, dir_fd=self._fd)
        return os.open(name, _FOLDER | self.no_follow, dir_fd=self._fd)

    def _rewind(self) -> None:
        if self._fd != self._root:
            os.close(self._fd)
        self._fd, self._parts = self._root, ()


def reason(error: OSError) -> str:
    """Say why an entry of the host's tree could not be had."""
    return (error.strerror or type(error).__name__).lower()


def check_path(path: str, parts: tuple[str, ...]) -> None:
    """Hold a path to its bounds.

    Raises:
        RefusedError: it climbs, or is too deep or too long.
    """
    if ".." in parts:
        raise RefusedError("a name with `..`")
    if len(parts) > MAX_DEPTH:
        raise RefusedError(f"more than {MAX_DEPTH} folders deep")
    if len(os.fsencode(path)) > MAX_PATH_BYTES - 2:  # a slash and a NUL at its end have room too
        raise RefusedError(f"its path has {MAX_PATH_BYTES} bytes or more")


def check_link(link: str, *, depth: int) -> None:
    """Hold the target of a link to the tree that the link lies in, `depth` folders deep.

    Raises:
        RefusedError: it leads out, or may lead out through another link.
    """
    names = [name for name in link.split("/") if name not in {"", "."}]
    ups = next((index for index, name in enumerate(names) if name != ".."), len(names))
    if not link or len(os.fsencode(link)) >= MAX_PATH_BYTES:
        raise RefusedError("a link with an empty or endless target")
    if link.startswith("/"):
        raise RefusedError("a link to an absolute path")
    if ups > depth:
        raise RefusedError("a link out of the tree")
    if ".." in names[ups:]:
        raise RefusedError("a link with `..` after a name, which may lead out of the tree")
