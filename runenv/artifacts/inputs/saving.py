"""`save_inputs`: the blobs of incoming messages become artifacts, all of them or none."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Final, TypeVar, cast

from anyio import CancelScope, move_on_after, to_thread
from pydantic import BaseModel

from runenv.artifacts.artifact import Scope
from runenv.artifacts.extensions import EXTENSIONS
from runenv.artifacts.inputs.decoding import decode, decoded_size
from runenv.artifacts.inputs.walking import Slot, plan
from runenv.artifacts.media import essence, media_type
from runenv.artifacts.names import check_name
from runenv.errors import ArtifactError, HandleError, LimitError
from runenv.types import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runenv.artifacts.artifact import Record
    from runenv.artifacts.inputs.walking import Make
    from runenv.artifacts.store import ArtifactStore
    from runenv.types import Default

__all__ = ("save_inputs",)

T = TypeVar("T")

MAX_BLOBS: Final = 100
"""Blobs in one message."""
MAX_BYTES: Final = 64 * 1024 * 1024
"""Bytes of all blobs of one message: twice what any vendor takes in a request."""
_MAX_NAME: Final = 120
"""Characters of a given name that are kept."""
_MAX_PREFIX: Final = 100
_UNDO_SECONDS: Final = 30.0
"""Bounds how long a failed or cancelled call deletes what it had saved."""

_SUFFIXES: Final = {kind: suffix for suffix, kind in reversed(EXTENSIONS.items())} | {"image/jpeg": ".jpg"}


async def save_inputs(
    message: T,
    store: ArtifactStore,
    *,
    scope: str | Scope,
    prefix: str | None = None,
    ttl: float | Default | None = DEFAULT,
    max_blobs: int = MAX_BLOBS,
    max_bytes: int = MAX_BYTES,
) -> tuple[T, list[Record]]:
    """Save the inline blobs of a message and return the message with a placeholder in the place of each.

    Blobs are the images, documents, audio and other files that Anthropic, OpenAI (Responses and Chat), Gemini, Bedrock
    (Converse), MCP and neutral parts carry as bytes, base64 or `data:` URI, also within tool results. A placeholder is
    a text block of the same form (of a neutral `ImagePart`: a `FilePart`); Gemini's function responses, whose parts may
    hold no text, get theirs under "artifacts" in the response. References (URLs, file ids, artifacts), texts, even with
    base64 in them, and the arguments of tool calls stay as they are, and so does every key that is not the blob's.

    The message is never changed. When anything fails, nothing stays saved and nothing is returned: append the new
    message only after this call. Equal blobs of a call become one artifact.

    Args:
        message: a message, or a list of messages or parts; plain data, or pydantic objects of a vendor. Of these one
            that is nothing but a blob (MCP's `ImageContent`) comes back as a plain block.
        store: where the artifacts go.
        scope: whose they are.
        prefix: their names are `<prefix>_1.png` and so on, where the message names none; a random one when None.
        ttl: seconds until they expire, None for never; by default as the store says for the scope.
        max_blobs: blobs in one message at most.
        max_bytes: bytes of all blobs in one message at most, decoded.

    Returns:
        The new message, of the same shape (the message itself when it has no blob), and the record of every blob in
        the order of the message.

    Raises:
        ArtifactError: a blob is no base64; the message says which.
        LimitError: the message has too many or too large blobs, or the store's quota is reached.
        StoreError: the store failed.
        HandleError: the scope is none.
    """
    scope = Scope.of(scope)
    prefix = prefix[:_MAX_PREFIX] if prefix else f"input_{secrets.token_hex(4)}"
    plans = [plan(single, where) for single, where in _messages(message)]
    for slots, _ in plans:
        _check(slots, max_blobs, max_bytes)
    slots = [slot for slots, _ in plans for slot in slots]
    if not slots:
        return message, []
    contents = await to_thread.run_sync(_decoded, slots)
    await _Saving(store, scope, prefix, ttl).save(slots, contents)
    return _made(message, [make for _, make in plans]), [slot.saved for slot in slots]


class _Saving:
    """Puts the blobs of one call into the store, and takes them out again when one of them fails."""

    def __init__(self, store: ArtifactStore, scope: Scope, prefix: str, ttl: float | Default | None) -> None:
        self._store = store
        self._scope = scope
        self._prefix = prefix
        self._ttl = ttl
        self._handles: list[str] = []

    async def save(self, slots: Sequence[Slot], contents: Sequence[tuple[bytes, str]]) -> None:
        """Give every slot its record; of each its content and the hash of it."""
        known: dict[tuple[str, str, str | None], Record] = {}
        try:
            for number, (slot, (content, digest)) in enumerate(zip(slots, contents, strict=True), start=1):
                name = self._name(slot, content, number)
                given = name if slot.blob.filename else ""
                key = (digest, given, slot.blob.media_type)
                if key not in known:
                    known[key] = await self._put(content, name, slot.blob.media_type)
                slot.record = known[key]
        except BaseException:
            await self._undo()
            raise

    async def _put(self, content: bytes, name: str, kind: str | None) -> Record:
        handle = await self._store.put(content, filename=name, scope=self._scope, media_type=kind, ttl=self._ttl)
        self._handles.append(handle)
        return await self._store.stat(handle, scope=self._scope)

    async def _undo(self) -> None:
        with CancelScope(shield=True), move_on_after(_UNDO_SECONDS):
            for handle in reversed(self._handles):
                with suppress(ArtifactError, OSError):  # the first failure is what the caller must hear of
                    await self._store.delete(handle, scope=self._scope)

    def _name(self, slot: Slot, content: bytes, number: int) -> str:
        kind = essence(media_type(content, slot.blob.media_type, slot.blob.filename or ""))
        suffix = _SUFFIXES.get(kind, "")
        given = _given_name(slot.blob.filename or "")
        if not given:
            return f"{self._prefix}_{number}{suffix}"
        return given if "." in given else given + suffix


def _decoded(slots: Sequence[Slot]) -> list[tuple[bytes, str]]:
    contents = [decode(slot.blob.data, slot.where) for slot in slots]
    return [(content, sha256(content).hexdigest()) for content in contents]


def _given_name(name: str) -> str:
    """Return a name that came with a blob as the store takes it, or an empty one.

    It comes from outside: it names no folder, and a colon would let it choose the user's scope.
    """
    name = "".join(character for character in name if character.isprintable()).replace("\\", "/").replace(":", "_")
    name = name.rpartition("/")[2].strip(" .")
    if len(name) > _MAX_NAME:
        stem, dot, suffix = name.rpartition(".")
        suffix = dot + suffix if stem and len(suffix) < _MAX_NAME // 4 else ""
        name = name[: _MAX_NAME - len(suffix)].strip(" .") + suffix
    try:
        return check_name(name)
    except HandleError:
        return ""


def _messages(message: object) -> list[tuple[object, str]]:
    """Return the messages that a value is, each with its name: one, unless it is a list of nothing but messages."""
    if isinstance(message, (list, tuple)) and message and all(map(_is_message, message)):
        return [(single, f"message[{number}]") for number, single in enumerate(message)]
    return [(message, "message")]


def _is_message(value: object) -> bool:
    names = value if isinstance(value, Mapping) else type(value).model_fields if isinstance(value, BaseModel) else ()
    return any(name in names for name in ("content", "parts", "output"))


def _made(message: T, makes: list[Make | None]) -> T:
    if isinstance(message, (list, tuple)) and all(map(_is_message, message)):
        kind = tuple if isinstance(message, tuple) else list
        made = kind(old if make is None else make() for old, make in zip(message, makes, strict=True))
        return cast("T", made)
    (make,) = makes
    return message if make is None else cast("T", make())


def _check(slots: Sequence[Slot], max_blobs: int, max_bytes: int) -> None:
    """Hold a message to its bounds before anything is decoded.

    Raises:
        LimitError: it breaks one.
    """
    if len(slots) > max_blobs:
        raise LimitError(f"a message has {len(slots):,} blobs in it, and {max_blobs:,} are allowed: send fewer")
    size = sum(decoded_size(slot.blob.data) for slot in slots)
    if size > max_bytes:
        where = max(slots, key=lambda slot: decoded_size(slot.blob.data)).where
        raise LimitError(
            f"the blobs of a message have about {size:,} bytes, and {max_bytes:,} are allowed: the largest is {where}"
        )
