"""What the second act of the demo does: a file made in the sandbox is sent on, and all that a model sees is a handle.

`Tools` are functions as people write them. `Loop` is what a framework does around each call: it expands the handles in
the arguments, runs the tool, and absorbs what comes back; what it keeps is the transcript. The model's part is played
by `Handover`, which takes handles from nowhere but the transcript. Nothing is drawn here.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import anyio
import anyio.to_thread

from runenv.artifacts.arguments import expanded
from runenv.artifacts.artifact import Artifact
from runenv.artifacts.handles import find, placeholder
from runenv.artifacts.results import absorb
from runenv.artifacts.transfers import save
from runenv.cli.demo import programs
from runenv.cli.demo.endpoint import send
from runenv.cli.demo.steps import StepError, require

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from runenv.artifacts.arguments import Form
    from runenv.artifacts.artifact import Record, Scope
    from runenv.artifacts.store import ArtifactStore
    from runenv.cli.demo.endpoint import Endpoint
    from runenv.cli.demo.steps import Meter
    from runenv.env import RunEnv
    from runenv.types import Command

__all__ = ("Delivery", "Handover", "Message")

TITLE: Final = "What is in the source tree"
TABLE: Final = "files.csv"
"""What the first act has left in the env."""
MAX_LOOKED_FOR: Final = 48
"""Bytes from the start of a file whose base64 is looked for in the transcript; a multiple of 3."""

Tool: TypeAlias = "Callable[..., Awaitable[list[object]]]"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the transcript.

    Attributes:
        kind: a tool call as the model wrote it, or the result as it is shown.
        text: all of it.
    """

    kind: Literal["call", "result"]
    text: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """A file that went from the sandbox to the endpoint.

    Attributes:
        record: what the store keeps about it.
        theirs: its SHA-256 as the env's own program gives it.
        arrived: its SHA-256 at the endpoint.
        given: what the sending tool was given in place of the handle.
        messages: the transcript.
    """

    record: Record
    theirs: str
    arrived: str
    given: str
    messages: tuple[Message, ...]

    @property
    def seen(self) -> int:
        """Characters of the transcript."""
        return sum(len(message.text) for message in self.messages)


@dataclass(slots=True)
class Tools:
    """The tools: two that make a file in the env, two that send one, which know nothing of stores and handles."""

    env: RunEnv
    store: ArtifactStore
    scope: Scope
    endpoint: Endpoint
    meter: Meter
    python: str
    given: str = ""

    async def make_deck(self, title: str, table: str) -> list[object]:
        """Make slides in the env."""
        return await self._made(programs.DECK, "deck.pptx", title, table)

    async def make_archive(self, title: str, table: str) -> list[object]:
        """Make a ZIP file in the env, where it cannot make slides."""
        return await self._made(programs.ARCHIVE, "deck.zip", title, table)

    async def make_recording(self, mebibytes: int) -> list[object]:
        """Make a large file in the env."""
        return await self._made(programs.RECORDING, "recording.bin", str(mebibytes))

    async def upload_content(self, name: str, content: str) -> list[object]:
        """Send a file that comes as base64, as many APIs want it."""
        self.given = f"{len(content):,} characters of base64"
        data = base64.b64decode(content, validate=True)
        answer = await anyio.to_thread.run_sync(send, self.endpoint.port, name, data, len(data))
        return ["201 Created; the receipt:", Artifact(answer, "receipt.json")]

    async def upload_file(self, path: str) -> list[object]:
        """Send a file of this host, streamed."""
        self.given = "the path of a copy on this host"
        answer = await anyio.to_thread.run_sync(self._send_file, Path(path))
        return ["201 Created; the receipt:", Artifact(answer, "receipt.json")]

    def _send_file(self, path: Path) -> bytes:
        with path.open("rb") as file:
            return send(self.endpoint.port, path.name, file, path.stat().st_size)

    async def _made(self, program: str, name: str, *arguments: str) -> list[object]:
        """Run a program that makes a file, and bring that behind a handle."""
        script = f"make_{name.partition('.')[0]}.py"
        await self.env.write(script, program.encode())
        self.meter.up += len(program.encode())
        printed = await self.run([self.python, script, *arguments, name], f"making {name!r}")
        handle = await save(self.env, name, self.store, scope=self.scope)
        record = await self.store.stat(handle, scope=self.scope)
        self.meter.down += record.size
        return [f"{name} is made, {printed.strip()}:", placeholder(record)]

    async def run(self, command: Command, what: str) -> str:
        """Run a command in the env and return what it prints."""
        result = await self.env.exec(command)
        for output in (result.stdout, result.stderr):
            self.meter.printed += output.total_bytes
            self.meter.down += len(output.data)
        require(result, what)
        return result.stdout.text


class Loop:
    """Calls tools as a framework does, and keeps the transcript."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self.messages: list[Message] = []

    async def call(self, tool: Tool, arguments: Mapping[str, Any], forms: Mapping[str, Form] | None = None) -> str:
        """Do what a model has asked for, and return what it is shown."""
        name = getattr(tool, "__name__", "tool")
        self._add("call", f"{name}({json.dumps(arguments, ensure_ascii=False)})")
        store, scope = self._tools.store, self._tools.scope
        async with expanded(arguments, store, scope=scope, forms=forms, default="handle") as ready:
            result = await tool(**ready)
        shown = "\n".join(map(str, await absorb(result, store, scope=scope)))
        self._add("result", shown)
        return shown

    def _add(self, kind: Literal["call", "result"], text: str) -> None:
        self.messages.append(Message(kind, text))
        self._tools.meter.seen += len(text)


class Handover:
    """The second act over one store.

    Args:
        env: open; holds what the first act has left.
        store: open.
        scope: whose the artifacts are.
        endpoint: running.
        meter: counts.
        python: the interpreter in the env.
    """

    def __init__(
        self, env: RunEnv, store: ArtifactStore, scope: Scope, endpoint: Endpoint, meter: Meter, python: str
    ) -> None:
        self._tools = Tools(env, store, scope, endpoint, meter, python)
        self._endpoint = endpoint
        self._store = store
        self._scope = scope
        self._loop = Loop(self._tools)

    async def can_make_slides(self) -> bool:
        """Tell whether the env's Python has python-pptx."""
        result = await self._tools.env.exec([self._tools.python, "-c", programs.HAS_PPTX])  # the demo's own question
        return result.ok

    async def make(self, *, slides: bool) -> Record:
        """Let a tool make the small file."""
        tool = self._tools.make_deck if slides else self._tools.make_archive
        return await self._record(await self._loop.call(tool, {"title": TITLE, "table": TABLE}))

    async def make_large(self, mebibytes: int) -> Record:
        """Let a tool make the large file."""
        return await self._record(await self._loop.call(self._tools.make_recording, {"mebibytes": mebibytes}))

    async def send(self, record: Record) -> Delivery:
        """Let a tool send a file that it gets as base64."""
        arguments = {"name": record.name, "content": record.handle}
        await self._loop.call(self._tools.upload_content, arguments, {"content": "base64"})
        return await self._delivered(record)

    async def send_large(self, record: Record) -> Delivery:
        """Let a tool send a file of which it gets a path."""
        await self._loop.call(self._tools.upload_file, {"path": record.handle}, {"path": "host_path"})
        return await self._delivered(record)

    async def _record(self, shown: str) -> Record:
        """Take the handle from what was shown, as a model has to."""
        (match,) = find(shown)
        return await self._store.stat(match.handle, scope=self._scope)

    async def _delivered(self, record: Record) -> Delivery:
        """Compare both ends.

        Raises:
            StepError: they differ, or the transcript has the content in it.
        """
        printed = await self._tools.run(["sha256sum", record.name], "sha256sum")
        theirs = printed.split()[0]
        _, arrived = self._endpoint.arrived.get(record.name, (0, "nothing"))
        if not theirs == arrived == record.sha256:
            raise StepError(f"{record.name!r} is {theirs} in the env, {record.sha256} in the store, {arrived} there")
        head = await self._store.get(record.handle, scope=self._scope, length=MAX_LOOKED_FOR)
        encoded = base64.b64encode(head).decode()
        if any(encoded in message.text for message in self._loop.messages):
            raise StepError(f"the content of {record.name!r} is in the transcript")
        return Delivery(record, theirs, arrived, self._tools.given, tuple(self._loop.messages))
