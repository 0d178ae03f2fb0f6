"""`toolset`: the tools of one agent over one env, and what stands around each call of them.

A call goes through the hook `before_call`, the tool, the hook `after_call`; then artifacts in the result are stored,
and, for a model, long texts are offloaded. Handles in the arguments of a caller's own tool become data just before it
runs, after the hook. A tool taken out of the set and called by a program does all of that but the offloading, so that
the program gets the full data.
"""

from __future__ import annotations

import copy
import difflib
import inspect
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, cast

from runenv.artifacts import DEFAULT_TTL
from runenv.artifacts.arguments import check_forms, expanded
from runenv.artifacts.artifact import Artifact, Scope
from runenv.artifacts.offload import Offloader
from runenv.artifacts.results import absorb
from runenv.artifacts.retrieval import Retrieval
from runenv.env import Masks, Searches
from runenv.errors import ArtifactError, ConfigError, LimitError, ToolError
from runenv.tools.artifact import make_artifact_list, make_artifact_load, make_artifact_read, make_artifact_save
from runenv.tools.exec import make_exec
from runenv.tools.failures import explain
from runenv.tools.image_pool import Workers
from runenv.tools.images import DEFAULT_LIMITS
from runenv.tools.listing import make_file_list
from runenv.tools.paths import PathRules
from runenv.tools.reading import make_file_read
from runenv.tools.schema import check
from runenv.tools.search import make_glob, make_grep
from runenv.tools.telemetry import Masker, observe, prepare_spans
from runenv.tools.tool import PARTS, Context, KeptResult, Tool, as_result
from runenv.tools.writing import make_file_edit, make_file_write
from runenv.types import BadCall, TextPart, ToolCall, ToolResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
    from types import TracebackType
    from typing import Self

    from runenv.artifacts import ArtifactStore
    from runenv.env import RunEnv
    from runenv.tools.images import ImageLimits
    from runenv.types import Part, ToolDefinition

__all__ = ("TOOLS", "AfterCall", "BeforeCall", "Toolset", "toolset")

T = TypeVar("T")

Changed: TypeAlias = "Mapping[str, object] | ToolResult | None"
Swapped: TypeAlias = "ToolResult | None"
BeforeCall: TypeAlias = "Callable[[str, Mapping[str, object]], Changed | Awaitable[Changed]]"
"""Called as `before_call(name, arguments)`: None goes on, other arguments replace these, a result ends the call."""
AfterCall: TypeAlias = "Callable[[str, Mapping[str, object], ToolResult], Swapped | Awaitable[Swapped]]"
"""Called as `after_call(name, arguments, result)`: None keeps the result, another one replaces it."""

_MAKERS: Final[Mapping[str, Callable[[Context], Tool]]] = {
    "exec": make_exec,
    "file_read": make_file_read,
    "file_write": make_file_write,
    "file_edit": make_file_edit,
    "file_list": make_file_list,
    "glob": make_glob,
    "grep": make_grep,
    "artifact_save": make_artifact_save,
    "artifact_load": make_artifact_load,
    "artifact_list": make_artifact_list,
    "artifact_read": make_artifact_read,
}
TOOLS: Final = tuple(_MAKERS)
"""Names of all tools."""
_SEARCHES: Final = frozenset({"glob", "grep"})
_RETRIEVAL: Final = "artifact_read"
_SHOWN_NAME: Final = 100
"""Characters of a wrong name that an answer repeats."""


def toolset(  # noqa: PLR0913 - all but one have a default
    env: RunEnv,
    store: ArtifactStore | None = None,
    *,
    scope: str | Scope | None = None,
    allow: Collection[str] | None = None,
    deny: Collection[str] = (),
    paths: PathRules | None = None,
    image_limits: ImageLimits = DEFAULT_LIMITS,
    max_timeout: float | None = 3600.0,
    offload: bool | Offloader = True,
    own: Iterable[Tool] = (),
    before_call: BeforeCall | None = None,
    after_call: AfterCall | None = None,
    secrets: Iterable[str] = (),
) -> Toolset:
    """Make the tools of one agent.

    Args:
        env: where they work; open.
        store: of artifacts. Without one there are no artifact tools, and nothing is offloaded.
        scope: whose artifacts these are; needed with a store.
        allow: names of the tools that the agent has; all of them when None. Those that this env or the missing store
            cannot have are left out.
        deny: names of tools that it has not.
        paths: which paths the file, search and artifact tools may touch; `exec` is not bound by it.
        image_limits: how images are shown.
        max_timeout: seconds that the model may give a command at most; None for no bound.
        offload: what keeps long results out of the context; one with the defaults unless given, False for none.
        own: tools of your own beside these, each a `Tool` with a name of its own; all that stands around a call stands
            around theirs, and with a store they take and give artifacts. What they raise of `ToolError`, `OSError`,
            `LimitError` and `ArtifactError` is an answer.
        before_call: called before each tool as `before_call(name, arguments)`, async or not. It returns None to go on,
            other arguments for the tool (those that it was given are a copy), or a `ToolResult` instead of a call. It
            may raise `ToolError` to refuse; all else that it raises propagates.
        after_call: called after each as `after_call(name, arguments, result)`, with the same rules: it returns None, or
            another `ToolResult`. It sees results that `before_call` gave, too.
        secrets: texts that are masked in log records, beside the values of the env's variables.

    Raises:
        ConfigError: a name is no tool's, the scope is missing, or the env is not open.
    """
    if not env.workdir:
        raise ConfigError("a toolset needs an open env: enter `async with open_env(config) as env` first")
    mine = list(own)
    known = _known_names(mine)
    for given in (allow or (), deny):
        if isinstance(given, str):
            raise ConfigError(f"names of tools are a list, not one text: write [{given!r}]")
        for name in given:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                raise ConfigError(
                    f"there is no tool {name!r}: {f'did you mean {near[0]!r}?' if near else ', '.join(known)}"
                )
    if store is not None and scope is None:
        raise ConfigError("a toolset with a store needs a scope: whose artifacts are they?")
    rules = PathRules() if paths is None else paths
    names = frozenset(name for name in TOOLS if _is_wanted(name, allow, deny) and _is_possible(name, env, store))
    whose = None if store is None or scope is None else Scope.of(scope)
    offloader = _offloader(env, store, whose, offload, names, rules)
    context = Context(
        env=env,
        store=store,
        scope=whose,
        paths=rules,
        tools=names,
        retrieval=offloader or _retrieval(store, whose),
        image_limits=image_limits,
        workers=Workers(),
        max_timeout=max_timeout,
    )
    masker = Masker(_secret_names(env), secrets, env.mask if isinstance(env, Masks) else None)
    more = [_guarded(tool, context) for tool in mine if _is_wanted(tool.name, allow, deny)]
    return Toolset(context, more, offloader=offloader, before_call=before_call, after_call=after_call, masker=masker)


def _known_names(own: Sequence[Tool]) -> tuple[str, ...]:
    names = (*TOOLS, *(tool.name for tool in own))
    for tool in own:
        if names.count(tool.name) > 1:
            raise ConfigError(f"there are two tools {tool.name!r}: give yours another name")
    return names


def _is_wanted(name: str, allow: Collection[str] | None, deny: Collection[str]) -> bool:
    return (allow is None or name in allow) and name not in deny


def _is_possible(name: str, env: RunEnv, store: ArtifactStore | None) -> bool:
    if name in _SEARCHES:
        return isinstance(env, Searches)
    return store is not None or not name.startswith("artifact_")


def _offloader(
    env: RunEnv,
    store: ArtifactStore | None,
    scope: Scope | None,
    offload: bool | Offloader,  # noqa: FBT001 - as in `toolset`
    names: frozenset[str],
    rules: PathRules,
) -> Offloader | None:
    if isinstance(offload, Offloader):
        return offload
    if not offload or store is None or scope is None:
        return None
    return Offloader(
        store,
        scope=scope,
        env=env if rules.is_free else None,  # a path that the model may not read is no help to it
        ttl=DEFAULT_TTL["run"],  # whatever the scope: nobody looks for it later
        retrieval_tool=_RETRIEVAL if _RETRIEVAL in names else None,
    )


def _retrieval(store: ArtifactStore | None, scope: Scope | None) -> Retrieval | None:
    return None if store is None or scope is None else Retrieval(store, scope=scope)


def _secret_names(env: RunEnv) -> list[str]:
    names = env.describe().get("environment")
    return [name for name in cast("list[object]", names) if isinstance(name, str)] if isinstance(names, list) else []


class Toolset:
    """The tools of one agent, by name and in order; made by `toolset`.

    Each is itself a `Tool`, whose `call` is for a program; `Toolset.call` is for a model.
    """

    def __init__(
        self,
        context: Context,
        own: Iterable[Tool],
        *,
        offloader: Offloader | None,
        before_call: BeforeCall | None,
        after_call: AfterCall | None,
        masker: Masker,
    ) -> None:
        prepare_spans()
        self._context = context
        self._offloader = offloader
        self._before_call = before_call
        self._after_call = after_call
        self._masker = masker
        self._bare = {name: make(context) for name, make in _MAKERS.items() if name in context.tools}
        self._bare |= {tool.name: tool for tool in own}
        self._tools = {name: self._bound(tool) for name, tool in self._bare.items()}

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __getitem__(self, name: str) -> Tool:
        return self._tools[name]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def definitions(self) -> tuple[ToolDefinition, ...]:
        """What a model is told of the tools."""
        return tuple(tool.definition for tool in self)

    async def call(self, call: ToolCall | str, arguments: Mapping[str, object] | None = None) -> ToolResult:
        """Answer a call of a model; a long answer is offloaded.

        Args:
            call: what the model asks for, or the name of a tool.
            arguments: with a name, the arguments as the model wrote them.

        Returns:
            What the model should see. An unknown tool is an error result, too; a `BadCall` gets its own answer, and
            nothing is done.

        Raises:
            EnvError: the env failed, was lost or is closed.
        """
        if isinstance(call, str):
            call = ToolCall("", call, arguments or {})
        if isinstance(call, BadCall):
            return call.answer
        tool = self._bare.get(call.name)
        if tool is None:
            return _error(self._unknown(call.name))
        result = await self._run(tool, call.arguments, call.id or None)
        return await self._offloaded(result, call)

    async def aclose(self) -> None:
        """End what shows images; harmless when called again. The env and the store stay open."""
        if self._context.workers is not None:
            await self._context.workers.aclose()

    def _bound(self, tool: Tool) -> Tool:
        async def handle(arguments: Mapping[str, object]) -> ToolResult:
            return await self._run(tool, arguments, None)

        return Tool(tool.definition, handle)

    async def _run(self, tool: Tool, arguments: Mapping[str, object], call_id: str | None) -> ToolResult:
        try:
            check(arguments, tool=tool.name)
        except ToolError as error:
            return _error(str(error))
        env, masker = self._context.env, self._masker
        with observe(tool.name, arguments, env=env, masker=masker, call_id=call_id) as observed:
            try:
                result = await self._hooked(tool, arguments)
                result = await self._absorbed(result)
            except ToolError as error:  # of a hook
                result = _error(str(error))
            observed.ended(result)
            return result

    async def _hooked(self, tool: Tool, arguments: Mapping[str, object]) -> ToolResult:
        result: ToolResult | None = None
        if self._before_call is not None:
            changed: object = await _awaited(self._before_call(tool.name, copy.deepcopy(arguments)))
            if isinstance(changed, ToolResult):
                result = changed
            elif isinstance(changed, Mapping):
                arguments = changed
            elif changed is not None:
                raise TypeError(f"before_call returns None, arguments or a ToolResult, not {changed!r}")
        if result is None:
            result = await tool.call(arguments)
        if self._after_call is not None:
            swapped: object = await _awaited(self._after_call(tool.name, copy.deepcopy(arguments), result))
            if isinstance(swapped, ToolResult):
                result = swapped
            elif swapped is not None:
                raise TypeError(f"after_call returns None or a ToolResult, not {swapped!r}")
        return result

    async def _absorbed(self, result: ToolResult) -> ToolResult:
        """Store the artifacts that a hook has put into a result."""
        context = self._context
        store, scope = context.store, context.scope
        if store is None or scope is None:
            return result
        try:
            return cast("ToolResult", await absorb(result, store, scope=scope))
        except (ArtifactError, LimitError, OSError) as error:
            return _error(await explain(error, context.env, tools=context.tools, paths=context.paths))

    async def _offloaded(self, result: ToolResult, call: ToolCall) -> ToolResult:
        if self._offloader is None:
            return result
        if isinstance(result, KeptResult):  # first those texts that need no copy, each by itself
            parts = list(result.parts)
            for at, part in enumerate(parts):
                path = result.env_paths.get(part) if isinstance(part, TextPart) else None
                if path is not None:
                    alone = ToolResult((part,))
                    shown = await self._offloader.offload(alone, tool=call.name, call_id=call.id, env_path=path)
                    parts[at] = shown.parts[0]
            result = replace(result, parts=tuple(parts))
        return await self._offloader.offload(result, tool=call.name, call_id=call.id or None)

    def _unknown(self, name: str) -> str:
        near = difflib.get_close_matches(name.lower(), self._tools, n=1)
        meant = f" Did you mean {near[0]}?" if near else ""
        return f"There is no tool {name[:_SHOWN_NAME]!r}.{meant} There are: {', '.join(self._tools) or 'none'}."


def _guarded(tool: Tool, context: Context) -> Tool:
    """Let artifacts into a tool of the caller's own and out of it, and make answers of what it raises.

    Raises:
        ConfigError: it takes artifacts, and there is no store, or in a form that is unknown.
    """
    check_forms(tool.forms)
    store, scope = context.store, context.scope
    if store is None or scope is None:
        if tool.forms:
            raise ConfigError(f"the tool {tool.name!r} takes artifacts: give the toolset `store` and `scope`")
        run = tool.call
    else:
        run = partial(_with_artifacts, tool, store, scope, context.env)

    async def handle(arguments: Mapping[str, object]) -> ToolResult:
        try:
            return await run(arguments)
        except ToolError as error:
            return _error(str(error))
        except (OSError, LimitError, ArtifactError) as error:
            return _error(await explain(error, context.env, tools=context.tools, paths=context.paths))

    return Tool(tool.definition, handle)


async def _with_artifacts(
    tool: Tool, store: ArtifactStore, scope: Scope, env: RunEnv, arguments: Mapping[str, object]
) -> ToolResult:
    async with expanded(arguments, store, scope=scope, forms=tool.forms, default="handle", env=env) as ready:
        returned = await tool.handler(ready)
        if isinstance(returned, Artifact):
            returned = (returned,)
        if isinstance(returned, tuple) and all(isinstance(part, (Artifact, *PARTS)) for part in returned):
            returned = ToolResult(cast("tuple[Part, ...]", returned))  # in which an artifact becomes a part
        return as_result(await absorb(returned, store, scope=scope), tool=tool.name)


def _error(text: str) -> ToolResult:
    return ToolResult((TextPart(text),), is_error=True)


async def _awaited(value: T | Awaitable[T]) -> T:
    return await cast("Awaitable[T]", value) if inspect.isawaitable(value) else value
