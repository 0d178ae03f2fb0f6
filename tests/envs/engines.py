"""What tests of the Docker env share: the real engine, ways to it, stand-ins for broken ones, and owners that die."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gzip
import hashlib
import http.server
import io
import json
import os
import socketserver
import ssl
import subprocess
import sys
import tarfile
import textwrap
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, cast

import docker
import docker.errors

from runenv.config import DockerConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

SOCKET: Final = "/var/run/docker.sock"
BASE: Final = "runenv/base:latest"
PYTHON: Final = "runenv/python:latest"
STATIC: Final = "runenv/static:latest"
PATIENCE: Final = 30.0
"""Seconds until something that should have happened fails the test."""
ROOT: Final = Path(__file__).resolve().parents[2]


@functools.cache
def why_no_engine() -> str | None:
    """Say why tests cannot use Docker, or None."""
    try:
        client: Any = docker.APIClient(version="auto", timeout=10)
        for image in (BASE, STATIC):
            client.inspect_image(image)
        client.close()
    except docker.errors.ImageNotFound as error:
        return f"a test image is missing, run scripts/images: {error}"
    except docker.errors.DockerException as error:
        return f"no Docker engine answers, run scripts/engine: {error}"
    return None


Setting: TypeAlias = Any  # of any field of a configuration


def config(image: str = BASE, **settings: Setting) -> DockerConfig:
    """Return a configuration that pulls nothing."""
    return DockerConfig.model_validate({"image": image, "pull": "never", **settings})


class Marked:
    """The containers of one test, by a label of its own: others may use the engine at the same time."""

    def __init__(self, client: docker.APIClient, mark: str) -> None:
        self.client: Any = client
        self.labels = {"test": mark}

    def config(self, image: str = BASE, **settings: Setting) -> DockerConfig:
        """Return a configuration whose containers are counted here."""
        return config(image, labels=self.labels, **settings)

    def containers(self) -> list[dict[str, Any]]:
        """Return what the engine has of this test, running or not."""
        found: list[dict[str, Any]] = self.client.containers(all=True, filters={"label": f"test={self.labels['test']}"})
        return found

    def wait_gone(self, timeout: float = 5.0) -> None:
        """Return when no container is left; the time is the promise that is tested."""
        wait_until(lambda: not self.containers(), timeout)


def wait_until(condition: Callable[[], object], timeout: float = PATIENCE) -> None:
    """Poll until it holds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


async def until(condition: Callable[[], object], timeout: float = PATIENCE) -> None:
    """Poll until it holds, from a test on the event loop."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.02)


# -- ways to the engine


class Listener:
    """A TCP port, with or without TLS, whose connections go on to the engine's unix socket."""

    def __init__(self, context: ssl.SSLContext | None = None, target: str = SOCKET) -> None:
        self._context = context
        self._target = target
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self.connections = 0
        self.port = 0
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE)

    def freeze(self) -> None:
        """Pass nothing on any more, and leave the connections open."""
        self._loop.call_soon_threadsafe(self._flowing.clear)

    def thaw(self) -> None:
        """Go on."""
        self._loop.call_soon_threadsafe(self._flowing.set)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._loop.set_exception_handler(_ignore)
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._context)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        engine_reader, engine_writer = await asyncio.open_unix_connection(self._target)
        try:
            await asyncio.gather(self._pump(reader, engine_writer), self._pump(engine_reader, writer))
        finally:
            writer.close()
            engine_writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(256 * 1024):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        with contextlib.suppress(OSError):
            writer.close()


class Proxy:
    """A unix socket whose connections go on to the engine's, in the test's own event loop.

    Args:
        path: of the socket.
        refuse: is shown each request's head and body, and returns the message of a refusal or None.
    """

    def __init__(self, path: Path, refuse: Callable[[bytes, bytes], str | None] = lambda _head, _body: None) -> None:
        self.url = f"unix://{path}"
        self.bytes = 0
        self.refusals: list[str] = []
        self._path = path
        self._refuse = refuse
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._accept, self._path)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        await until(lambda: not self._writers)

    def cut(self) -> None:
        """Drop every connection."""
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        engine_reader, engine_writer = await asyncio.open_unix_connection(SOCKET)
        self._writers.add(writer)
        try:
            await asyncio.gather(self._requests(reader, writer, engine_writer), self._pump(engine_reader, writer))
        finally:
            engine_writer.close()
            writer.close()
            self._writers.discard(writer)

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, engine: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.lower().split(b"\r\n")
                sizes = [line.partition(b":")[2] for line in lines if line.startswith(b"content-length:")]
                body = await reader.readexactly(int(sizes[0]) if sizes else 0)
                if message := self._refuse(head, body):
                    self.refusals.append(message)
                    text = json.dumps({"message": message}).encode()
                    writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n")
                    writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(text), text))
                    continue
                self.bytes += len(head) + len(body)
                engine.write(head + body)
                if b"upgrade: tcp" in lines:
                    await self._pump(reader, engine)
                    break
        with contextlib.suppress(OSError):
            engine.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(256 * 1024):
                self.bytes += len(data)
                writer.write(data)
                await writer.drain()
        with contextlib.suppress(OSError):
            writer.close()


def _ignore(_loop: asyncio.AbstractEventLoop, _context: dict[str, Any]) -> None:
    """A client that goes away is no fault of the listener."""


def make_certificates(folder: Path) -> None:
    """Make an authority, and certificates for an engine at 127.0.0.1 and for its client, with openssl."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *new, "-keyout", "ca-key.pem", "-out", "ca.pem", "-subj", "/CN=test authority")
    (folder / "server.ext").write_text("subjectAltName=IP:127.0.0.1\n", encoding="ascii")
    (folder / "client.ext").write_text("extendedKeyUsage=clientAuth\n", encoding="ascii")
    for name, key, cert in (("server", "server-key.pem", "server-cert.pem"), ("client", "key.pem", "cert.pem")):
        openssl("req", *new, "-keyout", key, "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signing = ("-CA", "ca.pem", "-CAkey", "ca-key.pem", "-CAcreateserial", "-extfile", f"{name}.ext")
        openssl("x509", "-req", "-in", f"{name}.csr", *signing, "-out", cert)


def server_context(folder: Path) -> ssl.SSLContext:
    """Return the TLS of an engine that takes only clients with a certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "ca.pem"))
    context.load_cert_chain(folder / "server-cert.pem", folder / "server-key.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


FAKE_SSH: Final = """\
#!{python}
import os, selectors, socket, sys
with open({log!r}, "a") as log:
    log.write(" ".join(sys.argv[1:]) + "\\n")
engine = socket.socket(socket.AF_UNIX)
engine.connect({socket!r})
selector = selectors.DefaultSelector()
selector.register(0, selectors.EVENT_READ)
selector.register(engine, selectors.EVENT_READ)
while True:
    for key, _ in selector.select():
        data = os.read(key.fd, 65536)
        if not data:
            sys.exit()
        target = engine.fileno() if key.fd == 0 else 1
        while data:
            data = data[os.write(target, data):]
"""


def fake_ssh(folder: Path, target: str = SOCKET) -> Path:
    """Put a program `ssh` into a folder, which connects to the engine here; return the log of its arguments."""
    log = folder / "ssh.log"
    log.touch()
    program = folder / "ssh"
    program.write_text(FAKE_SSH.format(python=sys.executable, log=str(log), socket=target), encoding="utf-8")
    program.chmod(0o755)
    return log


# -- stand-ins


class FakeEngine(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """An engine on a unix socket that answers as a test says: `answer(method, path)` gives (status, object)."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, path: Path, answer: Callable[[str, str], tuple[int, object] | None]) -> None:
        self.answer = answer
        self.requests: list[str] = []
        super().__init__(str(path), _FakeHandler)

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _FakeHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def address_string(self) -> str:
        return "test"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _respond(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        path = path.partition("/v1.")[2].partition("/")[2] if path.startswith("/v1.") else path.lstrip("/")
        engine = cast("FakeEngine", self.server)
        engine.requests.append(f"{self.command} {path}")
        given = engine.answer(self.command, path)
        if given is None:  # break the connection
            self.close_connection = True
            return
        status, content = given
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _respond  # noqa: N815 - http.server's names


VERSION: Final = {"Version": "1.0", "ApiVersion": "1.41", "Os": "linux", "Arch": "amd64"}
INFO: Final = {"OSType": "linux", "Architecture": "x86_64", "NCPU": 2, "ServerVersion": "1.0"}


def greeting(method: str, path: str) -> tuple[int, object] | None:
    """Answer what every engine is asked first."""
    if method == "GET" and path == "version":
        return 200, VERSION
    if method == "GET" and path == "info":
        return 200, INFO
    return 404, {"message": f"the stand-in does not know {method} {path}"}


class Registry(http.server.ThreadingHTTPServer):
    """A registry on 127.0.0.1 with one image of one file, which it gives only once `gate` is set."""

    daemon_threads = True

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.asked = threading.Event()
        self.manifests = 0
        self.blobs: dict[str, bytes] = {}
        super().__init__(("127.0.0.1", 0), _RegistryHandler)
        self.image = f"127.0.0.1:{self.server_port}/runenv-test/pulled:1"
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            entry = tarfile.TarInfo("hello.txt")
            entry.size = 5
            archive.addfile(entry, io.BytesIO(b"hello"))
        layer = buffer.getvalue()
        root = {"type": "layers", "diff_ids": [_digest(layer)]}
        config = json.dumps({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": root}).encode()
        packed = gzip.compress(layer)
        kind = "application/vnd.docker"
        self.manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": f"{kind}.distribution.manifest.v2+json",
                "config": self._add(config, f"{kind}.container.image.v1+json"),
                "layers": [self._add(packed, f"{kind}.image.rootfs.diff.tar.gzip")],
            }
        ).encode()

    def _add(self, blob: bytes, media_type: str) -> dict[str, object]:
        self.blobs[_digest(blob)] = blob
        return {"mediaType": media_type, "size": len(blob), "digest": _digest(blob)}

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.set()
        self.shutdown()
        self.server_close()


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


class _RegistryHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _respond(self) -> None:
        registry = cast("Registry", self.server)
        kind, status, body = "application/json", 200, b"{}"
        if "/manifests/" in self.path:
            if self.command == "GET":
                registry.manifests += 1
            kind, body = "application/vnd.docker.distribution.manifest.v2+json", registry.manifest
        elif "/blobs/" in self.path:
            registry.asked.set()
            registry.gate.wait(PATIENCE)
            kind, body = "application/octet-stream", registry.blobs[self.path.rpartition("/")[2]]
        elif self.path != "/v2/":
            status = 404
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Docker-Content-Digest", _digest(body))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(OSError):
                self.wfile.write(body)

    do_GET = do_HEAD = _respond  # noqa: N815 - http.server's names


# -- owners that die


@contextlib.contextmanager
def owner_process(mark: Marked, body: str) -> Generator[subprocess.Popen[str]]:
    """Run a program that owns envs, in a process of its own; in `body`, `config` and `say` are at hand."""
    program = f"""
        import asyncio, os, signal, sys
        from runenv.envs import open_env
        from tests.envs.engines import config as plain

        def config(**settings):
            return plain(labels={mark.labels!r}, **settings)

        def say(*words):
            print(*words, flush=True)

        async def main():
{textwrap.indent(textwrap.dedent(body).strip(), " " * 12)}

        asyncio.run(main())
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
