"""What all parts of the store's contract share: where a store is, what a subclass says about it, and how tests use it.

Below is `runenv.artifacts` by its public names. How a backend lays out its objects is not known here: tests that look
or write behind the store's back take every object as it comes, through obstore.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import unquote, urlsplit

import anyio
import obstore
import pytest
from obstore.store import LocalStore, from_url

from runenv.artifacts import ArtifactStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from obstore.store import ObjectStore

    from runenv.artifacts import Record, Scope

__all__ = ("Clock", "Place", "StoreTests", "chunks", "digest", "read_all", "records")

CHILD: Final = Path(__file__).with_name("store_child.py")
CHILD_SECONDS: Final = 100.0
"""How long the processes of one test may take together."""
UNKNOWN: Final = "runenv+file://00000000-0000-4000-8000-000000000000"
"""A handle that no store has made."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a store keeps its artifacts, as `ArtifactStore.open` takes it: a URL, and options for obstore."""

    url: str
    options: Mapping[str, str] | None = field(default=None, repr=False)


class Clock:
    """Seconds since the epoch, as a test moves them. It begins at the time that it is."""

    def __init__(self) -> None:
        self.now = float(int(time.time()))

    def __call__(self) -> float:
        """Return the time."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


class StoreTests:
    """What is known of the stores under test. A subclass overrides the fixture `place` and what differs."""

    pytestmark: ClassVar = [pytest.mark.anyio]

    known_failures: ClassVar[Mapping[str, str]] = {}
    """Name of a test and why stores of this kind cannot keep what it tests. Such a test is skipped with the reason."""

    is_shared: ClassVar[bool] = True
    """Other stores, also of other processes, that are opened at the same place hold the same artifacts."""
    keeps_in_memory: ClassVar[bool] = False
    """What is stored is in the memory of this process."""
    has_exact_quotas: ClassVar[bool] = True
    """Quotas hold whatever happens at once; otherwise they may be overshot by what is under way, and by what others
    stored in the last minute."""
    is_deduplicated: ClassVar[bool] = True
    """The same bytes are kept once."""
    large_bytes: ClassVar[int] = 128 * 1024 * 1024
    """Size of the stream that is to pass without being held in memory."""

    @pytest.fixture
    def place(self) -> Place:
        """Return a place that nobody has used."""
        raise NotImplementedError(f"{type(self).__name__} must say where its stores are")

    def make_store(self, place: Place, **settings: Any) -> ArtifactStore:  # noqa: ANN401 - handed on
        """Return a store at a place, not yet open; the settings are those of `ArtifactStore.open`."""
        return ArtifactStore.open(place.url, options=place.options, **settings)

    def make_raw(self, place: Place) -> ObjectStore | None:
        """Return the objects of a place, to look and write behind a store's back; None: that cannot be done."""
        url = urlsplit(place.url)
        if url.scheme == "memory":
            return None
        if url.scheme == "file":
            return LocalStore(unquote(url.path), mkdir=True)
        options = dict(place.options or {})
        client = {"allow_http": options.pop("allow_http", "false") == "true"}
        return from_url(place.url, config=options, client_options=client)  # type: ignore[call-overload,no-any-return]

    # -- fixtures

    @pytest.fixture(scope="class")
    @classmethod
    def anyio_backend(cls) -> str:
        """Stores live in asyncio."""
        return "asyncio"

    @pytest.fixture
    def clock(self) -> Clock:
        """The clock of `store`."""
        return Clock()

    @pytest.fixture
    async def store(self, place: Place, clock: Clock) -> AsyncIterator[ArtifactStore]:
        """An open store with nothing in it."""
        async with self.make_store(place, clock=clock) as store:
            yield store

    @pytest.fixture
    def raw(self, place: Place) -> ObjectStore:
        """The objects of the place. Skips where nothing but the store reaches them."""
        raw = self.make_raw(place)
        if raw is None:
            pytest.skip("nothing but the store itself reaches its objects")
        return raw

    @pytest.fixture(autouse=True)
    def skip_known_failures(self, request: pytest.FixtureRequest) -> None:
        """Skip what the subclass says that its stores cannot do."""
        name = getattr(request.node, "originalname", request.node.name)
        if reason := self.known_failures.get(name):
            pytest.skip(f"known failure: {reason}")

    # -- other processes

    async def run_child(self, place: Place, **task: Any) -> Any:  # noqa: ANN401 - what JSON holds
        """Let other processes use a store at a place; see `store_child.py`. Skips where they have no way to it."""
        if not self.is_shared:
            pytest.skip("other processes cannot reach this store")
        task |= {"url": place.url, "options": dict(place.options or {})}
        with anyio.fail_after(CHILD_SECONDS):
            done = await anyio.run_process([sys.executable, str(CHILD)], input=json.dumps(task).encode(), check=False)
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout)


# -- reading


async def chunks(data: bytes, size: int) -> AsyncIterator[bytes]:
    """Give bytes as a stream of unknown length, in pieces of a size."""
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def read_all(store: ArtifactStore, handle: str, *, scope: Scope | str, **span: int) -> bytes:
    """Read through the stream."""
    data = bytearray()
    async with store.open_read(handle, scope=scope, **span) as stream:
        async for chunk in stream:
            data += chunk
    return bytes(data)


async def records(store: ArtifactStore, scope: Scope | str, *, prefix: str = "") -> list[Record]:
    """List to the end."""
    return [record async for record in store.list(scope, prefix=prefix)]


def digest(data: bytes) -> str:
    """Return the SHA-256 in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


async def raw_objects(raw: ObjectStore) -> dict[str, bytes]:
    """Read all objects of a place behind the store's back, by their paths."""
    paths = [meta["path"] async for page in obstore.list(raw) for meta in page]
    return {path: bytes(await (await obstore.get_async(raw, path)).bytes_async()) for path in sorted(paths)}


async def raw_bytes(raw: ObjectStore) -> int:
    """Return how much all objects of a place take together."""
    return sum([meta["size"] async for page in obstore.list(raw) for meta in page])
