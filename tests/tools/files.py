"""What the tests of the file tools share: the tools over an env, and how an answer is taken apart."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from runenv.testing.scripted import ScriptedEnv
from runenv.tools.listing import make_file_list
from runenv.tools.paths import PathRules
from runenv.tools.reading import make_file_read
from runenv.tools.tool import Context
from runenv.tools.writing import make_file_edit, make_file_write

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping

    from runenv.env import RunEnv
    from runenv.testing.scripted import Call
    from runenv.types import ToolResult

NAMES: Final = ("exec", "file_read", "file_write", "file_edit", "file_list", "glob", "grep")


class Files:
    """The file tools of one context."""

    def __init__(self, env: RunEnv, *, tools: Iterable[str] = NAMES, paths: PathRules | None = None) -> None:
        self.env = env
        self.context = Context(env=env, tools=frozenset(tools), paths=paths or PathRules())
        made = (make_file_read, make_file_write, make_file_edit, make_file_list)
        self.tools = {tool.name: tool for tool in (make(self.context) for make in made)}

    @property
    def calls(self) -> list[Call]:
        """What was asked of an env in memory."""
        assert isinstance(self.env, ScriptedEnv)
        return self.env.calls

    async def read(self, path: str, **arguments: object) -> ToolResult:
        return await self.tools["file_read"].call({"path": path, **arguments})

    async def write(self, path: str, content: str) -> ToolResult:
        return await self.tools["file_write"].call({"path": path, "content": content})

    async def edit(self, path: str, old: str, new: str, **arguments: object) -> ToolResult:
        return await self.tools["file_edit"].call({"path": path, "old": old, "new": new, **arguments})

    async def list(self, path: str = ".", **arguments: object) -> ToolResult:
        return await self.tools["file_list"].call({"path": path, **arguments})


@asynccontextmanager
async def scripted(
    files: Mapping[str, str | bytes] | None = None, *, tools: Iterable[str] = NAMES, paths: PathRules | None = None
) -> AsyncGenerator[Files]:
    """The tools over files in memory."""
    async with ScriptedEnv(files=files or {}) as env:
        yield Files(env, tools=tools, paths=paths)


def body(answer: ToolResult) -> dict[int, str]:
    """The numbered lines of an answer."""
    found = re.findall(r"^(\d+)\t(.*)$", answer.text, re.MULTILINE)
    return {int(number): text for number, text in found}


def follows(answer: ToolResult) -> dict[str, int]:
    """What the answer says to go on with; empty when nothing follows."""
    return _arguments(answer, "For what follows: ")


def rest_of_line(answer: ToolResult) -> dict[str, int]:
    """What the answer says to go on with for a line that was cut."""
    return _arguments(answer, "For the rest of line ")


def _arguments(answer: ToolResult, words: str) -> dict[str, int]:
    hint = answer.text.splitlines()[-1].partition(words)[2].partition(".")[0]
    return {name: int(value) for name, value in re.findall(r"(offset|column)=(\d+)", hint)}
