"""Every transfer leaves no descriptor behind, and nothing beside its target."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.envs.transfer.trees import open_descriptors, snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def no_descriptor_leaks() -> Iterator[None]:
    """Every test leaves as many descriptors as it found; or fewer, since idle connections of other tests may close."""
    before = open_descriptors()
    yield
    assert open_descriptors() <= before


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A folder beside the target that must be the same in the end, and nothing else may appear beside it."""
    place = tmp_path / "outside"
    place.mkdir()
    (place / "victim").write_bytes(b"precious")
    before = snapshot(place)
    yield place
    assert snapshot(place) == before
    assert {path.name for path in tmp_path.iterdir()} <= {"outside", "target", "moved", "source"}
