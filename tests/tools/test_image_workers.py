"""The workers: whatever happens to one, the caller gets an answer, and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from PIL import Image

from runenv.tools import images
from runenv.tools.image_pool import Workers
from runenv.tools.image_process import PROGRAM
from runenv.tools.images import ImageLimits, prepare
from tests.tools.images import encoded, file, seen, words

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

pytestmark = pytest.mark.anyio

PLAIN: Final = "plain.png"
READING: Final = "import os, sys, time\nos.read(0, 1 << 16)\n"
"""The beginning of a program that takes the question and then does something else than a worker."""
LARGE: Final = encoded(Image.new("RGB", (6000, 6000), "red"), "PNG", compress_level=1)


@asynccontextmanager
async def pool(program: str = PROGRAM, *, count: int = 1, idle: float = 60.0) -> AsyncGenerator[Workers]:
    """Workers, ended when the test has."""
    made = Workers(count, idle=idle, program=program)
    try:
        yield made
    finally:
        await made.aclose()


def children(pid: int | None = None) -> set[int]:
    """The processes that a process has started, by any of its threads."""
    return {int(entry.name) for entry in Path("/proc").iterdir() if stat(entry.name)[1:2] == [str(pid or os.getpid())]}


def stat(pid: int | str) -> list[str]:
    """State, parent and more of a process; nothing of one that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def gone(pid: int) -> bool:
    """Say whether a process has ended, reaped or not."""
    return stat(pid)[:1] in ([], ["Z"], ["X"])


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what the kernel does with processes, which sets no event."""
    with anyio.fail_after(60):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.01)


async def until_gone(*pids: int) -> None:
    """Wait for the end of processes."""
    await until(lambda: all(gone(pid) for pid in pids))


async def worker_of(workers: Workers) -> int:
    """The process that has shown an image."""
    before = children()
    assert seen(await prepare(file(PLAIN), name=PLAIN, workers=workers)) is not None
    (pid,) = children() - before
    return pid


async def test_a_worker_is_started_by_the_first_image_and_used_again() -> None:
    """One process for many images, none before."""
    before = children()
    async with pool() as workers:
        assert children() <= before
        pid = await worker_of(workers)
        for _ in range(5):
            await prepare(file(PLAIN), name=PLAIN, workers=workers)
        assert children() - before == {pid}
    assert children() <= before


async def test_a_worker_without_work_ends() -> None:
    """It is waited for as well, and its thread is gone."""
    before, threads = children(), threading.active_count()
    async with pool(idle=0.01) as workers:
        await prepare(file(PLAIN), name=PLAIN, workers=workers)
        await until(lambda: children() == before and threading.active_count() <= threads)
        assert seen(await prepare(file(PLAIN), name=PLAIN, workers=workers)) is not None


async def test_no_more_workers_run_than_are_allowed() -> None:
    """Forty images at once, two processes."""
    before, most = children(), 0

    async def one(workers: Workers) -> None:
        nonlocal most
        assert seen(await prepare(file("place.jpg"), name="a.jpg", workers=workers)) is not None
        most = max(most, len(children() - before))

    async with pool(count=2) as workers, anyio.create_task_group() as group:
        for _ in range(40):
            group.start_soon(one, workers)
    assert 1 <= most <= 2


async def test_closed_workers_start_again() -> None:
    """Closing ends what there is; it is no state."""
    async with pool() as workers:
        first = await worker_of(workers)
        await workers.aclose()
        assert first not in children()
        assert await worker_of(workers) != first


async def test_closing_gives_up_what_is_worked_on_and_what_waits() -> None:
    """Everybody gets an answer."""
    answers: list[str] = []

    async def one(workers: Workers) -> None:
        answers.append(words(await prepare(file(PLAIN), name=PLAIN, workers=workers)))

    before = children()
    async with pool(READING + "time.sleep(600)") as workers, anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(one, workers)
        await until(lambda: children() != before)
        await workers.aclose()
    assert len(answers) == 3
    assert all("It is not shown, because" in answer for answer in answers)
    assert children() <= before


async def test_cancelling_kills_the_worker() -> None:
    """And the next image is shown by another one, of which it does not wait long."""
    before = children()
    async with pool(READING + "time.sleep(600)") as workers:
        shown = asyncio.create_task(prepare(file(PLAIN), name=PLAIN, workers=workers))
        await until(lambda: children() != before)
        (pid,) = children() - before
        shown.cancel()
        with pytest.raises(asyncio.CancelledError):
            await shown
        await until_gone(pid)


async def test_an_image_that_waits_can_be_cancelled() -> None:
    """Without harm to the one before it."""
    async with pool() as workers:
        first = asyncio.create_task(prepare(LARGE, name="large.png", workers=workers))
        second = asyncio.create_task(prepare(file(PLAIN), name=PLAIN, workers=workers))
        await anyio.lowlevel.checkpoint()
        second.cancel()
        assert seen(await first) is not None
        with pytest.raises(asyncio.CancelledError):
            await second


LIE: Final = f"""
from runenv.tools.image_wire import Facts
{READING}
os.write(1, Facts(0, 0, "image/png", 0, 1, 1, 1, 1, 1).encode(4) + b"text")
time.sleep(600)
"""
CRASHES: Final = {
    "it exits": (READING + "sys.exit(3)", "its decoder failed (exit code 3)"),
    "it crashes": (READING + "os.kill(os.getpid(), 11)", "its decoder failed (SIGSEGV)"),
    "it ends before it reads": ("raise SystemExit(4)", "its decoder failed (exit code 4)"),
    "it stops in the middle": (READING + "os.write(1, b'\\0\\0')", "its decoder failed"),
    "its answer makes no sense": (READING + "os.write(1, b'\\xff' * 100); time.sleep(600)", "its answer made no sense"),
    "its answer is endless": (READING + "while True: os.write(1, b'\\xff' * 65536)", "its answer made no sense"),
    "it says that a text is an image": (LIE, "its answer made no sense"),
}


@pytest.mark.parametrize("case", CRASHES)
async def test_a_worker_that_fails_is_an_answer(case: str) -> None:
    """In words, with the reason; and no process is left."""
    program, says = CRASHES[case]
    start, _, _ = PROGRAM.partition("from runenv")
    before = children()
    async with pool(start + program) as workers:
        parts = await prepare(file(PLAIN), name=PLAIN, workers=workers)
        assert seen(parts) is None
        assert says in words(parts)
    assert children() <= before


async def test_a_decoder_that_crashes_takes_its_child_and_the_next_image_is_shown() -> None:
    """The worker ends with the child, and another one is there for the next."""
    program = PROGRAM.replace(
        "main()",
        """from runenv.tools import image_worker
whole = image_worker.look
image_worker.look = lambda data, task: os.kill(os.getpid(), 11) if task.format == 'GIF' else whole(data, task)
main()""",
    )
    async with pool(program) as workers:
        parts = await prepare(file("still.gif"), name="still.gif", workers=workers)
        assert "its decoder failed (SIGSEGV)" in words(parts)
        assert seen(await prepare(file(PLAIN), name=PLAIN, workers=workers)) is not None


LOOPS: Final = {
    "in C": "sum(range(1 << 62))",
    "asleep": "__import__('time').sleep(600)",
    "deaf": "[__import__('signal').signal(number, 1) for number in (1, 2, 14, 15)] and __import__('time').sleep(600)",
}


@pytest.mark.parametrize("case", LOOPS)
async def test_a_decoder_that_does_not_end_is_ended(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the kernel's clock, whatever it does; one that is deaf to that by its host."""
    if case == "deaf":
        monkeypatch.setattr("runenv.tools.image_process.GRACE", 1.0)
    program = PROGRAM.replace(
        "main()",
        f"from runenv.tools import image_worker\nimage_worker.look = lambda data, task: {LOOPS[case]}\nmain()",
    )
    async with pool(program) as workers:
        limits = ImageLimits(timeout=0.2)
        parts = await prepare(file(PLAIN), name=PLAIN, limits=limits, workers=workers)
        assert "to decode it takes longer than 0.2 s" in words(parts)


async def test_an_image_that_takes_too_long_is_told() -> None:
    """A real one: 36 million pixels in ten milliseconds."""
    async with pool() as workers:
        parts = await prepare(LARGE, name="large.png", limits=ImageLimits(timeout=0.01), workers=workers)
        assert "takes longer than 0.01 s" in words(parts)


async def test_memory_is_bounded() -> None:
    """A real one: 36 million pixels in 100 MiB. The worker goes on, and the caller has taken next to nothing."""
    async with pool() as workers:
        pid = await worker_of(workers)
        limits = ImageLimits(max_memory_bytes=100 << 20)
        parts = await prepare(LARGE, name="large.png", limits=limits, workers=workers)
        assert "takes more memory than is allowed" in words(parts)
        assert seen(await prepare(LARGE, name="large.png", workers=workers)) is not None
        assert pid in children()


async def test_a_worker_that_was_killed_while_idle_is_replaced() -> None:
    """The next image does not see it."""
    async with pool() as workers:
        pid = await worker_of(workers)
        os.kill(pid, signal.SIGKILL)
        await until_gone(pid)
        assert await worker_of(workers) != pid


async def test_a_worker_that_cannot_be_started_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program without a Python of its own."""
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    async with pool() as workers:
        parts = await prepare(file(PLAIN), name=PLAIN, workers=workers)
    assert "there is no worker for it now (this program has no Python of its own" in words(parts)


async def test_a_thread_that_cannot_be_started_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system has no more of them."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async with pool() as workers:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            parts = await prepare(file(PLAIN), name=PLAIN, workers=workers)
        assert "there is no worker for it now (can't start new thread)" in words(parts)
        assert seen(await prepare(file(PLAIN), name=PLAIN, workers=workers)) is not None


async def test_a_worker_has_nothing_of_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """No environment, no folder, no open file; a group of its own."""
    monkeypatch.setenv("RUNENV_SECRET", "4711")
    held, other = os.pipe()
    os.set_inheritable(held, True)  # noqa: FBT003
    try:
        async with pool() as workers:
            pid = await worker_of(workers)
            proc = Path(f"/proc/{pid}")
            assert b"4711" not in (proc / "environ").read_bytes()
            assert (proc / "cwd").readlink() == Path("/")
            # The child that has answered may still be there, and the worker wait for its end.
            await until(lambda: {entry.name for entry in (proc / "fd").iterdir()} == {"0", "1", "2"})
            assert os.getpgid(pid) == pid != os.getpgid(0)
    finally:
        os.close(held)
        os.close(other)


OWNER: Final = """
import os, sys, threading, time
import anyio
import anyio.lowlevel
import anyio.to_thread
from runenv.tools import images
data = open(sys.argv[1], "rb").read()
async def main():
    await images.prepare(data, name="a")
    if sys.argv[2] == "forks" and os.fork() == 0:
        time.sleep(600)
    if sys.argv[2] == "works":
        sys.stdout.write("ready\\n"); sys.stdout.flush()
        large = open(sys.argv[3], "rb").read()
        while True:
            await images.prepare(large, name="a")
    sys.stdout.write("ready\\n"); sys.stdout.flush()
    await anyio.sleep(600)
anyio.run(main)
"""


@pytest.mark.parametrize("case", ["waits", "forks", "works"])
async def test_workers_end_with_their_owner(case: str, tmp_path: Path) -> None:
    """SIGKILL, with a forked child that lives on, and in the middle of an image."""
    small, large = tmp_path / "small.png", tmp_path / "large.png"
    small.write_bytes(file(PLAIN))
    large.write_bytes(LARGE)
    command = [sys.executable, "-c", OWNER, str(small), case, str(large)]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)  # noqa: ASYNC220 - of the test
    try:
        assert owner.stdout is not None
        with owner.stdout as stream:
            assert await anyio.to_thread.run_sync(stream.readline) == b"ready\n"
        workers = {pid for pid in children(owner.pid) if os.getpgid(pid) != owner.pid}
        assert workers
        decoding = {child for pid in workers for child in children(pid)}
        os.kill(owner.pid, signal.SIGKILL)
        await until_gone(*workers, *decoding)
    finally:
        os.killpg(owner.pid, signal.SIGKILL)
        owner.wait()


FORKED: Final = """
import os, sys
import anyio
import anyio.lowlevel
import anyio.to_thread
from runenv.tools import images
with open(sys.argv[1], "rb") as stream:
    data = stream.read()
async def show():
    (part,) = await images.prepare(data, name="a.png")
    print(part.media_type, flush=True)
anyio.run(show)
child = os.fork()
if child == 0:
    anyio.run(show)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
anyio.run(show)
async def end():
    await images.aclose()
anyio.run(end)
"""


async def test_a_forked_child_has_workers_of_its_own(tmp_path: Path) -> None:
    """And its parent keeps those that it has; every event loop of a process uses the same."""
    path = tmp_path / "a.png"
    path.write_bytes(file(PLAIN))
    command = [sys.executable, "-W", "error::ResourceWarning", "-c", FORKED, str(path)]
    done = await anyio.to_thread.run_sync(lambda: subprocess.run(command, capture_output=True, timeout=60, check=False))
    assert (done.stdout, done.stderr) == (b"image/png\n" * 3, b"")


async def test_threads_and_loops_share_the_workers() -> None:
    """Each with an event loop of its own, as frameworks do that run one for each call."""
    before, shown = children(), list[bool]()

    def call() -> None:
        for _ in range(3):
            parts = asyncio.run(prepare(file("place.jpg"), name="a.jpg"))
            shown.append(seen(parts) is not None)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    await until(lambda: not any(thread.is_alive() for thread in threads))
    assert shown == [True] * 12
    assert len(children() - before) <= 2
    await images.aclose()
    assert children() <= before


async def test_the_memory_of_the_caller_stays_flat() -> None:
    """Bombs and large images, again and again: the peak of the process hardly moves."""
    async with pool() as workers:
        for name in ("bomb-pixels.png", "bomb-frames.gif", "bomb.ico"):
            await prepare(file(name), name=name, workers=workers)
        await prepare(LARGE, name="large.png", workers=workers)
        before = peak()
        for name in ("bomb-pixels.png", "bomb-frames.gif", "bomb.ico") * 3:
            await prepare(file(name), name=name, workers=workers)
        await prepare(LARGE, name="large.png", workers=workers)
        assert peak() - before < 8 << 20


def peak() -> int:
    """The most memory that this process has held, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024


async def test_an_image_that_waits_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer in words, when its turn comes."""
    monkeypatch.setattr("runenv.tools.image_pool.MAX_WAIT", -1.0)
    async with pool() as workers:
        parts = await prepare(file(PLAIN), name=PLAIN, workers=workers)
    assert "all workers are busy" in words(parts)
