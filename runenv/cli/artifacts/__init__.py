"""`runenv artifacts`: what agents have stored, from a shell. The list of its commands.

`looking.py` and `moving.py` hold them, `listing.py` draws. The store is loaded when a command needs it: it takes as
long as the rest of the command line.
"""

import typer

from runenv.cli.artifacts.looking import (
    ls_command,
    prune_command,
    rm_command,
    stat_command,
    versions_command,
)
from runenv.cli.artifacts.moving import get_command, put_command

__all__ = ("artifacts_app",)

artifacts_app = typer.Typer(
    help="Lists, reads, stores and removes artifacts: what agents' tools have put behind handles.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
artifacts_app.command("ls")(ls_command)
artifacts_app.command("get")(get_command)
artifacts_app.command("put")(put_command)
artifacts_app.command("rm")(rm_command)
artifacts_app.command("versions")(versions_command)
artifacts_app.command("stat")(stat_command)
artifacts_app.command("prune")(prune_command)
