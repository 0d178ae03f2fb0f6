"""A small blocking client that drives the compiled guest over pipes or a socket: what tests of the guest alone need."""

from __future__ import annotations

import os
import random
import select
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from runenv.guest import frames
from runenv.guest.frames import Channel, Flag, Kind, Tag, Verb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PATIENCE = 20.0
"""Seconds until a guest that says nothing fails the test."""


class Answer:
    """What a call gave: its DATA by channel, then its fields."""

    def __init__(self) -> None:
        self.data: dict[int, bytearray] = {channel: bytearray() for channel in Channel}
        self.kind: Kind | None = None
        self.fields: frames.Fields = {}
        self.granted = 0

    @property
    def out(self) -> bytes:
        return bytes(self.data[Channel.STDOUT])

    @property
    def err(self) -> bytes:
        return bytes(self.data[Channel.STDERR])

    @property
    def main(self) -> bytes:
        return bytes(self.data[Channel.MAIN])

    def number(self, tag: Tag) -> int:
        value = self.fields[tag]
        assert isinstance(value, int)
        return value

    def has(self, flag: Flag) -> bool:
        return bool(self.number(Tag.FLAGS) & flag)


class Guest:
    """A running guest. `workdir` and the spill folder are the test's own."""

    def __init__(
        self, binary: Path, workdir: Path, *, spill: Path | None = None, flags: int = 0, quota: int = 1 << 28
    ) -> None:
        environment = {"PATH": os.environ["PATH"], "HOME": str(workdir)}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS"):
            if name in os.environ:
                environment[name] = os.environ[name]
        self.process = subprocess.Popen(
            [binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, bufsize=0
        )
        self.decoder = frames.FrameDecoder()
        self.answers: dict[int, Answer] = {}
        self.order: list[int] = []
        self.links: list[frames.Frame] = []
        self.next_call = 1
        self.connection: socket.socket | None = None
        hello: list[tuple[Tag, int | bytes]] = [
            (Tag.VERSION, frames.VERSION),
            (Tag.WORKDIR, os.fsencode(workdir)),
            (Tag.FLAGS, flags),
            (Tag.SPILL_QUOTA, quota),
        ]
        if spill is not None:
            hello.append((Tag.SPILL_DIR, os.fsencode(spill)))
        self.send(frames.encode(0, Kind.HELLO, frames.encode_fields(hello)))
        self.hello = self.link_frame()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def connect(self, path: Path, token: bytes = bytes(frames.TOKEN_BYTES)) -> None:
        """Ask it to go on over a socket."""
        fields = [(Tag.PATH, os.fsencode(path)), (Tag.TOKEN, token)]
        self.send(frames.encode(0, Kind.CONNECT, frames.encode_fields(fields)))

    def move(self, path: Path) -> socket.socket:
        """Go on over a socket at `path`, and return our end of it."""
        token = os.urandom(frames.TOKEN_BYTES)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen(1)
            listener.settimeout(PATIENCE)
            self.connect(path, token)
            self.connection, _ = listener.accept()
        frame = self.link_frame()
        assert (frame.call, frame.kind) == (0, Kind.CONNECT)
        assert frames.decode_fields(frame.payload) == {Tag.TOKEN: token}
        return self.connection

    def send(self, data: bytes) -> None:
        if self.connection is not None:
            self.connection.sendall(data)
            return
        assert self.process.stdin is not None
        view = memoryview(data)
        while view:
            view = view[self.process.stdin.write(view) or 0 :]

    def start(
        self, verb: Verb, fields: Iterable[tuple[Tag, int | bytes]], data: bytes = b"", *, end: bool = True
    ) -> int:
        """Send a call, its data within the first window, and END when it takes data."""
        call, self.next_call = self.next_call, self.next_call + 1
        self.answers[call] = Answer()
        parts = [frames.encode(call, Kind.CALL, frames.encode_fields(fields), int(verb))]
        parts += [frames.encode(call, Kind.DATA, data[at : at + 65536]) for at in range(0, len(data), 65536)]
        if end and (data or verb in (Verb.PUT, Verb.TREE_PUT)):
            parts.append(frames.encode(call, Kind.END))
        self.send(b"".join(parts))
        return call

    def pump(self, *, credit: bool = True, on_frame: Callable[[frames.Frame], object] = bool) -> bool:
        """Take what the guest says next; false at its end."""
        source = self.connection or self.process.stdout
        assert source is not None
        ready, _, _ = select.select([source], [], [], PATIENCE)
        assert ready, "the guest said nothing"
        data = os.read(source.fileno(), 1 << 16)
        for frame in self.decoder.feed(data):
            on_frame(frame)
            answer = self.answers.get(frame.call)
            if answer is None or frame.call == 0:
                self.links.append(frame)
            elif frame.kind is Kind.DATA:
                answer.data[frame.channel] += frame.payload
                if credit:
                    self.send(frames.encode(frame.call, Kind.CREDIT, len(frame.payload).to_bytes(4, "little")))
            elif frame.kind is Kind.CREDIT:
                answer.granted += int.from_bytes(frame.payload, "little")
            else:
                assert answer.kind is None, "a call was answered twice"
                answer.kind = frame.kind
                answer.fields = frames.decode_fields(frame.payload)
                self.order.append(frame.call)
        return bool(data)

    def wait(self, call: int, *, credit: bool = True) -> Answer:
        answer = self.answers[call]
        while answer.kind is None:
            assert self.pump(credit=credit), f"the guest ended: {self.process.wait()} {self.links}"
        return answer

    def call(self, verb: Verb, *fields: tuple[Tag, int | bytes], data: bytes = b"") -> Answer:
        return self.wait(self.start(verb, fields, data))

    def exec(
        self, command: str | list[str], *more: tuple[Tag, int | bytes], stdin: bytes | None = None, keep: int = 240_000
    ) -> Answer:
        return self.wait(self.start_exec(command, *more, stdin=stdin, keep=keep))

    def start_exec(
        self, command: str | list[str], *more: tuple[Tag, int | bytes], stdin: bytes | None = None, keep: int = 240_000
    ) -> int:
        what = (
            [(Tag.SHELL, command.encode())]
            if isinstance(command, str)
            else [(Tag.ARG, part.encode()) for part in command]
        )
        flags = [] if stdin is None else [(Tag.FLAGS, int(Flag.HAS_STDIN))]
        call = self.start(Verb.EXEC, [*what, (Tag.KEEP, keep), *flags, *more], stdin or b"", end=stdin is not None)
        if stdin == b"":
            self.send(frames.encode(call, Kind.END))
        return call

    def link_frame(self) -> frames.Frame:
        while not self.links:
            assert self.pump(), f"the guest ended: {self.process.wait()}"
        return self.links.pop(0)

    def end(self) -> int:
        """Close its carriers and return the guest's exit code."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if self.connection is not None:
            self.connection.close()
        self.process.stdin.close()
        try:
            code = self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            self.process.stdout.close()
        return code


def wait_until(condition: object, what: str) -> None:
    """Wait until `condition()` holds, for things that only /proc can tell."""
    assert callable(condition)
    stop = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < stop, f"it did not come true: {what}"
        time.sleep(0.002)


def marked(marker: str) -> list[int]:
    """Processes that carry the marker in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (
                    marker.encode() in (entry / "environ").read_bytes()
                    and (entry / "stat").read_text().split(")")[1].split()[0] != "Z"
                ):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def hostile_frames(seed: int) -> bytes:
    """Frames that are nearly right, and some that are not."""
    rng = random.Random(seed)
    parts = []
    for _ in range(60):
        kind = rng.choice([kind for kind in Kind if kind is not Kind.BYE or rng.random() < 0.1])
        fields = [(rng.choice(list(Tag)), rng.randrange(-(2**63), 2**63)) for _ in range(rng.randrange(4))]
        payload = frames.encode_fields(fields) if rng.random() < 0.6 else rng.randbytes(rng.randrange(300))
        if kind is Kind.CONNECT and rng.random() < 0.7:
            path = rng.choice([b"/nonexistent/s", b"\0abstract", rng.randbytes(rng.randrange(200))])
            payload = frames.encode_fields([(Tag.PATH, path), (Tag.TOKEN, rng.randbytes(rng.choice([16, 16, 15])))])
        if rng.random() < 0.3 and payload:
            payload = payload[: rng.randrange(len(payload))]
        frame = bytearray(frames.encode(rng.randrange(6), kind, payload, rng.randrange(12)))
        if rng.random() < 0.1:
            frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)
        parts.append(bytes(frame))
    return b"".join(parts)
