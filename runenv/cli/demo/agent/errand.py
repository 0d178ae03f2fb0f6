"""What is asked of the model, and the script that plays one.

The script goes on from what it is shown: without matplotlib there is no plot to look at, without python-pptx no slides,
and it says so and does the rest, as is asked of every model.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from runenv.artifacts.handles import find
from runenv.cli.demo.agent.programs import FILES, WEATHER, slides
from runenv.cli.demo.agent.scripted import asks, says

if TYPE_CHECKING:
    from runenv.cli.demo.agent.programs import Subject
    from runenv.cli.demo.agent.scripted import Script, Seen

__all__ = ("SYSTEM", "errand", "script")

SYSTEM: Final = (
    "You work in a sandbox through tools. Before you call tools say in one sentence what you do and why. What is not"
    " installed cannot be installed: say so and do the rest."
)
_DONE: Final = "Exit code 0,"
"""What the result of a command that went well begins with."""


def errand(table: str, python: str) -> str:
    """Return what the model is asked to do.

    Args:
        table: a CSV in the working folder.
        python: the interpreter in the env.
    """
    return (
        f"The working folder has a table, {table}. See what is in it, and draw with Python ({python}) and matplotlib a"
        " plot of it that people understand at first sight, plot.png. Look at the plot yourself, with file_read; put"
        " right what is hard to read, and look again. Then make slides that show it with python-pptx, slides.pptx, save"
        " them as an artifact, and send that to the other machine with the tool upload."
    )


def script(table: str, counts: str, python: str) -> Script:
    """Play a model on that errand.

    Args:
        table: as in the errand.
        counts: a CSV of the lines of files, which is drawn instead of a table that the script does not know.
        python: as in the errand.
    """
    interpreter = shlex.quote(python)
    yield says("I look at what is in the table.", asks("exec", command=f"cat {shlex.quote(table)}"))
    (head,) = yield says(
        "That was more than I need to see; its first lines will do.", asks("file_read", path=table, limit=3)
    )
    subject = (
        WEATHER if {"origin", "temp"} <= set(head.text.replace("\t", ",").replace("\n", ",").split(",")) else FILES
    )
    of = table if subject is WEATHER else counts
    instead = "" if of == table else f"That table is new to me. From {of} "
    _, drawn = yield says(
        f"{instead}I draw {subject.what}.",
        asks("file_write", path="plot.py", content=subject.plot.replace("{table}", of)),
        asks("exec", command=f"{interpreter} plot.py"),
    )
    is_drawn = drawn.text.startswith(_DONE)
    if is_drawn:
        yield from _improve(subject, interpreter)
    made = "slides.pptx"
    if is_drawn:
        _, deck = yield says(
            "Now it is easy to read. I make the slides.",
            asks("file_write", path="slides.py", content=slides(subject)),
            asks("exec", command=f"{interpreter} slides.py"),
        )
        why = _missing(deck)
    else:
        why = _missing(drawn)
    if why:
        made = "table.zip"
        content = "plot.png" if is_drawn else shlex.quote(of)
        yield says(
            f"{why}, so there will be no slides{'' if is_drawn else ' and no plot'}: I pack what there is.",
            asks("exec", command=f"{interpreter} -m zipfile -c {made} {content}"),
        )
    (saved,) = yield says("I save it, to hand it on.", asks("artifact_save", path=made))
    handles = find(saved.text)
    if not handles:
        yield says(f"It cannot be saved, so I have to stop here: {saved.text}")
        return
    (sent,) = yield says("I send it by its handle.", asks("upload", name=made, content=handles[0].handle))
    yield says(f"It did not arrive: {sent.text}" if sent.is_error else f"{made} is on the other machine.")


def _improve(subject: Subject, interpreter: str) -> Script:
    """Look at the plot, put it right, and look again."""
    (shown,) = yield says("Is it any good? I look at it.", asks("file_read", path="plot.png"))
    if not shown.images:
        return
    *_, shown = yield says(
        f"{subject.fault}. {subject.remedy}, and look again.",
        *(asks("file_edit", path="plot.py", old=old, new=new) for old, new in subject.fixes),
        asks("exec", command=f"{interpreter} plot.py"),
        asks("file_read", path="plot.png"),
    )


def _missing(result: Seen) -> str:
    """Return what a command that failed lacked, in words; nothing when it went well."""
    if result.text.startswith(_DONE):
        return ""
    lines = [line for line in result.text.splitlines() if "Error" in line]
    return f"That failed ({lines[-1].strip()[:100]})" if lines else "That failed"
