"""The contract of how long an artifact lives and how much there may be (rule A4): lifetimes, what is freed, quotas."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
import pytest

from runenv.artifacts import Quotas, Scope
from runenv.errors import ArtifactExpiredError, ArtifactMissingError, ConfigError, LimitError
from runenv.testing.contract.store_base import StoreTests, chunks, raw_bytes, read_all, records

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from obstore.store import ObjectStore

    from runenv.artifacts import ArtifactStore
    from runenv.testing.contract.store_base import Clock, Place

__all__ = ("StoreLifetimes",)

HOUR: Final = 3600.0
DAY: Final = 24 * HOUR


class StoreLifetimes(StoreTests):
    """Lifetimes and quotas."""

    # -- lifetimes

    async def test_a_lifetime_that_is_none_is_refused(self, store: ArtifactStore) -> None:
        """Also one that is no number, which only a type checker would find."""
        wrong: Any
        for wrong in (0, -1, float("inf"), float("nan"), "1h"):
            with pytest.raises(ConfigError, match="a lifetime is"):
                await store.put(b"x", filename="f", scope="r", ttl=wrong)
        assert await records(store, "r") == []

    async def test_C086_a_lifetime_ends_on_its_second(self, store: ArtifactStore, clock: Clock) -> None:
        """Fully there until then, and afterwards an error that says so to those whose it was."""
        handle = await store.put(b"x", filename="f", scope="r", ttl=60)
        for passed in (0.0, 59.0):
            clock.advance(passed)
            assert await store.get(handle, scope="r") == b"x"
        for passed in (1.0, 1.0, DAY * 365):
            clock.advance(passed)
            for verb in (store.stat, store.get):
                with pytest.raises(ArtifactExpiredError):
                    await verb(handle, scope="r")
            with pytest.raises(ArtifactExpiredError):
                await read_all(store, handle, scope="r")
            assert await records(store, "r") == await store.versions("f", scope="r") == []
            with pytest.raises(ArtifactMissingError):
                await store.find("f", scope="r")

    async def test_C086_a_clock_that_is_moved_back_breaks_nothing(self, store: ArtifactStore, clock: Clock) -> None:
        """What was over may be there again or not; what was there stays."""
        kept = await store.put(b"k", filename="k", scope="r", ttl=None)
        handle = await store.put(b"x", filename="f", scope="r", ttl=60)
        clock.advance(61)
        with pytest.raises(ArtifactExpiredError):
            await store.get(handle, scope="r")
        clock.advance(-10 * DAY)
        with suppress(ArtifactExpiredError):
            assert await store.get(handle, scope="r") == b"x"
        await store.prune()
        assert await store.get(kept, scope="r") == b"k"
        later = await store.put(b"y", filename="f", scope="r", ttl=60)
        assert (await store.stat(later, scope="r")).version == 1
        assert await store.get(later, scope="r") == b"y"

    async def test_C086_a_read_that_has_begun_ends_well(self, store: ArtifactStore, clock: Clock) -> None:
        """Though the time is over before its last byte."""
        data = b"0123456789" * 1_000_000
        handle = await store.put(data, filename="f", scope="r", ttl=60)
        got = bytearray()
        async with store.open_read(handle, scope="r") as stream:
            async for chunk in stream:
                clock.now += 61
                got += chunk
        assert got == data
        with pytest.raises(ArtifactExpiredError):
            await store.get(handle, scope="r")

    async def test_A4_defaults_are_by_level(self, store: ArtifactStore, clock: Clock) -> None:
        """A run's artifacts live for 24 hours, a session's and a user's until they are deleted."""
        scopes = (Scope("r"), Scope("r", "s", "u"), Scope(session="s"), Scope(user="u"))
        handles = {scope: await store.put(b"x", filename="f", scope=scope) for scope in scopes}
        forever = await store.put(b"x", filename="g", scope="r", ttl=None)
        for scope, handle in handles.items():
            expires = (await store.stat(handle, scope=scope)).expires
            assert expires == (clock.now + DAY if scope.run else None)
        clock.advance(DAY * 3650)
        await store.prune()
        assert await store.get(forever, scope="r") == b"x"
        for scope, handle in handles.items():
            if scope.run:
                with pytest.raises(ArtifactMissingError):
                    await store.get(handle, scope=scope)
            else:
                assert await store.get(handle, scope=scope) == b"x"

    async def test_C086_what_is_over_is_freed_by_prune(
        self, store: ArtifactStore, raw: ObjectStore, clock: Clock
    ) -> None:
        """The bytes go, and what is not over stays; the number of the version is not used again."""
        for number in range(3):
            await store.put(bytes([number]) * 100_000, filename="f", scope="r", ttl=60)
        kept = await store.put(b"k" * 100_000, filename="k", scope="r", ttl=None)
        assert (await store.prune()).expired == 0
        clock.advance(61)
        assert (await store.prune()).expired == 3
        await _prune_all(store, clock)
        assert 100_000 <= await raw_bytes(raw) < 150_000
        assert await store.get(kept, scope="r") == b"k" * 100_000
        again = await store.put(b"x", filename="f", scope="r")
        assert (await store.stat(again, scope="r")).version == 3

    # -- what is freed

    async def test_C085_what_a_scope_held_is_freed(self, store: ArtifactStore, raw: ObjectStore, clock: Clock) -> None:
        """At once, or where that cannot be known at once, by pruning."""
        for number in range(5):
            await store.put(bytes([number]) * 100_000, filename=f"{number}", scope="ends")
        kept = await store.put(b"k" * 100_000, filename="k", scope=Scope(session="stays"))
        await store.clear_scope("ends")
        await _prune_all(store, clock)
        assert 100_000 <= await raw_bytes(raw) < 150_000
        assert await store.get(kept, scope=Scope(session="stays")) == b"k" * 100_000

    # -- quotas

    async def test_A4_a_single_artifact_can_be_too_large(self, place: Place) -> None:
        """Bytes, files and streams; a stream is not read to its end for that. Nothing is left."""
        read = 0

        async def endless() -> AsyncIterator[bytes]:
            nonlocal read
            while True:
                read += 1000
                yield b"x" * 1000

        async with self.make_store(place, quotas=Quotas(max_artifact_bytes=10_000)) as store:
            await store.put(b"x" * 10_000, filename="fits", scope="r")
            await store.put(chunks(b"x" * 10_000, 999), filename="fits", scope="r")
            for source in (b"x" * 10_001, chunks(b"x" * 10_001, 999), endless()):
                with pytest.raises(LimitError, match=r"10,?000"):
                    await store.put(source, filename="f", scope="r")
            assert [record.name for record in await records(store, "r")] == ["fits"]
        assert read < 100_000_000

    async def test_A4_quotas_hold(self, place: Place, clock: Clock) -> None:
        """In count and in bytes; what is deleted or over makes room."""
        for quotas in (Quotas(max_count=10), Quotas(max_bytes=1000)):
            async with self.make_store(place, quotas=quotas, clock=clock) as store:
                contents = [bytes([number]) * 100 for number in range(10)]
                handles = [await store.put(data, filename=f"{data[0]}", scope="r") for data in contents]
                clock.advance(61)
                for source in (b"x" * 100, chunks(b"y" * 100, 10)):
                    with pytest.raises(LimitError):
                        await store.put(source, filename="more", scope=Scope(user="u"))
                await store.delete(handles[0], scope="r")
                clock.advance(61)
                again = await store.put(b"z" * 100, filename="more", scope="r")
                with pytest.raises(LimitError):
                    await store.put(b"x" * 100, filename="more", scope="r")
                assert await store.get(again, scope="r") == b"z" * 100
                assert await store.clear_scope("r") == 10

    async def test_A4_quotas_count_what_other_stores_keep(self, place: Place, clock: Clock) -> None:
        """After a minute at the latest; what others delete makes room at once."""
        if not self.is_shared:
            pytest.skip("nobody else stores anything here")
        async with (
            self.make_store(place, quotas=Quotas(max_count=2), clock=clock) as store,
            self.make_store(place, clock=clock) as other,
        ):
            await store.put(b"1", filename="1", scope="r")
            await other.put(b"2", filename="2", scope="r")
            if self.has_exact_quotas:
                with pytest.raises(LimitError):
                    await store.put(b"3", filename="3", scope="r")
            clock.advance(61)
            with pytest.raises(LimitError):
                await store.put(b"3", filename="3", scope="r")
            await other.delete("2", scope="r")
            await store.put(b"3", filename="3", scope="r")
            assert sorted([record.name for record in await records(store, "r")]) == ["1", "3"]

    async def test_A4_the_same_bytes_count_once(self, place: Place) -> None:
        """Until the last of the artifacts that have them is gone; then there is room for others."""
        if not self.is_deduplicated:
            pytest.skip("this store keeps a copy for each")
        async with self.make_store(place, quotas=Quotas(max_bytes=1000)) as store:
            handles = [await store.put(b"s" * 1000, filename=f"{number}", scope=f"r-{number}") for number in range(5)]
            for number, handle in enumerate(handles):
                with pytest.raises(LimitError):
                    await store.put(b"o", filename="other", scope="r")
                await store.delete(handle, scope=f"r-{number}")
            await store.put(b"o" * 1000, filename="other", scope="r")

    async def test_A4_quotas_hold_for_what_is_saved_at_once(self, place: Place) -> None:
        """Exactly, or with as much over them as was under way."""
        results: list[bool] = []
        async with self.make_store(place, quotas=Quotas(max_count=5, max_bytes=500)) as store:

            async def save(number: int) -> None:
                try:
                    await store.put(bytes([number]) * 100, filename=f"{number}", scope="r")
                    results.append(True)
                except LimitError:
                    results.append(False)

            async with anyio.create_task_group() as tasks:
                for number in range(12):
                    tasks.start_soon(save, number)
            kept = await records(store, "r")
        assert len(kept) == sum(results)
        if self.has_exact_quotas:
            assert len(kept) == 5
        else:
            assert 5 <= len(kept) <= 12


async def _prune_all(store: ArtifactStore, clock: Clock) -> None:
    """Prune until nothing is too young to be removed: what nothing refers to is marked, and swept a day later."""
    for _ in range(2):
        await store.prune()
        clock.advance(DAY + HOUR)
    await store.prune()
