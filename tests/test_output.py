"""What a model sees of a stream: bounded, counted, and as a terminal would show it."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runenv.output import _clean, render
from runenv.types import Output

MARKER = re.compile(r"^\[\.\.\. ([\d,]+) bytes? \(([\d,]+) lines?\) left out(?:; (.*))? \.\.\.\]$", re.MULTILINE)
SPILL = "/tmp/.runenv/3-stdout"

# Bytes that meet the rules of cleaning often, and some that are no text.
PIECES = st.sampled_from(
    [piece.encode() for piece in "a|bc|line\n|\n|\r\n|\r|\b|\t|\0|\a|\x7f|\u009b|€|\U0001f600|\u202e".split("|")]
    + [piece.encode() for piece in "\x1b|\x1b[31m|\x1b[K|\x1b[2K|\x1b[G|\x1b[3D|\x1b[9C|\x1b[3".split("|")]
    + [piece.encode() for piece in "\x1b]0;title\a|\x1b]8;;u\x1b\\|\x1b]|\x1bP".split("|")]
    + [b"\xff", b"\xe2\x82", b"\x82"]
)
STREAMS = st.lists(PIECES, max_size=80).map(b"".join)
TEXTS = st.lists(st.sampled_from(["a", "bc", "some words\n", "\n", "é", "€", "\U0001f600"]), max_size=120).map("".join)


def kept(stream: bytes, keep: int, max_chars: int, *, spilled: int | None = None, path: str | None = SPILL) -> Output:
    """Render a stream of which the guest kept the first and last half of `keep` bytes."""
    head, tail = stream, b""
    if len(stream) > keep:
        half = keep // 2
        head, tail = stream[: keep - half], stream[len(stream) - half :]
    return render(
        head,
        tail,
        total_bytes=len(stream),
        total_lines=stream.count(b"\n"),
        max_chars=max_chars,
        spill_path=path,
        spilled_bytes=len(stream) if spilled is None else spilled,
    )


def whole(stream: bytes) -> str:
    """The text of a stream that fits."""
    output = kept(stream, 1 << 20, 1 << 20)
    assert not output.truncated
    return output.text


def left_out(output: Output) -> tuple[int, int]:
    """Bytes and lines that the marker counts."""
    (found,) = MARKER.findall(output.text)
    return int(found[0].replace(",", "")), int(found[1].replace(",", ""))


# -- the cut


def test_an_empty_stream_is_empty_text() -> None:
    """C021: never None."""
    assert kept(b"", 1024, 1000) == Output(data=b"", text="")


def test_a_stream_that_fits_is_whole() -> None:
    """No marker, no spill file to look into."""
    output = kept(b"one\ntwo\n", 1024, 1000)
    assert output == Output(data=b"one\ntwo\n", text="one\ntwo\n", total_bytes=8)


@pytest.mark.parametrize(("size", "truncated"), [(9_999, False), (10_000, False), (10_001, True), (16_384, True)])
def test_the_cut_is_announced_at_the_exact_boundary(size: int, truncated: bool) -> None:  # noqa: FBT001
    """C011: both ends are seen, and the flag is set exactly when something is missing."""
    stream = b"BEGIN" + b"x" * (size - 8) + b"END"
    output = kept(stream, 10_000, 10_000)
    assert output.truncated is truncated
    assert output.total_bytes == size
    assert output.omitted_bytes == max(0, size - 10_000)
    assert output.text.startswith("BEGIN")
    assert output.text.endswith("END")
    assert len(output.text) <= 10_000
    assert bool(MARKER.search(output.text)) is truncated


def test_first_and_last_lines_are_both_shown() -> None:
    """C012: the failure is at the end, and what led to it at the beginning."""
    stream = "".join(f"{number}\n" for number in range(1, 200_001)).encode() + b"FINAL-ERROR\n"
    output = kept(stream, 4096, 4096)
    assert output.text.startswith("1\n2\n3\n")
    assert output.text.endswith("\n200000\nFINAL-ERROR\n")
    assert f"the whole output is in {SPILL}" in output.text


@pytest.mark.parametrize("character", ["€", "\U0001f600"])
@pytest.mark.parametrize("keep", range(9_999, 10_004))
@pytest.mark.parametrize("max_chars", [1_000, 30_000])
def test_a_character_is_never_split(character: str, keep: int, max_chars: int) -> None:
    """C013: no replacement character at the edges, and the halves of split ones are counted as left out."""
    output = kept((character * 50_000).encode(), keep, max_chars)
    before, after = MARKER.sub("|", output.text).split("\n|\n")
    assert set(before) == set(after) == {character}
    shown = len((before + after).encode())
    assert left_out(output) == (len(character.encode()) * 50_000 - shown, 0)
    assert len(output.text) <= max_chars


def test_one_long_line_is_cut_within() -> None:
    """C015: 200,000 bytes without a newline."""
    output = kept(b"A" * 200_000, 240_000, 30_000)
    assert output.truncated
    assert output.omitted_bytes == 0
    assert output.data == b"A" * 200_000
    bytes_left_out, lines = left_out(output)
    assert bytes_left_out == 200_000 - output.text.count("A")
    assert lines == 0
    assert 29_990 <= len(output.text) <= 30_000


def test_the_cut_is_at_line_ends() -> None:
    """No line is shown in part when its end is near."""
    stream = b"".join(b"%060d\n" % number for number in range(2_000))
    output = kept(stream, 240_000, 10_000)
    before, after = MARKER.sub("|", output.text).split("|\n")
    assert stream.startswith(before.encode())
    assert stream.endswith(after.encode())
    assert {len(line) for line in before.splitlines() + after.splitlines()} == {60}
    assert left_out(output) == (len(stream) - len(before) - len(after), 2_000 - (before + after).count("\n"))


def test_the_marker_says_when_only_the_first_part_was_kept() -> None:
    """A full disk or quota is not a whole output."""
    assert "; its first 12,345 bytes are in " + SPILL in kept(b"x" * 50_000, 2048, 1000, spilled=12_345).text
    assert "; its first 1 byte are in " in kept(b"x" * 50_000, 2048, 1000, spilled=1).text


@pytest.mark.parametrize(("path", "spilled"), [(None, 0), (SPILL, 0)])
def test_the_marker_says_when_nothing_was_kept(path: str | None, spilled: int) -> None:
    """The model is not sent to a file that is not there."""
    text = kept(b"x" * 50_000, 2048, 1000, spilled=spilled, path=path).text
    assert "; the whole output was not kept ...]" in text
    assert SPILL not in text


def test_a_path_that_would_fill_the_text_is_left_to_the_field() -> None:
    """The marker serves the text, not the other way round."""
    output = kept(b"x" * 5_000, 2048, 1000, path="/p" * 400)
    assert "/p" not in output.text
    assert output.spill_path == "/p" * 400


@pytest.mark.parametrize(
    ("total_bytes", "total_lines"), [(5, 0), (2_000, 1)], ids=["fewer bytes than kept", "fewer lines than kept"]
)
def test_counts_that_contradict_the_bytes_are_refused(total_bytes: int, total_lines: int) -> None:
    """They come from a guest that is not trusted."""
    with pytest.raises(ValueError, match="cannot have"):
        render(
            b"one\n" * 2,
            b"two\n",
            total_bytes=total_bytes,
            total_lines=total_lines,
            max_chars=1000,
            spill_path=None,
            spilled_bytes=0,
        )


@given(stream=STREAMS, keep=st.integers(2, 400), max_chars=st.integers(0, 300))
def test_any_stream_fits_and_is_text(stream: bytes, keep: int, max_chars: int) -> None:
    """Whatever a command writes and however small the limit."""
    output = kept(stream, keep, max_chars)
    assert len(output.text) <= max_chars
    assert output.text.encode().decode() == output.text
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", output.text)
    assert output.total_bytes == len(stream)
    assert output.omitted_bytes == len(stream) - len(output.data)
    assert output.truncated or output.spill_path is None
    assert output.truncated or output.omitted_bytes == 0


@given(text=TEXTS, keep=st.integers(150, 400), max_chars=st.integers(150, 400))
def test_head_left_out_and_tail_are_the_stream(text: str, keep: int, max_chars: int) -> None:
    """The counts of the marker are exact."""
    stream = text.encode()
    output = kept(stream, keep, max_chars)
    if not output.truncated:
        assert output.text == text
        return
    bytes_left_out, lines_left_out = left_out(output)
    before, after = MARKER.sub("|", output.text).split("|")
    after = after[1:]
    if not text.startswith(before):
        before = before.removesuffix("\n")
    head, tail = before.encode(), after.encode()
    assert stream.startswith(head)
    assert stream.endswith(tail)
    assert len(head) + bytes_left_out + len(tail) == len(stream)
    assert (head + tail).count(b"\n") + lines_left_out == stream.count(b"\n")


@given(stream=STREAMS, keep=st.integers(150, 500), max_chars=st.integers(150, 300))
def test_the_counts_are_of_raw_bytes_also_where_cleaning_removed_some(stream: bytes, keep: int, max_chars: int) -> None:
    """There is a cut with as many bytes between whose sides clean to exactly what is shown."""
    output = kept(stream, keep, max_chars)
    if not output.truncated:
        return
    bytes_left_out, lines_left_out = left_out(output)
    before, after = MARKER.sub("\0", output.text).split("\0")

    def fits(cut: int) -> bool:
        head, tail = stream[:cut], stream[cut + bytes_left_out :]
        return (
            _clean(head.decode(errors="replace")).removesuffix("\n") == before.removesuffix("\n")
            and _clean(tail.decode(errors="replace")) == after.removeprefix("\n")
            and (head + tail).count(b"\n") + lines_left_out == stream.count(b"\n")
        )

    assert bytes_left_out > 0
    assert any(fits(cut) for cut in range(len(stream) - bytes_left_out + 1))


# -- cleaning


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        pytest.param(b"\xff\xfeok\n", "\ufffd\ufffdok\n", id="C016: not UTF-8"),
        pytest.param(
            b"\x1b[?25l\x1b[2Kget 1%\rget 2%\r\n\x1b[31mdone\x1b[0m\x1b]0;title\x07",
            "get 2%\ndone",
            id="C018: a download",
        ),
        pytest.param(b"a\r\nb\r\n", "a\nb\n", id="CRLF"),
        pytest.param(b"a\r\r\nb\x1b[0m\r\x1b[0m\n", "a\nb\n", id="CR before a line end"),
        pytest.param(b"working\rdone\n", "doneing\n", id="a shorter overwrite leaves the rest"),
        pytest.param(b"working\r\x1b[Kdone\n", "done\n", id="erase to the end"),
        pytest.param(b"working\x1b[2K\rdone\n", "done\n", id="erase the line"),
        pytest.param(b"working\x1b[1K\rdone\n", "doneing\n", id="erase to the start is left out"),
        pytest.param(b"\x1b[2K\x1b[1Gstep 1\x1b[2K\x1b[1Gstep 2\n", "step 2\n", id="move to the first column"),
        pytest.param(b"12345\x1b[3G_\x1b[99G!\n", "12_45!\n", id="move to a column"),
        pytest.param(b"12345\x1b[2D__\x1b[99D!\n", "!23__\n", id="move left"),
        pytest.param(b"12345\r\x1b[2C_\x1b[C!\n", "12_4!\n", id="move right"),
        pytest.param(b"name\x1b[20Cvalue\n", "name value\n", id="a jump past the end is a blank"),
        pytest.param(b"N\bNA\bA _\bx\b\b\b\b\b\b\b\b-\n", "-A x\n", id="overstrike"),
        pytest.param(b"a\x1b[1Ab\x1b[2Jc\n", "abc\n", id="moves between lines are not followed"),
        pytest.param(b"\x1b(Ba\x1b7b\x1b=c\x1b[38;2;1;2;3md\x1b[m\n", "abcd\n", id="other sequences"),
        pytest.param(b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n", "link\n", id="a link"),
        pytest.param(b"\x1bPq#0;2\x1b\\\x1b_Gf=32;AAAA\x1b\\x\n", "x\n", id="images"),
        pytest.param(b"\x1b]0;never ended\nall\nthis\n", "0;never ended\nall\nthis\n", id="an unterminated title"),
        pytest.param(b"\x1b]0;one\x1b]0;two\x07three\n", "0;onethree\n", id="a title within a title"),
        pytest.param(b"a\x1b", "a", id="a lone escape"),
        pytest.param(b"a\x1b[31", "a", id="a sequence cut short"),
        pytest.param(b"a\x1b[31\nb", "a\nb", id="a sequence broken off"),
        pytest.param(b"\x1b[" + b"1" * 200 + b"m", "1" * 72 + "m", id="endless parameters"),
        pytest.param(b"A=1\0B=2\0", "A=1\u2400B=2\u2400", id="NUL is visible"),
        pytest.param(b"\x01\x0b\x0c\x1a\x7f\xc2\x9b\a|", "\u2401\u240b\u240c\u241a\u2421\ufffd|", id="controls"),
        pytest.param("a\tb\u202ec\u0301\u200b".encode(), "a\tb\u202ec\u0301\u200b", id="all else is kept"),
    ],
)
def test_text_is_what_a_terminal_shows(raw: bytes, text: str) -> None:
    """The bytes stay in `data`, the text is for reading."""
    assert whole(raw) == text


@given(STREAMS)
def test_cleaning_only_makes_shorter(stream: bytes) -> None:
    """What the cut counts on; and what is clean stays as it is."""
    text = stream.decode(errors="replace")
    assert len(_clean(text)) <= len(text)
    assert _clean(_clean(text)) == _clean(text)


@given(first=STREAMS, second=STREAMS)
@example(first=b"\x1b", second=b"[31mred")
@example(first=b"\x1b]0;ti", second=b"tle\x07")
def test_cleaning_in_two_parts_never_shows_less(first: bytes, second: bytes) -> None:
    """What keeps the two sides of a cut from meeting when the whole did not fit."""
    one, two = (part.decode(errors="replace") for part in (first, second))
    assert len(_clean(one + two)) <= len(_clean(one)) + len(_clean(two))


@given(st.text(alphabet="ab \r\b\n", max_size=60))
def test_overwriting_agrees_with_a_terminal_cell_by_cell(text: str) -> None:
    """Against the plainest terminal there is."""
    lines: list[list[str]] = [[]]
    column = 0
    for character in text:
        if character == "\n":
            lines.append([])
            column = 0
        elif character == "\r":
            column = 0
        elif character == "\b":
            column = max(0, column - 1)
        else:
            lines[-1][column : column + 1] = [character]
            column += 1
    assert whole(text.encode()) == "\n".join("".join(line) for line in lines)


@pytest.mark.timeout(20)  # quadratic work on any of these takes minutes
@pytest.mark.parametrize(
    ("piece", "size"),
    [(piece, 240_000) for piece in "A|\0|\x1b|\x1b[|\x1b]|\x1b]0;|\x1bP|\x1b((|x\b|x\r|\x1b[9C|x\x1b[2K|é".split("|")]
    + [("A", 50_000_000), ("\x1b]0;", 50_000_000)],
)
def test_hostile_output_takes_linear_time(piece: str, size: int) -> None:
    """One line of 50 MB, or escape sequences that never end, hide neither beginning nor end."""
    stream = b"begin\n" + piece.encode() * (size // len(piece.encode())) + b"\nend\n"
    output = kept(stream, 64 * 1024 * 1024, 30_000)
    assert output.text.startswith("begin\n")
    assert output.text.endswith("\nend\n")
    assert len(output.text) <= 30_000
