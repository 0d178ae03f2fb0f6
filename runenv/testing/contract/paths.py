"""The contract of paths: names that look like something else, files that are none, ways out of the workdir.

Rules F4 and F5, and the confinement of those envs that have it.
"""

from __future__ import annotations

import stat
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import pytest

from runenv.errors import LimitError
from runenv.testing.contract.base import Contract

if TYPE_CHECKING:
    from runenv.env import RunEnv

__all__ = ("PathsContract",)

ODD_NAMES: Final = (
    "-rf", "--help", "-", "a\nb", "it's $(x).txt", ' "quoted" ', " lead", "trail ", "*", "a\\b", "{}", "~", "%s", "#x",
    "ünïcödé", "日本語", "😀", "e\u0301", "\u202e", "\udcff\udcfe", "\t", "\x1b[31m", "...", "n" * 255, "é" * 127,
)  # fmt: skip
"""Names that some program takes for something else. The surrogate escapes are bytes that are not UTF-8."""


class PathsContract(Contract):
    """What a path may be, and where it leads."""

    # -- names

    @pytest.mark.parametrize("name", ODD_NAMES, ids=lambda name: ascii(name)[:30])
    async def test_C041_odd_names_are_only_names(self, env: RunEnv, folder: str, name: str) -> None:
        """Written, read, listed, described, renamed, removed: exact, nothing run, nothing globbed."""
        await env.write(f"{folder}/other", b"stays")
        await env.write(f"{folder}/{name}", b"content")
        assert await env.read(f"{folder}/{name}") == b"content"
        assert [entry.path for entry in await env.list(folder)] == sorted([name, "other"])
        assert (await env.stat(f"{folder}/{name}")).path == f"{folder}/{name}"
        await env.rename(f"{folder}/{name}", f"{folder}/new")
        await env.rename(f"{folder}/new", f"{folder}/{name}")
        shown = await env.exec(self.argv("cat", f"{folder}/{name}"))
        assert shown.stdout.data == b"content"
        await env.mkdir(f"{folder}/d/{name}")
        assert (await env.exec(self.argv("pwd"), cwd=f"{folder}/d/{name}")).exit_code == 0
        await env.remove(f"{folder}/{name}")
        await env.remove(f"{folder}/d", recursive=True)
        assert [entry.path for entry in await env.list(folder)] == ["other"]

    async def test_C041_a_name_of_256_bytes_is_a_clear_error(self, env: RunEnv, folder: str) -> None:
        """As is a path that no system takes; and one that is none is the caller's fault."""
        with pytest.raises(OSError, match="long"):
            await env.write(f"{folder}/{'n' * 256}", b"")
        with pytest.raises(OSError, match="long"):
            await env.read(f"{folder}/{'d/' * 3000}f")
        for path in ("", "a\0b"):
            with pytest.raises(ValueError, match="path"):
                await env.read(path)

    async def test_F4_relative_names_that_look_like_options_are_names(self, env: RunEnv) -> None:
        """Without a folder before them."""
        for name in ("-rf", "--", "-"):
            await env.write(name, b"x")
            assert await env.read(name) == b"x"
            await env.remove(name)
            with pytest.raises(FileNotFoundError):
                await env.stat(name)

    # -- special files

    @pytest.mark.parametrize("verb", ["read", "open_read", "write"])
    async def test_C037_what_would_block_is_refused(self, env: RunEnv, folder: str, verb: str) -> None:
        """A FIFO, a link to one, devices: at once, with an error that names the type."""
        assert (await env.exec(self.argv("mkfifo", "fifo"), cwd=folder)).ok
        assert (await env.exec(self.argv("ln", "-s", "fifo", "link"), cwd=folder)).ok
        paths = {f"{folder}/fifo": "FIFO", f"{folder}/link": "FIFO"}
        if not self.is_confined:
            paths |= {"/dev/zero": "device", "/dev/null": "device"}
        for path, kind in paths.items():
            with anyio.fail_after(2), pytest.raises(OSError, match=kind) as caught:
                await self._touch(env, verb, path)
            assert caught.value.filename == path

    async def test_C037_a_socket_is_refused(self, env: RunEnv, folder: str) -> None:
        """Reading it, writing it; removing it works."""
        await self.make_socket(env, f"{folder}/s")
        for verb in ("read", "open_read", "write"):
            with anyio.fail_after(2), pytest.raises(OSError, match="socket"):
                await self._touch(env, verb, f"{folder}/s")
        assert stat.S_ISSOCK((await env.stat(f"{folder}/s")).mode)
        await env.remove(f"{folder}/s")

    async def test_C037_no_odd_file_of_the_system_makes_a_call_hang(self, env: RunEnv) -> None:
        """/dev/stdin, the kernel's log, a terminal: refused or read, within a second each."""
        paths = ["/dev/stdin", "/dev/tty", "/proc/self/mem", "/proc/sysrq-trigger", "/sys"]
        if not self.is_privileged:
            paths.append("/proc/kmsg")  # whoever may read it takes it away from the host's log
        for path in paths:
            with anyio.fail_after(2), suppress(OSError):
                await env.read(path, max_bytes=1000)
        assert (await env.exec(self.argv("echo", "ok"))).ok

    async def _touch(self, env: RunEnv, verb: str, path: str) -> None:
        if verb == "write":
            await env.write(path, b"x")
        elif verb == "read":
            await env.read(path)
        else:
            async with env.open_read(path) as chunks:
                await anext(chunks)

    async def test_F5_files_without_size_are_read_to_their_end(self, env: RunEnv) -> None:
        """What /proc makes up while it is read, with the same limit as other files."""
        if self.is_confined:
            pytest.skip("/proc is outside of what the file verbs of this env reach")
        content = await env.read("/proc/self/status")
        assert content.startswith(b"Name:")
        assert content.endswith(b"\n")
        assert await env.read("/proc/self/status", offset=5, length=3) == content[5:8]
        with pytest.raises(LimitError):
            await env.read("/proc/self/status", max_bytes=10)

    # -- confinement

    async def test_C038_links_do_not_lead_out(self, env: RunEnv, folder: str) -> None:
        """Absolute, to a folder, in a chain, relative, and in the middle of a path; links that stay inside work."""
        if not self.is_confined:
            pytest.skip("file verbs of this env reach all of it")
        up = "../" * 30
        links = {"leak": "/etc/passwd", "d": "/etc", "chain": "leak", "relative": f"{up}etc/passwd", "up": "../.."}
        for name, target in links.items():
            assert (await env.exec(self.argv("ln", "-s", target, name), cwd=folder)).ok
        assert (await env.exec(self.argv("ln", "-s", "inside/f", "good"), cwd=folder)).ok
        for path in ("leak", "d/passwd", "chain", "relative", "up/x", "inside/../../../x"):
            await env.mkdir(f"{folder}/inside")
            for verb in (partial(env.read, f"{folder}/{path}"), partial(env.write, f"{folder}/{path}", b"x")):
                with pytest.raises(PermissionError, match="outside"):
                    await verb()
        await env.write(f"{folder}/good", b"fine")
        assert await env.read(f"{folder}/inside/f") == b"fine"
        with pytest.raises(PermissionError, match="outside"):
            await env.list(f"{folder}/d")

    async def test_C040_siblings_and_dots_do_not_lead_out(self, env: RunEnv) -> None:
        """A folder whose name begins like the workdir's, bare `..`, and both together; for `cwd` alike."""
        if not self.is_confined:
            pytest.skip("file verbs of this env reach all of it")
        work = env.workdir
        evil = f"{work}-evil"
        for path in (f"{evil}/x", "..", "a/../../x", f"{work}/../{evil.rpartition('/')[2]}/x", "/", "/etc/passwd"):
            for verb in (env.stat, env.read, partial(env.write, data=b"x"), partial(env.remove, recursive=True)):
                with pytest.raises(OSError, match=r"outside|directory"):
                    await verb(path)
        for cwd in (evil, "..", "/etc"):
            result = await env.exec(self.argv("pwd"), cwd=cwd)
            assert (result.exit_code, result.stdout.data) == (126, b"")
            assert "outside" in result.stderr.text
        for path in (work, f"{work}/", f"{work}/."):
            assert (await env.stat(path)).is_dir
            assert (await env.exec(self.argv("pwd"), cwd=path)).stdout.text == f"{work}\n"
