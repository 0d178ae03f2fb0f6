"""The contract of `upload` and `download`: files and trees as streams, safe in both directions (rules F6 to F9)."""

from __future__ import annotations

import hashlib
import os
import stat
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import anyio
import pytest

from runenv.testing.contract.base import Contract, need_free_disk
from runenv.testing.contract.measure import MIB, Memory

if TYPE_CHECKING:
    from pathlib import Path

    from runenv.env import RunEnv

__all__ = ("TreesContract",)

MTIME = 981_173_106
"""Whole seconds, since that is what trees keep of a time."""
FLAT_BYTES = 24 * MIB
"""What a transfer may cost this process at most, whatever its size: buffers of the link, a thread, the disk's."""


def make_tree(root: Path) -> None:
    """Make a folder with what real ones have: hidden, empty, executable, linked, nested, oddly named."""
    for folder in (".git/refs", "empty", "src/deep/er", "odd names"):
        (root / folder).mkdir(parents=True)
    for name, content in {
        ".env": b"A=1\n",
        ".git/config": b"[core]\n",
        "src/main.py": b"print(1)\n",
        "src/deep/er/data.bin": bytes(range(256)) * 300,
        "src/zero": b"",
        "odd names/a\nb": b"newline",
        "odd names/-rf": b"dash",
        "odd names/" + "n" * 255: b"long",
        os.fsdecode(b"odd names/\xff\xfe"): b"not utf-8",
    }.items():
        (root / name).write_bytes(content)
    script = root / "run.sh"
    script.write_bytes(b"#!/bin/sh\necho ran\n")
    script.chmod(0o755)
    (root / "src/main.py").chmod(0o600)
    (root / "link").symlink_to("src/main.py")
    (root / "src/up").symlink_to("../run.sh")
    (root / "folder link").symlink_to("src")
    for path in (root / "src/main.py", root / "empty"):
        os.utime(path, (MTIME, MTIME))


def snapshot(root: Path) -> dict[str, object]:
    """What a tree holds: by relative path the content and mode, or the link's target, or that it is a folder."""
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = ("link", str(path.readlink()))
        elif path.is_dir():
            found[name] = "folder"
        else:
            found[name] = (path.read_bytes(), stat.S_IMODE(path.stat().st_mode))
    return found


def make_noise(path: Path, size: int) -> str:
    """Write a file of noise and return its SHA-256."""
    digest, seed = hashlib.sha256(), os.urandom(MIB)
    with path.open("wb") as file:
        for number in range(size // MIB):
            piece = number.to_bytes(8, "big") + seed[8:]
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file of this host."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def mtime_of(path: Path) -> float:
    """Return the time of a file of this host."""
    return path.stat().st_mtime


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder of this host."""
    return sorted(entry.name for entry in folder.iterdir())


def free_place(tmp_path: Path, size: int) -> None:
    """Skip without room for a file and its copy."""
    need_free_disk(tmp_path, 3 * size)


class TreesContract(Contract):
    """Host to env and back."""

    big_file_bytes: ClassVar[int] = 256 * MIB
    """Size of a file that is moved with flat memory."""

    # -- files

    async def test_F6_a_file_of_256_MiB_goes_up_and_down(self, env: RunEnv, folder: str, tmp_path: Path) -> None:
        """SHA-256 equal on all three sides, and this process' memory stays flat."""
        free_place(tmp_path, self.big_file_bytes)
        expected = make_noise(tmp_path / "up", self.big_file_bytes)
        with Memory() as memory:
            sent = await env.upload(tmp_path / "up", f"{folder}/big")
            received = await env.download(f"{folder}/big", tmp_path / "down")
        assert memory.growth_bytes < FLAT_BYTES
        assert (sent.files, sent.bytes) == (received.files, received.bytes) == (1, self.big_file_bytes)
        inside = await env.exec(self.argv("sha256sum", "big"), cwd=folder)
        assert inside.stdout.text.split()[0] == sha256_of(tmp_path / "down") == expected
        (tmp_path / "up").unlink()
        (tmp_path / "down").unlink()

    async def test_F1_a_file_keeps_its_mode_and_time(self, env: RunEnv, folder: str, tmp_path: Path) -> None:
        """The target is the path of the copy itself; parents are made; an old file there is replaced."""
        make_tree(tmp_path / "t")
        await env.write(f"{folder}/new/name", b"old content that is longer")
        await env.upload(tmp_path / "t/src/main.py", f"{folder}/new/name")
        info = await env.stat(f"{folder}/new/name")
        assert (info.size, info.mtime) == (9, MTIME)
        assert await env.read(f"{folder}/new/name") == b"print(1)\n"
        await env.download(f"{folder}/new/name", tmp_path / "x/y/back")
        assert (tmp_path / "x/y/back").read_bytes() == b"print(1)\n"
        assert mtime_of(tmp_path / "x/y/back") == MTIME
        await env.upload(str(tmp_path / "t/run.sh"), f"{folder}/run")
        assert (await env.stat(f"{folder}/run")).mode & 0o777 == 0o755
        await env.download(f"{folder}/run", str(tmp_path / "run"))
        assert os.access(tmp_path / "run", os.X_OK)

    async def test_F2_a_transfer_that_cannot_be_is_a_builtin_error(
        self, env: RunEnv, folder: str, tmp_path: Path
    ) -> None:
        """Missing on either side, or in the way; nothing is left of it."""
        (tmp_path / "f").write_bytes(b"x")
        await env.write(f"{folder}/f", b"x")
        with pytest.raises(FileNotFoundError) as caught:
            await env.upload(tmp_path / "no", f"{folder}/g")
        assert caught.value.filename == str(tmp_path / "no")
        with pytest.raises(FileNotFoundError) as caught:
            await env.download(f"{folder}/no", tmp_path / "g")
        assert caught.value.filename == f"{folder}/no"
        with pytest.raises(IsADirectoryError):
            await env.upload(tmp_path / "f", folder)
        with pytest.raises(IsADirectoryError):
            await env.download(f"{folder}/f", tmp_path)
        with pytest.raises(NotADirectoryError):
            await env.upload(tmp_path / "f", f"{folder}/f/g")
        assert (names_in(tmp_path), [entry.path for entry in await env.list(folder)]) == (["f"], ["f"])

    async def test_C106_special_files_are_refused_in_both_directions(
        self, env: RunEnv, folder: str, tmp_path: Path
    ) -> None:
        """A FIFO on either side is named and never waited for."""
        os.mkfifo(tmp_path / "fifo")
        assert (await env.exec(self.argv("mkfifo", "fifo"), cwd=folder)).ok
        with anyio.fail_after(2), pytest.raises(OSError, match="FIFO"):
            await env.upload(tmp_path / "fifo", f"{folder}/copy")
        with anyio.fail_after(2), pytest.raises(OSError, match="FIFO"):
            await env.download(f"{folder}/fifo", tmp_path / "copy")

    async def test_F9_progress_of_a_file_is_told(self, env: RunEnv, folder: str, tmp_path: Path) -> None:
        """Bytes done, rising to the size, with the total."""
        size = 8 * MIB
        make_noise(tmp_path / "f", size)
        for transfer in (
            partial(env.upload, tmp_path / "f", f"{folder}/f"),
            partial(env.download, f"{folder}/f", tmp_path / "g"),
        ):
            told: list[tuple[int, int | None]] = []
            await transfer(progress=lambda done, total, told=told: told.append((done, total)))
            assert len(told) > 1
            assert [done for done, _ in told] == sorted(done for done, _ in told)
            assert told[-1] == (size, size)

    # -- trees

    async def test_F7_a_tree_goes_up_and_down_unchanged(self, env: RunEnv, folder: str, tmp_path: Path) -> None:
        """Content, modes, links, hidden and empty folders, odd names; times of files and folders."""
        make_tree(tmp_path / "t")
        sent = await env.upload(tmp_path / "t", f"{folder}/t")
        received = await env.download(f"{folder}/t", tmp_path / "back")
        assert (sent.refused, received.refused) == ((), ())
        assert (sent.files, sent.bytes) == (received.files, received.bytes)
        assert snapshot(tmp_path / "back") == snapshot(tmp_path / "t")
        assert mtime_of(tmp_path / "back/src/main.py") == MTIME
        assert mtime_of(tmp_path / "back/empty") == MTIME

    async def test_C052_a_tree_arrives_with_all_that_is_in_it(self, env: RunEnv, folder: str, tmp_path: Path) -> None:
        """As a command sees it: .git, .env, an empty folder, a script that runs; owned by the commands' user."""
        make_tree(tmp_path / "t")
        await env.upload(tmp_path / "t", f"{folder}/t")
        found = await env.exec(self.argv("find", ".", "-maxdepth", "1"), cwd=f"{folder}/t")
        names = {"./.env", "./.git", "./empty", "./folder link", "./link", "./odd names", "./run.sh", "./src", "."}
        assert set(found.stdout.text.split("\n")) == names | {""}
        assert await env.list(f"{folder}/t/empty") == []
        uid = (await env.exec(self.argv("id", "-u"))).stdout.text.strip()
        assert {str(entry.uid) for entry in await env.list(f"{folder}/t")} == {uid}
        ran = await env.exec(self.script(". ./run.sh && test -x run.sh && cat link src/up"), cwd=f"{folder}/t")
        assert ran.stdout.text == "ran\nprint(1)\n#!/bin/sh\necho ran\n"

    async def test_F7_a_tree_is_merged_into_a_folder(self, env: RunEnv, folder: str, tmp_path: Path) -> None:
        """Files are replaced, others stay; a link in the way is replaced, not followed. In both directions."""
        for root in ("new", "old"):
            (tmp_path / root / "d").mkdir(parents=True)
            (tmp_path / root / "d/f").write_bytes(root.encode())
            (tmp_path / root / f"only-{root}").write_bytes(b"")
        (tmp_path / "outside").write_bytes(b"untouched")
        (tmp_path / "old/l").symlink_to(tmp_path / "outside")
        (tmp_path / "new/l").write_bytes(b"file")
        await env.write(f"{folder}/outside", b"untouched")
        await env.write(f"{folder}/t/d/f", b"old")
        await env.write(f"{folder}/t/only-old", b"")
        assert (await env.exec(self.argv("ln", "-s", "../outside", "t/l"), cwd=folder)).ok
        await env.upload(tmp_path / "new", f"{folder}/t")
        assert [entry.path for entry in await env.list(f"{folder}/t")] == ["d", "l", "only-new", "only-old"]
        assert [await env.read(f"{folder}/{name}") for name in ("t/d/f", "t/l", "outside")] == [
            b"new",
            b"file",
            b"untouched",
        ]
        await env.download(f"{folder}/t", tmp_path / "old")
        assert names_in(tmp_path / "old") == ["d", "l", "only-new", "only-old"]
        assert [(tmp_path / name).read_bytes() for name in ("old/d/f", "old/l", "outside")] == [
            b"new",
            b"file",
            b"untouched",
        ]

    async def test_F7_links_of_the_host_are_not_followed_unless_asked(
        self, env: RunEnv, folder: str, tmp_path: Path
    ) -> None:
        """A secret that a link points to stays on the host; with `follow_symlinks` it is what the caller wants."""
        secret = tmp_path / "secret"
        secret.mkdir()
        (secret / "key").write_bytes(b"secret")
        tree = tmp_path / "t"
        tree.mkdir()
        (tree / "file").symlink_to(secret / "key")
        (tree / "folder").symlink_to(secret)
        await env.upload(tree, f"{folder}/a")
        for name in ("file", "folder"):
            assert (await env.stat(f"{folder}/a/{name}", follow_symlinks=False)).is_symlink
        await env.upload(tree, f"{folder}/b", follow_symlinks=True)
        assert await env.read(f"{folder}/b/file") == b"secret"
        assert await env.read(f"{folder}/b/folder/key") == b"secret"
        assert not (await env.stat(f"{folder}/b/folder", follow_symlinks=False)).is_symlink

    async def test_C106_nothing_lands_outside_of_the_target(self, env: RunEnv, folder: str, tmp_path: Path) -> None:
        """Links out of the tree, FIFOs and special bits are left out and listed; the host is unchanged."""
        script = self.script(
            "mkdir -p t/d && cd t && ln -s /etc/passwd absolute && ln -s ../../../x up && ln -s d/../../y sneaky"
            " && mkfifo fifo && echo fine > f && echo > setuid && chmod 4755 setuid"
            " && ln -s f good && ln -s ../f d/good"
        )
        assert (await env.exec(script, cwd=folder)).ok
        (tmp_path / "host").mkdir()
        result = await env.download(f"{folder}/t", tmp_path / "host/t")
        assert names_in(tmp_path) == ["host"]
        assert names_in(tmp_path / "host") == ["t"]
        assert names_in(tmp_path / "host/t") == ["d", "f", "good", "setuid"]
        assert {refused.path for refused in result.refused} == {"absolute", "up", "sneaky", "fifo", "setuid"}
        assert all(refused.reason for refused in result.refused)
        assert result.refused_count == 5
        assert stat.S_IMODE((tmp_path / "host/t/setuid").stat().st_mode) & stat.S_ISUID == 0
        assert (tmp_path / "host/t/d/good").read_bytes() == b"fine\n"

    async def test_C106_a_link_at_the_target_is_not_written_through(
        self, env: RunEnv, folder: str, tmp_path: Path
    ) -> None:
        """A folder of the sandbox where the host has a link to somewhere else: refused, and the place is untouched."""
        await env.write(f"{folder}/t/out/x", b"attack")
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "t").mkdir()
        (tmp_path / "t/out").symlink_to(tmp_path / "elsewhere")
        result = await env.download(f"{folder}/t", tmp_path / "t")
        assert names_in(tmp_path / "elsewhere") == []
        assert {refused.path for refused in result.refused} >= {"out/x"}

    async def test_F7_special_files_of_the_host_are_left_out_and_listed(
        self, env: RunEnv, folder: str, tmp_path: Path
    ) -> None:
        """The rest of the tree arrives."""
        (tmp_path / "t").mkdir()
        os.mkfifo(tmp_path / "t/fifo")
        (tmp_path / "t/f").write_bytes(b"x")
        with anyio.fail_after(5):
            result = await env.upload(tmp_path / "t", f"{folder}/t")
        assert [entry.path for entry in await env.list(f"{folder}/t")] == ["f"]
        assert [refused.path for refused in result.refused] == ["fifo"]
        assert "FIFO" in result.refused[0].reason

    @pytest.mark.parametrize(
        ("include", "exclude", "expected"),
        [
            (["*.py"], [], ["a.py", "src/b.py", "src/deep/c.py"]),
            ([], ["*.py"], [".git/config", "build/out.o", "src/notes.md"]),
            (["src/*.py"], [], ["src/b.py"]),
            (["src/**/*.py"], [], ["src/b.py", "src/deep/c.py"]),
            ([], [".git", "build"], ["a.py", "src/b.py", "src/deep/c.py", "src/notes.md"]),
            (["*.py"], ["deep"], ["a.py", "src/b.py"]),
            (["*.none"], [], []),
        ],
        ids=str,
    )
    async def test_F7_patterns_choose_what_is_moved(
        self, env: RunEnv, folder: str, tmp_path: Path, include: list[str], exclude: list[str], expected: list[str]
    ) -> None:
        """The same files by the same patterns, in both directions; exclude wins."""
        names = ("a.py", "src/b.py", "src/deep/c.py", "src/notes.md", ".git/config", "build/out.o")
        for name in names:
            (tmp_path / "t" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "t" / name).write_bytes(name.encode())
        up = await env.upload(tmp_path / "t", f"{folder}/some", include=include, exclude=exclude)
        await env.upload(tmp_path / "t", f"{folder}/all")
        down = await env.download(f"{folder}/all", tmp_path / "back", include=include, exclude=exclude)
        find = await env.exec(self.argv("find", ".", "-type", "f"), cwd=f"{folder}/some")
        assert sorted(path.removeprefix("./") for path in find.stdout.text.split()) == expected
        back = tmp_path / "back"
        assert sorted(str(path.relative_to(back)) for path in back.rglob("*") if path.is_file()) == expected
        assert up.files == down.files == len(expected)

    async def test_F6_a_thousand_small_files_and_empty_folders(self, env: RunEnv, folder: str, tmp_path: Path) -> None:
        """More entries than fit into a frame or a window."""
        for number in range(100):
            (tmp_path / f"t/full/{number}").mkdir(parents=True)
            (tmp_path / f"t/empty/{number}").mkdir(parents=True)
            for name in range(10):
                (tmp_path / f"t/full/{number}/{name}").write_bytes(b"%d/%d" % (number, name))
        sent = await env.upload(tmp_path / "t", f"{folder}/t")
        received = await env.download(f"{folder}/t", tmp_path / "back")
        assert sent.files == received.files == 1000
        assert snapshot(tmp_path / "back") == snapshot(tmp_path / "t")

    async def test_F6_a_sparse_file_in_a_tree_stays_right(self, env: RunEnv, folder: str, tmp_path: Path) -> None:
        """Holes are zeros on the other side, and take no room where the file system knows holes."""
        (tmp_path / "t").mkdir()
        with (tmp_path / "t/sparse").open("wb") as file:
            file.truncate(64 * MIB)
            file.seek(32 * MIB)
            file.write(b"middle")
        await env.upload(tmp_path / "t", f"{folder}/t")
        await env.download(f"{folder}/t", tmp_path / "back")
        assert sha256_of(tmp_path / "back/sparse") == sha256_of(tmp_path / "t/sparse")
        used = await env.exec(self.argv("du", "-k", "sparse"), cwd=f"{folder}/t")
        assert int(used.stdout.text.split()[0]) < 1024

    async def test_F9_progress_of_a_tree_is_told(self, env: RunEnv, folder: str, tmp_path: Path) -> None:
        """Content bytes done; the total of a tree is not known before its end."""
        (tmp_path / "t").mkdir()
        for number in range(4):
            make_noise(tmp_path / f"t/{number}", 2 * MIB)
        for transfer in (
            partial(env.upload, tmp_path / "t", f"{folder}/t"),
            partial(env.download, f"{folder}/t", tmp_path / "back"),
        ):
            told: list[int] = []
            result = await transfer(progress=lambda done, _, told=told: told.append(done))
            assert len(told) > 1
            assert told == sorted(told)
            assert told[-1] == result.bytes == 8 * MIB

    async def test_F1_several_transfers_run_at_once(self, env: RunEnv, folder: str, tmp_path: Path) -> None:
        """More than there are threads for them, while commands go on."""
        make_tree(tmp_path / "t")

        async def one(number: int) -> None:
            await env.upload(tmp_path / "t", f"{folder}/{number}")
            await env.download(f"{folder}/{number}", tmp_path / f"back{number}")

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for number in range(12):
                    group.start_soon(one, number)
                assert (await env.exec(self.argv("echo", "ok"))).ok
        expected = snapshot(tmp_path / "t")
        assert all(snapshot(tmp_path / f"back{number}") == expected for number in range(12))

    async def test_F3_a_cancelled_transfer_leaves_no_part_of_a_file(
        self, env: RunEnv, folder: str, tmp_path: Path
    ) -> None:
        """Neither in the env nor on the host; the env goes on."""
        free_place(tmp_path, self.big_file_bytes)
        assert (await env.exec(self.argv("truncate", "-s", "1G", "big"), cwd=folder)).ok
        with anyio.fail_after(10), anyio.move_on_after(0.05) as scope:
            await env.download(f"{folder}/big", tmp_path / "d/copy")
        assert scope.cancelled_caught
        assert names_in(tmp_path / "d") == []
        with (tmp_path / "up").open("wb") as file:
            file.truncate(1024**3)
        with anyio.fail_after(10), anyio.move_on_after(0.05) as scope:
            await env.upload(tmp_path / "up", f"{folder}/copy")
        assert scope.cancelled_caught
        assert [entry.path for entry in await env.list(folder)] == ["big"]
