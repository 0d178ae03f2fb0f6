"""The contract of what goes into a store and comes out again (rules A1, A2, A3, A6, A10).

Bytes from every kind of source, whole, in ranges and as streams; records, metadata and media types.
"""

from __future__ import annotations

import random
import re
import struct
import zlib
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runenv.artifacts import Artifact, Scope
from runenv.errors import ArtifactMissingError, HandleError, LimitError, StoreError
from runenv.testing.contract.measure import MIB, Memory
from runenv.testing.contract.store_base import (
    UNKNOWN,
    StoreTests,
    chunks,
    digest,
    raw_bytes,
    read_all,
    records,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from obstore.store import ObjectStore

    from runenv.artifacts import ArtifactStore
    from runenv.testing.contract.store_base import Clock, Place

__all__ = ("StoreContent", "png")

HANDLE: Final = re.compile(r"runenv\+file://[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
RUN: Final = "run-1"
FLAT_BYTES: Final = 72 * MIB
"""What a transfer of any size may add to this process' memory: parts of an upload in flight, and what Python keeps."""
ODD_CHUNKS: Final = (1, 0, 65_537, 7, 1_000_003, 5 * MIB + 11)
"""Sizes of pieces, over and over; none of them is what a backend likes."""

TEXTS: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
"""Anything that UTF-8 can hold."""


def png(size: int) -> bytes:
    """Return a valid PNG of one pixel, filled up to a number of bytes with what cannot be compressed."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    tail = chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")
    fill = random.Random(size).randbytes(size - len(head) - len(tail) - 12)  # noqa: S311 - seeded on purpose
    return head + chunk(b"fiLl", fill) + tail


class StoreContent(StoreTests):
    """Content, records, media types."""

    # -- sources and sinks

    @pytest.mark.parametrize("size", [0, 1, 30_000, 5 * MIB, 5 * MIB + 1])
    async def test_C079_content_comes_back_byte_for_byte(self, store: ArtifactStore, size: int) -> None:
        """Whole and as a stream; size and hash are in the record."""
        data = random.Random(size).randbytes(size)  # noqa: S311 - seeded on purpose
        handle = await store.put(data, filename="blob", scope=RUN)
        record = await store.stat(handle, scope=RUN)
        assert (record.size, record.sha256) == (size, digest(data))
        assert await store.get(handle, scope=RUN) == data
        assert await read_all(store, handle, scope=RUN) == data

    async def test_C079_an_image_is_not_retyped(self, store: ArtifactStore) -> None:
        """3,232 bytes, of which a model that copied them lost 32."""
        data = png(3232)
        handle = await store.put(Artifact(data, "chart.png"), filename="chart.png", scope=RUN)
        assert (
            digest(await store.get(handle, scope=RUN)) == digest(data) == (await store.stat(handle, scope=RUN)).sha256
        )

    async def test_A1_all_kinds_of_sources_are_alike(self, store: ArtifactStore, tmp_path: Path) -> None:
        """Bytes, a file of this host by its path, a stream of unknown length, and what a tool returns."""
        data = b"the same\r\n\x00bytes" * 1000
        path = tmp_path / "a file"
        path.write_bytes(data)
        sources: list[Any] = [data, path, chunks(data, 333), Artifact(data, "a"), Artifact(path, "a")]
        handles = [await store.put(source, filename="name.bin", scope=RUN) for source in sources]
        assert len(set(handles)) == len(sources)
        for version, handle in enumerate(handles):
            record = await store.stat(handle, scope=RUN)
            assert (record.name, record.version, record.size) == ("name.bin", version, len(data))
            assert await store.get(handle, scope=RUN) == data
        assert path.read_bytes() == data

    async def test_A1_a_missing_source_leaves_nothing(self, store: ArtifactStore, tmp_path: Path) -> None:
        """A file that is not there, or a folder, is the error that the system has for it, naming the path."""
        for path, error in ((tmp_path / "none", FileNotFoundError), (tmp_path, IsADirectoryError)):
            with pytest.raises(error) as caught:
                await store.put(path, filename="f", scope=RUN)
            assert not isinstance(caught.value, ArtifactMissingError)
            assert str(path) in str(caught.value)
        assert await records(store, RUN) == []

    async def test_a_text_is_no_data(self, store: ArtifactStore) -> None:
        """A text that a model wrote must not be read as the path of a file of this host."""
        for data in (__file__, Artifact(__file__, "report.md")):  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="a text is not taken as data"):
                await store.put(data, filename="report.md", scope=RUN)  # type: ignore[arg-type]
        assert await records(store, RUN) == []

    async def test_A1_a_stream_of_odd_chunks(self, store: ArtifactStore) -> None:
        """20 MiB of unknown length in pieces of all sizes, also empty ones, arrive in order."""
        data = random.Random(20).randbytes(20 * MIB)  # noqa: S311 - seeded on purpose

        async def pieces() -> AsyncIterator[bytes]:
            start = turn = 0
            while start < len(data):
                size = ODD_CHUNKS[turn % len(ODD_CHUNKS)]
                yield data[start : start + size]
                start, turn = start + size, turn + 1

        handle = await store.put(pieces(), filename="odd", scope=RUN)
        record = await store.stat(handle, scope=RUN)
        assert (record.size, record.sha256) == (len(data), digest(data))
        assert await read_all(store, handle, scope=RUN) == data
        assert await read_all(store, handle, scope=RUN, offset=7 * MIB - 3, length=MIB) == data[7 * MIB - 3 :][:MIB]

    @pytest.mark.parametrize("size", [0, 1, 5 * MIB + 1])
    async def test_A1_content_goes_to_a_file_of_this_host(
        self, store: ArtifactStore, tmp_path: Path, size: int
    ) -> None:
        """Into folders that are made for it, and over a file whose permissions stay, at the end of a link too."""
        data = random.Random(size).randbytes(size)  # noqa: S311 - seeded on purpose
        handle = await store.put(data, filename="blob", scope=RUN)
        folder = tmp_path / "files"
        folder.mkdir()
        old, link, new = folder / "old", folder / "link", folder / "made" / "new"
        old.write_bytes(b"what was there")
        old.chmod(0o640)
        link.symlink_to(old)
        told: list[tuple[int, int | None]] = []

        def note(done: int, total: int | None) -> None:
            told.append((done, total))

        for path in (new, link):
            record = await store.get_file(handle, path, scope=RUN, progress=note)
            assert (record.handle, path.read_bytes()) == (handle, data)
        assert told[-1] == (size, size)
        assert link.is_symlink()
        assert old.stat().st_mode & 0o777 == 0o640
        assert sorted(path.name for path in folder.rglob("*")) == ["link", "made", "new", "old"]

    async def test_A1_host_memory_stays_flat(self, store: ArtifactStore) -> None:
        """A stream passes in both directions without ever being held whole."""
        if self.keeps_in_memory:
            pytest.skip("this store is the memory")
        block = random.Random(0).randbytes(MIB)  # noqa: S311 - seeded on purpose

        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(self.large_bytes // MIB):
                yield block

        with Memory() as memory:
            handle = await store.put(pieces(), filename="large", scope=RUN)
            size = 0
            async with store.open_read(handle, scope=RUN) as stream:
                async for chunk in stream:
                    size += len(chunk)
        assert size == self.large_bytes // MIB * MIB
        assert memory.growth_bytes < FLAT_BYTES

    async def test_A1_progress_is_told(self, store: ArtifactStore, tmp_path: Path) -> None:
        """In growing numbers up to the whole; the total is known for all but streams."""
        data = b"x" * (3 * MIB)
        (tmp_path / "f").write_bytes(data)
        for source, total in ((data, len(data)), (tmp_path / "f", len(data)), (chunks(data, MIB), None)):
            seen: list[tuple[int, int | None]] = []

            def note(done: int, total: int | None, seen: list[tuple[int, int | None]] = seen) -> None:
                seen.append((done, total))

            await store.put(source, filename="f", scope=RUN, progress=note)
            assert seen == sorted(seen, key=lambda step: step[0])
            assert seen[-1][0] == len(data)
            assert {step[1] for step in seen[:-1]} <= {total}
            assert seen[-1][1] in {total, len(data)}

    # -- reading

    async def test_A1_ranges_are_as_of_slices(self, store: ArtifactStore) -> None:
        """What lies past the end is not there; no range is an error for where it lies."""
        for data in (b"", b"0123456789"):
            handle = await store.put(data, filename="digits", scope=RUN)
            for offset in (0, 1, 9, 10, 11, 10**12):
                for length in (None, 0, 1, 5, 100):
                    expected = data[offset:] if length is None else data[offset:][:length]
                    span = {"offset": offset, "length": length}
                    assert await store.get(handle, scope=RUN, **span) == expected  # type: ignore[arg-type]
                    if offset in {1, 11}:
                        assert await read_all(store, handle, scope=RUN, **span) == expected  # type: ignore[arg-type]

    async def test_A1_reading_whole_is_capped(self, store: ArtifactStore) -> None:
        """By the caller's number of bytes: more is an error that names it, a part that fits is not."""
        handle = await store.put(b"x" * 1001, filename="f", scope=RUN)
        with pytest.raises(LimitError, match=r"1,?000"):
            await store.get(handle, scope=RUN, max_bytes=1000)
        assert len(await store.get(handle, scope=RUN, max_bytes=1001)) == 1001
        assert len(await store.get(handle, scope=RUN, offset=1, max_bytes=1000)) == 1000
        assert len(await store.get(handle, scope=RUN, length=1000, max_bytes=1000)) == 1000

    async def test_A1_many_readers_at_once(self, store: ArtifactStore) -> None:
        """Also one that reads slowly, and one that leaves early."""
        data = random.Random(1).randbytes(MIB)  # noqa: S311 - seeded on purpose
        handle = await store.put(data, filename="f", scope=RUN)
        done = []

        async def read() -> None:
            done.append(await read_all(store, handle, scope=RUN))

        async with store.open_read(handle, scope=RUN) as slow:
            async for chunk in slow:
                assert data.startswith(chunk)
                async with anyio.create_task_group() as tasks:
                    for _ in range(8):
                        tasks.start_soon(read)
                break
        assert done == [data] * 8

    # -- records

    async def test_A2_a_handle_is_random_and_opaque(self, store: ArtifactStore) -> None:
        """A version 4 UUID that says nothing of name, scope or content, in letters of any case."""
        handles = [await store.put(b"same", filename="same", scope=RUN) for _ in range(3)]
        assert len(set(handles)) == 3
        for handle in handles:
            assert HANDLE.fullmatch(handle)
            assert (await store.stat(handle.upper(), scope=RUN)).handle == handle

    @pytest.mark.parametrize("text", ["", "deck.pptx", "runenv+file://", UNKNOWN[:-1], f"{UNKNOWN}0", "../x", "x\0"])
    async def test_A2_what_is_no_handle_is_told_from_an_unknown_one(self, store: ArtifactStore, text: str) -> None:
        """An error of its own, for every verb that takes handles only."""
        for verb in (store.stat, store.get):
            with pytest.raises(HandleError):
                await verb(text, scope=RUN)
        with pytest.raises(HandleError):
            await read_all(store, text, scope=RUN)

    async def test_A3_a_record_says_all(self, store: ArtifactStore, place: Place, clock: Clock) -> None:
        """And says the same when another store reads it."""
        scope = Scope("run", "session", "user")
        metadata = {"ключ": "значение \U0001f600", "empty": "", "lines": ' a\n\t"b"\\ ', "path": "../../etc/passwd"}
        name = "übersicht 日本 #1 100%.csv"
        handle = await store.put(
            b"a,b\n1,2\n", filename=name, scope=scope, media_type="text/csv", metadata=metadata, ttl=60
        )
        record = await store.stat(handle, scope=scope)
        assert (record.handle, record.name, record.version, record.scope) == (handle, name, 0, scope)
        assert (record.size, record.sha256) == (8, digest(b"a,b\n1,2\n"))
        assert (record.media_type, record.declared_type) == ("text/csv", None)
        assert (record.created, record.expires) == (clock.now, clock.now + 60)
        assert dict(record.metadata) == metadata
        assert urlsplit(record.uri).scheme == urlsplit(place.url).scheme
        assert await records(store, scope) == [record] == await store.versions(name, scope=scope)
        if self.is_shared:
            async with self.make_store(place, clock=clock) as other:
                assert await other.stat(handle, scope=scope) == record
                assert await other.get(handle, scope=scope) == b"a,b\n1,2\n"

    @settings(
        max_examples=10,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @given(metadata=st.dictionaries(TEXTS, TEXTS, max_size=5))
    async def test_A3_metadata_comes_back(self, store: ArtifactStore, metadata: dict[str, str]) -> None:
        """Whatever texts they are; keys and values are never changed to fit a protocol's headers."""
        handle = await store.put(b"x", filename="f", scope=RUN, metadata=metadata)
        assert dict((await store.stat(handle, scope=RUN)).metadata) == metadata

    # -- media types

    async def test_A6_C089_bytes_then_declared_then_name(self, store: ArtifactStore) -> None:
        """What the first bytes say wins, and a different declaration stays visible; parameters are kept."""
        cases = [
            # content, name, declared, what it is, what was declared otherwise
            (png(200), "chart.txt", "text/plain", "image/png", "text/plain"),
            (png(200), "chart.png", None, "image/png", None),
            (png(200), "chart", "image/png", "image/png", None),
            (b"# Notes\n", "notes.md", None, "text/markdown", None),
            (b'{"a": 1}', "x.json", None, "application/json", None),
            ("größe;1\n".encode("cp1252"), "data.csv", None, "text/csv", None),
            (b"a;b\n", "data", "text/csv; charset=cp1252", "text/csv; charset=cp1252", None),
            (b"\x00\x01\x02\xff" * 20, "unknown", "", "application/octet-stream", None),
        ]
        for data, name, declared, media_type, declared_type in cases:
            handle = await store.put(data, filename=name, scope=RUN, media_type=declared)
            record = await store.stat(handle, scope=RUN)
            assert (record.media_type, record.declared_type) == (media_type, declared_type), (name, declared)
            streamed = await store.put(chunks(data, 3), filename=name, scope=RUN, media_type=declared)
            assert (await store.stat(streamed, scope=RUN)).media_type == media_type

    # -- one copy

    async def test_C083_the_same_object_keeps_its_handle(self, store: ArtifactStore) -> None:
        """A tool's result that comes out of a cache a hundred times is one artifact of its scope."""
        artifact = Artifact(b"result" * 1000, "result.txt", metadata={"a": "b"})
        handles = {await store.put(artifact, filename="result.txt", scope=RUN) for _ in range(100)}
        assert len(handles) == 1
        assert [record.version for record in await records(store, RUN)] == [0]
        other = await store.put(artifact, filename="result.txt", scope="run-2")
        assert other not in handles
        await store.delete(other, scope="run-2")
        assert await store.get(handles.pop(), scope=RUN) == artifact.data
        again = await store.put(artifact, filename="result.txt", scope="run-2")
        assert await store.get(again, scope="run-2") == artifact.data

    async def test_C083_a_handle_that_is_given_again_lives_on(self, store: ArtifactStore, clock: Clock) -> None:
        """For half of a lifetime at least; who gets a cached result needs time to use it."""
        artifact = Artifact(b"result", "result.txt")
        first = await store.put(artifact, scope=RUN, ttl=60)
        clock.advance(30)
        assert await store.put(artifact, scope=RUN, ttl=60) == first
        clock.advance(1)
        second = await store.put(artifact, scope=RUN, ttl=60)
        assert second != first
        clock.advance(59)
        assert await store.get(second, scope=RUN) == b"result"

    async def test_A4_C083_the_same_bytes_are_kept_once(self, store: ArtifactStore, raw: ObjectStore) -> None:
        """Under any number of names and in any scopes, until the last of them is deleted."""
        if not self.is_deduplicated:
            pytest.skip("this store keeps a copy for each")
        data = random.Random(2).randbytes(MIB)  # noqa: S311 - seeded on purpose
        handles = [
            await store.put(
                chunks(data, 100_000) if number % 3 else data, filename=f"name-{number}", scope=f"run-{number % 2}"
            )
            for number in range(10)
        ]
        assert MIB <= await raw_bytes(raw) < 2 * MIB
        for number, handle in enumerate(handles):
            assert await store.get(handle, scope=f"run-{number % 2}") == data
            await store.delete(handle, scope=f"run-{number % 2}")
        assert await raw_bytes(raw) < MIB

    async def test_A4_C083_the_same_bytes_are_in_memory_once(self, store: ArtifactStore) -> None:
        """Where memory is the place that keeps them."""
        if not (self.keeps_in_memory and self.is_deduplicated):
            pytest.skip("this store keeps nothing in memory, or a copy for each")
        size = 16 * MIB
        data = random.Random(3).randbytes(size)  # noqa: S311 - seeded on purpose
        with Memory() as memory:
            for number in range(12):
                await store.put(chunks(data, MIB), filename=f"name-{number}", scope=RUN)
        assert memory.growth_bytes < 6 * size  # one, and what a put holds of its own

    async def test_A4_one_of_two_artifacts_of_the_same_bytes_can_go(self, store: ArtifactStore) -> None:
        """The other one keeps them."""
        first, second = [await store.put(b"shared", filename=name, scope=RUN) for name in "ab"]
        await store.delete(first, scope=RUN)
        await store.prune()
        assert await store.get(second, scope=RUN) == b"shared"
        third = await store.put(b"shared", filename="c", scope=RUN)
        await store.delete(second, scope=RUN)
        assert await store.get(third, scope=RUN) == b"shared"

    async def test_A1_a_store_that_is_not_open_says_so(self, place: Place) -> None:
        """Before it is entered and after it is closed, which may be done twice."""
        store = self.make_store(place)
        for _ in range(2):
            for verb in (store.put(b"x", filename="f", scope=RUN), store.stat(UNKNOWN, scope=RUN), store.prune()):
                with pytest.raises(StoreError, match=r"open|closed"):
                    await verb
            with pytest.raises(StoreError, match=r"open|closed"):
                await records(store, RUN)
            async with store:
                assert await records(store, RUN) == []
            await store.aclose()

    async def test_S5_no_secret_is_shown(self, store: ArtifactStore, place: Place) -> None:
        """Neither where a store is printed nor in what says where it is."""
        secrets = [value for key, value in (place.options or {}).items() if "secret" in key or "token" in key]
        handle = await store.put(b"x", filename="f", scope=RUN)
        record = await store.stat(handle, scope=RUN)
        for text in (repr(store), str(store), store.url, repr(record), str(store.path(record)), record.uri):
            assert not [secret for secret in secrets if secret in text]
