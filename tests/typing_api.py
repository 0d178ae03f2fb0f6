"""Typical code of users, type-checked and never run: what they write must need no cast and no ignore."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_type

from pydantic import SecretStr

import runenv
from runenv import (
    BindMount,
    DockerConfig,
    EnvError,
    ExecResult,
    FileInfo,
    LocalConfig,
    Output,
    RunEnv,
    SyncRunEnv,
    TmpfsMount,
    TransferResult,
    VolumeMount,
    load_config,
    open_env,
    open_env_sync,
)
from runenv.artifacts import Artifact
from runenv.tools import Tool, toolset
from runenv.types import ToolDefinition, ToolResult

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from runenv.artifacts import ArtifactStore
    from runenv.envs.docker.env import DockerEnv
    from runenv.envs.local import LocalEnv


def configure() -> DockerConfig:
    """Every sort of setting."""
    return DockerConfig(
        image="python:3.12-slim",
        environment={"TOKEN": SecretStr("value")},
        timeout=None,
        memory_bytes=1 << 30,
        network="full",
        cap_add=("NET_ADMIN",),
        mounts=(
            BindMount(source=Path("/data"), target="/data"),
            VolumeMount(name="cache", target="/cache"),
            TmpfsMount(target="/scratch", size_bytes=1 << 20),
        ),
    )


async def run(config: LocalConfig | DockerConfig) -> str:
    """The whole async surface."""
    async with open_env(config) as env:
        assert_type(env.id, str)
        result = await env.exec(["ls", "-l"], cwd="sub", env={"A": "b"}, stdin=b"", timeout=None)
        assert_type(result, ExecResult)
        assert_type(result.exit_code, int | None)
        assert_type(result.stdout, Output)
        assert_type(await env.read("a", max_bytes=10), bytes)
        await env.write("b", b"content", mode=0o600)
        assert_type(await env.stat("b"), FileInfo)
        assert_type(await env.list(), list[FileInfo])
        assert_type(await env.upload(Path("tree"), "tree", exclude=["*.pyc"], progress=show), TransferResult)
        assert_type(await env.download("tree", "copy"), TransferResult)
        async with env.open_read("big") as chunks:
            await env.write("copy", chunks)
            async for chunk in chunks:
                assert_type(chunk, bytes)
        return result.stdout.text


def run_sync(path: Path) -> None:
    """The same without an event loop."""
    for name, config in load_config(path).items():
        assert_type(name, str)
        with open_env_sync(config) as env:
            assert_type(env, SyncRunEnv)
            assert_type(env.exec("true").ok, bool)
            with env.open_read("big") as chunks:
                env.write("copy", chunks)
                for chunk in chunks:
                    assert_type(chunk, bytes)


def show(done: int, total: int | None) -> None:
    """Take the progress of a transfer."""
    assert_type((done, total), tuple[int, int | None])


async def pieces() -> AsyncIterator[bytes]:
    """A source of bytes."""
    yield b""


async def write_stream(env: RunEnv) -> None:
    """Anyone's stream can be written."""
    try:
        await env.write("big", pieces(), append=True)
    except (EnvError, FileNotFoundError) as error:
        assert_type(error, EnvError | FileNotFoundError)


def sync_pieces() -> Iterator[bytes]:
    """A source of bytes without an event loop."""
    yield b""


def write_sync(env: SyncRunEnv) -> None:
    """Anyone's iterable can be written."""
    env.write("big", sync_pieces())


def backends_are_envs(local: LocalEnv, docker: DockerEnv) -> list[RunEnv]:
    """What the package has keeps its own protocol."""
    return [local, docker]


def with_a_default(env: RunEnv, timeout: float | None = None) -> object:
    """Wrap a verb and keep the configured deadline where there is none."""
    return env.exec("make", timeout=runenv.DEFAULT if timeout is None else timeout)


async def make_deck(arguments: Mapping[str, object]) -> Artifact:
    """A tool may return an artifact."""
    return Artifact(b"...", str(arguments["name"]))


async def send(arguments: Mapping[str, Any]) -> str:
    """Another takes the bytes of one, and returns a text."""
    return f"{len(arguments['content'])} bytes"


async def agent_tools(env: RunEnv, store: ArtifactStore) -> None:
    """Both beside those of the package."""
    own = [
        Tool(ToolDefinition("make_deck", "Make a deck.", {"type": "object"}), make_deck),
        Tool(ToolDefinition("send", "Send a file.", {"type": "object"}), send, forms={"content": "bytes"}),
    ]
    async with toolset(env, store, scope="run-1", own=own) as tools:
        assert_type(await tools.call("make_deck", {"name": "deck.pptx"}), ToolResult)
