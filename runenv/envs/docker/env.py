"""`DockerEnv`: one container, with the guest as its first process and this process attached to it.

The container lives exactly as long as its owner: when this process ends, in whatever way, the stream ends, the guest
exits and the engine removes the container. Where engine and host are one machine, the link then goes past the engine,
over a socket. Nothing of the host is in the container unless the configuration says so. Above it is `open_env`; below
it are the engine's modules, of which only `spec.py` knows a configuration, and `envs/guested` with the verbs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

import anyio

from runenv.envs.docker.container import GUEST_PROGRAM, Container, GuestMissingError
from runenv.envs.docker.engine import Engine
from runenv.envs.docker.faults import EngineFault
from runenv.envs.docker.images import get_image
from runenv.envs.docker.mounts import check_mounts, verify_bind
from runenv.envs.docker.owners import owner
from runenv.envs.docker.socket_carrier import UnreachableError, listen, reason_for_attach, stay_on_attach
from runenv.envs.docker.spec import TMP, Spec
from runenv.envs.docker.sweep import LABEL_ID, LABEL_KIND, LABEL_OWNER, sweep
from runenv.envs.docker.volumes import give_volumes, provide_guest
from runenv.envs.guested.env import GuestedEnv
from runenv.envs.threads import in_thread
from runenv.errors import ConfigError, EnvStartError
from runenv.guest.frames import Tag
from runenv.guest.link import Link

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runenv.config import DockerConfig
    from runenv.envs.docker.carriers import Carrier
    from runenv.envs.docker.images import Image
    from runenv.envs.docker.socket_carrier import Listener
    from runenv.envs.guested.requests import Request

__all__ = ("DockerEnv",)

STOP_SECONDS: Final = 15.0
"""For the removal of the container, after which it is left to the engine and to the next sweep."""
ENGINE_BACK_SECONDS: Final = 5.0
"""How long a close waits for an engine that is restarting."""
_ENGINE_BACK_PAUSE: Final = 0.25
_HELLO_LOOK_SECONDS: Final = 1.0
"""Between two looks whether a container that does not answer runs at all."""

_log = logging.getLogger(__name__)


class DockerEnv(GuestedEnv):
    """A `RunEnv` in a container. Not opened yet when it is made; see `open_env`."""

    def __init__(self, config: DockerConfig) -> None:
        super().__init__(config, f"docker-{secrets.token_hex(6)}")
        self._config = config
        self._user = _numeric(config.user)
        self._spec = Spec(config, self._user)
        self._engine: Engine | None = None
        self._image: Image | None = None
        self._container: Container | None = None
        self._links: list[Link] = []
        self._carriers: list[Carrier] = []
        self._others: dict[str, Link] = {}
        self._other_lock = anyio.Lock()
        self._warnings: tuple[str, ...] = ()
        self._shell: str | None = None
        self._cpus = config.cpus
        self._attach_reason: str | None = None

    # -- what it is

    def describe(self) -> Mapping[str, object]:
        """What this env is and what its sandbox allows, as plain data without secrets."""
        config = self._config
        return {
            **super().describe(),
            "shell": self._shell,
            "container": self._name,
            "engine": None if self._engine is None else self._engine.endpoint.url,
            "carrier": None if self._link is None else "attach" if self._attach_reason else "unix socket",
            "carrier_reason": self._attach_reason,
            "image": config.image,
            "image_id": None if self._image is None else self._image.id,
            "user": self._user,
            "network": config.network,
            "memory_bytes": config.memory_bytes,
            "pids": config.pids,
            "cpus": self._cpus,
            "read_only": config.read_only,
            "in_memory": dict.fromkeys(self._spec.folders_in_memory, "counted against memory_bytes"),
            "cap_add": list(config.cap_add),
            "allow_new_privileges": config.allow_new_privileges,
            "mounts": [mount.model_dump(mode="json") for mount in config.mounts],
            "widened": self._widened(),
            "warnings": list(self._warnings),
        }

    def _widened(self) -> list[str]:
        """Name the settings that allow more than the defaults do."""
        config, default = self._config, type(self._config)()

        def is_over(value: float | None, limit: float | None) -> bool:
            return limit is not None and (value is None or value > limit)

        mounts = [m for m in config.mounts if m.kind == "bind" or (m.kind == "volume" and not m.read_only)]
        widened = {
            "network": config.network != default.network,
            "memory_bytes": is_over(config.memory_bytes, default.memory_bytes),
            "pids": is_over(config.pids, default.pids),
            "cpus": is_over(config.cpus, default.cpus),
            "cap_add": bool(config.cap_add),
            "allow_new_privileges": config.allow_new_privileges,
            "user": self._user.startswith("0:"),
            "mounts": bool(mounts),
        }
        return [name for name, is_wider in widened.items() if is_wider]

    @property
    def _name(self) -> str:
        return f"runenv-{self.id}"

    # -- start

    async def _start(self) -> None:
        config = self._config
        engine = self._engine = await Engine.connect(config.engine)
        self._check_limits(engine)
        if config.mounts:
            await in_thread(lambda: check_mounts(config.mounts, engine.endpoint))
        image = self._image = await get_image(
            engine, config.image, pull=config.pull, timeout=config.pull_timeout, platform=config.platform
        )
        volume = await provide_guest(engine, image)
        await give_volumes(engine, image, self._spec.writable_volumes)
        await sweep(engine)
        try:
            await self._bring_up(engine, image, volume)
        except GuestMissingError:
            await self._remove()
            await provide_guest(engine, image, again=True)
            try:
                await self._bring_up(engine, image, volume)
            except GuestMissingError as error:
                message = f"the volume {volume!r} does not keep the guest: look who empties it"
                raise EnvStartError(message) from error
        self._workdir = config.workdir
        for mount in config.mounts:
            if mount.kind == "bind":
                await verify_bind(self, mount)

    async def _bring_up(self, engine: Engine, image: Image, volume: str) -> None:
        """Have a container with a guest that answers; by attach alone, where the first try shows that it must be."""
        async with listen(engine) as listener:
            try:
                self._attach_reason = await self._make(engine, image, volume, listener)
            except UnreachableError as error:
                reason = str(error)
                await self._links.pop().aclose()
            else:
                return
        await self._remove()
        await self._make(engine, image, volume, None)
        self._attach_reason = stay_on_attach(engine, reason)  # it was the socket: without it, all went well

    async def _make(self, engine: Engine, image: Image, volume: str, listener: Listener | None) -> str | None:
        """Make, start and greet a container; return why the link stays on attach, or None."""
        container = self._container = Container(engine, self._name)
        self._cpus = self._spec.cpus(engine.facts.cpus)
        body = self._spec.body(
            labels={LABEL_OWNER: await in_thread(owner), LABEL_ID: self.id, LABEL_KIND: self.kind},
            volume=volume,
            mounts=[] if listener is None else [listener.mount],
            cpus=self._cpus,
        )
        link = self._new_link()
        with nullcontext() if listener is None else listener.suspected():
            self._warnings = await container.create(body, platform=self._config.platform)
            if not self._config.read_only:
                await container.put_folders(self._spec.folders, image=image.id)
            carrier = await container.attach(link)
            self._carriers.append(carrier)
            await container.start()
        fields = await self._greet(link, self._request(""))
        shell = fields.get(Tag.SHELL)
        self._shell = os.fsdecode(shell) if isinstance(shell, bytes) else None
        if listener is None:
            reason = reason_for_attach(engine)
        elif reason := await listener.take(link, carrier):
            stay_on_attach(engine, reason)
        self._link = link
        return reason

    def _new_link(self) -> Link:
        link = Link(explain=self._explain_loss)
        self._links.append(link)  # closed at the end, also when the start does not come as far as to use it
        return link

    async def _greet(self, link: Link, request: Request) -> Mapping[Tag, object]:
        """Say hello; an end of the container that its stream does not tell is seen all the same."""
        hello = asyncio.ensure_future(link.hello(request))
        try:
            while not (await asyncio.wait({hello}, timeout=_HELLO_LOOK_SECONDS))[0]:
                assert self._container is not None  # noqa: S101 - it was started
                state = await self._container.state()
                if not state.running:
                    link.lose(state.reason or "its container has ended")
            return await hello
        finally:
            hello.cancel()

    def _spill_folder(self, suffix: str) -> str:
        return f"{TMP}/.runenv-{self.id}{suffix}"

    def _request(self, suffix: str) -> Request:
        # The last of a tag is refused by the guest, so the smaller quota replaces the configured one.
        fields = [(tag, value) for tag, value in self._hello_fields() if tag is not Tag.SPILL_QUOTA]
        return [
            (Tag.WORKDIR, self._config.workdir.encode()),
            (Tag.SPILL_DIR, self._spill_folder(suffix).encode()),
            (Tag.SPILL_QUOTA, self._spec.spill_quota_bytes),
            (Tag.HOME, f"{TMP}/home{suffix}".encode()),
            (Tag.FLAGS, 0),
            *fields,
        ]

    def _check_limits(self, engine: Engine) -> None:
        for setting in engine.facts.missing:
            if getattr(self._config, setting) is not None:
                raise EnvStartError(
                    f"the Docker engine's kernel cannot keep the limit {setting!r}: enable its cgroup controller, or"
                    f" set {setting}=None to go without"
                )

    # -- other users

    def _user_at(self, path: str) -> str | None:
        begun = self._spill_folder("")
        if not path.startswith(f"{begun}-"):
            return None
        folder = path[len(begun) :].partition("/")[0]
        return next((user for user in self._others if folder == _suffix(user)), None)

    def _search_program(self) -> list[str]:
        return [GUEST_PROGRAM, "search", f"workdir={self._workdir}"]

    async def _link_for(self, user: str) -> Link:
        """Return the link to a guest that runs as another user, started at first use; it has no capabilities either."""
        user = _numeric(user)
        link = await self._ready()
        if user == self._user:
            return link
        async with self._other_lock:
            other = self._others.get(user)
            if other is None or other.has_ended:
                assert self._container is not None  # noqa: S101 - the env is open
                other = self._new_link()
                self._carriers.append(await self._container.exec(user, other))
                await self._greet(other, self._request(_suffix(user)))
                self._others[user] = other
        return other

    # -- end

    async def _explain_loss(self) -> str | None:
        if self._container is None:
            return None
        return (await self._container.state(settle=True)).reason or None

    async def _stop(self) -> None:
        # A loop that is gone took its streams with it.
        if self._loop is asyncio.get_running_loop():
            for link in self._links:
                await link.aclose()
            for carrier in self._carriers:
                carrier.abort()
        await self._remove()
        if self._carriers and self._loop is asyncio.get_running_loop():
            await asyncio.wait([carrier.closed for carrier in self._carriers], timeout=ENGINE_BACK_SECONDS)
        if self._engine is not None:
            await self._engine.close()

    async def _remove(self) -> None:
        """Remove the container; what the engine does not do now, it does when it is back, or a sweep does."""
        if self._container is None:
            return
        reason = f"no answer within {STOP_SECONDS:.0f} s"
        with anyio.move_on_after(STOP_SECONDS):
            deadline = anyio.current_time() + ENGINE_BACK_SECONDS
            while True:
                try:
                    await self._container.remove()
                except EngineFault as fault:
                    reason = str(fault)
                    if fault.status is not None or anyio.current_time() > deadline:
                        break
                    await anyio.sleep(_ENGINE_BACK_PAUSE)
                else:
                    return
        _log.warning("the container %s was not removed: %s", self._name, reason)


def _suffix(user: str) -> str:
    """Return what tells the folders of a user's guest from those of the env's own."""
    return f"-{user.replace(':', '-')}"


def _numeric(user: str) -> str:
    """Return "uid:gid": names would be looked up in the image, which may not have them or may say anything."""
    uid, _, gid = user.partition(":")
    if not uid.isdecimal() or not (gid or uid).isdecimal():
        message = f"the user {user!r} is no number: write uid or uid:gid, such as 1000:1000"
        raise ConfigError(message)
    return f"{int(uid)}:{int(gid or uid)}"
