"""`runenv exec`, `cp` and `doctor`, as processes; what they share, by its functions."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import suppress
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import docker
import docker.errors
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from runenv import cli
from runenv.cli import doctor, images, options, terminal
from runenv.config import BindMount, DockerConfig, LocalConfig, VolumeMount
from runenv.errors import ConfigError, EnvLostError, EnvStartError
from runenv.types import Refused, TransferResult
from tests.command_line import PROGRAM, Done, environment, needs_engine, run, runenv
from tests.envs.engines import BASE, STATIC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runenv.cli.options import Kind


class Here(Protocol):
    """A command line in this process."""

    def __call__(self, *arguments: str | Path, cwd: Path | None = None, **variables: str) -> Done: ...


LOCAL = ("exec", "--env", "local")
NO_ENGINE = "unix:///nowhere/docker.sock"


def only_line(stderr: bytes) -> str:
    """Return the one line that a failure is allowed."""
    lines = stderr.decode().splitlines()
    assert len(lines) == 1
    return lines[0]


@pytest.fixture
def here(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Here:
    """Run the command line in this process."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")

    def call(*arguments: str | Path, cwd: Path | None = None, **variables: str) -> Done:
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            if cwd is not None:
                patch.chdir(cwd)
            return run(capfdbinary, *arguments)

    return call


@pytest.fixture
def volume() -> Iterator[str]:
    """A name for a volume that is gone afterwards."""
    needs_engine()
    name = f"runenv-test-{uuid.uuid4().hex}"
    yield name
    client = docker.APIClient(version="auto")
    with suppress(docker.errors.NotFound):
        client.remove_volume(name)
    client.close()


# -- exec


def test_exec_ends_with_the_exit_status_of_its_command() -> None:
    """Whoever calls it can test the command's success."""
    done = runenv(*LOCAL, "echo out; echo err >&2; exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\n", b"err\n")


def test_one_text_is_for_the_shell_and_several_are_arguments(here: Here) -> None:
    """Nothing is quoted or expanded on the way."""
    assert here(*LOCAL, "echo $((6 * 7))").stdout == b"42\n"
    assert here(*LOCAL, "--", "printf", "%s|", "$HOME", "a  b", "*").stdout == b"$HOME|a  b|*|"
    assert here(*LOCAL, "printf", "%s", "--timeout").stdout == b"--timeout"


def test_exec_passes_its_stdin_on_unless_told_not_to() -> None:
    """Bytes, not text."""
    data = bytes(range(256)) * 1000
    assert runenv(*LOCAL, "--", "cat", "-", stdin=data).stdout == data
    assert runenv(*LOCAL, "-n", "--", "cat", "-", stdin=data).stdout == b""


def test_exec_writes_all_of_a_long_output(here: Here) -> None:
    """What does not come back with the result is fetched from its file."""
    done = here(*LOCAL, "seq 1 300000; seq 1 200000 >&2")
    assert done.stdout == b"".join(b"%d\n" % number for number in range(1, 300_001))
    assert done.stderr == b"".join(b"%d\n" % number for number in range(1, 200_001))


def test_exec_says_what_of_an_output_was_not_kept(here: Here, tmp_path: Path) -> None:
    """A quota for spilled output is no silent cut."""
    file = tmp_path / "envs.yaml"
    file.write_text("small: {kind: local, spill_quota_bytes: 100000, max_output_bytes: 2000}\n")
    whole = b"".join(b"%d\n" % number for number in range(1, 100_001))
    done = here("exec", "--config", file, "seq 1 100000")
    assert (done.returncode, done.stdout) == (125, whole[:100_000])
    line = only_line(done.stderr)
    assert line.startswith("runenv: the output is not complete, the last 477.4 KiB of 575.1 KiB on stdout are lost: ")
    assert "--max-output" in line
    assert "--download" in line
    assert here("exec", "--config", file, "--max-output", "1m", "seq 1 100000") == (0, whole, b"")


def test_an_output_that_is_not_complete_does_not_hide_how_its_command_ended(here: Here) -> None:
    """Its own failure is the news; what is missing of both streams is still said."""
    limit = ("--max-output", "300k")
    done = here(*LOCAL, *limit, "seq 1 100000; seq 1 100000 >&2; exit 3")
    assert done.returncode == 3
    last = done.stderr.splitlines()[-1]
    assert b"on stdout and the last" in last
    assert b"on stderr are lost" in last


@pytest.mark.docker
def test_a_sandbox_that_is_full_has_another_remedy(here: Here, tmp_path: Path) -> None:
    """With a read-only root output is kept in memory, of which it gets a quarter; a higher bound would not help."""
    needs_engine()
    file = tmp_path / "envs.json"
    file.write_text(json.dumps({"small": {"kind": "docker", "image": BASE, "read_only": True, "memory_bytes": "64m"}}))
    done = here("exec", "--config", file, "seq 1 3000000")
    assert done.returncode == 125
    assert done.stdout.startswith(b"1\n2\n")
    line = only_line(done.stderr)
    assert "on stdout are lost" in line
    assert "--mount" in line
    assert "--max-output" not in line


def test_help_says_how_much_output_is_kept() -> None:
    """And what the exit status is beyond that."""
    shown = " ".join(runenv("exec", "--help").stdout.decode().split())
    assert "256m unless given" in shown
    assert "125 if the env failed, and where the command did not fail, if its output is not complete" in shown


def test_one_word_can_be_a_program(here: Here, tmp_path: Path) -> None:
    """Its path may have blanks, and no shell reads it."""
    script = tmp_path / "my prog.sh"
    script.write_text("#!/bin/sh\necho mine\n")
    script.chmod(0o755)
    assert here(*LOCAL, "--workdir", tmp_path, "--no-shell", "--", "./my prog.sh").stdout == b"mine\n"
    assert here(*LOCAL, "--workdir", tmp_path, "--", "./my prog.sh").returncode == 127


@pytest.mark.docker
def test_an_image_without_a_shell_needs_a_word(here: Here) -> None:
    """The sentence names it."""
    needs_engine()
    refused = here("exec", "--image", STATIC, "--", "/bin/busybox")
    assert refused.returncode == 125
    assert "--no-shell" in only_line(refused.stderr)
    done = here("exec", "--image", STATIC, "--no-shell", "--", "/bin/busybox")
    assert done.returncode == 0
    assert done.stdout.startswith(b"BusyBox")


def test_the_timeout_is_124_and_a_sentence(here: Here, tmp_path: Path) -> None:
    """And nothing of the command is left."""
    done = here(*LOCAL, "--workdir", tmp_path, "--timeout", "0.5", "sleep 1000 & echo $! >pid; wait")
    assert done.returncode == 124
    assert only_line(done.stderr).startswith("runenv: the command did not end within 0.5 s")
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_no_timeout_is_zero_and_nonsense_is_refused(here: Here) -> None:
    """As the `timeout` command has it."""
    assert here(*LOCAL, "--timeout", "0", "true").returncode == 0
    refused = here(*LOCAL, "--timeout", "-1", "true")
    assert refused.returncode == 125
    assert "seconds are a finite number" in only_line(refused.stderr)


def test_a_signal_is_128_and_its_number(here: Here) -> None:
    """As a shell has it."""
    done = here(*LOCAL, "kill -9 $$")
    assert done.returncode == 137
    assert only_line(done.stderr) == "runenv: the command was ended by SIGKILL"


def test_a_missing_program_and_a_missing_folder_are_results(here: Here) -> None:
    """127 and 126, from the env."""
    assert here(*LOCAL, "--", "no-such-program", "x").returncode == 127
    missing = here(*LOCAL, "--cwd", "no-such-folder", "true")
    assert missing.returncode == 126
    assert "no-such-folder" in only_line(missing.stderr)


def test_exec_says_that_something_was_left_running(here: Here) -> None:
    """It ends with the env, which a user of a server should know."""
    done = here(*LOCAL, "sleep 1000 & true")
    assert done.returncode == 0
    assert "left something running" in only_line(done.stderr)


def test_an_env_that_fails_is_125_and_one_line(here: Here) -> None:
    """So that it cannot be taken for the command's own failure."""
    done = here("exec", "true", DOCKER_HOST=NO_ENGINE)
    assert done.returncode == 125
    assert only_line(done.stderr).startswith("runenv: no Docker engine answers; tried unix:///nowhere/docker.sock")


def test_an_unknown_option_is_2() -> None:
    """Typer's own message, without a traceback."""
    done = runenv("exec", "--no-such-option", "true")
    assert done.returncode == 2
    assert b"No such option" in done.stderr
    assert b"Traceback" not in done.stderr


def test_exec_sees_the_variables_that_it_is_given_and_no_others(here: Here) -> None:
    """Ours only by name."""
    done = here(*LOCAL, "-e", "A=1=2", "-e", "OURS", "echo $A $OURS ${OTHER-unset}", OURS="ours", OTHER="other")
    assert done.stdout == b"1=2 ours unset\n"


def test_exec_copies_in_before_and_out_afterwards(here: Here, tmp_path: Path) -> None:
    """A job whose env leaves nothing but what is asked for."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("3 1 2\n")
    copies = ("--upload", f"{tmp_path}/in:data", "--download", f"out:{tmp_path}/out")
    assert here(*LOCAL, *copies, "mkdir out; rev data/a.txt >out/b.txt").returncode == 0
    assert (tmp_path / "out" / "b.txt").read_text() == "2 1 3\n"


def test_a_download_that_is_not_there_fails_a_command_that_did_not(here: Here) -> None:
    """The command's own status is the news where it has one."""
    assert here(*LOCAL, "--download", "nothing:x", "true").returncode == 125
    assert here(*LOCAL, "--download", "nothing:x", "exit 7").returncode == 7
    malformed = here(*LOCAL, "--download", "nothing", "true")
    assert only_line(malformed.stderr) == "runenv: --download 'nothing': write ENV:HOST, such as ./data:data"


def test_ctrl_c_ends_the_command_and_is_130(tmp_path: Path) -> None:
    """The whole tree, not only the program in front."""
    command = [*PROGRAM, *LOCAL, "--workdir", str(tmp_path), "sleep 1000 & echo $! >pid.tmp; mv pid.tmp pid; wait"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment()) as process:
        wait_for((tmp_path / "pid").exists)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert stderr == b""
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_a_reader_that_has_enough_ends_exec_quietly() -> None:
    """As a pipe to `head` does to every program."""
    command = [*PROGRAM, *LOCAL, "seq 1 1000000"]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"1\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_a_local_exec_does_not_load_the_docker_sdk() -> None:
    """It costs a third of the start."""
    program = "import sys; from runenv.cli import app; app(standalone_mode=False); print('docker' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program, *LOCAL, "-n", "true"], capture_output=True, env=environment(), check=True
    )
    assert done.stdout == b"False\n"


def test_exec_takes_the_env_of_an_agent(here: Here, tmp_path: Path) -> None:
    """With options over what the file says."""
    file = tmp_path / "agents.toml"
    file.write_text(
        '[writer]\nkind = "local"\nenvironment = {A = "file", B = "file"}\n\n[coder]\nkind = "docker"\n',
    )
    done = here("exec", "--config", file, "--agent", "writer", "-e", "B=option", "echo $A $B")
    assert done.stdout == b"file option\n"
    unclear = here("exec", "--config", file, "true")
    assert "say which with --agent (it has 'writer', 'coder')" in only_line(unclear.stderr)


def test_an_agent_needs_only_its_own_variables(here: Here, tmp_path: Path) -> None:
    """Those of the others in its file may be missing; whoever asks for the other is told."""
    file = tmp_path / "agents.yaml"
    file.write_text(
        'coder: {kind: local, environment: {T: "${RUNENV_NOBODY_SETS_THIS}"}}\nplanner: {kind: local}\nodd: {kind: x}\n'
    )
    assert here("exec", "--config", file, "--agent", "planner", "echo here").stdout == b"here\n"
    refused = here("exec", "--config", file, "--agent", "coder", "true")
    assert refused.returncode == 125
    assert "needs the variable 'RUNENV_NOBODY_SETS_THIS'" in only_line(refused.stderr)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--memory", "3m"], "--memory: must be at least 32 MiB"),
        (["--memory", "lots"], "--memory: 'lots' is no size"),
        (["--user", "bob"], "--user: 'bob' is no numeric"),
        (["--network", "bad"], "--network: input should be 'none' or 'full'"),
        (["--image", "a b"], "--image: 'a b' is no name of an image"),
        (["--workdir", "rel"], "--workdir: 'rel' is no absolute path"),
        (["--max-output", "lots"], "--max-output: 'lots' is no size"),
        (["-e", "A B\0=x"], "--variable: "),
        (["-v", "rel/path:/x"], "--mount 'rel/path:/x': 'rel/path' is no name for a volume; a folder of this host is"),
        (["-v", "rel/path:/x"], "'./rel/path'"),
        (["-v", "work:x"], "--mount 'work:x': 'x' is no absolute path"),
        (["-v", "/run/docker.sock:/x"], "--mount '/run/docker.sock:/x': the source"),
        (["-v", "one:/x", "-v", "two:/x"], "--mount: two mounts have the target '/x'"),
    ],
)
def test_what_is_wrong_is_named_by_its_option(here: Here, arguments: list[str], said: str) -> None:
    """Not by the key of the configuration that the option becomes."""
    done = here("exec", *arguments, "true", DOCKER_HOST=NO_ENGINE)
    assert done.returncode == 125
    line = only_line(done.stderr)
    assert said in line
    assert "Config" not in line
    assert "Mount." not in line


@pytest.mark.docker
def test_what_a_command_leaves_in_a_volume_is_there_for_the_next(here: Here, volume: str) -> None:
    """The envs of both are gone in between."""
    docker_exec = ("exec", "--image", BASE, "-v", f"{volume}:/workspace")
    assert here(*docker_exec, "id -u >who").returncode == 0
    assert here(*docker_exec, "--", "cat", "who").stdout == b"1000\n"
    unwritable = here("exec", "--image", BASE, "-v", f"{volume}:/workspace:ro", "touch x")
    assert b"Read-only file system" in unwritable.stderr


# -- cp


@pytest.mark.docker
def test_trees_go_to_a_volume_and_come_back_the_same(here: Here, volume: str, tmp_path: Path) -> None:
    """Modes, empty folders and odd names too; an image with one program is enough."""
    tree = tmp_path / "tree"
    (tree / "deep" / "empty").mkdir(parents=True)
    (tree / "deep" / "a file").write_bytes(os.urandom(100_000))
    (tree / "run.sh").write_text("#!/bin/sh\n")
    (tree / "run.sh").chmod(0o755)
    sent = here("cp", "--image", STATIC, tree, f"volume:{volume}/")
    assert (sent.returncode, sent.stdout) == (0, b"")
    assert sent.stderr.decode() == f"copied 2 files, 97.7 KiB to volume:{volume}/tree\n"
    assert here("cp", "--image", STATIC, f"volume:{volume}/tree", tmp_path / "copy").returncode == 0
    assert contents(tmp_path / "copy") == contents(tree)


@pytest.mark.docker
def test_copies_go_into_folders_that_are_there_and_contents_beside(here: Here, volume: str, tmp_path: Path) -> None:
    """As with `cp -r`."""
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    for source, target in (
        ("tree/.", ""),
        ("tree", "/new"),
        ("tree", "/new"),
        ("b", "/new"),
        ("b", "/c"),
        ("b", "/d/"),
    ):
        done = here("cp", "--image", BASE, source, f"volume:{volume}{target}", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert here("cp", "--image", BASE, f"volume:{volume}/.", tmp_path / "all").returncode == 0
    assert sorted(contents(tmp_path / "all")) == [
        "a",
        "c",
        "d",
        "d/b",
        "new",
        "new/a",
        "new/b",
        "new/tree",
        "new/tree/a",
    ]
    assert here("cp", "--image", BASE, f"volume:{volume}/new/tree", ".", cwd=tmp_path / "all").returncode == 0
    assert (tmp_path / "all" / "tree" / "a").read_text() == "a"


@pytest.mark.docker
def test_cp_names_what_it_does_not_bring_out(here: Here, volume: str, tmp_path: Path) -> None:
    """A link to the host's files stays in the sandbox, and the exit status says that something is missing."""
    here("exec", "--image", BASE, "-v", f"{volume}:/workspace", "mkdir out; ln -s /etc/passwd out/evil; touch out/good")
    done = here("cp", "--image", BASE, f"volume:{volume}/out", tmp_path / "out")
    assert done.returncode == 1
    assert b"not copied: 'evil'" in done.stderr
    assert sorted(contents(tmp_path / "out")) == ["good"]


@pytest.mark.docker
def test_cp_makes_no_volume_that_it_was_to_read(here: Here, volume: str, tmp_path: Path) -> None:
    """A name that is mistyped is an error and nothing else."""
    done = here("cp", f"volume:{volume}/x", tmp_path)
    assert done.returncode == 1
    assert only_line(done.stderr).startswith(f"runenv: there is no volume '{volume}'")
    client = docker.APIClient(version="auto")
    with pytest.raises(docker.errors.NotFound):
        client.inspect_volume(volume)
    client.close()


@pytest.mark.docker
def test_cp_does_with_any_image_that_is_there(
    here: Here, volume: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it is used. One that is asked for is taken or refused."""
    monkeypatch.setattr(images, "OWN_IMAGES", (STATIC,))
    (tmp_path / "b").write_text("b")
    wanted = "127.0.0.1:1/nobody/nothing:1"
    monkeypatch.setattr(DockerConfig.model_fields["image"], "default", wanted)
    assert here("cp", tmp_path / "b", f"volume:{volume}/").returncode == 0
    assert here("cp", f"volume:{volume}/b", tmp_path / "c").returncode == 0
    assert (tmp_path / "c").read_text() == "b"
    refused = here("cp", "--image", wanted, tmp_path / "b", f"volume:{volume}/")
    assert refused.returncode == 1
    assert wanted in only_line(refused.stderr)


@pytest.mark.docker
def test_cp_names_the_place_in_the_volume_that_is_not_there(here: Here, volume: str, tmp_path: Path) -> None:
    """Not the one in the container."""
    (tmp_path / "b").write_text("b")
    assert here("cp", "--image", BASE, tmp_path / "b", f"volume:{volume}/b").returncode == 0
    done = here("cp", "--image", BASE, f"volume:{volume}/c", tmp_path)
    assert (done.returncode, only_line(done.stderr)) == (1, f"runenv: 'volume:{volume}/c': No such file or directory")


@pytest.mark.parametrize(
    ("source", "target", "complaint"),
    [
        ("a", "b", "neither of SOURCE and TARGET is a volume"),
        ("volume:a/b", "volume:c", "each of SOURCE and TARGET is a volume"),
        ("volume:work/../etc", "b", "is no place in a volume"),
        ("volume:/b", "b", "is no place in a volume"),
        ("nothing-here", "volume:work", "'nothing-here': No such file or directory"),
        ("volume:runenv-guest-1/x", "b", "is no name for a volume"),
    ],
)
def test_cp_refuses_what_it_cannot_copy(here: Here, source: str, target: str, complaint: str) -> None:
    """Before it looks for an engine."""
    done = here("cp", source, target, DOCKER_HOST=NO_ENGINE)
    assert done.returncode == 1
    assert complaint in only_line(done.stderr)


# -- doctor


def test_doctor_says_what_works(here: Here) -> None:
    """The last check has run a command."""
    done = here("doctor", "--env", "local")
    assert done.returncode == 0
    assert b"local: works" in done.stdout
    assert b"ran a command" in done.stdout
    assert [line for line in done.stdout.splitlines() if line != line.rstrip()] == []


def test_doctor_says_what_is_missing_and_the_remedy(here: Here) -> None:
    """One kind that does not work is enough for its exit status, unless it was not asked for."""
    done = here("doctor", DOCKER_HOST=NO_ENGINE)
    output = " ".join(done.stdout.decode().split())
    assert done.returncode == 1
    assert "local: works" in output
    assert "docker: does not work" in output
    assert "tried unix:///nowhere/docker.sock (from DOCKER_HOST): nothing is there" in output
    assert "→ start Docker" in output


@pytest.mark.docker
def test_doctor_looks_at_the_engine_and_at_an_image(here: Here) -> None:
    """With the one that is asked for, a container is started."""
    needs_engine()
    done = here("doctor", "--env", "docker", "--image", BASE)
    assert done.returncode == 0
    assert b"docker: works" in done.stdout
    assert b"can be bounded" in done.stdout
    assert b"ran a command" in done.stdout
    without_shell = here("doctor", "--env", "docker", "--image", STATIC)
    assert without_shell.returncode == 0
    assert b"has no shell" in without_shell.stdout


@pytest.mark.docker
def test_doctor_does_not_take_another_image_for_the_one_asked_for(here: Here) -> None:
    """It cannot be had here, whatever else is there."""
    needs_engine()
    done = here("doctor", "--env", "docker", "--image", "127.0.0.1:1/nobody/nothing:1")
    assert done.returncode == 1
    assert "127.0.0.1:1/nobody/nothing:1 is not there, and cannot be pulled" in " ".join(done.stdout.decode().split())


@pytest.mark.docker
@pytest.mark.anyio
async def test_doctor_says_that_the_default_image_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """Envs work then, but not those of which no image is named: that is neither "works" nor "does not"."""
    needs_engine()
    monkeypatch.setattr(images, "OWN_IMAGES", (BASE,))
    monkeypatch.setattr(DockerConfig.model_fields["image"], "default", "127.0.0.1:1/nobody/nothing:1")
    checks = await doctor.check_docker()
    (image,) = [check for check in checks if check.name == "image"]
    assert image.state == "limited"
    assert BASE in image.remedy
    console = Console(file=io.StringIO(), width=80)
    doctor._show(console, options.Kind.DOCKER, checks)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().startswith("docker: works, but not with the defaults\n")


@pytest.mark.anyio
async def test_doctor_stops_at_a_guest_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What depends on it is not tried."""

    def missing(machine: str | None = None) -> Path:
        raise EnvStartError(f"none for {machine}")

    monkeypatch.setattr(doctor, "guest_binary", missing)
    checks = await doctor.check_local()
    assert [(check.name, check.state) for check in checks] == [("system", "ok"), ("guest", "missing")]
    assert checks[-1].remedy == "none for None"


@pytest.mark.anyio
async def test_doctor_names_a_guest_that_may_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An installer that loses modes."""
    program = tmp_path / "guest-test"
    program.write_bytes(b"")
    monkeypatch.setattr(doctor, "guest_binary", lambda: program)
    assert (await doctor.check_local())[-1].remedy == f"chmod a+x {program}"


@pytest.mark.anyio
async def test_doctor_names_a_machine_without_local_envs(monkeypatch: pytest.MonkeyPatch) -> None:
    """There the remedy is another kind of env."""
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    (check,) = await doctor.check_local()
    assert (check.state, "Docker" in check.remedy) == ("missing", True)


@pytest.mark.anyio
async def test_doctor_names_a_temp_folder_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds the working folders."""

    def refuse(**_: str) -> None:
        raise PermissionError(13, "Permission denied", "/tmp")

    monkeypatch.setattr(tempfile, "TemporaryDirectory", refuse)
    check = (await doctor.check_local())[-1]
    assert (check.name, check.state, check.found) == ("temp folder", "missing", "'/tmp': Permission denied")


# -- what the commands share


def test_settings_that_a_kind_does_not_have_are_named_by_their_option() -> None:
    """Not by the key of the configuration, which the user has not written."""
    local = options.Kind.LOCAL
    for settings, option in (
        ({"image": "x"}, "--image"),
        ({"memory_bytes": "1g"}, "--memory"),
        ({"user": "1"}, "--user"),
    ):
        with pytest.raises(ConfigError, match=f"^{option} is not for local envs$"):
            options.env_config(local, settings=settings)


def test_no_option_means_the_defaults_of_a_docker_env() -> None:
    """Never an env on this host unless it is asked for."""
    assert options.env_config(None, settings={"image": None, "mounts": (), "environment": {}}) == DockerConfig()
    assert options.env_config(options.Kind.LOCAL, settings={}) == LocalConfig()


@pytest.mark.parametrize(
    ("kind", "agent", "complaint"),
    [
        (None, "b", "has no agent 'b' \\(it has 'a'\\)"),
        ("local", None, "leave out --env"),
    ],
)
def test_a_file_and_what_contradicts_it(tmp_path: Path, kind: Kind | None, agent: str | None, complaint: str) -> None:
    """Neither wins silently."""
    file = tmp_path / "envs.json"
    file.write_text('{"a": {"kind": "docker", "image": "x", "mounts": [{"kind": "tmpfs", "target": "/t"}]}}')
    with pytest.raises(ConfigError, match=complaint):
        options.env_config(kind, file, agent, settings={})


def test_options_add_to_the_mounts_of_a_file_and_replace_its_image(tmp_path: Path) -> None:
    """The only agent of a file needs no name."""
    file = tmp_path / "envs.json"
    file.write_text('{"a": {"kind": "docker", "image": "x", "mounts": [{"kind": "tmpfs", "target": "/t"}]}}')
    mount = options.mount_of("work:/w")
    config = options.env_config(None, file, settings={"image": "y", "mounts": (mount,)})
    assert isinstance(config, DockerConfig)
    assert (config.image, [mount.target for mount in config.mounts]) == ("y", ["/t", "/w"])


def test_an_agent_without_a_file_is_refused() -> None:
    """There is nothing that it could be an agent of."""
    with pytest.raises(ConfigError, match="--config"):
        options.env_config(None, None, "coder", settings={})


def test_mounts_are_read_by_how_their_source_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of the host are read-only unless said otherwise, volumes are not."""
    monkeypatch.chdir(tmp_path)
    assert options.mount_of("./d:/data") == BindMount(source=tmp_path / "d", target="/data")
    assert options.mount_of(f"{tmp_path}/a:b:/data:rw") == BindMount(
        source=tmp_path / "a:b", target="/data", read_only=False
    )
    assert options.mount_of("work:/data") == VolumeMount(name="work", target="/data")
    assert options.mount_of("work:/data:ro") == VolumeMount(name="work", target="/data", read_only=True)
    with pytest.raises(ConfigError, match="write SOURCE:TARGET"):
        options.mount_of("/data")


def test_a_variable_that_is_not_there_is_refused() -> None:
    """An empty value would hide the mistake."""
    with pytest.raises(ConfigError, match="no such variable"):
        options.variables_of(["RUNENV_NOBODY_SETS_THIS"])


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (FileNotFoundError(2, "No such file", "a\nb"), "runenv: 'a\\nb': No such file\n"),
        (OSError(28, "No space left"), "runenv: No space left\n"),
        (EnvLostError("the env is\ngone"), "runenv: the env is gone\n"),
        (ExceptionGroup("", [ConfigError("wrong")]), "runenv: wrong\n"),
        (KeyError("k"), "runenv: unexpected KeyError: 'k' (set RUNENV_DEBUG=1 to see where)\n"),
    ],
)
def test_every_error_is_one_line(error: Exception, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Also one that nobody has thought of."""
    with pytest.raises(typer.Exit) as ended, terminal.one_line_errors(9):
        raise error
    assert ended.value.exit_code == 9
    assert capsys.readouterr().err == line


def test_an_error_shows_where_it_comes_from_when_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For those who look for the cause."""
    monkeypatch.setenv("RUNENV_DEBUG", "1")
    with pytest.raises(typer.Exit), terminal.one_line_errors():
        raise ConfigError("wrong")
    assert "Traceback" in capsys.readouterr().err


def test_a_long_list_of_refusals_is_cut_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """A hostile tree must not fill the terminal."""
    refused = tuple(Refused(f"f{number}", "a device") for number in range(100))
    assert terminal.complain_refused(TransferResult(0, 0, refused, 5000))
    lines = capsys.readouterr().err.splitlines()
    assert (len(lines), lines[0], lines[-1]) == (
        21,
        "runenv: not copied: 'f0': a device",
        "runenv: not copied: 4,980 more",
    )


def test_a_bar_is_drawn_on_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs stay free of it."""
    monkeypatch.setattr(terminal, "BAR_DELAY", 0)
    texts = {}
    for is_terminal in (True, False):
        console = Console(file=io.StringIO(), force_terminal=is_terminal, width=80)
        with terminal.transfer_bar(console, "[b]tree", 2000) as progress:
            progress(1000, None)
        assert isinstance(console.file, io.StringIO)
        texts[is_terminal] = console.file.getvalue()
    assert "[b]tree" in texts[True]
    assert texts[False] == ""


def test_a_bar_is_not_drawn_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is over before it could be read only flickers."""
    monkeypatch.setattr(terminal, "BAR_DELAY", 1000)
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with terminal.transfer_bar(console, "tree", 2000) as progress:
        progress(1000, None)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == ""


def test_a_bar_has_one_line_whatever_it_is_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long name is cut, and control characters of it do nothing."""
    monkeypatch.setattr(terminal, "BAR_DELAY", 0)
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with terminal.transfer_bar(console, "\n" + "long-" * 40, 3 * 1024**3) as progress:
        progress(1024**3, None)
    assert isinstance(console.file, io.StringIO)
    drawn = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue())
    assert "1.0 GiB of 3.0 GiB" in drawn
    lines = [line for line in re.split(r"[\r\n]+", drawn) if line.strip()]
    assert all(r"\nlong-" in line and "GiB" in line for line in lines)


COMMANDS = [
    *([], ["exec"], ["cp"], ["mcp"], ["doctor"], ["demo"], ["artifacts"]),
    *(["artifacts", name] for name in ("ls", "get", "put", "rm", "versions", "stat", "prune")),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_fits_80_columns_and_can_be_copied_from(command: list[str]) -> None:
    """No frames, no types of arguments, no value for what takes none; every option says what it is."""
    done = CliRunner().invoke(cli.app, [*command, "-h"], env={"COLUMNS": "80", "TERM": "dumb"})
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert not re.search(r"[│<{}]|\[\[|\.\.\.\]\.\.\.", done.stdout)
    assert re.search(r"^  -h, --help +Show this message and exit\.$", done.stdout, re.MULTILINE)
    options = done.stdout.partition("\nOptions:\n")[2].partition("\n\n")[0].splitlines()
    alone = [line for line, after in pairwise([*options, "  -"]) if re.fullmatch(r"  -.*\S", line) and after[2] == "-"]
    assert [line for line in alone if not re.search(r"\S  +\S", line[2:])] == []


def test_examples_stand_in_help_as_they_are_typed() -> None:
    """Each on a line of its own."""
    done = CliRunner().invoke(cli.app, ["mcp", "--help"], env={"COLUMNS": "80", "TERM": "dumb"})
    example = "      runenv mcp --config agents.yaml --agent coder --store file:///srv/files"
    assert example in done.stdout.splitlines()


def test_help_lists_the_commands_that_there_are() -> None:
    """With whole sentences, and no stubs of later ones."""
    done = CliRunner().invoke(cli.app, ["--help"], env={"COLUMNS": "80", "TERM": "dumb"})
    assert done.exit_code == 0
    listed = done.stdout.partition("\nCommands:\n")[2].splitlines()
    assert [line.split()[0] for line in listed if line[2] != " "] == [
        "exec",
        "cp",
        "mcp",
        "doctor",
        "demo",
        "artifacts",
    ]
    assert "..." not in done.stdout.partition("\nCommands:\n")[2]


def test_the_version_is_that_of_the_distribution() -> None:
    """For a report of a fault."""
    done = CliRunner().invoke(cli.app, ["--version"])
    assert (done.exit_code, done.stdout) == (0, f"runenv {version('runenv-sandbox')}\n")


def contents(tree: Path) -> dict[str, tuple[int, str]]:
    """Return mode and hash of everything in a tree, by its path."""
    return {
        str(path.relative_to(tree)): (
            path.stat().st_mode,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in tree.rglob("*")
    }


def wait_for(condition: object) -> None:
    """Wait until a file is there or the like."""
    assert callable(condition)
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
