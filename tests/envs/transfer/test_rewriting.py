"""Any tar stream becomes one that is whole and harmless, or an error."""

from __future__ import annotations

import errno
import io
import os
import stat
import subprocess
import tarfile
import tempfile
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runenv.envs.transfer import Rewriter, rewriting
from tests.envs.transfer.trees import END, entry, folder, link, patched, snapshot, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runenv.types import TransferResult

MTIME = 981_173_106


def rewritten(*pieces: bytes) -> tuple[bytes, TransferResult]:
    """Rewrite a stream that comes in these pieces."""

    async def run() -> tuple[bytes, TransferResult]:
        waiting = iter(pieces)

        async def read() -> bytes:
            return next(waiting, b"")

        rewriter = Rewriter(read)
        return b"".join([piece async for piece in rewriter.pieces()]), rewriter.report.result()

    return anyio.run(run)


def members(archive: bytes) -> dict[str, tarfile.TarInfo]:
    """Return what is in an archive as the standard library reads it."""
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
        return {member.name: member for member in tar}


def extended(kind: bytes, records: Iterable[tuple[str, str | bytes]]) -> bytes:
    """Make an extended header."""
    lines = b""
    for key, value in records:
        rest = b" %b=%b\n" % (key.encode(), value if isinstance(value, bytes) else value.encode())
        length = len(rest)
        while length != len(rest) + len(str(length)):
            length = len(rest) + len(str(length))
        lines += str(length).encode() + rest
    return entry("pax", kind, lines)


def pax(*records: tuple[str, str | bytes]) -> bytes:
    """Make the extended header of the next entry."""
    return extended(tarfile.XHDTYPE, records)


HOSTILE = {
    "an absolute name": (entry("/x", content=b"bad"), "an absolute name"),
    "a name that climbs": (entry("../x", content=b"bad"), "a name with `..`"),
    "a name that climbs later": (entry("a/../../x", content=b"bad"), "a name with `..`"),
    "an extended name that climbs": (pax(("path", "../x")) + entry("x", content=b"bad"), "a name with `..`"),
    "an extended name with NUL": (pax(("path", b"x\0y")) + entry("x", content=b"bad"), "a name with NUL"),
    "a folder that climbs": (folder("../x"), "a name with `..`"),
    "a file without a name": (entry("./", content=b"bad", type=tarfile.REGTYPE), "an entry without a name"),
    "a link without a name": (link(".", "a"), "an entry without a name"),
    "a hard link": (entry("x", tarfile.LNKTYPE, linkname="../victim"), "a hard link is not taken"),
    "a device": (entry("x", tarfile.CHRTYPE, devmajor=1, devminor=3), "a character device is not taken"),
    "a disk": (entry("x", tarfile.BLKTYPE, devmajor=8), "a block device is not taken"),
    "a FIFO": (entry("x", tarfile.FIFOTYPE), "a FIFO is not taken"),
    "an unknown type": (entry("x", b"Z", b"skipped" * 200), "an entry of unknown type is not taken"),
    "an absolute link": (link("x", "/etc"), "a link to an absolute path"),
    "an extended absolute link": (pax(("linkpath", "/etc")) + link("x", "a"), "a link to an absolute path"),
    "a link out of the tree": (link("x", "../outside"), "a link out of the tree"),
    "a link out from deeper": (link("a/x", "../../outside"), "a link out of the tree"),
    "a link that turns": (link("x", "a/../b"), "a link with `..` after a name, which may lead out of the tree"),
    "a link to nothing": (link("x", ""), "a link with an empty or endless target"),
    "an endless link": (link("x", "a/" * 3000), "a link with an empty or endless target"),
    "a name too long": (entry("x" * 256, content=b"bad"), "a name of more than 255 bytes"),
    "a path too long": (entry("x/" * 20 + "y/" * 2030 + "z"), "more than 512 folders deep"),
    "a path of long names": (entry(("x" * 200 + "/") * 21 + "z"), "its path has 4096 bytes or more"),
    "a sparse file": (
        patched(entry("x", tarfile.GNUTYPE_SPARSE), 482, b"\1") + bytes(504) + b"\1" + bytes(7) + bytes(512),
        "a sparse file in a form of its own is not taken",
    ),
    "an extended sparse file": (
        pax(("GNU.sparse.major", "1"), ("GNU.sparse.name", "x"), ("size", "600")) + entry("y", content=b"x" * 600),
        "a sparse file in a form of its own is not taken",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_entry_is_refused_and_the_next_one_taken(case: str) -> None:
    """It is listed with its reason, and the stream goes on where it should."""
    hostile, reason = HOSTILE[case]
    archive, result = rewritten(hostile + entry("good", content=b"good") + END)
    assert [refused.reason for refused in result.refused] == [reason]
    assert (result.files, result.bytes) == (1, 4)
    assert set(members(archive)) == {"good"}


HUGE = patched(entry("a"), 124, b"\x80" + b"\x7f" * 11)
BROKEN = {
    "no bytes": b"",
    "noise": b"noise" * 1000,
    "a wrong checksum": bytes([entry("a")[0] ^ 1]) + entry("a")[1:] + END,
    "no end": entry("a", content=b"x"),
    "half a header": entry("a")[:300],
    "half a content": entry("a", content=b"x" * 5000)[:2000],
    "a negative size": patched(entry("a"), 124, b"\xff" * 12) + END,
    "a size that is no number": patched(entry("a"), 124, b"99999999999\0") + END,
    "a huge size": HUGE + b"x" * 5000,
    "an extended negative size": pax(("size", "-1")) + entry("a") + END,
    "an extended huge size": pax(("size", "9" * 18)) + entry("a") + END,
    "an extended size that is none": pax(("size", "many")) + entry("a") + END,
    "an extended time that is none": pax(("mtime", "nan")) + entry("a") + END,
    "an extended header of noise": entry("x", tarfile.XHDTYPE, b"noise") + entry("a") + END,
    "an extended header that lies": entry("x", tarfile.XHDTYPE, b"99 path=a\n") + entry("a") + END,
    "an extended header of no length": entry("x", tarfile.XHDTYPE, b"0 path=a\n") + entry("a") + END,
    "an extended header without an end": entry("x", tarfile.XHDTYPE, b"9 path=ab") + entry("a") + END,
    "a huge extended header": entry("x", tarfile.XHDTYPE, b"x" * (1 << 20) + b"x") + entry("a") + END,
    "a name over its bound": entry("a", tarfile.GNUTYPE_LONGNAME, b"x" * 65_537) + entry("a") + END,
    "a name without an entry": entry("a", tarfile.GNUTYPE_LONGNAME, b"b\0"),
    "a sparse map without an end": patched(entry("a", tarfile.GNUTYPE_SPARSE), 482, b"\1") + b"\1" * 5120,
    "an endless tail": entry("a") + bytes(3 << 20),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_stream_is_an_error_in_bounded_memory(case: str) -> None:
    """It says so as OSError."""
    stream = BROKEN[case]
    tracemalloc.start()
    try:
        with pytest.raises(OSError, match="the stream of the tree") as caught:
            rewritten(stream)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.errno == errno.EIO
    assert peak < 8 << 20


def test_a_broken_stream_never_comes_out_whole() -> None:
    """What was rewritten before the fault has no end, so nobody takes it for an archive."""

    async def run() -> None:
        waiting = iter([entry("a", content=b"x" * 300_000), b"noise" * 200])

        async def read() -> bytes:
            return next(waiting, b"")

        async for piece in Rewriter(read).pieces():
            out.append(piece)  # noqa: PERF401 - kept when the next one fails

    out: list[bytes] = []
    with pytest.raises(OSError, match="damaged header"):
        anyio.run(run)
    assert out
    assert not out[-1].endswith(END)


def test_extended_headers_say_names_links_sizes_and_times() -> None:
    """Those of POSIX for the next entry or for all, those of Solaris; the narrower one wins, an empty one is none."""
    archive, result = rewritten(
        extended(tarfile.XGLTYPE, [("comment", "of git"), ("mtime", "1000.5")])
        + entry("global", mtime=5)
        + pax(("mtime", f"{MTIME}.987654321"), ("path", "ü/long"), ("SCHILY.xattr.user.x", b"\xff\n"))
        + entry("short", content=b"x")
        + extended(tarfile.SOLARIS_XHDTYPE, [("linkpath", "ü/long")])
        + link("link", "")
        + pax(("size", "3"))
        + patched(entry("sized"), 124, b"%011o\0" % 0)
        + b"abc".ljust(512, b"\0")
        + pax(("mtime", ""), ("path", ""))
        + entry("plain", mtime=7)
        + END
    )
    found = members(archive)
    assert result.refused == ()
    assert {name: info.mtime for name, info in found.items()} == {
        "global": 1000, "ü/long": MTIME, "link": 1000, "sized": 1000, "plain": 7,
    }  # fmt: skip
    assert found["link"].linkname == "ü/long"
    assert (found["ü/long"].size, found["sized"].size) == (1, 3)


def test_an_old_folder_is_a_folder() -> None:
    """Before POSIX a folder was a file whose name ends with a slash."""
    archive, result = rewritten(entry("d/", tarfile.AREGTYPE) + entry("d/f", content=b"x") + END)
    assert members(archive)["d"].isdir()
    assert (result.files, result.refused) == (1, ())


def test_special_bits_owners_and_wild_times_are_left_behind() -> None:
    """Bits are listed, the rest means nothing elsewhere."""
    archive, result = rewritten(
        entry("f", mode=0o6711, uid=1234, gid=7, uname="me", gname="us", mtime=1 << 40)
        + folder("d", mode=0o1777, mtime=-(1 << 40))
        + END
    )
    found = members(archive)
    assert [refused.path for refused in result.refused] == ["f", "d"]
    assert [(info.mode, info.uid, info.gid, info.uname) for info in found.values()] == [
        (0o711, 0, 0, ""),
        (0o777, 0, 0, ""),
    ]
    assert [info.mtime for info in found.values()] == [(1 << 33) - 1, -(1 << 31)]


def test_no_name_leads_through_a_link_of_the_stream() -> None:
    """Nor is a folder made where one is, so that links cannot add up to a way out."""
    archive, result = rewritten(
        folder("d")
        + link("d/l", "..")
        + entry("d/l/x", content=b"bad")
        + link("d/l/k", "..")
        + folder("d/l")
        + entry("d/l", content=b"replaced")
        + link("d/l", "f")
        + entry("d/f")
        + END
    )
    assert [refused.path for refused in result.refused] == ["d/l/x", "d/l/k", "d/l"]
    assert set(members(archive)) == {"d", "d/l", "d/f"}


def test_links_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Further ones are refused, since nobody would know what leads through them."""
    monkeypatch.setattr(rewriting, "MAX_LINKS", 3)
    archive, result = rewritten(b"".join(link(f"l{number}", "f") for number in range(5)) + END)
    assert [refused.path for refused in result.refused] == ["l3", "l4"]
    assert len(members(archive)) == 3


@pytest.mark.parametrize(
    "command",
    ["--format=v7", "--format=oldgnu", "--format=gnu", "--format=ustar", "--format=posix", "--format=gnu --sparse",
     "--format=posix --sparse", "--format=posix --sparse --sparse-version=0.1"],
)  # fmt: skip
def test_what_gnu_tar_makes_is_taken(tmp_path: Path, command: str) -> None:
    """In every form that it knows; only sparse files in forms of its own are refused."""
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "d" / "empty").mkdir(parents=True)
    (source / "f").write_bytes(b"x" * 100_000)
    (source / "f").chmod(0o750)
    (source / "link").symlink_to("d/é")
    (source / "d" / "é").write_bytes(b"")
    if "v7" not in command:
        (source / ("n" * 90)).mkdir()
        (source / ("n" * 90) / ("m" * 60)).write_bytes(b"long")
    with (source / "sparse").open("wb") as file:
        file.truncate(10 << 20)
        file.seek(5 << 20)
        file.write(b"middle")
    for path in (*source.rglob("*"), source):
        os.utime(path, (MTIME, MTIME), follow_symlinks=False)
    made = subprocess.run(["tar", *command.split(), "-C", source, "-cf", "-", "."], check=True, capture_output=True)
    archive, result = rewritten(made.stdout)
    assert unpacked(target, archive).refused == ()
    expected = snapshot(source)
    if "--sparse" in command:
        reason = "a sparse file in a form of its own is not taken"
        assert [(refused.path, refused.reason) for refused in result.refused] == [("./sparse", reason)]
        del expected[b"sparse"]
    else:
        assert result.refused == ()
    assert snapshot(target) == expected


def test_what_git_makes_is_taken(tmp_path: Path) -> None:
    """Its archives begin with a global extended header."""
    (tmp_path / "f").write_bytes(b"content")
    git: list[str | Path] = ["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "f"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], check=True, capture_output=True)
    made = subprocess.run([*git, "archive", "--format=tar", "HEAD"], check=True, capture_output=True)
    archive, result = rewritten(made.stdout)
    assert result.refused == ()
    assert set(members(archive)) == {"f"}


def test_our_own_form_comes_through_unchanged() -> None:
    """Byte by byte: what a guest sends is what is stored."""
    name = "é" * 60
    stream = folder(name) + entry(f"{name}/f", content=b"x" * 200_000, mode=0o755) + link("l", f"{name}/f")
    stream += entry("empty", mtime=MTIME) + END
    archive, result = rewritten(stream)
    assert (result.files, result.refused) == (2, ())
    assert snapshot_of(archive) == snapshot_of(stream)
    again, _ = rewritten(archive)
    assert again == archive


def snapshot_of(stream: bytes) -> dict[bytes, tuple[object, ...]]:
    """Describe what a stream unpacks to."""
    with tempfile.TemporaryDirectory() as name:
        unpacked(Path(name, "target"), stream)
        return snapshot(Path(name, "target"))


parts = st.sampled_from(["a", "b", "c", "..", ".", "", "/", "out"])
paths = st.lists(parts, max_size=4).map("/".join)
kinds = st.sampled_from([b"0", b"\0", b"1", b"2", b"2", b"2", b"3", b"5", b"5", b"6", b"7", b"S", b"Z", b"L", b"K"])
numbers = st.sampled_from([0, 0o777, 0o7777, -1, 1 << 33, -(1 << 40)])
records = st.lists(
    st.tuples(st.sampled_from(["path", "linkpath", "size", "mtime", "GNU.sparse.major", "x"]), paths | st.just("7")),
    max_size=3,
)
headers = st.builds(extended, st.sampled_from([b"x", b"g", b"X"]), records)
entries = st.builds(entry, paths, kinds, st.binary(max_size=600), linkname=paths, mtime=numbers, mode=numbers)
streams = st.lists(entries | headers, max_size=10).map(lambda parts: b"".join(parts) + END)


def outcome(*pieces: bytes) -> object:
    """Return what comes of a stream, as far as it can be compared."""
    try:
        return rewritten(*pieces)
    except OSError as error:
        return str(error)


@settings(deadline=None)
@given(streams, st.lists(st.integers(1, 5000), max_size=12))
def test_it_does_not_matter_how_a_stream_is_cut(stream: bytes, cuts: list[int]) -> None:
    """The same archive and the same account."""
    pieces, rest = list[bytes](), stream
    for cut in cuts:
        pieces, rest = [*pieces, rest[:cut]], rest[cut:]
    assert outcome(*[piece for piece in (*pieces, rest) if piece]) == outcome(stream)


@settings(deadline=None)
@given(st.data())
def test_whatever_comes_out_is_harmless(data: st.DataObject) -> None:
    """Even to a program that believes every word: nothing lands outside, and no link that it made leads there."""
    stream = bytearray(data.draw(streams))
    for at, byte in data.draw(st.lists(st.tuples(st.integers(0, len(stream) - 1), st.integers(0, 255)), max_size=2)):
        stream[at] = byte
    with suppress(OSError), tempfile.TemporaryDirectory() as name:
        archive, result = rewritten(bytes(stream))
        target, outside = Path(name, "target"), Path(name, "out")
        outside.mkdir()
        (outside / "victim").write_bytes(b"precious")
        before = snapshot(outside)
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
            found = list(tar)
            assert sum(member.isreg() for member in found) == result.files
            assert sum(member.size for member in found) == result.bytes
            for member in found:
                with suppress(OSError, KeyError):
                    tar.extract(member, target, filter="fully_trusted")
        assert snapshot(outside) == before
        assert sorted(path.name for path in Path(name).iterdir()) in (["out"], ["out", "target"])
        for path in target.rglob("*"):
            assert stat.S_IFMT(path.lstat().st_mode) in {stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK}
            if path.is_symlink():
                with suppress(RuntimeError):  # a circle
                    assert path.resolve().is_relative_to(target.resolve())
