"""Which characters the bytes of a text file are. Pure; guesses where the file does not say, and tells that it does.

A mark at the start is believed, then UTF-8, then zeros at every other byte (UTF-16), then the codes of old. Those are
told apart by how common their characters would be: no bytes are wrong in Latin-1, so that it is what remains.

Own rules and not charset-normalizer 3.5, tried on 2026-11-28: with these same codes to choose from it takes "café" in
Latin-1 for Cyrillic, and a small table in GBK for Korean.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from functools import cache
from typing import Final

from runenv.artifacts.media import HEAD_BYTES

__all__ = ("Detector", "Encoding", "LineEnds", "detect", "is_legacy_text", "line_ends")

SAMPLE_BYTES: Final = 64 * 1024
"""Bounds the lines that a guess is made from."""
DAMAGED_SHARE: Final = 0.2
"""Bytes that are no UTF-8, for each character beyond ASCII that is: of a text with fewer the rest is believed."""
COMMON_SHARE: Final = 0.8
"""Of the characters beyond ASCII, which must be common ones of a code for it to be believed."""
KANA_SHARE: Final = 0.2
"""Of the characters beyond ASCII of a Japanese text."""
HANGUL_SHARE: Final = 0.95
"""Of the characters beyond ASCII of a Korean text: those of Chinese look like Hangul for some 70 %."""
WORD_SHARE: Final = 0.6
"""Of the bytes beyond ASCII, which stand in words of such bytes in Cyrillic text; in Western text they stand alone."""

_MARKS: Final = (  # the longer first
    (codecs.BOM_UTF8, "utf-8", "UTF-8 with a byte order mark"),
    (codecs.BOM_UTF32_LE, "utf-32-le", "UTF-32, little-endian"),
    (codecs.BOM_UTF32_BE, "utf-32-be", "UTF-32, big-endian"),
    (codecs.BOM_UTF16_LE, "utf-16-le", "UTF-16, little-endian"),
    (codecs.BOM_UTF16_BE, "utf-16-be", "UTF-16, big-endian"),
)
_HIGH_WORD: Final = re.compile(rb"[\xa8\xb8\xa3\xb3\xc0-\xff]{3,}")
_LOWER_1251: Final = re.compile(rb"[\xe0-\xff]")
_LOWER_KOI8: Final = re.compile(rb"[\xc0-\xdf]")
_ASCII: Final = bytes(range(128))
_BINARY: Final = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a text is encoded.

    Attributes:
        codec: of Python; its decoder keeps no state but undecoded bytes. A mark at the start is not its business.
        mark: the byte order mark at the start, or nothing.
        label: for people; empty for UTF-8 without a mark.
        errors: how an editor decodes, so that encoding gives the same bytes again.
    """

    codec: str = "utf-8"
    mark: bytes = b""
    label: str = ""
    errors: str = "surrogateescape"

    def decode(self, data: bytes) -> str:
        """Return all characters of a file, so that `encode` gives the file again.

        Raises:
            UnicodeError: it cannot be done.
        """
        text = data[len(self.mark) :].decode(self.codec, self.errors)
        if self.encode(text) != data:
            raise UnicodeError(f"{self.codec} does not give the same bytes again")
        return text

    def encode(self, text: str) -> bytes:
        """Return the file.

        Raises:
            UnicodeEncodeError: a character does not exist in this code.
        """
        return self.mark + text.encode(self.codec, self.errors)


@dataclass(frozen=True, slots=True)
class LineEnds:
    """How the lines of a text end: as counted in a part of it."""

    crlf: int = 0
    lf: int = 0

    @property
    def label(self) -> str:
        """For people; empty for newlines alone."""
        if not self.crlf:
            return ""
        return "mixed line ends (CRLF and LF)" if self.lf else "CRLF line ends"


class Detector:
    """Learns how a text is encoded from its bytes as they pass; holds some lines of it."""

    def __init__(self) -> None:
        self._head = b""
        self._is_utf8 = True
        self._utf8 = codecs.getincrementaldecoder("utf-8")("strict")
        self._sample = _Sample()

    def add(self, data: bytes, *, final: bool = False) -> None:
        """Take the next bytes of the text, which is not binary.

        Args:
            data: any number of them.
            final: these are the last ones; without it the text may go on.
        """
        if len(self._head) < HEAD_BYTES:
            self._head += data[: HEAD_BYTES - len(self._head)]
        if self._is_utf8:
            try:
                self._utf8.decode(data, final)
            except UnicodeDecodeError:
                self._is_utf8 = False
        self._sample.add(data)

    def encoding(self) -> Encoding:
        """Say how what was taken is encoded."""
        for mark, codec, label in _MARKS:
            if self._head.startswith(mark):
                return Encoding(codec, mark, label, "surrogateescape" if codec == "utf-8" else "strict")
        if 0 in self._head:  # a text with zeros: UTF-16 without a mark
            codec = "utf-16-be" if self._head[0] == 0 else "utf-16-le"
            return Encoding(codec, b"", f"{codec.upper()}, by its zeros", "strict")
        if self._is_utf8:
            return Encoding()
        sample = self._sample.lines()
        return Encoding(label="UTF-8 with damaged characters") if _is_damaged_utf8(sample) else _legacy(sample)


def detect(data: bytes) -> Encoding:
    """Say how a text is encoded that is not binary."""
    detector = Detector()
    detector.add(data, final=True)
    return detector.encoding()


def is_legacy_text(head: bytes) -> bool:
    """Say whether bytes of which nothing is known are a text in a code of old that few bytes would fit by chance."""
    if _BINARY.search(head) or head.isascii():
        return False
    sample = _sample(head)
    return any(_score(sample, codec) >= COMMON_SHARE for codec in _CODES)


def line_ends(text: str) -> LineEnds:
    """Count the line ends of a text."""
    crlf = text.count("\r\n")
    return LineEnds(crlf, text.count("\n") - crlf)


class _Sample:
    """The lines of a text with bytes beyond ASCII, the first of them that fit."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._size = 0
        self._last = b""

    def add(self, data: bytes) -> None:
        if self._size >= SAMPLE_BYTES:
            return
        *lines, self._last = (self._last + data).split(b"\n")
        if len(self._last) > SAMPLE_BYTES:
            lines.append(self._last)
            self._last = b""
        for line in lines:
            self._take(line)

    def lines(self) -> bytes:
        """Return them; nothing can be added any more."""
        self._take(self._last)
        return b"\n".join(self._lines)

    def _take(self, line: bytes) -> None:
        if self._size < SAMPLE_BYTES and not line.isascii():
            self._lines.append(line[: SAMPLE_BYTES - self._size])
            self._size += len(self._lines[-1])


def _sample(data: bytes) -> bytes:
    sample = _Sample()
    sample.add(data)
    return sample.lines()


def _is_damaged_utf8(sample: bytes) -> bool:
    text = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode(sample)
    damaged = sum("\udc80" <= character <= "\udcff" for character in text)
    good = sum(character > "\x7f" for character in text) - damaged
    return good > 0 and damaged <= DAMAGED_SHARE * good


def _legacy(sample: bytes) -> Encoding:
    """Tell the codes of old apart."""
    best = max(((_score(sample, codec), codec, label) for codec, label in _CODES.items()), default=(0.0, "", ""))
    if best[0] >= COMMON_SHARE:
        return Encoding(best[1], label=f"{best[2]}, guessed", errors="strict")
    high = len(sample.translate(None, _ASCII))
    if sum(map(len, _HIGH_WORD.findall(sample))) >= WORD_SHARE * high:
        is_koi8 = len(_LOWER_KOI8.findall(sample)) > len(_LOWER_1251.findall(sample))
        codec, label = ("koi8-r", "KOI8-R") if is_koi8 else ("cp1251", "Windows-1251 (Cyrillic)")
        if _decoded(sample, codec) is not None:
            return Encoding(codec, label=f"{label}, guessed", errors="strict")
    if re.search(rb"[\x80-\x9f]", sample) and _decoded(sample, "cp1252") is not None:
        return Encoding("cp1252", label="Windows-1252, guessed", errors="strict")
    return Encoding("latin-1", label="Latin-1, guessed", errors="strict")


_CODES: Final = {
    "gb18030": "GB18030 (Chinese)",
    "big5": "Big5 (Chinese)",
    "cp932": "Shift-JIS (Japanese)",
    "euc_jp": "EUC-JP (Japanese)",
    "euc_kr": "EUC-KR (Korean)",
}


def _score(sample: bytes, codec: str) -> float:
    """Return which share of the characters beyond ASCII are common ones, or 0.0 where it cannot be this code."""
    text = _decoded(sample, codec)
    high = [character for character in text or "" if character > "\x7f"]
    if not high:
        return 0.0
    common, kana, hangul = _common(codec), 0, 0
    found = 0
    for character in high:
        found += character in common
        kana += "\u3041" <= character <= "\u30fe"
        hangul += "\uac00" <= character <= "\ud7a3"
    if codec in {"cp932", "euc_jp"}:
        if kana < KANA_SHARE * len(high):
            return 0.0
    elif kana >= KANA_SHARE * len(high):  # kana are in the Chinese codes too
        return 0.0
    if codec == "euc_kr" and hangul < HANGUL_SHARE * (len(high) - _marks(high)):
        return 0.0
    # Hangul alone is a stronger sign than common Chinese characters, of which there are more.
    return found / len(high) + (1.0 if codec == "euc_kr" else 0.0)


def _marks(characters: list[str]) -> int:
    """Count punctuation: the same in all of these codes."""
    return sum("\u3000" <= character <= "\u301f" or character >= "\uff00" for character in characters)


def _decoded(sample: bytes, codec: str) -> str | None:
    try:
        return codecs.getincrementaldecoder(codec)("strict").decode(sample)
    except UnicodeDecodeError:
        return None


@cache
def _common(codec: str) -> frozenset[str]:
    """Return punctuation, kana and the first level of a code, which holds what is in everyday use."""
    base, leads = {
        "gb18030": ("gb2312", (*range(0xA1, 0xA4), *range(0xB0, 0xD8))),
        "big5": ("big5", (*range(0xA1, 0xA4), *range(0xA4, 0xC7))),
        "cp932": ("euc_jp", (*range(0xA1, 0xA6), *range(0xB0, 0xD0))),
        "euc_jp": ("euc_jp", (*range(0xA1, 0xA6), *range(0xB0, 0xD0))),
        "euc_kr": ("euc_kr", (*range(0xA1, 0xA4), *range(0xB0, 0xC9))),
    }[codec]
    trails = (*range(0x40, 0x7F), *range(0xA1, 0xFF)) if base == "big5" else range(0xA1, 0xFF)
    pairs = (bytes((lead, trail)) for lead in leads for trail in trails)
    return frozenset("".join(pair.decode(base, "ignore") for pair in pairs))
