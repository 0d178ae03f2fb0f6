"""`runenv artifacts ls`, `versions`, `stat`, `rm` and `prune`: what a store keeps, and what it need not keep."""

import json
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, TypeAlias, cast

import anyio
import typer
from rich.console import Console

from runenv.cli.artifacts.listing import Listing, as_json, show_record
from runenv.cli.options import ScopeRun, ScopeSession, ScopeUser, StoreOptions, StoreUrl, scope_of, store_of
from runenv.cli.terminal import count, one_line_errors, printable, size
from runenv.errors import ConfigError

if TYPE_CHECKING:
    from runenv.artifacts.artifact import Record, Scope
    from runenv.artifacts.store import ArtifactStore

__all__ = ("Version", "What", "find", "ls_command", "prune_command", "rm_command", "stat_command", "versions_command")

What: TypeAlias = Annotated[str, typer.Argument(metavar="WHAT", help="Handle, or name.", show_default=False)]
Version: TypeAlias = Annotated[
    int | None, typer.Option("--version", metavar="N", help="Of a name: which one; the latest unless given.")
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="For scripts: JSON, one record a line.")]


def ls_command(
    prefix: Annotated[str, typer.Argument(metavar="PREFIX", help="How names start.", show_default=False)] = "",
    *,
    as_lines: Json = False,
    run: ScopeRun = None,
    session: ScopeSession = None,
    user: ScopeUser = None,
    store: StoreUrl = None,
    option: StoreOptions = None,
) -> None:
    """List artifacts: the latest version of every name.

    Those that belong to the scope first, then those of what it is in.

    Exit status: 0, also when there is none; 1 when the store could not be read.

    Example:
        runenv artifacts ls charts/ --store s3://bucket/prefix --session chat-7
    """
    with one_line_errors():
        scope = scope_of(run, session, user)
        anyio.run(_ls, store_of(store, option), scope, prefix, as_lines)


def versions_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of which artifact.", show_default=False)],
    *,
    as_lines: Json = False,
    run: ScopeRun = None,
    session: ScopeSession = None,
    user: ScopeUser = None,
    store: StoreUrl = None,
    option: StoreOptions = None,
) -> None:
    """List all versions of a name, oldest first.

    Exit status: 0, or 1 when there is none.
    """
    with one_line_errors():
        scope = scope_of(run, session, user)
        anyio.run(_versions, store_of(store, option), scope, name, as_lines)


def stat_command(
    what: What,
    *,
    version: Version = None,
    as_line: Json = False,
    run: ScopeRun = None,
    session: ScopeSession = None,
    user: ScopeUser = None,
    store: StoreUrl = None,
    option: StoreOptions = None,
) -> None:
    """Show all that is known of an artifact, and where it lies.

    Exit status: 0, or 1 when there is none.
    """
    with one_line_errors():
        scope = scope_of(run, session, user)
        anyio.run(_stat, store_of(store, option), scope, what, version, as_line)


def rm_command(
    whats: Annotated[
        list[str] | None, typer.Argument(metavar="WHAT", help="Handles, or names.", show_default=False)
    ] = None,
    *,
    version: Version = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All that belongs to the scope, and to the runs and sessions within it.")
    ] = False,
    run: ScopeRun = None,
    session: ScopeSession = None,
    user: ScopeUser = None,
    store: StoreUrl = None,
    option: StoreOptions = None,
) -> None:
    """Remove artifacts by handle or by name.

    A handle is of one version. Of a name every version is removed, unless --version says which. Numbers of versions are
    not used again.

    Exit status: 0, or 1 when something was not there; what was named before it is removed then.
    """
    with one_line_errors():
        scope = scope_of(run, session, user)
        if everything == bool(whats) or (everything and version is not None):
            raise ConfigError("rm takes either handles and names, or --all")
        anyio.run(_rm, store_of(store, option), scope, whats or (), version)


def prune_command(*, store: StoreUrl = None, option: StoreOptions = None) -> None:
    """Remove what has expired, whoever's it is.

    And what writers left that were killed. On object storage that is marked first, and removed by a prune that comes a
    day or more after.

    Exit status: 0, or 1 when the storage failed.
    """
    with one_line_errors():
        anyio.run(_prune, store_of(store, option))


async def find(store: "ArtifactStore", what: str, version: int | None, scope: "Scope") -> "Record":
    """Return the record of a handle, or of a name.

    Raises:
        ConfigError: a version is given with a handle.
        ArtifactMissingError: there is none that this scope may see.
        HandleError: it may be neither.
    """
    from runenv.artifacts.handles import whole

    if whole(what) is None:
        return await store.find(what, version, scope=scope)
    if version is not None:
        raise ConfigError("a handle is of one version: leave out --version")
    return await store.stat(what, scope=scope)


async def _ls(store: "ArtifactStore", scope: "Scope", prefix: str, as_lines: bool) -> None:  # noqa: FBT001 - anyio.run
    listing = Listing(as_lines=as_lines)
    async with store, aclosing(cast("AsyncGenerator[Record]", store.list(scope, prefix=prefix))) as records:
        async for record in records:
            listing.add(record)
    listing.end()
    if not listing.count:
        _say("there are no artifacts" + (f" whose names start with {printable(prefix)!r}" if prefix else ""))


async def _versions(store: "ArtifactStore", scope: "Scope", name: str, as_lines: bool) -> None:  # noqa: FBT001 - as above
    from runenv.errors import ArtifactMissingError

    listing = Listing(as_lines=as_lines)
    async with store:
        for record in await store.versions(name, scope=scope):
            listing.add(record)
    listing.end()
    if not listing.count:
        raise ArtifactMissingError(f"there is no {name!r} in this scope")


async def _stat(store: "ArtifactStore", scope: "Scope", what: str, version: int | None, as_line: bool) -> None:  # noqa: FBT001 - as above
    async with store:
        record = await find(store, what, version, scope)
    path = store.path(record)
    if as_line:
        sys.stdout.write(f"{json.dumps(as_json(record, path))}\n")
    else:
        show_record(record, path)


async def _rm(store: "ArtifactStore", scope: "Scope", whats: Sequence[str], version: int | None) -> None:
    async with store:
        removed = 0 if whats else await store.clear_scope(scope)
        for what in whats:
            exact = what if version is None else (await find(store, what, version, scope)).handle
            removed += await store.delete(exact, scope=scope)
    _say(f"removed {count(removed, 'artifact')}")


async def _prune(store: "ArtifactStore") -> None:
    async with store:
        pruned = await store.prune()
    leftovers = count(pruned.leftovers, "leftover")
    _say(f"removed {count(pruned.expired, 'expired artifact')} and {leftovers}: {size(pruned.bytes)} freed")


def _say(text: str) -> None:
    Console(stderr=True).print(text, markup=False, highlight=False, soft_wrap=True)
