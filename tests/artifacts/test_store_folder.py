"""A store in a folder: private, without links, exact over processes, and whole after any end."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import stat
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from runenv.artifacts import ArtifactStore, Quotas, Scope
from runenv.artifacts.backends.catalog import Catalog
from runenv.artifacts.content import Content
from runenv.errors import ArtifactMissingError, ConfigError, LimitError, StoreError
from tests.artifacts.descriptors import open_files

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio

RUN = "run-1"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder that is not there yet."""
    return tmp_path / "store"


def open_store(root: Path, **settings: object) -> ArtifactStore:
    """Return a store in a folder."""
    return ArtifactStore.open(root.as_uri(), **settings)  # type: ignore[arg-type]


# -- privacy and links


async def test_everything_is_private_whatever_the_umask(root: Path) -> None:
    """Folders 0700, files 0600; also in a folder that was there and empty."""
    root.mkdir(mode=0o755)
    before = os.umask(0)
    try:
        async with open_store(root) as store:
            await store.put(b"x", filename="f", scope=RUN)
            modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (root, *root.rglob("*"))}
    finally:
        os.umask(before)
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}


async def test_an_open_folder_with_other_files_is_left_alone(root: Path) -> None:
    """It is refused, and its mode stays."""
    root.mkdir(mode=0o755)
    (root / "notes").write_text("mine")
    with pytest.raises(StoreError, match="chmod 700"):
        async with open_store(root):
            pass
    assert stat.S_IMODE(root.stat().st_mode) == 0o755


@pytest.mark.parametrize("below", ["", "sub"])
async def test_a_root_behind_a_link_is_refused(tmp_path: Path, below: str) -> None:
    """The link itself and what is beneath it; the message says where it leads."""
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    with pytest.raises(StoreError, match=str(real)):
        async with open_store(tmp_path / "link" / below):
            pass
    assert list(real.iterdir()) == []


@pytest.mark.parametrize("name", ["content", "staging", "catalog.sqlite", "catalog.sqlite-journal"])
async def test_a_link_in_the_place_of_a_component_is_refused(root: Path, tmp_path: Path, name: str) -> None:
    """Nothing is read or written through it."""
    async with open_store(root) as store:
        await store.put(b"x", filename="f", scope=RUN)
    target = tmp_path / name
    (root / name).rename(target)
    (root / name).symlink_to(target)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StoreError):
        async with open_store(root):
            pass
    assert sorted(tmp_path.rglob("*")) == before


async def test_a_link_in_the_place_of_content_is_not_followed(root: Path, tmp_path: Path) -> None:
    """Though what it leads to has the right size and hash."""
    async with open_store(root) as store:
        handle = await store.put(b"x", filename="f", scope=RUN)
        (content,) = (root / "content").iterdir()
        content.rename(tmp_path / "elsewhere")
        content.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(StoreError, match="link"):
            await store.get(handle, scope=RUN)


async def test_a_pipe_in_the_place_of_content_does_not_block(root: Path) -> None:
    """It is damage like any other."""
    async with open_store(root) as store:
        handle = await store.put(b"x", filename="f", scope=RUN)
        (content,) = (root / "content").iterdir()
        content.unlink()
        os.mkfifo(content)
        with anyio.fail_after(5), pytest.raises(StoreError):
            await store.get(handle, scope=RUN)


# -- paths


async def test_the_path_is_as_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Absolute or relative; it leads to the content, and the URI is absolute in any case."""
    monkeypatch.chdir(tmp_path)
    for url, start in (("file:sub/store", "sub/store/"), ("file://./store", "./store/"), (tmp_path.as_uri(), "/")):
        async with ArtifactStore.open(url) as store:
            handle = await store.put(b"x", filename="f", scope=RUN)
            record = await store.stat(handle, scope=RUN)
            path = store.path(record)
            assert path is not None
            assert path.startswith(start)
            assert (tmp_path / path).read_bytes() == b"x"
            assert record.uri.startswith("file:///")


@pytest.mark.parametrize("url", ["file:", "file://", "file:///", "file://host/folder", "/folder", "file:///a%00b"])
def test_a_url_that_names_no_folder_is_refused(url: str) -> None:
    """Before anything is made."""
    with pytest.raises(ConfigError):
        ArtifactStore.open(url)


def test_options_are_refused_by_name() -> None:
    """A folder has none."""
    with pytest.raises(ConfigError, match="token") as caught:
        ArtifactStore.open("file:///folder", options={"token": "hidden"})
    assert "hidden" not in str(caught.value)


# -- leftovers and damage


async def test_what_a_dead_writer_staged_is_swept_and_what_a_live_one_stages_is_not(root: Path) -> None:
    """The lock of a writer tells them apart, at opening and by prune."""
    async with open_store(root):
        dead, live = root / "staging" / "dead", root / "staging" / "live"
        dead.write_bytes(b"d" * 100)
        live.write_bytes(b"l" * 100)
        with live.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            async with open_store(root):
                assert (dead.exists(), live.exists()) == (False, True)
            async with open_store(root) as store:
                assert (await store.prune()).leftovers == 0
        async with open_store(root) as store:
            assert not live.exists()
            live.write_bytes(b"l" * 100)
            pruned = await store.prune()
            assert (pruned.leftovers, pruned.bytes) == (1, 100)


async def test_a_put_of_another_store_is_not_disturbed_by_pruning(root: Path) -> None:
    """While it streams, other stores of the same folder open and prune."""

    async def slowly() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"x" * 100_000
            async with open_store(root) as other:
                await other.prune()

    async with open_store(root) as store:
        handle = await store.put(slowly(), filename="f", scope=RUN)
        await store.prune()
        assert await store.get(handle, scope=RUN) == b"x" * 300_000


async def test_content_without_a_record_is_pruned(root: Path) -> None:
    """What a process leaves that was killed between the two; files that are not ours stay."""
    async with open_store(root) as store:
        handle = await store.put(b"kept", filename="f", scope=RUN)
        (root / "content" / ("0" * 64)).write_bytes(b"stray")
        (root / "content" / "other").write_bytes(b"")
        pruned = await store.prune()
        assert (pruned.leftovers, pruned.bytes) == (1, 5)
        assert await store.get(handle, scope=RUN) == b"kept"
        assert (root / "content" / "other").exists()


async def test_content_that_was_lost_comes_back_with_the_next_put(root: Path) -> None:
    """The same bytes heal the older artifact too."""
    async with open_store(root) as store:
        first = await store.put(b"same", filename="a", scope=RUN)
        (content,) = (root / "content").iterdir()
        content.unlink()
        with pytest.raises(StoreError):
            await store.get(first, scope=RUN)
        await store.put(b"same", filename="b", scope=RUN)
        assert await store.get(first, scope=RUN) == b"same"


@pytest.mark.parametrize("change", ["removed", "emptied"])
async def test_content_without_a_catalog_is_not_taken_for_an_empty_store(root: Path, change: str) -> None:
    """Else versions would count from zero again, and `prune` would remove everything; put back, all is there."""
    catalog = root / "catalog.sqlite"
    async with open_store(root) as store:
        handle = await store.put(b"kept", filename="f", scope=RUN)
    saved = catalog.read_bytes()
    if change == "removed":
        catalog.unlink()
    else:
        catalog.write_bytes(b"")
    for _ in range(2):
        with pytest.raises(StoreError, match=r"put its catalog\.sqlite back"):
            async with open_store(root):
                pass
    catalog.write_bytes(saved)
    async with open_store(root) as store:
        assert await store.get(handle, scope=RUN) == b"kept"


async def test_a_catalog_of_another_program_is_refused(root: Path) -> None:
    """And left as it is."""
    root.mkdir(mode=0o700)
    with sqlite3.connect(root / "catalog.sqlite") as other:
        other.execute("CREATE TABLE theirs (a)")
    other.close()
    with pytest.raises(StoreError, match="another program"):
        async with open_store(root):
            pass


async def test_a_closed_store_says_so(root: Path) -> None:
    """Before it is opened and after it was closed, which may be done twice."""
    store = open_store(root)
    with pytest.raises(StoreError, match="not open"):
        await store.put(b"x", filename="f", scope=RUN)
    async with store:
        handle = await store.put(b"x", filename="f", scope=RUN)
    await store.aclose()
    with pytest.raises(StoreError, match="not open"):
        await store.get(handle, scope=RUN)


async def test_a_store_that_is_closed_during_a_put_keeps_nothing_of_it(root: Path) -> None:
    """The put says so; the store can be opened again, and nothing of the put is left."""
    store = open_store(root)

    async def closing() -> AsyncIterator[bytes]:
        yield bytes(3_000_000)
        await store.aclose()
        yield bytes(3_000_000)

    async with store:
        with pytest.raises(StoreError, match=r"closed|not open"):
            await store.put(closing(), filename="f", scope=RUN)
    async with store:
        assert [record async for record in store.list(RUN)] == []
        assert list((root / "staging").iterdir()) == []
        await store.put(b"x", filename="f", scope=RUN)


# -- processes

FILLER = """
import asyncio, sys
from runenv.artifacts import ArtifactStore, Quotas
from runenv.errors import LimitError

async def main():
    done = 0
    async with ArtifactStore.open(sys.argv[1], quotas=Quotas(max_count=20, max_bytes=2000)) as store:
        for number in range(10):
            try:
                name = f"{sys.argv[2]}-{number}"
                await store.put(name.encode().ljust(100), filename=name, scope="r")
                done += 1
            except LimitError:
                pass
    print(done)

asyncio.run(main())
"""


async def test_quotas_are_exact_over_processes(root: Path) -> None:
    """Six processes try to store 60 artifacts where 20 fit: 20 are stored."""
    done = []

    async def run(number: int) -> None:
        child = await anyio.run_process([sys.executable, "-c", FILLER, root.as_uri(), str(number)])
        done.append(int(child.stdout))

    async with anyio.create_task_group() as tasks:
        for number in range(6):
            tasks.start_soon(run, number)
    assert sum(done) == 20
    async with open_store(root, quotas=Quotas(max_count=20)) as store:
        records = [record async for record in store.list("r")]
        assert len(records) == 20
        with pytest.raises(LimitError):
            await store.put(b"x", filename="one more", scope="r")
        await store.delete(records[0].handle, scope="r")
        await store.put(b"x", filename="one more", scope="r")


async def test_a_store_is_not_used_across_a_fork(root: Path) -> None:
    """The child is told, and the parent's store goes on."""
    async with open_store(root) as store:
        handle = await store.put(b"x", filename="f", scope=RUN)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                store.get(handle, scope=RUN).send(None)
            except StoreError as error:
                code = 0 if "forked" in str(error) else 2
            finally:
                os._exit(code)
        _, status = await anyio.to_thread.run_sync(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert await store.get(handle, scope=RUN) == b"x"


async def test_a_put_that_is_cancelled_by_its_task_leaves_nothing(root: Path) -> None:
    """`Task.cancel`, which anyio's scopes do not keep out."""
    begun = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 100_000
            begun.set()

    async with open_store(root) as store:
        task = asyncio.create_task(store.put(endless(), filename="f", scope=RUN))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert list((root / "staging").iterdir()) == list((root / "content").iterdir()) == []
        handle = await store.put(b"after", filename="f", scope=RUN)
        assert (await store.stat(handle, scope=RUN)).version == 1  # the number of the other is lost


async def test_A10_content_is_on_the_disk_before_it_has_its_name(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the name is, before the catalog knows of it: no power cut leaves an artifact without its bytes."""
    steps: list[str] = []
    fsync, rename, commit = os.fsync, os.rename, Catalog.commit

    def synced(fd: int) -> None:
        at = Path(f"/proc/self/fd/{fd}").readlink()
        steps.append(f"sync {'folder' if at.is_dir() else 'file'} {at.relative_to(root).parts[0]}")
        fsync(fd)

    def renamed(*names: Any, **folders: Any) -> None:  # noqa: ANN401 - handed on
        steps.append("rename")
        rename(*names, **folders)

    def committed(*arguments: Any) -> None:  # noqa: ANN401 - handed on
        commit(*arguments)
        steps.append("committed")

    async with open_store(root) as store:
        monkeypatch.setattr(os, "fsync", synced)
        monkeypatch.setattr(os, "rename", renamed)
        monkeypatch.setattr(Catalog, "commit", committed)
        await store.put(b"x" * 100_000, filename="f", scope=RUN)
    assert steps == ["sync file staging", "rename", "sync folder content", "committed"]


async def test_who_is_cancelled_while_it_opens_a_store_leaves_nothing_open(root: Path) -> None:
    """By its task; the store can be opened afterwards."""
    store = open_store(root)
    opening = asyncio.create_task(store.__aenter__())
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert open_files(root) == []
    async with store:
        await store.put(b"x", filename="f", scope=RUN)


async def test_who_is_cancelled_while_it_leaves_a_stream_leaves_nothing_open(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread reads ahead; the descriptor is closed after that, though nobody waits for it any more."""
    ahead, gate = threading.Event(), threading.Event()
    see = Content.see

    def wait(content: Content, chunk: bytes) -> None:
        if content.size:
            ahead.set()
            gate.wait()
        see(content, chunk)

    async def read_first(store: ArtifactStore, handle: str) -> None:
        async with store.open_read(handle, scope=RUN) as chunks:
            await anext(chunks)
            await asyncio.to_thread(ahead.wait)
            left.set()

    left = asyncio.Event()
    async with open_store(root) as store:
        handle = await store.put(bytes(3_000_000), filename="f", scope=RUN)
        before = open_files(root)
        monkeypatch.setattr(Content, "see", wait)
        task = asyncio.create_task(read_first(store, handle))
        await left.wait()
        task.cancel()
        await asyncio.sleep(0)
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert open_files(root) == before


async def test_who_is_cancelled_until_the_end_leaves_nothing_of_a_put_that_fails(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quota is hit when content is to become an artifact, and the task is cancelled from then on."""
    began, gate = threading.Event(), threading.Event()
    commit = Catalog.commit

    def wait(*arguments: Any) -> None:  # noqa: ANN401 - handed on
        began.set()
        gate.wait()
        commit(*arguments)

    async with open_store(root, quotas=Quotas(max_count=1)) as store:
        await store.put(b"first", filename="f", scope=RUN)
        monkeypatch.setattr(Catalog, "commit", wait)
        task = asyncio.create_task(store.put(b"second", filename="f", scope=RUN))
        await asyncio.to_thread(began.wait)
        task.cancel()
        gate.set()
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)
        assert task.cancelled()
        assert list((root / "staging").iterdir()) == []
        assert open_files(root / "staging") == [str(root / "staging")]


async def test_who_reads_on_after_leaving_a_stream_is_given_what_was_read_ahead(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it was, and it has the right hash: so it must not end before."""
    whole = threading.Event()
    see = Content.see

    def tell(content: Content, chunk: bytes) -> None:
        see(content, chunk)
        if content.size == 3_000_000:
            whole.set()

    async with open_store(root) as store:
        handle = await store.put(bytes(3_000_000), filename="f", scope=RUN)
        monkeypatch.setattr(Content, "see", tell)
        async with store.open_read(handle, scope=RUN) as chunks:
            first = await anext(chunks)
            await asyncio.to_thread(whole.wait)
        assert len(first) + sum([len(chunk) async for chunk in chunks]) == 3_000_000


async def test_a_stream_that_somebody_else_still_reads_ends_with_an_error(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who opened it leaves while a thread reads for another task: nothing stays open, and nothing else is read."""
    began, gate = threading.Event(), threading.Event()
    see = Content.see

    def wait(content: Content, chunk: bytes) -> None:
        began.set()
        gate.wait()
        see(content, chunk)

    async def read(chunks: AsyncIterator[bytes]) -> int:
        return sum([len(chunk) async for chunk in chunks])

    async with open_store(root) as store:
        handle = await store.put(bytes(3_000_000), filename="f", scope=RUN)
        before = open_files(root)
        monkeypatch.setattr(Content, "see", wait)

        async def leave() -> asyncio.Task[int]:
            async with store.open_read(handle, scope=RUN, length=2_500_000) as chunks:
                reading = asyncio.create_task(read(chunks))
                await asyncio.to_thread(began.wait)
                asyncio.get_running_loop().call_soon(gate.set)
            return reading

        reading = await leave()
        assert open_files(root) == before
        with pytest.raises(StoreError, match="not what was stored"):
            await reading


# -- scopes


async def test_C085_the_end_of_a_session_ends_its_runs(root: Path) -> None:
    """Memory and disk are free at once; what others have of the same bytes stays."""
    session, run, other = Scope(session="s", user="u"), Scope("r", "s", "u"), Scope("r", "t", "u")
    async with open_store(root) as store:
        for scope in (session, run, other):
            await store.put(b"shared", filename="f", scope=scope)
            await store.put(repr(scope).encode(), filename="own", scope=scope)
        assert await store.clear_scope(run) == 2
        assert [record.scope async for record in store.list(run)] == [session, session]
        await store.put(b"again", filename="f", scope=run)
        assert await store.clear_scope(session) == 3
        assert len(list((root / "content").iterdir())) == 2
        kept = await store.find("f", scope=other)
        assert await store.get(kept.handle, scope=other) == b"shared"
        assert await store.clear_scope(Scope(user="u")) == 2
        assert list((root / "content").iterdir()) == []
        with pytest.raises(ArtifactMissingError):
            await store.get(kept.handle, scope=other)
