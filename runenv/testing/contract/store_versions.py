"""The contract of names and their versions (rule A3): numbers that are never shared, lost or used twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio
import anyio.lowlevel
import pytest

from runenv.artifacts import Scope
from runenv.errors import ArtifactMissingError
from runenv.testing.contract.store_base import UNKNOWN, StoreTests, chunks, records

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from runenv.artifacts import ArtifactStore
    from runenv.testing.contract.store_base import Clock, Place

__all__ = ("StoreVersions",)

RUN: Final = "run-1"
PROCESSES: Final = 8
SAVES: Final = 4
"""Of each process."""


class BrokenError(OSError):
    """What the source of a put raises; of a kind that storage raises too, and must not be taken for it."""


class StoreVersions(StoreTests):
    """Versions, by order, at once, after failures and deletions."""

    async def test_A3_versions_count_from_zero(self, store: ArtifactStore) -> None:
        """Each has a handle and content of its own; without a number the name means the latest."""
        handles = [await store.put(text.encode(), filename="f", scope=RUN) for text in "abc"]
        versions = await store.versions("f", scope=RUN)
        assert [(record.version, record.handle) for record in versions] == list(enumerate(handles))
        assert [await store.get(handle, scope=RUN) for handle in handles] == [b"a", b"b", b"c"]
        assert [(await store.find("f", version=number, scope=RUN)).handle for number in range(3)] == handles
        assert (await store.find("f", scope=RUN)).handle == handles[2]
        assert [record.handle for record in await records(store, RUN)] == [handles[2]]

    async def test_C088_a_missing_version_is_a_missing_artifact(self, store: ArtifactStore) -> None:
        """So is a missing name, and what has no versions has an empty list of them or is missing too."""
        await store.put(b"a", filename="f", scope=RUN)
        for name, version in (("f", 999), ("f", -1), ("g", None), ("g", 0)):
            with pytest.raises(ArtifactMissingError, match=name):
                await store.find(name, version=version, scope=RUN)

    async def test_C088_saves_at_once_share_no_version(self, store: ArtifactStore) -> None:
        """50 of one name: 50 numbers without a gap, each with what was saved."""
        handles: dict[bytes, str] = {}

        async def save(number: int) -> None:
            data = str(number).encode()
            handles[data] = await store.put(chunks(data, 1) if number % 2 else data, filename="f", scope=RUN)

        async with anyio.create_task_group() as tasks:
            for number in range(50):
                tasks.start_soon(save, number)
        versions = await store.versions("f", scope=RUN)
        assert [record.version for record in versions] == list(range(50))
        assert {record.handle for record in versions} == set(handles.values())
        for data, handle in handles.items():
            assert await store.get(handle, scope=RUN) == data

    async def test_C088_processes_share_no_version(self, store: ArtifactStore, place: Place) -> None:
        """8 processes save 4 versions of one name each, all at once: none is lost, none is shared."""
        handles = await self.run_child(place, task="save", name="f", scope=RUN, processes=PROCESSES, count=SAVES)
        assert len(set(handles.values())) == PROCESSES * SAVES
        versions = await store.versions("f", scope=RUN)
        numbers = [record.version for record in versions]
        assert numbers == sorted(set(numbers))
        assert {record.handle for record in versions} == set(handles.values())
        mine: dict[str, list[int]] = {}
        for text, handle in handles.items():
            assert await store.get(handle, scope=RUN) == text.encode()
            number = next(record.version for record in versions if record.handle == handle)
            mine.setdefault(text.split(".")[0], []).append(number)
        for numbers in mine.values():
            assert numbers == sorted(numbers)

    async def test_A3_a_failed_put_is_not_there_and_its_number_is_lost_at_most(self, store: ArtifactStore) -> None:
        """The error of the source is raised as it is; the latest is the highest that was finished."""
        first = await store.put(b"0", filename="f", scope=RUN)

        async def broken() -> AsyncIterator[bytes]:
            yield b"1" * 1000
            raise BrokenError

        with pytest.raises(BrokenError):
            await store.put(broken(), filename="f", scope=RUN)
        assert (await store.find("f", scope=RUN)).handle == first
        assert [record.handle for record in await store.versions("f", scope=RUN)] == [first]
        with pytest.raises(ArtifactMissingError):
            await store.find("f", version=1, scope=RUN)
        second = await store.put(b"2", filename="f", scope=RUN)
        assert (await store.stat(second, scope=RUN)).version in {1, 2}
        assert await store.get((await store.find("f", scope=RUN)).handle, scope=RUN) == b"2"

    async def test_A3_a_cancelled_put_is_not_there(self, store: ArtifactStore) -> None:
        """Whether it had sent much or nothing; the name can be used at once."""
        begun = anyio.Event()

        async def endless() -> AsyncIterator[bytes]:
            while True:
                yield b"x" * 100_000
                begun.set()
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: store.put(endless(), filename="f", scope=RUN))
            await begun.wait()
            tasks.cancel_scope.cancel()
        assert await records(store, RUN) == []
        handle = await store.put(b"after", filename="f", scope=RUN)
        assert await store.get(handle, scope=RUN) == b"after"

    async def test_A3_the_latest_is_the_highest_that_is_finished(self, store: ArtifactStore) -> None:
        """Not the one that was finished last, when an older put takes longer."""
        begun, go_on = anyio.Event(), anyio.Event()
        slow: list[str] = []
        fast: list[str] = []

        async def slowly() -> AsyncIterator[bytes]:
            yield b"slow"
            begun.set()
            await go_on.wait()

        async def put() -> None:
            slow.append(await store.put(slowly(), filename="f", scope=RUN))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(put)
            await begun.wait()
            fast.append(await store.put(b"fast", filename="f", scope=RUN))
            assert (await store.find("f", scope=RUN)).handle == fast[0]
            go_on.set()
        versions = await store.versions("f", scope=RUN)
        assert {record.handle for record in versions} == {*fast, *slow}
        assert await store.find("f", scope=RUN) == versions[-1] == max(versions, key=lambda record: record.version)
        assert await store.get(slow[0], scope=RUN) == b"slow"

    # -- deletion

    async def test_A3_deletion_never_frees_a_number(self, store: ArtifactStore, place: Place, clock: Clock) -> None:
        """Neither that of the latest version nor of all; also for a store that is opened later."""
        handles = [await store.put(text.encode(), filename="f", scope=RUN) for text in "abc"]
        await store.delete(handles[2], scope=RUN)
        assert (await store.find("f", scope=RUN)).handle == handles[1]
        third = await store.put(b"d", filename="f", scope=RUN)
        assert (await store.stat(third, scope=RUN)).version == 3
        await store.delete("f", scope=RUN)
        for handle in (*handles, third):
            with pytest.raises(ArtifactMissingError):
                await store.get(handle, scope=RUN)
        assert await records(store, RUN) == []
        with pytest.raises(ArtifactMissingError):
            await store.find("f", scope=RUN)
        await store.prune()
        fourth = await store.put(b"e", filename="f", scope=RUN)
        assert (await store.stat(fourth, scope=RUN)).version == 4
        if self.is_shared:
            async with self.make_store(place, clock=clock) as other:
                fifth = await other.put(b"f", filename="f", scope=RUN)
                assert (await other.stat(fifth, scope=RUN)).version == 5

    async def test_A3_clearing_a_scope_never_frees_a_number(self, store: ArtifactStore) -> None:
        """Who kept a record of an old version must not take a new one for it."""
        for text in "abc":
            await store.put(text.encode(), filename="f", scope=RUN)
        await store.delete("f", scope=RUN)
        await store.put(b"d", filename="f", scope=RUN)
        assert await store.clear_scope(RUN) == 1
        await store.prune()
        after = await store.put(b"e", filename="f", scope=RUN)
        assert (await store.stat(after, scope=RUN)).version == 4

    async def test_A3_what_is_not_there_cannot_be_deleted(self, store: ArtifactStore) -> None:
        """By handle or by name, never there or there no more."""
        handle = await store.put(b"a", filename="f", scope=RUN)
        await store.delete(handle, scope=RUN)
        for thing in (handle, UNKNOWN, "f", "never"):
            with pytest.raises(ArtifactMissingError):
                await store.delete(thing, scope=RUN)

    # -- names beside each other

    async def test_A3_names_that_look_alike_are_different(self, store: ArtifactStore) -> None:
        """Each counts for itself, and none is cut, folded or unescaped on its way into a key."""
        names = ["a", "A", "a.txt", "a/b", "a/b/c", "ab", "a b", "a%20b", "a+b", "a%2Fb", "a=2Fb", "a@1", "a#1", "a~1"]
        names += ["ä", "a\u0308", "ß", "ss", "\U0001f600", "0", "00", "-rf", "_", "*", "?", "x" * 250, "x" * 251]
        handles = {name: await store.put(name.encode(), filename=name, scope=RUN) for name in names}
        for name, handle in handles.items():
            record = await store.find(name, scope=RUN)
            assert (record.name, record.version, record.handle) == (name, 0, handle)
            assert await store.get(handle, scope=RUN) == name.encode()
        await store.delete("a", scope=RUN)
        assert sorted(record.name for record in await records(store, RUN)) == sorted(set(names) - {"a"})

    async def test_A3_lists_have_the_latest_of_each_name(self, store: ArtifactStore) -> None:
        """Those that start with a prefix, whichever it is; an unknown scope has an empty list."""
        names = ["charts/q1.png", "charts/q2.png", "charts2", "über", "notes.md"]
        for _ in range(2):
            for name in names:
                await store.put(b"x", filename=name, scope=RUN)
        assert sorted(record.name for record in await records(store, RUN)) == sorted(names)
        assert {record.version for record in await records(store, RUN)} == {1}
        for prefix in ("charts", "charts/", "charts/q1", "ü", "n", "none", "notes.md", ""):
            found = sorted(record.name for record in await records(store, RUN, prefix=prefix))
            assert found == sorted(name for name in names if name.startswith(prefix)), prefix
        assert await records(store, Scope(run="other")) == []
