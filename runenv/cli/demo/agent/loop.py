"""The agent: asks the model, does what it asks for, shows it the results, until it asks for nothing more."""

from __future__ import annotations

import posixpath
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from runenv.cli.demo.agent.errand import SYSTEM
from runenv.cli.demo.agent.transcript import Ledger, Turn
from runenv.cli.demo.agent.upload import make_upload
from runenv.cli.demo.steps import StepError
from runenv.tools import toolset
from runenv.tools.tool import KeptResult
from runenv.types import ImagePart, TextPart, ToolResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from runenv.artifacts.artifact import Scope
    from runenv.artifacts.store import ArtifactStore
    from runenv.cli.demo.agent.api import Model
    from runenv.cli.demo.agent.wires import Json
    from runenv.cli.demo.endpoint import Endpoint
    from runenv.env import RunEnv
    from runenv.tools import Tool, Toolset
    from runenv.types import ToolCall

__all__ = ("MAX_TURNS", "Agent")

MAX_TURNS: Final = 30
"""Turns that a model has for the errand; one that is played needs nine."""
_CUT: Final = "Your message was cut off ({why}), so nothing of this was done. Say less at a time."
_WRITING: Final = frozenset({"file_write", "file_edit"})


@dataclass(slots=True)
class Agent:
    """One model at work in one env.

    Attributes:
        model: whose turns these are.
        env: open.
        store: open; nothing else of the scope is in it.
        scope: whose the artifacts are.
        endpoint: where the tool `upload` sends to; running.
        max_turns: that the model has.
        ledger: what has happened so far.
    """

    model: Model
    env: RunEnv
    store: ArtifactStore
    scope: Scope
    endpoint: Endpoint
    max_turns: int = MAX_TURNS
    ledger: Ledger = field(default_factory=Ledger)

    async def run(self, errand: str, shown: Callable[[Turn], None]) -> None:
        """Let the model do an errand.

        Args:
            errand: in the user's words.
            shown: called with each turn when it is over.

        Raises:
            ModelError: the model's server cannot be reached, or refuses.
            StepError: what was sent is not what was stored.
            EnvError: the env failed.
        """
        before, ledger = await self._files(), self.ledger
        upload = make_upload(self.env, self.store, self.scope, self.endpoint, ledger.sent)
        async with toolset(self.env, self.store, scope=self.scope, after_call=self._watcher(ledger)) as tools:
            await self._turns(errand, shown, ledger, tools, upload)
        await self._settle(ledger, before)

    async def _turns(
        self, errand: str, shown: Callable[[Turn], None], ledger: Ledger, tools: Toolset, upload: Tool
    ) -> None:
        model, wire = self.model, self.model.wire
        definitions = (*tools.definitions, upload.definition)
        ledger.begin((SYSTEM, errand), definitions)
        history: list[Json] = [wire.user(errand)]

        for number in range(1, self.max_turns + 1):
            began = time.perf_counter()
            response = await model.send(wire.request(model.name, SYSTEM, history, definitions))
            reply, thought = wire.reply(response), time.perf_counter() - began
            history += wire.said(response)
            answered = [(call, await _answer(call, reply.cut, ledger, tools, upload)) for call in reply.calls]
            history += wire.results(answered)
            turn = Turn(number, reply, tuple(answered), thought, time.perf_counter() - began)
            ledger.over(turn, response)
            ledger.conversation = wire.request(model.name, SYSTEM, history, definitions)
            shown(turn)
            if not answered:
                return
        ledger.is_stopped = True

    def _watcher(self, ledger: Ledger) -> Callable[[str, Mapping[str, object], ToolResult], Awaitable[None]]:
        """Return a hook that counts what commands printed where the model is shown a part of it."""

        async def watch(_name: str, _arguments: Mapping[str, object], result: ToolResult) -> None:
            if isinstance(result, KeptResult):
                for path in result.env_paths.values():
                    ledger.printed += (await self.env.stat(path)).size

        return watch

    async def _files(self) -> dict[str, tuple[int, float]]:
        """Return size and time of the files in the working folder, by name."""
        return {info.path: (info.size, info.mtime) for info in await self.env.list() if info.is_file}

    async def _settle(self, ledger: Ledger, before: Mapping[str, object]) -> None:
        """Count what lies outside of the conversation, and compare both ends of what was sent.

        Raises:
            StepError: they differ.
        """
        known = set[str]()
        for call, result in ledger.calls:
            if call.name in _WRITING or any(isinstance(part, ImagePart) for part in result.parts):
                known.add(posixpath.basename(str(call.arguments.get("path"))))
        ledger.files = {
            name: facts[0]
            for name, facts in (await self._files()).items()
            if facts != before.get(name) and name not in known and not name.startswith(".")
        }
        ledger.artifacts = [record async for record in self.store.list(self.scope)]
        for sent in ledger.sent:
            _, sent.arrived = self.endpoint.arrived.get(sent.name, (0, "nothing"))
            hashed = await self.env.exec(["sha256sum", sent.record.name])
            sent.theirs = hashed.stdout.text.split()[0] if hashed.ok else ""
        last: dict[str, Any] = {sent.name: sent for sent in ledger.sent}  # the same name again replaces what was there
        for sent in last.values():
            if sent.arrived != sent.record.sha256:
                raise StepError(
                    f"{sent.name!r} is {sent.record.sha256} in the store and {sent.arrived} at the endpoint"
                )


async def _answer(call: ToolCall, cut: str, ledger: Ledger, tools: Toolset, upload: Tool) -> ToolResult:
    """Do what the model asks for, and return what it is shown."""
    if cut:
        return ToolResult((TextPart(_CUT.format(why=cut)),), is_error=True)
    if call.name == upload.name:
        return await upload.call(call.arguments)
    before = ledger.printed
    result = await tools.call(call)
    if ledger.printed != before:
        ledger.printed_shown += len(result.text)
    return result
