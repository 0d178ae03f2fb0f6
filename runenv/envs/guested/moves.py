"""Uploads and downloads: files of this host to and from a guest, as streams of flat memory.

Single files are sent as they are; folders go through `transfer.py` as tar streams. Both run in a worker thread, and so
does the caller's progress function. Used by `env.py`, which decides which of the two a path is.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from runenv.envs import transfer
from runenv.envs.guested.bridge import receive_into, send_from
from runenv.envs.guested.replies import MAX_REFUSED, entry_of, number, refused_of
from runenv.envs.guested.requests import path_bytes, pattern_fields
from runenv.guest.frames import FrameError, Tag, Verb
from runenv.types import Refused, TransferResult

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from runenv.envs.guested.replies import Entry
    from runenv.envs.guested.requests import Request
    from runenv.guest.frames import Fields
    from runenv.guest.link import Link
    from runenv.types import Progress

__all__ = ("download_file", "download_tree", "stat_source", "upload_file", "upload_tree")

P = ParamSpec("P")
T = TypeVar("T")

_PIECE_BYTES: Final = 256 * 1024
_HOLE_BYTES: Final = 4096
"""Zeros of at least this length are left out of a file on the host, which then takes no room for them."""
_PERMISSIONS: Final = 0o777
_SPECIAL_BITS: Final = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX
_TYPES: Final = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


def stat_source(path: Path) -> os.stat_result:
    """Describe what is to be uploaded. Blocks on the disk.

    Raises:
        OSError: it is not there, or is neither a file nor a folder.
    """
    info = path.stat()
    if not stat.S_ISDIR(info.st_mode):
        _refuse_special(path, info.st_mode)
    return info


async def upload_file(
    link: Link, source: Path, info: os.stat_result, target: str, progress: Progress | None
) -> TransferResult:
    """Send a file; its mode and time, which `info` holds, go with it."""
    fields: Request = [
        (Tag.PATH, path_bytes(target)),
        (Tag.MODE, info.st_mode & _PERMISSIONS),
        (Tag.MTIME_NS, info.st_mtime_ns),
    ]

    def produce(write: Callable[[bytes], None]) -> int:
        # Non-blocking and checked again: what was a file may have become a FIFO since.
        descriptor = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            _refuse_special(source, os.fstat(descriptor).st_mode)
            done = 0
            while piece := _named(source, os.read, descriptor, _PIECE_BYTES):
                write(piece)
                done += len(piece)
                if progress is not None:
                    progress(done, max(done, info.st_size))
            return done
        finally:
            os.close(descriptor)

    with link.call(Verb.PUT, fields) as call:
        sent = await send_from(call, produce)
        call.end()
        written = number(await call.result(), Tag.TOTAL)
    if written != sent:
        raise FrameError(f"it wrote {written} bytes of {sent}")
    return TransferResult(1, sent)


async def upload_tree(
    link: Link,
    source: Path,
    target: str,
    *,
    include: Sequence[str],
    exclude: Sequence[str],
    follow_symlinks: bool,
    progress: Progress | None,
) -> TransferResult:
    """Send a folder."""

    def produce(write: Callable[[bytes], None]) -> TransferResult:
        return transfer.pack(
            source,
            write,
            include=include,
            exclude=exclude,
            follow_symlinks=follow_symlinks,
            on_bytes=_without_total(progress),
        )

    with link.call(Verb.TREE_PUT, [(Tag.PATH, path_bytes(target))]) as call:
        packed = await send_from(call, produce)
        call.end()
        fields = await call.result()
    refused, count = refused_of(fields)
    return TransferResult(
        number(fields, Tag.FILES),
        number(fields, Tag.TOTAL),
        (*packed.refused, *refused)[:MAX_REFUSED],
        packed.refused_count + count,
    )


async def download_file(link: Link, source: str, target: Path, size: int, progress: Progress | None) -> TransferResult:
    """Fetch a file to a temporary one beside its target, and put it in place when it is whole.

    A link at the target is replaced, not followed. `size` is what to expect, 0 when that is not known.
    """
    incoming = _Incoming(source, target, size, progress)
    with link.call(Verb.GET, [(Tag.PATH, path_bytes(source))]) as call:
        return await receive_into(call, incoming.write, on_result=incoming.take_result)


async def download_tree(
    link: Link,
    source: str,
    target: Path,
    *,
    include: Sequence[str],
    exclude: Sequence[str],
    progress: Progress | None,
) -> TransferResult:
    """Fetch a folder."""
    fields = [(Tag.PATH, path_bytes(source)), *pattern_fields(include, exclude)]

    def consume(read: Callable[[int], bytes]) -> TransferResult:
        return transfer.unpack(target, read, on_bytes=_without_total(progress))

    with link.call(Verb.TREE_GET, fields) as call:
        unpacked = await receive_into(call, consume)
        refused, count = refused_of(await call.result())
    return TransferResult(
        unpacked.files,
        unpacked.bytes,
        (*refused, *unpacked.refused)[:MAX_REFUSED],
        unpacked.refused_count + count,
    )


@dataclass(slots=True)
class _Incoming:
    """A file on its way to the host; `entry` and `total` are there before its last `read` returns."""

    source: str
    target: Path
    size: int
    progress: Progress | None
    entry: Entry | None = None
    total: int = 0

    def take_result(self, fields: Fields) -> None:
        self.entry, self.total = entry_of(fields), number(fields, Tag.TOTAL)

    def write(self, read: Callable[[int], bytes]) -> TransferResult:
        """Write the file; blocks, for a worker thread."""
        target = self.target
        target.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            mode = target.lstat().st_mode
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
            if not stat.S_ISLNK(mode):
                _refuse_special(target, mode)
        temporary = target.with_name(f".{secrets.token_hex(8)}.part")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            try:
                done = self._copy(read, descriptor)
                entry = self._finish(descriptor, done)
            finally:
                os.close(descriptor)
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        special = entry.mode & _SPECIAL_BITS
        refused = (Refused(self.source, "its setuid, setgid or sticky bit was left out"),) if special else ()
        return TransferResult(1, done, refused, len(refused))

    def _copy(self, read: Callable[[int], bytes], descriptor: int) -> int:
        done = 0
        while piece := read(_PIECE_BYTES):
            done += len(piece)
            is_hole = len(piece) >= _HOLE_BYTES and not piece.strip(b"\0")
            if is_hole:
                os.lseek(descriptor, done, os.SEEK_SET)
            rest = memoryview(b"" if is_hole else piece)
            while rest:
                rest = rest[_named(self.target, os.write, descriptor, rest) :]
            if self.progress is not None:
                self.progress(done, max(done, self.size) if self.size else None)
        return done

    def _finish(self, descriptor: int, done: int) -> Entry:
        if self.entry is None or self.total != done:
            raise FrameError(f"it sent {done} bytes and says {self.total}")
        os.ftruncate(descriptor, done)  # it may end with a hole
        os.fchmod(descriptor, self.entry.mode & _PERMISSIONS)
        os.utime(descriptor, ns=(self.entry.mtime_ns, self.entry.mtime_ns))
        return self.entry


def _refuse_special(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        what = _TYPES.get(stat.S_IFMT(mode), "no file")
        raise OSError(errno.EINVAL, f"it is {what}", str(path))


def _named(path: Path, function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """Call a function of the system that takes a descriptor, and say in its error which file that was."""
    try:
        return function(*arguments, **options)
    except OSError as error:
        error.filename = str(path)
        raise


def _without_total(progress: Progress | None) -> Callable[[int], None] | None:
    return None if progress is None else lambda done: progress(done, None)
