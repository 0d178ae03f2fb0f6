"""The S3 servers, each started once, when the first test needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

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
