"""How `runenv artifacts` shows records: a table, two lines each where the terminal is narrow, or JSON for scripts.

Records are drawn as they come, a page at a time, so that a store of any size can be listed. Nothing is decided here.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from runenv.cli.terminal import printable, size

if TYPE_CHECKING:
    from runenv.artifacts.artifact import Record

__all__ = ("Listing", "as_json", "brief", "show_record")

PAGE_ROWS: Final = 500
"""Rows whose columns are made equally wide, and that are held for it."""
WIDE: Final = 120
"""Columns of a terminal from which on a record has one line."""
PIPED: Final = 10_000
"""Columns where there is no terminal: nothing is cut or folded for a script."""
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
        console = Console()
        self._console = console if console.is_terminal else Console(width=PIPED)
        self._as_lines = as_lines
        self._page: list[Record] = []
        self._widths = [0] * len(_HEADINGS)
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
        if self._page and self._console.width < WIDE:
            for record in self._page:
                self._draw_twice(record)
        elif self._page:
            self._draw_page(is_first=self.count == len(self._page))
        self._page.clear()

    def _draw_page(self, *, is_first: bool) -> None:
        rows = [_cells(record) for record in self._page]
        for number, heading in enumerate(_HEADINGS):
            needed = max(Text(row[number]).cell_len for row in rows)
            self._widths[number] = max(self._widths[number], needed, len(heading))
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style=_QUIET, show_header=is_first)
        for heading, width in zip(_HEADINGS, self._widths, strict=True):
            is_kept = heading in {"handle", "version", "size"}
            table.add_column(
                heading,
                min_width=width if self._console.width == PIPED or is_kept else None,
                no_wrap=is_kept,
                justify="right" if heading in _RIGHT else "left",
                overflow="fold",
            )
        for row in rows:
            table.add_row(*map(Text, row))
        self._console.print(table)

    def _draw_twice(self, record: Record) -> None:
        name, version, of_bytes, kind, age, expires, owner, handle = _cells(record)
        facts = f"  version {version}, {of_bytes}, {kind}, {age} old, expires: {expires}, of the {owner}"
        text = Text.assemble((name, "bold"), (facts, ""), "\n", (f"  {handle}", _QUIET))
        self._console.print(text, soft_wrap=True)


def show_record(record: Record, path: str | None) -> None:
    """Draw all that is known of one record."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style=_QUIET)
    table.add_column(overflow="fold")
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
        ("expires", "never" if record.expires is None else _moment(record.expires)),
        ("URI", record.uri),
        ("path", path),
        *((f"metadata {key}", value) for key, value in record.metadata.items()),
    ]
    for what, value in rows:
        if value is not None:
            table.add_row(Text(printable(what)), Text(printable(value)))
    console = Console()
    (console if console.is_terminal else Console(width=PIPED)).print(table)


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
    expires = "never" if record.expires is None else f"in {_span(record.expires - now)}"
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
