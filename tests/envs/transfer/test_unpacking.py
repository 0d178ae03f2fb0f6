"""What is on the host already, and what the host cannot do."""

from __future__ import annotations

import errno
import io
import os
import resource
import shutil
from typing import TYPE_CHECKING

import pytest

from runenv.envs.transfer import unpack
from tests.envs.transfer.trees import (
    END,
    entry,
    folder,
    in_steps,
    link,
    packed,
    roomy_folder,
    snapshot,
    unpacked,
    unprivileged,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_a_second_download_replaces_files_and_keeps_what_else_is_there(tmp_path: Path) -> None:
    """The old content is there until the new one is whole."""
    target = tmp_path / "target"
    (target / "d").mkdir(parents=True)
    (target / "d" / "a").write_bytes(b"old")
    (target / "d" / "other").write_bytes(b"kept")
    seen: list[bytes] = []
    whole = folder("d") + entry("d/a", content=b"new" * 1000, mode=0o600)
    unpack(target, in_steps(whole[:2000], lambda: seen.append((target / "d" / "a").read_bytes()), whole[2000:] + END))
    assert seen == [b"old"]
    assert (target / "d" / "a").read_bytes() == b"new" * 1000
    assert (target / "d" / "a").stat().st_mode & 0o777 == 0o600
    assert {path.name for path in (target / "d").iterdir()} == {"a", "other"}


def test_a_stream_that_ends_early_leaves_the_old_file(tmp_path: Path) -> None:
    """And nothing of the new one."""
    target = tmp_path / "target"
    target.mkdir()
    (target / "a").write_bytes(b"old")
    with pytest.raises(OSError, match="ended early"):
        unpacked(target, entry("a", content=b"new" * 1000)[:2000])
    assert [(path.name, path.read_bytes()) for path in target.iterdir()] == [("a", b"old")]


def test_folders_and_files_are_not_exchanged(tmp_path: Path) -> None:
    """A folder is never deleted for a file or a link, nor a file for a folder."""
    target = tmp_path / "target"
    (target / "folder").mkdir(parents=True)
    (target / "file").write_bytes(b"x")
    os.mkfifo(target / "fifo")
    stream = entry("folder") + link("folder", "a") + folder("file") + entry("file/x") + entry("fifo", content=b"x")
    result = unpacked(target, stream + END)
    assert [(refused.path, refused.reason) for refused in result.refused] == [
        ("folder", "a folder is in the way"),
        ("folder", "a folder is in the way"),
        ("file", "the way to it leads through a link or a file"),
        ("file/x", "the way to it leads through a link or a file"),
    ]
    assert (target / "folder").is_dir()
    assert (target / "fifo").read_bytes() == b"x"


def test_an_existing_target_keeps_its_own_mode(tmp_path: Path) -> None:
    """The entry of the root is for a target that was made for it; a link to a folder is the caller's choice."""
    (tmp_path / "real").mkdir(mode=0o711)
    (tmp_path / "target").symlink_to("real")
    unpacked(tmp_path / "target", folder("./", mode=0o700) + entry("a") + END)
    assert (tmp_path / "real").stat().st_mode & 0o777 == 0o711
    assert (tmp_path / "real" / "a").exists()


def test_a_target_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    """It stays as it was."""
    (tmp_path / "target").write_bytes(b"x")
    with pytest.raises(NotADirectoryError):
        unpacked(tmp_path / "target", entry("a") + END)
    assert (tmp_path / "target").read_bytes() == b"x"


def test_folders_without_an_entry_are_made(tmp_path: Path) -> None:
    """A stream need not name them."""
    unpacked(tmp_path / "target", entry("a/b/c", content=b"x") + END)
    assert (tmp_path / "target" / "a" / "b" / "c").read_bytes() == b"x"


@pytest.mark.parametrize("bound", [2, 10_000])
def test_folders_get_their_modes_and_times_last(monkeypatch: pytest.MonkeyPatch, bound: int) -> None:
    """Read-only folders are filled first; when too many wait, those that are done get theirs early."""
    monkeypatch.setattr("runenv.envs.transfer.unpacking.MAX_LATER", bound)
    with roomy_folder() as place, unprivileged(place):
        source, target = place / "source", place / "target"
        for name in ("a/b/c", "a/d", "e/f"):
            (source / name).mkdir(parents=True)
            (source / name / "file").write_bytes(b"x")
        made = [source, *source.rglob("*")]
        for path in reversed(made):
            path.chmod(0o555)
            os.utime(path, (1_000_000_000, 1_000_000_000))
        stream, _ = packed(source)
        for _ in range(2):  # also over what is there
            assert unpacked(target, stream).refused_count == 0
            assert snapshot(target) == snapshot(source)
        for path in [*made, target, *target.rglob("*")]:
            path.chmod(0o700)
        shutil.rmtree(source)
        shutil.rmtree(target)


def test_a_target_that_may_not_be_written_is_an_error_with_its_path() -> None:
    """It is the host's fault, not the entry's."""
    with roomy_folder() as place:
        (place / "target" / "d").mkdir(parents=True)
        (place / "target" / "d").chmod(0o555)
        with unprivileged(place), pytest.raises(PermissionError) as caught:
            unpacked(place / "target", entry("d/a") + END)
        assert caught.value.filename == str(place / "target" / "d" / "a")


def test_a_full_disk_is_an_error_with_its_path_and_the_part_is_removed(tmp_path: Path) -> None:
    """The system's own limit on file sizes stands for it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(OSError, match="large") as caught:
            unpacked(tmp_path / "target", entry("a", content=b"x") + entry("b", content=b"x" * 300_000) + END)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.filename == str(tmp_path / "target" / "b")
    assert [path.name for path in (tmp_path / "target").iterdir()] == ["a"]


def test_an_error_of_the_reader_passes_through(tmp_path: Path) -> None:
    """Whatever it is: the partial file goes, nothing is mistaken for a fault of the host."""

    def fail() -> None:
        raise NotADirectoryError(errno.ENOTDIR, "of the env", "/workspace/x")

    with pytest.raises(NotADirectoryError) as caught:
        unpack(tmp_path / "target", in_steps(entry("a", content=b"x" * 5000)[:2000], fail))
    assert caught.value.filename == "/workspace/x"
    assert list((tmp_path / "target").iterdir()) == []


def test_long_runs_of_zeros_become_holes(tmp_path: Path) -> None:
    """At the start, in the middle and at the end; the content is the same."""
    content = bytes(1 << 20) + b"x" * 100_000 + bytes(5 << 20) + b"y" + bytes(3 << 20)
    waiting = io.BytesIO(entry("a", content=content) + END)
    result = unpack(tmp_path / "target", lambda count: waiting.read(min(count, 100_001)))
    assert (tmp_path / "target" / "a").read_bytes() == content
    assert result.bytes == len(content)
    assert (tmp_path / "target" / "a").stat().st_blocks * 512 < 2 << 20


def test_a_stream_in_single_bytes_is_read_alike(tmp_path: Path) -> None:
    """However it is cut, also in headers and long names."""
    stream = io.BytesIO(folder("d" * 200) + entry("d" * 200 + "/a", content=b"x" * 700) + link("l", "d") + END)
    result = unpack(tmp_path / "target", lambda _: stream.read(1))
    assert (result.files, result.bytes) == (1, 700)
    assert (tmp_path / "target" / ("d" * 200) / "a").read_bytes() == b"x" * 700
