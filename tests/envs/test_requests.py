"""Arguments of callers: what is refused, in which words, and what the rest becomes on the wire."""

from __future__ import annotations

import math
from typing import Any

import pytest

from runenv.envs.guested.requests import MAX_KEPT_BYTES, Request, exec_request, path_bytes, pattern_fields, variable
from runenv.guest.frames import Flag, Tag


def request(command: Any = "true", **changed: Any) -> Request:  # noqa: ANN401 - wrong types are the case
    """Return the fields of an exec with some arguments changed."""
    arguments: dict[str, Any] = {
        "cwd": None,
        "env": None,
        "has_stdin": False,
        "timeout": None,
        "keep_bytes": 2048,
        "spill_at_bytes": 1024,
    }
    return exec_request(command, **{**arguments, **changed})


def test_a_string_is_for_the_shell_and_a_list_is_arguments() -> None:
    """Nothing is quoted, split or decoded on the way."""
    rest = [(Tag.KEEP, 2048), (Tag.SPILL_AT, 1024)]
    assert request("echo 'ü' \udcff") == [(Tag.SHELL, b"echo '\xc3\xbc' \xff"), *rest]
    assert request(["a b", b"\xff", ""]) == [(Tag.ARG, b"a b"), (Tag.ARG, b"\xff"), (Tag.ARG, b""), *rest]
    assert request(("a",)) == [(Tag.ARG, b"a"), *rest]
    assert request("") == [(Tag.SHELL, b""), *rest]


def test_all_else_of_an_exec_is_said_only_when_it_was_given() -> None:
    """The guest has the defaults."""
    fields = request("x", cwd="/a", env={"A": "b=c", "ü": ""}, has_stdin=True, timeout=1.5)
    assert fields == [
        (Tag.SHELL, b"x"),
        (Tag.CWD, b"/a"),
        (Tag.ENV, b"A=b=c"),
        (Tag.ENV, b"\xc3\xbc="),
        (Tag.TIMEOUT_MS, 1500),
        (Tag.KEEP, 2048),
        (Tag.SPILL_AT, 1024),
        (Tag.FLAGS, Flag.HAS_STDIN),
    ]


@pytest.mark.parametrize(("timeout", "milliseconds"), [(0.0001, 1), (1, 1000), (1e308, 10**12)])
def test_a_deadline_is_at_least_a_millisecond_and_never_overflows(timeout: float, milliseconds: int) -> None:
    """Small ones do not become none, and huge ones stay within the guest's clock."""
    assert (Tag.TIMEOUT_MS, milliseconds) in request(timeout=timeout)


@pytest.mark.parametrize("timeout", [0, -1, math.inf, math.nan, "1"])
def test_a_deadline_that_is_none_is_refused(timeout: object) -> None:
    """There is one way to say no limit: None."""
    with pytest.raises(ValueError, match="timeout must be a positive number of seconds or None"):
        request(timeout=timeout)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("a\0b", "cannot hold a NUL"),
        (["a", "b\0"], "cannot hold a NUL"),
        ([b"\0"], "cannot hold a NUL"),
        ([], "a string for the shell or a list"),
        (b"true", "a string for the shell or a list"),
        (bytearray(b"true"), "a string for the shell or a list"),
        (7, "a string for the shell or a list"),
        (None, "a string for the shell or a list"),
        ({"a": 1}, "a string for the shell or a list"),
        (["a", 1], "must be a string"),
        ("\ud800", "surrogates not allowed"),
    ],
)
def test_a_command_of_another_form_is_refused(command: object, words: str) -> None:
    """As a ValueError that shows it."""
    with pytest.raises(ValueError, match=words):
        request(command)


@pytest.mark.parametrize("cwd", ["", "a\0", b"a", 1])
def test_a_cwd_of_another_form_is_refused(cwd: object) -> None:
    """Like every path."""
    with pytest.raises(ValueError, match=r"path"):
        request(cwd=cwd)


@pytest.mark.parametrize(
    ("name", "value"), [("", "x"), ("A=B", "x"), ("A\0", "x"), ("A", "x\0"), ("A", 1), (1, "x"), ("A", None)]
)
def test_a_variable_of_another_form_is_refused(name: Any, value: Any) -> None:  # noqa: ANN401 - wrong types are the case
    """Such a variable cannot exist."""
    with pytest.raises(ValueError, match="environment variable"):
        request(env={name: value})
    with pytest.raises(ValueError, match="environment variable"):
        variable(name, value)


@pytest.mark.parametrize("keep", [1023, 0, -1, MAX_KEPT_BYTES + 1])
def test_output_bounds_are_bounded(keep: int) -> None:
    """What the host may be asked to hold."""
    with pytest.raises(ValueError, match="max_output_bytes must be from 1,024 to 67,108,864"):
        request(keep_bytes=keep)


@pytest.mark.parametrize("path", ["", "a\0b", b"a", None])
def test_a_path_of_another_form_is_refused(path: Any) -> None:  # noqa: ANN401 - wrong types are the case
    """Empty, with a NUL, or no string."""
    with pytest.raises(ValueError, match="path"):
        path_bytes(path)


def test_paths_keep_bytes_that_are_no_text() -> None:
    """What `list` gave goes back unchanged, whatever the host's locale."""
    assert path_bytes("-rf \udcff ü\n") == b"-rf \xff \xc3\xbc\n"


def test_patterns_are_lists_of_strings() -> None:
    """A string would be taken letter by letter."""
    assert pattern_fields(["*.py"], ["a", "b"]) == [
        (Tag.INCLUDE, b"*.py"),
        (Tag.EXCLUDE, b"a"),
        (Tag.EXCLUDE, b"b"),
    ]
    with pytest.raises(ValueError, match=r"include takes a list of patterns, not the string '\*.py'"):
        pattern_fields("*.py", ())
    with pytest.raises(ValueError, match="NUL"):
        pattern_fields((), ["\0"])
