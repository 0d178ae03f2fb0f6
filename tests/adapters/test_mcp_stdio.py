"""`runenv mcp` as a process: over stdio and HTTP, its command line, and what is left when one side is killed."""

from __future__ import annotations

import json
import re
import shlex
import signal
import textwrap
from typing import TYPE_CHECKING

import anyio.to_thread
import pytest
from mcp import Client, types

from tests.adapters.mcp_peers import (
    TOKEN,
    Raw,
    handle_of,
    http_client,
    napping,
    process,
    python,
    running,
    stdio,
    text_of,
)
from tests.command_line import PROGRAM, run, runenv
from tests.envs.engines import BASE, wait_until

if TYPE_CHECKING:
    from pathlib import Path
    from subprocess import Popen

    from tests.envs.engines import Marked

SERVER = (*PROGRAM, "mcp")
LOCAL = (*SERVER, "--env", "local")


@pytest.fixture
def agents(tmp_path: Path, mark: Marked) -> Path:
    """The file with the envs of agents; the coder's are containers of this test."""
    envs = {
        "coder": {"kind": "docker", "image": BASE, "pull": "never", "labels": mark.labels},
        "writer": {"kind": "local"},
    }
    path = tmp_path / "agents.json"
    path.write_text(json.dumps(envs))
    return path


# -- stdio


@pytest.mark.anyio
async def test_the_official_client_works_over_stdio_in_a_container(agents: Path, mark: Marked, tmp_path: Path) -> None:
    """From the file with the envs of agents; artifacts stay in the store, the container goes."""
    store = tmp_path / "store"
    server = stdio("--config", str(agents), "--agent", "coder", "--store", f"file://{store}", "--deny", "glob")
    async with Client(server) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert "exec" in names
        assert "glob" not in names
        done = await client.call_tool("exec", {"command": "id -u; head -c 20000000 /dev/urandom > big"})
        assert "1000" in text_of(done)
        saved = await client.call_tool("artifact_save", {"path": "big"})
        assert len(saved.model_dump_json()) < 2000
        (resource,) = (await client.list_resources()).resources
        assert (resource.uri, resource.size) == (handle_of(saved), 20_000_000)
        assert len(mark.containers()) == 1
    await anyio.to_thread.run_sync(mark.wait_gone)
    assert sum(path.stat().st_size for path in store.rglob("*") if path.is_file()) >= 20_000_000


def test_the_next_session_finds_what_a_store_has_kept(tmp_path: Path) -> None:
    """For good, and `runenv artifacts` shows it under the options that are said at the start."""
    url = f"file://{tmp_path}/store"
    for options, said in (
        ((), b"--session mcp"),
        (("--run", "r", "--session", "a b", "--scope-user", "u"), b"--run r --session 'a b' --user u"),
    ):
        handle = _save(*options, "--store", url, said=said)
        shown = runenv("artifacts", "ls", "--json", "--store", url, *shlex.split(said.decode()))
        (record,) = [json.loads(line) for line in shown.stdout.splitlines()]
        assert record["handle"] == handle
        assert (record["expires"] is None) == (not options)
        with process(*LOCAL, *options, "--store", url) as server:
            client = Raw(server)
            client.shake_hands("2025-06-18")
            assert [one["uri"] for one in client.ask("resources/list")["resources"]] == [handle]
            read = client.ask("resources/read", uri=handle)
            assert read["contents"][0]["text"] == "kept\n"


def _save(*arguments: str, said: bytes) -> str:
    """Save a file in a session of its own, and return its handle."""
    with process(*LOCAL, *arguments) as server:
        client = Raw(server)
        client.shake_hands("2025-06-18")
        client.run("echo kept > f.txt")
        saved = client.ask("tools/call", name="artifact_save", arguments={"path": "f.txt"})
        assert server.stdin is not None
        assert server.stderr is not None
        server.stdin.close()
        assert server.wait(20) == 0
        assert said in server.stderr.readline()
    (uri,) = [content["uri"] for content in saved["content"] if content["type"] == "resource_link"]
    assert isinstance(uri, str)
    return uri


def test_stdout_is_the_protocol_and_nothing_else() -> None:
    """Every line is a message, with the most that is logged; an old client gets texts for links."""
    with process(*LOCAL, "--log", "debug") as server:
        client = Raw(server)
        answer = client.shake_hands("2024-11-05")
        assert answer["protocolVersion"] == "2024-11-05"
        assert answer["serverInfo"]["name"] == "runenv"
        client.run("echo out; echo err >&2; echo data > f.txt")
        saved = client.ask("tools/call", name="artifact_save", arguments={"path": "f.txt"})
        assert {content["type"] for content in saved["content"]} == {"text"}
        assert "runenv+file://" in saved["content"][0]["text"]
        assert server.stdin is not None
        server.stdin.close()
        assert list(client.lines()) == []
        assert server.wait(20) == 0
        assert server.stderr is not None
        assert b"DEBUG" in server.stderr.read()


def test_a_client_that_closes_stdin_ends_everything() -> None:
    """In the middle of a call, too: no process is left, and no folder."""
    nap, left = napping(), napping()
    with process(*LOCAL) as server:
        client = Raw(server)
        client.shake_hands("2025-06-18")
        folder = re.search(r"/\S+", client.run(f"sleep {left} & pwd")["content"][1]["text"])
        assert folder is not None
        client.begin("tools/call", name="exec", arguments={"command": f"sleep {nap}"})
        wait_until(lambda: running(nap) and running(left))
        assert server.stdin is not None
        server.stdin.close()
        assert server.wait(20) == 0
    assert not running(nap)
    assert not running(left)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_everything_and_then_the_server(number: signal.Signals) -> None:
    """It ends by that signal, as its parent expects, though a client is still there."""
    nap = napping()
    with process(*LOCAL) as server:
        client = Raw(server)
        client.shake_hands("2025-06-18")
        client.begin("tools/call", name="exec", arguments={"command": f"sleep {nap}"})
        wait_until(lambda: running(nap))
        server.send_signal(number)
        assert server.wait(20) == -number
        wait_until(lambda: not running(nap), 5)


def test_a_server_that_is_killed_leaves_no_container(agents: Path, mark: Marked) -> None:
    """L2: SIGKILL; gone within five seconds."""
    with process(*SERVER, "--config", str(agents), "--agent", "coder") as server:
        client = Raw(server)
        client.shake_hands("2025-06-18")
        assert "here" in client.run("echo here")["content"][1]["text"]
        client.begin("tools/call", name="exec", arguments={"command": "sleep 1000"})
        assert mark.containers()
        server.kill()
        mark.wait_gone()


VANISHING = """
    import anyio, sys
    from mcp import Client
    from tests.adapters.mcp_peers import http_client, stdio

    async def main():
        *arguments, token = sys.argv[1:]
        over = Client(stdio(*arguments)) if not token else http_client(arguments[0], token)
        async with over as client:
            await client.list_tools()
            print("ready", flush=True)
            await client.call_tool("exec", {"command": "sleep 1000"})

    anyio.run(main)
"""


def test_a_client_that_is_killed_leaves_no_container_over_stdio(agents: Path, mark: Marked) -> None:
    """Within five seconds; the server goes too."""
    program = python(textwrap.dedent(VANISHING))
    with process(*program, "--config", str(agents), "--agent", "coder", "") as client:
        assert _ready(client)
        assert mark.containers()
        client.kill()
        mark.wait_gone()


# -- HTTP


def test_a_client_that_is_killed_leaves_no_container_over_http(agents: Path, mark: Marked) -> None:
    """Within five seconds; the server serves on, and ends by SIGTERM without anything left."""
    program = python(textwrap.dedent(VANISHING))
    arguments = ("--config", str(agents), "--agent", "coder", "--http", "127.0.0.1:0", "--token-env", "THE_TOKEN")
    with process(*SERVER, *arguments, THE_TOKEN=TOKEN) as server:
        url = _address(server)
        with process(*program, url, TOKEN) as client:
            assert _ready(client)
            assert mark.containers()
            client.kill()
            mark.wait_gone()
        anyio.run(_one_call, url)
        with process(*program, url, TOKEN) as client:
            assert _ready(client)
            assert mark.containers()
            server.terminate()
            assert server.wait(20) == -signal.SIGTERM
            mark.wait_gone()


async def _one_call(url: str) -> None:
    async with http_client(url) as client:
        result = await client.call_tool("exec", {"command": "echo hello"})
    assert isinstance(result, types.CallToolResult)
    assert "hello" in text_of(result)


@pytest.mark.parametrize(
    ("options", "said", "seen_by_others"),
    [((), b"each client has artifacts of its own", 0), (("--session", "s"), b"all clients share", 1)],
)
def test_clients_over_http_share_artifacts_only_where_that_was_said(
    tmp_path: Path, options: tuple[str, ...], said: bytes, seen_by_others: int
) -> None:
    """And the server says which it is."""
    arguments = ("--store", f"file://{tmp_path}/store", "--http", "127.0.0.1:0", "--token-env", "T", *options)
    with process(*LOCAL, *arguments, T=TOKEN) as server:
        assert server.stderr is not None
        assert said in server.stderr.readline()
        anyio.run(_two_clients, _address(server), seen_by_others)


async def _two_clients(url: str, seen_by_others: int) -> None:
    async with http_client(url) as one:
        await one.call_tool("exec", {"command": "echo mine > f"})
        saved = await one.call_tool("artifact_save", {"path": "f"})
        assert isinstance(saved, types.CallToolResult)
        async with http_client(url) as other:
            seen = [resource.uri for resource in (await other.list_resources()).resources]
    assert seen == ([handle_of(saved)] * seen_by_others)


def _ready(client: Popen[bytes]) -> bool:
    assert client.stdout is not None
    return client.stdout.readline() == b"ready\n"


def _address(server: Popen[bytes]) -> str:
    assert server.stderr is not None
    found = re.search(rb"listening on (\S+);", server.stderr.readline())
    assert found is not None
    return found[1].decode()


# -- the command line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--allow", "bash"], "there is no tool 'bash'"),
        (["--token-env", "T"], "are for --http"),
        (["--http", "127.0.0.1:0", "--token-env", "NOT_THERE"], "there is no such variable here"),
        (["--http", "0.0.0.0:0"], "--token-env NAME"),
        (["--http", "nowhere.invalid:0"], "--http nowhere.invalid:0: 'nowhere.invalid' is no name of this host"),
        (["--deny", "exec", "--allow-path", "../x"], "the path pattern '../x'"),
        (["--run", "a/b"], "the id of a run 'a/b'"),
        (["--http", "8000"], "HOST:PORT"),
        (["--log", "loud"], "debug, info, warning or error"),
        (["--idle", "0"], "above 0"),
        (["--image", "x"], "--image is not for local envs"),
        (["-o", "region=x"], "--store"),
    ],
)
def test_what_cannot_be_served_is_refused_in_a_line(
    arguments: list[str], said: str, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything listens, and nothing on stdout."""
    monkeypatch.delenv("RUNENV_STORE", raising=False)
    done = run(capfdbinary, "mcp", "--env", "local", *arguments)
    assert (done.returncode, done.stdout) == (1, b"")
    (line,) = done.stderr.decode().splitlines()
    assert said in line


def test_a_command_that_rules_for_paths_do_not_bind_is_named(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Nobody takes them for a boundary."""
    rules = ("--env", "local", "--deny-path", "*.env", "--http", "8000")  # which ends it
    assert b"exec goes wherever its user may" in run(capfdbinary, "mcp", *rules).stderr
    assert b"exec goes" not in run(capfdbinary, "mcp", *rules, "--deny", "exec").stderr
    assert b"exec goes" not in run(capfdbinary, "mcp", *rules, "--allow", "glob").stderr


def test_without_the_sdk_the_command_says_what_to_install() -> None:
    """Everything else of the command line works without it."""
    program = "import sys; sys.modules['mcp'] = None; from runenv.cli import main; main()"
    with process(*python(program), "mcp", "--env", "local") as command:
        out, said = command.communicate(timeout=60)
    assert (command.returncode, out) == (1, b"")
    assert b"pip install 'runenv-sandbox[mcp]'" in said


def test_a_folder_that_all_clients_share_is_named(tmp_path: Path) -> None:
    """It is what was asked for, and not what clients of this server have otherwise."""
    with process(*LOCAL, "--workdir", str(tmp_path), "--http", "127.0.0.1:0") as server:
        assert server.stderr is not None
        said = server.stderr.readline() + server.stderr.readline()
    assert b"no --token-env" in said
    assert b"all clients work in the same folder" in said
