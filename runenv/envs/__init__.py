"""Envs: the places where commands run, one backend a module, each imported when it is first used.

`open_env` is the only door for callers; below it are `local.py` and `docker`, on top of `guested`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from runenv.errors import ConfigError

if TYPE_CHECKING:
    from runenv.config import DockerConfig, LocalConfig
    from runenv.env import RunEnv

__all__ = ("open_env",)

_BACKENDS: Final = {"local": ("runenv.envs.local", "LocalEnv"), "docker": ("runenv.envs.docker.env", "DockerEnv")}
"""Module and class by the `kind` of a configuration."""


def open_env(config: LocalConfig | DockerConfig) -> RunEnv:
    """Return the env that a configuration describes, not yet open: `async with` opens it.

    Nothing else is ever started than what the configuration says: there is no fallback to a weaker env.

    Raises:
        ConfigError: `config` is no configuration of an env.
    """
    kind = getattr(config, "kind", None)
    backend = _BACKENDS.get(kind) if isinstance(kind, str) else None
    if backend is None:
        known = ", ".join(sorted(_BACKENDS))
        raise ConfigError(f"open_env takes a configuration of a known kind ({known}), not {config!r}")
    module, name = backend
    env: RunEnv = getattr(import_module(module), name)(config)
    return env
