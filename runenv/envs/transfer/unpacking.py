"""From a tar stream of unknown origin to a host folder.

Nothing of the stream is trusted, nor that nobody changes the target meanwhile. Each folder is opened from its parent by
its bare name and no link is ever followed, so no name, no link of the stream, and no link put there before or during
the copy can lead a write elsewhere. What cannot or should not be made is left out and listed; a fault of the host (no
permission, a full disk) or of the stream is raised.

Links are made only when they can be seen to stay inside: relative, with `..` at the start only (after another name,
which may be a link, it would mean something else), and no more of them than there are folders above.

There is no bound on the bytes of a tree: whoever pays for the disk sets it in `read`.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from runenv.envs.transfer import tar
from runenv.envs.transfer.folders import Folders, RefusedError, Report, check_link, check_path, reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType

    from runenv.types import TransferResult

__all__ = ("unpack",)

MAX_LATER: Final = 10_000
"""Folders whose mode and time wait until everything in them is there."""
STEP_BYTES: Final = 32 * 1024
"""Content is looked at in steps as long as this; one of zeros is not written but skipped."""
HOLE_BYTES: Final = 4096
"""A shorter step, at the end of a piece, that is still worth a hole."""

_TIMES: Final = range(-(1 << 31), 1 << 33)  # 1901 to 2242; other times become the nearest of them
_OWNER: Final = 0o700
_SPECIAL_BITS: Final = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX
_ZEROS: Final = bytes(STEP_BYTES)
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_TYPES: Final = {b"1": "a hard link", b"3": "a character device", b"4": "a block device", b"6": "a FIFO"}
_UNFIT: Final = {
    errno.ELOOP: "the way to it leads through a link",
    errno.ENOTDIR: "the way to it leads through a link or a file",
    errno.EISDIR: "a folder is in the way",
    errno.ENAMETOOLONG: "its name is too long for this host",
    errno.EINVAL: "this host cannot have such a name",
    errno.EILSEQ: "this host cannot have such a name",
}
"""Errors on the way to an entry that say something about the entry, not about the host."""


def unpack(
    target: Path, read: Callable[[int], bytes], *, on_bytes: Callable[[int], None] | None = None
) -> TransferResult:
    """Make a folder of this host from a tar stream.

    Args:
        target: the folder; made if missing, else merged into: files and links are replaced, folders kept.
        read: returns up to as many bytes of the stream as asked for, none at its end; is called until then.
        on_bytes: called with the content bytes read so far, now and then and at the end.

    Raises:
        OSError: the target cannot be written, with `filename`; or the stream ended early or is none (EIO). What came
            before is kept, the file that was being written is not.
    """
    report = Report(on_bytes)
    try:
        target.mkdir(parents=True)
        made = True
    except FileExistsError:
        made = False
    with Folders(target) as folders:
        _Unpacker(folders, tar.Reader(read), report, target=target, made=made).run()
    return report.result()


class _Unpacker:
    """Makes one tree."""

    def __init__(self, folders: Folders, reader: tar.Reader, report: Report, *, target: Path, made: bool) -> None:
        self._folders = folders
        self._reader = reader
        self._report = report
        self._target = target
        self._made = made
        self._later: dict[tuple[str, ...], tar.Header] = {}

    def run(self) -> None:
        try:
            while (header := self._reader.next()) is not None:
                try:
                    self._entry(header)
                except RefusedError as refused:
                    self._report.refuse(header.name.rstrip("/"), str(refused))
        finally:
            self._finish_folders(())

    def _entry(self, header: tar.Header) -> None:
        parts = tuple([part for part in header.name.split("/") if part not in {"", "."}])
        if header.name.startswith("/"):
            raise RefusedError("an absolute name")
        check_path(header.name, parts)
        if header.kind == tar.FOLDER:
            self._folder(parts, header)
            self._note_special_bits(header)
        elif not parts:
            raise RefusedError("an entry without a name")
        elif header.kind in tar.FILES:
            self._file(parts, header)
            self._note_special_bits(header)
        elif header.kind == tar.LINK:
            self._link(parts, header)
        else:
            raise RefusedError(f"{_TYPES.get(header.kind, 'an entry of unknown type')} is not taken")

    def _note_special_bits(self, header: tar.Header) -> None:
        if header.mode & _SPECIAL_BITS:
            self._report.refuse(header.name.rstrip("/"), "its setuid, setgid or sticky bit was left out")

    def _folder(self, parts: tuple[str, ...], header: tar.Header) -> None:
        if not parts and not self._made:
            return  # the caller's folder keeps its mode and time
        with self._faults(parts, _UNFIT):
            fd = self._folders.open(parts, make=True)
            with suppress(PermissionError):  # not ours; whether it can be written to will be seen
                os.fchmod(fd, header.mode & 0o777 | _OWNER)
        self._later[parts] = header
        if len(self._later) > MAX_LATER:
            self._finish_folders(parts)

    def _finish_folders(self, current: tuple[str, ...]) -> None:
        """Give folders their mode and time, the inner ones first; not yet those that lead to the current one."""
        for parts in sorted(self._later, key=len, reverse=True):
            if current and parts == current[: len(parts)]:
                continue
            header = self._later.pop(parts)
            mode = header.mode & 0o777
            try:
                fd = self._folders.open(parts)
                if mode & _OWNER != _OWNER:  # else it has its mode
                    os.fchmod(fd, mode)
                os.utime(fd, _times(header))
            except OSError as error:
                self._report.refuse(header.name.rstrip("/"), f"its mode and time could not be set: {reason(error)}")

    def _file(self, parts: tuple[str, ...], header: tar.Header) -> None:
        name = written = parts[-1]
        with self._faults(parts, _UNFIT):
            folder = self._folders.open(parts[:-1], make=True)
            try:
                fd = os.open(written, _CREATE, 0o600, dir_fd=folder)
            except FileExistsError:
                _check_replaceable(name, folder)
                written = f".runenv-{secrets.token_hex(8)}"  # the old content is there until the new one is
                fd = os.open(written, _CREATE, 0o600, dir_fd=folder)
        try:
            try:
                self._content(fd, parts, header)
            finally:
                os.close(fd)
            if written != name:
                with self._faults(parts, _UNFIT):
                    os.rename(written, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(written, dir_fd=folder)
            raise
        self._report.files += 1

    def _content(self, fd: int, parts: tuple[str, ...], header: tar.Header) -> None:
        faults = self._faults(parts)
        skipped = False
        for piece in self._reader.content():
            with faults:
                skipped |= _write(fd, piece)
            self._report.moved(len(piece))
        with faults:
            if skipped:
                os.ftruncate(fd, header.size)
            os.fchmod(fd, header.mode & 0o777)
            os.utime(fd, _times(header))

    def _link(self, parts: tuple[str, ...], header: tar.Header) -> None:
        check_link(header.link, depth=len(parts) - 1)
        name = parts[-1]
        with self._faults(parts, _UNFIT):
            folder = self._folders.open(parts[:-1], make=True)
            try:
                os.symlink(header.link, name, dir_fd=folder)
            except FileExistsError:
                _check_replaceable(name, folder)
                os.unlink(name, dir_fd=folder)
                os.symlink(header.link, name, dir_fd=folder)
            os.utime(name, _times(header), dir_fd=folder, follow_symlinks=False)

    def _faults(self, parts: tuple[str, ...], unfit: Mapping[int, str] | None = None) -> _Faults:
        return _Faults(self._target, parts, unfit or {})


class _Faults:
    """Around calls to the host for one entry: an error in `unfit` refuses the entry, others get its path."""

    __slots__ = ("_parts", "_target", "_unfit")

    def __init__(self, target: Path, parts: tuple[str, ...], unfit: Mapping[int, str]) -> None:
        self._target = target
        self._parts = parts
        self._unfit = unfit

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(exc, OSError):
            if (unfit := self._unfit.get(exc.errno or 0)) is not None:
                raise RefusedError(unfit) from exc
            exc.filename, exc.filename2 = str(self._target.joinpath(*self._parts)), None


def _check_replaceable(name: str, folder: int) -> None:
    if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        raise RefusedError(_UNFIT[errno.EISDIR])


def _times(header: tar.Header) -> tuple[int, int]:
    time = min(max(header.mtime, _TIMES.start), _TIMES.stop - 1)
    return time, time


def _write(fd: int, piece: bytes) -> bool:
    """Write all of a piece but long runs of zeros, which become holes; say whether there were any."""
    written = 0
    skipped = False
    for at in range(0, len(piece), STEP_BYTES):
        if piece[at] == 0 and _is_hole(step := piece[at : at + STEP_BYTES]):
            _write_all(fd, piece[written:at])
            os.lseek(fd, len(step), os.SEEK_CUR)
            written = at + len(step)
            skipped = True
    _write_all(fd, piece[written:])
    return skipped


def _is_hole(step: bytes) -> bool:
    return len(step) >= HOLE_BYTES and step == _ZEROS[: len(step)]


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
