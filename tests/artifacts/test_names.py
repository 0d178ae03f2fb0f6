"""Names and ids as keys: nothing that is refused gets in, and no two texts share a segment."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runenv.artifacts.artifact import Scope
from runenv.artifacts.backends.entry import scope_key
from runenv.artifacts.names import check_id, check_name, encode, encoded_start, split_user
from runenv.errors import HandleError

TEXTS = st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("a./=~%- ")), max_size=300)


@given(one=TEXTS, other=TEXTS)
def test_two_texts_never_share_a_segment(one: str, other: str) -> None:
    """Whatever is in them, and however long they are."""
    assert (encode(one) == encode(other)) == (one == other)


@given(text=TEXTS.filter(bool))
def test_a_segment_is_safe_in_every_key(text: str) -> None:
    """Bounded, without what object storage or obstore gives a meaning, and neither `.` nor `..`."""
    segment = encode(text)
    assert re.fullmatch(r"[A-Za-z0-9_.=-]{1,200}", segment)
    assert not segment.startswith(".")


@given(prefix=TEXTS, rest=TEXTS)
def test_what_starts_alike_has_segments_that_start_alike(prefix: str, rest: str) -> None:
    """So a listing by prefix can begin in the middle."""
    assert encode(prefix + rest).startswith(encoded_start(prefix))


@given(text=st.text(max_size=20))
def test_a_name_is_taken_as_it_is_or_refused(text: str) -> None:
    """It is never repaired; what is taken leads nowhere else."""
    try:
        name = check_name(text)
    except HandleError:
        return
    assert name == text
    assert not name.startswith("/")
    assert not {"", ".", ".."} & set(name.split("/"))


@pytest.mark.parametrize(
    "name", ["a", "charts/q3.png", ".hidden", "a..b", "über.txt", "12:30.log", "console.log", "x" * 255]
)
def test_plain_names_are_taken(name: str) -> None:
    """Relative paths, hidden files, and words that only begin like a device."""
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a/../b",
        "/a",
        "a//b",
        "a\\b",
        "C:",
        "c:/x",
        "nul",
        "COM1.txt",
        "a\0",
        "a\n",
        "x" * 256,
        " a",
        "a.",
    ],
)
def test_what_may_mean_another_place_is_refused(name: str) -> None:
    """On this system or on the one where it is saved in the end; the same for ids."""
    with pytest.raises(HandleError):
        check_name(name)
    with pytest.raises(HandleError):
        check_id(name, "run")


def test_a_direction_mark_is_refused() -> None:
    """It would show `exe.jpg` where there is `gpj.exe`."""
    with pytest.raises(HandleError, match="character"):
        check_name("\u202egpj.exe")


def test_only_one_user_prefix_is_taken_off() -> None:
    """A second one would hide in the name."""
    assert split_user("user:a") == ("a", True)
    assert split_user("a") == ("a", False)
    with pytest.raises(HandleError):
        check_name(split_user("user:user:a")[0])


def test_the_keys_of_scopes_nest_as_the_scopes_do() -> None:
    """What lies within a scope starts with its key, and nothing else does."""
    user, session, run = Scope(user="u"), Scope(session="s", user="u"), Scope("r", "s", "u")
    assert scope_key(run).startswith(scope_key(session))
    assert scope_key(session).startswith(scope_key(user))
    others = (Scope(user="u2"), Scope("r"), Scope(session="s"), Scope("u", "s", "r"), Scope("r", "s", "u2"))
    assert not [other for other in others if scope_key(other).startswith(scope_key(user))]


def test_what_a_scope_may_see() -> None:
    """Itself, then itself without its narrower levels."""
    assert Scope("r", "s", "u").visible == (Scope("r", "s", "u"), Scope(session="s", user="u"), Scope(user="u"))
    assert Scope("r", user="u").visible == (Scope("r", user="u"), Scope(user="u"))
    assert Scope.of("r").visible == (Scope("r"),)
