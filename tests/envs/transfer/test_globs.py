"""Patterns of trees: the shared table, the decisions, and hostile patterns."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runenv.envs.transfer import Verdict, matcher
from tests.envs.glob_table import TABLE

if TYPE_CHECKING:
    from collections.abc import Callable

FILE, FOLDER = False, True


@pytest.mark.parametrize(("pattern", "path", "is_dir", "matches"), TABLE)
def test_every_line_of_the_table_holds_for_exclude(pattern: str, path: str, is_dir: bool, matches: bool) -> None:  # noqa: FBT001
    """An exclude pattern leaves out exactly what the table says it matches."""
    assert matcher(exclude=[pattern])(path, is_dir) is (Verdict.LEAVE if matches else Verdict.TAKE)


@pytest.mark.parametrize(("pattern", "path", "is_dir", "matches"), [line for line in TABLE if not line[2]])
def test_every_line_of_the_table_holds_for_include(pattern: str, path: str, is_dir: bool, matches: bool) -> None:  # noqa: FBT001
    """An include pattern takes exactly the files that the table says it matches."""
    assert matcher(include=[pattern])(path, is_dir) is (Verdict.TAKE if matches else Verdict.LEAVE)


def test_without_patterns_everything_is_taken() -> None:
    """Hidden files and folders too."""
    decide = matcher()
    assert decide(".git", FOLDER) is Verdict.TAKE
    assert decide("x/.env", FILE) is Verdict.TAKE


def test_include_only_looks_into_folders() -> None:
    """A folder is never taken for its own sake when files are chosen, whatever its name."""
    decide = matcher(include=["src", "src/", "*.py"])
    assert decide("src", FOLDER) is Verdict.ENTER
    assert decide("other", FOLDER) is Verdict.ENTER
    assert decide("src", FILE) is Verdict.TAKE
    assert decide("a.txt", FILE) is Verdict.LEAVE


def test_exclude_wins_over_include() -> None:
    """For files and for the folders on the way to them."""
    decide = matcher(include=["*.py"], exclude=["test_*", "build/"])
    assert decide("a.py", FILE) is Verdict.TAKE
    assert decide("test_a.py", FILE) is Verdict.LEAVE
    assert decide("build", FOLDER) is Verdict.LEAVE
    assert decide("build", FILE) is Verdict.LEAVE  # no pattern chose it
    assert decide("x", FOLDER) is Verdict.ENTER


def test_any_of_several_patterns_suffices() -> None:
    """Patterns of one list are alternatives."""
    decide = matcher(exclude=["*.o", "/a", "x/**/y"])
    assert [path for path in ("z/b.o", "a", "z/a", "x/1/y", "b") if decide(path, FILE) is Verdict.TAKE] == ["z/a", "b"]


@pytest.mark.parametrize("pattern", ["", "/", "//", ".", "./", "./a", "a//b", "a/./b", "../a", "a/..", "a\0b"])
@pytest.mark.parametrize("argument", ["include", "exclude"])
def test_a_pattern_that_can_match_nothing_is_an_error(pattern: str, argument: str) -> None:
    """It is most likely a slip, and silence would copy too much or nothing."""
    with pytest.raises(ValueError, match="can match nothing"):
        matcher(**{argument: [pattern]})


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a" * 40 + "b", "a" * 255),
        ("**/" + "*a" * 40 + "b", "/".join(["a" * 255] * 15)),
        ("/" + "**/a/" * 40 + "b", "a/" * 500 + "a"),
        ("/" + "**a" * 40 + "b", "a" * 4000),
        ("/" + "**/*a*" * 30 + "b", "a/" * 500 + "a"),
        ("[!b]*" * 40 + "b", "a" * 255),
    ],
)
def test_a_hostile_pattern_takes_no_exponential_time(pattern: str, path: str) -> None:
    """The test's own timeout is the bound: with plain backtracking these outlast the universe."""
    assert matcher(exclude=[pattern])(path, FILE) is Verdict.TAKE


def _reference(pattern: str, path: str) -> bool:
    """The rules of a pattern without sets and backslashes, by trying everything."""
    if "/" not in pattern:
        pattern, path = pattern.replace("**", "*"), path.rpartition("/")[2]
    pattern = pattern.removeprefix("/")
    tokens = re.findall(r"\*\*/|\*\*|\*|.", pattern)
    rests: dict[str, Callable[[str], set[str]]] = {
        "**/": lambda path: {path, *(path[at + 1 :] for at, char in enumerate(path) if char == "/")},
        "**": lambda path: {path[at:] for at in range(len(path) + 1)},
        "*": lambda path: {path[at:] for at in range(len(path) + 1) if "/" not in path[:at]},
        "?": lambda path: {path[1:]} if path and path[0] != "/" else set(),
    }
    left = {path}
    for token in tokens:
        take = rests.get(token, lambda path, token=token: {path[1:]} if path[:1] == token else set())
        left = {rest for path in left for rest in take(path)}
    return "" in left


@given(
    st.text(alphabet="ab*?/", min_size=1, max_size=12).filter(lambda pattern: "//" not in pattern and pattern != "/"),
    st.lists(st.text(alphabet="ab", min_size=1, max_size=3), min_size=1, max_size=4).map("/".join),
)
@example("*a*b", "xa/yab")
@example("***/***/*a", "a/b/ba")
@example("**?**/a", "a/b/a")
def test_matching_agrees_with_trying_everything(pattern: str, path: str) -> None:
    """Taking the first place where a run fits loses no match."""
    verdict = matcher(exclude=[pattern])(path, FOLDER)
    assert (verdict is Verdict.LEAVE) == _reference(pattern.removesuffix("/"), path)
