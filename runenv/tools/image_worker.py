"""The program of an image worker: reads images on stdin, answers on stdout, forks a child for each.

Never imported by the host; `image_pool` starts it. One child for one image: what a hostile file does to a decoder ends
with the child, memory is given back, and the kernel's limits (address space, processor time, a clock that no loop in C
can hold up, no files) are new each time. When a child ends otherwise than by answering, the worker ends too, with its
code, and the host starts another. A stdin that ends, because the host closed it or was killed, ends both at once.

It bounds harm, and is not a sandbox: whoever takes over a decoder runs as this user.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import resource
import select
import signal
import sys
from typing import Final, NoReturn

from runenv.tools import pdf_decoding
from runenv.tools.image_decoding import look, prepare_formats
from runenv.tools.image_wire import Task

__all__ = ("main",)

SIGNAL_BASE: Final = 128
"""Added to the number of the signal that ended a child: the worker's exit code."""
READ_BYTES: Final = 1024 * 1024
"""Bounds one read."""


def main() -> None:
    """Answer until stdin ends."""
    prepare_formats()
    gc.freeze()  # pages shared with the children stay shared
    while frame := _read(Task.FRAME_BYTES):
        task = Task.decode(frame)
        if task.page:
            pdf_decoding.load()
        alive, held = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(alive)
            _answer(task)
        os.close(held)
        _watch(child, alive)
        os.close(alive)
        _, status = os.waitpid(child, 0)
        if code := os.waitstatus_to_exitcode(status):
            sys.exit(code if code > 0 else SIGNAL_BASE - code)


def _watch(child: int, alive: int) -> None:
    """Return when the child has ended, which closes its end of a pipe; kill it when nobody waits for its answer."""
    poll = select.poll()
    poll.register(alive, select.POLLIN)
    poll.register(sys.stdin.fileno(), 0)  # only its end: the child reads it
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == alive:
                return
            os.kill(child, signal.SIGKILL)
            poll.unregister(descriptor)


def _answer(task: Task) -> NoReturn:
    """Do the child's work; never returns."""
    code = 1
    try:
        _limit(task)
        data = _read(task.size)
        facts, image = pdf_decoding.look_page(data, task) if task.page else look(data, task)
        _write(facts.encode(len(image)))
        _write(image)
        code = 0
    finally:
        os._exit(code)


def _limit(task: Task) -> None:
    """Have the kernel end this process where it exceeds a limit."""
    for signal_number in (signal.SIGALRM, signal.SIGXCPU, signal.SIGPIPE):
        signal.signal(signal_number, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, task.timeout)
    seconds = math.ceil(task.timeout)
    for kind, bounds in (
        (resource.RLIMIT_AS, (task.max_memory_bytes, task.max_memory_bytes)),
        (resource.RLIMIT_CPU, (seconds, seconds + 1)),
        (resource.RLIMIT_FSIZE, (0, 0)),
        (resource.RLIMIT_CORE, (0, 0)),
    ):
        with contextlib.suppress(OSError, ValueError):  # macOS knows no bound of the address space
            resource.setrlimit(kind, bounds)


def _read(size: int) -> bytes:
    """Read exactly; less when stdin ends before."""
    pieces: list[bytes] = []
    while size and (piece := os.read(0, min(size, READ_BYTES))):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces) if not size else b""


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]
