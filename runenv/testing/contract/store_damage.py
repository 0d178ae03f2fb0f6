"""The contract of a store that others write into or that dies (rules A3, A10): damaged objects, killed writers.

How the objects of a backend look is not known here: one of each kind is emptied, cut, changed, filled with what belongs
elsewhere or removed, and whatever happens then, nobody gets bytes that are not those that were stored under the handle.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import obstore
import pytest

from runenv.errors import ArtifactError, LimitError, StoreError
from runenv.testing.contract.store_base import StoreTests, digest, raw_bytes, raw_objects, read_all, records

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from obstore.store import ObjectStore

    from runenv.artifacts import ArtifactStore
    from runenv.testing.contract.store_base import Clock, Place

__all__ = ("StoreDamage",)

RUN: Final = "run-1"
DAY: Final = 24 * 3600.0
OURS: Final = (ArtifactError, LimitError)
"""What may be said of damage; also that a size is out of all bounds."""
KILLS: Final = 20
"""How many writers are killed, each at another point."""
KILLED_BYTES: Final = 240_000
"""What each of them was writing."""
RECORD_BYTES: Final = 8_000
"""More than a backend needs for what it keeps about one artifact, beside its content."""
VALUES: Final[tuple[object, ...]] = ("../secret", None)
"""What is put in the place of each field of a record."""
FIELDS: Final[tuple[str, ...]] = ("path", "uri", "payload", "key", "content", "sha256", "size", "handle", "id", "name")
"""Names that a record may give to what is the store's own."""
CLIMBING: Final = ("../../secret", "/etc/passwd", "")
"""What is put where a record holds texts."""


class StoreDamage(StoreTests):
    """Damaged objects, hostile records, killed writers."""

    async def test_A10_damaged_objects_never_give_wrong_bytes(
        self, place: Place, raw: ObjectStore, tmp_path: Path
    ) -> None:
        """One object of each kind in every way: right bytes or an error of ours, for every verb."""
        (tmp_path / "secret").write_bytes(b"a secret of the host")
        contents = {"a": b"first content" * 100, "b": b"second, longer content" * 100, "c": b"of another scope" * 90}
        scopes = {"a": RUN, "b": RUN, "c": "foreign"}
        handles = {}
        async with self.make_store(place) as store:
            for name, data in contents.items():
                handles[name] = await store.put(data, filename=name, scope=scopes[name], metadata={"path": "../secret"})
        objects = await raw_objects(raw)
        assert objects
        for path in {_kind(path): path for path in objects}.values():
            for what, damaged in (*_damages(path, objects), *_edits(objects[path])):
                await _replace(raw, objects | {path: damaged} if damaged is not None else _without(objects, path))
                try:
                    await self._read_everything(place, handles, scopes, contents)
                    if what in {"removed", "emptied", "overwritten"}:
                        await self._write_something(place)
                except (AssertionError, Exception) as error:
                    raise AssertionError(f"{path!r} {what}: {error!r}") from error
        await _replace(raw, objects)
        async with self.make_store(place) as store:
            for name, handle in handles.items():
                assert await store.get(handle, scope=scopes[name]) == contents[name]

    async def _read_everything(
        self, place: Place, handles: Mapping[str, str], scopes: Mapping[str, str], contents: Mapping[str, bytes]
    ) -> None:
        try:
            store = await self.make_store(place).__aenter__()
        except ArtifactError:  # it says that the place is damaged
            return
        try:
            for name, handle in handles.items():
                with suppress(*OURS):
                    assert await store.get(handle, scope=scopes[name]) == contents[name]
                with suppress(*OURS):
                    record = await store.find(name, scope=scopes[name])
                    assert await store.get(record.handle, scope=scopes[name]) == contents[name]
            for name in "ab":
                with pytest.raises(ArtifactError):
                    await store.get(handles[name], scope="foreign")
            with suppress(*OURS):
                assert {record.handle for record in await records(store, RUN)} <= {handles["a"], handles["b"]}
        finally:
            await store.aclose()

    async def _write_something(self, place: Place) -> None:
        with suppress(*OURS):
            async with self.make_store(place) as store:
                with suppress(*OURS):
                    new = await store.put(b"new", filename="new", scope=RUN)
                    assert await store.get(new, scope=RUN) == b"new"
                await store.prune()

    async def test_A10_changed_content_is_noticed(self, place: Place, raw: ObjectStore) -> None:
        """By whoever reads it whole, from the start to the end, also when its length is the same."""
        data = b"0123456789" * 50_000
        async with self.make_store(place) as store:
            handle = await store.put(data, filename="f", scope=RUN)
            objects = await raw_objects(raw)
            path = next(path for path, content in objects.items() if content == data)
            changed = data[:-1] + b"X"
            assert digest(changed) != digest(data)
            for damaged in (changed, data[:-1], b""):
                await obstore.put_async(raw, path, damaged)
                with pytest.raises(StoreError) as caught:
                    await store.get(handle, scope=RUN)
                assert "\n" not in str(caught.value)
                with pytest.raises(StoreError):
                    await read_all(store, handle, scope=RUN)
            await obstore.delete_async(raw, path)
            with pytest.raises(StoreError):
                await store.get(handle, scope=RUN)

    async def test_A3_metadata_is_never_followed(self, store: ArtifactStore, tmp_path: Path) -> None:
        """Texts of the caller that look like the store's own, or like paths, are texts."""
        secret = tmp_path / "secret"
        secret.write_bytes(b"a secret of the host")
        texts = (str(secret), "../secret", "../../../../etc/passwd", "file:///etc/passwd", "s3://other/key")
        for text in texts:
            metadata: dict[str, str] = dict.fromkeys(FIELDS, text)
            handle = await store.put(b"mine", filename="f", scope=RUN, metadata=metadata)
            assert await store.get(handle, scope=RUN) == b"mine"
            record = await store.stat(handle, scope=RUN)
            assert (record.handle, record.name, record.size) == (handle, "f", 4)
            assert text not in (record.uri, store.path(record))

    # -- killed writers

    async def test_A3_a_killed_writer_leaves_nothing_or_a_whole_artifact(
        self, place: Place, raw: ObjectStore, clock: Clock
    ) -> None:
        """Killed anywhere in a put: what was given out is there, what is there is whole, and prune takes the rest."""
        task = {"name": "f", "scope": RUN, "size_bytes": KILLED_BYTES, "points": KILLS}
        answer = await self.run_child(place, task="kill", **task)
        assert answer["killed"] >= KILLS - 2  # two puts may have been shorter than the first ones
        async with self.make_store(place, clock=clock) as store:
            versions = await store.versions("f", scope=RUN)
            assert {each["handle"] for each in answer["handles"]} <= {record.handle for record in versions}
            numbers = [record.version for record in versions]
            assert numbers == sorted(set(numbers))
            for record in versions:
                data = await store.get(record.handle, scope=RUN)
                assert len(data) == KILLED_BYTES
                assert data == data[:6] * (KILLED_BYTES // 6)
            assert [record.version for record in await records(store, RUN)] == numbers[-1:]
            after = await store.put(b"after", filename="f", scope=RUN)
            assert (await store.stat(after, scope=RUN)).version > numbers[-1]
            for _ in range(3):  # what nothing refers to is marked, and swept a day later
                await store.prune()
                clock.advance(DAY + 3600)
            content = sum(record.size for record in versions)
            assert content <= await raw_bytes(raw) < content + RECORD_BYTES * (KILLS + 4)
            for record in versions:
                assert digest(await store.get(record.handle, scope=RUN)) == record.sha256


def _kind(path: str) -> tuple[int, str]:
    """Tell objects apart that are not of one kind: by how deep they lie, and what their names end with."""
    return path.count("/"), path.rpartition("/")[2].partition(".")[2]


def _damages(path: str, objects: Mapping[str, bytes]) -> Iterator[tuple[str, bytes | None]]:
    """Say what may have become of an object, and what it holds then; None: it is gone."""
    data = objects[path]
    middle = len(data) // 2
    yield "removed", None
    yield "emptied", b""
    yield "cut", data[:middle]
    yield "prolonged", data + data
    yield "changed", data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :] if data else b"x"
    yield "overwritten", b"\xff\x00" * 100
    for text in ("null", "{}", "[" * 50_000):
        yield "replaced by JSON", text.encode()
    for other, content in objects.items():
        if content != data and _kind(other) == _kind(path):
            yield f"replaced by {other!r}", content


def _edits(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Say what may have become of a record that is a JSON object."""
    try:
        value = json.loads(data)
    except ValueError:
        return
    if not isinstance(value, dict):
        return
    for text in CLIMBING:
        yield f"texts replaced by {text!r}", json.dumps(_replaced(value, str, text)).encode()
    for number in (-1, 0, 10**30, 0.5):
        yield f"numbers replaced by {number}", json.dumps(_replaced(value, (int, float), number)).encode()
    for key in value:
        for new in VALUES:
            yield f"{key!r} replaced by {new!r}", json.dumps(value | {key: new}).encode()
        yield f"{key!r} removed", json.dumps({each: value[each] for each in value if each != key}).encode()


def _replaced(value: Any, kinds: Any, new: Any) -> Any:  # noqa: ANN401 - what JSON holds
    if isinstance(value, dict):
        return {key: _replaced(each, kinds, new) for key, each in value.items()}
    if isinstance(value, list):
        return [_replaced(each, kinds, new) for each in value]
    return new if isinstance(value, kinds) else value


def _without(objects: Mapping[str, bytes], path: str) -> dict[str, bytes]:
    return {each: data for each, data in objects.items() if each != path}


async def _replace(raw: ObjectStore, wanted: Mapping[str, bytes]) -> None:
    """Make the objects of a place those that are wanted, whatever is there now."""
    there = await raw_objects(raw)
    if spare := sorted(there.keys() - wanted.keys()):
        await obstore.delete_async(raw, spare)
    for path, data in wanted.items():
        if there.get(path) != data:
            await obstore.put_async(raw, path, data)
