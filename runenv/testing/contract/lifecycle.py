"""The contract of opening and closing (rule L1), the same for every env. How an env starts is its backend's."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from runenv.env import RunEnv
from runenv.errors import EnvClosedError
from runenv.testing.contract.base import Contract

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

__all__ = ("LifecycleContract",)


def _verbs(env: RunEnv, host: Path) -> list[Callable[[], Awaitable[Any]]]:
    async def open_read() -> None:
        async with env.open_read("f") as chunks:
            await anext(chunks)

    return [
        partial(env.exec, ["true"]),
        partial(env.read, "f"),
        open_read,
        partial(env.write, "f", b""),
        partial(env.stat, "."),
        env.list,
        partial(env.mkdir, "d"),
        partial(env.remove, "f"),
        partial(env.rename, "f", "g"),
        partial(env.upload, host, "d"),
        partial(env.download, ".", host / "d"),
    ]


class LifecycleContract(Contract):
    """Open, close, and use at the wrong time."""

    async def test_L1_an_env_says_what_it_is(self, env: RunEnv) -> None:
        """It is a `RunEnv`, with an id, a kind and an absolute workdir, and describes itself as plain data."""
        assert isinstance(env, RunEnv)
        assert env.id
        assert env.id.isprintable()
        assert env.workdir.startswith("/")
        description = env.describe()
        assert (description["kind"], description["id"], description["workdir"]) == (env.kind, env.id, env.workdir)
        assert (await env.stat(env.workdir)).is_dir

    async def test_L1_two_envs_are_two(self, env: RunEnv) -> None:
        """A new one has another id, and neither sees the other's files."""
        async with self.make_env() as other:
            assert other.id != env.id
            await other.write("only-here", b"x")
            assert "only-here" not in [entry.path for entry in await env.list()]

    async def test_L1_an_env_that_is_not_open_refuses_every_verb(self, tmp_path: Path) -> None:
        """Before it is opened, and after it was closed: `EnvClosedError`, never a hang."""
        env = self.make_env()
        for verb in _verbs(env, tmp_path):
            with pytest.raises(EnvClosedError):
                await verb()
        async with env:
            await env.write("f", b"x")
        for verb in _verbs(env, tmp_path):
            with anyio.fail_after(5), pytest.raises(EnvClosedError):
                await verb()

    async def test_L1_closing_again_is_harmless(self) -> None:
        """Twice, at the same time, inside of `async with`, and without ever having been open."""
        env = self.make_env()
        async with env:
            async with anyio.create_task_group() as group:
                for _ in range(3):
                    group.start_soon(env.aclose)
            await env.aclose()
        await env.aclose()
        never = self.make_env()
        await never.aclose()
        with pytest.raises(EnvClosedError):
            await never.exec(["true"])

    async def test_L1_an_env_is_opened_once(self) -> None:
        """Neither twice at a time nor again after its end."""
        env = self.make_env()
        async with env:
            with pytest.raises(EnvClosedError):
                await env.__aenter__()
            assert (await env.exec(self.argv("echo", "ok"))).ok
        with pytest.raises(EnvClosedError):
            await env.__aenter__()

    async def test_L1_an_error_in_the_block_closes_the_env_and_goes_on(self) -> None:
        """As for any context manager."""
        env = self.make_env()
        with pytest.raises(ZeroDivisionError):
            async with env:
                raise ZeroDivisionError
        with pytest.raises(EnvClosedError):
            await env.exec(["true"])

    async def test_L1_an_env_may_be_entered_and_left_in_different_tasks(self) -> None:
        """As frameworks do that keep it on a stack: no scope of it is bound to a task."""
        env = self.make_env()
        async with anyio.create_task_group() as group:
            group.start_soon(env.__aenter__)
        with anyio.fail_after(10):
            assert (await env.exec(self.argv("echo", "ok"))).ok
        async with anyio.create_task_group() as group:
            group.start_soon(env.aclose)
        with pytest.raises(EnvClosedError):
            await env.exec(["true"])

    async def test_L1_closing_ends_the_calls_in_flight(self) -> None:
        """They raise `EnvClosedError`, and closing waits for none of them."""
        env = self.make_env()
        ended: list[str] = []
        async with env:
            # One answer first, so that those below are under way when the env is closed.
            assert (await env.exec(self.argv("true"))).ok

            async def call() -> None:
                try:
                    await env.exec(self.argv("sleep", "100"))
                except EnvClosedError:
                    ended.append("closed")

            with anyio.fail_after(20):
                async with anyio.create_task_group() as group:
                    for _ in range(5):
                        group.start_soon(call)
                    await anyio.sleep(0.1)
                    await env.aclose()
        assert ended == ["closed"] * 5

    async def test_L1_a_cancelled_opening_leaves_an_env_that_is_closed(self) -> None:
        """At any point of the start; the backend's own tests look for what could be left."""
        for delay in (0, 0.005, 0.05):
            env = self.make_env()
            with anyio.move_on_after(delay), suppress(EnvClosedError):
                await env.__aenter__()
            await env.aclose()
            with pytest.raises(EnvClosedError):
                await env.exec(["true"])
