"""A store in a bucket: the order of writes, what is left after failures, and what prune does about it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import obstore
import pytest
from obstore.store import S3Store

from runenv.artifacts import ArtifactStore, Scope
from runenv.artifacts.backends.bucket import Bucket
from runenv.errors import ArtifactExpiredError, ArtifactMissingError, ConfigError, StoreError
from runenv.testing.contract.store_base import Clock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from runenv.testing.contract.store_base import Place
    from tests.artifacts.servers import S3Server

pytestmark = pytest.mark.anyio

ENDS_EARLY = """
import asyncio, sys, time
import obstore
from obstore.store import MemoryStore
import runenv.artifacts.backends.bucket

class Slow:
    def __del__(self, sleep=time.sleep):
        sleep(1)

async def main():
    loop = asyncio.get_running_loop()
    wake = loop._write_to_self

    def wake_and_linger():
        wake()
        time.sleep(0.3)

    loop._write_to_self = wake_and_linger
    await obstore.put_async(MemoryStore(), "key", b"")

sys.slow = Slow()  # goes when the interpreter has nearly ended
asyncio.run(main())
"""
"""A program that ends while a thread of obstore, which has woken it, is not back from there."""

RUN = "run-1"
DAY = 24 * 3600.0


@pytest.fixture
def place(moto: S3Server) -> Place:
    """Return a prefix of a bucket that nobody has used."""
    return moto.place()


@pytest.fixture
def clock() -> Clock:
    """Return the clock of the store."""
    return Clock()


@pytest.fixture
async def store(place: Place, clock: Clock) -> AsyncIterator[ArtifactStore]:
    """Return an open store."""
    async with ArtifactStore.open(place.url, options=place.options, clock=clock) as store:
        yield store


@pytest.fixture
def raw(place: Place, moto: S3Server) -> S3Store:
    """Return the bucket, to look behind the store's back."""
    options = {key: value for key, value in moto.options.items() if key != "allow_http"}
    prefix = place.url.rpartition("/")[2]
    return S3Store(moto.bucket, prefix=prefix, config=options, client_options={"allow_http": True})  # type: ignore[arg-type]


async def keys(raw: S3Store, prefix: str = "") -> list[str]:
    """List what is there."""
    return [meta["path"] async for page in obstore.list(raw, prefix or None) for meta in page]


async def test_a_service_without_conditional_create_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """At opening, since versions would be shared later; nothing is left of the attempt."""
    monkeypatch.setattr(Bucket, "create", Bucket.put)
    with pytest.raises(StoreError, match="conditional create"):
        async with ArtifactStore.open(place.url, options=place.options):
            pass


async def test_opening_leaves_nothing(store: ArtifactStore, raw: S3Store) -> None:
    """The probe is gone."""
    assert repr(store)
    assert await keys(raw) == []


async def test_opening_leaves_nothing_when_it_is_cancelled(
    place: Place, raw: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probe that was made is removed, though nobody waits for the store any more."""
    begun, create = asyncio.Event(), Bucket.create
    calls = 0

    async def wait(bucket: Bucket, key: str, data: bytes) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            begun.set()
            await asyncio.Event().wait()
        await create(bucket, key, data)

    monkeypatch.setattr(Bucket, "create", wait)
    opening = asyncio.create_task(ArtifactStore.open(place.url, options=place.options).__aenter__())
    await begun.wait()
    assert len(await keys(raw, "probe")) == 1
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert await keys(raw) == []


async def test_a_probe_of_a_process_that_was_killed_goes_in_the_end(
    store: ArtifactStore, raw: S3Store, clock: Clock
) -> None:
    """A day after it was seen first, since whoever made it may be about to look at it."""
    await obstore.put_async(raw, "probe/0b54c1f2-0000-4000-8000-000000000000", b"")
    assert (await store.prune()).leftovers == 0
    clock.advance(DAY - 1)
    assert (await store.prune()).leftovers == 0
    assert len(await keys(raw, "probe")) == 1
    clock.advance(1)
    assert (await store.prune()).leftovers == 1
    assert await keys(raw) == []


async def test_what_is_over_leaves_a_trace_for_a_week(store: ArtifactStore, raw: S3Store, clock: Clock) -> None:
    """The record goes with the first prune, the content a day after, the trace in the end."""
    handle = await store.put(b"x", filename="f", scope=RUN, ttl=60)
    clock.advance(60)
    assert (await store.prune()).expired == 1
    assert (await store.prune()).expired == 0
    assert len(await keys(raw, "payloads")) == len(await keys(raw, "marks")) == 1
    clock.advance(DAY - 1)
    assert (await store.prune()).bytes == 0
    clock.advance(1)
    pruned = await store.prune()
    assert (pruned.leftovers, pruned.bytes) == (1, 1)
    assert await keys(raw, "payloads") == await keys(raw, "marks") == []
    with pytest.raises(ArtifactExpiredError):
        await store.get(handle, scope=RUN)
    clock.advance(7 * DAY)
    await store.prune()
    with pytest.raises(ArtifactMissingError) as caught:
        await store.get(handle, scope=RUN)
    assert type(caught.value) is ArtifactMissingError
    assert len(await keys(raw)) == 1  # the version, which stays taken


async def test_an_upload_that_was_marked_is_kept_when_its_record_comes(
    store: ArtifactStore, raw: S3Store, clock: Clock
) -> None:
    """However slow it was, and whoever prunes meanwhile."""
    handle = await store.put(b"x", filename="f", scope=RUN, ttl=None)
    (record,) = [key for key in await keys(raw, "scopes") if "/records/" in key]
    text = bytes(await (await obstore.get_async(raw, record)).bytes_async())
    await obstore.delete_async(raw, record)
    await store.prune()
    assert len(await keys(raw, "marks")) == 1
    await obstore.put_async(raw, record, text)
    clock.advance(2 * DAY)
    await store.prune()
    assert await keys(raw, "marks") == []
    assert await store.get(handle, scope=RUN) == b"x"


async def test_a_damaged_record_does_not_cost_the_content(store: ArtifactStore, raw: S3Store, clock: Clock) -> None:
    """It is told, and prune goes on and keeps what it cannot judge; clearing the scope removes both."""
    handle = await store.put(b"x", filename="f", scope=RUN)
    (record,) = [key for key in await keys(raw, "scopes") if "/records/" in key]
    for text in (b"", b"{}", b"x" * 100_000, b'{"id": "../../x"}'):
        await obstore.put_async(raw, record, text)
        with pytest.raises(StoreError):
            await store.get(handle, scope=RUN)
    await obstore.put_async(raw, record, b"{}")
    for _ in range(3):
        await store.prune()
        clock.advance(DAY)
    assert len(await keys(raw, "payloads")) == 1
    assert await store.clear_scope(RUN) == 1
    assert await keys(raw, "payloads") == []


async def test_clearing_a_scope_keeps_one_key_for_each_name(store: ArtifactStore, raw: S3Store) -> None:
    """The highest version, so that no number is used again; the content goes at once."""
    for name in ("a", "b", "a/b"):
        for _ in range(3):
            await store.put(b"x", filename=name, scope=Scope("r", "s"))
    assert await store.clear_scope(Scope(session="s")) == 9
    assert len(await keys(raw)) == 3
    handle = await store.put(b"x", filename="a", scope=Scope("r", "s"))
    assert (await store.stat(handle, scope=Scope("r", "s"))).version == 3


async def test_a_record_that_cannot_be_written_leaves_no_content(
    store: ArtifactStore, raw: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is unknown whether it was written, the content is left to prune."""

    async def broken(self: Bucket, key: str, data: bytes) -> None:
        if "/records/" in key:
            raise StoreError("broken")
        await put(self, key, data)

    async def undeletable(self: Bucket, keys: list[str]) -> None:
        if any("/records/" in key for key in keys):
            raise StoreError("broken")
        await delete(self, keys)

    put, delete = Bucket.put, Bucket.delete
    monkeypatch.setattr(Bucket, "put", broken)
    with pytest.raises(StoreError, match="broken"):
        await store.put(b"x", filename="f", scope=RUN)
    assert await keys(raw, "payloads") == []
    monkeypatch.setattr(Bucket, "delete", undeletable)
    with pytest.raises(StoreError, match="broken"):
        await store.put(b"x", filename="f", scope=RUN)
    assert len(await keys(raw, "payloads")) == 1
    assert [record async for record in store.list(RUN)] == []


async def test_content_that_was_cut_is_damaged_and_not_asked_for_again(
    store: ArtifactStore, raw: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No later answer can be another one: neither for what is empty nor for what ends before the part."""
    asked = 0

    async def counted(self: Bucket, key: str, start: int, end: int) -> Any:  # noqa: ANN401 - handed on
        nonlocal asked
        asked += 1
        return await ask(self, key, start, end)

    ask = Bucket.ask
    monkeypatch.setattr(Bucket, "ask", counted)
    handle = await store.put(b"0123456789", filename="f", scope=RUN)
    (key,) = await keys(raw, "payloads")
    for data in (b"", b"0123"):
        await obstore.put_async(raw, key, data)
        for offset in (0, 5):
            asked = 0
            with pytest.raises(StoreError, match="damaged"):
                await store.get(handle, scope=RUN, offset=offset)
            assert asked == 1


async def test_versions_of_one_name_are_taken_one_at_a_time(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some services let creates of one key wait for each other, a second each; other names need not wait."""
    running: dict[str, int] = {}
    most: dict[str, int] = {}

    async def watched(self: Bucket, key: str, data: bytes) -> None:
        name = key.rpartition("/")[0]
        running[name] = running.get(name, 0) + 1
        most[name] = max(most.get(name, 0), running[name])
        most["all"] = max(most.get("all", 0), sum(running.values()))
        await create(self, key, data)
        running[name] -= 1

    create = Bucket.create
    monkeypatch.setattr(Bucket, "create", watched)
    async with anyio.create_task_group() as tasks:
        for number in range(12):
            tasks.start_soon(partial(store.put, b"x", filename=f"{number % 2}", scope=RUN))
    assert most.pop("all") == 2
    assert list(most.values()) == [1, 1]
    for name in ("0", "1"):
        assert [record.version for record in await store.versions(name, scope=RUN)] == list(range(6))


async def test_the_path_is_the_uri_in_the_bucket(store: ArtifactStore, place: Place) -> None:
    """Of our own bucket and prefix only."""
    handle = await store.put(b"x", filename="f", scope=RUN)
    record = await store.stat(handle, scope=RUN)
    assert store.path(record) == record.uri == f"{place.url}/payloads/{handle.rpartition('/')[2]}"


@pytest.mark.parametrize(
    "url", ["s3://key:secret@bucket/x", "s3://bucket/x?token=secret", "s3://bucket#secret", "s3://"]
)
def test_a_url_with_credentials_is_refused_and_not_shown(url: str) -> None:
    """They belong into the options."""
    with pytest.raises(ConfigError) as caught:
        ArtifactStore.open(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_every_service_refuses_what_it_does_not_know(scheme: str) -> None:
    """By the name, with the nearest known one."""
    with pytest.raises(ConfigError, match="skip_signature"):
        ArtifactStore.open(f"{scheme}://bucket/prefix", options={"skip_signatur": "true"})


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("gs://bucket/prefix", {"skip_signature": "true"}),
        ("az://container/prefix", {"account_name": "a", "account_key": "c2VjcmV0"}),
        ("s3://bucket/prefix", {"allow_http": "false", "timeout": "5s", "region": "eu-central-1"}),
    ],
)
def test_every_service_takes_what_it_knows(url: str, options: dict[str, str]) -> None:
    """Nothing is reached before the store is entered."""
    store = ArtifactStore.open(url, options=options)
    assert repr(store) == f"ArtifactStore({url!r})"


def test_a_program_may_end_as_soon_as_its_last_request_is_answered() -> None:
    """The interpreter would end under a thread of obstore, which aborts the process."""
    done = subprocess.run([sys.executable, "-c", ENDS_EARLY], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
