"""Answers of the guest: honest ones become values, all others are refused."""

from __future__ import annotations

import stat
import struct
from contextlib import suppress
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runenv.envs.guested.replies import EntryReader, entry_of, exec_result, refused_of, signal_name
from runenv.guest.frames import Fields, Flag, FrameError, Tag, decode_fields
from runenv.types import ExecResult, FileInfo, Output, Refused

TOTALS: Fields = {
    Tag.DURATION_US: 1_500_000,
    Tag.OUT_TOTAL: 0,
    Tag.OUT_LINES: 0,
    Tag.OUT_KEPT_HEAD: 0,
    Tag.ERR_TOTAL: 0,
    Tag.ERR_LINES: 0,
    Tag.ERR_KEPT_HEAD: 0,
}
OK: Fields = {**TOTALS, Tag.EXIT_CODE: 0}


def record(
    name: bytes = b"", target: bytes = b"", *, mode: int = stat.S_IFREG | 0o644, size: int = 5, mtime_ns: int = 1
) -> bytes:
    """Return an ENTRY value."""
    return struct.pack("<IQqIIHH", mode, size, mtime_ns, 10, 20, len(name), len(target)) + name + target


# -- commands


def test_a_result_is_read_as_it_is() -> None:
    """The usual one."""
    assert exec_result(OK, b"", b"", max_chars=1000) == ExecResult(0, duration=1.5)


def test_every_flag_and_stream_of_a_result_arrives() -> None:
    """Head and tail are cut apart where the guest says."""
    fields: Fields = {
        **TOTALS,
        Tag.SIGNAL: 9,
        Tag.FLAGS: Flag.TIMED_OUT | Flag.OOM_KILLED | Flag.BACKGROUND | Flag.CANCELLED,
        Tag.OUT_TOTAL: 4000,
        Tag.OUT_LINES: 1,
        Tag.OUT_KEPT_HEAD: 3,
        Tag.OUT_SPILL: b"/spill/\xff",
        Tag.OUT_SPILLED: 3000,
        Tag.ERR_TOTAL: 2,
    }
    result = exec_result(fields, bytearray(b"abcxyz"), b"e\n", max_chars=1000)
    assert (result.exit_code, result.signal) == (None, "SIGKILL")
    assert (result.timed_out, result.oom_killed, result.background) == (True, True, True)
    assert result.stdout.data == b"abcxyz"
    assert result.stdout.total_bytes == 4000
    assert result.stdout.omitted_bytes == 3994
    assert (result.stdout.spill_path, result.stdout.spilled_bytes) == ("/spill/\udcff", 3000)
    assert result.stderr == Output(data=b"e\n", text="e\n", total_bytes=2)


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (1, "SIGHUP"),
        (7, "SIGBUS"),
        (9, "SIGKILL"),
        (15, "SIGTERM"),
        (17, "SIGCHLD"),
        (31, "SIGSYS"),
        (32, "SIG32"),
        (34, "SIGRTMIN"),
        (40, "SIGRTMIN+6"),
        (64, "SIGRTMIN+30"),
    ],
)
def test_signals_have_linux_names(number: int, name: str) -> None:
    """Whatever the host's own numbers are."""
    assert signal_name(number) == name


@pytest.mark.parametrize(
    "change",
    [
        {Tag.EXIT_CODE: 256},
        {Tag.EXIT_CODE: -1},
        {Tag.SIGNAL: 0},
        {Tag.SIGNAL: 65},
        {Tag.DURATION_US: -1},
        {Tag.FLAGS: -1},
        {Tag.OUT_TOTAL: 2},
        {Tag.OUT_TOTAL: -1},
        {Tag.OUT_KEPT_HEAD: 4},
        {Tag.OUT_LINES: 5},
        {Tag.OUT_SPILL: b""},
        {Tag.OUT_SPILL: b"a\0b"},
        {Tag.OUT_SPILL: b"x" * 5000},
        {Tag.OUT_SPILLED: 4},
        {Tag.ERR_TOTAL: -1},
    ],
    ids=str,
)
def test_a_result_that_cannot_be_is_refused(change: Fields) -> None:
    """Numbers contradict each other, or are out of their bounds."""
    honest: Fields = {**OK, Tag.OUT_TOTAL: 3, Tag.OUT_LINES: 1, Tag.OUT_KEPT_HEAD: 3}
    assert exec_result(honest, b"abc", b"", max_chars=1000).stdout.data == b"abc"
    with pytest.raises(FrameError):
        exec_result({**honest, **change}, b"abc", b"", max_chars=1000)


@pytest.mark.parametrize("missing", [Tag.EXIT_CODE, Tag.DURATION_US, Tag.OUT_TOTAL, Tag.ERR_TOTAL])
def test_a_result_without_a_part_is_refused(missing: Tag) -> None:
    """Nothing is made up."""
    with pytest.raises(FrameError):
        exec_result({tag: value for tag, value in OK.items() if tag != missing}, b"", b"", max_chars=1000)


@example({Tag.OUT_TOTAL: 2}, b"\n")
@given(st.dictionaries(st.sampled_from([*OK, Tag.SIGNAL, Tag.FLAGS]), st.integers(-2, 300)), st.binary(max_size=50))
def test_any_numbers_give_a_result_or_are_refused(fields: Fields, output: bytes) -> None:
    """Nothing else is raised, whatever a guest invents."""
    try:
        result = exec_result({**OK, **fields}, output, b"", max_chars=1000)
    except FrameError:
        return
    assert result.stdout.data == output
    assert result.stdout.omitted_bytes == result.stdout.total_bytes - len(output)


@given(st.binary(max_size=200))
def test_any_payload_is_refused_or_read(payload: bytes) -> None:
    """From bytes to values only FrameError comes between."""
    try:
        fields = decode_fields(payload)
    except FrameError:
        return
    for read in (entry_of, refused_of, partial(exec_result, stdout=b"", stderr=b"", max_chars=1000)):
        with suppress(FrameError):
            read(fields)


# -- entries


def test_an_entry_is_exact() -> None:
    """Also times that a float cannot hold."""
    entry = entry_of({Tag.ENTRY: record(target=b"a\xff", mode=stat.S_IFLNK | 0o777, mtime_ns=10**18 + 1)})
    assert entry.mtime_ns == 10**18 + 1
    assert entry.info("p") == FileInfo("p", stat.S_IFLNK | 0o777, 5, 1e9, 10, 20, "a\udcff")


def test_only_links_have_targets() -> None:
    """Whatever the guest adds to a file."""
    assert entry_of({Tag.ENTRY: record(target=b"a")}).target is None


@pytest.mark.parametrize(
    "value",
    [None, b"", record()[:-1], record() + b"x", record(b"name"), record(size=2**64 - 1), record(target=b"x" * 4097)],
    ids=["none", "empty", "short", "long", "named", "size", "target"],
)
def test_an_entry_that_is_none_is_refused(value: bytes | None) -> None:
    """Not guessed at."""
    with pytest.raises(FrameError):
        entry_of({} if value is None else {Tag.ENTRY: value})


NAMES = st.binary(min_size=1, max_size=255).filter(lambda name: not {0, 47} & set(name) and name not in {b".", b".."})


@given(st.lists(NAMES, unique=True, max_size=20), st.lists(st.integers(1, 100), min_size=1))
def test_entries_are_read_however_they_are_split_and_come_sorted(names: list[bytes], sizes: list[int]) -> None:
    """The order of a folder is not the caller's business, the frames are not either."""
    stream, reader, position, turn = b"".join(map(record, names)), EntryReader(), 0, 0
    while position < len(stream):
        end = position + sizes[turn % len(sizes)]
        reader.feed(stream[position:end])
        position, turn = end, turn + 1
    paths = [entry.path for entry in reader.finish(len(names))]
    assert paths == sorted(name.decode("utf-8", "surrogateescape") for name in names)


@pytest.mark.parametrize("name", [b"", b".", b"..", b"a/b", b"/", b"a\0", b"x" * 256], ids=str)
def test_a_name_that_no_folder_holds_is_refused(name: bytes) -> None:
    """A tool that joins it to the folder must not end up elsewhere."""
    with pytest.raises(FrameError):
        EntryReader().feed(record(name))


@pytest.mark.parametrize(("stream", "total"), [(record(b"a"), 2), (record(b"a") + b"x", 1), (b"", 1)])
def test_a_folder_that_was_cut_short_is_refused(stream: bytes, total: int) -> None:
    """The count must agree, and nothing be left over."""
    reader = EntryReader()
    reader.feed(stream)
    with pytest.raises(FrameError):
        reader.finish(total)


# -- refusals


def test_refusals_are_paths_and_reasons() -> None:
    """As many as are listed, and the count of all."""
    fields: Fields = {Tag.REFUSED: [b"a\xff\0a FIFO", b"b"], Tag.REFUSED_COUNT: 7}
    assert refused_of(fields) == ((Refused("a\udcff", "a FIFO"), Refused("b", "")), 7)
    assert refused_of({}) == ((), 0)


@pytest.mark.parametrize(
    "fields",
    [
        {Tag.REFUSED: [b"x\0y"] * 1001},
        {Tag.REFUSED: [b"x\0y"] * 2, Tag.REFUSED_COUNT: 1},
        {Tag.REFUSED_COUNT: -1},
    ],
    ids=["too many", "fewer than listed", "below zero"],
)
def test_refusals_that_cannot_be_are_refused(fields: Fields) -> None:
    """More than are sent, or fewer than are listed."""
    with pytest.raises(FrameError):
        refused_of(fields)
