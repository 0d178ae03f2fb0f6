"""The contract of commands that do not end by themselves: deadlines, cancellation, what is left in the background.

Rules E3 to E6. "Nothing is left" is looked up in /proc, by a variable that only the commands of one test have.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import anyio
import pytest

from runenv.testing.contract.base import Contract, until

if TYPE_CHECKING:
    from runenv.env import RunEnv

__all__ = ("EndsContract",)

MANY = 300
"""Commands that each leave a child to the first process."""


class EndsContract(Contract):
    """Timeouts, cancellation, background."""

    # -- deadlines

    async def test_C001_a_timeout_takes_the_whole_tree(self, env: RunEnv, folder: str, marker: str) -> None:
        """A loop that feeds a pipe and a reader of it: the output so far comes back, and no process is left."""
        script = self.script("mkfifo p; (while :; do echo tick; sleep 0.2; done) > p & cat p")
        with anyio.fail_after(10):
            result = await env.exec(script, cwd=folder, env={"MARKER": marker}, timeout=1)
        assert (result.timed_out, result.exit_code, result.ok) == (True, None, False)
        assert result.stdout.text.startswith("tick\ntick\n")
        assert await self.marked(env, marker) == []
        assert (await env.exec(self.argv("echo", "ok"))).stdout.text == "ok\n"

    async def test_C002_a_command_that_ignores_term_is_killed(self, env: RunEnv, marker: str) -> None:
        """A plain sleeper, and one behind a shell that ignores TERM; no program `timeout` is needed."""
        with anyio.fail_after(15):
            plain = await env.exec(self.argv("sleep", "987"), env={"MARKER": marker}, timeout=0.3)
            deaf = await env.exec(self.script('trap "" TERM; sleep 986'), env={"MARKER": marker}, timeout=0.3)
        assert (plain.timed_out, plain.signal) == (True, "SIGTERM")
        assert (deaf.timed_out, deaf.signal) == (True, "SIGKILL")
        assert await self.marked(env, marker) == []

    async def test_E3_a_command_may_use_the_grace_to_clean_up(self, env: RunEnv) -> None:
        """TERM comes first: what the command says then is in the result, which is a timeout all the same."""
        script = self.script('trap "echo cleaning; exit 0" TERM; echo begin; while :; do sleep 0.05; done')
        result = await env.exec(script, timeout=0.5)
        assert (result.stdout.text, result.timed_out) == ("begin\ncleaning\n", True)

    async def test_C006_a_timeout_takes_daemons_in_sessions_of_their_own(self, env: RunEnv, marker: str) -> None:
        """`setsid`, and a fork of a fork whose parents are gone: descendants all the same."""
        setsid = " ".join(self.argv("setsid", "sleep", "301"))
        script = self.script(f"{setsid} & (({setsid} >/dev/null 2>&1 &) &); sleep 302")
        result = await env.exec(script, env={"MARKER": marker}, timeout=0.5)
        assert result.timed_out
        assert await self.marked(env, marker) == []

    async def test_C031_partial_output_survives_a_timeout(self, env: RunEnv) -> None:
        """Both streams, as far as they came."""
        result = await env.exec(self.script("echo before; echo err >&2; sleep 60; echo after"), timeout=0.5)
        assert (result.stdout.text, result.stderr.text) == ("before\n", "err\n")
        assert (result.timed_out, result.exit_code) == (True, None)

    async def test_E6_the_timeout_given_is_the_only_one(self, env: RunEnv) -> None:
        """A longer one does not shorten anything, None is none, and a command in time is no timeout."""
        for timeout in (60, 10**9, None):
            result = await env.exec(self.argv("sleep", "0.1"), timeout=timeout)
            assert (result.exit_code, result.timed_out) == (0, False)

    async def test_E3_a_timeout_counts_while_output_floods(self, env: RunEnv) -> None:
        """A command that never stops printing ends in time too, with its head and its tail."""
        with anyio.fail_after(10):
            result = await env.exec(self.argv("yes", "0123456789"), timeout=0.5)
        assert result.timed_out
        assert result.stdout.data.startswith(b"0123456789\n" * 100)
        assert result.stdout.omitted_bytes == result.stdout.total_bytes - len(result.stdout.data)

    async def test_E3_a_timeout_counts_while_stdin_is_not_read(self, env: RunEnv) -> None:
        """Input that nobody takes delays nothing."""
        with anyio.fail_after(10):
            result = await env.exec(self.argv("sleep", "60"), stdin=bytes(5_000_000), timeout=0.3)
        assert result.timed_out

    # -- the background

    @pytest.mark.parametrize(
        "script",
        ["sleep 30 & echo hi", "sleep 30 >/dev/null & echo hi", "sleep 30 >/dev/null 2>&1 & echo hi"],
        ids=["holds both", "holds stderr", "holds none"],
    )
    async def test_C004_a_silent_child_that_holds_a_pipe_delays_nothing(self, env: RunEnv, script: str) -> None:
        """The call returns when the direct command ends, and says that something was left."""
        with anyio.fail_after(5):
            result = await env.exec(self.script(script))
        assert (result.exit_code, result.stdout.text, result.background) == (0, "hi\n", True)

    async def test_E4_nothing_left_is_no_background(self, env: RunEnv) -> None:
        """A child that the command waited for is not in the background."""
        result = await env.exec(self.script("sleep 0.05 & wait; echo hi"))
        assert (result.stdout.text, result.background) == ("hi\n", False)

    async def test_E4_what_is_left_goes_on(self, env: RunEnv, folder: str) -> None:
        """What it still prints neither blocks it, however much, nor kills it."""
        script = self.script("(sleep 0.2; head -c 3000000 /dev/zero; echo x >&2; echo survived > done) & echo hi")
        result = await env.exec(script, cwd=folder)
        assert (result.stdout.data, result.background) == (b"hi\n", True)

        async def is_done() -> bool:
            return await self._has(env, folder, "done") and await env.read(f"{folder}/done") == b"survived\n"

        await until(is_done)

    async def test_E4_later_calls_can_use_what_is_left(self, env: RunEnv, folder: str) -> None:
        """A server, so to say: started by one call, asked and ended by the next ones."""
        assert (await env.exec(self.argv("mkfifo", "ask", "answer"), cwd=folder)).ok
        serve = self.script("(while read x; do echo got $x; done < ask > answer) & echo started")
        assert (await env.exec(serve, cwd=folder)).background
        talk = self.script("exec 3> ask 4< answer; echo one >&3; read a <&4; echo two >&3; read b <&4; echo $a $b")
        assert (await env.exec(talk, cwd=folder, timeout=20)).stdout.text == "got one got two\n"

    async def test_C006_close_takes_what_was_left(self, marker: str) -> None:
        """A sleeper in its own session outlives its call, not its env."""
        env = self.make_env()
        async with env:
            setsid = " ".join(self.argv("setsid", "sleep", "300"))
            with anyio.fail_after(5):
                result = await env.exec(self.script(f"{setsid} & echo ok"), env={"MARKER": marker}, timeout=2)
            assert (result.stdout.text, result.background) == ("ok\n", True)
            assert len(await self.marked(env, marker)) == 1
            if not self.marked_here(marker):
                pytest.skip("the env's processes cannot be seen from here once it is closed")

        async def is_gone() -> bool:
            return not self.marked_here(marker)

        await until(is_gone, timeout=5)

    async def test_C025_no_zombies_pile_up(self, env: RunEnv) -> None:
        """300 orphans: whoever becomes their parent takes their status."""
        if not self.is_isolated:
            pytest.skip("the zombies of this host are not all ours")
        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(self._leave_orphans, env, MANY // 10)

        async def none_left() -> bool:
            find = self.argv("find", "/proc", "-maxdepth", "2", "-name", "stat", "-path", "/proc/[0-9]*")
            stats = await env.exec([*find, "-exec", *self.argv("cat"), "{}", "+"])
            states = [line.rpartition(") ")[2][:1] for line in stats.stdout.text.splitlines()]
            assert "S" in states  # the first process, at least
            return "Z" not in states

        await until(none_left, timeout=5)

    async def _leave_orphans(self, env: RunEnv, count: int) -> None:
        for _ in range(count):
            assert (await env.exec(self.script("(sleep 0.01 &) ; true"))).ok

    # -- cancellation

    async def test_C112_cancelling_ends_the_command(self, env: RunEnv, folder: str, marker: str) -> None:
        """The tree is gone, the caller gets its `CancelledError`, and the env goes on."""
        call = partial(env.exec, self.script(": > here; sleep 500 & sleep 501"), cwd=folder, env={"MARKER": marker})
        task = asyncio.ensure_future(call())
        await until(partial(self._has, env, folder, "here"))
        task.cancel()
        with anyio.fail_after(5), pytest.raises(asyncio.CancelledError):
            await task
        assert await self.marked(env, marker) == []
        assert (await env.exec(self.argv("echo", "ok"))).stdout.text == "ok\n"

    async def test_C112_a_wait_for_that_expires_ends_the_command(self, env: RunEnv, marker: str) -> None:
        """The deadline of the caller's own event loop works as cancellation does."""
        with anyio.fail_after(10), pytest.raises(TimeoutError):
            await asyncio.wait_for(env.exec(self.argv("sleep", "500"), env={"MARKER": marker}), 0.3)
        with anyio.fail_after(10), anyio.move_on_after(0.3) as scope:
            await env.exec(self.argv("sleep", "500"), env={"MARKER": marker})
        assert scope.cancelled_caught
        assert await self.marked(env, marker) == []

    async def test_C112_cancelling_at_once_leaves_nothing(self, env: RunEnv, marker: str) -> None:
        """A call that is cancelled in the turn of the loop in which it began, and one before it began."""
        for turns in range(4):
            task = asyncio.ensure_future(env.exec(self.argv("sleep", "500"), env={"MARKER": marker}))
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            task.cancel()
            with anyio.fail_after(5), pytest.raises(asyncio.CancelledError):
                await task
        assert await self.marked(env, marker) == []

    async def test_C112_close_ends_what_is_running_even_if_it_is_cancelled(self, marker: str) -> None:
        """A command in flight, then `aclose` cancelled twice: the env is gone all the same."""
        env = self.make_env()
        await env.__aenter__()
        running = asyncio.ensure_future(env.exec(self.argv("sleep", "500"), env={"MARKER": marker}))

        async def is_running() -> bool:
            return bool(await self.marked(env, marker))

        await until(is_running)
        closing = asyncio.ensure_future(env.aclose())
        for _ in range(2):
            await anyio.sleep(0.01)
            closing.cancel()
        with anyio.fail_after(30):
            await asyncio.wait((closing, running))
            await env.aclose()
        assert running.exception() is not None

        async def is_gone() -> bool:
            return not self.marked_here(marker)

        await until(is_gone, timeout=5)

    async def _has(self, env: RunEnv, folder: str, name: str) -> bool:
        return name in [entry.path for entry in await env.list(folder)]
