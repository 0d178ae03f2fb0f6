"""The command line, `runenv`: one module a command, and here their list.

Anything of the package may be used below; nothing imports this. A command opens what it needs and closes it before it
ends; errors leave it as one line on stderr (`terminal.py`). The Docker SDK is loaded by the commands that reach an
engine, when they do.
"""

import io
import sys
from importlib.metadata import version as installed_version
from typing import Annotated

import typer

from runenv.cli.artifacts import artifacts_app
from runenv.cli.cp import cp_command
from runenv.cli.demo import demo_command
from runenv.cli.doctor import doctor_command
from runenv.cli.exec import exec_command
from runenv.cli.help import PLAIN, Command
from runenv.cli.mcp import mcp_command

__all__ = ("app", "main")

app = typer.Typer(name="runenv", **PLAIN)
# What follows the first word of COMMAND is that command's own.
app.command("exec", cls=Command, context_settings={"allow_interspersed_args": False})(exec_command)
app.command("cp", cls=Command)(cp_command)
app.add_typer(artifacts_app, name="artifacts")
app.command("mcp", cls=Command)(mcp_command)
app.command("doctor", cls=Command)(doctor_command)
app.command("demo", cls=Command)(demo_command)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - as Typer calls it
    if wanted:
        sys.stdout.write(f"runenv {installed_version('runenv-sandbox')}\n")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Run commands and move files where an LLM agent's code runs: in a container, or in a folder of this host."""


def main() -> None:
    """Run the command line of this process; ends it with the command's exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a mark that the terminal cannot show must not end us
    app(prog_name="runenv")
