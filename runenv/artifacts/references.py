"""Which artifact a model means: a handle, a placeholder, a name, or a path or URI as it was shown, in any dress.

What lies elsewhere (another bucket, another folder, a path that climbs) is refused from its text alone, before the
store is asked; what is left is compared with what the store itself says of its artifacts. A path is never opened.
"""

from __future__ import annotations

import os
import posixpath
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote, urlsplit

from anyio import to_thread

from runenv.artifacts import handles
from runenv.artifacts.backends import folder_of
from runenv.errors import ArtifactMissingError, HandleError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runenv.artifacts.artifact import Record, Scope
    from runenv.artifacts.store import ArtifactStore

__all__ = ("resolve",)

MAX_REFERENCE: Final = 8_192
"""Characters of a reference: the longest path, quoted."""
MAX_LOOKED_AT: Final = 20_000
"""Artifacts whose place is compared with a path that was not shown by this process."""
_SHOWN: Final = 200

_QUOTES: Final = " \t\r\n`'\"<>\u2018\u2019\u201c\u201d\u00ab\u00bb"
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?=/)")
_VERSION: Final = re.compile(r"(.+)@(\d{1,9})", re.DOTALL)


async def resolve(
    reference: str, store: ArtifactStore, *, scope: Scope, paths: Mapping[str, str], folders: Sequence[str] = ()
) -> Record:
    """Return the artifact that is meant.

    Args:
        reference: what a model wrote.
        store: where it is.
        scope: who asks.
        paths: the handle for every path that was shown.
        folders: folders of an env with copies of artifacts, each under the artifact's name.

    Raises:
        HandleError: the reference names nothing that this store serves.
        ArtifactMissingError: there is no such artifact, or none that this scope may see.
    """
    handle, text = _read(reference)
    handle = handle or paths.get(text)
    if handle is not None:
        return await store.stat(handle, scope=scope)
    place = _place(text)
    for folder in folders:
        if posixpath.dirname(posixpath.normpath(place)) == folder:
            return await _named(posixpath.basename(place), store, scope)
    if _SCHEME.match(text) or place.startswith("/"):
        return await _at(text, place, store, scope)
    try:
        return await _named(text, store, scope)
    except ArtifactMissingError as missing:
        if "/" not in text:
            raise
        try:
            return await _at(text, place, store, scope)
        except HandleError:
            raise missing from None


def _read(reference: str) -> tuple[str | None, str]:
    """Return the handle in a reference, or None and what it is without quotes."""
    if len(reference) > MAX_REFERENCE:
        raise HandleError(f"the reference has {len(reference):,} characters: give a handle, a name or a path")
    found = {match.handle for match in handles.find(reference)}
    if len(found) > 1:
        raise HandleError(f"the reference {_shown(reference)} has {len(found)} handles in it: give one")
    text = reference.strip(_QUOTES)
    if not text:
        raise HandleError("the reference is empty: give a handle, a name or a path")
    return (found.pop() if found else None), text


def _place(text: str) -> str:
    """Return the path that a text is or that its URI has, without the bucket."""
    try:
        place = unquote(urlsplit(text).path) if _SCHEME.match(text) else text
    except ValueError as error:
        raise HandleError(f"the reference {_shown(text)} is not a URI") from error
    if ".." in re.split(r"[/\\]", place) or "\0" in place:
        raise HandleError(f"the reference {_shown(text)} climbs out of its folder: give it as it was shown")
    return place


async def _named(text: str, store: ArtifactStore, scope: Scope) -> Record:
    """Return an artifact by its name, or `name@version`; a name with an `@` in it goes first."""
    version = _VERSION.fullmatch(text)
    try:
        return await store.find(text, scope=scope)
    except ArtifactMissingError:
        if version is None:
            raise
    return await store.find(version[1], int(version[2]), scope=scope)


async def _at(text: str, place: str, store: ArtifactStore, scope: Scope) -> Record:
    """Return the artifact whose content is at a path or URI."""
    if not await _is_within(text, place, store):
        raise HandleError(
            f"the reference {_shown(text)} is outside of the artifact store: give it as it was shown, or a handle; "
            "files of the sandbox are read with the tools for files"
        )
    wanted = await _forms(text, place)
    looked_at = 0
    async for latest in store.list(scope):
        looked_at += 1
        if looked_at > MAX_LOOKED_AT:
            break
        records = [latest] if not latest.version else await store.versions(latest.name, scope=latest.scope)
        for record in records:
            path = store.path(record)
            if wanted & {record.uri, unquote(record.uri), path} or (path and await _absolute(path) in wanted):
                return record
    raise ArtifactMissingError(f"there is no artifact at {_shown(text)} in this scope")


async def _forms(text: str, place: str) -> set[str | None]:
    """The ways in which the store may write the same place."""
    scheme = urlsplit(text).scheme.lower() if _SCHEME.match(text) else ""
    if scheme not in {"", "file"}:
        return {text, unquote(text)}
    return {text, place, posixpath.normpath(place), await _absolute(place)}


async def _is_within(text: str, place: str, store: ArtifactStore) -> bool:
    """Say whether a path or URI may be one of the store's, by its text alone."""
    own = urlsplit(store.url)
    asked = urlsplit(text if _SCHEME.match(text) else f"file:///{quote(place)}")
    if asked.scheme.lower() != own.scheme.lower():
        return False
    if own.scheme.lower() == "file":
        root = await _absolute(folder_of(store.url))
        return asked.netloc in {"", "localhost"} and (await _absolute(place)).startswith(posixpath.join(root, ""))
    prefix = own.path.strip("/")
    return asked.netloc == own.netloc and place.startswith(f"/{prefix}/" if prefix else "/")


async def _absolute(path: str) -> str:
    return posixpath.normpath(path) if path.startswith("/") else await to_thread.run_sync(os.path.abspath, path)


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
