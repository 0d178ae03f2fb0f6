"""Fake envs for the unit tests of tools: prepared searches, and what an env says of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runenv.testing.scripted import ScriptedEnv
from runenv.types import GlobResult, GrepResult

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runenv.types import ExecResult

__all__ = ("NOTHING", "DescribedEnv", "SearchingEnv", "scripted")

NOTHING = GrepResult((), (), searched=3, binary=0, unreadable=0, complete=True, timed_out=False)


def scripted(answer: ExecResult | str | BaseException = "done") -> ScriptedEnv:
    """Make an env in which every command does the same."""
    return ScriptedEnv().on(lambda _: True, answer)


class DescribedEnv(ScriptedEnv):
    """A scripted env that says more of itself."""

    def __init__(self, **facts: object) -> None:
        super().__init__()
        self.facts = facts

    def describe(self) -> Mapping[str, object]:
        return {**super().describe(), **self.facts}


class SearchingEnv(ScriptedEnv):
    """A scripted env whose searches find what was prepared, and are recorded."""

    def __init__(
        self, grep: GrepResult = NOTHING, glob: GlobResult | None = None, *, files: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(files=files)
        self.grep_result = grep
        self.glob_result = glob or GlobResult((), 0, complete=True, timed_out=False)
        self.searches: list[tuple[str, str, dict[str, object]]] = []

    async def grep(self, pattern: str, path: str = ".", **options: object) -> GrepResult:
        self.searches.append((pattern, path, options))
        return self.grep_result

    async def glob(self, pattern: str, path: str = ".", **options: object) -> GlobResult:
        self.searches.append((pattern, path, options))
        return self.glob_result
