"""What is special to the local env: its folders, its confinement, its environment, and its life beside this process."""
# ruff: noqa: ASYNC110 - tests look at small files of their own, and wait for what only /proc can tell

from __future__ import annotations

import asyncio
import errno
import gc
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from pydantic import SecretStr

from runenv.config import LocalConfig
from runenv.env import RunEnv
from runenv.envs import local as local_module
from runenv.envs import open_env
from runenv.envs.guested import env as guested_module
from runenv.envs.local import LocalEnv
from runenv.errors import ConfigError, EnvClosedError, EnvError, EnvLostError, EnvStartError
from runenv.types import DEFAULT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="local envs run on Linux"),
]

PATIENCE = 20.0


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, which belongs to the test: what is left in it was left behind."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
async def env(temporary: Path) -> AsyncIterator[LocalEnv]:
    """An open env with a temporary folder."""
    async with LocalEnv(LocalConfig()) as opened:
        assert Path(opened.workdir).is_relative_to(temporary)
        yield opened


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder that is given as workdir, with neighbours that are none of its business."""
    for name in ("work", "work-evil"):
        (tmp_path / name).mkdir()
    (tmp_path / "work-evil" / "x").write_text("secret")
    return tmp_path / "work"


def pids_of(marker: str) -> list[int]:
    """Return the processes whose command line has `marker` as an argument."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if marker.encode() in arguments:
                found.append(int(entry.name))
    return found


async def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for something that only /proc tells."""
    with anyio.fail_after(PATIENCE):
        while not condition():
            await anyio.sleep(0.005)


# -- what it is


@pytest.mark.usefixtures("temporary")
async def test_it_is_a_run_env_that_describes_itself_without_secrets() -> None:
    """`open_env` finds it by its kind; what it is not is said plainly."""
    env = open_env(LocalConfig(environment={"TOKEN": SecretStr("hunter2")}))
    assert isinstance(env, RunEnv)
    async with env:
        described = env.describe()
        assert described["kind"] == env.kind == "local"
        assert described["id"] == env.id
        assert described["workdir"] == env.workdir
        assert described["environment"] == ["TOKEN"]
        assert str(described["isolation"]).startswith("none")
        assert "hunter2" not in str(described)


@pytest.mark.parametrize("config", [None, "local", {"kind": "local"}, object()])
def test_open_env_refuses_what_is_no_configuration(config: object) -> None:
    """The error names the kinds there are."""
    with pytest.raises(ConfigError, match="docker, local"):
        open_env(config)  # type: ignore[arg-type]


async def test_commands_run_in_the_folder_and_files_are_in_it(env: LocalEnv) -> None:
    """One folder for both."""
    await env.write("a/b", b"content")
    result = await env.exec("pwd; cat a/b")
    assert result.stdout.text == f"{env.workdir}\ncontent"


# -- the working folder


async def test_a_given_folder_is_used_and_kept(root: Path, temporary: Path) -> None:
    """It is the caller's: nothing is added to it or taken from it."""
    (root / "mine").write_text("kept")
    async with LocalEnv(LocalConfig(workdir=root)) as env:
        assert env.workdir == str(root)
        assert await env.read("mine") == b"kept"
        assert [entry.path for entry in await env.list()] == ["mine"]
    assert [path.name for path in root.iterdir()] == ["mine"]
    assert list(temporary.iterdir()) == []


async def test_a_missing_folder_is_a_config_error_that_names_it(root: Path, temporary: Path) -> None:
    """Neither made nor replaced by another one."""
    config = LocalConfig(workdir=root)
    root.rmdir()
    with pytest.raises(ConfigError, match="work' is not a folder"):
        async with LocalEnv(config):
            pass
    assert list(temporary.iterdir()) == []


async def test_a_folder_given_through_a_link_is_that_folder(root: Path) -> None:
    """`workdir` is the real path, so that what commands print about it agrees with it."""
    link = root.parent / "link"
    link.symlink_to(root)
    async with LocalEnv(LocalConfig(workdir=link)) as env:
        assert env.workdir == str(root)
        assert (await env.exec("pwd -P")).stdout.text == f"{root}\n"


async def test_the_temporary_folder_goes_with_whatever_is_in_it(temporary: Path) -> None:
    """Unwritable folders, trees deeper than a path may be long, and links, which are not followed."""
    outside = temporary.parent / "outside"
    outside.mkdir(mode=0o500)
    (temporary.parent / "precious").write_text("kept")
    script = f"""
        mkdir -p locked/inner; touch locked/inner/file locked/file; chmod 0 locked/inner; chmod 500 locked
        ln -s {outside} to-folder; ln -s {temporary.parent}/precious to-file; ln -s /proc/self/root everything
        mkfifo pipe; touch -- -rf 'with
newline'
    """
    deep = "import os\nfor _ in range(150): os.mkdir('deep' * 10); os.chdir('deep' * 10)"
    async with LocalEnv(LocalConfig()) as env:
        for command in (["sh", "-c", script], [sys.executable, "-c", deep]):
            result = await env.exec(command)
            assert result.exit_code == 0, result.stderr.text
    assert list(temporary.iterdir()) == []
    assert (temporary.parent / "precious").read_text() == "kept"
    assert outside.stat().st_mode & 0o777 == 0o500


async def test_what_cannot_be_removed_is_logged_not_raised(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Closing goes through; the log names what is left."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EBUSY, "busy")

    async with LocalEnv(LocalConfig()) as env:
        await env.write("file", b"")
        monkeypatch.setattr(os, "unlink", refuse)
        monkeypatch.setattr(os, "rmdir", refuse)
        assert env._process is not None
        env._process.kill()  # else it would take the folder away itself
    assert f"{next(temporary.iterdir())} of env {env.id} cannot be removed" in caplog.text
    assert "busy" in caplog.text


# -- confinement


@pytest.mark.parametrize(
    "path",
    ["leak", "d/passwd", "chain", "up", "up/work-evil/x", "..", "a/../../x", "../work-evil/x", "/etc/passwd", "/"],
)
async def test_file_verbs_do_not_leave_the_folder(root: Path, path: str) -> None:
    """C038, C040: links are resolved before the decision, and names that only look like inside are outside."""
    (root / "leak").symlink_to("/etc/passwd")
    (root / "d").symlink_to("/etc")
    (root / "chain").symlink_to("leak")
    (root / "up").symlink_to("..")
    (root / "a").mkdir()
    async with LocalEnv(LocalConfig(workdir=root)) as env:
        attempts: list[Coroutine[object, object, object]] = [
            env.read(path),
            env.write(path, b"evil", append=True),
            env.stat(path),
            env.list(path),
            env.mkdir(f"{path}/new"),
            env.rename(path, "a/taken") if "/" in path else env.stat(path),
            env.rename("a", f"{path}/a"),
            env.download(path, root.parent / "downloaded"),
            env.upload(__file__, f"{path}/uploaded"),
        ]
        for attempt in attempts:
            with pytest.raises(PermissionError, match="outside the workspace") as caught:
                await attempt
            assert caught.value.filename is not None
        result = await env.exec("pwd", cwd=path)
        assert (result.exit_code, result.stdout.data) == (126, b"")
        assert "outside the workspace" in result.stderr.text
    assert sorted(path.name for path in root.iterdir()) == ["a", "chain", "d", "leak", "up"]
    assert (root.parent / "work-evil" / "x").read_text() == "secret"
    assert not (root.parent / "downloaded").exists()


async def test_absolute_prefix_siblings_are_outside(root: Path) -> None:
    """C040: "/t/work-evil" does not begin with "/t/work/"."""
    async with LocalEnv(LocalConfig(workdir=root)) as env:
        for path in (f"{root}-evil/x", f"{root}/../work-evil/x"):
            with pytest.raises(PermissionError, match="outside the workspace"):
                await env.read(path)
        assert (await env.exec("pwd", cwd=f"{root}-evil")).exit_code == 126


async def test_links_and_absolute_paths_that_stay_inside_work(root: Path) -> None:
    """C038: the folder itself, with and without a slash, links within it, and names with dots."""
    (root / "sub").mkdir()
    (root / "sub" / "file").write_text("inside")
    (root / "relative").symlink_to("sub/file")
    (root / "absolute").symlink_to(root / "sub")
    async with LocalEnv(LocalConfig(workdir=root)) as env:
        for path in ("relative", "absolute/file", f"{root}/sub/file", "sub/../sub/file", "./sub//file"):
            assert await env.read(path) == b"inside"
        for path in (str(root), f"{root}/", "."):
            assert (await env.stat(path)).is_dir
            assert (await env.exec("pwd", cwd=path)).stdout.text == f"{root}\n"


async def test_a_link_itself_can_be_looked_at_and_removed_wherever_it_points(root: Path) -> None:
    """It is an entry of the folder; what it points to is not touched."""
    target = root.parent / "work-evil" / "x"
    (root / "leak").symlink_to(target)
    async with LocalEnv(LocalConfig(workdir=root)) as env:
        info = await env.stat("leak", follow_symlinks=False)
        assert (info.is_symlink, info.target) == (True, str(target))
        await env.remove("leak")
    assert target.read_text() == "secret"


async def test_without_confinement_the_host_is_open(root: Path) -> None:
    """By configuration only."""
    async with LocalEnv(LocalConfig(workdir=root, confine=False)) as env:
        assert await env.read("../work-evil/x") == b"secret"
        assert env.describe()["confine"] is False


async def test_spilled_output_can_be_read_and_goes_at_close(env: LocalEnv, temporary: Path) -> None:
    """It is outside the folder, private to this user, and yet within reach of the file verbs."""
    result = await env.exec("seq 100000")
    path = result.stdout.spill_path
    assert path is not None
    assert not path.startswith(env.workdir)
    assert Path(path).parent.stat().st_mode & 0o777 == 0o700
    content = await env.read(path)
    assert content == "".join(f"{number}\n" for number in range(1, 100_001)).encode()
    await env.aclose()
    assert list(temporary.iterdir()) == []


# -- the environment of commands


@pytest.mark.usefixtures("temporary")
async def test_commands_see_only_what_is_allowed_of_the_hosts_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """C105: no canary arrives by any way; what the configuration and the call give does."""
    canaries = ("OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "MY_X", "DOCKER_HOST", "LD_PRELOAD_X", "BASH_ENV")
    for name in canaries:
        monkeypatch.setenv(name, "canary-7d1f")
    monkeypatch.setenv("LANG", "C.UTF-8")
    async with LocalEnv(
        LocalConfig(environment={"CONFIGURED": SecretStr("from config"), "BOTH": SecretStr("config")})
    ) as env:
        for command in ("env", "cat /proc/self/environ", "cat /proc/$PPID/environ 2>/dev/null || true", "set"):
            result = await env.exec(command, env={"CALLED": "from call", "BOTH": "call"})
            assert result.exit_code == 0, result.stderr.text
            assert "canary-7d1f" not in result.stdout.text
        result = await env.exec("env", env={"CALLED": "from call", "BOTH": "call"})
    seen = dict(line.split("=", 1) for line in result.stdout.text.splitlines())
    assert set(seen) - {"_", "PWD", "SHLVL", "OLDPWD"} <= {*local_module.INHERITED, "CONFIGURED", "CALLED", "BOTH"}
    assert seen["LANG"] == "C.UTF-8"
    assert seen["PATH"] == os.environ["PATH"]
    assert (seen["CONFIGURED"], seen["CALLED"], seen["BOTH"]) == ("from config", "from call", "call")


async def test_no_descriptor_of_this_process_or_the_guest_reaches_a_command(env: LocalEnv) -> None:
    """Its three standard streams are all it has."""
    result = await env.exec("ls -l /proc/self/fd")
    listed = [int(line.split()[-3]) for line in result.stdout.text.splitlines() if "->" in line]
    assert sorted(listed) == [0, 1, 2, 3]  # the last is the folder that `ls` reads


async def test_another_user_is_a_config_error(env: LocalEnv) -> None:
    """A local env has no way to become one."""
    with pytest.raises(ConfigError, match="1000:1000"):
        await env.exec("id", user="1000:1000")


# -- start


async def test_a_missing_guest_is_a_start_error_with_the_remedy(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And leaves nothing behind."""

    def no_file(_: Path) -> bool:
        return False

    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    monkeypatch.setattr("pathlib.Path.is_file", no_file)
    with pytest.raises(EnvStartError, match="pip install"):
        async with LocalEnv(LocalConfig()):
            pass
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(("attribute", "value"), [("sys.platform", "darwin"), ("platform.machine", lambda: "riscv64")])
async def test_a_host_without_a_guest_is_told_so(
    attribute: str, value: object, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names what does work."""
    monkeypatch.setattr(attribute, value)
    with pytest.raises(EnvStartError, match=r"use a Docker env|only x86_64 and aarch64"):
        async with LocalEnv(LocalConfig()):
            pass
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("script", ["exit 3", "echo hello; sleep 60", "kill -9 $$", "sleep 60"])
async def test_a_guest_that_does_not_come_up_is_a_start_error_and_leaves_nothing(
    script: str, temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it does instead of answering."""
    fake = tmp_path / "fake-guest"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    monkeypatch.setattr(local_module, "guest_binary", lambda: fake)
    monkeypatch.setattr(local_module, "EXIT_TIMEOUT", 0.1)
    monkeypatch.setattr("runenv.guest.link.HELLO_TIMEOUT", 0.2)
    with anyio.fail_after(PATIENCE), pytest.raises(EnvStartError, match="the env did not start"):
        async with LocalEnv(LocalConfig()):
            pass
    assert list(temporary.iterdir()) == []


async def test_a_start_that_fails_in_the_system_is_a_start_error(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a program file that the system will not run."""
    monkeypatch.setattr(local_module, "guest_binary", lambda: tmp_path)
    with pytest.raises(EnvStartError, match=r"cannot be set up: .*Permission denied"):
        async with LocalEnv(LocalConfig()):
            pass
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 10, 20, 50])
async def test_a_cancelled_start_leaves_nothing(turns: int, temporary: Path) -> None:
    """At whatever point: no folder, no process."""

    async def use() -> None:
        async with LocalEnv(LocalConfig()):
            await anyio.sleep_forever()

    task = asyncio.ensure_future(use())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with anyio.fail_after(PATIENCE), pytest.raises(asyncio.CancelledError):
        await task
    assert list(temporary.iterdir()) == []


async def test_an_env_is_opened_once(env: LocalEnv) -> None:
    """Neither twice nor again."""
    with pytest.raises(EnvClosedError, match="opened before"):
        await env.__aenter__()
    await env.aclose()
    with pytest.raises(EnvClosedError, match="opened before"):
        await env.__aenter__()


# -- end


async def test_use_before_opening_and_after_closing_is_an_env_closed_error(temporary: Path) -> None:
    """Every verb says so."""
    env = LocalEnv(LocalConfig())

    def verbs() -> Iterator[Coroutine[object, object, object]]:
        yield env.exec("true")
        yield env.read("f")
        yield env.write("f", b"")
        yield env.stat("f")
        yield env.list()
        yield env.mkdir("d")
        yield env.remove("f")
        yield env.rename("a", "b")
        yield env.upload(__file__, "f")
        yield env.download("f", temporary / "f")
        yield env.open_read("f").__aenter__()

    for verb in verbs():
        with pytest.raises(EnvClosedError):
            await verb
    await LocalEnv(LocalConfig()).aclose()
    async with env:
        pass
    for verb in verbs():
        with pytest.raises(EnvClosedError):
            await verb


async def test_closing_kills_what_was_left_in_the_background(env: LocalEnv) -> None:
    """Also what has left its session."""
    result = await env.exec("setsid sleep 4711.1 >/dev/null 2>&1 & sleep 4711.1 >/dev/null 2>&1 & echo ok")
    assert (result.stdout.text, result.background) == ("ok\n", True)
    await wait_until(lambda: len(pids_of("4711.1")) == 2)
    await env.aclose()
    assert pids_of("4711.1") == []


async def test_closing_ends_a_running_command_with_an_env_closed_error(env: LocalEnv) -> None:
    """Its caller is told that it was the close."""
    task = asyncio.ensure_future(env.exec("sleep 4711.2"))
    await wait_until(lambda: bool(pids_of("4711.2")))
    await env.aclose()
    with pytest.raises(EnvClosedError):
        await task
    assert pids_of("4711.2") == []


async def test_closing_many_times_at_once_and_again_is_harmless(env: LocalEnv, temporary: Path) -> None:
    """All callers return when it is done."""
    await asyncio.gather(*(env.aclose() for _ in range(5)))
    assert list(temporary.iterdir()) == []
    await env.aclose()


async def test_a_close_that_is_cancelled_twice_still_closes(env: LocalEnv, temporary: Path) -> None:
    """C112: the cancellation reaches its caller, afterwards."""
    await env.exec("sleep 4711.3 >/dev/null 2>&1 &")
    task = asyncio.ensure_future(env.aclose())
    for _ in range(2):
        await asyncio.sleep(0)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert list(temporary.iterdir()) == []
    assert pids_of("4711.3") == []


async def test_a_cancelled_scope_does_not_cut_the_close_short(temporary: Path) -> None:
    """The usual way out of a framework's task group."""
    with anyio.CancelScope() as scope:
        async with LocalEnv(LocalConfig()):
            scope.cancel()
            await anyio.sleep_forever()
    assert list(temporary.iterdir()) == []


async def test_opening_and_closing_in_different_tasks_works(temporary: Path) -> None:
    """Frameworks enter and leave exit stacks from wherever they are."""
    env = LocalEnv(LocalConfig())
    await asyncio.ensure_future(env.__aenter__())
    assert (await asyncio.ensure_future(env.exec("echo ok"))).stdout.text == "ok\n"
    await asyncio.ensure_future(env.aclose())
    assert list(temporary.iterdir()) == []


async def test_a_killed_guest_is_a_lost_env_with_the_reason(env: LocalEnv, temporary: Path) -> None:
    """Its commands end with it, later calls say the same, and the folders still go at close."""
    task = asyncio.ensure_future(env.exec("sleep 4711.4"))
    await wait_until(lambda: bool(pids_of("4711.4")))
    assert env._process is not None
    os.kill(env._process.pid, signal.SIGKILL)
    with anyio.fail_after(PATIENCE), pytest.raises(EnvLostError, match="SIGKILL"):
        await task
    with pytest.raises(EnvLostError, match="SIGKILL"):
        await env.read("f")
    await wait_until(lambda: not pids_of("4711.4"))
    await env.aclose()
    assert list(temporary.iterdir()) == []


async def test_zeros_take_no_room_on_the_host(env: LocalEnv, tmp_path: Path) -> None:
    """F6: a sparse file comes back as one, to its last byte."""
    await env.exec("printf begin > sparse; truncate -s 20M sparse; printf end >> sparse; truncate -s 30M sparse")
    await env.download("sparse", tmp_path / "sparse")
    got = (tmp_path / "sparse").read_bytes()
    assert len(got) == 30 << 20
    assert got.rstrip(b"\0") == b"begin" + bytes((20 << 20) - 5) + b"end"
    assert (tmp_path / "sparse").stat().st_blocks * 512 < 4 << 20


async def test_the_end_of_this_process_ends_the_commands(temporary: Path) -> None:
    """SIGKILL leaves no time for anything: the guest sees the end of its socket, and takes the temporary folder too."""
    program = """
import asyncio
from runenv.config import LocalConfig
from runenv.envs import open_env
async def main():
    async with open_env(LocalConfig()) as env:
        await env.exec("setsid sleep 4711.5 & sleep 4711.5")
asyncio.run(main())
"""
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(sys.path)}
    owner = await anyio.to_thread.run_sync(lambda: subprocess.Popen([sys.executable, "-c", program], env=environment))
    try:
        await wait_until(lambda: len(pids_of("4711.5")) == 2)
    finally:
        owner.kill()
        await anyio.to_thread.run_sync(owner.wait)
    await wait_until(lambda: not pids_of("4711.5"))
    await wait_until(lambda: not list(temporary.iterdir()))


async def test_a_forked_child_does_not_keep_its_parents_env(temporary: Path) -> None:
    """The parent is killed, its child lives on, the env is gone all the same."""
    program = """
import asyncio, os, time
from runenv.config import LocalConfig
from runenv.envs import open_env
async def main():
    async with open_env(LocalConfig()) as env:
        if os.fork() == 0:
            print(os.getpid(), flush=True)
            time.sleep(60)
            os._exit(0)
        await env.exec("sleep 4711.6")
asyncio.run(main())
"""
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(sys.path)}
    owner = await anyio.to_thread.run_sync(
        lambda: subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE)
    )
    assert owner.stdout is not None
    child = int(await anyio.to_thread.run_sync(owner.stdout.readline))
    try:
        await wait_until(lambda: len(pids_of("4711.6")) == 1)
        owner.kill()
        await anyio.to_thread.run_sync(owner.wait)
        await wait_until(lambda: not list(temporary.iterdir()))
        assert pids_of("4711.6") == []
    finally:
        os.kill(child, signal.SIGKILL)
        owner.stdout.close()


async def test_many_envs_leave_no_threads_and_no_descriptors(temporary: Path) -> None:
    """What an env takes it gives back."""

    async def use() -> None:
        async with LocalEnv(LocalConfig()) as env:
            await env.upload(__file__, "f")
            await env.exec("cat f")

    await use()
    gc.collect()
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - counts only
    for _ in range(20):
        await use()
    gc.collect()
    assert threading.active_count() <= threads
    assert len(os.listdir("/proc/self/fd")) <= descriptors  # noqa: PTH208 - counts only
    assert list(temporary.iterdir()) == []


# -- event loops


async def test_use_from_another_event_loop_is_one_clear_sentence(env: LocalEnv) -> None:
    """Calls and close; the env stays usable where it belongs."""

    def elsewhere() -> None:
        for verb in (lambda: env.exec("true"), env.list, env.aclose):
            with pytest.raises(EnvError, match=r"another event loop: .*open_env_sync"):
                asyncio.run(verb())

    await anyio.to_thread.run_sync(elsewhere)
    assert (await env.exec("echo ok")).stdout.text == "ok\n"


@pytest.mark.parametrize("end", ["asyncio.run(env.aclose())", "pass"], ids=["closed", "left open"])
def test_an_env_that_outlives_its_loop_makes_no_noise(end: str, temporary: Path) -> None:
    """C073: closed later from another loop, all it made is removed; left open, it ends with the program."""
    program = f"""
import asyncio
from runenv.config import LocalConfig
from runenv.envs import open_env
env = open_env(LocalConfig())
asyncio.run(env.__aenter__())
print(env._process.pid)
{end}
"""
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(sys.path)}
    shown = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    if end != "pass":
        assert list(temporary.iterdir()) == []
        assert not Path(f"/proc/{int(shown.stdout)}").exists()


# -- commands, as far as the host has a part in them


async def test_a_cancelled_command_is_dead_when_its_caller_goes_on(env: LocalEnv) -> None:
    """C112: cancelled once, twice, or by a scope; the env stays usable."""
    for cancels in (1, 2):
        task = asyncio.ensure_future(env.exec("setsid sleep 4711.6 & sleep 4711.6", timeout=None))
        await wait_until(lambda: len(pids_of("4711.6")) == 2)
        for _ in range(cancels):
            task.cancel()
            await asyncio.sleep(0)
        with anyio.fail_after(PATIENCE), pytest.raises(asyncio.CancelledError):
            await task
        assert pids_of("4711.6") == []
    with anyio.move_on_after(0.2) as scope:
        await env.exec("sleep 4711.6")
    assert scope.cancelled_caught
    assert pids_of("4711.6") == []
    assert (await env.exec("echo ok")).stdout.text == "ok\n"


async def test_a_guest_that_overruns_a_deadline_is_given_up(env: LocalEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host has a deadline of its own behind the guest's."""
    monkeypatch.setattr(guested_module, "BACKSTOP", 0.1)
    assert env._process is not None
    os.kill(env._process.pid, signal.SIGSTOP)
    try:
        with anyio.fail_after(PATIENCE), pytest.raises(EnvLostError, match="after its deadline"):
            await env.exec("sleep 60", timeout=0.1)
    finally:
        os.kill(env._process.pid, signal.SIGKILL)


async def test_a_guest_that_does_not_end_a_cancelled_command_is_given_up(
    env: LocalEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller goes on in bounded time, and nothing is said to be well."""
    monkeypatch.setattr(guested_module, "BACKSTOP", 0.1)
    assert env._process is not None
    os.kill(env._process.pid, signal.SIGSTOP)
    try:
        task = asyncio.ensure_future(env.exec("sleep 60", timeout=DEFAULT))
        await asyncio.sleep(0)
        task.cancel()
        with anyio.fail_after(PATIENCE), pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(EnvLostError, match="cancelled command"):
            await env.exec("true")
    finally:
        os.kill(env._process.pid, signal.SIGKILL)


# -- transfers, as far as threads and cancellation go


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of some windows' size."""
    path = tmp_path_factory.mktemp("large") / "file"
    path.write_bytes(os.urandom(1 << 20) * 32 + b"end")
    path.chmod(0o751)
    os.utime(path, ns=(10**18, 10**18 + 123_456_789))
    return path


async def test_a_file_goes_up_and_down_unchanged(env: LocalEnv, large: Path, tmp_path: Path) -> None:
    """Content, mode and time; and progress is told on the way."""
    seen: list[tuple[int, int | None]] = []

    def progress(done: int, total: int | None) -> None:
        seen.append((done, total))

    size = large.stat().st_size
    up = await env.upload(large, "a/b/up", progress=progress)
    down = await env.download("a/b/up", tmp_path / "c/down", progress=progress)
    assert (up.files, up.bytes, up.refused) == (down.files, down.bytes, down.refused) == (1, size, ())
    copy = tmp_path / "c" / "down"
    assert hashlib.sha256(copy.read_bytes()).digest() == hashlib.sha256(large.read_bytes()).digest()
    assert copy.stat().st_mode == large.stat().st_mode
    assert copy.stat().st_mtime_ns == large.stat().st_mtime_ns
    assert seen.count((size, size)) == 2
    assert all(total == size for _, total in seen)


@pytest.mark.parametrize("direction", ["up", "down"])
async def test_a_cancelled_transfer_leaves_neither_a_thread_nor_a_part(
    direction: str, env: LocalEnv, large: Path, tmp_path: Path
) -> None:
    """The old content of the target is intact, on whichever side."""
    await env.write("there", b"old")
    (tmp_path / "here").write_bytes(b"old")
    await env.upload(large, "source")
    reached, go_on = threading.Event(), threading.Event()

    def progress(_: int, __: int | None) -> None:
        reached.set()
        go_on.wait(PATIENCE)

    work = (
        env.upload(large, "there", progress=progress)
        if direction == "up"
        else env.download("source", tmp_path / "here", progress=progress)
    )
    task = asyncio.ensure_future(work)
    await anyio.to_thread.run_sync(reached.wait, PATIENCE)
    task.cancel()
    go_on.set()
    with anyio.fail_after(PATIENCE), pytest.raises(asyncio.CancelledError):
        await task
    assert await env.read("there") == b"old"
    assert [path.name for path in tmp_path.iterdir() if path.name != "tmp"] == ["here"]
    assert (tmp_path / "here").read_bytes() == b"old"
    await _until_only(env, {"there", "source"})


async def _until_only(env: LocalEnv, names: set[str]) -> None:
    # The guest undoes a cancelled write after its caller has gone on.
    with anyio.fail_after(PATIENCE):
        while {entry.path for entry in await env.list()} != names:
            await anyio.sleep(0.005)


@pytest.mark.parametrize("direction", ["up", "down"])
async def test_a_transfer_ends_with_its_env(direction: str, env: LocalEnv, large: Path, tmp_path: Path) -> None:
    """A thread that waits for the link is not left waiting."""
    await env.upload(large, "source")
    process = env._process
    assert process is not None
    killed = threading.Event()

    def progress(_: int, __: int | None) -> None:
        if not killed.is_set():
            killed.set()
            process.kill()

    work = (
        env.upload(large, "there", progress=progress)
        if direction == "up"
        else env.download("source", tmp_path / "here", progress=progress)
    )
    with anyio.fail_after(PATIENCE), pytest.raises(EnvLostError):
        await work
    assert [path.name for path in tmp_path.iterdir() if path.name != "tmp"] == []


async def test_an_error_of_the_progress_function_ends_the_transfer(env: LocalEnv, large: Path) -> None:
    """It reaches the caller as it is, and nothing half is left."""

    def progress(_: int, __: int | None) -> None:
        raise ZeroDivisionError("mine")

    with anyio.fail_after(PATIENCE), pytest.raises(ZeroDivisionError, match="mine"):
        await env.upload(large, "there", progress=progress)
    await _until_only(env, set())


async def test_a_target_that_cannot_be_written_is_the_hosts_error(env: LocalEnv, tmp_path: Path) -> None:
    """With its `filename`; a folder or a device at the target is not replaced."""
    await env.write("f", b"x" * 300_000)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(IsADirectoryError):
        await env.download("f", tmp_path)
    with pytest.raises((NotADirectoryError, FileExistsError)):
        await env.download("f", tmp_path / "file" / "below")
    with pytest.raises(OSError, match="character device"):
        await env.download("f", "/dev/null")
    assert Path("/dev/null").is_char_device()


async def test_a_link_at_the_target_is_replaced_not_followed(env: LocalEnv, tmp_path: Path) -> None:
    """Nothing lands outside the target."""
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "target").symlink_to("precious")
    await env.write("f", b"new")
    await env.download("f", tmp_path / "target")
    assert (tmp_path / "precious").read_text() == "kept"
    assert not (tmp_path / "target").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"new"


async def test_special_bits_are_left_out_and_listed(env: LocalEnv, tmp_path: Path) -> None:
    """No setuid program comes out of an env."""
    await env.exec("echo x > f; chmod 6755 f")
    result = await env.download("f", tmp_path / "f")
    assert (tmp_path / "f").stat().st_mode & 0o7777 == 0o755
    assert [refused.path for refused in result.refused] == ["f"]
    assert result.refused_count == 1


async def test_a_source_that_is_neither_file_nor_folder_is_refused(env: LocalEnv, tmp_path: Path) -> None:
    """By its type, without opening it: a FIFO would block."""
    os.mkfifo(tmp_path / "fifo")
    with anyio.fail_after(PATIENCE), pytest.raises(OSError, match="a FIFO"):
        await env.upload(tmp_path / "fifo", "f")
    with pytest.raises(FileNotFoundError):
        await env.upload(tmp_path / "missing", "f")
    await env.exec("mkfifo fifo")
    with anyio.fail_after(PATIENCE), pytest.raises(OSError, match="a FIFO"):
        await env.download("fifo", tmp_path / "f")


async def test_a_tree_goes_up_and_down(env: LocalEnv, tmp_path: Path) -> None:
    """Files, empty folders, links within, modes; what is refused on either side is listed."""
    source = tmp_path / "source"
    (source / "sub" / "empty").mkdir(parents=True)
    (source / "sub" / "file").write_bytes(os.urandom(500_000))
    (source / "script").write_text("#!/bin/sh\n")
    (source / "script").chmod(0o755)
    (source / "link").symlink_to("sub/file")
    os.mkfifo(source / "fifo")
    up = await env.upload(source, "tree")
    assert (up.files, [refused.path for refused in up.refused], up.refused_count) == (2, ["fifo"], 1)
    await env.exec("ln -s /etc/passwd tree/out")
    down = await env.download("tree", tmp_path / "back", exclude=["script"])
    assert (down.files, [refused.path for refused in down.refused], down.refused_count) == (1, ["out"], 1)
    back = tmp_path / "back"
    assert sorted(str(path.relative_to(back)) for path in back.rglob("*")) == ["link", "sub", "sub/empty", "sub/file"]
    assert (back / "link").read_bytes() == (source / "sub" / "file").read_bytes()


async def test_more_transfers_than_threads_all_come_through(env: LocalEnv, tmp_path: Path) -> None:
    """They wait for each other, in any mix."""
    source = tmp_path / "f"
    source.write_bytes(os.urandom(100_000))
    with anyio.fail_after(PATIENCE):
        await asyncio.gather(*(env.upload(source, f"up/{index}") for index in range(30)))
        await asyncio.gather(*(env.download(f"up/{index}", tmp_path / f"d{index}") for index in range(30)))
    assert all((tmp_path / f"d{index}").read_bytes() == source.read_bytes() for index in range(30))


async def test_docker_is_not_loaded_for_a_local_env() -> None:
    """Its packages are needed only by those who use it."""
    program = (
        "import sys, runenv.envs as e, runenv.config as c\n"
        "e.open_env(c.LocalConfig())\n"
        "print([name for name in ('docker', 'tenacity', 'requests') if name in sys.modules])"
    )
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"]}
    shown = await anyio.to_thread.run_sync(
        lambda: subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
    )
    assert shown.stdout == "[]\n"
