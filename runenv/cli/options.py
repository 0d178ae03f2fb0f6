"""Options that several commands take, and the configuration that they add up to.

An option that is not given leaves what the configuration's own default says: there is no second table of defaults.
Above are the commands; below `runenv.config`.
"""

import enum
import os
import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from runenv.config import BindMount, DockerConfig, LocalConfig, Mount, VolumeMount
from runenv.config_file import agent_config, read_agents
from runenv.errors import ConfigError

if TYPE_CHECKING:
    from runenv.artifacts.artifact import Scope
    from runenv.artifacts.store import ArtifactStore

__all__ = (
    "STORE_VARIABLE",
    "Agent",
    "AgentsFile",
    "Image",
    "Kind",
    "KindOption",
    "Mounts",
    "ScopeRun",
    "ScopeSession",
    "ScopeUser",
    "ServerScopeUser",
    "StoreOptions",
    "StoreUrl",
    "User",
    "Variables",
    "blamed",
    "env_config",
    "mount_of",
    "pairs_of",
    "scope_of",
    "store_of",
    "variables_of",
)


class Kind(enum.StrEnum):
    """The kinds of env that can be asked for."""

    LOCAL = "local"
    DOCKER = "docker"


KindOption: TypeAlias = Annotated[
    Kind | None,
    typer.Option("--env", metavar="local|docker", help="Kind of env; docker unless given.", show_default=False),
]
Image: TypeAlias = Annotated[
    str | None, typer.Option("--image", metavar="IMAGE", help="Image of the container.", show_default=False)
]
User: TypeAlias = Annotated[
    str | None,
    typer.Option("--user", metavar="UID[:GID]", help="Numeric user of the container's commands.", show_default=False),
]
AgentsFile: TypeAlias = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="File with the envs of agents: YAML, TOML or JSON."),
]
Agent: TypeAlias = Annotated[
    str | None,
    typer.Option("--agent", metavar="NAME", help="Whose env of that file; may be left out where it has only one."),
]
Variables: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("-e", "--variable", metavar="NAME[=VALUE]", help="Environment variable; without a value, ours."),
]
Mounts: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "-v",
        "--mount",
        metavar="SOURCE:TARGET[:ro|:rw]",
        help="Folder of the host (starts with / . or ~; read-only unless :rw) or a named volume, in the container.",
    ),
]

STORE_VARIABLE: Final = "RUNENV_STORE"
"""Names the store where `--store` does not."""

StoreUrl: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        envvar=STORE_VARIABLE,
        help="Artifact store: file:///folder, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix.",
    ),
]
StoreOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--option",
        metavar="NAME=VALUE",
        help="Option of object storage, such as endpoint or region. Others on this host can read a command line: leave"
        " credentials where the vendor's own tools look for them, such as AWS_SECRET_ACCESS_KEY.",
    ),
]
ScopeRun: TypeAlias = Annotated[
    str | None, typer.Option("--run", metavar="ID", help="Whose artifacts: of this run, and of what it is in.")
]
ScopeSession: TypeAlias = Annotated[str | None, typer.Option("--session", metavar="ID", help="Of this session.")]
ScopeUser: TypeAlias = Annotated[str | None, typer.Option("--user", metavar="ID", help="Of this user.")]
ServerScopeUser: TypeAlias = Annotated[
    str | None,
    typer.Option("--scope-user", metavar="ID", help="Of this user, as --user of `runenv artifacts`."),
]
"""The same where `--user` is that of the container."""

_CONFIGS: Final[dict[Kind, type[LocalConfig | DockerConfig]]] = {Kind.LOCAL: LocalConfig, Kind.DOCKER: DockerConfig}
_OPTIONS: Final = {
    "mounts": "--mount",
    "environment": "--variable",
    "memory_bytes": "--memory",
    "spill_quota_bytes": "--max-output",
}
"""Settings whose option has another name."""
_KEY: Final = re.compile(r"\b(?:DockerConfig|LocalConfig|BindMount|VolumeMount)\.(?P<key>\w+)(?:[.\[][\w.\[\]]*)?")
"""A key of a configuration in an error, such as `DockerConfig.mounts[0].target`."""


def env_config(
    kind: Kind | None,
    file: Path | None = None,
    agent: str | None = None,
    *,
    settings: Mapping[str, object],
) -> LocalConfig | DockerConfig:
    """Return the configuration that the options describe.

    Args:
        kind: asked for; a Docker env when neither it nor a file is given.
        file: with the envs of agents.
        agent: which of them.
        settings: what the other options say, over the file; None and empty ones say nothing.

    Raises:
        ConfigError: they contradict each other, or a value is not allowed; it is named by its option.
        OSError: the file cannot be read.
    """
    given = {name: value for name, value in settings.items() if value not in (None, (), {})}
    if file is None:
        if agent is not None:
            raise ConfigError("--agent names an env of a file: give that with --config")
        model, base = _CONFIGS[kind or Kind.DOCKER], {}
    else:
        if kind is not None:
            raise ConfigError("the file that --config names says which kind of env it is: leave out --env")
        config = _agents_env(file, agent)
        model, base = type(config), {name: getattr(config, name) for name in config.model_fields_set}
        for name in ("environment", "mounts"):
            if name in base and name in given:
                given[name] = _both(base[name], given[name])
    for name in given:
        if name not in model.model_fields:
            kinds = f"{model.model_fields['kind'].default} envs"
            raise ConfigError(f"{_option(name)} is not for {kinds}")
    try:
        return model.model_validate({**base, **given})
    except ConfigError as error:  # what the file says was allowed
        raise ConfigError(_KEY.sub(lambda found: _option(found["key"]), str(error))) from None


def _option(setting: str) -> str:
    return _OPTIONS.get(setting, f"--{setting}")


@contextmanager
def blamed(what: str) -> Generator[None]:
    """Name in a refusal what the user has written, instead of the key that it became."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{what}: {re.sub(rf'{_KEY.pattern}: ', '', str(error))}") from None


def _agents_env(file: Path, agent: str | None) -> LocalConfig | DockerConfig:
    agents = read_agents(file)
    if agent is None and len(agents) == 1:
        agent = next(iter(agents))
    names = ", ".join(map(repr, agents)) or "none"
    if agent is None:
        raise ConfigError(f"{str(file)!r} has several envs: say which with --agent (it has {names})")
    if agent not in agents:
        raise ConfigError(f"{str(file)!r} has no agent {agent!r} (it has {names})")
    return agent_config(file, agent, agents[agent])


def _both(first: object, second: object) -> object:
    if isinstance(first, dict) and isinstance(second, dict):
        return first | second
    return (*_items(first), *_items(second))


def _items(value: object) -> tuple[object, ...]:
    return tuple(value) if isinstance(value, Sequence) else ()


def variables_of(texts: Sequence[str] | None) -> dict[str, str]:
    """Read `NAME=VALUE`, or `NAME` for this process' own value, each.

    Raises:
        ConfigError: this process has no such variable.
    """
    variables: dict[str, str] = {}
    for text in texts or ():
        name, has_value, value = text.partition("=")
        if not has_value and name not in os.environ:
            raise ConfigError(f"--variable {name}: there is no such variable here; write {name}=VALUE")
        variables[name] = value if has_value else os.environ[name]
    return variables


def mount_of(text: str) -> Mount:
    """Read `SOURCE:TARGET[:ro|:rw]`.

    Raises:
        ConfigError: it is no such text, or what it names cannot be mounted.
    """
    rest, mode = (text[:-3], text[-2:]) if text.endswith((":ro", ":rw")) else (text, "")
    source, _, target = rest.rpartition(":")
    if not source:
        raise ConfigError(f"--mount {text!r}: write SOURCE:TARGET, such as ./data:/data or work:/workspace")
    with blamed(f"--mount {text!r}"):
        if source.startswith(("/", ".", "~")):
            return BindMount(source=Path(source).expanduser().absolute(), target=target, read_only=mode != "rw")
        if "/" in source:
            raise ConfigError(f"{source!r} is no name for a volume; a folder of this host is written './{source}'")
        return VolumeMount(name=source, target=target, read_only=mode == "ro")


def pairs_of(option: str, texts: Sequence[str] | None) -> dict[str, str]:
    """Read `NAME=VALUE` each, for an option of the command line.

    Raises:
        ConfigError: there is no name or no value; what was written is not repeated, for it may be a secret.
    """
    pairs: dict[str, str] = {}
    for text in texts or ():
        name, has_value, value = text.partition("=")
        if not has_value or not name:
            raise ConfigError(f"{option} takes NAME=VALUE")
        pairs[name] = value
    return pairs


def store_of(url: str | None, options: Sequence[str] | None, *, make: bool = False) -> "ArtifactStore":
    """Return the artifact store that the options name, not open yet.

    Args:
        url: as given or from the environment.
        options: for object storage.
        make: a folder that is not there is to be made.

    Raises:
        ConfigError: there is no such store, or it would end with this command.
    """
    from runenv.artifacts.backends import folder_of
    from runenv.artifacts.store import ArtifactStore

    if url is None:
        raise ConfigError(f"no artifact store is named: give --store URL, or set {STORE_VARIABLE}")
    store = ArtifactStore.open(url, options=pairs_of("--option", options))
    scheme = url.partition(":")[0].lower()
    if scheme == "memory":
        raise ConfigError("memory:// ends with this command: name a store that stays, such as file:///folder")
    if scheme == "file" and not make and not Path(folder_of(url)).is_dir():
        raise ConfigError(f"there is no artifact store {url!r}: its folder is made by `runenv artifacts put`")
    return store


def scope_of(run: str | None, session: str | None, user: str | None) -> "Scope":
    """Return the scope that the options name.

    Raises:
        ConfigError: they name none.
        HandleError: one may not be an id.
    """
    from runenv.artifacts.artifact import Scope

    if run is None and session is None and user is None:
        raise ConfigError("whose artifacts? give --run, --session or --user")
    return Scope(run, session, user)
