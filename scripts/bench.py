"""The measurements behind the claims: each figure beside what it is compared with, taken in the same run.

Not a test: times on a shared machine prove nothing alone. What matters is the ratio column and the memory column.
Run by `scripts/bench`; `--quick` for a tenth of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import statistics
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import docker
from rich.console import Console
from rich.table import Table

import runenv
from runenv.testing.contract.measure import MIB, Memory
from scripts.bench_artifacts import artifacts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

IMAGE = "runenv/python"
BIG = 256 * MIB


async def timed(action: Callable[[], Awaitable[object]]) -> float:
    """Seconds that one run takes."""
    start = time.perf_counter()
    await action()
    return time.perf_counter() - start


async def median(rounds: int, action: Callable[[], Awaitable[object]]) -> float:
    """Median seconds of several runs, after one that is not counted."""
    await action()
    return statistics.median([await timed(action) for _ in range(rounds)])


async def medians(rounds: int, *actions: Callable[[], Awaitable[object]]) -> list[float]:
    """Median seconds of each of several actions that take turns, so that a busy machine meets all of them."""
    times: list[list[float]] = [[] for _ in actions]
    for _ in range(rounds + 1):
        for taken, action in zip(times, actions, strict=True):
            taken.append(await timed(action))
    return [statistics.median(taken[1:]) for taken in times]


class Report:
    """Rows of the table."""

    def __init__(self) -> None:
        self.table = Table("what", "runenv", "compared with", "ratio", "memory", title="runenv bench")

    def add(self, what: str, ours: str, theirs: str = "", ratio: str = "", grown: float | None = None) -> None:
        """Add a row; memory is what the host process grew by, in MB."""
        self.table.add_row(what, ours, theirs, ratio, "" if grown is None else f"+{grown:.1f} MB")


@contextmanager
def plain_box() -> Generator[Any]:
    """A container as the SDK makes it, for what is compared with."""
    box = docker.from_env().containers.run(
        IMAGE, "sleep 1000", detach=True, network_mode="none", working_dir="/workspace"
    )
    try:
        yield box
    finally:
        box.remove(force=True)


async def latency(report: Report, rounds: int) -> None:
    """`true`, started over and over."""
    with plain_box() as box:
        async with (
            runenv.open_env(runenv.DockerConfig(image=IMAGE)) as env,
            runenv.open_env(runenv.LocalConfig()) as local,
        ):

            async def in_docker() -> None:
                await env.exec(["true"])

            async def in_local() -> None:
                await local.exec(["true"])

            async def by_sdk() -> None:
                box.exec_run(["true"])

            async def by_subprocess() -> None:
                subprocess.run(["true"], check=True, capture_output=True)  # noqa: ASYNC221 - what is compared with

            ours, host = await medians(rounds, in_local, by_subprocess)
            report.add(
                "exec true, local",
                f"{ours * 1e3:.2f} ms",
                f"subprocess.run {host * 1e3:.2f} ms",
                f"{ours / host:.2f}x the time",
            )
            ours, sdk = await median(rounds, in_docker), await median(max(rounds // 10, 3), by_sdk)
            report.add(
                "exec true, docker",
                f"{ours * 1e3:.2f} ms",
                f"SDK exec_run {sdk * 1e3:.1f} ms",
                f"{sdk / ours:.0f}x as fast",
            )
            await env.write("small", b"x" * 1024)
            ours = await median(rounds, lambda: env.read("small"))
            report.add("read 1 KB, docker", f"{ours * 1e3:.2f} ms")
            ours = await median(rounds, lambda: env.write("small", b"x" * 1024))
            report.add("write 1 KB, docker", f"{ours * 1e3:.2f} ms")
            ours = await timed(lambda: asyncio.gather(*(env.exec(["sleep", "1"]) for _ in range(32))))
            report.add("32 x sleep 1 at once, docker", f"{ours:.2f} s")


async def lifecycle(report: Report, rounds: int) -> None:
    """From nothing to the first command, and back to nothing."""
    opened, closed = [], []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        async with runenv.open_env(runenv.DockerConfig(image=IMAGE)) as env:
            await env.exec(["true"])
            opened.append(time.perf_counter() - start)
            start = time.perf_counter()
        closed.append(time.perf_counter() - start)
    sdk = []
    for _ in range(rounds):
        start = time.perf_counter()
        with plain_box() as box:
            box.exec_run(["true"])
            sdk.append(time.perf_counter() - start)
    ours, theirs = statistics.median(opened[1:]), statistics.median(sdk)
    report.add(
        "open to first exec, docker",
        f"{ours * 1e3:.0f} ms",
        f"SDK run + exec_run {theirs * 1e3:.0f} ms",
        f"{ours / theirs:.2f}x the time",
    )
    report.add("close, docker", f"{statistics.median(closed[1:]) * 1e3:.0f} ms")


async def output(report: Report) -> None:
    """What commands print must not land in the host's memory."""
    async with runenv.open_env(runenv.DockerConfig(image=IMAGE)) as env:
        await env.exec("head -c 10000000 /dev/zero")
        with Memory() as memory:
            spent = await timed(lambda: env.exec("head -c 1000000000 /dev/zero"))
        report.add("1 GB of stdout, docker", f"{1000 / spent:.0f} MB/s", grown=memory.growth_bytes / MIB)
        chatty = "timeout 3 yes some words to fill the pipe; true"

        async def read() -> int:
            return len((await env.exec(chatty)).stdout.text)

        with Memory() as memory:
            await asyncio.gather(*(read() for _ in range(50)))
        report.add("50 chatty commands at once, read and let go", "3 s each", grown=memory.growth_bytes / MIB)
        with Memory() as memory:
            results = await asyncio.gather(*(env.exec(chatty) for _ in range(50)))
        held = sum(len(result.stdout.data) + len(result.stdout.text) for result in results) / MIB
        report.add(
            "the same, all 50 results kept", "3 s each", f"they hold {held:.1f} MB", grown=memory.growth_bytes / MIB
        )


async def transfer(report: Report) -> None:
    """One large file up and down, and many small ones."""
    # A container of its own: the engine copies to none with a mount whose source is gone, as an env's is.
    with tempfile.TemporaryDirectory() as name, plain_box() as box:
        folder = Path(name)
        big = folder / "big"
        big.write_bytes(os.urandom(MIB) * (BIG // MIB))
        wanted = hashlib.sha256(big.read_bytes()).hexdigest()
        async with runenv.open_env(runenv.DockerConfig(image=IMAGE, memory_bytes=None)) as env:
            ups, downs, cp_up, cp_down, grown = [], [], [], [], 0.0
            for _ in range(3):
                with Memory() as memory:
                    ups.append(await timed(lambda: env.upload(big, "big")))
                    downs.append(await timed(lambda: env.download("big", folder / "back")))
                grown = max(grown, memory.growth_bytes / MIB)
                cp_up.append(await timed(lambda: run("docker", "cp", str(big), f"{box.name}:/workspace/big2")))
                cp_down.append(
                    await timed(lambda: run("docker", "cp", f"{box.name}:/workspace/big2", str(folder / "back2")))
                )
            if hashlib.sha256((folder / "back").read_bytes()).hexdigest() != wanted:
                raise SystemExit("bench: the file came back changed")
            for what, ours, theirs in (("up", ups, cp_up), ("down", downs, cp_down)):
                mine, other = (256 / statistics.median(times) for times in (ours, theirs))
                report.add(
                    f"256 MiB {what}, docker",
                    f"{mine:.0f} MiB/s",
                    f"docker cp {other:.0f} MiB/s",
                    f"{mine / other:.2f}x as fast",
                    grown,
                )
            small = folder / "small"
            small.mkdir()
            for number in range(1000):
                (small / f"{number}.txt").write_bytes(b"x" * 1000)
            up = await timed(lambda: env.upload(small, "small"))
            cp = await timed(lambda: run("docker", "cp", str(small), f"{box.name}:/workspace/small2"))
            report.add("1,000 small files up", f"{up:.2f} s", f"docker cp {cp:.2f} s", f"{cp / up:.1f}x as fast")
            down = await timed(lambda: env.download("small", folder / "small-back"))
            report.add("1,000 small files down", f"{down:.2f} s")


async def run(*command: str) -> None:
    """Run a host program to its end."""
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if await process.wait():
        raise SystemExit(f"bench: {command[0]} failed")


async def main(part: str, *, quick: bool) -> None:
    """Measure and print the table."""
    report = Report()
    rounds = 20 if quick else 200
    if part in {"all", "envs"}:
        await latency(report, rounds)
        await lifecycle(report, max(rounds // 20, 3))
        await output(report)
        await transfer(report)
    if part in {"all", "artifacts"}:
        await artifacts(report, quick=quick)
    Console().print(report.table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rounds")
    parser.add_argument("--only", choices=("envs", "artifacts"), default="all", help="one part of the measurements")
    given = parser.parse_args()
    asyncio.run(main(given.only, quick=given.quick))
