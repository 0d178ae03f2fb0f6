"""Copies of artifacts as files, for tools that take paths: on this host or in an env, streamed, and removed again.

Made by `arguments.py` for one call of `expand`. Artifacts get into an env by `transfers.py`.
"""

from __future__ import annotations

import re
import secrets
import shutil
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
from anyio import CancelScope, to_thread

from runenv.artifacts.handles import SCHEME
from runenv.artifacts.transfers import load
from runenv.errors import ConfigError, EnvError

if TYPE_CHECKING:
    from runenv.artifacts.artifact import Record, Scope
    from runenv.artifacts.store import ArtifactStore
    from runenv.env import RunEnv

__all__ = ("Copies",)

ENV_FOLDER: Final = ".artifacts"
"""Holds the copies in an env, in its working folder: the one that every env has and lets us write to."""
CLEAN_UP_TIMEOUT: Final = 30.0
"""Seconds for removing all copies of one call."""

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")


class Copies:
    """The copies of one call, each in a folder of its own and named as the artifact.

    Args:
        store: where the content is.
        scope: whose artifacts may be read.
        env: where copies in an env go, or None.
        folder: where copies on this host go; None for the system's folder of temporary files.
        keep: copies in the env stay, so that the same handle has the same path in every call.
    """

    def __init__(
        self, store: ArtifactStore, scope: Scope, *, env: RunEnv | None, folder: Path | None, keep: bool
    ) -> None:
        self._store = store
        self._scope = scope
        self._env = env
        self._folder = folder
        self._keep = keep
        self._on_host: list[Path] = []
        self._in_env: list[str] = []

    async def on_host(self, record: Record, *, safe: bool) -> str:
        """Write a copy on this host and return its path; `safe` makes a name of letters, digits, `.`, `_` and `-`.

        Raises:
            OSError: it cannot be written.
        """
        make = partial(tempfile.mkdtemp, prefix="artifact-", dir=self._folder)  # private: 0700
        with CancelScope(shield=True):  # one that is made is one that is removed
            self._on_host.append(Path(await to_thread.run_sync(make)))
        path = self._on_host[-1] / _filename(record, safe=safe)
        await self._store.get_file(record.handle, path, scope=self._scope)
        return str(path)

    async def in_env(self, record: Record, *, safe: bool) -> str:
        """Write a copy in the env and return its path there.

        Raises:
            ConfigError: there is no env.
            OSError: it cannot be written.
        """
        if self._env is None:
            raise ConfigError("the form 'env_path' needs an env: give `env`")
        name = record.handle.removeprefix(f"{SCHEME}://")
        if not self._keep:
            name = f"{name}-{secrets.token_hex(4)}"
        folder = f"{self._env.workdir.rstrip('/')}/{ENV_FOLDER}/{name}"
        if not self._keep:
            self._in_env.append(folder)
        path = f"{folder}/{_filename(record, safe=safe)}"
        await load(self._env, record.handle, path, self._store, scope=self._scope)
        return path

    async def remove(self) -> None:
        """Remove the copies, cancelled or not; those of an env that is gone are gone with it."""
        with anyio.move_on_after(CLEAN_UP_TIMEOUT, shield=True):
            while self._on_host:
                await to_thread.run_sync(partial(shutil.rmtree, self._on_host.pop(), ignore_errors=True))
            if self._env is None or not self._in_env:
                return
            with suppress(EnvError, OSError):
                while self._in_env:
                    await self._env.remove(self._in_env.pop(), recursive=True, missing_ok=True)
                await self._env.remove(ENV_FOLDER)  # refused while others have copies in it


def _filename(record: Record, *, safe: bool) -> str:
    """Return the last segment of an artifact's name, as one that stays a single word in a shell where asked for."""
    name = record.name.rpartition("/")[2]
    return _UNSAFE.sub("_", name) if safe else name
