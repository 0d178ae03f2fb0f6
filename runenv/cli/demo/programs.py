"""The programs that the demo runs in the sandbox: text, as a model would write them into a tool call.

They use what the sandbox has and know nothing of runenv.
"""

from __future__ import annotations

from typing import Final

__all__ = ("ARCHIVE", "CHART", "DECK", "HAS", "HAS_PPTX", "INDEX", "LIVING", "RECORDING", "TREE")

INDEX: Final = '''\
"""Print every use of every name in a source tree, then what they come to; counts by file go to files.csv."""
import collections, csv, os, re, sys

uses, files, total = collections.defaultdict(list), [], 0
for folder, folders, names in os.walk(sys.argv[1]):
    folders.sort()
    for name in sorted(names):
        path = os.path.join(folder, name)
        try:
            lines = open(path, encoding="utf-8").read().splitlines()
        except (UnicodeDecodeError, OSError):
            continue
        before, shown = total, os.path.relpath(path, sys.argv[1])
        for number, line in enumerate(lines, 1):
            line = " ".join(line.split())[:100]
            if line.isprintable():
                use = f"  {shown}:{number}: {line}"
                words = set(re.findall(r"\\b[A-Za-z_]\\w{2,}", line))
                total += len(words)
                for word in words:
                    uses[word].append(use)
        files.append((path, len(lines), total - before))

for word in sorted(uses, key=str.lower):
    print(f"{word}: {len(uses[word]):,}", *uses[word], sep="\\n")
print(f"{len(files):,} files, {sum(lines for _, lines, _ in files):,} lines, {len(uses):,} names, {total:,} uses")
most = sorted(uses, key=lambda word: -len(uses[word]))[:5]
print("used most:", ", ".join(f"{word} {len(uses[word]):,}" for word in most))
with open("files.csv", "w", newline="") as out:
    csv.writer(out).writerows([("path", "lines", "uses"), *files])
'''
"""Far more output than fits: the line that says what it comes to is the last but one."""

CHART: Final = '''\
"""Draw a CSV: weather of airports by day, anything else as the distribution of its numbers."""
import sys
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pandas as pd

table = pd.read_csv(sys.argv[1])
if {"origin", "time_hour", "temp", "precip"} <= set(table.columns):
    table["day"] = pd.to_datetime(table["time_hour"]).dt.tz_localize(None).dt.floor("D")
    figure, (warm, wet) = plt.subplots(2, 1, figsize=(11, 7), sharex=True, height_ratios=(3, 2))
    for place, rows in table.groupby("origin"):
        days = rows.groupby("day")
        warm.plot(days["temp"].mean().rolling(7, center=True).mean(), label=place)
        wet.plot(days["precip"].sum().cumsum(), label=place)
    lows, highs = (table.groupby("day")["temp"].agg(how) for how in ("min", "max"))
    warm.fill_between(lows.index, lows, highs, color="0.9", label="lowest to highest")
    warm.set(title="The weather of New York's airports", ylabel="temperature, \\u00b0F (mean of 7 days)")
    wet.set(ylabel="precipitation so far, inches")
    axes = (warm, wet)
else:
    numbers = table.select_dtypes("number").iloc[:, :6]
    figure, axes = plt.subplots(len(numbers.columns), 1, figsize=(11, 3 * len(numbers.columns)), squeeze=False)
    axes = axes.ravel()
    for axis, column in zip(axes, numbers.columns):
        axis.hist(numbers[column].dropna(), bins=60, label=column)
        axis.set_ylabel("rows")
for axis in axes:
    axis.grid(alpha=0.3)
    axis.legend(frameon=False)
figure.tight_layout()
figure.savefig(sys.argv[2], dpi=120)
print(f"{len(table):,} rows, {len(table.columns)} columns")
'''
"""Needs pandas and matplotlib."""

TREE: Final = """\
trap '' TERM HUP INT                                          # asked nicely, it stays; what it starts inherits that
sleep 1001 &                                                  # a background job
setsid sh -c 'sleep 1002 & sleep 1003 & wait' &               # a session of its own
(setsid sh -c 'sleep 1004 & exec sleep 1005' &)               # a daemon: forked twice, its parent gone
setsid sh -c 'while :; do sleep 0.2; done' &                  # one that starts another whenever one ends
chain() { [ "$1" = 0 ] && exec sleep 1006; (chain $(($1 - 1))) & wait; }
chain 8                                                       # eight generations
wait
"""
"""Does not end by itself, nor when asked to."""

HAS: Final = "import importlib.util as u; raise SystemExit(not all(map(u.find_spec, ('matplotlib', 'pandas'))))"
"""Ends with 0 where the chart can be drawn."""

DECK: Final = '''\
"""Make slides about the files of a source tree: title, CSV of them, and where to."""
import csv, sys
from pptx import Presentation
from pptx.util import Inches

title, table, target = sys.argv[1:]
with open(table, newline="", encoding="utf-8") as source:
    files = list(csv.DictReader(source))
deck = Presentation()
slide = deck.slides.add_slide(deck.slide_layouts[0])
slide.shapes.title.text = title
slide.placeholders[1].text = f"{len(files):,} files, {sum(int(file['lines']) for file in files):,} lines"
for column in ("lines", "uses"):
    most = sorted(files, key=lambda file: -int(file[column]))[:10]
    slide = deck.slides.add_slide(deck.slide_layouts[5])
    slide.shapes.title.text = f"Files with the most {column}"
    cells = slide.shapes.add_table(len(most) + 1, 2, Inches(0.5), Inches(1.5), Inches(9), Inches(5)).table
    for row, texts in enumerate([("file", column), *((file["path"], file[column]) for file in most)]):
        for place, text in enumerate(texts):
            cells.cell(row, place).text = text
deck.save(target)
print(f"{len(deck.slides)} slides")
'''
"""Needs python-pptx."""

ARCHIVE: Final = '''\
"""Put a title and a CSV into a ZIP file, as they are."""
import sys, zipfile

title, table, target = sys.argv[1:]
with zipfile.ZipFile(target, "w") as archive:
    archive.writestr("title.txt", title)
    archive.write(table, "files.csv")
    print(f"{len(archive.namelist())} members")
'''
"""Where there is no python-pptx; needs Python and no more."""

RECORDING: Final = '''\
"""Write mebibytes that nothing could make smaller."""
import os, sys

with open(sys.argv[2], "wb") as out:
    for _ in range(int(sys.argv[1])):
        out.write(os.urandom(1 << 20))
print(f"{sys.argv[1]} MiB")
'''

HAS_PPTX: Final = "import importlib.util as u; raise SystemExit(u.find_spec('pptx') is None)"
"""Ends with 0 where slides can be made."""

LIVING: Final = "grep -lsa {mark} /proc/[0-9]*/environ | wc -l"
"""Counts the processes with `{mark}` among the variables they were started with."""
