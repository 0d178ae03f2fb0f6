"""What this process has open."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

__all__ = ("open_files",)


def open_files(under: Path) -> list[str]:
    """Return the path behind every descriptor that leads into a folder, sorted."""
    paths: list[str] = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one that lists them
            paths.append(str(descriptor.readlink()))
    return sorted(path for path in paths if path == str(under) or path.startswith(f"{under}/"))
