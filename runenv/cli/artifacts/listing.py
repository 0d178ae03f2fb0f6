"""How `runenv artifacts` shows records: a table, a few lines each where the terminal is narrow, or JSON for scripts.

Records are drawn as they come, a page at a time, so that a store of any size can be listed. A value is never cut or
folded, so that it can be copied. Nothing is decided here.
"""

from __future__ import annotations

import json
import sys
import textwrap
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from runenv.cli.terminal import printable, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runenv.artifacts.artifact import Record

__all__ = ("Listing", "as_json", "brief", "show_record")

PAGE_ROWS: Final = 500
"""Rows whose columns are made equally wide, and that are held for it."""
GAP: Final = "  "
NEVER: Final = "never"
_HEADINGS: Final = ("name", "version", "size", "type", "age", "expires", "of", "handle")
_RIGHT: Final = frozenset({"version", "size"})
_QUIET: Final = "grey62"
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


class Listing:
    """Draws records on stdout, in the order in which they are added.

    Args:
        as_lines: as JSON, one record a line.
    """

    def __init__(self, *, as_lines: bool) -> None:
        self._console = Console()
        self._as_lines = as_lines
        self._page: list[Record] = []
        self._widths = [cell_len(heading) for heading in _HEADINGS]
        self.count = 0

    def add(self, record: Record) -> None:
        """Draw a record, perhaps with the next ones."""
        self.count += 1
        if self._as_lines:
            sys.stdout.write(f"{json.dumps(as_json(record))}\n")
            return
        self._page.append(record)
        if len(self._page) == PAGE_ROWS:
            self.end()

    def end(self) -> None:
        """Draw what was added."""
        if not self._page:
            return
        rows = [_cells(record) for record in self._page]
        self._widths = [max(width, *map(cell_len, cells)) for width, *cells in zip(self._widths, *rows, strict=True)]
        if not self._console.is_terminal or sum(self._widths) + len(GAP) * (len(_HEADINGS) - 1) <= self._console.width:
            self._draw_table(rows, is_first=self.count == len(rows))
        else:
            for row in rows:
                self._draw_apart(row)
        self._page.clear()

    def _draw_table(self, rows: Sequence[tuple[str, ...]], *, is_first: bool) -> None:
        for number, row in enumerate((_HEADINGS, *rows) if is_first else rows):
            cells = [
                set_cell_size(cell, width) if heading not in _RIGHT else " " * (width - cell_len(cell)) + cell
                for heading, cell, width in zip(_HEADINGS, row, self._widths, strict=True)
            ]
            self._print(Text(GAP.join(cells).rstrip(), _QUIET if is_first and not number else ""))

    def _draw_apart(self, row: tuple[str, ...]) -> None:
        name, version, of_bytes, kind, age, expires, owner, handle = row
        lifetime = "never expires" if expires == NEVER else f"expires {expires}"
        facts = f"version {version}, {of_bytes}, {kind}, {age} old, {lifetime}, of the {owner}"
        self._print(Text(name, "bold"))
        for line in textwrap.wrap(
            facts,
            self._console.width,
            initial_indent=GAP,
            subsequent_indent=GAP,
            break_long_words=False,
            break_on_hyphens=False,
        ):
            self._print(Text(line))
        self._print(Text(f"{GAP}{handle}", _QUIET))

    def _print(self, line: Text) -> None:
        self._console.print(line, soft_wrap=True)  # what is longer than the terminal can still be copied


def show_record(record: Record, path: str | None) -> None:
    """Draw all that is known of one record, each value on a line of its own, whole."""
    scope = record.scope
    owners = ((what, getattr(scope, what)) for what in ("run", "session", "user"))
    rows: list[tuple[str, str | None]] = [
        ("name", record.name),
        ("version", str(record.version)),
        ("handle", record.handle),
        ("size", f"{record.size:,} bytes"),
        ("SHA-256", record.sha256),
        ("type", record.media_type),
        ("declared as", record.declared_type),
        *owners,
        ("created", _moment(record.created)),
        ("expires", NEVER if record.expires is None else _moment(record.expires)),
        ("URI", record.uri),
        ("path", path),
        *((f"metadata {key}", value) for key, value in record.metadata.items()),
    ]
    shown = [(printable(what), printable(value)) for what, value in rows if value is not None]
    width = max(cell_len(what) for what, _ in shown)
    console = Console()
    for what, value in shown:
        console.print(Text.assemble((set_cell_size(what, width), _QUIET), GAP, value), soft_wrap=True)


def as_json(record: Record, path: str | None = None) -> dict[str, Any]:
    """Return a record as values of JSON; times are seconds since the epoch."""
    values: dict[str, Any] = {
        "handle": record.handle,
        "name": record.name,
        "version": record.version,
        "size": record.size,
        "sha256": record.sha256,
        "media_type": record.media_type,
        "declared_type": record.declared_type,
        "level": record.scope.level,
        "run": record.scope.run,
        "session": record.scope.session,
        "user": record.scope.user,
        "created": record.created,
        "expires": record.expires,
        "metadata": dict(record.metadata),
        "uri": record.uri,
    }
    return values if path is None else {**values, "path": path}


def brief(record: Record) -> str:
    """Write in a few words what a record is of."""
    kind = printable(record.media_type)
    declared = "" if record.declared_type is None else f", declared as {printable(record.declared_type)}"
    return f"{printable(record.name)!r}, version {record.version}, {size(record.size)}, {kind}{declared}"


def _cells(record: Record) -> tuple[str, ...]:
    now = time.time()
    expires = NEVER if record.expires is None else f"in {_span(record.expires - now)}"
    age = _span(now - record.created)
    return (
        printable(record.name),
        str(record.version),
        size(record.size),
        printable(record.media_type),
        age,
        expires,
        record.scope.level,
        record.handle,
    )


def _span(seconds: float) -> str:
    """Write a length of time by its largest unit."""
    for length, unit in _UNITS:
        if seconds >= length:
            return f"{round(seconds / length):,} {unit}"
    return "0 s"


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).astimezone().isoformat(sep=" ", timespec="seconds")
