"""The store's contract catches stores that are wrong: each of these breaks one promise, and a test fails over that."""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from runenv.artifacts import Artifact, ArtifactStore, Scope
from runenv.errors import ArtifactExpiredError, ArtifactMissingError, HandleError
from runenv.testing.contract.store import Clock, Place, StoreContract

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from runenv.artifacts import Record

pytestmark = pytest.mark.anyio


class _Contract(StoreContract):
    """The contract itself, to call its tests by hand; not collected."""

    kind: type[ArtifactStore] = ArtifactStore

    def make_store(self, place: Place, **settings: Any) -> ArtifactStore:  # noqa: ANN401 - handed on
        """Return a store of the kind under test."""
        return self.kind.open(place.url, options=place.options, **settings)


class _ChangesPut(ArtifactStore):
    """Puts something else than it was given; what, says `change`."""

    @staticmethod
    def change(data: Any, options: dict[str, Any]) -> Any:  # noqa: ANN401 - handed on
        raise NotImplementedError

    async def put(self, data: Any, **options: Any) -> str:  # noqa: ANN401 - handed on
        return await super().put(self.change(data, options), **options)


class _LivesForEver(_ChangesPut):
    @staticmethod
    def change(data: Any, options: dict[str, Any]) -> Any:  # noqa: ANN401 - handed on
        options["ttl"] = None
        return data


class _FoldsNames(_ChangesPut):
    @staticmethod
    def change(data: Any, options: dict[str, Any]) -> Any:  # noqa: ANN401 - handed on
        options["filename"] = options["filename"].lower()
        return data


class _LosesMetadata(_ChangesPut):
    @staticmethod
    def change(data: Any, options: dict[str, Any]) -> Any:  # noqa: ANN401 - handed on
        options["metadata"] = {key: value.strip() for key, value in (options.get("metadata") or {}).items()}
        return data


class _CopiesResults(_ChangesPut):
    @staticmethod
    def change(data: Any, options: dict[str, Any]) -> Any:  # noqa: ANN401, ARG004 - handed on
        return dataclasses.replace(data) if isinstance(data, Artifact) else data


class _HoldsStreams(ArtifactStore):
    async def put(self, data: Any, **options: Any) -> str:  # noqa: ANN401 - handed on
        if not isinstance(data, bytes | Artifact) and hasattr(data, "__aiter__"):
            data = b"".join([chunk async for chunk in data])
        return await super().put(data, **options)


class _KeepsHalves(ArtifactStore):
    async def put(self, data: Any, **options: Any) -> str:  # noqa: ANN401 - handed on
        async def forgiving() -> AsyncIterator[bytes]:
            try:
                async for chunk in data:
                    yield chunk
            except Exception:  # noqa: BLE001 - the fault itself
                return

        return await super().put(forgiving() if hasattr(data, "__aiter__") else data, **options)


class _RepairsNames(ArtifactStore):
    async def put(self, data: Any, **options: Any) -> str:  # noqa: ANN401 - handed on
        try:
            return await super().put(data, **options)
        except HandleError:
            options["filename"] = "repaired"
            return await super().put(data, **options)


class _ChecksNobody(ArtifactStore):
    async def get(self, handle: str, *, scope: str | Scope, **span: Any) -> bytes:  # noqa: ANN401 - handed on
        for asking in (scope, Scope("r", "s", "u"), Scope("r"), Scope("q")):
            try:
                return await super().get(handle, scope=asking, **span)
            except ArtifactMissingError as error:
                missing = error
        raise missing

    async def stat(self, handle: str, *, scope: str | Scope) -> Record:
        for asking in (scope, Scope("r", "s", "u"), Scope("r"), Scope("q")):
            try:
                return await super().stat(handle, scope=asking)
            except ArtifactMissingError as error:
                missing = error
        raise missing


class _TellsForeigners(ArtifactStore):
    async def stat(self, handle: str, *, scope: str | Scope) -> Record:
        try:
            return await super().stat(handle, scope=scope)
        except ArtifactMissingError:
            if handle.endswith("-000000000000"):
                raise
            raise ArtifactMissingError(f"{handle!r} is not yours") from None


class _ForgetsWhatIsOver(ArtifactStore):
    async def get(self, handle: str, *, scope: str | Scope, **span: Any) -> bytes:  # noqa: ANN401 - handed on
        try:
            return await super().get(handle, scope=scope, **span)
        except ArtifactExpiredError:
            raise ArtifactMissingError("there is none") from None


class _ChecksNoHash(ArtifactStore):
    async def get(self, handle: str, *, scope: str | Scope, **span: Any) -> bytes:  # noqa: ANN401 - handed on
        head = await super().get(handle, scope=scope, length=1)
        return (head + await super().get(handle, scope=scope, offset=1))[span.get("offset", 0) :]


class _MissesLastBytes(ArtifactStore):
    async def get(self, handle: str, *, scope: str | Scope, **span: Any) -> bytes:  # noqa: ANN401 - handed on
        if span.get("offset"):
            span["length"] = (span.get("length") or 10**12) - 1
        return await super().get(handle, scope=scope, **span)


class _ClearsToo(ArtifactStore):
    async def clear_scope(self, scope: str | Scope) -> int:
        count = 0
        for each in Scope.of(scope).visible:
            count += await super().clear_scope(each)
        return count


class _ClearsLess(ArtifactStore):
    async def clear_scope(self, scope: str | Scope) -> int:
        return await super().clear_scope(Scope(run="nothing")) + (Scope.of(scope).run is None)


class _CountsAnew(ArtifactStore):
    async def stat(self, handle: str, *, scope: str | Scope) -> Record:
        record = await super().stat(handle, scope=scope)
        versions = await self.versions(record.name, scope=scope)
        return dataclasses.replace(record, version=len(versions) - 1)


class _ListsEverything(ArtifactStore):
    async def list(self, scope: str | Scope, *, prefix: str = "") -> AsyncIterator[Record]:
        async for record in super().list(scope, prefix=prefix):
            for version in await self.versions(record.name, scope=scope):
                yield version


class _HasNoQuotas(ArtifactStore):
    @classmethod
    def open(cls, url: str, **settings: Any) -> ArtifactStore:  # noqa: ANN401 - handed on
        settings.pop("quotas", None)
        return super().open(url, **settings)


@pytest.mark.parametrize(
    ("wrong", "test"),
    [
        (_LivesForEver, "test_C086_a_lifetime_ends_on_its_second"),
        (_LivesForEver, "test_A4_defaults_are_by_level"),
        (_FoldsNames, "test_A3_names_that_look_alike_are_different"),
        (_LosesMetadata, "test_A3_a_record_says_all"),
        (_CopiesResults, "test_C083_the_same_object_keeps_its_handle"),
        (_HoldsStreams, "test_A1_host_memory_stays_flat"),
        (_KeepsHalves, "test_A3_a_failed_put_is_not_there_and_its_number_is_lost_at_most"),
        (_ChecksNobody, "test_A4_a_scope_sees_itself_and_what_it_lies_in"),
        (_ChecksNobody, "test_A4_a_foreign_handle_reads_like_an_unknown_one"),
        (_TellsForeigners, "test_A4_a_foreign_handle_reads_like_an_unknown_one"),
        (_ForgetsWhatIsOver, "test_C086_a_lifetime_ends_on_its_second"),
        (_ChecksNoHash, "test_A10_changed_content_is_noticed"),
        (_ChecksNoHash, "test_A10_damaged_objects_never_give_wrong_bytes"),
        (_MissesLastBytes, "test_A1_ranges_are_as_of_slices"),
        (_ClearsToo, "test_C085_the_end_of_a_scope_clears_it_and_nothing_else"),
        (_ClearsLess, "test_C085_the_end_of_a_scope_clears_it_and_nothing_else"),
        (_CountsAnew, "test_A3_deletion_never_frees_a_number"),
        (_ListsEverything, "test_A3_lists_have_the_latest_of_each_name"),
        (_HasNoQuotas, "test_A4_a_single_artifact_can_be_too_large"),
        (_HasNoQuotas, "test_A4_quotas_hold"),
    ],
)  # fmt: skip
async def test_a_wrong_store_is_caught(wrong: type[ArtifactStore], test: str, tmp_path: Path) -> None:
    """The test, which passes over right stores in `test_store_contract.py`, fails over the wrong one."""
    with pytest.raises((AssertionError, pytest.fail.Exception, ExceptionGroup, ArtifactMissingError)):
        await _run(wrong, test, {}, tmp_path / "wrong")


@pytest.mark.parametrize("name", ["../a", "a\nb", "C:x", ""])
async def test_a_store_that_repairs_names_is_caught(name: str, tmp_path: Path) -> None:
    """A name is taken as it is, or refused."""
    test = "test_A5_bad_names_are_refused"
    with pytest.raises(pytest.fail.Exception):
        await _run(_RepairsNames, test, {"name": name}, tmp_path / "wrong")


async def _run(kind: type[ArtifactStore], test: str, arguments: dict[str, Any], tmp_path: Path) -> None:
    """Run one test of the contract over a store of a class, with what its fixtures would give."""
    tmp_path.mkdir()
    contract = _Contract()
    contract.kind = kind
    function = getattr(contract, test)
    place, clock = Place((tmp_path / "store").as_uri()), Clock()
    async with contract.make_store(place, clock=clock) as store:
        given = {"store": store, "place": place, "clock": clock, "raw": contract.make_raw(place), "tmp_path": tmp_path}
        given |= arguments
        with anyio.fail_after(60):
            await function(**{name: given[name] for name in inspect.signature(function).parameters})
