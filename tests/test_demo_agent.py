"""The third act of `runenv demo`: an agent run, with a played model and with vendors', whose servers are ours."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import zipfile
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
from anthropic.types import Message, MessageParam, ToolParam
from anyio import to_thread
from openai.types.responses import FunctionToolParam, Response, ResponseInputItemParam
from PIL import Image

from runenv.artifacts.artifact import Scope
from runenv.artifacts.store import ArtifactStore
from runenv.cli.demo.agent.api import Model, choose
from runenv.cli.demo.agent.errand import errand, script
from runenv.cli.demo.agent.loop import Agent
from runenv.cli.demo.agent.scripted import Script, asks, played, says
from runenv.cli.demo.agent.transcript import Ledger, save
from runenv.cli.demo.agent.wires import ANTHROPIC
from runenv.cli.demo.endpoint import Endpoint
from runenv.config import DockerConfig, LocalConfig
from runenv.envs import open_env
from runenv.providers.pictures import look
from tests.command_line import needs_engine
from tests.envs.engines import PYTHON, ROOT
from tests.model_server import Answer, ModelServer, Post, plays_anthropic, plays_openai
from tests.providers.vendors import typed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from blockbuster import BlockBuster

    from runenv.env import RunEnv

pytestmark = pytest.mark.anyio

PICTURE: Final = ROOT / "tests" / "data" / "images" / "alpha.png"
BASE64: Final = re.compile(r"[A-Za-z0-9+/]{100}")
KEYS: Final = {"ANTHROPIC_API_KEY": "key-a", "OPENAI_API_KEY": "key-o"}
ERRAND: Final = "Look at dot.png and send it."


@pytest.fixture(scope="module", autouse=True)
def memory_may_be_read(blocking_calls_fail: BlockBuster) -> None:
    """A catalog in memory is an SQL database that waits for nothing, so that it is used within the event loop."""
    for name, function in blocking_calls_fail.functions.items():
        if name.startswith("sqlite3."):
            function.can_block_in("runenv/artifacts/backends/threads.py", {"run"})


@pytest.fixture
def other_end() -> Iterator[Endpoint]:
    """An endpoint that takes files."""
    running = Endpoint()
    running.start()
    yield running
    running.stop()


@pytest.fixture
async def store() -> AsyncIterator[ArtifactStore]:
    """A store in memory."""
    async with ArtifactStore.open("memory://") as opened:
        yield opened


@pytest.fixture
async def env() -> AsyncIterator[RunEnv]:
    """A local env with a picture."""
    async with open_env(LocalConfig()) as env:
        await env.write("dot.png", PICTURE.read_bytes())
        yield env


class Bench(NamedTuple):
    """What an agent needs but a model."""

    env: RunEnv
    store: ArtifactStore
    endpoint: Endpoint

    async def run(self, model: Model, said: str = ERRAND, *, max_turns: int = 30) -> Ledger:
        agent = Agent(model, self.env, self.store, Scope(run="demo"), self.endpoint, max_turns)
        await agent.run(said, lambda _: None)
        return agent.ledger


@pytest.fixture
def bench(env: RunEnv, store: ArtifactStore, other_end: Endpoint) -> Bench:
    """A local env, a store and an endpoint."""
    return Bench(env, store, other_end)


def looks_and_sends() -> Script:
    """Two calls in one turn, an image, a handle out of a result."""
    printed, shown = yield says("I look.", asks("exec", command="seq 100000"), asks("file_read", path="dot.png"))
    assert "cut in the middle" in printed.text
    assert shown.images == 1
    (saved,) = yield says("I save it.", asks("artifact_save", path="dot.png"))
    handle = re.findall(r"runenv\+file://[0-9a-f-]{36}", saved.text)[0]
    (sent,) = yield says("I send it.", asks("upload", name="dot.png", content=handle))
    assert "201 Created" in sent.text
    yield says("Done.")


def texts(node: object) -> Iterator[str]:
    """Every text of a JSON value."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict | list):
        for value in node.values() if isinstance(node, dict) else node:
            yield from texts(value)


def call_of(ledger: Ledger, tool: str) -> dict[str, Any]:
    """The arguments of the one call of a tool."""
    (arguments,) = [call.arguments for call, _ in ledger.calls if call.name == tool]
    return dict(arguments)


async def check_run(bench: Bench, ledger: Ledger, folder: Path) -> dict[str, Any]:
    """Check what holds of every run that looked at pictures and sent a file; returns the saved transcript."""
    sent = ledger.sent[-1]
    content = await bench.env.read(sent.record.name)
    sha256 = hashlib.sha256(content).hexdigest()
    assert (sent.arrived, sent.theirs, sent.record.sha256) == (sha256, sha256, sha256)
    assert bench.endpoint.arrived[sent.name] == (len(content), sha256)
    assert call_of(ledger, "upload")["content"] == sent.record.handle
    assert sent.given == len(base64.b64encode(content))
    assert ledger.images
    for image in ledger.images:
        picture = look(image.data)
        assert picture is not None
        assert picture.whole
        assert picture.media_type == image.media_type == "image/png"
    path = await to_thread.run_sync(save, ledger, folder, {"model": "any"})
    written = path.read_text()
    saved: dict[str, Any] = json.loads(written)
    assert not BASE64.search(written)
    for image in ledger.images:
        assert (folder / image.filename).read_bytes() == image.data
        assert f"[{len(image.data):,} bytes of image/png, sha256 {image.sha256}, kept as {image.filename}]" in written
    return saved


async def test_a_played_model_is_shown_an_image_and_hands_a_file_on_by_handle(bench: Bench, tmp_path: Path) -> None:
    """The image is nested in its result, whole and of the type that it says; no base64 is anywhere else."""
    ledger = await bench.run(played(looks_and_sends()))
    saved = await check_run(bench, ledger, tmp_path)
    request = ledger.conversation
    typed(MessageParam)(request["messages"])
    typed(ToolParam)(request["tools"])
    (source,) = [
        block["source"]
        for message in request["messages"]
        for result in message["content"]
        if isinstance(result, dict) and result["type"] == "tool_result"
        for block in result["content"]
        if block["type"] == "image"
    ]
    data = base64.b64decode(source["data"], validate=True)
    assert source == {"type": "base64", "media_type": "image/png", "data": source["data"]}
    assert (data, data[:8]) == (ledger.images[0].data, b"\x89PNG\r\n\x1a\n")
    assert [text for text in texts(request) if BASE64.search(text)] == [source["data"]]
    assert [message["role"] for message in saved["conversation"]["messages"]] == ["user", "assistant"] * 4
    assert ledger.missing() == [("slides", "the model has sent none; it sent dot.png")]


async def test_what_stays_outside_of_the_context_is_counted(bench: Bench, tmp_path: Path) -> None:
    """By the sizes of the things themselves."""
    ledger = await bench.run(played(looks_and_sends()))
    size = PICTURE.stat().st_size
    printed = sum(len(f"{number}\n") for number in range(1, 100_001))
    (cut,) = [result.text for call, result in ledger.calls if call.name == "exec"]
    outside = json.loads((await to_thread.run_sync(save, ledger, tmp_path, {})).read_text())["counts"]["outside"]
    assert outside == {
        "bytes": printed - len(cut) + size + len(base64.b64encode(PICTURE.read_bytes())),
        "printed_bytes": printed,
        "printed_chars_shown": len(cut),
        "files": {},
        "artifacts": {"dot.png": size},
        "base64_chars_for_handles": len(base64.b64encode(PICTURE.read_bytes())),
    }
    assert (len(ledger.images), ledger.image_bytes) == (1, len(ledger.images[0].data))
    assert ledger.given_chars > len(ERRAND) + len(cut)


async def test_the_transcript_of_the_run_before_is_replaced(bench: Bench, tmp_path: Path) -> None:
    """With its images."""
    (tmp_path / "agent-run-turn-7-0.png").write_bytes(b"old")
    ledger = await bench.run(played(looks_and_sends()))
    await to_thread.run_sync(save, ledger, tmp_path, {})
    assert sorted(path.name for path in tmp_path.iterdir()) == [ledger.images[0].filename, "agent-run.json"]


@pytest.mark.parametrize("name", ["claude-any", "gpt-any"])
async def test_the_model_of_a_vendor_does_the_errand_over_http(name: str, bench: Bench, tmp_path: Path) -> None:
    """The same run, over the wire: what is sent and what is answered is what the vendor's SDK has types for."""
    is_anthropic = name == "claude-any"
    plays: Callable[[Script], Callable[[Post], Answer]] = plays_anthropic if is_anthropic else plays_openai
    with ModelServer(plays(looks_and_sends())) as server:
        urls = {"ANTHROPIC_BASE_URL": server.url, "OPENAI_BASE_URL": f"{server.url}/v1"}
        ledger = await bench.run(choose(name, KEYS | urls))
    await check_run(bench, ledger, tmp_path)
    assert len(server.posts) == len(ledger.turns) == 4
    last = server.posts[-1]
    assert last.body["model"] == name
    if is_anthropic:
        assert (last.path, last.headers["x-api-key"]) == ("/v1/messages", "key-a")
        assert last.headers["anthropic-version"] == "2023-06-01"
        typed(MessageParam)(last.body["messages"])
        typed(ToolParam)(last.body["tools"])
    else:
        assert (last.path, last.headers["authorization"]) == ("/v1/responses", "Bearer key-o")
        typed(ResponseInputItemParam)(last.body["input"])
        typed(FunctionToolParam)(last.body["tools"])
    for tool in ("exec", "file_read", "upload"):
        assert tool in {each["name"] for each in last.body["tools"]}


def test_what_the_servers_of_these_tests_answer_is_what_the_vendors_do() -> None:
    """By the types of their SDKs."""
    first = Post("/", {}, {"model": "m", "tools": [{"name": "exec"}, {"name": "file_read"}], "messages": []})
    first.body["messages"] = [{"role": "user", "content": "go"}]
    Message.model_validate(plays_anthropic(looks_and_sends())(first).body, strict=True)
    Response.model_validate(plays_openai(looks_and_sends())(first).body)


async def test_an_image_that_is_refused_gives_way_to_a_line(bench: Bench) -> None:
    """The run goes on without it."""

    def looks() -> Script:
        (shown,) = yield says("I look.", asks("file_read", path="dot.png"))
        yield says(shown.text)

    plays = plays_anthropic(looks())
    refusal = {"error": {"message": "messages.2.content.0.tool_result.content.0.image: Could not process image"}}

    def answer(post: Post) -> Answer:
        return Answer(refusal, 400) if '"type": "image"' in json.dumps(post.body) else plays(post)

    with ModelServer(answer) as server:
        ledger = await bench.run(choose("claude-any", KEYS | {"ANTHROPIC_BASE_URL": server.url}))
    assert ledger.turns[-1].reply.text.startswith("[image left out: the vendor refused it; from 'dot.png', image/png")
    assert len(server.posts) == 3


async def test_a_model_that_does_not_end_is_stopped(bench: Bench) -> None:
    """After its last turn, with what it has done."""

    def goes_on() -> Script:
        while True:
            yield says("More.", asks("exec", command="true"))

    ledger = await bench.run(played(goes_on()), max_turns=3)
    assert (len(ledger.turns), ledger.is_stopped) == (3, True)
    assert ledger.missing()[-1] == ("end", "the model was stopped after 3 turns")


async def test_a_handle_that_is_not_there_is_told_to_the_model(bench: Bench) -> None:
    """So is what is no handle: content that it wrote itself."""

    def invents() -> Script:
        gone, own = yield says(
            "I send them.",
            asks("upload", name="a", content="runenv+file://00000000-0000-4000-8000-000000000000"),
            asks("upload", name="b", content="aGVsbG8="),
        )
        assert gone.is_error
        assert own.is_error
        assert "'aGVsbG8=' is not a handle" in own.text
        yield says("I cannot.")

    ledger = await bench.run(played(invents()))
    assert (ledger.sent, bench.endpoint.arrived, len(ledger.turns)) == ([], {}, 2)


async def test_calls_of_a_message_that_was_cut_off_are_not_run(bench: Bench) -> None:
    """Their arguments may be half of what they should be."""
    answers = iter(
        [
            {
                "content": [{"type": "tool_use", "id": "1", "name": "exec", "input": {"command": "touch made"}}],
                "stop_reason": "max_tokens",
            },
            {"content": [{"type": "text", "text": "Well."}], "stop_reason": "end_turn"},
        ]
    )

    async def send(_: dict[str, Any]) -> dict[str, Any]:
        return next(answers)

    ledger = await bench.run(Model("any", ANTHROPIC, send))
    ((_, result),) = ledger.calls
    assert result.is_error
    assert "cut off (max_tokens)" in result.text
    assert "made" not in {info.path for info in await bench.env.list()}


@pytest.mark.parametrize("missing", [("matplotlib", "pptx"), ("pptx",)])
async def test_what_is_not_installed_is_said_and_the_rest_is_done(missing: tuple[str, ...], bench: Bench) -> None:
    """A ZIP file is sent, with what there is."""
    await bench.env.write("weather.csv", b"origin,year,month,day,temp\nEWR,2013,1,1,39\n")
    for name in missing:
        await bench.env.write(f"{name}.py", f'raise ModuleNotFoundError("No module named {name!r}")\n'.encode())
    if "matplotlib" not in missing:  # one that draws what it is given: nothing
        await bench.env.write("matplotlib/pyplot.py", DRAWS.format(png=PICTURE.read_bytes()).encode())
        await bench.env.write("matplotlib/__init__.py", b"def use(_): pass\n")
    ledger = await bench.run(played(script("weather.csv", "files.csv", "python3")), errand("weather.csv", "python3"))
    said = "\n".join(turn.reply.text for turn in ledger.turns)
    assert f"No module named '{missing[0]}'" in said
    assert "so there will be no slides" in said
    assert [sent.name for sent in ledger.sent] == ["table.zip"]
    assert ledger.sent[0].arrived == ledger.sent[0].theirs
    gone = [name for name, _ in ledger.missing()]
    assert gone == (["plot", "slides"] if "matplotlib" in missing else ["slides"])


def pixels(data: bytes) -> tuple[tuple[int, int], bytes]:
    """Size and colours of an image, whatever else is in the file."""
    with Image.open(io.BytesIO(data)) as opened:
        return opened.size, opened.convert("RGB").tobytes()


DRAWS: Final = """
def savefig(name, **_):
    with open(name, "wb") as out:
        out.write({png!r})

def __getattr__(_):
    return lambda *_, **__: None
"""


@pytest.mark.docker
@pytest.mark.parametrize("table", ["weather.csv", "files.csv"])
async def test_the_played_errand_in_a_sandbox(
    table: str, store: ArtifactStore, other_end: Endpoint, tmp_path: Path
) -> None:
    """Two different plots were looked at, and the slides that arrived hold the second one."""
    needs_engine()
    async with open_env(DockerConfig(image=PYTHON, pull="never")) as env:
        if table == "weather.csv":
            await env.upload(ROOT / "tests" / "data" / table, table)
        else:
            await env.write(table, b"path,lines,uses\n" + b"".join(b"a/%d.py,%d,3\n" % (n, n) for n in range(60)))
        bench = Bench(env, store, other_end)
        model = played(script(table, "files.csv", "python3"))
        ledger = await bench.run(model, errand(table, "python3"))
        saved = await check_run(bench, ledger, tmp_path)
        assert ledger.missing() == []
        assert (len(ledger.images), len({image.sha256 for image in ledger.images})) == (2, 2)
        plot, slides = await env.read("plot.png"), zipfile.ZipFile(io.BytesIO(await env.read("slides.pptx")))
        assert plot in [slides.read(name) for name in slides.namelist()]
        assert pixels(plot) == pixels(ledger.images[1].data)
    assert ledger.files.keys() == {"slides.pptx"}
    assert {record.name for record in ledger.artifacts} == {"slides.pptx"}
    assert not any(result.is_error for _, result in ledger.calls)
    assert saved["counts"]["in_context"]["images"] == 2
    if table == "weather.csv":
        assert ledger.printed == (ROOT / "tests" / "data" / table).stat().st_size
