"""What every test gets: asyncio as the event loop, and a guard against code that blocks it."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import hypothesis
import pytest
from blockbuster import blockbuster_ctx

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blockbuster import BlockBuster

# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile("runenv", deadline=None)
hypothesis.settings.load_profile("runenv")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The envs need asyncio itself, not only anyio."""
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def signals_arrive() -> None:
    """A shell starts background jobs with Ctrl-C ignored, nohup ignores SIGHUP; our programs would inherit both."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def blocking_calls_fail() -> Iterator[BlockBuster]:
    """A blocking call of the package inside a running event loop is an error; those of the tests themselves are not."""
    with blockbuster_ctx("runenv", excluded_modules=["runenv.testing"]) as guard:
        # A look at the source of a bind mount, and the absolute path of a working folder: once, when a config is made.
        for name in ("os.stat", "os.readlink", "os.path.abspath", "os.getcwd"):
            guard.functions[name].can_block_in("runenv/config.py", {"_gives_host_away", "_host_folder"})
        # The catalog of artifacts in memory is an SQL database that waits for nothing.
        for name in [name for name in guard.functions if name.startswith("sqlite3.")]:
            guard.functions[name].can_block_in("runenv/artifacts/backends/threads.py", {"run"})
        yield guard
