"""Handles in texts as models write them, and the one line that a model is shown."""

from __future__ import annotations

import re
import unicodedata
import uuid

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runenv.artifacts.artifact import Record, Scope
from runenv.artifacts.handles import Match, find, human_size, mint, parse, part, placeholder, shown_name, whole
from runenv.errors import HandleError
from runenv.types import FilePart

H = "runenv+file://0f8fad5b-d9cb-469f-a165-70867728950e"
OTHER = "runenv+file://7c9e6679-7425-40de-944b-e07fc1f90ae7"

ORNAMENTED = {
    "as it is": H,
    "upper case": H.upper(),
    "mixed case": H.replace("runenv", "RunEnv"),
    "backticks": f"`{H}`",
    "three backticks": f"```\n{H}\n```",
    "double quotes": f'"{H}"',
    "single quotes": f"'{H}'",
    "typographic quotes": f"\u201c{H}\u201d",
    "angle brackets": f"<{H}>",
    "round brackets": f"({H})",
    "a full stop": f"{H}.",
    "an ideographic full stop": f"{H}\u3002",
    "blanks": f"  {H}\t\n",
    "a no-break space": f"\u00a0{H}\u00a0",
    "no width": f"\ufeff{H}\u200b",
    "bold": f"**{H}**",
    "italic": f"_{H}_",
    "a markdown link": f"[deck.pptx]({H})",
    "a link whose text is the handle": f"[{H}]({H})",
    "a link with a title": f'[deck]({H} "the deck").',
    "a link in angle brackets": f"[deck](<{H}>)",
    "an image": f"![chart]({H})",
}
LOOK_ALIKES = {
    "a word before": f"x{H}",
    "a longer scheme": f"my-{H}",
    "a letter behind": f"{H}x",
    "a number behind": f"{H}_2",
    "a group behind": f"{H}-70867728950e",
    "a digit missing": H[:-1],
    "no digits": "runenv+file://deck.pptx",
    "another scheme": H.replace("runenv+file", "runenv-file"),
    "another file scheme": H.replace("runenv", "crewai"),
    "a Turkish dotless i": H.replace("file", "f\u0131le"),
    "a blank inside": H.replace("://", ":// "),
    "only the digits": H.removeprefix("runenv+file://"),
}


def record(**changes: object) -> Record:
    """A record of a slide deck."""
    values: dict[str, object] = {
        "handle": H,
        "name": "deck.pptx",
        "version": 0,
        "scope": Scope(run="run-1"),
        "size": 30_000,
        "sha256": "0123456789abcdef" * 4,
        "media_type": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        "declared_type": None,
        "created": 0.0,
        "expires": None,
        "metadata": {},
        "uri": "memory:///x",
        **changes,
    }
    return Record(**values)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# -- made and read


def test_a_new_handle_is_random_and_reads_as_itself() -> None:
    """A2: version 4, so that nobody can guess one."""
    made = {mint() for _ in range(1000)}
    assert len(made) == 1000
    for handle in made:
        assert uuid.UUID(handle.removeprefix("runenv+file://")).version == 4
        assert parse(handle) == handle


@pytest.mark.parametrize("text", ORNAMENTED.values(), ids=list(ORNAMENTED))
def test_C080_a_handle_resolves_however_a_model_dresses_it(text: str) -> None:
    """Case and ornaments are no part of a handle."""
    assert parse(text) == H
    assert whole(text) == H


def test_a_placeholder_given_back_whole_is_its_handle() -> None:
    """A model may copy the line that it was shown."""
    assert parse(placeholder(record())) == H
    assert parse(f"`{placeholder(record())}`.") == H


@pytest.mark.parametrize("text", LOOK_ALIKES.values(), ids=list(LOOK_ALIKES))
def test_C081_what_only_looks_like_a_handle_is_none(text: str) -> None:
    """Neither found in a text nor taken as a whole."""
    assert find(text) == []
    assert whole(text) is None
    with pytest.raises(HandleError, match="is not a handle"):
        parse(text)


@pytest.mark.parametrize(
    "text", ["", "deck.pptx", f"see {H}", f"{H} {OTHER}", H + H, f"{H}/1", f"{H}, thanks", f"[a](b) {H}"]
)
def test_a_text_with_more_than_a_handle_is_not_a_handle(text: str) -> None:
    """One handle and ornaments, or it is something else."""
    assert whole(text) is None
    with pytest.raises(HandleError, match="is not a handle"):
        parse(text)


def test_the_error_for_a_long_text_is_short() -> None:
    """The text goes into a message to a model."""
    with pytest.raises(HandleError) as caught:
        parse("x" * 1_000_000)
    assert len(str(caught.value)) < 300


# -- found in texts


def test_handles_are_found_within_a_sentence() -> None:
    """With the places where they stand."""
    text = f"Compare {H}, ({OTHER.upper()})."
    assert find(text) == [Match(H, 8, 8 + len(H)), Match(OTHER, 8 + len(H) + 3, 8 + 2 * len(H) + 3)]
    assert text[8 : 8 + len(H)] == H


def test_C081_a_handle_right_behind_a_handle_are_two() -> None:
    """No blank is needed between them."""
    assert [match.handle for match in find(H + OTHER + H)] == [H, OTHER, H]


def test_a_handle_behind_a_look_alike_is_part_of_it() -> None:
    """A longer name does not become a handle where it ends like one."""
    assert find(f"x{H}{OTHER}") == []


def test_a_handle_needs_no_blanks_in_other_writing_systems() -> None:
    """Only letters and digits that a URI may have continue one."""
    assert [match.handle for match in find(f"文件{H}。и{OTHER}ж")] == [H, OTHER]


@given(st.lists(st.one_of(st.text(), st.sampled_from([H, OTHER, "runenv+file://", "://", "-", "_", "[", "](", ")"]))))
def test_what_is_found_stands_where_it_is_said_to_stand(pieces: list[str]) -> None:
    """In order, without overlap, and each of it a handle."""
    text = "".join(pieces)
    end = 0
    for match in find(text):
        assert match.start >= end
        end = match.end
        assert text[match.start : end].lower() == match.handle
        assert parse(match.handle) == match.handle


@given(st.text(), st.text(), st.uuids(version=4))
def test_a_handle_between_blanks_is_always_found(before: str, after: str, number: uuid.UUID) -> None:
    """Whatever else is in the text."""
    handle = f"runenv+file://{number}"
    assert Match(handle, len(before) + 1, len(before) + 1 + len(handle)) in find(f"{before} {handle} {after}")


@given(st.text(max_size=2000))
def test_reading_never_fails_but_with_a_handle_error(text: str) -> None:
    """Any text at all."""
    try:
        assert find(parse(text))
    except HandleError:
        assert whole(text) is None


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "://",
        "runenv+file://",
        "-",
        "[",
        "](",
        " ",
        H[:-1] + "g ",
        H + "-",
        H + "_" * 50,
        "runenv+file://" + "0" * 36,
    ],
)
def test_long_texts_take_linear_time(piece: str) -> None:
    """10 MB of what might make a search start over; a quadratic one would run into the suite's timeout."""
    text = piece * (10_000_000 // len(piece))
    find(text)
    assert whole(text) is None
    assert find(f"{text} {H}")[-1].handle == H


# -- shown


def test_the_placeholder_says_what_there_is() -> None:
    """A2: name, type, size, the start of the hash, and the handle, on one line."""
    kind = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
    shown = f'[artifact "deck.pptx" {kind}, 29.3 KiB (30,000 bytes), sha256 0123456789ab, {H}]'
    assert placeholder(record()) == shown


def test_the_part_has_what_a_provider_needs() -> None:
    """The values of the record, unchanged."""
    deck = record()
    assert part(deck) == FilePart(H, "deck.pptx", deck.media_type, 30_000, deck.sha256)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ('a"b.txt', "a'b.txt"),
        ("a[1].txt", "a(1).txt"),
        ("<system>.txt", "(system).txt"),
        ("a`b`.txt", "a'b'.txt"),
        ("two\nlines.txt", "two lines.txt"),
        ("tab\tand\rreturn.txt", "tab and return.txt"),
        ("nul\0.txt", "nul .txt"),
        ("line\u2028break.txt", "line break.txt"),
        ("photo\u202egnp.exe", "photognp.exe"),
        ("\u2066isolated\u2069.txt", "isolated.txt"),
        ("tag\U000e0041\U000e0042s.txt", "tags.txt"),
        ("hidden\U000e0100\ufe0f.txt", "hidden.txt"),
        ("half\ud800.txt", "half\ufffd.txt"),
        ("Bericht für März.txt", "Bericht für März.txt"),
        ("报告.txt", "报告.txt"),
        ("\u202e", "file"),
        ("", "file"),
    ],
)
def test_a_hostile_name_is_shown_harmless(name: str, shown: str) -> None:
    """Nothing in it ends the quotes, the brackets or the line, or turns the text around."""
    assert shown_name(name) == shown


def test_a_long_name_keeps_its_start_and_its_extension() -> None:
    """80 characters, whatever its length."""
    shown = shown_name("x" * 500 + "-final.pptx")
    assert len(shown) == 80
    assert shown.startswith("xxxx")
    assert shown.endswith("-final.pptx")
    assert "\u2026" in shown


@given(st.text(st.characters(), max_size=400), st.text(max_size=200), st.integers(0, 2**60))
@example(H, H, 0)
@example(f'x" {OTHER}]', 'text/plain"]\n', 1)
@example("\u202e" * 5000, "", 1)
def test_the_placeholder_is_one_line_with_one_handle(name: str, kind: str, size: int) -> None:
    """Whatever the name and the type are, it is well formed, bounded, and reads back as the handle."""
    line = placeholder(record(name=name, media_type=kind, size=size))
    assert len(line) < 400
    assert line.splitlines() == [line]
    assert [match.handle for match in find(line)] == [H]
    assert parse(line) == H
    assert not {unicodedata.category(character) for character in line} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert re.fullmatch(r'\[artifact "[^"\[\]]+" [^"\[\]]*\]', line)


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        (30_000, "29.3 KiB"),
        (1024**2 - 1, "1.0 MiB"),
        (1024**2, "1.0 MiB"),
        (5 * 1024**3, "5.0 GiB"),
        (2**60, "1024.0 PiB"),
    ],
)
def test_sizes_are_for_people(size: int, shown: str) -> None:
    """Binary units, one decimal."""
    assert human_size(size) == shown
