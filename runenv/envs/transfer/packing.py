"""From a host folder to a tar stream. Knows no env and no guest."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Final

from runenv.envs.transfer import tar
from runenv.envs.transfer.folders import Folders, RefusedError, Report, check_path, reason
from runenv.envs.transfer.globs import Verdict, matcher

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from runenv.types import TransferResult

__all__ = ("pack",)

_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_TYPES: Final = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}
_CHANGED: Final = "changed while it was read"
_SECOND: Final = 1_000_000_000  # in nanoseconds
_BLOCK: Final = 512  # unit of `st_blocks`


def pack(
    source: Path,
    write: Callable[[bytes], object],
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    follow_symlinks: bool = False,
    on_bytes: Callable[[int], None] | None = None,
) -> TransferResult:
    """Write a folder of this host as a tar stream.

    Args:
        source: the folder. It may change meanwhile: what vanished or changed is listed as refused.
        write: takes the stream in pieces, mostly of 128 KiB and more; blocks to slow it down, raises to end it.
        include: patterns of `globs.py`.
        exclude: the same.
        follow_symlinks: send what links point to instead of the links.
        on_bytes: called with the content bytes written so far, now and then and at the end.

    Raises:
        OSError: the folder itself cannot be read.
        ValueError: a pattern can match nothing.
    """
    decide = matcher(include, exclude)
    report = Report(on_bytes)
    with Folders(source, follow_symlinks=follow_symlinks) as folders:
        _Packer(folders, tar.Writer(write), decide, report).run()
    return report.result()


class _Level:
    """A folder that is being packed: what is left in it, and its own header until that was written."""

    __slots__ = ("header", "identity", "names", "parts")

    def __init__(self, parts: tuple[str, ...], info: os.stat_result, names: list[str]) -> None:
        self.parts = parts
        self.names = names
        self.identity = info.st_dev, info.st_ino
        self.header: tar.Header | None = _header(tar.FOLDER, "/".join((*parts, "")) or "./", info)


class _Packer:
    """Walks one tree, folders first, names in order."""

    def __init__(
        self, folders: Folders, writer: tar.Writer, decide: Callable[[str, bool], Verdict], report: Report
    ) -> None:
        self._folders = folders
        self._writer = writer
        self._decide = decide
        self._report = report
        self._levels: list[_Level] = []

    def run(self) -> None:
        self._descend(())
        self._write_folders()
        while self._levels:
            level = self._levels[-1]
            if level.names:
                self._entry(level.parts, level.names.pop())
            else:
                self._levels.pop()
        self._writer.end()

    def _entry(self, folder: tuple[str, ...], name: str) -> None:
        parts = (*folder, name)
        path = "/".join(parts)
        try:
            info = os.stat(name, dir_fd=self._folders.open(folder), follow_symlinks=not self._folders.no_follow)
        except OSError as error:
            self._report.refuse(path, reason(error))
            return
        kind = stat.S_IFMT(info.st_mode)
        verdict = self._decide(path, kind == stat.S_IFDIR)
        if verdict is Verdict.LEAVE:
            return
        try:
            check_path(path, parts)
            if kind == stat.S_IFDIR:
                self._folder(parts, verdict)
            elif kind == stat.S_IFREG:
                self._file(parts, path)
            elif kind == stat.S_IFLNK:
                self._link(parts, path, info)
            else:
                raise RefusedError(f"{_TYPES.get(kind, 'an entry of unknown type')} cannot be copied")
        except RefusedError as refused:
            self._report.refuse(path, str(refused))

    def _folder(self, parts: tuple[str, ...], verdict: Verdict) -> None:
        try:
            self._descend(parts)
        except OSError as error:
            raise RefusedError(reason(error)) from error
        if verdict is Verdict.TAKE:
            self._write_folders()

    def _descend(self, parts: tuple[str, ...]) -> None:
        fd = self._folders.open(parts)
        info, names = os.fstat(fd), os.listdir(fd)  # noqa: PTH208 - a Path holds no descriptor
        level = _Level(parts, info, sorted(names, reverse=True))
        if not self._folders.no_follow and any(above.identity == level.identity for above in self._levels):
            raise RefusedError("a link back to a folder that it lies in")
        self._levels.append(level)

    def _write_folders(self) -> None:
        """Write the folders on the way to here that were not needed until now."""
        if self._levels[-1].header is None:
            return
        for level in self._levels:
            if level.header is not None:
                self._writer.entry(level.header)
                level.header = None

    def _file(self, parts: tuple[str, ...], path: str) -> None:
        try:
            fd = os.open(parts[-1], _READ | self._folders.no_follow, dir_fd=self._folders.open(parts[:-1]))
        except OSError as error:
            raise RefusedError(reason(error)) from error
        try:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode):
                raise RefusedError(_CHANGED)
            self._write_folders()
            self._writer.entry(_header(tar.FILE, path, info, size=info.st_size))
            self._report.files += 1
            self._content(fd, info, path)
        finally:
            os.close(fd)

    def _content(self, fd: int, info: os.stat_result, path: str) -> None:
        """Write just as many bytes as the header said, whatever the file does meanwhile."""
        size = left = info.st_size
        sparse = info.st_blocks * _BLOCK < size
        problem = ""
        while left and not problem:
            try:
                hole = _skip_hole(fd, size - left, size) if sparse else 0
                data = os.read(fd, min(tar.CHUNK_BYTES, left - hole))
            except OSError as error:
                problem = reason(error)
                break
            problem = "" if data or hole == left else _CHANGED
            self._writer.zeros(hole)
            self._writer.content(data)
            self._report.moved(hole + len(data))
            left -= hole + len(data)
        self._writer.zeros(left)
        self._writer.pad(size)
        now = os.fstat(fd)
        if (now.st_size, now.st_mtime_ns) != (info.st_size, info.st_mtime_ns):
            problem = problem or _CHANGED
        if problem:
            self._report.refuse(path, problem)

    def _link(self, parts: tuple[str, ...], path: str, info: os.stat_result) -> None:
        try:
            link = os.readlink(parts[-1], dir_fd=self._folders.open(parts[:-1]))
        except OSError as error:
            raise RefusedError(reason(error)) from error
        self._write_folders()
        self._writer.entry(_header(tar.LINK, path, info, link=link))


def _skip_hole(fd: int, start: int, end: int) -> int:
    """Go to the next data of a file; return how many bytes were skipped."""
    try:
        return min(os.lseek(fd, start, os.SEEK_DATA), end) - start
    except OSError as error:
        if error.errno == errno.ENXIO:  # no more data
            return end - start
        raise


def _header(kind: bytes, name: str, info: os.stat_result, *, size: int = 0, link: str = "") -> tar.Header:
    return tar.Header(kind, name, info.st_mode & 0o777, size, info.st_mtime_ns // _SECOND, link)
