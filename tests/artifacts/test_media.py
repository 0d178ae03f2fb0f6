"""Media types: the bytes first, the declared type second, the name third."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from runenv.artifacts.extensions import ALIASES, EXTENSIONS
from runenv.artifacts.media import HEAD_BYTES, charset, differs, essence, is_text, media_type

OFFICE = "application/vnd.openxmlformats-officedocument"
DOCX, PPTX, XLSX = (
    f"{OFFICE}.{kind}" for kind in ("wordprocessingml.document", "presentationml.presentation", "spreadsheetml.sheet")
)
UNKNOWN = "application/octet-stream"
JUNK = bytes(range(256)) * 4


def image(kind: str) -> bytes:
    """A real image, as a program writes it."""
    out = io.BytesIO()
    Image.new("RGB", (40, 30), "red").save(out, kind)
    return out.getvalue()


def archive(*names: str, method: int = zipfile.ZIP_DEFLATED, stream: bool = False) -> bytes:
    """A zip; as a stream the sizes stand behind the contents."""
    out = io.BytesIO()
    with zipfile.ZipFile(Pipe(out) if stream else out, "w", method) as made:
        for name in names:
            made.writestr(name, f"<{name}/>" * 40)
    return out.getvalue()


class Pipe(io.RawIOBase):
    """Something to write to that cannot go back."""

    def __init__(self, out: io.BytesIO) -> None:
        self.out = out

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        return self.out.write(data)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def opendocument(kind: str) -> bytes:
    """A zip whose first file, not compressed, is its type."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        made.writestr("mimetype", kind)
        made.writestr("content.xml", "<x/>")
    return out.getvalue()


def tar() -> bytes:
    """An archive as `tar` writes it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        made.addfile(tarfile.TarInfo("a.txt"))
    return out.getvalue()


CONTENTS_TYPES, RELS = "[Content_Types].xml", "_rels/.rels"
BY_BYTES = {
    "png": (image("PNG"), "image/png"),
    "jpeg": (image("JPEG"), "image/jpeg"),
    "gif": (image("GIF"), "image/gif"),
    "webp": (image("WEBP"), "image/webp"),
    "tiff": (image("TIFF"), "image/tiff"),
    "tiff, the other byte order": (b"MM\x00*\x00\x00\x00\x08", "image/tiff"),
    "bmp": (image("BMP"), "image/bmp"),
    "ico": (image("ICO"), "image/vnd.microsoft.icon"),
    "heic": (b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic", "image/heic"),
    "heic by a compatible brand": (b"\x00\x00\x00\x1cftypmif1\x00\x00\x00\x00mif1miafheic", "image/heic"),
    "avif": (b"\x00\x00\x00\x1cftypavif\x00\x00\x00\x00avifmif1miaf", "image/avif"),
    "mp4": (b"\x00\x00\x00\x18ftypisom\x00\x00\x02\x00isommp41", "video/mp4"),
    "mov": (b"\x00\x00\x00\x14ftypqt  \x00\x00\x02\x00qt  ", "video/quicktime"),
    "pdf": (image("PDF"), "application/pdf"),
    "pdf behind junk": (JUNK[:512] + b"%PDF-1.7\n", "application/pdf"),
    "rtf": (b"{\\rtf1\\ansi text}", "application/rtf"),
    "zip": (archive("a.txt", "b.txt"), "application/zip"),
    "empty zip": (archive(), "application/zip"),
    "zip with a folder called word": (archive("word/list.txt", "ppt/x"), "application/zip"),
    "docx": (archive(CONTENTS_TYPES, RELS, "word/document.xml"), DOCX),
    "pptx": (archive(CONTENTS_TYPES, RELS, "docProps/app.xml", "ppt/presentation.xml"), PPTX),
    "xlsx, content types last": (archive("docProps/app.xml", "xl/workbook.xml", CONTENTS_TYPES), XLSX),
    "docx written as a stream": (archive(CONTENTS_TYPES, RELS, "word/document.xml", stream=True), DOCX),
    "docx not compressed": (archive(CONTENTS_TYPES, RELS, "word/document.xml", method=zipfile.ZIP_STORED), DOCX),
    "odt": (opendocument("application/vnd.oasis.opendocument.text"), "application/vnd.oasis.opendocument.text"),
    "epub": (opendocument("application/epub+zip"), "application/epub+zip"),
    "zip that calls itself an image": (opendocument("image/png"), "application/zip"),
    "gzip": (gzip.compress(b"x"), "application/gzip"),
    "bzip2": (bz2.compress(b"x"), "application/x-bzip2"),
    "empty bzip2": (bz2.compress(b""), "application/x-bzip2"),
    "xz": (lzma.compress(b"x"), "application/x-xz"),
    "tar": (tar(), "application/x-tar"),
    "old office": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(504), "application/x-ole-storage"),
    "wav": (b"RIFF\x24\x00\x00\x00WAVEfmt ", "audio/wav"),
    "mp3 with tags": (b"ID3\x04\x00\x00\x00\x00\x00\x00", "audio/mpeg"),
    "mp3 without": (b"\xff\xfb\x90\x64" + bytes(100), "audio/mpeg"),
    "webm": (b"\x1a\x45\xdf\xa3\x9f\x42\x86\x81\x01\x42\x82\x84webm", "video/webm"),
    "sqlite": (b"SQLite format 3\x00\x10\x00", "application/vnd.sqlite3"),
    "svg": (b'<svg xmlns="http://www.w3.org/2000/svg"/>', "image/svg+xml"),
    "svg behind a prolog": (
        b'\xef\xbb\xbf<?xml version="1.0"?>\n<!-- <html> -->\n<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN">\n<svg/>',
        "image/svg+xml",
    ),
    "svg with a prefix": (b"<svg:svg xmlns:svg='http://www.w3.org/2000/svg'/>", "image/svg+xml"),
    "svg in UTF-16": ("\ufeff<svg/>".encode("utf-16-le"), "image/svg+xml"),
    "html": (b"<!DOCTYPE html><title>x</title>", "text/html"),
    "html without a doctype": (b"\n <HTML><body>", "text/html"),
    "xml": (b'<?xml version="1.0"?><note/>', "application/xml"),
    "xml, all comment": (b'<?xml version="1.0"?><!--' + b"x" * 9999, "application/xml"),
    "text": (b"hello\n", "text/plain"),
    "text like a bitmap": (b"BMW is a maker of cars in Munich\n", "text/plain"),
    "text like bzip2": (b"BZhang wrote this\n", "text/plain"),
    "text with colours": (b"\x1b[31mred\x1b[0m\n", "text/plain"),
    "text in UTF-8": ("Grüße, 世界 \U0001f600\n".encode(), "text/plain"),
    "text in UTF-16 with a mark": ("\ufeffGrüße\n".encode("utf-16-be"), "text/plain"),
    "text in UTF-16 without": ("Name,Wert\nGrüße,1\n".encode("utf-16-le"), "text/plain"),
    "text in UTF-32": ("\ufeffGrüße".encode("utf-32-le"), "text/plain"),
    "text in Windows-1252": ("Name;Größe \u2013 groß\n".encode("cp1252"), "text/plain"),
    "text cut within a character": (b"a" + "ü".encode() * HEAD_BYTES, "text/plain"),
    "nothing": (b"", "text/plain"),
    "junk": (JUNK, UNKNOWN),
    "zeros": (bytes(100), UNKNOWN),
    "random bytes": (b"\xfb\xff\xfe", UNKNOWN),
}


@pytest.mark.parametrize(("content", "kind"), BY_BYTES.values(), ids=list(BY_BYTES))
def test_A6_bytes_show_what_they_are(content: bytes, kind: str) -> None:
    """Whatever the name and the declared type say that they cannot be."""
    assert media_type(content, None, "file") == kind
    assert media_type(content[:HEAD_BYTES], "video/x-flv", "file") == ("video/x-flv" if kind == UNKNOWN else kind)


C089 = {
    "notes.md": (b"# Notes\n", None, "text/markdown"),
    "data.csv": ("Größe;Preis\n1;2 €\n".encode("cp1252"), None, "text/csv"),
    "привет.csv": ("Имя;Размер\n".encode("cp1251"), None, "text/csv"),
    "x.json": (b'{"a": 1}', None, "application/json"),
    "Makefile": (b"all:\n\techo\n", None, "text/plain"),
    "screenshot.txt": (image("PNG"), None, "image/png"),
    "table.csv": (b"a,b\n", "application/csv; charset=utf-8", "text/csv; charset=utf-8"),
    "table": (b"a,b\n", "TEXT/CSV ; header=present", "text/csv; header=present"),
    "empty.md": (b"# x\n", "", "text/markdown"),
    "photo.jpg": (image("JPEG"), "image/jpg", "image/jpeg"),
    "photo.png": (image("JPEG"), "image/png", "image/jpeg"),
    "deck.pptx": (archive("a.xml"), None, PPTX),
    "deck.PPTX": (archive("a.xml"), UNKNOWN, PPTX),
    "macros.docm": (
        archive(CONTENTS_TYPES, RELS, "word/document.xml"),
        None,
        "application/vnd.ms-word.document.macroenabled.12",
    ),
    "old.doc": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(504), None, "application/msword"),
    "feed.rss": (b'<?xml version="1.0"?><rss/>', None, "application/rss+xml"),
    "script.py": (b"#!/usr/bin/env python3\n", None, "text/x-python"),
    "model.bin": (JUNK, "application/x-model", "application/x-model"),
    "array.npy": (b"\x93NUMPY\x01\x00" + JUNK, None, "application/x-npy"),
    "broken.png": (JUNK, "image/png", UNKNOWN),
    "binary.txt": (JUNK, "text/plain", UNKNOWN),
    "empty.csv": (b"", None, "text/csv"),
    "empty.png": (b"", None, "text/plain"),
    "weird.txt": (b"x", "no type\r\nX-Injected: 1", "text/plain"),
    "weird.bin": (JUNK, "a/b; x=\u202e", UNKNOWN),
    "long.bin": (JUNK, "a/" + "b" * 1000, UNKNOWN),
}


@pytest.mark.parametrize(("name", "content", "declared", "kind"), [(name, *case) for name, case in C089.items()])
def test_C089_the_declared_type_and_the_name_say_what_the_bytes_leave_open(
    name: str, content: bytes, declared: str | None, kind: str
) -> None:
    """Texts and archives in particular; parameters are kept, and what the bytes contradict is not believed."""
    assert media_type(content, declared, name) == kind


def test_the_declared_type_goes_before_the_name() -> None:
    """Both may be true of the bytes."""
    assert media_type(b"a\tb\n", "text/tab-separated-values", "table.csv") == "text/tab-separated-values"


def test_parameters_stay_with_their_type_only() -> None:
    """A character set says nothing about an image."""
    assert media_type(image("PNG"), "text/plain; charset=utf-8", "x.txt") == "image/png"


@given(st.binary(max_size=300), st.one_of(st.none(), st.text(max_size=40)), st.text(max_size=20))
@example(b"BZh", "application/x-bzip2", "")
@example(b"PK\x03\x04" * 2000, None, "a.docx")
@example(b"PK\x03\x04\xff\xff" + b"\xff" * 100, None, "a.docx")
@example(b"\xff\xff\xff\xffftyp", None, "")
@example(b"\x00\x00\x00\x00ftypmif1", None, "")
@example(b"<!DOCTYPE", None, "")
@example(b"<?xml", None, "")
@example(b"BM\x00\x00\x00\x00\x00\x00\x00\x00", None, "")
@example(b"\xff\xfe\x00", None, "")
def test_any_bytes_have_a_type(content: bytes, declared: str | None, name: str) -> None:
    """Nothing raises, and the answer is one line that is a media type."""
    kind = media_type(content, declared, name)
    assert essence(kind)
    assert kind.isascii()
    assert kind.isprintable()


@pytest.mark.parametrize("start", [b"PK\x03\x04", b"<!---->", b"\x00\x00\xff\xffftypmif1", b"<", b" ", b"\xff\xfb"])
def test_only_the_head_is_looked_at(start: bytes) -> None:
    """100 MB of what looks like a beginning cost no more than its first 4 KiB."""
    long = start * (100_000_000 // len(start))
    assert media_type(long, None, "x") == media_type(long[:HEAD_BYTES], None, "x")


@given(st.binary(max_size=100), st.sampled_from(sorted(EXTENSIONS)))
def test_junk_is_never_called_an_image_by_its_name(content: bytes, extension: str) -> None:
    """W3 relies on it: a part that says image/png starts like a PNG."""
    kind = media_type(content, None, f"x{extension}")
    if kind in {"image/png", "image/jpeg", "image/gif", "image/webp"}:
        assert media_type(content, None, "") == kind


def test_aliases_lead_to_types_that_are_none() -> None:
    """One step, and no circles."""
    assert not set(ALIASES) & set(ALIASES.values())
    assert not set(ALIASES) & set(EXTENSIONS.values())


@pytest.mark.parametrize(
    ("one", "other", "different"),
    [
        ("text/csv", "text/csv; charset=utf-8", False),
        ("application/csv", "text/csv", False),
        ("IMAGE/JPG", "image/jpeg", False),
        ("image/png", "image/jpeg", True),
        ("text/plain", "text/markdown", True),
        ("image/png", None, False),
        ("image/png", " ", False),
        ("image/png", "nonsense", True),
        ("nonsense", "nonsense", True),
    ],
)
def test_a_mismatch_is_one_of_types(one: str, other: str | None, different: bool) -> None:  # noqa: FBT001
    """Parameters, case and aliases make none; what is no type at all is one."""
    assert differs(one, other) is different
    assert differs(other, one) is different


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("text/plain", True),
        ("text/csv; charset=utf-8", True),
        ("application/json", True),
        ("application/geo+json", True),
        ("image/svg+xml", True),
        ("application/yaml", True),
        ("application/sql", True),
        ("application/csv", True),
        ("image/png", False),
        ("application/pdf", False),
        (DOCX, False),
        (UNKNOWN, False),
        ("nonsense", False),
    ],
)
def test_C089_what_is_text_is_known(kind: str, text: bool) -> None:  # noqa: FBT001
    """Text-like types are shown as text, the others by name, type and size."""
    assert is_text(kind) is text


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("text/csv; charset=windows-1252", "cp1252"),
        ('text/csv; header=present; Charset = "UTF-8"', "utf-8"),
        ("text/csv", None),
        ("text/csv; charset=nonsense", None),
        ("text/csv; charset=base64", None),
        ("text/csv; charset=undefined", None),
        ("text/csv; charset=", None),
    ],
)
def test_the_character_set_is_one_that_decodes(kind: str, code: str | None) -> None:
    """Codes that turn bytes into bytes are none."""
    assert charset(kind) == code
