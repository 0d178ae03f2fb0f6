"""A program that the store's contract starts: it lets several processes write into one store, or kills one that does.

Reads a task as JSON from its input and writes the answer as JSON. It is run by its path, and imports only the store,
once: each process is forked from here, before anything of the store runs.

- `save`: `processes` processes save `count` versions of `name` each, all at once. Answer: handles by content.
- `kill`: puts of `size_bytes` each, the process of every one killed at another line of the store's code, at `points`
  lines spread over a whole put. Answer: how often that was, and the handles that were given out before, by content.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from runenv.artifacts import ArtifactStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from types import FrameType

WATCHED = f"{os.sep}runenv{os.sep}artifacts{os.sep}"
CHUNK_BYTES = 50_000


class LineTrap:
    """Counts lines of the store as they run, in all threads, and kills the process at one of them."""

    def __init__(self, fatal: int | None) -> None:
        self.lines = 0
        self._fatal = fatal

    def set(self) -> None:
        """Count from now on."""
        threading.settrace(self._call)
        sys.settrace(self._call)

    def _call(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:  # noqa: ARG002
        return self._line if WATCHED in frame.f_code.co_filename else None

    def _line(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any]:  # noqa: ARG002
        if event == "line":
            self.lines += 1
            if self.lines == self._fatal:
                os.kill(os.getpid(), signal.SIGKILL)
        return self._line


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), CHUNK_BYTES):
        yield data[start : start + CHUNK_BYTES]


def fork(work: Callable[[], Any]) -> int:
    """Run work in a new process, which writes one line of JSON with the result to our pipe."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            _say(work())
            status = 0
        finally:
            os._exit(status)
    return child


def _say(result: Any) -> None:  # noqa: ANN401 - what JSON holds
    os.write(PIPE[1], json.dumps(result).encode() + b"\n")  # short enough to be written at once


def _answers() -> list[Any]:
    os.close(PIPE[1])
    with os.fdopen(PIPE[0], "rb") as pipe:
        return [json.loads(line) for line in pipe]


# -- tasks


def save(task: dict[str, Any]) -> Any:  # noqa: ANN401 - what JSON holds
    """Let processes save versions of one name, all at once."""
    gate = os.pipe()

    async def work(number: int) -> dict[str, str]:
        handles = {}
        async with ArtifactStore.open(task["url"], options=task["options"]) as store:
            os.close(gate[1])
            os.read(gate[0], 1)  # until the parent, the last one who could write, has closed its end
            for count in range(task["count"]):
                text = f"{number}.{count}"
                handles[text] = await store.put(text.encode(), filename=task["name"], scope=task["scope"])
        return handles

    def run(number: int) -> dict[str, str]:
        return asyncio.run(work(number))

    children = [fork(partial(run, number)) for number in range(task["processes"])]
    os.close(gate[1])
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0] * len(codes), codes
    return {text: handle for handles in _answers() for text, handle in handles.items()}


def kill(task: dict[str, Any]) -> Any:  # noqa: ANN401 - what JSON holds
    """Kill writers, one after the other, each at another line."""

    def work(number: int, fatal: int | None) -> Any:  # noqa: ANN401 - what JSON holds
        data = f"{number:06}".encode() * (task["size_bytes"] // 6)
        trap = LineTrap(fatal)

        async def put() -> None:
            async with ArtifactStore.open(task["url"], options=task["options"]) as store:
                trap.set()
                source = _pieces(data) if number % 2 else data
                handle = await store.put(source, filename=task["name"], scope=task["scope"], ttl=None)
                _say({"number": number, "handle": handle})

        asyncio.run(put())
        return {"number": number, "lines": trap.lines}

    def run(number: int, fatal: int | None) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(fork(lambda: work(number, fatal)), 0)[1])

    # The first two, of either kind, live, and say how many lines there are.
    assert [run(number, None) for number in range(2)] == [0, 0]
    lines: list[int] = []
    while len(lines) < 2:
        answer = json.loads(_line())
        if "lines" in answer:
            lines.append(answer["lines"])
    killed = 0
    for number in range(2, 2 + task["points"]):
        fatal = 1 + (number - 2) * lines[number % 2] // task["points"]
        killed += run(number, fatal) == -signal.SIGKILL
    return {"killed": killed, "handles": [answer for answer in _answers() if "handle" in answer]}


def _line() -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(PIPE[0], 1)
    return line


if __name__ == "__main__":
    PIPE = os.pipe()
    TASK = json.load(sys.stdin)
    json.dump({"save": save, "kill": kill}[TASK["task"]](TASK), sys.stdout)
