"""What is installed from a built package works without the source tree."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).parent.parent
MACHINES: Final = {"x86_64": 62, "aarch64": 183}
"""Numbers of the processors in the header of a Linux program."""
PROGRAM: Final = """
import pathlib, sys, runenv
assert pathlib.Path(runenv.__file__).is_relative_to(sys.prefix), runenv.__file__
with runenv.open_env_sync(runenv.LocalConfig()) as env:
    result = env.exec("echo out; echo err >&2; exit 3")
    print(result.exit_code, repr(result.stdout.text), repr(result.stderr.text))
"""

pytestmark = pytest.mark.timeout(900)  # it fetches all dependencies


def run(command: Sequence[str | Path], folder: Path) -> str:
    """Run a program far from the source tree and return what it said; a failure shows all of it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source package."""
    folder = tmp_path_factory.mktemp("sdist")
    run([sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder], ROOT)
    (package,) = folder.iterdir()
    return package


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that is made from it, with the compiler of this environment."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    run([*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, sdist], folder)
    (package,) = folder.iterdir()
    return package


def test_the_source_package_has_sources_and_no_programs(sdist: Path) -> None:
    """Whoever builds from it compiles the guest."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "hatch_build.py", "LICENSE", "README.md", "runenv/guest/src/main.c"} <= names
    assert not [name for name in names if name.startswith(("runenv/guest/bin", ".venv", ".")) if name != ".gitignore"]


def test_one_wheel_serves_every_machine(wheel: Path) -> None:
    """Pure Python with the guest for both processors, executable; no C in it."""
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        for machine, number in MACHINES.items():
            info = archive.getinfo(f"runenv/guest/bin/guest-{machine}")
            program = archive.read(info)
            assert program[:4] == b"\x7fELF"
            assert int.from_bytes(program[18:20], "little") == number
            assert info.external_attr >> 16 & 0o111
    assert "runenv/py.typed" in names
    assert not [name for name in names if name.endswith((".c", ".h", "stamp", "lock"))]
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"runenv", "runenv_sandbox"}


def test_an_installed_wheel_runs_a_command(wheel: Path, tmp_path: Path) -> None:
    """In a fresh environment, with the dependencies that it names and no others."""
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env/bin/python"
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
    run([*pip, "install", "--quiet", wheel], tmp_path)
    run([*pip, "check"], tmp_path)
    assert run([python, "-c", PROGRAM], tmp_path) == "3 'out\\n' 'err\\n'\n"
    assert "exec" in run([tmp_path / "env/bin/runenv", "--help"], tmp_path)
