"""Finding the Docker engine, speaking to it, and what is said when that fails."""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

from runenv.config import DockerConfig, LocalConfig
from runenv.envs import open_env
from runenv.envs.docker import engine as engine_module
from runenv.envs.docker.endpoint import Endpoint, find_endpoint, ssh_command
from runenv.envs.docker.engine import Engine
from runenv.envs.docker.faults import EngineFault
from runenv.envs.docker.images import get_image
from runenv.errors import EnvStartError
from tests.envs.engines import (
    BASE,
    INFO,
    SOCKET,
    VERSION,
    FakeEngine,
    Marked,
    Registry,
    config,
    greeting,
    until,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio


def add_context(folder: Path, name: str, host: str, *, current: bool = True) -> Path:
    """Write a docker context as the docker command keeps it, and return the file that describes it."""
    key = hashlib.sha256(name.encode()).hexdigest()
    meta = folder / "contexts" / "meta" / key
    meta.mkdir(parents=True)
    endpoints = {"docker": {"Host": host, "SkipTLSVerify": False}}
    (meta / "meta.json").write_text(json.dumps({"Name": name, "Metadata": {}, "Endpoints": endpoints}))
    if current:
        (folder / "config.json").write_text(json.dumps({"currentContext": name, "auths": {}}))
    return meta / "meta.json"


@pytest.fixture
def docker_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty configuration folder of the docker command, in a clean environment."""
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_TLS", "DOCKER_CERT_PATH"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "docker"
    folder.mkdir()
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))
    return folder


# -- finding it


def test_C074_without_any_setting_the_default_socket_is_used(docker_config: Path) -> None:
    """Nothing set, no configuration file."""
    assert docker_config.exists()
    found = find_endpoint()
    assert (found.kind, found.path) == ("unix", SOCKET)


def test_C074_the_current_context_names_the_engine(docker_config: Path) -> None:
    """`docker context use` counts, as for the docker command."""
    add_context(docker_config, "mine", "unix:///run/mine.sock")
    found = find_endpoint()
    assert (found.path, found.source) == ("/run/mine.sock", "from the docker context 'mine'")


def test_C074_docker_host_wins_over_the_context(docker_config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable is the more explicit choice."""
    add_context(docker_config, "mine", "unix:///run/mine.sock")
    monkeypatch.setenv("DOCKER_HOST", "tcp://10.0.0.1:2375")
    found = find_endpoint()
    assert (found.kind, found.host, found.port, found.tls) == ("tcp", "10.0.0.1", 2375, None)


def test_C074_the_configuration_wins_over_docker_host(docker_config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that an env's configuration names is used for that env."""
    assert docker_config.exists()
    monkeypatch.setenv("DOCKER_HOST", "tcp://10.0.0.1:2375")
    assert find_endpoint("unix:///run/own.sock").path == "/run/own.sock"


def test_C074_docker_context_names_another_context(docker_config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable DOCKER_CONTEXT is stronger than the configuration file."""
    add_context(docker_config, "mine", "unix:///run/mine.sock")
    add_context(docker_config, "other", "ssh://me@far:2222", current=False)
    monkeypatch.setenv("DOCKER_CONTEXT", "other")
    found = find_endpoint()
    assert (found.kind, found.user, found.host, found.port) == ("ssh", "me", "far", 2222)


@pytest.mark.parametrize("content", ["{", "[]", '{"Endpoints": 1}', '{"Endpoints": {"docker": []}}'])
def test_C074_a_broken_context_file_is_a_clear_error(docker_config: Path, content: str) -> None:
    """Never another engine instead, and never the parser's exception."""
    add_context(docker_config, "mine", "unix:///run/mine.sock").write_text(content)
    with pytest.raises(EnvStartError, match=r"the docker context 'mine' is damaged.*meta.json.*docker context use"):
        find_endpoint()


def test_C074_a_context_that_is_gone_is_a_clear_error(docker_config: Path) -> None:
    """The configuration names a context that was deleted by hand."""
    (docker_config / "config.json").write_text('{"currentContext": "gone"}')
    with pytest.raises(EnvStartError, match=r"'gone'.*does not exist"):
        find_endpoint()


def test_C074_a_broken_configuration_file_is_a_clear_error(docker_config: Path) -> None:
    """The file of the docker command itself is damaged."""
    (docker_config / "config.json").write_text("{nonsense")
    with pytest.raises(EnvStartError, match=r"config.json' is damaged"):
        find_endpoint()


def test_a_context_brings_its_own_certificates(docker_config: Path) -> None:
    """TLS material of a context lies beside it."""
    add_context(docker_config, "far", "tcp://10.0.0.1:2376")
    folder = docker_config / "contexts" / "tls" / hashlib.sha256(b"far").hexdigest() / "docker"
    folder.mkdir(parents=True)
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (folder / name).touch()
    tls = find_endpoint().tls
    assert tls is not None
    assert (tls.ca, tls.cert, tls.key) == tuple(str(folder / name) for name in ("ca.pem", "cert.pem", "key.pem"))
    assert tls.verify


def test_a_certificate_folder_alone_does_not_encrypt(docker_config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with the docker command, DOCKER_TLS_VERIFY or DOCKER_TLS decides."""
    monkeypatch.setenv("DOCKER_HOST", "tcp://10.0.0.1:2375")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(docker_config))
    assert find_endpoint().tls is None
    monkeypatch.setenv("DOCKER_TLS", "1")
    found = find_endpoint()
    assert found.tls is not None
    assert not found.tls.verify


def test_half_a_client_certificate_is_refused(docker_config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate without its key."""
    (docker_config / "cert.pem").touch()
    monkeypatch.setenv("DOCKER_HOST", "tcp://10.0.0.1:2376")
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    with pytest.raises(EnvStartError, match=r"cert.pem and key.pem"):
        find_endpoint()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("unix://relative/docker.sock", ("unix", "/relative/docker.sock", "", None)),
        ("10.0.0.1:4000", ("tcp", "", "10.0.0.1", 4000)),
        ("tcp://[::1]:4000", ("tcp", "", "::1", 4000)),
        ("tcp://somewhere", ("tcp", "", "somewhere", 2375)),
        ("https://somewhere", ("tcp", "", "somewhere", 2376)),
        ("ssh://far/run/user/1000/docker.sock", ("ssh", "/run/user/1000/docker.sock", "far", None)),
    ],
)
def test_addresses_are_read_as_the_docker_command_reads_them(
    docker_config: Path, url: str, expected: tuple[str, str, str, int | None]
) -> None:
    """Forms that are in use, one by one."""
    assert docker_config.exists()
    found = find_endpoint(url)
    assert (found.kind, found.path, found.host, found.port) == expected


@pytest.mark.parametrize("url", ["ftp://somewhere", "tcp://", "tcp://host:port", "ssh://me:secret@far"])
def test_an_address_that_is_none_is_refused(docker_config: Path, url: str) -> None:
    """The error shows the forms that work."""
    assert docker_config.exists()
    with pytest.raises(EnvStartError, match="write unix:///path, tcp://host:port or ssh://user@host"):
        find_endpoint(url)


def test_ssh_is_called_as_the_docker_command_calls_it() -> None:
    """With a user, a port and a socket of its own; nothing after `--` is taken for an option, nobody is asked."""
    command = ssh_command(Endpoint("", "", "ssh", host="-far", port=2222, user="me", path="/run/docker.sock"))
    at = command.index("--")
    assert command[at + 1 :] == ["-far", "docker", "--host", "unix:///run/docker.sock", "system", "dial-stdio"]
    assert {"BatchMode=yes", "-l", "me", "-p", "2222"} <= set(command[:at])


# -- an engine that is not there


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("unix:///nonexistent/docker.sock", "nothing is there; start Docker"),
        ("tcp://127.0.0.1:1", "nobody listens there; start Docker"),
        ("ssh://nobody@127.0.0.1:1", "ssh 127.0.0.1 ended: .*Connection refused"),
    ],
)
async def test_C066_an_engine_that_is_down_is_told_within_five_seconds(
    docker_config: Path, monkeypatch: pytest.MonkeyPatch, host: str, reason: str
) -> None:
    """The error names the endpoint and who named it."""
    assert docker_config.exists()
    monkeypatch.setenv("DOCKER_HOST", host)
    with anyio.fail_after(5), pytest.raises(EnvStartError, match=reason) as caught:
        await open_env(config()).__aenter__()
    assert f"tried {host} (from DOCKER_HOST)" in str(caught.value)


async def test_C066_an_engine_that_hangs_is_told_within_five_seconds(tmp_path: Path) -> None:
    """Its socket takes the connection, and nothing comes."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        with anyio.fail_after(5), pytest.raises(EnvStartError, match="no answer in time"):
            await Engine.connect(f"unix://{tmp_path}/s")


async def test_C066_a_socket_that_may_not_be_used_names_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The usual first error of a new user of Docker."""

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("runenv.envs.docker.engine._UnixConnection.connect", refuse)
    with pytest.raises(EnvStartError, match="permission denied; join the group docker"):
        await Engine.connect(f"unix://{tmp_path}/docker.sock")


async def test_C066_a_local_env_does_not_care_whether_docker_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only who asks for Docker needs it."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent")
    async with open_env(LocalConfig()) as env:
        assert (await env.exec("echo hi")).stdout.text == "hi\n"


async def test_C074_the_error_lists_the_endpoint_that_was_tried(docker_config: Path) -> None:
    """For a context too."""
    add_context(docker_config, "mine", f"unix://{docker_config}/none.sock")
    with pytest.raises(EnvStartError, match=r"tried unix://.*none.sock \(from the docker context 'mine'\)"):
        await Engine.connect()


async def test_C074_an_env_opens_through_the_current_context(
    docker_config: Path, monkeypatch: pytest.MonkeyPatch, mark: Marked
) -> None:
    """A context that points to the live socket under another name, with nothing at the default place."""
    (docker_config / "live.sock").symlink_to(SOCKET)
    add_context(docker_config, "live", f"unix://{docker_config}/live.sock")
    monkeypatch.setattr("runenv.envs.docker.endpoint.DEFAULT_SOCKET", "/nonexistent")
    async with open_env(mark.config()) as env:
        assert (await env.exec("echo hi")).stdout.text == "hi\n"
        assert env.describe()["engine"] == f"unix://{docker_config}/live.sock"


# -- an engine that is odd


def no_engine(method: str, path: str) -> tuple[int, object] | None:
    """Answer everything with JSON that means nothing."""
    return 200, {method: path}


async def test_something_else_at_the_socket_is_a_clear_error(tmp_path: Path) -> None:
    """An HTTP server that is no engine."""
    with (
        FakeEngine(tmp_path / "s", no_engine),
        pytest.raises(EnvStartError, match="no Docker engine answers"),
    ):
        await Engine.connect(f"unix://{tmp_path}/s")


async def test_an_engine_for_windows_containers_is_refused(tmp_path: Path) -> None:
    """Its containers cannot run the guest."""

    def answer(method: str, path: str) -> tuple[int, object] | None:
        return (200, {**INFO, "OSType": "windows"}) if path == "info" else greeting(method, path)

    with FakeEngine(tmp_path / "s", answer), pytest.raises(EnvStartError, match="switch it to Linux containers"):
        await Engine.connect(f"unix://{tmp_path}/s")


async def test_a_limit_that_the_kernel_cannot_keep_is_no_silent_loss(tmp_path: Path) -> None:
    """L6: never a weaker env by itself."""

    def answer(method: str, path: str) -> tuple[int, object] | None:
        return (200, {**INFO, "PidsLimit": False}) if path == "info" else greeting(method, path)

    with (
        FakeEngine(tmp_path / "s", answer),
        pytest.raises(EnvStartError, match=r"cannot keep the limit 'pids'.*pids=None"),
    ):
        await open_env(config(engine=f"unix://{tmp_path}/s")).__aenter__()


async def test_a_transient_fault_is_tried_again(tmp_path: Path) -> None:
    """L3: a connection that breaks, then an engine that is too busy, then the answer."""
    faults: list[tuple[int, object] | None] = [None, (503, {"message": "busy"})]

    def answer(method: str, path: str) -> tuple[int, object] | None:
        if path.startswith("images/"):
            return faults.pop(0) if faults else (200, {"Id": "sha256:1", "Architecture": "amd64"})
        return greeting(method, path)

    with FakeEngine(tmp_path / "s", answer) as fake:
        engine = await Engine.connect(f"unix://{tmp_path}/s")
        image = await get_image(engine, "any", pull="missing", timeout=5, platform=None)
        await engine.close()
    assert image.id == "sha256:1"
    assert fake.requests.count("GET images/any/json") == 3


async def test_a_transient_fault_that_stays_is_told_after_a_few_tries(tmp_path: Path) -> None:
    """Bounded: four times in all."""

    def answer(method: str, path: str) -> tuple[int, object] | None:
        return (503, {"message": "busy today"}) if path.startswith("images/") else greeting(method, path)

    with FakeEngine(tmp_path / "s", answer) as fake:
        engine = await Engine.connect(f"unix://{tmp_path}/s")
        with pytest.raises(EnvStartError, match="busy today"):
            await get_image(engine, "any", pull="missing", timeout=5, platform=None)
        await engine.close()
    assert fake.requests.count("GET images/any/json") == 4


async def test_a_permanent_refusal_is_not_tried_again(tmp_path: Path) -> None:
    """A bad request stays one."""

    def answer(method: str, path: str) -> tuple[int, object] | None:
        return (400, {"message": "no such thing"}) if path.startswith("images/") else greeting(method, path)

    with FakeEngine(tmp_path / "s", answer) as fake:
        engine = await Engine.connect(f"unix://{tmp_path}/s")
        with pytest.raises(EnvStartError, match="no such thing"):
            await get_image(engine, "any", pull="missing", timeout=5, platform=None)
        await engine.close()
    assert fake.requests.count("GET images/any/json") == 1


async def test_engines_of_one_place_share_their_connections(tmp_path: Path) -> None:
    """The second one asks nothing; after the last one nothing is open."""
    with FakeEngine(tmp_path / "s", greeting) as fake:
        first = await Engine.connect(f"unix://{tmp_path}/s")
        asked = len(fake.requests)
        second = await Engine.connect(f"unix://{tmp_path}/s")
        assert len(fake.requests) == asked
        assert second.client is first.client
        await first.close()
        assert second.client is not None
        await second.close()
        assert not [shared for (_, place), shared in engine_module._SHARED.items() if place == first.endpoint]
        await second.close()


async def test_calls_do_not_take_the_threads_of_others(tmp_path: Path) -> None:
    """More slow calls than anyio has threads of its own; another blocking call of the program still runs at once."""
    release = threading.Event()

    def answer(method: str, path: str) -> tuple[int, object] | None:
        if path == "slow":
            release.wait(20)
            return 200, {}
        return greeting(method, path)

    with FakeEngine(tmp_path / "s", answer):
        engine = await Engine.connect(f"unix://{tmp_path}/s")

        def ask(client: Any) -> None:  # noqa: ANN401 - the SDK's
            client.get(client._url("/slow"))

        async with anyio.create_task_group() as group:
            for _ in range(60):
                group.start_soon(engine.call, ask)
            await anyio.lowlevel.checkpoint()
            with anyio.fail_after(5):
                await anyio.to_thread.run_sync(time.monotonic)
            release.set()
        await engine.close()


# -- images


async def test_C067_an_image_that_nobody_has_is_named_with_the_remedy(mark: Marked) -> None:
    """Pull off: the name, and what to do."""
    with pytest.raises(EnvStartError, match=r"the image 'runenv/none:1' is not on the engine .*load or build it"):
        await open_env(mark.config("runenv/none:1")).__aenter__()


async def test_C067_a_registry_that_does_not_answer_is_told(mark: Marked) -> None:
    """Pull on, from a port where nobody listens."""
    with pytest.raises(EnvStartError, match=r"the image '127.0.0.1:1/none:1' could not be pulled.*check its name"):
        await open_env(mark.config("127.0.0.1:1/none:1", pull="missing")).__aenter__()


async def test_C067_two_envs_at_once_wait_for_one_pull(engine: Any, mark: Marked) -> None:  # noqa: ANN401 - the SDK's
    """Both open once it has ended; the registry is asked once."""
    with Registry() as registry:

        async def use() -> str:
            async with open_env(mark.config(registry.image, pull="missing")) as env:
                return (await env.read("/hello.txt")).decode()

        try:
            tasks = [asyncio.create_task(use()) for _ in range(2)]
            await until(registry.asked.is_set)
            assert not any(task.done() for task in tasks)
            registry.gate.set()
            assert await asyncio.gather(*tasks) == ["hello", "hello"]
            assert registry.manifests == 1
        finally:
            engine.remove_image(registry.image, force=True)


async def test_C067_a_pull_has_a_time_limit_of_its_own(mark: Marked) -> None:
    """A registry that never gives the content."""
    with Registry() as registry:
        began = time.monotonic()
        with pytest.raises(EnvStartError, match=r"was not pulled within 0.5 s: raise pull_timeout"):
            await open_env(mark.config(registry.image, pull="missing", pull_timeout=0.5)).__aenter__()
        assert time.monotonic() - began < 5
        assert registry.asked.is_set()


async def test_C067_one_of_two_who_wait_may_leave(engine: Any, mark: Marked) -> None:  # noqa: ANN401 - the SDK's
    """The pull goes on for the other one."""
    with Registry() as registry:

        async def use() -> str:
            async with open_env(mark.config(registry.image, pull="missing")) as env:
                return (await env.read("/hello.txt")).decode()

        try:
            leaver, stayer = asyncio.create_task(use()), asyncio.create_task(use())
            await until(registry.asked.is_set)
            leaver.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leaver
            registry.gate.set()
            assert await stayer == "hello"
        finally:
            engine.remove_image(registry.image, force=True)


async def test_pull_always_asks_the_registry_for_what_is_there(engine: Any, mark: Marked) -> None:  # noqa: ANN401
    """The image is on the engine, and its registry is gone: an error, not the old image."""
    engine.tag(BASE, "127.0.0.1:1/runenv/base", "old")
    try:
        with pytest.raises(EnvStartError, match="could not be pulled"):
            await open_env(mark.config("127.0.0.1:1/runenv/base:old", pull="always")).__aenter__()
    finally:
        engine.remove_image("127.0.0.1:1/runenv/base:old")


async def test_an_image_for_another_platform_is_not_taken_for_the_one_asked_for(mark: Marked) -> None:
    """The same name on the engine, for another processor."""
    with pytest.raises(EnvStartError, match="for linux/s390x is not on the engine"):
        await open_env(mark.config(platform="linux/s390x")).__aenter__()


def test_the_facts_of_a_stand_in_are_those_of_an_engine() -> None:
    """The stand-in answers with the fields that are read."""
    assert {"Version", "ApiVersion"} <= VERSION.keys()
    assert {"OSType", "Architecture", "NCPU"} <= INFO.keys()


def test_a_fault_is_never_an_error_of_the_package() -> None:
    """Whoever forgets to translate one is found by its type."""
    assert not issubclass(EngineFault, EnvStartError)
    assert DockerConfig().kind == "docker"
