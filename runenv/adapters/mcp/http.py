"""The server over streamable HTTP: many clients, each a session of the protocol with an env of its own.

The SDK's transport speaks the protocol; here is who may come in, and how long a client stays. Its own manager of
sessions has one server for all of them and does not tell when one ends, which is when an env has to.

**Sessions.** The revision 2026-07-28 has none: nothing in a request says which of an agent's calls belong together, and
an env that several clients share is what this project does not do. So over HTTP the revisions up to 2025-11-25 are
spoken, which have `Mcp-Session-Id`; a client that offers the newer one is told so and falls back (decided 2026-12-01,
mcp 2.3.0; the Go SDK does the same for servers with state).

**The end.** A client leaves by DELETE. One that vanishes loses its connections: when the last one is lost before it was
answered (a stream of notifications always is), it has `GRACE` seconds to come back, then its env is closed. One that
keeps no connection between calls is given up after `idle` seconds. A call whose connection is lost is cancelled, since
without a store of events nobody can get its answer any more.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import socket
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import uuid4

import anyio
import uvicorn
from mcp import types
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.transport_security import RequestBodyLimitMiddleware, TransportSecuritySettings
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.responses import Response

from runenv.adapters.mcp.client import Client
from runenv.adapters.mcp.connections import Crowd, TimedProtocol
from runenv.adapters.mcp.handlers import GONE, initialization, make_server
from runenv.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from typing import Self

    from anyio.abc import TaskGroup, TaskStatus
    from starlette.types import ASGIApp, Message, Receive, Send
    from starlette.types import Scope as Connection

    from runenv.adapters.mcp.client import Offer

__all__ = ("GRACE", "IDLE", "MAX_CLIENTS", "Listener", "serve_http")

_log = logging.getLogger(__name__)

PATH: Final = "/mcp"
MESSAGE_BYTES: Final = 1024 * 1024
"""Of one message that we send: the official client's `DEFAULT_MAX_SSE_EVENT_SIZE`; a larger one ends its request."""
REQUEST_BYTES: Final = 4 * 1024 * 1024
"""Of one message that a client sends."""
GRACE: Final = 3.0
"""Seconds for a client that lost its connection to come back; the official ones try again after one and after 2.5."""
IDLE: Final = 1800.0
"""Seconds that a client without a connection may take between two requests, unless told otherwise."""
MAX_CLIENTS: Final = 64
"""Clients at a time, each of which may have a container."""
SHUTDOWN_TIMEOUT: Final = 10.0
"""Seconds that closing all envs may take."""
MIN_TOKEN: Final = 16
"""Characters of a token below which it could be guessed."""
_LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, slots=True)
class Listener:
    """An open socket, and who may come in through it.

    Attributes:
        socket: bound, listening.
        url: where clients find the server.
        token: what they have to show, or None: everybody on this host may come in.
        security: the SDK's protection against DNS rebinding.
        is_loopback: only this host reaches it.
    """

    socket: socket.socket
    url: str
    token: str | None = field(repr=False)
    security: TransportSecuritySettings
    is_loopback: bool

    @classmethod
    def open(cls, address: str, *, token: str | None = None, names: Sequence[str] = ()) -> Self:
        """Listen on an address.

        Args:
            address: HOST:PORT; port 0 is a free one. An IPv6 address stands in brackets.
            token: what clients have to show; needed unless HOST is this host itself.
            names: other names of this server in URLs of its clients, such as "box.example:8000" or "box.example:*".

        Raises:
            ConfigError: it is no address, or anybody on the network could come in.
            OSError: it cannot be listened on.
        """
        host, port = _host_and_port(address)
        if token is not None and len(token) < MIN_TOKEN:
            raise ConfigError(f"the token has {len(token)} characters, which can be guessed: take {MIN_TOKEN} or more")
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except socket.gaierror as error:
            raise ConfigError(f"{host!r} is no name of this host: {error.strerror}") from error
        family, kind, protocol, _, resolved = found[0]
        ip = ipaddress.ip_address(str(resolved[0]).partition("%")[0])
        if token is None and not ip.is_loopback:
            raise ConfigError(
                f"whoever reaches {address!r} could run commands: listening there needs a token (`token`, or"
                " --token-env NAME of the command)"
            )
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(resolved)
            bound.listen(128)
        except OSError as error:
            bound.close()
            raise OSError(error.errno, f"{error.strerror}: give another address than {address!r}") from error
        port = int(bound.getsockname()[1])
        own = _LOOPBACK_NAMES if ip.is_loopback else (_in_url(host),)
        hosts = [given for name in (*own, *names) for given in (name, f"{name}:*")]  # port 80 is not said
        security = TransportSecuritySettings(
            # Which names a server on all addresses has, it cannot know; a page that was led to it has no token.
            enable_dns_rebinding_protection=not ip.is_unspecified or bool(names),
            allowed_hosts=hosts,
            allowed_origins=[f"{scheme}://{name}" for name in hosts for scheme in ("http", "https")],
        )
        return cls(bound, f"http://{_in_url(host)}:{port}{PATH}", token, security, ip.is_loopback)


def _host_and_port(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdecimal() or int(port) > 65535:  # noqa: PLR2004
        raise ConfigError(f"{address!r} is no address to listen on: write HOST:PORT, such as 127.0.0.1:8000")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


async def serve_http(
    offer: Offer, listener: Listener, *, idle: float = IDLE, grace: float = GRACE, max_clients: int = MAX_CLIENTS
) -> None:
    """Serve clients until a signal ends this process.

    Args:
        offer: what each of them gets.
        listener: where they come in.
        idle: seconds that one without a connection may take between two requests.
        grace: seconds that one has to come back whose connection was lost.
        max_clients: how many there may be at a time.
    """
    async with anyio.create_task_group() as tasks:
        clients = _Clients(offer, listener, tasks, idle=idle, grace=grace, max_clients=max_clients)
        config = uvicorn.Config(
            _door(RequestBodyLimitMiddleware(clients, REQUEST_BYTES), listener.token),
            http=cast("Any", partial(TimedProtocol, Crowd())),
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        server = _Server(config, clients)
        try:
            await server.serve(sockets=[listener.socket])
        finally:
            with anyio.CancelScope(shield=True):
                await server.shutdown([listener.socket])


class _Server(uvicorn.Server):
    """uvicorn, which lets the clients leave before it waits for their connections to end."""

    def __init__(self, config: uvicorn.Config, clients: _Clients) -> None:
        super().__init__(config)
        self._clients = clients

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Do it once, whoever asks: uvicorn at a signal, or the end of a server that is cancelled."""
        await self._clients.end()
        if self.started:
            self.started = False
            await super().shutdown(sockets=sockets)


def _door(app: ASGIApp, token: str | None) -> ASGIApp:
    """Let in who has the token, and asks for the one path that there is."""
    expected = None if token is None else token.encode()

    async def door(connection: Connection, receive: Receive, send: Send) -> None:
        headers = Headers(scope=connection)
        if expected is not None and not _shows(headers.getlist("authorization"), expected):
            refusal = Response("Unauthorized", 401, {"WWW-Authenticate": "Bearer"})
            await refusal(connection, receive, send)
        elif connection["path"].rstrip("/") != PATH:
            await Response(f"Not Found: the server is at {PATH}", 404)(connection, receive, send)
        else:
            await app(connection, receive, send)

    return door


def _shows(given: list[str], expected: bytes) -> bool:
    if len(given) != 1:
        return False
    scheme, _, token = given[0].partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(token.strip().encode("latin-1"), expected)


class _Visit:
    """The stay of one client: its transport, its connections, and until when it may be without one."""

    def __init__(self, transport: StreamableHTTPServerTransport) -> None:
        self.transport = transport
        self.guard = anyio.CancelScope(shield=True)  # whoever cancels the server waits for an orderly end
        self.scope = anyio.CancelScope()
        self.ended = anyio.Event()
        self._connections = 0

    @property
    def is_over(self) -> bool:
        """Its env is being closed, or is."""
        return self.scope.cancel_called or self.transport.is_terminated

    @contextmanager
    def connected(self, idle: float, grace: float, lost: Callable[[], bool]) -> Generator[None]:
        """Keep the client while one of its requests is under way; afterwards it has `idle` or `grace` seconds."""
        self._connections += 1
        self.scope.deadline = float("inf")
        try:
            yield
        finally:
            self._connections -= 1
            if not self._connections:
                self.scope.deadline = anyio.current_time() + (grace if lost() else idle)


class _Clients:
    """The clients that are here, by their session ids; an ASGI application."""

    def __init__(
        self, offer: Offer, listener: Listener, tasks: TaskGroup, *, idle: float, grace: float, max_clients: int
    ) -> None:
        self._offer = offer
        self._listener = listener
        self._tasks = tasks
        self._idle = idle
        self._grace = grace
        self._max_clients = max_clients
        self._visits: dict[str, _Visit] = {}
        self._ending = False

    async def __call__(self, connection: Connection, receive: Receive, send: Send) -> None:
        headers = Headers(scope=connection)
        version, session = headers.get("mcp-protocol-version"), headers.get("mcp-session-id")
        if version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
            await _no_such_version(version)(connection, receive, send)
        elif session is None:
            await self._admit(connection, receive, send)
        elif (visit := self._visits.get(session)) is not None and not visit.is_over:
            await self._serve(visit, connection, receive, send)
        else:
            text = "Session not found: it has ended, with its sandbox; connect again"
            await _refusal(404, types.INVALID_REQUEST, text)(connection, receive, send)

    async def end(self) -> None:
        """Have all clients leave; returns when their envs are closed."""
        self._ending = True
        visits = list(self._visits.values())
        for visit in visits:
            visit.scope.cancel()
        with anyio.move_on_after(SHUTDOWN_TIMEOUT):
            for visit in visits:
                await visit.ended.wait()
        for visit in visits:
            visit.guard.cancel()

    async def _admit(self, connection: Connection, receive: Receive, send: Send) -> None:
        """Serve the first request of a client; it stays only if that was one that begins a session."""
        if self._ending or len(self._visits) >= self._max_clients:
            text = f"Too many open sessions: there are {len(self._visits)}"
            await _refusal(503, types.INTERNAL_ERROR, text)(connection, receive, send)
            return
        session = uuid4().hex
        transport = StreamableHTTPServerTransport(session, security_settings=self._listener.security)
        self._visits[session] = visit = _Visit(transport)
        status = 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._tasks.start(self._stay, session, visit)
            await self._serve(visit, connection, receive, watched)
        finally:
            if not 200 <= status < 300:  # noqa: PLR2004 - it was refused
                visit.scope.cancel()

    async def _serve(self, visit: _Visit, connection: Connection, receive: Receive, send: Send) -> None:
        gone = anyio.Event()
        answered = False

        async def listening() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect" and not answered:
                gone.set()
            return message

        async def answering(message: Message) -> None:
            nonlocal answered
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                answered = True

        connection[GONE] = gone
        with visit.connected(self._idle, self._grace, gone.is_set):
            await visit.transport.handle_request(connection, listening, answering)
        if visit.transport.is_terminated:  # by DELETE
            visit.scope.cancel()

    async def _stay(self, session: str, visit: _Visit, *, task_status: TaskStatus[None]) -> None:
        server = make_server(Client(self._offer, message_bytes=MESSAGE_BYTES))
        try:
            with visit.guard:
                async with visit.transport.connect() as (messages, answers):
                    task_status.started()
                    with visit.scope:
                        await server.run(messages, answers, initialization(server))
        except Exception:  # noqa: BLE001 - one client's end must not be the others'
            _log.exception("the session of a client broke down")
        finally:
            self._visits.pop(session, None)
            with anyio.CancelScope(shield=True):
                await visit.transport.terminate()
            visit.ended.set()


def _refusal(status: int, code: int, text: str, data: object = None) -> Response:
    body = types.JSONRPCError(jsonrpc="2.0", id=None, error=types.ErrorData(code=code, message=text, data=data))
    return Response(body.model_dump_json(by_alias=True, exclude_unset=True), status, media_type="application/json")


def _no_such_version(version: str) -> Response:
    return _refusal(
        400,
        types.UNSUPPORTED_PROTOCOL_VERSION,
        f"{version[:40]!r} has no sessions, and each session here has a sandbox of its own: use an older revision",
        {"supported": list(HANDSHAKE_PROTOCOL_VERSIONS), "requested": version[:40]},
    )
