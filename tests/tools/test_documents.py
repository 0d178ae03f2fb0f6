"""PDFs, notebooks, archives and other binary files: what is shown of them, and that no file of them does harm."""

from __future__ import annotations

import asyncio
import base64
import bz2
import contextlib
import errno
import gzip
import io
import json
import lzma
import re
import tarfile
import threading
import zipfile
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
import anyio.to_thread
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from runenv.errors import ToolError
from runenv.testing.scripted import ScriptedEnv
from runenv.tools import archive_streams, archive_tar, archives, notebooks
from runenv.tools.image_decoding import prepare_formats
from runenv.tools.image_wire import Facts, Outcome, Task, WireError
from runenv.tools.images import aclose
from runenv.tools.pdf import MAX_PAGES, parse_pages
from runenv.tools.pdf_decoding import look_page
from runenv.tools.seen import WHOLE_BYTES
from runenv.types import ImagePart, TextPart
from tests.tools.files import Files, body, scripted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from runenv.types import ToolResult

pytestmark = pytest.mark.anyio

TEXT_TASK: Final = Task("PDFTEXT", frozenset(), 2000, 200_000, 50_000_000, 1 << 30, 20.0, 0, 1)


@pytest.fixture(scope="module", autouse=True)
async def workers_end() -> AsyncIterator[None]:
    """The workers of this process end with the tests of this file."""
    yield
    await aclose()


def a_pdf(pages: Sequence[str], *, encrypt: str = "") -> bytes:
    """A PDF with a line of text on each page; an empty text makes an empty page."""
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Count %d /Kids [%s] >>"
        % (len(pages), b" ".join(b"%d 0 R" % (4 + 2 * at) for at in range(len(pages)))),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for at, text in enumerate(pages):
        drawn = b"BT /F1 24 Tf 20 100 Td (%s) Tj ET" % text.encode("latin-1") if text else b""
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 200] /Contents %d 0 R"
            b" /Resources << /Font << /F1 3 0 R >> >> >>" % (5 + 2 * at)
        )
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(drawn), drawn))
    out, places = io.BytesIO(), list[int]()
    out.write(b"%PDF-1.4\n")
    for number, content in enumerate(objects, 1):
        places.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, content))
    start = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    out.write(b"".join(b"%010d 00000 n \n" % place for place in places))
    locked = encrypt.encode()
    out.write(b"trailer\n<< /Size %d /Root 1 0 R %s >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, locked, start))
    return out.getvalue()


class TestPdf:
    """T4: pages as text or images, at most 20 a call."""

    async def test_pages_come_as_text(self) -> None:
        """Each under its number, and what follows is named."""
        pytest.importorskip("pypdfium2")
        async with scripted({"x.pdf": a_pdf([f"This is page {number}" for number in range(1, 26)])}) as files:
            first = await files.read("x.pdf")
            some = await files.read("x.pdf", pages="2, 24-30")
        assert "25 pages" in first.text
        assert "--- page 20 ---\nThis is page 20" in first.text
        assert "This is page 21" not in first.text
        assert 'pages="21-25"' in first.text
        assert [line for line in some.text.splitlines() if line.startswith("This")] == [
            f"This is page {number}" for number in (2, 24, 25)
        ]
        assert "There is no page 26-30" in some.text

    async def test_pages_come_as_images(self) -> None:
        """Valid ones, within the limits, each after its number."""
        pytest.importorskip("pypdfium2")
        async with scripted({"x.pdf": a_pdf(["one", "two", "three"])}) as files:
            answer = await files.read("x.pdf", pages="1,3", show_as="image")
        images = [part for part in answer.parts if isinstance(part, ImagePart)]
        assert [part.text for part in answer.parts if isinstance(part, TextPart)][1:] == ["[page 1:]", "[page 3:]"]
        assert len(images) == 2
        for image in images:
            with Image.open(io.BytesIO(image.data)) as picture:
                picture.load()
                assert picture.size == (1600, 1067)
                assert picture.convert("L").histogram()[:128] != [0] * 128

    async def test_a_page_without_text_says_so(self) -> None:
        """A scan is looked at as an image."""
        pytest.importorskip("pypdfium2")
        async with scripted({"x.pdf": a_pdf(["one", ""])}) as files:
            answer = await files.read("x.pdf")
        assert 'Page 2 has no text: look at it with show_as="image"' in answer.text

    async def test_text_ends_on_a_whole_page_within_its_bounds(self) -> None:
        """50,000 characters in all."""
        pytest.importorskip("pypdfium2")
        async with scripted({"x.pdf": a_pdf(["word " * 4000] * 4)}) as files:
            answer = await files.read("x.pdf")
        assert len(answer.text) <= 50_000
        assert 'pages="3-4"' in answer.text

    @pytest.mark.parametrize("pages", ["99", "0", "x", "5-2", "1-30", "-3", "1-21"])
    async def test_pages_that_are_not_there_are_refused(self, pages: str) -> None:
        """With what to write instead."""
        pytest.importorskip("pypdfium2")
        async with scripted({"x.pdf": a_pdf(["one"])}) as files:
            assert (await files.read("x.pdf", pages=pages)).is_error

    @pytest.mark.parametrize(
        ("data", "wanted"),
        [
            (b"%PDF-1.7\n" + bytes(range(256)) * 9, "damaged"),
            (a_pdf(["one"])[:200], "damaged"),
            (a_pdf(["one"], encrypt="/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O (x) /U (y) >>"), "PDF"),
        ],
    )
    async def test_a_pdf_that_cannot_be_shown_is_described(self, data: bytes, wanted: str) -> None:
        """C036, T4: in words, without an error."""
        async with scripted({"x.pdf": data}) as files:
            answer = await files.read("x.pdf")
        assert not answer.is_error
        assert wanted in answer.text
        assert "first 64 bytes" in answer.text

    def test_without_the_library_a_pdf_is_described(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The extra is optional."""
        monkeypatch.setattr("runenv.tools.pdf_decoding.load", lambda: None)
        facts, data = look_page(a_pdf(["one"]), TEXT_TASK)
        assert facts.outcome is Outcome.UNSUPPORTED
        assert "installed" in facts.detail
        assert data == b""

    def test_a_worker_cannot_give_text_for_an_image(self) -> None:
        """W3: an answer of the other kind is none."""
        frame = Facts(Outcome.SHOWN, media_type="text/plain", shown_width=1, shown_height=1, frames=1).encode(9)
        task = Task("PNG", frozenset(), 2000, 200_000, 50_000_000, 1 << 30, 20.0, 0)
        with pytest.raises(WireError):
            Facts.decode(frame[: Facts.FRAME_BYTES], task)
        Facts.decode(frame[: Facts.FRAME_BYTES], TEXT_TASK)

    @given(st.lists(st.integers(1, 999), min_size=1, max_size=MAX_PAGES, unique=True))
    def test_pages_are_read_as_they_are_written(self, pages: list[int]) -> None:
        """In this order."""
        assert parse_pages(", ".join(map(str, pages))) == pages

    @given(st.text("0123456789-, ;x", max_size=20))
    def test_no_text_asks_for_too_many_pages(self, text: str) -> None:
        """Whatever it is."""
        try:
            pages = parse_pages(text)
        except ToolError:
            return
        assert 1 <= len(pages) <= MAX_PAGES
        assert min(pages) >= 1

    @settings(deadline=None, max_examples=40)
    @given(st.binary(max_size=200), st.integers(0, 600))
    def test_no_damage_is_an_exception(self, noise: bytes, at: int) -> None:
        """In the worker; what the library does worse ends with the child."""
        pytest.importorskip("pypdfium2")
        prepare_formats()
        whole = a_pdf(["one"])
        facts, _ = look_page(whole[:at] + noise + whole[at + len(noise) :], TEXT_TASK)
        assert facts.outcome <= Outcome.UNFIT


def picture(colour: str = "red") -> str:
    """Base64 of a PNG."""
    out = io.BytesIO()
    Image.new("RGB", (40, 20), colour).save(out, "PNG")
    return base64.b64encode(out.getvalue()).decode()


def code_cell(*outputs: dict[str, Any], source: object = "plot()\n") -> dict[str, Any]:
    """A cell with these outputs."""
    return {"cell_type": "code", "execution_count": 3, "source": source, "outputs": list(outputs)}


def shows(kind: str, value: object) -> dict[str, Any]:
    """An output in a form, and as text."""
    return {"output_type": "display_data", "data": {kind: value, "text/plain": "<Figure>"}}


class TestNotebooks:
    """T4: cells and outputs, images among them."""

    async def test_cells_and_outputs_are_shown(self) -> None:
        """In order, without terminal codes, with the image as an image."""
        cells = [
            {"cell_type": "markdown", "source": ["# Title\n", "text"]},
            code_cell(
                {"output_type": "stream", "name": "stdout", "text": ["one\n", "two\n"]},
                shows("image/png", picture()),
                {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["\x1b[31mTrace\x1b[0m", "E: v"]},
                {"output_type": "execute_result", "data": {"text/plain": "42"}},
            ),
        ]
        async with scripted({"n.ipynb": json.dumps({"cells": cells})}) as files:
            answer = await files.read("n.ipynb")
        assert list(body(answer).values()) == [
            "--- cell 1: markdown ---",
            "# Title",
            "text",
            "--- cell 2: code, executed as [3] ---",
            "plot()",
            "--- stdout of cell 2 ---",
            "one",
            "two",
            "--- output of cell 2 ---",
            "[image/png]",
            "--- error of cell 2 ---",
            "Trace",
            "E: v",
            "--- output of cell 2 ---",
            "42",
        ]
        assert [type(part) for part in answer.parts] == [TextPart, TextPart, ImagePart]
        assert "line 10" in answer.text

    async def test_C065_images_come_with_the_page_that_they_are_on(self) -> None:
        """C065: as images, once, and not too many; no base64 is in a text."""
        cells = [code_cell(shows("image/png", picture()), source="x") for _ in range(12)]
        async with scripted({"n.ipynb": json.dumps({"cells": cells})}) as files:
            first = await files.read("n.ipynb")
            page = await files.read("n.ipynb", offset=5, limit=4)
        assert sum(isinstance(part, ImagePart) for part in first.parts) == notebooks.MAX_IMAGES
        assert "4 more images are not shown: for them use offset=36" in first.text
        assert sum(isinstance(part, ImagePart) for part in page.parts) == 1
        assert picture()[:40] not in first.text
        assert follows_of(page) == {"offset": 9}

    async def test_the_json_is_shown_by_choice(self) -> None:
        """It is what file_edit edits."""
        text = json.dumps({"cells": [code_cell()]}, indent=1)
        async with scripted({"n.ipynb": text}) as files:
            answer = await files.read("n.ipynb", show_as="text")
        assert list(body(answer).values()) == text.splitlines()

    @pytest.mark.parametrize(
        "text", ["{", "[]", '{"cells": 1}', "[" * 100_000, '{"cells": ["x", {}, {"cell_type": 1, "outputs": [1]}]}']
    )
    async def test_what_is_no_notebook_is_text(self, text: str) -> None:
        """Or one without what a notebook has."""
        async with scripted({"n.ipynb": text}) as files:
            assert not (await files.read("n.ipynb")).is_error

    async def test_damaged_images_and_long_outputs_are_said(self) -> None:
        """No broken image is shown, and no output hides the others."""
        cells = [
            code_cell(shows("image/png", "%%%")),
            code_cell(shows("image/jpeg", base64.b64encode(b"\xff\xd8\xff nonsense").decode())),
            code_cell({"output_type": "stream", "name": "stdout", "text": "x\n" * 20_000}),
            code_cell({"output_type": "display_data", "data": {"application/x-own": 1}}),
        ]
        async with scripted({"n.ipynb": json.dumps({"cells": cells})}) as files:
            answer = await files.read("n.ipynb")
        assert not any(isinstance(part, ImagePart) for part in answer.parts)
        assert "damaged" in answer.text
        assert f"{40_000 - 2 * notebooks.OUTPUT_LINES + 1:,} more characters" in answer.text
        assert "[application/x-own]" in answer.text


def follows_of(answer: ToolResult) -> dict[str, int]:
    """What the first text of an answer says to go on with."""
    (first, *_) = answer.parts
    assert isinstance(first, TextPart)
    offset = first.text.rpartition("offset=")[2].partition(".")[0]
    return {"offset": int(offset)}


def a_tar(members: Sequence[tuple[str, bytes]], pack: Callable[[bytes], bytes] | None = None) -> bytes:
    """A tar with these files, compressed or not."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue() if pack is None else pack(out.getvalue())


def a_zip(members: Sequence[tuple[str, bytes]]) -> bytes:
    """A zip with these files."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 2, 3, 4, 5)), content)
    return out.getvalue()


MEMBERS: Final = (("one.txt", b"hello"), ("folder/two.txt", b"x" * 1000))


TAR_NAMES: Final = st.text(st.sampled_from("ab/\u00e9.\u4e2d"), min_size=1, max_size=160).filter(
    lambda name: len(name) < archives.NAME_CHARS // 2 and name.strip("/") != "" and not name.endswith("/")
)
TAR_TYPES: Final = (
    tarfile.REGTYPE,
    tarfile.REGTYPE,
    tarfile.DIRTYPE,
    tarfile.SYMTYPE,
    tarfile.LNKTYPE,
    tarfile.FIFOTYPE,
)


def a_member(name: str, kind: bytes, size: int) -> tarfile.TarInfo:
    """A member with data where it may have some, and a link where it is one."""
    member = tarfile.TarInfo(name)
    member.type = kind
    member.size = size if kind == tarfile.REGTYPE else 0
    member.linkname = f"to/{name[:80]}" if kind in {tarfile.SYMTYPE, tarfile.LNKTYPE} else ""
    member.mtime = size * 1_000.5
    return member


def shown_member(member: tarfile.TarInfo) -> str:
    """What a line of the answer says of it, as the standard library reads it."""
    kinds = {
        tarfile.DIRTYPE: "/",
        tarfile.SYMTYPE: " (link)",
        tarfile.LNKTYPE: " (hard link)",
        tarfile.FIFOTYPE: " (FIFO)",
    }
    return f"{member.name}{kinds.get(member.type, '')}{f' -> {member.linkname}' if member.linkname else ''}"


def listed(answer: ToolResult) -> list[tuple[int, str]]:
    """The sizes and names in an answer."""
    found = re.findall(r"^ *([\d,]+)  \d+-\d\d-\d\d \d\d:\d\d  (.*)$", answer.text, re.MULTILINE)
    return [(int(size.replace(",", "")), name) for size, name in found]


def a_header(kind: bytes, body: bytes) -> bytes:
    """What a tar says of its next member, whatever that is."""
    member = tarfile.TarInfo("header")
    member.type, member.size = kind, len(body)
    return member.tobuf(tarfile.USTAR_FORMAT) + body + bytes(-len(body) % 512)


class TestArchives:
    """T4: what is in them; nothing is unpacked."""

    @pytest.mark.parametrize("name", ["zip", "tar", "tar.gz", "tar.bz2", "tar.xz"])
    async def test_members_are_listed(self, name: str) -> None:
        """With sizes and times."""
        data = {
            "zip": lambda: a_zip(MEMBERS),
            "tar": lambda: a_tar(MEMBERS),
            "tar.gz": lambda: a_tar(MEMBERS, gzip.compress),
            "tar.bz2": lambda: a_tar(MEMBERS, bz2.compress),
            "tar.xz": lambda: a_tar(MEMBERS, lzma.compress),
        }[name]()
        async with scripted({f"x.{name}": data}) as files:
            answer = await files.read(f"x.{name}")
        assert not answer.is_error
        assert "2 members, 1,005 bytes unpacked" in answer.text
        assert [line.split()[-1] for line in answer.text.splitlines()[1:3]] == ["one.txt", "folder/two.txt"]

    async def test_a_large_archive_is_read_by_ranges(self) -> None:
        """Only the blocks that the list is in."""
        big = bytes(WHOLE_BYTES)
        async with scripted({"x.tar": a_tar((("big", big), *MEMBERS)), "x.zip": b"PK\x03\x04" + big}) as files:
            tar = await files.read("x.tar")
            read = sum(cast("int", call.arguments["length"]) for call in files.calls if call.verb == "read")
            broken = await files.read("x.zip")
        assert "3 members" in tar.text
        assert read < 1_000_000
        assert not broken.is_error
        assert "damaged" in broken.text

    async def test_many_members_are_counted(self) -> None:
        """And the first ones listed."""
        async with scripted({"x.zip": a_zip([(f"file-{number}", b"") for number in range(1000)])}) as files:
            answer = await files.read("x.zip")
        assert "1,000 members" in answer.text
        assert len(answer.text.splitlines()) == archives.MEMBERS + 2

    @pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
    async def test_a_bomb_is_given_up(self, pack: Callable[[bytes], bytes]) -> None:
        """A tar that becomes 40 MB while it is looked through; what came before is listed."""
        header = tarfile.TarInfo("zeros")
        header.size = 40_000_000
        data = pack(a_tar(MEMBERS)[:2560] + header.tobuf() + bytes(header.size))
        with anyio.fail_after(30):
            async with scripted({"x": data}) as files:
                answer = await files.read("x")
        assert "at least" in answer.text
        assert "not unpacked here" in answer.text

    @pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
    @settings(deadline=None, max_examples=40)
    @given(
        members=st.lists(st.builds(a_member, TAR_NAMES, st.sampled_from(TAR_TYPES), st.integers(0, 3_000)), max_size=5)
    )
    async def test_what_python_writes_into_a_tar_is_listed(self, format: int, members: list[tarfile.TarInfo]) -> None:
        """Names beyond the header, links, folders and times, in each of the formats."""
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=format) as archive:
            for member in members:
                with contextlib.suppress(ValueError):  # ustar has no room for it
                    archive.addfile(member, io.BytesIO(bytes(member.size)))
        out.seek(0)
        with tarfile.open(fileobj=out) as archive:
            wanted = [(member.size, shown_member(member)) for member in archive]
        async with scripted({"x.tar": out.getvalue(), "x.gz": gzip.compress(out.getvalue())}) as files:
            plain, packed = await files.read("x.tar"), await files.read("x.gz")
        for answer in (plain, packed) if wanted else ():
            assert listed(answer) == wanted
            assert "damaged" not in answer.text

    @settings(deadline=None, max_examples=30)
    @given(st.dictionaries(TAR_NAMES, st.integers(0, 300), max_size=5), st.binary(max_size=40), st.booleans())
    async def test_what_python_writes_into_a_zip_is_listed(
        self,
        members: dict[str, int],
        comment: bytes,
        large: bool,  # noqa: FBT001
    ) -> None:
        """With a comment at its end, something before it, and sizes of 64 bits."""
        out = io.BytesIO()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(zipfile, "ZIP64_LIMIT", 10 if large else 1 << 31)
            with zipfile.ZipFile(out, "w") as archive:
                archive.comment = comment
                for name, size in members.items():
                    info = zipfile.ZipInfo(name, (2026, 1, 2, 3, 4, 5))
                    archive.writestr(info, bytes(size))
        data = b"PK\3\4" + out.getvalue() if members else out.getvalue()
        async with scripted({"x.zip": data}) as files:
            answer = await files.read("x.zip")
        assert listed(answer) == [(size, name) for name, size in members.items()]
        assert "damaged" not in answer.text

    @pytest.mark.timeout(120)
    @pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE])
    async def test_a_header_full_of_digits_is_read_once(self, kind: bytes) -> None:
        """A pattern that is looked for at every place of it would hold up everybody for minutes."""
        body = b"1" * 60_000
        data = a_header(kind, body) * 50 + a_tar(MEMBERS)
        async with scripted({"x.tar": data, "x.gz": gzip.compress(data)}) as files:
            answers = await files.read("x.tar"), await files.read("x.gz")
        for answer in answers:
            assert [name for _, name in listed(answer)] == ["one.txt", "folder/two.txt"]

    @pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
    async def test_a_header_that_is_too_long_is_not_read(self, kind: bytes) -> None:
        """What came before is listed."""
        data = a_tar(MEMBERS)[:2560] + a_header(kind, b"1" * 3_000_000)
        async with scripted({"x.tar": data}) as files:
            answer = await files.read("x.tar")
            read = sum(cast("int", call.arguments["length"]) for call in files.calls if call.verb == "read")
        assert "at least 2 members" in answer.text
        assert "A header of 3,000,000 bytes follows" in answer.text
        assert read < 200_000

    async def test_the_records_of_all_headers_are_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """They cost more than their bytes."""
        monkeypatch.setattr(archive_tar, "MAX_RECORDS", 25)
        data = b"".join(a_header(tarfile.XHDTYPE, b"5 a=\n" * 10) + a_tar(MEMBERS)[:1024] for _ in range(3))
        async with scripted({"x.tar": data}) as files:
            answer = await files.read("x.tar")
        assert "at least 2 members" in answer.text
        assert "More headers are not looked at here" in answer.text

    @pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
    async def test_streams_one_behind_the_other_are_one_tar(self, pack: Callable[[bytes], bytes]) -> None:
        """As parallel compressors write them; too many of them are given up."""
        data = a_tar(MEMBERS)
        pieces = b"".join(pack(data[at : at + 700]) for at in range(0, len(data), 700))
        async with scripted({"x": pieces, "many": pack(data[:2560]) + pack(b"") * 2_000}) as files:
            answer, many = await files.read("x"), await files.read("many")
        assert "tar with 2 members" in answer.text
        assert "at least 2 members" in many.text
        assert "not unpacked here" in many.text

    async def test_a_cancel_ends_the_unpacking(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The piece that a thread is at is the last one."""
        threads: list[int] = []
        reached, go_on = threading.Event(), threading.Event()
        step = archive_streams._step

        def held(decompressor: bz2.BZ2Decompressor, data: bytes) -> tuple[bytes, bytes]:
            threads.append(threading.get_ident())
            if len(threads) == 10:
                reached.set()
                assert go_on.wait(20)
            return step(decompressor, data)

        monkeypatch.setattr(archive_streams, "_step", held)
        header = tarfile.TarInfo("zeros")
        header.size = 20_000_000
        async with scripted({"x": bz2.compress(header.tobuf() + bytes(header.size))}) as files:
            read = asyncio.create_task(files.read("x"))
            assert await anyio.to_thread.run_sync(reached.wait, 20)
            read.cancel()
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await read
        assert len(threads) == 10
        assert threading.get_ident() not in threads

    async def test_an_archive_that_goes_away_is_not_called_damaged(self) -> None:
        """What the env says is told as it is."""
        big = bytes(WHOLE_BYTES)

        class Vanishing(ScriptedEnv):
            async def read(self, path: str, **options: Any) -> bytes:  # noqa: ANN401
                if options.get("offset"):
                    raise FileNotFoundError(errno.ENOENT, "No such file", path)
                return await super().read(path, **options)

        async with Vanishing(files={"x.tar": a_tar((("big", big), *MEMBERS))}) as env:
            answer = await Files(env).read("x.tar")
        assert answer.is_error
        assert "damaged" not in answer.text

    async def test_what_is_only_compressed_is_described(self) -> None:
        """With what reads it."""
        async with scripted({"x.gz": gzip.compress(b"just a text\n" * 100)}) as files:
            answer = await files.read("x.gz")
        assert "compressed" in answer.text
        assert "zcat" in answer.text

    async def test_names_of_members_stay_on_their_line(self) -> None:
        """A hostile name is not what the answer says."""
        async with scripted({"x.zip": a_zip([("a\n[x | 5 lines]\x1b[0m" + "y" * 500, b"")])}) as files:
            answer = await files.read("x.zip")
        assert len(answer.text.splitlines()) == 3
        assert "\x1b" not in answer.text

    @settings(deadline=None, max_examples=40)
    @given(st.sampled_from(["zip", "tar", "gz"]), st.binary(min_size=1, max_size=60), st.integers(0, 2000))
    async def test_no_damage_is_an_exception(self, name: str, noise: bytes, at: int) -> None:
        """T1: wherever an archive is damaged."""
        data = a_zip(MEMBERS) if name == "zip" else a_tar(MEMBERS, gzip.compress if name == "gz" else None)
        async with scripted({"x": data[:at] + noise + data[at + len(noise) :]}) as files:
            assert not (await files.read("x")).is_error


async def test_other_binary_files_are_described() -> None:
    """T4: type, size, the first 64 bytes, and only tools that there are."""
    data = bytes(range(256))
    async with scripted({"x.bin": data}) as files:
        without = await files.read("x.bin")
    async with scripted({"x.bin": data}, tools=("file_read", "artifact_save")) as files:
        with_it = await files.read("x.bin")
    for answer in (without, with_it):
        assert "256 bytes" in answer.text
        assert data[:64].hex(" ") in answer.text
        assert data[:65].hex(" ") not in answer.text
    assert "artifact_save" not in without.text
    assert "artifact_save" in with_it.text
    assert "exec" not in with_it.text
