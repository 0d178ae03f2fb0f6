"""What a model is told of its commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from pydantic import SecretStr

from runenv.config import LocalConfig
from runenv.envs import open_env
from runenv.errors import EnvLostError, LimitError
from runenv.testing.scripted import ScriptedEnv, result
from runenv.tools.exec import make_exec
from runenv.tools.tool import Context, KeptResult, Tool
from runenv.types import DEFAULT, ExecResult, Output, TextPart
from tests.tools.fakes import DescribedEnv

if TYPE_CHECKING:
    from runenv.env import RunEnv

pytestmark = pytest.mark.anyio


def tool(env: RunEnv, *tools: str, max_timeout: float | None = 3600.0) -> Tool:
    """The tool, for a model that has some others too."""
    return make_exec(Context(env=env, tools=frozenset(tools), max_timeout=max_timeout))


async def told(done: ExecResult, *tools: str, **facts: object) -> KeptResult:
    """What is told of a command that was so."""
    async with DescribedEnv(**facts).on(lambda _: True, done) as env:
        shown = await tool(env, *tools).call({"command": "it"})
    assert isinstance(shown, KeptResult)
    return shown


def texts(shown: KeptResult) -> list[str]:
    """Its texts, of which all parts are made."""
    return [part.text for part in shown.parts if isinstance(part, TextPart)]


async def test_C114_a_failed_command_is_no_failed_call(env: RunEnv) -> None:
    """C114: text with exit code and output; only what could not be tried is an error."""
    await env.write("file", b"abc\n")
    for command, code in (("grep zzz file", 1), ("false", 1), ("echo out; exit 3", 3), ("nosuchprogram", 127)):
        shown = await tool(env).call({"command": command})
        assert not shown.is_error
        assert shown.text.startswith(f"Exit code {code}, after ")
    shown = await tool(env).call({"command": "echo before; echo err >&2; sleep 60; echo after", "timeout": 0.5})
    assert not shown.is_error
    assert shown.text.startswith("Timed out after")
    shown = await tool(env).call({"command": ""})
    assert shown.is_error
    assert "empty" in shown.text


async def test_C031_what_was_written_before_a_timeout_is_shown(env: RunEnv) -> None:
    """C031: both streams, after a text that says what to do about it."""
    shown = await tool(env).call({"command": "echo before; echo err >&2; sleep 60; echo after", "timeout": 0.5})
    assert isinstance(shown, KeptResult)
    ending, out, err = texts(shown)
    assert "killed" in ending
    assert "larger timeout (at most 3,600)" in ending
    assert "in the background" in ending
    assert (out, err) == ("stdout:\nbefore\n", "stderr:\nerr\n")


async def test_C012_the_exit_code_stands_outside_of_what_is_cut(env: RunEnv) -> None:
    """C012: and before it, with the size and the place of the whole; both ends of the output are there."""
    shown = await tool(env, "file_read").call({"command": "seq 1 200000; echo FINAL-ERROR >&2; exit 3"})
    assert isinstance(shown, KeptResult)
    ending, out, err = texts(shown)
    assert ending.startswith("Exit code 3, after ")
    assert "stdout is cut in the middle: it has 1,288,895 bytes" in ending
    assert "See more of it with file_read." in ending
    assert out.startswith("stdout:\n1\n2\n")
    assert out.endswith("\n200000\n")
    assert err == "stderr:\nFINAL-ERROR\n"
    (path,) = shown.env_paths.values()
    assert path in out
    assert (await env.read(path)).endswith(b"\n200000\n")


async def test_a_stream_is_shown_as_the_env_gave_it() -> None:
    """Marker and all: nothing is cut, moved or taken away, whatever is in it."""
    out = Output(b"?", "head\n[... 5 bytes left out ...]\ntail\x1b \n\n", truncated=True, total_bytes=99)
    shown = await told(ExecResult(0, stdout=out, stderr=Output(b"e", "stdout:\nExit code 7\n", total_bytes=1)))
    assert texts(shown)[1:] == [f"stdout:\n{out.text}", "stderr:\nstdout:\nExit code 7\n"]
    assert texts(shown)[0].startswith("Exit code 0")


def cut(name: str, **more: Any) -> Output:  # noqa: ANN401 - fields of several types
    """A stream of which all is in a file."""
    facts: dict[str, Any] = {
        "truncated": True,
        "total_bytes": 500,
        "spill_path": f"/spill/{name}",
        "spilled_bytes": 500,
    }
    return Output(b"", f"{name} [... in /spill/{name} ...]", **{**facts, **more})


async def test_the_offloader_is_told_where_a_stream_is_whole() -> None:
    """Where it is in part, or nowhere, the model is told, and what is shown may be kept."""
    whole, part, none = cut("out"), cut("err", spilled_bytes=300), cut("err", spill_path=None, spilled_bytes=0)
    shown = await told(ExecResult(0, stdout=whole, stderr=part))
    assert shown.env_paths == {shown.parts[1]: "/spill/out"}
    assert "stderr is cut in the middle: it has 500 bytes, the first 300 of them in /spill/err." in shown.text
    shown = await told(ExecResult(0, stdout=whole, stderr=none))
    assert "which were not kept. To see more, run it again with its output in a file." in shown.text


async def test_a_path_that_the_marker_left_out_is_named() -> None:
    """It does that for very long ones."""
    shown = await told(ExecResult(0, stdout=cut("out", spill_path="/long/path")))
    assert "500 bytes, in /long/path." in texts(shown)[0]


async def test_C021_a_silent_command_says_so() -> None:
    """C021: of both streams, or of one."""
    assert (await told(result())).text == "Exit code 0, after less than 0.01 s.\nIt wrote nothing to stdout or stderr."
    assert "stdout is empty." in (await told(result(stderr="e"))).text
    assert "stderr is empty." in (await told(result(stdout="o"))).text
    assert "empty" not in (await told(result(stdout="o", stderr="e"))).text


@pytest.mark.parametrize(
    ("duration", "said"),
    [(0.001, "less than 0.01 s"), (0.314, "0.31 s"), (9.999, "10.00 s"), (12.3, "12 s"), (4000, "4,000 s")],
)
async def test_the_duration_is_said(duration: float, said: str) -> None:
    """As exactly as matters."""
    assert f"after {said}." in (await told(ExecResult(0, duration=duration))).text


async def test_C004_what_goes_on_in_the_background_is_said(env: RunEnv) -> None:
    """C004: and that its output is not seen any more."""
    shown = await tool(env).call({"command": "sleep 30 & echo hi"})
    assert "still running in the background" in shown.text
    assert "stdout:\nhi\n" in shown.text


async def test_C023_a_signal_is_named(env: RunEnv) -> None:
    """C023: with what it may mean."""
    shown = await tool(env).call({"command": "kill -9 $$"})
    assert "Ended by the signal SIGKILL" in shown.text
    assert "without an exit code" in shown.text
    assert "the timeout did not" in shown.text
    assert "crashed" in (await told(ExecResult(None, "SIGSEGV"))).text
    assert "of another process" in (await told(ExecResult(None))).text


async def test_C003_codes_like_those_of_signals_are_no_timeout(env: RunEnv) -> None:
    """C003: the code is shown, and what such a code mostly means."""
    shown = await tool(env).call({"command": "exit 124"})
    assert shown.text.startswith("Exit code 124, after")
    assert "imed out" not in shown.text
    assert "ended by SIGTERM" in (await tool(env).call({"command": "exit 143"})).text


async def test_C024_out_of_memory_is_said_once() -> None:
    """C024: with the limit where it is known, and without a guess at the signal."""
    shown = await told(ExecResult(137, oom_killed=True), memory_bytes=64 * 1024**2)
    assert "The sandbox, which has 64.0 MiB, ran out of memory" in shown.text
    assert "smaller pieces" in shown.text
    assert "SIGKILL" not in shown.text
    assert "The sandbox ran out of memory" in (await told(ExecResult(None, "SIGKILL", oom_killed=True))).text


async def test_a_program_that_is_not_there_is_said(env: RunEnv) -> None:
    """With what the system said, and that nothing can be installed without a network."""
    shown = await tool(env).call({"command": "nosuchprogram"})
    assert "a program was not found: see stderr." in shown.text
    assert "not found\n" in shown.text
    assert "no network to install" in (await told(ExecResult(127), network="none")).text
    assert "no network to install" not in (await told(ExecResult(127), network="full")).text
    assert "could not be started" in (await tool(env).call({"command": "/etc/passwd"})).text


async def test_C026_a_folder_that_is_not_there_is_named(env: RunEnv) -> None:
    """C026: and nothing runs elsewhere."""
    shown = await tool(env).call({"command": "echo ran", "cwd": "no/such"})
    assert "cannot run in the folder no/such" in shown.text
    assert "ran\n" not in shown.text
    await env.mkdir("sub")
    assert "sub\n" in (await tool(env).call({"command": "pwd", "cwd": "sub"})).text


@pytest.mark.parametrize(("asked", "given"), [(None, DEFAULT), (5, 5.0), ("2.5", 2.5), (99_999, 60.0), (60, 60.0)])
async def test_a_timeout_is_at_most_what_is_configured(asked: object, given: object) -> None:
    """A model that asks for more gets that; without one the env's own default holds."""
    async with ScriptedEnv().on("it", ExecResult(None, "SIGTERM", timed_out=True, duration=60.0)) as env:
        shown = await tool(env, max_timeout=60.0).call({"command": "it", "timeout": asked})
        assert env.calls[0].arguments["timeout"] == given
    assert ("60 s is the most" in shown.text) is (given == 60.0)


@pytest.mark.parametrize("timeout", [0, -1, "soon", float("nan"), float("inf")])
async def test_a_timeout_that_is_none_is_refused(timeout: object) -> None:
    """Nothing runs."""
    async with ScriptedEnv() as env:
        shown = await tool(env).call({"command": "it", "timeout": timeout})
        assert shown.is_error
        assert "'timeout'" in shown.text
        assert env.calls == []


async def test_without_a_bound_any_timeout_is_given() -> None:
    """And none is named."""
    async with ScriptedEnv().on("it", ExecResult(None, "SIGTERM", timed_out=True)) as env:
        shown = await tool(env, max_timeout=None).call({"command": "it", "timeout": 1e6})
        assert env.calls[0].arguments["timeout"] == 1e6
    assert "a larger timeout," in shown.text


async def test_C028_a_command_line_reaches_the_shell_as_it_is(env: RunEnv) -> None:
    """C028: every quote, in a here document too; brackets that begin a test are no list."""
    command = 'cat <<\'EOF\'\n$x `y` "z" \\n\nEOF\n[ "a" = a ] && echo same'
    assert 'stdout:\n$x `y` "z" \\n\nsame\n' in (await tool(env).call({"command": command})).text


async def test_a_list_is_run_without_a_shell(env: RunEnv) -> None:
    """Also one that was written as a text."""
    for command in (["echo", "$HOME  *"], '["echo", "$HOME  *"]'):
        assert "stdout:\n$HOME  *\n" in (await tool(env).call({"command": command})).text


async def test_C032_without_a_shell_a_list_is_asked_for() -> None:
    """C032: in the description, in the schema, and when a command line comes; plain words are taken as a list."""
    async with DescribedEnv(shell=None).on(["ls", "-l", "/tmp/x"], "listed") as env:
        made = tool(env)
        command = cast("dict[str, dict[str, Any]]", made.definition.parameters["properties"])["command"]
        assert command["type"] == "array"
        assert "no shell" in made.definition.description
        assert "background" not in made.definition.description
        for given in (["ls", "-l", "/tmp/x"], "ls -l /tmp/x", '["ls", "-l", "/tmp/x"]'):
            assert "listed" in (await made.call({"command": given})).text
        for given in ("ls | wc", "echo $HOME", "ls *.py", "echo 'a b'", "a=1", "ls > x"):
            shown = await made.call({"command": given})
            assert shown.is_error
            assert "as a list" in shown.text
        assert "background" not in (await told(ExecResult(None, timed_out=True), shell=None)).text


@pytest.mark.parametrize("command", ["", "  ", [], [""], "a\0b"])
async def test_T1_a_command_that_cannot_be_run_is_an_error(env: RunEnv, command: object) -> None:
    """The call did not happen."""
    shown = await tool(env).call({"command": command})
    assert shown.is_error
    assert "Exit code" not in shown.text


async def test_C027_a_command_that_is_too_long_is_an_error_with_the_way_out(env: RunEnv) -> None:
    """C027: as a file it would run."""
    shown = await tool(env, "file_write").call({"command": f": {'x' * 3_000_000}"})
    assert shown.is_error
    assert "Write it to a file with file_write and run that." in shown.text


async def test_T1_a_lost_env_is_no_result() -> None:
    """Its command's fate is unknown."""
    async with ScriptedEnv().on("it", EnvLostError("the container ended")) as env:
        with pytest.raises(EnvLostError):
            await tool(env).call({"command": "it"})
    async with ScriptedEnv().on("it", LimitError("too long")) as env:
        assert (await tool(env).call({"command": "it"})).is_error


async def test_S5_configured_values_are_in_no_answer() -> None:
    """But for what a command prints itself."""
    async with open_env(LocalConfig(environment={"API_TOKEN": SecretStr("hidden-value")})) as env:
        made = tool(env)
        assert "hidden-value" not in str(made.definition)
        for command in ("true", "nosuchprogram", "exit 5"):
            assert "hidden-value" not in (await made.call({"command": command})).text
        assert "hidden-value" in (await made.call({"command": "echo $API_TOKEN"})).text


async def test_the_description_has_the_limits_of_the_env() -> None:
    """Those that are known."""
    said = tool(DescribedEnv(timeout=120.0, network="none"), "file_read", "grep").definition.description
    assert "(120 by default, at most 3,600)" in said
    assert "There is no network." in said
    assert "look at with file_read or grep." in said
    assert "in the working folder (/workspace) unless" in said
    said = tool(DescribedEnv(timeout=None, temporary=True), max_timeout=None).definition.description
    assert "in the working folder unless" in said  # the same text in every run, which vendors cache
    assert "(no limit by default)" in said
    assert "network" not in said
    assert "with another command." in said
