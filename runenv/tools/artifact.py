"""The artifact tools: files of the env into the store and out of it, and what the store holds for a model to read.

Bytes go between the env and the store; the model gives and gets handles. Reading is `runenv.artifacts.retrieval`'s
business, moving `runenv.artifacts.transfers`'; here are the arguments, the path rules and the words.
"""

from __future__ import annotations

import posixpath
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final, cast

from pydantic import Field

from runenv.artifacts import transfers
from runenv.artifacts.handles import human_size, part, placeholder, shown_name
from runenv.artifacts.references import resolve
from runenv.artifacts.retrieval import DEFAULT_CONTEXT, DEFAULT_LIMIT
from runenv.env import TreeStreams
from runenv.errors import ConfigError, ToolError
from runenv.tools.opened import count
from runenv.tools.schema import Arguments, EnvPath
from runenv.tools.tool import make_tool
from runenv.types import ImagePart, TextPart, ToolResult

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from runenv.artifacts import ArtifactStore, Record, Scope
    from runenv.tools.tool import Context, Tool
    from runenv.types import Part, TransferResult

__all__ = ("make_artifact_list", "make_artifact_load", "make_artifact_read", "make_artifact_save")

MAX_LISTED: Final = 200
SHOWN_REFUSED: Final = 5
"""Entries of a folder that were left out, which an answer names."""
_TAR: Final = frozenset({"application/x-tar", "application/tar"})


class SaveArguments(Arguments):
    """What `artifact_save` takes."""

    path: EnvPath
    """File to save, or folder, which becomes one tar archive."""
    name: str | None = None
    """Its name as an artifact; the name of the file unless given."""


class LoadArguments(Arguments):
    """What `artifact_load` takes."""

    reference: str
    """Handle of the artifact, or its name."""
    path: EnvPath | None = None
    """Where to put it: a file, which is replaced, or an existing folder. The artifact's name in the working folder
    unless given."""
    unpack: bool = False
    """Unpack a tar archive into the folder `path`."""


class ListArguments(Arguments):
    """What `artifact_list` takes."""

    prefix: str = ""
    """Only names that start so."""
    limit: Annotated[int, Field(ge=1, le=MAX_LISTED)] = 50
    """How many to list."""


class ReadArguments(Arguments):
    """What `artifact_read` takes."""

    reference: str
    """Handle, name (`name@2` for a version), or path as it was shown."""
    offset: int = 1
    """First line; with `from_end` the last one, counted from the end."""
    limit: Annotated[int, Field(ge=1)] = DEFAULT_LIMIT
    """Lines, or places with a match, at most."""
    column: int = 1
    """Character of that line to start at, for a line that was cut."""
    from_end: bool = False
    """The last lines or matches instead of the first."""
    pattern: str | None = None
    """Only lines with this text in them, literally."""
    context: Annotated[int, Field(ge=0)] = DEFAULT_CONTEXT
    """Lines to show around each of those, at most 10."""


def make_artifact_save(context: Context) -> Tool:
    """Make the tool that stores files.

    Raises:
        ConfigError: there is no store.
    """
    store, scope = _stored(context)
    env = context.env

    async def run(given: SaveArguments) -> tuple[Part, ...]:
        path = await context.path(given.path)
        if not (await env.stat(path)).is_dir:
            name = given.name or posixpath.basename(posixpath.normpath(given.path))
            handle = await transfers.save(env, path, store, scope=scope, filename=name)
            return _saved(await store.stat(handle, scope=scope), "")
        if not isinstance(env, TreeStreams):
            raise ToolError(f"{given.path!r} is a folder, and this sandbox saves only files. Pack it, and save that.")
        if not context.paths.is_free:
            raise ToolError(f"{given.path!r} is a folder, and this agent may not touch every path. Save single files.")
        handle, moved = await transfers.save_tree(env, path, store, scope=scope, filename=given.name)
        return _saved(await store.stat(handle, scope=scope), _moved("It holds", moved))

    description = (
        "Save a file or folder of the sandbox as an artifact, as it is now, and get a handle for it. Hand a file on (to"
        " the user, to another tool or agent) by this handle, never by its content. The same name again is a new"
        " version; each handle keeps its own content."
    )
    return make_tool(context, "artifact_save", description, SaveArguments, run)


def make_artifact_load(context: Context) -> Tool:
    """Make the tool that puts an artifact into the env.

    Raises:
        ConfigError: there is no store.
    """
    store, scope = _stored(context)
    env = context.env

    async def run(given: LoadArguments) -> str:
        record = await resolve(given.reference, store, scope=scope, paths={})
        if given.unpack:
            return await unpack(given, record)
        shown = await _target(context, given.path, record)
        await transfers.load(env, record.handle, await context.path(shown), store, scope=scope)
        read = context.hint("file_read", "Look at it with file_read.")
        return f"{shown_name(record.name)!r} ({_about(record)}) is now the file {shown!r}.{read}"

    async def unpack(given: LoadArguments, record: Record) -> str:
        if given.path is None:
            raise ToolError("To unpack, give the folder as path.")
        if not isinstance(env, TreeStreams):
            raise ToolError("This sandbox does not unpack. Load the archive as a file, and unpack that.")
        if not context.paths.is_free:
            raise ToolError("This agent may not touch every path, so nothing is unpacked. Load the archive as a file.")
        if record.media_type.partition(";")[0] not in _TAR:
            raise ToolError(f"{shown_name(record.name)!r} is {record.media_type}, no tar archive. Load it as a file.")
        moved = await transfers.load_tree(env, record.handle, await context.path(given.path), store, scope=scope)
        return f"{shown_name(record.name)!r} is unpacked into the folder {given.path!r}.{_moved('That is', moved)}"

    description = (
        "Put an artifact into the sandbox as a file, so that commands and file tools can work with it. Its content does"
        " not pass through you."
    )
    return make_tool(context, "artifact_load", description, LoadArguments, run)


def make_artifact_list(context: Context) -> Tool:
    """Make the tool that lists artifacts.

    Raises:
        ConfigError: there is no store.
    """
    store, scope = _stored(context)

    async def run(given: ListArguments) -> str:
        lines: list[str] = []
        more = False
        async with aclosing(cast("AsyncGenerator[Record]", store.list(scope, prefix=given.prefix))) as records:
            async for record in records:
                if len(lines) == given.limit:
                    more = True
                    break
                lines.append(f"{placeholder(record)} {_version(record)}".rstrip())
        start = f" whose name starts with {given.prefix!r}" if given.prefix else ""
        if not lines:
            return f"There are no artifacts{start}."
        if more:
            larger = f", or a larger limit (at most {MAX_LISTED})" if given.limit < MAX_LISTED else ""
            lines.append(f"There are more. Give a prefix{larger}.")
        return "\n".join(lines)

    description = "List the artifacts: name, type, size and handle of the latest version of each name."
    return make_tool(context, "artifact_list", description, ListArguments, run)


def make_artifact_read(context: Context) -> Tool:
    """Make the tool that reads artifacts.

    Raises:
        ConfigError: there is no store.
    """
    store, scope = _stored(context)
    retrieval = context.retrieval
    if retrieval is None:
        raise ConfigError("the tool artifact_read needs a retrieval")

    async def run(given: ReadArguments) -> ToolResult:
        result = await retrieval.retrieve(**given.model_dump())
        parts: list[Part] = []
        for one in result.parts:
            parts += await shown(one) if isinstance(one, ImagePart) else (one,)
        return replace(result, parts=tuple(parts))

    async def shown(image: ImagePart) -> tuple[Part, ...]:
        """Let no image reach a model that was not decoded."""
        name = (await store.stat(image.handle, scope=scope)).name if image.handle else "image"
        made = await context.shown(image.data, name)
        return tuple(replace(one, handle=image.handle) if isinstance(one, ImagePart) else one for one in made)

    description = (
        "Read an artifact, such as a long result that was cut, a page at a time: at most 10,000 characters a call,"
        " which say how to go on. Look for a text in it with `pattern`, at its end with `from_end`. Images are shown."
    )
    return make_tool(context, "artifact_read", description, ReadArguments, run)


def _stored(context: Context) -> tuple[ArtifactStore, Scope]:
    if context.store is None or context.scope is None:
        raise ConfigError("the artifact tools need a store and a scope")
    return context.store, context.scope


async def _target(context: Context, path: str | None, record: Record) -> str:
    """Return the path of the file to write, by what was asked for and what is there."""
    name = posixpath.basename(record.name)
    shown = name if path is None else path
    try:
        info = await context.env.stat(await context.path(shown))
    except FileNotFoundError:
        return posixpath.join(shown, name) if shown.endswith("/") else shown
    if info.is_dir and path is not None:
        return posixpath.join(shown, name)
    if shown.endswith("/"):
        raise ToolError(f"{shown!r} ends with a slash, but is a file: leave out the slash to replace it.")
    if path is None:
        raise ToolError(f"There is a {shown!r} in the working folder already. Give a path, that one to replace it.")
    return shown


def _saved(record: Record, more: str) -> tuple[Part, ...]:
    version = f"version {record.version}, " if record.version else ""
    what = f"{shown_name(record.name)!r} ({version}{_about(record)})"
    return (part(record), TextPart(f"Saved as {what}. Hand it on by its handle, {record.handle}.{more}"))


def _moved(start: str, moved: TransferResult) -> str:
    """Say what a transfer of a folder moved and what not."""
    files = f" {start} {count(moved.files, 'file')}, {human_size(moved.bytes)}."
    if not moved.refused_count:
        return files
    some = "; ".join(f"{one.path!r} ({one.reason})" for one in moved.refused[:SHOWN_REFUSED])
    more = "; ..." if moved.refused_count > SHOWN_REFUSED else ""
    return f"{files} Left out: {moved.refused_count:,}: {some}{more}."


def _about(record: Record) -> str:
    return f"{human_size(record.size)}, {record.media_type}"


def _version(record: Record) -> str:
    return f"version {record.version}" if record.version else ""
