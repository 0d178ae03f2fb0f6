"""What this process has open."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

__all__ = ("open_files",)


def open_files() -> list[str]:
    """Return the path of every descriptor of this process."""
    paths: list[str] = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one that lists them
            paths.append(str(descriptor.readlink()))
    return paths
