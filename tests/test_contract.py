"""The contract over every env of this package."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar

import anyio
import docker
import pytest

from runenv.config import DockerConfig, LocalConfig
from runenv.envs import open_env
from runenv.sync import SyncRunEnv
from runenv.testing.contract import EnvContract, FilesContract, PathsContract, WritesContract
from runenv.testing.fixtures import need_engine
from tests.envs.engines import BASE, PYTHON, STATIC
from tests.facade import Facade

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blockbuster import BlockBuster

    from runenv.env import RunEnv

ENVIRONMENT = {"RUNENV_CONFIGURED": "a value of the configuration"}
SETTINGS: dict[str, Any] = {"environment": ENVIRONMENT}


class TestLocal(EnvContract):
    """A folder of this host."""

    is_isolated = False
    is_confined = True
    is_privileged = os.geteuid() == 0
    environment = ENVIRONMENT
    python = "python3"

    @classmethod
    def make_env(cls) -> RunEnv:
        """Return an env of the defaults."""
        return open_env(LocalConfig(**SETTINGS))

    @classmethod
    async def kill_env(cls, env: Any) -> None:  # noqa: ANN401 - looked inside of
        """Kill the guest."""
        env._process.kill()


class TestLocalSync(TestLocal):
    """The same through the sync facade."""

    known_failures: ClassVar = {
        "test_E11_a_foreign_event_loop_is_told_so": "a sync env belongs to no event loop of its caller",
    }

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def blocking_calls_are_meant(cls, blocking_calls_fail: BlockBuster) -> Iterator[None]:
        """The facade blocks the loop that it is called in, as any sync call does."""
        blocking_calls_fail.deactivate()
        yield
        blocking_calls_fail.activate()

    @classmethod
    def make_env(cls) -> RunEnv:
        """Return a facade over an env like that of `TestLocal`."""
        return Facade(SyncRunEnv(super().make_env()))

    @classmethod
    async def kill_env(cls, env: Any) -> None:  # noqa: ANN401 - looked inside of
        """Kill the guest of the env behind the facade."""
        await super().kill_env(env._sync._env)


class TestLocalUnconfined(FilesContract, PathsContract, WritesContract):
    """Files anywhere on this host, when the configuration says so."""

    is_isolated = False
    is_privileged = os.geteuid() == 0
    protected_path = None

    @classmethod
    def make_env(cls) -> RunEnv:
        """Return an env that may reach all files."""
        return open_env(LocalConfig(confine=False))


class DockerContract(EnvContract):
    """What the Docker envs have in common."""

    other_user = "1234:2345"
    memory_limit_bytes = 1024**3
    pids_limit = 512
    environment = ENVIRONMENT
    settings: ClassVar[dict[str, Any]] = {}

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def engine(cls) -> None:
        """Skip where no engine is, or fail in CI."""
        need_engine(cls.settings["image"])

    @classmethod
    def make_env(cls) -> RunEnv:
        """Return an env of the defaults, but for what makes this class; half of the processes are a bomb too."""
        return open_env(DockerConfig(pull="never", pids=cls.pids_limit, **SETTINGS, **cls.settings))

    @classmethod
    async def kill_env(cls, env: RunEnv) -> None:
        """End its container as `docker kill` does."""
        name = str(env.describe()["container"])
        await anyio.to_thread.run_sync(_kill_container, name)


def _kill_container(name: str) -> None:
    client = docker.APIClient(version="auto")
    client.kill(name)
    client.close()


@pytest.mark.docker
class TestDocker(DockerContract):
    """The image for agents, with the defaults."""

    python = "python3"
    settings: ClassVar = {"image": PYTHON}


@pytest.mark.docker
class TestDockerReadOnly(DockerContract):
    """A root that cannot be written, workdir and /tmp in memory."""

    python = "python3"
    disk_bytes = 512 * 1024 * 1024
    settings: ClassVar = {"image": PYTHON, "read_only": True}


@pytest.mark.docker
class TestDockerWithoutPython(DockerContract):
    """A small distribution."""

    settings: ClassVar = {"image": BASE}


@pytest.mark.docker
class TestDockerWithOneProgram(DockerContract):
    """An image with one static program and nothing else: commands are lists of arguments."""

    has_shell = False
    sh = ("/bin/busybox", "sh", "-c")
    settings: ClassVar = {"image": STATIC}

    @classmethod
    def argv(cls, program: str, *arguments: str) -> list[str]:
        """Every program is an applet of the one there is."""
        return ["/bin/busybox", program, *arguments]
