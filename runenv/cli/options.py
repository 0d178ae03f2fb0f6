"""Options that several commands take, and the configuration that they add up to.

An option that is not given leaves what the configuration's own default says: there is no second table of defaults.
Above are the commands; below `runenv.config`.
"""

import enum
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from runenv.config import BindMount, DockerConfig, LocalConfig, Mount, VolumeMount
from runenv.config_file import load_config
from runenv.errors import ConfigError

__all__ = (
    "Agent",
    "AgentsFile",
    "Image",
    "Kind",
    "Mounts",
    "User",
    "Variables",
    "env_config",
    "mount_of",
    "variables_of",
)


class Kind(enum.StrEnum):
    """The kinds of env that can be asked for."""

    LOCAL = "local"
    DOCKER = "docker"


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

_CONFIGS: Final[dict[Kind, type[LocalConfig | DockerConfig]]] = {Kind.LOCAL: LocalConfig, Kind.DOCKER: DockerConfig}
_OPTIONS: Final = {"mounts": "--mount", "environment": "-e", "memory_bytes": "--memory"}
"""Settings whose option has another name."""


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
        ConfigError: they contradict each other.
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
            raise ConfigError(f"{_OPTIONS.get(name, '--' + name)} is not for {kinds}")
    return model.model_validate({**base, **given})


def _agents_env(file: Path, agent: str | None) -> LocalConfig | DockerConfig:
    envs = load_config(file)
    if agent is None and len(envs) == 1:
        return next(iter(envs.values()))
    names = ", ".join(map(repr, envs)) or "none"
    if agent is None:
        raise ConfigError(f"{str(file)!r} has several envs: say which with --agent (it has {names})")
    if agent not in envs:
        raise ConfigError(f"{str(file)!r} has no agent {agent!r} (it has {names})")
    return envs[agent]


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
            raise ConfigError(f"-e {name}: there is no such variable here; write {name}=VALUE")
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
    if source.startswith(("/", ".", "~")):
        return BindMount(source=Path(source).expanduser().absolute(), target=target, read_only=mode != "rw")
    return VolumeMount(name=source, target=target, read_only=mode == "ro")
