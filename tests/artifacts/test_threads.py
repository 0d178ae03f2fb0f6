"""Work in threads: in order, a bounded way ahead or behind, and at its end before its owner goes on."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from runenv.artifacts.backends.threads import Leading, Threads, Trailing

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.anyio

MEGABYTE = 1024 * 1024


@pytest.fixture
def threads() -> Iterator[Threads]:
    """Threads that end with the test."""
    threads = Threads(2)
    yield threads
    threads.stop()


@pytest.mark.parametrize("size", [1, 100_000, 3 * MEGABYTE])
async def test_what_trails_is_done_in_order_and_all_of_it(threads: Threads, size: int) -> None:
    """Whether chunks are small, so that many go at once, or larger than what may wait."""
    given = [bytes([number]) * size for number in range(40)]
    taken: list[bytes] = []
    trailing = Trailing(threads, taken.append, 2 * MEGABYTE)
    for chunk in given:
        await trailing.put(chunk)
    await trailing.end()
    assert taken == given
    assert trailing.is_idle


async def test_who_is_far_ahead_waits(threads: Threads) -> None:
    """Chunks that nobody takes up do not gather without a bound."""
    gate = threading.Event()
    trailing = Trailing(threads, lambda _: gate.wait(), 4 * MEGABYTE)
    given = 0

    async def give() -> None:
        nonlocal given
        for _ in range(20):
            await trailing.put(bytes(MEGABYTE))
            given += 1
        await trailing.end()

    task = asyncio.create_task(give())
    while given < 4:  # noqa: ASYNC110 - it may, and each turn of the loop is an event
        await asyncio.sleep(0)
    await asyncio.wait((task,), timeout=0.05)
    assert given == 4
    gate.set()
    await task
    assert given == 20


async def test_an_error_behind_is_raised_once_and_ends_the_work(threads: Threads) -> None:
    """To whoever gives the next chunk, or at the end."""
    taken = 0

    def fail(_: bytes) -> None:
        nonlocal taken
        taken += 1
        raise OSError("no space")

    async def give(trailing: Trailing) -> None:
        for _ in range(20):
            await trailing.put(bytes(MEGABYTE))

    early = Trailing(threads, fail, 4 * MEGABYTE)
    with pytest.raises(OSError, match="no space"):
        await give(early)
    await early.stop()
    assert taken == 1
    late = Trailing(threads, fail, 4 * MEGABYTE)
    await late.put(b"x")
    with pytest.raises(OSError, match="no space"):
        await late.end()


async def test_stop_waits_for_the_chunk_under_way_and_forgets_the_rest(threads: Threads) -> None:
    """Whoever stops closes a descriptor next."""
    began, gate = threading.Event(), threading.Event()
    taken: list[int] = []

    def take(chunk: bytes) -> None:
        began.set()
        gate.wait()
        taken.append(len(chunk))

    trailing = Trailing(threads, take, 8 * MEGABYTE)
    for _ in range(4):
        await trailing.put(bytes(MEGABYTE))
    await asyncio.to_thread(began.wait)
    stopping = asyncio.create_task(trailing.stop())
    await asyncio.wait((stopping,), timeout=0.05)
    assert not stopping.done()
    gate.set()
    await stopping
    assert taken == [MEGABYTE]


async def test_what_leads_comes_in_order_and_then_nothing(threads: Threads) -> None:
    """However often it is asked after the end."""
    pieces = [bytes([number]) for number in range(50)]
    source = iter([*pieces, b""])
    leading = Leading(threads, lambda: next(source), 3)
    assert [await leading.get() for _ in pieces] == pieces
    assert [await leading.get() for _ in range(3)] == [b""] * 3


async def test_a_thread_makes_a_few_pieces_ahead_and_no_more(threads: Threads) -> None:
    """Nobody asks for the next ones."""
    made = 0

    def make() -> bytes:
        nonlocal made
        made += 1
        return b"x"

    leading = Leading(threads, make, 3)
    assert await leading.get() == b"x"
    await leading.stop()
    assert 1 <= made <= 1 + 3
    before = made
    await leading.stop()
    assert made == before


async def test_an_error_ahead_is_raised_after_what_was_made_before_it(threads: Threads) -> None:
    """The pieces before it are good."""
    source = iter([b"a", b"b"])

    def make() -> bytes:
        try:
            return next(source)
        except StopIteration:
            raise OSError("it cannot be read") from None

    leading = Leading(threads, make, 8)
    assert [await leading.get(), await leading.get()] == [b"a", b"b"]
    with pytest.raises(OSError, match="it cannot be read"):
        await leading.get()
    await leading.stop()
