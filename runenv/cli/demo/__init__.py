"""`runenv demo`: the main job on real input, from the first byte to the last process.

A source tree and a CSV go into an env; an analysis prints far more than a model could read, and what is cut off is
found again; a chart comes back, the same on both sides; a command tree that does not end is ended. `steps.py` does
it, `screen.py` draws it, `programs.py` are the programs that run inside.

Unless told otherwise the tree is the checkout that the package is in, and the CSV is the one of its tests. From a
wheel the tree is the package itself, and the chart is drawn from what the analysis has counted.
"""

import os
import sys
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import anyio
import typer
from rich.console import Console

import runenv
from runenv.cli.demo.screen import Screen
from runenv.cli.demo.steps import CHART, SOURCE, Meter, StepError, Steps, marker_of
from runenv.cli.options import Image, Kind, env_config
from runenv.cli.terminal import FAILED, moved, one_line_errors, size, transfer_bar
from runenv.config import DockerConfig, LocalConfig
from runenv.envs import open_env
from runenv.errors import EnvStartError

__all__ = ("Inputs", "default_inputs", "demo_command", "run_demo")

IMAGE: Final = "runenv/python"
"""Built by `scripts/images` of the source tree; never pulled, for nobody keeps that name in a registry for us."""
TABLE: Final = "table.csv"
COUNTS: Final = "files.csv"
"""What the analysis leaves in the env."""


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
    env: Annotated[Kind, typer.Option(help="Kind of env.")] = Kind.DOCKER,
    image: Image = None,
    tree: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Source tree to look at; ours unless given.")
    ] = None,
    csv: Annotated[Path | None, typer.Option(metavar="PATH", help="CSV to draw; the tests' own unless given.")] = None,
    output: Annotated[Path | None, typer.Option(metavar="PATH", help="Where the chart goes; a cache folder.")] = None,
) -> None:
    """Do an agent's errand on real files, and say what it took.

    Uploads a source tree and a CSV, runs an analysis that prints far more than fits, reads on where it was cut, draws a
    chart and brings it back, and ends a command tree that will not end. The image needs Python with pandas and
    matplotlib; runenv/python unless given, which scripts/images builds.

    Exit status: 0 when every step was done, else 1.
    """
    with one_line_errors():
        settings = {"image": image or (IMAGE if env is Kind.DOCKER else None), "pull": None if image else "never"}
        config = env_config(env, settings=settings if env is Kind.DOCKER else {"image": image})
        default = default_inputs()
        inputs = Inputs(tree or default.tree, csv or default.table, output or default.output)
        try:
            is_whole = anyio.run(run_demo, config, inputs, Console())
        except EnvStartError as error:
            if image is None and f"the image {IMAGE!r} is not on the engine" in str(error):
                message = (
                    f"the image {IMAGE!r} is not on the engine: build it with `scripts/images python` of the source"
                    " tree, or name another one that has Python with pandas and matplotlib: --image"
                )
                raise EnvStartError(message) from error
            raise
    raise typer.Exit(0 if is_whole else FAILED)


def default_inputs() -> Inputs:
    """Return what is worked on unless the options say otherwise."""
    package = Path(runenv.__file__).parent
    checkout = package.parent
    output = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "runenv" / "demo" / CHART
    if not (checkout / "pyproject.toml").is_file():
        return Inputs(package, None, output)
    table = checkout / "tests" / "data" / "weather.csv"
    return Inputs(checkout, table if table.is_file() else None, output)


async def run_demo(config: LocalConfig | DockerConfig, inputs: Inputs, console: Console) -> bool:
    """Do all steps in an env of that configuration and draw them.

    Returns:
        Whether every step was done; one is left out where the env has no pandas or matplotlib.

    Raises:
        RunEnvError: an env does not open, or a step did not do what it is there to show.
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
        screen.summary(env.id)
    return can_draw


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
