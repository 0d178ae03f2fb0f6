"""The programs that the played model writes: text in its tool calls, as a model would write it.

The first version of each plot has the fault that is seen only by looking at it: a label for every week, or for every
file, one over the other, and lines without names. `fixes` are the edits that put it right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ("FILES", "WEATHER", "Subject", "slides")


@dataclass(frozen=True, slots=True)
class Subject:
    """What a table is about, and how it is drawn.

    Attributes:
        title: of slides and file.
        what: is drawn, in words.
        plot: the program with the fault; `{table}` in it is the file.
        fault: what is wrong with the picture, in words.
        remedy: what is done about it, in words.
        fixes: the edits, old and new text.
    """

    title: str
    what: str
    plot: str
    fault: str
    remedy: str
    fixes: tuple[tuple[str, str], ...]


WEATHER: Final = Subject(
    title="Temperature at the airports of New York",
    what="the mean temperature of each week at each airport",
    plot='''\
"""Plot the mean temperature of each week at each airport."""
import collections, csv, datetime
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt

temperatures = collections.defaultdict(lambda: collections.defaultdict(list))
with open("{table}", newline="", encoding="utf-8") as table:
    for row in csv.DictReader(table):
        if row["temp"] not in ("", "NA"):
            day = datetime.date(int(row["year"]), int(row["month"]), int(row["day"]))
            monday = day - datetime.timedelta(day.weekday())
            temperatures[row["origin"]][str(monday)].append(float(row["temp"]))

plt.figure(figsize=(10, 5))
for place, weeks in temperatures.items():
    plt.plot(list(weeks), [sum(hours) / len(hours) for hours in weeks.values()], label=place)
plt.savefig("plot.png", dpi=120)
''',
    fault="The labels below the axis lie one over the other, nothing says which line is which airport, nor the unit",
    remedy="I make the weeks dates, so that only some get labels, and add title, unit and legend",
    fixes=(
        ("[str(monday)]", "[monday]"),
        (
            'plt.savefig("plot.png", dpi=120)\n',
            (
                'plt.title("Temperature at the airports of New York, 2013")\n'
                'plt.ylabel("\\u00b0F, mean of the week")\n'
                "plt.legend(frameon=False)\n"
                "plt.grid(alpha=0.3)\n"
                'plt.savefig("plot.png", dpi=120)\n'
            ),
        ),
    ),
)

FILES: Final = Subject(
    title="Lines of the source files",
    what="the lines of the longest files",
    plot='''\
"""Plot the lines of the longest files."""
import csv
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt

with open("{table}", newline="", encoding="utf-8") as table:
    files = [(row["path"], int(row["lines"])) for row in csv.DictReader(table)]
files = sorted(files, key=lambda file: file[1])[-200:]

plt.figure(figsize=(10, 5))
plt.barh([path for path, _ in files], [lines for _, lines in files])
plt.savefig("plot.png", dpi=120)
''',
    fault="So many labels lie one over the other, and long paths are cut off at the edge",
    remedy="I draw 15 files only, make room for their names, and add title and unit",
    fixes=(
        ("[-200:]", "[-15:]"),
        (
            'plt.savefig("plot.png", dpi=120)\n',
            (
                'plt.title("The longest files")\n'
                'plt.xlabel("lines")\n'
                "plt.tight_layout()\n"
                'plt.savefig("plot.png", dpi=120)\n'
            ),
        ),
    ),
)


def slides(subject: Subject) -> str:
    """Return the program that makes slides of the plot."""
    return f'''\
"""Make slides that show the plot."""
from pptx import Presentation
from pptx.util import Inches

deck = Presentation()
slide = deck.slides.add_slide(deck.slide_layouts[0])
slide.shapes.title.text = {subject.title!r}
slide.placeholders[1].text = {subject.what.capitalize()!r}
slide = deck.slides.add_slide(deck.slide_layouts[5])
slide.shapes.title.text = {subject.title!r}
slide.shapes.add_picture("plot.png", Inches(0.5), Inches(1.7), width=Inches(9))
deck.save("slides.pptx")
print(f"{{len(deck.slides)}} slides")
'''
