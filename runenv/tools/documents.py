"""What `file_read` says of a file that it cannot show: its type, its size, its first bytes, and what to do with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from runenv.tools.opened import Opened

__all__ = ("show",)

HEX_BYTES: Final = 64
"""Bytes that are shown of a file that nothing else can be shown of."""

_HOW: Final = (
    ("spreadsheetml", "openpyxl or pandas"),
    ("wordprocessingml", "python-docx"),
    ("presentationml", "python-pptx"),
    ("ms-excel", "pandas"),
    ("sqlite3", "the sqlite3 module"),
    ("parquet", "pandas or pyarrow"),
    ("x-npy", "numpy.load"),
    ("audio/", "ffprobe, or a Python package for audio"),
    ("video/", "ffprobe, or ffmpeg for single frames"),
    ("gzip", "the gzip module or zcat"),
    ("bzip2", "the bz2 module or bzcat"),
    ("x-xz", "the lzma module or xzcat"),
    ("zstd", "zstdcat"),
    ("7z", "7z l"),
    ("vnd.rar", "unrar l"),
)
"""By a part of a media type: what reads such a file in the sandbox."""


def show(file: Opened, why: str = "") -> str:
    """Describe a file in one answer.

    Args:
        file: what it is.
        why: a sentence on what was tried with it.
    """
    by_name = next((f", for example with {how}" for part, how in _HOW if part in file.kind), "")
    head = file.head[:HEX_BYTES].hex(" ")
    said = [
        f"[{file.about}]",
        " ".join(
            piece
            for piece in (
                why or "This is binary and not shown as text.",
                file.context.hint("exec", f"Read it in the sandbox with exec{by_name}.").strip(),
                file.context.hint("artifact_save", "To hand it on as it is, use artifact_save.").strip(),
            )
            if piece
        ),
        f"Its first {min(HEX_BYTES, len(file.head))} bytes: {head}",
    ]
    return "\n".join(said)
