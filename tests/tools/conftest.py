"""Envs of both kinds and a store, for the tools to work on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runenv.artifacts import ArtifactStore
from runenv.config import DockerConfig, LocalConfig
from runenv.envs import open_env
from runenv.testing.fixtures import need_engine
from tests.envs.engines import BASE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from runenv.env import RunEnv


@pytest.fixture(scope="module", params=["local", pytest.param("docker", marks=pytest.mark.docker)])
async def opened(request: pytest.FixtureRequest) -> AsyncIterator[RunEnv]:
    """An open env of each kind."""
    if request.param == "docker":
        need_engine(BASE)
    config = LocalConfig() if request.param == "local" else DockerConfig(image=BASE, pull="never")
    async with open_env(config) as env:
        yield env


@pytest.fixture
async def env(opened: RunEnv) -> AsyncIterator[RunEnv]:
    """The same with an empty working folder."""
    yield opened
    for entry in await opened.list():
        await opened.remove(entry.path, recursive=True)


@pytest.fixture
async def store(anyio_backend: str) -> AsyncIterator[ArtifactStore]:  # noqa: ARG001 - makes anyio run this
    """An open store in memory."""
    async with ArtifactStore.open("memory://") as store:
        yield store
