"""Transfers too large for the contract: a file over 4 GiB with holes, and 100,000 small files (rule F6)."""

from __future__ import annotations

import hashlib
import shutil
from typing import TYPE_CHECKING, Final

import pytest

from runenv.config import DockerConfig, LocalConfig
from runenv.envs import open_env
from runenv.testing.contract.measure import MIB, Memory
from runenv.testing.fixtures import need_engine
from tests.envs.engines import BASE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from runenv.env import RunEnv

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(600)]

FOLDERS: Final = 1000
FILES: Final = 100
"""In each folder."""
OVER_4_GIB: Final = (1 << 32) + 3
FLAT_BYTES: Final = 24 * MIB


@pytest.fixture(params=["local", pytest.param("docker", marks=pytest.mark.docker)])
async def env(request: pytest.FixtureRequest, anyio_backend: str) -> AsyncIterator[RunEnv]:  # noqa: ARG001 - runs this
    """An env of each kind."""
    if request.param == "docker":
        need_engine(BASE)
        async with open_env(DockerConfig(image=BASE, pull="never")) as env:
            yield env
    else:
        async with open_env(LocalConfig()) as env:
            yield env


def content_of(folder: int, file: int) -> bytes:
    """Return what a small file holds."""
    return b"%d/%d\n" % (folder, file)


def make_many(root: Path) -> None:
    """Make the small files, and as many empty folders as there are full ones."""
    for folder in range(FOLDERS):
        (root / f"full/{folder}").mkdir(parents=True)
        (root / f"empty/{folder}").mkdir(parents=True)
        for file in range(FILES):
            (root / f"full/{folder}/{file}").write_bytes(content_of(folder, file))


def check_many(root: Path) -> None:
    """Hold a copy to what `make_many` made."""
    assert len(list((root / "empty").iterdir())) == len(list((root / "full").iterdir())) == FOLDERS
    for folder in range(FOLDERS):
        assert {path.name: path.read_bytes() for path in (root / f"full/{folder}").iterdir()} == {
            str(file): content_of(folder, file) for file in range(FILES)
        }


def make_sparse(path: Path) -> None:
    """Make a file over 4 GiB whose few data lie at its begin, across the border, and at its end."""
    with path.open("wb") as file:
        file.write(b"begin")
        file.seek((1 << 31) - 3)
        file.write(b"middle")
        file.seek(OVER_4_GIB - 3)
        file.write(b"end")


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file of this host."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def blocks_of(path: Path) -> int:
    """Return the bytes that a file takes on the disk."""
    return path.stat().st_blocks * 512


async def test_F6_100_000_small_files_go_up_and_down(env: RunEnv, tmp_path: Path) -> None:
    """All of them and the empty folders, each with its content, in flat memory."""
    make_many(tmp_path / "t")
    with Memory() as memory:
        sent = await env.upload(tmp_path / "t", "t")
        received = await env.download("t", tmp_path / "back")
    assert (sent.files, sent.refused_count) == (received.files, received.refused_count) == (FOLDERS * FILES, 0)
    assert memory.growth_bytes < FLAT_BYTES
    check_many(tmp_path / "back")
    shutil.rmtree(tmp_path / "t")
    shutil.rmtree(tmp_path / "back")


@pytest.mark.parametrize("in_tree", [False, True], ids=["as a file", "in a tree"])
async def test_F6_a_file_over_4_GiB_goes_up_and_down(env: RunEnv, tmp_path: Path, in_tree: bool) -> None:  # noqa: FBT001
    """Size and SHA-256 equal on all sides; memory flat; in a tree, holes are holes again."""
    (tmp_path / "t").mkdir()
    make_sparse(tmp_path / "t/big")
    expected = sha256_of(tmp_path / "t/big")
    source, back = (tmp_path / "t", tmp_path / "back") if in_tree else (tmp_path / "t/big", tmp_path / "back/big")
    with Memory() as memory:
        sent = await env.upload(source, "t" if in_tree else "t/big")
        received = await env.download("t" if in_tree else "t/big", back)
    assert memory.growth_bytes < FLAT_BYTES
    assert (sent.files, sent.bytes) == (received.files, received.bytes) == (1, OVER_4_GIB)
    assert (await env.exec(["sha256sum", "t/big"])).stdout.text.split()[0] == expected
    assert sha256_of(tmp_path / "back/big") == expected
    if in_tree:
        assert blocks_of(tmp_path / "back/big") < 64 * MIB
    (tmp_path / "back/big").unlink()
