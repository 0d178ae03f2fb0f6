"""Folders between envs and stores, as tar artifacts: whole, safe, or not at all."""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from runenv.artifacts import ArtifactStore, Quotas
from runenv.artifacts.transfers import load_tree, save, save_tree
from runenv.errors import ArtifactMissingError, EnvError, LimitError, StoreError
from runenv.testing.contract.measure import Memory
from runenv.testing.contract.tree_streams import entry, packed
from runenv.testing.contract.trees import make_tree, snapshot
from runenv.testing.scripted import ScriptedEnv
from tests.artifacts.transfers.moves import (
    FLAT_BYTES,
    MIB,
    SCOPE,
    Meddled,
    damage,
    left_in,
    names,
    noise,
    until_names,
    written_bytes,
)

if TYPE_CHECKING:
    from pathlib import Path

    from runenv.env import RunEnv

pytestmark = pytest.mark.anyio

HUGE = 200 * MIB


async def put_tar(store: ArtifactStore, *entries: tarfile.TarInfo) -> str:
    """Store an archive that did not come from an env."""
    return await store.put(packed(*entries), filename="t.tar", scope=SCOPE)


async def test_A9_a_tree_goes_to_the_store_and_back_unchanged(
    env: RunEnv, store: ArtifactStore, tmp_path: Path
) -> None:
    """Content, modes, links, hidden and empty folders, odd names; into a new folder and into one that is there."""
    make_tree(tmp_path / "t")
    await env.upload(tmp_path / "t", "t")
    handle, saved = await save_tree(env, "t", store, scope=SCOPE)
    record = await store.stat(handle, scope=SCOPE)
    assert (record.name, record.media_type) == ("t.tar", "application/x-tar")
    await env.mkdir("there")
    for path in ("new/folder", "there"):
        loaded = await load_tree(env, handle, path, store, scope=SCOPE)
        assert loaded == saved
        await env.download(path, tmp_path / path)
        assert snapshot(tmp_path / path) == snapshot(tmp_path / "t")
    assert await names(env, "new") == ["folder"]


async def test_A9_a_tree_of_the_store_is_an_archive_for_others(env: RunEnv, store: ArtifactStore) -> None:
    """What a person downloads is a tar file; the name is the folder's unless given, patterns choose."""
    await env.write("d/a.py", b"print()")
    await env.write("d/b.txt", b"text")
    handle, result = await save_tree(env, "./d/", store, scope=SCOPE, include=["*.py"], metadata={"k": "v"})
    with tarfile.open(fileobj=io.BytesIO(await store.get(handle, scope=SCOPE))) as archive:
        assert archive.getnames() == ["a.py"]
    record = await store.stat(handle, scope=SCOPE)
    assert (record.name, record.metadata, result.files) == ("d.tar", {"k": "v"}, 1)
    handle, _ = await save_tree(env, ".", store, scope=SCOPE, filename="all.tar", exclude=["*.py"])
    with tarfile.open(fileobj=io.BytesIO(await store.get(handle, scope=SCOPE))) as archive:
        assert archive.getnames() == ["d", "d/b.txt"]


async def test_A9_what_is_refused_is_listed_both_ways(env: RunEnv, store: ArtifactStore) -> None:
    """A link out of the tree when it is stored; names that climb when an archive of others is unpacked."""
    await env.write("t/f", b"x")
    assert (await env.exec(["ln", "-s", "/etc/passwd", "t/out"])).ok
    handle, saved = await save_tree(env, "t", store, scope=SCOPE)
    assert [refused.path for refused in saved.refused] == ["out"]
    handle = await put_tar(store, entry("../victim"), entry("/abs"), entry("l", tarfile.SYMTYPE, "../t"), entry("good"))
    loaded = await load_tree(env, handle, "new", store, scope=SCOPE)
    assert [refused.path for refused in loaded.refused] == ["../victim", "/abs", "l"]
    assert (await names(env), await names(env, "new")) == (["new", "t"], ["good"])


async def test_A9_what_cannot_be_read_or_written_is_a_builtin_error(env: RunEnv, store: ArtifactStore) -> None:
    """A folder that is missing, a file in its place; nothing is left of it."""
    await env.write("f", b"x")
    with pytest.raises(FileNotFoundError):
        await save_tree(env, "no", store, scope=SCOPE)
    with pytest.raises(NotADirectoryError):
        await save_tree(env, "f", store, scope=SCOPE)
    assert await left_in(store) == []
    handle = await put_tar(store, entry("a"))
    with pytest.raises(NotADirectoryError):
        await load_tree(env, handle, "f", store, scope=SCOPE)
    with pytest.raises(NotADirectoryError):
        await load_tree(env, handle, "f/t", store, scope=SCOPE)
    with pytest.raises(ArtifactMissingError):
        await load_tree(env, handle, "t", store, scope="other")
    assert await names(env) == ["f"]


@pytest.mark.parametrize("content", [b"", b"%PDF-1.7 ", packed(entry("a"), entry("b", size=MIB))[:MIB]], ids=len)
async def test_A9_what_is_no_archive_leaves_nothing(env: RunEnv, store: ArtifactStore, content: bytes) -> None:
    """No folder, no unfinished one beside it."""
    handle = await store.put(content, filename="t.tar", scope=SCOPE)
    with anyio.fail_after(20), pytest.raises(OSError, match="the stream of the tree"):
        await load_tree(env, handle, "t", store, scope=SCOPE)
    assert await names(env) == []


async def test_A9_nothing_of_a_damaged_tree_reaches_the_env(env: RunEnv, store: ArtifactStore) -> None:
    """Neither a new folder nor a change of one that is there."""
    await env.write("t/a", noise(2 * MIB))
    handle, _ = await save_tree(env, "t", store, scope=SCOPE)
    await damage(store, await store.stat(handle, scope=SCOPE))
    await env.write("there/a", b"old")
    for path in ("new", "there"):
        with anyio.fail_after(20), pytest.raises(StoreError):
            await load_tree(env, handle, path, store, scope=SCOPE)
    assert await names(env) == ["t", "there"]
    assert await env.read("there/a") == b"old"


async def test_A9_a_tree_that_does_not_fit_leaves_nothing(env: RunEnv) -> None:
    """It is found out in the middle of the stream."""
    await env.write("t/a", noise(3 * MIB))
    async with ArtifactStore.open("memory://", quotas=Quotas(max_artifact_bytes=MIB)) as store:
        with anyio.fail_after(20), pytest.raises(LimitError):
            await save_tree(env, "t", store, scope=SCOPE)
        assert await left_in(store) == []
    assert await names(env) == ["t"]


@pytest.mark.parametrize("direction", ["save", "load"])
async def test_A9_a_cancelled_tree_leaves_nothing(env: RunEnv, store: ArtifactStore, direction: str) -> None:
    """On either side."""
    await env.write("t/a", noise(3 * MIB))
    handle, _ = await save_tree(env, "t", store, scope="other")
    before = await left_in(store)
    started = anyio.Event()

    async def meddle() -> None:
        started.set()
        await anyio.sleep_forever()

    slow: Any = Meddled(env, meddle)

    async def run() -> None:
        if direction == "save":
            await save_tree(slow, "t", store, scope=SCOPE)
        else:
            await load_tree(slow, handle, "new", store, scope="other")

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await started.wait()
            group.cancel_scope.cancel()
    assert await left_in(store) == before
    await until_names(env, ["t"])


async def test_F9_progress_of_a_tree_is_told(env: RunEnv, store: ArtifactStore) -> None:
    """Bytes of the archive; its total is known on the way back only."""
    told: list[tuple[int, int | None]] = []

    def progress(done: int, total: int | None) -> None:
        told.append((done, total))

    await env.write("t/a", noise(3 * MIB))
    handle, _ = await save_tree(env, "t", store, scope=SCOPE, progress=progress)
    saved = len(told)
    await load_tree(env, handle, "new", store, scope=SCOPE, progress=progress)
    size = (await store.stat(handle, scope=SCOPE)).size
    assert (told[saved - 1], told[-1]) == ((size, None), (size, size))
    for steps in (told[:saved], told[saved:]):
        assert [done for done, _ in steps] == sorted(done for done, _ in steps)


@pytest.mark.slow
async def test_A9_a_tree_of_200_MB_passes_in_flat_memory(env: RunEnv, tmp_path: Path) -> None:
    """Both ways."""
    await env.mkdir("t")
    assert (await env.exec(["sh", "-c", f"head -c {HUGE} /dev/urandom > t/big"])).ok
    async with ArtifactStore.open(f"file://{tmp_path}/store") as store:
        with Memory() as memory:
            handle, _ = await save_tree(env, "t", store, scope=SCOPE)
            await load_tree(env, handle, "new", store, scope=SCOPE)
        assert memory.growth_bytes < FLAT_BYTES
    assert (await env.exec(["cmp", "t/big", "new/big"])).ok


@pytest.mark.parametrize("anywhere", ["memory", "s3"], indirect=True)
async def test_A9_no_byte_of_a_tree_touches_the_disk_of_the_host(
    env: RunEnv, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As with files."""
    await env.write("t/a", noise(32 * MIB))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "no"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "no"))
    before = written_bytes()
    handle, _ = await save_tree(env, "t", store, scope=SCOPE)
    await load_tree(env, handle, "new", store, scope=SCOPE)
    assert written_bytes() - before < MIB
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - the shortest way to say it


async def test_an_env_without_tree_streams_says_so(env: RunEnv, store: ArtifactStore) -> None:
    """They are an offer beyond the protocol of envs."""

    class Plain:
        kind = "plain"

    plain: Any = Plain()
    await env.write("f", b"x")
    handle = await save(env, "f", store, scope=SCOPE)
    for transfer in (save_tree(plain, "t", store, scope=SCOPE), load_tree(plain, handle, "t", store, scope=SCOPE)):
        with pytest.raises(EnvError, match="a plain env offers no tree streams"):
            await transfer


async def test_a_scripted_env_moves_trees_too(store: ArtifactStore) -> None:
    """So that users test their own code without a sandbox."""
    async with ScriptedEnv(files={"d/a.csv": "1,2", "d/e/b": "3"}) as env:
        handle, saved = await save_tree(env, "d", store, scope=SCOPE)
        assert await load_tree(env, handle, "new", store, scope=SCOPE) == saved
        assert env.files["/workspace/new/e/b"] == b"3"
        assert [call.verb for call in env.calls if "tree" in call.verb] == ["open_read_tree", "write_tree"]
        with pytest.raises(FileNotFoundError):
            await save_tree(env, "no", store, scope=SCOPE)
        async with env.open_read_tree("d") as tar:
            with pytest.raises(EnvError, match="not read to its end"):
                _ = tar.result
