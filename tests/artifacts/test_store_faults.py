"""Storage that is out of reach, refuses, or fails now and then: one sentence without secrets, or nothing to be seen."""

from __future__ import annotations

import hashlib
import os
import random
import socket
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from runenv.artifacts import ArtifactStore
from runenv.errors import ArtifactMissingError, ConfigError, StoreError
from runenv.testing.contract.store_base import UNKNOWN, chunks, read_all, records
from tests.artifacts.proxy import Proxy, all_forbidden, first_of_each, lists_forbidden, none_fails

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.artifacts.proxy import Fault
    from tests.artifacts.servers import S3Server

pytestmark = pytest.mark.anyio

RUN = "run-1"
DATA = random.Random(7).randbytes(1_000_000)
PATIENCE = 30.0
"""Seconds in which storage that is broken must have been given up."""


@pytest.fixture
async def proxy(seaweedfs: S3Server) -> AsyncIterator[Proxy]:
    """Return a proxy in front of a real server; nothing fails until a test says so."""
    async with Proxy(seaweedfs.endpoint) as proxy:
        yield proxy


def open_store(server: S3Server, **settings: Any) -> ArtifactStore:  # noqa: ANN401 - handed on
    """Return a store at a new place of a server, not yet open."""
    place = server.place()
    return ArtifactStore.open(place.url, options=place.options, **settings)


def chain(error: BaseException | None) -> str:
    """Return what an error and all before it say."""
    text = ""
    while error is not None:
        text += f"{error!r} {error}\n"
        error = error.__cause__ or error.__context__
    return text


def check_sentence(error: BaseException, server: S3Server | None = None) -> None:
    """One line of a bearable length, and nowhere in the whole chain a secret."""
    text = str(error)
    assert text
    assert "\n" not in text
    assert len(text) < 500
    assert "Debug source" not in text
    if server is not None:
        assert server.secret_access_key not in chain(error)


async def use(server: S3Server, verb: str = "put") -> None:
    """Open a store and do one thing."""
    async with open_store(server) as store:
        if verb == "put":
            await store.put(b"x", filename="f", scope=RUN)
        elif verb == "stat":
            await store.stat(UNKNOWN, scope=RUN)
        else:
            await records(store, RUN)


# -- out of reach


async def test_an_unreachable_server_is_told_at_once(seaweedfs: S3Server) -> None:
    """Nobody listens at the endpoint."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        server = seaweedfs.behind(f"http://127.0.0.1:{unused.getsockname()[1]}")
        with anyio.fail_after(PATIENCE), pytest.raises(StoreError) as caught:
            await use(server)
    check_sentence(caught.value, server)


@pytest.mark.parametrize("field", ["access_key_id", "secret_access_key"])
async def test_wrong_credentials_are_told_and_not_shown(seaweedfs: S3Server, field: str) -> None:
    """Neither the right secret nor the wrong one; and it is not said that there is no such artifact."""
    server = replace(seaweedfs, **{field: f"wrong-{'0' * 20}"})
    with pytest.raises(StoreError) as caught:
        await use(server)
    check_sentence(caught.value, server)
    check_sentence(caught.value, seaweedfs)


async def test_missing_credentials_are_told(seaweedfs: S3Server, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not as a fault of the service that was asked for them last."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    proxy.decide = all_forbidden
    options = {key: value for key, value in seaweedfs.options.items() if "key" not in key}
    options["metadata_endpoint"] = proxy.endpoint
    with anyio.fail_after(PATIENCE), pytest.raises(StoreError, match="no credentials were found; give them") as caught:
        async with ArtifactStore.open(f"s3://{seaweedfs.bucket}/none", options=options):
            pass
    check_sentence(caught.value)
    assert proxy.faults


@pytest.mark.parametrize("kind", ["seaweedfs", "moto"])
async def test_a_missing_bucket_is_not_a_missing_artifact(kind: str, request: pytest.FixtureRequest) -> None:
    """It is named, whatever is tried first."""
    server: S3Server = replace(request.getfixturevalue(kind), bucket="no-such-bucket")
    for verb in ("put", "stat", "list"):
        with pytest.raises(StoreError, match="no-such-bucket") as caught:
            await use(server, verb)
        assert not isinstance(caught.value, ArtifactMissingError)
        check_sentence(caught.value, server)


async def test_a_server_that_goes_away_is_not_a_missing_artifact(seaweedfs: S3Server, proxy: Proxy) -> None:
    """Every verb says that the storage failed; closing the store still works."""
    server = seaweedfs.behind(proxy.endpoint)
    async with open_store(server) as store:
        handle = await store.put(DATA, filename="f", scope=RUN)
        proxy.decide = all_forbidden
        for verb in (
            lambda: store.get(handle, scope=RUN),
            lambda: read_all(store, handle, scope=RUN),
            lambda: store.stat(handle, scope=RUN),
            lambda: store.stat(UNKNOWN, scope=RUN),
            lambda: store.find("f", scope=RUN),
            lambda: records(store, RUN),
            lambda: store.versions("f", scope=RUN),
            lambda: store.put(b"x", filename="f", scope=RUN),
            lambda: store.put(chunks(DATA, 1000), filename="f", scope=RUN),
            lambda: store.delete("f", scope=RUN),
            lambda: store.clear_scope(RUN),
            store.prune,
        ):
            with pytest.raises(StoreError) as caught:
                await verb()
            check_sentence(caught.value, server)
        proxy.decide = none_fails
        assert await store.get(handle, scope=RUN) == DATA


async def test_a_server_that_dies_is_given_up(seaweedfs: S3Server, proxy: Proxy) -> None:
    """After a bounded number of tries."""
    async with open_store(seaweedfs.behind(proxy.endpoint)) as store:
        handle = await store.put(DATA, filename="f", scope=RUN)
        await proxy.aclose()
        with anyio.fail_after(PATIENCE), pytest.raises(StoreError):
            await store.get(handle, scope=RUN)


# -- now and then


@pytest.mark.parametrize("fault", ["drop", "refuse"])
async def test_transient_faults_are_not_seen(seaweedfs: S3Server, proxy: Proxy, fault: Fault) -> None:
    """The first requests of every kind fail, before they are done: all verbs work nevertheless."""
    async with open_store(seaweedfs.behind(proxy.endpoint)) as store:
        proxy.decide = first_of_each(fault, times=2)
        small = await store.put(b"small", filename="f", scope=RUN)
        large = await store.put(chunks(DATA * 11, 99_999), filename="f", scope=RUN)
        assert await store.get(small, scope=RUN) == b"small"
        assert await store.get(large, scope=RUN) == DATA * 11
        assert [record.version for record in await store.versions("f", scope=RUN)] == [0, 1]
        assert len(await records(store, RUN)) == 1
        await store.delete(small, scope=RUN)
        assert [record.handle for record in await store.versions("f", scope=RUN)] == [large]
        assert proxy.faults >= 6


async def test_a_lost_answer_breaks_nothing(seaweedfs: S3Server, proxy: Proxy) -> None:
    """What was done without our knowing, and is tried again, neither fails a save nor takes a version twice."""
    async with open_store(seaweedfs.behind(proxy.endpoint)) as store:
        saved = {}
        turn = 0

        def every_third(method: str, target: str) -> Fault | None:  # noqa: ARG001
            nonlocal turn
            turn += 1
            return "lose" if turn % 3 == 0 else None

        proxy.decide = every_third
        for number in range(6):
            saved[await store.put(f"{number}".encode(), filename="f", scope=RUN)] = number
        proxy.decide = none_fails
        assert proxy.faults >= 6
        versions = await store.versions("f", scope=RUN)
        assert [saved[record.handle] for record in versions] == list(range(6))
        numbers = [record.version for record in versions]
        assert numbers == sorted(set(numbers))
        for record in versions:
            assert await store.get(record.handle, scope=RUN) == f"{saved[record.handle]}".encode()


async def test_a_download_that_breaks_off_is_never_short(seaweedfs: S3Server, proxy: Proxy) -> None:
    """Once, it goes on where it was; always, it is an error."""
    async with open_store(seaweedfs.behind(proxy.endpoint)) as store:
        handle = await store.put(DATA, filename="f", scope=RUN)
        cuts = 1

        def cut(method: str, target: str) -> Fault | None:  # noqa: ARG001
            nonlocal cuts
            cuts -= method == "GET"
            return "cut" if method == "GET" and cuts >= 0 else None

        proxy.decide = cut
        for read in (store.get, partial(read_all, store)):
            cuts = 1
            data = await read(handle, scope=RUN)
            assert hashlib.sha256(data).digest() == hashlib.sha256(DATA).digest()


@pytest.mark.parametrize("kind", ["seaweedfs", "moto"])
async def test_a_cancelled_upload_is_aborted(kind: str, request: pytest.FixtureRequest) -> None:
    """The parts that were sent are not kept, where nobody would see them and somebody would pay for them."""
    server: S3Server = request.getfixturevalue(kind)
    place = server.place()
    begun = anyio.Event()

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(30):
            yield DATA
        begun.set()
        await anyio.sleep_forever()

    async with ArtifactStore.open(place.url, options=place.options) as store:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: store.put(endless(), filename="f", scope=RUN))
            await begun.wait()
            tasks.cancel_scope.cancel()
        assert await records(store, RUN) == []
    assert await anyio.to_thread.run_sync(server.unfinished_uploads, place) == []


async def test_C088_a_listing_that_fails_fails_the_save(seaweedfs: S3Server, proxy: Proxy) -> None:
    """It does not start to count from zero again, and what is there stays what it is."""
    server = seaweedfs.behind(proxy.endpoint)
    place = server.place()
    async with ArtifactStore.open(place.url, options=place.options) as store:
        first = await store.put(b"0", filename="f", scope=RUN)
    async with ArtifactStore.open(place.url, options=place.options) as store:
        proxy.decide = lists_forbidden
        with pytest.raises(StoreError):
            await store.put(b"1", filename="f", scope=RUN)
        proxy.decide = none_fails
        assert await store.get(first, scope=RUN) == b"0"
        second = await store.put(b"2", filename="f", scope=RUN)
        assert (await store.stat(second, scope=RUN)).version > 0
        assert [record.handle for record in await store.versions("f", scope=RUN)] == [first, second]


# -- configuration


@pytest.mark.parametrize("url", ["", "artifacts", "ftp://host/x", "http://host/x", "s3://", "file://host/x", "memory"])
async def test_a_url_that_is_none_of_ours_is_refused(url: str) -> None:
    """Before anything is reached for."""
    with pytest.raises(ConfigError) as caught:
        async with ArtifactStore.open(url):
            pass
    check_sentence(caught.value)


async def test_unknown_options_are_refused(seaweedfs: S3Server) -> None:
    """By their name, without the values."""
    place = seaweedfs.place()
    with pytest.raises(ConfigError, match="secret_acces_key") as caught:
        async with ArtifactStore.open(place.url, options={**seaweedfs.options, "secret_acces_key": "hidden"}):
            pass
    check_sentence(caught.value, seaweedfs)
    assert "hidden" not in chain(caught.value)


async def test_plain_http_is_not_taken_unless_asked_for(seaweedfs: S3Server) -> None:
    """Credentials do not travel in the clear by mistake."""
    options = {key: value for key, value in seaweedfs.options.items() if key != "allow_http"}
    with pytest.raises((ConfigError, StoreError)) as caught:
        async with ArtifactStore.open(seaweedfs.place().url, options=options) as store:
            await store.put(b"x", filename="f", scope=RUN)
    check_sentence(caught.value, seaweedfs)


async def test_a_folder_that_cannot_be_one_is_told(tmp_path: Path) -> None:
    """A file is in its place."""
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StoreError, match="file") as caught:
            async with ArtifactStore.open(path.as_uri()):
                pass
        check_sentence(caught.value)
