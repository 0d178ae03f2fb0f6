"""The command line: as a process of its own, as its users run it, and in this one, which takes less time."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from runenv.cli import app
from tests.envs.engines import ROOT, why_no_engine

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ("PROGRAM", "Done", "environment", "needs_engine", "run", "runenv")

PROGRAM: Final = (sys.executable, "-c", "from runenv.cli import main; main()")
SECONDS: Final = 60
"""For one command."""


def environment(**variables: str) -> dict[str, str]:
    """Return the environment of the command: ours, plain output, and `variables`."""
    plain = {"PYTHONPATH": str(ROOT), "TERM": "dumb", "COLUMNS": "80"}
    return {**os.environ, **plain, **variables}


def runenv(
    *arguments: str | Path, stdin: bytes = b"", cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[bytes]:
    """Run `runenv` with these arguments to its end."""
    return subprocess.run(
        [*PROGRAM, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        cwd=cwd,
        env=environment(**variables),
        timeout=SECONDS,
        check=False,
    )


class Done(NamedTuple):
    """What a command line in this process did."""

    returncode: int
    stdout: bytes
    stderr: bytes


def run(capture: pytest.CaptureFixture[bytes], *arguments: str | Path) -> Done:
    """Run the command line in this process, without stdin."""
    capture.readouterr()
    with pytest.raises(SystemExit) as ended:
        app(list(map(str, arguments)), prog_name="runenv")
    code = ended.value.code
    assert isinstance(code, int)
    out, err = capture.readouterr()
    return Done(code, bytes(out), bytes(err))


def needs_engine() -> None:
    """Skip the test where there is no Docker engine with the test images; that is a failure only in CI."""
    if reason := why_no_engine():
        if os.environ.get("CI"):
            pytest.fail(f"CI needs Docker: {reason}")
        pytest.skip(reason)
