"""Envs and stores of every kind, to move between."""

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
    from runenv.testing.contract.store import Place


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
async def store(anywhere: Place) -> AsyncIterator[ArtifactStore]:
    """An open store of each kind."""
    async with ArtifactStore.open(anywhere.url, options=anywhere.options) as store:
        yield store
