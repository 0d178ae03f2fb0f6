"""What the demo does, step by step, and the facts that come of it. Nothing is drawn here.

Above is the command, which draws each result as it comes (`screen.py`); below are only the verbs of an env, so the
steps are also an example of how a program uses one.
"""

from __future__ import annotations

import hashlib
import posixpath
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from runenv.cli.demo import programs
from runenv.errors import RunEnvError

if TYPE_CHECKING:
    from pathlib import Path

    from runenv.env import RunEnv
    from runenv.types import Command, ExecResult, Output, Progress, TransferResult

__all__ = ("Chart", "Cut", "Ended", "Meter", "StepError", "Steps", "marker_of", "require")

EXCLUDED: Final = (".*", "__pycache__", "node_modules", "dist", "guest-*", "*.csv", "*.egg-info")
"""Not part of a source tree: hidden and built things, and the CSV that goes on its own."""
TREE_SECONDS: Final = 1.5
"""Deadline of the command that does not end."""
LOOK_SECONDS: Final = 0.1
"""Between two looks at its processes."""
BEFORE_CUT_BYTES: Final = 400
"""How much of the text before the cut is compared with the spill file."""
AFTER_CUT_BYTES: Final = 2000
"""How much is read at the place of the cut."""
SOURCE: Final = "source"
CHART: Final = "chart.png"


class StepError(RunEnvError):
    """A step of the demo did not do what it is there to show."""


@dataclass(slots=True)
class Meter:
    """What went where, in bytes of content (frames and names not counted) and characters.

    Attributes:
        up: host to env.
        down: env to host.
        printed: what commands printed in the env, wherever it went.
        seen: characters of the results that a model would be given.
    """

    up: int = 0
    down: int = 0
    printed: int = 0
    seen: int = 0


@dataclass(frozen=True, slots=True)
class Cut:
    """The place where a long output was cut.

    Attributes:
        offset: bytes of the stream before it.
        before: the text of the model's view that ends there.
        after: what the spill file has there, to the end of a line.
    """

    offset: int
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A file that was made in the env and brought back.

    Attributes:
        path: on this host.
        size: bytes.
        theirs: SHA-256 that the env's own program gave.
        ours: SHA-256 of what arrived.
        printed: what the program that made it printed.
    """

    path: Path
    size: int
    theirs: str
    ours: str
    printed: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A command tree that did not end by itself.

    Attributes:
        result: of its command.
        most: processes of it that lived at a time.
        left: processes of it that lived after its result was there.
        answer: what the next command in the env printed.
    """

    result: ExecResult
    most: int
    left: int
    answer: str


def marker_of(output: Output) -> str:
    """Return the line that stands where the text of an output was cut.

    Raises:
        StepError: nothing was cut.
    """
    path = output.spill_path
    if not output.truncated or path is None:
        raise StepError("the output is so short that nothing of it was cut: give a larger tree (--tree)")
    return next(line for line in output.text.splitlines() if line.startswith("[... ") and path in line)


def require(result: ExecResult, what: str) -> None:
    """Make sure that a command has done what it was to do.

    Raises:
        StepError: it has not; with the last line that it wrote.
    """
    if not result.ok:
        reason = (result.stderr.text or result.stdout.text).strip().splitlines()
        raise StepError(f"{what} failed ({result.exit_code or result.signal}): {reason[-1] if reason else 'no word'}")


@dataclass(slots=True)
class Steps:
    """The demo in one env.

    Attributes:
        env: open.
        python: the interpreter in the env.
        meter: counts while the steps are done.
    """

    env: RunEnv
    python: str = "python3"
    meter: Meter = field(default_factory=Meter)

    async def upload(self, source: Path, target: str, progress: Progress | None = None) -> TransferResult:
        """Bring a file or a source tree into the env."""
        result = await self.env.upload(source, target, exclude=EXCLUDED, progress=progress)
        self.meter.up += result.bytes
        return result

    async def index(self) -> Output:
        """Run an analysis that prints far more than a model could read, and return what came of it."""
        await self._write("index.py", programs.INDEX)
        result = await self._exec([self.python, "index.py", SOURCE])
        require(result, "the analysis of the source tree")
        return result.stdout

    async def read_cut(self, output: Output) -> Cut:
        """Read on in the spill file where the text that a model sees was cut.

        Raises:
            StepError: the file does not hold there what it should.
        """
        path, marker = output.spill_path, marker_of(output)
        assert path is not None  # noqa: S101 - there is a marker
        before = output.text[: output.text.index(marker)]
        offset = len(before.encode())
        seen_before = before.encode()[-BEFORE_CUT_BYTES:]
        data = await self.env.read(path, offset=offset - len(seen_before), length=len(seen_before) + AFTER_CUT_BYTES)
        self.meter.down += len(data)
        if not data.startswith(seen_before):
            raise StepError(f"{path!r} does not hold at {offset:,} what was printed there")
        after = data[len(seen_before) :].decode(errors="replace").rpartition("\n")[0]
        self.meter.seen += len(after)
        return Cut(offset, before, after)

    async def can_draw(self) -> bool:
        """Tell whether the env's Python has what the chart needs.

        Raises:
            StepError: there is no Python.
        """
        result = await self.env.exec([self.python, "-c", programs.HAS])  # the demo's own question
        if result.exit_code not in {0, 1}:
            raise StepError(f"there is no Python in the env: {result.stderr.text.strip()}")
        return result.ok

    async def chart(self, table: str, target: Path) -> Chart:
        """Draw `table`, bring the picture to `target`, and take its hash on both sides.

        Raises:
            StepError: it cannot be drawn, or the hashes differ.
        """
        await self._write("chart.py", programs.CHART)
        drawn = await self._exec([self.python, "chart.py", table, CHART])
        require(drawn, "the chart")
        hashed = await self._exec(["sha256sum", CHART])
        require(hashed, "sha256sum")
        theirs = hashed.stdout.text.split()[0]
        result = await self.env.download(CHART, target)
        self.meter.down += result.bytes
        ours = hashlib.sha256(await anyio.to_thread.run_sync(target.read_bytes)).hexdigest()
        if ours != theirs:
            raise StepError(f"{str(target)!r} is not what left the env: {ours} here, {theirs} there")
        return Chart(target, result.bytes, theirs, ours, drawn.stdout.text.strip())

    async def end_tree(self) -> Ended:
        """Start a command tree that does not end, let its deadline end it, and look for what is left.

        Raises:
            StepError: something of it is left, or it never was there.
        """
        mark = secrets.token_hex(8)
        look = programs.LIVING.format(mark=mark)
        most = 0
        results: list[ExecResult] = []

        async def run() -> None:
            results.append(await self._exec(programs.TREE, env={"RUNENV_DEMO": mark}, timeout=TREE_SECONDS))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            while not results:
                most = max(most, await self._number(look))
                await anyio.sleep(LOOK_SECONDS)
        left = await self._number(look)
        answer = await self._exec("echo $((6 * 7))")
        require(answer, "the next command")
        ended = Ended(results[0], most, left, answer.stdout.text.strip())
        if left or not most or not ended.result.timed_out:
            raise StepError(f"of {most} processes {left} are left (timed out: {ended.result.timed_out})")
        return ended

    async def _write(self, name: str, program: str) -> None:
        data = program.encode()
        await self.env.write(posixpath.join(self.env.workdir, name), data)
        self.meter.up += len(data)

    async def _number(self, command: str) -> int:
        result = await self.env.exec(command)  # the demo's own look, which no model sees
        require(result, "a look at the processes")
        return int(result.stdout.text)

    async def _exec(self, command: Command, *, env: dict[str, str] | None = None, timeout: float = 120) -> ExecResult:
        result = await self.env.exec(command, env=env, timeout=timeout)
        for output in (result.stdout, result.stderr):
            self.meter.printed += output.total_bytes
            self.meter.down += len(output.data)
            self.meter.seen += len(output.text)
        return result
