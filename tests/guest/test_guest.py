"""The compiled guest over plain pipes: no Docker, no link, no event loop."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import random
import re
import signal
import socket
import struct
import subprocess
import tarfile
from pathlib import Path, PurePosixPath

import pytest

from runenv.envs.transfer import Verdict, matcher
from runenv.guest import frames
from runenv.guest.frames import Channel, Flag, Kind, Tag, Verb
from tests.envs.glob_table import TABLE
from tests.guest.client import Answer, Guest, hostile_frames, marked, wait_until
from tests.guest.conftest import ROOT, Start


def error_of(answer: Answer) -> int:
    """The errno of an ERROR."""
    assert answer.kind is Kind.ERROR
    return answer.number(Tag.ERRNO)


def message_of(answer: Answer) -> str:
    """The message of an ERROR."""
    message = answer.fields[Tag.MESSAGE]
    assert isinstance(message, bytes)
    return message.decode()


# ---- the format ----


def test_numbers_of_the_format_are_the_same_in_c_and_python() -> None:
    """guest.h repeats the enums of frames.py in the same order and with the same values."""
    text = re.sub(r"/\*.*?\*/", "", (ROOT / "runenv/guest/src/guest.h").read_text(), flags=re.DOTALL)
    enums: dict[str, int] = {}
    for body in re.findall(r"enum (?:\w+ )?\{(.*?)\}", text, flags=re.DOTALL):
        value = -1
        for part in filter(None, (piece.strip() for piece in body.split(","))):
            name, _, given = part.partition("=")
            value = eval(given) if given else value + 1  # noqa: S307 - arithmetic in our own header
            enums[name.strip()] = value
    for kind in Kind:
        assert enums[kind.name] == kind
    for verb in Verb:
        assert enums[verb.name] == verb
    for channel in Channel:
        assert enums[channel.name] == channel
    for tag in Tag:
        assert enums[f"T_{tag.name}"] == tag
    for flag in Flag:
        assert enums[f"F_{flag.name}"] == flag
    for ours, theirs in {
        "PROTOCOL_VERSION": frames.VERSION,
        "HEADER": frames.HEADER_BYTES,
        "MAX_PAYLOAD": frames.MAX_PAYLOAD,
        "MAX_DATA": frames.MAX_DATA,
        "HOST_WINDOW": frames.HOST_WINDOW,
        "GUEST_WINDOW": frames.GUEST_WINDOW,
        "TOKEN_BYTES": frames.TOKEN_BYTES,
    }.items():
        assert enums[ours] == theirs


def test_another_version_is_refused_in_a_sentence(release: Path, tmp_path: Path) -> None:
    """A host of another protocol version gets BYE with both numbers."""
    with subprocess.Popen([release], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        hello = frames.encode_fields([(Tag.VERSION, 99), (Tag.WORKDIR, os.fsencode(tmp_path))])
        out, _ = process.communicate(frames.encode(0, Kind.HELLO, hello))
    (frame,) = frames.FrameDecoder().feed(out)
    assert frame.kind is Kind.BYE
    assert b"version %d" % frames.VERSION in frame.payload
    assert b"99" in frame.payload


def test_guest_says_nothing_before_hello(release: Path) -> None:
    """End of input before any hello: no byte comes out."""
    done = subprocess.run([release], input=b"", capture_output=True, check=False)
    assert (done.stdout, done.returncode) == (b"", 0)


def test_a_missing_workdir_is_named(start: Start, tmp_path: Path) -> None:
    """A guest that cannot use its workdir says BYE with the folder."""
    (tmp_path / "work").rmdir()
    guest = start()
    assert guest.hello.kind is Kind.BYE
    assert str(tmp_path / "work").encode() in guest.hello.payload


@pytest.mark.parametrize("seed", range(40))
def test_hostile_frames_end_the_guest_and_nothing_else(start: Start, seed: int) -> None:
    """Random bytes and damaged frames behind a hello: an orderly end, never a crash or a hang."""
    guest = start()
    with contextlib.suppress(BrokenPipeError):
        guest.send(hostile_frames(seed))
    assert guest.process.stdin is not None
    assert guest.process.stdout is not None
    guest.process.stdin.close()
    guest.process.stdout.read()
    assert guest.process.wait(20) in {0, 65}


# ---- exec ----


def test_exit_codes_are_the_commands_own(start: Start) -> None:
    """C003: 124, 137 and 143 as exit codes are no timeouts; a signal is a signal."""
    guest = start()
    for code in (0, 1, 124, 137, 143, 255):
        answer = guest.exec(f"exit {code}", (Tag.TIMEOUT_MS, 30_000))
        assert answer.number(Tag.EXIT_CODE) == code
        assert not answer.has(Flag.TIMED_OUT)
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV):
        answer = guest.exec(f"kill -{int(number)} $$")
        assert answer.number(Tag.SIGNAL) == number
        assert Tag.EXIT_CODE not in answer.fields


def test_a_program_is_found_as_a_shell_finds_it(start: Start, tmp_path: Path) -> None:
    """E9: 127 for what is not there, 126 for what cannot run, each with the reason."""
    guest = start()
    work = tmp_path / "work"
    (work / "plain").write_text("x")
    (work / "bad").write_text("#!/nowhere/at/all\n")
    (work / "bad").chmod(0o755)
    expected = {
        "nothing-of-that-name": (127, "command not found"),
        "./nothing": (127, "command not found"),
        "./plain": (126, "Permission denied"),
        "./bad": (126, "bad interpreter"),
        "/": (126, "Permission denied"),
    }
    for program, (code, reason) in expected.items():
        answer = guest.exec([program])
        assert answer.number(Tag.EXIT_CODE) == code, program
        assert reason in answer.err.decode()
    answer = guest.exec(["bad"], (Tag.ENV, b"PATH=/usr/bin:" + os.fsencode(work)))
    assert (answer.number(Tag.EXIT_CODE), b"bad interpreter" in answer.err) == (126, True)


@pytest.mark.parametrize(
    "command",
    [
        "mkfifo p; (while :; do echo tick; sleep 0.2; done) > p & cat p",
        "sleep 987",
        "trap '' TERM; sleep 986",
        "setsid sleep 985 & sleep 984",
        "(setsid sh -c 'trap \"\" TERM; sleep 983 & sleep 982' &) ; sleep 981",
        "kill -STOP $$",
        "while :; do sh -c 'sleep 980 & exit' ; done",
    ],
)
def test_a_timeout_takes_the_whole_tree(start: Start, command: str) -> None:
    """C001 C002 E3: after a timeout nothing that the command started is alive, and what it said is kept."""
    guest = start()
    answer = guest.exec(f"echo before; {command}", (Tag.TIMEOUT_MS, 400), (Tag.ENV, b"MARK=tree-under-test"))
    assert answer.has(Flag.TIMED_OUT)
    assert answer.out.startswith(b"before")
    assert Tag.EXIT_CODE not in answer.fields
    assert marked("MARK=tree-under-test") == []
    assert guest.exec(["true"]).number(Tag.EXIT_CODE) == 0


def test_cancel_kills_the_tree(start: Start) -> None:
    """E5: CANCEL ends the command like a timeout, and is answered once."""
    guest = start()
    call = guest.start_exec("echo begun; setsid sleep 979 & sleep 978", (Tag.ENV, b"MARK=cancel-under-test"))
    wait_until(lambda: len(marked("MARK=cancel-under-test")) >= 2, "the command runs")
    guest.send(frames.encode(call, Kind.CANCEL))
    answer = guest.wait(call)
    assert answer.has(Flag.CANCELLED)
    assert marked("MARK=cancel-under-test") == []


@pytest.mark.parametrize(
    "command",
    [
        "sleep 30 & echo hi",
        "sleep 30 >/dev/null & echo hi",
        "sleep 30 >/dev/null 2>&1 & echo hi",
        "setsid sleep 300 & echo hi",
    ],
)
def test_background_children_do_not_hold_the_call(start: Start, command: str) -> None:
    """C004 C006 E4: the call ends with the direct command, says so, and the end of the guest ends the child."""
    guest = start()
    answer = guest.exec(command, (Tag.ENV, b"MARK=background-under-test"), (Tag.TIMEOUT_MS, 20_000))
    assert answer.number(Tag.EXIT_CODE) == 0
    assert answer.out == b"hi\n"
    assert answer.has(Flag.BACKGROUND)
    assert answer.number(Tag.DURATION_US) < 10_000_000
    assert len(marked("MARK=background-under-test")) == 1
    assert guest.end() == 0
    assert marked("MARK=background-under-test") == []


def test_a_background_child_goes_on_writing(start: Start, tmp_path: Path) -> None:
    """E4: what it writes later neither blocks it nor kills it."""
    guest = start()
    answer = guest.exec("(for i in 1 2 3 4 5 6 7 8; do head -c 100000 /dev/zero; done; echo done > marker) & true")
    assert answer.number(Tag.EXIT_CODE) == 0
    wait_until((tmp_path / "work" / "marker").exists, "the child wrote 800 kB and went on")


def test_nothing_is_left_in_the_background_after_plain_commands(start: Start) -> None:
    """A pipeline that ends is no background."""
    guest = start()
    for _ in range(30):
        assert not guest.exec("seq 1000 | tail -1; cat <(echo x) > /dev/null").has(Flag.BACKGROUND)


def test_stdin_is_empty_or_what_was_given(start: Start) -> None:
    """C008 E7: end of file at once, bytes of any size, and an early exit is no error."""
    guest = start()
    assert guest.exec("cat; read x; echo $?").out == b"1\n"
    assert guest.exec("cat", stdin=b"").out == b""
    data = os.urandom(200_000)
    assert guest.exec("cat", stdin=data).out == data
    assert guest.exec("head -c 3", stdin=b"abcdef" * 30_000).out == b"abc"
    assert guest.exec("exec <&-; sleep 0.05; echo fine", stdin=b"x" * 200_000).out == b"fine\n"


def test_stdin_of_any_size_flows_by_credit(start: Start) -> None:
    """More than the window goes in as the command takes it, and comes out whole."""
    guest = start()
    data = os.urandom(3_000_000)
    call = guest.start_exec("sha256sum; sleep 0", (Tag.FLAGS, int(Flag.HAS_STDIN)))
    sent = 0
    while sent < len(data):
        room = frames.GUEST_WINDOW + guest.answers[call].granted - sent
        if room <= 0:
            assert guest.pump()
            continue
        piece = data[sent : sent + min(room, frames.MAX_DATA)]
        guest.send(frames.encode(call, Kind.DATA, piece))
        sent += len(piece)
    guest.send(frames.encode(call, Kind.END))
    assert guest.wait(call).out.split()[0] == hashlib.sha256(data).hexdigest().encode()


def test_output_is_kept_at_both_ends_and_counted(start: Start) -> None:
    """C010 C011 C012: exactly up to the limit nothing is cut; above it head and tail are kept, the rest counted."""
    guest = start()
    for size in (0, 1, 9_999, 10_000, 10_001, 16_384, 200_000):
        body = b"BEGIN" + b"x" * (size - 8) + b"END" if size >= 8 else b"x" * size
        answer = guest.exec("cat", stdin=body, keep=10_000)
        assert answer.number(Tag.OUT_TOTAL) == size
        if size <= 10_000:
            assert answer.out == body
            assert Tag.OUT_SPILL not in answer.fields
        else:
            assert answer.number(Tag.OUT_KEPT_HEAD) == 5_000
            assert answer.out == body[:5_000] + body[-5_000:]
            path = answer.fields[Tag.OUT_SPILL]
            assert isinstance(path, bytes)
            assert Path(os.fsdecode(path)).read_bytes() == body
            assert answer.number(Tag.OUT_SPILLED) == size


def test_lines_are_counted_over_the_whole_stream(start: Start) -> None:
    """O2: the number of newlines is that of everything written."""
    answer = start().exec("seq 1 200000; echo FINAL >&2; exit 3", keep=4_096)
    assert answer.number(Tag.OUT_LINES) == 200_000
    assert answer.number(Tag.EXIT_CODE) == 3
    assert answer.err == b"FINAL\n"
    assert answer.out.startswith(b"1\n2\n")
    assert answer.out.endswith(b"199999\n200000\n")


def test_a_stream_is_spilled_once_it_exceeds_what_is_shown(start: Start) -> None:
    """O3: between what a model sees and what crosses the link there is a spill file and no cut."""
    guest = start()
    answer = guest.exec("head -c 50000 /dev/zero", (Tag.SPILL_AT, 30_000))
    assert len(answer.out) == 50_000
    assert answer.number(Tag.OUT_SPILLED) == 50_000
    assert Tag.OUT_SPILL not in guest.exec("head -c 30000 /dev/zero", (Tag.SPILL_AT, 30_000)).fields


def test_spill_files_stay_within_their_quota(start: Start, tmp_path: Path) -> None:
    """O3: the oldest go first; one stream larger than the quota keeps its first part and says how much."""
    guest = start(quota=1_000_000)
    for _ in range(5):
        guest.exec("head -c 400000 /dev/zero", keep=1_024)
    files = sorted((tmp_path / "spill0").iterdir(), key=lambda path: int(path.name.split("-")[0]))
    assert [path.stat().st_size for path in files] == [400_000, 400_000]
    assert files[0].name.startswith("4-")
    answer = guest.exec("head -c 3000000 /dev/zero", keep=1_024)
    assert answer.number(Tag.EXIT_CODE) == 0
    assert answer.number(Tag.OUT_SPILLED) == 1_000_000
    assert sum(path.stat().st_size for path in (tmp_path / "spill0").iterdir()) <= 1_000_000
    assert (tmp_path / "spill0").stat().st_mode & 0o777 == 0o700
    guest.end()
    assert not (tmp_path / "spill0").exists()


def test_a_full_disk_never_fails_a_command(start: Start) -> None:
    """O3: where nothing can be spilled the command ends as it would, and the result says what was kept."""
    guest = start(quota=0)
    answer = guest.exec("head -c 300000 /dev/zero", keep=1_024)
    assert (answer.number(Tag.EXIT_CODE), answer.number(Tag.OUT_TOTAL)) == (0, 300_000)
    assert Tag.OUT_SPILL not in answer.fields


def test_200_calls_at_once_and_a_slow_reader_stalls_none(start: Start) -> None:
    """E11: a call whose reader gives no credit waits alone."""
    guest = start()
    stalled = guest.start_exec("head -c 4000000 /dev/zero", keep=4_000_000)
    while len(guest.answers[stalled].data[Channel.STDOUT]) < frames.HOST_WINDOW - 32 * 1024:
        guest.pump(credit=False)
    calls = [guest.start_exec(f"sleep 0.3; echo {number}") for number in range(200)]
    for number, call in enumerate(calls):
        assert guest.wait(call, credit=False).out == f"{number}\n".encode()
    assert guest.answers[stalled].kind is None
    taken = len(guest.answers[stalled].data[Channel.STDOUT])
    guest.send(frames.encode(stalled, Kind.CREDIT, taken.to_bytes(4, "little")))
    assert len(guest.wait(stalled).out) == 4_000_000


def test_a_missing_folder_is_named_and_later_calls_go_on(start: Start, tmp_path: Path) -> None:
    """C026 E8: the message is about the folder, not the shell; a deleted cwd harms nobody else."""
    guest = start()
    (tmp_path / "work" / "d").mkdir()
    guest.exec('rm -rf "$PWD"', (Tag.CWD, b"d"))
    answer = guest.exec("echo ok", (Tag.CWD, b"d"))
    assert answer.number(Tag.EXIT_CODE) == 126
    assert b"folder d: No such file" in answer.err
    assert guest.exec("echo ok").out == b"ok\n"


def test_a_supervisor_killed_by_its_command_is_a_result(start: Start) -> None:
    """E2: the cause is named, nothing is left running, the guest goes on."""
    guest = start()
    answer = guest.exec("(setsid sleep 977 &); kill -9 $PPID; sleep 976", (Tag.ENV, b"MARK=orphans-under-test"))
    assert answer.number(Tag.SIGNAL) == signal.SIGKILL
    assert b"killed its own supervisor" in answer.err
    assert (answer.number(Tag.OUT_TOTAL), answer.number(Tag.ERR_TOTAL)) == (len(answer.out), len(answer.err))
    assert marked("MARK=orphans-under-test") == []
    assert guest.exec("echo on").out == b"on\n"


def test_a_supervisor_serves_one_command_after_the_other(start: Start) -> None:
    """Neither processes nor descriptors pile up, whatever the commands did, and no frame of one reaches the next."""
    guest = start()

    def supervisors() -> dict[int, int]:
        children = Path(f"/proc/{guest.process.pid}/task/{guest.process.pid}/children").read_text().split()
        return {int(pid): len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in children}

    def use() -> None:
        for number in range(20):
            text = f"call {number}".encode()
            assert guest.exec("cat; echo $V", (Tag.ENV, b"V=" + text), stdin=text).out == text * 2 + b"\n"
            assert guest.exec(["nothing"]).number(Tag.EXIT_CODE) == 127
            assert guest.exec("exit 3", stdin=b"never read" * 1_000).number(Tag.EXIT_CODE) == 3
            assert guest.exec("echo " + "#" * 130_000).number(Tag.EXIT_CODE) == 0
            assert guest.exec("pwd", (Tag.CWD, b"nothing")).number(Tag.EXIT_CODE) == 126

    use()
    before = supervisors()
    use()
    assert 1 <= len(before) <= 2
    assert supervisors() == before


def test_a_stopped_supervisor_still_keeps_its_deadline(start: Start) -> None:
    """A command that stops its supervisor is ended all the same."""
    guest = start()
    answer = guest.exec("kill -STOP $PPID; sleep 975", (Tag.TIMEOUT_MS, 300), (Tag.ENV, b"MARK=stopped-under-test"))
    assert answer.has(Flag.TIMED_OUT)
    assert marked("MARK=stopped-under-test") == []


def test_the_guest_killed_ends_its_commands(start: Start) -> None:
    """When the guest dies, in any way, its supervisors end what they own."""
    guest = start()
    guest.start_exec("setsid sleep 974 & sleep 973", (Tag.ENV, b"MARK=guest-killed-under-test"))
    wait_until(lambda: len(marked("MARK=guest-killed-under-test")) >= 2, "the command runs")
    guest.process.kill()
    wait_until(lambda: not marked("MARK=guest-killed-under-test"), "its commands are gone")


def test_environment_is_base_then_call(start: Start) -> None:
    """E8: a call's variables win over the env's, and no other get in."""
    guest = start()
    text = guest.exec(["env"], (Tag.ENV, b"A=1"), (Tag.ENV, b"HOME=/elsewhere"), (Tag.ENV, b"A=2")).out.decode().split()
    assert "A=2" in text
    assert "A=1" not in text
    assert "HOME=/elsewhere" in text
    assert {line.partition("=")[0] for line in text} <= {"PATH", "HOME", "A", "ASAN_OPTIONS"}


def test_commands_inherit_no_descriptor(start: Start) -> None:
    """Only the three standard streams are open in a command."""
    assert start().exec(["ls", "/proc/self/fd"]).out.split() == [b"0", b"1", b"2", b"3"]


def test_a_script_longer_than_one_argument_runs(start: Start) -> None:
    """C027: 200,000 characters of script."""
    script = "echo begin\n" + "# " + "x" * 200_000 + "\necho end"
    assert start().exec(script).out == b"begin\nend\n"


def test_zombies_do_not_pile_up(start: Start) -> None:
    """C025: what reparents to the guest is reaped."""
    guest = start()
    for _ in range(50):
        guest.exec("(sleep 0.01 &) ; true")

    def zombies() -> list[str]:
        out = subprocess.run(["ps", "-eo", "stat,ppid"], capture_output=True, text=True, check=True).stdout
        return [line for line in out.splitlines() if line.startswith("Z") and line.split()[1] == str(guest.process.pid)]

    wait_until(lambda: not zombies(), "no zombie is left")


def test_memory_is_bounded(release: Path, tmp_path: Path) -> None:
    """Under 1 MB idle; with 50 commands running under 2 MB and four times what is kept (proportional set size)."""

    def pss(pid: int) -> int:
        pids, total = [pid], 0
        while pids:
            pid = pids.pop()
            try:
                children = [
                    int(child)
                    for task in Path(f"/proc/{pid}/task").iterdir()
                    for child in (task / "children").read_text().split()
                ]
                if Path(f"/proc/{pid}/exe").readlink() == release:
                    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
                    total += int(re.search(r"^Pss:\s+(\d+)", rollup, re.MULTILINE).group(1)) * 1024  # type: ignore[union-attr]
            except (FileNotFoundError, ProcessLookupError):
                continue
            pids += children
        return total

    (tmp_path / "work").mkdir()
    with Guest(release, tmp_path / "work", spill=tmp_path / "spill") as guest:
        guest.exec(["true"])
        assert pss(guest.process.pid) < 1_000_000
        calls = [guest.start_exec("head -c 20000 /dev/zero; exec sleep 5") for _ in range(50)]
        wait_until(
            lambda: (
                len([1 for p in Path("/proc").iterdir() if p.name.isdigit() and _cmd(p) == b"sleep\x005\x00"]) == 50
            ),
            "they run",
        )
        assert pss(guest.process.pid) < 2_000_000 + 4 * 50 * 20_000
        for call in calls:
            guest.send(frames.encode(call, Kind.CANCEL))
        for call in calls:
            guest.wait(call)


def _cmd(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


# ---- files ----


def test_files_go_in_and_out(start: Start) -> None:
    """F1 F3: parents are made, ranges are ranges, append appends, the mode stays."""
    guest = start()
    data = os.urandom(200_000)
    assert guest.call(Verb.PUT, (Tag.PATH, b"a/b/c.bin"), data=data).number(Tag.TOTAL) == 200_000
    assert guest.call(Verb.GET, (Tag.PATH, b"a/b/c.bin")).main == data
    assert guest.call(Verb.GET, (Tag.PATH, b"a/b/c.bin"), (Tag.OFFSET, 100), (Tag.LENGTH, 7)).main == data[100:107]
    assert guest.call(Verb.GET, (Tag.PATH, b"a/b/c.bin"), (Tag.OFFSET, 300_000)).main == b""
    guest.exec(["chmod", "751", "a/b/c.bin"])
    guest.call(Verb.PUT, (Tag.PATH, b"a/b/c.bin"), data=b"new")
    assert guest.exec(["stat", "-c", "%a", "a/b/c.bin"]).out == b"751\n"
    guest.call(Verb.PUT, (Tag.PATH, b"a/b/c.bin"), (Tag.FLAGS, int(Flag.APPEND)), data=b"+more")
    assert guest.call(Verb.GET, (Tag.PATH, b"a/b/c.bin")).main == b"new+more"
    guest.call(Verb.PUT, (Tag.PATH, b"fresh"), data=b"x")
    assert guest.exec(["stat", "-c", "%a", "fresh"]).out == b"644\n"
    assert guest.exec("ls -A a/b").out == b"c.bin\n"


def test_a_write_through_a_link_replaces_its_target(start: Start, tmp_path: Path) -> None:
    """C044: the link stays a link; a hard link pair is parted."""
    guest = start()
    work = tmp_path / "work"
    (work / "f").write_bytes(b"old")
    (work / "l").symlink_to("f")
    os.link(work / "f", work / "h")
    guest.call(Verb.PUT, (Tag.PATH, b"l"), data=b"new")
    assert (work / "l").is_symlink()
    assert ((work / "f").read_bytes(), (work / "h").read_bytes()) == (b"new", b"old")


def test_an_unfinished_write_leaves_the_old_file(start: Start, tmp_path: Path) -> None:
    """F3 C044: cancelled, or cut off with the guest's end: the old content is intact and no temporary file is left."""
    work = tmp_path / "work"
    (work / "f").write_bytes(b"old")
    guest = start()
    call = guest.start(Verb.PUT, [(Tag.PATH, b"f")], b"x" * 100_000, end=False)
    guest.send(frames.encode(call, Kind.CANCEL))
    assert error_of(guest.wait(call)) == 125
    guest.start(Verb.PUT, [(Tag.PATH, b"f")], b"x" * 100_000, end=False)
    guest.call(Verb.STAT, (Tag.PATH, b"f"))
    guest.end()
    assert (work / "f").read_bytes() == b"old"
    assert [path.name for path in work.iterdir()] == ["f"]


def test_an_empty_file_has_no_data(start: Start) -> None:
    """C036: not one DATA frame, which would be empty."""
    guest = start()
    guest.call(Verb.PUT, (Tag.PATH, b"empty"))
    seen: list[frames.Frame] = []
    call = guest.start(Verb.GET, [(Tag.PATH, b"empty")])
    while guest.answers[call].kind is None:
        guest.pump(on_frame=seen.append)
    assert [frame.kind for frame in seen] == [Kind.RESULT]


def test_what_would_block_is_refused_by_its_type(start: Start, tmp_path: Path) -> None:
    """C037 F5: FIFO, socket, device, folder, a link to one of them: an error that names it, at once."""
    guest = start()
    work = tmp_path / "work"
    os.mkfifo(work / "fifo")
    (work / "link").symlink_to("fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(work / "sock"))
    for path, word in ((b"fifo", "FIFO"), (b"link", "FIFO"), (b"sock", "socket"), (b"/dev/zero", "device")):
        assert word in message_of(guest.call(Verb.GET, (Tag.PATH, path))), path
    for path in (b"fifo", b"sock", b"/dev/null"):
        assert guest.call(Verb.PUT, (Tag.PATH, path), data=b"x").kind is Kind.ERROR
    assert error_of(guest.call(Verb.GET, (Tag.PATH, b"."))) == 21
    assert error_of(guest.call(Verb.GET, (Tag.PATH, b"nothing"))) == 2
    assert error_of(guest.call(Verb.GET, (Tag.PATH, b"fifo/x"))) == 20
    assert error_of(guest.call(Verb.GET, (Tag.PATH, b"/dev/stdin"))) in {2, 22}
    assert len(guest.call(Verb.GET, (Tag.PATH, b"/proc/self/status")).main) > 100


def test_a_size_limit_is_checked_before_bytes_move(start: Start, tmp_path: Path) -> None:
    """C050: 3 GiB, sparse: refused with its size."""
    guest = start()
    with (tmp_path / "work" / "big").open("wb") as file:
        file.truncate(3 << 30)
    answer = guest.call(Verb.GET, (Tag.PATH, b"big"), (Tag.LIMIT, 10_000_000))
    assert error_of(answer) == 27
    assert "3221225472" in message_of(answer)
    assert answer.main == b""


def test_odd_names_round_trip(start: Start) -> None:
    """C041 F4: names are bytes; nothing is taken as an option or a pattern."""
    guest = start()
    names = [
        b"-rf",
        b"--help",
        b"-",
        b"a\nb",
        b"it's $(x).txt",
        b" lead",
        b"trail ",
        b"*",
        b"\xff\xfe",
        "日本".encode(),
        b"n" * 255,
    ]
    for name in names:
        assert guest.call(Verb.PUT, (Tag.PATH, name), data=name).kind is Kind.RESULT
        assert guest.call(Verb.GET, (Tag.PATH, name)).main == name
    assert {name for name, _ in listing(guest, b".")} == set(names)
    for name in names:
        assert guest.call(Verb.REMOVE, (Tag.PATH, name)).kind is Kind.RESULT
    assert listing(guest, b".") == []
    assert error_of(guest.call(Verb.PUT, (Tag.PATH, b"n" * 256), data=b"")) == 36
    assert error_of(guest.call(Verb.GET, (Tag.PATH, b"x" * 5000))) == 36


def listing(guest: Guest, path: bytes) -> list[tuple[bytes, int]]:
    """Names and sizes in a folder."""
    data, found, at = guest.call(Verb.LIST, (Tag.PATH, path)).main, [], 0
    record = struct.Struct("<IQqIIHH")
    while at < len(data):
        _, size, _, _, _, name, target = record.unpack_from(data, at)
        found.append((data[at + record.size : at + record.size + name], size))
        at += record.size + name + target
    return found


def test_folders_are_made_listed_renamed_and_removed(start: Start) -> None:
    """F1: the verbs on folders."""
    guest = start()
    assert guest.call(Verb.MKDIR, (Tag.PATH, b"a/b"), (Tag.FLAGS, int(Flag.PARENTS))).kind is Kind.RESULT
    assert error_of(guest.call(Verb.MKDIR, (Tag.PATH, b"a/b"))) == 17
    assert guest.call(Verb.MKDIR, (Tag.PATH, b"a/b"), (Tag.FLAGS, int(Flag.EXIST_OK))).kind is Kind.RESULT
    guest.call(Verb.PUT, (Tag.PATH, b"a/b/f"), data=b"12345")
    assert listing(guest, b"a/b") == [(b"f", 5)]
    assert guest.call(Verb.RENAME, (Tag.PATH, b"a/b/f"), (Tag.TARGET, b"x/y/g")).kind is Kind.RESULT
    assert listing(guest, b"x/y") == [(b"g", 5)]
    assert error_of(guest.call(Verb.RENAME, (Tag.PATH, b"no"), (Tag.TARGET, b"q/r"))) == 2
    assert b"q" not in dict(listing(guest, b"."))
    assert error_of(guest.call(Verb.REMOVE, (Tag.PATH, b"x"))) == 39
    assert guest.call(Verb.REMOVE, (Tag.PATH, b"x"), (Tag.FLAGS, int(Flag.RECURSIVE))).kind is Kind.RESULT
    assert error_of(guest.call(Verb.REMOVE, (Tag.PATH, b"x"))) == 2
    assert guest.call(Verb.REMOVE, (Tag.PATH, b"x"), (Tag.FLAGS, int(Flag.MISSING_OK))).kind is Kind.RESULT
    assert error_of(guest.call(Verb.LIST, (Tag.PATH, b"a"), (Tag.LIMIT, 0))) == 27


def test_a_large_folder_is_listed_in_pieces(start: Start, tmp_path: Path) -> None:
    """5,000 entries, none lost, whatever the credit."""
    names = {f"file-{number:05d}-{'x' * 60}".encode() for number in range(5_000)}
    for name in names:
        (tmp_path / "work" / os.fsdecode(name)).touch()
    assert {name for name, _ in listing(start(), b".")} == names


def test_confinement_follows_links_only_inside(start: Start, tmp_path: Path) -> None:
    """C038 C040: links and paths that leave the workspace are refused, those that stay work."""
    work, outside = tmp_path / "work", tmp_path / "work-evil"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (work / "sub").mkdir()
    (work / "sub" / "f").write_bytes(b"in")
    (work / "leak").symlink_to(outside / "secret")
    (work / "d").symlink_to(outside)
    (work / "up").symlink_to("../work-evil")
    (work / "chain").symlink_to("up")
    (work / "stays").symlink_to("sub/../sub")
    (work / "absolute").symlink_to(work / "sub")
    guest = start(flags=int(Flag.CONFINE))
    refused = [
        b"leak",
        b"d/secret",
        b"up/secret",
        b"chain/secret",
        b"..",
        b"sub/../../work-evil/secret",
        os.fsencode(outside / "secret"),
        os.fsencode(work) + b"/../work-evil/secret",
        b"/etc/passwd",
        b"/",
    ]
    for path in refused:
        for verb in (Verb.GET, Verb.LIST, Verb.TREE_GET):
            answer = guest.call(verb, (Tag.PATH, path))
            assert error_of(answer) == 13, (verb, path)
            assert "outside the workspace" in message_of(answer)
        assert guest.call(Verb.PUT, (Tag.PATH, path + b"/new"), data=b"x").kind is Kind.ERROR
    answer = guest.exec("pwd", (Tag.CWD, os.fsencode(outside)))
    assert (answer.number(Tag.EXIT_CODE), b"outside the workspace" in answer.err) == (126, True)
    for path in (b"sub/f", b"stays/f", b"absolute/f", os.fsencode(work / "sub" / "f"), b"sub/../sub/f"):
        assert guest.call(Verb.GET, (Tag.PATH, path)).main == b"in"
    assert guest.exec("pwd", (Tag.CWD, os.fsencode(work) + b"/")).number(Tag.EXIT_CODE) == 0
    assert list(outside.iterdir()) == [outside / "secret"]


def test_spill_files_can_be_read_in_a_confined_env(start: Start) -> None:
    """O3: file verbs open the spill folder too."""
    guest = start(flags=int(Flag.CONFINE))
    path = guest.exec("seq 100000", keep=1_024).fields[Tag.OUT_SPILL]
    assert isinstance(path, bytes)
    assert guest.call(Verb.GET, (Tag.PATH, path), (Tag.LENGTH, 4)).main == b"1\n2\n"


def test_zeros_become_holes(start: Start, tmp_path: Path) -> None:
    """F6: a long run of zeros takes no disk, and reads back as zeros."""
    data = b"a" * 65536 + bytes(10 * 65536) + b"b" + bytes(200_000)
    guest = start()
    call = guest.start(Verb.PUT, [(Tag.PATH, b"sparse")], end=False)
    for at in range(0, len(data), 65536):
        guest.send(frames.encode(call, Kind.DATA, data[at : at + 65536]))
        while guest.answers[call].granted + frames.GUEST_WINDOW < at + 131072 and at + 65536 < len(data):
            guest.pump()
    guest.send(frames.encode(call, Kind.END))
    guest.wait(call)
    path = tmp_path / "work" / "sparse"
    assert path.read_bytes() == data
    assert path.stat().st_blocks * 512 < len(data) // 2


# ---- trees ----


def make_tree(root: Path) -> None:
    """Make one entry of each sort, with odd and long names."""
    (root / "empty").mkdir(parents=True)
    (root / ".hidden" / "deep").mkdir(parents=True)
    (root / ".hidden" / "deep" / "f").write_bytes(os.urandom(70_000))
    (root / ("long" * 40)).mkdir()
    (root / ("long" * 40) / ("name" * 50)).write_bytes(b"x")
    (root / "run.sh").write_bytes(b"#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("run.sh")
    (root / "longlink").symlink_to("t" * 300)
    (root / os.fsdecode(b"\xff")).write_bytes(b"")
    os.utime(root / "run.sh", (1_000_000_000, 1_000_000_000))
    os.utime(root / "empty", (1_100_000_000, 1_100_000_000))


def snapshot(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Mode, time and content of everything below a folder."""
    seen = {}
    for path in root.rglob("*"):
        status = path.lstat()
        content = os.fsencode(path.readlink()) if path.is_symlink() else b"" if path.is_dir() else path.read_bytes()
        seen[str(path.relative_to(root))] = (status.st_mode, int(status.st_mtime), content)
    return seen


def test_a_tree_goes_out_and_in_unchanged(start: Start, tmp_path: Path) -> None:
    """F7: empty folders, modes, times, links, long and odd names."""
    make_tree(tmp_path / "work" / "tree")
    guest = start()
    sent = guest.call(Verb.TREE_GET, (Tag.PATH, b"tree"))
    assert sent.number(Tag.FILES) == 4
    with tarfile.open(fileobj=io.BytesIO(sent.main)) as archive:
        assert len(archive.getmembers()) == 10
    assert guest.call(Verb.TREE_PUT, (Tag.PATH, b"new/copy"), data=sent.main).number(Tag.FILES) == 4
    assert snapshot(tmp_path / "work" / "new" / "copy") == snapshot(tmp_path / "work" / "tree")
    again = guest.call(Verb.TREE_PUT, (Tag.PATH, b"new/copy"), data=sent.main)
    assert (again.kind, again.number(Tag.REFUSED_COUNT)) == (Kind.RESULT, 0)


def test_what_cannot_be_sent_is_listed(start: Start, tmp_path: Path) -> None:
    """F7: a FIFO in a tree is named with the reason, the rest goes."""
    (tmp_path / "work" / "t").mkdir()
    os.mkfifo(tmp_path / "work" / "t" / "pipe")
    (tmp_path / "work" / "t" / "f").write_bytes(b"1")
    answer = start().call(Verb.TREE_GET, (Tag.PATH, b"t"))
    assert (answer.number(Tag.FILES), answer.number(Tag.REFUSED_COUNT)) == (1, 1)
    assert answer.fields[Tag.REFUSED] == [b"pipe\0it is a FIFO"]


def tar_of(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """A tar stream of these entries."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for info, data in entries:
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    """A tar entry with special bits in its mode."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, target, 0o6755
    return info


def test_a_hostile_tar_stays_in_its_folder(start: Start, tmp_path: Path) -> None:
    """C106: links written through, "..", absolute names, hard links, devices: refused, listed; no special bits."""
    guest = start()
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "work" / "t").mkdir()
    (tmp_path / "work" / "t" / "before").symlink_to(outside)
    stream = tar_of(
        (entry("out", tarfile.SYMTYPE, str(outside)), b""),
        (entry("out/x"), b"1"),
        (entry("before/x"), b"2"),
        (entry("../up"), b"3"),
        (entry(str(outside / "abs")), b"4"),
        (entry("hard", tarfile.LNKTYPE, "/etc/passwd"), b""),
        (entry("dev", tarfile.CHRTYPE), b""),
        (entry("good"), b"5"),
        (entry("a/../../b"), b"6"),
    )
    answer = guest.call(Verb.TREE_PUT, (Tag.PATH, b"t"), data=stream)
    assert answer.number(Tag.FILES) == 1
    assert answer.number(Tag.REFUSED_COUNT) == 7
    assert list(outside.iterdir()) == []
    assert (tmp_path / "work" / "t" / "good").stat().st_mode & 0o7777 == 0o755
    assert not (tmp_path / "work" / "up").exists()


@pytest.mark.parametrize("seed", range(30))
def test_damaged_tar_streams_are_errors(start: Start, seed: int) -> None:
    """Any bytes as a tree: an error or a refusal, and the guest lives."""
    rng = random.Random(seed)
    stream = bytearray(tar_of(*[(entry(f"d/{number}"), rng.randbytes(rng.randrange(2000))) for number in range(5)]))
    for _ in range(rng.randrange(1, 20)):
        stream[rng.randrange(len(stream))] = rng.randrange(256)
    cut = stream[: rng.randrange(1, len(stream))] if rng.random() < 0.5 else stream
    guest = start()
    assert guest.call(Verb.TREE_PUT, (Tag.PATH, b"t"), data=bytes(cut)).kind in {Kind.RESULT, Kind.ERROR}
    assert guest.exec(["true"]).number(Tag.EXIT_CODE) == 0


def test_a_pattern_of_many_stars_ends(release: Path, tmp_path: Path) -> None:
    """No pattern takes exponential time: twelve stars against 200 letters."""
    work = tmp_path / "work"
    work.mkdir()
    (work / ("a" * 200)).touch()
    with Guest(release, work) as guest:
        for pattern in (b"*a" * 100 + b"b", b"**a" * 60 + b"b", b"**/" * 60 + b"b"):
            assert guest.call(Verb.TREE_GET, (Tag.PATH, b"."), (Tag.EXCLUDE, pattern)).number(Tag.FILES) == 1


def test_patterns_mean_the_same_on_both_sides(release: Path, tmp_path: Path) -> None:
    """The guest follows the table that the host's patterns follow: files by include, folders by exclude."""
    work = tmp_path / "work"
    work.mkdir()
    with Guest(release, work) as guest:
        for number, (pattern, path, is_dir, matches) in enumerate(TABLE):
            target = work / str(number) / path
            (target if is_dir else target.parent).mkdir(parents=True)
            parents = [str(parent) for parent in PurePosixPath(path).parents if str(parent) != "."]
            if is_dir and any(matcher(exclude=[pattern])(parent, is_dir) is Verdict.LEAVE for parent in parents):
                continue  # left out already with what it is in
            if not is_dir:
                target.touch()
            tag = Tag.EXCLUDE if is_dir else Tag.INCLUDE
            stream = guest.call(Verb.TREE_GET, (Tag.PATH, str(number).encode()), (tag, os.fsencode(pattern))).main
            with tarfile.open(fileobj=io.BytesIO(stream)) as archive:
                assert (path in archive.getnames()) == (matches != is_dir), (pattern, path)
