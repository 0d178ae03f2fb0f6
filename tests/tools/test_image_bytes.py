"""What the host and a worker say to each other, and image files as bytes: any bytes at all are survived."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runenv.tools.image_structure import DamageError, gif_frames, is_netpbm, webp_size, whole
from runenv.tools.image_wire import MAX_DETAIL_BYTES, Facts, Flag, Outcome, Task, WireError

TASK: Final = Task("PNG", frozenset({"image/png"}), 2000, 1000, 1_000_000, 1 << 30, 5.0, 3)
numbers = st.integers(0, 2**32 - 1)
tasks = st.builds(
    Task,
    st.sampled_from(["PNG", "JPEG", "WEBP", "GIF", "AVIF"]),
    st.frozensets(st.sampled_from(["image/png", "image/jpeg", "image/webp"])),
    st.integers(1, 2**31),
    st.integers(1, 2**31),
    st.integers(1, 2**40),
    st.integers(1, 2**40),
    st.floats(0, 1000),
    st.integers(0, 2**40),
)


@given(tasks)
def test_a_question_arrives_as_it_was_sent(task: Task) -> None:
    """Every field."""
    frame = task.encode()
    assert len(frame) == Task.FRAME_BYTES
    assert Task.decode(frame) == task


@given(st.sampled_from(Outcome), numbers, numbers, st.text())
def test_an_answer_arrives_as_it_was_sent(outcome: Outcome, width: int, height: int, detail: str) -> None:
    """Those that a worker may give; its words as far as they are allowed."""
    sent = Facts(outcome, Flag.TURNED, width=width, height=height, detail=detail)
    frame = sent.encode(0)
    if outcome is Outcome.SHOWN or outcome > Outcome.UNFIT:
        with pytest.raises(WireError):
            Facts.decode(frame[: Facts.FRAME_BYTES], TASK)
        return
    facts, detail_bytes, size = Facts.decode(frame[: Facts.FRAME_BYTES], TASK)
    assert (facts.outcome, facts.flags, facts.width, facts.height) == (outcome, Flag.TURNED, width, height)
    assert len(frame) == Facts.FRAME_BYTES + detail_bytes
    assert detail_bytes <= MAX_DETAIL_BYTES
    assert size == 0


@given(st.binary(min_size=Facts.FRAME_BYTES, max_size=Facts.FRAME_BYTES))
def test_any_bytes_are_an_answer_within_the_limits_or_none(frame: bytes) -> None:
    """Nothing that a worker says makes the host hold more, or show what was not asked for."""
    try:
        facts, detail_bytes, size = Facts.decode(frame, TASK)
    except WireError:
        return
    assert detail_bytes <= MAX_DETAIL_BYTES
    assert size <= TASK.max_bytes
    assert (facts.outcome is Outcome.SHOWN) == bool(size)
    assert max(facts.shown_width, facts.shown_height) <= TASK.max_side


HEADS: Final = {
    "PNG": b"\x89PNG\r\n\x1a\n",
    "JPEG": b"\xff\xd8\xff",
    "WEBP": b"RIFF\x10\0\0\0WEBP",
}


@given(st.sampled_from(sorted(HEADS)), st.binary(max_size=200), st.binary(max_size=8))
def test_any_bytes_are_a_whole_file_or_a_damaged_one(format: str, body: bytes, end: bytes) -> None:
    """What is whole stays as it is when it is stripped again."""
    try:
        found = whole(HEADS[format] + body + end, format)
    except DamageError:
        return
    assert found is not None
    again = whole(found.stripped, format)
    assert again is not None
    assert again.stripped == found.stripped


@given(st.binary(max_size=300))
def test_any_bytes_can_be_measured(data: bytes) -> None:
    """Without an error, and without an end."""
    assert 0 <= gif_frames(b"GIF89a" + data) <= 1001
    assert is_netpbm(data) in {True, False}
    size = webp_size(b"RIFF\0\0\0\0WEBP" + data)
    assert size is None or all(0 <= side <= 1 << 24 for side in size)


@pytest.mark.timeout(60)
def test_what_has_no_end_is_measured_all_the_same() -> None:
    """Blocks of a GIF, blanks of a Netpbm file, fill bytes of a JPEG: the work grows with the size, not faster."""
    assert gif_frames(b"GIF89a" + bytes(7) + b",\0\0\0\0\0\0\0\0\0\x02" + b"\xff" * 4_000_000) == 1
    for blanks in (b" " * 1000, b" #\n" * 300, b"#" * 1000):
        assert not is_netpbm(b"P6" + blanks + b"x")
    for fill in (b"\xff" * 4_000_000, b"\xff\0" * 2_000_000):
        with pytest.raises(DamageError):
            whole(b"\xff\xd8" + fill, "JPEG")
