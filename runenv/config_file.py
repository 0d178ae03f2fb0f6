"""Reads the envs of several agents from one YAML, TOML or JSON file. What a key may hold is `runenv.config`'s business.

    coder:
      kind: docker
      image: runenv-python
      environment: {TOKEN: "${CODER_TOKEN}"}
    writer:
      kind: local

The top level maps the name of an agent to its env. `${NAME}` stands for a variable of this process and works in the
values of `environment` only, so that a file cannot make the host's variables part of anything else; `$$` is a dollar.
YAML is read as YAML 1.2 reads plain scalars: `1000:50` and `yes` are text.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from runenv.config import DockerConfig, LocalConfig
from runenv.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ("agent_config", "load_config", "read_agents")

MAX_FILE_BYTES: Final = 256 * 1024
"""Of a configuration file; bounds the work on a wrong or hostile one (YAML is slow: ten seconds at worst)."""
MAX_YAML_KEYS: Final = 1000
"""Of one mapping after its merges (`<<`), which can multiply otherwise."""

_KINDS: Final[dict[object, type[LocalConfig | DockerConfig]]] = {"docker": DockerConfig, "local": LocalConfig}
_DOLLAR: Final = re.compile(r"\$(?:(?P<escaped>\$)|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}|(?P<broken>\{))", re.ASCII)


def load_config(path: str | Path) -> dict[str, LocalConfig | DockerConfig]:
    """Read the envs of agents from a file.

    Args:
        path: a file whose name ends in `.yaml`, `.yml`, `.toml` or `.json`, of at most 256 KiB.

    Returns:
        The configuration of each agent's env by the agent's name, in the order of the file.

    Raises:
        ConfigError: the file is no such file; the sentence names file, agent and key.
        OSError: it cannot be read.
    """
    return {agent: agent_config(path, agent, settings) for agent, settings in read_agents(path).items()}


def read_agents(path: str | Path) -> dict[str, object]:
    """Read what a file says of each agent's env, without a look at it.

    Args:
        path: as for `load_config`.

    Returns:
        The settings of each agent by its name, in the order of the file; `agent_config` makes an env of them.

    Raises:
        ConfigError: the file is no such file.
        OSError: it cannot be read.
    """
    file = Path(path)
    agents = _parse(file)
    if not isinstance(agents, dict):
        raise ConfigError(f"{str(file)!r}: the top level must map names of agents to their envs")
    for agent in agents:
        if not isinstance(agent, str):
            raise ConfigError(f"{str(file)!r}: the name of an agent must be text: put {agent!r} in quotes")
    return agents


def agent_config(path: str | Path, agent: str, settings: object) -> LocalConfig | DockerConfig:
    """Return the configuration of one agent's env.

    Args:
        path: of the file, for errors.
        agent: its name, for errors.
        settings: as `read_agents` gave them; the variables that they name are looked up now.

    Raises:
        ConfigError: they are none; the sentence names file, agent and key.
    """
    try:
        return _config(settings)
    except ConfigError as error:
        raise ConfigError(f"{str(path)!r}: agent {agent!r}: {error}") from None  # the cause may hold values


def _config(settings: object) -> LocalConfig | DockerConfig:
    if not isinstance(settings, dict) or not all(isinstance(key, str) for key in settings):
        raise ConfigError("an env must be a mapping of keys to values, with a 'kind'")
    settings = dict(settings)
    kinds = " or ".join(repr(kind) for kind in _KINDS)
    kind = settings.get("kind")
    if kind is None:
        raise ConfigError(f"'kind' is missing: {kinds}")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ConfigError(f"there is no kind {kind!r}: it is {kinds}")
    variables = settings.pop("environment", {})
    for key, value in settings.items():
        if any("${" in text for text in _texts(value, set())):
            raise ConfigError(f"{key!r} has a '${{': the host's variables work in the values of 'environment' only")
    if isinstance(variables, dict):
        variables = {name: _expand(name, value) for name, value in variables.items()}
    return _KINDS[kind].model_validate(settings | {"environment": variables})


def _texts(value: object, seen: set[int]) -> Iterator[str]:
    """Every text in `value`; what YAML refers to many times is looked at once."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list) and id(value) not in seen:
        seen.add(id(value))
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item, seen)


def _expand(name: object, value: object) -> object:
    """Put this process' variables into one value of `environment`."""
    if not isinstance(value, str):
        return value

    def put(found: re.Match[str]) -> str:
        if found["escaped"]:
            return "$"
        if found["broken"]:
            raise ConfigError(f"environment {name!r} has a '${{' that is no '${{NAME}}'; a plain dollar is '$$'")
        try:
            return os.environ[found["name"]]
        except KeyError:
            raise ConfigError(f"environment {name!r} needs the variable {found['name']!r}, which is not set") from None

    return _DOLLAR.sub(put, value)


def _parse(file: Path) -> object:
    parse = _PARSERS.get(file.suffix.lower())
    if parse is None:
        raise ConfigError(f"{str(file)!r}: the name must end in one of {', '.join(_PARSERS)}")
    with file.open("rb") as stream:
        content = stream.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(f"{str(file)!r} is over {MAX_FILE_BYTES} bytes: that is no configuration")
    try:
        return parse(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{str(file)!r} is not UTF-8: byte {error.start} is wrong") from None
    except RecursionError:
        raise ConfigError(f"{str(file)!r} is nested too deep") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ConfigError(f"{str(file)!r}: {place}{error.problem or error.context}") from None  # it quotes the line
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ConfigError(f"{str(file)!r}: {place}: {error.msg}") from None  # it holds the whole file
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{str(file)!r}: {error}") from None


def _json(text: str) -> object:
    return json.loads(text, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    mapping: dict[str, object] = {}
    for key, value in pairs:
        if key in mapping:
            raise ValueError(f"the key {key!r} is there twice")
        mapping[key] = value
    return mapping


def _yaml(text: str) -> object:
    return yaml.load(text, Loader=_Loader)  # noqa: S506 - it is a safe loader


class _Loader(yaml.SafeLoader):
    """A safe loader that refuses repeated keys and merges that multiply, and reads plain scalars as YAML 1.2."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:  # noqa: ANN401 - as its base
        node = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                name = (key.tag, key.value)
                if name in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"the key {key.value!r} is there twice", problem_mark=key.start_mark
                    )
                seen.add(name)
        return node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        for key, value in node.value:
            if key.tag == "tag:yaml.org,2002:merge" and not isinstance(value, yaml.MappingNode):
                raise yaml.MarkedYAMLError(problem="'<<' takes one mapping", problem_mark=key.start_mark)
        super().flatten_mapping(node)
        if len(node.value) > MAX_YAML_KEYS:
            raise yaml.MarkedYAMLError(problem="too many keys in one mapping", problem_mark=node.start_mark)


def _plain_scalars() -> Mapping[str | None, list[tuple[str, re.Pattern[str]]]]:
    """What unquoted text is, by its first character: null, true, false, numbers, `<<`; all else is text."""
    patterns = (
        ("null", r"~|null|Null|NULL|", "~nN\0"),
        ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
        ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
        ("float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?", "-+.0123456789"),
        ("merge", r"<<", "<"),
    )
    table: dict[str | None, list[tuple[str, re.Pattern[str]]]] = {}
    for tag, pattern, firsts in patterns:
        for first in firsts:
            key = "" if first == "\0" else first
            table.setdefault(key, []).append((f"tag:yaml.org,2002:{tag}", re.compile(rf"(?:{pattern})\Z")))
    return table


_Loader.yaml_implicit_resolvers = dict(_plain_scalars())

_PARSERS: Final[dict[str, Callable[[str], object]]] = {
    ".yaml": _yaml,
    ".yml": _yaml,
    ".toml": tomllib.loads,
    ".json": _json,
}
