"""The contract of `write`: whole or not at all, modes, owners, links (rule F3)."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import anyio
import pytest

from runenv.testing.contract.base import Contract

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from runenv.env import RunEnv

__all__ = ("WritesContract",)


class WritesContract(Contract):
    """Making, replacing and appending to files."""

    async def test_F3_parents_are_made_and_modes_are_plain(self, env: RunEnv, folder: str) -> None:
        """A new file has mode 644 or the one that is given, and belongs to the commands' user."""
        await env.write(f"{folder}/a/b/c/new", b"x")
        await env.write(f"{folder}/run", b"#!/bin/sh\n", mode=0o750)
        assert (await env.stat(f"{folder}/a/b/c/new")).mode == stat.S_IFREG | 0o644
        assert (await env.stat(f"{folder}/run")).mode == stat.S_IFREG | 0o750
        assert (await env.stat(f"{folder}/a/b")).is_dir

    async def test_C045_files_belong_to_the_commands_user(self, env: RunEnv, folder: str) -> None:
        """A command can change, append to and delete what was written, and the other way round."""
        await env.write(f"{folder}/a", b"a\n")
        assert (await env.exec(self.argv("touch", "b"), cwd=folder)).ok
        ours, theirs = await env.stat(f"{folder}/a"), await env.stat(f"{folder}/b")
        assert (ours.uid, ours.gid) == (theirs.uid, theirs.gid)
        assert str(ours.uid) == (await env.exec(self.argv("id", "-u"))).stdout.text.strip()
        assert (await env.exec(self.script("echo b >> a && chmod 600 a"), cwd=folder)).ok
        await env.write(f"{folder}/a", b"c\n", append=True)
        assert await env.read(f"{folder}/a") == b"a\nb\nc\n"
        assert (await env.exec(self.argv("rm", "a"), cwd=folder)).ok

    async def test_C044_overwriting_keeps_the_mode(self, env: RunEnv, folder: str) -> None:
        """An executable stays one; a mode that is given is taken."""
        await env.write(f"{folder}/f", b"old", mode=0o755)
        await env.write(f"{folder}/f", b"new")
        assert ((await env.stat(f"{folder}/f")).mode & 0o7777, await env.read(f"{folder}/f")) == (0o755, b"new")
        await env.write(f"{folder}/f", b"newer", mode=0o600)
        assert (await env.stat(f"{folder}/f")).mode & 0o7777 == 0o600

    async def test_C044_writing_through_a_link_replaces_what_it_points_to(self, env: RunEnv, folder: str) -> None:
        """The link stays a link. A hard link is another name of the old file, and keeps the old content."""
        await env.write(f"{folder}/f", b"old")
        assert (await env.exec(self.argv("ln", "-s", "f", "soft"), cwd=folder)).ok
        assert (await env.exec(self.argv("ln", "f", "hard"), cwd=folder)).ok
        assert (await env.exec(self.argv("ln", "-s", "sub/new", "dangling"), cwd=folder)).ok
        await env.write(f"{folder}/soft", b"new")
        link = await env.stat(f"{folder}/soft", follow_symlinks=False)
        assert (link.is_symlink, link.target) == (True, "f")
        assert (await env.read(f"{folder}/f"), await env.read(f"{folder}/hard")) == (b"new", b"old")
        await env.write(f"{folder}/dangling", b"made")
        assert await env.read(f"{folder}/sub/new") == b"made"

    async def test_C044_a_reader_sees_one_whole_version(self, env: RunEnv, folder: str) -> None:
        """20 writers of 1 MB each, again and again, and a reader: never a mix, never a part; no other name is left."""
        size = 1_000_000
        await env.write(f"{folder}/f", bytes(size))
        running = 20

        async def write(number: int) -> None:
            nonlocal running
            for _ in range(2):
                await env.write(f"{folder}/f", bytes([number]) * size)
            running -= 1

        seen: set[int] = set()
        async with anyio.create_task_group() as group:
            for number in range(1, 21):
                group.start_soon(write, number)
            while running:
                content = await env.read(f"{folder}/f")
                assert content == content[:1] * size
                seen.add(content[0])
        assert len(seen) > 1
        assert [entry.path for entry in await env.list(folder)] == ["f"]

    async def test_C044_a_write_that_fails_leaves_the_old_file(self, env: RunEnv, folder: str) -> None:
        """The source of a stream breaks in the middle: its error comes out, the old content stays, nothing is left."""
        await env.write(f"{folder}/f", b"old")

        async def breaks() -> AsyncIterator[bytes]:
            yield bytes(1_000_000)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await env.write(f"{folder}/f", breaks())
        with pytest.raises(ZeroDivisionError):
            await env.write(f"{folder}/g", breaks())
        assert await env.read(f"{folder}/f") == b"old"
        assert [entry.path for entry in await env.list(folder)] == ["f"]

    async def test_F3_a_cancelled_write_leaves_the_old_file(self, env: RunEnv, folder: str) -> None:
        """However much had been sent."""
        await env.write(f"{folder}/f", b"old")

        async def stalls() -> AsyncIterator[bytes]:
            yield bytes(1_000_000)
            await anyio.sleep(60)

        with anyio.fail_after(10), anyio.move_on_after(0.2) as scope:
            await env.write(f"{folder}/f", stalls())
        assert scope.cancelled_caught
        assert await env.read(f"{folder}/f") == b"old"
        assert [entry.path for entry in await env.list(folder)] == ["f"]

    async def test_F1_appending_adds_to_the_end(self, env: RunEnv, folder: str) -> None:
        """To a new file, to an old one, from a stream."""

        async def pieces() -> AsyncIterator[bytes]:
            for number in range(3):
                yield b"%d" % number

        await env.write(f"{folder}/sub/log", b"a", append=True)
        await env.write(f"{folder}/sub/log", b"b", append=True)
        await env.write(f"{folder}/sub/log", pieces(), append=True)
        assert await env.read(f"{folder}/sub/log") == b"ab012"
