"""`WorkerProcess`: one image worker as its host sees it. Blocks; used by one thread at a time, killed from any.

The worker is `image_worker.py`, started with this Python, isolated and without its site: it sees no environment, no
current folder and no user's modules, imports nothing of this package but its own few files, and of everything else
only Pillow, from where the host would import it. What it answers is not trusted: bounded, checked, with a deadline.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import select
import signal
import subprocess
import sys
import threading
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from runenv.tools.image_wire import Facts, Outcome, Task, WireError

if TYPE_CHECKING:
    from typing import IO

__all__ = ("PROGRAM", "WorkerProcess")

PROGRAM: Final = """
import os, sys, types
package, *paths = sys.argv[1:]
for name, folder in (("runenv", package), ("runenv.tools", os.path.join(package, "tools"))):
    module = sys.modules[name] = types.ModuleType(name)
    module.__path__ = [folder]
sys.path += paths
from runenv.tools.image_worker import main
main()
"""
"""Runs the worker without running `runenv/__init__.py`, which would load what it has no use for."""
INHERITED: Final = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""Variables that the worker gets: an interpreter may not start without them."""
GRACE: Final = 5.0
"""Seconds beyond a task's own timeout that an answer may take: for the start of the worker, on a busy machine."""
EXIT_GRACE: Final = 1.0
"""Seconds that a worker whose stream has ended may take to exit by itself."""
CHUNK_BYTES: Final = 256 * 1024
"""Bounds one read from or write to the worker."""
OVERTIME_SIGNALS: Final = frozenset({signal.SIGALRM, signal.SIGXCPU})
_SIGNAL_BASE: Final = 128


class _BrokenError(Exception):
    """The worker gives no answer."""


class WorkerProcess:
    """A process, started when this is made.

    Args:
        program: Python text that it runs; another one in tests.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, program: str = PROGRAM) -> None:
        self._lock = threading.Lock()
        self._ended = False
        if not hasattr(os, "fork"):
            raise OSError(f"images are decoded on Linux and macOS, not on {sys.platform}")
        if not sys.executable or getattr(sys, "frozen", False):
            raise OSError("this program has no Python of its own that could run a worker")
        _forks_are_watched()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", program, str(Path(__file__).parent.parent), *_pillow()],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={name: os.environ[name] for name in INHERITED if name in os.environ},
            start_new_session=True,  # Ctrl-C in a terminal is for this program; killed as a group
        )
        assert self._process.stdin is not None  # noqa: S101 - both are pipes
        assert self._process.stdout is not None  # noqa: S101
        self._input: IO[bytes] = self._process.stdin
        self._output: IO[bytes] = self._process.stdout
        for stream in (self._input, self._output):
            os.set_blocking(stream.fileno(), False)
        _alive.add(self)

    @property
    def pid(self) -> int:
        """Of the process, and of its group."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """It cannot be asked any more."""
        return self._ended or self._process.poll() is not None

    def ask(self, task: Task, data: bytes) -> tuple[Facts, bytes]:
        """Have an image looked at.

        Returns:
            What the worker found and the result; or, of a worker that gave no answer in time and form, what is known of
            it. The process has ended then.
        """
        deadline = time.monotonic() + task.timeout + GRACE
        try:
            self._send(task.encode(), deadline)
            self._send(data, deadline)
            facts, detail_bytes, size = Facts.decode(self._receive(Facts.FRAME_BYTES, deadline), task)
            detail = self._receive(detail_bytes, deadline).decode("utf-8", "replace")
            image = self._receive(size, deadline)
        except _BrokenError:
            return self._fate(), b""
        except TimeoutError:
            self.end()
            return Facts(Outcome.TIMED_OUT), b""
        except WireError:
            self.end()
            return Facts(Outcome.CRASHED, detail="its answer made no sense"), b""
        return dataclasses.replace(facts, detail=detail), image

    def kill(self) -> None:
        """Kill it and what it has started; safe from any thread, at any time."""
        with self._lock:
            if not self._ended and self._process.returncode is None:
                self._kill_group()

    def end(self, grace: float = 0.0) -> None:
        """End it, wait for its end and let go of it.

        Args:
            grace: seconds in which it may exit by itself.
        """
        self._input.close()
        if grace:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace)
        with self._lock:  # from here on its number may be another's
            if not self._ended and self._process.returncode is None:
                self._kill_group()
                self._process.wait()
            self._ended = True
        self._output.close()
        _alive.discard(self)

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _fate(self) -> Facts:
        """Say what became of a worker whose stream has ended."""
        self.end(EXIT_GRACE)
        code = self._process.returncode
        number = -code if code < 0 else code - _SIGNAL_BASE
        if number in OVERTIME_SIGNALS:
            return Facts(Outcome.TIMED_OUT)
        named = number in signal.valid_signals()
        return Facts(Outcome.CRASHED, detail=signal.Signals(number).name if named else f"exit code {code}")

    def _send(self, data: bytes, deadline: float) -> None:
        view = memoryview(data)
        while view:
            self._wait(self._input, select.POLLOUT, deadline)
            try:
                view = view[os.write(self._input.fileno(), view[:CHUNK_BYTES]) :]
            except BlockingIOError:
                continue
            except BrokenPipeError as error:
                raise _BrokenError from error

    def _receive(self, size: int, deadline: float) -> bytes:
        pieces: list[bytes] = []
        while size:
            self._wait(self._output, select.POLLIN, deadline)
            piece = os.read(self._output.fileno(), min(size, CHUNK_BYTES))
            if not piece:
                raise _BrokenError
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def _wait(self, stream: IO[bytes], event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(stream.fileno(), event)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise TimeoutError

    def forget(self) -> None:
        """Let go of it in a forked child: it is the parent's."""
        self._process.returncode = 0  # or the child would wait for it
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for stream in (self._input, self._output):
            if not stream.closed:  # replaced, not closed: the child's copy still knows the number
                os.dup2(null, stream.fileno(), inheritable=False)
        os.close(null)


@cache
def _pillow() -> tuple[str, ...]:
    """Return the folders from which this process would import Pillow and its plugin for HEIC, without importing."""
    folders: dict[str, None] = {}
    for name in ("PIL", "pillow_heif", "pypdfium2", "pypdfium2_raw"):
        found = importlib.util.find_spec(name)
        for folder in (found.submodule_search_locations if found else None) or ():
            folders[str(Path(folder).parent)] = None
    return tuple(folders)


_alive: Final[WeakSet[WorkerProcess]] = WeakSet()


@cache
def _forks_are_watched() -> None:
    """Have a plain fork of this process keep no end of a worker's stream: it would outlive this process."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_let_go)


def _let_go() -> None:
    for worker in tuple(_alive):
        worker.forget()
    _alive.clear()
