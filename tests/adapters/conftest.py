"""The Docker engine for the tests of adapters that need one."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

import docker
import docker.errors
import pytest

from tests.command_line import needs_engine
from tests.envs.engines import Marked

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def mark() -> Iterator[Marked]:
    """Names the containers of a test; all of them must be gone at its end."""
    needs_engine()
    client = docker.APIClient(version="auto")
    marked = Marked(client, uuid.uuid4().hex)
    yield marked
    left = marked.containers()
    for container in left:
        with suppress(docker.errors.APIError):  # it may be on its way already
            client.remove_container(container["Id"], force=True, v=True)
    client.close()
    assert not left, "the test left containers behind"
