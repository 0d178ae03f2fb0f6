"""The real Docker engine for the tests of this folder."""

from __future__ import annotations

import contextlib
import os
import uuid
from typing import TYPE_CHECKING

import docker
import docker.errors
import pytest

from tests.envs.engines import Marked, why_no_engine

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that take the engine away from the others run last."""
    items.sort(key=lambda item: item.get_closest_marker("restarts_engine") is not None)


@pytest.fixture(scope="session")
def engine() -> Iterator[docker.APIClient]:
    """The SDK's own client, to look at the engine past the code under test. Missing engines fail only in CI."""
    if reason := why_no_engine():
        if os.environ.get("CI"):
            pytest.fail(f"CI needs Docker: {reason}")
        pytest.skip(reason)
    client = docker.APIClient(version="auto")
    yield client
    client.close()


@pytest.fixture
def mark(engine: docker.APIClient) -> Iterator[Marked]:
    """Names the containers of a test; all of them must be gone at its end."""
    marked = Marked(engine, uuid.uuid4().hex)
    yield marked
    left = marked.containers()
    for container in left:
        with contextlib.suppress(docker.errors.APIError):  # it may be on its way already
            engine.remove_container(container["Id"], force=True, v=True)
    assert not left, "the test left containers behind"
