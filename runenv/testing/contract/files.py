"""The contract of the verbs on single files and folders (rules F1, F2, F6).

What a path may be is in `paths.py`, how files are written in `writes.py`, trees are in `trees.py`.
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import anyio
import pytest

from runenv.errors import LimitError
from runenv.testing.contract.base import Contract
from runenv.testing.contract.measure import MIB, Memory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from runenv.env import RunEnv

__all__ = ("FilesContract",)


class FilesContract(Contract):
    """Read, write, stat, list, mkdir, remove, rename."""

    stream_bytes: ClassVar[int] = 64 * MIB
    """Size of a file that is streamed with flat memory."""

    # -- content

    async def test_C049_every_byte_value_comes_back(self, env: RunEnv, folder: str) -> None:
        """Bytes in, the same bytes out; and a command sees them too."""
        data = bytes(range(256)) + b"\x89PNG\r\n\x1a\n" + bytes(reversed(range(256)))
        await env.write(f"{folder}/bytes", data)
        assert await env.read(f"{folder}/bytes") == data
        seen = await env.exec(self.argv("sha256sum", "bytes"), cwd=folder)
        assert seen.stdout.text.split()[0] == hashlib.sha256(data).hexdigest()

    async def test_C047_files_and_commands_see_the_same(self, env: RunEnv, folder: str) -> None:
        """Both directions, in the workdir and in /tmp, whatever they are mounted as."""
        places = [folder] if self.is_confined else [folder, "/tmp"]
        for place in places:
            await env.write(f"{place}/runenv-g", b"hi\n")
            assert (await env.exec(self.argv("cat", f"{place}/runenv-g"))).stdout.data == b"hi\n"
            assert (await env.exec(self.argv("cp", f"{place}/runenv-g", f"{place}/runenv-f"))).ok
            assert await env.read(f"{place}/runenv-f") == b"hi\n"
            await env.remove(f"{place}/runenv-f")
            assert (await env.exec(self.argv("cat", f"{place}/runenv-f"))).exit_code == 1
            await env.remove(f"{place}/runenv-g")

    async def test_C036_an_empty_file_is_empty(self, env: RunEnv, folder: str) -> None:
        """No bytes, no error; whole, in part and as a stream."""
        await env.write(f"{folder}/notes.txt", b"")
        assert await env.read(f"{folder}/notes.txt") == b""
        assert await env.read(f"{folder}/notes.txt", offset=5, length=3) == b""
        async with env.open_read(f"{folder}/notes.txt") as chunks:
            assert [chunk async for chunk in chunks] == []
        assert (await env.stat(f"{folder}/notes.txt")).size == 0

    async def test_F1_relative_paths_start_at_the_workdir(self, env: RunEnv, folder: str) -> None:
        """With dots and doubled slashes as the system reads them."""
        name = folder.rpartition("/")[2]
        await env.mkdir(f"{folder}/a")
        await env.write(f"./{name}//a/../b", b"x")
        assert await env.read(f"{name}/./b") == b"x"
        assert await env.read(f"{folder}/b") == b"x"

    async def test_F1_a_part_of_a_file_is_read(self, env: RunEnv, folder: str) -> None:
        """Offset and length, to the end and past it."""
        data = bytes(range(256)) * 1000
        await env.write(f"{folder}/f", data)
        for offset, length in (
            (0, 10),
            (1000, 5000),
            (len(data) - 5, 100),
            (len(data), 1),
            (len(data) + 9, None),
            (7, 0),
        ):
            end = None if length is None else offset + length
            assert await env.read(f"{folder}/f", offset=offset, length=length) == data[offset:end]
        async with env.open_read(f"{folder}/f", offset=1000, length=5000) as chunks:
            assert b"".join([chunk async for chunk in chunks]) == data[1000:6000]

    async def test_F6_offsets_beyond_4_GiB_are_exact(self, env: RunEnv, folder: str) -> None:
        """A sparse file of 5 GiB and its last bytes."""
        made = await env.exec(self.argv("truncate", "-s", "5G", "big"), cwd=folder)
        if made.exit_code != 0:
            pytest.skip(f"the env makes no file of 5 GiB: {made.stderr.text}")
        await env.write(f"{folder}/big", b"end", append=True)
        size = 5 * 1024**3
        assert (await env.stat(f"{folder}/big")).size == size + 3
        assert await env.read(f"{folder}/big", offset=size - 2) == b"\0\0end"
        async with env.open_read(f"{folder}/big", offset=size + 1) as chunks:
            assert b"".join([chunk async for chunk in chunks]) == b"nd"

    async def test_C050_a_huge_file_is_refused_before_its_bytes_move(self, env: RunEnv, folder: str) -> None:
        """The size is checked first: at once, with the size in the message, and memory stays flat."""
        assert (await env.exec(self.argv("truncate", "-s", "3G", "big"), cwd=folder)).ok
        with Memory() as memory:
            for limit in (10 * MIB, None):
                with anyio.fail_after(2), pytest.raises(LimitError, match=r"3221225472|3 GiB|3,221,225,472"):
                    await env.read(f"{folder}/big", max_bytes=limit)
        assert memory.growth_bytes < 10 * MIB
        assert await env.read(f"{folder}/big", length=5, max_bytes=5) == bytes(5)
        assert (await env.exec(self.argv("echo", "ok"))).ok

    async def test_C050_a_larger_limit_reads_more(self, env: RunEnv, folder: str) -> None:
        """200 MB of a file with holes, over the limit that holds by default."""
        assert (await env.exec(self.argv("truncate", "-s", "200000000", "big"), cwd=folder)).ok
        with pytest.raises(LimitError):
            await env.read(f"{folder}/big")
        content = await env.read(f"{folder}/big", max_bytes=200_000_000)
        assert (len(content), content.count(0)) == (200_000_000, 200_000_000)

    async def test_C027_writes_of_any_size_work(self, env: RunEnv, folder: str) -> None:
        """Sizes at which content in an argument, in base64 or in one frame would break."""
        for size in (0, 1, 96_000, 131_072, 300_000, 1024 * 1024 + 1, 5_000_000):
            data = (b"0123456789abcdef\n" * (size // 17 + 1))[:size]
            await env.write(f"{folder}/f", data)
            assert hashlib.sha256(await env.read(f"{folder}/f")).digest() == hashlib.sha256(data).digest()

    async def test_F1_streams_move_in_flat_memory(self, env: RunEnv, folder: str) -> None:
        """A long file from an async iterable and back as chunks, with equal SHA-256."""
        piece = hashlib.sha256(folder.encode()).digest() * 4096
        sent, received = hashlib.sha256(), hashlib.sha256()

        async def pieces() -> AsyncIterator[bytes]:
            for number in range(self.stream_bytes // len(piece)):
                part = number.to_bytes(8, "big") + piece[8:]
                sent.update(part)
                yield part

        with Memory() as memory:
            await env.write(f"{folder}/stream", pieces())
            async with env.open_read(f"{folder}/stream") as chunks:
                async for chunk in chunks:
                    received.update(chunk)
        assert received.digest() == sent.digest()
        assert memory.growth_bytes < 16 * MIB
        seen = await env.exec(self.argv("sha256sum", "stream"), cwd=folder)
        assert seen.stdout.text.split()[0] == sent.hexdigest()

    async def test_F1_a_stream_may_be_left_in_the_middle(self, env: RunEnv, folder: str) -> None:
        """The reader had enough, or failed: the env goes on."""
        await env.write(f"{folder}/f", bytes(8 * MIB))
        for _ in range(3):
            async with env.open_read(f"{folder}/f") as chunks:
                assert await anext(chunks)
            with pytest.raises(ZeroDivisionError):
                await self._fail_in_the_middle(env, f"{folder}/f")
        assert len(await env.read(f"{folder}/f")) == 8 * MIB

    async def _fail_in_the_middle(self, env: RunEnv, path: str) -> None:
        async with env.open_read(path) as chunks:
            await anext(chunks)
            raise ZeroDivisionError

    # -- folders and entries

    async def test_F1_stat_tells_what_an_entry_is(self, env: RunEnv, folder: str) -> None:
        """Type, size, mode, time, owner; of a link or of what it points to."""
        await env.write(f"{folder}/f", b"12345")
        assert (await env.exec(self.argv("ln", "-s", "f", "l"), cwd=folder)).ok
        assert (await env.exec(self.argv("touch", "-d", "2001-02-03 04:05:06", "f"), cwd=folder, env={"TZ": "UTC"})).ok
        file, link, place = (
            await env.stat(f"{folder}/l"),
            await env.stat(f"{folder}/l", follow_symlinks=False),
            await env.stat(folder),
        )
        assert (file.is_file, file.is_dir, file.size, file.mtime) == (True, False, 5, 981173106.0)
        assert (link.is_symlink, link.is_file, link.target) == (True, False, "f")
        assert (place.is_dir, place.target) == (True, None)

    async def test_F1_a_folder_is_listed_in_order(self, env: RunEnv, folder: str) -> None:
        """Names of all entries, hidden ones too, links not followed, with what `stat` says."""
        for name in ("b", "a", ".hidden", "Z"):
            await env.write(f"{folder}/{name}", name.encode())
        await env.mkdir(f"{folder}/d/e")
        assert (await env.exec(self.argv("ln", "-s", "nowhere", "link"), cwd=folder)).ok
        entries = await env.list(folder)
        assert [entry.path for entry in entries] == [".hidden", "Z", "a", "b", "d", "link"]
        assert entries[-1].target == "nowhere"
        assert entries[3].size == 1
        assert entries[4].is_dir
        assert await env.list(f"{folder}/d/e") == []

    async def test_F6_a_folder_with_many_entries_is_listed(self, env: RunEnv, folder: str) -> None:
        """2,000 names, many frames long."""
        script = self.script("i=0; while [ $i -lt 2000 ]; do : > a-rather-long-name-for-a-file-$i; i=$((i+1)); done")
        assert (await env.exec(script, cwd=folder)).ok
        names = [entry.path for entry in await env.list(folder)]
        assert names == sorted(f"a-rather-long-name-for-a-file-{number}" for number in range(2000))

    async def test_F1_folders_are_made_with_their_parents(self, env: RunEnv, folder: str) -> None:
        """Or without, when asked so; again is no error, unless asked so."""
        await env.mkdir(f"{folder}/a/b")
        await env.mkdir(f"{folder}/a/b")
        await env.mkdir(f"{folder}/a/c", parents=False, exist_ok=False)
        assert [entry.path for entry in await env.list(f"{folder}/a")] == ["b", "c"]

    async def test_F1_removing_takes_what_is_named_and_no_more(self, env: RunEnv, folder: str) -> None:
        """A link, not its target; a tree only when asked so; a missing one when allowed."""
        await env.write(f"{folder}/keep/f", b"x")
        await env.write(f"{folder}/tree/a/b", b"x")
        assert (await env.exec(self.argv("ln", "-s", "../keep", "tree/link"), cwd=folder)).ok
        assert (await env.exec(self.argv("ln", "-s", "keep", "link"), cwd=folder)).ok
        with pytest.raises(OSError, match="empty"):
            await env.remove(f"{folder}/tree")
        await env.remove(f"{folder}/link")
        await env.remove(f"{folder}/tree", recursive=True)
        await env.remove(f"{folder}/tree", recursive=True, missing_ok=True)
        with pytest.raises(FileNotFoundError):
            await env.remove(f"{folder}/tree")
        await env.mkdir(f"{folder}/empty")
        await env.remove(f"{folder}/empty")
        assert [entry.path for entry in await env.list(folder)] == ["keep"]
        assert await env.read(f"{folder}/keep/f") == b"x"

    async def test_F1_renaming_moves_and_replaces(self, env: RunEnv, folder: str) -> None:
        """A file over another, a folder, a link itself; parents of the target are made."""
        await env.write(f"{folder}/a", b"a")
        await env.write(f"{folder}/b", b"b")
        await env.rename(f"{folder}/a", f"{folder}/b")
        assert await env.read(f"{folder}/b") == b"a"
        await env.rename(f"{folder}/b", f"{folder}/new/place/c")
        await env.rename(f"{folder}/new", f"{folder}/moved")
        assert await env.read(f"{folder}/moved/place/c") == b"a"
        assert (await env.exec(self.argv("ln", "-s", "moved", "link"), cwd=folder)).ok
        await env.rename(f"{folder}/link", f"{folder}/link2")
        assert (await env.stat(f"{folder}/link2", follow_symlinks=False)).is_symlink
        assert [entry.path for entry in await env.list(folder)] == ["link2", "moved"]

    async def test_F1_many_calls_at_once_are_kept_apart(self, env: RunEnv, folder: str) -> None:
        """100 files written, read and described at the same time."""

        async def one(number: int) -> None:
            path, data = f"{folder}/{number}", b"%d " % number * 10_000
            await env.write(path, data)
            assert await env.read(path) == data
            assert (await env.stat(path)).size == len(data)

        async with anyio.create_task_group() as group:
            for number in range(100):
                group.start_soon(one, number)
        assert len(await env.list(folder)) == 100

    # -- errors

    async def test_F2_errors_are_the_builtins_with_the_path(self, env: RunEnv, folder: str) -> None:
        """As for a local file: missing, a folder, something below a file, something in the way."""
        await env.write(f"{folder}/f", b"x")
        await env.mkdir(f"{folder}/d/e")
        missing, below, at = f"{folder}/no", f"{folder}/f/g", f"{folder}/d"
        cases: list[tuple[type[OSError], str, Callable[[], Awaitable[object]]]] = [
            (FileNotFoundError, missing, partial(env.read, missing)),
            (FileNotFoundError, missing, partial(env.stat, missing)),
            (FileNotFoundError, missing, partial(env.list, missing)),
            (FileNotFoundError, missing, partial(env.remove, missing)),
            (FileNotFoundError, missing, partial(env.rename, missing, f"{folder}/x")),
            (FileNotFoundError, f"{missing}/x", partial(env.mkdir, f"{missing}/x", parents=False)),
            (IsADirectoryError, at, partial(env.read, at)),
            (IsADirectoryError, at, partial(env.write, at, b"x")),
            (NotADirectoryError, f"{folder}/f", partial(env.list, f"{folder}/f")),
            (NotADirectoryError, below, partial(env.read, below)),
            (NotADirectoryError, below, partial(env.write, below, b"x")),
            (NotADirectoryError, below, partial(env.stat, below)),
            (FileExistsError, f"{folder}/f", partial(env.mkdir, f"{folder}/f")),
            (FileExistsError, at, partial(env.mkdir, at, exist_ok=False)),
        ]
        for error, path, verb in cases:
            with pytest.raises(error) as caught:
                await verb()
            assert caught.value.filename == path
        with pytest.raises(OSError, match="empty"):
            await env.remove(at)
        async with env.open_read(missing) as chunks:
            with pytest.raises(FileNotFoundError):
                await anext(chunks)
        assert await env.read(f"{folder}/f") == b"x"

    async def test_C052_a_permission_that_is_missing_is_told_with_the_path(self, env: RunEnv, folder: str) -> None:
        """A file with mode 000, a folder with mode 555."""
        if self.is_privileged:
            pytest.skip("commands of this env may do everything")
        await env.write(f"{folder}/closed", b"x", mode=0)
        await env.mkdir(f"{folder}/d")
        assert (await env.exec(self.argv("chmod", "555", "d"), cwd=folder)).ok
        with pytest.raises(PermissionError) as caught:
            await env.read(f"{folder}/closed")
        assert caught.value.filename == f"{folder}/closed"
        for verb in (partial(env.write, f"{folder}/d/new", b""), partial(env.mkdir, f"{folder}/d/new")):
            with pytest.raises(PermissionError) as caught:
                await verb()
            assert caught.value.filename == f"{folder}/d/new"

    async def test_C048_a_place_that_may_not_be_written_says_so(self, env: RunEnv) -> None:
        """A typed error with the path; nothing that looks like a success."""
        if self.protected_path is None:
            pytest.skip("this env has no place where nothing may be written")
        with pytest.raises(OSError, match=r"(?i)permi|read-only|outside") as caught:
            await env.write(self.protected_path, b"x")
        assert caught.value.filename == self.protected_path
