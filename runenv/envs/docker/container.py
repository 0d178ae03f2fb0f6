"""One container on the engine: made, attached to, started, asked how it is, removed.

Knows neither link nor configuration. Above it is `env.py`; below it `engine.py`.
"""

from __future__ import annotations

import base64
import io
import json
import tarfile
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from runenv.envs.docker.engine import Client, check, faults, json_of, url
from runenv.envs.docker.faults import EngineFault
from runenv.envs.threads import in_thread
from runenv.errors import EnvStartError, translate

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from runenv.envs.docker.carriers import Carrier
    from runenv.envs.docker.engine import Engine

__all__ = (
    "GUEST_FOLDER",
    "GUEST_PROGRAM",
    "LINK_FOLDER",
    "Container",
    "Folder",
    "GuestMissingError",
    "State",
    "give_folders",
    "remove_container",
)

GUEST_FOLDER: Final = "/.runenv"
"""Where the volume with the guest is mounted in every container."""
GUEST_PROGRAM: Final = f"{GUEST_FOLDER}/guest"
LINK_FOLDER: Final = f"{GUEST_FOLDER}/link"
"""An empty folder of that volume, for the socket that the guest may connect to."""
EXPLAIN_SECONDS: Final = 0.7
"""For the engine to say what became of a container: whoever asks waits at most a second."""
EXPLAIN_PAUSE_SECONDS: Final = 0.05
"""Between two looks: the stream of a dying container ends a little before the engine knows of the death."""
REMOVE_SECONDS: Final = 10
"""For a removal that the engine has under way already."""
NOT_FOUND: Final = 404
CONFLICT: Final = 409
_WORLD_WRITABLE: Final = 0o002
_OWNER_ALL: Final = 0o700
_FOLDER_BIT: Final = 1 << 31  # of a mode as the archive API tells it: Go's os.ModeDir
_LINK_BIT: Final = 1 << 27  # Go's os.ModeSymlink
_KILLED: Final = 137


class GuestMissingError(Exception):
    """The guest's volume is there and the guest is not in it: fill it and start again. Never leaves the envs."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that must be in a container.

    Attributes:
        path: absolute.
        uid: owner.
        gid: group.
        mode: permission bits of a new one; everyone's if everyone may write.
    """

    path: str
    uid: int
    gid: int
    mode: int = 0o755


@dataclass(frozen=True, slots=True)
class State:
    """How a container is, or what became of it.

    Attributes:
        running: its guest may still answer.
        reason: a clause for an error message, or "" when nothing is known.
    """

    running: bool
    reason: str


class Container:
    """A container by its name, from before it exists until it is gone."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.name: Final = name
        self._engine = engine
        # A creation that was cancelled may still be under way in its thread: the removal waits for it.
        self._lock = threading.Lock()
        self._unwanted = False

    async def create(self, body: dict[str, Any], *, platform: str | None) -> tuple[str, ...]:
        """Make it, not started, and return the engine's warnings.

        Raises:
            EnvStartError: the engine refuses.
        """

        def create(client: Client) -> tuple[str, ...]:
            with self._lock:
                if self._unwanted:
                    raise EngineFault("it is not wanted any more")
                try:
                    with faults():
                        answer = client.create_container_from_config(body, self.name, platform)
                except EngineFault as fault:
                    # A try whose answer got lost has made it: nobody else uses our random names.
                    if fault.status == CONFLICT and self.name in str(fault):
                        return ()
                    raise
                return tuple(answer.get("Warnings") or ())

        with translate({EngineFault: EnvStartError}, f"the Docker engine made no container of {body['Image']!r}"):
            return await self._engine.call(create)

    async def attach(self, link: asyncio.Protocol) -> Carrier:
        """Make the main process' stdin and stdout the link's transport; before `start`, to miss nothing.

        Raises:
            EnvStartError: the engine refuses.
        """
        return await self._engine.stream(f"/containers/{self.name}/attach?stream=1&stdin=1&stdout=1&stderr=1", link)

    async def start(self) -> None:
        """Start it.

        Raises:
            GuestMissingError: the guest's volume is empty.
            EnvStartError: the engine refuses.
        """
        try:
            with translate({EngineFault: EnvStartError}, "the Docker engine did not start the container"):
                await self._engine.call(lambda client: client.start(self.name))
        except EnvStartError as error:
            text = str(error)
            if GUEST_PROGRAM in text and ("no such file" in text or "not found" in text):
                raise GuestMissingError from error
            raise

    async def exec(self, user: str, link: asyncio.Protocol) -> Carrier:
        """Start a second guest as another user; its stdin and stdout become the link's transport.

        Raises:
            EnvStartError: the engine refuses.
        """

        def create(client: Client) -> str:
            identity: str = client.exec_create(
                self.name, [GUEST_PROGRAM], stdin=True, tty=False, user=user, workdir="/"
            )["Id"]
            return identity

        with translate({EngineFault: EnvStartError}, f"the Docker engine made no second guest for user {user!r}"):
            identity = await self._engine.call(create)
        return await self._engine.stream(f"/exec/{identity}/start", link, body={"Detach": False, "Tty": False})

    async def put_folders(self, folders: Sequence[Folder], *, image: str | None) -> None:
        """Make the folders, or give them to their owner, where they are not right already.

        Args:
            folders: what must be there.
            image: id of the image that they are a part of, to remember for the next container which are right;
                None when they are not the image's.

        Raises:
            EnvStartError: the engine refuses.
        """
        known = self._engine.known
        wanted = [folder for folder in folders if (image, folder) not in known]
        if not wanted:
            return

        message = f"the folders {', '.join(folder.path for folder in wanted)} could not be made in the container"
        with translate({EngineFault: EnvStartError}, message):
            right = await self._engine.call(lambda client: give_folders(client, self.name, wanted))
        if image is not None:
            known.update({(image, folder): True for folder in right})

    async def state(self, *, settle: bool = False) -> State:
        """Say how it is, or from the engine's memory of events what became of it; takes less than a second.

        Args:
            settle: wait a little for the end of one that seems to run still.
        """
        client: Client = self._engine.client

        def ask() -> State:
            deadline = time.monotonic() + EXPLAIN_SECONDS
            while True:
                state = _read_state(client, self.name)
                if not settle or not state.running or state.reason or time.monotonic() > deadline:
                    return state
                time.sleep(EXPLAIN_PAUSE_SECONDS)

        return await in_thread(ask)

    async def remove(self) -> None:
        """Kill it and delete it with its anonymous volumes; it is gone when this returns.

        When cancelled, the removal goes on by itself.

        Raises:
            EngineFault: the engine does not do it.
        """

        def remove(client: Client) -> None:
            with self._lock:
                self._unwanted = True
                remove_container(client, self.name)

        await self._engine.call(remove, abandon=True)


def remove_container(client: Client, name: str) -> None:
    """Kill and delete a container, in a worker thread; harmless when it is gone or going.

    Raises:
        EngineFault: the engine does not do it.
    """
    try:
        with faults():
            client.remove_container(name, v=True, force=True)
    except EngineFault as fault:
        if fault.status == NOT_FOUND:
            return
        if fault.status != CONFLICT:
            # The daemon fails where its own kill and the process' end cross; another try finds it ended.
            raise EngineFault(str(fault), status=fault.status, transient=fault.status is not None) from fault
    else:
        return
    try:  # being told so at its creation, it removes itself
        with faults():
            client.wait(name, timeout=REMOVE_SECONDS, condition="removed")
    except EngineFault as fault:
        if fault.status != NOT_FOUND:
            raise


def give_folders(client: Client, name: str, folders: Sequence[Folder]) -> list[Folder]:
    """Make folders in a container, or give them to their owner, in a worker thread; return those that were right."""
    right, wrong = [], []
    for folder in folders:
        found, is_right = _look_at(client, name, folder)
        if is_right:
            right.append(folder)
        else:
            wrong.append(found)
    if wrong:
        client.put_archive(name, "/", _folders_tar(wrong))
    return right


def _folders_tar(folders: Sequence[Folder]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for folder in folders:
            entry = tarfile.TarInfo(folder.path.strip("/"))
            entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, folder.mode, int(time.time())
            entry.uid, entry.gid = folder.uid, folder.gid
            archive.addfile(entry)
    return buffer.getvalue()


def _look_at(client: Client, name: str, folder: Folder) -> tuple[Folder, bool]:
    """Return the folder as it has to be put, and whether that is needed."""
    path = url(client, "/containers/{0}/archive", name)  # get_archive would fetch all that is in it
    seconds = client.timeout
    answer = client.head(path, params={"path": folder.path}, timeout=seconds)
    if answer.status_code == NOT_FOUND:
        return folder, False
    check(client, answer)
    found = json.loads(base64.b64decode(answer.headers["X-Docker-Container-Path-Stat"]))
    mode = found["mode"]
    if mode & _LINK_BIT and (target := found.get("linkTarget")) and target != folder.path:
        return _look_at(client, name, replace(folder, path=target))
    if not mode & _FOLDER_BIT:
        raise EngineFault(f"{folder.path} is in the image, and is no folder")
    if mode & _WORLD_WRITABLE or folder.mode & _WORLD_WRITABLE:
        return folder, bool(mode & _WORLD_WRITABLE)
    # The owner stands only in the archive: its first entry is read and the rest is left.
    plain = {"Accept-Encoding": "identity"}
    answer = client.get(path, params={"path": folder.path}, headers=plain, stream=True, timeout=seconds)
    with answer:
        check(client, answer)
        try:
            entry = tarfile.open(fileobj=answer.raw, mode="r|").next()  # noqa: SIM115 - closed with the answer
        except tarfile.TarError as error:
            raise EngineFault(f"its archive of {folder.path} is damaged: {error}") from error
    if entry is None:
        return folder, False
    wanted = replace(folder, mode=entry.mode & 0o7777 | _OWNER_ALL)
    return wanted, entry.uid == folder.uid and entry.mode & _OWNER_ALL == _OWNER_ALL


def _read_state(client: Client, name: str) -> State:
    try:
        with faults():
            answer = client.get(url(client, "/containers/{0}/json", name), timeout=EXPLAIN_SECONDS)
            state = json_of(client, answer)["State"]
    except EngineFault as fault:
        if fault.status == NOT_FOUND:
            return State(running=False, reason=_read_events(client, name) or "the container was removed")
        return State(running=False, reason=f"the Docker engine does not answer: {fault}")
    if state.get("Paused"):
        return State(running=True, reason="the container is paused")
    if state.get("Running") or state.get("Status") == "created":
        return State(running=True, reason="")
    if state.get("OOMKilled"):
        return State(running=False, reason=_OUT_OF_MEMORY)
    reason = _read_events(client, name) or f"the container ended with exit code {state.get('ExitCode')}"
    return State(running=False, reason=f"{reason}: {state['Error']}" if state.get("Error") else reason)


_OUT_OF_MEMORY: Final = "the kernel ended it for want of memory: raise memory_bytes"


def _read_events(client: Client, name: str) -> str:
    """Say what ended a container; the engine remembers its last few hundred events."""
    events: list[dict[str, Any]] = []
    params = {
        "since": "1",
        "until": f"{time.time():.6f}",
        "filters": json.dumps({"container": [name], "type": ["container"]}),
    }
    try:
        with faults():
            answer = client.get(url(client, "/events"), params=params, timeout=EXPLAIN_SECONDS)
            check(client, answer)
            events = [json.loads(line) for line in answer.text.splitlines() if line.strip()]
    except EngineFault:
        return ""
    actions = {event.get("Action", ""): event.get("Actor", {}).get("Attributes", {}) for event in events}
    code = actions.get("die", {}).get("exitCode")
    if "kill" in actions:
        return f"the container was ended from outside, by signal {actions['kill'].get('signal', 'unknown')}"
    if "oom" in actions and code == str(_KILLED):
        return _OUT_OF_MEMORY
    return f"the container ended with exit code {code}" if code is not None else ""
