"""What a container is made of: a configuration as the engine's API takes it. Pure: it asks no engine.

Above it is `env.py`, which has the container made; below it are the configuration and the names of `container.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from runenv.envs.docker.container import GUEST_FOLDER, GUEST_PROGRAM, Folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runenv.config import DockerConfig

__all__ = ("TMP", "Spec")

TMP: Final = "/tmp"  # noqa: S108 - in the container
_TMPFS_BYTES: Final = 1024**3
"""Size of each folder in memory where memory has no limit."""
_BYTES_PER_FILE: Final = 4096
"""A folder in memory takes one file for so many bytes of it: an endless number of empty ones would fill memory too."""
_NANO: Final = 1_000_000_000


class Spec:
    """A configuration, with its user as numbers."""

    def __init__(self, config: DockerConfig, user: str) -> None:
        self._config = config
        self._user = user

    def body(
        self, *, labels: Mapping[str, str], volume: str, mounts: Sequence[dict[str, Any]], cpus: float | None
    ) -> dict[str, Any]:
        """Return the request that makes the container.

        Args:
            labels: ours, over those of the configuration.
            volume: that holds the guest.
            mounts: more than the configuration asks for.
            cpus: how many it may use.
        """
        config = self._config
        guest = {"Type": "volume", "Source": volume, "Target": GUEST_FOLDER, "ReadOnly": True}
        host = {
            "AutoRemove": True,
            "RestartPolicy": {"Name": "no"},
            "LogConfig": {"Type": "none", "Config": {}},  # the engine must not write our frames to its log
            "NetworkMode": "none" if config.network == "none" else "bridge",
            "CapDrop": ["ALL"],
            "CapAdd": list(config.cap_add),
            "SecurityOpt": [] if config.allow_new_privileges else ["no-new-privileges"],
            "Memory": config.memory_bytes or 0,
            "MemorySwap": config.memory_bytes or 0,
            "PidsLimit": config.pids,
            "NanoCpus": int((cpus or 0) * _NANO),
            "ReadonlyRootfs": config.read_only,
            "Mounts": [guest | {"VolumeOptions": {"NoCopy": True}}, *mounts, *self._mounts()],
            "Tmpfs": self._tmpfs(),
        }
        return {
            "Image": config.image,
            "User": self._user,
            # The image's own program, health check and stop signal are not for a sandbox; its ENV is.
            "Entrypoint": [GUEST_PROGRAM],
            "Cmd": [],
            "Healthcheck": {"Test": ["NONE"]},
            "StopSignal": "SIGTERM",
            # The image's own folder may be closed to our user; the guest goes to the workdir by itself.
            "WorkingDir": "/",
            "OpenStdin": True,
            "StdinOnce": True,
            "AttachStdin": True,
            "AttachStdout": True,
            "AttachStderr": True,
            "Tty": False,
            "Labels": {**config.labels, **labels},
            "HostConfig": host,
        }

    def cpus(self, there: int) -> float | None:
        """Return how many the container may use: what the configuration says, at most what the engine has."""
        cpus = self._config.cpus
        return None if cpus is None else min(cpus, there)

    @property
    def spill_quota_bytes(self) -> int:
        """The configured one; on a folder in memory at most a quarter of that."""
        quota = self._config.spill_quota_bytes
        if TMP not in self._tmpfs():
            return quota
        return min(quota, (self._config.memory_bytes or _TMPFS_BYTES) // 4)

    @property
    def folders_in_memory(self) -> list[str]:
        """The workdir and /tmp, if they are in memory."""
        return [path for path in self._tmpfs() if path in {self._config.workdir, TMP}]

    @property
    def folders(self) -> list[Folder]:
        """The folders that must be there and writable, without those that a mount covers."""
        uid, gid = self._ids
        covered = {mount.target.rstrip("/") for mount in self._config.mounts}
        folders = [Folder(self._config.workdir, uid, gid), Folder(TMP, 0, 0, 0o1777)]
        return [folder for folder in folders if folder.path.rstrip("/") not in covered]

    @property
    def writable_volumes(self) -> list[tuple[str, Folder]]:
        """The named volumes that the user must be able to write."""
        uid, gid = self._ids
        return [
            (mount.name, Folder(mount.target, uid, gid))
            for mount in self._config.mounts
            if mount.kind == "volume" and not mount.read_only
        ]

    @property
    def _ids(self) -> tuple[int, int]:
        uid, _, gid = self._user.partition(":")
        return int(uid), int(gid)

    def _mounts(self) -> list[dict[str, Any]]:
        mounts: list[dict[str, Any]] = []
        for mount in self._config.mounts:
            if mount.kind == "bind":
                # `Mounts`, not `Binds`: the engine refuses a source that is not there instead of making it.
                source = {"Type": "bind", "Source": str(mount.source), "BindOptions": {"Propagation": "rprivate"}}
            elif mount.kind == "volume":
                source = {"Type": "volume", "Source": mount.name}
            else:
                continue
            mounts.append({**source, "Target": mount.target, "ReadOnly": mount.read_only})
        return mounts

    def _tmpfs(self) -> dict[str, str]:
        uid, gid = self._ids
        memory = self._config.memory_bytes
        size = memory // 2 if memory else _TMPFS_BYTES
        sizes: dict[str, int] = {}
        if self._config.read_only:
            mounted = {mount.target.rstrip("/") for mount in self._config.mounts}
            sizes = {path: size for path in (self._config.workdir, TMP) if path.rstrip("/") not in mounted}
        sizes |= {mount.target: mount.size_bytes for mount in self._config.mounts if mount.kind == "tmpfs"}
        modes = {TMP: "1777"}
        return {
            path: f"rw,exec,nosuid,nodev,size={size},nr_inodes={max(size // _BYTES_PER_FILE, 1024)},"
            f"uid={uid},gid={gid},mode={modes.get(path, '0755')}"
            for path, size in sizes.items()
        }
