"""How the demo looks: one line a step, panels for what is to be seen, a table at the end. It decides nothing.

Made for 80 columns and more; without a terminal the same comes as plain text, without what moves.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from rich.console import Console, Group
from rich.markup import escape
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from runenv.cli.terminal import count, printable, size

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from rich.console import RenderableType

    from runenv.cli.demo.handover import Delivery, Message
    from runenv.cli.demo.steps import Chart, Cut, Ended, Meter
    from runenv.types import Output

__all__ = ("Screen",)

HEAD_LINES: Final = 3
"""Of the model's view, at its begin; the same number is shown before and after the cut."""
TAIL_LINES: Final = 4
CUT_LINES: Final = 6
"""Of the spill file, at the place of the cut."""
INDENT: Final = 2
FLAT_BYTES: Final = 64 * 1024 * 1024
"""What this process may grow by while a file of any size goes through it; more is no flat memory."""
_GIB: Final = 2**30
_QUIET: Final = "grey62"
_MARKER: Final = "bold yellow"


@dataclass(frozen=True, slots=True)
class _Row:
    """One step in the table at the end."""

    name: str
    seconds: float
    used: Meter


class Step:
    """A step while it runs: what is to be said of it."""

    def __init__(self) -> None:
        self.text = ""

    def done(self, text: str) -> None:
        """Say what came of it."""
        self.text = text


class Screen:
    """Draws on one console and keeps what the last table needs.

    Args:
        console: where to.
        meter: the one that the steps count with.
    """

    def __init__(self, console: Console, meter: Meter) -> None:
        self._console = console
        self._meter = meter
        self._rows: list[_Row] = []

    @property
    def console(self) -> Console:
        """Where it draws."""
        return self._console

    def title(self) -> None:
        """Say what this is."""
        text = Text.assemble(
            ("runenv demo", "bold cyan"),
            "\nAn agent's errand, first without the agent: bytes go where they are needed,"
            " and of what comes back a model sees only what fits.",
        )
        self._console.print(Panel(text, border_style="cyan", padding=(0, 2)))

    def env(self, facts: Mapping[str, object]) -> None:
        """Say which env it is and what its sandbox allows."""
        table = Table.grid(padding=(0, 2))
        table.add_column(style=_QUIET)
        table.add_column(overflow="fold")
        table.add_row("env", Text(f"{facts['id']}, working folder {facts['workdir']}"))
        if facts["kind"] == "docker":
            table.add_row("image", Text(f"{facts['image']} on {facts['engine']}"))
            table.add_row("sandbox", Text(_sandbox(facts)))
        else:
            table.add_row("sandbox", Text(str(facts.get("isolation", "")), style="yellow"))
        self._console.print(Padding(table, (0, 0, 0, INDENT + 2)))

    @contextmanager
    def step(self, name: str, doing: str = "") -> Generator[Step]:
        """Draw one step: that it runs, and then what came of it and how long it took."""
        step, before, began = Step(), replace(self._meter), time.perf_counter()
        try:
            if self._console.is_terminal and doing:
                with self._console.status(f"[{_QUIET}]{escape(doing)}[/]"):
                    yield step
            else:
                yield step
        except BaseException:
            self._line("✗", "red", name, "", time.perf_counter() - began)
            raise
        seconds = time.perf_counter() - began
        self._line("✓", "green", name, step.text, seconds)
        now = self._meter
        used = replace(
            now,
            up=now.up - before.up,
            down=now.down - before.down,
            printed=now.printed - before.printed,
            seen=now.seen - before.seen,
        )
        self._rows.append(_Row(name, seconds, used))

    def skip(self, name: str, reason: str) -> None:
        """Draw a step that is left out, and why."""
        self._line("-", "yellow", name, reason, None)

    def _line(self, mark: str, colour: str, name: str, text: str, seconds: float | None) -> None:
        table = Table.grid(padding=(0, 1), expand=True)
        table.add_column(width=1)
        table.add_column(ratio=1)
        table.add_column(justify="right", style=_QUIET)
        body = Text.assemble((name, "bold"), *([("  ", ""), (text, "")] if text else []))
        table.add_row(Text(mark, style=f"bold {colour}"), body, "" if seconds is None else _seconds(seconds))
        self._console.print(Padding(table, (0, 0, 0, INDENT - 1)))

    def view(self, output: Output, marker: str) -> None:
        """Show the text that a model would be given, in parts, with the marker at its cut."""
        lines = output.text.splitlines()
        at = lines.index(marker)
        before, after = lines[:at], lines[at + 1 :]
        parts: list[RenderableType] = [
            *map(_code, before[:HEAD_LINES]),
            _hidden(len(before) - 2 * HEAD_LINES),
            *map(_code, before[-HEAD_LINES:]),
            Text(marker, style=_MARKER),
            *map(_code, after[:HEAD_LINES]),
            _hidden(len(after) - HEAD_LINES - TAIL_LINES),
            *map(_code, after[-TAIL_LINES:]),
        ]
        share = f"{len(output.text):,} characters of {size(output.total_bytes)}"
        self._panel("what a model is given", share, parts)

    def cut(self, cut: Cut) -> None:
        """Show what is in the spill file where the view was cut."""
        lines = cut.after.splitlines()[:CUT_LINES]
        last = cut.before.splitlines()[-1:]
        parts = [*(_code(line, _QUIET) for line in last), *map(_code, lines)]
        self._panel(f"read on at byte {cut.offset:,}", "the first line is the last one before the cut", parts)

    def chart(self, chart: Chart) -> None:
        """Show the hashes of both sides, and where the picture is."""
        table = Table.grid(padding=(0, 2))
        table.add_column(style=_QUIET)
        table.add_column(overflow="fold")
        table.add_row("env", chart.theirs)
        table.add_row("host", Text(chart.ours, style="green"))
        link = Text(str(chart.path), style=f"cyan link {chart.path.absolute().as_uri()}")
        table.add_row("open it", link)
        self._panel("SHA-256 on both sides", "equal", [table], style="green")

    def ended(self, ended: Ended) -> None:
        """Show what became of the command tree."""
        table = Table.grid(padding=(0, 2))
        table.add_column(justify="right", style="bold")
        table.add_column()
        table.add_row(str(ended.most), "processes: background jobs, sessions of their own, a daemon, a chain")
        table.add_row(
            Text(str(ended.left), style="green" if not ended.left else "red"), "left when its result was there"
        )
        title = f"deadline, SIGTERM, {ended.result.signal}"
        self._panel(title, f"the next command answers {ended.answer}", [table])

    def second_act(self) -> None:
        """Say what comes now."""
        text = Text.assemble(
            ("The second act", "bold cyan"),
            "\nA tool makes a file, another sends it on; a model sees a handle.",
        )
        self._console.print(Panel(text, border_style="cyan", padding=(0, 2)))

    def delivery(self, delivery: Delivery) -> None:
        """Show the transcript, and the hashes of both ends."""
        parts = [_message(message) for message in delivery.messages]
        share = f"{delivery.seen:,} characters for {size(delivery.record.size)}, no base64"
        self._panel("the transcript: what a model writes and sees", share, parts)
        self._ends(delivery, ("tool got", Text(f"{delivery.given}, for a handle of {len(delivery.record.handle)}")))

    def large_delivery(self, delivery: Delivery, grown: int | None) -> None:
        """Show the hashes of both ends, and what it took of this process."""
        if grown is None:
            took = Text("not measured: this system does not tell")
        else:
            style = "green" if grown <= FLAT_BYTES else "red"
            through = f"for {size(delivery.record.size)}"
            took = Text.assemble("this process grew by ", (size(grown), style), f" at most {through}")
        self._ends(
            delivery, ("memory", took), ("model", Text(f"{delivery.seen:,} characters of transcript, no base64"))
        )

    def _ends(self, delivery: Delivery, *more: tuple[str, Text]) -> None:
        table = Table.grid(padding=(0, 2))
        table.add_column(style=_QUIET, no_wrap=True)
        table.add_column(overflow="fold")
        table.add_row("env", delivery.theirs)
        table.add_row("endpoint", Text(delivery.arrived, style="green"))
        for what, text in more:
            table.add_row(what, text)
        self._panel("SHA-256 on both ends", "equal", [table], style="green")

    def summary(self, env: str) -> None:
        """Draw the table of all steps, and what it comes to."""
        table = Table(box=None, padding=(0, 2, 0, 0), header_style=_QUIET, show_footer=True, footer_style="bold")
        total = sum(row.seconds for row in self._rows)
        meter = self._meter
        table.add_column("step", footer="in all")
        for heading, footer in (
            ("time", _seconds(total)),
            ("to the env", size(meter.up)),
            ("printed there", size(meter.printed)),
            ("to the host", size(meter.down)),
            ("to the model", f"{meter.seen:,} chars"),
        ):
            table.add_column(heading, footer=footer, justify="right")
        for row in self._rows:
            used = row.used
            sizes = [size(number) if number else "" for number in (used.up, used.printed, used.down)]
            seen = f"{used.seen:,} chars" if used.seen else ""
            table.add_row(row.name, _seconds(row.seconds), *sizes, seen)
        self._console.print(Padding(table, (0, 0, 0, INDENT)))
        text = Text.assemble(
            ("A model would have read ", ""),
            (f"{meter.seen:,} characters", "bold cyan"),
            (f": {size(meter.printed)} were printed in {env}, {size(meter.up + meter.down)} moved in or out.", ""),
        )
        self._console.print(Padding(text, (1, 0, 0, INDENT)))
        note = "Sizes are of content; what the wire adds (a few bytes a frame) is not counted."
        self._console.print(Padding(Text(note, style=_QUIET), (0, 0, 0, INDENT)))

    def _panel(self, title: str, note: str, parts: Sequence[RenderableType], style: str = "") -> None:
        panel = Panel(
            Group(*parts),
            title=Text(title, style="bold"),
            title_align="left",
            subtitle=Text(note, style=_QUIET),
            subtitle_align="right",
            border_style=style or _QUIET,
            padding=(0, 1),
        )
        self._console.print(Padding(panel, (0, 0, 1, INDENT)))


def _code(line: str, style: str = "") -> Text:
    return Text(line, style=style, no_wrap=True, overflow="ellipsis")


def _message(message: Message) -> Text:
    from runenv.artifacts.handles import find  # with it comes the store, which takes as long as the command line

    text = Text("→ " if message.kind == "call" else "← ", style=_QUIET if message.kind == "result" else "")
    for number, line in enumerate(message.text.split("\n")):
        text.append(f"{chr(10)}  {printable(line)}" if number else printable(line))
    for match in find(text.plain):
        text.stylize("bold cyan", match.start, match.end)
    return text


def _hidden(lines: int) -> Text:
    return Text(f"  … {count(lines, 'line')} not shown here" if lines > 0 else "", style=f"italic {_QUIET}")


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s"


def _sandbox(facts: Mapping[str, object]) -> str:
    memory, pids, cpus = facts["memory_bytes"], facts["pids"], facts["cpus"]
    parts = [
        f"user {facts['user']}",
        "no capabilities" if not facts["cap_add"] else f"capabilities {facts['cap_add']}",
        "no network" if facts["network"] == "none" else f"network {facts['network']}",
        f"{memory / _GIB:g} GiB memory" if isinstance(memory, int) else "memory without limit",
        f"{pids:,} processes" if isinstance(pids, int) else "processes without limit",
        f"{cpus:g} CPUs" if isinstance(cpus, float | int) else "CPUs without limit",
    ]
    return ", ".join(parts)
