"""Files of this host that content is written to: whole or not at all."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from runenv.artifacts.backends.threads import Threads
from runenv.artifacts.targets import write_file
from runenv.errors import ArtifactError, StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

pytestmark = pytest.mark.anyio


@pytest.fixture
def threads() -> Iterator[Threads]:
    """Threads that end with the test."""
    threads = Threads(2)
    yield threads
    threads.stop()


@pytest.mark.parametrize("is_there", [True, False])
async def test_a_stream_that_fails_leaves_what_was_there(threads: Threads, tmp_path: Path, *, is_there: bool) -> None:
    """Also when the file is nearly whole; and the error is that of the stream."""
    path = tmp_path / "file"
    if is_there:
        path.write_bytes(b"old")

    async def damaged() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield bytes(1 << 20)
        raise StoreError("it is damaged")

    with pytest.raises(StoreError, match="it is damaged"):
        await write_file(threads, path, damaged())
    assert [each.read_bytes() for each in tmp_path.iterdir()] == ([b"old"] if is_there else [])


async def test_who_is_cancelled_leaves_nothing(threads: Threads, tmp_path: Path) -> None:
    """In the middle of the stream, when a part of the file is written."""
    waits = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield bytes(1 << 20)
        waits.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(write_file(threads, tmp_path / "file", slow()))
    await waits.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert list(tmp_path.iterdir()) == []


async def test_what_is_no_file_is_refused_before_the_stream_is_read(threads: Threads, tmp_path: Path) -> None:
    """A folder by the error that the system has for it; a FIFO would wait for a reader for ever."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    async def never() -> AsyncIterator[bytes]:
        yield pytest.fail("the stream was read")

    with pytest.raises(IsADirectoryError, match=str(tmp_path)):
        await write_file(threads, tmp_path, never())
    with pytest.raises(ArtifactError, match="is no regular file"):
        await write_file(threads, fifo, never())
    assert list(tmp_path.iterdir()) == [fifo]


async def test_a_disk_that_is_full_is_an_error_and_leaves_nothing(threads: Threads, tmp_path: Path) -> None:
    """A write fails in a thread, behind the stream; the limit of the process stands for the disk."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield bytes(1 << 20)

    resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            await write_file(threads, tmp_path / "file", pieces())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []
