"""`runenv demo`: what it claims, asked for as facts; how it looks is for eyes."""

from __future__ import annotations

import base64
import hashlib
import importlib
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

import runenv.cli.demo
from runenv.artifacts.artifact import Scope
from runenv.artifacts.store import ArtifactStore
from runenv.cli.demo import Inputs, endpoint, run_demo
from runenv.cli.demo.agent.api import Model, ModelError
from runenv.cli.demo.agent.wires import ANTHROPIC
from runenv.cli.demo.endpoint import Endpoint, send
from runenv.cli.demo.handover import TABLE as COUNTS
from runenv.cli.demo.handover import Handover
from runenv.cli.demo.memory import Memory
from runenv.cli.demo.screen import Screen
from runenv.cli.demo.steps import SOURCE, Meter, StepError, Steps, marker_of
from runenv.config import DockerConfig, LocalConfig
from runenv.envs import open_env
from runenv.errors import ToolError
from runenv.types import Output
from tests.command_line import needs_engine, run
from tests.envs.engines import BASE, PYTHON, ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from runenv.env import RunEnv

pytestmark = pytest.mark.anyio

TREE = ROOT / "runenv"
TABLE = ROOT / "tests" / "data" / "weather.csv"


@pytest.fixture
async def env() -> AsyncIterator[RunEnv]:
    """A local env."""
    async with open_env(LocalConfig()) as env:
        yield env


async def test_the_analysis_prints_more_than_fits_and_the_cut_is_found_in_the_spill_file(env: RunEnv) -> None:
    """What the model sees ends where the file is read on, byte by byte."""
    steps = Steps(env)
    sent = await steps.upload(TREE, SOURCE)
    output = await steps.index()
    cut = await steps.read_cut(output)
    assert output.total_bytes > 1_000_000
    assert len(output.text) <= 30_000
    assert output.spill_path is not None
    whole = await env.read(output.spill_path)
    assert whole.startswith((cut.before + cut.after).encode())
    assert cut.offset == len(cut.before.encode())
    assert re.search(rf"{sent.files} files, [\d,]+ lines, [\d,]+ names, [\d,]+ uses\n", output.text)


async def test_the_meter_counts_what_moves_and_what_a_model_would_see(env: RunEnv) -> None:
    """By the sizes of the results themselves."""
    steps = Steps(env)
    sent = await steps.upload(TREE, SOURCE)
    assert (steps.meter.up, steps.meter.seen) == (sent.bytes, 0)
    before = replace(steps.meter)
    output = await steps.index()
    assert steps.meter.printed - before.printed == output.total_bytes
    assert steps.meter.down - before.down == len(output.data)
    assert steps.meter.seen - before.seen == len(output.text)


async def test_neither_hidden_nor_built_files_belong_to_a_source_tree(env: RunEnv, tmp_path: Path) -> None:
    """A checkout's history and environments would take minutes."""
    for name in ("a.py", ".git/config", ".venv/bin/python", "lib/__pycache__/a.pyc", "lib/b.c", "big.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    assert (await Steps(env).upload(tmp_path, SOURCE)).files == 2


async def test_a_tree_that_does_not_end_is_ended_whole(env: RunEnv) -> None:
    """Jobs, sessions of their own, a daemon and a chain were there, and are not."""
    ended = await Steps(env).end_tree()
    assert ended.most >= 14
    assert ended.left == 0
    assert (ended.result.timed_out, ended.result.signal) == (True, "SIGKILL")
    assert ended.answer == "42"


async def test_survivors_of_the_tree_are_found(env: RunEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look at the processes is worth something only if it can fail."""
    monkeypatch.setattr("runenv.cli.demo.steps.programs.TREE", "sleep 60 & echo left")
    with pytest.raises(StepError, match=r"of \d+ processes 1 are left"):
        await Steps(env).end_tree()


async def test_an_output_that_was_not_cut_is_no_demo(env: RunEnv, tmp_path: Path) -> None:
    """It says which option helps."""
    (tmp_path / "a.py").write_text("one = 1\n")
    steps = Steps(env)
    await steps.upload(tmp_path, SOURCE)
    with pytest.raises(StepError, match="--tree"):
        marker_of(await steps.index())


async def test_a_spill_file_with_something_else_is_not_believed(env: RunEnv) -> None:
    """The demo compares, it does not assume."""
    await env.write("spill", b"something else\n" * 100)
    marker = f"[... 9 bytes (1 line) left out; the whole output is in {env.workdir}/spill ...]"
    output = Output(text=f"first line\n{marker}\nlast\n", truncated=True, spill_path=f"{env.workdir}/spill")
    with pytest.raises(StepError, match="does not hold"):
        await Steps(env).read_cut(output)


async def test_a_step_that_fails_says_why(env: RunEnv) -> None:
    """With the last line that the program wrote."""
    steps = Steps(env)
    with pytest.raises(StepError, match="the chart failed"):
        await steps.chart("no-such-table.csv", Path("chart.png"))
    with pytest.raises(StepError, match="there is no Python in the env"):
        await Steps(env, python="no-such-python").can_draw()


SCOPE = Scope(run="demo")


@pytest.fixture(scope="module", autouse=True)
def third_act_is_loaded() -> None:
    """An import reads files, which an event loop must not."""
    importlib.import_module("runenv.cli.demo.agent.loop")


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


async def test_a_file_goes_from_the_sandbox_to_an_endpoint_and_the_transcript_has_its_handle(
    env: RunEnv, store: ArtifactStore, other_end: Endpoint
) -> None:
    """The tool got base64, the endpoint the bytes, and the model wrote and saw neither."""
    await env.write(COUNTS, b"path,lines,uses\na.py,3,9\n" + b"b.py,1,2\n" * 2000)
    meter = Meter()
    handover = Handover(env, store, SCOPE, other_end, meter, "python3")
    record = await handover.make(slides=False)
    delivery = await handover.send(record)
    content = await env.read("deck.zip")
    sha256 = hashlib.sha256(content).hexdigest()
    assert (delivery.theirs, delivery.arrived, record.sha256) == (sha256, sha256, sha256)
    assert other_end.arrived == {"deck.zip": (len(content), sha256)}
    assert delivery.given == f"{len(base64.b64encode(content)):,} characters of base64"
    made, shown, asked, answered = (message.text for message in delivery.messages)
    assert made.startswith("make_archive({")
    assert f'"content": "{record.handle}"' in asked
    assert record.handle in shown
    assert '[artifact "receipt.json" application/json' in answered
    assert not re.search(r"[A-Za-z0-9+/]{65}", f"{made}{shown}{asked}{answered}")
    assert delivery.seen == meter.seen == sum(map(len, (made, shown, asked, answered)))
    assert meter.down >= len(content)


async def test_a_large_file_takes_the_same_road_as_a_stream(env: RunEnv, other_end: Endpoint, tmp_path: Path) -> None:
    """The tool got a path, of which nothing is left afterwards."""
    async with ArtifactStore.open(f"file://{tmp_path}/store") as store:
        handover = Handover(env, store, SCOPE, other_end, Meter(), "python3")
        async with Memory() as memory:
            delivery = await handover.send_large(await handover.make_large(100))
    assert delivery.record.size == 100 * 2**20
    assert other_end.arrived["recording.bin"] == (100 * 2**20, delivery.theirs)
    assert memory.grown is not None
    assert memory.grown < 64 << 20


async def test_an_endpoint_that_got_something_else_is_found_out(
    env: RunEnv, store: ArtifactStore, other_end: Endpoint
) -> None:
    """Both ends are compared, not assumed."""
    await env.write(COUNTS, b"path,lines,uses\n")
    handover = Handover(env, store, SCOPE, other_end, Meter(), "python3")
    record = await handover.make(slides=False)
    await env.write(record.name, b"another")
    with pytest.raises(StepError, match="in the store"):
        await handover.send(record)


async def test_content_in_the_transcript_is_found_out(
    env: RunEnv, store: ArtifactStore, other_end: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool that gives back what it got puts it before the model."""
    await env.write(COUNTS, b"path,lines,uses\n")
    handover = Handover(env, store, SCOPE, other_end, Meter(), "python3")
    record = await handover.make(slides=False)
    sends = handover._tools.upload_content

    async def echoes(_: object, name: str, content: str) -> list[object]:
        return [*await sends(name, content), content]

    monkeypatch.setattr(type(handover._tools), "upload_content", echoes)
    with pytest.raises(StepError, match="is in the transcript"):
        await handover.send(record)


def test_an_endpoint_that_breaks_off_is_an_error_of_the_tool(
    other_end: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one sentence, not as an exception of a library."""
    monkeypatch.setattr(endpoint, "SECONDS", 1.0)
    with pytest.raises((ToolError, OSError)):
        send(other_end.port, "short", io.BytesIO(b"123"), 10)
    assert other_end.arrived == {}


async def test_nothing_of_the_demo_stays_in_a_store_that_is_given(
    env: RunEnv, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is somebody's own."""
    monkeypatch.setattr("runenv.cli.demo.LARGE_MIB", 3)
    await env.write(COUNTS, b"path,lines,uses\n")
    console, meter = Console(file=io.StringIO(), width=120), Meter()
    given = ArtifactStore.open(f"file://{tmp_path}/store")
    await runenv.cli.demo._hand_over(Screen(console, meter), Steps(env, meter=meter), given)
    assert "3.0 MiB into the store" in text_of(console)
    assert list((tmp_path / "store" / "content").iterdir()) == []


async def test_what_a_model_said_is_kept_when_its_server_fails(env: RunEnv, tmp_path: Path) -> None:
    """It may say why; and where a real model's commands run on the host, that is said before."""

    async def send(request: dict[str, Any]) -> dict[str, Any]:
        if len(request["messages"]) > 1:
            raise ModelError("Anthropic refuses the request (401): no credit")
        call = {"type": "tool_use", "id": "1", "name": "exec", "input": {"command": "echo two\nlines; exit 3"}}
        return {"content": [{"type": "text", "text": "I try\n\nthis."}, call], "stop_reason": "tool_use"}

    console, meter = Console(file=io.StringIO(), width=120), Meter()
    inputs, model = Inputs(TREE, None, tmp_path / "new" / "chart.png"), Model("claude-any", ANTHROPIC, send)
    with pytest.raises(ModelError, match="no credit"):
        await runenv.cli.demo._run_agent(Screen(console, meter), Steps(env, meter=meter), inputs, None, model)
    saved = json.loads((tmp_path / "new" / "agent-run.json").read_text())
    assert [message["role"] for message in saved["conversation"]["messages"]] == ["user", "assistant", "user"]
    shown = text_of(console)
    assert "What it asks for runs on this host, as you." in shown
    assert "1 I try this." in shown
    assert "✗ agent run" in shown


async def test_without_pandas_the_rest_is_done_and_the_chart_is_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The demo is not whole then, and says what to install."""
    monkeypatch.setattr("runenv.cli.demo.LARGE_MIB", 3)
    for question in ("HAS", "HAS_PPTX"):
        monkeypatch.setattr(f"runenv.cli.demo.steps.programs.{question}", "raise SystemExit(1)")
    console = Console(file=io.StringIO(), width=80)
    assert not await run_demo(LocalConfig(), Inputs(TREE, TABLE, tmp_path / "chart.png"), console)
    shown = text_of(console)
    assert "pip install pandas matplotlib" in shown
    assert "0 left when its result was there" in shown
    assert shown.count("SHA-256 on both ends") == 2
    assert "SHA-256 on both sides" not in shown
    assert "deck.zip" in shown
    assert "there is no python-pptx in the env" in shown
    assert "The third act: an agent run" in shown
    assert json.loads((tmp_path / "agent-run.json").read_text())["sent"]
    assert not (tmp_path / "chart.png").exists()


@pytest.mark.docker
async def test_the_whole_demo_in_a_sandbox(tmp_path: Path) -> None:
    """Every claim of it, and the picture is the one whose hash it shows."""
    needs_engine()
    console = Console(file=io.StringIO(), width=120)
    inputs = Inputs(TREE, TABLE, tmp_path / "new folder" / "chart.png")
    assert await run_demo(DockerConfig(image=PYTHON, pull="never"), inputs, console)
    shown, picture = text_of(console), inputs.output.read_bytes()
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    assert shown.count(hashlib.sha256(picture).hexdigest()) == 2
    assert "26,115 rows, 15 columns" in shown
    assert re.search(
        r"\[\.\.\. [\d,]+ bytes \([\d,]+ lines\) left out; the whole output is in /tmp/\.runenv-docker-", shown
    )
    assert "0 left when its result was there" in shown
    assert "no network" in shown
    assert "env docker-" in shown
    assert re.search(r"a tool makes deck\.pptx in the env: \d\d\.\d KiB behind a handle", shown)
    assert "application/vnd.openxmlformats-officedocument.presentationml.presentation" in shown
    assert "recording.bin: 200.0 MiB into the store" in shown
    grown = re.search(r"this process grew by ([\d.]+) (bytes?|KiB|MiB) at most for 200.0 MiB", shown)
    assert grown is not None
    assert grown[2] != "MiB" or float(grown[1]) < 64
    assert "A script plays the model, offline" in shown
    assert shown.count("[image 1,200x600 png, ") == 2
    assert re.search(r'upload\(name="slides.pptx", content="runenv\+file://[0-9a-f-]{36}"\)', shown)
    assert re.search(r"agent run 9 turns, 13 calls of tools", shown)
    transcript = (inputs.output.parent / "agent-run.json").read_text()
    (sent,) = json.loads(transcript)["sent"]
    assert shown.count(sent["arrived"]) == 3
    assert not re.search(r"[A-Za-z0-9+/]{100}", transcript)


@pytest.mark.docker
async def test_without_a_table_the_chart_is_of_what_the_analysis_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """From a wheel, which has no data."""
    monkeypatch.setattr("runenv.cli.demo.LARGE_MIB", 3)
    needs_engine()
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    inputs = Inputs(TREE, None, tmp_path / "chart.png")
    assert await run_demo(DockerConfig(image=PYTHON, pull="never"), inputs, console)
    assert "of files.csv" in text_of(console)
    assert "I draw the lines of the longest files." in text_of(console)
    assert inputs.output.read_bytes().startswith(b"\x89PNG")


@pytest.mark.docker
def test_an_image_without_python_is_one_line(capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    """The env is closed then as well."""
    needs_engine()
    done = run(capfdbinary, "demo", "--image", BASE, "--output", tmp_path / "chart.png")
    assert done.returncode == 1
    assert done.stderr.startswith(b"runenv: there is no Python in the env: python3: ")


@pytest.mark.docker
def test_a_missing_image_of_ours_is_built_not_pulled(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger could have that name in a registry."""
    needs_engine()
    monkeypatch.setattr(runenv.cli.demo, "IMAGE", "runenv/no-such-image")
    done = run(capfdbinary, "demo")
    assert done.returncode == 1
    assert b"scripts/images python" in done.stderr


def test_the_defaults_are_the_checkout_and_the_cache_of_the_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A wheel has the package only."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert runenv.cli.demo.default_inputs() == Inputs(ROOT, TABLE, tmp_path / "runenv" / "demo" / "chart.png")
    package = tmp_path / "site-packages" / "runenv"
    package.mkdir(parents=True)
    monkeypatch.setattr(runenv, "__file__", str(package / "__init__.py"))
    assert runenv.cli.demo.default_inputs() == Inputs(package, None, tmp_path / "runenv" / "demo" / "chart.png")


def text_of(console: Console) -> str:
    """Return what was drawn, without borders, styles and line breaks."""
    assert isinstance(console.file, io.StringIO)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\]8;[^\x1b]*\x1b\\", "", console.file.getvalue())
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", plain).split())
