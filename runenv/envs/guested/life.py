"""An env's life: opened once, closed once, and in between a link that its verbs may use.

`Life` holds what a backend has to do and what happens around it: a start that fails or is cancelled leaves nothing
behind, a close goes through whoever cancels its caller, and calls before, after or from another event loop are told so.
Above it is `env.py`, which adds the verbs; below are the link and `requests.py`.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol, Self

from runenv.envs.guested.requests import variable
from runenv.envs.threads import outlast
from runenv.errors import ConfigError, EnvClosedError, EnvError
from runenv.guest.frames import FrameError, Tag

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from types import TracebackType

    from pydantic import SecretStr

    from runenv.envs.guested.requests import Request
    from runenv.guest.link import Link

__all__ = ("GuestedConfig", "Life")

MASKED_CHARS: Final = 6
"""Shorter values of variables are no secrets, and stand in many texts."""
CLOSE_TIMEOUT: Final = 60.0
"""Bounds the wait for a close that was cancelled; each of its steps has a bound of its own."""


class GuestedConfig(Protocol):
    """What the verbs need of a configuration."""

    @property
    def kind(self) -> str:
        """Name of the backend."""
        ...

    @property
    def environment(self) -> Mapping[str, SecretStr]:
        """Variables of every command."""
        ...

    @property
    def timeout(self) -> float | None:
        """Deadline of a command that has none of its own."""
        ...

    @property
    def max_output_bytes(self) -> int:
        """What crosses the link of each stream, unless the call says otherwise."""
        ...

    @property
    def max_text_chars(self) -> int:
        """Length of the text of a stream."""
        ...

    @property
    def spill_quota_bytes(self) -> int:
        """What all spill files together may take."""
        ...


class Life:
    """What every env with a guest has before it has verbs.

    A backend's `_start` assigns `self._link` once the guest has answered HELLO, and `self._workdir`.
    """

    def __init__(self, config: GuestedConfig, env_id: str) -> None:
        self._settings = config
        self._id = env_id
        self._workdir = ""
        self._link: Link | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._start_ended: asyncio.Future[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    # -- what a backend does

    async def _start(self) -> None:
        """Bring the guest up and assign `_link` and `_workdir`. What it made when it fails, `_stop` takes away."""
        raise NotImplementedError

    async def _stop(self) -> None:
        """End and remove all that `_start` made, as far as it came. The link is closed. Must not raise."""
        raise NotImplementedError

    async def _explain_loss(self) -> str | None:
        """Say why the guest is gone, if that can be found out within a second."""
        return None

    async def _link_for(self, user: str) -> Link:
        """Return a link to a guest that runs as another user."""
        raise ConfigError(f"a {self.kind} env runs all commands as one user, it cannot run one as {user!r}")

    def _user_at(self, path: str) -> str | None:  # noqa: ARG002 - for backends with more than one guest
        """Return the user whose guest alone can read a path: a spill file of theirs; None for the env's own."""
        return None

    def _search_program(self) -> list[str]:
        """Return the command of `guest search` in this env, with the arguments that say where it may look."""
        raise NotImplementedError

    def _hello_fields(self) -> Request:
        """Return what every guest is told about this env, without the paths."""
        fields: Request = [(Tag.SPILL_QUOTA, self._settings.spill_quota_bytes)]
        for name, value in self._settings.environment.items():
            try:
                fields.append((Tag.ENV, variable(name, value.get_secret_value())))
            except ValueError as error:
                raise ConfigError(f"environment: {error}") from None  # the cause would hold the value
        return fields

    # -- life

    @property
    def id(self) -> str:
        """Short name of this env."""
        return self._id

    @property
    def kind(self) -> str:
        """The `kind` of its configuration."""
        return self._settings.kind

    @property
    def workdir(self) -> str:
        """Absolute path, inside the env, where relative paths start."""
        return self._workdir

    def describe(self) -> Mapping[str, object]:
        """What this env is and what its sandbox allows, as plain data without secrets."""
        return {
            "kind": self.kind,
            "id": self.id,
            "workdir": self.workdir,
            "environment": sorted(self._settings.environment),
            "timeout": self._settings.timeout,
            "max_output_bytes": self._settings.max_output_bytes,
        }

    def mask(self, text: str) -> str:
        """Hide the values of the configured variables; see `Masks.mask`."""
        values = {value.get_secret_value() for value in self._settings.environment.values()}
        for value in sorted(values, key=len, reverse=True):
            if len(value) >= MASKED_CHARS:
                text = text.replace(value, "***")
        return text

    async def __aenter__(self) -> Self:
        if self._loop is not None:
            raise EnvClosedError(f"this {self.kind} env was opened before: make another one with open_env")
        self._loop = asyncio.get_running_loop()
        self._start_ended = self._loop.create_future()
        try:
            try:
                await self._start()
            finally:
                self._start_ended.set_result(None)
            if self._closing is not None:
                raise EnvClosedError(f"the {self.kind} env {self.id} was closed while it started")
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the env and everything that runs in it; harmless when called again, at the same time, or cancelled.

        Raises:
            EnvError: called from another event loop while the env's own is still there.
        """
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop  # never opened: it stays closed
        if self._loop is not loop and not self._loop.is_closed():
            raise EnvError("this env belongs to another event loop: close it there, or use open_env_sync")
        if self._closing is None:
            self._closing = loop.create_task(self._close())
        if self._closing.get_loop() is loop:
            await outlast(self._closing, CLOSE_TIMEOUT)
            if self._closing.done():
                self._closing.result()

    async def _close(self) -> None:
        try:
            # A loop that is gone took start and link with it; the guest has seen its end.
            if self._loop is asyncio.get_running_loop():
                if self._start_ended is not None:
                    await self._start_ended
                if self._link is not None:
                    await self._link.aclose()
        finally:
            await self._stop()

    # -- for verbs

    async def _ready(self) -> Link:
        """Return the link, once it may be written to."""
        link = self._link
        if link is None or self._closing is not None:
            raise EnvClosedError(f"the {self.kind} env {self.id} is not open")
        link.check_loop()
        if link.has_ended:
            raise await link.ended()
        if link.is_paused:
            await link.drain()
        return link

    @contextmanager
    def _distrust(self, link: Link) -> Generator[None]:
        """Give up a guest whose answer cannot be right."""
        try:
            yield
        except FrameError as error:
            link.lose(f"the guest broke the protocol: {error}")
            raise link.error() from error
