"""What all commands say the same way: errors in one line, sizes, progress bars.

Results go to stdout; everything about them goes to stderr, so that a command's output can be piped. No env and no
engine is known here.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import typer
from rich.markup import escape
from rich.progress import BarColumn, ProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Column
from rich.text import Text

from runenv.errors import RunEnvError

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from rich.console import Console
    from rich.progress import Task

    from runenv.types import Progress, TransferResult

__all__ = (
    "DEBUG_VARIABLE",
    "FAILED",
    "bytes_in",
    "complain",
    "complain_refused",
    "count",
    "error_line",
    "moved",
    "one_line_errors",
    "printable",
    "size",
    "transfer_bar",
)

FAILED: Final = 1
"""Exit status of a command that did not do what it was asked; wrong arguments are 2."""
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141
DEBUG_VARIABLE: Final = "RUNENV_DEBUG"
"""Set, errors are followed by where they come from."""
MAX_REFUSED_SHOWN: Final = 20
"""Lines about entries that were not copied."""
BAR_DELAY: Final = 0.5
"""Seconds that a transfer takes before it is drawn."""


def complain(text: str) -> None:
    """Write one line about what went wrong to stderr."""
    sys.stderr.write(f"runenv: {' '.join(text.split())}\n")


def error_line(error: BaseException) -> str:
    """Return the sentence for an error."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, OSError) and error.strerror:
        return f"{os.fspath(error.filename)!r}: {error.strerror}" if error.filename is not None else error.strerror
    if isinstance(error, RunEnvError | OSError | ValueError) and str(error):
        return str(error)
    return f"unexpected {type(error).__name__}: {error} (set {DEBUG_VARIABLE}=1 to see where)"


@contextmanager
def one_line_errors(status: int = FAILED) -> Generator[None]:
    """End the process with one line on stderr for whatever goes wrong inside.

    Args:
        status: exit status for it.
    """
    try:
        yield
        sys.stdout.flush()
    except typer.Exit:
        raise
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        # Whoever read our output has enough. What is still buffered has nowhere to go either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(BROKEN_PIPE) from None
    except Exception as error:  # noqa: BLE001 - the outermost place: a line helps a user, a traceback does not
        if os.environ.get(DEBUG_VARIABLE):
            traceback.print_exc()
        complain(error_line(error))
        raise typer.Exit(status) from None


def size(number: int) -> str:
    """Write bytes for people, as tools write them for models: "30.0 KiB"."""
    from runenv.artifacts.handles import human_size  # with it comes the store, which takes as long as the command line

    return human_size(number)


def printable(text: str) -> str:
    """Write a text so that it can do nothing to a terminal: control characters and the like as escapes."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def count(number: int, noun: str) -> str:
    """Write how many of something there are."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def moved(result: TransferResult) -> str:
    """Write what a transfer has moved."""
    return f"{count(result.files, 'file')}, {size(result.bytes)}"


def complain_refused(result: TransferResult) -> bool:
    """Name on stderr what a transfer left out; tell whether there was anything."""
    for refused in result.refused[:MAX_REFUSED_SHOWN]:
        complain(f"not copied: {refused.path!r}: {refused.reason}")
    if result.refused_count > MAX_REFUSED_SHOWN:
        complain(f"not copied: {result.refused_count - MAX_REFUSED_SHOWN:,} more")
    return result.refused_count > 0


@contextmanager
def transfer_bar(console: Console, title: str, total: int | None = None) -> Generator[Progress]:
    """Draw a transfer that takes a while, where `console` is a terminal, and yield what is to be told of its progress.

    Args:
        console: where to.
        title: what is moved.
        total: bytes to expect, where the transfer itself does not know: a tree's.
    """
    name = Column(no_wrap=True, overflow="ellipsis", max_width=console.width // 3)
    columns = (
        TextColumn("{task.description}", style="bold", table_column=name),
        BarColumn(bar_width=None),
        _Moved(table_column=Column(no_wrap=True)),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
    )
    bars = Bars(*columns, console=console, transient=True, expand=True, disable=not console.is_terminal)
    task = bars.add_task(escape(printable(title)), total=total)

    began = time.monotonic()

    def progress(done: int, of: int | None) -> None:
        if not bars.live.is_started and time.monotonic() - began >= BAR_DELAY:
            bars.start()
        bars.update(task, completed=done, total=of or total)

    try:
        yield progress
    finally:
        if bars.live.is_started:
            bars.stop()


class _Moved(ProgressColumn):
    """Bytes done, of how many, and how fast."""

    def render(self, task: Task) -> Text:
        """Draw it."""
        of = "" if task.total is None else f" of {size(int(task.total))}"
        speed = task.finished_speed or task.speed
        rate = "" if speed is None else f", {size(int(speed))}/s"
        return Text(f"{size(int(task.completed))}{of}{rate}", style="progress.download")


def bytes_in(path: Path) -> int | None:
    """Return the bytes in the files of a tree, or of one file, as a bar's total; None when it cannot be read."""
    if not path.is_dir():
        return path.stat().st_size if path.is_file() else None
    sizes = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                sizes += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118 - as os.walk has it
            except OSError:
                continue
    return sizes
