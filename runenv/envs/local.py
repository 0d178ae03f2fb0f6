"""`LocalEnv`: a working folder on this host, and a guest beside it over a socket pair. No daemon, no container.

The same guest as everywhere: commands are killed as a tree, output is cut and spilled alike, and all of it ends with
the owner. Commands get an allow-listed environment (`PATH HOME LANG TERM TMPDIR`), file verbs stay inside the folder.

This is not a security boundary: commands run as the user who runs this program, can read what that user can read (also
other processes' environment in /proc, where the system allows it), and can use the network. Use a Docker env for code
that is not trusted.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

from runenv.envs.guested.env import GuestedEnv
from runenv.envs.guested.replies import signal_name
from runenv.envs.scratch import remove_tree
from runenv.envs.threads import to_its_end
from runenv.errors import ConfigError, EnvStartError, translate
from runenv.guest import guest_binary
from runenv.guest.frames import Flag, Tag
from runenv.guest.link import Link
from runenv.guest.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runenv.config import LocalConfig

__all__ = ("LocalEnv",)

INHERITED: Final = ("PATH", "HOME", "LANG", "TERM", "TMPDIR")
"""Variables of this process that commands may see; everything else of it they get only by configuration."""
SEND_BUFFER_BYTES: Final = 1024 * 1024
"""Asked of the system for each direction, which gives what it allows: fewer turns of the loop for each megabyte."""
EXIT_TIMEOUT: Final = 10.0
"""Seconds that the guest may take to kill what still runs and exit, before it is killed itself."""

_log = logging.getLogger(__name__)


class LocalEnv(GuestedEnv):
    """A `RunEnv` on this host. Not opened yet when it is made; see `open_env`."""

    def __init__(self, config: LocalConfig) -> None:
        super().__init__(config, f"local-{secrets.token_hex(4)}")
        self._config = config
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._shell: str | None = None
        self._program = ""

    def describe(self) -> Mapping[str, object]:
        """What this env is and what its sandbox allows, as plain data without secrets."""
        return {
            **super().describe(),
            "shell": self._shell,
            "isolation": "none: commands run as this user, on this host",
            "network": "the host's",
            "confine": self._config.confine,
            "temporary": self._config.workdir is None,
        }

    async def _start(self) -> None:
        if sys.platform != "linux":
            raise EnvStartError(f"local envs run on Linux, not on {sys.platform}: use a Docker env here")
        # What the thread makes it keeps in `self`; a cancelled start waits for its end and finds all of it there.
        await to_its_end(self._prepare)
        assert self._socket is not None  # noqa: S101 - made by _prepare
        self._link = link = Link(explain=self._explain_loss)
        await asyncio.get_running_loop().create_unix_connection(lambda: Stream(link), sock=self._socket)
        fields = await link.hello(
            [
                (Tag.WORKDIR, os.fsencode(self._workdir)),
                (Tag.SPILL_DIR, os.fsencode(self._scratch / "spill")),
                (Tag.SCRATCH, os.fsencode(self._scratch)),  # when this process is killed, nobody else removes it
                (Tag.HOME, os.fsencode(self._workdir)),
                (Tag.FLAGS, Flag.CONFINE if self._config.confine else 0),
                *self._hello_fields(),
            ]
        )
        shell = fields.get(Tag.SHELL)
        self._shell = os.fsdecode(shell) if isinstance(shell, bytes) else None

    def _search_program(self) -> list[str]:
        confined = [f"confine={self._scratch / 'spill'}"] if self._config.confine else []
        return [self._program, "search", f"workdir={self._workdir}", *confined]

    @property
    def _scratch(self) -> Path:
        assert self._folder is not None  # noqa: S101 - made by _prepare
        return self._folder

    def _prepare(self) -> None:
        """Make the folders and start the guest. Blocks; for a worker thread."""
        self._program = str(guest_binary())
        workdir = self._config.workdir
        if workdir is not None and not workdir.is_dir():
            raise ConfigError(f"the workdir {str(workdir)!r} is not a folder on this host: make it first")
        with translate({OSError: EnvStartError}, "the local env cannot be set up"):
            self._folder = Path(tempfile.mkdtemp(prefix="runenv-")).resolve()
            if workdir is None:
                workdir = self._folder / "work"
                workdir.mkdir()
            self._workdir = str(workdir.resolve())
            self._socket, guests_end = socket.socketpair()
            with guests_end:
                for end in (self._socket, guests_end):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
                self._process = subprocess.Popen(
                    [self._program],
                    stdin=guests_end.fileno(),
                    stdout=guests_end.fileno(),
                    stderr=subprocess.DEVNULL,
                    cwd=self._workdir,
                    env={name: os.environ[name] for name in INHERITED if name in os.environ},
                    start_new_session=True,  # Ctrl-C in a terminal is for this program, which ends its envs
                )
        self._socket.setblocking(False)  # noqa: FBT003 - the standard library has no keyword

    async def _stop(self) -> None:
        await to_its_end(self._clean_up)

    def _clean_up(self) -> None:
        """Wait for the guest's end and remove the folders. Blocks; for a worker thread."""
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            try:
                self._process.wait(EXIT_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._folder is not None:
            for path, error in remove_tree(self._folder):
                _log.warning("%s of env %s cannot be removed: %s", path, self.id, error)

    async def _explain_loss(self) -> str | None:
        if self._process is None:
            return None
        # The stream has ended, so the process has, or does so now: a short wait, without a thread to be left over.
        for pause in (0.0, 0.01, 0.05, 0.2, 0.5):
            await anyio.sleep(pause)
            if (code := self._process.poll()) is not None:
                return f"killed by {signal_name(-code)}" if code < 0 else f"exit code {code}"
        return None
