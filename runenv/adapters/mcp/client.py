"""What one client has: an env of its own, the tools over it, and a scope for its artifacts. Knows nothing of MCP.

The env is opened at the first use (the client asks for the tools, or calls one), since only an open env can say which
tools it has and what they can do; what reads artifacts needs none. It ends with the client. One that was lost is named
as lost to every call that was under way; the next call gets a new one.

Each env lives in a task of its own: whoever is cancelled while it is opened or used, it is closed where it was opened.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import anyio

from runenv.artifacts import Scope
from runenv.envs import open_env
from runenv.errors import ArtifactError, EnvClosedError, EnvError, EnvLostError
from runenv.tools.images import DEFAULT_LIMITS, ImageLimits
from runenv.tools.paths import PathRules
from runenv.tools.toolset import toolset

if TYPE_CHECKING:
    from collections.abc import Collection
    from types import TracebackType
    from typing import Self

    from anyio.abc import TaskGroup, TaskStatus

    from runenv.artifacts import ArtifactStore
    from runenv.config import DockerConfig, LocalConfig
    from runenv.tools.toolset import Toolset
    from runenv.types import ToolCall, ToolResult

__all__ = ("Client", "Offer")

_log = logging.getLogger(__name__)

MIN_SECRET: Final = 6
"""Characters of a variable's value from which on it is masked in logs."""
FORGET_TIMEOUT: Final = 10.0
"""Seconds that removing the artifacts of a client that has left may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What every client of a server gets.

    Attributes:
        config: of the env that each has for itself.
        store: where artifacts go, open. None: there are no artifacts.
        scope: whose artifacts these are, for all clients alike. None: each client has a run of its own, and sees
            neither the artifacts of another nor those of an earlier one.
        allow: names of the tools; all of them when None.
        deny: names of tools that are left out.
        paths: which paths of the env the tools may touch; `exec` is not bound by it.
        forgets: the artifacts of a client's own run are removed when it leaves. Else they expire as the store has it.
    """

    config: LocalConfig | DockerConfig
    store: ArtifactStore | None = None
    scope: Scope | None = None
    allow: Collection[str] | None = None
    deny: Collection[str] = ()
    paths: PathRules = field(default_factory=PathRules)
    forgets: bool = False


@dataclass(slots=True, eq=False)
class _Place:
    """An open env with its tools; it is closed once `ended` is set."""

    tools: Toolset
    ended: anyio.Event = field(default_factory=anyio.Event)
    closed: anyio.Event = field(default_factory=anyio.Event)


class Client:
    """One client of the server; used within `async with`.

    Args:
        offer: what it gets.
        message_bytes: of one message that it takes.
    """

    def __init__(self, offer: Offer, *, message_bytes: int) -> None:
        self.offer = offer
        self.message_bytes = message_bytes
        self.id = f"mcp-{uuid.uuid4()}"
        self.scope = offer.scope or Scope(run=self.id)
        self._opening = anyio.Lock()
        self._place: _Place | None = None
        self._tasks: TaskGroup | None = None
        self._ended = False
        self._left = anyio.Event()

    @property
    def image_bytes(self) -> int:
        """Bytes of images in one result, so that as base64 they leave a quarter of a message for the rest."""
        return min(DEFAULT_LIMITS.max_bytes, self.message_bytes * 9 // 16)

    @property
    def read_bytes(self) -> int:
        """Bytes of an artifact that one message holds as base64."""
        return (self.message_bytes - 16 * 1024) * 3 // 4

    async def __aenter__(self) -> Self:
        self._tasks = await anyio.create_task_group().__aenter__()
        _log.info("client %s has come", self.id)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        assert self._tasks is not None  # noqa: S101 - it was entered
        place, self._ended = self._place, True
        try:
            self._drop(place)
            with anyio.CancelScope(shield=True):  # an env's close has bounds of its own
                if place is not None:
                    await place.closed.wait()
                await self._forget()
            return await self._tasks.__aexit__(exc_type, exc, traceback)
        finally:
            self._left.set()
            _log.info("client %s has left", self.id)

    async def end(self) -> None:
        """Have the client leave, from another task; returns when its env is closed."""
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()  # around all that happens within `async with`
            await self._left.wait()

    async def tools(self) -> Toolset:
        """Return the tools of its env, which is opened unless it is.

        Raises:
            EnvError: the env did not come up.
            ConfigError: its configuration is none that this host can have.
        """
        return (await self._open()).tools

    async def call(self, call: ToolCall) -> ToolResult:
        """Answer a call of the model.

        Raises:
            EnvLostError: the env broke down; the next call gets another.
            EnvError: it did not come up, or the client has left.
        """
        place = await self._open()
        try:
            return await place.tools.call(call)
        except (EnvLostError, EnvClosedError):
            self._drop(place)
            raise

    async def _open(self) -> _Place:
        async with self._opening:
            if self._tasks is None or self._ended:
                raise EnvClosedError("this session has ended: connect again")
            place = self._place
            if place is None:
                self._place = place = await self._tasks.start(self._live)
            return place

    async def _live(self, *, task_status: TaskStatus[_Place]) -> None:
        offer, place = self.offer, None
        limits = ImageLimits(max_bytes=self.image_bytes)
        try:
            async with (
                open_env(offer.config) as env,
                toolset(
                    env,
                    offer.store,
                    scope=self.scope,
                    allow=offer.allow,
                    deny=offer.deny,
                    paths=offer.paths,
                    image_limits=limits,
                    secrets=_secrets(offer.config),
                ) as tools,
            ):
                place = _Place(tools)
                _log.info("client %s has the env %s", self.id, env.id)
                task_status.started(place)
                await place.ended.wait()
        except EnvError as error:
            if place is None:
                raise
            _log.warning("the env of client %s ended badly: %s", self.id, error)
        finally:
            if place is not None:
                place.closed.set()

    def _drop(self, place: _Place | None) -> None:
        """Have an env closed; once it is no longer the client's, the next call opens another."""
        if place is not None:
            place.ended.set()
            if self._place is place:
                self._place = None

    async def _forget(self) -> None:
        store = self.offer.store
        if store is None or self.offer.scope is not None or not self.offer.forgets:
            return
        with anyio.move_on_after(FORGET_TIMEOUT):
            try:
                await store.clear_scope(self.scope)
            except ArtifactError as error:
                _log.warning("the artifacts of client %s are still there: %s", self.id, error)


def _secrets(config: LocalConfig | DockerConfig) -> list[str]:
    """Return what must not be in a log: values of variables, but for those that could be any word."""
    values = (value.get_secret_value() for value in config.environment.values())
    return [value for value in values if len(value) >= MIN_SECRET]
