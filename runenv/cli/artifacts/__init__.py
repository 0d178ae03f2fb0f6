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
from runenv.cli.help import PLAIN, Command

__all__ = ("artifacts_app",)

artifacts_app = typer.Typer(help="List, read, store and remove what agents keep in a store.", **PLAIN)
artifacts_app.command("ls", cls=Command)(ls_command)
artifacts_app.command("get", cls=Command)(get_command)
artifacts_app.command("put", cls=Command)(put_command)
artifacts_app.command("rm", cls=Command)(rm_command)
artifacts_app.command("versions", cls=Command)(versions_command)
artifacts_app.command("stat", cls=Command)(stat_command)
artifacts_app.command("prune", cls=Command)(prune_command)
