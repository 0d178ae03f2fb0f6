"""The MCP server over HTTP: who may come in, whose env is whose, and when a client has left."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING

import anyio
import httpx2
import pytest
from mcp import MCPError

from runenv.adapters.mcp import Listener
from runenv.errors import ConfigError
from tests.adapters.mcp_peers import (
    TOKEN,
    Setting,
    handle_of,
    http_client,
    napping,
    offer,
    running,
    served,
    text_of,
)
from tests.envs.engines import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

pytestmark = pytest.mark.anyio

VERSION = "2025-06-18"
HEADERS = {"Accept": "application/json, text/event-stream", "Authorization": f"Bearer {TOKEN}"}
UNKNOWN = "runenv+file://00000000-0000-4000-8000-000000000000"


@pytest.fixture
def listener() -> Generator[Listener]:
    """A free port of this host; clients need the token."""
    with listening(token=TOKEN) as opened:
        yield opened


@contextmanager
def listening(address: str = "127.0.0.1:0", **settings: Setting) -> Generator[Listener]:
    """Listen, and stop in the end."""
    opened = Listener.open(address, **settings)
    yield opened
    opened.socket.close()


class Browser:
    """The protocol by hand: one session, without a stream of notifications."""

    def __init__(self, url: str, connections: httpx2.AsyncClient) -> None:
        self.url = url
        self.connections = connections
        self.session: dict[str, str] = {}

    async def post(self, method: str, **params: object) -> httpx2.Response:
        """Send a request and wait for its end."""
        return await self.connections.post(self.url, json=message(method, params), headers=self.session)

    async def begin(self) -> None:
        """Begin the session."""
        who = {"name": "test", "version": "1"}
        answer = await self.post("initialize", protocolVersion=VERSION, capabilities={}, clientInfo=who)
        assert answer.status_code == 200
        self.session = {"Mcp-Session-Id": answer.headers["mcp-session-id"], "MCP-Protocol-Version": VERSION}

    async def run(self, command: str) -> str:
        """Call the tool `exec`, and return what came, as text."""
        answer = await self.post("tools/call", name="exec", arguments={"command": command})
        return f"{answer.status_code} {answer.text}"

    async def lose(self, command: str, marker: str) -> None:
        """Call the tool `exec`, and hang up once a process with the marker runs."""
        body = message("tools/call", {"name": "exec", "arguments": {"command": command}})
        async with self.connections.stream("POST", self.url, json=body, headers=self.session) as answer:
            assert answer.status_code == 200
            await until(lambda: running(marker))


def message(method: str, params: object) -> dict[str, object]:
    """Return a request."""
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


@asynccontextmanager
async def browser(url: str, **headers: str) -> AsyncGenerator[Browser]:
    """A client by hand."""
    async with httpx2.AsyncClient(headers={**HEADERS, **headers}, timeout=30) as connections:
        yield Browser(url, connections)


# -- who may come in


@pytest.mark.parametrize(
    "header", [{}, {"Authorization": ""}, {"Authorization": "Bearer"}, {"Authorization": f"Bearer {TOKEN}x"},
               {"Authorization": f"Basic {TOKEN}"}, {"Authorization": "Bearer ä"}]
)  # fmt: skip
async def test_a_wrong_token_is_401(listener: Listener, header: dict[str, str]) -> None:
    """On every path and for every method; with a hint of what is missing."""
    async with offer() as given, served(given, listener) as url, httpx2.AsyncClient() as anybody:
        encoded = {name.encode(): value.encode() for name, value in header.items()}
        for method, path in (("POST", url), ("GET", url), ("DELETE", url), ("GET", url.removesuffix("mcp"))):
            answer = await anybody.request(method, path, headers=encoded)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"


async def test_two_tokens_are_none(listener: Listener) -> None:
    """Which of them a proxy looked at, nobody knows."""
    async with offer() as given, served(given, listener) as url, httpx2.AsyncClient() as anybody:
        answer = await anybody.get(url, headers=[("Authorization", f"Bearer {TOKEN}"), ("Authorization", "Bearer x")])
        assert answer.status_code == 401


async def test_a_token_may_be_any_text() -> None:
    """A header is bytes."""
    token = "grüße aus der Küche"  # noqa: S105 - of this test
    with listening(token=token) as listener:
        async with offer() as given, served(given, listener) as url, httpx2.AsyncClient() as anybody:
            answer = await anybody.get(url, headers={b"Authorization": f"Bearer {token}".encode()})
            assert answer.status_code == 400  # came in, without a session


async def test_a_wrong_token_is_an_error_of_the_official_client(listener: Listener) -> None:
    """And the right one is none."""
    async with offer() as given, served(given, listener) as url:
        with pytest.RaisesGroup(MCPError, flatten_subgroups=True, allow_unwrapped=True):
            async with http_client(url, "wrong"):
                pass
        async with http_client(url) as client:
            assert "hello" in text_of(await client.call_tool("exec", {"command": "echo hello"}))


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_other_hosts_need_a_token(address: str) -> None:
    """Whoever reaches the port could run commands."""
    with pytest.raises(ConfigError, match="needs a token"):
        Listener.open(address)
    with listening(address, token=TOKEN) as opened:
        assert not opened.is_loopback
        assert TOKEN not in repr(opened)


@pytest.mark.parametrize("address", ["8000", ":8000", "localhost", "localhost:x", "localhost:99999", "a:b:c"])
def test_an_address_is_a_host_and_a_port(address: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(ConfigError, match="HOST:PORT"):
        Listener.open(address)


def test_a_token_that_can_be_guessed_is_refused() -> None:
    """Without being repeated."""
    with pytest.raises(ConfigError, match="6 characters") as caught:
        Listener.open("127.0.0.1:0", token="secret")  # noqa: S106 - it is refused
    assert "secret" not in str(caught.value)


def test_a_port_that_is_taken_is_said_so(listener: Listener) -> None:
    """With the address that was asked for."""
    port = listener.socket.getsockname()[1]
    with pytest.raises(OSError, match=f"127.0.0.1:{port}"):
        Listener.open(f"127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("header", "status"), [({"Host": "evil.example"}, 421), ({"Origin": "https://evil.example"}, 403)]
)
async def test_a_page_of_a_browser_that_was_led_here_is_refused(header: dict[str, str], status: int) -> None:
    """DNS rebinding: the name is not ours; no client is kept for it."""
    with listening() as listener:
        async with offer() as given, served(given, listener, max_clients=1) as url:
            for _ in range(3):
                async with browser(url, **header) as page:
                    assert (await page.post("initialize")).status_code == status
            async with browser(url) as honest:
                await honest.begin()


async def test_other_names_of_the_server_can_be_named() -> None:
    """Such as that of the proxy before it."""
    with listening(names=["box.example"]) as listener:
        async with offer() as given, served(given, listener) as url, browser(url, Host="box.example") as client:
            await client.begin()


async def test_port_80_is_not_said() -> None:
    """Clients leave it out of the name."""
    with listening() as listener:
        async with offer() as given, served(given, listener) as url, browser(url, Host="127.0.0.1") as client:
            await client.begin()


async def test_there_is_one_path(listener: Listener) -> None:
    """A wrong one is told so."""
    async with offer() as given, served(given, listener) as url, browser(url) as client:
        assert (await client.connections.post(f"{url}x")).status_code == 404


async def test_a_request_that_is_too_large_is_refused(listener: Listener) -> None:
    """Before it is read whole."""
    async with offer() as given, served(given, listener) as url, browser(url) as client:
        assert (await client.post("initialize", much="x" * 5_000_000)).status_code == 413


# -- sessions


async def test_the_revision_without_sessions_is_told_to_fall_back(listener: Listener) -> None:
    """The official client does so by itself."""
    async with offer() as given, served(given, listener) as url:
        async with http_client(url, mode="auto") as client:
            assert client.protocol_version == "2025-11-25"
        async with browser(url, **{"MCP-Protocol-Version": "2026-07-28"}) as modern:
            answer = await modern.post("tools/list")
        assert answer.status_code == 400
        assert "2025-11-25" in answer.json()["error"]["data"]["supported"]


async def test_two_sessions_share_neither_files_nor_artifacts(listener: Listener) -> None:
    """With the same token and over one store."""
    async with (
        offer() as given,
        served(given, listener) as url,
        http_client(url) as one,
        http_client(url) as other,
    ):
        await one.call_tool("exec", {"command": "echo mine > secret"})
        handle = handle_of(await one.call_tool("artifact_save", {"path": "secret"}))
        assert (await one.list_resources()).resources
        assert (await other.call_tool("file_read", {"path": "secret"})).is_error
        assert (await other.list_resources()).resources == []
        said = []
        for uri in (handle, UNKNOWN):
            with pytest.raises(MCPError) as caught:
                await other.read_resource(uri)
            said.append(caught.value.message.replace(uri, ""))
        assert said[0] == said[1]


async def test_20_mb_go_by_handle_and_in_parts(listener: Listener) -> None:
    """No message is larger than the official client takes."""
    async with offer() as given, served(given, listener) as url, http_client(url) as client:
        await client.call_tool("exec", {"command": "head -c 20000000 /dev/urandom > big"})
        handle = handle_of(await client.call_tool("artifact_save", {"path": "big"}))
        with pytest.raises(MCPError) as caught:
            await client.read_resource(handle)
        most = caught.value.data["max_bytes"]
        (part,) = (await client.read_resource(f"{handle}?offset=0&length={most}")).contents
        assert most < len(part.model_dump_json()) < 1024 * 1024


async def test_a_client_that_leaves_takes_its_env_along(listener: Listener) -> None:
    """DELETE: what runs in the background ends, and the session's id is nobody's."""
    nap = napping()
    async with offer() as given, served(given, listener) as url, browser(url) as client:
        await client.begin()
        assert (await client.run(f"sleep {nap} &")).startswith("200")
        assert running(nap)
        assert (await client.connections.delete(url, headers=client.session)).status_code == 200
        await until(lambda: not running(nap))
        assert "connect again" in await client.run("echo")


async def test_a_call_whose_connection_is_lost_is_cancelled(listener: Listener) -> None:
    """Nobody can get its answer; the session goes on if the client does."""
    nap = napping()
    async with offer() as given, served(given, listener, grace=60) as url, browser(url) as client:
        await client.begin()
        await client.lose(f"touch here; sleep {nap}", nap)
        await until(lambda: not running(nap))
        assert "here" in await client.run("ls")


async def test_a_client_that_vanishes_has_a_grace_and_then_no_env(listener: Listener) -> None:
    """What it has left running ends."""
    left, nap = napping(), napping()
    async with offer() as given, served(given, listener, grace=0.05) as url, browser(url) as client:
        await client.begin()
        await client.run(f"sleep {left} &")
        await client.lose(f"sleep {nap}", nap)
        await until(lambda: not running(left))
        assert "connect again" in await client.run("echo")


async def test_a_client_without_a_connection_is_given_up_when_idle(listener: Listener) -> None:
    """It has to connect again."""
    left = napping()
    async with offer() as given, served(given, listener, idle=0.5) as url, browser(url) as client:
        await client.begin()
        await client.run(f"sleep {left} &")
        await until(lambda: not running(left))
        assert "connect again" in await client.run("echo")


async def test_a_call_keeps_its_client(listener: Listener) -> None:
    """However long it takes."""
    async with offer() as given, served(given, listener, idle=0.5) as url, browser(url) as client:
        await client.begin()
        assert "at the end" in await client.run("sleep 1.5; echo at the end")


async def test_there_are_only_so_many_clients(listener: Listener) -> None:
    """Another one is refused until one leaves."""
    async with (
        offer() as given,
        served(given, listener, max_clients=1) as url,
        browser(url) as one,
        browser(url) as two,
    ):
        await one.begin()
        who = {"name": "test", "version": "1"}
        refused = await two.post("initialize", protocolVersion=VERSION, capabilities={}, clientInfo=who)
        assert refused.status_code == 503
        assert json.loads(refused.text)["error"]["message"] == "Too many open sessions: there are 1"
        await one.connections.delete(url, headers=one.session)
        await until_begun(two)


async def until_begun(client: Browser) -> None:
    """Begin, when there is room."""
    with anyio.fail_after(10):
        while True:
            try:
                return await client.begin()
            except AssertionError:
                await anyio.sleep(0.02)


async def test_the_end_of_the_server_ends_all_envs(listener: Listener) -> None:
    """Clients that are in the middle of a call lose it."""
    nap, left = napping(), napping()
    async with offer() as given, browser(listener.url) as client, anyio.create_task_group() as calls:

        async def call() -> None:
            with suppress(httpx2.RemoteProtocolError):  # it may be told in an answer, too
                assert "Connection closed" in await client.run(f"sleep {nap}")

        async with served(given, listener):
            await client.begin()
            await client.run(f"sleep {left} &")
            calls.start_soon(call)
            await until(lambda: running(nap) and running(left))
        assert not running(nap)
        assert not running(left)
