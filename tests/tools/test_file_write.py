"""Whole files: what is said of them, and when a file is not replaced."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from runenv.config import LocalConfig
from runenv.envs import open_env
from runenv.tools.paths import PathRules
from runenv.tools.seen import WHOLE_BYTES
from tests.tools.files import Files, scripted

pytestmark = pytest.mark.anyio

HANDLE = "runenv+file://6f9619ff-8b86-4d01-b42d-00cf4fc964ff"


async def test_a_new_file_is_written_with_its_folders() -> None:
    """T1, F3: and its bytes and lines are told."""
    async with scripted() as files:
        answer = await files.write("a/b/c.txt", "één\ntwo")
        assert not answer.is_error
        assert "'a/b/c.txt': 9 bytes, 2 lines" in answer.text
        assert await files.env.read("a/b/c.txt") == "één\ntwo".encode()


async def test_a_file_that_was_not_read_is_not_replaced() -> None:
    """T1: until it is read; what the model wrote it knows."""
    async with scripted({"x": "precious\n"}) as files:
        refused = await files.write("x", "new\n")
        assert refused.is_error
        assert "was not read" in refused.text
        assert "file_read" in refused.text
        assert await files.env.read("x") == b"precious\n"
        await files.read("x")
        assert not (await files.write("x", "new\n")).is_error
        assert not (await files.write("x", "newer\n")).is_error
        assert await files.env.read("x") == b"newer\n"


async def test_a_file_changed_since_it_was_read_is_not_replaced() -> None:
    """T5: whoever changed it."""
    async with scripted({"x": "one\n"}) as files:
        await files.read("x")
        await files.env.write("x", b"two\n")
        refused = await files.write("x", "three\n")
        assert refused.is_error
        assert "has changed" in refused.text
        assert await files.env.read("x") == b"two\n"


async def test_an_empty_file_is_replaced() -> None:
    """T1: there is nothing to be lost in it."""
    async with scripted({"x": ""}) as files:
        assert not (await files.write("x", "new\n")).is_error


async def test_a_large_file_is_replaced_once_it_was_looked_at() -> None:
    """T1: it is too large to be known by its hash, so that its size and time count."""
    async with scripted({"x": "y" * (WHOLE_BYTES + 1)}) as files:
        assert (await files.write("x", "new\n")).is_error
        await files.read("x", limit=1)
        assert not (await files.write("x", "new\n")).is_error


async def test_another_encoding_and_other_line_ends_are_said() -> None:
    """T1: a file that is written anew has neither; the model should know."""
    async with scripted({"x": "a\r\nb\r\n".encode("utf-16")}) as files:
        await files.read("x")
        answer = await files.write("x", "a\n")
    assert "UTF-16" in answer.text
    assert "CRLF" in answer.text


@pytest.mark.parametrize("content", [HANDLE, f" `{HANDLE.upper()}`\n"])
async def test_C079_a_handle_is_not_written_as_content(content: str) -> None:
    """C079: bytes behind a handle get into a file by another tool."""
    async with scripted(tools=("file_write", "artifact_load")) as files:
        answer = await files.write("x", content)
        assert answer.is_error
        assert "artifact_load" in answer.text
        assert not await files.env.list()


async def test_half_a_character_is_refused() -> None:
    """T1: it is no text."""
    async with scripted() as files:
        assert (await files.write("x", "a\ud800")).is_error


async def test_what_is_no_file_is_refused() -> None:
    """C037: a folder, a FIFO, a file as a folder, a device."""
    async with open_env(LocalConfig()) as env:
        files = Files(env)
        await env.exec("mkfifo pipe; mkdir folder; echo > file")
        for wrong in ("pipe", "folder", "file/x", "/dev/null"):
            with anyio.fail_after(5):
                assert (await files.write(wrong, "x")).is_error
        assert Path(env.workdir, "pipe").is_fifo()


async def test_rules_hold_for_every_tool() -> None:
    """T1: a denied path is neither read nor written, and not listed."""
    async with scripted({".env": "KEY=1\n", "x": "a\n"}, paths=PathRules(deny=[".env"])) as files:
        for answer in (
            await files.read(".env"),
            await files.write(".env", "x"),
            await files.edit(".env", "KEY=1", "x"),
        ):
            assert answer.is_error
            assert "not allowed" in answer.text
        listed = await files.list()
        assert "x" in listed.text
        assert ".env" not in listed.text
