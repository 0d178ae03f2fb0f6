"""Media types of artifacts: by their first bytes, then as declared, then by the extension of the name. Pure.

The store asks `media_type` once, with the head of the content, and keeps the answer; a declared type that `differs` is
kept beside it, so that a mismatch stays visible. Below are only tables; nothing here opens a file or decodes an image.

An own table and no library: puremagic 1.30, measured on 2026-11-28, calls every zip and every OOXML file a docx and a
text that begins with "BM" a bitmap, knows no text without markup, and raises for what it does not know.

The rules. Bytes that show their type win. Where they show only a family (a zip, a text, XML), the declared type or the
extension names the member of it. A type that the bytes would show and do not (a PNG without a PNG's first bytes, a
text with NULs) is not believed. Aliases (`image/jpg`, `application/csv`) become the registered type. Parameters of a
declared type are kept when its type is, and never count in a comparison.
"""

from __future__ import annotations

import codecs
import re
import struct
from typing import TYPE_CHECKING, Final

from runenv.artifacts.extensions import ALIASES, EXTENSIONS, OLE_BASED, TEXT_TYPES, ZIP_BASED

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("HEAD_BYTES", "charset", "differs", "essence", "is_text", "media_type")

HEAD_BYTES: Final = 4096
"""What is looked at of the content: the first files of an OOXML package, the prolog of an XML document."""
UNKNOWN: Final = "application/octet-stream"
"""The type of content of which nothing is known."""

_TEXT: Final = "text/plain"
_ZIP: Final = "application/zip"
_OLE: Final = "application/x-ole-storage"
_XML: Final = "application/xml"
_HTML: Final = "text/html"
_SVG: Final = "image/svg+xml"
_BZIP2: Final = "application/x-bzip2"
_BZIP2_BLOCKS: Final = frozenset({b"1AY&SY", b"\x17rE8P\x90"})
_MATROSKA: Final = "video/x-matroska"
_MAX_TYPE: Final = 255
"""Characters of a declared type; a longer one is not a type."""
_PDF_WINDOW: Final = 1024
"""Bytes before the header of a PDF that readers forgive."""
_LEGACY_SHARE: Final = 0.3
"""Bytes outside ASCII that a text in an unknown 8-bit code may have when nothing else calls it a text."""

# Registrations at iana.org and the formats' own specifications; where those say no bytes, the WHATWG MIME Sniffing
# Standard. Each: where the bytes are, the bytes, the type.
_MAGIC: Final[tuple[tuple[int, bytes, str], ...]] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),  # W3C PNG 5.2
    (0, b"\xff\xd8\xff", "image/jpeg"),  # ITU T.81 B.1
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),  # GIF89a 17
    (0, b"II*\x00", "image/tiff"),  # TIFF 6.0 section 2
    (0, b"MM\x00*", "image/tiff"),
    (0, b"II+\x00", "image/tiff"),  # BigTIFF
    (0, b"MM\x00+", "image/tiff"),
    (0, b"%PDF-", "application/pdf"),  # ISO 32000 7.5.2
    (0, b"\x1f\x8b\x08", "application/gzip"),  # RFC 1952
    (0, b"BZh", _BZIP2),
    (0, b"\xfd7zXZ\x00", "application/x-xz"),
    (0, b"\x28\xb5\x2f\xfd", "application/zstd"),  # RFC 8878
    (0, b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (0, b"Rar!\x1a\x07", "application/vnd.rar"),
    (257, b"ustar", "application/x-tar"),  # POSIX pax
    (0, b"PK\x03\x04", _ZIP),  # APPNOTE 4.3.7
    (0, b"PK\x05\x06", _ZIP),  # an empty one
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", _OLE),  # MS-CFB 2.2
    (0, b"OggS", "application/ogg"),  # RFC 3533
    (0, b"fLaC", "audio/flac"),  # RFC 9639
    (0, b"ID3", "audio/mpeg"),
    (0, b"\x1a\x45\xdf\xa3", _MATROSKA),  # RFC 8794
    (0, b"SQLite format 3\x00", "application/vnd.sqlite3"),
    (0, b"PAR1", "application/vnd.apache.parquet"),
    (0, b"\x00asm", "application/wasm"),
    (0, b"\x7fELF", "application/x-elf"),
    (0, b"wOFF", "font/woff"),
    (0, b"wOF2", "font/woff2"),
    (0, b"OTTO\x00", "font/otf"),
    (0, b"\x00\x01\x00\x00\x00", "font/ttf"),
    (0, b"{\\rtf", "application/rtf"),
)
_RIFF: Final = {b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo"}
_BRANDS: Final = {  # ISO 14496-12 and 23008-12: what a file is, by its `ftyp` box
    b"avif": "image/avif",
    b"avis": "image/avif",
    b"heic": "image/heic",
    b"heix": "image/heic",
    b"heim": "image/heic",
    b"heis": "image/heic",
    b"hevc": "image/heic",
    b"mif1": "image/heif",
    b"msf1": "image/heif",
    b"qt  ": "video/quicktime",
    b"M4A ": "audio/mp4",
    b"M4B ": "audio/mp4",
}
_BITMAP_HEADERS: Final = frozenset({12, 16, 40, 52, 56, 64, 108, 124})
"""Sizes that a bitmap's second header may have; "BM" alone begins many a text."""
_OOXML: Final = {
    b"word/": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    b"ppt/": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    b"xl/": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
_PACKAGE: Final = (b"[Content_Types].xml", b"_rels/", b"docProps/")
"""Files that every OOXML package has; one of them must be seen, so that a zip with a folder `word` stays a zip."""
_LOCAL_FILE: Final = b"PK\x03\x04"
_LOCAL_HEADER_BYTES: Final = 30

_CERTAIN: Final = frozenset(
    {kind for _, _, kind in _MAGIC if kind != "audio/mpeg"} | {*_RIFF.values(), *_BRANDS.values(), "image/bmp"}
)
"""Types that content of them shows; content that does not show it is not of them."""
_FAMILIES: Final = {
    _ZIP: ZIP_BASED,
    _OLE: OLE_BASED,
    _HTML: frozenset({"application/xhtml+xml"}),
    "application/ogg": frozenset({"audio/ogg", "video/ogg"}),
    "video/mp4": frozenset({"audio/mp4", "video/3gpp", "video/quicktime", "video/x-m4v"}),
    _MATROSKA: frozenset({"audio/webm", "audio/x-matroska", "video/webm"}),
    "video/webm": frozenset({"audio/webm"}),
    "image/heif": frozenset({"image/heic"}),
    **dict.fromkeys(_OOXML.values(), ZIP_BASED),  # one with macros is told apart by its name only
}
"""What content of a type may be in particular; told by the declared type or the name."""

_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]*/[a-z0-9][a-z0-9!#$&^_.+-]*")  # RFC 6838 4.2
_PARAMETERS: Final = re.compile(r"[ -~]*")
_CHARSET: Final = re.compile(r";\s*charset\s*=\s*[\"']?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_BINARY: Final = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")  # WHATWG: a binary data byte
_BINARY_CHARACTER: Final = re.compile(r"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")
_BOMS: Final = (  # the longer first
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def media_type(head: bytes, declared: str | None, filename: str) -> str:
    """Return what content is.

    Args:
        head: its first `HEAD_BYTES` bytes, or all of it when it is shorter.
        declared: what the caller says that it is, with parameters or without; None, empty and
            `application/octet-stream` say nothing, and neither does what is no type at all.
        filename: its name; only the extension is looked at.

    Returns:
        A media type, in lower case; with the parameters of `declared` where that is the type. An empty content is
        what it is called, or text.
    """
    head = head[:HEAD_BYTES]
    said, parameters = _parse(declared or "")
    if said == UNKNOWN:
        said = ""
    named = EXTENSIONS.get("." + filename.rpartition(".")[2].lower(), "")
    shown = _sniff(head, text_expected=is_text(said or named))
    kind = next((candidate for candidate in (said, named) if candidate and _fits(candidate, shown)), shown or UNKNOWN)
    return kind + parameters if kind == said else kind


def essence(media_type: str) -> str:
    """Return a type without parameters, in lower case, aliases resolved; an empty string for what is no type."""
    return _parse(media_type)[0]


def differs(one: str | None, other: str | None) -> bool:
    """Say whether two media types name different types; parameters, case and aliases make no difference.

    A type that is missing or empty differs from none; one that is no media type at all differs from all.
    """
    if not (one or "").strip() or not (other or "").strip():
        return False
    return essence(one or "") != essence(other or "") or not essence(one or "")


def is_text(media_type: str) -> bool:
    """Say whether content of this type is read as text: `text/*`, JSON, XML, YAML and their like."""
    kind = essence(media_type)
    return kind.startswith("text/") or kind in TEXT_TYPES or kind.endswith(("+json", "+xml", "+yaml"))


def charset(media_type: str) -> str | None:
    """Return the character set that a type's parameters name, when Python knows it."""
    found = _CHARSET.search(media_type[:_MAX_TYPE])
    if found is None:
        return None
    try:
        "a".encode(found[1])  # `base64`, `zlib` and their like are codecs too, and refused here
        return codecs.lookup(found[1]).name
    except (LookupError, UnicodeError):
        return None


def _parse(declared: str) -> tuple[str, str]:
    """Split a type from its parameters (with their semicolon); two empty strings for what is no type."""
    if len(declared) > _MAX_TYPE:
        return "", ""
    kind, semicolon, parameters = declared.strip().partition(";")
    kind = kind.strip().lower()
    if not _TYPE.fullmatch(kind) or not _PARAMETERS.fullmatch(parameters):
        return "", ""
    parameters = parameters.strip()
    return ALIASES.get(kind, kind), f"; {parameters}" if semicolon and parameters else ""


def _fits(candidate: str, shown: str) -> bool:
    """Say whether what the bytes show leaves room for a candidate."""
    if not shown:  # unknown bytes, which are no text
        return candidate not in _CERTAIN and not is_text(candidate)
    if candidate == shown:
        return True
    if shown == _TEXT:
        return is_text(candidate)
    if shown == _XML:
        return candidate.endswith("+xml") or candidate == "text/xml"
    return candidate in _FAMILIES.get(shown, ())


def _sniff(head: bytes, *, text_expected: bool) -> str:
    """Return the type that the bytes show, or an empty string for bytes that are no text and show none."""
    return _by_magic(head) or _by_text(head, text_expected=text_expected) or _late_header(head)


def _by_magic(head: bytes) -> str:
    kind = next((kind for at, magic, kind in _MAGIC if head.startswith(magic, at)), "")
    if kind == _ZIP:
        return _zip(head)
    if kind == _BZIP2:
        return kind if head[4:10] in _BZIP2_BLOCKS else ""
    if kind == _MATROSKA and b"webm" in head[:64]:
        return "video/webm"
    return kind or _by_structure(head)


def _by_structure(head: bytes) -> str:
    """Look at formats whose first bytes alone are too little."""
    if head.startswith(b"RIFF"):
        return _RIFF.get(head[8:12], "")
    if head[4:8] == b"ftyp":
        return _brand(head)
    if head.startswith(b"BM") and _is_bitmap(head):
        return "image/bmp"
    if head.startswith(b"\x00\x00\x01\x00") and head[9:10] == b"\x00" and head[4:6] != b"\x00\x00":
        return "image/vnd.microsoft.icon"
    return ""


def _is_bitmap(head: bytes) -> bool:
    """Check the parts of a bitmap's headers that have few values."""
    return len(head) >= 18 and head[6:10] == bytes(4) and struct.unpack_from("<I", head, 14)[0] in _BITMAP_HEADERS  # noqa: PLR2004


def _brand(head: bytes) -> str:
    """Look at the brands of an ISO media file: its own, then those that it is compatible with."""
    size = min(struct.unpack_from(">I", head)[0], len(head))
    brands = [head[8:12], *(head[at : at + 4] for at in range(16, size - 3, 4))]
    if not brands[0].isascii() or len(brands[0]) < 4:  # noqa: PLR2004
        return ""
    kinds = [_BRANDS[brand] for brand in brands if brand in _BRANDS]
    if kinds and kinds[0] == "image/heif":  # any image: what it is coded with stands further on
        return next((kind for kind in kinds if kind in {"image/heic", "image/avif"}), "image/heif")
    if brands[0] in _BRANDS:
        return kinds[0]
    return "video/3gpp" if brands[0].startswith(b"3g") else "video/mp4"


def _zip(head: bytes) -> str:
    """Tell OOXML, OpenDocument and EPUB from other zips by the first files in them."""
    package, kind = False, ""
    for name, content in _members(head):
        if name == b"mimetype":  # OpenDocument and EPUB: the first file, not compressed, is the type
            declared = content.split(b"PK", 1)[0].decode("ascii", "replace").strip()
            return declared if declared in ZIP_BASED else _ZIP
        package = package or name.startswith(_PACKAGE)
        kind = kind or next((kind for folder, kind in _OOXML.items() if name.startswith(folder)), "")
    return kind if package and kind else _ZIP


def _members(head: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Name and first bytes of the files of which the head of a zip shows the header.

    Headers are searched for: the size of a file may stand after its content.
    """
    at = head.find(_LOCAL_FILE)
    while at >= 0:
        start = at + _LOCAL_HEADER_BYTES
        if start > len(head):
            return
        name_length, extra_length = struct.unpack_from("<HH", head, at + 26)
        content = start + name_length + extra_length
        yield head[start : start + name_length], head[content : content + 128]
        at = head.find(_LOCAL_FILE, start)


def _by_text(head: bytes, *, text_expected: bool) -> str:
    text = _decoded(head, text_expected=text_expected)
    return "" if text is None else _markup(text)


def _decoded(head: bytes, *, text_expected: bool) -> str | None:
    """Return the characters of a text, or None. Which ones matters only where they are ASCII."""
    for bom, code in _BOMS:
        if head.startswith(bom):
            return _checked(head[len(bom) :], code, cut=len(head) == HEAD_BYTES)
    if _BINARY.search(head):
        wide = _wide(head)
        return _checked(head, wide, cut=len(head) == HEAD_BYTES) if wide else None
    text = _checked(head, "utf-8", cut=len(head) == HEAD_BYTES)
    if text is None:
        high = sum(byte > 0x7F for byte in head)  # noqa: PLR2004
        if text_expected or high <= _LEGACY_SHARE * len(head):  # an 8-bit code of old, such as Windows' own
            return head.decode("latin-1")
    return text


def _wide(head: bytes) -> str | None:
    """Guess UTF-16 without a mark: mostly Latin, so that every other byte is zero and none of the others."""
    even, odd = head[::2], head[1::2]
    if len(odd) >= 4:  # noqa: PLR2004 - less is no evidence
        if 2 * odd.count(0) > len(odd) and not even.count(0):
            return "utf-16-le"
        if 2 * even.count(0) > len(even) and not odd.count(0):
            return "utf-16-be"
    return None


def _checked(data: bytes, code: str, *, cut: bool) -> str | None:
    """Decode; a character that the end of the head cuts is no error, a control character of binary data is."""
    try:
        text = codecs.getincrementaldecoder(code)().decode(data, final=not cut)
    except UnicodeDecodeError:
        return None
    return None if _BINARY_CHARACTER.search(text) else text


def _markup(text: str) -> str:
    """Tell SVG, HTML and other XML from plain text by the first element, behind declarations and comments."""
    declared, at = False, 0
    while True:
        at = _skip_blanks(text, at)
        if text.startswith("<?xml", at):
            declared = True
        for start, end in (("<?", "?>"), ("<!--", "-->")):
            if text.startswith(start, at):
                at = text.find(end, at + len(start)) + len(end)
                break
        else:
            break
        if at < 2:  # noqa: PLR2004 - not closed within the head
            return _XML if declared else _TEXT
    first = text[at : at + 64].lower()
    if first.startswith("<!doctype"):
        name = first[9:].split(maxsplit=1)
        root = name[0].partition(">")[0].partition("[")[0] if name else ""
    else:
        tag = re.match(r"<(?:[\w.-]+:)?([\w.-]+)", first)
        root = tag[1] if tag else ""
    return {"svg": _SVG, "html": _HTML}.get(root, _XML if declared else _TEXT)


def _skip_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n\f":
        at += 1
    return at


def _late_header(head: bytes) -> str:
    """Find what may begin with other bytes: a PDF behind junk, an MP3 without tags."""
    if b"%PDF-" in head[: _PDF_WINDOW + 5]:
        return "application/pdf"
    if len(head) > 3 and head[0] == 0xFF and head[1] in {0xFB, 0xF3, 0xF2, 0xFA} and head[2] >> 4 not in {0, 15}:  # noqa: PLR2004
        return "audio/mpeg"
    return ""
