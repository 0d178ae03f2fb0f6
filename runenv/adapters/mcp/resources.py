"""Artifacts as resources of the protocol: listed by pages, read by handle, whole or in parts.

A resource's URI is the artifact's handle. What is larger than one message is read in parts, by `?offset=N&length=N`
behind the handle; the bytes that such a read gives are always a blob, so that parts can be put together.
"""

from __future__ import annotations

import base64
import json
from contextlib import aclosing, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import parse_qsl

from mcp import types
from mcp.shared.exceptions import MCPError
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from runenv.artifacts import handles
from runenv.artifacts.handles import human_size
from runenv.errors import ArtifactMissingError, HandleError, RunEnvError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from runenv.adapters.mcp.client import Client
    from runenv.artifacts import ArtifactStore, Record

__all__ = ("RANGE_TEMPLATE", "list_page", "read", "templates")

PAGE: Final = 100
"""Resources in one answer."""
RESOURCE_NOT_FOUND: Final = -32002
"""What the revisions up to 2025-11-25 answer for a resource that is not there; later ones have INVALID_PARAMS."""
RANGE_TEMPLATE: Final = f"{handles.SCHEME}://{{id}}{{?offset,length}}"
_LEVELS: Final = ("run", "session", "user")
"""Of scopes, in the order in which a store lists them."""
_TEXT_TYPES: Final = frozenset(
    {"application/json", "application/xml", "application/javascript", "application/yaml", "image/svg+xml"}
)


async def list_page(client: Client, store: ArtifactStore, cursor: str | None) -> types.ListResourcesResult:
    """Return the latest version of each name, a page of them: the scope's own first, then those of wider ones.

    Args:
        client: whose.
        store: where they are.
        cursor: as the page before gave it: level and name of the last one, since they come in that order.

    Raises:
        MCPError: it is no cursor of ours, or the store failed.
    """
    after = None if cursor is None else _position(*cursor.partition("/")[::2])
    listed: list[types.Resource] = []
    last: Record | None = None
    next_cursor = None
    with _told(None):
        records = cast("AsyncGenerator[Record]", store.list(client.scope))
        async with aclosing(records):
            async for record in records:
                if after is not None and _position(record.scope.level, record.name) <= after:
                    continue
                if last is not None and len(listed) == PAGE:
                    next_cursor = f"{last.scope.level}/{last.name}"
                    break
                listed.append(_resource(record))
                last = record
    return types.ListResourcesResult(resources=listed, next_cursor=next_cursor)


def _position(level: str, name: str) -> tuple[int, str]:
    if level not in _LEVELS:
        raise MCPError(types.INVALID_PARAMS, "the cursor is none that a list of resources gave")
    return _LEVELS.index(level), name


def templates() -> types.ListResourceTemplatesResult:
    """Return how the URI of an artifact is made."""
    one = types.ResourceTemplate(
        name="artifact",
        uri_template=RANGE_TEMPLATE,
        description="An artifact by its handle, whole, or `length` bytes of it from `offset` on, as a blob.",
    )
    return types.ListResourceTemplatesResult(resource_templates=[one])


async def read(client: Client, store: ArtifactStore, uri: str, *, version: str) -> types.ReadResourceResult:
    """Return the content of an artifact.

    Args:
        client: who asks; it sees its own artifacts only.
        store: where it is.
        uri: the handle, perhaps with a range behind it.
        version: revision of the protocol that the client speaks.

    Raises:
        MCPError: there is none, or it is larger than a message.
    """
    base, _, query = uri.partition("?")
    with _told(version):
        record = await store.stat(base.rstrip("/"), scope=client.scope)  # some clients write a URL's path
        offset, length = _range(query)
        size = max(0, record.size - offset) if length is None else min(length, max(0, record.size - offset))
        if size > client.read_bytes:
            raise MCPError(
                types.INVALID_PARAMS,
                f"{record.handle!r} has {record.size:,} bytes and one answer holds {client.read_bytes:,}: read parts of"
                f" it, as {record.handle}?offset=0&length={client.read_bytes}, or put it into the sandbox with"
                " artifact_load",
                {"size": record.size, "max_bytes": client.read_bytes},
            )
        data = await store.get(record.handle, scope=client.scope, offset=offset, length=length)
    text = None if query else _as_text(record, data)
    if text is not None:
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=uri, mime_type=record.media_type, text=text)]
        )
    blob = base64.b64encode(data).decode()
    return types.ReadResourceResult(
        contents=[types.BlobResourceContents(uri=uri, mime_type=record.media_type, blob=blob)]
    )


def _resource(record: Record) -> types.Resource:
    created = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="seconds")
    version = f"version {record.version}, " if record.version else ""
    return types.Resource(
        uri=record.handle,
        name=record.name,
        description=f"{version}{human_size(record.size)}, SHA-256 {record.sha256}",
        mime_type=record.media_type,
        size=record.size,
        annotations=types.Annotations(last_modified=created),
    )


def _range(query: str) -> tuple[int, int | None]:
    given = dict(parse_qsl(query, keep_blank_values=True))
    numbers = {name: int(value) for name, value in given.items() if value.isascii() and value.isdecimal()}
    if numbers.keys() != given.keys() or not given.keys() <= {"offset", "length"}:
        raise MCPError(types.INVALID_PARAMS, f"{query!r} is no part of an artifact: write offset=N&length=N, in bytes")
    return numbers.get("offset", 0), numbers.get("length")


def _as_text(record: Record, data: bytes) -> str | None:
    """Return content as text where it is one, and does not get larger by that than as a blob."""
    kind = record.media_type.partition(";")[0].strip().lower()
    if not kind.startswith("text/") and kind not in _TEXT_TYPES and not kind.endswith(("+json", "+xml")):
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    escaped = len(json.dumps(text, ensure_ascii=False).encode())
    return text if escaped <= (len(data) + 2) // 3 * 4 + 2 else None


@contextmanager
def _told(version: str | None) -> Generator[None]:
    """Make errors of the store errors of the protocol."""
    try:
        yield
    except (HandleError, ArtifactMissingError) as error:
        modern = version in MODERN_PROTOCOL_VERSIONS
        text = str(error.args[0]) if error.args else str(error)
        raise MCPError(types.INVALID_PARAMS if modern else RESOURCE_NOT_FOUND, text) from error
    except RunEnvError as error:
        raise MCPError(types.INTERNAL_ERROR, str(error)) from error
