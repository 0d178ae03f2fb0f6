"""Bind mounts: none that gives the host away by accident, and none that shows another machine's folder.

An engine resolves a mount's source on its own host. Where this process runs in a container, or the engine elsewhere,
that can be another folder of the same name: everything would look fine, and be wrong. So each mount is proved at start.
Above it is `env.py`; the proof goes through the env's own file verbs.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from runenv.envs.threads import in_thread
from runenv.errors import ConfigError, EnvStartError, LimitError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runenv.config import BindMount, Mount
    from runenv.env import RunEnv
    from runenv.envs.docker.endpoint import Endpoint

__all__ = ("check_mounts", "verify_bind")

PROBE_PREFIX: Final = ".runenv-probe-"
_TRIES: Final = 3
"""Comparisons of a folder that others may be writing to."""
_CLOCK_SECONDS: Final = 2.0
"""What a file system between host and container may round off a time."""


def check_mounts(mounts: Iterable[Mount], endpoint: Endpoint) -> None:
    """Refuse a mount that holds the socket of this very engine; the configuration did not know where it is.

    Raises:
        ConfigError: there is one, and it is not marked as unsafe.
    """
    if endpoint.kind != "unix":
        return
    sockets = {Path(endpoint.path), Path(os.path.realpath(endpoint.path))}
    for mount in mounts:
        if mount.kind != "bind" or mount.unsafe:
            continue
        sources = {mount.source, Path(os.path.realpath(mount.source))}
        if any(socket.is_relative_to(source) for socket in sockets for source in sources):
            raise ConfigError(
                f"the source {str(mount.source)!r} of a bind mount is or holds the Docker engine's socket: it would"
                " give the container power over the host; set unsafe=True if you want that"
            )


async def verify_bind(env: RunEnv, mount: BindMount) -> None:
    """Prove that what the env sees at the target is the source on this host.

    Raises:
        EnvStartError: it is something else, or cannot be proved.
    """
    source = mount.source
    if mount.unsafe and not await in_thread(source.is_dir) and not await in_thread(source.is_file):
        return  # a socket has no content to compare, and its user has said what they want
    try:
        is_same = await _is_same(env, mount)
    except PermissionError as error:
        raise EnvStartError(
            f"the user of the env cannot look into the bind mount {mount.target!r}: give it the permission on"
            f" {str(source)!r}, or choose another user"
        ) from error
    except (OSError, LimitError) as error:
        raise EnvStartError(
            f"the bind mount {mount.target!r} cannot be compared with {str(source)!r} of this host: {error}"
        ) from error
    if not is_same:
        raise EnvStartError(
            f"the bind mount {mount.target!r} does not show {str(source)!r} of this host: the engine took a path of its"
            " own machine; upload the files instead, or name a path that is the same on both"
        )


async def _is_same(env: RunEnv, mount: BindMount) -> bool:
    if not await in_thread(mount.source.is_dir):
        return await _is_same_file(env, mount)
    if not mount.read_only and (seen := await _sees_probe(env, mount)) is not None:
        return seen
    return await _is_same_folder(env, mount)


async def _sees_probe(env: RunEnv, mount: BindMount) -> bool | None:
    """Make a file here and look for it there; None when it cannot be made here."""
    probe = mount.source / f"{PROBE_PREFIX}{secrets.token_hex(8)}"

    def make() -> bool:
        try:
            probe.touch(mode=0o600, exist_ok=False)
        except OSError:
            return False
        return True

    def remove() -> None:
        with suppress(OSError):
            probe.unlink()

    if not await in_thread(make):
        return None
    try:
        await env.stat(f"{mount.target}/{probe.name}")
    except FileNotFoundError:
        return False
    else:
        return True
    finally:
        await in_thread(remove)


async def _is_same_file(env: RunEnv, mount: BindMount) -> bool:
    here = await in_thread(mount.source.stat)
    there = await env.stat(mount.target)
    return (
        stat.S_IFMT(here.st_mode) == stat.S_IFMT(there.mode)
        and here.st_size == there.size
        and abs(here.st_mtime - there.mtime) < _CLOCK_SECONDS
    )


async def _is_same_folder(env: RunEnv, mount: BindMount) -> bool:
    """Compare what is in it, names, sizes and times, and the time of the folder itself."""

    def look() -> tuple[float, dict[str, tuple[int, float]]]:
        entries: dict[str, tuple[int, float]] = {}
        with os.scandir(mount.source) as found:
            for entry in found:
                info = entry.stat(follow_symlinks=False)
                entries[entry.name] = (info.st_size if entry.is_file(follow_symlinks=False) else 0, info.st_mtime)
        return mount.source.stat().st_mtime, entries

    def is_equal(one: tuple[int, float], other: tuple[int, float] | None) -> bool:
        return other is not None and one[0] == other[0] and abs(one[1] - other[1]) < _CLOCK_SECONDS

    for _ in range(_TRIES):
        time, here = await in_thread(look)
        info = await env.stat(mount.target)
        there = {e.path: (e.size if e.is_file else 0, e.mtime) for e in await env.list(mount.target)}
        is_same_time = info.is_dir and abs(time - info.mtime) < _CLOCK_SECONDS
        if is_same_time and len(here) == len(there) and all(is_equal(here[name], there.get(name)) for name in here):
            return True
    return False
