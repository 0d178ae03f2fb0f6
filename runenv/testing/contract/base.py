"""What all parts of the contract share: what a subclass says about its env, and how tests use it.

Below is only the protocol. Helper commands are lists of arguments made by `argv` and `script`, so that the same tests
run where there is a shell, where there is none, and where all programs are one file.
"""

from __future__ import annotations

import shutil
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import anyio
import pytest

from runenv.errors import EnvError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from runenv.env import RunEnv

__all__ = ("Contract", "until")


async def until(condition: Callable[[], Awaitable[object]], *, timeout: float = 30.0, pause: float = 0.02) -> None:
    """Poll until it holds.

    Raises:
        TimeoutError: it did not, in `timeout` seconds.
    """
    with anyio.fail_after(timeout):
        while not await condition():  # noqa: ASYNC110 - what is waited for is outside of this process
            await anyio.sleep(pause)


class Contract:
    """What is known of the env under test. A subclass overrides `make_env`, and the attributes that differ."""

    pytestmark: ClassVar = [pytest.mark.anyio]

    known_failures: ClassVar[Mapping[str, str]] = {}
    """Name of a test and why this env cannot keep what it tests. Such a test is skipped with the reason; keep it
    short, since every entry is a promise of `RunEnv` that users of this env do not get."""

    has_shell: ClassVar[bool] = True
    """A command may be a string. Without it, a string must be answered with exit code 127 and a sentence."""
    sh: ClassVar[Sequence[str] | None] = ("/bin/sh", "-c")
    """How a POSIX shell script, which is added, is run by a list of arguments; None: there is nothing that could."""
    python: ClassVar[str | None] = None
    """Name of a Python in the env, for what a shell cannot do."""
    environment: ClassVar[Mapping[str, str]] = {}
    """Variables that the configuration of `make_env` gives to every command."""

    is_isolated: ClassVar[bool] = True
    """The env has a file system and processes of its own."""
    is_confined: ClassVar[bool] = False
    """File verbs and `cwd` are kept inside the working folder."""
    is_privileged: ClassVar[bool] = False
    """Commands run with rights that override the permissions of files."""
    protected_path: ClassVar[str | None] = "/etc/runenv-contract"
    """A path in the env where nothing may be made; None: there is none."""
    other_user: ClassVar[str | None] = None
    """A numeric "uid:gid" that commands may run as with `user`; None: as none but the env's own."""
    memory_limit_bytes: ClassVar[int | None] = None
    """What all commands together may take, if that is limited to something that a test may use up."""
    disk_bytes: ClassVar[int | None] = None
    """Size of the file systems of the workdir and of the spill files, if a test may fill them."""
    pids_limit: ClassVar[int | None] = None
    """How many processes there may be, if that is limited to something that a test may use up."""

    @classmethod
    def make_env(cls) -> RunEnv:
        """Return a new env, not yet open. The tests open one for each class, and one each where they end it."""
        raise NotImplementedError(f"{cls.__name__} must say how its env is made")

    @classmethod
    async def kill_env(cls, env: RunEnv) -> None:  # noqa: ARG003 - for those who override it
        """Make an open env die from outside, as by a crash. Skips the tests that need it unless overridden."""
        pytest.skip("this env gives tests no way to kill it")

    @classmethod
    async def make_socket(cls, env: RunEnv, path: str) -> None:
        """Leave a unix socket at a path of the env. Needs Python there unless overridden."""
        if cls.python is None:
            pytest.skip("no program of this env makes a unix socket")
        code = "import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])"
        assert (await env.exec([cls.python, "-c", code, path])).ok

    # -- fixtures

    @pytest.fixture(scope="class")
    @classmethod
    def anyio_backend(cls) -> str:
        """Envs live in asyncio."""
        return "asyncio"

    @pytest.fixture(scope="class")
    @classmethod
    async def shared_envs(cls, anyio_backend: str) -> AsyncIterator[list[RunEnv]]:  # noqa: ARG003 - makes anyio run this
        """The envs that tests of the class share, one after the other."""
        envs: list[RunEnv] = []
        yield envs
        for env in envs:
            await env.aclose()

    @pytest.fixture
    async def env(self, shared_envs: list[RunEnv]) -> RunEnv:
        """An open env. Tests share it, and none ends it on purpose; after one that did, the next get a new one."""
        if shared_envs:
            with suppress(EnvError):
                await shared_envs[-1].stat(".")
                return shared_envs[-1]
        env = await self.make_env().__aenter__()
        shared_envs.append(env)
        return env

    @pytest.fixture
    async def folder(self, env: RunEnv) -> AsyncIterator[str]:
        """Absolute path of an empty folder in the env, for one test."""
        path = f"{env.workdir}/{uuid.uuid4().hex[:12]}"
        await env.mkdir(path)
        yield path
        with suppress(OSError, EnvError):  # what a test made unremovable goes with the env
            await env.remove(path, recursive=True)

    @pytest.fixture
    def marker(self) -> str:
        """A word that is nowhere else, to find processes by."""
        return f"runenv-{uuid.uuid4().hex}"

    @pytest.fixture(autouse=True)
    def skip_known_failures(self, request: pytest.FixtureRequest) -> None:
        """Skip what the subclass says that its env cannot do."""
        name = getattr(request.node, "originalname", request.node.name)
        if reason := self.known_failures.get(name):
            pytest.skip(f"known failure: {reason}")

    # -- commands

    @classmethod
    def argv(cls, program: str, *arguments: str) -> list[str]:
        """Return a command that runs a usual small program without a shell.

        The tests use cat, chmod, cp, dd, du, echo, env, false, find, grep, head, id, ln, ls, mkfifo, printf, pwd, rm,
        seq, setsid, sha256sum, sleep, tail, touch, true, truncate and yes, as POSIX has them or coreutils and busybox.
        """
        return [program, *arguments]

    @classmethod
    def script(cls, text: str) -> list[str]:
        """Return a command that runs a POSIX shell script, as a list of arguments. Skips where nothing runs one."""
        if cls.sh is None:
            pytest.skip("nothing in this env runs a shell script")
        return [*cls.sh, text]

    @classmethod
    def shell(cls, text: str) -> str:
        """Return a command for the env's own shell. Skips where there is none."""
        if not cls.has_shell:
            pytest.skip("this env has no shell")
        return text

    # -- looking

    async def marked(self, env: RunEnv, marker: str) -> list[str]:
        """Return the `/proc` folders of the env's processes that have a word in their environment."""
        grep = self.argv("grep", "-ls", marker)
        found = await env.exec(
            self.argv("find", "/proc", "-maxdepth", "2", "-name", "environ", "-exec", *grep, "{}", "+")
        )
        assert found.exit_code in {0, 1}, found.stderr.text  # 1: a process was gone before it was looked at
        return [path.removesuffix("/environ") for path in found.stdout.text.split()]

    @staticmethod
    def marked_here(marker: str) -> list[str]:
        """Return the same of this host's processes: those of envs without their own, and of containers on it."""
        found: list[str] = []
        for process in Path("/proc").iterdir():
            with suppress(OSError):
                if process.name.isdigit() and marker.encode() in (process / "environ").read_bytes():
                    found.append(process.name)
        return found

    def test_known_failures_are_tests_of_the_contract(self) -> None:
        """A failure that is excused by a name that no test has would hide that the excuse is out of date."""
        assert not [name for name in self.known_failures if not hasattr(type(self), name)]


def need_free_disk(folder: Path, size: int) -> None:
    """Skip on a host whose disk would be full."""
    if shutil.disk_usage(folder).free < size:
        pytest.skip(f"{folder} has no {size} bytes free")
