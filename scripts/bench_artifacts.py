"""The measurements of artifacts, for `bench.py`: a store against copies of files, against boto3, against its own legs.

Each figure with a memory is taken in a process of its own, which has moved a small piece before, and no large one: what
is imported does not count, and all that is needed for a large one does. Ours and theirs take turns, so that a busy
machine meets both, and each begins with a disk that has nothing left to write and no file where it makes one.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
import boto3  # type: ignore[import-untyped]
from boto3.s3.transfer import TransferConfig  # type: ignore[import-untyped]

import runenv
from runenv.artifacts.arguments import expand
from runenv.artifacts.store import ArtifactStore
from runenv.artifacts.transfers import load, save
from runenv.testing.contract.measure import MIB, Memory
from tests.artifacts import servers

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Sequence

    from scripts.bench import Report
    from tests.artifacts.servers import S3Server

__all__ = ("artifacts",)

T = TypeVar("T")

BIG: Final = 256 * MIB
SMALL: Final = 10_000
"""Artifacts that are put and got."""
MANY: Final = 100_000
"""Artifacts that are listed."""
TIMES: Final = 3
"""How often a process moves the large file; the shortest time counts, since the first one waits for fresh pages."""
SCOPE: Final = "bench"
KEPT: Final = "kept"
"""The key of what boto3 downloads."""
IMAGE: Final = "runenv/python"
FAST_FOLDER: Final = Path("/dev/shm")  # noqa: S108 - a file system in memory
"""Where folders with many artifacts are filled, since each put waits for the disk."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What one run took.

    Attributes:
        seconds: of it.
        grown: bytes that the process grew by at most.
    """

    seconds: float
    grown: int


@dataclass(frozen=True, slots=True)
class Where:
    """A store, as a process of its own opens it."""

    url: str
    options: dict[str, str] | None = None

    def open(self) -> ArtifactStore:
        """Return it, not open yet."""
        return ArtifactStore.open(self.url, options=self.options)


async def artifacts(report: Report, *, quick: bool) -> None:
    """Measure everything and add the rows.

    Args:
        report: takes them.
        quick: one round instead of three, and a tenth of the many.
    """
    rounds = 1 if quick else 3
    with tempfile.TemporaryDirectory() as name, servers.seaweedfs() as server:
        folder = Path(name)
        source = folder / "big"
        _make(source, BIG)
        local = Where(f"file://{folder}/store")
        place = server.place()
        bucket = Where(place.url, server.options)
        _file_rows(report, rounds, source, local)
        _s3_rows(report, rounds, source, bucket, server)
        for kind, where in (("file:", local), ("S3", bucket)):
            _env_rows(report, rounds, source, kind, where)
    await _small_row(report, SMALL // 10 if quick else SMALL)
    await _expand_row(report)
    _list_rows(report, MANY // 10 if quick else MANY)


# -- rows


def _file_rows(report: Report, rounds: int, source: Path, where: Where) -> None:
    copy = source.with_name("copy")
    handle = _apart(keep_file, where, source)
    put, plain, synced, get = _in_turns(
        rounds,
        (put_file, where, source),
        (copy_file, source, copy, False),
        (copy_file, source, copy, True),
        (get_file, where, handle, source.with_name("got")),
    )
    _apart(clear, where)
    theirs = f"copyfile {_rate(plain)}, with fsync {_rate(synced)}"
    report.add(
        "256 MiB put, file: (hash, fsync)", _rate(put), theirs, f"{_ratio(plain, put):.2f}x as fast", _grown(put)
    )
    report.add("256 MiB get, file: (hash)", _rate(get), theirs, f"{_ratio(plain, get):.2f}x as fast", _grown(get))


def _s3_rows(report: Report, rounds: int, source: Path, where: Where, server: S3Server) -> None:
    got = source.with_name("got")
    handle = _apart(keep_file, where, source)
    _apart(boto3_keep, server, source)
    put, up, get, down = _in_turns(
        rounds,
        (put_file, where, source),
        (boto3_transfer, server, source, "up"),
        (get_file, where, handle, got),
        (boto3_transfer, server, got, "down"),
    )
    _apart(clear, where)
    for what, ours, theirs in (("put", put, up), ("get", get, down)):
        other = f"boto3 {_rate(theirs)}, +{_grown(theirs):.1f} MB"
        report.add(f"256 MiB {what}, S3", _rate(ours), other, f"{_ratio(theirs, ours):.2f}x as fast", _grown(ours))


def _env_rows(report: Report, rounds: int, source: Path, kind: str, where: Where) -> None:
    names = ("save", "env_read", "store_put", "load", "store_read", "env_write")
    handle = _apart(keep_file, where, source)
    taken = _in_turns(rounds, *((env_transfer, where, source, handle, name) for name in names))
    _apart(clear, where)
    for what, (ours, *legs) in (("env -> store", taken[:3]), ("store -> env", taken[3:])):
        slower = max(legs, key=_seconds)
        first, second = map(_rate, legs)
        report.add(
            f"256 MiB {what}, docker, {kind}",
            _rate(ours),
            f"out of one {first}, into the other {second}",
            f"{_ratio(slower, ours):.2f}x the slower leg",
            _grown(ours),
        )


async def _small_row(report: Report, number: int) -> None:
    async with ArtifactStore.open("memory://") as store:
        start = time.perf_counter()
        for each in range(number):
            data = each.to_bytes(8, "big") * 128
            handle = await store.put(data, filename=f"{each}.bin", scope=SCOPE)
            if await store.get(handle, scope=SCOPE) != data:
                raise SystemExit("bench: an artifact came back changed")
        seconds = time.perf_counter() - start
    bound = 10 * number / SMALL
    report.add(f"{number:,} x put and get 1 KiB, memory", f"{seconds:.2f} s", f"bound {bound:g} s")


async def _expand_row(report: Report) -> None:
    arguments = {
        f"argument {number}": {"text": "no handle here " * 4, "list": [number, "a", {"b": "https://example.org/"}]}
        for number in range(1000)
    }
    times: list[float] = []
    async with ArtifactStore.open("memory://") as store:
        for _ in range(21):
            start = time.perf_counter()
            await expand(arguments, store, scope=SCOPE)
            times.append(time.perf_counter() - start)
    report.add("expand 1,000 nested arguments", f"{statistics.median(times) * 1e3:.2f} ms", "bound 5 ms")


def _list_rows(report: Report, number: int) -> None:
    with tempfile.TemporaryDirectory(dir=FAST_FOLDER if FAST_FOLDER.is_dir() else None) as folder:
        for kind, where in (("memory", Where("memory://")), ("file:", Where(f"file://{folder}/store"))):
            (taken,) = _in_turns(1, (list_many, where, number))
            speed = f"{number / _seconds(taken):,.0f} a second"
            report.add(f"list {number:,} artifacts, {kind}", f"{_seconds(taken):.2f} s", speed, grown=_grown(taken))


# -- what runs in a process of its own


def put_file(where: Where, source: Path) -> Taken:
    """Stream a file into a store."""

    async def run() -> Taken:
        async with where.open() as store:
            await store.put(os.urandom(MIB), filename="small", scope=SCOPE)
            return await _taken(
                lambda: store.put(source, filename="big", scope=SCOPE), lambda: store.delete("big", scope=SCOPE)
            )

    return asyncio.run(run())


def keep_file(where: Where, source: Path) -> str:
    """Store a file for others, under a name of its own; return its handle."""

    async def run() -> str:
        async with where.open() as store:
            return await store.put(source, filename="kept", scope=SCOPE)

    return asyncio.run(run())


def clear(where: Where) -> None:
    """Leave nothing in a store."""

    async def run() -> None:
        async with where.open() as store:
            await store.clear_scope(SCOPE)

    asyncio.run(run())


def get_file(where: Where, handle: str, target: Path) -> Taken:
    """Stream an artifact into a file."""

    async def run() -> Taken:
        async with where.open() as store:
            small = await store.put(os.urandom(MIB), filename="small", scope=SCOPE)
            await store.get_file(small, target, scope=SCOPE)
            return await _taken(lambda: store.get_file(handle, target, scope=SCOPE), anyio.Path(target).unlink)

    return asyncio.run(run())


def copy_file(source: Path, target: Path, synced: bool) -> Taken:  # noqa: FBT001 - crosses processes by position
    """Copy a file as the standard library does."""
    seconds: list[float] = []
    with Memory() as memory:
        for _ in range(TIMES):
            target.unlink(missing_ok=True)
            with _stopwatch(seconds):
                shutil.copyfile(source, target)
                if synced:
                    descriptor = os.open(target, os.O_RDONLY)
                    os.fsync(descriptor)
                    os.close(descriptor)
    return Taken(min(seconds), memory.growth_bytes)


def boto3_keep(server: S3Server, source: Path) -> None:
    """Store a file for others."""
    with source.open("rb") as file:
        _boto3_client(server).upload_fileobj(file, server.bucket, KEPT)


def boto3_transfer(server: S3Server, path: Path, direction: str) -> Taken:
    """Move a file by the transfers of boto3, with their defaults."""
    client = _boto3_client(server)
    config = TransferConfig()
    client.put_object(Bucket=server.bucket, Key="small", Body=b"x" * MIB)
    client.get_object(Bucket=server.bucket, Key="small")["Body"].read()
    is_up = direction == "up"
    seconds: list[float] = []
    with Memory() as memory:
        for _ in range(TIMES):
            if not is_up:
                path.unlink(missing_ok=True)
            with _stopwatch(seconds), path.open("rb" if is_up else "wb") as file:
                if is_up:
                    client.upload_fileobj(file, server.bucket, "big", Config=config)
                else:
                    client.download_fileobj(server.bucket, KEPT, file, Config=config)
    if is_up:
        client.delete_object(Bucket=server.bucket, Key="big")
    return Taken(min(seconds), memory.growth_bytes)


def _boto3_client(server: S3Server) -> Any:  # noqa: ANN401 - boto3 has no types
    options = server.options
    return boto3.client(
        "s3",
        endpoint_url=options["endpoint"],
        aws_access_key_id=options["access_key_id"],
        aws_secret_access_key=options["secret_access_key"],
        region_name=options["region"],
    )


def env_transfer(where: Where, source: Path, handle: str, name: str) -> Taken:
    """Move a file between an env and a store, or only on one of the two legs."""

    async def run() -> Taken:
        config = runenv.DockerConfig(image=IMAGE, memory_bytes=None)
        async with runenv.open_env(config) as env, where.open() as store:
            small = await store.put(os.urandom(MIB), filename="small", scope=SCOPE)
            await load(env, small, "small", store, scope=SCOPE)
            await save(env, "small", store, scope=SCOPE)
            if name in {"save", "env_read"}:
                await env.upload(source, "big")

            async def env_read() -> None:
                async with env.open_read("big") as chunks:
                    await _drain(chunks)

            async def store_read() -> None:
                async with store.open_read(handle, scope=SCOPE) as chunks:
                    await _drain(chunks)

            async def nothing() -> None:
                pass

            actions: dict[str, tuple[Callable[[], Awaitable[object]], Callable[[], Awaitable[object]]]] = {
                "save": (lambda: save(env, "big", store, scope=SCOPE), lambda: store.delete("big", scope=SCOPE)),
                "load": (lambda: load(env, handle, "made", store, scope=SCOPE), lambda: env.remove("made")),
                "env_read": (env_read, nothing),
                "env_write": (lambda: env.write("made", _pieces(BIG)), lambda: env.remove("made")),
                "store_read": (store_read, nothing),
                "store_put": (
                    lambda: store.put(_pieces(BIG), filename="big", scope=SCOPE),
                    lambda: store.delete("big", scope=SCOPE),
                ),
            }
            return await _taken(*actions[name])

    return asyncio.run(run())


def list_many(where: Where, number: int) -> Taken:
    """List a scope with many names."""

    async def run() -> Taken:
        async with where.open() as store:
            for each in range(number):
                await store.put(b"x", filename=f"folder/{each:06}.txt", scope=SCOPE)

            async def count(prefix: str) -> int:
                found = 0
                async for _ in store.list(SCOPE, prefix=prefix):
                    found += 1
                return found

            async def every() -> None:
                if await count("") != number:
                    raise SystemExit(f"bench: not all {number} artifacts were listed")

            await count("folder/00001")
            with Memory() as memory:
                start = time.perf_counter()
                await every()
                seconds = time.perf_counter() - start
            return Taken(seconds, memory.growth_bytes)

    return asyncio.run(run())


# -- the measuring


def _in_turns(rounds: int, *jobs: tuple[Any, ...]) -> Sequence[list[Taken]]:
    """Run each job, a function and what it takes, in new processes, by turns; return what each took."""
    taken: list[list[Taken]] = [[] for _ in jobs]
    for _ in range(rounds):
        for place, (function, *arguments) in zip(taken, jobs, strict=True):
            place.append(_apart(function, *arguments))
    return taken


def _apart(function: Callable[..., T], *arguments: object) -> T:
    """Run a function in a new process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


@contextmanager
def _stopwatch(seconds: list[float]) -> Generator[None]:
    """Add what the block takes, which begins when the disk has nothing left to write."""
    os.sync()
    start = time.perf_counter()
    yield
    seconds.append(time.perf_counter() - start)


async def _taken(action: Callable[[], Awaitable[object]], undo: Callable[[], Awaitable[object]]) -> Taken:
    """Measure an action, which is undone each time."""
    seconds: list[float] = []
    with Memory() as memory:
        for _ in range(TIMES):
            with _stopwatch(seconds):
                await action()
            await undo()
    return Taken(min(seconds), memory.growth_bytes)


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    async for _ in chunks:
        pass


async def _pieces(size: int) -> AsyncGenerator[bytes]:
    piece = os.urandom(MIB)
    for _ in range(size // MIB):
        yield piece


def _make(path: Path, size: int) -> None:
    with path.open("wb") as file:
        for _ in range(size // MIB):
            file.write(os.urandom(MIB))


def _seconds(taken: Sequence[Taken]) -> float:
    return statistics.median(each.seconds for each in taken)


def _rate(taken: Sequence[Taken]) -> str:
    return f"{BIG / MIB / _seconds(taken):.0f} MiB/s"


def _ratio(theirs: Sequence[Taken], ours: Sequence[Taken]) -> float:
    return _seconds(theirs) / _seconds(ours)


def _grown(taken: Sequence[Taken]) -> float:
    return max(each.grown for each in taken) / MIB
