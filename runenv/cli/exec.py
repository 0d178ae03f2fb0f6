"""`runenv exec`: one command in an env of its own.

It behaves as the command itself would: its output, its exit status, its stdin. Everything that is said about it is on
stderr. The env is opened before it and ended after it; what is to stay is downloaded, or is in a volume.
"""

import os
import signal
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import anyio
import anyio.to_thread
import typer
from rich.console import Console

from runenv.cli.options import (
    Agent,
    AgentsFile,
    Image,
    KindOption,
    Mounts,
    User,
    Variables,
    env_config,
    mount_of,
    variables_of,
)
from runenv.cli.terminal import (
    bytes_in,
    complain,
    complain_refused,
    error_line,
    one_line_errors,
    size,
    transfer_bar,
)
from runenv.config import DockerConfig, LocalConfig
from runenv.env import RunEnv
from runenv.envs import open_env
from runenv.errors import ConfigError
from runenv.types import Command, ExecResult, Output

__all__ = ("exec_command",)

TIMED_OUT: Final = 124
"""Exit status at the deadline, as the `timeout` command has it."""
NOT_RUN: Final = 125
"""Exit status when we failed, not the command, as `docker run` and `timeout` have it."""
SIGNALLED: Final = 128
"""Added to the number of the signal that ended the command, as shells do."""


@dataclass(frozen=True, slots=True)
class _Copy:
    """One --upload or --download."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class _Job:
    """What is to be done in the env."""

    command: Command
    cwd: str | None
    stdin: bytes | None
    timeout: float | None
    uploads: Sequence[_Copy]
    downloads: Sequence[_Copy]


def exec_command(  # noqa: PLR0913 - each is an option
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="COMMAND", help="One word is run by the shell, several as they are.", show_default=False
        ),
    ],
    *,
    no_shell: Annotated[bool, typer.Option("--no-shell", help="Run one word as it is, too: it is a program.")] = False,
    env: KindOption = None,
    image: Image = None,
    config: AgentsFile = None,
    agent: Agent = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Until all of it is killed; 120 unless given, 0: never.")
    ] = None,
    cwd: Annotated[str | None, typer.Option(metavar="PATH", help="Folder in the env to run in.")] = None,
    variables: Variables = None,
    network: Annotated[str | None, typer.Option(metavar="none|full", help="Network of the container.")] = None,
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help="Memory of the container, such as 2g.")] = None,
    user: User = None,
    workdir: Annotated[
        str | None, typer.Option(metavar="PATH", help="Working folder: in the container, or for local on this host.")
    ] = None,
    mounts: Mounts = None,
    uploads: Annotated[
        list[str] | None,
        typer.Option("--upload", metavar="HOST:ENV", help="File or folder that is copied into the env before."),
    ] = None,
    downloads: Annotated[
        list[str] | None,
        typer.Option("--download", metavar="ENV:HOST", help="File or folder that is copied from the env afterwards."),
    ] = None,
    max_output: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Most that is kept of stdout and stderr together; 256m unless given."),
    ] = None,
    no_stdin: Annotated[bool, typer.Option("-n", "--no-stdin", help="Leave our stdin alone.")] = False,
) -> None:
    """Run a command in an env of its own, and end with its exit status.

    The env lives as long as the command; only mounted volumes and downloads stay. Stdin is passed on unless it is a
    terminal. Output appears when the command has ended, all of it up to --max-output; of more the end is missing.

    Exit status: the command's own; 124 after the timeout, 128 + N for signal N; 125 if the env failed, and where the
    command did not fail, if its output is not complete or a download failed.

    Examples:
        runenv exec --image python:3.12-slim -- python3 -c 'print(6 * 7)'
        runenv exec --env local --workdir . -- 'ls | wc -l'
        runenv exec --image my/static --no-shell -- /bin/server
    """
    with one_line_errors(NOT_RUN):
        settings = {
            "image": image,
            "network": network,
            "memory_bytes": memory,
            "user": user,
            "workdir": workdir,
            "mounts": tuple(map(mount_of, mounts or ())),
            "environment": variables_of(variables),
            "spill_quota_bytes": max_output,
        }
        chosen = env_config(env, config, agent, settings=settings)
        limit = chosen.timeout if timeout is None else _seconds(timeout)
        before = [_copy("--upload", text, *text.rpartition(":")) for text in uploads or ()]
        after = [_copy("--download", text, *text.partition(":")) for text in downloads or ()]
        stdin = None if no_stdin else _stdin()
        is_shell = len(command) == 1 and not no_shell
        job = _Job(command[0] if is_shell else command, cwd, stdin, limit, before, after)
        status = anyio.run(_run, chosen, job)
    raise typer.Exit(status)


def _seconds(timeout: float) -> float | None:
    if not 0 <= timeout < float("inf"):
        raise ConfigError(f"--timeout {timeout:g}: seconds are a finite number, 0 for no limit")
    return timeout or None


def _copy(option: str, text: str, source: str, separator: str, target: str) -> _Copy:
    if not separator or not source or not target:
        sides = "HOST:ENV" if option == "--upload" else "ENV:HOST"
        raise ConfigError(f"{option} {text!r}: write {sides}, such as ./data:data")
    return _Copy(source, target)


def _stdin() -> bytes | None:
    """Read our stdin to its end, if there is something that ends: a pipe, a file, a socket."""
    try:
        mode = stat.S_IFMT(os.fstat(sys.stdin.fileno()).st_mode)
    except (OSError, ValueError):  # there is none
        return None
    return sys.stdin.buffer.read() if mode in {stat.S_IFIFO, stat.S_IFREG, stat.S_IFSOCK} else None


async def _run(config: LocalConfig | DockerConfig, job: _Job) -> int:
    console = Console(stderr=True)
    async with open_env(config) as env:
        if isinstance(job.command, str) and env.describe()["shell"] is None:
            raise ConfigError("there is no shell (/bin/bash, /bin/sh) in the image: --no-shell runs one word as it is")
        for upload in job.uploads:
            source = Path(upload.source)
            total = await anyio.to_thread.run_sync(bytes_in, source)
            with transfer_bar(console, upload.source, total) as progress:
                complain_refused(await env.upload(source, upload.target, progress=progress))
        result = await env.exec(job.command, cwd=job.cwd, stdin=job.stdin, timeout=job.timeout)
        lost = {"stdout": await _show(env, result.stdout, 1), "stderr": await _show(env, result.stderr, 2)}
        status = _explain(job, result)
        if any(lost.values()):
            _complain_lost(lost, result, config.spill_quota_bytes)
            status = status or NOT_RUN
        for download in job.downloads:
            try:
                with transfer_bar(console, download.source) as progress:
                    complain_refused(await env.download(download.source, download.target, progress=progress))
            except OSError as error:  # the command's own failure is the news then
                complain(f"--download: {error_line(error)}")
                status = status or NOT_RUN
    return status


async def _show(env: RunEnv, output: Output, descriptor: int) -> int:
    """Write one stream to ours: what did not come with the result is in the env's spill file.

    Returns:
        How many bytes of its end are lost.
    """
    if output.omitted_bytes and output.spill_path is not None:
        async with env.open_read(output.spill_path) as chunks:
            async for chunk in chunks:
                await _write(descriptor, chunk)
        return output.total_bytes - output.spilled_bytes
    await _write(descriptor, output.data)
    return output.omitted_bytes


def _complain_lost(lost: Mapping[str, int], result: ExecResult, quota: int) -> None:
    """Say what of the output is missing, and how to get it."""
    totals = {"stdout": result.stdout.total_bytes, "stderr": result.stderr.total_bytes}
    parts = [f"the last {size(lost[name])} of {size(total)} on {name}" for name, total in totals.items() if lost[name]]
    if sum(totals.values()) > quota:
        remedy = (
            f"keep more than {size(quota)} with --max-output, or have the command write to a file, and take that with"
            " --download"
        )
    else:  # a full disk; a quarter of the memory where all is in that
        remedy = "the env had no room for more: have the command write to a mounted volume (--mount)"
    complain(f"the output is not complete, {' and '.join(parts)} are lost: {remedy}")


async def _write(descriptor: int, data: bytes) -> None:
    # In a thread, and to be left there: a reader that waits (a pager) must not keep Ctrl-C from ending the env.
    await anyio.to_thread.run_sync(_write_all, descriptor, data, abandon_on_cancel=True)


def _write_all(descriptor: int, data: bytes) -> None:
    stream = sys.stdout if descriptor == 1 else sys.stderr
    stream.buffer.write(data)
    stream.flush()


def _explain(job: _Job, result: ExecResult) -> int:
    """Say what exit status alone would not, and return it."""
    if result.oom_killed:
        complain("the kernel killed it, or a part of it, for want of memory: give it more with --memory")
    if result.timed_out:
        complain(
            f"the command did not end within {job.timeout:g} s: it was killed, with all that it had started (--timeout)"
        )
        return TIMED_OUT
    if result.background:
        complain("the command left something running, which ends with its env now")
    if result.exit_code is not None:
        return result.exit_code
    name = result.signal or "a signal"
    complain(f"the command was ended by {name}")
    return SIGNALLED + (signal.Signals[name].value if name in signal.Signals.__members__ else 0)
