"""The S3 servers, each started once, when the first test needs it, and places of every kind for stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runenv.testing.contract.store import Place
from tests.artifacts import servers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.artifacts.servers import S3Server


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[S3Server]:
    """A server that checks credentials and signatures."""
    with servers.seaweedfs() as server:
        yield server


@pytest.fixture(scope="session")
def moto() -> Iterator[S3Server]:
    """A server that behaves as the vendor's does, as far as its authors know, and trusts everyone."""
    with servers.moto() as server:
        yield server


@pytest.fixture(params=["memory", "file", "s3"])
def anywhere(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A place of each kind that nobody has used: what stands above the store is the same over all of them."""
    if request.param == "memory":
        return Place("memory://")
    if request.param == "file":
        return Place((tmp_path_factory.mktemp("any") / "store").as_uri())
    server: servers.S3Server = request.getfixturevalue("seaweedfs")
    return server.place()
