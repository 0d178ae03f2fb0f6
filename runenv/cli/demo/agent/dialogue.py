"""How an agent run looks: what the model says, what it asks for, what it sees, and what that comes to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from runenv.artifacts.handles import find
from runenv.cli.demo.agent.transcript import described
from runenv.cli.terminal import count, printable, size
from runenv.providers.lines import file_line
from runenv.types import FilePart, ImagePart

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rich.console import Console

    from runenv.cli.demo.agent.api import Model
    from runenv.cli.demo.agent.transcript import Ledger, Turn
    from runenv.types import Part, ToolCall, ToolResult

__all__ = ("Dialogue",)

INDENT: Final = 4
RESULT_LINES: Final = 4
"""Of a result, from its begin; of a longer one the last of them says how much more there is."""
ARGUMENT_CHARS: Final = 60
"""Of an argument of a call."""
SAID_CHARS: Final = 400
"""Of what the model said."""
_QUIET: Final = "grey62"
_HANDLE: Final = "bold cyan"
_IMAGE: Final = "bold magenta"


class Dialogue:
    """Draws on one console.

    Args:
        console: where to.
    """

    def __init__(self, console: Console) -> None:
        self._console = console

    def title(self, model: Model, kind: str) -> None:
        """Say what comes now, who plays the model, and where its commands run."""
        who = (
            f"A script plays the model, offline; requests and replies have the form of {model.wire.limits.vendor}'s."
            if model.is_played
            else f"The model is {model.name}, of {model.wire.limits.vendor}: what tools show it goes over the network."
        )
        text = Text.assemble(("The third act: an agent run", "bold cyan"), f"\n{who}")
        if kind == "local" and not model.is_played:
            text.append("\nWhat it asks for runs on this host, as you.", "yellow")
        self._console.print(Panel(text, border_style="cyan", padding=(0, 2)))

    def turn(self, turn: Turn) -> None:
        """Draw one turn."""
        said = printable(" ".join(turn.reply.text.split()))
        said = said if len(said) <= SAID_CHARS else f"{said[:SAID_CHARS]}…"
        cut = f" (cut off: {turn.reply.cut})" if turn.reply.cut else ""
        head = Table.grid(padding=(0, 1), expand=True)
        head.add_column(width=2, justify="right", style=_QUIET)
        head.add_column(ratio=1)
        head.add_column(justify="right", style=_QUIET)
        head.add_row(str(turn.number), Text.assemble((said or "(no words)", "italic"), cut), f"{turn.seconds:.2f} s")
        self._console.print(Padding(head, (0, 0, 0, INDENT - 3)))
        for call, result in turn.answered:
            self._line("→", _call(call))
            for number, line in enumerate(_result(result)):
                self._line("" if number else "✗" if result.is_error else "←", line)

    def outcome(self, ledger: Ledger, transcript: Path) -> None:
        """Show what the model had in its context and what stayed outside, both ends of what was sent, and the file."""
        table = Table.grid(padding=(0, 2))
        table.add_column(style=_QUIET, no_wrap=True)
        table.add_column(overflow="fold")
        given = Text.assemble((f"{ledger.given_chars:,} characters", _HANDLE), " of text, tools and results, and ")
        table.add_row("context", Text.assemble(given, (_images(ledger), _IMAGE), f"; it wrote {ledger.own_chars:,}"))
        for name, text in _outside(ledger):
            table.add_row(name, text)
        for sent in ledger.sent:
            for name, sha256 in (("env", sent.theirs), ("store", sent.record.sha256)):
                table.add_row(name, sha256 or "no file of that name")
            is_equal = sent.arrived == sent.record.sha256
            table.add_row("endpoint", Text(sent.arrived, style="green" if is_equal else "red"))
        table.add_row("open it", Text(str(transcript), style=f"cyan link {transcript.absolute().as_uri()}"))
        panel = Panel(
            table,
            title=Text(f"{size(ledger.outside_bytes)} stayed outside of the context", style="bold"),
            title_align="left",
            subtitle=Text("the transcript is JSON without base64; the images lie beside it", _QUIET),
            subtitle_align="right",
            border_style="green",
            padding=(0, 1),
        )
        self._console.print(Padding(panel, (0, 0, 1, 2)))

    def _line(self, mark: str, text: Text) -> None:
        for match in find(text.plain):
            text.stylize(_HANDLE, match.start, match.end)
        line = Table.grid(padding=(0, 1))
        line.add_column(width=1, style=_QUIET)
        line.add_column(overflow="fold")
        line.add_row(mark, text)
        self._console.print(Padding(line, (0, 0, 0, INDENT)))


def _call(call: ToolCall) -> Text:
    arguments = (f"{name}={_value(value)}" for name, value in call.arguments.items())
    return Text.assemble((printable(call.name), "bold"), f"({', '.join(arguments)})")


def _value(value: object) -> str:
    shown = printable(json.dumps(value, ensure_ascii=False))
    if len(shown) <= ARGUMENT_CHARS:
        return shown
    return f"{shown[:ARGUMENT_CHARS]}… ({len(shown):,} characters)"


def _result(result: ToolResult) -> list[Text]:
    """Return the first lines of what a model sees, and how much more there is."""
    lines = [line for part in result.parts for line in _lines(part, is_error=result.is_error)]
    if len(lines) <= RESULT_LINES:
        return lines
    shown, hidden = lines[: RESULT_LINES - 1], lines[RESULT_LINES - 1 :]
    more = f"… {count(len(hidden), 'line')} more, {sum(len(line.plain) for line in hidden):,} characters"
    return [*shown, Text(more, style=f"italic {_QUIET}")]


def _lines(part: Part, *, is_error: bool) -> Iterator[Text]:
    if isinstance(part, ImagePart):
        yield Text(f"[{described(part.data, part.media_type)}]", style=_IMAGE)
    elif isinstance(part, FilePart):
        yield Text(file_line(part))  # whole: the handle is at its end
    else:
        for line in part.text.splitlines():
            style = "yellow" if is_error else ""
            yield Text(printable(line.expandtabs(4)), style=style, no_wrap=True, overflow="ellipsis")


def _images(ledger: Ledger) -> str:
    if not ledger.images:
        return "no image"
    return f"{count(len(ledger.images), 'image')} of {size(ledger.image_bytes)}"


def _outside(ledger: Ledger) -> Iterator[tuple[str, str]]:
    if ledger.printed:
        yield "printed", f"{size(ledger.printed)}, of which {ledger.printed_shown:,} characters were shown"
    if ledger.files:
        yield "files", ", ".join(f"{printable(name)} {size(number)}" for name, number in ledger.files.items())
    if ledger.artifacts:
        artifacts = (f"{printable(record.name)} {size(record.size)}" for record in ledger.artifacts)
        yield "stored", ", ".join(artifacts)
    for sent in ledger.sent:
        yield "upload", f"{sent.given:,} characters of base64 in place of a handle of {len(sent.record.handle)}"
