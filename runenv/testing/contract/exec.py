"""The contract of `exec`: what goes in, what comes back, what a failure looks like (rules E1, E2, E7 to E11).

How commands end that do not end by themselves is in `ends.py`, what becomes of long output in `output.py`.
"""

from __future__ import annotations

import hashlib
import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from runenv.errors import ConfigError, EnvError, LimitError
from runenv.testing.contract.base import Contract, until

if TYPE_CHECKING:
    from runenv.env import RunEnv
    from runenv.types import ExecResult

__all__ = ("ExecContract",)

SEVERAL = 200
"""Commands at once."""


class ExecContract(Contract):
    """Commands that end by themselves."""

    # -- what goes in

    async def test_E1_a_list_is_run_as_it_is(self, env: RunEnv) -> None:
        """Argv: no shell, no quoting, nothing expanded or globbed; empty and odd arguments arrive."""
        words = ["a  b", "", "$HOME", "`id`", "*", "it's", '"', "\\n", "-n", "line\nbreak", "ünïcödé", "{}", ";", "|"]
        result = await env.exec(self.argv("printf", "<%s>", *words))
        assert result.exit_code == 0
        assert result.stdout.data.decode() == "".join(f"<{word}>" for word in words)

    async def test_E1_arguments_may_be_bytes(self, env: RunEnv) -> None:
        """A name that is not UTF-8 can be given to a command."""
        result = await env.exec([*self.argv("printf", "%s"), b"\xff\xfe"])
        assert result.stdout.data == b"\xff\xfe"

    async def test_E1_a_string_is_run_by_the_shell(self, env: RunEnv) -> None:
        """Pipes, variables, globs and operators are the shell's."""
        result = await env.exec(self.shell("x=3; echo $((x + 4)) | cat && printf %s done"))
        assert (result.exit_code, result.stdout.text) == (0, "7\ndone")

    async def test_C032_without_a_shell_a_string_is_answered_with_a_sentence(self, env: RunEnv) -> None:
        """An image with one static program: the missing shell is named, nothing else is blamed."""
        if self.has_shell:
            pytest.skip("this env has a shell")
        result = await env.exec("echo hi")
        assert (result.exit_code, result.stdout.data) == (127, b"")
        assert "no shell" in result.stderr.text
        assert (await env.exec(self.argv("echo", "hi"))).stdout.text == "hi\n"

    @pytest.mark.parametrize(
        ("script", "code_in_bash"),
        [
            ("A=(); false", 1),
            ("cat <<'END'\n$x `y` \"q\" 'r' \\ \\\\ \\n\nEND", 0),
            ("if then", 2),
            ("echo 'a b' | awk '{ print \"<\" $1 \"'\\''\" $2 \">\" }' | sed -e 's/<\\(.\\)/[\\1/; s/>$/]/'", 0),
            ('echo "$(echo "a \\"b\\" $(echo c))")" \'d\'"e"f\\ g; exit 5', 5),
            ("unset nothing; echo ${nothing:-'x'} $'y'; echo end >&2; (exit 9)", 9),
        ],
        ids=["array", "heredoc", "syntax error", "awk and sed", "nested quotes", "dollar quotes"],
    )
    async def test_C028_a_script_means_what_the_shell_says(self, env: RunEnv, script: str, code_in_bash: int) -> None:
        """Nothing parses in front of the shell: output, error text and exit code are those of `sh -c`."""
        name = (await env.exec(self.shell("echo $0"))).stdout.text.strip()
        ours, plain = await env.exec(script), await env.exec([name, "-c", script])
        assert (ours.stdout.data, ours.stderr.data) == (plain.stdout.data, plain.stderr.data)
        assert ours.exit_code == (code_in_bash if name.endswith("bash") else plain.exit_code)

    async def test_C027_a_script_of_200_000_characters_runs_or_is_too_long(self, env: RunEnv) -> None:
        """Past the kernel's 128 KiB for one argument: it works, or the refusal says what is wrong."""
        script = self.shell(": " + "x" * 200_000 + "\necho end")
        try:
            result = await env.exec(script)
        except LimitError as error:
            assert "long" in str(error)  # noqa: PT017 - either is right
        else:
            assert (result.exit_code, result.stdout.text) == (0, "end\n")

    async def test_C027_an_argument_that_is_too_long_is_a_clear_answer(self, env: RunEnv) -> None:
        """A result with the system's message, or a `LimitError`; never a broken env."""
        with pytest.raises(LimitError):
            await env.exec(self.argv("echo", *["x" * 100_000] * 60))
        result = await env.exec(self.argv("echo", "x" * 200_000))
        assert result.exit_code == 126
        assert result.stderr.text.strip()
        assert (await env.exec(self.argv("echo", "ok"))).ok

    @pytest.mark.parametrize(
        ("command", "arguments"),
        [
            ([], {}),
            ("a\0b", {}),
            (["a", "b\0c"], {}),
            (b"echo", {}),
            (["echo", 3], {}),
            (["true"], {"timeout": 0}),
            (["true"], {"timeout": -1}),
            (["true"], {"timeout": float("nan")}),
            (["true"], {"max_output_bytes": 10}),
            (["true"], {"max_output_bytes": 65 * 1024 * 1024}),
            (["true"], {"env": {"A=B": "c"}}),
            (["true"], {"env": {"": "c"}}),
            (["true"], {"env": {"A": "b\0c"}}),
            (["true"], {"cwd": ""}),
            (["true"], {"stdin": "text"}),
        ],
        ids=str,
    )
    async def test_E1_a_wrong_argument_is_a_value_error(
        self,
        env: RunEnv,
        command: Any,  # noqa: ANN401 - wrong on purpose
        arguments: dict[str, Any],
    ) -> None:
        """The caller's fault is told to the caller, and nothing is run."""
        with pytest.raises(ValueError, match=r"\w"):
            await env.exec(command, **arguments)

    async def test_E1_commands_run_as_another_user(self, env: RunEnv, folder: str) -> None:
        """Numeric user and group, for one call; what it makes is that user's."""
        if self.other_user is None:
            with pytest.raises(ConfigError):
                await env.exec(self.argv("true"), user="12345:12345")
            return
        uid, gid = (int(part) for part in self.other_user.split(":"))
        assert (await env.exec(self.argv("id", "-u"), user=self.other_user)).stdout.text == f"{uid}\n"
        assert (await env.exec(self.argv("id", "-g"), user=self.other_user)).stdout.text == f"{gid}\n"
        assert (await env.exec(self.argv("id", "-u"))).stdout.text != f"{uid}\n"
        assert (await env.exec(self.argv("chmod", "777", folder))).ok
        assert (await env.exec(self.argv("touch", "theirs"), cwd=folder, user=self.other_user)).ok
        made = await env.stat(f"{folder}/theirs")
        assert (made.uid, made.gid) == (uid, gid)

    async def test_E1_a_user_is_a_number(self, env: RunEnv) -> None:
        """Names are unknown before the image is, so they are refused with a sentence, never guessed."""
        with pytest.raises((ConfigError, ValueError), match="root"):
            await env.exec(self.argv("true"), user="root")

    # -- the environment of a command

    async def test_E8_variables_of_the_call_are_for_that_call(self, env: RunEnv) -> None:
        """They arrive byte for byte and are gone in the next one."""
        value = 'it\'s "1" $x\n= ünï'
        shown = await env.exec(self.argv("env"), env={"RUNENV_CALL": value})
        assert f"RUNENV_CALL={value}\n" in shown.stdout.data.decode()
        assert "RUNENV_CALL" not in (await env.exec(self.argv("env"))).stdout.text

    async def test_E8_variables_of_the_configuration_are_for_every_call(self, env: RunEnv) -> None:
        """Those of the call go over them, for that call."""
        for name, value in self.environment.items():
            assert f"{name}={value}\n" in (await env.exec(self.argv("env"))).stdout.text
            assert f"{name}=other\n" in (await env.exec(self.argv("env"), env={name: "other"})).stdout.text
        if not self.environment:
            pytest.skip("the configuration of this env sets no variables")

    async def test_C105_nothing_of_the_hosts_environment_arrives(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Canaries in this process' environment, old and new names alike, are seen nowhere a command may look."""
        canary = f"canary-{os.getpid()}-{time.monotonic_ns()}"
        for name in ("OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "MY_X", "RUNENV_X", "LD_PRELOAD_X"):
            monkeypatch.setenv(name, canary)
        looks = [self.argv("env"), self.argv("cat", "/proc/self/environ")]
        if self.sh is not None:
            # The command's parent is the supervisor, the first process the guest or the host's own.
            looks += [self.script("cat /proc/$PPID/environ"), self.script("cat /proc/1/environ")]
        if self.has_shell:
            looks.append(["/bin/sh", "-lc", "env"])
        async with self.make_env() as env:
            for look in looks:
                result = await env.exec(look, env={"RUNENV_CALL": "here"})
                assert canary not in (result.stdout.data + result.stderr.data).decode(errors="replace")
            assert "RUNENV_CALL=here" in (await env.exec(looks[0], env={"RUNENV_CALL": "here"})).stdout.text

    async def test_E8_a_command_starts_in_the_workdir_and_has_a_home(self, env: RunEnv, folder: str) -> None:
        """`cwd` is relative to the workdir or absolute; HOME exists and can be written to."""
        assert (await env.exec(self.argv("pwd"))).stdout.text == f"{env.workdir}\n"
        assert (await env.exec(self.argv("pwd"), cwd=folder)).stdout.text == f"{folder}\n"
        assert (await env.exec(self.argv("pwd"), cwd=folder.rpartition("/")[2])).stdout.text == f"{folder}\n"
        home = await env.exec(self.script('touch "$HOME/.contract" && rm "$HOME/.contract" && echo "${PATH:?}"'))
        assert home.exit_code == 0, home.stderr.text

    async def test_C026_a_folder_that_vanished_is_named_and_bricks_nothing(self, env: RunEnv, folder: str) -> None:
        """A command removes the folder it runs in: later ones there say so, others go on; nothing runs elsewhere."""
        await env.mkdir(f"{folder}/d")
        gone = await env.exec(self.argv("rm", "-rf", f"{folder}/d"), cwd=f"{folder}/d")
        assert gone.exit_code == 0
        there = await env.exec(self.argv("touch", "elsewhere"), cwd=f"{folder}/d")
        assert (there.exit_code, there.stdout.data) == (126, b"")
        assert f"{folder}/d" in there.stderr.text
        assert (await env.exec(self.argv("echo", "ok"))).stdout.text == "ok\n"
        assert "elsewhere" not in [entry.path for entry in await env.list()]

    async def test_E8_a_cwd_that_is_a_file_is_named(self, env: RunEnv, folder: str) -> None:
        """As a missing one."""
        await env.write(f"{folder}/f", b"")
        result = await env.exec(self.argv("pwd"), cwd=f"{folder}/f")
        assert result.exit_code == 126
        assert f"{folder}/f" in result.stderr.text

    # -- stdin

    async def test_C008_without_stdin_there_is_end_of_file(self, env: RunEnv) -> None:
        """Nothing waits for input, whatever this process has as its own."""
        with anyio.fail_after(10):
            assert (await env.exec(self.argv("cat"))).exit_code == 0
            if self.sh is not None:
                result = await env.exec(self.script('read x; echo "got=$x rc=$?"'))
                assert result.stdout.text == "got= rc=1\n"
            if self.python is not None:
                result = await env.exec([self.python, "-c", "input()"])
                assert result.exit_code == 1
                assert "EOFError" in result.stderr.text

    async def test_E7_stdin_of_any_size_arrives(self, env: RunEnv) -> None:
        """32 MiB of all byte values; no argument and no temporary file could hold them."""
        data = bytes(range(256)) * (32 * 1024 * 1024 // 256)
        result = await env.exec(self.argv("sha256sum"), stdin=data)
        assert result.stdout.text.split()[0] == hashlib.sha256(data).hexdigest()

    async def test_E7_a_command_may_leave_its_stdin(self, env: RunEnv) -> None:
        """Ending or closing it before all was read is no error, and nothing waits."""
        with anyio.fail_after(10):
            assert (await env.exec(self.argv("true"), stdin=bytes(5_000_000))).exit_code == 0
            assert (await env.exec(self.argv("head", "-c", "3"), stdin=b"abc" * 2_000_000)).stdout.data == b"abc"
            assert (await env.exec(self.argv("cat"), stdin=b"")).ok
            if self.sh is not None:
                result = await env.exec(self.script("exec <&-; echo closed"), stdin=bytes(5_000_000))
                assert result.stdout.text == "closed\n"

    # -- what comes back

    @pytest.mark.parametrize("code", [0, 1, 2, 124, 126, 127, 137, 143, 255])
    async def test_C003_an_exit_code_is_the_commands_own(self, env: RunEnv, code: int) -> None:
        """A command that itself ends with 124, 137 or 143 has not timed out and was not killed."""
        result = await env.exec(self.script(f"exit {code}"), timeout=30)
        assert (result.exit_code, result.signal, result.timed_out, result.oom_killed) == (code, None, False, False)
        assert result.ok is (code == 0)

    @pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (15, "SIGTERM"), (11, "SIGSEGV"), (6, "SIGABRT")])
    async def test_C023_a_signal_is_told_by_its_name(self, env: RunEnv, number: int, name: str) -> None:
        """The same everywhere: `exit_code` is None and `signal` has the name. Never a negative number, nor 128 + n.

        The case asks for 137 and the like beside the name. Decided otherwise: a command can end with 137 by itself, and
        only None tells the two apart.
        """
        result = await env.exec(self.script(f"kill -{number} $$"))
        assert (result.exit_code, result.signal, result.timed_out) == (None, name, False)

    async def test_C021_a_stream_without_output_is_empty(self, env: RunEnv) -> None:
        """Bytes and text are there and empty, never None."""
        silent = await env.exec(self.argv("true"))
        assert (silent.stdout.data, silent.stdout.text, silent.stderr.data, silent.stderr.text) == (b"", "", b"", "")
        assert (silent.stdout.total_bytes, silent.stdout.spill_path, silent.stdout.truncated) == (0, None, False)
        only_out = await env.exec(self.argv("echo", "o"))
        assert (only_out.stdout.text, only_out.stderr.text) == ("o\n", "")
        only_err = await env.exec(self.script("echo e >&2"))
        assert (only_err.stdout.text, only_err.stderr.text) == ("", "e\n")

    async def test_C019_no_terminal_changes_the_output(self, env: RunEnv) -> None:
        """LF stays LF, and the streams stay two."""
        result = await env.exec(self.script(r'printf "a\nb\n"; echo err >&2; test -t 1 || echo none'))
        assert (result.stdout.data, result.stderr.data) == (b"a\nb\nnone\n", b"err\n")

    async def test_C020_output_that_looks_like_a_frame_is_output(self, env: RunEnv) -> None:
        """Headers of the engine's stream and of ours neither leak into the output nor can be forged in it."""
        engine = bytes([1, 0, 0, 0, 0, 0, 0, 5])
        ours = bytes([4, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0])
        data = (engine + b"text" + ours + b"more" + engine + ours) * 100
        result = await env.exec(self.argv("cat"), stdin=data)
        assert (result.stdout.data, result.stderr.data) == (data, b"")
        listing = await env.exec(self.argv("ls", "/proc/self/fd"))
        assert listing.stdout.data.replace(b"\n", b"").isdigit()
        assert (await env.exec(self.argv("printf", ""))).stdout.data == b""

    async def test_C114_a_failure_is_a_result(self, env: RunEnv) -> None:
        """What the command did wrong, or could not do, never raises."""
        assert (await env.exec(self.argv("false"))).exit_code == 1
        assert (await env.exec(self.argv("grep", "zzz"), stdin=b"abc\n")).exit_code == 1
        late = await env.exec(self.script("echo out; exit 3"))
        assert (late.exit_code, late.stdout.text) == (3, "out\n")
        assert (await env.exec(["/no/such/program"])).exit_code == 127
        assert (await env.exec(self.argv("sleep", "60"), timeout=0.1)).timed_out

    async def test_E9_a_program_that_is_not_there_gives_127(self, env: RunEnv) -> None:
        """By name and by path, with the name on stderr."""
        for program in ("no-such-program-here", "/no/such/program"):
            result = await env.exec([program, "x"])
            assert (result.exit_code, result.signal) == (127, None)
            assert program in result.stderr.text
        assert (await env.exec(self.shell("no-such-program-here"))).exit_code == 127

    async def test_E9_a_program_that_cannot_be_run_gives_126(self, env: RunEnv, folder: str) -> None:
        """Not executable, a folder, a bad interpreter, no format that the system knows: each named on stderr."""
        await env.write(f"{folder}/plain", b"echo no\n")
        await env.write(f"{folder}/bad", b"#!/no/such/interpreter\n", mode=0o755)
        await env.write(f"{folder}/noise", b"\x7fELF\x01nothing", mode=0o755)
        for name in ("plain", "bad", "noise", "."):
            result = await env.exec([f"{folder}/{name}"])
            assert result.exit_code == 126, name
            assert f"{folder}/{name}" in result.stderr.text
        assert (await env.exec(self.argv("echo", "ok"))).ok

    async def test_E2_the_duration_is_that_of_the_command(self, env: RunEnv) -> None:
        """Measured beside it, in seconds."""
        assert (await env.exec(self.argv("sleep", "0.2"))).duration >= 0.2
        assert (await env.exec(self.argv("true"))).duration > 0

    # -- many at once

    async def test_E11_200_commands_are_in_flight_at_once(self, env: RunEnv, folder: str) -> None:
        """Each waits for a line that is written only after all of them have said that they are there."""
        assert (await env.exec(self.argv("mkfifo", "gate"), cwd=folder)).ok
        results: dict[int, ExecResult] = {}

        async def one(number: int) -> None:
            script = self.script(f": > here{number}; read line < gate; echo {number}")
            results[number] = await env.exec(script, cwd=folder, timeout=60)

        async def all_here() -> bool:
            return len(await env.list(folder)) == 1 + SEVERAL

        async def all_done() -> bool:
            return len(results) == SEVERAL

        async with anyio.create_task_group() as group:
            for number in range(SEVERAL):
                group.start_soon(one, number)
            await until(all_here, pause=0.1)
            # The gate stays open until the last of them has read, so that none finds it closed.
            keep_open = f"exec 3<>gate; i=0; while [ $i -lt {SEVERAL} ]; do echo >&3; i=$((i+1)); done"
            wait_end = "while [ ! -e end ]; do sleep 0.1; done"
            group.start_soon(partial(env.exec, self.script(f"{keep_open}; {wait_end}"), cwd=folder, timeout=60))
            await until(all_done)
            await env.write(f"{folder}/end", b"")
        assert all(result.stdout.text == f"{number}\n" for number, result in results.items())

    async def test_E11_a_slow_reader_of_one_call_stalls_no_other(self, env: RunEnv, folder: str) -> None:
        """A stream whose reader waits in the middle: other calls are answered meanwhile, then it goes on."""
        size = 24 * 1024 * 1024
        await env.write(f"{folder}/big", b"x" * size)
        async with env.open_read(f"{folder}/big") as chunks:
            received = len(await anext(chunks))
            with anyio.fail_after(20):
                for _ in range(20):
                    assert (await env.exec(self.argv("echo", "ok"))).ok
                assert len(await env.read(f"{folder}/big")) == size
            async for chunk in chunks:
                received += len(chunk)
        assert received == size

    async def test_E11_a_foreign_event_loop_is_told_so(self, env: RunEnv) -> None:
        """An env that is used from another loop says it in a sentence, and goes on in its own."""

        async def elsewhere() -> None:
            await env.exec(self.argv("true"))

        with pytest.raises(EnvError, match="event loop"):
            await anyio.to_thread.run_sync(anyio.run, elsewhere)
        assert (await env.exec(self.argv("echo", "ok"))).ok
