"""A store in a folder whose catalog somebody has changed: what is in it is checked before it is believed."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from runenv.artifacts import ArtifactStore
from runenv.errors import RunEnvError, StoreError
from runenv.testing.contract.store_base import read_all, records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.anyio

RUN = "run-1"
SECRET = b"a secret of the host"
VALUES: tuple[object, ...] = (
    "../secret",
    "../../secret",
    "/etc/passwd",
    "",
    None,
    -1,
    10**30,
    0.5,
    [],
    {"a": {}},
    True,
)
"""What somebody may write where something else was."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return where the store is, beside something that it must not show."""
    (tmp_path / "secret").write_bytes(SECRET)
    return tmp_path / "store"


@pytest.fixture
async def handle(root: Path) -> str:
    """Return the handle of the only artifact of the store, which is closed."""
    async with ArtifactStore.open(root.as_uri()) as store:
        return await store.put(b"x" * len(SECRET), filename="f", scope=RUN)


def changes(entry: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Give everything that somebody may make of a record."""
    for key, value in entry.items():
        for new in (*VALUES, [value]):
            yield entry | {key: new}
        yield {each: entry[each] for each in entry if each != key}
    yield entry | {"path": "../secret", "payload": "../secret"}


async def test_a_changed_record_never_shows_another_file(root: Path, handle: str) -> None:
    """Right content, or an error of ours, whatever its fields are; a list goes on or says that it is damaged."""
    with closing(sqlite3.connect(root / "catalog.sqlite", isolation_level=None)) as database:
        ((text,),) = database.execute("SELECT entry FROM entries").fetchall()
        async with ArtifactStore.open(root.as_uri()) as store:
            for changed in (*map(json.dumps, changes(json.loads(text))), "", "null", "[" * 10_000, "x" * 10**6, "NaN"):
                database.execute("UPDATE entries SET entry = ?", (changed,))
                for read in (store.get, partial(read_all, store)):
                    with suppress(RunEnvError):
                        assert await read(handle, scope=RUN) == b"x" * len(SECRET), changed
                with suppress(RunEnvError):
                    assert [record.handle for record in await records(store, RUN)] in ([], [handle])
            database.execute("UPDATE entries SET entry = ?", (text,))
            assert await store.get(handle, scope=RUN) == b"x" * len(SECRET)


async def test_a_changed_catalog_never_shows_another_file(root: Path, handle: str) -> None:
    """What it says beside the record counts for as little."""
    with closing(sqlite3.connect(root / "catalog.sqlite", isolation_level=None)) as database:
        ((right,),) = database.execute("SELECT sha256 FROM entries").fetchall()
        for sha256 in ("../secret", "../../secret", str(root.parent / "secret"), "", "0" * 64, b"\xff", -1):
            database.execute("UPDATE entries SET sha256 = ?", (sha256,))
            async with ArtifactStore.open(root.as_uri()) as store:
                with suppress(RunEnvError):
                    assert await store.get(handle, scope=RUN) == b"x" * len(SECRET)
                await store.prune()
            assert (root.parent / "secret").read_bytes() == SECRET
        database.execute("UPDATE entries SET sha256 = ?", (right,))


async def test_the_record_of_another_scope_cannot_be_put_in_place(root: Path, handle: str) -> None:
    """A record that was copied to another handle, or into another scope, is not believed."""
    async with ArtifactStore.open(root.as_uri()) as store:
        foreign = await store.put(SECRET, filename="f", scope="foreign")
    with closing(sqlite3.connect(root / "catalog.sqlite", isolation_level=None)) as database:
        rows = dict(database.execute("SELECT scope, entry FROM entries"))
        mine = next(scope for scope in rows if "foreign" not in scope)
        other = next(scope for scope in rows if "foreign" in scope)
        database.execute("UPDATE entries SET entry = ? WHERE scope = ?", (rows[other], mine))
        async with ArtifactStore.open(root.as_uri()) as store:
            with pytest.raises(StoreError):
                await store.get(handle, scope=RUN)
        database.execute("UPDATE entries SET scope = ? WHERE scope = ?", ("x", mine))
        database.execute("UPDATE entries SET scope = ?, name = 'g' WHERE scope = ?", (mine, other))
        async with ArtifactStore.open(root.as_uri()) as store:
            with pytest.raises(StoreError):
                await store.get(foreign, scope=RUN)
