"""The pytest plugin: real envs as fixtures, and tests without an engine that are skipped, or fail in CI."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from runenv.testing.fixtures import need_engine
from tests.envs.engines import BASE, ROOT

if TYPE_CHECKING:
    from pathlib import Path

SUITE = """
    import pytest
    from runenv.env import RunEnv

    @pytest.fixture(scope="session")
    def anyio_backend():
        return "asyncio"

    @pytest.mark.anyio
    async def test_local(runenv_local):
        assert isinstance(runenv_local, RunEnv)
        assert (await runenv_local.exec("echo hi")).stdout.text == "hi\\n"

    def test_local_sync(runenv_local_sync):
        assert runenv_local_sync.exec("echo hi").stdout.text == "hi\\n"

    @pytest.mark.anyio
    async def test_docker(runenv_docker, runenv_image):
        assert runenv_docker.describe()["image"] == runenv_image
        assert (await runenv_docker.exec("echo hi")).stdout.text == "hi\\n"

    def test_docker_sync(runenv_docker_sync):
        assert runenv_docker_sync.exec("echo hi").stdout.text == "hi\\n"
"""


def run_suite(folder: Path, **variables: str) -> str:
    """Run a suite of another project that uses the plugin, and return what pytest says."""
    (folder / "conftest.py").write_text('pytest_plugins = ["runenv.testing.fixtures"]\n', encoding="utf-8")
    (folder / "test_suite.py").write_text(textwrap.dedent(SUITE), encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name not in {"CI", "PYTEST_ADDOPTS"}}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-ra", "-p", "no:cacheprovider", "-W", "error", "."],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(ROOT)} | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.docker
def test_each_fixture_gives_an_open_env(tmp_path: Path) -> None:
    """Async and sync, local and Docker, of the image that a variable names; nothing is warned of."""
    need_engine(BASE)
    said = run_suite(tmp_path, RUNENV_TEST_IMAGE=BASE)
    assert "4 passed" in said


def test_C078_without_an_engine_tests_are_skipped_with_the_reason(tmp_path: Path) -> None:
    """Those that need none go on, and the reason says where an engine was looked for."""
    said = run_suite(tmp_path, DOCKER_HOST=f"unix://{tmp_path}/none.sock")
    assert "2 passed, 2 skipped" in said
    assert "no Docker engine answers" in said
    assert f"{tmp_path}/none.sock" in said


def test_C078_without_an_engine_tests_fail_in_ci(tmp_path: Path) -> None:
    """Tests that are skipped where they count are no tests."""
    said = run_suite(tmp_path, DOCKER_HOST=f"unix://{tmp_path}/none.sock", CI="true")
    assert "2 passed, 2 errors" in said
    assert "no Docker engine answers" in said


@pytest.mark.docker
def test_a_missing_image_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a reason to skip."""
    need_engine()
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="runenv/no-such-image"):
        need_engine("runenv/no-such-image")


@pytest.mark.anyio
@pytest.mark.docker
async def test_the_engine_can_be_looked_for_inside_an_event_loop() -> None:
    """As by a fixture of an async test."""
    need_engine(BASE)
