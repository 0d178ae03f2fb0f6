"""The contract of envs with limits of their own, and of how an env's death is told (rules E12, E13, S2, S5).

Each test needs an ability that the subclass says its env has; without it the test is skipped.
"""

from __future__ import annotations

import asyncio
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from runenv.errors import EnvClosedError, EnvLostError
from runenv.testing.contract.base import Contract, until
from runenv.testing.contract.measure import MIB

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from runenv.env import RunEnv

__all__ = ("LimitsContract",)

FORK_BOMB = "f() { f | f & }; f"
ENDLESS_BOMB = f"{FORK_BOMB}; while :; do :; done"
"""Goes on without a new process for that, which it would not get any more: a shell that cannot fork ends."""


class LimitsContract(Contract):
    """Memory, disks, processes, isolation, and the end that nobody asked for."""

    # -- memory

    async def test_C024_out_of_memory_is_named_and_survived(self, env: RunEnv) -> None:
        """The flag comes from the kernel's counter; a plain SIGKILL afterwards does not carry it."""
        if self.memory_limit_bytes is None:
            pytest.skip("the memory of this env has no limit to run into")
        eat = self.argv("tail", "/dev/zero")
        if self.python is not None:
            eat = [self.python, "-c", f"len(bytearray({2 * self.memory_limit_bytes}))"]
        result = await env.exec(eat)
        assert (result.oom_killed, result.signal, result.exit_code) == (True, "SIGKILL", None)
        assert not result.timed_out
        assert (await env.exec(self.argv("echo", "alive"))).stdout.text == "alive\n"
        killed = await env.exec(self.script("kill -9 $$"))
        assert (killed.oom_killed, killed.signal) == (False, "SIGKILL")

    # -- disks

    async def test_F3_a_full_disk_is_an_error_and_the_old_file_is_intact(self, env: RunEnv, folder: str) -> None:
        """A write that does not fit, whole or as a stream, says so and leaves nothing of itself."""
        if self.disk_bytes is None:
            pytest.skip("the disk of this env is too large to be filled")
        await env.write(f"{folder}/f", b"old")
        await self._fill(env, folder)

        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(8):
                yield b"x" * MIB

        for data in (b"x" * (8 * MIB), pieces()):
            with pytest.raises(OSError, match="space") as caught:
                await env.write(f"{folder}/f", data)
            assert caught.value.filename == f"{folder}/f"
        assert await env.read(f"{folder}/f") == b"old"
        assert [entry.path for entry in await env.list(folder)] == ["f", "fill"]
        await env.remove(f"{folder}/fill")
        await env.write(f"{folder}/f", b"new")
        assert await env.read(f"{folder}/f") == b"new"

    async def test_O3_a_full_disk_never_fails_a_command(self) -> None:
        """Where the output should be kept there is no room: the command goes on, and the marker says what is there."""
        if self.disk_bytes is None:
            pytest.skip("the disk of this env is too large to be filled")
        async with self.make_env() as env:
            spill_path = (await env.exec(self.argv("seq", "1", "100000"))).stdout.spill_path
            assert spill_path is not None
            place = spill_path.rsplit("/", 2)[0]
            await self._fill(env, place)
            result = await env.exec(self.argv("seq", "1", "1000000"))
            assert (result.exit_code, result.stdout.truncated) == (0, True)
            assert result.stdout.spilled_bytes < result.stdout.total_bytes == 6_888_896
            assert ("its first" in result.stdout.text) is (result.stdout.spilled_bytes > 0)

    async def _fill(self, env: RunEnv, folder: str) -> None:
        full = await env.exec(self.argv("dd", "if=/dev/zero", "bs=1000000", f"of={folder}/fill"))
        assert "space" in full.stderr.text

    # -- processes

    async def test_C109_a_fork_bomb_ends_with_its_command(self, env: RunEnv, marker: str) -> None:
        """The env is usable at once, and another one does not notice."""
        if self.pids_limit is None:
            pytest.skip("the processes of this env have no limit")
        async with self.make_env() as other:
            bomb = partial(other.exec, self.script(ENDLESS_BOMB), env={"MARKER": marker}, timeout=2)
            task = asyncio.ensure_future(bomb())
            with anyio.fail_after(30):
                while not task.done():
                    assert (await env.exec(self.argv("echo", "ok"))).ok
                    await anyio.sleep(0.05)
            assert task.result().timed_out
            assert await self.marked(other, marker) == []
            after = await other.exec(self.argv("echo", "ok"))
            assert (after.stdout.text, after.stderr.text) == ("ok\n", "")

    async def test_C109_a_fork_bomb_does_not_keep_an_env_from_closing(self) -> None:
        """Left in the background, where no deadline ends it."""
        if self.pids_limit is None:
            pytest.skip("the processes of this env have no limit")
        env = self.make_env()
        async with env:
            assert (await env.exec(self.script(f"sleep 60 & {FORK_BOMB}; sleep 0.5"))).background
            with anyio.fail_after(10):
                await env.aclose()

    async def test_E9_without_room_for_a_process_the_limit_is_named(self) -> None:
        """A command that cannot be started since the limit of processes is reached: 126 and the reason."""
        if self.pids_limit is None:
            pytest.skip("the processes of this env have no limit")
        async with self.make_env() as env:
            await env.exec(self.script(f"i=0; while [ $i -lt {self.pids_limit} ]; do sleep 60 & i=$((i+1)); done"))
            # The end of that shell made room for one or two.
            tries = [env.exec(self.argv("sleep", "60"), timeout=1) for _ in range(8)]
            results = await asyncio.gather(*tries)
            refused = [result for result in results if not result.timed_out]
            assert len(refused) >= len(tries) // 2
            for result in refused:
                assert (result.exit_code, result.stdout.data) == (126, b"")
                assert "pids limit" in result.stderr.text

    async def test_E2_a_command_that_kills_all_it_can_is_a_result(self, marker: str) -> None:
        """`kill -9 -1` takes its supervisor too: that is said on stderr, nothing is left, and the env goes on."""
        if not self.is_isolated:
            pytest.skip("it would kill this host's processes")
        async with self.make_env() as env:
            assert (await env.exec(self.script("sleep 300 & echo"), env={"MARKER": marker})).background
            with anyio.fail_after(10):
                result = await env.exec(self.script("sleep 301 & kill -9 -1; sleep 302"), env={"MARKER": marker})
            assert (result.exit_code, result.signal) == (None, "SIGKILL")
            assert "runenv" in result.stderr.text
            assert await self.marked(env, marker) == []
            assert (await env.exec(self.argv("echo", "ok"))).stdout.text == "ok\n"

    # -- isolation

    async def test_S2_nothing_of_the_host_is_inside(self, env: RunEnv) -> None:
        """Neither its files, nor its processes, nor the engine's socket."""
        if not self.is_isolated:
            pytest.skip("this env is on the host, and says so")
        with tempfile.NamedTemporaryFile() as file:
            for path in (file.name, str(Path(__file__)), "/var/run/docker.sock", "/run/docker.sock"):
                with pytest.raises(FileNotFoundError):
                    await env.stat(path)
        processes = [entry.path for entry in await env.list("/proc") if entry.path.isdigit()]
        assert "1" in processes
        assert len(processes) < 50

    async def test_C108_the_defaults_give_a_command_no_power(self, env: RunEnv) -> None:
        """No network but the loopback, no capabilities, no new privileges; and the user is not root."""
        if not self.is_isolated:
            pytest.skip("this env is on the host, and says so")
        interfaces = (await env.exec(self.argv("cat", "/proc/net/dev"))).stdout.text.splitlines()[2:]
        assert [line.split(":")[0].strip() for line in interfaces] == ["lo"]
        status = (await env.exec(self.argv("cat", "/proc/self/status"))).stdout.text.splitlines()
        lines = dict(line.split(":\t", 1) for line in status)
        assert {int(lines[name], 16) for name in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb")} == {0}
        assert lines["NoNewPrivs"] == "1"
        assert "0" not in lines["Uid"].split()

    async def test_S5_what_the_configuration_keeps_secret_is_not_shown(self, env: RunEnv) -> None:
        """Values of the environment are in no description and no repr; their names may be."""
        if not self.environment:
            pytest.skip("the configuration of this env sets no variables")
        shown = f"{env.describe()!r} {env!r} {vars(env) if hasattr(env, '__dict__') else ''}"
        assert not [name for name, value in self.environment.items() if value in shown]

    # -- death

    async def test_E13_a_death_is_told_to_every_call(self) -> None:
        """Pending calls of all verbs get `EnvLostError` within a second, later ones at once; never a result."""
        env = self.make_env()
        async with env:
            held = anyio.Event()

            async def endless() -> AsyncIterator[bytes]:
                yield b"x"
                await held.wait()

            await env.exec(self.argv("true"))
            pending = [
                asyncio.ensure_future(env.exec(self.argv("sleep", "100"))),
                asyncio.ensure_future(env.exec(self.argv("cat", "/dev/zero"), timeout=None)),
                asyncio.ensure_future(env.write("endless", endless())),
            ]
            await anyio.sleep(0.1)
            assert not any(task.done() for task in pending)
            await self.kill_env(env)
            with anyio.fail_after(5):
                await asyncio.wait(pending[:2])
            for task in pending[:2]:
                assert isinstance(task.exception(), EnvLostError)
            held.set()
            with anyio.fail_after(5), pytest.raises(EnvLostError):
                await pending[2]
            for verb in (partial(env.exec, self.argv("true")), env.list, partial(env.write, "f", b"")):
                with anyio.fail_after(2), pytest.raises(EnvLostError):
                    await verb()
        with pytest.raises(EnvClosedError):
            await env.list()

    async def test_C068_the_death_of_one_env_is_not_that_of_another(self, env: RunEnv) -> None:
        """The reason is in the message; the others go on, and a new one can be opened."""
        other = self.make_env()
        async with other:
            await self.kill_env(other)

            async def is_lost() -> bool:
                try:
                    await other.exec(self.argv("true"))
                except EnvLostError as error:
                    return "lost" in str(error)
                return False

            await until(is_lost, timeout=5)
        assert (await env.exec(self.argv("echo", "ok"))).ok
        async with self.make_env() as another:
            assert (await another.exec(self.argv("echo", "ok"))).ok
