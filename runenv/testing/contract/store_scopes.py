"""The contract of whose an artifact is (rule A4): who sees it, and what ends with a scope."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from runenv.artifacts import Scope
from runenv.errors import ArtifactMissingError, HandleError
from runenv.testing.contract.store_base import UNKNOWN, StoreTests, read_all, records

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from runenv.artifacts import ArtifactStore
    from runenv.testing.contract.store_base import Clock, Place

__all__ = ("StoreScopes",)

HOUR: Final = 3600.0
DAY: Final = 24 * HOUR
SCOPES: Final = (
    Scope(run="r"),
    Scope(run="q"),
    Scope(session="s"),
    Scope(user="u"),
    Scope(run="r", session="s"),
    Scope(run="r", session="t"),
    Scope(run="r", user="u"),
    Scope(session="s", user="u"),
    Scope(session="s", user="v"),
    Scope(run="r", session="s", user="u"),
    Scope(run="r", session="s", user="v"),
    Scope(run="s", session="u", user="r"),
)
"""Every combination of levels, and pairs that differ in one of them."""


def sees(viewer: Scope, owner: Scope) -> bool:
    """Return whether the owner is the viewer, or the viewer without its narrower levels."""
    wider = Scope(None, viewer.session, viewer.user) if viewer.session or viewer.user else viewer
    widest = Scope(None, None, viewer.user) if viewer.user else viewer
    return owner in (viewer, wider, widest)


class StoreScopes(StoreTests):
    """Scopes."""

    async def test_A4_a_scope_sees_itself_and_what_it_lies_in(self, store: ArtifactStore) -> None:
        """And nothing else: not its siblings, not what lies in it, not the same id at another level."""
        handles = {
            scope: await store.put(repr(scope).encode(), filename=f"{number}", scope=scope)
            for number, scope in enumerate(SCOPES)
        }
        for viewer in SCOPES:
            expected = {handle for owner, handle in handles.items() if sees(viewer, owner)}
            assert {record.handle for record in await records(store, viewer)} == expected
            for number, (owner, handle) in enumerate(handles.items()):
                if sees(viewer, owner):
                    assert await store.get(handle, scope=viewer) == repr(owner).encode()
                    assert (await store.find(str(number), scope=viewer)).scope == owner
                else:
                    with pytest.raises(ArtifactMissingError):
                        await store.stat(handle, scope=viewer)
                    with pytest.raises(ArtifactMissingError):
                        await store.find(str(number), scope=viewer)

    async def test_A4_a_foreign_handle_reads_like_an_unknown_one(self, store: ArtifactStore, clock: Clock) -> None:
        """By the same error with the same words, for every verb, also when its time is over."""
        handles = [
            await store.put(b"secret", filename="f", scope=Scope("r", "s", "u")),
            await store.put(b"secret", filename="g", scope=Scope("r", "s", "u"), ttl=1),
        ]
        clock.advance(2)
        verbs: list[Callable[[str, Scope], Awaitable[object]]] = [
            lambda handle, scope: store.stat(handle, scope=scope),
            lambda handle, scope: store.get(handle, scope=scope),
            lambda handle, scope: read_all(store, handle, scope=scope),
            lambda handle, scope: store.delete(handle, scope=scope),
        ]
        for viewer in (
            Scope("r"),
            Scope("r", "s"),
            Scope("r", "s", "v"),
            Scope(session="s", user="u"),
            Scope(user="u"),
        ):
            for verb in verbs:
                with pytest.raises(ArtifactMissingError) as unknown:
                    await verb(UNKNOWN, viewer)
                for handle in handles:
                    with pytest.raises(ArtifactMissingError) as foreign:
                        await verb(handle, viewer)
                    assert type(foreign.value) is type(unknown.value) is ArtifactMissingError
                    assert str(foreign.value).replace(handle, UNKNOWN) == str(unknown.value)
        assert await store.get(handles[0], scope=Scope("r", "s", "u")) == b"secret"

    async def test_A4_user_names_are_seen_from_every_run_of_the_user(self, store: ArtifactStore) -> None:
        """`user:` stores at the level of the user, and needs one."""
        here, there = Scope("r", "s", "u"), Scope("q", "t", "u")
        handle = await store.put(b"x", filename="user:profile.json", scope=here)
        record = await store.stat(handle, scope=there)
        assert (record.name, record.scope, record.expires) == ("profile.json", Scope(user="u"), None)
        assert [each.handle for each in await records(store, there)] == [handle]
        assert (await store.find("user:profile.json", scope=there)).handle == handle
        second = await store.put(b"y", filename="user:profile.json", scope=there)
        assert (await store.stat(second, scope=here)).version == 1
        assert [each.handle for each in await store.versions("user:profile.json", scope=here)] == [handle, second]
        with pytest.raises(HandleError, match="user"):
            await store.put(b"x", filename="user:profile.json", scope=Scope("r", "s"))
        await store.delete("user:profile.json", scope=here)
        assert await records(store, there) == []

    async def test_A4_the_narrower_of_two_namesakes_is_found(self, store: ArtifactStore) -> None:
        """A name of the run hides that of its session from the run, and from nobody else."""
        run, other, session = Scope("r", "s"), Scope("q", "s"), Scope(session="s")
        wide = await store.put(b"session", filename="f", scope=session)
        narrow = await store.put(b"run", filename="f", scope=run)
        assert (await store.find("f", scope=run)).handle == narrow
        assert (await store.find("f", scope=other)).handle == wide
        assert (await store.find("f", scope=session)).handle == wide

    async def test_C085_the_end_of_a_scope_clears_it_and_nothing_else(
        self, store: ArtifactStore, place: Place, clock: Clock
    ) -> None:
        """The inner one ends and the outer one stays; when the outer one ends, all that lies in it goes."""
        handles = {}
        for scope in SCOPES:
            for version in range(2):
                handles[scope, version] = await store.put(repr(scope).encode(), filename="f", scope=scope)
        for ended in (Scope("r", "s"), Scope(session="s"), Scope(user="u")):
            gone = {key: handles.pop(key) for key in list(handles) if sees(key[0], ended)}
            assert await store.clear_scope(ended) == len(gone)
            assert await store.clear_scope(ended) == 0
            for (scope, _), handle in gone.items():
                with pytest.raises(ArtifactMissingError):
                    await store.get(handle, scope=scope)
            for (scope, _), handle in handles.items():
                assert await store.get(handle, scope=scope) == repr(scope).encode()
        if self.is_shared:
            async with self.make_store(place, clock=clock) as other:
                assert await records(other, Scope("r", "s")) == []
                assert len(await records(other, Scope("q"))) == 1
