"""Files of this host that content is written to: whole or not at all."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from typing import TYPE_CHECKING

import pytest

from runenv.artifacts import targets
from runenv.artifacts.backends.files import write_all
from runenv.artifacts.backends.threads import Threads
from runenv.artifacts.targets import write_file
from runenv.errors import ArtifactError, StoreError
from tests.artifacts.descriptors import open_files

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


async def test_who_is_cancelled_again_and_again_leaves_nothing(
    threads: Threads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while a thread writes: what it writes to is closed and removed after that, not left open."""
    began, gate = threading.Event(), threading.Event()

    def write(fd: int, data: bytes) -> None:
        began.set()
        gate.wait()
        write_all(fd, data)

    monkeypatch.setattr(targets, "write_all", write)

    async def pieces() -> AsyncIterator[bytes]:
        yield bytes(2 << 20)
        await asyncio.Event().wait()

    task = asyncio.create_task(write_file(threads, tmp_path / "file", pieces()))
    await asyncio.to_thread(began.wait)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert list(tmp_path.iterdir()) == []
    assert open_files(tmp_path) == []


@pytest.mark.parametrize("character", ["a", "é", "€", "😀"])
async def test_a_name_may_be_as_long_as_names_can_be(threads: Threads, tmp_path: Path, character: str) -> None:
    """255 bytes, whatever number of characters these are."""
    path = tmp_path / (character * (255 // len(character.encode())))

    async def pieces() -> AsyncIterator[bytes]:
        yield b"new"

    await write_file(threads, path, pieces())
    assert {each: each.read_bytes() for each in tmp_path.iterdir()} == {path: b"new"}


@pytest.mark.parametrize("below", [".", "file"])
async def test_a_loop_of_links_is_an_error_of_the_system(threads: Threads, tmp_path: Path, below: str) -> None:
    """In the place of the file or of a folder above it; the links stay."""
    loop = tmp_path / "loop"
    loop.symlink_to(tmp_path / "other")
    (tmp_path / "other").symlink_to(loop)

    async def never() -> AsyncIterator[bytes]:
        yield pytest.fail("the stream was read")

    with pytest.raises(OSError, match="links"):
        await write_file(threads, loop / below, never())
    assert loop.is_symlink()


async def test_what_replaces_a_private_file_is_private_from_the_beginning(threads: Threads, tmp_path: Path) -> None:
    """And not when it is whole only; the mask of the process would let others read it."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o600)

    def modes() -> list[int]:
        return [stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()]

    seen: list[int] = []

    async def pieces() -> AsyncIterator[bytes]:
        seen.extend(await asyncio.to_thread(modes))
        yield b"new"

    before = os.umask(0)
    try:
        await write_file(threads, path, pieces())
    finally:
        os.umask(before)
    assert seen == [0o600, 0o600]
    assert modes() == [0o600]
    assert path.read_bytes() == b"new"


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
