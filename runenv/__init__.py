"""The place where an LLM agent's code runs: one small protocol over a local folder or a Docker container.

    async with open_env(DockerConfig(image="python:3.12-slim")) as env:
        result = await env.exec("python3 -c 'print(6 * 7)'")

This is the table of contents; each name is described where it is defined. A backend and what it needs (the Docker SDK)
is loaded when an env of its kind is opened.
"""

from __future__ import annotations

# What an env is made from.
from runenv.config import BindMount, DockerConfig, LocalConfig, TmpfsMount, VolumeMount
from runenv.config_file import load_config

# The env and how to get one.
from runenv.env import RunEnv
from runenv.envs import open_env

# What goes wrong with it.
from runenv.errors import ConfigError, EnvClosedError, EnvError, EnvLostError, EnvStartError, LimitError, RunEnvError
from runenv.sync import SyncRunEnv, open_env_sync

# What it gives.
from runenv.types import DEFAULT, ExecResult, FileInfo, Output, Refused, TransferResult

__all__ = (
    "DEFAULT",
    "BindMount",
    "ConfigError",
    "DockerConfig",
    "EnvClosedError",
    "EnvError",
    "EnvLostError",
    "EnvStartError",
    "ExecResult",
    "FileInfo",
    "LimitError",
    "LocalConfig",
    "Output",
    "Refused",
    "RunEnv",
    "RunEnvError",
    "SyncRunEnv",
    "TmpfsMount",
    "TransferResult",
    "VolumeMount",
    "load_config",
    "open_env",
    "open_env_sync",
)
