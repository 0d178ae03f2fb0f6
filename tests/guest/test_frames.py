"""The frame codec: what was encoded is decoded, however the bytes are split, and nothing else is."""

from __future__ import annotations

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runenv.guest.frames import (
    HEADER_BYTES,
    MAX_DATA,
    MAX_PAYLOAD,
    Frame,
    FrameDecoder,
    FrameError,
    Kind,
    Tag,
    decode_fields,
    encode,
    encode_fields,
)

NUMBERS = st.integers(-(2**63), 2**63 - 1)
LISTS = {Tag.ARG, Tag.ENV, Tag.INCLUDE, Tag.EXCLUDE, Tag.REFUSED}
frames = st.builds(
    Frame,
    call=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(Kind),
    channel=st.integers(0, 255),
    payload=st.binary(max_size=200),
)


def encoded(frame: Frame) -> bytes:
    """Return a frame's bytes."""
    return encode(frame.call, frame.kind, frame.payload, frame.channel)


@given(st.lists(frames, max_size=8), st.lists(st.integers(1, 50), min_size=1))
def test_frames_come_out_as_they_went_in_however_the_bytes_are_split(sent: list[Frame], sizes: list[int]) -> None:
    """Any split of the stream decodes alike."""
    stream = b"".join(map(encoded, sent))
    received: list[Frame] = []
    decoder, position, turn = FrameDecoder(), 0, 0
    while position < len(stream):
        end = position + sizes[turn % len(sizes)]
        received += decoder.feed(stream[position:end])
        position, turn = end, turn + 1
    assert received == sent


@given(st.binary(max_size=400), st.integers(0, 400))
@example(encode(1, Kind.DATA, b"x" * 20), 5)
def test_hostile_bytes_raise_a_frame_error_or_wait_for_more(stream: bytes, cut: int) -> None:
    """No bytes at all raise anything else, and a frame that comes out is one that encodes back to its bytes."""
    decoder, received = FrameDecoder(), list[Frame]()
    try:
        for piece in (stream[:cut], stream[cut:]):
            received += decoder.feed(piece)
    except FrameError:
        pass
    size = sum(HEADER_BYTES + len(frame.payload) for frame in received)
    assert b"".join(map(encoded, received)) == stream[:size]


@pytest.mark.parametrize(
    "header",
    [
        struct.pack("<IIBBH", 0, 0, 0, 0, 0),
        struct.pack("<IIBBH", 0, 0, 13, 0, 0),
        struct.pack("<IIBBH", 0, 0, Kind.PONG, 0, 1),
        struct.pack("<IIBBH", MAX_PAYLOAD + 1, 1, Kind.RESULT, 0, 0),
        struct.pack("<IIBBH", MAX_DATA + 1, 1, Kind.DATA, 0, 0),
        struct.pack("<IIBBH", 2**32 - 1, 1, Kind.HELLO, 0, 0),
    ],
    ids=["kind 0", "kind 13", "reserved bits", "long RESULT", "long DATA", "longest"],
)
def test_a_header_out_of_bounds_is_refused_before_its_payload_is_awaited(header: bytes) -> None:
    """The bound on memory holds: nobody waits for a payload that is too long."""
    with pytest.raises(FrameError):
        list(FrameDecoder().feed(header))


def test_frames_before_a_damaged_one_still_come_out() -> None:
    """The damage is where it is, not earlier."""
    received = FrameDecoder().feed(encode(7, Kind.END) + b"\xff" * HEADER_BYTES)
    assert next(received) == Frame(7, Kind.END, 0, b"")
    with pytest.raises(FrameError):
        next(received)


def test_a_payload_over_the_limit_cannot_be_encoded() -> None:
    """The guest would end the link: better an error here."""
    assert len(encode(1, Kind.CALL, b"x" * MAX_PAYLOAD)) == HEADER_BYTES + MAX_PAYLOAD
    with pytest.raises(ValueError, match="1048577"):
        encode(1, Kind.CALL, b"x" * (MAX_PAYLOAD + 1))


@given(
    st.dictionaries(st.sampled_from([tag for tag in Tag if tag < Tag.PATH]), NUMBERS),
    st.dictionaries(st.sampled_from([tag for tag in Tag if tag >= Tag.PATH and tag not in LISTS]), st.binary()),
    st.dictionaries(st.sampled_from(sorted(LISTS)), st.lists(st.binary(), min_size=1)),
)
def test_fields_come_out_as_they_went_in(
    numbers: dict[Tag, int], texts: dict[Tag, bytes], lists: dict[Tag, list[bytes]]
) -> None:
    """Numbers, bytes and lists of bytes survive the round trip."""
    pairs: list[tuple[Tag, int | bytes]] = [*numbers.items(), *texts.items()]
    pairs += [(tag, value) for tag, values in lists.items() for value in values]
    assert decode_fields(encode_fields(pairs)) == {**numbers, **texts, **lists}


@given(st.binary(max_size=300))
def test_hostile_fields_raise_a_frame_error_or_are_typed(payload: bytes) -> None:
    """What is decoded has the type that its tag promises; a caller need not look at more."""
    try:
        fields = decode_fields(payload)
    except FrameError:
        return
    for tag, value in fields.items():
        expected = list if tag in LISTS else int if tag < Tag.PATH else bytes
        assert type(value) is expected


@pytest.mark.parametrize(
    "payload",
    [
        b"\x01",
        struct.pack("<BI", Tag.PATH, 4) + b"abc",
        struct.pack("<BI", Tag.TOTAL, 4) + b"abcd",
        encode_fields([(Tag.TOTAL, 1), (Tag.TOTAL, 1)]),
        encode_fields([(Tag.PATH, b"a"), (Tag.PATH, b"a")]),
    ],
    ids=["no header", "cut short", "no number", "number twice", "bytes twice"],
)
def test_damaged_fields_are_refused(payload: bytes) -> None:
    """Each kind of damage is a FrameError."""
    with pytest.raises(FrameError):
        decode_fields(payload)


def test_unknown_fields_are_skipped() -> None:
    """A later guest may say more."""
    assert decode_fields(struct.pack("<BI", 200, 3) + b"abc" + encode_fields([(Tag.PATH, b"x")])) == {Tag.PATH: b"x"}
