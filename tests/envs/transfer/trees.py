"""What the tests of transfers share: trees on disk, and streams made by hand."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from runenv.envs.transfer import pack, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from runenv.types import TransferResult

NOBODY = 65534


def packed(source: Path, **options: object) -> tuple[bytes, TransferResult]:
    """Pack into memory."""
    stream = io.BytesIO()
    result = pack(source, stream.write, **options)  # type: ignore[arg-type]
    return stream.getvalue(), result


def unpacked(target: Path, stream: bytes) -> TransferResult:
    """Unpack from memory."""
    return unpack(target, io.BytesIO(stream).read)


def entry(name: str, kind: bytes = tarfile.REGTYPE, content: bytes = b"", **fields: object) -> bytes:
    """Make one entry as any program may: by the standard library, nothing checked."""
    info = tarfile.TarInfo(name)
    info.type, info.size, info.mode = kind, len(content), 0o755 if kind == tarfile.DIRTYPE else 0o644
    for field, value in fields.items():
        setattr(info, field, value)
    header = info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
    return header + content + bytes(-len(content) % 512)


def folder(name: str, **fields: object) -> bytes:
    """Make the entry of a folder."""
    return entry(name, tarfile.DIRTYPE, b"", **fields)


def link(name: str, target: str) -> bytes:
    """Make the entry of a symbolic link."""
    return entry(name, tarfile.SYMTYPE, linkname=target)


def patched(block: bytes, offset: int, field: bytes) -> bytes:
    """Change bytes of a header and make its checksum right again."""
    block = block[:offset] + field + block[offset + len(field) :]
    total = sum(block[:148]) + sum(block[156:512]) + 256
    return block[:148] + b"%06o\0 " % total + block[156:]


END = bytes(1024)


def snapshot(root: Path) -> dict[bytes, tuple[object, ...]]:
    """Describe everything beneath a folder."""
    found: dict[bytes, tuple[object, ...]] = {}
    base = os.fsencode(root)
    for where, names, files in os.walk(base):
        for name in names + files:
            path = os.path.join(where, name)  # noqa: PTH118 - names are bytes
            info = os.lstat(path)
            kind = stat.S_IFMT(info.st_mode)
            what: object = None
            if kind == stat.S_IFLNK:
                what = os.readlink(path)  # noqa: PTH115
            elif kind == stat.S_IFREG:
                what = Path(os.fsdecode(path)).read_bytes()
            mode = stat.S_IMODE(info.st_mode) if kind != stat.S_IFLNK else None
            found[os.path.relpath(path, base)] = (kind, mode, int(info.st_mtime // 1), what)
    return found


@contextmanager
def roomy_folder() -> Generator[Path]:
    """Give a folder that another user may enter, deleted with everything in it."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


@contextmanager
def unprivileged(place: Path) -> Generator[None]:
    """Be a user whom permission bits hold back, and own a place: root becomes nobody for the while."""
    if os.geteuid() != 0:
        yield
        return
    for path in (place, *place.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def open_descriptors() -> int:
    """Count the descriptors of this process."""
    return len(os.listdir("/dev/fd"))  # noqa: PTH208 - not a Path's business


def in_steps(*steps: bytes | Callable[[], object]) -> Callable[[int], bytes]:
    """Make a reader that gives out bytes, and does the things between them when it is asked for the next ones."""
    waiting = iter(steps)

    def read(_: int) -> bytes:
        for step in waiting:
            if isinstance(step, bytes):
                return step
            step()
        return b""

    return read
