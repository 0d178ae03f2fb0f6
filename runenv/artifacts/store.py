"""`ArtifactStore`: named, versioned bytes behind handles, each with a scope and perhaps a lifetime.

    async with ArtifactStore.open("file:///var/lib/agent/artifacts") as store:
        handle = await store.put(b"...", filename="deck.pptx", scope="run-1")

It holds the policies and nothing else: what may be a name, who may see what, how long it lives, what is hashed and
checked. Where records and content are is the business of a `Backend` below. Handles are made and found in `handles.py`;
the roads between a store and an env (`transfers.py`), tool results and arguments lie above.

Content of object storage and of folders is not encrypted here, and whoever can read the bucket or is this user on this
host can read it: scopes separate agents, not operators.
"""

from __future__ import annotations

import os
import time
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from runenv.artifacts import handles
from runenv.artifacts.artifact import Scope
from runenv.artifacts.backends import make_backend
from runenv.artifacts.backends.backend import Quotas
from runenv.artifacts.backends.entry import Entry, scope_key
from runenv.artifacts.backends.threads import Threads, to_its_end
from runenv.artifacts.chunks import counted
from runenv.artifacts.content import Content, Known, check_metadata, check_ttl
from runenv.artifacts.media import differs
from runenv.artifacts.media import media_type as effective_type
from runenv.artifacts.names import check_name, split_user
from runenv.artifacts.sources import Source, opened
from runenv.artifacts.targets import write_file
from runenv.errors import (
    ArtifactExpiredError,
    ArtifactMissingError,
    ConfigError,
    LimitError,
    StoreError,
)
from runenv.types import DEFAULT

if TYPE_CHECKING:
    import builtins
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from runenv.artifacts.artifact import Level, Record
    from runenv.artifacts.backends.backend import Backend, Chunks, Pruned
    from runenv.artifacts.sources import Data
    from runenv.types import Default, Progress

__all__ = ("DEFAULT_TTL", "MAX_GET_BYTES", "ArtifactStore")

DEFAULT_TTL: Final[Mapping[Level, float | None]] = {"run": 24 * 3600.0, "session": None, "user": None}
"""Seconds that an artifact lives unless its `put` says otherwise, by the level of its scope; None: for ever."""
MAX_GET_BYTES: Final = 100 * 1024 * 1024
"""What `get` returns at most unless told otherwise; a stream has no bound."""
MAX_TYPE: Final = 255
"""Characters that are kept of a declared media type, which may be anything."""
_THREADS: Final = 4
"""Threads that read files and hash chunks."""


class ArtifactStore:
    """A place for artifacts. Made by `open`, used within `async with`; safe for many tasks at once.

    Everything that takes a scope takes an id of a run too. Every verb may raise `StoreError`: the storage failed.
    """

    def __init__(
        self,
        url: str,
        backend: Backend,
        *,
        quotas: Quotas,
        ttl: Mapping[Level, float | None],
        clock: Callable[[], float],
    ) -> None:
        self._url = url
        self._backend = backend
        self._quotas = quotas
        self._ttl = ttl
        self._clock = clock
        self._threads: Threads | None = None
        self._owner = 0
        self._known = Known()

    @classmethod
    def open(
        cls,
        url: str,
        *,
        options: Mapping[str, str] | None = None,
        quotas: Quotas | None = None,
        ttl: Mapping[Level, float | None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> ArtifactStore:
        """Return a store, to be entered with `async with`, which is when it is reached for the first time.

        Args:
            url: `memory://`; `file:///folder`, or `file:folder` for a folder from where this process works;
                `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`.
            options: credentials and endpoints of object storage, such as `access_key_id`, `secret_access_key`,
                `endpoint`, `region`, `allow_http`. What is not given is looked for where the vendor's own tools look.
            quotas: bounds of the store; none unless given. In memory and in folders they are exact, whichever process
                stores. On object storage they are held against a listing that is at most 60 s old, and may be
                overshot by what others stored since, and by what is under way.
            ttl: seconds of life by level, over `DEFAULT_TTL`.
            clock: seconds since the epoch.

        Raises:
            ConfigError: the URL, an option or a lifetime is not understood.
        """
        lifetimes: dict[Level, float | None] = {**DEFAULT_TTL, **(ttl or {})}
        for level, seconds in lifetimes.items():
            if level not in DEFAULT_TTL:
                raise ConfigError(f"there is no level {level!r}: the levels are {', '.join(DEFAULT_TTL)}")
            check_ttl(seconds)
        backend = make_backend(url, options or {})
        return cls(url, backend, quotas=quotas or Quotas(), ttl=lifetimes, clock=clock)

    async def __aenter__(self) -> Self:
        if self._threads is not None:
            raise StoreError(f"{self!r} is open already")
        await self._backend.open()
        self._owner = os.getpid()
        self._threads = Threads(_THREADS)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Let go of the storage; may be called twice."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.stop()
            await to_its_end(self._backend.aclose())

    def __repr__(self) -> str:
        return f"ArtifactStore({self._url!r})"

    @property
    def url(self) -> str:
        """As given; there are no credentials in it."""
        return self._url

    # -- putting

    async def put(
        self,
        data: Data,
        *,
        filename: str | None = None,
        scope: str | Scope,
        media_type: str | None = None,
        metadata: Mapping[str, str] | None = None,
        ttl: Default | float | None = DEFAULT,
        progress: Progress | None = None,
    ) -> str:
        """Keep bytes as a new version of a name; flat memory, whatever their size.

        The same `Artifact` of bytes put into the same scope again gives the handle that it has, while that lives.

        Args:
            data: bytes, the `Path` of a file on this host, an async stream of bytes, or an `Artifact`.
            filename: its name, a relative path; that of the file or of the `Artifact` when None. `user:` before it
                keeps it for the user of the scope.
            scope: whose it is.
            media_type: MIME type as declared; the first bytes are believed more.
            metadata: your own texts, at most 16 KiB.
            ttl: seconds until it expires, None for never, by the level of the scope unless given.
            progress: called with the bytes taken so far.

        Returns:
            The handle.

        Raises:
            HandleError: the name or the scope is refused.
            LimitError: it is larger than a quota, or there is no room for it; or too much metadata.
            OSError: the file cannot be read.
        """
        source = Source.of(data, filename, media_type, metadata)
        name, for_user = split_user(source.filename)
        owner = Scope.of(scope).of_user if for_user else Scope.of(scope)
        check_name(name)
        check_metadata(source.metadata)
        seconds = self._ttl[owner.level] if ttl is DEFAULT else ttl
        check_ttl(seconds)
        memo = (owner, name, source.media_type, tuple(sorted(source.metadata.items())), seconds)
        if (known := self._known.get(data, memo)) and await self._is_fresh(known, owner, seconds):
            return known
        handle = handles.mint()
        async with opened(source, self._ready) as (chunks, size):
            self._check_size(size or 0)
            version = await self._backend.reserve(scope_key(owner), name, _id(handle))
            now = self._clock()

            def entry(content: Content) -> Entry:
                declared = source.media_type and source.media_type[:MAX_TYPE].encode(errors="replace").decode()
                kind = effective_type(bytes(content.head), declared, name)
                return Entry(
                    id=_id(handle),
                    name=name,
                    version=version,
                    run=owner.run,
                    session=owner.session,
                    user=owner.user,
                    size=content.size,
                    sha256=content.sha256,
                    media_type=kind,
                    declared_type=declared if differs(declared, kind) else None,
                    created=now,
                    expires=None if seconds is None else now + seconds,
                    metadata=dict(source.metadata),
                )

            await self._store(_id(handle), chunks, size, entry, progress)
        self._known.add(data, memo, handle)
        return handle

    async def _store(
        self,
        id: str,
        chunks: Chunks,
        size: int | None,
        entry: Callable[[Content], Entry],
        progress: Progress | None,
    ) -> None:
        """Write content and commit it, or leave nothing of it."""
        content = Content(self._ready)

        async def measured() -> Chunks:
            done = 0
            async for chunk in counted(chunks, size, progress):
                done += len(chunk)
                self._check_size(done)
                yield chunk

        committing: Entry | None = None
        try:
            await self._backend.write(id, measured(), content)
            committing = entry(content)
            await to_its_end(self._backend.commit(committing, self._quotas))
        except BaseException as error:
            is_cancelled = not isinstance(error, Exception)  # then it may be committed
            await to_its_end(self._undo(id, committing if is_cancelled else None))
            raise

    async def _undo(self, id: str, committed: Entry | None) -> None:
        """Remove what a put made; what cannot be removed is for `prune`."""
        if committed is not None:
            with suppress(StoreError):
                await self._backend.remove(committed)
        with suppress(StoreError):
            await self._backend.discard(id)

    async def _is_fresh(self, handle: str, owner: Scope, ttl: float | None) -> bool:
        """Say whether an artifact is there, and will be for half of its life or more."""
        with suppress(ArtifactMissingError):
            entry = await self._entry(handle, owner)
            return entry.expires is None or ttl is None or entry.expires - self._clock() >= ttl / 2
        return False

    # -- looking

    async def stat(self, handle: str, *, scope: str | Scope) -> Record:
        """Return what is kept about an artifact.

        Args:
            handle: as given by `put`, perhaps in quotes or the like; see `handles.parse`.
            scope: who asks: the scope of the artifact, or one within it.

        Raises:
            ArtifactMissingError: there is none, or none that this scope may see, which are told apart by nothing.
            ArtifactExpiredError: its time is over; told only to who may see it.
            HandleError: it is no handle.
        """
        return self._record(await self._entry(handle, Scope.of(scope)))

    async def find(self, name: str, version: int | None = None, *, scope: str | Scope) -> Record:
        """Return what is kept about a version of a name, the latest unless given.

        The narrowest scope that has the name is meant: a run's own before its session's before its user's.

        Raises:
            ArtifactMissingError: there is no such name or version (`ArtifactExpiredError`: no more).
            HandleError: the name is refused.
        """
        now, over = self._clock(), False
        for owner in self._owners(name, Scope.of(scope)):
            found = False
            async for entry in self._backend.versions(scope_key(owner), split_user(name)[0]):
                found = True
                if version is not None and entry.version != version:
                    continue
                if not entry.is_over(now):
                    return self._record(entry)
                over = True
            if found:
                break
        what = f"{name!r}" if version is None else f"version {version} of {name!r}"
        if over:
            raise ArtifactExpiredError(f"the time of {what} is over: it is gone")
        raise ArtifactMissingError(f"there is no {what} in this scope")

    async def list(self, scope: str | Scope, *, prefix: str = "") -> AsyncIterator[Record]:
        """Yield the latest version of every name that a scope may see: its own first, then those of wider scopes.

        Args:
            scope: who asks.
            prefix: how names start; `user:` before it leaves only the user's.
        """
        self._check_open()
        start, only_user = split_user(prefix)
        asking = Scope.of(scope)
        for owner in (asking.of_user,) if only_user else asking.visible:
            async for entry in self._backend.latest(scope_key(owner), start, self._clock()):
                yield self._record(entry)

    async def versions(self, name: str, *, scope: str | Scope) -> builtins.list[Record]:
        """Return what is kept about all versions of a name, oldest first; of the narrowest scope that has it.

        Raises:
            HandleError: the name is refused.
        """
        entries = await self._versions(name, Scope.of(scope))
        return [self._record(entry) for entry in reversed(entries) if not entry.is_over(self._clock())]

    # -- getting

    async def get(
        self,
        handle: str,
        *,
        scope: str | Scope,
        offset: int = 0,
        length: int | None = None,
        max_bytes: int = MAX_GET_BYTES,
    ) -> bytes:
        """Return content as bytes; the whole of it is checked against its hash.

        Args:
            handle: what.
            scope: who asks.
            offset: bytes from the start.
            length: bytes at most; None: to the end.
            max_bytes: what the caller is ready to hold.

        Raises:
            LimitError: it would be more than `max_bytes`.
            ArtifactMissingError, HandleError: as for `stat`.
        """
        entry = await self._entry(handle, Scope.of(scope))
        length = _within(entry, offset, length)
        if length > max_bytes:
            raise LimitError(
                f"{entry.handle!r} would give {length} bytes and the limit is {max_bytes}: read a part, or a stream"
            )
        async with self._reading(entry, offset, length) as chunks:
            return b"".join([chunk async for chunk in chunks])

    @asynccontextmanager
    async def open_read(
        self, handle: str, *, scope: str | Scope, offset: int = 0, length: int | None = None
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Open content as a stream of chunks; flat memory. What was opened can be read to its end, though it expires.

        A whole artifact is checked against its hash, which is known at its end: use nothing of it before.

        Args:
            handle: what.
            scope: who asks.
            offset: bytes from the start.
            length: bytes at most; None: to the end.

        Raises:
            ArtifactMissingError, HandleError: as for `stat`.
            StoreError: when reading, the content is damaged.
        """
        entry = await self._entry(handle, Scope.of(scope))
        async with self._reading(entry, offset, _within(entry, offset, length)) as chunks:
            yield chunks

    async def get_file(
        self, handle: str, path: Path, *, scope: str | Scope, progress: Progress | None = None
    ) -> Record:
        """Write content to a file of this host, whole or not at all; flat memory.

        Args:
            handle: what.
            path: the file. Missing folders are made; a file that is there is replaced, at the end of a link the file
                that it leads to, and its permissions stay.
            scope: who asks.
            progress: called with the bytes written so far and those of all.

        Raises:
            OSError: the file cannot be written.
            ArtifactError: what is there is no regular file.
            StoreError: the content is damaged. In all cases what was there is as it was.
            ArtifactMissingError, HandleError: as for `stat`.
        """
        record = await self.stat(handle, scope=scope)
        async with (
            self.open_read(record.handle, scope=scope) as chunks,
            aclosing(counted(chunks, record.size, progress)) as told,
        ):
            await write_file(self._ready, path, told)
        return record

    @asynccontextmanager
    async def _reading(self, entry: Entry, offset: int, length: int) -> AsyncGenerator[Chunks]:
        content = Content(self._ready, hashed=length == entry.size)
        async with self._backend.read(entry, offset, length, content) as chunks:
            yield self._checked(entry, chunks, length, content)

    async def _checked(self, entry: Entry, chunks: Chunks, length: int, content: Content) -> Chunks:
        async for chunk in chunks:
            yield chunk
        if content.size != length or (length == entry.size and content.sha256 != entry.sha256):
            raise StoreError(f"the content of {entry.handle!r} is damaged: it is not what was stored")

    def path(self, record: Record) -> str | None:
        """Return where tools of a model's may reach the content: a file's path, or the URI in a bucket; else None.

        A path is relative where the store's folder was given so.
        """
        return self._backend.path(record.uri)

    # -- removing

    async def delete(self, handle_or_name: str, *, scope: str | Scope) -> int:
        """Remove an artifact, or every version of a name; the numbers of its versions are never used again.

        Args:
            handle_or_name: a handle removes that version. Of a name the narrowest scope that has it is meant.
            scope: who asks.

        Returns:
            How many versions were removed.

        Raises:
            ArtifactMissingError: there is nothing to remove that this scope may see.
            HandleError: the name is refused.
        """
        asking = Scope.of(scope)
        handle = handles.whole(handle_or_name)
        if handle is not None:
            entries = [await self._entry(handle, asking, over_too=True)]
        else:
            entries = await self._versions(handle_or_name, asking)
        if not entries:
            raise ArtifactMissingError(f"there is no {handle_or_name!r} in this scope")
        for entry in entries:
            await to_its_end(self._backend.remove(entry))
        return len(entries)

    async def clear_scope(self, scope: str | Scope) -> int:
        """Remove what belongs to a scope and to those within it, such as the runs of a session; return how many."""
        self._check_open()
        return await self._backend.clear(scope_key(Scope.of(scope)))

    async def prune(self) -> Pruned:
        """Remove what has expired, and what writers left that were killed.

        On object storage content that nothing refers to is marked first, and removed by a later `prune`, a day or
        more after.
        """
        self._check_open()
        return await self._backend.prune(self._clock())

    # -- inside

    @property
    def _ready(self) -> Threads:
        """The threads of an open store."""
        if self._threads is None:
            raise StoreError(f"{self!r} is not open: use it within `async with`")
        if self._owner != os.getpid():
            raise StoreError(f"{self!r} was opened before this process was forked: open one of its own")
        return self._threads

    def _check_open(self) -> None:
        _ = self._ready

    def _check_size(self, size: int) -> None:
        bounds = (self._quotas.max_artifact_bytes, self._quotas.max_bytes)
        limit = min((bound for bound in bounds if bound is not None), default=None)
        if limit is not None and size > limit:
            raise LimitError(f"the artifact has more bytes than the store's quota of {limit}")

    def _record(self, entry: Entry) -> Record:
        return entry.record(self._backend.uri(entry))

    async def _entry(self, handle: str, scope: Scope, *, over_too: bool = False) -> Entry:
        self._check_open()
        handle = handles.parse(handle)
        entry = await self._backend.find(_id(handle), [scope_key(owner) for owner in scope.visible])
        if entry is None:
            raise ArtifactMissingError(f"there is no artifact {handle!r} in this scope: it is unknown, or was deleted")
        if entry.is_over(self._clock()) and not over_too:
            raise ArtifactExpiredError(f"the time of {handle!r} is over: it is gone")
        return entry

    def _owners(self, name: str, scope: Scope) -> tuple[Scope, ...]:
        self._check_open()
        if name.startswith(f"{handles.SCHEME}://"):
            handles.parse(name)  # says what is wrong with it
        plain, only_user = split_user(name)
        check_name(plain)
        return (scope.of_user,) if only_user else scope.visible

    async def _versions(self, name: str, scope: Scope) -> builtins.list[Entry]:
        """Every version of a name in the narrowest scope that has it, highest first."""
        for owner in self._owners(name, scope):
            if found := [entry async for entry in self._backend.versions(scope_key(owner), split_user(name)[0])]:
                return found
        return []


def _id(handle: str) -> str:
    return handle.removeprefix(f"{handles.SCHEME}://")


def _within(entry: Entry, offset: int, length: int | None) -> int:
    """Return how many bytes a range has within the content."""
    if offset < 0 or (length is not None and length < 0):
        raise ConfigError("offset and length are not negative")
    rest = max(0, entry.size - offset)
    return rest if length is None else min(length, rest)
