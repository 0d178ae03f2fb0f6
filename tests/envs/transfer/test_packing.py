"""What is read from the host, and what is not."""

from __future__ import annotations

import errno
import io
import os
import socket
import tarfile
from typing import TYPE_CHECKING

import pytest

from runenv.envs.transfer import folders, pack
from tests.envs.transfer.trees import packed, roomy_folder, snapshot, unpacked, unprivileged

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from runenv.types import TransferResult


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"exclude": ["*.o", "/build", "logs/"]}, "a.py empty src src/b.py src/build src/build/c.py src/d.txt"),
        ({"include": ["*.py"]}, "a.py build build/e.py src src/b.py src/build src/build/c.py"),
        ({"include": ["src/**"], "exclude": ["build/"]}, "src src/b.py src/d.txt src/logs src/logs/f.txt src/x.o"),
        ({"include": ["nothing"]}, ""),
    ],
)
def test_patterns_choose_what_is_sent(tmp_path: Path, options: dict[str, list[str]], expected: str) -> None:
    """Folders are sent for what is taken from them, empty ones only when nothing is asked for by name."""
    source = tmp_path / "source"
    for name in ("a.py", "src/b.py", "src/build/c.py", "src/d.txt", "src/x.o", "build/e.py", "src/logs/f.txt"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(b"")
    (source / "empty").mkdir()
    stream, result = packed(source, **options)
    unpacked(tmp_path / "target", stream)
    assert set(snapshot(tmp_path / "target")) == set(os.fsencode(expected).split())
    assert result.refused_count == 0


def test_special_bits_and_hard_links_are_not_sent(tmp_path: Path) -> None:
    """A set-uid file loses the bit, a file with two names is two files."""
    source = tmp_path / "source"
    source.mkdir(mode=0o1777)
    (source / "a").write_bytes(b"content")
    (source / "a").chmod(0o6755)
    (source / "b").hardlink_to(source / "a")
    stream, result = packed(source)
    with tarfile.open(fileobj=io.BytesIO(stream)) as archive:
        assert [(info.name, info.mode, info.size) for info in archive][1:] == [("a", 0o755, 7), ("b", 0o755, 7)]
    assert result.files == 2


def test_what_is_no_file_is_refused_and_listed(tmp_path: Path) -> None:
    """FIFOs and sockets are named and never opened, so nothing hangs."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").write_bytes(b"x")
    with socket.socket(socket.AF_UNIX) as server, pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)  # the path of a socket is short
        server.bind("socket")
    (tmp_path / "device").symlink_to("/dev/null")
    _, result = packed(tmp_path, follow_symlinks=True)
    assert {refused.path: refused.reason for refused in result.refused} == {
        "device": "a character device cannot be copied",
        "fifo": "a FIFO cannot be copied",
        "socket": "a socket cannot be copied",
    }
    assert result.refused_count == 3
    assert result.files == 1


def test_what_may_not_be_read_is_refused_and_listed() -> None:
    """A locked file or folder does not stop the others."""
    with roomy_folder() as source:
        (source / "file").write_bytes(b"x")
        (source / "file").chmod(0)
        (source / "folder").mkdir(0)
        (source / "good").write_bytes(b"x")
        with unprivileged(source):
            _, result = packed(source)
            (source / "folder").chmod(0o700)
    assert [(refused.path, refused.reason) for refused in result.refused] == [
        ("file", "permission denied"),
        ("folder", "permission denied"),
    ]
    assert result.files == 1


@pytest.mark.parametrize(("name", "error"), [("missing", FileNotFoundError), ("file", NotADirectoryError)])
def test_a_source_that_is_no_folder_is_an_error(tmp_path: Path, name: str, error: type[OSError]) -> None:
    """It names the path, and nothing was written."""
    (tmp_path / "file").write_bytes(b"x")
    pieces: list[bytes] = []
    with pytest.raises(error) as caught:
        pack(tmp_path / name, pieces.append)
    assert caught.value.filename == str(tmp_path / name)
    assert pieces == []


def during(source: Path, change: Callable[[], object], **options: object) -> tuple[bytes, TransferResult]:
    """Pack, and make a change of the source at the first write, which a file of 300 KB named `0` brings about."""
    (source / "0").write_bytes(bytes(300_000))
    stream = io.BytesIO()

    def write(piece: bytes) -> None:
        if not stream.tell():
            change()
        stream.write(piece)

    result = pack(source, write, **options)  # type: ignore[arg-type]
    return stream.getvalue(), result


def test_an_entry_that_vanishes_is_refused(tmp_path: Path) -> None:
    """It was listed, then it was gone."""
    (tmp_path / "a").write_bytes(b"x")
    _, result = during(tmp_path, (tmp_path / "a").unlink)
    assert [(refused.path, refused.reason) for refused in result.refused] == [("a", "no such file or directory")]


def test_a_file_that_shrinks_is_filled_up_and_noted(tmp_path: Path) -> None:
    """Its size was announced already, so what follows stays readable."""
    (tmp_path / "1").write_bytes(b"next")
    stream, result = during(tmp_path, lambda: os.truncate(tmp_path / "0", 262_144 + 5))
    with tarfile.open(fileobj=io.BytesIO(stream)) as archive:
        assert [(info.name, info.size) for info in archive][1:] == [("0", 300_000), ("1", 4)]
    assert [(refused.path, refused.reason) for refused in result.refused] == [("0", "changed while it was read")]
    assert result.bytes == 262_144 + 5 + 4


def test_a_file_that_grows_is_cut_and_noted(tmp_path: Path) -> None:
    """As many bytes as were announced, no more."""
    (tmp_path / "1").write_bytes(b"next")
    stream, result = during(tmp_path, lambda: os.truncate(tmp_path / "0", 400_000))
    with tarfile.open(fileobj=io.BytesIO(stream)) as archive:
        assert [(info.name, info.size) for info in archive][1:] == [("0", 300_000), ("1", 4)]
    assert [(refused.path, refused.reason) for refused in result.refused] == [("0", "changed while it was read")]


def test_links_are_sent_as_links_wherever_they_point(tmp_path: Path) -> None:
    """Out of the tree, into nothing, in a circle: the target is text."""
    for name, target in (("out", "/etc"), ("up", "../.."), ("dangling", "nowhere"), ("self", "self")):
        (tmp_path / name).symlink_to(target)
    stream, result = packed(tmp_path)
    with tarfile.open(fileobj=io.BytesIO(stream)) as archive:
        assert {(info.name, info.linkname) for info in archive if info.issym()} == {
            ("out", "/etc"),
            ("up", "../.."),
            ("dangling", "nowhere"),
            ("self", "self"),
        }
    assert (result.files, result.refused_count) == (0, 0)


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_link_swapped_in_is_not_followed_out_of_the_tree(tmp_path: Path, outside: Path, kind: str) -> None:
    """Between listing and opening, a folder or file turned into a link to elsewhere."""
    source = tmp_path / "source"
    (source / "1").mkdir(parents=True)
    if kind == "file":
        (source / "1").rmdir()
        (source / "1").write_bytes(b"x")

    def swap() -> None:
        (source / "1").rename(tmp_path / "moved")
        (source / "1").symlink_to(outside if kind == "folder" else outside / "victim")

    stream, _ = during(source, swap)
    assert b"precious" not in stream


def test_a_folder_swapped_while_it_is_walked_is_not_followed(tmp_path: Path, outside: Path) -> None:
    """What is left of its names is not looked up in the place where the link points."""
    source = tmp_path / "source"
    (source / "1" / "sub").mkdir(parents=True)
    (source / "1" / "victim").write_bytes(b"own")

    (source / "1" / "sub" / "x").write_bytes(os.urandom(300_000))
    pieces: list[bytes] = []

    def swap(piece: bytes) -> None:
        pieces.append(piece)
        if b"1/sub/x" in piece:
            (source / "1").rename(tmp_path / "moved")
            (source / "1").symlink_to(outside)

    result = pack(source, swap)
    assert b"precious" not in b"".join(pieces)
    assert [refused.path for refused in result.refused] == ["1/victim"]


def test_links_are_followed_when_asked(tmp_path: Path, outside: Path) -> None:
    """Files and folders outside arrive as such; circles end, and links to nothing are listed."""
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "file").symlink_to(outside / "victim")
    (source / "folder").symlink_to(outside)
    (source / "sub" / "circle").symlink_to("..")
    (source / "dangling").symlink_to("nowhere")
    (source / "self").symlink_to("self")
    stream, result = packed(source, follow_symlinks=True)
    unpacked(tmp_path / "target", stream)
    found = snapshot(tmp_path / "target")
    assert set(found) == {b"file", b"folder", b"folder/victim", b"sub"}
    assert found[b"file"][3] == b"precious"
    assert {refused.path: refused.reason for refused in result.refused} == {
        "dangling": "no such file or directory",
        "self": "too many levels of symbolic links",
        "sub/circle": "a link back to a folder that it lies in",
    }


def test_an_error_of_the_writer_ends_it_and_leaves_no_descriptor(tmp_path: Path) -> None:
    """Also an OSError, which is not mistaken for one of the source."""
    (tmp_path / "big").write_bytes(bytes(1_000_000))

    def write(_: bytes) -> None:
        raise BrokenPipeError(errno.EPIPE, "gone")

    with pytest.raises(BrokenPipeError, match="gone"):
        pack(tmp_path, write)


def test_folders_beyond_any_use_are_refused(tmp_path: Path) -> None:
    """The depth of a tree is bounded, and the walk back up keeps its place."""
    here = tmp_path
    for _ in range(folders.MAX_DEPTH + 1):
        here /= "d"
    here.mkdir(parents=True)
    (here.parent.parent / "file").write_bytes(b"x")
    (tmp_path / "last").write_bytes(b"x")
    stream, result = packed(tmp_path)
    assert [(refused.path.count("/"), refused.reason) for refused in result.refused] == [
        (folders.MAX_DEPTH, "more than 512 folders deep")
    ]
    assert result.files == 2
    target = tmp_path / "target"
    assert unpacked(target, stream).refused == ()
    assert (target / here.parent.relative_to(tmp_path)).is_dir()
