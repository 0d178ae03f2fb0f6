"""Files between envs and stores: whole, checked, streamed, or not at all."""

from __future__ import annotations

import errno
import hashlib
import tempfile
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from runenv.artifacts import ArtifactStore, Quotas, Scope
from runenv.artifacts.transfers import load, save
from runenv.config import LocalConfig
from runenv.envs import open_env
from runenv.errors import (
    ArtifactError,
    ArtifactExpiredError,
    ArtifactMissingError,
    EnvLostError,
    HandleError,
    LimitError,
    StoreError,
)
from runenv.testing.contract.measure import Memory
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

LARGE = 3 * MIB
HUGE = 200 * MIB


@pytest.mark.parametrize("size", [0, 1, 100_000, LARGE], ids=str)
async def test_A9_a_file_goes_to_the_store_and_back_unchanged(env: RunEnv, store: ArtifactStore, size: int) -> None:
    """Size and SHA-256 are those of the content; parents are made, and an old file replaced."""
    data = noise(size)
    await env.write("out/deck.bin", data)
    handle = await save(env, "out/deck.bin", store, scope=SCOPE)
    record = await store.stat(handle, scope=SCOPE)
    assert (record.name, record.size, record.sha256) == ("deck.bin", size, hashlib.sha256(data).hexdigest())
    await env.write("old", b"old")
    for path in ("new/folder/copy", "old"):
        assert await load(env, handle, path, store, scope=SCOPE) == record
        assert await env.read(path) == data
    assert await names(env, "new/folder") == ["copy"]


async def test_A9_what_is_said_about_a_file_is_kept(env: RunEnv, store: ArtifactStore) -> None:
    """Its name, type, metadata and lifetime; a name of the user's is seen from other runs."""
    await env.write("a", b"text")
    scope = Scope(run="1", session="s", user="u")
    handle = await save(
        env, "a", store, scope=scope, filename="user:notes.md", media_type="text/markdown", metadata={"k": "v"}, ttl=60
    )
    record = await store.stat(handle, scope=Scope(run="2", user="u"))
    assert (record.name, record.media_type, record.metadata) == ("notes.md", "text/markdown", {"k": "v"})
    assert record.expires == record.created + 60
    await load(env, handle, "b", store, scope=Scope(user="u"), mode=0o755)
    assert (await env.stat("b")).mode & 0o777 == 0o755


async def test_A9_names_of_an_env_become_names_of_the_store(env: RunEnv, store: ArtifactStore) -> None:
    """The last name of a path, however it is written; one that a store refuses needs another."""
    for path, name in {"x/a b.txt": "a b.txt", "./x/../é": "é", f"{env.workdir}/plain": "plain"}.items():
        await env.write(path, b"x")
        assert (await store.stat(await save(env, path, store, scope=SCOPE), scope=SCOPE)).name == name
    await env.write("a\nb", b"x")
    with pytest.raises(HandleError):
        await save(env, "a\nb", store, scope=SCOPE)
    assert await save(env, "a\nb", store, scope=SCOPE, filename="ab")


async def test_A9_what_cannot_be_read_is_a_builtin_error(env: RunEnv, store: ArtifactStore) -> None:
    """Missing, a folder, a FIFO; the store holds nothing of it."""
    await env.mkdir("folder")
    assert (await env.exec(["mkfifo", "fifo"])).ok
    with pytest.raises(FileNotFoundError) as caught:
        await save(env, "no", store, scope=SCOPE)
    assert not isinstance(caught.value, ArtifactError)
    assert caught.value.filename == "no"
    with pytest.raises(IsADirectoryError):
        await save(env, "folder", store, scope=SCOPE)
    with anyio.fail_after(10), pytest.raises(OSError, match="FIFO"):
        await save(env, "fifo", store, scope=SCOPE)
    assert await left_in(store) == []


async def test_A9_a_file_of_unknown_size_is_stored(anyio_backend: str, store: ArtifactStore) -> None:  # noqa: ARG001 - makes anyio run this
    """Those of /proc say that they are empty."""
    async with open_env(LocalConfig(confine=False)) as env:
        handle = await save(env, "/proc/version", store, scope=SCOPE)
    assert (await store.get(handle, scope=SCOPE)).startswith(b"Linux")


async def test_A9_a_handle_that_is_not_there_makes_no_file(env: RunEnv, store: ArtifactStore) -> None:
    """Unknown, foreign and expired; and text that is no handle."""
    await env.write("a", b"x")
    foreign = await save(env, "a", store, scope="other")
    unknown = "runenv+file://00000000-0000-4000-8000-000000000000"
    for handle in (foreign, unknown):
        with pytest.raises(ArtifactMissingError) as caught:
            await load(env, handle, "b", store, scope=SCOPE)
        assert not isinstance(caught.value, ArtifactExpiredError)
    with pytest.raises(HandleError):
        await load(env, "deck.pptx", "b", store, scope=SCOPE)
    assert await names(env) == ["a"]


@pytest.mark.parametrize("size", [10, LARGE], ids=str)
async def test_A9_damaged_content_does_not_reach_the_env(env: RunEnv, store: ArtifactStore, size: int) -> None:
    """An old file is as it was, and there is no new one."""
    await env.write("a", noise(size))
    handle = await save(env, "a", store, scope=SCOPE)
    await damage(store, await store.stat(handle, scope=SCOPE))
    await env.write("old", b"old")
    for path in ("old", "new"):
        with pytest.raises(StoreError):
            await load(env, handle, path, store, scope=SCOPE)
    await until_names(env, ["a", "old"])
    assert await env.read("old") == b"old"


async def test_A9_a_fault_of_the_env_in_the_middle_stays_what_it_is(env: RunEnv, store: ArtifactStore) -> None:
    """It is not taken for a fault of the storage."""

    async def fail() -> None:
        raise OSError(errno.EIO, "the disk of the env", "a")

    await env.write("a", noise(LARGE))
    with pytest.raises(OSError, match="the disk of the env") as caught:
        await save(Meddled(env, fail), "a", store, scope=SCOPE)  # type: ignore[arg-type]
    assert not isinstance(caught.value, ArtifactError)
    assert await left_in(store) == []


@pytest.mark.parametrize("change", ["grown", "rewritten", "removed", "shortened"])
async def test_A9_a_file_that_changes_meanwhile_is_not_stored(env: RunEnv, store: ArtifactStore, change: str) -> None:
    """Whatever was read of it would be a file that never was."""
    data = noise(LARGE)
    await env.write("a", data)

    async def meddle() -> None:
        if change == "grown":
            await env.write("a", b"more", append=True)
        elif change == "removed":
            await env.remove("a")
        else:
            await env.write("a", data if change == "rewritten" else b"short")

    with pytest.raises(ArtifactError, match="changed while it was saved"):
        await save(Meddled(env, meddle), "a", store, scope=SCOPE)  # type: ignore[arg-type]
    assert await left_in(store) == []


async def test_A9_what_does_not_fit_leaves_nothing(env: RunEnv, tmp_path: Path) -> None:
    """Neither for one artifact nor for all; the env goes on."""
    await env.write("a", noise(LARGE))
    for quotas in (Quotas(max_artifact_bytes=MIB), Quotas(max_bytes=2 * MIB), Quotas(max_count=0)):
        for url in ("memory://", f"file://{tmp_path}/{quotas.max_bytes}-{quotas.max_count}"):
            async with ArtifactStore.open(url, quotas=quotas) as store:
                with anyio.fail_after(20), pytest.raises(LimitError):
                    await save(env, "a", store, scope=SCOPE)
                assert await left_in(store) == []
    assert (await env.stat("a")).size == LARGE


async def test_A9_where_a_file_cannot_be_written_the_old_is_there(env: RunEnv, store: ArtifactStore) -> None:
    """A folder in the way is a builtin error, and the store goes on."""
    await env.write("a", noise(LARGE))
    handle = await save(env, "a", store, scope=SCOPE)
    await env.mkdir("folder")
    for path, error in {"folder": IsADirectoryError, "a/b": NotADirectoryError}.items():
        with anyio.fail_after(20), pytest.raises(error):
            await load(env, handle, path, store, scope=SCOPE)
    assert (await names(env), await names(env, "folder")) == (["a", "folder"], [])
    await load(env, handle, "b", store, scope=SCOPE)


async def test_A9_a_cancelled_transfer_leaves_nothing(env: RunEnv, store: ArtifactStore) -> None:
    """On either side; the same can be done right after."""
    data = noise(LARGE)
    await env.write("a", data)
    other = await save(env, "a", store, scope="other", filename="other")
    await store.delete(await save(env, "a", store, scope=SCOPE), scope=SCOPE)
    before = await left_in(store)

    async def cancelled(transfer: Any, *arguments: Any, scope: str) -> None:  # noqa: ANN401 - either direction
        started = anyio.Event()

        async def meddle() -> None:
            started.set()
            await anyio.sleep_forever()

        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:

                async def run() -> None:
                    await transfer(Meddled(env, meddle), *arguments, store, scope=scope)

                group.start_soon(run)
                await started.wait()
                group.cancel_scope.cancel()

    await cancelled(save, "a", scope=SCOPE)
    assert await left_in(store) == before
    await cancelled(load, other, "b", scope="other")
    await until_names(env, ["a"])
    await load(env, await save(env, "a", store, scope=SCOPE), "b", store, scope=SCOPE)
    assert await env.read("b") == data


@pytest.mark.parametrize("direction", ["save", "load"])
async def test_A9_an_env_that_is_lost_leaves_nothing_in_the_store(
    anyio_backend: str,  # noqa: ARG001 - makes anyio run this
    store: ArtifactStore,
    direction: str,
) -> None:
    """It says so, and the store goes on."""
    async with open_env(LocalConfig()) as env:
        await env.write("a", noise(LARGE))
        kept = await save(env, "a", store, scope="other", filename="kept")
        before = await left_in(store)

        async def meddle() -> None:
            inside: Any = env
            inside._process.kill()

        broken: Any = Meddled(env, meddle)
        transfer = (
            save(broken, "a", store, scope=SCOPE)
            if direction == "save"
            else load(broken, kept, "b", store, scope="other")
        )
        with anyio.fail_after(20), pytest.raises(EnvLostError):
            await transfer
        assert await left_in(store) == before
        assert len(await store.get(kept, scope="other")) == LARGE


async def test_F9_progress_is_told(env: RunEnv, store: ArtifactStore) -> None:
    """Bytes done, rising to the size, with the total; an empty file has an end too."""
    for size in (LARGE, 0):
        told: list[tuple[int, int | None]] = []
        await env.write("a", noise(size))

        def progress(done: int, total: int | None, told: list[tuple[int, int | None]] = told) -> None:
            told.append((done, total))

        handle = await save(env, "a", store, scope=SCOPE, progress=progress)
        saved = len(told)
        await load(env, handle, "b", store, scope=SCOPE, progress=progress)
        for steps in (told[:saved], told[saved:]):
            assert [done for done, _ in steps] == sorted(done for done, _ in steps)
            assert steps[-1][0] == size
            assert {total for _, total in steps} <= {size or None, size}
    assert saved > 0


async def test_A9_versions_saved_at_once_are_all_there(env: RunEnv, store: ArtifactStore) -> None:
    """Many files of one name, over one link."""
    handles: dict[int, str] = {}

    async def one(number: int) -> None:
        await env.write(f"{number}/a", b"%d" % number)
        handles[number] = await save(env, f"{number}/a", store, scope=SCOPE)
        await load(env, handles[number], f"{number}/b", store, scope=SCOPE)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(one, number)
    assert [record.version for record in await store.versions("a", scope=SCOPE)] == list(range(20))
    for number in range(20):
        assert await env.read(f"{number}/b") == b"%d" % number


@pytest.mark.slow
async def test_A9_200_MB_pass_in_flat_memory(env: RunEnv, tmp_path: Path) -> None:
    """Both ways, SHA-256 equal at both ends."""
    assert (await env.exec(["sh", "-c", f"head -c {HUGE} /dev/urandom > big && sha256sum big"])).ok
    expected = (await env.exec(["sha256sum", "big"])).stdout.text.split()[0]
    async with ArtifactStore.open(f"file://{tmp_path}/store") as store:
        with Memory() as memory:
            handle = await save(env, "big", store, scope=SCOPE)
            record = await load(env, handle, "copy", store, scope=SCOPE)
        assert memory.growth_bytes < FLAT_BYTES
    assert (record.size, record.sha256) == (HUGE, expected)
    assert (await env.exec(["sha256sum", "copy"])).stdout.text.split()[0] == expected


@pytest.mark.parametrize("anywhere", ["memory", "s3"], indirect=True)
async def test_A9_no_byte_touches_the_disk_of_the_host(
    env: RunEnv, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """There is no folder for temporary files, and the kernel counts none that this process wrote."""
    size = 32 * MIB
    await env.write("a", noise(size))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "no"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "no"))
    before = written_bytes()
    handle = await save(env, "a", store, scope=SCOPE)
    await load(env, handle, "b", store, scope=SCOPE)
    assert written_bytes() - before < MIB
    assert list(tmp_path.iterdir()) == []


async def test_a_scripted_env_moves_files_too(store: ArtifactStore) -> None:
    """So that users test their own code without a sandbox."""
    async with ScriptedEnv(files={"a.csv": "1,2"}) as env:
        handle = await save(env, "a.csv", store, scope=SCOPE)
        await load(env, handle, "out/b.csv", store, scope=SCOPE)
        assert env.files["/workspace/out/b.csv"] == b"1,2"
