"""Configurations say no in one sentence, show no secret, and widen nothing by accident."""

from __future__ import annotations

import json
import logging
import pickle
import pydoc
import socket
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from runenv.config import BindMount, DockerConfig, LocalConfig, TmpfsMount, VolumeMount
from runenv.config_file import MAX_FILE_BYTES, load_config
from runenv.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

Load: TypeAlias = "Callable[..., dict[str, LocalConfig | DockerConfig]]"

SECRET = "s3cr3t-value"  # noqa: S105 - that is the point


def refusal(make: Callable[[], object]) -> str:
    """The sentence of the error, which must be one."""
    with pytest.raises(ConfigError) as caught:
        make()
    message = str(caught.value)
    assert message
    assert "\n" not in message
    assert SECRET not in message
    assert SECRET not in repr(caught.value.__cause__)
    return message


def docker(**settings: Any) -> DockerConfig:  # noqa: ANN401 - as a file gives them
    """Make one from values of any type."""
    return DockerConfig.model_validate(settings)


# -- models


def test_the_default_container_is_given_nothing() -> None:
    """C108: no network, no mounts, no capabilities, bounded resources, and not root."""
    config = DockerConfig()
    assert config.network == "none"
    assert config.mounts == ()
    assert config.cap_add == ()
    assert not config.allow_new_privileges
    assert (config.memory_bytes, config.pids, config.cpus) == (1 << 30, 1024, 2.0)
    assert config.user == "1000:1000"
    assert config.environment == {}


def test_a_local_env_is_confined_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And its folder is absolute, whatever the working directory becomes."""
    monkeypatch.chdir(tmp_path)
    config = LocalConfig(workdir=Path("work"))
    assert config.confine
    assert config.workdir == tmp_path / "work"
    assert LocalConfig().workdir is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: DockerConfig(imagee="x"),  # type: ignore[call-arg]
        lambda: DockerConfig.model_validate({"imagee": "x"}),
        lambda: DockerConfig.model_validate_json('{"imagee": "x"}'),
    ],
)
def test_an_unknown_key_names_the_nearest_one(make: Callable[[], object]) -> None:
    """On every road to a configuration."""
    assert refusal(make) == "DockerConfig has no key 'imagee'; did you mean 'image'?"


def test_an_unknown_key_far_from_all_names_them() -> None:
    """Nothing near is not guessed at."""
    assert refusal(lambda: LocalConfig.model_validate({"zzz": 1})).startswith("LocalConfig has no key 'zzz'; it has ")


def test_every_fault_is_told_at_once() -> None:
    """One run shows all that is to be repaired."""
    message = refusal(lambda: docker(pids="many", timeout=0, imagee="x"))
    assert "DockerConfig.pids: " in message
    assert "DockerConfig.timeout: " in message
    assert "'imagee'" in message


def test_a_configuration_cannot_be_changed() -> None:
    """And the refusal does not show what it was to become."""
    config = DockerConfig()
    assert refusal(lambda: setattr(config, "image", SECRET)) == "DockerConfig.image: instance is frozen"


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan"), "soon", True, []])
@pytest.mark.parametrize("key", ["timeout", "pull_timeout"])
def test_times_are_finite_seconds(key: str, timeout: object) -> None:
    """None, not infinity, means no limit."""
    if timeout is True:
        assert getattr(docker(**{key: timeout}), key) == 1.0
    else:
        assert f"DockerConfig.{key}: " in refusal(lambda: docker(**{key: timeout}))
    assert DockerConfig(timeout=None).timeout is None


@pytest.mark.parametrize(
    ("text", "size"),
    {
        "64m": 64 << 20,
        "64MB": 64 << 20,
        "1GiB": 1 << 30,
        "1.5 g": 3 << 29,
        "100000k": 102_400_000,
        "67108864": 64 << 20,
        "67108864b": 64 << 20,
        67108864: 64 << 20,
        "1t": 1 << 40,
    }.items(),
)
def test_sizes_may_have_units(text: object, size: int) -> None:
    """As the docker command reads them."""
    assert docker(memory_bytes=text).memory_bytes == size


@pytest.mark.parametrize("size", ["", "m", "1x", "-1m", "1 0m", "1e9", "0x10", "\u0661m", "1m\n2", 5, "1k", None])
def test_what_is_no_size_is_refused(size: object) -> None:
    """Also a size that no program could run in."""
    assert "max_output_bytes: " in refusal(lambda: docker(max_output_bytes=512 if size == "1k" else size))


@pytest.mark.parametrize(
    ("key", "values"),
    {
        "max_output_bytes": (1023, "65m"),
        "max_text_chars": (999,),
        "spill_quota_bytes": (-1,),
        "memory_bytes": (1 << 20, 0),
        "pids": (0, 15),
        "cpus": (0, -1, float("inf"), float("nan")),
        "network": ("host", "bridge", ""),
        "pull": ("sometimes",),
        "image": ("", "-rf", "a b", "a\n", "${IMAGE}"),
        "platform": ("linux", "linux/", "Linux/AMD64"),
        "workdir": ("", "work", "/", "//", "/a/..", "/proc", "/sys/x", "/.runenv", "/dev", "/a\nb", "/a\0"),
        "user": ("root", "", ":", "1000:", ":1000", "-1", "1:2:3", "\u0663", str(2**32 - 1), None, True, 1.5),
        "cap_add": (["NET ADMIN"], [""], ["1"], "ALL"),
        "labels": ({"runenv.env": "x"}, {"": "x"}),
        "engine": ("", "docker", "/run/docker.sock", "ftp://x", "unix://"),
        "environment": ({"": "x"}, {"A=B": "x"}, {"A\0": "x"}, ["A=1"]),
    }.items(),
)
def test_values_out_of_bounds_are_refused(key: str, values: tuple[object, ...]) -> None:
    """By the name of their key."""
    for value in values:
        assert f"DockerConfig.{key}" in refusal(partial(docker, **{key: value})), value


@pytest.mark.parametrize(
    ("key", "given", "held"),
    [
        ("user", 0, "0:0"),
        ("user", "1000", "1000:1000"),
        ("user", "0001:20", "1:20"),
        ("workdir", "/a//b/./c/../d/", "/a/b/d"),
        ("workdir", "//a", "/a"),
        ("cap_add", ["cap_net_admin", "SYS_PTRACE"], ("NET_ADMIN", "SYS_PTRACE")),
        ("image", "registry.example:5000/a/b:1.2@sha256:0abc", "registry.example:5000/a/b:1.2@sha256:0abc"),
        ("platform", "linux/arm64/v8", "linux/arm64/v8"),
        ("engine", "ssh://me@host", "ssh://me@host"),
        ("memory_bytes", None, None),
    ],
)
def test_values_are_held_in_one_form(key: str, given: object, held: object) -> None:
    """So that whoever reads them need not ask twice."""
    assert getattr(docker(**{key: given}), key) == held


def test_every_key_says_what_it_is() -> None:
    """The text under a field is its description in the schema."""
    for model in (LocalConfig, DockerConfig, BindMount, VolumeMount, TmpfsMount):
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name}"


def test_help_tells_what_can_be_set() -> None:
    """Every key with its default, and nothing of the library that checks them."""
    shown = pydoc.plain(pydoc.render_doc(DockerConfig)).partition("Method resolution order")[0]
    for key in set(DockerConfig.model_fields) - {"kind"}:
        assert f" {key}: " in shown
    assert (
        "memory_bytes: Memory of all processes together, at least 32 MiB; swap is not added. (default 1 GiB)" in shown
    )
    assert "Validator" not in shown
    assert "target: Absolute path inside the container. (required)" in (TmpfsMount.__doc__ or "")


def test_bounds_are_told_in_units() -> None:
    """Nobody counts in bytes."""
    assert refusal(lambda: docker(memory_bytes="3m")) == "DockerConfig.memory_bytes: must be at least 32 MiB"
    assert refusal(lambda: docker(max_output_bytes="1g")) == "DockerConfig.max_output_bytes: must be at most 64 MiB"
    assert refusal(lambda: docker(max_output_bytes=1)) == "DockerConfig.max_output_bytes: must be at least 1 KiB"
    assert refusal(lambda: docker(spill_quota_bytes=-1)) == "DockerConfig.spill_quota_bytes: must be at least 0 bytes"
    assert refusal(lambda: docker(max_text_chars=1)) == "DockerConfig.max_text_chars: must be at least 1,000"
    assert refusal(lambda: docker(cpus=0)) == "DockerConfig.cpus: must be more than 0"


# -- secrets


def test_secrets_are_masked(caplog: pytest.LogCaptureFixture) -> None:
    """In every form that ends in a log."""
    config = docker(environment={"TOKEN": SECRET})
    with caplog.at_level(logging.INFO):
        logging.getLogger("any").info("%s %r %s", config, config, config.model_dump())
    shown = f"{config} {config!r} {config.model_dump()} {config.model_dump_json()} {caplog.text}"
    assert "TOKEN" in shown
    assert SECRET not in shown
    assert config.environment["TOKEN"].get_secret_value() == SECRET
    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301 - ours


@pytest.mark.parametrize(
    "environment",
    [
        {"A=": SECRET},
        {"A": SECRET + "\0"},
        {"A": [SECRET]},
        {"A": {"b": SECRET}},
        [SECRET],
        {"A": SECRET.encode() + b"\xff"},
    ],
)
def test_refusals_show_no_secret(environment: object) -> None:
    """Neither in the sentence nor in a chained cause (`refusal` looks)."""
    assert "DockerConfig.environment" in refusal(lambda: docker(environment=environment))
    assert "imagee" in refusal(lambda: docker(environment={"A": SECRET}, imagee="x"))
    refusal(lambda: docker(environmnt={"A": SECRET}, engine=f"http:/user:{SECRET}@host"))


# -- mounts


@pytest.mark.parametrize(
    "source",
    "/ // /home/.. /proc /proc/1/root /sys /dev/sda /run /var/run /var /run/podman /run/user"
    " /run/docker.sock /var/run/docker.sock /somewhere/docker.sock".split(),
)
def test_a_source_that_gives_the_host_away_needs_a_word(source: str) -> None:
    """C108: the engine's socket, its folders, the root, the kernel's folders."""
    assert "unsafe=True" in refusal(lambda: BindMount(source=Path(source), target="/x"))
    assert BindMount(source=Path(source), target="/x", unsafe=True).unsafe


def test_a_link_to_such_a_source_does_not_hide_it(tmp_path: Path) -> None:
    """Links are resolved before the question is asked."""
    (tmp_path / "a").symlink_to("/")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert "whole file system" in refusal(lambda: BindMount(source=tmp_path / "b", target="/x"))
    assert "kernel" in refusal(lambda: BindMount(source=tmp_path / "b" / "proc", target="/x"))


def test_any_socket_needs_a_word(tmp_path: Path) -> None:
    """Whatever it is called: behind it is a program of the host."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "plain-name"))
        assert "is a socket" in refusal(lambda: BindMount(source=tmp_path / "plain-name", target="/x"))


def test_desktop_sockets_in_the_home_folder_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The home folder itself is fine until one is there."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert BindMount(source=Path("~"), target="/x").source == tmp_path
    (tmp_path / ".docker/run").mkdir(parents=True)
    (tmp_path / ".docker/run/docker.sock").touch()
    assert "unsafe=True" in refusal(lambda: BindMount(source=Path("~"), target="/x"))


def test_mounts_are_read_from_plain_values(tmp_path: Path) -> None:
    """As a file gives them; a bind mount is read-only unless it says otherwise."""
    config = docker(
        mounts=[
            {"kind": "bind", "source": str(tmp_path), "target": "/data/"},
            {"kind": "volume", "name": "cache", "target": "/cache"},
            {"kind": "tmpfs", "target": "/dev/shm", "size_bytes": "1m"},
        ]
    )
    assert config.mounts == (
        BindMount(source=tmp_path, target="/data", read_only=True),
        VolumeMount(name="cache", target="/cache", read_only=False),
        TmpfsMount(target="/dev/shm", size_bytes=1 << 20),
    )


@pytest.mark.parametrize(
    ("mount", "said"),
    [
        ({"kind": "bind", "sorce": "/x", "target": "/y"}, "did you mean 'source'?"),
        ({"kind": "bind", "source": "x", "target": "/y"}, "'x' of a bind mount is not absolute"),
        ({"kind": "bind", "source": "/", "target": "/y"}, "unsafe=True"),
        ({"kind": "bind", "source": "/x", "target": "y"}, "BindMount.target: 'y'"),
        ({"kind": "bind", "source": "/x", "target": "/.runenv/x"}, "BindMount.target: '/.runenv/x'"),
        ({"kind": "volume", "name": "a b", "target": "/y"}, "'a b' is no name for a volume"),
        ({"kind": "volume", "name": "runenv-guest-1", "target": "/y"}, "'runenv-guest-1' is no name for a volume"),
        ({"kind": "tmpfs", "target": "/y", "size_bytes": 1}, "TmpfsMount.size_bytes: "),
        ({"kind": "nfs", "target": "/y"}, "'bind', 'volume', 'tmpfs'"),
        ({"target": "/y"}, "'kind'"),
        ("/x:/y", "mounts[0]"),
    ],
)
def test_a_wrong_mount_says_which_and_why(mount: object, said: str) -> None:
    """One sentence, with the place."""
    message = refusal(lambda: docker(mounts=[mount]))
    assert message.startswith("DockerConfig.mounts[0]")
    assert said in message


def test_two_mounts_cannot_have_one_target() -> None:
    """One of them would be invisible."""
    mounts = (VolumeMount(name="one", target="/x"), TmpfsMount(target="/x/"))
    assert "two mounts have the target '/x'" in refusal(lambda: DockerConfig(mounts=mounts))


# -- files

YAML = """
coder:
  kind: docker
  image: example/python:1
  timeout: 30
  memory_bytes: 512m
  user: 1000:50
  environment:
    TOKEN: ${TOKEN}
    MIXED: "a $$ b $${TOKEN} c ${TOKEN}-${OTHER} $5"
    NOISE: no
writer:
  kind: local
  confine: false
"""
TOML = """
[coder]
kind = "docker"
image = "example/python:1"
timeout = 30
memory_bytes = "512m"
user = "1000:50"
[coder.environment]
TOKEN = "${TOKEN}"
MIXED = "a $$ b $${TOKEN} c ${TOKEN}-${OTHER} $5"
NOISE = "no"
[writer]
kind = "local"
confine = false
"""
JSON = json.dumps(
    {
        "coder": {
            "kind": "docker",
            "image": "example/python:1",
            "timeout": 30,
            "memory_bytes": "512m",
            "user": "1000:50",
            "environment": {
                "TOKEN": "${TOKEN}",
                "MIXED": "a $$ b $${TOKEN} c ${TOKEN}-${OTHER} $5",
                "NOISE": "no",
            },
        },
        "writer": {"kind": "local", "confine": False},
    }
)


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Write a file and load it."""

    def load(text: str | bytes, suffix: str = ".yaml") -> dict[str, LocalConfig | DockerConfig]:
        file = tmp_path / f"agents{suffix}"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_config(file)

    return load


@pytest.mark.parametrize(("suffix", "text"), [(".yaml", YAML), (".yml", YAML), (".toml", TOML), (".json", JSON)])
def test_one_file_configures_every_agent(load: Load, monkeypatch: pytest.MonkeyPatch, suffix: str, text: str) -> None:
    """The same in each format; variables of the host enter by name only, where they may."""
    monkeypatch.setenv("TOKEN", SECRET)
    monkeypatch.setenv("OTHER", "")
    configs = load(text, suffix)
    assert list(configs) == ["coder", "writer"]
    coder, writer = configs.values()
    assert coder == docker(
        image="example/python:1",
        timeout=30,
        memory_bytes=512 << 20,
        user="1000:50",
        environment={"TOKEN": SECRET, "MIXED": f"a $ b ${{TOKEN}} c {SECRET}- $5", "NOISE": "no"},
    )
    assert writer == LocalConfig(confine=False)


@pytest.mark.parametrize(
    ("suffix", "text", "said"),
    [
        (".yaml", "coder: {kind: dokcer}", "agent 'coder': there is no kind 'dokcer': it is 'docker' or 'local'"),
        (".yaml", "coder: {kind: [docker]}", "there is no kind ['docker']"),
        (".yaml", "coder: {image: x}", "agent 'coder': 'kind' is missing: 'docker' or 'local'"),
        (
            ".yaml",
            "coder: {kind: docker, imagee: x}",
            "agent 'coder': DockerConfig has no key 'imagee'; did you mean 'image'?",
        ),
        (".toml", "[coder]\nkind='local'\nimage='x'", "LocalConfig has no key 'image'"),
        (".yaml", "coder: {kind: docker, 1: x}", "must be a mapping of keys"),
        (".yaml", "coder: docker", "agent 'coder': an env must be a mapping"),
        (".yaml", "1: {kind: local}", "put 1 in quotes"),
        (".yaml", "- {kind: local}", "top level must map"),
        (".yaml", "", "top level must map"),
        (".json", "[]", "top level must map"),
        (".json", '{"a": {"kind": "local"}, "a": {"kind": "local"}}', "the key 'a' is there twice"),
        (".yaml", "a: {kind: local}\na: {kind: local}", "line 2, column 1: the key 'a' is there twice"),
        (".toml", "a = {kind='local'}\na = {kind='local'}", "overwrite"),
        (".yaml", "a: {kind: local", "line 1"),
        (".json", "{", "line 1, column 2"),
        (".toml", "a", "Expected '=' after a key"),
        (".yaml", "a: !!python/object/apply:os.getcwd []", "could not determine a constructor"),
        (".yaml", b"a: \xff", "is not UTF-8: byte 3"),
        (".ini", "a", "must end in one of .yaml, .yml, .toml, .json"),
        (".yaml", "a: &a {<<: *a}", "agents.yaml"),
        (".yaml", "a: {kind: docker, image: '${IMAGE}'}", "'image' has a '${': the host's variables work in"),
        (".yaml", "a: {kind: docker, labels: {x: '${X}'}}", "'labels' has a '${'"),
        (
            ".yaml",
            "a: {kind: local, environment: {X: '${RUNENV_UNSET}'}}",
            "environment 'X' needs the variable 'RUNENV_UNSET'",
        ),
        (".yaml", "a: {kind: local, environment: {X: '${A-B}'}}", "environment 'X' has a '${' that is no '${NAME}'"),
        (".yaml", "a: {kind: local, environment: {X: 1}}", "LocalConfig.environment.X: input should be a valid string"),
        (".yaml", "a: {kind: local, environment: [X=1]}", "LocalConfig.environment: "),
    ],
)
def test_a_wrong_file_names_file_agent_and_key(load: Load, suffix: str, text: str | bytes, said: str) -> None:
    """One sentence from which the place can be found."""
    message = refusal(lambda: load(text, suffix))
    assert f"agents{suffix}'" in message
    assert said in message


def test_a_file_that_is_not_there_is_the_builtin_error(tmp_path: Path) -> None:
    """As for any file."""
    with pytest.raises(FileNotFoundError):
        load_config(tmp_path / "none.yaml")


def test_broken_files_show_no_secret(load: Load) -> None:
    """Parsers like to quote the line (`refusal` looks)."""
    for suffix, text in (
        (".yaml", f"a: {{b: {SECRET}"),
        (".json", f'{{"a": "{SECRET}" x'),
        (".toml", f"a = '{SECRET}' x"),
    ):
        refusal(partial(load, text, suffix))
    refusal(lambda: load(f"a: {{kind: local, environment: {{X: '{SECRET}${{'}}}}"))
    refusal(lambda: load(f"a: {{kind: local, environment: {{X: ['{SECRET}']}}}}"))


@pytest.mark.timeout(30)  # each of these is endless or fills the memory where it is not bounded
@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".json", "[" * 100_000),
        (".yaml", "[" * 2_000),
        (".toml", "a = " + "[" * 100_000),
        (".json", " " * (MAX_FILE_BYTES + 1)),
        (
            ".yaml",
            "a0: &a0 {x: 1}\n"
            + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 20)),
        ),
        (".yaml", "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 20))),
        (
            ".yaml",
            "a0: &a0 [x]\n"
            + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 20))
            + "b: {kind: docker, labels: *a19}",
        ),
        (".yaml", "".join(f"a{n}: &a{n} {{k{n}: 1{f', <<: *a{n - 1}' if n else ''}}}\n" for n in range(1_200))),
    ],
    ids=[
        "deep json",
        "deep yaml",
        "deep toml",
        "long",
        "merge bomb",
        "alias bomb",
        "alias bomb in a value",
        "merge chain",
    ],
)
def test_bombs_are_refused(load: Load, suffix: str, text: str) -> None:
    """A configuration file may come from the sandbox's side of things."""
    refusal(lambda: load(text, suffix))


def test_yaml_can_share_settings(load: Load) -> None:
    """A merge of one mapping, with own keys over it, from which another merges in turn."""
    configs = load("a: &a {kind: docker, pids: 99}\nb: &b {<<: *a, pids: 98}\nc: {<<: *b, timeout: null}\n")
    assert configs == {"a": docker(pids=99), "b": docker(pids=98), "c": docker(pids=98, timeout=None)}
