"""The compiled guest when its link moves from stdin and stdout to a socket: what is taken, refused and a breach."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runenv.guest import frames
from runenv.guest.frames import Kind, Tag, Verb
from tests.guest.client import PATIENCE, Guest, hostile_frames, marked, wait_until

if TYPE_CHECKING:
    from tests.guest.conftest import Start


def gone(guest: Guest) -> int:
    """Return the exit code of a guest that ends by itself."""
    return guest.process.wait(PATIENCE)


def test_a_guest_goes_on_over_a_socket(start: Start, tmp_path: Path) -> None:
    """Commands and files, in windows that are larger than the socket's buffer, past the pipes."""
    guest = start()
    assert guest.exec("echo by pipe").out == b"by pipe\n"
    guest.move(tmp_path / "s")
    content = os.urandom(1_500_000)
    assert guest.exec("cat", stdin=content, keep=2_000_000).out == content
    assert guest.call(Verb.PUT, (Tag.PATH, b"f"), data=content).kind is Kind.RESULT
    assert guest.call(Verb.GET, (Tag.PATH, b"f")).main == content
    assert guest.exec("ls /proc/self/fd").out == b"0\n1\n2\n3\n", "commands inherit no descriptor"
    guest.send(frames.encode(0, Kind.BYE))
    assert gone(guest) == 0
    assert guest.process.stdout is not None
    assert guest.process.stdout.read() == b"", "it said something over the pipe that it had left"


@pytest.mark.parametrize("end", ["the first stream", "the socket"])
def test_the_end_of_either_stream_ends_a_guest_that_has_two(start: Start, tmp_path: Path, end: str) -> None:
    """The owner is gone, or the engine: the command ends too."""
    guest = start()
    connection = guest.move(tmp_path / "s")
    marker = f"runenv-{os.urandom(6).hex()}"
    guest.start_exec("sleep 1000", (Tag.ENV, f"MARKER={marker}".encode()))
    wait_until(lambda: marked(marker), "the command runs")
    assert guest.process.stdin is not None
    (guest.process.stdin if end == "the first stream" else connection).close()
    assert gone(guest) == 0
    wait_until(lambda: not marked(marker), "the command has ended")


def refused_by(guest: Guest, path: Path) -> int:
    """Return the number with which a guest says that it cannot connect, and that it serves on."""
    guest.connect(path)
    frame = guest.link_frame()
    assert (frame.call, frame.kind) == (0, Kind.CONNECT)
    (number,) = frames.decode_fields(frame.payload).values()
    assert guest.exec("echo on").out == b"on\n"
    assert isinstance(number, int)
    return number


def test_a_guest_that_cannot_connect_says_why_and_stays(start: Start, tmp_path: Path) -> None:
    """Nothing there, no socket, nobody who listens, nobody who accepts; and then it still may connect."""
    guest = start()
    assert refused_by(guest, tmp_path / "nothing") == errno.ENOENT
    assert refused_by(guest, tmp_path / "work") == errno.ECONNREFUSED
    with socket.socket(socket.AF_UNIX) as silent, socket.socket(socket.AF_UNIX) as other:
        silent.bind(str(tmp_path / "silent"))
        assert refused_by(guest, tmp_path / "silent") == errno.ECONNREFUSED
        silent.listen(0)
        other.connect(str(tmp_path / "silent"))
        assert refused_by(guest, tmp_path / "silent") == errno.EAGAIN
    guest.links.clear()
    guest.move(tmp_path / "s")
    assert guest.exec("echo moved").out == b"moved\n"


PATH, TOKEN = (Tag.PATH, b"/nonexistent/s"), (Tag.TOKEN, bytes(frames.TOKEN_BYTES))
DAMAGED: dict[str, bytes] = {
    "nothing": b"",
    "no path": frames.encode_fields([TOKEN]),
    "no token": frames.encode_fields([PATH]),
    "an empty path": frames.encode_fields([(Tag.PATH, b""), TOKEN]),
    "a path that is too long": frames.encode_fields([(Tag.PATH, b"/" * 108), TOKEN]),
    "a path with a NUL": frames.encode_fields([(Tag.PATH, b"/a\0b"), TOKEN]),
    "an abstract name": frames.encode_fields([(Tag.PATH, b"\0name"), TOKEN]),
    "a short token": frames.encode_fields([PATH, (Tag.TOKEN, bytes(frames.TOKEN_BYTES - 1))]),
    "a long token": frames.encode_fields([PATH, (Tag.TOKEN, bytes(frames.TOKEN_BYTES + 1))]),
    "broken fields": frames.encode_fields([PATH, TOKEN])[:-1],
}


@pytest.mark.parametrize("payload", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_connect_ends_the_guest(start: Start, payload: bytes) -> None:
    """With the reason, as for every breach."""
    guest = start()
    guest.send(frames.encode(0, Kind.CONNECT, payload))
    frame = guest.link_frame()
    assert frame.kind is Kind.BYE
    assert b"damaged connect" in frame.payload
    assert gone(guest) == 65


def test_the_longest_path_of_a_socket_is_taken(start: Start) -> None:
    """107 bytes: the kernel wants to see its end."""
    assert refused_by(start(), Path("/" * 2 + "x" * 105)) == errno.ENOENT


PING = frames.encode(0, Kind.PING)
IN_USE: dict[str, tuple[bytes, bytes]] = {
    "a call is open": (frames.encode(1, Kind.CALL, frames.encode_fields([(Tag.PATH, b"f")]), Verb.PUT), b""),
    "an answer is not sent yet": (PING, b""),
    "more follows at once": (b"", PING),
    "it has moved already": (b"", b""),
}


@pytest.mark.parametrize("what", IN_USE)
def test_a_link_that_is_in_use_is_not_moved(start: Start, tmp_path: Path, what: str) -> None:
    """Frames of one link would be on both streams."""
    guest = start()
    if what == "it has moved already":
        guest.move(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "unused"))
        listener.listen(1)
        connect = frames.encode_fields([(Tag.PATH, os.fsencode(tmp_path / "unused")), TOKEN])
        before, after = IN_USE[what]
        guest.send(before + frames.encode(0, Kind.CONNECT, connect) + after)
        frame = guest.link_frame()
        while frame.kind is Kind.PONG:
            frame = guest.link_frame()
        assert frame.kind is Kind.BYE
        assert b"in use" in frame.payload
        assert gone(guest) == 65
        listener.setblocking(False)  # noqa: FBT003 - the standard library has no keyword
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_bytes_over_the_stream_that_was_left_end_the_guest(start: Start, tmp_path: Path) -> None:
    """Nothing is said there any more."""
    guest = start()
    guest.move(tmp_path / "s")
    assert guest.process.stdin is not None
    guest.process.stdin.write(PING)
    frame = guest.link_frame()
    assert frame.kind is Kind.BYE
    assert b"had left" in frame.payload
    assert gone(guest) == 65


@pytest.mark.parametrize("seed", range(20))
def test_hostile_frames_over_a_socket_end_the_guest_and_nothing_else(start: Start, tmp_path: Path, seed: int) -> None:
    """As over the first stream."""
    guest = start()
    connection = guest.move(tmp_path / "s")
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        guest.send(hostile_frames(seed))
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
    with contextlib.suppress(ConnectionResetError):
        while connection.recv(1 << 16):
            pass
    assert gone(guest) in {0, 65}
