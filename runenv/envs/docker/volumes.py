"""Volumes: the one that brings the guest into containers, and named ones that an env's user must be able to write.

Both are filled through the archive API of a container that is made and never started, which works for remote and
rootless engines too, and for containers with a read-only root. Above it is `env.py`; below it `container.py`.
"""

from __future__ import annotations

import functools
import hashlib
import io
import secrets
import tarfile
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from runenv.envs.docker.container import (
    GUEST_FOLDER,
    GUEST_PROGRAM,
    LINK_FOLDER,
    NOT_FOUND,
    give_folders,
    remove_container,
)
from runenv.envs.docker.engine import Client, faults
from runenv.envs.docker.faults import EngineFault
from runenv.envs.docker.owners import owner
from runenv.envs.docker.sweep import GUEST_VOLUME_PREFIX, LABEL_KIND, LABEL_OWNER
from runenv.envs.threads import in_thread
from runenv.errors import EnvStartError, translate
from runenv.guest import guest_binary

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

    from runenv.envs.docker.container import Folder
    from runenv.envs.docker.engine import Engine
    from runenv.envs.docker.images import Image

__all__ = ("give_volumes", "provide_guest")

_DIGEST_DIGITS: Final = 16
_FILL_LOCK: Final = threading.Lock()
"""Many envs of one process that open at once on a fresh engine fill its volume once."""


async def provide_guest(engine: Engine, image: Image, *, again: bool = False) -> str:
    """Make sure that the engine holds the guest for an image's processor, and return the name of its volume.

    Args:
        engine: where it goes.
        image: whose containers it will run in; one is made of it to fill the volume.
        again: the volume was found to be empty.

    Raises:
        EnvStartError: there is no guest for the processor, or the engine refuses.
    """
    binary, volume = await in_thread(lambda: _guest_for(image.machine))
    if again:
        engine.known.pop(volume, None)
    if volume not in engine.known:

        def provide(client: Client) -> None:
            with _FILL_LOCK:
                if volume not in engine.known:
                    if again or not _exists(client, volume):
                        _fill(client, volume, binary, image)
                    engine.known[volume] = True

        with translate({EngineFault: EnvStartError}, "the guest could not be brought to the Docker engine"):
            await engine.call(provide)
    return volume


async def give_volumes(engine: Engine, image: Image, volumes: Sequence[tuple[str, Folder]]) -> None:
    """Make named volumes that are not there yet, each owned as its folder says; others stay as they are.

    Args:
        engine: where they are.
        image: whose content a new volume starts with, where it has some at that path.
        volumes: name and mount point of each.

    Raises:
        EnvStartError: the engine refuses.
    """

    def give(client: Client) -> None:
        missing = [(name, folder) for name, folder in volumes if not _exists(client, name)]
        if missing:
            mounts = [{"Type": "volume", "Source": name, "Target": folder.path} for name, folder in missing]
            with _helper(client, image, mounts) as container:
                give_folders(client, container, [folder for _, folder in missing])

    if volumes:
        with translate({EngineFault: EnvStartError}, "the volumes could not be made on the Docker engine"):
            await engine.call(give)


def _guest_for(machine: str) -> tuple[Path, str]:
    binary = guest_binary(machine)
    return binary, f"{GUEST_VOLUME_PREFIX}{_digest(binary)}"


@functools.cache
def _digest(binary: Path) -> str:
    return hashlib.sha256(binary.read_bytes()).hexdigest()[:_DIGEST_DIGITS]


def _exists(client: Client, volume: str) -> bool:
    try:
        with faults():
            client.inspect_volume(volume)
    except EngineFault as fault:
        if fault.status == NOT_FOUND:
            return False
        raise
    return True


def _fill(client: Client, volume: str, binary: Path, image: Image) -> None:
    # Whoever starts meanwhile must see the whole program or none: it is written under another name, and then linked.
    part = f"guest.{secrets.token_hex(6)}"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        content = binary.read_bytes()
        folder = tarfile.TarInfo(LINK_FOLDER.rpartition("/")[2])
        folder.type, folder.mode, folder.mtime = tarfile.DIRTYPE, 0o755, int(time.time())
        archive.addfile(folder)
        entry = tarfile.TarInfo(part)
        entry.size, entry.mode, entry.mtime = len(content), 0o555, int(time.time())
        archive.addfile(entry, io.BytesIO(content))
        link = tarfile.TarInfo(GUEST_PROGRAM.rpartition("/")[2])
        link.type, link.linkname = tarfile.LNKTYPE, part
        archive.addfile(link)
    client.create_volume(volume, labels={LABEL_KIND: "guest"})
    mount = {"Type": "volume", "Source": volume, "Target": GUEST_FOLDER, "VolumeOptions": {"NoCopy": True}}
    with _helper(client, image, [mount]) as container:
        client.put_archive(container, GUEST_FOLDER, buffer.getvalue())


@contextmanager
def _helper(client: Client, image: Image, mounts: list[dict[str, Any]]) -> Generator[str]:
    """Make a container that is never started, for its archive API."""
    name = f"runenv-helper-{secrets.token_hex(6)}"
    body = {
        "Image": image.id,
        "Entrypoint": [GUEST_PROGRAM],
        "Labels": {LABEL_OWNER: owner(), LABEL_KIND: "helper"},
        "HostConfig": {"Mounts": mounts, "NetworkMode": "none"},
    }
    try:
        client.create_container_from_config(body, name)
        yield name
    finally:
        remove_container(client, name)
