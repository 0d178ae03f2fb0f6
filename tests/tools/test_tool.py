"""What becomes of a call: an answer, an error result for what the model did wrong, an exception for a failed env."""

from __future__ import annotations

import errno

import pytest

from runenv.errors import (
    ArtifactMissingError,
    EnvClosedError,
    EnvError,
    EnvLostError,
    HandleError,
    LimitError,
    StoreError,
    ToolError,
)
from runenv.testing.scripted import ScriptedEnv
from runenv.tools.failures import similar
from runenv.tools.paths import PathRules
from runenv.tools.schema import Arguments, EnvPath
from runenv.tools.tool import Context, Returned, Tool, make_tool
from runenv.types import FilePart, ImagePart, TextPart, ToolResult

pytestmark = pytest.mark.anyio

IMAGE = ImagePart(b"\x89PNG", "image/png")
FILE = FilePart("runenv+file://00000000-0000-4000-8000-000000000000", "a", "text/plain", 1, "0" * 64)


class Asked(Arguments):
    """One path."""

    path: EnvPath = "."
    """File."""


def returning(returned: Returned | BaseException, *, tools: frozenset[str] = frozenset(), env: ScriptedEnv) -> Tool:
    """A tool that does one thing."""

    async def run(_: Asked) -> Returned:
        if isinstance(returned, BaseException):
            raise returned
        return returned

    return make_tool(Context(env=env, tools=tools), "do", "Do\n   it.", Asked, run)


async def told(returned: Returned | BaseException, *tools: str, files: dict[str, str] | None = None) -> str:
    """The text of an error result."""
    async with ScriptedEnv(files=files) as env:
        result = await returning(returned, tools=frozenset(tools), env=env).call({})
    assert result.is_error
    assert len(result.parts) == 1
    return result.text


async def test_T1_a_tool_answers_with_parts() -> None:
    """A text, some parts, or a whole result."""
    async with ScriptedEnv() as env:
        assert await returning("done", env=env).call({}) == ToolResult((TextPart("done"),))
        assert await returning((IMAGE, FILE), env=env).call({}) == ToolResult((IMAGE, FILE))
        failed = ToolResult((TextPart("no"),), is_error=True)
        assert await returning(failed, env=env).call({}) is failed
        assert returning("", env=env).definition.description == "Do it."


async def test_T1_wrong_arguments_are_an_answer() -> None:
    """The tool does not run."""
    async with ScriptedEnv() as env:
        result = await returning(AssertionError("it ran"), env=env).call({"pth": "x"})
    assert result == ToolResult(
        (TextPart("There is no argument 'pth', did you mean 'path'. do takes path (optional)."),), is_error=True
    )


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ToolError("Give another one."), "Give another one."),
        (LimitError("it has 5 bytes, more than 4"), "It has 5 bytes, more than 4."),
        (IsADirectoryError(errno.EISDIR, "Is a directory", "src"), "'src' is a folder, not a file."),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory", "a/b"), "'a/b' is not a folder"),
        (PermissionError(errno.EACCES, "Permission denied", "/root/x"), "Not allowed: '/root/x' (Permission denied)."),
        (FileExistsError(errno.EEXIST, "File exists", "out"), "'out' exists already."),
        (OSError(errno.ENOSPC, "No space left on device", "big"), "'big': No space left on device."),
        (OSError(errno.EIO, "Input/output error"), "[Errno 5] Input/output error."),
        (HandleError("'x' is not a handle"), "'x' is not a handle."),
    ],
)
async def test_T1_what_is_not_possible_is_an_answer(error: Exception, said: str) -> None:
    """It names the thing."""
    assert (await told(error)).startswith(said)


async def test_a_failed_store_is_an_answer_that_goes_on() -> None:
    """The model's work does not depend on it."""
    said = await told(StoreError("the bucket does not answer"))
    assert "the bucket does not answer" in said
    assert "go on without it" in said


async def test_only_tools_that_the_model_has_are_named() -> None:
    """Nothing sends it to a tool that is not there."""
    missing, folder = ArtifactMissingError("there is no such artifact"), IsADirectoryError(errno.EISDIR, "", "src")
    assert "artifact_list" in await told(missing, "artifact_list")
    assert await told(missing) == "There is no such artifact."
    assert "file_list" in await told(folder, "file_list")
    assert "file_list" not in await told(folder)


def not_found(path: str) -> FileNotFoundError:
    """The error of an env."""
    return FileNotFoundError(errno.ENOENT, "No such file or directory", path)


FILES = {"src/Report.csv": "", "src/report_final.csv": "", "src/notes.txt": "", "src/logo.png": "", "zebra/x": ""}


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("src/report.csv", "'src/Report.csv'"),
        ("src/REPORT.CSV", "'src/Report.csv'"),
        ("src/logo.jpg", "'src/logo.png'"),
        ("src/reprot_final.csv", "'src/report_final.csv'"),
        ("attic/notes.txt", "There is no 'attic'. Relative paths start at /workspace."),
        ("scr/notes.txt", "There is no folder 'scr'. Similar names: 'src'."),
        ("zebr", "'zebra'"),
    ],
)
async def test_T2_similar_names_are_shown_for_one_that_is_not_there(path: str, near: str) -> None:
    """Other cases, other extensions, small mistakes, and the folder in which it was looked for."""
    assert near in await told(not_found(path), files=FILES)


async def test_a_tilde_is_explained() -> None:
    """No shell has replaced it."""
    assert "'~' is not replaced" in await told(not_found("~/notes"))


async def test_looking_for_similar_names_never_fails() -> None:
    """Whatever has happened to the env or the folder."""
    async with ScriptedEnv(files=FILES) as env:
        assert await similar(env, "nowhere/a", PathRules()) == []
        assert await similar(env, "src/notes.txt/a", PathRules()) == []
        assert await similar(env, "src/nothing-like-it", PathRules()) == []
        assert await similar(env, "/", PathRules()) == []
        assert await similar(env, "src/note.txt", PathRules()) == ["src/notes.txt"]
        assert await similar(env, "src/note.txt", PathRules(deny=["notes.txt"])) == []
    assert await similar(env, "src/note.txt", PathRules()) == []


@pytest.mark.parametrize("error", [EnvLostError("gone"), EnvClosedError("closed"), EnvError("failed"), KeyError("bug")])
async def test_T1_a_failed_env_is_no_answer(error: Exception) -> None:
    """A model must not take it for its command's failure; nor is a fault of ours hidden."""
    async with ScriptedEnv() as env:
        with pytest.raises(type(error)) as caught:
            await returning(error, env=env).call({})
    assert caught.value is error


async def test_every_text_can_be_encoded() -> None:
    """Names that are not UTF-8 are shown with escapes, in answers and in errors."""
    async with ScriptedEnv() as env:
        result = await returning((TextPart("caf\udce9"), IMAGE), env=env).call({})
        assert result.parts == (TextPart("caf\\udce9"), IMAGE)
    assert "caf\\udce9" in await told(ToolError("caf\udce9"))
    assert "caf\\udce9" in await told(not_found("caf\udce9"))


async def test_a_handle_is_no_path() -> None:
    """The model is told what to do with it, by the tools that it has."""
    handle = FILE.handle
    async with ScriptedEnv() as env:
        with pytest.raises(ToolError, match="put it into a file with artifact_load"):
            await Context(env=env, tools=frozenset({"artifact_load"})).path(handle)
        with pytest.raises(ToolError, match="give the path of a file"):
            await Context(env=env).path(f"`{handle.upper()}`")
        assert await Context(env=env).path(f"{handle}/x") == f"{handle}/x"
