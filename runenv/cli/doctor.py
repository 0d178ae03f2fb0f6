"""`runenv doctor`: what each kind of env needs, whether it is there, and what to do where it is not.

The last check of each kind is the real thing: an env is opened and a command runs in it. The others are there to say
why that fails, in the order in which they must hold. Nothing is changed, installed or pulled.
"""

import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import anyio
import anyio.to_thread
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from runenv.cli.images import images_here
from runenv.cli.options import Image, Kind
from runenv.cli.terminal import FAILED, count, error_line, one_line_errors, size
from runenv.config import DockerConfig, LocalConfig
from runenv.envs import open_env
from runenv.errors import EnvStartError, RunEnvError
from runenv.guest import MACHINES, guest_binary
from runenv.types import ExecResult

if TYPE_CHECKING:
    from runenv.envs.docker.engine import Engine

__all__ = ("Check", "check_docker", "check_local", "doctor_command")

REGISTRY_SECONDS: Final = 8
"""For a registry to say whether it has an image."""
COMMAND_SECONDS: Final = 30
"""For the one command that runs in each env."""
LOW_SPACE_BYTES: Final = 1024**3
"""Less free space than this for spilled outputs and working folders is worth a word."""
_MARKS: Final = {"ok": ("✓", "green"), "note": ("•", "yellow"), "limited": ("!", "yellow"), "missing": ("✗", "red")}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: what it is.
        state: "ok", "note" (envs work, yet there is something to know), "limited" (they work if their configuration
            does what the remedy says), or "missing" (they do not work).
        found: how it is.
        remedy: what to do about it.
    """

    name: str
    state: str
    found: str
    remedy: str = ""


def doctor_command(
    *,
    env: Annotated[
        Kind | None,
        typer.Option(metavar="local|docker", help="Look at this kind of env only.", show_default=False),
    ] = None,
    image: Image = None,
) -> None:
    """Say what is missing for each kind of env, and the remedy.

    Exit status: 0 when every kind that was looked at works, if need be with another image than the default; else 1.
    """
    with one_line_errors():
        kinds = list(Kind) if env is None else [env]
        works = anyio.run(_run, kinds, image)
    raise typer.Exit(0 if works else FAILED)


async def _run(kinds: Sequence[Kind], image: str | None) -> bool:
    console = Console()
    states: set[str] = set()
    for kind in kinds:
        checks = await (check_local() if kind is Kind.LOCAL else check_docker(image))
        _show(console, kind, checks)
        states.update(check.state for check in checks)
    return "missing" not in states


def _show(console: Console, kind: Kind, checks: Sequence[Check]) -> None:
    states = {check.state for check in checks}
    if "missing" in states:
        verdict = Text("does not work", style="red")
    elif "limited" in states:
        verdict = Text("works, but not with the defaults", style="yellow")
    else:
        verdict = Text("works", style="green")
    console.print(Text.assemble((f"{kind}: ", "bold"), verdict))
    if console.is_terminal:
        console.print(_table(checks))
    else:
        for line in _lines(checks):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print()


def _table(checks: Sequence[Check]) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=1)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for check in checks:
        mark, colour = _MARKS[check.state]
        text = Text(check.found)
        if check.remedy:
            text.append(f"\n→ {check.remedy}", style=colour)
        table.add_row(Text(mark, style=colour), check.name, text)
    return table


def _lines(checks: Sequence[Check]) -> Iterator[str]:
    """Yield the same for programs and logs, where nothing is folded and no line ends with blanks."""
    width = max(len(check.name) for check in checks)
    for check in checks:
        first, *more = check.found.splitlines()
        yield f"{_MARKS[check.state][0]} {check.name:{width}} {first}"
        yield from (f"{'':{width + 2}} {line}" for line in more)
        if check.remedy:
            yield f"{'':{width + 2}} → {check.remedy}"


# -- local


async def check_local() -> list[Check]:
    """Look at what a local env needs, in order, up to what is missing."""
    checks = await anyio.to_thread.run_sync(_check_host)
    if all(check.state != "missing" for check in checks):
        checks += await _try(LocalConfig())
    return checks


def _check_host() -> list[Check]:
    """Look at this host. Blocks, for a worker thread."""
    checks: list[Check] = []
    for look in (_check_system, _check_guest, _check_folder):
        checks.append(look())
        if checks[-1].state == "missing":
            break
    return checks


def _check_system() -> Check:
    machine = platform.machine()
    system = f"{platform.system()} {platform.release()}, {machine}"
    if sys.platform == "linux" and machine.lower() in MACHINES:
        return Check("system", "ok", system)
    return Check("system", "missing", system, "local envs run on Linux on x86_64 and aarch64: use a Docker env here")


def _check_guest() -> Check:
    try:
        path = guest_binary()
    except EnvStartError as error:
        return Check("guest", "missing", "not there", str(error))
    if not os.access(path, os.X_OK):
        return Check("guest", "missing", f"{path} is not executable", f"chmod a+x {path}")
    return Check("guest", "ok", f"{path.name}, {size(path.stat().st_size)}")


def _check_folder() -> Check:
    try:
        folder = tempfile.gettempdir()
        with tempfile.TemporaryDirectory(prefix="runenv-doctor-"):
            free = shutil.disk_usage(folder).free
    except OSError as error:
        remedy = "make a folder that can be written to, and name it in TMPDIR"
        return Check("temp folder", "missing", error_line(error), remedy)
    remedy = "" if free > LOW_SPACE_BYTES else "name another folder in TMPDIR"
    return Check("temp folder", "note" if remedy else "ok", f"{folder}, {size(free)} free", remedy)


async def _try(config: LocalConfig | DockerConfig) -> list[Check]:
    """Open an env and run a command in it."""
    began = time.perf_counter()
    try:
        async with open_env(config) as env:
            opened = time.perf_counter() - began
            described = env.describe()
            result = None if described.get("shell") is None else await env.exec("echo works", timeout=COMMAND_SECONDS)
    except (RunEnvError, OSError) as error:
        return [Check("test run", "missing", "an env does not open", error_line(error))]
    carrier = [_carrier(described)] if "carrier" in described else []
    return [*carrier, _judge(described, opened, result)]


def _judge(described: Mapping[str, object], opened: float, result: ExecResult | None) -> Check:
    shell = described.get("shell")
    if result is None:  # the guest answered; no command is known to be there
        return Check("test run", "note", f"opened in {_time(opened)}; the image has no shell")
    if result.stdout.data != b"works\n":
        found = f"a command gave {result.exit_code}: {result.stderr.text.strip() or 'nothing'}"
        return Check("test run", "missing", found, f"look at the shell, {shell}")
    found = f"opened in {_time(opened)}, ran a command in {_time(result.duration)}, shell {shell}"
    warnings = described.get("warnings")
    if isinstance(warnings, list) and warnings:
        return Check("test run", "note", found, "the engine warns: " + "; ".join(map(str, warnings)))
    return Check("test run", "ok", found)


def _carrier(described: Mapping[str, object]) -> Check:
    """Say how bytes go between this host and an env's guest; both ways work."""
    if reason := described.get("carrier_reason"):
        return Check("carrier", "note", f"attach, so all bytes pass through the engine: {reason}")
    return Check("carrier", "ok", f"{described['carrier']}, past the engine")


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


# -- docker


async def check_docker(image: str | None = None) -> list[Check]:
    """Look at what a Docker env needs, in order, up to what is missing.

    Args:
        image: which one should work; the configuration's default unless given.
    """
    from runenv.envs.docker.engine import Engine  # loads the SDK

    try:
        engine = await Engine.connect()
    except EnvStartError as error:
        return [Check("engine", "missing", *_split(str(error)))]
    try:
        info: dict[str, Any] = await engine.call(lambda client: client.info())
        version = f"Docker {engine.facts.version}, API {engine.client.api_version}, {engine.facts.machine}"
        checks = [
            Check("engine", "ok", f"{engine.endpoint}\n{version}, {info.get('Driver')}"),
            _check_limits(engine.facts.missing, str(info.get("CgroupVersion"))),
            await _check_guest_volume(engine),
        ]
        check, usable = await _check_image(engine, image)
        checks.append(check)
    finally:
        await engine.close()
    if usable is not None and all(check.state != "missing" for check in checks):
        *carrier, run = await _try(DockerConfig(image=usable, pull="never"))
        checks += [*carrier, Check(run.name, run.state, f"{usable}: {run.found}", run.remedy)]
    return checks


def _split(sentence: str) -> tuple[str, str]:
    """Part what is wrong from what to do, as sentences of ours have it: after the last semicolon."""
    found, _, remedy = sentence.rpartition("; ")
    return (found, remedy) if found else (sentence, "")


def _check_limits(missing: Sequence[str], cgroup: str) -> Check:
    if not missing:
        return Check("limits", "ok", f"memory, processes and CPUs can be bounded (cgroup v{cgroup})")
    names = ", ".join(missing)
    remedy = f"enable these cgroup controllers on the engine's machine, or set them to None ({names}) to go without"
    return Check("limits", "missing", f"the engine's kernel cannot bound {names}", remedy)


async def _check_guest_volume(engine: "Engine") -> Check:
    from runenv.envs.docker.sweep import GUEST_VOLUME_PREFIX

    try:
        binary = await anyio.to_thread.run_sync(guest_binary, engine.facts.machine)
    except EnvStartError as error:
        return Check("guest", "missing", "there is none for this engine", str(error))
    found = await engine.call(lambda client: client.volumes(filters={"name": GUEST_VOLUME_PREFIX})["Volumes"] or ())
    names = [volume["Name"] for volume in found if volume["Name"].startswith(GUEST_VOLUME_PREFIX)]
    there = f"{count(len(names), 'volume')} with it on the engine" if names else "brought to the engine at first use"
    return Check("guest", "ok", f"{binary.name}, {there}")


async def _check_image(engine: "Engine", asked: str | None) -> tuple[Check, str | None]:
    """Return what is to say about images, and one that can be tried."""
    wanted = asked or DockerConfig().image
    here = await images_here(engine, wanted)
    usable = here[0] if here and (asked is None or here[0] == wanted) else None
    if usable == wanted:
        return Check("image", "ok", f"{wanted} is there"), wanted
    refusal = await _registry_refusal(engine, wanted)
    if refusal is None:
        return Check("image", "ok", f"{wanted} is not there yet; its registry has it, and first use pulls it"), usable
    found = f"{wanted}{'' if asked else ', the default,'} is not there, and cannot be pulled: {refusal}"
    remedy = "load it, or name another one with --image or in the configuration"
    if usable is not None:
        return Check("image", "limited", found, f"{remedy}, such as {usable}, which is there"), usable
    if not asked:
        remedy += "; scripts/images of the source tree builds some"
    return Check("image", "missing", found, remedy), None


async def _registry_refusal(engine: "Engine", image: str) -> str | None:
    """Ask the image's registry, through the engine; None when it has it."""
    from runenv.envs.docker.engine import check, url
    from runenv.envs.docker.faults import EngineFault

    def ask(client: Any) -> None:  # noqa: ANN401 - the SDK's client, whose stubs lack half of it
        # Not the SDK's method: it waits a minute for an engine that waits for a registry.
        check(client, client.get(url(client, "/distribution/{0}/json", image), timeout=REGISTRY_SECONDS))

    try:
        await engine.call(ask)
    except EngineFault as fault:
        return str(fault)
    return None
