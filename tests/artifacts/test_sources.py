"""What can be put into a store, and what is told of it meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from runenv.artifacts import ArtifactStore

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("is_empty", [True, False])
async def test_no_more_is_told_to_be_done_than_there_is(tmp_path: Path, *, is_empty: bool) -> None:
    """Of an empty file, and of one that says it was, as those of /proc do; each is told once at least."""
    path = Path("/proc/self/status")
    if is_empty:
        path = tmp_path / "file"
        path.touch()
    told: list[tuple[int, int | None]] = []
    async with ArtifactStore.open("memory://") as store:
        handle = await store.put(
            path, filename="f", scope="run-1", progress=lambda done, total: told.append((done, total))
        )
        size = (await store.stat(handle, scope="run-1")).size
    assert (size == 0) is is_empty
    assert told == [(size, size)]
