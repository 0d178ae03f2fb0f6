"""The contract over every kind of place: memory, a folder, and two dialects of S3."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runenv.testing.contract.store import Place, StoreContent, StoreContract, StoreLifetimes, StoreVersions

if TYPE_CHECKING:
    from pathlib import Path

    from tests.artifacts.servers import S3Server


class TestMemory(StoreContract):
    """The memory of this process."""

    is_shared = False
    keeps_in_memory = True

    @pytest.fixture
    def place(self) -> Place:
        """Each store has a memory of its own."""
        return Place("memory://")


class TestFolder(StoreContract):
    """A folder of this host, which processes share."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        """Return a folder that is not there yet, with a name that a URL has to escape."""
        return Place((tmp_path / "the store" / "ä%20").as_uri())


class TestSeaweedFS(StoreContract):
    """A server that checks credentials."""

    # There are no transactions over objects.
    has_exact_quotas = False
    is_deduplicated = False
    large_bytes = 96 * 1024 * 1024

    @pytest.fixture
    def place(self, seaweedfs: S3Server) -> Place:
        """Return a prefix of its bucket."""
        return seaweedfs.place()


class TestMoto(StoreContent, StoreVersions, StoreLifetimes):
    """Another dialect: what depends on how a server takes requests, not on the scopes, names and records in them."""

    has_exact_quotas = False
    is_deduplicated = False
    large_bytes = 24 * 1024 * 1024

    @pytest.fixture
    def place(self, moto: S3Server) -> Place:
        """Return a prefix of its bucket."""
        return moto.place()
