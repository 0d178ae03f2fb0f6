"""`Offloader`: results that are too long for a model are kept elsewhere; it is shown both ends and the way to it all.

Whoever shows results to a model calls `offload` on the way there and nowhere else: a program that calls a tool gets the
result itself. `retrieval.py` is the way back, `previews.py` cuts and words. Images and files are not text: they are
never cut, and no part of a count.

What a store does not take (it is full, or it failed) is cut to what a model may see, and the model is told that the
rest was not kept. Nothing that is stored is dropped for something new, so what one turn stored outlasts it; how much
disk all of it takes is bounded by the store's quotas, how long it stays by its lifetimes. Copies in an env have a bound
of their own, and there the oldest go first.
"""

from __future__ import annotations

import json
import logging
import posixpath
import re
import secrets
from collections import OrderedDict
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

from anyio import to_thread

from runenv.artifacts.artifact import Scope
from runenv.artifacts.previews import NOTICE_CHARS, Place, preview, shortened
from runenv.artifacts.retrieval import DEFAULT_CONTEXT, DEFAULT_LIMIT, OFFLOADED, Retrieval
from runenv.errors import ArtifactError, ConfigError, EnvError, LimitError
from runenv.types import DEFAULT, TextPart, ToolResult

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from runenv.artifacts.artifact import Record
    from runenv.artifacts.store import ArtifactStore
    from runenv.env import RunEnv
    from runenv.types import Default, Part

__all__ = ("READING_TOOLS", "Offloader")

_log = logging.getLogger(__name__)

READING_TOOLS: Final = frozenset({"artifact_read", "file_list", "file_read", "glob", "grep"})
"""Tools whose results have bounds of their own; offloading them again would send a model in circles."""
EXEMPT_CHARS: Final = 60_000
"""Characters of text that an exempt tool's result may show: `file_read` gives 50,000. What is longer is hardly the
tool's own (a hook may have put it there); a list of 200 very long paths may be, and loses nothing by it."""
THRESHOLD_CHARS: Final = 10_000
"""Characters of text that one result may show, about 2,500 tokens."""
PREVIEW_CHARS: Final = 2_000
"""Characters of a text that are shown of an offloaded one, half of them from its end."""
MAX_ENV_BYTES: Final = 256 * 1024 * 1024
"""Bytes of the copies in an env; as much as its spill files may take."""
_MAX_BLOCKS: Final = 3
"""Texts of one result that are stored each by itself; with more of them all become one."""
_REMEMBERED: Final = 1_000
"""Texts of which the offloader knows that they are stored; bounds its memory."""
_PARSED_CHARS: Final = 4_000_000
"""Characters of a text that is parsed to know that it is JSON; a longer one is judged by its ends."""
_CALL_ID_CHARS: Final = 64
"""Characters of a call's id that are kept with what is stored, for people."""
_NAME_CHARS: Final = 40
"""Characters of a tool's name that begin the name of what is stored."""
_STORE_FAILURES: Final = (ArtifactError, LimitError, OSError)
_ENV_FAILURES: Final = (EnvError, LimitError, OSError)


class _Block(NamedTuple):
    """A text that does not fit, and where among the parts it stands."""

    at: int
    text: str


class Offloader:
    """Keeps long results out of a model's context.

    Args:
        store: where they go.
        scope: whose they are.
        threshold: characters of text that a result may show; a longer one is offloaded.
        preview: characters of it that are shown then, half from each end.
        env: where the model's own tools look. Each text is also written there, and that path is named.
        folder: the folder in the env for these copies, relative to its workdir or absolute.
        retrieval_tool: name of the tool that calls `retrieve`; None when the model has none, and then none is named.
        exempt: tools, beside the retrieval tool, whose results are left alone up to 60,000 characters of text.
        ttl: seconds that a text is kept, None for ever; by default as the store says for the scope.

    Raises:
        ConfigError: the threshold leaves no room for the preview and a notice.
        HandleError: the scope is none.
    """

    def __init__(
        self,
        store: ArtifactStore,
        *,
        scope: str | Scope,
        threshold: int = THRESHOLD_CHARS,
        preview: int = PREVIEW_CHARS,
        env: RunEnv | None = None,
        folder: str = ".runenv/results",
        retrieval_tool: str | None = "artifact_read",
        exempt: Collection[str] = READING_TOOLS,
        ttl: float | Default | None = DEFAULT,
    ) -> None:
        if preview < 1 or threshold < preview + NOTICE_CHARS:
            raise ConfigError(
                f"a threshold of {threshold:,} characters has no room for a preview of {preview:,} and a notice: "
                f"give at least {max(1, preview) + NOTICE_CHARS:,}"
            )
        self._store = store
        self._scope = Scope.of(scope)
        self._threshold = threshold
        self._preview = preview
        self._ttl: float | Default | None = ttl
        self._tool = retrieval_tool
        self._exempt = frozenset(exempt) | ({retrieval_tool} if retrieval_tool else set())
        self._copies = _Copies(env, folder) if env is not None else None
        self._stored: OrderedDict[str, str] = OrderedDict()
        folders = (self._copies.folder,) if self._copies is not None else ()
        self._retrieval = Retrieval(store, scope=self._scope, tool=retrieval_tool, folders=folders)

    async def offload(
        self, result: ToolResult | str, *, tool: str, call_id: str | None = None, env_path: str | None = None
    ) -> ToolResult:
        """Return a result as a model may see it.

        Its text parts together are at most the threshold then. Those that make it too long are stored, the longest
        first, each by itself, or all as one when they are many; both ends of each stay, with a notice between that
        says how much there is and where. Other parts and `is_error` stay. The same text is stored once. The result of
        an exempt tool is left alone up to 60,000 characters.

        Args:
            result: what the tool gave.
            tool: its name.
            call_id: id of the call, kept as metadata, cut; no name is made from it.
            env_path: file in the env that holds the whole text already, such as `Output.spill_path`. Then that is
                named, and nothing is copied.
        """
        if isinstance(result, str):
            result = ToolResult((TextPart(result),))
        total = sum(len(part.text) for part in result.parts if isinstance(part, TextPart))
        if total <= self._threshold or (tool in self._exempt and total <= EXEMPT_CHARS):
            return result
        parts, blocks = self._select(result.parts, total)
        shown = sum(len(part.text) for part in parts if isinstance(part, TextPart))
        room = (self._threshold - shown + sum(len(block.text) for block in blocks)) // len(blocks)
        for block in blocks:
            text = await self._replaced(block.text, room, tool, call_id, env_path)
            parts[block.at] = TextPart(text)
        return replace(result, parts=tuple(parts))

    async def retrieve(
        self,
        reference: str,
        *,
        offset: int = 1,
        limit: int = DEFAULT_LIMIT,
        column: int = 1,
        from_end: bool = False,
        pattern: str | None = None,
        context: int = DEFAULT_CONTEXT,
    ) -> ToolResult:
        """Return a part of what was offloaded, or of any artifact of the scope, as `Retrieval.retrieve` does."""
        return await self._retrieval.retrieve(
            reference,
            offset=offset,
            limit=limit,
            column=column,
            from_end=from_end,
            pattern=pattern,
            context=context,
        )

    def _select(self, given: Sequence[Part], total: int) -> tuple[list[Part], list[_Block]]:
        """Choose the texts to offload: as few as make the rest fit, or all of them as one."""
        parts = list(given)
        texts = [_Block(at, part.text) for at, part in enumerate(parts) if isinstance(part, TextPart)]
        needed = self._preview + NOTICE_CHARS
        chosen: list[_Block] = []
        for block in sorted(texts, key=lambda block: len(block.text), reverse=True)[:_MAX_BLOCKS]:
            if len(block.text) <= needed:
                break
            chosen.append(block)
            total -= len(block.text)
            if total + len(chosen) * needed <= self._threshold:
                return parts, sorted(chosen)
        first = texts[0].at
        joined = "\n".join(block.text for block in texts)
        rest: list[Part] = [part for part in parts[first:] if not isinstance(part, TextPart)]
        return [*parts[:first], TextPart(joined), *rest], [_Block(first, joined)]

    async def _replaced(self, text: str, room: int, tool: str, call_id: str | None, env_path: str | None) -> str:
        data = text.encode("utf-8", "backslashreplace")  # half a surrogate pair is no reason to lose the rest
        text = data.decode()
        if env_path is not None:
            return preview(text, None, self._preview, room, Place(path=env_path))
        place = await self._keep(text, data, tool, call_id)
        return shortened(text, room) if place is None else preview(text, len(data), self._preview, room, place)

    async def _keep(self, text: str, data: bytes, tool: str, call_id: str | None) -> Place | None:
        """Store a text, and copy it into the env; None when neither could be done."""
        media_type = "application/json" if await _is_json(text) else "text/plain"
        record: Record | None = None
        try:
            record = await self._record(data, media_type, tool, call_id)
        except _STORE_FAILURES as error:
            _log.warning("a result of %.40r was not stored: %s", tool, error)
        path: str | None = None
        if self._copies is not None:
            path = await self._copies.write(_name(tool, media_type) if record is None else record.name, data)
        if record is None:
            return Place(path=path, media_type=media_type) if path else None
        path = path or self._store.path(record)
        if path is not None:
            self._retrieval.remember(path, record.handle)
        return Place(path=path, handle=record.handle, media_type=record.media_type, tool=self._tool)

    async def _record(self, data: bytes, media_type: str, tool: str, call_id: str | None) -> Record:
        digest = await to_thread.run_sync(lambda: sha256(data).hexdigest())
        known = self._stored.get(digest)
        if known is not None:
            try:
                return await self._store.stat(known, scope=self._scope)
            except ArtifactError:
                del self._stored[digest]  # gone meanwhile: stored once more
        metadata = {OFFLOADED: _plain(tool)[:_NAME_CHARS] or "tool"}
        if call_id:
            metadata["call_id"] = _plain(call_id)[:_CALL_ID_CHARS]
        handle = await self._store.put(
            data,
            filename=_name(tool, media_type),
            scope=self._scope,
            media_type=media_type,
            metadata=metadata,
            ttl=self._ttl,
        )
        record = await self._store.stat(handle, scope=self._scope)
        self._stored[digest] = handle
        while len(self._stored) > _REMEMBERED:
            self._stored.popitem(last=False)
        return record


class _Copies:
    """The copies in an env, where the model's own tools read and search."""

    def __init__(self, env: RunEnv, folder: str) -> None:
        self.folder = posixpath.normpath(posixpath.join(env.workdir, folder))
        self._env = env
        self._sizes: OrderedDict[str, int] = OrderedDict()

    async def write(self, name: str, data: bytes) -> str | None:
        """Write a copy and return its path; None when the env does not take it."""
        path = posixpath.join(self.folder, name)
        try:
            if len(data) > MAX_ENV_BYTES:
                return None
            if not self._sizes:  # version control and searches that respect it leave the copies alone
                await self._env.write(posixpath.join(self.folder, ".gitignore"), b"*\n")
            self._sizes[path] = len(data)
            self._sizes.move_to_end(path)
            while sum(self._sizes.values()) > MAX_ENV_BYTES:
                oldest, _ = self._sizes.popitem(last=False)
                await self._env.remove(oldest, missing_ok=True)
            await self._env.write(path, data)
        except _ENV_FAILURES as error:
            self._sizes.pop(path, None)
            _log.warning("a result was not copied into the env: %s", error)
            return None
        return path


async def _is_json(text: str) -> bool:
    ends = text[:1_000].lstrip()[:1] + text[-1_000:].rstrip()[-1:]
    if ends not in {"{}", "[]"}:
        return False
    return len(text) > _PARSED_CHARS or await to_thread.run_sync(_parses, text)


def _parses(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _name(tool: str, media_type: str) -> str:
    """Make a short name of our own: a tool's may be odd, a call's id long."""
    start = re.sub(r"[^A-Za-z0-9_-]+", "-", tool)[:_NAME_CHARS].strip("-_") or "result"
    return f"{start}-{secrets.token_hex(4)}.{'json' if media_type == 'application/json' else 'txt'}"


def _plain(text: str) -> str:
    return "".join(character if character.isascii() and character.isprintable() else "?" for character in text)
