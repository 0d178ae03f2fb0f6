"""The unix-socket carrier: that bytes go past the engine, that attach does where they cannot, and what is left."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from runenv.cli.doctor import check_docker
from runenv.envs import open_env
from runenv.envs.docker import owners, socket_carrier
from runenv.envs.docker import sweep as sweep_module
from runenv.envs.docker.container import LINK_FOLDER, Container
from runenv.envs.docker.socket_carrier import FOLDER_PREFIX, Listener, remove_left_folders
from runenv.errors import EnvLostError
from runenv.guest.link import Link
from tests.envs.engines import BASE, PYTHON, ROOT, SOCKET, STATIC, Marked, Proxy, owner_process, until
from tests.envs.engines import Listener as TcpListener

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024
OVER_SOCKET = ("unix socket", None)


@pytest.fixture
def temp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files that is the test's own, and short enough for sockets."""
    folder = Path(tempfile.mkdtemp(prefix="rt-", dir="/tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def engine_url(temp: Path) -> str:
    """The engine under a name of the test's own: what is found out about it is not remembered for other tests."""
    (temp / "engine").symlink_to(SOCKET)
    return f"unix://{temp}/engine"


def folders(temp: Path) -> list[str]:
    """What there is of sockets for guests."""
    return [path.name for path in temp.iterdir() if path.name.startswith(FOLDER_PREFIX)]


def carrier(env: Any) -> tuple[object, object]:  # noqa: ANN401 - a RunEnv
    """Say how its bytes go, and why."""
    described = env.describe()
    return described["carrier"], described["carrier_reason"]


def mounts(mark: Marked) -> dict[str, str]:
    """Return the mount points of the test's only container, with their sources."""
    (container,) = mark.containers()
    return {mount["Destination"]: mount["Source"] for mount in container["Mounts"]}


async def works(env: Any) -> None:  # noqa: ANN401 - a RunEnv
    """Use commands and files, more than a window of them."""
    content = os.urandom(3 * MIB)
    await env.write("f", content)
    assert await env.read("f") == content
    program = [] if env.describe()["shell"] else ["/bin/busybox"]
    assert (await env.exec([*program, "echo", "works"])).stdout.text == "works\n"


# -- past the engine


@pytest.mark.docker
@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("image", [BASE, STATIC])
async def test_an_env_on_this_machine_has_a_socket(mark: Marked, image: str, read_only: bool) -> None:  # noqa: FBT001
    """In every image, on a read-only root, without capabilities, as a user that this host does not know."""
    async with open_env(mark.config(image, read_only=read_only, user="4242:4343")) as env:
        assert carrier(env) == OVER_SOCKET
        await works(env)


@pytest.mark.docker
async def test_bytes_go_past_the_engine(mark: Marked, temp: Path) -> None:
    """The engine hears of the container, and of none of what is sent to the guest or comes from it."""
    async with Proxy(temp / "engine") as proxy, open_env(mark.config(engine=proxy.url)) as env:
        assert carrier(env) == OVER_SOCKET
        before = proxy.bytes
        await works(env)
        (temp / "big").write_bytes(os.urandom(8 * MIB))
        await env.upload(temp / "big", "big")
        await env.download("big", temp / "back")
        assert (temp / "back").read_bytes() == (temp / "big").read_bytes()
        assert proxy.bytes == before
        assert before < 100_000
        assert (await env.exec("id -u", user="4242")).stdout.text == "4242\n"
        assert proxy.bytes > before, "guests of other users are reached through the engine"


@pytest.mark.docker
async def test_code_in_the_sandbox_finds_nothing_in_the_folder(mark: Marked, temp: Path) -> None:
    """No socket, no way to put something there, not even for root; and the host has no such folder any more."""
    code = f"""
        import os, socket
        print(os.listdir({LINK_FOLDER!r}))
        def tried(what):
            try:
                what()
            except OSError as error:
                print(error.strerror)
        tried(lambda: socket.socket(socket.AF_UNIX).connect({LINK_FOLDER!r} + "/s"))
        tried(lambda: socket.socket(socket.AF_UNIX).bind({LINK_FOLDER!r} + "/s"))
        tried(lambda: open({LINK_FOLDER!r} + "/x", "w"))
        tried(lambda: os.mkdir({LINK_FOLDER!r} + "/x"))
    """
    async with open_env(mark.config(PYTHON)) as env:
        assert carrier(env) == OVER_SOCKET
        source = Path(mounts(mark)[LINK_FOLDER])
        assert source.parent.parent == temp
        assert not source.parent.exists()
        for user in (None, "0"):
            seen = await env.exec(["python3", "-c", textwrap.dedent(code)], user=user)
            assert seen.stdout.text.splitlines() == ["[]", *["No such file or directory"] * 4], seen.stderr.text


@pytest.mark.docker
async def test_the_end_of_the_attached_stream_is_the_end_of_the_env(mark: Marked, temp: Path) -> None:
    """As when the engine restarts and leaves its containers running: no env goes on that it does not know of."""
    async with Proxy(temp / "engine") as proxy, open_env(mark.config(engine=proxy.url)) as env:
        assert carrier(env) == OVER_SOCKET
        pending = asyncio.create_task(env.exec("sleep 1000"))
        await env.exec("true")
        proxy.cut()
        with anyio.fail_after(5), pytest.raises(EnvLostError, match="the guest ended"):
            await pending
        await asyncio.to_thread(mark.wait_gone, 5)


@pytest.mark.docker
def test_a_forked_child_of_the_owner_holds_nothing(mark: Marked) -> None:
    """The owner is killed and the child lives on: the container goes all the same."""
    body = """
        async with open_env(config()) as env:
            assert env.describe()["carrier"] == "unix socket"
            child = os.fork()
            if not child:
                signal.pause()
            say("now", child)
            await env.exec("sleep 1000")
    """
    with owner_process(mark, body) as owner:
        assert owner.stdout is not None
        child = int(owner.stdout.readline().split()[1])
        try:
            owner.kill()
            mark.wait_gone(5)
        finally:
            os.kill(child, 9)


@pytest.mark.docker
async def test_doctor_says_how_bytes_go(mark: Marked, temp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the engine, or through it and why."""
    assert not mark.containers()
    (check,) = [check for check in await check_docker(BASE) if check.name == "carrier"]
    assert (check.state, check.found) == ("ok", "unix socket, past the engine")
    async with Proxy(temp / "engine", refuse_mount) as proxy:
        monkeypatch.setenv("DOCKER_HOST", proxy.url)
        (check,) = [check for check in await check_docker(BASE) if check.name == "carrier"]
    assert check.state == "note"
    assert check.found.startswith("attach, so all bytes pass through the engine: ")
    assert "bind source path does not exist" in check.found


# -- where attach has to do


def refuse_mount(head: bytes, body: bytes) -> str | None:
    """Refuse a container with the folder in the engine's words, as one does that has no such folder."""
    if b"/containers/create" not in head.partition(b"\r\n")[0]:
        return None
    for mount in json.loads(body)["HostConfig"]["Mounts"]:
        if mount["Target"] == LINK_FOLDER:
            return f'invalid mount config for type "bind": bind source path does not exist: {mount["Source"]}'
    return None


@pytest.mark.docker
async def test_an_engine_that_refuses_the_folder_is_served_by_attach(mark: Marked, temp: Path) -> None:
    """Silently, with nothing left of the first try; and the next env does not try again."""
    async with Proxy(temp / "engine", refuse_mount) as proxy:
        for _ in range(2):
            async with open_env(mark.config(STATIC, engine=proxy.url)) as env:
                kind, reason = carrier(env)
                assert kind == "attach"
                assert "bind source path does not exist" in str(reason)
                assert list(mounts(mark)) == ["/.runenv"]
                assert folders(temp) == []
                await works(env)
                assert len(proxy.refusals) == 1
        assert mark.containers() == []


@pytest.mark.docker
async def test_a_container_that_does_not_start_with_the_folder_is_made_without(mark: Marked, temp: Path) -> None:
    """User namespaces are noticed only then; the first container is gone."""
    refused: list[str] = []

    def refuse_once(head: bytes, _: bytes) -> str | None:
        if b"/start " not in head.partition(b"\r\n")[0] or refused:
            return None
        refused.append("once")
        return f"error mounting to rootfs at {LINK_FOLDER}: permission denied"

    async with Proxy(temp / "engine", refuse_once) as proxy, open_env(mark.config(STATIC, engine=proxy.url)) as env:
        assert carrier(env)[0] == "attach"
        assert "permission denied" in str(carrier(env)[1])
        assert list(mounts(mark)) == ["/.runenv"]
        await works(env)


@pytest.mark.docker
async def test_what_is_wrong_with_the_configuration_is_not_blamed_on_the_folder(mark: Marked, engine_url: str) -> None:
    """The same error without it, and the next env has its socket."""
    with pytest.raises(Exception, match="NO_SUCH"):
        await open_env(mark.config(engine=engine_url, cap_add=("NO_SUCH",))).__aenter__()
    async with open_env(mark.config(engine=engine_url)) as env:
        assert carrier(env) == OVER_SOCKET


@pytest.mark.docker
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can hide a folder from the engine")
def test_an_engine_that_does_not_see_the_folder_is_served_by_attach(mark: Marked, temp: Path) -> None:
    """We are in a mount namespace of our own, as in a container that was given the engine's socket."""
    program = f"""
        import asyncio
        from runenv.envs import open_env
        from tests.envs.engines import config

        async def main():
            for _ in range(2):
                async with open_env(config(labels={mark.labels!r})) as env:
                    described = env.describe()
                    print(described["carrier"], "|", described["carrier_reason"])
                    print((await env.exec("echo works")).stdout.text.strip())

        asyncio.run(main())
    """
    if subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode:
        pytest.skip("this root may not make mount namespaces")
    inside = f'mount -t tmpfs none "{temp}" && exec "$0" -c "$1"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", inside, sys.executable, textwrap.dedent(program)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    first, works_1, second, works_2 = done.stdout.splitlines()
    assert first == second
    assert first.startswith("attach | ")
    assert "bind source path does not exist" in first
    assert works_1 == works_2 == "works"
    assert mark.containers() == []


@pytest.mark.docker
@pytest.mark.skipif(os.geteuid() != 0, reason="the socket of another user must be there")
async def test_a_guest_that_may_not_connect_stays_on_attach(
    mark: Marked, temp: Path, engine_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel refuses it, as SELinux does; the container stays the same, and the next one has no folder."""
    monkeypatch.setattr(socket_carrier, "SOCKET_MODE", 0o600)
    reason = "the guest cannot connect to the socket: Permission denied"
    async with open_env(mark.config(STATIC, engine=engine_url)) as env:
        assert carrier(env) == ("attach", reason)
        assert LINK_FOLDER in mounts(mark)
        assert folders(temp) == []
        await works(env)
    monkeypatch.setattr(socket_carrier, "SOCKET_MODE", 0o666)
    async with open_env(mark.config(STATIC, engine=engine_url)) as env:
        assert carrier(env) == ("attach", reason)
        assert LINK_FOLDER not in mounts(mark)


@pytest.mark.docker
@pytest.mark.parametrize("words", [b"", b"let me in, I am the guest; this is longer than any proof"])
async def test_a_stranger_at_the_socket_is_sent_away(
    mark: Marked, temp: Path, engine_url: str, monkeypatch: pytest.MonkeyPatch, words: bytes
) -> None:
    """Whoever it is, only one connection is taken: the env begins anew, on attach."""
    start = Container.start
    strangers: list[socket.socket] = []

    def come() -> None:
        for name in folders(temp):
            stranger = socket.socket(socket.AF_UNIX)
            stranger.connect(f"{temp}/{name}/c/s")
            stranger.send(words)
            if not words:
                stranger.shutdown(socket.SHUT_WR)
            strangers.append(stranger)

    async def with_a_stranger(self: Container) -> None:
        await start(self)
        await asyncio.to_thread(come)

    monkeypatch.setattr(Container, "start", with_a_stranger)
    async with open_env(mark.config(STATIC, engine=engine_url)) as env:
        assert carrier(env) == ("attach", "it was not the guest that connected to the socket")
        assert list(mounts(mark)) == ["/.runenv"]
        await works(env)
    (stranger,) = strangers
    with stranger, pytest.raises(BrokenPipeError):
        stranger.send(b"is there anybody?")


@pytest.mark.docker
async def test_a_guest_that_does_not_come_is_not_waited_for_without_end(
    mark: Marked, engine_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows then which stream it reads: the env begins anew, on attach."""
    monkeypatch.setattr(socket_carrier, "CONNECT_SECONDS", 0.2)

    def never(link: Link, *_: bytes) -> asyncio.Future[OSError]:
        return link.loop.create_future()

    monkeypatch.setattr(Link, "connect", never)
    async with open_env(mark.config(STATIC, engine=engine_url)) as env:
        assert carrier(env) == ("attach", "the guest did not connect to the socket within 0.2 s")
        await works(env)


@pytest.mark.docker
async def test_a_container_that_dies_before_the_connection_is_lost(
    mark: Marked, temp: Path, engine_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no reason to do without the socket."""
    take = Listener.take

    async def kill_first(self: Listener, *arguments: Any) -> str | None:  # noqa: ANN401 - as they are
        (container,) = await asyncio.to_thread(mark.containers)
        await asyncio.to_thread(mark.client.kill, container["Id"])
        return await take(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Listener, "take", kill_first)
        with anyio.fail_after(10), pytest.raises(EnvLostError, match=r"by signal 9|was removed"):
            await open_env(mark.config(engine=engine_url)).__aenter__()
    assert mark.containers() == []
    assert folders(temp) == []
    async with open_env(mark.config(engine=engine_url)) as env:
        assert carrier(env) == OVER_SOCKET


@pytest.mark.docker
async def test_a_host_without_room_for_a_socket_is_served_by_attach(
    mark: Marked, temp: Path, engine_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder for temporary files has a long name, or is gone."""
    long = temp / ("x" * 90)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    async with open_env(mark.config(STATIC, engine=engine_url)) as env:
        assert carrier(env) == ("attach", "no socket can be made on this host: AF_UNIX path too long")
        await works(env)
    assert folders(long) == []


@pytest.mark.docker
async def test_an_engine_at_another_place_has_no_socket(mark: Marked) -> None:
    """It may be another machine."""
    with TcpListener() as listener:
        async with open_env(mark.config(engine=f"tcp://127.0.0.1:{listener.port}")) as env:
            assert carrier(env) == ("attach", "the engine is reached over tcp")
            assert list(mounts(mark)) == ["/.runenv"]


# -- what is left on the host


@pytest.mark.docker
async def test_nothing_is_left_from_the_connection_on(mark: Marked, temp: Path) -> None:
    """Neither while the env is open nor after it."""
    async with open_env(mark.config()) as env:
        assert carrier(env) == OVER_SOCKET
        assert folders(temp) == []
    assert list(temp.iterdir()) == []


@pytest.mark.docker
@pytest.mark.parametrize("delay", [0.0, 0.01, 0.03, 0.06, 0.1, 0.2, 0.3, 0.4, 0.5])
async def test_nothing_is_left_of_a_cancelled_start(mark: Marked, temp: Path, delay: float) -> None:
    """At any moment of it."""
    task = asyncio.create_task(open_env(mark.config()).__aenter__())
    await asyncio.sleep(delay)
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        await task.result().aclose()
    assert list(temp.iterdir()) == []
    assert mark.containers() == []


@pytest.mark.docker
async def test_nothing_is_left_of_a_start_that_is_cancelled_while_the_guest_connects(
    mark: Marked, temp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the request and the connection, when the folder is there."""
    asked = asyncio.Event()

    def unheard(link: Link, *_: bytes) -> asyncio.Future[OSError]:
        asked.set()
        return link.loop.create_future()

    monkeypatch.setattr(Link, "connect", unheard)
    task = asyncio.create_task(open_env(mark.config()).__aenter__())
    await asked.wait()
    assert len(folders(temp)) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert list(temp.iterdir()) == []
    assert mark.containers() == []


@pytest.mark.docker
def test_a_killed_owner_leaves_nothing_on_the_host(mark: Marked, temp: Path) -> None:
    """From the connection on there is nothing that it could leave."""
    body = """
        async with open_env(config()) as env:
            assert env.describe()["carrier"] == "unix socket"
            say("now")
            await env.exec("sleep 1000")
    """
    with owner_process(mark, body) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "now\n"
        owner.kill()
        mark.wait_gone(5)
    assert list(temp.iterdir()) == []


@pytest.mark.docker
def test_what_an_owner_leaves_that_is_killed_before_the_connection_goes_with_the_next_open(
    mark: Marked, temp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what belongs to one that lives stays."""
    body = """
        from runenv.envs.docker.socket_carrier import Listener

        async def stop_here(*_):
            say("now")
            await asyncio.sleep(1000)

        Listener.take = stop_here
        async with open_env(config()) as env:
            pass
    """

    async def open_one() -> None:
        async with open_env(mark.config()):
            pass

    monkeypatch.setattr(sweep_module, "SWEEP_PAUSE_SECONDS", 0.0)
    with owner_process(mark, body) as dead, owner_process(mark, body) as living:
        for owner in (dead, living):
            assert owner.stdout is not None
            assert owner.stdout.readline() == "now\n"
        dead.kill()
        dead.wait()
        assert len(folders(temp)) == 2
        asyncio.run(open_one())
        (left,) = folders(temp)
        assert f"-{living.pid}-" in left
    mark.wait_gone(5)
    asyncio.run(open_one())
    assert folders(temp) == []


# -- folder and socket


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_a_socket_is_within_reach_of_the_guest_and_of_nobody_else(temp: Path, umask: int) -> None:
    """Through the parent only this user and root; in the container everybody."""
    before = os.umask(umask)
    try:
        listener = Listener()
        listener.make()
    finally:
        os.umask(before)
    source = Path(listener.mount["Source"])
    assert stat.S_IMODE(source.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(source.stat().st_mode) == 0o755
    (path,) = source.iterdir()
    assert path.is_socket()
    assert stat.S_IMODE(path.stat().st_mode) == 0o666
    assert listener.mount["ReadOnly"]
    listener.remove()
    listener.remove()
    assert list(temp.iterdir()) == []


def test_what_others_put_into_the_folder_is_not_removed(temp: Path) -> None:
    """Only what is known to be ours goes."""
    listener = Listener()
    listener.make()
    alien = Path(listener.mount["Source"], "alien")
    alien.touch()
    listener.remove()
    assert alien.exists()
    assert len(folders(temp)) == 1


def leave(temp: Path, owner: str, *, age: float = 0.0) -> Path:
    """Make a folder as a killed owner leaves it."""
    folder = temp / f"{FOLDER_PREFIX}{owner}-0123abcd"
    (folder / "c").mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(folder / "c" / "s"))
    then = time.time() - age
    os.utime(folder, (then, then))
    return folder


def test_only_what_is_left_is_removed(temp: Path) -> None:
    """Of dead owners of ours, at once; of those that we cannot see, after a minute; nothing of other people."""
    machine, pid, started = owners.mark().split("-")
    dead = leave(temp, f"{machine}-{pid}-{int(started) + 1}")
    old = leave(temp, "ffffffff-1-1", age=120)
    damaged = leave(temp, "what", age=120)
    half = temp / f"{FOLDER_PREFIX}{machine}-{pid}-{int(started) + 2}-00000000"
    half.mkdir()
    kept = [
        leave(temp, f"{machine}-{pid}-{started}", age=120),
        leave(temp, "ffffffff-2-1"),
        leave(temp, f"{machine}-{pid}-{int(started) + 3}"),
    ]
    (kept[-1] / "c" / "alien").touch()
    link = temp / f"{FOLDER_PREFIX}{machine}-{pid}-{int(started) + 4}-00000000"
    link.symlink_to(kept[0])
    other = temp / "runenv-abcdefgh"
    other.mkdir()
    remove_left_folders()
    assert not [path for path in (dead, old, damaged, half) if path.exists()]
    assert [path for path in (*kept, link, other) if not path.exists()] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_what_belongs_to_another_user_is_not_removed(temp: Path) -> None:
    """Even by root, who could."""
    machine, pid, started = owners.mark().split("-")
    folder = leave(temp, f"{machine}-{pid}-{int(started) + 1}")
    os.chown(folder, 4242, 4242)
    remove_left_folders()
    assert folder.exists()


async def test_a_folder_for_temporary_files_that_is_gone_is_no_fault(
    temp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left there."""
    monkeypatch.setattr(tempfile, "tempdir", str(temp / "nothing"))
    await asyncio.to_thread(remove_left_folders)
    await until(lambda: not folders(temp))
