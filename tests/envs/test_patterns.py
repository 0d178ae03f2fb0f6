r"""Patterns as models write them find, through the guest's C library, the lines that Python's `re` finds."""

from __future__ import annotations

import re
import string
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runenv.envs.guested.patterns import MAX_PATTERN, Pattern, literal_pattern, translate
from runenv.guest import guest_binary

if TYPE_CHECKING:
    from pathlib import Path

LINES: Final = (
    *("foo.bar(1)", "def test_env(self):", "a-b_c.d", "x = [1, 2]", "path/to/file.py", "  indented\ttab", "ÄÖÜ straße"),
    *("C:\\dir", "{ 'a': 1 }", "email me@x-y.org now", "2024-01-02", "", "]", "^", "-", "a]b", "K9", "$5", "(paren)"),
    *("|", "a b", "aXb", "\x07bell", "100%", "a" * 300),
)
PATTERNS: Final = (
    *(r"foo\.bar\(", r"\bdef\b", r"[\w.-]+@[\w.-]+", r"\d{4}-\d{2}-\d{2}", r"[]]", r"[^]a]", r"[a\]]b", r"a.*?b"),
    *(r"function {|\{ '", r"(?:foo|x) ?[.=]", r"(?i)k9", r"[\s\S]+\[", r"^\s+\w", r"[^\w\s]", r"stra(ß|ss)e", r"\$\d"),
    *(r"C:\\", r"[\\/]", r"^$", r"\(p\w+\)", r"[.^-]", r"[\^]", r"[\^-]", r"\x41|\u00c4", r"[A-F\d]", r"(?P<n>a)-b"),
    *(r"^.{5}$", r"\|", r"a{1,2}[-\]]", r"[a-z]+_[a-z]+\(", r"\.py$", r"[^\x00-\x7f]", r"\S+\s=\s\S", r"\w+\W\w"),
    *(
        r"x*",
        r"(a|)b",
        r"\Adef",
        r"\)\Z|;\Z",
        r"[^\n]+",
        r"[^\n,]+,",
        r"a+?b",
        r"a??]",
        r"\a",
        r"%$",
    ),
    *(
        r"a{200,}",
        r"{",
        r"}",
        r"a{,2}-",
        r"[^\S]",
        r"[\W]",
        r"\Bb",
        r"(x|(y|z)) =",
        r"[\d-]{10}",
        r"[+-]",
        r"\/",
        r"\-",
    ),
)


def matching(pattern: Pattern, folder: Path) -> list[int]:
    """Numbers of the lines of the file `f` that the guest finds."""
    flags = f"flags={'l' * pattern.is_literal}{'i' * pattern.ignore_case}"
    options = [f"workdir={folder}", "limit=1000", "bytes=1000000", flags, f"needed={pattern.needed}"]
    done = subprocess.run(
        [guest_binary(), "search", *options, pattern.text, "f"], capture_output=True, check=False, timeout=30
    )
    assert done.returncode == 0, done.stderr
    return [int(number) for number in re.findall(rb"\0M\0(\d+)\0", b"\0" + done.stdout)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the file `f` with `LINES` is."""
    path = tmp_path_factory.mktemp("patterns")
    (path / "f").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("ignore_case", [False, True])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_guest_finds_what_python_finds(pattern: str, folder: Path, *, ignore_case: bool) -> None:
    """Line by line."""
    compiled = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    wanted = [number for number, line in enumerate(LINES, 1) if compiled.search(line)]
    assert matching(translate(pattern, ignore_case=ignore_case), folder) == wanted


def test_classes_of_posix_are_known(folder: Path) -> None:
    """Which Python does not have."""
    assert matching(translate("[[:upper:]]{2}", ignore_case=False), folder) == [LINES.index("ÄÖÜ straße") + 1]


ATOMS: Final = st.sampled_from([*"abX1-_. ", r"\.", r"\d", r"\w", r"\s", "[a-c]", "[^a]", r"[\w-]", "(a|b1)", "(?:ab)"])
REPEATS: Final = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{1,3}", "*?"])
GENERATED: Final = st.lists(st.tuples(ATOMS, REPEATS), min_size=1, max_size=5).map(
    lambda parts: "".join(atom + repeat for atom, repeat in parts)
)
TEXTS: Final = st.lists(st.text("abcX1-_. é", max_size=12), min_size=1, max_size=20)


@given(pattern=GENERATED, lines=TEXTS, ignore_case=st.booleans())
@settings(max_examples=150, deadline=None)
def test_generated_patterns_find_what_python_finds(
    tmp_path_factory: pytest.TempPathFactory, pattern: str, lines: list[str], *, ignore_case: bool
) -> None:
    """Whatever is put together of what is supported."""
    path = tmp_path_factory.mktemp("generated")
    (path / "f").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    compiled = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    wanted = [number for number, line in enumerate(lines, 1) if compiled.search(line)]
    assert matching(translate(pattern, ignore_case=ignore_case), path) == wanted


@given(st.text(max_size=30))
@settings(max_examples=300, deadline=None)
def test_any_text_is_taken_or_refused_in_a_sentence(text: str) -> None:
    """Nothing but `ValueError` comes out."""
    with suppress(ValueError):
        pattern = translate(text, ignore_case=False)
        assert "\n" not in pattern.text
        assert len(pattern.needed) <= len(text)


@given(st.text(st.characters(exclude_characters="\n\0\r", exclude_categories=["Cs"]), min_size=1, max_size=20))
@settings(max_examples=100, deadline=None)
def test_a_literal_finds_itself(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """In both cases when case is ignored."""
    path = tmp_path_factory.mktemp("literal")
    (path / "f").write_text(f"x{text}y\nnothing\n{text}\n", encoding="utf-8")
    for ignore_case in (False, True):
        assert {1, 3} <= set(matching(literal_pattern(text, ignore_case=ignore_case), path))


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(?!a)", "no lookaround"),
        (r"\1", "reference"),
        (r"\p{L}", "this escape"),
        ("a++", "write '\\+'"),
        ("[a", "without its '\\]'"),
        ("a)", "without its '\\('"),
        ("[z-a]", "backwards"),
        (r"[\Sx]", "inside of brackets"),
        (r"[\n]", "no line break"),
        ("a{3,2}", "not smaller"),
        (r"\xzz", "hexadecimal"),
        (r"\U99999999", "no character"),
        ("a" * (MAX_PATTERN + 1), "4,096"),
        ("a\\", "cannot end"),
        (string.whitespace, "within one line"),
    ],
)
def test_what_is_not_supported_is_said(pattern: str, said: str) -> None:
    """With what to write instead, where there is something."""
    with pytest.raises(ValueError, match=said):
        translate(pattern, ignore_case=False)
