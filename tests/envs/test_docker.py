"""What a Docker env is: what its container may do, which images it takes, and the ways to its engine."""

from __future__ import annotations

import asyncio
import io
import json
import os
import socket
import tarfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import docker
import docker.errors
import pytest

from runenv.config import BindMount, TmpfsMount, VolumeMount
from runenv.env import Searches
from runenv.envs import open_env
from runenv.envs.docker import mounts as mounts_module
from runenv.errors import ConfigError, EnvClosedError, EnvStartError
from tests.envs.engines import (
    BASE,
    PYTHON,
    SOCKET,
    STATIC,
    Listener,
    Marked,
    fake_ssh,
    make_certificates,
    server_context,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from runenv.env import RunEnv

    Build = Callable[[str], str]

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

MIB = 1024 * 1024


def inspect(mark: Marked) -> dict[str, Any]:
    """Return what the engine says of the test's only container."""
    (container,) = mark.containers()
    found: dict[str, Any] = mark.client.inspect_container(container["Id"])
    return found


async def lines(env: RunEnv, command: str, /, **options: Any) -> list[str]:  # noqa: ANN401 - of exec
    """Return the output of a command that must succeed."""
    result = await env.exec(command, **options)
    assert result.ok, result
    return result.stdout.text.splitlines()


@pytest.fixture
def build(engine: docker.APIClient) -> Iterator[Build]:
    """Makes images from Dockerfiles, without a network, and removes them after the test."""
    tags: list[str] = []

    def make(dockerfile: str) -> str:
        tag = f"runenv-test/{uuid.uuid4().hex}"
        context = io.BytesIO()
        with tarfile.open(fileobj=context, mode="w") as archive:
            entry = tarfile.TarInfo("Dockerfile")
            entry.size = len(dockerfile)
            archive.addfile(entry, io.BytesIO(dockerfile.encode()))
        answer = list(
            engine.build(
                fileobj=io.BytesIO(context.getvalue()),
                custom_context=True,
                tag=tag,
                network_mode="none",
                rm=True,
                decode=True,
            )
        )
        assert not any("error" in line for line in answer), answer
        tags.append(tag)
        return tag

    yield make
    for tag in tags:
        engine.remove_image(tag, force=True)


# -- what the container may do


async def test_C108_a_default_env_has_nothing_of_the_host(mark: Marked) -> None:
    """The guest and an empty folder, no capabilities or new privileges, no network, bounded resources, not root."""
    async with open_env(mark.config()) as env:
        found = inspect(mark)
        host = found["HostConfig"]
        mounts = {mount["Destination"]: (mount["Type"], mount["RW"]) for mount in found["Mounts"]}
        assert mounts == {"/.runenv": ("volume", False), "/.runenv/link": ("bind", False)}
        assert await lines(env, "ls -A /.runenv/link") == []
        assert not host["Binds"]
        assert not host["Privileged"]
        assert host["CapDrop"] == ["ALL"]
        assert not host["CapAdd"]
        assert host["SecurityOpt"] == ["no-new-privileges"]
        assert host["NetworkMode"] == "none"
        assert host["Memory"] == host["MemorySwap"] == 1024 * MIB
        assert host["PidsLimit"] == 1024
        assert host["NanoCpus"] == 2_000_000_000
        assert host["AutoRemove"]
        assert host["LogConfig"]["Type"] == "none"
        assert host["PortBindings"] in (None, {})
        assert not host["Devices"]
        assert found["Config"]["User"] == "1000:1000"
        assert not found["Config"]["Tty"]
        assert found["Config"]["StdinOnce"]
        assert env.describe()["widened"] == []


async def test_C108_the_kernel_agrees_about_the_capabilities(mark: Marked) -> None:
    """What a command sees of itself."""
    async with open_env(mark.config()) as env:
        status = dict(line.split(":\t", 1) for line in await lines(env, "cat /proc/self/status") if ":\t" in line)
        assert status["NoNewPrivs"] == "1"
        assert {status[name].strip("0") for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {""}
        assert status["Uid"].split() == ["1000"] * 4
        assert await lines(env, "ls /sys/class/net") == ["lo"]


@pytest.mark.parametrize("source", [SOCKET, "/", "/var/run", "/run"])
async def test_C108_a_mount_that_gives_the_host_away_needs_the_word_unsafe(source: str) -> None:
    """The socket of the engine, a folder that holds it, and the whole file system."""
    with pytest.raises(ConfigError, match="unsafe=True"):
        BindMount(source=Path(source), target="/x")


async def test_C108_the_socket_of_an_engine_at_another_place_is_refused_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: Marked
) -> None:
    """The configuration cannot know it; the env that uses the engine does."""
    (tmp_path / "odd").mkdir()
    with Listener() as listener, socket.socket(socket.AF_UNIX) as unused:
        assert listener.port
        unused.bind(str(tmp_path / "unused"))
        (tmp_path / "odd" / "engine").symlink_to(SOCKET)
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/odd/engine")
        config = mark.config(mounts=(BindMount(source=tmp_path / "odd", target="/x"),))
        with pytest.raises(ConfigError, match="is or holds the Docker engine's socket"):
            await open_env(config).__aenter__()


async def test_the_environment_of_the_configuration_is_not_in_docker_inspect(mark: Marked) -> None:
    """It travels over the link; commands have it, and so has what they start."""
    async with open_env(mark.config(environment={"TOKEN": "very-secret"})) as env:
        assert await lines(env, "echo $TOKEN") == ["very-secret"]
        assert "very-secret" not in json.dumps(inspect(mark))
        assert "very-secret" not in repr(env.describe())
        assert env.describe()["environment"] == ["TOKEN"]


async def test_C105_nothing_of_the_hosts_environment_arrives(mark: Marked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Canaries under names that matter, and under one that nobody would look for."""
    for name in ("OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "MY_X", "HTTP_PROXY"):
        monkeypatch.setenv(name, "canary-on-the-host")
    async with open_env(mark.config()) as env:
        seen = await env.exec("env; cat /proc/self/environ; cat /proc/$PPID/environ; cat /proc/1/environ; bash -lc env")
        assert "canary" not in seen.stdout.text
        assert await lines(env, "echo $GIVEN", env={"GIVEN": "by the caller"}) == ["by the caller"]


async def test_limits_can_be_widened_by_name_and_describe_says_so(mark: Marked) -> None:
    """Each one, and only those."""
    wide: dict[str, Any] = {
        "network": "full",
        "memory_bytes": None,
        "pids": 2048,
        "cpus": None,
        "cap_add": ("NET_RAW",),
        "allow_new_privileges": True,
        "user": "0:0",
    }
    async with open_env(mark.config(**wide)) as env:
        assert env.describe()["widened"] == [
            "network", "memory_bytes", "pids", "cpus", "cap_add", "allow_new_privileges", "user",
        ]  # fmt: skip
        host = inspect(mark)["HostConfig"]
        assert (host["NetworkMode"], host["Memory"], host["PidsLimit"]) == ("bridge", 0, 2048)
        assert host["CapAdd"] in (["NET_RAW"], ["CAP_NET_RAW"])
        assert not host["SecurityOpt"]
        assert await lines(env, "id -u") == ["0"]


async def test_narrower_limits_are_no_widening(mark: Marked) -> None:
    """Less memory, fewer processes, half a CPU, a read-only root."""
    async with open_env(mark.config(memory_bytes=64 * MIB, pids=32, cpus=0.5, read_only=True)) as env:
        assert env.describe()["widened"] == []
        host = inspect(mark)["HostConfig"]
        assert (host["Memory"], host["PidsLimit"], host["NanoCpus"]) == (64 * MIB, 32, 500_000_000)
        assert host["ReadonlyRootfs"]


async def test_more_cpus_than_the_engine_has_are_all_it_has(mark: Marked, engine: docker.APIClient) -> None:
    """The same configuration works on a small machine."""
    async with open_env(mark.config(cpus=1000)) as env:
        assert inspect(mark)["HostConfig"]["NanoCpus"] == engine.info()["NCPU"] * 1_000_000_000
        assert env.describe()["cpus"] == engine.info()["NCPU"]


async def test_memory_is_limited_and_the_limit_is_named(mark: Marked) -> None:
    """A command that wants more than there is dies alone."""
    async with open_env(mark.config(memory_bytes=64 * MIB)) as env:
        result = await env.exec("x=$(head -c 200000000 /dev/zero | tr '\\0' x); echo ${#x}", timeout=60)
        assert result.oom_killed
        assert (await env.exec("echo alive")).stdout.text == "alive\n"


# -- images


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("image", [BASE, PYTHON, STATIC])
async def test_workdir_tmp_and_home_are_writable_in_every_image(mark: Marked, image: str, read_only: bool) -> None:  # noqa: FBT001
    """C048: with a shell and without one, with and without the folders, root writable or not."""
    try:
        mark.client.inspect_image(image)
    except docker.errors.ImageNotFound:
        pytest.skip(f"{image} is not built")
    async with open_env(mark.config(image, read_only=read_only)) as env:
        for path in ("/workspace/a", "/tmp/b", "relative/c"):
            await env.write(path, b"content")
            assert await env.read(path) == b"content"
            info = await env.stat(path)
            assert (info.uid, info.gid) == (1000, 1000)
        assert (await env.stat("/tmp")).mode & 0o7777 == 0o1777
        assert env.workdir == "/workspace"
        if image == STATIC:
            assert (await env.exec(["/bin/busybox", "echo", "hi"])).stdout.text == "hi\n"
            assert env.describe()["shell"] is None
            assert (await env.exec("echo hi")).exit_code == 127
        else:
            assert await lines(env, "echo x > ~/file && cat ~/file; pwd") == ["x", "/workspace"]
            program = await lines(env, "printf '#!/bin/sh\\necho ran' > p; chmod +x p; ./p")
            assert program == ["ran"]


async def test_folders_of_the_image_are_given_to_the_user(mark: Marked, build: Build) -> None:
    """A work folder that belongs to root and is closed, and a /tmp that only root may write."""
    image = build(
        f"FROM {BASE}\nUSER root\nRUN mkdir -p /deep/work && echo kept > /deep/work/f\n"
        "RUN chmod 700 /deep/work && chmod 755 /tmp\n"
    )
    for _ in range(2):  # what is remembered of the image must not be wrong for the next container
        async with open_env(mark.config(image, workdir="/deep/work")) as env:
            await env.write("new", b"")
            await env.write("/tmp/new", b"")
            assert await lines(env, "cat f; stat -c '%u:%g %a' . /tmp /deep") == [
                "kept", "1000:1000 700", "0:0 1777", "0:0 755",
            ]  # fmt: skip


async def test_a_work_folder_that_is_a_link_stays_one(mark: Marked, build: Build) -> None:
    """What it points to is given to the user."""
    image = build(f"FROM {BASE}\nUSER root\nRUN mkdir /data && touch /data/f && ln -s /data /work\n")
    async with open_env(mark.config(image, workdir="/work")) as env:
        await env.write("new", b"")
        assert await lines(env, "readlink /work; ls /data; stat -c %u /data") == ["/data", "f", "new", "1000"]


async def test_a_work_folder_that_is_missing_is_made(mark: Marked) -> None:
    """Several levels deep, for a user that the image does not know."""
    async with open_env(mark.config(STATIC, workdir="/a/b/c", user="12345:54321")) as env:
        await env.write("f", b"x")
        info = await env.stat("/a/b/c")
        assert (info.uid, info.gid, info.mode & 0o7777) == (12345, 54321, 0o755)
        assert (await env.stat("/a")).uid == 0


async def test_what_the_image_would_run_does_not_run(mark: Marked, build: Build) -> None:
    """ENTRYPOINT, CMD, HEALTHCHECK, STOPSIGNAL and USER are the image's; ENV is ours to keep."""
    image = build(
        f"FROM {BASE}\nUSER root\nENV FROM_IMAGE=yes CHANGED=no\nWORKDIR /root\nENTRYPOINT ['/bin/false']\nCMD ['x']\n"
        "STOPSIGNAL SIGKILL\nHEALTHCHECK --interval=1s CMD exit 1\n".replace("'", '"')
    )
    async with open_env(mark.config(image, environment={"CHANGED": "yes"})) as env:
        assert await lines(env, "echo $FROM_IMAGE $CHANGED; id -u; pwd") == ["yes yes", "1000", "/workspace"]
        found = inspect(mark)["Config"]
        assert found["Entrypoint"] == ["/.runenv/guest"]
        assert not found["Cmd"]
        assert found["Healthcheck"]["Test"] == ["NONE"]
        assert found["StopSignal"] == "SIGTERM"


async def test_anonymous_volumes_of_the_image_go_with_the_container(
    mark: Marked, build: Build, engine: docker.APIClient
) -> None:
    """VOLUME in a Dockerfile makes a volume for each container."""
    image = build(f"FROM {BASE}\nUSER root\nVOLUME /data /workspace\n")
    async with open_env(mark.config(image)) as env:
        await env.write("/workspace/f", b"x")
        names = {mount["Name"] for mount in inspect(mark)["Mounts"] if not mount["Destination"].startswith("/.runenv")}
        assert len(names) == 2
    left = {volume["Name"] for volume in engine.volumes()["Volumes"] or ()}
    assert not names & left


async def test_a_platform_without_a_guest_is_told(mark: Marked, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image for another processor family."""
    monkeypatch.setattr("runenv.guest.MACHINES", {"aarch64": "aarch64"})
    with pytest.raises(EnvStartError, match="no guest for the processor 'amd64'"):
        await open_env(mark.config()).__aenter__()


async def test_a_guest_for_another_processor_is_told_by_the_kernels_words(
    mark: Marked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: docker.APIClient
) -> None:
    """The container starts, its program does not."""
    wrong = tmp_path / "guest"
    wrong.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xb7\x00" + os.urandom(100))

    def guest_binary(machine: str) -> Path:
        assert machine
        return wrong

    monkeypatch.setattr("runenv.envs.docker.volumes.guest_binary", guest_binary)
    try:
        with anyio.fail_after(10), pytest.raises(EnvStartError, match="exec format error"):
            await open_env(mark.config()).__aenter__()
    finally:
        for volume in engine.volumes(filters={"name": "runenv-guest-"})["Volumes"]:
            try:
                engine.remove_volume(volume["Name"])
            except docker.errors.APIError:
                continue  # in use


# -- mounts


async def test_mounts_arrive_with_their_rights(mark: Marked, tmp_path: Path, engine: docker.APIClient) -> None:
    """Folders and files of the host, a named volume, a folder in memory."""
    tmp_path.chmod(0o755)
    for name in ("ro", "rw"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o777)
        (tmp_path / name / "f").write_text(name)
    (tmp_path / "file").write_text("a file")
    volume = f"runenv-test-{uuid.uuid4().hex}"
    config = mark.config(
        mounts=(
            BindMount(source=tmp_path / "ro", target="/ro"),
            BindMount(source=tmp_path / "rw", target="/rw", read_only=False),
            BindMount(source=tmp_path / "file", target="/etc/file"),
            VolumeMount(name=volume, target="/vol/data"),
            TmpfsMount(target="/mem", size_bytes=MIB),
        )
    )
    try:
        async with open_env(config) as env:
            assert await lines(env, "cat /ro/f /rw/f /etc/file") == ["rorwa file"]
            with pytest.raises(OSError, match=r"(?i)read-only"):
                await env.write("/ro/new", b"")
            await env.write("/rw/new", b"from the env")
            await env.write("/vol/data/kept", b"kept")
            with pytest.raises(OSError, match=r"(?i)space"):
                await env.write("/mem/big", os.urandom(2 * MIB))
            assert env.describe()["widened"] == ["mounts"]
        assert (tmp_path / "rw" / "new").read_bytes() == b"from the env"
        assert sorted(path.name for path in (tmp_path / "rw").iterdir()) == ["f", "new"]
        async with open_env(mark.config(read_only=True, mounts=(VolumeMount(name=volume, target="/v"),))) as env:
            assert await env.read("/v/kept") == b"kept"
    finally:
        engine.remove_volume(volume)


@pytest.mark.parametrize("read_only", [False, True])
async def test_a_new_volume_as_work_folder_belongs_to_the_user(
    mark: Marked,
    engine: docker.APIClient,
    read_only: bool,  # noqa: FBT001 - a parameter
) -> None:
    """The engine makes them for root; what is in it lasts from env to env."""
    volume = f"runenv-test-{uuid.uuid4().hex}"
    config = mark.config(STATIC, read_only=read_only, mounts=(VolumeMount(name=volume, target="/workspace"),))
    try:
        async with open_env(config) as env:
            await env.write("f", b"lasts")
        async with open_env(config) as env:
            assert await env.read("f") == b"lasts"
    finally:
        engine.remove_volume(volume)


async def test_C077_a_source_that_is_not_on_the_engines_host_is_an_error(mark: Marked) -> None:
    """The engine must not make an empty folder of that name."""
    config = mark.config(mounts=(BindMount(source=Path("/nonexistent/here"), target="/x"),))
    with pytest.raises(EnvStartError, match="bind source path does not exist: /nonexistent/here"):
        await open_env(config).__aenter__()
    assert not Path("/nonexistent").exists()


@pytest.mark.parametrize("read_only", [False, True])
async def test_C077_a_source_that_is_another_folder_on_the_engines_host_is_an_error(
    mark: Marked,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read_only: bool,  # noqa: FBT001
) -> None:
    """We look at our folder, the engine mounts its own of the same name: as when we run in a container."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for folder in (theirs, ours):
        folder.mkdir()
        folder.chmod(0o777)
    (ours / "code.py").write_text("print()")
    config = mark.config(mounts=(BindMount(source=ours, target="/x", read_only=read_only),))
    create: Any = docker.APIClient.create_container_from_config

    def elsewhere(self: docker.APIClient, body: dict[str, Any], *more: Any) -> Any:  # noqa: ANN401 - the SDK's
        text = json.dumps(body).replace(str(ours), str(theirs))
        return create(self, json.loads(text), *more)

    monkeypatch.setattr(docker.APIClient, "create_container_from_config", elsewhere)
    with pytest.raises(EnvStartError, match=r"'/x' does not show .*ours' of this host.*upload the files instead"):
        await open_env(config).__aenter__()
    assert [path.name for path in ours.iterdir()] == ["code.py"]


async def test_C077_a_folder_that_changes_while_it_is_compared_is_compared_again(
    mark: Marked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others write to it: one look at each side is not enough."""
    tmp_path.chmod(0o755)
    looks: list[int] = []
    in_thread: Any = vars(mounts_module)["in_thread"]

    async def changing(function: Any) -> Any:  # noqa: ANN401 - of any type
        result = await in_thread(function)
        if getattr(function, "__name__", "") == "look":
            looks.append(1)
            if len(looks) == 1:
                await in_thread(lambda: (tmp_path / "new").write_text("just now"))
        return result

    monkeypatch.setattr(mounts_module, "in_thread", changing)
    async with open_env(mark.config(mounts=(BindMount(source=tmp_path, target="/x"),))) as env:
        assert await env.read("/x/new") == b"just now"
    assert len(looks) == 2


async def test_C077_a_mount_that_the_user_cannot_enter_is_an_error(mark: Marked, tmp_path: Path) -> None:
    """It could not be used either."""
    tmp_path.chmod(0o700)
    with pytest.raises(EnvStartError, match="user of the env cannot look into the bind mount '/x'"):
        await open_env(mark.config(mounts=(BindMount(source=tmp_path, target="/x"),))).__aenter__()


async def test_by_default_files_are_copied_and_nothing_is_mounted(mark: Marked, tmp_path: Path) -> None:
    """C077: upload works wherever the engine is."""
    (tmp_path / "f").write_text("content")
    async with open_env(mark.config()) as env:
        await env.upload(tmp_path, "copy")
        assert await env.read("copy/f") == b"content"
        assert {mount["Destination"] for mount in inspect(mark)["Mounts"]} == {"/.runenv", "/.runenv/link"}


# -- a read-only root


async def test_a_read_only_env_says_that_its_folders_are_in_memory(mark: Marked) -> None:
    """They count against the limit, and a quarter of it at most goes to spilled output."""
    async with open_env(mark.config(read_only=True, memory_bytes=64 * MIB)) as env:
        assert env.describe()["in_memory"] == {
            "/workspace": "counted against memory_bytes",
            "/tmp": "counted against memory_bytes",
        }
        with pytest.raises(OSError, match=r"(?i)read-only"):
            await env.write("/etc/new", b"")
        result = await env.exec("head -c 40000000 /dev/zero", max_output_bytes=1024)
        assert result.stdout.total_bytes == 40_000_000
        assert result.stdout.spilled_bytes <= 16 * MIB


async def test_C109_a_flood_of_empty_files_ends_at_a_limit(mark: Marked) -> None:
    """In memory they would take all of it, one inode after the other."""
    async with open_env(mark.config(read_only=True, memory_bytes=64 * MIB)) as env:
        result = await env.exec("i=0; while : > f$i; do i=$((i+1)); done", timeout=60)
        assert not result.timed_out
        assert "No space left" in result.stderr.text
        await env.exec("cd /; rm -rf /workspace/*")
        await env.write("f", b"again")


# -- users


async def test_a_call_may_run_as_another_user(mark: Marked) -> None:
    """Numeric, without capabilities, in the same container and folder, with a home of its own."""
    async with open_env(mark.config(environment={"A": "b"})) as env:
        script = "id -u; id -g; pwd; echo $A; grep -c 'CapEff:.0*$' /proc/self/status; touch ~/x /tmp/of-other"
        assert await lines(env, script, user="4242:4343") == ["4242", "4343", "/workspace", "b", "1"]
        assert (await env.stat("/tmp/of-other")).uid == 4242
        assert await lines(env, "id -u; id -g", user="77") == ["77", "77"]
        root = await lines(env, "id -u; grep -c 'CapEff:.0*$' /proc/self/status", user="0")
        assert root == ["0", "1"]
        assert not (await env.exec("touch /workspace/of-other", user="4242")).ok
        long = await env.exec("seq 1 100000", user="4242")
        path = long.stdout.spill_path
        assert path is not None
        assert path in long.stdout.text
        assert (await env.stat(path)).size == len(await env.read(path)) == 588_895
        async with env.open_read(path, offset=588_888) as chunks:
            assert b"".join([chunk async for chunk in chunks]) == b"100000\n"
        assert isinstance(env, Searches)
        assert [line.number for line in (await env.grep("^77777$", path)).lines] == [77777]
        with pytest.raises(FileNotFoundError):
            await env.read(f"{path}-not-there")


async def test_guests_for_other_users_are_started_once(mark: Marked, engine: docker.APIClient) -> None:
    """Many calls at once as one user share it."""
    async with open_env(mark.config()) as env:
        results = await asyncio.gather(*(env.exec("id -u", user="4242") for _ in range(10)))
        assert {result.stdout.text for result in results} == {"4242\n"}
        assert len(engine.inspect_container(mark.containers()[0]["Id"])["ExecIDs"] or ()) == 1
        await env.exec("true", user="1000:1000")
        assert len(engine.inspect_container(mark.containers()[0]["Id"])["ExecIDs"] or ()) == 1


@pytest.mark.parametrize("user", ["root", "1000:staff", "", "-1", "1 000"])
async def test_a_user_that_is_no_number_is_refused(mark: Marked, user: str) -> None:
    """A name means what the image says, which nobody has checked."""
    async with open_env(mark.config()) as env:
        with pytest.raises(ConfigError, match="is no number: write uid or uid:gid"):
            await env.exec("true", user=user)


async def test_a_killed_guest_of_another_user_is_replaced(mark: Marked) -> None:
    """The env itself goes on, and so does that user."""
    async with open_env(mark.config(environment={"ROOT": "no"})) as env:
        assert (await env.exec("id -u", user="4242")).ok
        dead = env._others["4242:4242"]  # type: ignore[attr-defined]
        dead.lose("the test cut it")
        assert (await env.exec("id -u", user="4242")).stdout.text == "4242\n"
        assert (await env.exec("id -u")).stdout.text == "1000\n"


# -- ways to the engine


async def use(env: RunEnv) -> None:
    """Do a bit of everything, through commands, files and a second guest."""
    async with env:
        assert (await env.exec("cat", stdin=b"x" * 300_000)).stdout.total_bytes == 300_000
        content = os.urandom(3 * MIB)
        await env.write("f", content)
        assert await env.read("f") == content
        assert (await env.exec("id -u", user="4242")).stdout.text == "4242\n"


async def test_an_engine_over_tcp_serves_an_env(mark: Marked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls and stream, past a proxy that the environment names."""
    with Listener() as listener:
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{listener.port}")
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        await use(open_env(mark.config()))
        assert listener.connections >= 3
    mark.wait_gone()


async def test_an_engine_over_tls_serves_an_env(mark: Marked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a client certificate, verified both ways."""
    make_certificates(tmp_path)
    with Listener(server_context(tmp_path)) as listener:
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{listener.port}")
        monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
        monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
        await use(open_env(mark.config()))
    mark.wait_gone()


async def test_a_tls_engine_that_is_not_the_right_one_is_refused(
    mark: Marked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its certificate is of an authority that we do not know."""
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
        make_certificates(tmp_path / name)
    with Listener(server_context(tmp_path / "theirs")) as listener:
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{listener.port}")
        monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
        monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path / "ours"))
        with pytest.raises(EnvStartError, match=r"(?i)certificate verify failed"):
            await open_env(mark.config()).__aenter__()


async def test_an_engine_over_ssh_serves_an_env(mark: Marked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the `ssh` program on PATH; none of them is left."""
    log = fake_ssh(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    await use(open_env(mark.config(engine="ssh://me@far:2222")))
    assert "-l me -p 2222 -- far docker system dial-stdio" in log.read_text()
    mark.wait_gone()
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path).encode() in _read(path)]
    assert not left


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


async def test_nothing_is_served_before_open_or_after_close(mark: Marked) -> None:
    """L1: closing is idempotent, and an env is used once."""
    env = open_env(mark.config())
    with pytest.raises(EnvClosedError):
        await env.exec("true")
    async with env:
        pass
    await env.aclose()
    with pytest.raises(EnvClosedError):
        await env.read("f")
    with pytest.raises(EnvClosedError):
        await env.__aenter__()
