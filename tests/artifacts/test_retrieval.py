"""How a model reads what it was not shown: pages, searches, references in any dress, and never in circles."""

from __future__ import annotations

import re
import tracemalloc
from typing import TYPE_CHECKING, Any, Final

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runenv.artifacts import paging
from runenv.artifacts.handles import placeholder
from runenv.artifacts.offload import THRESHOLD_CHARS
from runenv.artifacts.paging import START, Page, Position, Window
from runenv.artifacts.retrieval import MAX_IMAGE_BYTES, Retrieval
from runenv.artifacts.store import ArtifactStore
from runenv.types import ImagePart, TextPart, ToolResult

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from runenv.artifacts.artifact import Record
    from runenv.testing.contract.store import Place

pytestmark = pytest.mark.anyio

SCOPE: Final = "run-1"
PNG: Final = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
LINES: Final = st.lists(st.text(st.sampled_from("ab\u00e9\u20ac\U0001f600 x"), max_size=30), max_size=30)


@pytest.fixture
async def store(anywhere: Place) -> AsyncIterator[ArtifactStore]:
    """A store of each kind."""
    async with ArtifactStore.open(anywhere.url, options=anywhere.options) as opened:
        yield opened


async def save(store: ArtifactStore, data: bytes | str, name: str = "result.txt", scope: str = SCOPE) -> str:
    """Store a text or bytes."""
    return await store.put(data.encode() if isinstance(data, str) else data, filename=name, scope=scope)


def body(answer: ToolResult) -> dict[int, str]:
    """The numbered lines of an answer."""
    found = re.findall(r"^(\d+)>?\t(.*)$", answer.text, re.MULTILINE)
    return {int(number): text for number, text in found}


def next_arguments(answer: ToolResult) -> dict[str, int]:
    """What the answer says to go on with."""
    hint = answer.text.splitlines()[-1]
    follows = hint.partition("For what follows: ")[2]
    return {name: int(value) for name, value in re.findall(r"(offset|column)=(\d+)", follows)}


def rest_of_line(answer: ToolResult) -> dict[str, int]:
    """Where the answer says that a cut line goes on."""
    cut = re.search(r"For the rest of line \d+: .*? (offset=\d+), (column=\d+)\.", answer.text)
    return {name: int(value) for name, value in (part.split("=") for part in cut.groups())} if cut else {}


# -- pages of text, against the plain way to have them


async def chunked(data: bytes, size: int) -> AsyncIterator[bytes]:
    """Content in chunks, which split characters and lines."""
    for at in range(0, len(data), size):
        yield data[at : at + size]


def a_page(data: bytes, window: Window, *, size: int, pattern: str | None = None, context: int = 0) -> Page:
    """Run a page or a search to its end; no such stream waits for anything."""

    async def run() -> Page:
        chunks = chunked(data, size)
        if pattern is None:
            return await paging.page(chunks, "utf-8", START, window)
        return await paging.search(chunks, "utf-8", START, window, pattern, context)

    return anyio.run(run)


@given(LINES, st.integers(1, 35), st.integers(1, 35), st.integers(1, 9), st.booleans())
def test_a_page_holds_the_lines_that_were_asked_for(
    lines: list[str],
    offset: int,
    limit: int,
    size: int,
    ends: bool,  # noqa: FBT001
) -> None:
    """C094: wherever chunks split the text, with or without a newline at its end."""
    text = "\n".join(lines) + ("\n" if ends and lines else "")
    expected = text.split("\n")
    expected = expected[:-1] if not expected[-1] else expected
    window = Window(Position(offset), max(offset, len(expected)), limit, 9_000)
    page = a_page(text.encode(), window, size=size)
    wanted = expected[offset - 1 : offset - 1 + limit]
    assert page.text == "".join(f"{number}\t{line}\n" for number, line in enumerate(wanted, start=offset))
    assert (page.next is not None) is (offset - 1 + limit < len(expected))


@given(LINES, st.integers(1, 9), st.sampled_from(["a", "ab", "\u20ac", "b x"]), st.integers(0, 3))
def test_a_search_finds_every_line_with_the_text(lines: list[str], size: int, pattern: str, context: int) -> None:
    """C094: and shows those around, each line once and in order."""
    page = a_page(
        "\n".join(lines).encode(),
        Window(START, len(lines) + 1, 100, 9_000),
        size=size,
        pattern=pattern,
        context=context,
    )
    hits = [number for number, line in enumerate(lines, start=1) if pattern in line]
    around = {near for hit in hits for near in range(hit - context, hit + context + 1) if 1 <= near <= len(lines)}
    around -= {len(lines)} if lines and not lines[-1] else set()  # the newline before it begins no line
    shown = [line for line in page.text.splitlines() if line != "--"]
    assert [int(re.split(">?\t", line)[0]) for line in shown] == sorted(around)
    assert [int(line.split(">")[0]) for line in shown if re.match(r"\d+>", line)] == hits
    assert page.matches == sum(line.count(pattern) for line in lines)


@given(LINES, st.integers(1, 4), st.integers(0, 2), st.booleans())
def test_a_search_shows_no_more_matches_than_asked_for(
    lines: list[str],
    limit: int,
    context: int,
    from_end: bool,  # noqa: FBT001
) -> None:
    """The first or the last of them, with what is around these only."""
    window = Window(START, len(lines) + 1, limit, 9_000, from_end)
    page = a_page("\n".join(lines).encode(), window, size=100, pattern="a", context=context)
    hits = [number for number, line in enumerate(lines, start=1) if "a" in line]
    wanted = hits[-limit:] if from_end else hits[:limit]
    shown = [line for line in page.text.splitlines() if line != "--"]
    assert [int(line.split(">")[0]) for line in shown if re.match(r"\d+>", line)] == wanted
    near = {line for hit in wanted for line in range(hit - context, hit + context + 1)}
    assert {int(re.split(">?\t", line)[0]) for line in shown} <= near
    assert (page.next is not None) is (len(hits) > limit)


@given(st.integers(1, 400_000), st.integers(1, 20), st.data())
def test_a_match_in_a_long_line_is_found_wherever_it_is(at: int, length: int, data: st.DataObject) -> None:
    """Also across the parts in which a long line is read."""
    size = data.draw(st.integers(10_000, 300_000))
    text = "x" * (at - 1) + "N" * length + "x" * (400_000 - at)
    page = a_page(text.encode(), Window(START, 1, 10, 9_000), size=size, pattern="N" * length)
    assert page.matches == 1
    assert f"[column {at}]" in page.text


async def test_an_index_leads_to_any_place() -> None:
    """The place it names is one that the text can be read from, in the middle of lines and beside long characters."""
    lines = ["\u20ac" * 700_000, "short", "x" * 3_000_000, "last"]
    data = "\n".join(lines).encode()
    index = await paging.index(chunked(data, 100_003), "utf-8")
    assert (index.lines, index.chars) == (4, sum(map(len, lines)) + 3)
    for line, column in [(1, 1), (1, 650_000), (2, 1), (3, 2_999_000), (4, 1)]:
        place, byte = index.before(Position(line, column))
        assert place <= Position(line, column)
        assert len(data[byte:]) < len(data) or column == 1
        window = Window(Position(line, column), 4, 1, 500)
        page = await paging.page(chunked(data[byte:], 100_003), "utf-8", place, window)
        assert page.text.startswith(f"{line}\t{lines[line - 1][column - 1 :][:400]}")


# -- the tool's answers


async def test_C093_long_lines_are_read_to_their_end(store: ArtifactStore) -> None:
    """5 lines of 20,000 characters: every answer is below the threshold, and the whole is had in few calls."""
    lines = [f"{number}" * 20_000 for number in range(1, 6)]
    handle = await save(store, "\n".join(lines))
    retrieval = Retrieval(store, scope=SCOPE)
    read = dict.fromkeys(range(1, 6), "")
    calls = 0
    for number in read:
        arguments: dict[str, Any] = {"offset": number, "limit": 1}
        while arguments:
            answer = await retrieval.retrieve(handle, **arguments)
            calls += 1
            assert calls < 40
            assert len(answer.text) <= THRESHOLD_CHARS
            read[number] += re.sub(r" \[cut: .*\]$", "", body(answer)[number])
            arguments = rest_of_line(answer)
    assert list(read.values()) == lines


async def test_C093_following_the_hints_passes_every_line(store: ArtifactStore) -> None:
    """A page of long lines shows the beginning of each, and where it goes on."""
    handle = await save(store, "\n".join("x" * 20_000 for _ in range(5)))
    retrieval = Retrieval(store, scope=SCOPE)
    seen: list[int] = []
    arguments: dict[str, Any] = {"offset": 1}
    while arguments:
        answer = await retrieval.retrieve(handle, **arguments)
        assert len(answer.text) <= THRESHOLD_CHARS
        seen += body(answer)
        assert rest_of_line(answer)
        assert all("[cut: goes on at column=" in line for line in body(answer).values())
        arguments = next_arguments(answer)
    assert seen == [1, 2, 3, 4, 5]


async def test_C094_selective_retrieval(store: ArtifactStore) -> None:
    """50,000 lines: a range, a pattern, and no arguments at all."""
    text = "[\n" + ",\n".join(f'{{"id": {number}}}' for number in range(49_998)) + "\n]"
    handle = await save(store, text, "result.json")
    retrieval = Retrieval(store, scope=SCOPE)
    everything = text.split("\n")

    some = await retrieval.retrieve(handle, offset=100, limit=101)
    assert body(some) == dict(enumerate(everything[99:200], start=100))

    found = await retrieval.retrieve(handle, pattern='"id": 40123}', context=1)
    assert body(found) == {number: everything[number - 1] for number in (40_124, 40_125, 40_126)}
    assert "1 match of" in found.text
    assert body(await retrieval.retrieve(handle, pattern='"id": 4012.}')) == {}  # a text, not an expression

    first = await retrieval.retrieve(handle)
    assert body(first)[1] == "["
    assert "50,000 lines" in first.text
    assert "counted from 1" in first.text
    assert next_arguments(first) == {"offset": max(body(first)) + 1}
    assert len(first.text) <= THRESHOLD_CHARS


async def test_the_lines_around_a_match_are_bounded(store: ArtifactStore) -> None:
    """Ten on either side; a model that wants more asks for a range."""
    handle = await save(store, "".join(f"line {number}\n" for number in range(1, 1001)))
    for context, around in ((-1, 0), (0, 0), (10, 10), (1_000, 10)):
        answer = await Retrieval(store, scope=SCOPE).retrieve(handle, pattern="line 500", context=context)
        assert sorted(body(answer)) == list(range(500 - around, 501 + around))


async def test_the_end_is_read_first_when_asked_for(store: ArtifactStore) -> None:
    """From the end: lines, matches, and the way upwards."""
    handle = await save(store, "".join(f"line {number}\n" for number in range(1, 1001)))
    retrieval = Retrieval(store, scope=SCOPE)
    last = await retrieval.retrieve(handle, from_end=True, limit=3)
    assert body(last) == {number: f"line {number}" for number in (998, 999, 1000)}
    assert "offset=4, from_end=true" in last.text
    before = await retrieval.retrieve(handle, from_end=True, offset=4, limit=2)
    assert list(body(before)) == [996, 997]
    matches = await retrieval.retrieve(handle, from_end=True, pattern="00", limit=2, context=0)
    assert list(body(matches)) == [900, 1000]
    earlier = await retrieval.retrieve(handle, from_end=True, offset=201, pattern="00", limit=2, context=0)
    assert list(body(earlier)) == [700, 800]
    assert "offset=401, from_end=true and the same pattern" in earlier.text


async def test_a_search_goes_on_where_it_ended(store: ArtifactStore) -> None:
    """Its hint leads through all matches, those within one long line too."""
    handle = await save(store, "start\n" + ("needle" + "-" * 994) * 300 + "\nneedle\n")
    retrieval = Retrieval(store, scope=SCOPE)
    columns: list[int] = []
    arguments: dict[str, Any] = {"offset": 1}
    lines: dict[int, str] = {}
    while arguments:
        answer = await retrieval.retrieve(handle, pattern="needle", context=0, **arguments)
        assert len(answer.text) <= THRESHOLD_CHARS
        columns += map(int, re.findall(r"^2>\t\[column (\d+)\]", answer.text, re.MULTILINE))
        lines |= body(answer)
        arguments = next_arguments(answer)
    assert columns == list(range(1, 300_000, 1000))
    assert lines[3] == "needle"


@pytest.mark.parametrize("data", [b"", b"\xef\xbb\xbf"])
async def test_an_empty_text_is_said_to_be_empty(store: ArtifactStore, data: bytes) -> None:
    """Not an error, and no page of nothing."""
    handle = await save(store, data)
    answer = await Retrieval(store, scope=SCOPE).retrieve(handle)
    assert not answer.is_error
    assert "empty" in answer.text


async def test_past_the_end_says_where_the_end_is(store: ArtifactStore) -> None:
    """And zero is the first line."""
    handle = await save(store, "one\ntwo\n")
    retrieval = Retrieval(store, scope=SCOPE)
    assert "give an offset from 1 to 2" in (await retrieval.retrieve(handle, offset=3)).text
    assert body(await retrieval.retrieve(handle, offset=0)) == {1: "one", 2: "two"}


@pytest.mark.parametrize("arguments", [{"limit": 0}, {"pattern": ""}, {"pattern": "a\nb"}, {"pattern": "x" * 1_001}])
async def test_arguments_that_make_no_sense_are_explained(store: ArtifactStore, arguments: dict[str, Any]) -> None:
    """An error result, never an exception."""
    handle = await save(store, "one\n")
    answer = await Retrieval(store, scope=SCOPE).retrieve(handle, **arguments)
    assert answer.is_error


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("utf16.txt", "\ufeffgr\u00fcn\r\nblau".encode("utf-16-le")),
        ("utf16be.txt", "\ufeffgr\u00fcn\r\nblau".encode("utf-16-be")),
        ("bare.txt", "gr\u00fcn\r\nblau".encode("utf-16-le")),
        ("utf8.txt", "\ufeffgr\u00fcn\r\nblau".encode()),
        ("data.csv", "gr\u00fcn\r\nblau".encode("cp1252")),
    ],
)
async def test_C089_text_in_any_encoding_is_shown_as_text(store: ArtifactStore, name: str, data: bytes) -> None:
    """With the marks and line ends of its system left away."""
    handle = await save(store, data, name)
    assert body(await Retrieval(store, scope=SCOPE).retrieve(handle)) == {1: "gr\u00fcn", 2: "blau"}


async def test_other_bytes_are_described(store: ArtifactStore) -> None:
    """Type, size, hash and first bytes; they are not text, and searching them is an error."""
    handle = await save(store, b"%PDF-1.7\n" + bytes(1000), "report.pdf")
    record = await store.stat(handle, scope=SCOPE)
    retrieval = Retrieval(store, scope=SCOPE)
    answer = await retrieval.retrieve(handle)
    assert not answer.is_error
    for part in ("application/pdf", "1,009 bytes", record.sha256, "25 50 44 46", handle):
        assert part in answer.text
    assert (await retrieval.retrieve(handle, pattern="PDF")).is_error


async def test_an_image_is_shown_as_an_image(store: ArtifactStore) -> None:
    """With its handle; one that is too large for vendors is described."""
    handle = await save(store, PNG, "chart.png")
    retrieval = Retrieval(store, scope=SCOPE)
    answer = await retrieval.retrieve(handle)
    assert answer.parts[1:] == (ImagePart(PNG, "image/png", handle),)
    large = await save(store, PNG + bytes(MAX_IMAGE_BYTES), "large.png")
    answer = await retrieval.retrieve(large)
    assert [type(part) for part in answer.parts] == [TextPart]
    assert "too large to be shown" in answer.text


# -- references


async def dressed(store: ArtifactStore, record: Record) -> list[str]:
    """Every form in which a model may write a reference."""
    forms = [record.handle, record.handle.upper(), placeholder(record), record.name, f"{record.name}@{record.version}"]
    path = store.path(record)
    forms += [path] if path else []
    forms += [f"file://{path}"] if path and path.startswith("/") else []
    forms += [record.uri] if "://" in record.uri else []
    return [form for plain in forms for form in (plain, f"`{plain}`", f'"{plain}"', f"  '{plain}'\n")]


@pytest.mark.parametrize("kind", ["memory", "file absolute", "file relative"])
async def test_a_reference_is_understood_in_any_dress(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C080: handle, placeholder, name, path as configured, URI; in quotes, backticks and blanks, in a new process."""
    monkeypatch.chdir(tmp_path)
    url = {"memory": "memory://", "file absolute": f"file://{tmp_path}/kept", "file relative": "file:kept/here"}[kind]
    async with ArtifactStore.open(url) as store:
        await save(store, "other\n", "other.txt")
        handle = await save(store, "wanted\n", "charts/q 3.txt")
        record = await store.stat(handle, scope=SCOPE)
        path = store.path(record)
        assert (path is not None) is (kind != "memory")
        if path is not None:
            assert path.startswith("/") is (kind == "file absolute")
            assert (tmp_path / path).read_text(encoding="utf-8") == "wanted\n"
        for reference in await dressed(store, record):
            answer = await Retrieval(store, scope=SCOPE).retrieve(reference)
            assert body(answer) == {1: "wanted"}, reference


@pytest.mark.parametrize(
    "reference",
    [
        "../other/secret.txt",
        "{root}/../secret.txt",
        "file://{root}/%2e%2e/secret.txt",
        "/etc/passwd",
        "file:///etc/passwd",
        "file://elsewhere{root}/x",
        "s3://another-bucket/x",
        "https://example.org/x",
        "{root}2/x",
        "C:\\secret.txt",
        "..\\secret.txt",
        "name\0.txt",
        "",
        "``",
        "x" * 10_000,
    ],
)
async def test_what_lies_elsewhere_is_refused_early(
    reference: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another bucket, another root, a way out: refused by its text, before the store is asked for anything."""
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    async with ArtifactStore.open(f"file://{tmp_path}/kept") as store:
        asked: list[str] = []

        def listed(*_: object, **__: object) -> None:
            asked.append("list")

        monkeypatch.setattr(ArtifactStore, "list", listed)
        answer = await Retrieval(store, scope=SCOPE).retrieve(reference.format(root=f"{tmp_path}/kept"))
        assert answer.is_error
        assert "secret\n" not in answer.text
        assert len(answer.text) < 600
        assert not asked


async def test_two_handles_are_one_too_many(store: ArtifactStore) -> None:
    """The answer says so instead of choosing."""
    first, second = await save(store, "a"), await save(store, "b")
    answer = await Retrieval(store, scope=SCOPE).retrieve(f"{first} {second}")
    assert answer.is_error
    assert "2 handles" in answer.text


async def test_another_scope_reads_nothing(store: ArtifactStore) -> None:
    """A foreign handle, name or path reads as one that never was."""
    handle = await save(store, "secret", "plan.txt", scope="run-2")
    retrieval = Retrieval(store, scope=SCOPE)
    unknown = "runenv+file://00000000-0000-4000-8000-000000000000"
    foreign = await retrieval.retrieve(handle)
    assert foreign.is_error
    assert foreign.text.replace(handle, "H") == (await retrieval.retrieve(unknown)).text.replace(unknown, "H")
    assert (await retrieval.retrieve("plan.txt")).is_error


async def test_C102_a_lost_entry_sends_nobody_back(store: ArtifactStore) -> None:
    """Deleted: not available, go on with the preview; never a word about running the tool again."""
    handle = await save(store, "text", "result.txt")
    await store.delete(handle, scope=SCOPE)
    for reference in (handle, "result.txt"):
        answer = await Retrieval(store, scope=SCOPE).retrieve(reference)
        assert answer.is_error
        assert "not available: go on with the preview of it" in answer.text
        assert not re.search(r"\b(re-?run|again|retry|re-?execute)\b", answer.text, re.IGNORECASE)


@pytest.mark.slow
async def test_200_megabytes_are_read_in_flat_memory(tmp_path: Path) -> None:
    """Lines and one endless line, by page, by search and from the end."""
    big = tmp_path / "big.log"
    with big.open("wb") as file:
        for number in range(100):
            file.write(b"".join(b"%012d a line of a log\n" % (number * 31_250 + line) for line in range(31_250)))
        for _ in range(100):
            file.write(b"y" * 1_000_000)
    async with ArtifactStore.open(f"file://{tmp_path}/kept") as store:
        handle = await store.put(big, filename="big.log", scope=SCOPE)
        retrieval = Retrieval(store, scope=SCOPE)
        tracemalloc.start()
        try:
            first = await retrieval.retrieve(handle)
            late = await retrieval.retrieve(handle, offset=3_000_000, limit=2)
            window = await retrieval.retrieve(handle, offset=3_125_001, column=99_999_990)
            found = await retrieval.retrieve(handle, pattern="000003124999", context=0)
            last = await retrieval.retrieve(handle, from_end=True, offset=2, limit=1)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert "3,125,001 lines" in first.text
    assert body(late) == {number: f"{number - 1:012d} a line of a log" for number in (3_000_000, 3_000_001)}
    assert body(window) == {3_125_001: "y" * 11}
    assert body(found) == {3_125_000: "000003124999 a line of a log"}
    assert body(last) == body(found)
    assert peak < 32 * 1024 * 1024
