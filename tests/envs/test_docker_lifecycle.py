"""How Docker envs come and go: with their owner, without leaving anything, and with a reason when they are lost."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import docker
import docker.errors
import pytest

from runenv.config import BindMount, VolumeMount
from runenv.envs import open_env
from runenv.envs.docker import owners
from runenv.envs.docker import sweep as sweep_module
from runenv.envs.docker.container import Container
from runenv.envs.docker.engine import Engine
from runenv.envs.docker.sweep import LABEL_KIND, LABEL_OWNER, prune, sweep
from runenv.errors import EnvLostError, EnvStartError
from tests.envs.engines import BASE, PATIENCE, ROOT, STATIC, Listener, Marked, owner_process, until, wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from runenv.envs.docker.env import DockerEnv

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

LOST_SECONDS = 5.0
"""E13 asks for a second; the engine is shared, and its own removal of a container takes its time."""


async def name_of(mark: Marked) -> str:
    """Return the name of the test's only container."""
    (container,) = await asyncio.to_thread(mark.containers)
    name: str = container["Names"][0].lstrip("/")
    return name


def descriptors() -> int:
    """Count the open files of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


# -- the env is lost


async def lost(env: Any, blow: list[str]) -> str:  # noqa: ANN401 - a RunEnv
    """Deal a blow to the container during a command, and return the error that every pending and later call raises."""
    pending = asyncio.create_task(env.exec("echo started; sleep 100"))
    await env.exec("true")
    blower = asyncio.create_task(asyncio.to_thread(subprocess.run, blow, check=True, capture_output=True))
    with anyio.fail_after(LOST_SECONDS), pytest.raises(EnvLostError) as caught:
        await pending
    for call in (env.exec("true"), env.read("f"), env.write("f", b""), env.stat(".")):
        with anyio.fail_after(0.5), pytest.raises(EnvLostError):
            await call
    await blower
    return str(caught.value)


async def test_C068_a_container_that_is_removed_is_told_at_once(mark: Marked) -> None:
    """E13: `docker rm -f` during a command; every call after it is the same error, at once."""
    async with open_env(mark.config()) as env:
        message = await lost(env, ["docker", "rm", "-f", await name_of(mark)])
    assert "ended from outside, by signal 9" in message or "was removed" in message


async def test_E13_docker_kill_is_told_at_once(mark: Marked) -> None:
    """By the signal that was sent; over the socket, and over attach."""
    with Listener() as listener:
        for way in ({}, {"engine": f"tcp://127.0.0.1:{listener.port}"}):
            async with open_env(mark.config(**way)) as env:
                assert env.describe()["carrier"] == ("attach" if way else "unix socket")
                message = await lost(env, ["docker", "kill", await name_of(mark)])
            assert "ended from outside, by signal 9" in message


async def test_C068_docker_stop_ends_the_env_quickly(mark: Marked) -> None:
    """The guest takes the signal and does not wait for the kill that would follow after ten seconds."""
    async with open_env(mark.config()) as env:
        began = time.monotonic()
        message = await lost(env, ["docker", "stop", await name_of(mark)])
        assert time.monotonic() - began < 8
    assert "signal" in message


async def test_C068_a_paused_container_ends_by_the_commands_deadline(
    mark: Marked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guest cannot keep it, so the host's backstop does."""
    monkeypatch.setattr("runenv.envs.guested.env.BACKSTOP", 0.5)
    env: DockerEnv = open_env(mark.config())  # type: ignore[assignment]
    async with env:
        name = await name_of(mark)
        await asyncio.to_thread(subprocess.run, ["docker", "pause", name], check=True, capture_output=True)
        with anyio.fail_after(10), pytest.raises(EnvLostError, match="the container is paused"):
            await env.exec("true", timeout=0.5)


async def test_an_engine_that_hangs_does_not_hang_the_close(
    mark: Marked, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its connections are there and nothing moves: closing ends in bounded time and says what it could not do."""
    monkeypatch.setattr("runenv.envs.docker.env.STOP_SECONDS", 0.5)
    with Listener() as listener:
        env = open_env(mark.config(engine=f"tcp://127.0.0.1:{listener.port}"))
        await env.__aenter__()
        listener.freeze()
        with anyio.fail_after(10):
            await env.aclose()
        assert "was not removed: no answer within" in caplog.text
        listener.thaw()
        await until(lambda: not mark.containers(), 5)


async def test_a_guest_that_runs_out_of_memory_is_told(mark: Marked) -> None:
    """The first process itself is taken: its death is the container's."""
    async with open_env(mark.config()) as env:
        (container,) = await asyncio.to_thread(mark.containers)
        pid = mark.client.inspect_container(container["Id"])["State"]["Pid"]
        pending = asyncio.create_task(env.exec("sleep 100"))
        await env.exec("true")
        os.kill(pid, signal.SIGKILL)
        with anyio.fail_after(LOST_SECONDS), pytest.raises(EnvLostError, match="exit code 137"):
            await pending


async def test_a_command_cannot_end_its_env(mark: Marked) -> None:
    """The first process is out of reach for what runs in the container."""
    async with open_env(mark.config()) as env:
        await env.exec("kill -9 1; kill -15 1; kill -9 -1", timeout=10)
        assert (await env.exec("echo alive")).stdout.text == "alive\n"


# -- the owner is gone

PHASES = {
    "in the middle of a command": """
        async with open_env(config()) as env:
            task = asyncio.create_task(env.exec("sleep 1000"))
            await env.exec("true")
            say("now")
            await task
    """,
    "in the middle of an upload": """
        async def endless():
            say("now")
            while True:
                yield bytes(100_000)
                await asyncio.sleep(0.001)
        async with open_env(config()) as env:
            await env.write("f", endless())
    """,
    "in the middle of a download": """
        async with open_env(config()) as env:
            await env.exec("head -c 100000000 /dev/urandom > f")
            async with env.open_read("f") as chunks:
                async for chunk in chunks:
                    say("now")
                    await asyncio.sleep(1000)
    """,
    "with a second guest": """
        async with open_env(config()) as env:
            await env.exec("true", user="4242")
            say("now")
            await env.exec("sleep 1000", user="4242")
    """,
    "with its loop blocked": """
        async with open_env(config()) as env:
            say("now")
            import time
            time.sleep(1000)
    """,
    "with a command that ignores all signals": """
        async with open_env(config()) as env:
            command = "trap '' TERM HUP INT; (setsid sleep 1000 &); while :; do sleep 1; done"
            task = asyncio.create_task(env.exec(command))
            await env.exec("true")
            say("now")
            await task
    """,
}


@pytest.mark.parametrize("phase", PHASES)
def test_C070_a_killed_owner_takes_its_container_along(mark: Marked, phase: str) -> None:
    """L2: SIGKILL at any time after the start; gone within five seconds."""
    with owner_process(mark, PHASES[phase]) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "now\n"
        assert len(mark.containers()) == 1
        owner.kill()
        mark.wait_gone(5)


def test_C070_a_killed_owner_on_attach_takes_its_container_along(mark: Marked) -> None:
    """The engine sees the end of the stream, and the guest that of its stdin."""
    with Listener() as listener:
        body = f"""
            async with open_env(config(engine="tcp://127.0.0.1:{listener.port}")) as env:
                say(env.describe()["carrier"])
                await env.exec("sleep 1000")
        """
        with owner_process(mark, body) as owner:
            assert owner.stdout is not None
            assert owner.stdout.readline() == "attach\n"
            owner.kill()
            mark.wait_gone(5)


ENDS = {
    "SIGTERM": (signal.SIGTERM, "await env.exec('sleep 1000')"),
    "Ctrl-C": (signal.SIGINT, "await env.exec('sleep 1000')"),
    "sys.exit": (None, "sys.exit(3)"),
    "an exception": (None, "raise RuntimeError"),
    "os._exit": (None, "os._exit(3)"),
    "SIGHUP": (signal.SIGHUP, "await env.exec('sleep 1000')"),
}


@pytest.mark.parametrize("end", ENDS)
def test_C070_every_other_end_of_the_owner_removes_the_container_too(mark: Marked, end: str) -> None:
    """However a program ends, nothing of its env stays."""
    number, statement = ENDS[end]
    body = f"""
        async with open_env(config()) as env:
            say("now")
            {statement}
    """
    with owner_process(mark, body) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "now\n"
        if number is not None:
            owner.send_signal(number)
        owner.wait(PATIENCE)
        mark.wait_gone(5)


def stopping(where: str) -> str:
    """A program that reports, and hangs, at one step of the start."""
    return f"""
        from runenv.envs.docker.container import Container
        from runenv.envs.docker import images, env as docker

        async def stop_here(*_, **__):
            say("now")
            await asyncio.sleep(1000)

        {where} = stop_here
        async with open_env(config()) as env:
            pass
    """


@pytest.mark.parametrize("step", ["Container.put_folders", "Container.attach", "Container.start"])
def test_C070_an_owner_killed_before_the_start_is_cleaned_up_by_the_next_open(
    mark: Marked, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """L2: a container that was made and never started does not end by itself."""
    with owner_process(mark, stopping(step)) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "now\n"
        assert [container["State"] for container in mark.containers()] == ["created"]
        owner.kill()
        owner.wait()
    monkeypatch.setattr(sweep_module, "SWEEP_PAUSE_SECONDS", 0.0)

    async def open_one(age: float) -> None:
        monkeypatch.setattr(sweep_module.sweep, "__kwdefaults__", {"min_age": age})
        async with open_env(mark.config()):
            pass

    asyncio.run(open_one(60.0))
    assert len(mark.containers()) == 1, "it is younger than a minute: another process may be about to start it"
    asyncio.run(open_one(0.0))
    assert mark.containers() == []


@pytest.mark.parametrize("step", ["docker.get_image", "docker.provide_guest", "docker.sweep"])
def test_C070_an_owner_killed_before_the_container_is_made_leaves_nothing(mark: Marked, step: str) -> None:
    """During the pull, for one."""
    with owner_process(mark, stopping(step)) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "now\n"
        owner.kill()
        owner.wait()
    assert mark.containers() == []


@pytest.mark.parametrize("step", ["Container.put_folders", "Container.attach", "Container.start"])
def test_C070_an_owner_stopped_by_ctrl_c_during_the_start_cleans_up_itself(mark: Marked, step: str) -> None:
    """It has the time for it."""
    with owner_process(mark, stopping(step)) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "now\n"
        owner.send_signal(signal.SIGINT)
        owner.wait(PATIENCE)
        assert mark.containers() == []


# -- the start fails


async def test_C069_failed_start_leaves_no_container(mark: Marked) -> None:
    """Whatever is wrong with it; and the same configuration, once it is right, starts."""
    odd: dict[str, dict[str, Any]] = {
        "a platform that it is not": {"platform": "linux/arm64"},
        "a capability that is none": {"cap_add": ("NO_SUCH_THING",)},
        "a mount from nowhere": {"mounts": (BindMount(source=Path("/nonexistent/here"), target="/x"),)},
        "a folder that is a file": {"workdir": "/bin/busybox"},
        "a mount over the program's own": {"mounts": (VolumeMount(name="runenv-test-x", target="/bin/busybox"),)},
    }
    for what, settings in odd.items():
        with pytest.raises(EnvStartError):
            await open_env(mark.config(STATIC, **settings)).__aenter__()
        assert mark.containers() == [], what
    mark.client.remove_volume("runenv-test-x")
    async with open_env(mark.config(STATIC)) as env:
        assert (await env.exec(["/bin/busybox", "true"])).ok


@pytest.mark.parametrize("step", ["create", "put_folders", "attach", "start"])
async def test_C069_a_step_that_raises_leaves_no_container(
    mark: Marked, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """After each step of the start, even by an error that nobody foresaw."""
    original = getattr(Container, step)

    async def then_fail(self: Container, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - of any step
        await original(self, *arguments, **options)
        raise RuntimeError("the hook raised")

    with monkeypatch.context() as patch:
        patch.setattr(Container, step, then_fail)
        with pytest.raises(RuntimeError, match="the hook raised"):
            await open_env(mark.config()).__aenter__()
    assert mark.containers() == []
    async with open_env(mark.config()) as env:
        assert (await env.exec("true")).ok


async def test_C069_names_are_random_and_a_retry_meets_no_old_one(mark: Marked) -> None:
    """Two envs of one configuration."""
    config = mark.config()
    async with open_env(config) as one, open_env(config) as other:
        assert one.id != other.id
        assert len(mark.containers()) == 2


@pytest.mark.parametrize("way", ["task", "scope"])
@pytest.mark.parametrize("delay", [0.0, 0.01, 0.03, 0.06, 0.1, 0.2, 0.4])
async def test_a_cancelled_start_leaves_no_container(mark: Marked, way: str, delay: float) -> None:
    """At any moment of it, whoever cancels: nothing is left when the cancellation comes out."""
    if way == "task":
        task = asyncio.create_task(open_env(mark.config()).__aenter__())
        await asyncio.sleep(delay)
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            await task.result().aclose()
    else:
        with anyio.move_on_after(delay):
            async with open_env(mark.config()):
                await anyio.sleep_forever()
    assert mark.containers() == []


async def test_a_start_whose_creation_is_cancelled_waits_for_its_removal(
    mark: Marked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is making the container when the task is cancelled: it is removed once it is made."""
    making, go_on = threading.Event(), threading.Event()
    create: Any = docker.APIClient.create_container_from_config

    def slow(self: docker.APIClient, body: dict[str, Any], name: str, platform: str | None = None) -> Any:  # noqa: ANN401
        making.set()
        assert go_on.wait(PATIENCE)
        return create(self, body, name, platform)

    monkeypatch.setattr(docker.APIClient, "create_container_from_config", slow)
    task = asyncio.create_task(open_env(mark.config()).__aenter__())
    await until(making.is_set)
    task.cancel()
    await asyncio.sleep(0.1)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert mark.containers() == []


async def test_C112_a_close_that_is_cancelled_twice_still_removes_the_container(mark: Marked) -> None:
    """Both cancellations come out, after the removal."""
    env = open_env(mark.config())
    await env.__aenter__()
    task = asyncio.create_task(env.aclose())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert mark.containers() == []


async def test_an_emptied_guest_volume_is_filled_again(mark: Marked, engine: docker.APIClient) -> None:
    """Someone pruned volumes between two envs of this process."""
    async with open_env(mark.config()) as env:
        mounts = mark.client.inspect_container(await name_of(mark))["Mounts"]
        (volume,) = [mount["Name"] for mount in mounts if mount["Type"] == "volume"]
        assert (await env.exec("true")).ok
    await until(lambda: _removed(engine, volume))
    async with open_env(mark.config()) as env:
        assert (await env.exec("echo back")).stdout.text == "back\n"


def _removed(engine: docker.APIClient, volume: str) -> bool:
    """Remove a volume that other tests may be using."""
    try:
        engine.remove_volume(volume)
    except docker.errors.APIError:
        return False
    return True


# -- many of them


async def cycle(mark: Marked) -> None:
    """Open, use in each way, close."""
    async with open_env(mark.config()) as env:
        assert (await env.exec("true")).ok
        await env.write("f", b"x")


async def leaks_of(mark: Marked, cycles: int) -> tuple[int, int]:
    """Return how many descriptors and threads some cycles leave."""
    await cycle(mark)  # what stays for good is there then
    gc.collect()
    files, threads = descriptors(), threading.active_count()
    for _ in range(cycles):
        await cycle(mark)
    gc.collect()
    return descriptors() - files, threading.active_count() - threads


@pytest.mark.timeout(300)
async def test_L2_fifty_cycles_leak_nothing(mark: Marked) -> None:
    """No container, no descriptor, no thread."""
    files, threads = await leaks_of(mark, 50)
    assert (files, max(threads, 0)) == (0, 0)
    assert mark.containers() == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_L2_a_thousand_cycles_leak_nothing(mark: Marked) -> None:
    """Nor any memory to speak of."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    await leaks_of(mark, 50)
    before = resident()
    files, threads = await leaks_of(mark, 1000)
    assert (files, max(threads, 0)) == (0, 0)
    assert resident() - before < 20_000_000
    assert mark.containers() == []


@pytest.mark.timeout(300)
async def test_fifty_envs_at_once_open_work_and_close(mark: Marked) -> None:
    """No thread for each of them, and each is its own."""
    threads = 0

    async def use(number: int) -> str:
        nonlocal threads
        async with open_env(mark.config()) as env:
            await env.write("mine", str(number).encode())
            threads = max(threads, threading.active_count())
            return (await env.exec("cat mine")).stdout.text

    assert await asyncio.gather(*(use(number) for number in range(50))) == [str(number) for number in range(50)]
    assert threads < 45
    assert mark.containers() == []


async def test_C109_a_fork_bomb_stays_in_its_env(mark: Marked) -> None:
    """The limit of processes holds; another env is not affected; closing takes less than ten seconds."""
    async with open_env(mark.config()) as calm:
        env = open_env(mark.config(pids=256))
        await env.__aenter__()
        bomb = asyncio.create_task(env.exec("bomb() { bomb | bomb & }; bomb; sleep 100", timeout=5))
        for _ in range(10):
            with anyio.fail_after(5):
                assert (await calm.exec("echo calm")).stdout.text == "calm\n"
            await asyncio.sleep(0.2)
        assert (await bomb).timed_out
        assert (await env.exec("echo usable")).stdout.text == "usable\n"
        again = asyncio.create_task(env.exec("bomb() { bomb | bomb & }; bomb; sleep 100", timeout=60))
        await asyncio.sleep(1)
        with anyio.fail_after(10):
            await env.aclose()
        with pytest.raises(Exception, match="closed"):
            await again


# -- what others left


@pytest.fixture
async def swept(mark: Marked) -> AsyncIterator[Engine]:
    """An engine to sweep by hand."""
    assert mark.labels
    engine = await Engine.connect()
    engine.known.pop("swept", None)
    yield engine
    await engine.close()


def leftover(mark: Marked, **labels: str) -> str:
    """Make a container as a killed owner leaves it."""
    everything = {LABEL_OWNER: "elsewhere/1/2", **mark.labels, **labels}
    body = {"Image": BASE, "Entrypoint": ["/bin/sleep", "100"], "Labels": everything}
    identity: str = mark.client.create_container_from_config(body)["Id"]
    return identity


async def test_the_sweep_removes_what_was_never_started_or_has_ended(mark: Marked, swept: Engine) -> None:
    """Of owners that are gone."""
    leftover(mark)
    ended = leftover(mark)
    mark.client.start(ended)
    mark.client.kill(ended)
    await until(lambda: mark.client.inspect_container(ended)["State"]["Status"] == "exited")
    await sweep(swept, min_age=-5)
    assert mark.containers() == []


async def test_the_sweep_never_touches_what_runs_is_young_is_kept_or_has_a_living_owner(
    mark: Marked, swept: Engine
) -> None:
    """Each alone is reason enough."""
    running = leftover(mark)
    mark.client.start(running)
    leftover(mark, **{"runenv.persist": "a-name"})
    leftover(mark, **{LABEL_OWNER: await asyncio.to_thread(owners.owner)})
    await sweep(swept, min_age=-5)
    assert len(mark.containers()) == 3
    leftover(mark)
    swept.known.pop("swept", None)
    await sweep(swept, min_age=60)
    assert len(mark.containers()) == 4
    for container in mark.containers():
        mark.client.remove_container(container["Id"], force=True)


async def test_the_sweep_leaves_containers_of_others_alone(mark: Marked, swept: Engine) -> None:
    """Without our label nothing is ours."""
    body = {"Image": BASE, "Entrypoint": ["/bin/sleep", "100"], "Labels": mark.labels}
    stranger = mark.client.create_container_from_config(body)["Id"]
    await sweep(swept, min_age=-5)
    assert len(mark.containers()) == 1
    mark.client.remove_container(stranger)


async def test_prune_removes_guest_volumes_that_nobody_uses(mark: Marked, swept: Engine) -> None:
    """And those only."""
    leftover(mark)
    mark.client.create_volume("runenv-guest-test-unused", labels={LABEL_KIND: "guest"})
    mark.client.create_volume("my-runenv-guest-not-ours")
    async with open_env(mark.config()) as env:
        used = mark.client.inspect_container(f"runenv-{env.id}")
        pruned = await prune(swept, min_age=-5)
        assert "runenv-guest-test-unused" in pruned.volumes
        assert not {mount.get("Name") for mount in used["Mounts"]} & set(pruned.volumes)
        assert len(pruned.containers) >= 1
        assert len(mark.containers()) == 1
    assert mark.client.inspect_volume("my-runenv-guest-not-ours")
    mark.client.remove_volume("my-runenv-guest-not-ours")


def test_an_owner_is_known_by_more_than_its_number() -> None:
    """The number of a process that ended is given to another one some day."""
    machine, pid, started = owners.owner().split("/")
    assert owners.lives(f"{machine}/{pid}/{started}")
    assert not owners.lives(f"{machine}/{pid}/{int(started) + 1}")
    assert not owners.lives(f"elsewhere/{pid}/{started}")
    assert not owners.lives("")
    digest = owners.mark().partition("-")[0]
    assert owners.mark_lives(f"{digest}-{pid}-{started}")
    assert owners.mark_lives(f"{digest}-{pid}-{int(started) + 1}") is False
    assert owners.mark_lives(f"elsewhere-{pid}-{started}") is None
    assert owners.mark_lives("") is None
    with subprocess.Popen(["sleep", "1000"]) as process:
        its = owners._started(process.pid)
        label, mark = f"{machine}/{process.pid}/{its}", f"{digest}-{process.pid}-{its}"
        assert owners.lives(label)
        assert owners.mark_lives(mark)
        process.kill()
        process.wait()
    assert not owners.lives(label)
    assert owners.mark_lives(mark) is False


# -- the engine goes away (last: nobody else may use it meanwhile)


@pytest.mark.restarts_engine
@pytest.mark.timeout(300)
async def test_E13_an_engine_that_restarts_ends_its_envs_with_a_reason(mark: Marked) -> None:
    """In the middle of a command; after the restart a new env opens and nothing of the old one is left."""
    env = open_env(mark.config())
    async with env:
        pending = asyncio.create_task(env.exec("sleep 100"))
        await env.exec("true")
        stopper = asyncio.create_task(asyncio.to_thread(_script, "stop"))
        with anyio.fail_after(30), pytest.raises(EnvLostError) as caught:
            await pending
        with anyio.fail_after(0.5), pytest.raises(EnvLostError):
            await env.exec("true")
        await stopper
        await asyncio.to_thread(_script, "start")
        # Whichever comes first: a daemon that goes tells its containers to stop, and then does not answer.
        reasons = ("told to stop", "engine does not answer", "from outside")
        assert any(reason in str(caught.value) for reason in reasons)
    await until(lambda: not mark.containers())
    async with open_env(mark.config()) as new:
        assert (await new.exec("echo back")).stdout.text == "back\n"


@pytest.mark.restarts_engine
@pytest.mark.timeout(300)
async def test_closing_while_the_engine_is_down_ends_in_bounded_time(mark: Marked) -> None:
    """It does not raise, and the engine removes the container itself when it is back."""
    env: DockerEnv = open_env(mark.config())  # type: ignore[assignment]
    await env.__aenter__()
    try:
        await asyncio.to_thread(_script, "stop")
        began = time.monotonic()
        await env.aclose()
        assert time.monotonic() - began < 15
        with anyio.fail_after(5), pytest.raises(EnvStartError, match="start Docker"):
            await open_env(mark.config()).__aenter__()
    finally:
        await asyncio.to_thread(_script, "start")
    await until(lambda: not mark.containers())


def _script(verb: str) -> None:
    """Stop or start the engine."""
    subprocess.run([str(ROOT / "scripts" / "engine"), verb], check=True, capture_output=True)
    if verb == "start":
        wait_until(lambda: subprocess.run(["docker", "version"], check=False, capture_output=True).returncode == 0)
