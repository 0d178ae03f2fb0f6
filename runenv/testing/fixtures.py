r"""Pytest fixtures with real envs, for the tests of this project and of others.

A plugin that is asked for by name:

    pytest_plugins = ["runenv.testing.fixtures"]  # in the conftest.py at the root of the tests

    def test_my_tool(runenv_docker_sync):
        assert runenv_docker_sync.exec("echo hi").stdout.text == "hi\\n"

`runenv_local` and `runenv_docker` are async envs, for tests that run under anyio's plugin on asyncio (with another
plugin the event loops would differ); `runenv_local_sync` and `runenv_docker_sync` are for all others. Each test gets a
new env. The Docker ones use the image that the environment variable RUNENV_TEST_IMAGE names, or the fixture
`runenv_image`, which a test suite can override.

Where no Docker engine answers, a test that needs one is skipped with the reason, but fails when the environment
variable CI is set: tests that are skipped where they count are no tests. `need_engine` does the same for fixtures of
your own.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import anyio
import pytest

from runenv.config import DockerConfig, LocalConfig
from runenv.envs import open_env
from runenv.envs.docker.engine import Engine
from runenv.envs.docker.images import get_image
from runenv.errors import EnvStartError
from runenv.sync import open_env_sync

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from runenv.env import RunEnv
    from runenv.sync import SyncRunEnv

__all__ = (
    "need_engine",
    "runenv_docker",
    "runenv_docker_sync",
    "runenv_image",
    "runenv_local",
    "runenv_local_sync",
)


def need_engine(*images: str) -> None:
    """Skip the test, or fail it where CI is set, unless a Docker engine answers and has these images.

    Nothing is pulled. What is found is looked up anew each time, since an engine comes and goes.
    """
    if (reason := _why_not(images)) is None:
        return
    if os.environ.get("CI"):
        pytest.fail(f"CI is set, so this test must not be skipped: {reason}", pytrace=False)
    pytest.skip(reason)


def _why_not(images: tuple[str, ...]) -> str | None:
    async def look() -> None:
        engine = await Engine.connect()
        try:
            for image in images:
                await get_image(engine, image, pull="never", timeout=1, platform=None)
        finally:
            await engine.close()

    with ThreadPoolExecutor(1) as thread:  # the caller may be inside of an event loop
        try:
            thread.submit(anyio.run, look).result()
        except EnvStartError as error:
            return str(error)
    return None


@pytest.fixture(scope="session")
def runenv_image() -> str:
    """The image of the Docker envs. Override it to choose another than RUNENV_TEST_IMAGE or the default one."""
    return os.environ.get("RUNENV_TEST_IMAGE") or DockerConfig().image


@pytest.fixture
async def runenv_local(anyio_backend: str) -> AsyncIterator[RunEnv]:  # noqa: ARG001 - makes anyio run this
    """An open local env with a temporary folder."""
    async with open_env(LocalConfig()) as env:
        yield env


@pytest.fixture
async def runenv_docker(anyio_backend: str, runenv_image: str) -> AsyncIterator[RunEnv]:  # noqa: ARG001 - as above
    """An open Docker env with the defaults."""
    need_engine()
    async with open_env(DockerConfig(image=runenv_image)) as env:
        yield env


@pytest.fixture
def runenv_local_sync() -> Iterator[SyncRunEnv]:
    """An open local env for a test without an event loop."""
    with open_env_sync(LocalConfig()) as env:
        yield env


@pytest.fixture
def runenv_docker_sync(runenv_image: str) -> Iterator[SyncRunEnv]:
    """An open Docker env for a test without an event loop."""
    need_engine()
    with open_env_sync(DockerConfig(image=runenv_image)) as env:
        yield env
