"""`ObjectBackend`: artifacts as objects in a bucket.

    scopes/<scope>names/<name>/<version>    which id has a version: made by conditional create, and never made again
    scopes/<scope>records/<id>              the record; when it is there, the artifact is
    scopes/<scope>expired/<id>              the record of what expired, for a week
    payloads/<id>                           the content
    marks/<id>/<seconds>                    when `prune` first saw content that no record refers to
    probe/<id>                              made twice and removed when a store is opened

There are no transactions, so the order of writes carries the weight. A put takes a version with a small conditional
object (a conditional create of a stream would hold all of it in memory), streams the content, and writes the record
last; a removal takes the record first. What is cut off in between leaves a whole artifact or none, and content without
a record. `prune` marks such content, and removes what was marked a day before and still has no record: so an upload
that is under way and a read that has begun are safe. Where content is follows from the handle, never from a record.
Parts of an upload that was killed cannot be seen from here: let a lifecycle rule of the bucket remove them.

Above is `runenv.artifacts.store`; below is `bucket.py`, the only file that imports obstore.
"""

from __future__ import annotations

import re
import uuid
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakValueDictionary

import anyio
import tenacity

from runenv.artifacts.backends.backend import TOMBSTONE_SECONDS, UNREFERENCED_SECONDS, Pruned, check_quotas
from runenv.artifacts.backends.bucket import PAGE, Bucket, TakenError
from runenv.artifacts.backends.entry import MAX_ENTRY_BYTES, DamagedError, Entry, scope_key
from runenv.artifacts.backends.ordered import in_order
from runenv.artifacts.backends.threads import to_its_end
from runenv.artifacts.names import encode, encoded_start
from runenv.errors import LimitError, StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence

    from obstore import ObjectMeta

    from runenv.artifacts.backends.backend import Chunks, Quotas, Witness
    from runenv.artifacts.backends.bucket import Download

__all__ = ("ObjectBackend",)

T = TypeVar("T")

READ_BYTES: Final = 32 * 1024 * 1024
"""Content is asked for in parts of this size."""
READS_AHEAD: Final = 3
"""Parts that are asked for at once, of which one is taken."""
RECORDS_AHEAD: Final = 16
"""Records that are read at once."""
USAGE_SECONDS: Final = 60.0
"""How old the listing may be that quotas are held against."""
CONTENTION_SECONDS: Final = 60.0
"""How long a version is tried for while others are faster."""
KNOWN_NAMES: Final = 10_000
"""Names whose highest version is remembered, so that listing them need not begin at the start."""
_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DIGITS: Final = 10
"""Of a version in a key, so that they list in order."""


@dataclass(slots=True)
class _Usage:
    """What a listing found, and what this process stored and removed since."""

    taken: float
    bytes: int = 0
    count: int = 0


class ObjectBackend:
    """A `Backend` over a bucket; the module says how.

    Args:
        bucket: where.
    """

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._highest: dict[str, int] = {}
        self._turns: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self._usage: _Usage | None = None
        self._doubtful: set[str] = set()  # ids whose record may have been written

    async def open(self) -> None:
        """Make sure that the bucket is there, lets us in, and creates an object only once.

        Raises:
            StoreError: it does not.
        """
        key = f"probe/{uuid.uuid4()}"
        await self._bucket.create(key, b"")
        try:
            await self._bucket.create(key, b"")
        except TakenError:
            return
        finally:
            await to_its_end(self._bucket.delete([key]))
        raise StoreError(f"{self._bucket.uri!r} has no conditional create, which versions need: choose another service")

    async def aclose(self) -> None:
        """Nothing is held."""

    # -- putting

    async def reserve(self, scope: str, name: str, id: str) -> int:
        """List, then create the next number; the next again when somebody else was faster."""
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(TakenError),
            wait=tenacity.wait_random_exponential(multiplier=0.02, max=1),
            stop=tenacity.stop_after_delay(CONTENTION_SECONDS),
            sleep=anyio.sleep,
        )
        folder = _versions_of(scope, name)
        try:
            async with self._turns.setdefault(folder, anyio.Lock()):  # of this process only one tries at a time
                return await retrying(self._take, folder, id)
        except tenacity.RetryError:
            raise StoreError(
                f"no version of {name!r} was free for {CONTENTION_SECONDS:.0f} s: too many save it"
            ) from None

    async def _take(self, folder: str, id: str) -> int:
        highest = self._highest.get(folder, -1)
        after = f"{folder}/{highest:0{_DIGITS}}" if highest >= 0 else None
        async for meta in self._bucket.list(folder, after=after):
            highest = max(highest, _version(meta["path"]))
        if len(self._highest) >= KNOWN_NAMES:
            self._highest.clear()
        self._highest[folder] = highest
        await self._bucket.create(f"{folder}/{highest + 1:0{_DIGITS}}", id.encode())
        self._highest[folder] = highest + 1
        return highest + 1

    async def write(self, id: str, chunks: Chunks, witness: Witness) -> None:
        """Upload the content."""
        await self._bucket.upload(_payload(id), witness.watch(chunks))

    async def discard(self, id: str) -> None:
        """Remove the content again, unless there may be a record."""
        if id in self._doubtful:
            self._doubtful.remove(id)
        else:
            await self._bucket.delete([_payload(id)])

    async def commit(self, entry: Entry, quotas: Quotas) -> None:
        """Write the record; when that fails it is not known whether it is there, so it is removed first."""
        limited = quotas.max_bytes is not None or quotas.max_count is not None
        if limited:
            await self._check(entry, quotas)
        key = f"scopes/{scope_key(entry.scope)}records/{entry.id}"
        self._doubtful.add(entry.id)
        try:
            await self._bucket.put(key, entry.to_json().encode())
        except StoreError:
            await self._bucket.delete([key])
            self._doubtful.remove(entry.id)
            raise
        self._doubtful.remove(entry.id)
        self._count(entry, 1)

    async def _check(self, entry: Entry, quotas: Quotas) -> None:
        usage, fresh = self._usage, False
        while True:
            if usage is None or abs(entry.created - usage.taken) > USAGE_SECONDS:
                usage, fresh = await self._measure(entry.created), True
            try:
                check_quotas(quotas, usage.bytes + entry.size, usage.count + 1)
                return
            except LimitError:
                if fresh:
                    raise
                usage = None  # somebody may have made room

    async def _measure(self, now: float) -> _Usage:
        """Count the artifacts and their content. Holds their ids, which is some 100 bytes for each."""
        usage = self._usage = _Usage(now)
        ids = {path.rpartition("/")[2] async for path in self._paths("scopes") if _kind(path) == "records"}
        async for meta in self._bucket.list("payloads"):
            if meta["path"].rpartition("/")[2] in ids:
                usage.bytes += meta["size"]
                usage.count += 1
        return usage

    def _count(self, entry: Entry, sign: int) -> None:
        if self._usage is not None:
            self._usage.bytes += sign * entry.size
            self._usage.count += sign

    # -- looking

    async def find(self, id: str, scopes: Sequence[str]) -> Entry | None:
        """Ask for the record in one scope after the other, then for what is left of it."""
        for kind in ("records", "expired"):
            for scope in scopes:
                if (entry := await self._entry(scope, kind, id)) is not None:
                    return entry if kind == "records" else entry.freed()
        return None

    async def latest(self, scope: str, prefix: str, now: float) -> AsyncIterator[Entry]:
        """List the versions of all names, and read of each name what is the highest."""

        async def highest(keys: list[str]) -> Entry | None:
            for key in reversed(keys):
                entry = await self._at(scope, key)
                if entry is not None and not entry.is_over(now):
                    return entry
            return None

        found = in_order(self._names(scope, prefix), highest, RECORDS_AHEAD)
        try:
            async for entry in found:
                if entry is not None and entry.name.startswith(prefix):
                    yield entry
        finally:
            await found.aclose()

    async def _names(self, scope: str, prefix: str) -> AsyncIterator[list[str]]:
        """Yield the keys of the versions of each name that may start with a prefix."""
        folder, start = f"scopes/{scope}names", encoded_start(prefix)
        keys: list[str] = []
        # Some services leave out what is beneath the key itself, so it is one that sorts before it.
        after = f"{folder}/{start[:-1]}" if len(start) > 1 else None
        async for meta in self._bucket.list(folder, after=after):
            path = meta["path"]
            segment = path.removeprefix(f"{folder}/").partition("/")[0]
            if segment[: len(start)] > start:
                break
            if keys and keys[-1].rpartition("/")[0] != path.rpartition("/")[0]:
                yield keys
                keys = []
            keys.append(path)
        if keys:
            yield keys

    async def versions(self, scope: str, name: str) -> AsyncIterator[Entry]:
        """Read the records of a name, highest first; the first alone, since most look for no other."""
        keys = [meta["path"] async for meta in self._bucket.list(_versions_of(scope, name))]
        keys.sort(reverse=True)
        for page in (keys[:1], keys[1:]):
            found = in_order(_each(page), lambda key: self._at(scope, key), RECORDS_AHEAD)
            try:
                async for entry in found:
                    if entry is not None and entry.name == name:
                        yield entry
            finally:
                await found.aclose()

    async def _at(self, scope: str, key: str) -> Entry | None:
        """Return the record of a version, if it was ever finished and is still there."""
        taker = (await self._bucket.get(key, MAX_ENTRY_BYTES) or b"").decode(errors="replace")
        entry = await self._entry(scope, "records", taker) if _ID.fullmatch(taker) else None
        return entry if entry is not None and entry.version == _version(key) else None

    async def _entry(self, scope: str, kind: str, id: str) -> Entry | None:
        text = await self._bucket.get(f"scopes/{scope}{kind}/{id}", MAX_ENTRY_BYTES)
        return None if text is None else Entry.from_json(text, id=id, scope=scope)

    @asynccontextmanager
    async def read(self, entry: Entry, offset: int, length: int, witness: Witness) -> AsyncGenerator[Chunks]:
        """Ask for a few parts at once, whose data wait in the network until it is their turn: memory holds pieces."""

        async def part(start: int) -> Download:
            download = await self._bucket.open_range(_payload(entry.id), start, min(start + READ_BYTES, end))
            if download is None or download.size != entry.size:
                raise StoreError(f"the content of {entry.handle!r} is damaged: it is gone, or has another size")
            return download

        async def pieces() -> AsyncGenerator[bytes]:
            async with aclosing(in_order(_each(range(offset, end, READ_BYTES)), part, READS_AHEAD)) as parts:
                async for download in parts:
                    async with aclosing(download.pieces()) as those:
                        async for piece in those:
                            yield piece

        end = offset + length
        async with aclosing(pieces()) as chunks:
            yield witness.watch(chunks)

    def uri(self, entry: Entry) -> str:
        """Return its URI in the bucket."""
        return f"{self._bucket.uri}/{_payload(entry.id)}"

    def path(self, uri: str) -> str | None:
        """Return the URI: tools that can read the bucket take it."""
        return uri if uri.startswith(f"{self._bucket.uri}/payloads/") else None

    # -- removing

    async def remove(self, entry: Entry) -> None:
        """Remove the record, what may be left of it, and then the content."""
        scope = scope_key(entry.scope)
        await self._bucket.delete([f"scopes/{scope}{kind}/{entry.id}" for kind in ("records", "expired")])
        await self._bucket.delete([_payload(entry.id)])
        self._count(entry, -1)

    async def clear(self, scope: str) -> int:
        """Remove all of a scope but the highest version of each name, which keeps its number from being used again."""
        count, waiting, last = 0, list[str](), ""
        self._usage = None

        async def flush() -> None:
            await self._bucket.delete(waiting)
            await self._bucket.delete([_payload(key.rpartition("/")[2]) for key in waiting if _kind(key) == "records"])
            waiting.clear()

        async for meta in self._bucket.list(f"scopes/{scope}".rstrip("/")):
            key = meta["path"]
            if _kind(key) in {"records", "expired"}:
                count += _kind(key) == "records"
                waiting.append(key)
            else:
                if last.rpartition("/")[0] == key.rpartition("/")[0]:
                    waiting.append(last)
                last = key
            if len(waiting) >= PAGE:
                await flush()
        await flush()
        return count

    async def prune(self, now: float) -> Pruned:
        """Take the records of what is over away, then mark and sweep content. Holds the ids of all artifacts."""
        expired, live = 0, set[str]()
        async for key, was_live, is_live in in_order(
            self._records(), lambda path: self._retire(path, now), RECORDS_AHEAD
        ):
            expired += was_live and not is_live
            if is_live:
                live.add(key)
        self._usage = None
        marks = {path.split("/")[1]: path async for path in self._paths("marks")}
        leftovers = size = 0
        async for meta in self._kept():
            key = meta["path"].rpartition("/")[2]
            mark = marks.pop(key, None)
            if key in live:
                if mark is not None:  # it was under way when it was marked
                    await self._bucket.delete([mark])
            elif mark is None:
                await self._bucket.put(f"marks/{key}/{now:.0f}", b"")
            elif now - _seconds(mark) >= UNREFERENCED_SECONDS:
                await self._bucket.delete([meta["path"], mark])
                leftovers, size = leftovers + 1, size + meta["size"]
        await self._bucket.delete(list(marks.values()))
        return Pruned(expired, leftovers, size)

    async def _kept(self) -> AsyncIterator[ObjectMeta]:
        """Yield what `prune` may remove: content, and probes, which no record refers to ever."""
        for prefix in ("payloads", "probe"):
            async for meta in self._bucket.list(prefix):
                yield meta

    async def _retire(self, path: str, now: float) -> tuple[str, bool, bool]:
        """Let a record that is over become a trace, and a trace nothing; say whether it was and is a live one."""
        scope, kind, key = path.removeprefix("scopes/").rsplit("/", 2)
        was_live = kind == "records"
        try:
            entry = await self._entry(f"{scope}/", kind, key)
        except DamagedError:
            return key, was_live, was_live
        if entry is None or not entry.is_over(now):
            return key, was_live, was_live and entry is not None
        if was_live:
            await self._bucket.put(f"scopes/{scope}/expired/{key}", entry.to_json().encode())
            await self._bucket.delete([path])
        elif entry.is_over(now - TOMBSTONE_SECONDS):
            await self._bucket.delete([path])
        return key, was_live, False

    async def _records(self) -> AsyncIterator[str]:
        async for path in self._paths("scopes"):
            if _kind(path) in {"records", "expired"}:
                yield path

    async def _paths(self, prefix: str) -> AsyncIterator[str]:
        async for meta in self._bucket.list(prefix):
            yield meta["path"]


async def _each(items: Iterable[T]) -> AsyncIterator[T]:
    for item in items:
        yield item


def _payload(id: str) -> str:
    return f"payloads/{id}"


def _versions_of(scope: str, name: str) -> str:
    return f"scopes/{scope}names/{encode(name)}"


def _kind(path: str) -> str:
    """Return the folder of a path."""
    return path.rsplit("/", 2)[-2]


def _version(path: str) -> int:
    """Return the number at the end of a path; what is none counts for nothing."""
    digits = path.rpartition("/")[2]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) == _DIGITS else -1


def _seconds(mark: str) -> float:
    """Return when a mark was made; one that does not say so never counts as old."""
    text = mark.rpartition("/")[2]
    return float(text) if re.fullmatch(r"\d{1,12}", text) else float("inf")
