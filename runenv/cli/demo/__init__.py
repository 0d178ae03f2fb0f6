"""`runenv demo`: the main job on real input, from the first byte to the last process.

A source tree and a CSV go into an env; an analysis prints far more than a model could read, and what is cut off is
found again; a chart comes back, the same on both sides; a command tree that does not end is ended. `steps.py` does
it, `screen.py` draws it, `programs.py` are the programs that run inside.

In the second act files go from the sandbox to an HTTP endpoint by the hands of two tools, a small one and a large one,
and the model's transcript has a handle where they were. `handover.py` does that; `endpoint.py` is the other end.

The third act is an agent run: a model looks at the table, plots it, sees what is wrong with the plot, puts it right,
makes slides of it and sends them on by handle. `agent/` does that, with a model that a script plays or a real one.

Unless told otherwise the tree is the checkout that the package is in, and the CSV is the one of its tests. From a
wheel the tree is the package itself, and what the analysis has counted is drawn.
"""

import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import anyio
import anyio.to_thread
import typer
from rich.console import Console

import runenv
from runenv.cli.demo.screen import Screen
from runenv.cli.demo.steps import CHART, SOURCE, Meter, StepError, Steps, marker_of
from runenv.cli.options import Image, Kind, StoreOptions, env_config, pairs_of
from runenv.cli.terminal import FAILED, count, moved, one_line_errors, size, transfer_bar
from runenv.config import DockerConfig, LocalConfig
from runenv.envs import open_env
from runenv.errors import EnvStartError, RunEnvError

if TYPE_CHECKING:
    from runenv.artifacts.artifact import Scope
    from runenv.artifacts.store import ArtifactStore
    from runenv.cli.demo.agent.api import Model
    from runenv.cli.demo.endpoint import Endpoint
    from runenv.cli.demo.handover import Handover

__all__ = ("Inputs", "default_inputs", "demo_command", "run_demo")

IMAGE: Final = "runenv/python"
"""Built by `scripts/images` of the source tree; never pulled, for nobody keeps that name in a registry for us."""
TABLE: Final = "table.csv"
COUNTS: Final = "files.csv"
"""What the analysis leaves in the env."""
LARGE_MIB: Final = 200
"""The large file of the second act, in MiB."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What the demo works on, and where its picture goes; paths of this host.

    Attributes:
        tree: a folder of text files.
        table: a CSV; None for the one that the analysis makes.
        output: where the chart is put.
    """

    tree: Path
    table: Path | None
    output: Path


def demo_command(
    *,
    env: Annotated[Kind, typer.Option(metavar="local|docker", help="Kind of env.")] = Kind.DOCKER,
    image: Image = None,
    tree: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Source tree to look at; ours unless given.")
    ] = None,
    csv: Annotated[Path | None, typer.Option(metavar="PATH", help="CSV to draw; the tests' own unless given.")] = None,
    output: Annotated[Path | None, typer.Option(metavar="PATH", help="Where the chart goes; a cache folder.")] = None,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Artifact store of the second act; memory, and a temporary folder for the large file, unless given.",
        ),
    ] = None,
    option: StoreOptions = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Real model of the third act: claude-... with ANTHROPIC_API_KEY, gpt-... with OPENAI_API_KEY set.",
        ),
    ] = None,
) -> None:
    """Do an agent's errand on real files, and say what it took.

    Uploads a source tree and a CSV, runs an analysis that prints far more than fits, reads on where it was cut, draws a
    chart and brings it back, and ends a command tree that will not end. Then tools hand a deck of slides, and 200 MiB,
    from the sandbox to an HTTP endpoint, and a model sees handles. At last an agent plots the CSV, looks at the plot,
    puts it right and sends slides of it on; a script plays the model, offline, unless one is named. The transcript is
    kept beside the chart. The image needs Python with pandas, matplotlib and python-pptx; runenv/python unless given,
    which scripts/images builds.

    Exit status: 0 when every step was done, else 1.
    """
    with one_line_errors():
        settings = {"image": image or (IMAGE if env is Kind.DOCKER else None), "pull": None if image else "never"}
        config = env_config(env, settings=settings if env is Kind.DOCKER else {"image": image})
        default = default_inputs()
        chosen = _given_model(model)
        inputs = Inputs(tree or default.tree, csv or default.table, output or default.output)
        try:
            is_whole = anyio.run(run_demo, config, inputs, Console(), _given_store(store, option), chosen)
        except EnvStartError as error:
            if image is None and f"the image {IMAGE!r} is not on the engine" in str(error):
                message = (
                    f"the image {IMAGE!r} is not on the engine: build it with `scripts/images python` of the source"
                    " tree, or name another one that has Python with pandas and matplotlib: --image"
                )
                raise EnvStartError(message) from error
            raise
    raise typer.Exit(0 if is_whole else FAILED)


def _given_store(url: str | None, options: list[str] | None) -> "ArtifactStore | None":
    from runenv.artifacts.store import ArtifactStore

    return None if url is None else ArtifactStore.open(url, options=pairs_of("--option", options))


def _given_model(name: str | None) -> "Model | None":
    from runenv.cli.demo.agent.api import choose

    return None if name is None else choose(name, os.environ)


def default_inputs() -> Inputs:
    """Return what is worked on unless the options say otherwise."""
    package = Path(runenv.__file__).parent
    checkout = package.parent
    output = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "runenv" / "demo" / CHART
    if not (checkout / "pyproject.toml").is_file():
        return Inputs(package, None, output)
    table = checkout / "tests" / "data" / "weather.csv"
    return Inputs(checkout, table if table.is_file() else None, output)


async def run_demo(
    config: LocalConfig | DockerConfig,
    inputs: Inputs,
    console: Console,
    store: "ArtifactStore | None" = None,
    model: "Model | None" = None,
) -> bool:
    """Do all steps in an env of that configuration and draw them.

    Args:
        config: of the env.
        inputs: what is worked on.
        console: where it is drawn.
        store: where artifacts go, not open; one in memory and one in a temporary folder when None.
        model: of the third act; a played one when None.

    Returns:
        Whether every step was done; some are left out where the env has no pandas, matplotlib or python-pptx.

    Raises:
        RunEnvError: an env or the store does not open, a step did not do what it is there to show, or the model's
            server does not answer.
        OSError: an input cannot be read.
    """
    meter = Meter()
    screen = Screen(console, meter)
    screen.title()
    async with AsyncExitStack() as stack:
        with screen.step("open", f"opening a {config.kind} env") as step:
            env = await stack.enter_async_context(open_env(config))
            step.done(f"a {config.kind} env")
        screen.env(env.describe())
        steps = Steps(env, meter=meter)
        can_draw = await _find_python(steps, config)
        await _upload(screen, steps, inputs.tree, SOURCE)
        if inputs.table is not None:
            await _upload(screen, steps, inputs.table, TABLE)
        await _analyse(screen, steps)
        if can_draw:
            await _draw(screen, steps, inputs)
        else:
            screen.skip("chart", f"not drawn: there is no pandas or no matplotlib; {_remedy(config)}")
        with screen.step("endless tree", "a command tree that will not end runs into its deadline") as step:
            ended = await steps.end_tree()
            step.done(f"ended {ended.result.duration:.1f} s after its start")
        screen.ended(ended)
        await _hand_over(screen, steps, store)
        is_done = await _run_agent(screen, steps, inputs, store, model)
        screen.summary(env.id)
    return can_draw and is_done


async def _find_python(steps: Steps, config: LocalConfig | DockerConfig) -> bool:
    """Choose the env's interpreter, and tell whether it can draw."""
    if config.kind == "docker":
        return await steps.can_draw()
    # On this host: the interpreter that we run in, or the system's, if only that can draw.
    for python in ("python3", sys.executable):
        steps.python = python
        with suppress(StepError):  # there is none of that name
            if await steps.can_draw():
                return True
    return False


def _remedy(config: LocalConfig | DockerConfig) -> str:
    if config.kind == "docker":
        return f"name an image that has both, such as {IMAGE}: --image"
    return f"{sys.executable} -m pip install pandas matplotlib"


async def _upload(screen: Screen, steps: Steps, source: Path, target: str) -> None:
    name = "source tree" if target == SOURCE else "table"
    with screen.step(name) as step, transfer_bar(screen.console, str(source)) as progress:
        result = await steps.upload(source, target, progress)
        step.done(f"{moved(result)} from {source}")


async def _analyse(screen: Screen, steps: Steps) -> None:
    with screen.step("analysis", "looking up every use of every name in the source") as step:
        output = await steps.index()
        step.done(f"every use of every name: {size(output.total_bytes)} printed")
    screen.view(output, marker_of(output))
    with screen.step("read on") as step:
        cut = await steps.read_cut(output)
        step.done("the whole output stayed in the env: from where it was cut")
    screen.cut(cut)


async def _draw(screen: Screen, steps: Steps, inputs: Inputs) -> None:
    table, name = (TABLE, inputs.table.name) if inputs.table is not None else (COUNTS, COUNTS)
    with screen.step("chart", "drawing with pandas and matplotlib") as step:
        chart = await steps.chart(table, inputs.output)
        step.done(f"of {name}, {chart.printed}: a PNG of {size(chart.size)}")
    screen.chart(chart)


async def _hand_over(screen: Screen, steps: Steps, store: "ArtifactStore | None") -> None:
    """Do the second act in the env of the first."""
    from runenv.artifacts.artifact import Scope
    from runenv.artifacts.store import ArtifactStore
    from runenv.cli.demo.endpoint import running

    screen.second_act()
    scope = Scope(run=f"demo-{secrets.token_hex(8)}")
    async with AsyncExitStack() as stack:
        endpoint = await stack.enter_async_context(running())
        small = await stack.enter_async_context(_opened(store or ArtifactStore.open("memory://"), scope))
        await _hand_over_deck(screen, _handover(steps, small, scope, endpoint))
        large = small
        if store is None:
            folder = await stack.enter_async_context(_folder())
            large = await stack.enter_async_context(_opened(ArtifactStore.open(folder.as_uri()), scope))
        await _hand_over_large(screen, _handover(steps, large, scope, endpoint))


async def _run_agent(
    screen: Screen, steps: Steps, inputs: Inputs, store: "ArtifactStore | None", model: "Model | None"
) -> bool:
    """Do the third act in the env of the others, and tell whether the model has done all of it."""
    from runenv.artifacts.artifact import Scope
    from runenv.artifacts.store import ArtifactStore
    from runenv.cli.demo.agent.dialogue import Dialogue
    from runenv.cli.demo.agent.errand import errand, script
    from runenv.cli.demo.agent.loop import Agent
    from runenv.cli.demo.agent.scripted import played
    from runenv.cli.demo.agent.transcript import save
    from runenv.cli.demo.endpoint import running

    table = TABLE if inputs.table is not None else COUNTS
    model = model or played(script(table, COUNTS, steps.python))
    dialogue, scope = Dialogue(screen.console), Scope(run=f"demo-{secrets.token_hex(8)}")
    dialogue.title(model, steps.env.kind)
    async with running() as endpoint, _opened(store or ArtifactStore.open("memory://"), scope) as opened:
        agent = Agent(model, steps.env, opened, scope, endpoint)
        ledger = agent.ledger
        about = {"model": model.name, "vendor": model.wire.limits.vendor, "env": steps.env.id}
        try:
            with screen.step("agent run", f"{model.name} is at work") as step:
                await agent.run(errand(table, steps.python), dialogue.turn)
                ledger.tell(steps.meter)
                step.done(f"{count(len(ledger.turns), 'turn')}, {count(len(ledger.calls), 'call')} of tools")
        except RunEnvError:  # what a model has said so far may say why
            await anyio.to_thread.run_sync(save, ledger, inputs.output.parent, about)
            raise
        transcript = await anyio.to_thread.run_sync(save, ledger, inputs.output.parent, about)
    dialogue.outcome(ledger, transcript)
    for name, reason in ledger.missing():
        screen.skip(name, reason)
    return not ledger.missing()


def _handover(steps: Steps, store: "ArtifactStore", scope: "Scope", endpoint: "Endpoint") -> "Handover":
    from runenv.cli.demo.handover import Handover

    return Handover(steps.env, store, scope, endpoint, steps.meter, steps.python)


async def _hand_over_deck(screen: Screen, handover: "Handover") -> None:
    with screen.step("make", "a tool makes slides in the env") as step:
        has_pptx = await handover.can_make_slides()
        record = await handover.make(slides=has_pptx)
        instead = "" if has_pptx else "; no slides: there is no python-pptx in the env"
        step.done(f"a tool makes {record.name} in the env: {size(record.size)} behind a handle{instead}")
    with screen.step("send", "another tool sends it to an HTTP endpoint") as step:
        delivery = await handover.send(record)
        step.done(f"another sends it to an HTTP endpoint: {size(record.size)}, by its handle")
    screen.delivery(delivery)


async def _hand_over_large(screen: Screen, handover: "Handover") -> None:
    from runenv.cli.demo.memory import Memory

    async with Memory() as memory:
        with screen.step("make large", f"a tool makes {LARGE_MIB} MiB in the env") as step:
            record = await handover.make_large(LARGE_MIB)
            step.done(f"{record.name}: {size(record.size)} into the store, streamed")
        with screen.step("send large", "another tool sends it to the endpoint") as step:
            delivery = await handover.send_large(record)
            step.done(f"{size(record.size)} out of the store and to the endpoint, streamed")
    screen.large_delivery(delivery, memory.grown)


@asynccontextmanager
async def _opened(store: "ArtifactStore", scope: "Scope") -> AsyncGenerator["ArtifactStore"]:
    """Open a store; nothing of the demo stays in it."""
    async with store:
        try:
            yield store
        finally:
            with anyio.CancelScope(shield=True):
                await store.clear_scope(scope)


@asynccontextmanager
async def _folder() -> AsyncGenerator[Path]:
    folder = Path(await anyio.to_thread.run_sync(tempfile.mkdtemp, None, "runenv-demo-"))
    try:
        yield folder
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(shutil.rmtree, folder, True)  # noqa: FBT003 - ignore_errors
