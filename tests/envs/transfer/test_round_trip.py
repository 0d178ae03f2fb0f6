"""What goes out comes back the same, and others can read it."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runenv.envs.transfer import pack, unpack
from tests.envs.transfer.trees import END, entry, packed, snapshot, unpacked

GIB = 1 << 30
BYTES = st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF)  # those that are no UTF-8, as `os.fsdecode` has them
TEXT = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]) | BYTES, min_size=1, max_size=30)
ODD = st.sampled_from(["a", "-rf", " ", "a\nb", "~", "\udcff", "é", "x" * 255, "'\"", "*", "con"])
NAMES = TEXT.filter(lambda name: name not in {".", ".."}) | ODD
MODES = st.integers(0, 0o777)
FILES = st.tuples(st.just("file"), st.binary(max_size=3000), MODES)
LINKS = st.tuples(st.just("link"), st.sampled_from(["a", "b/c", "./x", "é\udcfe", "y" * 300]), st.just(0))


def folders_of(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """Give folders with such content."""
    return st.dictionaries(NAMES, FILES | LINKS | st.tuples(st.just("folder"), inner, MODES), max_size=4)


TREES = st.recursive(st.dictionaries(NAMES, FILES | LINKS, max_size=4), folders_of, max_leaves=12)


def plant(where: Path, tree: dict[str, tuple[str, object, int]]) -> None:
    """Make a tree of `TREES`; the owner can read everything."""
    for number, (name, (kind, what, mode)) in enumerate(tree.items()):
        path = where / name
        if len(os.fsencode(name)) > 255:
            continue
        if kind == "link":
            path.symlink_to(str(what))
        elif kind == "file":
            assert isinstance(what, bytes)
            path.write_bytes(what)
            path.chmod(mode | 0o400)
        else:
            assert isinstance(what, dict)
            path.mkdir()
            plant(path, what)
            path.chmod(mode | 0o500)
        time = 1_000_000_000 + number * 86_400
        os.utime(path, (time, time), follow_symlinks=False)


@settings(deadline=None)
@given(TREES)
def test_a_tree_comes_back_as_it_was(tree: dict[str, tuple[str, object, int]]) -> None:
    """Names of any bytes, empty folders, links, modes, times and contents survive."""
    with tempfile.TemporaryDirectory() as name:
        source, target = Path(name, "source"), Path(name, "target")
        source.mkdir()
        plant(source, tree)
        before = snapshot(source)
        stream, sent = packed(source)
        received = unpacked(target, stream)
        assert snapshot(target) == before
        assert sent == received
        assert sent.refused == ()
        assert sent.files == sum(1 for kind, *_ in before.values() if kind == stat.S_IFREG)


TYPES = {tarfile.REGTYPE: stat.S_IFREG, tarfile.DIRTYPE: stat.S_IFDIR, tarfile.SYMTYPE: stat.S_IFLNK}


@settings(deadline=None)
@given(TREES)
def test_the_stream_is_gnu_tar_for_others(tree: dict[str, tuple[str, object, int]]) -> None:
    """The standard library reads the same names, modes, sizes and contents, with no owner in it."""
    with tempfile.TemporaryDirectory() as name:
        plant(Path(name), tree)
        stream, _ = packed(Path(name))
        found: dict[bytes, tuple[object, ...]] = {}
        with tarfile.open(fileobj=io.BytesIO(stream), mode="r|", errorlevel=2) as archive:
            for info in archive:
                assert (info.uid, info.gid, info.uname, info.gname) == (0, 0, "", "")
                what: object = os.fsencode(info.linkname) if info.issym() else None
                if info.isreg():
                    content = archive.extractfile(info)
                    assert content is not None
                    what = content.read()
                kind = {tarfile.REGTYPE: stat.S_IFREG, tarfile.DIRTYPE: stat.S_IFDIR, tarfile.SYMTYPE: stat.S_IFLNK}[
                    info.type
                ]
                found[os.fsencode(info.name)] = (kind, info.mode if not info.issym() else None, info.mtime, what)
        assert found.pop(b".")[0] == stat.S_IFDIR
        assert found == snapshot(Path(name))


def test_a_stream_of_the_standard_library_is_taken(tmp_path: Path) -> None:
    """Other programs pad the end, name the root, and write numbers in other ways."""
    source = tmp_path / "source"
    (source / "sub" / "empty").mkdir(parents=True)
    (source / "sub" / ("long" * 60)).write_bytes(b"content")
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.GNU_FORMAT) as archive:
        archive.add(source, ".")
    assert unpacked(tmp_path / "target", stream.getvalue()).files == 1
    assert snapshot(tmp_path / "target") == snapshot(source)


def test_hidden_and_empty_entries_and_mode_bits_arrive(tmp_path: Path) -> None:
    """A repository, a dot file, an empty folder and a script, as a user would send them."""
    source = tmp_path / "source"
    (source / ".git" / "objects").mkdir(parents=True)
    (source / ".env").write_text("A=1", "utf-8")
    (source / "run.sh").write_text("#!/bin/sh\n", "utf-8")
    (source / "run.sh").chmod(0o755)
    stream, result = packed(source)
    unpacked(tmp_path / "target", stream)
    assert (tmp_path / "target" / ".git" / "objects").is_dir()
    assert (tmp_path / "target" / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (result.files, result.bytes) == (2, 13)


def test_an_empty_folder_makes_an_empty_folder(tmp_path: Path) -> None:
    """Missing parents of the target are made."""
    (tmp_path / "source").mkdir(0o750)
    stream, result = packed(tmp_path / "source")
    unpacked(tmp_path / "x" / "target", stream)
    assert list((tmp_path / "x" / "target").iterdir()) == []
    assert (tmp_path / "x" / "target").stat().st_mode & 0o777 == 0o750
    assert (result.files, result.bytes, result.refused_count) == (0, 0, 0)


@pytest.mark.parametrize("time", [-1_000_000, 0, 8**11, 1 << 34])
def test_unusual_times_survive_or_are_moved_into_bounds(tmp_path: Path, time: int) -> None:
    """Before 1970 and far ahead; what no file system holds becomes the nearest sane time."""
    stream = entry("a", mtime=time) + END
    unpacked(tmp_path / "target", stream)
    assert (tmp_path / "target" / "a").stat().st_mtime == min(time, (1 << 33) - 1)


def test_many_small_files_cost_few_writes(tmp_path: Path) -> None:
    """Five thousand files go in pieces of at least 128 KiB."""
    source = tmp_path / "source"
    for number in range(50):
        (source / str(number)).mkdir(parents=True)
        for other in range(100):
            (source / str(number) / str(other)).write_bytes(b"%d" % other * 50)
    pieces: list[bytes] = []
    sent = pack(source, pieces.append)
    assert all(len(piece) >= 128 * 1024 for piece in pieces[:-1])
    waiting = iter(pieces)
    received = unpack(tmp_path / "target", lambda _: next(waiting, b""))
    assert sent == received
    assert sent.files == 5000
    assert snapshot(tmp_path / "target") == snapshot(source)


def test_memory_is_flat_in_both_directions(tmp_path: Path) -> None:
    """A large file and many small ones, and neither side keeps them."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "big").write_bytes(b"x" * (32 << 20))
    for number in range(1000):
        (source / str(number)).write_bytes(b"x" * 1000)
    stream, _ = packed(source)
    waiting = io.BytesIO(stream)
    tracemalloc.start()
    try:
        pack(source, len)
        unpack(tmp_path / "target", waiting.read)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


def test_a_file_over_4_gib_is_streamed_whole_in_flat_memory(tmp_path: Path) -> None:
    """Five GiB, a hole on this disk, are all on the wire."""
    with (tmp_path / "big").open("wb") as file:
        file.truncate(5 * GIB)
    total = 0

    def count(piece: bytes) -> None:
        nonlocal total
        total += len(piece)

    tracemalloc.start()
    try:
        result = pack(tmp_path, count)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (result.files, result.bytes) == (1, 5 * GIB)
    assert total == 512 + 512 + 5 * GIB + 1024
    assert peak < 4 << 20


def test_a_size_over_8_gib_is_written_as_others_read_it(tmp_path: Path) -> None:
    """Octal digits end there; the header goes on in base 256."""
    with (tmp_path / "big").open("wb") as file:
        file.truncate(9 * GIB)
    pieces: list[bytes] = []

    def first_only(piece: bytes) -> None:
        pieces.append(piece)
        raise InterruptedError

    with pytest.raises(InterruptedError):
        pack(tmp_path, first_only)
    assert tarfile.TarInfo.frombuf(pieces[0][512:1024], "utf-8", "strict").size == 9 * GIB


def test_progress_counts_content_up_to_the_result(tmp_path: Path) -> None:
    """Both directions report rising totals that end at the size of the content."""
    source = tmp_path / "source"
    source.mkdir()
    for name in "abc":
        (source / name).write_bytes(bytes(range(256)) * 3000)
    sent: list[int] = []
    received: list[int] = []
    stream, result = packed(source, on_bytes=sent.append)
    unpack(tmp_path / "target", io.BytesIO(stream).read, on_bytes=received.append)
    for said in (sent, received):
        assert said == sorted(said)
        assert len(said) > 3
        assert said[-1] == result.bytes == 3 * 768_000
