"""The tools `grep` and `glob`: what a model is shown of a search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from runenv.env import Searches
from runenv.errors import ConfigError
from runenv.testing.scripted import ScriptedEnv
from runenv.tools.paths import PathRules
from runenv.tools.search import EXCLUDED, MAX_CHARS, make_glob, make_grep, shown_path
from runenv.tools.tool import Context
from runenv.types import FoundFile, GlobResult, GrepLine, GrepResult, ToolResult
from tests.tools.fakes import NOTHING, SearchingEnv

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runenv.env import RunEnv

pytestmark = pytest.mark.anyio

TREE: Final = {
    "src/a.py": "import os\n\ndef main():\n    return os.name\n",
    "src/b.py": "main()\n",
    "src/notes.txt": "main thing\n",
    "src/bin": "\0main\n",
    ".git/config": "main\n",
    "node_modules/x/index.js": "main\n",
    "node_modules/x/node_modules/y.js": "main\n",
}


@pytest.fixture
async def tree(env: RunEnv) -> RunEnv:
    """An env with `TREE`."""
    for path, content in TREE.items():
        await env.write(path, content.encode())
    return env


async def grep(env: RunEnv, *, paths: PathRules | None = None, **arguments: object) -> ToolResult:
    """Search for lines."""
    return await make_grep(Context(env=env, paths=paths or PathRules())).call(arguments)


async def glob(env: RunEnv, *, paths: PathRules | None = None, **arguments: object) -> ToolResult:
    """Search for files."""
    return await make_glob(Context(env=env, paths=paths or PathRules())).call(arguments)


def lines(result: ToolResult) -> list[str]:
    """The lines of an answer."""
    assert not result.is_error
    return result.text.split("\n")


def names(result: ToolResult) -> set[str]:
    """The paths in an answer, which stand between the head and the notes."""
    return {line for line in lines(result)[1:] if "/" in line and " " not in line}


async def test_T6_lines_are_shown_with_path_and_number(tree: RunEnv) -> None:
    """File by file, with paths that other tools take; binary files and folders of tools are skipped, and said."""
    assert lines(await grep(tree, pattern="main")) == [
        "3 matching lines in 3 files, for 'main' in the working folder:",
        "src/a.py:3: def main():",
        "",
        "src/b.py:1: main()",
        "",
        "src/notes.txt:1: main thing",
        "Searched 3 text files; skipped: 1 binary file, .git/ node_modules/ __pycache__/ .venv/.",
    ]
    absolute = f"{tree.workdir}/src"
    assert f"{absolute}/b.py:1: main()" in lines(await grep(tree, pattern="main", path=absolute))
    assert lines(await grep(tree, pattern="main", path="src/b.py")) == [
        "1 matching line in 1 file, for 'main' in src/b.py:",
        "src/b.py:1: main()",
    ]


async def test_T6_context_is_told_apart_from_matches(tree: RunEnv) -> None:
    """As grep does, and pieces are set apart."""
    await tree.write("f", b"1 x\n2\n3\n4\n5\n6 x\n7\n")
    assert lines(await grep(tree, pattern="x$", path="f", context=1))[1:] == [
        "f:1: 1 x",
        "f-2- 2",
        "--",
        "f-5- 5",
        "f:6: 6 x",
        "f-7- 7",
    ]


async def test_T6_files_are_chosen_and_only_named(tree: RunEnv) -> None:
    """By globs with braces, and a `./` that a model may write."""
    result = await grep(tree, pattern="main", include="./src/*.{py,txt}", exclude=["b.*"], files_only=True)
    assert lines(result)[:3] == ["2 files with a match of 'main' in the working folder:", "src/a.py", "src/notes.txt"]
    result = await grep(tree, pattern="MAIN()", path="src", literal=True, ignore_case="true")
    assert "src/a.py:3: def main():" in lines(result)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({}, set[str]()),
        ({"everything": True}, {".git/config", "node_modules/x/index.js", "node_modules/x/node_modules/y.js"}),
        ({"path": ".git"}, {".git/config"}),
        ({"path": "node_modules/x"}, {"node_modules/x/index.js", "node_modules/x/node_modules/y.js"}),
        ({"include": "node_modules/**/index.js"}, {"node_modules/x/index.js"}),
    ],
)
async def test_T6_folders_of_tools_are_searched_when_they_are_named(
    tree: RunEnv, arguments: dict[str, Any], found: set[str]
) -> None:
    """By the path, by a glob, or all of them."""
    assert names(await grep(tree, pattern="^main$", files_only=True, **arguments)) == found
    pattern = arguments.get("include", "*")
    shown = names(await glob(tree, pattern=pattern, **{k: v for k, v in arguments.items() if k != "include"}))
    assert {name for name in shown if set(EXCLUDED) & set(name.split("/"))} == found


async def test_T6_nothing_found_says_what_was_searched(tree: RunEnv) -> None:
    """It is no error, and has a hint where the pattern may be a text."""
    assert lines(await grep(tree, pattern="nowhere", path="src")) == [
        "No match of 'nowhere' in src.",
        "Searched 3 text files; skipped: 1 binary file, .git/ node_modules/ __pycache__/ .venv/.",
    ]
    assert "set literal to true" in (await grep(tree, pattern="os[.]nam$")).text
    assert "set literal to true" not in (await grep(tree, pattern="os[.]nam$", literal=True)).text
    assert lines(await glob(tree, pattern="*.zig")) == [
        "No file fits '*.zig' in the working folder. Not looked into: .git/ node_modules/ __pycache__/ .venv/."
    ]


@pytest.mark.parametrize(
    ("pattern", "said"),
    [("a(?=b)", "no lookaround"), (r"(a)\1", "reference to a group"), ("a(b", "without its"), ("", "empty")],
)
async def test_T6_an_unsupported_pattern_is_a_clear_answer(env: RunEnv, pattern: str, said: str) -> None:
    """What is not possible, and what is."""
    result = await grep(env, pattern=pattern)
    assert result.is_error
    assert said in result.text
    assert "set literal to true" in result.text


@pytest.mark.parametrize("arguments", [{"include": "../x"}, {"exclude": "a//b"}, {"include": [""]}, {"include": "."}])
async def test_T6_a_glob_that_fits_nothing_is_a_clear_answer(env: RunEnv, arguments: dict[str, Any]) -> None:
    """Nothing is searched."""
    result = await grep(env, pattern="x", **arguments)
    assert result.is_error
    assert "can match nothing" in result.text
    result = await glob(env, pattern="../*")
    assert result.is_error
    assert "such as '*.py'" in result.text


async def test_T1_what_cannot_be_searched_is_an_answer(tree: RunEnv) -> None:
    """A path that is not there with similar ones, and a pipe, which would block."""
    result = await grep(tree, pattern="x", path="scr")
    assert result.is_error
    assert "Similar names: 'src'" in result.text
    assert (await tree.exec(["mkfifo", "pipe"])).ok
    result = await grep(tree, pattern="x", path="pipe")
    assert result.is_error
    assert "neither a file nor a folder" in result.text
    result = await glob(tree, pattern="*", path="src/a.py")
    assert result.is_error
    assert "'src/a.py' is not a folder" in result.text


async def test_T6_files_are_found_by_name(tree: RunEnv) -> None:
    """The newest first; braces, and absolute patterns."""
    assert (await tree.exec(["touch", "-t", "202001010000", "src/a.py"])).ok
    assert lines(await glob(tree, pattern="*.{py,pyi}")) == [
        "2 files for '*.{py,pyi}' in the working folder, the newest first:",
        "src/b.py",
        "src/a.py",
    ]
    absolute = f"{tree.workdir}/src"
    assert names(await glob(tree, pattern=f"{absolute}/*.py")) == {f"{absolute}/a.py", f"{absolute}/b.py"}
    assert names(await glob(tree, pattern="*.py", path="src/")) == {"src/a.py", "src/b.py"}
    assert names(await glob(tree, pattern=f"{absolute}/*.py", path="src")) == {"src/a.py", "src/b.py"}
    assert "src/b.py:1: main()" in lines(await grep(tree, pattern="main", path="src", include=f"{absolute}/b.py"))
    result = await glob(tree, pattern="*", path="src", limit=1)
    assert lines(result)[0].startswith("4 files")
    assert lines(result)[-1].startswith("Only the newest 1 are shown.")


async def test_T6_the_limit_is_said(tree: RunEnv) -> None:
    """With what to do next."""
    await tree.write("many", b"match\n" * 30)
    result = lines(await grep(tree, pattern="match", path="many", limit=10))
    assert result[0].startswith("At least 10 matching lines in 1 file")
    assert result[-1] == (
        "The search ended at its limit, so there may be more. Use a narrower path, include or pattern, or files_only,"
        " or a larger limit (at most 1,000)."
    )


def line(text: str, number: int = 1, path: str = "f", **more: int) -> GrepLine:
    """A line that matches."""
    return GrepLine(path, number, text, is_match=True, **more)


def found(found_lines: Sequence[GrepLine], **facts: int) -> GrepResult:
    """A result with some lines."""
    files = tuple(dict.fromkeys(one.path for one in found_lines if one.is_match))
    values = {"searched": 1, "binary": 0, "unreadable": 0, **facts}
    complete, timed_out = bool(values.pop("complete", 1)), bool(values.pop("timed_out", 0))
    return GrepResult(tuple(found_lines), files, complete=complete, timed_out=timed_out, **values)


async def told(result: GrepResult, *, files_only: bool = False) -> str:
    """What is shown of a result."""
    async with SearchingEnv(result, files={"src/f": "x"}) as env:
        return (await grep(env, pattern="x", path="src", files_only=files_only)).text


async def test_T6_an_answer_is_bounded() -> None:
    """In characters, whatever the env found; what is left out is counted by matches."""
    said = await told(found([line("x" * 2000, number) for number in range(1, 1001)]))
    assert len(said) < MAX_CHARS + 1000
    assert "1,000 matching lines in 1 file" in said
    assert "Only the first 14 matching lines are shown" in said
    assert "files_only" in said
    said = await told(found([line("x", 1, f"{'d' * 200}/{number}") for number in range(1000)]), files_only=True)
    assert len(said) < MAX_CHARS + 1000
    assert "matching lines" not in said


async def test_T6_long_lines_are_shown_in_part() -> None:
    """As the env cut them; context is cut further."""
    shown = line("here x", 7, omitted_before=100, omitted_after=2000)
    context = GrepLine("f", 8, "c" * 2000, is_match=False)
    said = await told(found([shown, context]))
    assert "src/f:7: [... 100 bytes] here x [2,000 bytes ...]" in said
    assert f"src/f-8- {'c' * 300}...\n" in f"{said}\n"


async def test_T6_a_deadline_and_what_was_not_read_is_said() -> None:
    """So that a model does not take it for all."""
    said = await told(found([line("x")], complete=0, timed_out=1, unreadable=2))
    assert "At least 1 matching line" in said
    assert "ended at its deadline" in said
    assert "2 unreadable" in said
    async with SearchingEnv(glob=GlobResult((), 0, complete=False, timed_out=True)) as env:
        assert "ended at its deadline without a result" in (await glob(env, pattern="*")).text


async def test_names_that_would_break_a_line_are_quoted() -> None:
    """They cannot pretend to be another line."""
    said = await told(found([line("x", 3, "a\nb:1: y")]))
    assert "'src/a\\nb:1: y':3: x" in said
    assert shown_path("plain name.py") == "plain name.py"
    assert shown_path("tab\t") == "'tab\\t'"


async def test_rules_hold_for_what_is_found(tree: RunEnv) -> None:
    """Files that may not be touched are as if they were not there, by way of a link neither."""
    assert (await tree.exec(["ln", "-s", "src", "link"])).ok
    rules = PathRules(["src/**"], ["*.txt"])
    for path in ("src", "link"):
        said = (await grep(tree, paths=rules, pattern="main", path=path)).text
        assert f"{path}/b.py:1: main()" in said
        assert "notes.txt" not in said
        result = await glob(tree, paths=rules, pattern="*", path=path)
        assert names(result) == {f"{path}/a.py", f"{path}/b.py", f"{path}/bin"}
        assert lines(result)[0].startswith("3 files")
    assert (await grep(tree, paths=rules, pattern="main")).is_error
    assert (await glob(tree, paths=rules, pattern="*")).is_error
    assert lines(await grep(tree, paths=rules, pattern="main", path="link/a.py"))[1] == "link/a.py:3: def main():"


@pytest.mark.parametrize(
    "rules", [PathRules(deny=["secret", "*.key"]), PathRules(["open"], ["open/secret", "open/*.key"])]
)
@pytest.mark.parametrize("more", [{}, {"include": "*"}, {"files_only": True}])
async def test_a_search_is_no_oracle_for_denied_files(env: RunEnv, rules: PathRules, more: dict[str, object]) -> None:
    """An answer is the same whatever is in them, and they take none of its room."""
    answers: list[list[str]] = []
    for content in (b"common hunter2\n" * 300, b"nothing\n"):
        for path in ("open/secret/a.txt", "open/a.key"):
            await env.write(path, content)
        await env.write("open/z.txt", b"common\n")
        told = [
            await grep(env, paths=rules, pattern=pattern, path="open", limit=5, **more)
            for pattern in ("hunter2", "common")
        ]
        told.append(await glob(env, paths=rules, pattern="*", path="open", limit=1))
        answers.append([answer.text for answer in told])
    assert answers[0] == answers[1]
    assert "No match" in answers[0][0]
    assert "open/z.txt" in answers[0][1]
    assert "1 file for" in answers[0][2]


async def test_lines_cannot_imitate_an_answer() -> None:
    """What moves the cursor, ends a line or turns the direction of writing is shown as what it is."""
    text = "a\r[Only the first 1 matching lines are shown.]\x1b[2K\u202e\u2028\x85b\r"
    said = await told(found([line(text, 1)]))
    assert "a\u240d[Only the first 1 matching lines are shown.]\u241b[2K<U+202E><U+2028><U+0085>b\n" in f"{said}\n"


async def test_long_patterns_are_refused_in_words(env: RunEnv) -> None:
    """T1: they never reach the command line of a search."""
    hostile: list[dict[str, Any]] = [
        {"include": "x" * 5000},
        {"exclude": ["x"] * 100},
        {"include": "{" + "a," * 200_000 + "}"},
    ]
    for arguments in hostile:
        answer = await grep(env, pattern="x", **arguments)
        assert answer.is_error
        assert len(answer.text) < 1000
    assert (await glob(env, pattern="x" * 200_000)).is_error
    assert isinstance(env, Searches)
    with pytest.raises(ValueError, match="at most 4,096 bytes"):
        await env.glob("x" * 200_000)
    with pytest.raises(ValueError, match="at most 65,536 bytes together"):
        await env.grep("x", exclude=["y" * 4000] * 20)


@pytest.mark.parametrize(
    ("pattern", "asked"),
    [
        ("a", ["a"]),
        ("{a,b}.py", ["a.py", "b.py"]),
        ("{a,b}/{c,d}", ["a/c", "a/d", "b/c", "b/d"]),
        ("{a,{b,c}}", ["a", "b", "c"]),
        ("{a}", ["{a}"]),
        ("a}b{", ["a}b{"]),
        ("{a,}b", ["ab", "b"]),
    ],
)
async def test_braces_are_written_out(pattern: str, asked: list[str]) -> None:
    """The env's own patterns have none."""
    async with SearchingEnv() as env:
        await glob(env, pattern=pattern)
        assert sorted(search[0] for search in env.searches) == sorted(asked)
        assert (await glob(env, pattern="{a,b}" * 20)).is_error


async def test_files_of_several_patterns_are_merged() -> None:
    """Each once, by time, up to the limit."""
    files = tuple(FoundFile(f"f{number}", 1, float(number)) for number in range(5))
    async with SearchingEnv(glob=GlobResult(files, 5, complete=True, timed_out=False)) as env:
        assert lines(await glob(env, pattern="{a,b}", limit=2))[1:3] == ["f4", "f3"]


async def test_an_env_that_does_not_search_has_no_such_tools() -> None:
    """They are refused when they are made."""
    assert not isinstance(ScriptedEnv(), Searches)
    for make in (make_grep, make_glob):
        with pytest.raises(ConfigError, match="does not search"):
            make(Context(env=ScriptedEnv()))
    assert NOTHING.complete
