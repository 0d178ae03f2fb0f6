"""What owners that were killed leave on an engine: how it is marked, and how it goes.

A running container ends by itself with its owner, so what is left are containers that were made and never started, or
that ended while the engine was down, and on this host the folder of a socket that nobody has connected to. Never
touched: anything that runs, that is not ours, or whose owner lives.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

import anyio

from runenv.envs.docker.container import CONFLICT, NOT_FOUND
from runenv.envs.docker.engine import Client, faults, json_of, url
from runenv.envs.docker.faults import EngineFault
from runenv.envs.docker.owners import lives
from runenv.envs.docker.socket_carrier import remove_left_folders
from runenv.envs.threads import in_thread

if TYPE_CHECKING:
    from runenv.envs.docker.engine import Engine

__all__ = (
    "GUEST_VOLUME_PREFIX",
    "LABEL_ID",
    "LABEL_KIND",
    "LABEL_OWNER",
    "LABEL_PERSIST",
    "Pruned",
    "prune",
    "sweep",
)

LABEL_OWNER: Final = "runenv.owner"
LABEL_ID: Final = "runenv.id"
LABEL_KIND: Final = "runenv.kind"
LABEL_PERSIST: Final = "runenv.persist"
GUEST_VOLUME_PREFIX: Final = "runenv-guest-"

MIN_AGE_SECONDS: Final = 60.0
"""A container that was made later may be about to start."""
SWEEP_SECONDS: Final = 2.0
"""What an opening env spends on it at most."""
SWEEP_PAUSE_SECONDS: Final = 10.0
"""Between two sweeps of one process: many envs at once need one."""
_SWEEP_REMOVALS: Final = 20
"""How many containers an opening env removes at most; the next one goes on."""
_STATES: Final = ("created", "exited", "dead")


@dataclass(frozen=True, slots=True)
class Pruned:
    """What `prune` has removed."""

    containers: tuple[str, ...]
    volumes: tuple[str, ...]


async def sweep(engine: Engine, *, min_age: float = MIN_AGE_SECONDS) -> None:
    """Remove a few leftovers, if it is time for that; quick, and never a reason for an env not to open."""
    now = time.monotonic()
    last = engine.known.get("swept")
    if isinstance(last, float) and now - last < SWEEP_PAUSE_SECONDS:
        return
    engine.known["swept"] = now
    deadline = now + SWEEP_SECONDS
    with anyio.move_on_after(SWEEP_SECONDS):
        await in_thread(remove_left_folders, abandon=True)
        try:
            await engine.call(
                lambda client: _remove_leftovers(client, min_age, deadline, _SWEEP_REMOVALS), abandon=True
            )
        except EngineFault:
            return  # what is wrong with the engine is told by what the env does next


async def prune(engine: Engine, *, min_age: float = MIN_AGE_SECONDS) -> Pruned:
    """Remove all leftovers and every guest volume that no container uses.

    Raises:
        EngineFault: the engine does not do it.
    """

    def remove(client: Client) -> Pruned:
        containers = _remove_leftovers(client, min_age, None, None)
        volumes = []
        for volume in client.volumes(filters={"name": GUEST_VOLUME_PREFIX})["Volumes"] or ():
            name = volume["Name"]
            if not name.startswith(GUEST_VOLUME_PREFIX):
                continue  # the engine's filter looks anywhere in the name
            try:
                with faults():
                    client.remove_volume(name)
            except EngineFault as fault:
                if fault.status not in {CONFLICT, NOT_FOUND}:
                    raise
            else:
                volumes.append(name)
                engine.known.pop(name, None)
        return Pruned(tuple(containers), tuple(volumes))

    await in_thread(remove_left_folders)
    return await engine.call(remove)


def _remove_leftovers(
    client: Client,
    min_age: float,
    deadline: float | None,
    most: int | None,
) -> list[str]:
    # Not `client.containers`: the engine's own clock, which the ages count by, is in the answer's head.
    answer = client.get(
        url(client, "/containers/json"),
        params={"all": "1", "filters": json.dumps({"label": [LABEL_OWNER], "status": list(_STATES)})},
        timeout=SWEEP_SECONDS if deadline is not None else client.timeout,
    )
    found = json_of(client, answer)
    date = answer.headers.get("Date")
    now = parsedate_to_datetime(date).timestamp() if date else time.time()
    removed: list[str] = []
    for container in found:
        if len(removed) == most or (deadline is not None and time.monotonic() > deadline):
            break
        labels = container["Labels"]
        if now - container["Created"] < min_age or LABEL_PERSIST in labels or lives(labels[LABEL_OWNER]):
            continue
        name = container["Names"][0].lstrip("/") if container["Names"] else container["Id"]
        try:
            remove_stopped(client, container["Id"])
        except EngineFault:
            continue  # another one sweeps too, or it was started after all
        removed.append(name)
    return removed


def remove_stopped(client: Client, identity: str) -> None:
    """Delete a container that does not run; the engine refuses for one that does."""
    with faults():
        client.remove_container(identity, v=True, force=False)
