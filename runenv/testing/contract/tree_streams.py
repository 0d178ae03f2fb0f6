"""The contract of `TreeStreams`: trees out of an env and into one as tar archives, safe both ways (rules F7 and A9).

For envs that offer these verbs; the tests are skipped for others.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
from typing import TYPE_CHECKING, ClassVar, Final

import anyio
import pytest

from runenv.env import TreeStreams
from runenv.errors import EnvError
from runenv.testing.contract.base import Contract
from runenv.testing.contract.measure import MIB, Memory
from runenv.testing.contract.trees import FLAT_BYTES, MTIME, make_tree, snapshot

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from runenv.env import RunEnv
    from runenv.types import TransferResult

__all__ = ("TreeStreamsContract",)

_STEP: Final = 100_003
"""Bytes of an archive that are given at a time: no multiple of anything in it."""
FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


async def in_pieces(data: bytes) -> AsyncIterator[bytes]:
    """Stream bytes."""
    for start in range(0, len(data), _STEP):
        yield data[start : start + _STEP]


async def archive_of(streams: TreeStreams, path: str, **patterns: list[str]) -> tuple[bytes, TransferResult]:
    """Return a folder of the env as a tar archive, and the account of it."""
    async with streams.open_read_tree(path, **patterns) as tar:
        data = b"".join([piece async for piece in tar])
        return data, tar.result


def unpacked(data: bytes, target: Path) -> None:
    """Unpack an archive as a careless program does: every word of it believed, links followed."""
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        archive.extractall(target, filter="fully_trusted")  # noqa: S202 - what it holds is what is tested


def packed(*entries: tarfile.TarInfo, format: int = tarfile.GNU_FORMAT) -> bytes:
    """Make an archive as `tarfile` does; each file holds its own name, then zeros up to its size."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=format) as archive:
        for entry in entries:
            content = entry.name.encode().ljust(entry.size, b"\0")[: entry.size]
            archive.addfile(entry, io.BytesIO(content))
    return data.getvalue()


def entry(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", *, size: int = 0, mode: int = 0o644
) -> tarfile.TarInfo:
    """Describe an entry; a regular file has its name as its content unless a size is given."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, mode
    if kind == tarfile.REGTYPE:
        info.size = size or len(name.encode())
    return info


class TreeStreamsContract(Contract):
    """`open_read_tree` and `write_tree`."""

    big_tree_bytes: ClassVar[int] = 200 * MIB
    """Size of a tree that is moved with flat memory."""

    @pytest.fixture
    def streams(self, env: RunEnv) -> TreeStreams:
        """The env, where it has these verbs."""
        if not isinstance(env, TreeStreams):
            pytest.skip("this env offers no tree streams")
        return env

    # -- out

    async def test_F7_a_tree_comes_out_as_an_archive_that_others_read(
        self, env: RunEnv, streams: TreeStreams, folder: str, tmp_path: Path
    ) -> None:
        """Content, modes, links, times, hidden and empty folders, odd names; counted."""
        make_tree(tmp_path / "t")
        sent = await env.upload(tmp_path / "t", f"{folder}/t")
        data, result = await archive_of(streams, f"{folder}/t")
        unpacked(data, tmp_path / "back")
        assert snapshot(tmp_path / "back") == snapshot(tmp_path / "t")
        assert (result.files, result.bytes, result.refused) == (sent.files, sent.bytes, ())
        for name in ("src/main.py", "empty"):
            assert (tmp_path / "back" / name).stat().st_mtime == MTIME

    async def test_F7_nothing_in_an_archive_leads_out_of_it(
        self, env: RunEnv, streams: TreeStreams, folder: str
    ) -> None:
        """Links out of the tree, FIFOs and special bits are left out and listed."""
        script = self.script(
            "mkdir -p t/d && cd t && ln -s /etc/passwd absolute && ln -s ../../../x up && ln -s d/../../y sneaky"
            " && mkfifo fifo && echo fine > f && echo > setuid && chmod 4755 setuid && ln -s ../f d/good"
        )
        assert (await env.exec(script, cwd=folder)).ok
        data, result = await archive_of(streams, f"{folder}/t")
        assert {refused.path for refused in result.refused} == {"absolute", "up", "sneaky", "fifo", "setuid"}
        assert all(refused.reason for refused in result.refused)
        assert result.refused_count == 5
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            modes = {member.name: member.mode for member in archive}
        assert set(modes) == {"d", "f", "setuid", "d/good"}
        assert modes["setuid"] == 0o755

    async def test_F7_patterns_choose_what_is_in_an_archive(
        self, env: RunEnv, streams: TreeStreams, folder: str
    ) -> None:
        """As in downloads: exclude wins; what can match nothing is an error."""
        for name in ("a.py", "src/b.py", "src/deep/c.py", "src/notes.md", "build/out.o"):
            await env.write(f"{folder}/t/{name}", b"")
        data, result = await archive_of(streams, f"{folder}/t", include=["*.py"], exclude=["deep"])
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            assert {member.name for member in archive if member.isfile()} == {"a.py", "src/b.py"}
        assert result.files == 2
        with pytest.raises(ValueError, match="can match nothing"):
            await archive_of(streams, folder, include=["../*"])

    async def test_F2_what_cannot_be_streamed_is_a_builtin_error(
        self, env: RunEnv, streams: TreeStreams, folder: str
    ) -> None:
        """A folder that is missing, a file, in both directions; an account that is not there yet."""
        await env.write(f"{folder}/f", b"x")
        with pytest.raises(FileNotFoundError) as caught:
            await archive_of(streams, f"{folder}/no")
        assert caught.value.filename == f"{folder}/no"
        with pytest.raises(NotADirectoryError):
            await archive_of(streams, f"{folder}/f")
        with pytest.raises(NotADirectoryError):
            await streams.write_tree(f"{folder}/f", in_pieces(packed(entry("x"))))
        assert await env.read(f"{folder}/f") == b"x"
        async with streams.open_read_tree(folder) as tar:
            with pytest.raises(EnvError, match="not read to its end"):
                _ = tar.result

    # -- in

    @pytest.mark.parametrize("format", FORMATS)
    async def test_F7_archives_of_every_form_are_taken(
        self, env: RunEnv, streams: TreeStreams, folder: str, tmp_path: Path, format: str
    ) -> None:
        """As `tarfile` makes them: long and odd names, long links, folders with and without an entry."""
        name = "é" * 60 + "/" + "n" * 90
        entries = [
            entry("./", tarfile.DIRTYPE, mode=0o755),
            entry("./d", tarfile.DIRTYPE, mode=0o750),
            entry("d/run", mode=0o755),
            entry(name),
            entry("without/an/entry/of/its/folder"),
            entry("link", tarfile.SYMTYPE, "d/run"),
            entry("a\nb"),
        ]
        if format != "ustar":  # which has no room for it
            entries.append(entry("long link", tarfile.SYMTYPE, f"./{name}"))
            entries.append(entry("x" * 255))
        for info in entries:
            info.mtime = MTIME
        result = await streams.write_tree(f"{folder}/t", in_pieces(packed(*entries, format=FORMATS[format])))
        await env.download(f"{folder}/t", tmp_path / "t")
        files = {info.name: (info.name.encode(), info.mode) for info in entries if info.isreg()}
        expected = {info.name: ("link", info.linkname.removeprefix("./")) for info in entries if info.issym()} | files
        found = snapshot(tmp_path / "t")
        assert {path: what for path, what in found.items() if what != "folder"} == expected
        assert result.refused == ()
        assert result.files == len(files)
        assert stat.S_IMODE((tmp_path / "t/d").stat().st_mode) == 0o750
        assert (tmp_path / "t" / name).stat().st_mtime == MTIME

    async def test_F7_what_came_out_goes_in_unchanged(
        self, env: RunEnv, streams: TreeStreams, folder: str, tmp_path: Path
    ) -> None:
        """From folder to folder without a stop on the host's disk."""
        make_tree(tmp_path / "t")
        await env.upload(tmp_path / "t", f"{folder}/t")
        with anyio.fail_after(30):
            async with streams.open_read_tree(f"{folder}/t") as tar:
                result = await streams.write_tree(f"{folder}/copy", tar)
        assert result == tar.result
        await env.download(f"{folder}/copy", tmp_path / "back")
        assert snapshot(tmp_path / "back") == snapshot(tmp_path / "t")

    async def test_F7_an_archive_is_merged_into_a_folder(self, env: RunEnv, streams: TreeStreams, folder: str) -> None:
        """Files are replaced, others stay; a link in the way is replaced, not followed."""
        await env.write(f"{folder}/outside", b"untouched")
        await env.write(f"{folder}/t/d/f", b"old")
        await env.write(f"{folder}/t/other", b"stays")
        assert (await env.exec(self.argv("ln", "-s", "../outside", "t/l"), cwd=folder)).ok
        await streams.write_tree(f"{folder}/t", in_pieces(packed(entry("d/f"), entry("l"), entry("new"))))
        names = ("t/d/f", "t/l", "t/new", "t/other", "outside")
        assert [await env.read(f"{folder}/{name}") for name in names] == [b"d/f", b"l", b"new", b"stays", b"untouched"]
        assert not (await env.stat(f"{folder}/t/l", follow_symlinks=False)).is_symlink

    async def test_F7_no_archive_writes_outside_of_its_folder(
        self, env: RunEnv, streams: TreeStreams, folder: str
    ) -> None:
        """Names that climb, links of the archive and of the folder, devices: listed, and the rest is taken."""
        await env.write(f"{folder}/outside/victim", b"precious")
        await env.mkdir(f"{folder}/t")
        assert (await env.exec(self.argv("ln", "-s", "../outside", "t/there"), cwd=folder)).ok
        hostile = {
            "/absolute": entry("/absolute"),
            "../outside/victim": entry("../outside/victim"),
            "a/../../outside/victim": entry("a/../../outside/victim"),
            "there/victim": entry("there/victim"),
            "in/x": entry("in/x"),
            "out": entry("out", tarfile.SYMTYPE, "../outside"),
            "root": entry("root", tarfile.SYMTYPE, "/"),
            "turn": entry("turn", tarfile.SYMTYPE, "in/../../outside"),
            "hard": entry("hard", tarfile.LNKTYPE, "../outside/victim"),
            "null": entry("null", tarfile.CHRTYPE),
            "fifo": entry("fifo", tarfile.FIFOTYPE),
            "setuid": entry("setuid", mode=0o4755),
            "x" * 256: entry("x" * 256),
        }
        archive = packed(entry("sub/f"), entry("in", tarfile.SYMTYPE, "sub"), *hostile.values(), entry("last"))
        result = await streams.write_tree(f"{folder}/t", in_pieces(archive))
        assert {refused.path for refused in result.refused} == set(hostile)
        assert result.refused_count == len(hostile)
        assert await env.read(f"{folder}/outside/victim") == b"precious"
        assert [info.path for info in await env.list(f"{folder}/outside")] == ["victim"]
        assert [info.path for info in await env.list(folder)] == ["outside", "t"]
        assert [info.path for info in await env.list(f"{folder}/t")] == ["in", "last", "setuid", "sub", "there"]
        assert [info.path for info in await env.list(f"{folder}/t/sub")] == ["f"]
        assert (await env.stat(f"{folder}/t/setuid")).mode & stat.S_ISUID == 0

    @pytest.mark.parametrize("damage", ["no archive", "half a file", "no end", "no bytes"])
    async def test_F7_a_broken_archive_is_an_error(
        self, env: RunEnv, streams: TreeStreams, folder: str, damage: str
    ) -> None:
        """No half file is left, and the env goes on."""
        whole = packed(entry("first"), entry("second", size=MIB))
        broken = {
            "no archive": b"%PDF-1.7 " * 1000,
            "half a file": whole[: len(whole) // 2],
            "no end": whole[: 1024 + 512 + MIB],
            "no bytes": b"",
        }[damage]
        with anyio.fail_after(10), pytest.raises(OSError, match="the stream of the tree"):
            await streams.write_tree(f"{folder}/t", in_pieces(broken))
        left = await self._sizes(env, f"{folder}/t")
        assert left in ({}, {"first": 5}, {"first": 5, "second": MIB})
        assert ("second" in left) <= (damage == "no end")

    async def test_F7_an_error_of_the_stream_is_the_callers(
        self, env: RunEnv, streams: TreeStreams, folder: str
    ) -> None:
        """As it was raised; the file that was being written is gone."""

        async def failing() -> AsyncIterator[bytes]:
            yield packed(entry("first"), entry("second", size=MIB))[: MIB // 2]
            raise LookupError("mine")

        with anyio.fail_after(10), pytest.raises(LookupError, match="mine"):
            await streams.write_tree(f"{folder}/t", failing())
        assert await self._sizes(env, f"{folder}/t") in ({}, {"first": 5})

    async def test_F3_a_cancelled_stream_leaves_no_half_file(
        self, env: RunEnv, streams: TreeStreams, folder: str
    ) -> None:
        """In either direction, and the env goes on."""
        started = anyio.Event()

        async def endless() -> AsyncIterator[bytes]:
            yield packed(entry("first"), entry("second", size=MIB))[: MIB // 2]
            started.set()
            await anyio.sleep_forever()

        with anyio.fail_after(10):
            async with anyio.create_task_group() as group:
                group.start_soon(streams.write_tree, f"{folder}/t", endless())
                await started.wait()
                group.cancel_scope.cancel()
            assert await self._sizes(env, f"{folder}/t") in ({}, {"first": 5})
            await env.write(f"{folder}/t/first", b"first")
            async with streams.open_read_tree(f"{folder}/t") as tar:
                assert await anext(aiter(tar))
            assert await env.read(f"{folder}/t/first") == b"first"

    async def test_F6_a_large_tree_goes_through_in_flat_memory(
        self, env: RunEnv, streams: TreeStreams, folder: str
    ) -> None:
        """From folder to folder, SHA-256 equal."""
        noise = os.urandom(MIB)

        async def content() -> AsyncIterator[bytes]:
            for number in range(self.big_tree_bytes // MIB):
                yield number.to_bytes(8, "big") + noise[8:]

        await env.write(f"{folder}/t/big", content())
        expected = hashlib.sha256(b"".join([piece async for piece in content()])).hexdigest()
        with Memory() as memory:
            async with streams.open_read_tree(f"{folder}/t") as tar:
                await streams.write_tree(f"{folder}/copy", tar)
        assert memory.growth_bytes < FLAT_BYTES
        inside = await env.exec(self.argv("sha256sum", "copy/big"), cwd=folder)
        assert inside.stdout.text.split()[0] == expected
        await env.remove(f"{folder}/t", recursive=True)

    async def _sizes(self, env: RunEnv, path: str) -> dict[str, int]:
        """Return the names and sizes of what is in a folder, if it was made."""
        try:
            return {info.path: info.size for info in await env.list(path)}
        except FileNotFoundError:
            return {}
