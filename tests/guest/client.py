"""A small blocking client that drives the compiled guest over plain pipes: what tests of the guest alone need."""

from __future__ import annotations

import os
import select
import subprocess
import time
from typing import TYPE_CHECKING, Self

from runenv.guest import frames
from runenv.guest.frames import Channel, Flag, Kind, Tag, Verb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

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

    def send(self, data: bytes) -> None:
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
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
        assert ready, "the guest said nothing"
        data = os.read(self.process.stdout.fileno(), 1 << 16)
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
        """Close the carrier and return the guest's exit code."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
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
