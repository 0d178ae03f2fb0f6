"""Many artifacts: pages, and memory that does not grow with them."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import anyio
import pytest

from runenv.artifacts import ArtifactStore, Quotas, Scope
from runenv.artifacts.backends.catalog import PAGE, Catalog
from runenv.artifacts.backends.entry import Entry, scope_key
from runenv.artifacts.content import MAX_METADATA_BYTES
from runenv.errors import HandleError, LimitError
from runenv.testing.contract.measure import Memory

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

MANY = 100_000
FLAT_BYTES = 24 * 1024 * 1024


def fill(path: str, count: int) -> None:
    """Write records as a store does, without content, in one transaction."""
    catalog = Catalog(path)
    row = Entry(
        id=str(uuid.UUID(int=0)),
        name="n",
        version=0,
        run="r",
        session=None,
        user=None,
        size=1,
        sha256="0" * 64,
        media_type="text/plain",
        declared_type=None,
        created=0.0,
        expires=None,
        metadata={"a": "b" * 100},
    )
    key = scope_key(Scope("r"))
    with catalog._changing():
        for number in range(count):
            entry = row.model_copy(update={"id": str(uuid.UUID(int=number)), "name": f"name-{number:06}"})
            values = (entry.id, key, entry.name, 0, entry.sha256, None, entry.to_json())
            catalog._db.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?)", values)
    catalog.close()


@pytest.mark.slow
async def test_a_list_of_many_is_paged(tmp_path: Path) -> None:
    """100,000 artifacts come in order, each once, in flat memory; a prefix begins in the middle."""
    async with ArtifactStore.open(tmp_path.as_uri()):
        pass
    await anyio.to_thread.run_sync(fill, str(tmp_path / "catalog.sqlite"), MANY)
    async with ArtifactStore.open(tmp_path.as_uri()) as store:
        count, last = 0, ""
        with Memory() as memory:
            async for record in store.list("r"):
                assert record.name > last
                count, last = count + 1, record.name
        assert count == MANY
        assert memory.growth_bytes < FLAT_BYTES
        assert len([record async for record in store.list("r", prefix="name-0500")]) == 100


async def test_pages_end_where_names_do() -> None:
    """One more and one fewer than a page, with several versions of each."""
    async with ArtifactStore.open("memory://") as store:
        for number in range(PAGE + 1):
            await store.put(b"x", filename=f"{number}", scope="r")
        for count in (PAGE + 1, PAGE, PAGE - 1):
            assert len([record async for record in store.list("r")]) == count
            await store.delete(f"{PAGE + 1 - count}", scope="r")
        for _ in range(PAGE + 1):
            await store.put(b"x", filename="same", scope="r")
        assert [record.version for record in await store.versions("same", scope="r")] == list(range(PAGE + 1))
        assert await store.clear_scope("r") == 2 * PAGE - 1


async def test_a_full_store_makes_room_of_what_has_expired() -> None:
    """Nobody has to prune before."""
    now = 1000.0
    async with ArtifactStore.open("memory://", quotas=Quotas(max_count=2), clock=lambda: now) as store:
        for name in "ab":
            await store.put(b"x", filename=name, scope="r", ttl=60)
        now += 61
        handle = await store.put(b"x", filename="c", scope="r")
        assert await store.get(handle, scope="r") == b"x"


async def test_odd_texts_of_callers_come_back_or_are_refused() -> None:
    """Metadata that JSON makes six times as long, and declared types that are none; never an error of a library's."""
    async with ArtifactStore.open("memory://") as store:
        metadata = {"k": "\x01" * (MAX_METADATA_BYTES - 1)}
        handle = await store.put(b"x", filename="f", scope="r", metadata=metadata, media_type="\ud800" * 1000)
        record = await store.stat(handle, scope="r")
        assert record.metadata == metadata
        assert record.declared_type == "?" * 255
        with pytest.raises(LimitError):
            await store.put(b"x", filename="f", scope="r", metadata={"kk": metadata["k"]})
        with pytest.raises(HandleError, match="surrogate"):
            await store.put(b"x", filename="f", scope="r", metadata={"k": "\ud800"})
        assert [each.version for each in await store.versions("f", scope="r")] == [0]
