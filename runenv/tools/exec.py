"""The `exec` tool: a command, and what became of it in words that a model can act on.

A command that fails, is killed or takes too long is data, not an error of the tool (case C114): the model needs what it
wrote, frameworks would show a failed call otherwise or end the run, and a timeout is an answer that says what to do.
`is_error` is for what never ran because of how it was asked for. An env that failed is an exception, as everywhere.

The result is a text about the end, before one text for each stream, so that nothing that a command prints can hide how
it ended. The streams are shown as `Output.text` is: cut once, where the bytes were, with the place of the whole.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field, WithJsonSchema

from runenv.artifacts.handles import human_size
from runenv.errors import ConfigError, LimitError, ToolError
from runenv.tools.schema import Arguments, EnvPath
from runenv.tools.tool import KeptResult, make_tool
from runenv.types import DEFAULT, TextPart

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runenv.env import RunEnv
    from runenv.tools.tool import Context, Tool
    from runenv.types import ExecResult, Output

__all__ = ("make_exec", "result_parts")

_SIGNALS: Final[Mapping[int, str]] = {
    6: "SIGABRT",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    13: "SIGPIPE",
    15: "SIGTERM",
}
_SIGNAL_BASE: Final = 128
"""A shell ends with this and the signal's number when its last command was ended by a signal."""
_NOT_RUNNABLE: Final = 126
_NOT_FOUND: Final = 127
_NO_SHELL_SYNTAX: Final = re.compile(r"[\w ./:@%+,-]+")
"""Commands that are the same words to every shell, and without one."""
_SHOWN: Final = 0.01
"""Seconds below which no number is shown."""
_SHORT: Final = 10.0
"""Seconds below which hundredths are shown."""


_LIST: Final[dict[str, Any]] = {"type": "array", "items": {"type": "string"}}


class ShellArguments(Arguments):
    """Where the env has a shell."""

    command: Annotated[str | tuple[str, ...], WithJsonSchema({"type": "string"})]
    """Command line for the shell."""
    timeout: Annotated[float, Field(gt=0)] | None = None
    """Seconds until the command and all that it started is killed."""
    cwd: EnvPath | None = None
    """Folder to run in; the working folder unless given."""


class ListArguments(ShellArguments):
    """Where it has none."""

    command: Annotated[str | tuple[str, ...], WithJsonSchema(_LIST)]
    """Program and its arguments, each as it is: there is no shell, so no quoting, pipes, globs or variables."""


def make_exec(context: Context) -> Tool:
    """Make the tool that runs commands."""
    env = context.env
    model = ShellArguments if _has_shell(env) else ListArguments

    async def run(given: ShellArguments) -> KeptResult:
        has_shell = _has_shell(env)
        command = _checked(given.command, has_shell=has_shell)
        timeout = given.timeout
        if timeout is not None and context.max_timeout is not None:
            timeout = min(timeout, context.max_timeout)
        try:
            done = await env.exec(command, cwd=given.cwd, timeout=DEFAULT if timeout is None else timeout)
        except LimitError as error:
            how = _tool(context, " with", "file_write")
            raise ToolError(f"The command is too long ({error}). Write it to a file{how} and run that.") from error
        except ConfigError:
            raise
        except ValueError as error:
            raise ToolError(f"This cannot be run: {error}.") from error
        return result_parts(done, context, asked=timeout, has_shell=has_shell)

    return make_tool(context, "exec", _description(context), model, run)


def _has_shell(env: RunEnv) -> bool:
    """Say whether a command line can be run; an env that says nothing of it is taken to have a shell."""
    return env.describe().get("shell", True) is not None


def _description(context: Context) -> str:
    """Say what it does, with the limits of this env."""
    facts, has_shell = context.env.describe(), _has_shell(context.env)
    where = "" if facts.get("temporary") else f" ({context.env.workdir})"  # vendors cache what stays the same
    what = "Run a shell command" if has_shell else "Run a program (this sandbox has no shell: give a list of arguments)"
    default = facts.get("timeout", 0.0)
    limits = [f"{default:g} by default"] if isinstance(default, float | int) and default else []
    if default is None:
        limits.append("no limit by default")
    if context.max_timeout is not None:
        limits.append(f"at most {context.max_timeout:,.0f}")
    seconds = f" ({', '.join(limits)})" if limits else ""
    network = " There is no network." if facts.get("network") == "none" else ""
    background = (
        " For a server or a long job, start it in the background with its output in a file." if has_shell else ""
    )
    read = _tool(context, " with", "file_read", "grep")
    return (
        f"{what} in the sandbox, in the working folder{where} unless cwd is given, and return its exit code, stdout "
        f"and stderr. Each call starts anew: cd and variables do not last, files do. It gets no input. It is killed "
        f"after `timeout` seconds{seconds}.{network}{background} Long output is cut in the middle; the result names "
        f"the file with all of it, to look at{read or ' with another command'}."
    )


def _checked(command: str | tuple[str, ...], *, has_shell: bool) -> str | list[str]:
    """Return the command as the env takes it: a list that was written as a JSON text is one, too."""
    if isinstance(command, str) and command.lstrip().startswith('["'):
        try:
            read: object = json.loads(command)
        except ValueError:
            read = None
        if isinstance(read, list) and all(isinstance(word, str) for word in read):
            command = tuple(read)
    if not command or not (command[0] if isinstance(command, tuple) else command.strip()):
        raise ToolError("The command is empty. Give what is to be run.")
    if isinstance(command, tuple):
        return list(command)
    if has_shell:
        return command
    if _NO_SHELL_SYNTAX.fullmatch(command):
        return command.split()
    raise ToolError(
        "This sandbox has no shell, so a command line cannot be run. Give the command as a list of a program and its"
        ' arguments, such as ["ls", "-l"], and one program a call.'
    )


def result_parts(
    done: ExecResult, context: Context, *, asked: float | None = None, has_shell: bool = True
) -> KeptResult:
    """Return what a model is told of a command.

    Args:
        done: what it did.
        context: of the tools that may be named.
        asked: seconds that it had by the model's own wish, or None.
        has_shell: a shell could start something in the background.
    """
    lines = [_ending(done, context, asked, has_shell=has_shell)]
    if done.oom_killed:
        lines.append(_out_of_memory(context))
    if done.background:
        lines.append(
            "Something that it started is still running in the background, until it ends or the sandbox closes. What it"
            " writes from now on is not shown: let such programs write to a file."
        )
    streams = (("stdout", done.stdout), ("stderr", done.stderr))
    written = [(name, output) for name, output in streams if output.text]
    empty = [name for name, output in streams if not output.text]
    if not written:
        lines.append("It wrote nothing to stdout or stderr.")
    elif empty:
        lines.append(f"{empty[0]} is empty.")
    lines += [_about_cut(name, output, context) for name, output in written if output.truncated]
    parts = [TextPart(f"{name}:\n{output.text}") for name, output in written]
    kept = {
        part: output.spill_path
        for part, (_, output) in zip(parts, written, strict=True)
        if output.truncated and output.spill_path is not None and output.spilled_bytes == output.total_bytes
    }
    return KeptResult((TextPart("\n".join(lines)), *parts), env_paths=kept)


def _ending(done: ExecResult, context: Context, asked: float | None, *, has_shell: bool) -> str:
    """Say how it ended."""
    digits = 2 if done.duration < _SHORT else 0
    took = f"{done.duration:,.{digits}f} s" if done.duration >= _SHOWN else f"less than {_SHOWN} s"
    if done.timed_out:
        most = context.max_timeout
        more = f"a larger timeout (at most {most:,.0f})" if most is not None else "a larger timeout"
        if asked is not None and most is not None and asked >= most:
            more = f"less to do ({most:,.0f} s is the most)"
        or_else = ", or start it in the background with its output in a file and look at that" if has_shell else ""
        code = "" if done.exit_code is None else f" (its exit code then: {done.exit_code})"
        return (
            f"Timed out after {took}{code}: it and all that it had started was killed; below is what it wrote until"
            f" then. Give it {more}{or_else}."
        )
    if done.exit_code is None:
        hint = "" if done.oom_killed or done.signal is None else _signal_hint(done.signal)
        return f"Ended by the signal {done.signal or 'of another process'} after {took}, without an exit code.{hint}"
    return f"Exit code {done.exit_code}, after {took}.{'' if done.oom_killed else _code_hint(done.exit_code, context)}"


def _signal_hint(signal: str) -> str:
    says = {
        "SIGSEGV": " It crashed: it used memory that it did not have.",
        "SIGABRT": " It gave up by itself, mostly after a failed check: see stderr.",
        "SIGKILL": " Something killed it; the timeout did not.",
    }
    return says.get(signal, "")


def _code_hint(code: int, context: Context) -> str:
    """Say what is known of an exit code beyond its number."""
    if code == _NOT_FOUND:
        network = " There is no network to install it from." if context.env.describe().get("network") == "none" else ""
        return f" Mostly this means that a program was not found: see stderr.{network}"
    if code == _NOT_RUNNABLE:
        return " Mostly this means that it could not be started: see stderr."
    signal = _SIGNALS.get(code - _SIGNAL_BASE)
    return f" Mostly this means that a process in it was ended by {signal}." if signal is not None else ""


def _out_of_memory(context: Context) -> str:
    limit = context.env.describe().get("memory_bytes")
    has = f", which has {human_size(limit)}," if isinstance(limit, int) else ""
    return f"The sandbox{has} ran out of memory, and the kernel killed a process of it: do it in smaller pieces."


def _about_cut(name: str, output: Output, context: Context) -> str:
    """Say how much there is of a stream that is shown in part, and how to see more of it."""
    size = f"{name} is cut in the middle: it has {output.total_bytes:,} bytes"
    if output.spill_path is None or not output.spilled_bytes:
        return f"{size}, which were not kept. To see more, run it again with its output in a file."
    part = "" if output.spilled_bytes == output.total_bytes else f"the first {output.spilled_bytes:,} of them "
    where = (
        f"{part}in {output.spill_path}" if output.spill_path not in output.text or part else "in the file named there"
    )
    see = _tool(context, "See more of it with", "file_read", "grep")
    return f"{size}, {where}. {see}." if see else f"{size}, {where}."


def _tool(context: Context, before: str, *names: str) -> str:
    """Name those of some tools that the model has, with words before them; nothing when it has none."""
    known = [name for name in names if name in context.tools]
    return f"{before} {' or '.join(known)}" if known else ""
