"""Tool results on their way to a model: artifacts in them are stored, and placeholders stand where they were.

The tools call `absorb` with what a tool returned, and again when a hook has put something else in its place. What a
result's bytes are worth to a model (previews, thresholds) is the offloader's business, not this one's.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import anyio

from runenv.artifacts.artifact import Artifact, Scope
from runenv.artifacts.handles import part, placeholder
from runenv.artifacts.nested import Nested
from runenv.errors import ArtifactError, ArtifactMissingError
from runenv.types import DEFAULT, ToolResult

if TYPE_CHECKING:
    from runenv.artifacts.artifact import Record
    from runenv.artifacts.store import ArtifactStore
    from runenv.types import Default

__all__ = ("absorb",)

CLEAN_UP_TIMEOUT: Final = 30.0
"""Seconds for deleting what was stored when a later artifact of the same result could not be."""

_Lifetime: TypeAlias = "float | Default | None"
_Purpose: TypeAlias = "tuple[Scope, _Lifetime]"
_FileState: TypeAlias = "tuple[int, int, int, int] | None"


@dataclass(frozen=True, slots=True)
class _Stored:
    """Where the content of an artifact object is, and of which file it was read."""

    handle: str
    state: _FileState


class _Memory:
    """What one store holds of artifact objects that live; by object, and a weak reference tells a reused id apart."""

    def __init__(self) -> None:
        self._objects: dict[int, tuple[weakref.ref[Artifact], dict[_Purpose, _Stored]]] = {}

    def get(self, artifact: Artifact, purpose: _Purpose) -> _Stored | None:
        known = self._objects.get(id(artifact))
        return known[1].get(purpose) if known is not None and known[0]() is artifact else None

    def add(self, artifact: Artifact, purpose: _Purpose, stored: _Stored) -> None:
        key = id(artifact)
        known = self._objects.get(key)
        if known is None or known[0]() is not artifact:

            def forget(reference: weakref.ref[Artifact]) -> None:
                if key in self._objects and self._objects[key][0] is reference:
                    del self._objects[key]

            known = self._objects[key] = (weakref.ref(artifact, forget), {})
        known[1][purpose] = stored

    def forget(self, purpose: _Purpose, stored: list[tuple[Artifact, _Stored]]) -> None:
        for artifact, one in stored:
            if self.get(artifact, purpose) is one:
                del self._objects[id(artifact)][1][purpose]


_MEMORIES: Final[weakref.WeakKeyDictionary[ArtifactStore, _Memory]] = weakref.WeakKeyDictionary()
"""Beside the stores, not in them: a store knows handles, not the objects of a program."""


async def absorb(value: Any, store: ArtifactStore, *, scope: str | Scope, ttl: float | Default | None = DEFAULT) -> Any:  # noqa: ANN401
    """Return a tool's result with every `Artifact` in it stored, and a placeholder of one line in its place.

    Artifacts are found in lists, tuples, mappings, dataclasses and pydantic models, at any depth. Among the parts of a
    `ToolResult` a `FilePart` takes their place. A result without artifacts is given back as it is, so that it does no
    harm to absorb one again; one with artifacts is copied, never changed.

    The same `Artifact` object gets one handle for each scope and lifetime, however often it comes by: results that a
    cache gives out again are stored once, as long as the artifact is there and, for one that is a file, the file is
    not another by then. An equal object is another artifact, and a new version of the same name.

    Args:
        value: what the tool returned.
        store: where the bytes go.
        scope: whose they are.
        ttl: seconds that the artifacts live; what the store does by itself unless given, None for ever.

    Raises:
        HandleError: a filename may not be one.
        LimitError: the store's quotas do not allow it.
        StoreError: the storage failed.
        OSError: the file of an artifact cannot be read.
            After any of these nothing of this result is in the store.
    """
    nested = Nested(value, Artifact)
    if not nested.leaves:
        return value
    purpose = (Scope.of(scope), ttl)
    saved = await _save(cast("list[Artifact]", nested.leaves), store, purpose)

    def shown(leaf: object, parent: object) -> object:
        record = saved[id(leaf)]
        return part(record) if id(parent) in parts else placeholder(record)

    parts = {id(node.parts) for node in nested.containers if isinstance(node, ToolResult)}
    return nested.replaced(shown)


async def _save(artifacts: list[Artifact], store: ArtifactStore, purpose: _Purpose) -> dict[int, Record]:
    """Store artifacts, all or none; return their records by the artifacts' ids."""
    scope, ttl = purpose
    memory = _MEMORIES.setdefault(store, _Memory())
    records: dict[int, Record] = {}
    new: list[tuple[Artifact, _Stored]] = []
    try:
        for artifact in artifacts:
            state = await _file_state(artifact)
            record = await _recalled(memory.get(artifact, purpose), state, store, scope)
            if record is None:
                handle = await store.put(
                    artifact.data,  # not the object: the store has a memory of its own, and says not what is new
                    filename=artifact.filename,
                    scope=scope,
                    media_type=artifact.media_type,
                    metadata=artifact.metadata,
                    ttl=ttl,
                )
                new.append((artifact, _Stored(handle, state)))
                record = await store.stat(handle, scope=scope)
            records[id(artifact)] = record
        # Others are told only now: the failure of a later artifact would have taken away what they rely on.
        for artifact, stored in new:
            other = memory.get(artifact, purpose)
            record = await _recalled(other, stored.state, store, scope)
            if record is None:
                memory.add(artifact, purpose, stored)
            else:  # the same object came by another way at the same time, and that one was faster
                records[id(artifact)] = record
                await store.delete(stored.handle, scope=scope)
    except BaseException as error:
        memory.forget(purpose, new)
        await _delete([stored.handle for _, stored in new], store, scope, error)
        raise
    return records


async def _recalled(stored: _Stored | None, state: _FileState, store: ArtifactStore, scope: Scope) -> Record | None:
    """Return the record of what was stored before, or None when that is gone or its file is another by now."""
    if stored is None or (state is not None and state != stored.state):
        return None
    try:
        return await store.stat(stored.handle, scope=scope)
    except ArtifactMissingError:
        return None


async def _file_state(artifact: Artifact) -> _FileState:
    """Tell the files of a path apart; None for bytes, and for a file that is gone, of which a copy may be stored."""
    if isinstance(artifact.data, bytes):
        return None
    try:
        info = await anyio.Path(artifact.data).stat()
    except OSError:
        return None
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns


async def _delete(handles: list[str], store: ArtifactStore, scope: Scope, error: BaseException) -> None:
    """Delete what was stored, cancelled or not; what cannot be is named in a note on the error."""
    with anyio.move_on_after(CLEAN_UP_TIMEOUT, shield=True):
        while handles:
            try:
                await store.delete(handles[-1], scope=scope)
            except ArtifactMissingError:
                pass
            except ArtifactError:
                break
            handles.pop()
    if handles:
        error.add_note(f"stored before this failed, and could not be deleted again: {', '.join(handles)}")
