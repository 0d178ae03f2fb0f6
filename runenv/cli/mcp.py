"""`runenv mcp`: the tools and artifacts of an env for any client of the Model Context Protocol.

Over stdio, or over HTTP with a token. Each client has an env of its own, which ends with it. In stdio mode stdout is
the protocol's; all that is said about it is on stderr.
"""

import logging
import os
import shlex
import sys
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Final

import anyio
import typer

from runenv.cli.options import (
    Agent,
    AgentsFile,
    Image,
    KindOption,
    Mounts,
    ScopeRun,
    ScopeSession,
    ServerScopeUser,
    StoreOptions,
    StoreUrl,
    User,
    Variables,
    blamed,
    env_config,
    mount_of,
    pairs_of,
    scope_of,
    variables_of,
)
from runenv.cli.terminal import complain, one_line_errors
from runenv.config import DockerConfig, LocalConfig
from runenv.errors import ConfigError

if TYPE_CHECKING:
    from runenv.adapters.mcp import Listener
    from runenv.artifacts import ArtifactStore, Scope
    from runenv.tools import PathRules

__all__ = ("mcp_command",)

MEMORY_STORE: Final = "memory://"
"""The store where none is named: it ends with the server, whatever ends that."""
MEMORY_STORE_BYTES: Final = 256 * 1024 * 1024
"""Of all artifacts in it."""
SESSION: Final = "mcp"
"""Whose the artifacts are over stdio where nothing else is said and they are kept."""
EXTRA: Final = "runenv mcp needs the MCP SDK: pip install 'runenv-sandbox[mcp]'"


@dataclass(frozen=True, slots=True)
class _Server:
    """What is to be served, and how."""

    config: LocalConfig | DockerConfig
    store: "ArtifactStore"
    scope: "Scope | None"
    allow: list[str] | None
    deny: list[str]
    paths: "PathRules"
    forgets: bool
    listener: "Listener | None"
    idle: float
    max_clients: int


def mcp_command(  # noqa: PLR0913 - each is an option
    *,
    env: KindOption = None,
    image: Image = None,
    config: AgentsFile = None,
    agent: Agent = None,
    variables: Variables = None,
    network: Annotated[str | None, typer.Option(metavar="none|full", help="Network of the container.")] = None,
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help="Memory of the container, such as 2g.")] = None,
    user: User = None,
    workdir: Annotated[
        str | None, typer.Option(metavar="PATH", help="Working folder: in the container, or for local on this host.")
    ] = None,
    mounts: Mounts = None,
    store: StoreUrl = None,
    options: StoreOptions = None,
    run: ScopeRun = None,
    session: ScopeSession = None,
    scope_user: ServerScopeUser = None,
    allow: Annotated[
        list[str] | None, typer.Option("--allow", metavar="TOOL", help="Only these tools, each with an --allow.")
    ] = None,
    deny: Annotated[list[str] | None, typer.Option("--deny", metavar="TOOL", help="All tools but these.")] = None,
    allow_paths: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-path",
            metavar="GLOB",
            help="Only paths of the env like this may be touched by tools, such as 'src' or '*.csv'; . is the working"
            " folder. exec is not bound by it.",
        ),
    ] = None,
    deny_paths: Annotated[
        list[str] | None,
        typer.Option("--deny-path", metavar="GLOB", help="No path like this, whatever --allow-path says."),
    ] = None,
    http: Annotated[
        str | None, typer.Option("--http", metavar="HOST:PORT", help="Serve over HTTP there, instead of stdio.")
    ] = None,
    token_env: Annotated[
        str | None,
        typer.Option(
            "--token-env",
            metavar="NAME",
            help="Environment variable with the token that HTTP clients have to show. Without one, only this host may"
            " be listened on, and everybody on it may come in.",
        ),
    ] = None,
    allow_hosts: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME[:PORT]", help="Other name of this server in its clients' URLs."),
    ] = None,
    idle: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="HTTP: until a client without a connection is given up; 1800 unless given.",
            show_default=False,
        ),
    ] = 1800.0,
    max_clients: Annotated[int, typer.Option(metavar="N", min=1, help="HTTP: clients at a time.")] = 64,
    log: Annotated[str, typer.Option(metavar="LEVEL", help="What is logged to stderr: debug, info, ...")] = "warning",
) -> None:
    """Serve tools and artifacts to MCP clients, over stdio or HTTP.

    Each client session has an env of its own, opened when it asks for the tools and closed when it ends.

    Artifacts are in memory and end with the session, unless --store keeps them. Over stdio they belong to the session
    "mcp" then, and the next one finds them. Over HTTP each client has its own, for 24 hours. --run, --session and
    --scope-user say whose they are instead, for all clients alike.

    Examples:
        runenv mcp --image python:3.12-slim
        runenv mcp --config agents.yaml --agent coder --store file:///srv/files
        RUNENV_TOKEN=... runenv mcp --http 127.0.0.1:8000 --token-env RUNENV_TOKEN
        runenv artifacts ls --store file:///srv/files --session mcp
    """
    with one_line_errors():
        _log_to_stderr(log)
        settings = {
            "image": image,
            "network": network,
            "memory_bytes": memory,
            "user": user,
            "workdir": workdir,
            "mounts": tuple(map(mount_of, mounts or ())),
            "environment": variables_of(variables),
        }
        chosen = env_config(env, config, agent, settings=settings)
        _check_tools([*(allow or ()), *(deny or ())])
        if not 0 < idle < float("inf"):
            raise ConfigError(f"--idle {idle:g}: seconds are a finite number above 0")
        _check_extra()
        paths = _paths(allow_paths, deny_paths, has_exec="exec" in (allow or ("exec",)) and "exec" not in (deny or ()))
        opened = _store(store, options)
        keeps = (store or MEMORY_STORE) != MEMORY_STORE
        scope = _scope(run, session, scope_user, keeps=keeps, is_shared=http is not None)
        listener = _listener(http, token_env, allow_hosts or [])
        if listener is not None and isinstance(chosen, LocalConfig) and chosen.workdir is not None:
            complain(
                f"all clients work in the same folder, {str(chosen.workdir)!r}: without --workdir each has its own"
            )
        server = _Server(
            config=chosen,
            store=opened,
            scope=scope,
            allow=allow or None,
            deny=deny or [],
            paths=paths,
            forgets=not keeps,
            listener=listener,
            idle=idle,
            max_clients=max_clients,
        )
        anyio.run(_serve, server)


def _log_to_stderr(level: str) -> None:
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ConfigError(f"--log {level!r}: it is debug, info, warning or error")
    logging.basicConfig(level=number, stream=sys.stderr, format="runenv: %(levelname)s: %(name)s: %(message)s")


def _check_extra() -> None:
    try:
        import_module("runenv.adapters.mcp")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("runenv"):
            raise
        raise ConfigError(EXTRA) from error


def _check_tools(names: list[str]) -> None:
    from runenv.tools.toolset import TOOLS

    for name in names:
        if name not in TOOLS:
            raise ConfigError(f"there is no tool {name!r}: there are {', '.join(TOOLS)}")


def _listener(http: str | None, token_env: str | None, allow_hosts: list[str]) -> "Listener | None":
    from runenv.adapters.mcp import Listener

    if http is None:
        if token_env is not None or allow_hosts:
            raise ConfigError("--token-env and --allow-host are for --http HOST:PORT")
        return None
    token = None
    if token_env is not None:
        token = os.environ.get(token_env, "").strip()
        if not token:
            raise ConfigError(f"--token-env {token_env}: there is no such variable here, or it is empty")
    with blamed(f"--http {http}" if token is None else f"--http {http} --token-env {token_env}"):
        listener = Listener.open(http, token=token, names=allow_hosts)
    who = "whoever runs on this host may use it (no --token-env)" if token is None else f"the token is in {token_env}"
    complain(f"listening on {listener.url}; {who}")
    if token is not None and not listener.is_loopback:
        complain("the token and all else is sent in the clear: put something that speaks TLS before this")
    return listener


def _store(url: str | None, options: list[str] | None) -> "ArtifactStore":
    from runenv.adapters.mcp import WatchedStore
    from runenv.artifacts import Quotas

    if url is None:
        if options:
            raise ConfigError("--option is for the store that --store names")
        return WatchedStore.open(MEMORY_STORE, quotas=Quotas(max_bytes=MEMORY_STORE_BYTES))
    return WatchedStore.open(url, options=pairs_of("--option", options))


def _scope(run: str | None, session: str | None, user: str | None, *, keeps: bool, is_shared: bool) -> "Scope | None":
    """Return whose the artifacts of all clients are, and say so; None: each has its own."""
    from runenv.artifacts import DEFAULT_TTL, Scope

    scope = None if run is session is user is None else scope_of(run, session, user)
    if scope is None and keeps and not is_shared:
        scope = Scope(session=SESSION)
    if scope is not None:
        names = (("--run", scope.run), ("--session", scope.session), ("--user", scope.user))
        options = " ".join(f"{name} {shlex.quote(value)}" for name, value in names if value is not None)
        what = f"{'all clients share the artifacts' if is_shared else 'artifacts are those'} of {options}"
        seconds = DEFAULT_TTL[scope.level]
        lifetime = "until they are removed" if seconds is None else f"for {seconds / 3600:g} hours"
        kept = f"kept {lifetime}: see `runenv artifacts ls {options}`" if keeps else "which end with this server"
        complain(f"{what}, {kept}")
    elif keeps:
        complain("each client has artifacts of its own; --run, --session or --scope-user says whose they are, for all")
    return scope


def _paths(allow: list[str] | None, deny: list[str] | None, *, has_exec: bool) -> "PathRules":
    from runenv.tools import PathRules

    if has_exec and (allow or deny):
        complain(
            "exec goes wherever its user may, whatever --allow-path and --deny-path say: --deny exec leaves it out"
        )
    with blamed("--allow-path, --deny-path"):
        return PathRules(allow=allow or None, deny=deny or ())


async def _serve(server: _Server) -> None:
    from runenv.adapters.mcp import Offer, serve_http, serve_stdio

    async with server.store as store:
        offer = Offer(
            config=server.config,
            store=store,
            scope=server.scope,
            allow=server.allow,
            deny=server.deny,
            paths=server.paths,
            forgets=server.forgets,
        )
        if server.listener is None:
            await serve_stdio(offer)
        else:
            await serve_http(offer, server.listener, idle=server.idle, max_clients=server.max_clients)
