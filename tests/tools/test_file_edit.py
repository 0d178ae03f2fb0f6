"""Exact replacements: what is kept of a file, and what a model is told when its text is not there or not alone."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runenv.config import LocalConfig
from runenv.envs import open_env
from runenv.errors import ToolError
from runenv.tools import replacing
from runenv.tools.replacing import replace_text
from runenv.tools.seen import WHOLE_BYTES, place_of
from tests.tools.files import Files, scripted

if TYPE_CHECKING:
    from runenv.env import RunEnv
    from runenv.types import ToolResult

pytestmark = pytest.mark.anyio

TEXT: Final = st.text(st.sampled_from("ab\n \té€"), max_size=12)
CODES: Final = ("utf-8", "utf-8-sig", "utf-16", "utf-32")


async def edited(data: bytes, old: str, new: str, **arguments: object) -> tuple[ToolResult, bytes]:
    """What the tool says of an edit, and what is in the file then."""
    async with scripted({"file.txt": data}) as files:
        answer = await files.edit("file.txt", old, new, **arguments)
        return answer, await files.env.read("file.txt")


@settings(deadline=None, max_examples=40)
@given(TEXT, TEXT, TEXT, st.sampled_from(CODES), st.sampled_from(["\n", "\r\n"]))
async def test_an_edit_keeps_encoding_and_line_ends(before: str, new: str, after: str, code: str, end: str) -> None:
    """T5: the file is what the edited text gives in the same encoding, with the same line ends."""
    old = "x\ny"
    data = f"{before}{old}{after}\n".replace("\n", end).encode(code)
    answer, now = await edited(data, old, new)
    assert not answer.is_error, answer.text
    assert now == f"{before}{new}{after}\n".replace("\n", end).encode(code)


@given(TEXT, st.text(st.sampled_from("ab\n"), min_size=1, max_size=3), TEXT, st.booleans())
def test_a_replacement_is_that_of_a_plain_text(text: str, old: str, new: str, every: bool) -> None:  # noqa: FBT001
    """T5: one place only where there is one, all of them by choice, and never another."""
    places = sum(text.startswith(old, at) for at in range(len(text)))
    try:
        result = replace_text(text, old, new, every=every)
    except ToolError:
        assert old == new or places == 0 or (places > 1 and not every)
        return
    assert result.text == text.replace(old, new)
    assert result.places == (text.count(old) if every else 1)


@given(
    st.text(st.sampled_from("ab\r\n"), max_size=14),
    st.text(st.sampled_from("ab\n"), min_size=1, max_size=4),
    st.text(st.sampled_from("xy\n"), max_size=3).map("x".__add__),
)
def test_a_newline_fits_every_line_end(text: str, old: str, new: str) -> None:
    """T5: the places are those of a pattern, and each gets the line end that is next to it."""

    def replaced(match: re.Match[str]) -> str:
        ends = re.findall(r"\r?\n", text[match.start() :])[:1] or re.findall(r"\r?\n", text[: match.start()])[-1:]
        return new.replace("\n", ends[0] if ends else "\n")

    pattern = r"\r?\n".join(map(re.escape, old.split("\n")))
    wanted, places = re.subn(pattern, replaced, text)
    if places:
        result = replace_text(text, old, new, every=True)
        assert (result.text, result.places) == (wanted, places)
    else:
        with pytest.raises(ToolError, match="not found"):
            replace_text(text, old, new, every=True)


LINES: Final = 1_000_000
COMBINING: Final = "\u0300\u0316" * 100_000


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("text", "old", "new", "says"),
    [
        ("a\n" * LINES, "a\n" * 100_000 + "b", "x", "not found"),
        ("a\n" * LINES + "b", "a\n" * 100_000 + "b", "x", "1 places"),
        ("a\r\n" * LINES + "b", "a\n" * 100_000 + "b", "x", "1 places"),
        ("hello\n", "x\n" * 300_000, "x", "not found"),
        ("a b\n" * LINES, "a  b\n" * 50_000 + "c\n" + "a  b\n" * 50_000, "x", "not found"),
        ("a" * LINES, "a", "b\n", "1000000 places"),
        ("a" * LINES + "\r\n", "a", "b\n", "1000000 places"),
        (f"a{COMBINING}", f"b{COMBINING}", "x", "not found"),
        ("ab" * 150 + "\n" + ("ba" * 150 + "\n") * 30_000, "abba" * 75, "x", "nearest"),
    ],
    ids=["absent", "late", "late with CRLF", "longer", "loose", "one line", "one line with CRLF", "marks", "near"],
)
def test_the_work_grows_with_the_texts_not_faster(text: str, old: str, new: str, says: str) -> None:
    """T5: minutes, if each place of the one were compared with all of the other."""
    try:
        said = f"{replace_text(text, old, new, every=True).places} places"
    except ToolError as error:
        said = str(error)
    assert says in said


async def test_the_loop_turns_while_an_edit_is_worked_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """T5: what is near a text that is not there is looked for in a thread."""
    turned = threading.Event()

    def nearest(*_: object) -> list[int]:
        return [0] if turned.wait(20) else []

    monkeypatch.setattr(replacing, "nearest", nearest)
    async with anyio.create_task_group() as tasks, scripted({"x": "a line\n" * 4_000}) as files:

        async def edit() -> None:
            answer = await files.edit("x", "another", "x")
            assert "The nearest lines are:" in answer.text

        tasks.start_soon(edit)
        await anyio.wait_all_tasks_blocked()
        turned.set()


@pytest.mark.parametrize(("bound", "new"), [("MAX_PLACES", "b"), ("MAX_CHARS", "b" * 50)])
async def test_an_edit_of_too_many_places_is_refused(bound: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """T5: a short text in many places may become a long one."""
    monkeypatch.setattr(replacing, bound, 90)
    answer, now = await edited(b"a" * 95, "a", new, replace_all=True)
    assert answer.is_error
    assert "Nothing was changed" in answer.text
    assert now == b"a" * 95
    answer, now = await edited(b"a\n" * 2 + b"c", "a", "bb", replace_all=True)
    assert now == b"bb\nbb\nc"


async def test_mixed_line_ends_are_kept_each() -> None:
    """T5: a line gets the end of where it stands."""
    answer, now = await edited(b"a\r\nb\r\nc\nd\n", "b\nc", "B\nC\nC2")
    assert not answer.is_error
    assert now == b"a\r\nB\r\nC\r\nC2\nd\n"
    assert (await edited(b"a\r\nb\nc\n", "c", "c\nd"))[1] == b"a\r\nb\nc\nd\n"
    assert (await edited(b"a\r\nb", "a\r\nb", "x\r\ny"))[1] == b"x\r\ny"


@pytest.mark.parametrize(
    ("data", "old", "new", "wanted"),
    [
        (b"caf\xe9 menu\n", "café", "thé", b"th\xe9 menu\n"),
        ("名称,数量 苹果\n".encode("gbk"), "数量", "价格", "名称,价格 苹果\n".encode("gbk")),
        ("ü ü ü ü ü ü \n".encode() + b"\xff", "ü \n", "x\n", "ü ü ü ü ü x\n".encode() + b"\xff"),
        (b"a\x1b[0mb\n", "b", "c", b"a\x1b[0mc\n"),
    ],
)
async def test_C034_what_has_another_encoding_keeps_it(data: bytes, old: str, new: str, wanted: bytes) -> None:
    """C034, T5: bytes that are no characters too."""
    answer, now = await edited(data, old, new)
    assert not answer.is_error, answer.text
    assert now == wanted


async def test_a_character_that_the_encoding_has_not_is_refused() -> None:
    """T5: the file stays as it is; half a character is none in any encoding."""
    answer, now = await edited(b"caf\xe9\n", "café", "\u2603")
    assert answer.is_error
    assert "Latin-1" in answer.text
    assert now == b"caf\xe9\n"
    assert (await edited(b"abc\n", "abc", "\udcff"))[0].is_error


async def test_an_absent_text_brings_the_nearest_lines() -> None:
    """T5: nothing was changed, and this is what is there."""
    data = b"def area(width, height):\n    return width * height\n\nprint(area(2, 3))\n"
    answer, now = await edited(data, "    return width + height\n", "    return 0\n")
    assert answer.is_error
    assert "not found" in answer.text
    assert "2\t    return width * height" in answer.text
    assert now == data


@pytest.mark.parametrize(
    ("old", "wanted"),
    [
        ("def area(w):\n  return w", "white space"),
        ("print(\u201chi\u201d)", "quotes"),
        ("1\tdef area(w):", "line numbers"),
        ("nothing of the kind at all 0123456789", "No line near it"),
    ],
)
async def test_the_reason_why_a_text_is_absent_is_told(old: str, wanted: str) -> None:
    """T5: as far as it can be seen."""
    answer, _ = await edited(b'def area(w):\n\treturn w\nprint("hi")\n', old, "x")
    assert answer.is_error
    assert wanted in answer.text


async def test_an_edit_that_was_made_before_is_recognised() -> None:
    """T5: a repeated call is told so."""
    answer, _ = await edited(b"alpha\nbeta\n", "gamma!", "beta")
    assert "there already, in line 2" in answer.text


async def test_an_ambiguous_text_brings_its_lines() -> None:
    """T5: with what to do; overlapping places count."""
    answer, now = await edited(b"x = 1\ny = 2\nx = 1\n", "x = 1", "x = 3")
    assert answer.is_error
    assert "2 times, in the lines 1, 3" in answer.text
    assert "replace_all" in answer.text
    assert now == b"x = 1\ny = 2\nx = 1\n"
    assert (await edited(b"aaa", "aa", "b"))[0].is_error
    answer, now = await edited(b"x = 1\ny = 2\nx = 1\n", "x = 1", "x = 3", replace_all=True)
    assert now == b"x = 3\ny = 2\nx = 3\n"
    assert "2 places" in answer.text


@pytest.mark.parametrize(("old", "new"), [("", "x"), ("a", "a"), ("a\r\nb", "a\nb")])
async def test_an_edit_that_would_do_nothing_is_refused(old: str, new: str) -> None:
    """T5: an empty old text, and one that is the new one."""
    assert (await edited(b"a\nb\n", old, new))[0].is_error


async def test_a_file_changed_since_it_was_read_is_refused() -> None:
    """T5: until it is read again; an edit counts as reading."""
    async with scripted({"x": "one\n"}) as files:
        await files.read("x")
        assert not (await files.edit("x", "one", "two")).is_error
        assert not (await files.edit("/workspace/./x", "two", "three")).is_error
        await files.env.write("x", b"three\nfour\n")
        refused = await files.edit("x", "three", "five")
        assert refused.is_error
        assert "file_read" in refused.text
        assert await files.env.read("x") == b"three\nfour\n"
        await files.read("x", limit=1)
        assert not (await files.edit("x", "three", "five")).is_error


async def test_a_file_that_was_never_read_can_be_edited() -> None:
    """T5: a text that is there once shows that the model knows the place."""
    answer, now = await edited(b"one\n", "one", "two")
    assert not answer.is_error
    assert now == b"two\n"


async def test_edits_of_one_file_at_the_same_time_are_all_made() -> None:
    """T5: a model calls several tools at once."""
    async with scripted({"x": "".join(f"line {number};\n" for number in range(20))}) as files:
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(files.edit, "x", f"line {number};", f"done {number};")
        assert await files.env.read("x") == "".join(f"done {number};\n" for number in range(20)).encode()


NAMES: Final = ("dd/k.txt", "dl/k.txt", "dd/kl.txt", "dd/../dl/./k.txt", "{workdir}/dl/kl.txt", "chain/k.txt")


async def linked(env: RunEnv) -> list[str]:
    """Make links to a folder and to a file in it, and return names of that file."""
    await env.exec(f"mkdir dd; ln -s dd dl; ln -s k.txt dd/kl.txt; ln -s {env.workdir}/dl chain")
    return [name.format(workdir=env.workdir) for name in NAMES]


async def test_edits_under_two_names_at_the_same_time_are_all_made(env: RunEnv) -> None:
    """T5: links lead to one file, and calls for it wait for one another."""
    names, files = await linked(env), Files(env)
    await env.write("dd/k.txt", "".join(f"line {number};\n" for number in range(18)).encode())
    async with anyio.create_task_group() as tasks:
        for number in range(18):
            tasks.start_soon(files.edit, names[number % len(names)], f"line {number};", f"done {number};")
    assert await env.read("dd/k.txt") == "".join(f"done {number};\n" for number in range(18)).encode()


@pytest.mark.parametrize("known", range(len(NAMES)))
async def test_a_file_read_under_another_name_is_known(env: RunEnv, known: int) -> None:
    """T5: what has changed since is refused under every name, and reading it again under one is enough for all."""
    names, files = await linked(env), Files(env)
    await env.write("dd/k.txt", b"one\n")
    await files.read(names[known])
    await env.write("dd/k.txt", b"changed by another\none\n")
    for name in names:
        refused = await files.edit(name, "one", "two")
        assert "has changed since" in refused.text
        assert "has changed since" in (await files.write(name, "new\n")).text
    await files.read(names[known])
    for at, name in enumerate(names):
        assert not (await files.write(name, f"{at}\n")).is_error


async def test_the_place_of_a_file_costs_a_question_for_each_folder_below_the_workdir() -> None:
    """It is asked for on every call."""
    async with scripted({"a/b/c.txt": "text"}) as files:
        assert await place_of(files.context, "a/b/../b/c.txt") == f"{files.env.workdir}/a/b/c.txt"
        assert [call.verb for call in files.calls] == ["stat"] * 4


@pytest.mark.parametrize("name", ["x/", "new/", "new//"])
async def test_a_trailing_slash_is_no_name_of_a_file(name: str) -> None:
    """A model means a folder by it, and no file is written instead."""
    async with scripted({"x": "one\n"}) as files:
        for answer in (await files.write(name, "two"), await files.edit(name, "one", "two")):
            assert answer.is_error
            assert "ends with a slash" in answer.text
            assert "name.txt" in answer.text
        assert [entry.path for entry in await files.env.list()] == ["x"]
        assert await files.env.read("x") == b"one\n"


@pytest.mark.parametrize(
    ("data", "wanted"), [(b"\0\1\2binary" * 9, "binary"), (b"", "empty"), (b"x" * (WHOLE_BYTES + 1), "can be edited")]
)
async def test_what_cannot_be_edited_is_said(data: bytes, wanted: str) -> None:
    """T5: no text, nothing in it, or too much."""
    answer, now = await edited(data, "x", "y")
    assert answer.is_error
    assert wanted in answer.text
    assert now == data


async def test_an_edit_keeps_mode_and_links() -> None:
    """T5, C044: over a real file system; what the link points to is edited."""
    async with open_env(LocalConfig()) as env:
        files = Files(env)
        await env.write("run.sh", b"#!/bin/sh\necho 1\n", mode=0o755)
        await env.exec("ln -s run.sh link; mkfifo pipe; mkdir folder")
        assert not (await files.edit("link", "echo 1", "echo 2")).is_error
        path = Path(env.workdir, "run.sh")
        assert path.read_bytes() == b"#!/bin/sh\necho 2\n"
        assert path.stat().st_mode & 0o777 == 0o755
        assert Path(env.workdir, "link").readlink() == Path("run.sh")
        for wrong in ("pipe", "folder", "missing"):
            with anyio.fail_after(5):
                assert (await files.edit(wrong, "a", "b")).is_error
