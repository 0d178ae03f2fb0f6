"""Text, and the choice of what shows a file: windows, encodings, what is refused, files of any size."""

from __future__ import annotations

import random
import threading
import tracemalloc
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runenv.config import DockerConfig, LocalConfig
from runenv.envs import open_env
from runenv.testing.fixtures import need_engine
from runenv.testing.scripted import ScriptedEnv
from runenv.tools import failures, text
from runenv.tools.encodings import detect
from runenv.tools.nearest import nearest
from runenv.tools.seen import WHOLE_BYTES
from runenv.types import ImagePart, TextPart
from tests.tools.files import Files, body, follows, rest_of_line, scripted
from tests.tools.images import FOLDER, NAMES, words
from tests.tools.images import seen as vendor_sees

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from runenv.env import RunEnv
    from runenv.types import ToolResult

pytestmark = pytest.mark.anyio

PYTHON: Final = "runenv/python:latest"
CHARACTERS: Final = "ab \té€\U0001f431中"
LINES: Final = st.lists(st.text(st.sampled_from(CHARACTERS), max_size=12), max_size=12)
CODES: Final = ("utf-8", "utf-8-sig", "utf-16", "utf-32", "utf-16-le")


@pytest.fixture(scope="module", params=["local", pytest.param("docker", marks=pytest.mark.docker)])
async def opened(request: pytest.FixtureRequest) -> AsyncIterator[RunEnv]:
    """An open env of each kind, with files that are hard to read."""
    if request.param == "docker":
        need_engine(PYTHON)
    config = LocalConfig() if request.param == "local" else DockerConfig(image=PYTHON, pull="never")
    async with open_env(config) as env:
        made = await env.exec(
            "truncate -s 10G sparse; (printf 'first line\\n'; head -c 8000 /dev/zero | tr '\\0' x; echo) > head;"
            " truncate -s 10G head; head -c 50000000 /dev/zero | tr '\\0' a > one; mkfifo pipe; ln -s pipe link;"
            " yes 'a line of text' | head -n 1000000 > lines; mkdir folder"
        )
        assert made.ok, made.stderr.text
        yield env


@pytest.fixture
def files(opened: RunEnv) -> Files:
    """The tools over it."""
    return Files(opened)


async def until_reached(files: Files, path: str, **arguments: int) -> ToolResult:
    """Call again as long as the answer says so, as a model would on a slow machine."""
    while (answer := await files.read(path, **arguments)).is_error:
        assert "Call again" in answer.text
    return answer


class TestOverEnvs:
    """What depends on the env."""

    async def test_C050_the_head_of_a_huge_file_is_shown_in_flat_memory(self, files: Files) -> None:
        """T2, C050: 10 GB, of which the first lines are text; only what is shown is ever held."""
        tracemalloc.start()
        try:
            with anyio.fail_after(10):
                answer = await files.read("head", limit=1)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert body(answer) == {1: "first line"}
        assert "more than" in answer.text.splitlines()[0]
        assert follows(answer) == {"offset": 2}
        assert peak < 20_000_000
        assert (await files.env.exec("echo ok")).stdout.text == "ok\n"

    async def test_C050_a_huge_binary_file_is_described(self, files: Files) -> None:
        """C050, T4: 10 GB of zeros are no text."""
        with anyio.fail_after(10):
            answer = await files.read("sparse")
        assert not answer.is_error
        assert "10,737,418,240 bytes" in answer.text
        assert "00 00 00" in answer.text

    async def test_a_line_of_50_megabytes_is_read_in_windows(self, files: Files) -> None:
        """T2: its start is shown and cut, and any other place of it by column."""
        with anyio.fail_after(10):
            first = await files.read("one")
            assert len(body(first)[1]) <= 2000
            assert rest_of_line(first)["offset"] == 1
            later = await until_reached(files, "one", column=20_000_000)
        assert body(later)[1].startswith("aaaa")
        assert rest_of_line(later)["column"] > 20_000_000
        assert len(later.text) <= 50_000

    async def test_a_late_line_of_a_large_file_is_reached(self, files: Files) -> None:
        """T2: perhaps by several calls, each of which goes on where the last one ended."""
        with anyio.fail_after(30):
            answer = await until_reached(files, "lines", offset=999_990, limit=5)
        assert body(answer) == dict.fromkeys(range(999_990, 999_995), "a line of text")
        end = await files.read("lines", offset=2_000_000)
        assert "1,000,000 lines" in end.text
        assert "line 2,000,000 is not there" in end.text

    @pytest.mark.parametrize("path", ["pipe", "link", "folder", "."])
    async def test_C037_what_is_no_file_is_refused_by_its_type(self, files: Files, path: str) -> None:
        """C037, T2: at once, since nothing is opened, with what to do instead."""
        with anyio.fail_after(5):
            answer = await files.read(path)
        assert answer.is_error
        assert ("FIFO" in answer.text) is (path in {"pipe", "link"})
        assert ("file_list" in answer.text) is (path in {"folder", "."})

    async def test_C037_devices_are_refused(self, files: Files) -> None:
        """C037: by whoever knows first: the tool, or the env that keeps to its folder."""
        for path in ("/dev/zero", "/dev/stdin"):
            with anyio.fail_after(5):
                answer = await files.read(path)
            assert answer.is_error
            assert path in answer.text

    async def test_a_file_that_hides_its_size_is_read(self, files: Files) -> None:
        """F5: /proc says 0 bytes of everything; in a local env it is outside."""
        answer = await files.read("/proc/self/status")
        assert answer.is_error is (files.env.kind == "local")
        assert answer.is_error or body(answer)[1].startswith("Name:")

    async def test_a_name_that_is_not_there_brings_similar_ones(self, files: Files) -> None:
        """T2: of the same folder."""
        answer = await files.read("line")
        assert answer.is_error
        assert "'lines'" in answer.text


def encoded(lines: list[str], code: str, end: str, *, ends: bool) -> bytes:
    """A file of these lines."""
    return (end.join(lines) + (end if ends and lines else "")).encode(code)


async def all_lines(data: bytes, **arguments: Any) -> dict[int, str]:  # noqa: ANN401
    """Read a file page by page, to its end."""
    async with scripted({"file.txt": data}) as files:
        found: dict[int, str] = {}
        answer = await files.read("file.txt", **arguments)
        while True:
            page = body(answer)
            assert not found.keys() & page.keys()
            found |= page
            if not (more := follows(answer)):
                return found
            assert more["offset"] == max(page) + 1
            answer = await files.read("file.txt", **{**arguments, **more})


@settings(deadline=None, max_examples=40)
@given(LINES, st.sampled_from(CODES), st.sampled_from(["\n", "\r\n"]), st.booleans(), st.integers(1, 5))
async def test_the_pages_of_a_text_are_the_text(
    lines: list[str],
    code: str,
    end: str,
    ends: bool,  # noqa: FBT001
    limit: int,
) -> None:
    """T2: in any encoding that says what it is, with any line ends, in pages of any size."""
    if code == "utf-16-le":
        lines = ["plain ASCII, so that half of its bytes are zero", *lines]
    data = encoded(lines, code, end, ends=ends)
    wanted = lines[:-1] if lines and not lines[-1] and not ends else lines
    found = await all_lines(data, limit=limit) if data.strip(b"\xff\xfe\xef\xbb\xbf\0") else {}
    assert found == dict(enumerate(wanted, 1)) or not any(wanted)


@settings(deadline=None, max_examples=40)
@given(st.text(st.sampled_from("ab€\U0001f600"), min_size=1, max_size=30), st.integers(100, 4000), st.booleans())
async def test_the_windows_of_a_long_line_are_the_line(piece: str, times: int, alone: bool) -> None:  # noqa: FBT001
    """T2: what is cut is cut visibly, and goes on at the column that is named."""
    line = piece * times

    async def read() -> str:
        async with scripted({"x": f"{line}\nlast\n"}) as files:
            arguments = {"limit": 1} if alone else {}
            found = ""
            while True:
                answer = await files.read("x", **arguments)
                assert len(answer.text) <= 50_000
                found += body(answer)[1].partition(" [cut: ")[0]
                if not (arguments := rest_of_line(answer)):
                    return found

    assert await read() == line


async def test_a_page_ends_on_a_whole_line_within_its_bounds() -> None:
    """T2: 2,000 lines, 2,000 characters a line, 50,000 characters in all."""
    async with scripted({"short": "x\n" * 5000, "wide": ("y" * 3000 + "\n") * 50}) as files:
        short, wide = await files.read("short", limit=9999), await files.read("wide")
    assert len(body(short)) == 2000
    assert follows(short) == {"offset": 2001}
    assert len(wide.text) <= 50_000
    assert len(body(wide)) > 20
    assert all(len(line) <= 2000 and "[cut: goes on at column=" in line for line in body(wide).values())
    assert follows(wide) == {"offset": max(body(wide)) + 1}


@pytest.mark.parametrize(
    ("data", "line", "note"),
    [
        (b"caf\xe9 menu\n", "café menu", "Latin-1"),
        ("名称,数量 苹果\n".encode("gbk"), "名称,数量 苹果", "GB18030"),
        ("こんにちは、世界\n".encode("cp932"), "こんにちは、世界", "Shift-JIS"),
        ("안녕하세요 세계\n".encode("euc_kr"), "안녕하세요 세계", "EUC-KR"),
        ("Привет, мир\n".encode("cp1251"), "Привет, мир", "1251"),
        ("5 \u20ac \u2026\n".encode("cp1252"), "5 \u20ac \u2026", "Windows-1252"),
        ("h\u00e9llo\n".encode("utf-16"), "h\u00e9llo", "UTF-16"),
        ("hello\n".encode("utf-16-be"), "hello", "UTF-16-BE"),
        ("h\u00e9llo\n".encode("utf-32"), "h\u00e9llo", "UTF-32"),
        ("\ufeffh\u00e9llo\n".encode(), "h\u00e9llo", "byte order mark"),
        ("ü ü ü ü ü ü \n".encode().replace(b" \n", b"\xff\n"), "ü ü ü ü ü ü\ufffd", "damaged"),
    ],
)
async def test_C034_text_in_another_encoding_is_readable(data: bytes, line: str, note: str) -> None:
    """C034, T2: with a note which one it is, or is taken for."""
    async with scripted({"menu.txt": data}) as files:
        answer = await files.read("menu.txt")
    assert body(answer) == {1: line}
    assert note in answer.text.splitlines()[0]


async def test_C034_the_encoding_shows_late_in_a_file() -> None:
    """C034: the first bytes may all be ASCII."""
    async with scripted({"x.txt": b"plain\n" * 20_000 + b"caf\xe9\n"}) as files:
        answer = await files.read("x.txt", offset=20_001)
    assert body(answer) == {20_001: "café"}


async def test_C034_a_workbook_is_described_in_words() -> None:
    """C034, T4: size, type, and the tools that there are."""
    head = b"PK\x03\x04" + bytes(22) + (19).to_bytes(2, "little") + bytes(2) + b"[Content_Types].xml"
    head += b"PK\x03\x04" + bytes(22) + (11).to_bytes(2, "little") + bytes(2) + b"xl/book.xml"
    async with scripted({"b.xlsx": head}) as files:
        answer = await files.read("b.xlsx")
    assert not answer.is_error
    assert "spreadsheetml" in answer.text
    assert f"{len(head)} bytes" in answer.text
    assert "with exec" in answer.text
    assert "artifact_save" not in answer.text


@pytest.mark.parametrize("name", ["notes.txt", "x.png", "x.pdf"])
async def test_C036_an_empty_file_is_said_to_be_empty(name: str) -> None:
    """C036: one text, no error and no image."""
    async with scripted({name: b""}) as files:
        answer = await files.read(name)
    assert not answer.is_error
    assert [type(part) for part in answer.parts] == [TextPart]
    assert "is empty" in answer.text


async def test_past_the_end_the_totals_are_told() -> None:
    """T2: of lines, and of the characters of one."""
    async with scripted({"x": "one\ntwo\n"}) as files:
        line, column = await files.read("x", offset=3), await files.read("x", offset=2, column=9)
        zero = await files.read("x", offset=0)
    assert "2 lines" in line.text
    assert "line 3 is not there: give an offset from 1 to 2" in line.text
    assert "line 2 ends before column 9" in column.text
    assert body(zero) == {1: "one", 2: "two"}


async def test_line_ends_and_control_characters_are_said() -> None:
    """T2: CRLF as plain lines; a control character as the picture of it."""
    async with scripted({"crlf": b"a\r\nb\r\n", "mixed": b"a\r\nb\n", "controls": b"a\x1b[0m\x0cb\n"}) as files:
        crlf, mixed, controls = [await files.read(name) for name in ("crlf", "mixed", "controls")]
    assert body(crlf) == body(mixed) == {1: "a", 2: "b"}
    assert "CRLF line ends" in crlf.text
    assert "mixed line ends" in mixed.text
    assert body(controls) == {1: "a\u241b[0m\u240cb"}
    assert "pictures" in controls.text


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.png", b"<svg xmlns='http://www.w3.org/2000/svg'/>"),
        ("b.jpg", b"<!doctype html><h1>404</h1>"),
        ("c.png", b'{"error": 1}'),
        ("d.png", b"[section]\nkey=1\n"),
    ],
)
async def test_C054_text_under_an_images_name_is_text(name: str, data: bytes) -> None:
    """C054, C060: with a note on the name, never an image."""
    async with scripted({name: data}) as files:
        answer = await files.read(name)
    assert [type(part) for part in answer.parts] == [TextPart]
    assert body(answer)[1] == data.decode().splitlines()[0]
    assert "its name says image/" in answer.text


@pytest.mark.parametrize("name", [name for name in NAMES if "bomb" not in name])
async def test_every_image_goes_the_way_of_images(name: str) -> None:
    """T3: C056, C059, C060 and C062 are the answers of `prepare`; here only that it is asked."""
    async with scripted({name: (FOLDER / name).read_bytes()}) as files:
        answer = await files.read(name)
    if any(isinstance(part, ImagePart) for part in answer.parts):
        assert vendor_sees(answer.parts) is not None
    assert "".join(words(answer.parts)) or vendor_sees(answer.parts) is not None


def lengths(files: Files) -> list[int]:
    """How much was asked for at once, each time."""
    asked = [call.arguments["length"] for call in files.calls if call.verb == "read"]
    return [length for length in asked if isinstance(length, int)]


async def test_an_image_that_is_too_large_is_refused_unread() -> None:
    """T3: a bounded read."""
    async with scripted({"x.png": b"\x89PNG\r\n\x1a\n" + bytes(65 * 1024 * 1024)}) as files:
        answer = await files.read("x.png")
        reads = lengths(files)
    assert answer.is_error
    assert "more than" in answer.text
    assert len(reads) == 1
    assert reads[0] <= 128 * 1024


async def test_what_does_not_fit_the_kind_is_refused() -> None:
    """T2: pages of a text, and a text as an image."""
    async with scripted({"x.txt": "a\n"}) as files:
        pages, image = await files.read("x.txt", pages="1"), await files.read("x.txt", show_as="image")
    assert pages.is_error
    assert image.is_error
    assert "pages" in pages.text


async def test_the_time_for_a_scan_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """T2: a line that was not reached is said so, and a repeated call goes on from there."""
    monkeypatch.setattr(text, "SCAN_SECONDS", -1.0)
    monkeypatch.setattr(text, "PAGE_SECONDS", 0.0)
    lines = (WHOLE_BYTES + 1_000_000) // 8
    async with scripted({"x": "1234567\n" * lines}) as files:
        first = await files.read("x", offset=lines - 1)
        known = await files.read("x", offset=1, limit=10)
        calls = 0
        answer: ToolResult = first
        while answer.is_error:
            assert "Call again" in answer.text
            assert f"sed -n '{lines - 1},{lines + 1998}p;{lines + 1998}q' x" in answer.text
            calls += 1
            answer = await files.read("x", offset=lines - 1)
    assert calls > 10
    assert body(answer)[lines - 1] == "1234567"
    assert len(body(known)) == 10


async def test_what_is_known_of_one_line_is_said_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """T2: of a file of which only the first line was reached."""
    monkeypatch.setattr(text, "SCAN_SECONDS", -1.0)
    async with scripted({"x": b"b" * (WHOLE_BYTES + 1_000_000)}) as files:
        answer = await files.read("x", offset=3)
    assert answer.is_error
    assert "1 line is known so far" in answer.text


@pytest.mark.timeout(120)
async def test_the_loop_turns_while_similar_names_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """T2: among names that differ only in the order of two letters, each of which takes long to compare."""
    letters, names = list("ab" * 90), set[str]()
    while len(names) < 1_000:
        random.Random(len(names)).shuffle(letters)
        names.add("".join(letters))
    turned = threading.Event()

    def waiting(*given: Any) -> list[int]:  # noqa: ANN401 - as they are
        return nearest(*given) if turned.wait(20) else []

    monkeypatch.setattr(failures, "nearest", waiting)
    held = {f"many/{name}": "" for name in names}
    async with anyio.create_task_group() as tasks, scripted(held) as files:

        async def read() -> None:
            answer = await files.read("many/" + "abba" * 45)
            assert answer.is_error
            assert "Similar names: 'many/" in answer.text

        tasks.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        turned.set()


@pytest.mark.parametrize("path", ["d/" * 2_500 + "x", "x" * 300, "\u00e9" * 2_000_000], ids=["path", "name", "text"])
async def test_a_path_that_is_too_long_is_said_to_be(env: RunEnv, path: str) -> None:
    """T1: by every tool, shortly, with what a path may be."""
    files = Files(env)
    read, listed = await files.read(path), await files.list(path)
    for answer in (read, listed, await files.write(path, ""), await files.edit(path, "a", "b")):
        assert answer.is_error
        assert "path" in answer.text
        assert "too long" in answer.text
        assert "4,095 bytes" in answer.text
        assert len(answer.text) < 600


async def test_an_endless_line_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """T2: what is before it is whole, and it is said that it goes on."""
    monkeypatch.setattr(text, "SCAN_SECONDS", -1.0)
    monkeypatch.setattr(text, "PAGE_SECONDS", 0.0)
    async with scripted({"x": "one\n" + "y" * (WHOLE_BYTES + 1)}) as files:
        answer = await files.read("x")
    assert body(answer)[1] == "one"
    assert "goes on for too long" in answer.text
    assert rest_of_line(answer)["offset"] == 2


async def test_a_text_is_streamed() -> None:
    """T2: no more than its first bytes is asked for at once, and its last line is found."""
    async with scripted({"x": "1234567\n" * 500_000}) as files:
        answer = await files.read("x", offset=500_000)
        reads = lengths(files)
    assert body(answer) == {500_000: "1234567"}
    assert reads
    assert max(reads) <= 128 * 1024


async def test_an_encoding_shows_late() -> None:
    """T2: what is no UTF-8 a long way behind the first bytes is not damage."""
    data = b"plain\n" * 100_000 + "caf\xe9 cr\xe8me\n".encode("latin-1") * 3
    async with scripted({"x": data}) as files:
        answer = await files.read("x", offset=100_001)
    assert body(answer)[100_002] == "caf\xe9 cr\xe8me"
    assert "Latin-1" in answer.text


class Log(ScriptedEnv):
    """An env in which a file grows whenever it is read."""

    @asynccontextmanager
    async def open_read(
        self, path: str, *, offset: int = 0, length: int | None = None
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        await self.write(path, b"one more\n", append=True)
        async with super().open_read(path, offset=offset, length=length) as chunks:
            yield chunks


async def test_a_file_that_changes_meanwhile_is_not_known() -> None:
    """T5: what was shown may be no state that it ever had, so no edit is based on it."""
    async with Log(files={"x": "line\n" * 50_000}) as env:
        files = Files(env)
        answer, written = await files.read("x"), await files.write("x", "new")
    assert "changed while it was read" in answer.text
    assert body(answer)[1] == "line"
    assert written.is_error
    assert "was not read" in written.text


@settings(deadline=None, max_examples=40)
@given(st.binary(max_size=300))
async def test_any_bytes_get_an_answer(data: bytes) -> None:
    """T1: whatever a file holds, reading it is no exception, and its text can be encoded."""
    async with scripted({"x": data}) as files:
        answer = await files.read("x")
    answer.text.encode()
    assert answer.parts


@given(st.binary(max_size=300))
def test_a_guessed_encoding_gives_the_same_bytes_again(data: bytes) -> None:
    """T5: or says that it cannot."""
    encoding = detect(data)
    try:
        decoded = encoding.decode(data)
    except UnicodeError:
        return
    assert encoding.encode(decoded) == data
