"""The Docker engine: the only file that speaks to the daemon through the SDK.

Everything that blocks runs in worker threads of a limiter of its own, transient faults are tried again a few times, and
whatever goes wrong leaves as an error of ours in one sentence with the remedy. Above it are `container.py`, `images.py`
and the rest of the Docker env; below it `endpoint.py` says where the engine is, and `carriers.py` makes the streams,
which are not the SDK's.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar

import docker
import docker.auth
import docker.errors
import docker.utils
import requests
import urllib3
from docker.tls import TLSConfig
from docker.transport import UnixHTTPAdapter
from docker.transport.unixconn import UnixHTTPConnection, UnixHTTPConnectionPool

from runenv.envs.docker.carriers import Ssh, open_carrier
from runenv.envs.docker.endpoint import Endpoint, find_endpoint
from runenv.envs.docker.faults import EngineFault, attempt, refusal, way_fault
from runenv.envs.threads import MAX_THREADS, in_thread
from runenv.errors import EnvError, EnvStartError, translate

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Generator, Mapping

    from runenv.envs.docker.carriers import Carrier

__all__ = ("Client", "Engine", "EngineFacts", "check", "faults", "fetch_image", "json_of", "url")

_T = TypeVar("_T")

Client: TypeAlias = Any
"""The SDK's `APIClient`, whose stubs lack half of it."""

CONNECT_SECONDS: Final = 4
"""For the first answer of an engine on this machine or network: a missing one is reported before 5 s are over."""
SSH_CONNECT_SECONDS: Final = 20
"""The same through ssh, which has a login to do."""
CALL_SECONDS: Final = 60
"""For one answer of an engine that works: a busy one starts containers one after the other."""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What does not change while an engine runs.

    Attributes:
        version: of the engine.
        machine: its architecture, as images name it.
        cpus: how many it has.
        missing: limits, by their name in a configuration, that its kernel cannot keep.
    """

    version: str
    machine: str
    cpus: int
    missing: tuple[str, ...]


class Engine:
    """The engine, for one env: `connect`, use, `close`.

    All engines of one process that speak to the same place share the SDK's connections, and what is known about it.
    """

    def __init__(self, endpoint: Endpoint, shared: _Shared) -> None:
        self.endpoint: Final = endpoint
        self._shared: _Shared | None = shared

    @classmethod
    async def connect(cls, url: str | None = None) -> Self:
        """Find the engine and ask it who it is.

        Args:
            url: where it is; None: as the docker command finds it.

        Raises:
            EnvStartError: none answers there.
        """
        endpoint = await in_thread(lambda: find_endpoint(url))
        shared = _acquire(endpoint)
        try:
            with translate({EngineFault: EnvStartError}, f"no Docker engine answers; tried {endpoint}"):
                await in_thread(lambda: attempt(shared.open))
        except BaseException:
            _release(shared)
            raise
        return cls(endpoint, shared)

    @property
    def facts(self) -> EngineFacts:
        """What is known about the engine."""
        assert self._open.facts is not None  # noqa: S101 - connect has asked for them
        return self._open.facts

    @property
    def known(self) -> dict[object, object]:
        """What others have found out about the engine and need not ask again; kept as long as the process."""
        return _KNOWN.setdefault(self.endpoint, {})

    @property
    def client(self) -> Client:
        """The SDK's client, for use inside `call`."""
        assert self._open.client is not None  # noqa: S101 - connect has made it
        return self._open.client

    @property
    def _open(self) -> _Shared:
        if self._shared is None:
            raise EnvError("the connection to the Docker engine is closed")
        return self._shared

    async def call(self, function: Callable[[Client], _T], *, abandon: bool = False) -> _T:
        """Run SDK calls in a thread and return their result.

        Args:
            function: gets the SDK's client; run again after transient faults, so it must not mind.
            abandon: when cancelled, let them run on, instead of waiting for their end; see `in_thread`.

        Raises:
            EngineFault: it did not work.
        """
        client: Client = self.client

        def guarded() -> _T:
            with faults():
                return function(client)

        return await in_thread(lambda: attempt(guarded), abandon=abandon)

    async def stream(self, path: str, link: asyncio.Protocol, *, body: dict[str, object] | None = None) -> Carrier:
        """Open the stream that a POST to `path` gives and make it the link's transport.

        Raises:
            EnvStartError: the engine refuses, or cannot be reached.
        """
        return await open_carrier(self.endpoint, f"/v{self.client.api_version}{path}", link, body=body)

    async def close(self) -> None:
        """Give the connections back; the last one closes them."""
        shared, self._shared = self._shared, None
        if shared is not None:
            _release(shared)


# -- one client for each engine and process


class _Shared:
    """The client of one engine in this process, and how many use it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.users = 0
        self.client: Client = None
        self.facts: EngineFacts | None = None
        self._lock = threading.Lock()

    def open(self) -> None:
        """Make the client, unless another user has done so, and prove that the engine answers."""
        with self._lock, faults():
            if self.client is not None:
                return
            client = _make_client(self.endpoint)
            try:
                self.facts = _ask(client, _FACTS.get(self.endpoint))
            except BaseException:
                client.close()
                raise
            if not self.users:  # whoever wanted it was cancelled
                client.close()
                return
            _FACTS[self.endpoint] = self.facts
            client.timeout = CALL_SECONDS
            self.client = client

    def close(self) -> None:
        client, self.client = self.client, None
        if client is not None:
            client.close()


_SHARED: Final[dict[tuple[int, Endpoint], _Shared]] = {}
_SHARED_LOCK: Final = threading.Lock()
_FACTS: Final[dict[Endpoint, EngineFacts]] = {}
_KNOWN: Final[dict[Endpoint, dict[object, object]]] = {}


def _acquire(endpoint: Endpoint) -> _Shared:
    # The process is part of the key: a forked child must not write into its parent's connections.
    with _SHARED_LOCK:
        shared = _SHARED.setdefault((os.getpid(), endpoint), _Shared(endpoint))
        shared.users += 1
        return shared


def _release(shared: _Shared) -> None:
    with _SHARED_LOCK:
        shared.users -= 1
        if shared.users:
            return
        for key in [key for key, value in _SHARED.items() if value is shared]:
            del _SHARED[key]
    shared.close()


def _ask(client: docker.APIClient, known: EngineFacts | None) -> EngineFacts:
    version: Mapping[str, Any] = client.version()
    if known is not None and known.version == version["Version"]:
        return known
    info: Mapping[str, Any] = client.info()
    if info["OSType"] != "linux":
        message = f"it runs {info['OSType']} containers; switch it to Linux containers"
        raise EngineFault(message)
    limits = {"memory_bytes": "MemoryLimit", "pids": "PidsLimit", "cpus": "CpuCfsQuota"}
    return EngineFacts(
        version=version["Version"],
        machine=info["Architecture"],
        cpus=info["NCPU"],
        missing=tuple(name for name, key in limits.items() if info.get(key) is False),
    )


def _make_client(endpoint: Endpoint) -> Client:
    options: dict[str, Any] = {"version": "auto", "timeout": CONNECT_SECONDS, "max_pool_size": MAX_THREADS}
    if endpoint.kind == "ssh":
        options["timeout"] = SSH_CONNECT_SECONDS
    if (tls := endpoint.tls) is not None:
        own = (tls.cert, tls.key) if tls.cert and tls.key else None
        options["tls"] = TLSConfig(client_cert=own, ca_cert=tls.ca, verify=tls.verify)
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    base_url = f"tcp://{host}:{endpoint.port}" if endpoint.kind == "tcp" else "unix:///engine"
    return _SdkClient(endpoint, base_url, **options)


class _SdkClient(docker.APIClient):
    """The SDK's client, with ways to the engine that are ours where the SDK's are not good enough."""

    def __init__(self, endpoint: Endpoint, base_url: str, **options: Any) -> None:  # noqa: ANN401 - the SDK's own
        self._endpoint = endpoint
        super().__init__(base_url, **options)

    def _retrieve_server_version(self) -> str:  # the SDK's hook between making the client and its first call
        self.trust_env = False  # no proxies of the environment: the streams take the direct way, so all calls do
        if self._endpoint.kind != "tcp":
            self.mount("http+docker://", _Adapter(self._endpoint, timeout=self.timeout))
        version: str = super()._retrieve_server_version()  # type: ignore[misc]
        return version


class _Adapter(UnixHTTPAdapter):
    def __init__(self, endpoint: Endpoint, timeout: int) -> None:
        self._endpoint = endpoint
        super().__init__("http+unix:///engine", timeout=timeout, max_pool_size=MAX_THREADS)

    def get_connection(self, url: bytes | str, proxies: object = None) -> UnixHTTPConnectionPool:  # noqa: ARG002
        with self.pools.lock:
            pool: UnixHTTPConnectionPool | None = self.pools.get(url)
            if pool is None:
                pool = self.pools[url] = _Pool(str(url), self._endpoint, self.timeout, self.max_pool_size)
            return pool


class _Pool(UnixHTTPConnectionPool):
    def __init__(self, url: str, endpoint: Endpoint, timeout: int, maxsize: int) -> None:
        self._endpoint = endpoint
        super().__init__(url, endpoint.path, timeout, maxsize)

    def _new_conn(self) -> Any:  # noqa: ANN401 - the stubs' base class is another than the SDK's
        kind = _SshConnection if self._endpoint.kind == "ssh" else _UnixConnection
        return kind(self._endpoint, self.timeout)


class _UnixConnection(UnixHTTPConnection):
    """Closes the socket that could not be connected, which the SDK forgets."""

    def __init__(self, endpoint: Endpoint, timeout: Any) -> None:  # noqa: ANN401 - the SDK's own
        self._endpoint = endpoint
        super().__init__("http://localhost", endpoint.path, timeout)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        try:
            self.sock.settimeout(self.timeout)
            self.sock.connect(self.unix_socket)
        except OSError:
            self.sock.close()
            raise


class _SshConnection(_UnixConnection):
    """Goes through the `ssh` program, as the docker command does; the SDK's own way needs another library."""

    _ssh: Ssh | None = None

    def connect(self) -> None:
        self._ssh = Ssh(self._endpoint)
        self.sock = self._ssh.socket
        self.sock.settimeout(self.timeout)

    def getresponse(self) -> Any:  # noqa: ANN401 - the stubs' base class is another than the SDK's
        ssh, self._ssh = self._ssh, None  # a failure closes this connection, and ssh must be asked before it is ended
        try:
            response = super().getresponse()
        except OSError as error:
            if ssh is None:
                raise
            reason = None if isinstance(error, TimeoutError) else ssh.error()
            ssh.reap()
            raise reason or error from error
        self._ssh = ssh
        return response

    def close(self) -> None:
        super().close()
        ssh, self._ssh = self._ssh, None
        if ssh is not None:
            ssh.reap()


# -- faults


@contextlib.contextmanager
def faults() -> Generator[None]:
    """Raise every error of the SDK, and of what it stands on, as an `EngineFault`."""
    try:
        yield
    except docker.errors.APIError as error:
        raise refusal(error.explanation or str(error), error.status_code) from error
    except (docker.errors.DockerException, requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
        raise way_fault(error) from error
    except (ValueError, KeyError, TypeError) as error:
        message = f"it answers as no Docker engine does: {error}"
        raise EngineFault(message) from error


def url(client: Client, pattern: str, *parts: str) -> str:
    """Return the address of a call, for those whose SDK method hides what is needed: a timeout, the answer's head."""
    address: str = client._url(pattern, *parts)  # noqa: SLF001 - the SDK keeps scheme and version there
    return address


def check(client: Client, answer: requests.Response) -> None:
    """Raise the SDK's error if a call was refused."""
    client._raise_for_status(answer)  # noqa: SLF001 - as every call of the SDK does


def json_of(client: Client, answer: requests.Response) -> Any:  # noqa: ANN401 - JSON
    """Return what a call answered, or raise the SDK's error for a refusal."""
    return client._result(answer, json=True)  # noqa: SLF001 - as every call of the SDK does


def fetch_image(
    client: Client, name: str, platform: str | None, *, timeout: float, unwanted: Callable[[], bool]
) -> None:
    """Pull an image, in a worker thread.

    Args:
        client: the SDK's.
        name: with tag or digest.
        platform: of the image, or None.
        timeout: seconds; also for each piece of news from the registry.
        unwanted: asked at each piece of news whether to stop.

    Raises:
        EngineFault: it cannot be had.
    """
    # Not `client.pull`, which waits without end for a registry that hangs.
    with faults():
        repository, tag = docker.utils.parse_repository_tag(name)
        registry, _ = docker.auth.resolve_repository_name(repository)
        credentials = docker.auth.get_config_header(client, registry)
        response = client.post(
            url(client, "/images/create"),
            params={"fromImage": repository, "tag": tag or "latest", "platform": platform or ""},
            headers={"X-Registry-Auth": credentials} if credentials else {},
            stream=True,
            timeout=(CONNECT_SECONDS, timeout),
        )
        deadline = time.monotonic() + timeout
        with response:
            check(client, response)
            for line in response.iter_lines():
                if unwanted() or time.monotonic() > deadline:
                    raise EngineFault("nobody waits for it any more")
                if line.strip() and (text := json.loads(line).get("error")):
                    raise refusal(text)
