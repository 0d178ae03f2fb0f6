"""`runenv artifacts`, over a folder and over an S3 server: what it prints, what it writes, how it ends."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import pytest
from rich.console import Console

from runenv.artifacts.artifact import Record, Scope
from runenv.artifacts.store import ArtifactStore
from runenv.cli.artifacts import listing
from tests.artifacts import servers
from tests.command_line import PROGRAM, Done, environment, run, runenv

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.artifacts.servers import S3Server

HANDLE = re.compile(r"runenv\+file://[0-9a-f-]{36}")
UNKNOWN = "runenv+file://00000000-0000-4000-8000-000000000000"
RUN = ("--run", "run-1")


class Here(Protocol):
    """`runenv artifacts` in this process, over the store of the test."""

    def __call__(self, *arguments: str | Path) -> Done: ...


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A folder that is not there yet."""
    return f"file://{tmp_path}/store"


@pytest.fixture
def here(url: str, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Here:
    """Run a command over the folder, which the environment names."""
    monkeypatch.setenv("RUNENV_STORE", url)
    monkeypatch.setenv("TERM", "dumb")
    return lambda *arguments: run(capfdbinary, "artifacts", *arguments)


class Terminal(Protocol):
    """What has been drawn since it was asked last, in lines without colours; the next is drawn for so many columns."""

    def __call__(self, columns: int) -> list[str]: ...


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal for what `listing` draws, 80 columns wide at first."""
    output = io.StringIO()
    width = 80

    def drawn(columns: int) -> list[str]:
        nonlocal width
        width = columns
        text = re.sub(r"\x1b\[[0-9;]*m", "", output.getvalue())
        output.seek(0)
        output.truncate()
        return text.splitlines()

    monkeypatch.setattr(listing, "Console", lambda: Console(file=output, width=width, force_terminal=True))
    return drawn


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file to store."""
    path = tmp_path / "report.csv"
    path.write_bytes(b"a,b\n1,2\n")
    return path


@pytest.fixture(scope="module")
def seaweedfs() -> Iterator[S3Server]:
    """A server that checks credentials and signatures."""
    with servers.seaweedfs() as server:
        yield server


def only_line(done: Done) -> str:
    """Return the one line that a failure is allowed."""
    assert (done.returncode, done.stdout) == (1, b"")
    (line,) = done.stderr.decode().splitlines()
    return line


def rows(done: Done) -> list[dict[str, Any]]:
    """Return what --json printed."""
    assert done.returncode == 0
    return [json.loads(line) for line in done.stdout.splitlines()]


def put(here: Here, file: Path, *arguments: str) -> str:
    """Store a file and return its handle."""
    done = here("put", file, *arguments)
    assert done.returncode == 0, done.stderr
    handle = done.stdout.decode().strip()
    assert HANDLE.fullmatch(handle)
    return handle


# -- put and get


def test_put_prints_the_handle_and_nothing_else(here: Here, file: Path) -> None:
    """So that a script can take it; what it was is on stderr."""
    done = here("put", file, *RUN)
    assert HANDLE.fullmatch(done.stdout.decode().removesuffix("\n"))
    assert done.stderr == b"stored 'report.csv', version 0, 8 bytes, text/csv\n"


def test_what_was_put_comes_back_by_handle_and_by_name(here: Here, file: Path, tmp_path: Path) -> None:
    """To a file, into a folder, to stdout."""
    handle = put(here, file, *RUN)
    assert here("get", handle, "-", *RUN).stdout == b"a,b\n1,2\n"
    assert here("get", f"`{handle.upper()}`", tmp_path / "deep" / "a.csv", *RUN).returncode == 0
    assert (tmp_path / "deep" / "a.csv").read_bytes() == b"a,b\n1,2\n"
    done = here("get", "report.csv", f"{tmp_path}/folder/", *RUN)
    assert (tmp_path / "folder" / "report.csv").read_bytes() == b"a,b\n1,2\n"
    assert done.stderr.decode() == f"wrote 8 bytes to {tmp_path}/folder/report.csv\n"


def test_bytes_go_through_stdin_and_stdout_unchanged(url: str) -> None:
    """As processes, in a pipe."""
    data = os.urandom(3_000_000)
    options = ("--store", url, "--session", "chat")
    stored = runenv("artifacts", "put", "-", "--name", "x.bin", *options, stdin=data)
    assert stored.returncode == 0, stored.stderr
    got = runenv("artifacts", "get", stored.stdout.decode().strip(), "-", *options)
    assert (got.returncode, got.stdout) == (0, data)
    empty = runenv("artifacts", "put", "-", "--name", "empty", *options)
    assert runenv("artifacts", "get", empty.stdout.decode().strip(), "-", *options).stdout == b""


def test_stdin_needs_a_name(here: Here) -> None:
    """There is none to take."""
    assert only_line(here("put", "-", *RUN)) == "runenv: what comes from stdin needs a name: --name"


def test_a_name_of_an_artifact_replaces_no_file_and_one_that_is_given_does(
    here: Here, file: Path, tmp_path: Path
) -> None:
    """Who stored it chose that name, not the user; links and modes stay."""
    put(here, file, *RUN, "--name", "deep/out.txt")
    (tmp_path / "out.txt").write_text("mine")
    (tmp_path / "link").symlink_to("out.txt")
    (tmp_path / "out.txt").chmod(0o640)
    assert only_line(here("get", "deep/out.txt", tmp_path, *RUN)) == (
        f"runenv: '{tmp_path}/out.txt': a file has that name already: name it to replace it"
    )
    assert (tmp_path / "out.txt").read_text() == "mine"
    assert here("get", "deep/out.txt", tmp_path / "link", *RUN).returncode == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "out.txt").read_bytes() == b"a,b\n1,2\n"
    assert (tmp_path / "out.txt").stat().st_mode & 0o777 == 0o640


def test_a_device_is_written_to_not_replaced(here: Here, file: Path) -> None:
    """As `cp` does."""
    assert here("get", put(here, file, *RUN), "/dev/null", *RUN).returncode == 0
    assert not Path("/dev/null").is_file()


def test_damaged_content_leaves_the_target_as_it_was(here: Here, file: Path, tmp_path: Path) -> None:
    """The hash is known at the end, and until then nothing has the name."""
    handle = put(here, file, *RUN)
    (content,) = (path for path in (tmp_path / "store" / "content").iterdir() if path.is_file())
    content.chmod(0o600)
    content.write_bytes(b"a,b\n1,3\n")
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "old").write_text("old")
    done = here("get", handle, tmp_path / "target" / "old", *RUN)
    assert "is damaged" in only_line(done)
    assert [(path.name, path.read_text()) for path in (tmp_path / "target").iterdir()] == [("old", "old")]


def test_a_reader_that_has_enough_ends_get_quietly(url: str, tmp_path: Path) -> None:
    """As a pipe to `head` does to every program."""
    (tmp_path / "big").write_bytes(b"line\n" * 2_000_000)
    options = ("--store", url, *RUN)
    assert runenv("artifacts", "put", tmp_path / "big", *options).returncode == 0
    command = [*PROGRAM, "artifacts", "get", "big", "-", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"line\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_ctrl_c_while_put_waits_for_stdin_stores_nothing(url: str) -> None:
    """And ends at once, though the pipe stays open."""
    options = ("--store", url, *RUN)
    command = [*PROGRAM, "artifacts", "put", "-", "--name", "x", *options]
    read_end, write_end = os.pipe()
    with subprocess.Popen(
        command, stdin=read_end, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        os.close(read_end)
        # More than a pipe holds, so that it is reading when all of it is written.
        os.write(write_end, b"x" * 65_536)
        writer = threading.Thread(target=os.write, args=(write_end, b"x" * 65_536))
        writer.start()
        writer.join()
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=30)
    os.close(write_end)
    assert (process.returncode, stdout, stderr) == (130, b"", b"")
    assert runenv("artifacts", "ls", *options).stdout == b""


# -- ls, versions, stat


def test_ls_is_a_table_of_the_latest_versions(here: Here, file: Path) -> None:
    """Each on one line with its whole handle where no terminal bounds it."""
    put(here, file, *RUN)
    latest = put(here, file, *RUN, "--ttl", "7200")
    other = put(here, file, *RUN, "--name", "charts/q3.csv", "--ttl", "0")
    done = here("ls", *RUN)
    heading, *lines = [line.split() for line in done.stdout.decode().splitlines()]
    assert heading == ["name", "version", "size", "type", "age", "expires", "of", "handle"]
    by_name = {line[0]: line for line in lines}
    assert set(by_name) == {"charts/q3.csv", "report.csv"}
    assert by_name["report.csv"][1:5] == ["1", "8", "bytes", "text/csv"]
    assert by_name["report.csv"][-5:] == ["in", "2", "h", "run", latest]
    assert by_name["charts/q3.csv"][-3:] == ["never", "run", other]
    assert b"report" not in here("ls", "charts/", *RUN).stdout


def test_ls_shows_a_scope_its_own_and_wider_artifacts_and_no_others(here: Here, file: Path) -> None:
    """A run sees its session's and its user's; the level says whose it is."""
    whole = (*RUN, "--session", "s", "--user", "u")
    put(here, file, *whole, "--name", "mine")
    put(here, file, "--session", "s", "--user", "u", "--name", "ours")
    put(here, file, *whole, "--name", "user:theirs")
    put(here, file, "--run", "run-2", "--name", "foreign")
    assert {(row["name"], row["level"]) for row in rows(here("ls", "--json", *whole))} == {
        ("mine", "run"),
        ("ours", "session"),
        ("theirs", "user"),
    }


def test_nothing_to_list_is_no_failure(here: Here, file: Path) -> None:
    """Scripts get nothing, people a sentence."""
    put(here, file, *RUN)
    done = here("ls", "--run", "run-2")
    assert done == (0, b"", b"there are no artifacts\n")
    assert here("ls", "x", *RUN).stderr == b"there are no artifacts whose names start with 'x'\n"


def test_versions_are_listed_oldest_first(here: Here, file: Path) -> None:
    """All of one name."""
    handles = [put(here, file, *RUN) for _ in range(3)]
    assert [row["handle"] for row in rows(here("versions", "report.csv", "--json", *RUN))] == handles
    assert only_line(here("versions", "x", *RUN)) == "runenv: there is no 'x' in this scope"


def test_stat_says_all_that_is_known(here: Here, file: Path) -> None:
    """For people, and as JSON with the same values."""
    handle = put(here, file, *RUN, "-m", "origin=a=b", "--type", "image/png", "--ttl", "60")
    (row,) = rows(here("stat", handle, "--json", *RUN))
    assert row["metadata"] == {"origin": "a=b"}
    assert row["expires"] - row["created"] == 60
    assert (row["run"], row["session"], row["user"]) == ("run-1", None, None)
    assert Path(row["path"]).read_bytes() == file.read_bytes()
    shown = here("stat", handle, *RUN).stdout.decode()
    for value in (handle, row["sha256"], "8 bytes", row["path"], row["uri"], "a=b"):
        assert value in shown


def test_a_version_is_chosen_by_its_number(here: Here, file: Path) -> None:
    """Of a name; a handle has only one."""
    first, second = put(here, file, *RUN), put(here, file, *RUN)
    assert rows(here("stat", "report.csv", "--version", "0", "--json", *RUN))[0]["handle"] == first
    assert rows(here("stat", "report.csv", "--json", *RUN))[0]["handle"] == second
    assert "leave out --version" in only_line(here("stat", first, "--version", "0", *RUN))


def test_what_is_kept_beside_an_artifact_cannot_drive_the_terminal(here: Here, file: Path) -> None:
    """Whoever stored it may not be trusted."""
    handle = put(here, file, *RUN, "-m", "note=\x1b[2J\r\nspoofed")
    shown = here("stat", handle, *RUN).stdout
    assert rb"\x1b[2J\r\nspoofed" in shown
    assert b"\x1b" not in shown


def test_a_narrow_terminal_gets_a_few_lines_for_each(terminal: Terminal) -> None:
    """What is known of it is folded between words; name and handle never, so that they can be copied."""
    long_name = "folder/" + "long-" * 40 + ".csv"
    shown = listing.Listing(as_lines=False)
    shown.add(replace(record("a[b].csv", 3), expires=time.time() + 7200))
    shown.add(replace(record(long_name, 0), media_type="application/" + "x" * 80))
    shown.end()
    assert terminal(80) == [
        "a[b].csv",
        "  version 3, 2.0 KiB, text/csv, 0 s old, expires in 2 h, of the run",
        f"  {UNKNOWN}",
        long_name,
        "  version 0, 2.0 KiB,",
        f"  application/{'x' * 80},",
        "  0 s old, never expires, of the run",
        f"  {UNKNOWN}",
    ]


def test_a_wide_terminal_gets_a_table(terminal: Terminal) -> None:
    """As soon as it fits."""
    columns = len("a.csv  version     size  type      age  expires  of   ") + len(UNKNOWN)
    for width, lines in ((columns, 2), (columns - 1, 3)):
        terminal(width)
        shown = listing.Listing(as_lines=False)
        shown.add(replace(record("a.csv", 0), size=2048))
        shown.end()
        assert len(terminal(width)) == lines


def test_what_is_piped_has_no_blanks_at_the_ends_of_lines(here: Here, file: Path) -> None:
    """A table for people is a table for `awk` too."""
    put(here, file, *RUN)
    put(here, file, *RUN, "--name", "a longer name")
    lines = here("ls", *RUN).stdout.decode().splitlines()
    assert len(lines) == 3
    assert [line for line in lines if line != line.rstrip()] == []


def test_stat_folds_no_value(terminal: Terminal) -> None:
    """A hash, a URI or a path of any length can be copied."""
    kept = replace(record("a.csv", 0), uri="file:///" + "folder/" * 30 + "x")
    terminal(80)
    listing.show_record(kept, "/" + "folder/" * 30 + "x")
    lines = terminal(80)
    assert f"SHA-256  {kept.sha256}" in lines
    assert f"URI      {kept.uri}" in lines
    assert f"path     /{'folder/' * 30}x" in lines


def test_a_long_list_is_drawn_by_pages_with_one_heading(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing of it is held for longer than a page."""
    shown = listing.Listing(as_lines=False)
    held = []
    for number in range(2 * listing.PAGE_ROWS + 1):
        shown.add(record(f"{number}.csv", 0))
        held.append(len(shown._page))
    shown.end()
    lines = capsys.readouterr().out.splitlines()
    assert max(held) < listing.PAGE_ROWS
    assert [line.split()[0] for line in lines] == ["name", *(f"{number}.csv" for number in range(2 * 500 + 1))]


# -- rm and prune


def test_rm_removes_a_version_or_a_name_or_all(here: Here, file: Path) -> None:
    """And says how many."""
    first, second, third, other = (put(here, file, *RUN, "--name", name) for name in ("a", "a", "a", "b"))
    assert here("rm", first, *RUN).stderr == b"removed 1 artifact\n"
    assert here("rm", "a", "--version", "2", *RUN).stderr == b"removed 1 artifact\n"
    assert [row["handle"] for row in rows(here("ls", "--json", *RUN))] == [second, other]
    assert third not in here("versions", "a", *RUN).stdout.decode()
    assert here("rm", "a", "b", *RUN).stderr == b"removed 2 artifacts\n"
    put(here, file, *RUN, "--session", "s")
    assert here("rm", "--all", "--session", "s").stderr == b"removed 1 artifact\n"


def test_rm_says_what_is_not_there(here: Here, file: Path) -> None:
    """A foreign handle reads as an unknown one."""
    foreign = put(here, file, "--run", "run-2")
    unknown, other = (only_line(here("rm", handle, *RUN)) for handle in (UNKNOWN, foreign))
    assert unknown.replace(UNKNOWN, "X") == other.replace(foreign, "X")
    assert only_line(here("rm", *RUN)) == only_line(here("rm", "a", "--all", *RUN))


def test_prune_says_what_it_has_removed(here: Here, url: str, file: Path) -> None:
    """Whoever's it was; no scope is asked for."""

    async def old() -> None:
        async with ArtifactStore.open(url, clock=lambda: 1000.0) as store:
            await store.put(b"x" * 100, filename="old", scope="run-9", ttl=10)

    anyio.run(old)
    kept = put(here, file, *RUN)
    assert here("prune").stderr == b"removed 1 expired artifact and 0 leftovers: 100 bytes freed\n"
    assert here("prune").stderr == b"removed 0 expired artifacts and 0 leftovers: 0 bytes freed\n"
    assert here("get", kept, "-", *RUN).stdout == file.read_bytes()


# -- which store, whose


@pytest.mark.parametrize("command", [["ls"], ["stat", "x"], ["get", "x", "-"], ["rm", "x"], ["versions", "x"]])
def test_what_only_reads_makes_no_store(here: Here, tmp_path: Path, command: list[str]) -> None:
    """A mistyped folder is an error and nothing else."""
    assert "there is no artifact store" in only_line(here(*command, *RUN))
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["ls", "--store", "memory://", *RUN], "memory:// ends with this command"),
        (["ls", "--store", "ftp://x", *RUN], "starts with one of"),
        (["ls"], "give --run, --session or --user"),
        (["ls", "--run", "a/b"], "an id is a single segment"),
        (["put", "nothing-here", *RUN], "'nothing-here': No such file or directory"),
        (["put", "/", *RUN], "'/': it is a folder"),
        (["put", "/dev/null", "--ttl", "-1", *RUN], "a lifetime is"),
        (["put", "/dev/null", "-m", "x", *RUN], "--metadata takes NAME=VALUE"),
        (["get", "runenv+file://x", "-", *RUN], "is not a handle"),
        (["get", "../x", "-", *RUN], "'..' in it"),
    ],
)
def test_what_is_wrong_is_one_sentence(here: Here, file: Path, arguments: list[str], complaint: str) -> None:
    """And the exit status of all commands that did not do what they were asked."""
    put(here, file, *RUN)
    assert complaint in only_line(here(*arguments))


def test_no_store_is_said_with_both_remedies(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """The option and the variable."""
    monkeypatch.delenv("RUNENV_STORE")
    line = only_line(here("ls", *RUN))
    assert "--store" in line
    assert "RUNENV_STORE" in line


def test_an_option_of_the_command_line_goes_before_the_environment(here: Here, file: Path, tmp_path: Path) -> None:
    """As with every variable that stands for an option."""
    other = f"file://{tmp_path}/other"
    put(here, file, *RUN, "--store", other)
    assert len(rows(here("ls", "--json", *RUN, "--store", other))) == 1
    assert not (tmp_path / "store").exists()


def test_a_store_is_loaded_by_its_commands_only() -> None:
    """The others start faster without it."""
    program = (
        "import sys; from runenv.cli import app; app(standalone_mode=False);"
        "print(*(name for name in ('runenv.artifacts', 'obstore', 'puremagic') if name in sys.modules))"
    )
    done = subprocess.run(
        [*PROGRAM[:2], program, "exec", "--env", "local", "-n", "true"],
        capture_output=True,
        env=environment(),
        check=True,
    )
    assert done.stdout == b"\n"


def test_an_s3_store_takes_credentials_from_the_environment(
    seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By the names of the vendor; the rest as options. No secret is printed, whatever goes wrong."""
    place = seaweedfs.place()
    options = ("--store", place.url, "-o", f"endpoint={seaweedfs.endpoint}", "-o", "allow_http=true", *RUN)
    keys = {
        "AWS_ACCESS_KEY_ID": seaweedfs.access_key_id,
        "AWS_SECRET_ACCESS_KEY": seaweedfs.secret_access_key,
        "AWS_REGION": "us-east-1",
    }
    (tmp_path / "deck.bin").write_bytes(os.urandom(100_000))
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    stored = runenv("artifacts", "put", tmp_path / "deck.bin", *options)
    assert stored.returncode == 0, stored.stderr
    handle = stored.stdout.decode().strip()
    got = runenv("artifacts", "get", handle, "-", *options)
    assert got.stdout == (tmp_path / "deck.bin").read_bytes()
    secret = "not-the-right-key-of-anyone"  # noqa: S105 - it is none
    for more in (("-o", f"secret_access_key={secret}"), ()):
        refused = runenv("artifacts", "ls", *options, *more)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
        (line,) = refused.stderr.decode().splitlines()
        assert (refused.returncode, refused.stdout) == (1, b"")
        assert secret not in line
        assert seaweedfs.secret_access_key not in line


def test_a_url_with_credentials_is_refused_without_them(here: Here) -> None:
    """They would be in histories and logs."""
    line = only_line(here("ls", *RUN, "--store", "s3://AKIA:hunter2@bucket/prefix"))
    assert "hunter2" not in line
    line = only_line(here("ls", *RUN, "--store", "s3://bucket", "-o", "hunter2"))
    assert "hunter2" not in line


def record(name: str, version: int) -> Record:
    """A record of this moment."""
    return Record(
        UNKNOWN, name, version, Scope(run="r"), 2000, "0" * 64, "text/csv", None, time.time(), None, {}, "memory://x"
    )
