"""`RunEnvContainer`: testcontainers' methods, a sandbox behind them, and no reaper anywhere."""

# ruff: noqa: ANN401 - the docker SDK has no types
from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import uuid
from typing import TYPE_CHECKING, Any

import docker
import pytest
from testcontainers.core import container as container_module
from testcontainers.core.config import testcontainers_config
from testcontainers.core.labels import LABEL_SESSION_ID, SESSION_ID
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

from runenv.config import BindMount, TmpfsMount, VolumeMount
from runenv.envs.docker.container import LINK_FOLDER
from runenv.errors import ConfigError, EnvClosedError, EnvError, EnvStartError
from runenv.testing.containers import RunEnvContainer
from runenv.testing.fixtures import need_engine
from tests.envs.engines import BASE, ROOT, SOCKET, Listener, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    """All of these tests need the engine and the small image."""
    need_engine(BASE)


@pytest.fixture
def client() -> Iterator[Any]:
    """The engine seen without runenv and testcontainers."""
    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture(autouse=True)
def no_reaper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for the reaper fails; and it is not switched off, so that asking is possible."""

    def refuse() -> None:
        raise AssertionError("the reaper was asked for")

    monkeypatch.setattr(container_module.Reaper, "get_instance", refuse)
    monkeypatch.setattr(testcontainers_config, "_ryuk_disabled", False)


def sandbox(**settings: Any) -> RunEnvContainer:
    """Return a container of the small image, not started."""
    return RunEnvContainer(BASE, pull="never", **settings)


def mine(client: Any, word: str) -> list[Any]:
    """Return the containers that carry a word as their label."""
    found: list[Any] = client.containers.list(all=True, filters={"label": f"test={word}"}, ignore_removed=True)
    return found


def test_it_is_a_sync_env_and_a_container(client: Any) -> None:
    """The verbs of the one, the handle of the other, and nothing left afterwards."""
    word = uuid.uuid4().hex
    with sandbox(labels={"test": word}) as env:
        result = env.exec("echo hi; exit 3")
        assert (result.exit_code, result.stdout.text) == (3, "hi\n")
        env.write("a/b", b"content")
        assert env.read("a/b") == b"content"
        assert [entry.path for entry in env.list("a")] == ["b"]
        (found,) = mine(client, word)
        assert env.get_container_id() == found.id
        assert env.get_wrapped_container().status == env.status == "running"
    wait_until(lambda: not mine(client, word), 5)
    with pytest.raises(EnvClosedError):
        env.exec("true")


def test_the_labels_are_those_of_testcontainers_and_ours(client: Any) -> None:
    """A reaper that runs for other containers finds this one by the session id; our own sweep by our labels."""
    with sandbox(labels={"test": uuid.uuid4().hex}) as env:
        labels = client.containers.get(env.get_container_id()).labels
        assert labels[LABEL_SESSION_ID] == SESSION_ID
        assert labels["org.testcontainers"] == "true"
        assert [label for label in labels if label.startswith("runenv.")]
    with pytest.raises(ValueError, match="reserved"):
        sandbox(labels={"org.testcontainers.x": "y"}).start()


def test_start_and_stop_work_without_with() -> None:
    """As for any container; a second start is refused, and after a stop there is a new sandbox."""
    env = sandbox()
    with pytest.raises(EnvClosedError):
        env.exec("true")
    env.start()
    first = env.id
    assert env.exec("true").ok
    with pytest.raises(EnvError, match="already"):
        env.start()
    env.stop()
    env.stop()
    env.start()
    assert env.id != first
    env.close()


def test_builder_methods_make_the_configuration(tmp_path: Path) -> None:
    """Variables, volumes, tmpfs and settings, from testcontainers' methods and from arguments."""
    env = (
        sandbox(env={"A": "1"}, network="full")
        .with_env("B", "2")
        .with_envs(C="3")
        .with_volume_mapping(tmp_path, "/in")
        .with_volume_mapping(str(tmp_path / "x"), "/out", "rw")
        .with_volume_mapping("named", "/volume", "rw")
        .with_tmpfs_mount("/fast", "16m")
        .with_tmpfs_mount("/small")
    )
    config = env.config()
    assert [config.environment[name].get_secret_value() for name in "ABC"] == ["1", "2", "3"]
    assert config.mounts == (
        BindMount(source=tmp_path, target="/in"),
        BindMount(source=tmp_path / "x", target="/out", read_only=False),
        VolumeMount(name="named", target="/volume"),
        TmpfsMount(target="/fast", size_bytes=16 * 1024 * 1024),
        TmpfsMount(target="/small"),
    )
    assert (config.network, config.pull) == ("full", "never")
    assert env.with_kwargs(user="5:6", read_only=True).config().user == "5:6"
    with pytest.raises(ConfigError, match="did you mean 'read_only'"):
        env.with_kwargs(readonly=True).config()
    env.close()


def test_what_was_configured_is_in_the_sandbox(tmp_path: Path) -> None:
    """Variables, a bind mount, and files that were to be copied in."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/f").write_bytes(b"mounted\n")
    (tmp_path / "tree/sub").mkdir(parents=True)
    (tmp_path / "tree/sub/g").write_bytes(b"copied")
    (tmp_path / "big").write_bytes(bytes(3_000_000))
    env = (
        sandbox()
        .with_env("WORD", "hello")
        .with_volume_mapping(tmp_path / "shared", "/mnt/shared")
        .with_copy_into_container(b"#!/bin/sh\necho ran\n", "/workspace/run", mode=0o755)
        .with_copy_into_container(tmp_path / "tree", "/workspace")
        .with_copy_into_container(tmp_path / "big", "/workspace/deep/big", mode=0o600)
    )
    with env:
        result = env.exec("echo $WORD; cat /mnt/shared/f; ./run; stat -c '%s %a' deep/big")
        assert result.stdout.text == "hello\nmounted\nran\n3000000 600\n"
        assert env.read("tree/sub/g") == b"copied"
        env.copy_into_container(b"later", "/workspace/later")
        env.copy_from_container("/workspace/later", tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == b"later"


@pytest.mark.parametrize(
    ("method", "argument"),
    [
        ("with_command", "sleep 1"),
        ("with_name", "mine"),
        ("with_exposed_ports", 80),
        ("with_bind_ports", 80),
        ("with_network", "any"),
        ("with_network_aliases", "me"),
        ("waiting_for", LogMessageWaitStrategy("ready")),
    ],
)
def test_what_a_sandbox_has_not_is_refused_by_name(method: str, argument: Any) -> None:
    """In a sentence, before anything is started."""
    env = sandbox()
    getattr(env, method)(argument)
    with pytest.raises(ConfigError, match="is not for sandboxes"):
        env.start()
    env.close()


def test_a_start_that_fails_leaves_nothing(client: Any, tmp_path: Path) -> None:
    """Neither an image that is not there, nor a file that cannot be copied in."""
    word = uuid.uuid4().hex
    missing = RunEnvContainer("runenv/no-such-image", pull="never", labels={"test": word})
    with pytest.raises(EnvStartError, match="no-such-image"):
        missing.start()
    broken = sandbox(labels={"test": word}).with_copy_into_container(tmp_path / "missing", "/workspace/f")
    with pytest.raises(FileNotFoundError):
        broken.start()
    wait_until(lambda: not mine(client, word), 5)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_C078_no_engine_is_our_own_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Testcontainers speaks to the engine as soon as a container is made; what fails there is told in our words."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(EnvStartError, match="no Docker engine answers"):
        sandbox()
    gc.collect()  # the SDK forgets the socket that did not connect; here it is warned of, not in another test


def test_C078_a_rootless_socket_in_docker_host_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The socket is elsewhere, and /var/run/docker.sock is neither opened nor mounted."""
    (tmp_path / "docker.sock").symlink_to(SOCKET)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    with sandbox() as env:
        assert env.exec("echo hi").stdout.text == "hi\n"
        assert env.describe()["engine"] == f"unix://{tmp_path}/docker.sock"
        mounts = env.get_wrapped_container().attrs["Mounts"]
        assert {mount["Destination"] for mount in mounts if mount["Type"] == "bind"} <= {LINK_FOLDER}
        assert not [mount for mount in mounts if "docker.sock" in mount["Source"]]


def test_C078_a_tcp_endpoint_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a CI job whose engine is a service beside it."""
    with Listener() as listener:
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{listener.port}")
        with sandbox() as env:
            assert env.exec("echo hi").stdout.text == "hi\n"
        assert listener.connections > 0


@pytest.mark.parametrize("disabled", ["true", "false"])
def test_C078_nothing_is_left_by_an_owner_that_is_killed(client: Any, disabled: str) -> None:
    """SIGKILL of the test run, with the reaper switched off by its variable or not: the container is gone in 5 s."""
    word = uuid.uuid4().hex
    program = f"""
        import sys, time
        from runenv.testing.containers import RunEnvContainer
        with RunEnvContainer({BASE!r}, pull="never", labels={{"test": {word!r}}}) as env:
            print(env.get_container_id(), flush=True)
            env.exec("sleep 100")
    """
    variables = {**os.environ, "TESTCONTAINERS_RYUK_DISABLED": disabled, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], cwd=ROOT, env=variables, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        container = process.stdout.readline().strip()
        assert [found.id for found in mine(client, word)] == [container]
        process.send_signal(signal.SIGKILL)
    wait_until(lambda: not mine(client, word), 5)
