"""The MCP server as the official client sees it: tools, resources, progress, cancellation, ends of envs."""

from __future__ import annotations

import base64
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import pytest
from mcp import MCPError, types

from runenv.adapters.mcp import progress
from runenv.adapters.mcp.handlers import _fitting
from runenv.adapters.mcp.resources import _as_text
from runenv.artifacts import Record, Scope
from runenv.config import LocalConfig
from runenv.tools import PathRules
from runenv.tools.toolset import TOOLS
from runenv.types import ImagePart, TextPart, ToolResult
from tests.adapters.mcp_peers import (
    MESSAGE_BYTES,
    Ours,
    as_blob,
    as_text,
    handle_of,
    in_process,
    napping,
    offer,
    running,
    text_of,
)
from tests.envs.engines import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.envs.engines import Marked

pytestmark = pytest.mark.anyio

ERAS: Final = ("legacy", "auto")
"""With the handshake of the revisions up to 2025-11-25, and as 2026-07-28 has it."""
PICTURE: Final = Path(__file__).parents[1] / "data" / "images" / "alpha.png"
UNKNOWN: Final = "runenv+file://00000000-0000-4000-8000-000000000000"


# -- tools


@pytest.mark.parametrize("era", ERAS)
async def test_the_tools_of_the_toolset_are_listed_and_called(era: str) -> None:
    """T1, W1: names, schemas, hints; a result, and an error that the model reads."""
    async with offer() as given, in_process(given, era) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tuple(tools) == TOOLS
        assert tools["exec"].input_schema["required"] == ["command"]
        hints = {name: tool.annotations.read_only_hint for name, tool in tools.items() if tool.annotations}
        assert (hints["file_read"], hints["exec"]) == (True, False)
        done = await client.call_tool("exec", {"command": "echo 'one env'"})
        assert not done.is_error
        assert "one env" in text_of(done)
        failed = await client.call_tool("file_read", {"path": "nothing"})
        assert failed.is_error
        assert "nothing" in text_of(failed)


async def test_an_unknown_tool_is_an_answer_to_the_model() -> None:
    """It says which there are."""
    async with offer() as given, in_process(given) as client:
        result = await client.call_tool("bash", {})
    assert result.is_error
    assert "exec" in text_of(result)


async def test_tools_can_be_allowed_and_denied() -> None:
    """A tool that is not offered cannot be called either."""
    async with offer(allow=["exec", "glob"], deny=["glob"]) as given, in_process(given) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["exec"]
        assert (await client.call_tool("glob", {"pattern": "*"})).is_error


async def test_an_image_is_an_image() -> None:
    """T3, W1: base64 once, with the type that its bytes have."""
    encoded = base64.b64encode(PICTURE.read_bytes()).decode()
    async with offer() as given, in_process(given) as client:
        await client.call_tool("exec", {"command": f"echo {encoded} | base64 -d > a.png"})
        result = await client.call_tool("file_read", {"path": "a.png"})
    (image,) = [content for content in result.content if isinstance(content, types.ImageContent)]
    assert image.mime_type == "image/png"
    assert base64.b64decode(image.data).startswith(b"\x89PNG")
    assert image.data not in text_of(result)


def test_images_that_a_message_has_no_room_for_are_named() -> None:
    """The official client ends a request whose answer is larger than a MiB."""
    first, second, third = (ImagePart(bytes(size), "image/png") for size in (600, 500, 400))
    result = _fitting(ToolResult((first, second, TextPart("end"), third)), 1000)
    assert result.parts[0] is first
    assert isinstance(result.parts[1], TextPart)
    assert "500 bytes left out" in result.parts[1].text
    assert result.parts[2:] == (TextPart("end"), third)


async def test_what_is_logged_has_no_secrets(caplog: pytest.LogCaptureFixture) -> None:
    """S5: values of the env's variables, wherever they are written."""
    caplog.set_level("DEBUG", "runenv")
    config = LocalConfig.model_validate({"environment": {"KEY": "sesame-open"}})
    async with offer(config=config) as given, in_process(given) as client:
        result = await client.call_tool("exec", {"command": "test $KEY = sesame-open && echo same"})
    assert "same" in text_of(result)
    assert "tool exec" in caplog.text
    assert "sesame" not in caplog.text


# -- artifacts


@pytest.mark.parametrize("era", ERAS)
async def test_a_saved_file_is_linked_listed_and_read(era: str) -> None:
    """By its handle, as text or as bytes."""
    async with offer() as given, in_process(given, era) as client:
        await client.call_tool("exec", {"command": r"printf 'a,b\n' > t.csv; printf '\0\1\2\3' > b.bin"})
        text = handle_of(await client.call_tool("artifact_save", {"path": "t.csv"}))
        blob = handle_of(await client.call_tool("artifact_save", {"path": "b.bin"}))
        listed = (await client.list_resources()).resources
        assert [(one.uri, one.name, one.size) for one in listed] == [(blob, "b.bin", 4), (text, "t.csv", 4)]
        (content,) = (await client.read_resource(text)).contents
        assert (as_text(content).text, content.mime_type, content.uri) == ("a,b\n", "text/csv", text)
        (content,) = (await client.read_resource(blob)).contents
        assert base64.b64decode(as_blob(content).blob) == b"\0\1\2\3"
        (content,) = (await client.read_resource(f"{text}?offset=1&length=2")).contents
        assert base64.b64decode(as_blob(content).blob) == b",b"
        (template,) = (await client.list_resource_templates()).resource_templates
        assert template.uri_template.startswith("runenv+file://{id}")


@pytest.mark.parametrize("length", [1, 2, 3])
async def test_C091_base64_is_the_standard_one_with_padding(length: int) -> None:
    """The client gets no letter of the alphabet for URLs, and all of its bytes."""
    data = b"\xfb\xff\xfe"[:length]
    async with offer() as given, in_process(given) as client:
        await client.call_tool("exec", {"command": r"printf '\373\377\376' | head -c " + f"{length} > b.bin"})
        handle = handle_of(await client.call_tool("artifact_save", {"path": "b.bin"}))
        (content,) = (await client.read_resource(handle)).contents
    assert as_blob(content).blob == base64.b64encode(data).decode()


@pytest.mark.parametrize("query", ["offset=-1", "length=x", "offset=1&more=2", "offset"])
async def test_a_part_is_asked_for_in_numbers(query: str) -> None:
    """Anything else is refused in a sentence."""
    async with offer() as given, in_process(given) as client:
        await client.call_tool("exec", {"command": "echo > f"})
        handle = handle_of(await client.call_tool("artifact_save", {"path": "f"}))
        with pytest.raises(MCPError, match="offset=N&length=N") as caught:
            await client.read_resource(f"{handle}?{query}")
    assert caught.value.code == types.INVALID_PARAMS


async def test_20_mb_go_by_handle_and_not_through_the_protocol() -> None:
    """The answer to saving is small; reading it whole is refused with the way to read it."""
    size = 20_000_000
    async with offer() as given, in_process(given) as client:
        await client.call_tool("exec", {"command": f"head -c {size} /dev/zero > big"})
        saved = await client.call_tool("artifact_save", {"path": "big"})
        assert len(saved.model_dump_json()) < 2000
        handle = handle_of(saved)
        with pytest.raises(MCPError, match="offset=0&length=") as caught:
            await client.read_resource(handle)
        most = caught.value.data["max_bytes"]
        (content,) = (await client.read_resource(f"{handle}?offset={size - 10}&length={most}")).contents
        assert len(base64.b64decode(as_blob(content).blob)) == 10
        (content,) = (await client.read_resource(f"{handle}?offset=0&length={most}")).contents
        assert len(content.model_dump_json()) < MESSAGE_BYTES
        await client.call_tool("artifact_load", {"reference": handle, "path": "copy"})
        same = await client.call_tool("exec", {"command": "cmp big copy && echo same"})
    assert "same" in text_of(same)


def test_a_text_is_read_as_bytes_where_that_is_shorter() -> None:
    """Control characters are six characters each in JSON; and what is no text is bytes."""
    record = Record("h", "n", 0, Scope("r"), 1, "", "text/plain; charset=utf-8", None, 0.0, None, {}, "")
    assert _as_text(record, "ä plain text".encode()) == "ä plain text"
    assert _as_text(record, b"\x01" * 1000) is None
    assert _as_text(record, b"\xff\xfe") is None
    assert _as_text(replace(record, media_type="application/octet-stream"), b"text") is None
    assert _as_text(replace(record, media_type="application/ld+json"), b"{}") == "{}"


async def test_resources_are_listed_by_pages() -> None:
    """In the order of their names, each once; a cursor needs no artifact of its name."""
    async with offer() as given, in_process(ours := Ours(given, message_bytes=MESSAGE_BYTES)) as client:
        assert given.store is not None
        for number in range(120):
            await given.store.put(b"x", filename=f"n{number:03}", scope=ours.scope)
        page = await client.list_resources()
        assert len(page.resources) == 100
        assert page.next_cursor is not None
        rest = await client.list_resources(cursor=page.next_cursor)
        assert rest.next_cursor is None
        names = [one.name for one in (*page.resources, *rest.resources)]
        assert names == [f"n{number:03}" for number in range(120)]
        assert [one.name for one in (await client.list_resources(cursor="run/n118x")).resources] == ["n119"]
        with pytest.raises(MCPError, match="cursor"):
            await client.list_resources(cursor="n118x")


async def test_pages_go_on_from_one_scope_to_the_wider_ones() -> None:
    """A name of the session may come before those of the run."""
    scope = Scope("r", "s", "u")
    async with offer(scope=scope) as given, in_process(given) as client:
        assert given.store is not None
        for number in range(101):
            await given.store.put(b"x", filename=f"n{number:03}", scope=scope)
        await given.store.put(b"x", filename="a", scope=Scope(None, "s", "u"))
        await given.store.put(b"x", filename="b", scope=Scope(None, None, "u"))
        page = await client.list_resources()
        rest = await client.list_resources(cursor=page.next_cursor)
        assert len(page.resources) == 100
        assert [one.name for one in rest.resources] == ["n100", "a", "b"]
        assert rest.next_cursor is None


@pytest.mark.parametrize(("era", "code"), [("legacy", -32002), ("auto", types.INVALID_PARAMS)])
async def test_a_resource_that_is_not_there_has_the_revisions_own_code(era: str, code: int) -> None:
    """Unknown ones and texts that are no handle alike."""
    async with offer() as given, in_process(given, era) as client:
        for uri in (UNKNOWN, "file:///etc/passwd"):
            with pytest.raises(MCPError) as caught:
                await client.read_resource(uri)
            assert caught.value.code == code


async def test_without_a_store_there_are_no_resources() -> None:
    """Nor the tools for them."""
    async with offer(store=None) as given, in_process(given) as client:
        assert client.server_capabilities.resources is None
        assert not [tool.name for tool in (await client.list_tools()).tools if tool.name.startswith("artifact")]


async def test_two_clients_share_neither_files_nor_artifacts() -> None:
    """A4: a handle of the other reads like one that nobody has."""
    async with offer() as given, in_process(given) as one, in_process(given) as other:
        await one.call_tool("exec", {"command": "echo mine > secret"})
        handle = handle_of(await one.call_tool("artifact_save", {"path": "secret"}))
        assert (await other.call_tool("file_read", {"path": "secret"})).is_error
        assert (await other.list_resources()).resources == []
        said = []
        for uri in (handle, UNKNOWN):
            with pytest.raises(MCPError) as caught:
                await other.read_resource(uri)
            said.append((caught.value.code, caught.value.message.replace(uri, "")))
            assert (await other.call_tool("artifact_load", {"reference": uri})).is_error
        assert said[0] == said[1]


async def test_clients_share_the_artifacts_of_a_scope_that_is_given() -> None:
    """Whoever serves has said so; files of their envs stay apart, and one that leaves takes nothing along."""
    async with offer(scope=Scope(session="s"), forgets=True) as given, in_process(given) as one:
        async with in_process(given) as other:
            await other.call_tool("exec", {"command": "echo ours > f"})
            handle = handle_of(await other.call_tool("artifact_save", {"path": "f"}))
        assert (await one.call_tool("file_read", {"path": "f"})).is_error
        (content,) = (await one.read_resource(handle)).contents
        assert as_text(content).text == "ours\n"
        assert "earlier ones included" in (one.instructions or "")


async def test_rules_for_paths_hold_for_the_tools() -> None:
    """As far as they do in any toolset."""
    async with offer(paths=PathRules(allow=["src"], deny=["*.key"])) as given, in_process(given) as client:
        await client.call_tool("exec", {"command": "mkdir src; echo x > src/a; echo x > src/b.key; echo x > c"})
        allowed = {
            path: not (await client.call_tool("file_read", {"path": path})).is_error
            for path in ("src/a", "src/b.key", "c")
        }
    assert allowed == {"src/a": True, "src/b.key": False, "c": False}


async def test_the_artifacts_of_a_client_are_forgotten_only_where_that_is_wanted() -> None:
    """In a store that stays they wait for their time to be over."""
    for forgets in (True, False):
        async with offer(forgets=forgets) as given:
            assert given.store is not None
            async with in_process(ours := Ours(given, message_bytes=MESSAGE_BYTES)) as client:
                await client.call_tool("exec", {"command": "echo > f"})
                handle = handle_of(await client.call_tool("artifact_save", {"path": "f"}))
            left = [record.handle async for record in given.store.list(ours.scope)]
            assert left == ([] if forgets else [handle])


# -- progress and cancellation


@pytest.mark.parametrize("era", ERAS)
async def test_a_long_call_tells_its_progress(era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Growing, as the protocol has it."""
    monkeypatch.setattr(progress, "INTERVAL", 0.01)
    told: list[tuple[float, str | None]] = []
    enough = anyio.Event()

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        assert total is None
        told.append((progress, message))
        if len(told) == 3:
            enough.set()

    async with offer() as given, in_process(given, era) as client, anyio.create_task_group() as calls:
        calls.start_soon(partial(client.call_tool, "exec", {"command": "sleep 1000"}, progress_callback=tell))
        with anyio.fail_after(20):
            await enough.wait()
        calls.cancel_scope.cancel()
    assert [done for done, _ in told] == sorted({done for done, _ in told})
    assert all(message is not None and message.startswith("exec: ") for _, message in told)


async def test_a_transfer_tells_bytes() -> None:
    """Out of the env, where the total is not known to the store, and into it."""
    told: list[tuple[int, int | None]] = []
    async with offer() as given:
        store = given.store
        assert store is not None
        token = progress._passing.set(lambda done, total: told.append((done, total)))
        try:
            handle = await store.put(twice(b"abc"), filename="f", scope="run")
            async with store.open_read(handle, scope="run", offset=2) as chunks:
                assert b"".join([chunk async for chunk in chunks]) == b"cabc"
        finally:
            progress._passing.reset(token)
    assert (6, None) in told
    assert told[-1] == (4, 4)


async def twice(chunk: bytes) -> AsyncIterator[bytes]:
    """Yield it two times."""
    yield chunk
    yield chunk


@pytest.mark.parametrize("era", ERAS)
async def test_a_cancelled_call_leaves_no_process_and_a_usable_env(era: str) -> None:
    """E5: with all that it had started."""
    nap, other = napping(), napping()
    async with offer() as given, in_process(given, era) as client:
        async with anyio.create_task_group() as calls:
            calls.start_soon(client.call_tool, "exec", {"command": f"touch here; setsid sleep {other} & sleep {nap}"})
            await until(lambda: running(nap) and running(other))
            calls.cancel_scope.cancel()
        await until(lambda: not running(nap) and not running(other))
        again = await client.call_tool("exec", {"command": "ls"})
    assert "here" in text_of(again)


# -- envs that fail


async def test_an_env_that_does_not_start_is_an_error_of_the_protocol(tmp_path: Path) -> None:
    """Whoever asks is told why; once it can start, it does."""
    folder = tmp_path / "work"
    folder.write_text("a file")
    async with offer(config=LocalConfig(workdir=folder)) as given, in_process(given) as client:
        for _ in range(2):
            with pytest.raises(MCPError, match=str(folder)) as caught:
                await client.list_tools()
            assert caught.value.code == types.INTERNAL_ERROR
        folder.unlink()
        folder.mkdir()
        assert "hello" in text_of(await client.call_tool("exec", {"command": "echo hello"}))


async def test_an_env_that_is_lost_is_said_so_and_replaced(mark: Marked) -> None:
    """Every call under way fails with the reason; the next one has a new env, which is empty."""
    failed: list[MCPError] = []
    async with offer(config=mark.config()) as given, in_process(given) as client:

        async def call() -> None:
            with pytest.raises(MCPError) as caught:
                await client.call_tool("exec", {"command": "touch here; sleep 1000"})
            failed.append(caught.value)

        await client.list_tools()
        async with anyio.create_task_group() as calls:
            calls.start_soon(call)
            calls.start_soon(call)
            listing = await client.call_tool("exec", {"command": "until [ -e here ]; do sleep 0.05; done; ls"})
            assert "here" in text_of(listing)
            (container,) = mark.containers()
            await anyio.to_thread.run_sync(mark.client.kill, container["Id"])
        assert [error.data for error in failed] == [{"error": "env_lost"}] * 2
        assert "next call starts a new one" in failed[0].message
        assert "here" not in text_of(await client.call_tool("exec", {"command": "ls"}))
    await anyio.to_thread.run_sync(mark.wait_gone)


async def test_calls_at_the_same_time_share_one_env(mark: Marked) -> None:
    """The first of them opens it."""
    async with offer(config=mark.config()) as given, in_process(given) as client:
        async with anyio.create_task_group() as calls:
            for number in range(5):
                calls.start_soon(client.call_tool, "exec", {"command": f"touch {number}"})
        assert len(mark.containers()) == 1
        assert "4" in text_of(await client.call_tool("exec", {"command": "ls"}))
    await anyio.to_thread.run_sync(mark.wait_gone)


async def test_a_tool_that_is_none_is_refused_where_it_is_offered() -> None:
    """Not only when the model misses it."""
    async with offer(allow=["shell"]) as given, in_process(given) as client:
        with pytest.raises(MCPError, match="there is no tool 'shell'"):
            await client.list_tools()
