"""The frame codec between host and guest: bytes in, frames out. Pure; standard library only.

Above it is `link.py`; its twin in C is `src/frames.h`. This text is the specification of both.

A frame is a header of 12 bytes, little-endian, and a payload:

    u32 payload length   at most MAX_PAYLOAD
    u32 call             0 for the link itself, else an id chosen by the host, free again after RESULT or ERROR
    u8  kind             `Kind`
    u8  channel          CALL: the `Verb`; DATA: the `Channel`; else 0
    u16 zero

Payloads of HELLO, CALL, RESULT, ERROR, BYE and CONNECT are fields: `u8 tag`, `u32 length`, value. A number is 8 bytes,
signed, little-endian. A tag may repeat where the table says list. DATA is raw bytes (1 to MAX_DATA), CREDIT one u32.

HELLO: VERSION, WORKDIR, ENV*, FLAGS (CONFINE), SPILL_DIR and SPILL_QUOTA (the guest makes that folder), HOME (used
where the environment names none that is writable), SCRATCH (removed with all that is in it when the guest ends). Its
answer: VERSION, PID, UID, GID, WORKDIR (links resolved), HOME, SHELL (absent: the image has none), SPILL_DIR.

The guest says nothing before the host's HELLO, so that no byte can be lost between attach and start. The guest answers
with its HELLO, or with BYE and a MESSAGE when it cannot serve.

A call: the host sends CALL, then for PUT, TREE_PUT and EXEC with HAS_STDIN any number of DATA and one END. The guest
sends DATA (GET, TREE_GET, LIST, EXEC's kept output) and ends with one RESULT or ERROR, after which it ignores what
still comes for that id. CANCEL asks for an early end: EXEC kills its tree and answers RESULT; others undo and answer
ERROR with ECANCELED. There is always exactly one RESULT or ERROR for a CALL.

Flow control counts DATA payload bytes for each call and direction. Each side may send HOST_WINDOW (to the host) or
GUEST_WINDOW (to the guest) bytes at first, then as much more as CREDIT frames of that call grant. More is a breach: the
host declares the env lost, the guest exits.

CONNECT (call 0; PATH, TOKEN) asks the guest to go on over a unix socket. The host sends it at most once, while no call
is open, and then nothing until the answer. A guest that connects sends CONNECT with the TOKEN over the socket, and all
later frames of both sides go over that; over the first stream nothing is said any more, but its end is still the end of
the guest. One that cannot connect answers over the first stream, with the ERRNO, and stays there.

PING (call 0) is answered by PONG. BYE from the host asks the guest to exit; from the guest it says why it does.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = (
    "GUEST_WINDOW",
    "HEADER_BYTES",
    "HOST_WINDOW",
    "MAX_DATA",
    "MAX_PAYLOAD",
    "TOKEN_BYTES",
    "VERSION",
    "Channel",
    "Fields",
    "Flag",
    "Frame",
    "FrameDecoder",
    "FrameError",
    "Kind",
    "Tag",
    "Verb",
    "decode_fields",
    "encode",
    "encode_fields",
    "encode_header",
)

VERSION: Final = 2
"""Of the protocol; host and guest must agree exactly, the guest is delivered by its host."""

HEADER_BYTES: Final = 12
MAX_PAYLOAD: Final = 1 << 20
"""Bounds a CALL: command line, environment and patterns together."""
MAX_DATA: Final = 128 * 1024
"""Bounds one DATA frame."""
HOST_WINDOW: Final = 1 << 20
"""DATA bytes of one call that the guest may send ahead of the host's reader."""
GUEST_WINDOW: Final = 2 << 20
"""DATA bytes of one call that the host may send ahead of the guest's reader."""
TOKEN_BYTES: Final = 16
"""What tells the guest's connection to a socket from anybody else's."""

_HEADER: Final = struct.Struct("<IIBBH")
_FIELD: Final = struct.Struct("<BI")
_NUMBER: Final = struct.Struct("<q")


class FrameError(Exception):
    """Bytes that are no frame or no fields of this protocol."""


class Kind(enum.IntEnum):
    """What a frame is."""

    HELLO = 1
    CALL = 2
    DATA = 3
    END = 4
    CREDIT = 5
    CANCEL = 6
    RESULT = 7
    ERROR = 8
    PING = 9
    PONG = 10
    BYE = 11
    CONNECT = 12


class Verb(enum.IntEnum):
    """What a CALL asks for; its fields, and those of its RESULT.

    EXEC: SHELL or ARG*, CWD, ENV*, TIMEOUT_MS, KEEP, SPILL_AT, FLAGS -> EXIT_CODE or SIGNAL, FLAGS, DURATION_US,
        OUT_TOTAL, OUT_LINES, OUT_KEPT_HEAD, OUT_SPILL, OUT_SPILLED, and the same ERR_*.
    GET: PATH, OFFSET, LENGTH, LIMIT -> ENTRY (FileInfo of the open file), TOTAL (bytes sent).
    PUT: PATH, MODE, MTIME_NS, FLAGS (APPEND) -> TOTAL (bytes written).
    STAT: PATH, FLAGS (NO_FOLLOW) -> ENTRY.
    LIST: PATH, LIMIT (entries) -> TOTAL (entries); DATA is a run of ENTRY values.
    MKDIR: PATH, FLAGS (PARENTS, EXIST_OK). REMOVE: PATH, FLAGS (RECURSIVE, MISSING_OK). RENAME: PATH, TARGET.
    TREE_GET: PATH, INCLUDE*, EXCLUDE* -> FILES, TOTAL, REFUSED*, REFUSED_COUNT; DATA is a tar stream.
    TREE_PUT: PATH -> the same; DATA is a tar stream.
    """

    EXEC = 1
    GET = 2
    PUT = 3
    STAT = 4
    LIST = 5
    MKDIR = 6
    REMOVE = 7
    RENAME = 8
    TREE_GET = 9
    TREE_PUT = 10


class Channel(enum.IntEnum):
    """Which stream DATA belongs to."""

    MAIN = 0
    STDOUT = 1
    STDERR = 2


class Tag(enum.IntEnum):
    """Name of a field. Up to 63 a number, from 64 bytes; those named so in `_LISTS` may repeat."""

    VERSION = 1
    TIMEOUT_MS = 2
    KEEP = 3
    SPILL_AT = 4
    FLAGS = 5
    OFFSET = 6
    LENGTH = 7
    LIMIT = 8
    MODE = 9
    MTIME_NS = 10
    TOTAL = 11
    FILES = 12
    REFUSED_COUNT = 13
    ERRNO = 14
    EXIT_CODE = 15
    SIGNAL = 16
    DURATION_US = 17
    OUT_TOTAL = 18
    OUT_LINES = 19
    OUT_KEPT_HEAD = 20
    OUT_SPILLED = 21
    ERR_TOTAL = 22
    ERR_LINES = 23
    ERR_KEPT_HEAD = 24
    ERR_SPILLED = 25
    SPILL_QUOTA = 26
    UID = 27
    GID = 28
    PID = 29

    PATH = 64
    TARGET = 65
    ARG = 66
    SHELL = 67
    CWD = 68
    ENV = 69
    INCLUDE = 70
    EXCLUDE = 71
    MESSAGE = 72
    ENTRY = 73
    REFUSED = 74
    OUT_SPILL = 75
    ERR_SPILL = 76
    SPILL_DIR = 77
    HOME = 78
    WORKDIR = 79
    SCRATCH = 80
    TOKEN = 81


_LISTS: Final = frozenset({Tag.ARG, Tag.ENV, Tag.INCLUDE, Tag.EXCLUDE, Tag.REFUSED})
_FIRST_BYTES_TAG: Final = 64
# Looked up for every frame and field of every call: calling the enum takes ten times as long.
_TAGS: Final = {int(tag): tag for tag in Tag}
_KINDS: Final = {int(kind): kind for kind in Kind}


class Flag(enum.IntFlag):
    """Bits of FLAGS. HELLO: CONFINE. EXEC: HAS_STDIN; its RESULT: TIMED_OUT to CANCELLED."""

    APPEND = 1
    NO_FOLLOW = 2
    PARENTS = 4
    EXIST_OK = 8
    RECURSIVE = 16
    MISSING_OK = 32
    HAS_STDIN = 64
    CONFINE = 128
    TIMED_OUT = 256
    OOM_KILLED = 512
    BACKGROUND = 1024
    CANCELLED = 2048


Fields = dict[Tag, "int | bytes | list[bytes]"]
"""Decoded fields: a number, bytes, or for a list tag a list of bytes."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame as it came."""

    call: int
    kind: Kind
    channel: int
    payload: bytes


def encode_header(call: int, kind: Kind, length: int, channel: int = 0) -> bytes:
    """Return what goes before a payload of `length` bytes, for those who do not want that copied."""
    return _HEADER.pack(length, call, kind, channel, 0)


def encode(call: int, kind: Kind, payload: bytes | bytearray | memoryview = b"", channel: int = 0) -> bytes:
    """Return the bytes of one frame.

    Raises:
        ValueError: the payload is longer than MAX_PAYLOAD.
    """
    if len(payload) > MAX_PAYLOAD:
        message = f"a frame of {len(payload)} bytes is over the {MAX_PAYLOAD} that the guest takes"
        raise ValueError(message)
    return b"".join((encode_header(call, kind, len(payload), channel), payload))


def encode_fields(fields: Iterable[tuple[Tag, int | bytes]]) -> bytes:
    """Return a payload of fields, in the given order."""
    parts: list[bytes] = []
    for tag, value in fields:
        data = _NUMBER.pack(value) if isinstance(value, int) else value
        parts.append(_FIELD.pack(tag, len(data)))
        parts.append(data)
    return b"".join(parts)


def decode_fields(payload: bytes) -> Fields:
    """Read a payload of fields. Unknown tags are skipped.

    Raises:
        FrameError: it is cut short, a number is not 8 bytes, or a single tag repeats.
    """
    fields: Fields = {}
    position, size = 0, len(payload)
    while position < size:
        if size - position < _FIELD.size:
            raise FrameError("a field is cut short")
        tag_number, length = _FIELD.unpack_from(payload, position)
        start = position + _FIELD.size
        position = start + length
        if position > size:
            raise FrameError("a field is longer than its payload")
        tag = _TAGS.get(tag_number)
        if tag is None:
            continue
        if tag in _LISTS:
            values = fields.setdefault(tag, [])
            assert isinstance(values, list)  # noqa: S101 - a list tag holds nothing else
            values.append(payload[start:position])
        elif tag in fields:
            raise FrameError(f"field {tag.name} is given twice")
        elif tag_number >= _FIRST_BYTES_TAG:
            fields[tag] = payload[start:position]
        elif length == _NUMBER.size:
            (fields[tag],) = _NUMBER.unpack_from(payload, start)
        else:
            raise FrameError(f"field {tag.name} is no number")
    return fields


class FrameDecoder:
    """Cuts a byte stream into frames, however it arrives in pieces. Holds at most one frame's bytes plus one piece."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes | memoryview) -> Iterator[Frame]:
        """Take the next bytes and yield the frames that are complete.

        Raises:
            FrameError: what came is no frame; the stream cannot be read on.
        """
        self._buffer += data
        position = 0
        try:
            while len(self._buffer) - position >= HEADER_BYTES:
                length, call, kind_number, channel, zero = _HEADER.unpack_from(self._buffer, position)
                kind = _KINDS.get(kind_number)
                if kind is None:
                    raise FrameError(f"frames of kind {kind_number} are unknown")
                limit = MAX_DATA if kind is Kind.DATA else MAX_PAYLOAD
                if length > limit or zero:
                    raise FrameError(f"a {kind.name} frame of {length} bytes is out of bounds")
                end = position + HEADER_BYTES + length
                if len(self._buffer) < end:
                    break
                payload = bytes(memoryview(self._buffer)[position + HEADER_BYTES : end])
                position = end
                yield Frame(call, kind, channel, payload)
        finally:
            del self._buffer[:position]
