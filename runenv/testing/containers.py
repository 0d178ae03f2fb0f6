"""`RunEnvContainer`: a testcontainers `DockerContainer` that is a sync RunEnv, for tests that want a real sandbox.

    with RunEnvContainer("runenv/python").with_env("CI", "1") as env:
        assert env.exec("make test").ok

It is `SyncRunEnv` over a `DockerEnv`, made from what testcontainers' methods were told; the sandbox, its defaults and
its verbs are those of any Docker env. What testcontainers adds: its builder methods, its labels with the session id on
the container, its way to find the engine, and `get_wrapped_container` for a look from outside.

No reaper is started, and none is needed: the container ends with this process, however that ends, through the guest.
So neither Ryuk's image nor the engine's socket inside a container is asked for, and it works where those cannot be had:
rootless engines, TCP engines, CI jobs without a registry. Where other containers of the test run have started the
reaper, it finds this one too, by its labels.

A sandbox has no ports, no network of other containers, no command of its own and no log: the methods for those are
refused when the container is started. `exec` and `stop` are ours, not testcontainers': `exec` returns an `ExecResult`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import docker.errors
from testcontainers.core.container import DockerContainer
from testcontainers.core.labels import create_labels

from runenv.config import BindMount, DockerConfig, TmpfsMount, VolumeMount
from runenv.envs import open_env
from runenv.errors import ConfigError, EnvError, EnvStartError, translate
from runenv.sync import SyncRunEnv

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType
    from typing import Self

    from runenv.config import Mount

__all__ = ("RunEnvContainer",)

_PIECE_BYTES: Final = 1024 * 1024
"""Of a file on its way into the container."""

_REFUSED: Final = {
    "with_command": ("_command", "the guest is the container's command; run yours with exec"),
    "with_name": ("_name", "a sandbox has a random name, so that no other run is in its way"),
    "with_exposed_ports": ("ports", "nothing outside reaches into a sandbox"),
    "with_network": ("_network", "a sandbox has no network, or with network='full' the engine's default one"),
    "with_network_aliases": ("_network_aliases", "a sandbox is in no network of other containers"),
    "waiting_for": ("_wait_strategy", "a sandbox is ready when it has started"),
}
"""What testcontainers offers and a sandbox does not have: where it keeps that, and why."""


class RunEnvContainer(SyncRunEnv, DockerContainer):  # type: ignore[misc] # `exec` is ours: it says more
    """A Docker sandbox as a testcontainers container. Not started yet when it is made; `with` starts it.

    Args:
        image: any image.
        env: variables of every command.
        volumes: as (host path or volume name, container path, "ro" or "rw").
        settings: any field of `DockerConfig`, such as `user`, `network`, `read_only`, `memory_bytes`; `with_kwargs`
            takes the same and, as everywhere in testcontainers, replaces those given before.

    Raises:
        EnvStartError: no engine answers.
    """

    def __init__(
        self,
        image: str,
        *,
        env: dict[str, str] | None = None,
        volumes: list[tuple[str, str, str]] | None = None,
        **settings: Any,  # noqa: ANN401 - checked by DockerConfig
    ) -> None:
        with translate({docker.errors.DockerException: EnvStartError}, "no Docker engine answers"):
            DockerContainer.__init__(self, image, env=env, volumes=volumes)
        self.with_kwargs(**settings)
        SyncRunEnv.__init__(self, open_env(DockerConfig(image=self.image)))  # not open, and says so

    def config(self) -> DockerConfig:
        """Return the configuration that `start` uses: what the methods called so far make of it.

        Raises:
            ConfigError: something was asked for that a sandbox does not have, or settings that contradict each other.
        """
        for method, (attribute, reason) in _REFUSED.items():
            if getattr(self, attribute):
                raise ConfigError(f"{method} is not for sandboxes: {reason}")
        settings: dict[str, Any] = dict(self._kwargs)
        environment: Mapping[str, str] = settings.pop("environment", {})
        labels: dict[str, str] = settings.pop("labels", {})
        mounts = (*settings.pop("mounts", ()), *self._mounts())
        settings |= {"environment": {**environment, **self.env}, "labels": create_labels(self.image, labels)}
        return DockerConfig(image=self.image, mounts=mounts, **settings)

    def _mounts(self) -> Iterator[Mount]:
        for source, mount in self.volumes.items():
            read_only = "rw" not in mount["mode"].split(",")
            if source.startswith((".", "/", "~")):
                yield BindMount(source=Path(source).expanduser().absolute(), target=mount["bind"], read_only=read_only)
            else:
                yield VolumeMount(name=source, target=mount["bind"], read_only=read_only)
        for target, size in self.tmpfs.items():
            yield TmpfsMount.model_validate({"target": target} | ({"size_bytes": size} if size else {}))

    # -- life

    def start(self) -> Self:
        """Start the container and copy into it what `with_copy_into_container` was told.

        Raises:
            ConfigError: as `config`.
            EnvStartError: the image or the container did not come up; nothing of it is left.
        """
        if self._container is not None:
            raise EnvError("this container was started already")
        SyncRunEnv.__init__(self, open_env(self.config()))
        try:
            SyncRunEnv.__enter__(self)
            with translate({docker.errors.DockerException: EnvStartError}, "the container cannot be looked up"):
                self._container = self.get_docker_client().client.containers.get(str(self.describe()["container"]))
            for spec in cast("list[tuple[bytes | Path, str, int]]", self._transferable_specs):
                self.copy_into_container(*spec)
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """End the container and everything in it; harmless when called again."""
        self._container = None  # it is removed by its engine, not by testcontainers
        self._cached_container_info = None
        try:
            SyncRunEnv.close(self)
        finally:
            DockerContainer.stop(self)  # closes its client

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:  # noqa: ARG002, FBT001, FBT002 - its base's
        """As `close`. Both arguments are always what they are by default: the container has no volumes of its own."""
        self.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- testcontainers' way to move files, over the guest: tmpfs and read-only roots are no special case

    def _transfer_into_container(self, transferable: bytes | Path, destination_in_container: str, mode: int) -> None:
        if isinstance(transferable, bytes):
            self.write(destination_in_container, transferable, mode=mode)
        elif transferable.is_dir():
            self.upload(transferable, f"{destination_in_container.rstrip('/')}/{transferable.name}")
        else:
            with transferable.open("rb") as file:
                self.write(destination_in_container, iter(lambda: file.read(_PIECE_BYTES), b""), mode=mode)

    def copy_from_container(self, source_in_container: str, destination_on_host: Path) -> None:
        """Copy a file or a tree to the host; as `download`, which says what was left out."""
        self.download(source_in_container, destination_on_host)
