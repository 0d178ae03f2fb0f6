"""Images: is it there, which processor is it for, and fetching it.

Whoever asks for an image that is being fetched waits for that one pull, whichever event loop of the process started it.
Above it is `env.py`; below it `engine.py`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import anyio

from runenv.envs.docker.engine import Client, fetch_image
from runenv.envs.docker.faults import EngineFault, attempt
from runenv.errors import EnvStartError, translate

if TYPE_CHECKING:
    from runenv.envs.docker.endpoint import Endpoint
    from runenv.envs.docker.engine import Engine

__all__ = ("Image", "get_image")

_NOT_FOUND: Final = 404


@dataclass(frozen=True, slots=True)
class Image:
    """An image that the engine holds.

    Attributes:
        id: hash of its content.
        machine: processor that it is for.
    """

    id: str
    machine: str


async def get_image(engine: Engine, name: str, *, pull: str, timeout: float, platform: str | None) -> Image:
    """Return the image, fetched first where `pull` says so.

    Args:
        engine: where it is, or comes to.
        name: with tag or digest, or an id.
        pull: "missing", "always" or "never".
        timeout: seconds that fetching may take.
        platform: such as "linux/arm64"; the engine's own when None.

    Raises:
        EnvStartError: it is not there, or cannot be had.
    """
    with translate({EngineFault: EnvStartError}, f"the Docker engine does not tell about the image {name!r}"):
        image = None if pull == "always" else await _look(engine, name, platform)
    if image is not None:
        return image
    if pull == "never":
        which = f" for {platform}" if platform else ""
        raise EnvStartError(
            f"the image {name!r}{which} is not on the engine and pull is 'never': load or build it, or set"
            " pull='missing'"
        )
    remedy = "check its name, log in to its registry, load it into the engine, or name another image"
    try:
        with translate({EngineFault: EnvStartError}, f"the image {name!r} could not be pulled ({remedy})"):
            await _pull(engine, name, platform, timeout)
            image = await _look(engine, name, platform)
    except TimeoutError as error:
        raise EnvStartError(
            f"the image {name!r} was not pulled within {timeout:g} s: raise pull_timeout, or pull it beforehand"
        ) from error
    if image is None:
        raise EnvStartError(f"the image {name!r} is not on the engine although it was pulled: see who removes it")
    return image


async def _look(engine: Engine, name: str, platform: str | None) -> Image | None:
    try:
        found: dict[str, Any] = await engine.call(lambda client: client.inspect_image(name))
    except EngineFault as fault:
        if fault.status == _NOT_FOUND:
            return None
        raise
    if platform and not _fits(found, platform):
        return None
    return Image(found["Id"], found["Architecture"])


def _fits(found: dict[str, Any], platform: str) -> bool:
    system, machine, *_ = platform.split("/")
    aliases = {"x86_64": "amd64", "aarch64": "arm64"}
    return bool(system == found["Os"] and aliases.get(machine, machine) == found["Architecture"])


class _Pull:
    """One pull that is under way, and how many wait for it."""

    def __init__(self) -> None:
        self.done: concurrent.futures.Future[None] = concurrent.futures.Future()
        self.waiting = 0
        self.unwanted = threading.Event()


_PULLS: Final[dict[tuple[Endpoint, str, str | None], _Pull]] = {}
_PULLS_LOCK: Final = threading.Lock()


async def _pull(engine: Engine, name: str, platform: str | None, timeout: float) -> None:
    key = (engine.endpoint, name, platform)
    client = engine.client
    with _PULLS_LOCK:
        pull = _PULLS.get(key)
        if pull is None:
            pull = _PULLS[key] = _Pull()
            # Not a pool's thread: once nobody wants it, a registry that hangs must not hold up the program's exit.
            run = threading.Thread(
                target=_run_pull, args=(client, name, platform, timeout, pull, key), name="runenv pull", daemon=True
            )
            run.start()
        pull.waiting += 1
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()

    def wake() -> None:
        if not waiter.done():
            waiter.set_result(None)

    def done(_: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop of a waiter that was given up may be closed
            loop.call_soon_threadsafe(wake)

    pull.done.add_done_callback(done)
    try:
        with anyio.fail_after(timeout):
            await waiter
    finally:
        with _PULLS_LOCK:
            pull.waiting -= 1
            if not pull.waiting and not pull.done.done():
                pull.unwanted.set()
                _PULLS.pop(key, None)
    pull.done.result()


def _run_pull(
    client: Client,
    name: str,
    platform: str | None,
    timeout: float,
    pull: _Pull,
    key: tuple[Endpoint, str, str | None],
) -> None:
    fault: EngineFault | None = None
    try:
        attempt(lambda: fetch_image(client, name, platform, timeout=timeout, unwanted=pull.unwanted.is_set))
    except EngineFault as error:
        fault = error
    with _PULLS_LOCK:
        if _PULLS.get(key) is pull:
            del _PULLS[key]
    if fault is None:
        pull.done.set_result(None)
    else:
        pull.done.set_exception(fault)
