"""Real S3 servers for tests: SeaweedFS, which checks credentials, and moto as a second dialect.

Each is a process of its own on free ports of the loopback address, with its data in a temporary folder, killed with its
whole group at the end; nothing of it stays. Their programs are dev dependencies, so there is nothing to skip. Above is
`conftest.py`, which makes fixtures of them.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import boto3  # type: ignore[import-untyped] # no stubs, for one call
import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from runenv.testing.contract.store import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

__all__ = ("S3Server", "moto", "seaweedfs")

BUCKET: Final = "artifacts"
REGION: Final = "us-east-1"
READY_SECONDS: Final = 60.0
"""How long a server may take until it answers; both need one or two seconds on an idle machine."""
POLL_SECONDS: Final = 0.02
"""Pause between two looks whether a server is ready."""
STARTS: Final = 3
"""How often a start is tried: between choosing a port and using it, somebody else may take it."""
LOWEST_PORT, HIGHEST_PORT = 10_000, 22_000
"""Below what the kernel gives to outgoing connections, and with room for the offset below."""
ADMIN_OFFSET: Final = 10_000
"""SeaweedFS' workers look for the admin's gRPC port that far above its port, whatever its options say."""
BIN: Final = Path(sys.executable).parent


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running server and how to get in."""

    endpoint: str
    access_key_id: str
    secret_access_key: str = field(repr=False)
    bucket: str = BUCKET

    @property
    def options(self) -> dict[str, str]:
        """What `ArtifactStore.open` takes beside the URL."""
        return {
            "access_key_id": self.access_key_id,
            "secret_access_key": self.secret_access_key,
            "endpoint": self.endpoint,
            "region": REGION,
            "allow_http": "true",
        }

    def is_ready(self) -> bool:
        """Return whether objects can be put into the bucket. A server may listen well before."""
        bucket = S3Store(
            self.bucket,
            access_key_id=self.access_key_id,
            secret_access_key=self.secret_access_key,
            endpoint=self.endpoint,
            region=REGION,
            client_options={"allow_http": True, "timeout": "5s"},
            retry_config={"max_retries": 0},
        )
        try:
            obstore.put(bucket, "ready", b"")
        except (BaseError, OSError):
            return False
        return True

    def place(self) -> Place:
        """Return a place under a prefix that nobody has used."""
        return Place(f"s3://{self.bucket}/{uuid.uuid4().hex}", self.options)

    def unfinished_uploads(self, place: Place) -> list[str]:
        """Return the keys under a place of which parts were uploaded that became no object. obstore cannot say."""
        client = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key_id,
            aws_secret_access_key=self.secret_access_key,
            region_name=REGION,
        )
        prefix = place.url.removeprefix(f"s3://{self.bucket}/")
        uploads = client.list_multipart_uploads(Bucket=self.bucket).get("Uploads", [])
        client.close()
        return [upload["Key"] for upload in uploads if upload["Key"].startswith(prefix)]

    def behind(self, endpoint: str) -> S3Server:
        """Return the same server as it is reached through something in between."""
        return replace(self, endpoint=endpoint)


@contextmanager
def seaweedfs() -> Generator[S3Server]:
    """Run `weed mini` with one bucket and one user who may do everything. It creates no bucket by itself."""
    server = S3Server("", f"AK{uuid.uuid4().hex}", uuid.uuid4().hex)
    users = [
        {
            "name": "tests",
            "credentials": [{"accessKey": server.access_key_id, "secretKey": server.secret_access_key}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
    ]
    with _temporary_folder() as folder:
        config = folder / "s3.json"
        config.write_text(json.dumps({"identities": users}), encoding="utf-8")
        ports: dict[str, int] = {}

        def command() -> tuple[Sequence[str], S3Server]:
            ports.update(_seaweedfs_ports())
            options = {
                "dir": str(folder),
                "ip": "127.0.0.1",
                "ip.bind": "127.0.0.1",
                "bucket": BUCKET,
                "s3.config": str(config),
                "s3.autoCreateBucket": "false",
                "s3.port.iceberg": "0",
                "s3.port.lance": "0",
                "s3.localSocket": str(folder / "s3.sock"),
                "filer.localSocket": str(folder / "filer.sock"),
                "webdav": "false",
                "admin.ui": "false",
                "master.telemetry": "false",
                **{name: str(port) for name, port in ports.items()},
            }
            weed = [str(BIN / "weed"), "mini", *(f"-{name}={value}" for name, value in options.items())]
            return weed, replace(server, endpoint=f"http://127.0.0.1:{ports['s3.port']}")

        try:
            with _running(command, folder, S3Server.is_ready) as running:
                yield running
        finally:
            for name, port in ports.items():
                if name.endswith(".grpc"):  # sockets whose folder no option moves
                    component = name.removesuffix(".port.grpc")
                    Path(f"/tmp/seaweedfs-{component}-grpc-{port}.sock").unlink(missing_ok=True)


@contextmanager
def moto() -> Generator[S3Server]:
    """Run moto's server with one bucket. It takes any credentials, and keeps everything in memory."""

    def command() -> tuple[Sequence[str], S3Server]:
        (port,) = _free_ports(1)
        arguments = [sys.executable, str(Path(__file__).with_name("moto_program.py")), str(port)]
        return arguments, S3Server(f"http://127.0.0.1:{port}", "any", uuid.uuid4().hex)

    def is_ready(server: S3Server) -> bool:
        request = urllib.request.Request(f"{server.endpoint}/{BUCKET}", method="PUT")  # noqa: S310 - our own server
        try:
            urllib.request.urlopen(request, timeout=READY_SECONDS).close()  # noqa: S310
        except OSError:
            return False
        return server.is_ready()

    with _temporary_folder() as folder, _running(command, folder, is_ready) as running:
        yield running


# -- processes


@contextmanager
def _running(
    command: Callable[[], tuple[Sequence[str], S3Server]], folder: Path, is_ready: Callable[[S3Server], bool]
) -> Generator[S3Server]:
    """Start a server, wait until its bucket can be used, and kill it in the end."""
    for _ in range(STARTS):
        arguments, server = command()
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder)},
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - nothing of ours runs in threads that hold locks here
            )
        try:
            if _comes_up(process, partial(is_ready, server)):
                yield server
                return
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    text = (folder / "log").read_text(encoding="utf-8", errors="replace")
    raise RuntimeError(f"the server did not come up: {text[-2000:]}")


def _comes_up(process: subprocess.Popen[bytes], is_ready: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if is_ready():
            return True
        time.sleep(POLL_SECONDS)
    return False


def _die_with_parent() -> None:
    """Let the kernel end the server when the tests' process is killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


@contextmanager
def _temporary_folder() -> Generator[Path]:
    # Not pytest's, whose names are too long for the sockets in it.
    folder = Path(tempfile.mkdtemp(prefix="runenv-server-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# -- ports


def _seaweedfs_ports() -> dict[str, int]:
    names = [f"{part}.port{kind}" for part in ("master", "volume", "filer", "s3") for kind in ("", ".grpc")]
    admin, *others = _free_ports(len(names) + 1, offset=ADMIN_OFFSET)
    return {"admin.port": admin, "admin.port.grpc": admin + ADMIN_OFFSET, **dict(zip(names, others, strict=True))}


def _free_ports(count: int, *, offset: int = 0) -> list[int]:
    """Return ports that nobody listens on; of the first one, the port `offset` above it is free too."""
    found: list[int] = []
    while len(found) < count:
        port = random.randint(LOWEST_PORT, HIGHEST_PORT)
        wanted = {port, port + offset} if not found else {port}
        if port not in found and all(_is_free(each) for each in wanted):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
