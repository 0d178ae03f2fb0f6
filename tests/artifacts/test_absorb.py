"""What a tool returns: artifacts in it are stored once, and a model is shown one line for each."""

from __future__ import annotations

import collections
import gc
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
import pytest
from pydantic import BaseModel, ConfigDict

from runenv.artifacts import Artifact, ArtifactStore, Quotas, Record, Scope
from runenv.artifacts.handles import find, part, placeholder
from runenv.artifacts.results import absorb
from runenv.errors import HandleError, LimitError, StoreError
from runenv.types import FilePart, ImagePart, TextPart, ToolResult

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from runenv.testing.contract.store import Place

pytestmark = pytest.mark.anyio
RUN = Scope(run="run-1")


class Clock:
    """Time that passes when told."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """The store's time."""
    return Clock()


@pytest.fixture
async def store(anywhere: Place, clock: Clock) -> AsyncIterator[ArtifactStore]:
    """A store of each kind that takes at most 20 artifacts."""
    quotas = Quotas(max_count=20)
    async with ArtifactStore.open(anywhere.url, options=anywhere.options, quotas=quotas, clock=clock) as store:
        yield store


def chart(name: str = "chart.png", data: bytes = b"\x89PNG\r\n\x1a\n...") -> Artifact:
    """A new object each time."""
    return Artifact(data, name)


async def stored(store: ArtifactStore, scope: Scope = RUN) -> list[Record]:
    """Everything that a scope may see, all versions."""
    names = {record.name async for record in store.list(scope)}
    return [record for name in sorted(names) for record in await store.versions(name, scope=scope)]


async def only(store: ArtifactStore) -> Record:
    """The one artifact that there is."""
    (record,) = await stored(store)
    return record


# -- shown


async def test_A7_an_artifact_becomes_its_placeholder(store: ArtifactStore) -> None:
    """The bytes are in the store, with all that was said of them."""
    artifact = Artifact(b"a,b\n", "t.csv", "text/csv; charset=utf-8", {"by": "tool"})
    shown = await absorb(artifact, store, scope="run-1")
    record = await only(store)
    assert shown == placeholder(record)
    assert (record.name, record.media_type, record.metadata) == ("t.csv", "text/csv; charset=utf-8", {"by": "tool"})
    assert await store.get(record.handle, scope="run-1") == b"a,b\n"


async def test_A7_artifacts_are_found_in_lists_and_dicts_at_any_depth(store: ArtifactStore) -> None:
    """What stands around them stays, keys and types too."""
    value = {"ok": True, "charts": [chart("1.png"), ("text", {"deep": chart("2.png")})], "n": None}
    shown = await absorb(value, store, scope=RUN)
    first, second = await stored(store)
    assert shown == {"ok": True, "charts": [placeholder(first), ("text", {"deep": placeholder(second)})], "n": None}


async def test_artifacts_are_stored_in_the_order_in_which_they_stand(store: ArtifactStore) -> None:
    """Versions of one name tell which came first."""
    value = [[chart("a", b"0")], chart("a", b"1"), {"x": (chart("a", b"2"),)}, chart("a", b"3")]
    await absorb(value, store, scope=RUN)
    records = await store.versions("a", scope=RUN)
    assert [await store.get(record.handle, scope=RUN) for record in records] == [b"0", b"1", b"2", b"3"]


class Pair(NamedTuple):
    """A tuple with names."""

    text: str
    file: Any


@dataclass(frozen=True, slots=True)
class Report:
    """A frozen value."""

    title: str
    files: list[Any]


class Model(BaseModel):
    """A model that takes anything, by more names than it knows."""

    model_config = ConfigDict(extra="allow", frozen=True, arbitrary_types_allowed=True)
    title: str
    file: Any


async def test_artifacts_are_found_in_values_of_other_kinds(store: ArtifactStore) -> None:
    """Named tuples, dataclasses, pydantic models, subclasses of dict: each stays what it is, and the original too."""
    artifact = chart()
    ordered = collections.OrderedDict(x=artifact)
    values = [
        Pair("t", artifact),
        Report("t", [artifact]),
        Model.model_validate({"title": "t", "file": artifact, "other": [artifact]}),
        ordered,
    ]
    shown = await absorb(values, store, scope=RUN)
    line = placeholder(await only(store))
    assert shown == [
        Pair("t", line),
        Report("t", [line]),
        Model.model_validate({"title": "t", "file": line, "other": [line]}),
        collections.OrderedDict(x=line),
    ]
    assert [type(value) for value in shown] == [type(value) for value in values]
    assert values[1] == Report("t", [artifact])
    assert values[2] == Model.model_validate({"title": "t", "file": artifact, "other": [artifact]})
    assert ordered == {"x": artifact}


async def test_in_a_tool_result_a_file_part_takes_its_place(store: ArtifactStore) -> None:
    """Parts are what providers know how to show; the error flag stays."""
    parts: Any = (TextPart("done"), chart(), ImagePart(b"png", "image/png"))
    result = ToolResult(parts, is_error=True)
    shown = await absorb(result, store, scope=RUN)
    assert shown == ToolResult((parts[0], part(await only(store)), parts[2]), is_error=True)
    assert isinstance(shown.parts[1], FilePart)
    assert result.parts is parts


async def test_a_result_without_artifacts_is_given_back_as_it_is(store: ArtifactStore) -> None:
    """No copy, whatever it is."""
    for value in ("text", 1, None, object(), [{"a": (1, 2)}], ToolResult((TextPart("x"),)), Artifact):
        assert await absorb(value, store, scope=RUN) is value
    assert await stored(store) == []


async def test_the_original_is_not_changed(store: ArtifactStore) -> None:
    """A cache or a log may hold it."""
    artifact = chart()
    inner = [artifact]
    value = {"a": inner, "b": inner}
    shown = await absorb(value, store, scope=RUN)
    assert value == {"a": [artifact], "b": [artifact]}
    assert value["a"] is inner
    assert shown["a"] is shown["b"]


async def test_cycles_and_depth_are_no_danger(store: ArtifactStore) -> None:
    """Cycles stay cycles, through tuples too; 100,000 levels are walked."""
    ring: list[Any] = [chart()]
    ring.append((ring, {"ring": ring}))
    shown = await absorb(ring, store, scope=RUN)
    assert shown is not ring
    assert shown[0] == placeholder(await only(store))
    assert shown[1][0] is shown
    assert shown[1][1]["ring"] is shown
    deep: Any = ring[0]
    for level in range(100_000):
        deep = [deep] if level % 2 else (deep,)
    shown = await absorb(deep, store, scope=RUN)
    for _ in range(100_000):
        (shown,) = shown
    assert shown == placeholder(await only(store))


async def test_C079_no_bytes_of_an_artifact_are_shown(store: ArtifactStore) -> None:
    """Nothing for a model to copy wrong."""
    data = random.Random(79).randbytes(30_000)
    shown = await absorb({"deck": Artifact(data, "deck.pptx")}, store, scope=RUN)
    (handle,) = [match.handle for match in find(shown["deck"])]
    assert await store.get(handle, scope=RUN) == data
    assert len(repr(shown)) < 400


# -- once


async def test_C083_a_cached_result_is_stored_once(store: ArtifactStore) -> None:
    """The same object, a hundred times: one copy, one handle."""
    cached = {"chart": chart(), "again": []}
    cached["again"] = [cached["chart"]]
    shown = [await absorb(cached, store, scope=RUN) for _ in range(100)]
    record = await only(store)
    assert shown == [{"chart": placeholder(record), "again": [placeholder(record)]}] * 100


async def test_C083_a_cached_file_is_stored_once_even_when_it_is_gone(store: ArtifactStore, tmp_path: Path) -> None:
    """Tools tidy up; what the store has it has."""
    path = tmp_path / "out.txt"
    path.write_bytes(b"text")
    cached = Artifact(path, "out.txt")
    shown = await absorb(cached, store, scope=RUN)
    assert await absorb(cached, store, scope=RUN) == shown
    path.unlink()
    assert await absorb(cached, store, scope=RUN) == shown
    assert shown == placeholder(await only(store))


async def test_a_file_that_is_another_by_now_is_stored_again(store: ArtifactStore, tmp_path: Path) -> None:
    """One object that a tool returns each time must not show an old content."""
    path = tmp_path / "out.txt"
    path.write_bytes(b"old")
    constant = Artifact(path, "out.txt")
    await absorb(constant, store, scope=RUN)
    path.write_bytes(b"newer")
    await absorb(constant, store, scope=RUN)
    old, new = await stored(store)
    assert await store.get(old.handle, scope=RUN) == b"old"
    assert await store.get(new.handle, scope=RUN) == b"newer"


async def test_equal_objects_are_two_versions(store: ArtifactStore) -> None:
    """A tool that ran twice made two things."""
    assert await absorb(chart(), store, scope=RUN) != await absorb(chart(), store, scope=RUN)
    assert [record.version for record in await stored(store)] == [0, 1]


@pytest.mark.parametrize("anywhere", ["memory"], indirect=True)
async def test_a_new_object_at_an_old_address_is_new(store: ArtifactStore) -> None:
    """Nothing is remembered of an object that is gone, so that no handle goes to another's content."""
    for number in range(20):
        data = b"%d" % number
        shown = await absorb(Artifact(data, f"{number}.txt"), store, scope=RUN)
        assert await store.get(find(shown)[0].handle, scope=RUN) == data
        gc.collect()


async def test_other_scopes_and_lifetimes_have_handles_of_their_own(store: ArtifactStore) -> None:
    """Or one run could read what another may not."""
    artifact = chart()
    shown = {await absorb(artifact, store, scope=scope, ttl=ttl) for scope in ("a", "b") for ttl in (60.0, None)}
    assert len(shown) == 4


async def test_other_stores_have_handles_of_their_own(store: ArtifactStore) -> None:
    """What one holds the other does not."""
    artifact = chart()
    async with ArtifactStore.open("memory://") as other:
        assert await absorb(artifact, store, scope=RUN) != await absorb(artifact, other, scope=RUN)
        assert len(await stored(other)) == 1


async def test_what_is_gone_from_the_store_is_stored_again(store: ArtifactStore, clock: Clock) -> None:
    """Deleted, cleared or expired: a cached result never shows a dead handle."""
    artifact = chart()
    await absorb(artifact, store, scope=RUN, ttl=60.0)
    await store.delete((await only(store)).handle, scope=RUN)
    await absorb(artifact, store, scope=RUN, ttl=60.0)
    await store.clear_scope(RUN)
    await absorb(artifact, store, scope=RUN, ttl=60.0)
    clock.now += 61
    shown = await absorb(artifact, store, scope=RUN, ttl=60.0)
    assert await store.get(find(shown)[0].handle, scope=RUN) == artifact.data


async def test_the_same_object_by_many_ways_at_once_is_one(store: ArtifactStore) -> None:
    """Ten tasks get the result of one cache."""
    artifact = chart()
    shown: list[str] = []

    async def one() -> None:
        shown.append(await absorb(artifact, store, scope=RUN))

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(one)
    assert shown == [placeholder(await only(store))] * 10


async def test_a_hook_may_swap_the_result(store: ArtifactStore) -> None:
    """What it puts there is absorbed as well, and what was absorbed before stays as it was."""
    shown = await absorb(chart("first.png"), store, scope=RUN)

    def hook(result: object) -> object:
        return [result, chart("second.png")]

    final = await absorb(hook(shown), store, scope=RUN)
    first, second = await stored(store)
    assert final == [placeholder(first), placeholder(second)]


# -- all or nothing


@pytest.mark.parametrize("bad", [Artifact(b"x", "../escape"), Artifact(b"x", "")], ids=["climbs", "empty"])
async def test_one_refused_name_stores_nothing(store: ArtifactStore, bad: Artifact) -> None:
    """Nothing is half done."""
    with pytest.raises(HandleError):
        await absorb([chart("1.png"), chart("2.png"), bad], store, scope=RUN)
    assert await stored(store) == []


async def test_a_missing_file_stores_nothing(store: ArtifactStore, tmp_path: Path) -> None:
    """The file's own error, and an empty store."""
    with pytest.raises(FileNotFoundError):
        await absorb([chart(), Artifact(tmp_path / "missing", "x")], store, scope=RUN)
    assert await stored(store) == []


async def test_a_full_store_keeps_what_it_had(store: ArtifactStore) -> None:
    """An artifact that was stored before, by the same object too, is not taken away by a later failure."""
    kept = chart("kept.png")
    shown = await absorb(kept, store, scope=RUN)
    value = [kept, *(chart(f"{number}.png") for number in range(20))]
    with pytest.raises(LimitError):
        await absorb(value, store, scope=RUN)
    assert placeholder(await only(store)) == shown
    assert await absorb(kept, store, scope=RUN) == shown


async def test_what_failed_can_be_absorbed_later(store: ArtifactStore) -> None:
    """No handle of the failed attempt is remembered."""
    first = chart("1.png")
    with pytest.raises(HandleError):
        await absorb([first, Artifact(b"x", "")], store, scope=RUN)
    shown = await absorb(first, store, scope=RUN)
    assert shown == placeholder(await only(store))


class Slow(ArtifactStore):
    """A store that stops before it keeps `slow.png`, until told."""

    waiting: anyio.Event
    go_on: anyio.Event

    async def put(self, data: Any, *, filename: str | None = None, **keywords: Any) -> str:  # noqa: ANN401
        if filename == "slow.png":
            self.waiting.set()
            await self.go_on.wait()
        return await super().put(data, filename=filename, **keywords)


@pytest.fixture
async def slow() -> AsyncIterator[Slow]:
    """Open it."""
    store = Slow.open("memory://")
    assert isinstance(store, Slow)
    store.waiting, store.go_on = anyio.Event(), anyio.Event()
    async with store:
        yield store


async def test_cancelled_halfway_nothing_stays(slow: Slow) -> None:
    """What was stored before is deleted, though the task is cancelled."""
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:

            async def work() -> None:
                await absorb([chart("1.png"), chart("slow.png")], slow, scope=RUN)

            tasks.start_soon(work)
            await slow.waiting.wait()
            assert len(await stored(slow)) == 1
            tasks.cancel_scope.cancel()
    assert await stored(slow) == []


async def test_a_failure_takes_nothing_from_who_shares_an_object(slow: Slow) -> None:
    """Another task that absorbed the same object meanwhile keeps its handle."""
    shared, shown = chart("shared.png"), ""
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:

            async def fails() -> None:
                with pytest.raises(HandleError):
                    await absorb([shared, chart("slow.png"), Artifact(b"x", "")], slow, scope=RUN)

            tasks.start_soon(fails)
            await slow.waiting.wait()
            shown = await absorb(shared, slow, scope=RUN)
            slow.go_on.set()
    assert shown == placeholder(await only(slow))


class Stuck(ArtifactStore):
    """A store whose storage is gone when something is to be deleted."""

    async def delete(self, handle_or_name: str, *, scope: str | Scope) -> int:
        raise StoreError(f"{handle_or_name} of {scope} cannot be deleted")


async def test_what_cannot_be_deleted_again_is_named() -> None:
    """The first error is the one that is raised; the second is a note on it."""
    async with Stuck.open("memory://") as store:
        with pytest.raises(HandleError) as caught:
            await absorb([chart("1.png"), chart("2.png"), Artifact(b"x", "")], store, scope=RUN)
        left = [record.handle for record in await stored(store)]
    (note,) = caught.value.__notes__
    assert [match.handle for match in find(note)] == left
    assert len(left) == 2
