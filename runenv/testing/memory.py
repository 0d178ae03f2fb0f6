"""`MemoryFiles`: the files of an env as a dictionary, for `scripted.py`. No links, owners or permissions.

The errors are those of an env: the builtins, with `filename` set.
"""

from __future__ import annotations

import errno
import io
import os
import posixpath
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from runenv.envs import transfer
from runenv.envs.transfer import tar
from runenv.types import FileInfo, Refused, TransferResult

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ("MemoryFiles",)

_FOLDER: Final = 0o755
_FILE: Final = 0o644


@dataclass(slots=True)
class _Entry:
    data: bytes | None  # None: a folder
    mode: int
    mtime: int = 0


class MemoryFiles:
    """A tree of files and folders under absolute paths; relative ones start at `workdir`."""

    def __init__(self, workdir: str) -> None:
        self._workdir = workdir
        self._entries = {"/": _Entry(None, _FOLDER)}
        self.mkdir(workdir)

    def contents(self) -> dict[str, bytes]:
        """Return the content of every file by its absolute path."""
        return {path: entry.data for path, entry in sorted(self._entries.items()) if entry.data is not None}

    def read(self, path: str) -> bytes:
        """Return the content of a file."""
        data = self._entry(path).data
        if data is None:
            raise _error(errno.EISDIR, path)
        return data

    def write(self, path: str, data: bytes, *, mode: int | None = None, append: bool = False, mtime: int = 0) -> None:
        """Make, replace or extend a file; its parents are made."""
        absolute = self._absolute(path)
        old = self._entries.get(absolute)
        if old is not None and old.data is None:
            raise _error(errno.EISDIR, path)
        self._go_to(path, make=True)
        before = (old.data or b"") if old is not None and append else b""
        kept = _FILE if old is None else old.mode
        self._entries[absolute] = _Entry(before + data, kept if mode is None else mode, mtime)

    def info(self, path: str) -> FileInfo:
        """Describe an entry."""
        return _info(path, self._entry(path))

    def entries(self, path: str) -> list[FileInfo]:
        """Describe what is in a folder."""
        if self._entry(path).data is not None:
            raise _error(errno.ENOTDIR, path)
        inside = [name for name in self._beneath(path) if posixpath.dirname(name) == self._absolute(path)]
        return [_info(posixpath.basename(name), self._entries[name]) for name in inside]

    def mkdir(self, path: str, *, parents: bool = True, exist_ok: bool = True) -> None:
        """Make a folder."""
        absolute = self._absolute(path)
        entry = self._entries.get(absolute)
        if entry is not None and (entry.data is not None or not exist_ok):
            raise _error(errno.EEXIST, path)
        self._go_to(path, make=parents)
        self._entries.setdefault(absolute, _Entry(None, _FOLDER))

    def remove(self, path: str, *, recursive: bool = False, missing_ok: bool = False) -> None:
        """Delete an entry."""
        absolute = self._absolute(path)
        if missing_ok and absolute not in self._entries:
            return
        self._entry(path)
        inside = self._beneath(path)
        if inside and not recursive:
            raise _error(errno.ENOTEMPTY, path)
        for name in (*inside, absolute):
            del self._entries[name]

    def rename(self, source: str, target: str) -> None:
        """Move an entry; the target's parents are made."""
        old, new = self._absolute(source), self._absolute(target)
        self._entry(source)
        self._go_to(target, make=True)
        moved = {new + name.removeprefix(old): self._entries.pop(name) for name in (old, *self._beneath(source))}
        self._entries.update(moved)

    def upload(
        self, source: Path, target: str, *, include: Sequence[str], exclude: Sequence[str], follow_symlinks: bool
    ) -> TransferResult:
        """Copy a file or a folder of the host to here; links are refused."""
        if not source.is_dir():
            info, data = source.stat(), source.read_bytes()
            self.write(target, data, mode=stat.S_IMODE(info.st_mode) & 0o777, mtime=int(info.st_mtime))
            return TransferResult(1, len(data))
        stream = io.BytesIO()
        sent = transfer.pack(source, stream.write, include=include, exclude=exclude, follow_symlinks=follow_symlinks)
        links = self.unpack(target, stream.getvalue())
        return TransferResult(sent.files, sent.bytes, (*sent.refused, *links), sent.refused_count + len(links))

    def unpack(self, target: str, archive: bytes) -> list[Refused]:
        """Make a folder from a tar archive in the form of `transfer.tar`, and return the links in it."""
        reader, links = tar.Reader(io.BytesIO(archive).read), list[Refused]()
        self.mkdir(target)
        while (header := reader.next()) is not None:
            path = posixpath.join(self._absolute(target), header.name)
            if header.kind == tar.FOLDER:
                self.mkdir(path)
            elif header.kind == tar.FILE:
                self.write(path, b"".join(reader.content()), mode=header.mode, mtime=header.mtime)
            else:
                links.append(Refused(header.name, "a link has no place in memory"))
        return links

    def download(self, source: str, target: Path, *, include: Sequence[str], exclude: Sequence[str]) -> TransferResult:
        """Copy a file or a folder from here to the host."""
        entry = self._entry(source)
        if entry.data is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(entry.data)
            target.chmod(entry.mode)
            return TransferResult(1, len(entry.data))
        archive, _ = self.pack(source, include=include, exclude=exclude)
        return transfer.unpack(target, io.BytesIO(archive).read)

    def pack(self, source: str, *, include: Sequence[str], exclude: Sequence[str]) -> tuple[bytes, TransferResult]:
        """Return a folder as a tar archive, and what is in it."""
        if self._entry(source).data is not None:
            raise _error(errno.ENOTDIR, source)
        decide = transfer.matcher(include, exclude)
        stream = io.BytesIO()
        writer = tar.Writer(stream.write)
        files = size = 0
        left_out: tuple[str, ...] = ()
        for name in self._beneath(source):
            path, found = name.removeprefix(self._absolute(source)).lstrip("/"), self._entries[name]
            verdict = decide(path, found.data is None)
            if verdict is transfer.Verdict.LEAVE or path.startswith(left_out):
                left_out += (f"{path}/",)
            elif found.data is not None:
                writer.entry(tar.Header(tar.FILE, path, found.mode, len(found.data), found.mtime))
                writer.content(found.data)
                writer.pad(len(found.data))
                files, size = files + 1, size + len(found.data)
            elif verdict is transfer.Verdict.TAKE:
                writer.entry(tar.Header(tar.FOLDER, f"{path}/", found.mode, 0, found.mtime))
        writer.end()
        return stream.getvalue(), TransferResult(files, size)

    def _absolute(self, path: str) -> str:
        return "/" + posixpath.normpath(posixpath.join(self._workdir, path)).lstrip("/")

    def _entry(self, path: str) -> _Entry:
        self._go_to(path, make=False)
        entry = self._entries.get(self._absolute(path))
        if entry is None:
            raise _error(errno.ENOENT, path)
        return entry

    def _go_to(self, path: str, *, make: bool) -> None:
        """See that the folder of an entry is there."""
        above, missing = posixpath.dirname(self._absolute(path)), list[str]()
        while above not in self._entries:
            missing.append(above)
            above = posixpath.dirname(above)
        if self._entries[above].data is not None:
            raise _error(errno.ENOTDIR, path)
        if missing and not make:
            raise _error(errno.ENOENT, path)
        self._entries.update({folder: _Entry(None, _FOLDER) for folder in missing})

    def _beneath(self, path: str) -> list[str]:
        folder = self._absolute(path).rstrip("/") + "/"
        return sorted(name for name in self._entries if name.startswith(folder) and name != folder)


def _info(path: str, entry: _Entry) -> FileInfo:
    kind = stat.S_IFDIR if entry.data is None else stat.S_IFREG
    return FileInfo(path, kind | entry.mode, len(entry.data or b""), float(entry.mtime), 1000, 1000)


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
