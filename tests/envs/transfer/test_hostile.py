"""No stream can harm the host."""

from __future__ import annotations

import errno
import io
import stat
import tarfile
import tempfile
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runenv.envs.transfer import unpack
from tests.envs.transfer.trees import END, entry, folder, in_steps, link, patched, snapshot, unpacked

HOSTILE = {
    "an absolute name": (entry("/outside/x", content=b"bad"), "an absolute name"),
    "a name that climbs": (entry("../outside/x", content=b"bad"), "a name with `..`"),
    "a name that climbs later": (entry("a/../../outside/x", content=b"bad"), "a name with `..`"),
    "a name that ends in dots": (entry("a/..", content=b"bad"), "a name with `..`"),
    "a folder that climbs": (folder("../outside/x"), "a name with `..`"),
    "an absolute folder": (folder("/outside/x"), "an absolute name"),
    "a file without a name": (entry("./", content=b"bad", mode=0o644), "an entry without a name"),
    "a link without a name": (link(".", "a"), "an entry without a name"),
    "a hard link": (entry("x", tarfile.LNKTYPE, linkname="../outside/victim"), "a hard link is not taken"),
    "a device": (entry("x", tarfile.CHRTYPE, devmajor=1, devminor=3), "a character device is not taken"),
    "a disk": (entry("x", tarfile.BLKTYPE, devmajor=8), "a block device is not taken"),
    "a FIFO": (entry("x", tarfile.FIFOTYPE), "a FIFO is not taken"),
    "an unknown type": (entry("x", b"Z", b"skipped" * 200), "an entry of unknown type is not taken"),
    "an absolute link": (link("x", "/etc"), "a link to an absolute path"),
    "a link out of the tree": (link("x", "../outside"), "a link out of the tree"),
    "a link out from deeper": (link("a/x", "../../outside"), "a link out of the tree"),
    "a link that turns": (link("x", "a/../b"), "a link with `..` after a name, which may lead out of the tree"),
    "a link to nothing": (link("x", ""), "a link with an empty or endless target"),
    "an endless link": (link("x", "a/" * 3000), "a link with an empty or endless target"),
    "a name too long": (entry("x" * 256, content=b"bad"), "its name is too long for this host"),
    "a folder too long": (folder("x" * 256), "its name is too long for this host"),
    "a link too long": (link("x" * 256, "a"), "its name is too long for this host"),
    "a path too long": (entry("x/" * 20 + "y/" * 2030 + "z"), "more than 512 folders deep"),
    "a path of long names": (entry(("x" * 200 + "/") * 21 + "z"), "its path has 4096 bytes or more"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_entry_is_refused_and_the_next_one_taken(tmp_path: Path, outside: Path, case: str) -> None:
    """Nothing lands outside, the entry is listed with its reason, the stream goes on."""
    hostile, reason = HOSTILE[case]
    target = tmp_path / "target"
    result = unpacked(target, hostile + entry("good", content=b"good") + END)
    assert [refused.reason for refused in result.refused] == [reason]
    assert (result.files, result.bytes) == (1, 4)
    assert set(snapshot(target)) == {b"good"}
    assert outside.exists()


def test_no_write_goes_through_a_link_of_the_stream(tmp_path: Path, outside: Path) -> None:
    """Links that stay inside are made, but a name that leads through one is refused."""
    target = tmp_path / "target"
    stream = [
        folder("sub"),
        link("in", "sub"),
        entry("in/x", content=b"bad"),
        folder("in"),
        folder("in/y"),
        link("in/z", "a"),
        link("sub/up", ".."),
        entry("sub/up/w", content=b"bad"),
    ]
    result = unpacked(target, b"".join(stream) + END)
    assert [refused.path for refused in result.refused] == ["in/x", "in", "in/y", "in/z", "sub/up/w"]
    assert {refused.reason for refused in result.refused} == {"the way to it leads through a link or a file"}
    assert set(snapshot(target)) == {b"sub", b"sub/up", b"in"}
    assert outside.exists()


def test_links_that_were_accepted_never_lead_outside_together(tmp_path: Path, outside: Path) -> None:
    """A link to a folder above, and one that climbs from behind it, do not add up."""
    target = tmp_path / "target"
    deep = "a/b/c"
    stream = (
        folder(deep)
        + link(f"{deep}/z", "../../..")
        + link("q", f"{deep}/z/../../outside/victim")
        + link("r", f"{deep}/z")
    )
    unpacked(target, stream + END)
    links = [path for path in target.rglob("*") if path.is_symlink()]
    assert len(links) == 2
    assert all(path.resolve().is_relative_to(target.resolve()) for path in links)
    assert outside.exists()


def test_no_write_goes_through_a_link_that_was_there(tmp_path: Path, outside: Path) -> None:
    """A link in place of a folder refuses what is in it; a link in place of a file is replaced."""
    target = tmp_path / "target"
    target.mkdir()
    (target / "folder").symlink_to(outside)
    (target / "victim").symlink_to(outside / "victim")
    (target / "link").symlink_to(outside)
    stream = (
        folder("folder") + entry("folder/victim", content=b"bad") + entry("victim", content=b"new") + link("link", "a")
    )
    result = unpacked(target, stream + END)
    assert [refused.path for refused in result.refused] == ["folder", "folder/victim"]
    assert (target / "folder").readlink() == outside
    assert (target / "victim").read_bytes() == b"new"
    assert not (target / "victim").is_symlink()
    assert (target / "link").readlink() == Path("a")


def test_a_folder_swapped_for_a_link_during_the_copy_is_not_followed(tmp_path: Path, outside: Path) -> None:
    """What is open stays where it is, wherever that was moved; what is opened anew is refused."""
    target = tmp_path / "target"

    def swap() -> None:
        (target / "a").rename(tmp_path / "moved")
        (target / "a").symlink_to(outside)

    result = unpack(
        target,
        in_steps(
            folder("a") + entry("a/1", content=b"x"),
            swap,
            entry("a/victim", content=b"bad"),
            entry("b", content=b"x"),
            entry("a/victim", content=b"bad") + folder("a/new") + END,
        ),
    )
    assert [refused.path for refused in result.refused] == ["a/victim", "a/new", "a"]
    assert (tmp_path / "moved" / "victim").read_bytes() == b"bad"
    assert set(snapshot(target)) == {b"a", b"b"}
    assert outside.exists()


@pytest.mark.parametrize("existing", [True, False])
def test_a_file_swapped_for_a_link_during_the_copy_is_not_followed(
    tmp_path: Path,
    outside: Path,
    existing: bool,  # noqa: FBT001 - a case
) -> None:
    """Its content goes to the file that was opened; an existing one is replaced, whatever is there by then."""
    target = tmp_path / "target"
    target.mkdir()
    if existing:
        (target / "a").write_bytes(b"old")

    def swap() -> None:
        (target / "a").unlink()
        (target / "a").symlink_to(outside / "victim")

    whole = entry("a", content=b"new" * 1000)
    unpack(target, in_steps(whole[:1024], swap, whole[1024:] + END))
    assert (target / "a").is_symlink() is not existing
    if existing:
        assert (target / "a").read_bytes() == b"new" * 1000


def test_special_bits_are_taken_off(tmp_path: Path) -> None:
    """Set-uid, set-gid and sticky bits of a sandbox mean nothing here; that they were lost is listed."""
    target = tmp_path / "target"
    result = unpacked(target, folder("d", mode=0o7755) + entry("f", mode=0o6711) + END)
    assert [refused.path for refused in result.refused] == ["d", "f"]
    assert stat.S_IMODE((target / "d").stat().st_mode) == 0o755
    assert stat.S_IMODE((target / "f").stat().st_mode) == 0o711


def test_refusals_are_listed_up_to_a_bound_and_counted_beyond(tmp_path: Path) -> None:
    """A stream of bad names fills no memory."""
    result = unpacked(tmp_path / "target", b"".join(entry(f"../{number}") for number in range(1500)) + END)
    assert (len(result.refused), result.refused_count) == (1000, 1500)
    assert result.refused[-1].path == "../999"


HUGE_NAME = patched(entry("a", tarfile.GNUTYPE_LONGNAME), 124, b"\x80" + (10 << 30).to_bytes(11, "big"))
BROKEN = {
    "no bytes": b"",
    "noise": b"noise" * 1000,
    "a wrong checksum": bytes([entry("a")[0] ^ 1]) + entry("a")[1:] + END,
    "no end": entry("a", content=b"x"),
    "half a header": entry("a")[:300],
    "half a content": entry("a", content=b"x" * 5000)[:2000],
    "a negative size": patched(entry("a"), 124, b"\xff" * 12) + END,
    "a size that is no number": patched(entry("a"), 124, b"99999999999\0") + END,
    "a signed size": patched(entry("a"), 124, b"-0000000001\0") + END,
    "a huge size": patched(entry("a"), 124, b"\x80" + b"\x7f" * 11) + b"x" * 5000,
    "a mode that is no number": patched(entry("a"), 100, b"rwxrwxr\0") + END,
    "an extended header": patched(entry("a", tarfile.XHDTYPE, b"11 path=b\n"), 0, b"x") + entry("a") + END,
    "a global extended header": entry("a", tarfile.XGLTYPE, b"11 path=b\n") + entry("a") + END,
    "a sparse entry": entry("a", tarfile.GNUTYPE_SPARSE, b"x" * 512) + END,
    "a name of 10 GiB": HUGE_NAME + b"x" * 5000,
    "a name over its bound": entry("a", tarfile.GNUTYPE_LONGNAME, b"x" * 65_537) + entry("a") + END,
    "a chain of names": entry("a", tarfile.GNUTYPE_LONGNAME, b"b\0") * 5000 + entry("a") + END,
    "a name without an entry": entry("a", tarfile.GNUTYPE_LONGNAME, b"b\0"),
    "an endless tail": entry("a") + bytes(3 << 20),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_stream_is_an_error_in_bounded_memory(tmp_path: Path, outside: Path, case: str) -> None:
    """It says so as OSError, and the file that was being written is gone."""
    stream = io.BytesIO(BROKEN[case])
    tracemalloc.start()
    try:
        with pytest.raises(OSError, match="the stream of the tree") as caught:
            unpack(tmp_path / "target", stream.read)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.errno == errno.EIO
    assert peak < 4 << 20
    if case in {"half a content", "a huge size"}:
        assert snapshot(tmp_path / "target") == {}
    assert outside.exists()


def test_a_long_name_of_the_longest_kind_is_taken(tmp_path: Path) -> None:
    """255 bytes in a name, more than 100 in a path and in a link."""
    name = "é" * 127 + "x"
    unpacked(
        tmp_path / "target", folder(name) + entry(f"{name}/{name}", content=b"x") + link("l", f"{name}/{name}") + END
    )
    assert (tmp_path / "target" / "l").read_bytes() == b"x"


@settings(deadline=None)
@given(st.data())
def test_any_stream_is_harmless(data: st.DataObject) -> None:
    """Entries of every type under names and with links that try everything, cut and damaged anywhere."""
    part = st.sampled_from(["a", "b", "..", ".", "", "/", "out", "x" * 300])
    paths = st.lists(part, max_size=4).map("/".join)
    kinds = st.sampled_from([b"0", b"\0", b"1", b"2", b"2", b"3", b"5", b"5", b"6", b"7", b"Z", b"L", b"K"])
    numbers = st.sampled_from([0, 0o777, 0o7777, -1, 1 << 33, -(1 << 40)])
    contents = st.binary(max_size=600)
    entries = st.builds(entry, paths, kinds, contents, linkname=paths, mtime=numbers, mode=numbers)
    stream = b"".join(data.draw(st.lists(entries, max_size=8))) + END
    damage = data.draw(st.lists(st.tuples(st.integers(0, len(stream) - 1), st.integers(0, 255)), max_size=2))
    spoiled = bytearray(stream)
    for at, byte in damage:
        spoiled[at] = byte
    spoiled = spoiled[: data.draw(st.integers(0, len(stream)) | st.just(len(stream)))]
    with tempfile.TemporaryDirectory() as name:
        target, outside = Path(name, "target"), Path(name, "out")
        outside.mkdir()
        (outside / "victim").write_bytes(b"precious")
        before = snapshot(outside)
        with suppress(OSError):
            unpacked(target, bytes(spoiled))
        assert snapshot(outside) == before
        assert sorted(path.name for path in Path(name).iterdir()) == ["out", "target"]
        for path in target.rglob("*"):
            assert stat.S_IFMT(path.lstat().st_mode) in {stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK}
            if path.is_symlink():
                with suppress(RuntimeError):  # a circle
                    assert path.resolve().is_relative_to(target.resolve())
            else:
                path.chmod(0o700)
