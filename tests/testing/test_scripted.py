"""The fake env: prepared answers in order, files in memory, a record of everything, and clear complaints."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import anyio
import pytest

from runenv.env import RunEnv
from runenv.errors import EnvClosedError, LimitError
from runenv.testing.scripted import Call, ScriptedEnv, UnexpectedCommandError, result

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from runenv.types import ExecResult

pytestmark = pytest.mark.anyio


async def test_it_is_an_env() -> None:
    """Code that asks for the protocol takes it."""
    env = ScriptedEnv()
    assert isinstance(env, RunEnv)
    assert (env.id, env.kind, env.workdir) == ("scripted", "scripted", "/workspace")
    assert env.describe() == {"kind": "scripted", "id": "scripted", "workdir": "/workspace"}


async def test_commands_get_their_answers_and_are_recorded() -> None:
    """Exactly, by pattern, by function, as a list; text is the stdout of a success."""
    env = (
        ScriptedEnv()
        .on("echo hi", "hi\n")
        .on(re.compile("^curl "), result(stderr="no network", exit_code=7))
        .on(["ls", "-l"], "total 0")
        .on(lambda call: call.arguments["stdin"] == b"x", "stdin")
    )
    async with env:
        first = await env.exec("echo hi")
        assert (first.ok, first.stdout.text, first.stdout.total_bytes) == (True, "hi\n", 3)
        assert (await env.exec("curl http://x")).exit_code == 7
        assert (await env.exec(("ls", "-l"))).stdout.data == b"total 0"
        assert (await env.exec("cat", stdin=b"x")).stdout.text == "stdin"
    assert env.commands == ["echo hi", "curl http://x", ("ls", "-l"), "cat"]
    assert env.calls[3].arguments["stdin"] == b"x"


async def test_answers_are_given_in_order_and_the_last_one_stays() -> None:
    """A command that is repeated sees the world change."""
    env = ScriptedEnv().on("poll", "wait").on("poll", result("done"))
    async with env:
        assert [(await env.exec("poll")).stdout.text for _ in range(3)] == ["wait", "done", "done"]


async def test_an_answer_may_be_an_error_or_made_from_the_call() -> None:
    """Also by a function that waits."""

    async def slowly(call: Call) -> ExecResult:
        await anyio.lowlevel.checkpoint()
        return result(f"{call.command} slowly")

    env = ScriptedEnv().on("a", slowly).on("b", lambda call: result(str(call.command))).on("c", LimitError("too long"))
    async with env:
        assert (await env.exec("a")).stdout.text == "a slowly"
        assert (await env.exec("b")).stdout.text == "b"
        with pytest.raises(LimitError, match="too long"):
            await env.exec("c")


@pytest.mark.parametrize(("env", "known"), [(ScriptedEnv(), "nothing"), (ScriptedEnv().on("ls", ""), "'ls'")])
async def test_an_unexpected_command_says_what_was_expected(env: ScriptedEnv, known: str) -> None:
    """It fails the test that did not prepare for it."""
    async with env:
        with pytest.raises(UnexpectedCommandError, match=f"no answer is prepared for 'rm -rf', only for {known}"):
            await env.exec("rm -rf")


async def test_files_are_read_and_written_in_memory() -> None:
    """Whole, in parts, as streams; parents are made, modes kept."""
    env = ScriptedEnv(files={"a.txt": "hello", "/etc/b": b"\xff"})

    async def pieces() -> AsyncIterator[bytes]:
        yield b"1"
        yield b"2"

    async with env:
        assert await env.read("a.txt") == b"hello"
        assert await env.read("a.txt", offset=1, length=3) == b"ell"
        async with env.open_read("/etc/b", offset=0) as chunks:
            assert [chunk async for chunk in chunks] == [b"\xff"]
        await env.write("x/y/z", pieces(), mode=0o600)
        await env.write("x/y/z", b"3", append=True)
        await env.write("a.txt", b"new")
        assert (await env.stat("x/y/z")).mode & 0o777 == 0o600
        assert (await env.stat("x")).is_dir
        assert [(info.path, info.is_dir, info.size) for info in await env.list()] == [
            ("a.txt", False, 3),
            ("x", True, 0),
        ]
        await env.rename("x", "moved/x")
        await env.mkdir("empty")
        await env.remove("a.txt")
        await env.remove("a.txt", missing_ok=True)
        await env.remove("moved/x/y", recursive=True)
        assert [info.path for info in await env.list("/workspace/../workspace")] == ["empty", "moved"]
    assert env.files == {"/etc/b": b"\xff"}
    assert [call.verb for call in env.calls][:4] == ["read", "read", "open_read", "write"]


WRONG: dict[str, tuple[Callable[[ScriptedEnv], object], type[OSError], str]] = {
    "read nothing": (lambda env: env.read("none"), FileNotFoundError, "none"),
    "read a folder": (lambda env: env.read("d"), IsADirectoryError, "d"),
    "read through a file": (lambda env: env.read("f/x"), NotADirectoryError, "f/x"),
    "write a folder": (lambda env: env.write("d", b""), IsADirectoryError, "d"),
    "write through a file": (lambda env: env.write("f/x", b""), NotADirectoryError, "f/x"),
    "list a file": (lambda env: env.list("f"), NotADirectoryError, "f"),
    "list nothing": (lambda env: env.list("none"), FileNotFoundError, "none"),
    "stat nothing": (lambda env: env.stat("none/x"), FileNotFoundError, "none/x"),
    "make what exists": (lambda env: env.mkdir("d", exist_ok=False), FileExistsError, "d"),
    "make over a file": (lambda env: env.mkdir("f"), FileExistsError, "f"),
    "make without parents": (lambda env: env.mkdir("x/y", parents=False), FileNotFoundError, "x/y"),
    "make in a file": (lambda env: env.mkdir("f/x", parents=False), NotADirectoryError, "f/x"),
    "remove nothing": (lambda env: env.remove("none"), FileNotFoundError, "none"),
    "remove a full folder": (lambda env: env.remove("d"), OSError, "d"),
    "rename nothing": (lambda env: env.rename("none", "x"), FileNotFoundError, "none"),
}


@pytest.mark.parametrize("case", WRONG)
async def test_errors_are_those_of_an_env(case: str) -> None:
    """The builtins, with the path as given."""
    use, error, path = WRONG[case]
    async with ScriptedEnv(files={"d/a": "", "f": ""}) as env:
        with pytest.raises(error) as caught:
            await use(env)  # type: ignore[misc]
        assert caught.value.filename == path
        assert env.files == {"/workspace/d/a": b"", "/workspace/f": b""}


async def test_read_keeps_its_cap() -> None:
    """As an env does."""
    async with ScriptedEnv(files={"a": "hello"}) as env:
        with pytest.raises(LimitError, match="'a' has 5 bytes, more than 4"):
            await env.read("a", max_bytes=4)


async def test_trees_go_in_and_out(tmp_path: Path) -> None:
    """With modes, empty folders, patterns and progress; links are refused."""
    source = tmp_path / "source"
    (source / "sub" / "empty").mkdir(parents=True)
    (source / "run.sh").write_bytes(b"x")
    (source / "run.sh").chmod(0o755)
    (source / "sub" / "a.txt").write_bytes(b"abc")
    (source / "link").symlink_to("run.sh")
    said: list[tuple[int, int | None]] = []
    async with ScriptedEnv() as env:
        sent = await env.upload(
            source, "tree", exclude=["*.pyc"], progress=lambda done, total: said.append((done, total))
        )
        assert (sent.files, sent.bytes, sent.refused_count) == (2, 4, 1)
        assert (await env.stat("tree/run.sh")).mode & 0o777 == 0o755
        assert (await env.stat("tree/sub/empty")).is_dir
        received = await env.download("tree", tmp_path / "target", exclude=["sub/"], progress=None)
        assert (received.files, received.bytes) == (1, 1)
        everything = await env.download("tree", tmp_path / "all", include=["*.txt"])
        assert (everything.files, everything.bytes) == (1, 3)
    assert said == [(4, 4)]
    assert {path.name for path in (tmp_path / "target").iterdir()} == {"run.sh"}
    assert sorted(path.name for path in (tmp_path / "all").rglob("*")) == ["a.txt", "sub"]


async def test_single_files_go_in_and_out(tmp_path: Path) -> None:
    """The target is the copy itself."""
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "a").chmod(0o700)
    async with ScriptedEnv() as env:
        assert (await env.upload(tmp_path / "a", "x/b")).bytes == 3
        assert (await env.download("x/b", tmp_path / "y" / "c")).files == 1
        with pytest.raises(FileNotFoundError):
            await env.upload(tmp_path / "none", "x")
    assert (tmp_path / "y" / "c").stat().st_mode & 0o777 == 0o700


async def test_it_must_be_open() -> None:
    """Not before, not after, and not twice."""
    env = ScriptedEnv().on("ls", "")
    with pytest.raises(EnvClosedError):
        await env.exec("ls")
    async with env:
        await env.exec("ls")
    await env.aclose()
    with pytest.raises(EnvClosedError):
        await env.read("x")
    with pytest.raises(EnvClosedError, match="opened before"):
        await env.__aenter__()
