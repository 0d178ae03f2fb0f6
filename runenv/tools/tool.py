"""`Tool`: something that a model can call, and what becomes of a call that fails. `Context`: what the tools share.

A tool never raises for what the model did wrong, nor for what is not there: that is a result with `is_error` and one
text, which says what is wrong and what to do instead. It does raise when the env itself failed (`EnvError`): a model
can do nothing about that, and must not be told that its command failed. Hooks, offloading and spans stand around a
tool (`toolset.py`), not in it; each tool is made by a function of a context, in a module of its own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

from runenv.errors import ArtifactError, LimitError, ToolError
from runenv.tools.failures import explain
from runenv.tools.images import DEFAULT_LIMITS, prepare
from runenv.tools.paths import PathRules
from runenv.tools.schema import Arguments, parameters, read
from runenv.types import FilePart, ImagePart, TextPart, ToolDefinition, ToolResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from runenv.artifacts import ArtifactStore, Form, Scope
    from runenv.env import RunEnv
    from runenv.tools.image_pool import Workers
    from runenv.tools.images import ImageLimits
    from runenv.types import Part

__all__ = ("PARTS", "Context", "Handler", "KeptResult", "Retrieves", "Returned", "Tool", "as_result", "make_tool")

Returned: TypeAlias = "str | tuple[Part, ...] | ToolResult"
"""What the function behind a tool gives: a text, the parts, or the whole result."""
Handler: TypeAlias = "Callable[[Mapping[str, Any]], Awaitable[Any]]"
"""What answers a call, from the arguments as the model wrote them; see `as_result` for what it may return."""

M = TypeVar("M", bound=Arguments)

PARTS: Final = (TextPart, ImagePart, FilePart)
"""What a tool result is made of."""

ERROR_CHARS: Final = 8_000
"""Characters of what is said of a call that failed: more than any of our own words need."""


class Retrieves(Protocol):
    """What reads artifacts for a model: a `Retrieval`, or an `Offloader`, which also knows what paths it has shown."""

    async def retrieve(
        self,
        reference: str,
        *,
        offset: int = 1,
        limit: int = 2000,
        column: int = 1,
        from_end: bool = False,
        pattern: str | None = None,
        context: int = 2,
    ) -> ToolResult:
        """Return a part of an artifact, as `Retrieval.retrieve` does."""
        ...


@dataclass(slots=True, kw_only=True)
class Context:
    """What the tools of one toolset share.

    Attributes:
        env: where they work.
        store: of the artifacts, or None when there is none.
        scope: whose artifacts these are; given when there is a store.
        paths: which paths the file, search and artifact tools may touch.
        tools: names of the tools that the model has: texts for it name no others.
        retrieval: what reads artifacts for the model, or None.
        image_limits: how images are shown.
        workers: where they are decoded; None for those that the process shares.
        seen: by path in the env, SHA-256 in hexadecimal of what the model last read from that file or wrote to it.
        max_timeout: seconds that the model may ask for at most; None for no bound.
    """

    env: RunEnv
    store: ArtifactStore | None = None
    scope: Scope | None = None
    paths: PathRules = field(default_factory=PathRules)
    tools: frozenset[str] = frozenset()
    retrieval: Retrieves | None = None
    image_limits: ImageLimits = DEFAULT_LIMITS
    workers: Workers | None = None
    seen: dict[str, str] = field(default_factory=dict)
    max_timeout: float | None = 3600.0

    async def path(self, path: str) -> str:
        """Return a path that the model gave as it is passed to the env; every tool asks this first.

        Raises:
            ToolError: it is a handle, or the rules do not allow it.
        """
        return await self.paths.check(self.env, path, tools=self.tools)

    async def shown(self, data: bytes, name: str, limits: ImageLimits | None = None) -> tuple[Part, ...]:
        """Return an image as the model should see it, or words, as `images.prepare` does."""
        return await prepare(
            data,
            name=name,
            limits=limits or self.image_limits,
            workers=self.workers,
            can_save="artifact_save" in self.tools,
        )

    def hint(self, tool: str, text: str) -> str:
        """Return a text that names a tool, with a blank before it; nothing when the model does not have that tool."""
        return f" {text}" if tool in self.tools else ""


@dataclass(frozen=True, slots=True, eq=False)
class KeptResult(ToolResult):
    """A result of which some texts are in files of the env already, so that nobody needs to keep them once more.

    Attributes:
        env_paths: the file that holds the whole of what a text part shows.
    """

    env_paths: Mapping[TextPart, str] = field(default_factory=dict, kw_only=True)


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool of a model.

    Attributes:
        definition: what the model is told.
        handler: what answers; `call` is the way to it. It returns a `ToolResult`, a part of one or a tuple of them, a
            text, or what JSON can hold. A toolset with a store takes an `Artifact`, too, alone or in any of these.
        forms: what handles become in the arguments of a toolset with a store, by parameter, as in `expand`; those of a
            parameter without a form stay handles.
    """

    definition: ToolDefinition
    handler: Handler
    forms: Mapping[str, Form] = field(default_factory=dict, kw_only=True)

    @property
    def name(self) -> str:
        """Its name."""
        return self.definition.name

    async def call(self, arguments: Mapping[str, object]) -> ToolResult:
        """Run it.

        Args:
            arguments: as the model wrote them, decoded from JSON. They are not changed.

        Returns:
            What the model should see, whole: nothing is offloaded.

        Raises:
            EnvError: the env failed, was lost or is closed.
            TypeError: the handler returned what is no result.
        """
        return as_result(await self.handler(arguments), tool=self.name)


def make_tool(
    context: Context, name: str, description: str, model: type[M], run: Callable[[M], Awaitable[Returned]]
) -> Tool:
    """Make a tool.

    Args:
        context: of its toolset.
        name: of the tool.
        description: for the model; it is one paragraph.
        model: its arguments.
        run: the work. What it raises of `ToolError`, `OSError`, `LimitError` and `ArtifactError` becomes the answer.
    """

    async def handle(arguments: Mapping[str, object]) -> ToolResult:
        try:
            returned = await run(read(model, arguments, tool=name))
        except ToolError as error:
            return _failed(str(error))
        except (OSError, LimitError, ArtifactError) as error:
            return _failed(await explain(error, context.env, tools=context.tools, paths=context.paths))
        return _checked(as_result(returned, tool=name))

    rules = context.paths.words if "path" in model.model_fields else ""
    return Tool(ToolDefinition(name, " ".join(f"{description}{rules}".split()), parameters(model)), handle)


def as_result(returned: object, *, tool: str) -> ToolResult:
    """Return what a tool gave as a result: a text as a text part, parts as they are, all else as JSON.

    Raises:
        TypeError: it is none of these.
    """
    if isinstance(returned, ToolResult):
        return returned
    if isinstance(returned, str):
        return ToolResult((TextPart(returned),))
    if isinstance(returned, PARTS):
        return ToolResult((returned,))
    if isinstance(returned, tuple) and all(isinstance(part, PARTS) for part in returned):
        return ToolResult(returned)
    try:
        return ToolResult((TextPart(json.dumps(returned, ensure_ascii=False)),))
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"the tool {tool!r} returned what is neither a text nor parts nor JSON ({error}): return a ToolResult; an"
            " Artifact needs a toolset with a store"
        ) from error


def _failed(text: str) -> ToolResult:
    if len(text) > ERROR_CHARS:
        text = f"{text[: ERROR_CHARS // 2]} [...] {text[-ERROR_CHARS // 2 :]}"
    return ToolResult((TextPart(_encodable(text)),), is_error=True)


def _checked(result: ToolResult) -> ToolResult:
    """Make every text encodable as UTF-8: names that are not may be in it, as surrogate escapes."""
    parts = tuple(
        TextPart(_encodable(part.text)) if isinstance(part, TextPart) and not _is_encodable(part.text) else part
        for part in result.parts
    )
    return result if parts == result.parts else replace(result, parts=parts)


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
