"""Folders as a model sees them: bounded, folders first, with names that can be given back."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from runenv.config import LocalConfig
from runenv.envs import open_env
from runenv.tools.listing import ENTRIES
from tests.tools.files import Files, scripted

pytestmark = pytest.mark.anyio


def names(text: str) -> list[str]:
    """The last column of a listing."""
    return [line.split(maxsplit=4)[-1] for line in text.splitlines()[1:] if not line.startswith("[")]


async def test_folders_come_first_and_hidden_entries_too() -> None:
    """T1: with type, size and time."""
    async with scripted({"b.txt": "hello", ".hidden": "", "a.txt": "x" * 1234, "sub/c": ""}) as files:
        answer = await files.list()
    assert answer.text.splitlines()[0] == "['.' | 1 folder | 3 other entries]"
    rows = [line.split() for line in answer.text.splitlines()[1:]]
    assert [row[-1] for row in rows] == ["sub/", ".hidden", "a.txt", "b.txt"]
    assert [row[0] for row in rows] == ["folder", "file", "file", "file"]
    assert [row[1] for row in rows] == ["-", "0", "1,234", "5"]


async def test_a_depth_shows_what_is_below() -> None:
    """T1: each entry under its folder, by the path to give back."""
    async with scripted({"a/b/c/d": "", "a/x": "", "z": ""}) as files:
        one, two, all_of_it = await files.list(), await files.list(depth=2), await files.list(depth=99)
        again = await files.list("a/b", depth="1")
    assert names(one.text) == ["a/", "z"]
    assert names(two.text) == ["a/", "a/b/", "a/x", "z"]
    assert names(all_of_it.text) == ["a/", "a/b/", "a/b/c/", "a/b/c/d", "a/x", "z"]
    assert names(again.text) == ["c/"]


async def test_what_does_not_fit_is_counted() -> None:
    """T1: what is deepest is left out first."""
    many = {f"many/{number:04}": "" for number in range(500)}
    async with scripted({**many, "last": "", "empty/x": ""}) as files:
        await files.env.remove("empty/x")
        deep, flat = await files.list(depth=2), await files.list("many")
        empty = await files.list("empty")
    assert len(names(deep.text)) == len(names(flat.text)) == ENTRIES
    assert "last" in names(deep.text)
    assert f"{500 - ENTRIES} more entries" in flat.text
    assert "glob" in flat.text
    assert "empty folder" in empty.text


async def test_a_missing_folder_and_a_file_are_said() -> None:
    """T1: with what is near."""
    async with scripted({"source/x": ""}) as files:
        missing, file = await files.list("sourse"), await files.list("source/x")
    assert missing.is_error
    assert "'source'" in missing.text
    assert file.is_error


async def test_C041_odd_names_stay_on_one_line_and_can_be_given_back() -> None:
    """C041, F4: newlines, blanks at the ends and bytes that are not UTF-8, as JSON takes them."""
    async with open_env(LocalConfig()) as env:
        files = Files(env)
        folder = Path(env.workdir)
        odd = ["a\nb", " lead", "it's $(x).txt", "-rf", os.fsdecode(b"caf\xe9")]
        for name in odd:
            (folder / name).write_text("x", encoding="utf-8")
        (folder / "link").symlink_to("/etc/passwd")
        os.mkfifo(folder / "pipe")
        answer = await files.list()
        json.dumps(answer.text, ensure_ascii=False).encode()
        assert len(answer.text.splitlines()) == 1 + len(odd) + 2
        for shown in (r"'a\nb'", "' lead'", "it's $(x).txt", "-rf", r"'caf\udce9'", "link -> /etc/passwd", "pipe"):
            assert shown in answer.text
        for name in odd:
            assert not (await files.read(name)).is_error
