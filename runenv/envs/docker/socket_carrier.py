"""The unix-socket carrier: a way between this host and a guest that does not pass through the engine.

An env begins over attach. Where it may work, the container also gets a folder of this host, read-only, with a socket in
it. Once the guest has greeted, it is asked to connect there, and its link goes on over that connection, before anything
untrusted runs. Then socket and folder are removed: what is left of them in the container is an empty folder that
nothing can be put into, and on the host nothing at all. Attach stays open: its end is still the end of the guest.

Whether engine and guest can see a folder of this host is not guessed: the connection is the proof. An engine of another
machine, a virtual one or one whose socket was passed into a container refuses a mount whose source it does not have;
user namespaces and SELinux may refuse the mount or the connection. Then the env stays on attach, and so do all later
ones of this process on that engine. `env.describe()` tells why. Above it is `env.py`; below it are the link and its
streams.

What it costs: `docker cp` does not work with such a container while it runs, for the engine looks for the source of
every mount each time; `docker exec`, `commit` and `export` do. (2026-11-28: the folder could stay as long as the env,
but then every owner that is killed would leave one.)
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import stat
import sys
import tempfile
import time
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio

from runenv.envs.docker.container import LINK_FOLDER
from runenv.envs.docker.owners import mark, mark_lives
from runenv.envs.threads import to_its_end
from runenv.errors import EnvStartError
from runenv.guest.frames import TOKEN_BYTES
from runenv.guest.stream import LifeLine, Newcomer, Stream

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from runenv.envs.docker.carriers import Carrier
    from runenv.envs.docker.engine import Engine
    from runenv.guest.link import Link

__all__ = ("Listener", "UnreachableError", "listen", "reason_for_attach", "remove_left_folders", "stay_on_attach")

FOLDER_PREFIX: Final = "runenv-link-"
LEFT_SECONDS: Final = 60.0
"""A folder of a process that we cannot see is taken for left when it is older."""
CONNECT_SECONDS: Final = 30.0
"""Bounds the guest's connection; it has greeted, so only a machine under great load takes long."""
SEND_BUFFER_BYTES: Final = 1024 * 1024
"""Asked of the system, which gives what it allows: fewer turns of the loop for each megabyte."""
SOCKET_MODE: Final = 0o666
"""Whoever the guest is; only root and this user come as far as to the socket, through the parent of its folder."""
_FOLDER_MODE: Final = 0o755
_PARENT_MODE: Final = 0o700
# Short: a socket's path has 107 bytes.
_FOLDER: Final = "c"
_SOCKET: Final = "s"
_REASON: Final = "reason for attach"
"""Under which an engine's `known` has it."""


class UnreachableError(Exception):
    """With the folder no guest came up that can be talked to; without it one may. Never leaves the envs."""


def reason_for_attach(engine: Engine) -> str | None:
    """Say why envs on an engine stay on attach, as far as that is known before one is opened."""
    if engine.endpoint.kind != "unix":
        return f"the engine is reached over {engine.endpoint.kind}"
    if sys.platform != "linux":
        return "only Linux has the sockets of Linux containers"
    reason = engine.known.get(_REASON)
    return None if reason is None else str(reason)


def stay_on_attach(engine: Engine, reason: str) -> str:
    """Have all later envs of this process on an engine stay on attach; return the reason as it is kept."""
    return str(engine.known.setdefault(_REASON, " ".join(reason.split())))


@asynccontextmanager
async def listen(engine: Engine) -> AsyncGenerator[Listener | None]:
    """Have a socket for one guest, which is gone afterwards; None where attach has to do."""
    listener = None if reason_for_attach(engine) else Listener()
    try:
        if listener is not None:
            try:
                await to_its_end(listener.make)
            except OSError as error:
                stay_on_attach(engine, f"no socket can be made on this host: {error}")
                listener = None
        yield listener
    finally:
        if listener is not None:
            await to_its_end(listener.remove)


class Listener:
    """A socket in a private folder, for the connection of one guest."""

    def __init__(self) -> None:
        self._parent: Path | None = None
        self._socket: socket.socket | None = None

    def make(self) -> None:
        """Make folder and socket. Blocks; for a worker thread.

        Raises:
            OSError: it cannot be done; what was made is gone.
        """
        parent = Path(tempfile.gettempdir(), f"{FOLDER_PREFIX}{mark()}-{secrets.token_hex(4)}")
        parent.mkdir(_PARENT_MODE)
        self._parent = parent
        try:
            folder = parent / _FOLDER
            folder.mkdir()
            folder.chmod(_FOLDER_MODE)
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.setblocking(False)  # noqa: FBT003 - the standard library has no keyword
            self._socket.bind(str(folder / _SOCKET))
            (folder / _SOCKET).chmod(SOCKET_MODE)
            self._socket.listen(1)
        except OSError:
            self.remove()
            raise

    def remove(self) -> None:
        """Take all of it away, once more is harmless. Blocks; for a worker thread."""
        if self._socket is not None:
            self._socket.close()
        if self._parent is not None:
            with suppress(OSError):  # a folder that somebody put something into is not ours any more
                _remove(self._parent)

    @property
    def mount(self) -> dict[str, Any]:
        """The folder as a mount of a container. `Mounts`, not `Binds`: the engine must not make it."""
        assert self._parent is not None  # noqa: S101 - it was made
        return {
            "Type": "bind",
            "Source": str(self._parent / _FOLDER),
            "Target": LINK_FOLDER,
            "ReadOnly": True,
            "BindOptions": {"Propagation": "rprivate"},
        }

    @contextmanager
    def suspected(self) -> Generator[None]:
        """Take every refusal of a container with the mount as one of the mount: another try, without it, will tell."""
        try:
            yield
        except EnvStartError as error:
            raise UnreachableError(str(error)) from error

    async def take(self, link: Link, carrier: Carrier) -> str | None:
        """Have the guest come over.

        Args:
            link: which has greeted and has no calls yet; afterwards its stream is the connection.
            carrier: its stream until then; afterwards its life line.

        Returns:
            Why the guest stays where it is, or None.

        Raises:
            UnreachableError: nobody can say which of the two the guest reads.
            EnvLostError: the guest has ended.
        """
        token = secrets.token_bytes(TOKEN_BYTES)
        newcomer = Newcomer(token, partial(_move, link, carrier))
        refusal = link.connect(f"{LINK_FOLDER}/{_SOCKET}".encode(), token)
        try:
            with anyio.fail_after(CONNECT_SECONDS):
                await self._admit(newcomer, refusal)
        except TimeoutError as error:
            raise UnreachableError(f"the guest did not connect to the socket within {CONNECT_SECONDS:g} s") from error
        except OSError as error:
            raise UnreachableError(f"the guest's connection cannot be taken: {error}") from error
        finally:
            newcomer.abort()
        if link.has_ended:
            raise await link.ended()
        if not newcomer.proved.done():
            return f"the guest cannot connect to the socket: {refusal.result().strerror}"
        if not newcomer.proved.result():
            raise UnreachableError("it was not the guest that connected to the socket")
        return None

    async def _admit(self, newcomer: Newcomer, refusal: asyncio.Future[OSError]) -> None:
        """Wait until a connection has proved what it is, or none will come."""
        assert self._socket is not None  # noqa: S101 - it was made
        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[None] = loop.create_future()
        loop.add_reader(self._socket, lambda: None if arrived.done() else arrived.set_result(None))
        try:
            await asyncio.wait((arrived, refusal), return_when=asyncio.FIRST_COMPLETED)
        finally:
            loop.remove_reader(self._socket)
        if arrived.done() and not refusal.done():
            connection, _ = self._socket.accept()
            connection.setblocking(False)  # noqa: FBT003 - the standard library has no keyword
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
            await loop.connect_accepted_socket(lambda: newcomer, connection)
            await asyncio.wait((newcomer.proved, refusal), return_when=asyncio.FIRST_COMPLETED)


def _move(link: Link, carrier: Carrier, transport: asyncio.Transport) -> None:
    """Make a guest's connection the stream of its link, in one turn of the loop."""
    if link.has_ended:
        transport.abort()
        return
    stream = Stream(link)
    transport.set_protocol(stream)
    stream.connection_made(transport)
    carrier.set_protocol(LifeLine(link))


def remove_left_folders() -> None:
    """Remove the folders of owners that were killed before their guest had connected. Blocks; for a worker thread."""
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(FOLDER_PREFIX):
                with suppress(OSError):
                    if _is_left(entry):
                        _remove(Path(entry.path))


def _is_left(entry: os.DirEntry[str]) -> bool:
    info = entry.stat(follow_symlinks=False)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
        return False
    is_living = mark_lives(entry.name.removeprefix(FOLDER_PREFIX).rpartition("-")[0])
    return time.time() - info.st_mtime > LEFT_SECONDS if is_living is None else not is_living


def _remove(parent: Path) -> None:
    """Remove a folder, as far as it was made, and nothing that is not of its making."""
    folder = parent / _FOLDER
    (folder / _SOCKET).unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        folder.rmdir()
    parent.rmdir()
