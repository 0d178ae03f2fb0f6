"""Tool arguments on their way to a tool: handles in them become the data that they stand for.

The tools call `expanded` just before they run; what a model wrote, and what is recorded of it, keeps the handle. Below
are the store, and for paths in an env `transfers.py`. What a handle looks like is `handles.py`'s business.

The rule, of which a parameter's form says the details. A text that is one handle and nothing else (ornaments as in
`handles.parse` aside) becomes the data. A handle within a longer text stays as it is, since data in the middle of a
sentence is neither; only the forms of paths put a path there, under a name that is safe in a shell. A text that is no
handle but looks like one stays, and so do keys. A handle that names nothing here is an error, never passed on.
"""

from __future__ import annotations

import base64
import codecs
import difflib
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast, get_args
from urllib.parse import quote

from anyio import to_thread

from runenv.artifacts.artifact import Scope
from runenv.artifacts.copies import Copies
from runenv.artifacts.handles import find, found_in_any, shown_name, whole
from runenv.artifacts.media import charset
from runenv.artifacts.nested import Nested, plain_copy
from runenv.errors import ArtifactError, ArtifactExpiredError, ArtifactMissingError, ConfigError, LimitError
from runenv.types import DEFAULT

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
    from pathlib import Path

    from runenv.artifacts.artifact import Record
    from runenv.artifacts.store import ArtifactStore
    from runenv.env import RunEnv
    from runenv.types import Default

__all__ = ("Form", "check_forms", "expand", "expanded")

Form: TypeAlias = Literal["bytes", "base64", "data_uri", "text", "host_path", "env_path", "handle"]
"""What becomes of a handle: bytes; a text in base64 (standard alphabet, padded) or a `data:` URI of it; the decoded
text; the path of a copy on this host or in an env; or nothing."""

MAX_BYTES: Final = 100 * 1024**2
"""Bounds one artifact that is expanded in memory, in bytes of its content."""
MAX_TOTAL_BYTES: Final = 256 * 1024**2
"""Bounds the artifacts that one call expands in memory, each form of each counted once."""
MAX_LIVE: Final = 20
"""Handles that the error for a dead one names."""

_FORMS: Final[tuple[str, ...]] = get_args(Form)
_PATHS: Final = frozenset({"host_path", "env_path"})
_BOMS: Final = (  # the longer first
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_HINT: Final = "pass it to a tool that takes a path, or save a smaller one"
_LONG: Final = 1024**2
"""Bytes from which on encoding is done in a thread, so as not to hold the event loop."""


def _is_handle(text: str) -> bool:
    return "://" in text and whole(text) is not None


def _has_handle(text: str) -> bool:
    return "://" in text and bool(find(text))


_WANTED: Final[Mapping[Form, Callable[[str], bool]]] = {
    **dict.fromkeys(("bytes", "base64", "data_uri", "text"), _is_handle),
    **dict.fromkeys(("host_path", "env_path"), _has_handle),
    "handle": lambda _: False,
}
"""What is to be replaced, by form."""


async def expand(
    arguments: Mapping[str, Any],
    store: ArtifactStore,
    *,
    scope: str | Scope,
    forms: Mapping[str, Form] | None = None,
    default: Form = "bytes",
    env: RunEnv | None = None,
    folder: Path | None = None,
    max_bytes: int | Default = DEFAULT,
    max_total_bytes: int | Default = DEFAULT,
) -> dict[str, Any]:
    """Return a tool's arguments with the handles in them expanded; the arguments themselves stay as they are.

    Handles are found in texts in lists, tuples, mappings, dataclasses and pydantic models, at any depth. Plain
    containers are always copied, so that nothing that a tool does to them reaches the arguments as recorded.

    Args:
        arguments: what the model gave.
        store: where the bytes are.
        scope: whose artifacts may be read.
        forms: form by name of parameter; it holds for everything in that argument.
        default: form of every other parameter.
        env: where `env_path` puts its copies: `<workdir>/.artifacts/<uuid>/<filename>`, which stay there.
        folder: where `host_path` puts its copies, each in a folder of its own, which stay there. `expanded` needs
            none, and cleans up in the env too.
        max_bytes: bound for each artifact. Unless given 100 MiB in memory, and none for paths, which are streamed.
        max_total_bytes: bound for all artifacts of this call together; unless given 256 MiB, and none for paths.

    Raises:
        ArtifactMissingError: a handle names nothing that this scope may read; the message names up to 20 that do.
        LimitError: an artifact, or all together, would be larger than allowed; nothing was read.
        ArtifactError: the form is "text", and the artifact is none in UTF-8 or the character set of its type.
        ConfigError: a form is unknown, or `env` or `folder` is missing for it.
        StoreError: the storage failed.
    """
    checked = _Forms(forms or {}, default, has_env=env is not None, has_folder=folder is not None)
    copies = Copies(store, Scope.of(scope), env=env, folder=folder, keep=True)
    try:
        return await _expand(arguments, store, Scope.of(scope), checked, copies, _Caps(max_bytes, max_total_bytes))
    except BaseException:
        await copies.remove()
        raise


def check_forms(forms: Mapping[str, Form]) -> None:
    """Refuse forms that `expanded` would refuse with an env, before there is a call.

    Raises:
        ConfigError: one is unknown.
    """
    _Forms(forms, "handle", has_env=True, has_folder=True)


@asynccontextmanager
async def expanded(
    arguments: Mapping[str, Any],
    store: ArtifactStore,
    *,
    scope: str | Scope,
    forms: Mapping[str, Form] | None = None,
    default: Form = "bytes",
    env: RunEnv | None = None,
    max_bytes: int | Default = DEFAULT,
    max_total_bytes: int | Default = DEFAULT,
) -> AsyncGenerator[dict[str, Any]]:
    """Expand for the length of one tool call, and clean up after it.

    As `expand`, but the copies that `host_path` and `env_path` make are removed at the end. Those on this host lie in
    a private folder (0700) of their own, as temporary files do.
    """
    checked = _Forms(forms or {}, default, has_env=env is not None, has_folder=True)
    copies = Copies(store, Scope.of(scope), env=env, folder=None, keep=False)
    try:
        yield await _expand(arguments, store, Scope.of(scope), checked, copies, _Caps(max_bytes, max_total_bytes))
    finally:
        await copies.remove()


@dataclass(frozen=True, slots=True)
class _Need:
    """One thing that is made of a handle, however often it is used in the call."""

    handle: str
    form: Form
    embedded: bool


@dataclass(frozen=True, slots=True)
class _Caps:
    """How much may be expanded."""

    each: int | Default
    total: int | Default

    def check(self, needs: Iterable[_Need], records: Mapping[str, Record]) -> None:
        """Hold what is needed to the bounds.

        Raises:
            LimitError: it is too much; names the first handle that is.
        """
        total = 0
        for need in needs:
            record, in_memory = records[need.handle], need.form not in _PATHS
            shown = f"{shown_name(record.name)!r} ({need.handle}, {record.size:,} bytes)"
            each = self._bound(self.each, MAX_BYTES, in_memory=in_memory)
            if each is not None and record.size > each:
                raise LimitError(
                    f"{shown} is larger than {each:,} bytes (max_bytes), the most for one artifact: {_HINT}"
                )
            bound = self._bound(self.total, MAX_TOTAL_BYTES, in_memory=in_memory)
            total += record.size if bound is not None else 0
            if bound is not None and total > bound:
                most = f"{bound:,} bytes (max_total_bytes), the most for one call"
                raise LimitError(f"{shown} makes the artifacts together larger than {most}: {_HINT}")

    @staticmethod
    def _bound(given: int | Default, otherwise: int, *, in_memory: bool) -> int | None:
        return given if isinstance(given, int) else otherwise if in_memory else None


class _Forms:
    """The form of each parameter.

    Raises:
        ConfigError: one is unknown, or lacks what it needs.
    """

    def __init__(self, forms: Mapping[str, Form], default: Form, *, has_env: bool, has_folder: bool) -> None:
        self._forms = forms
        self._default: Form = default
        for form in (*forms.values(), default):
            if form not in _FORMS:
                near = difflib.get_close_matches(str(form), _FORMS, n=1) or _FORMS
                raise ConfigError(f"there is no form {form!r}: did you mean {' or '.join(map(repr, near))}?")
            if form == "env_path" and not has_env:
                raise ConfigError("the form 'env_path' needs an env to put the copy in: give `env`")
            if form == "host_path" and not has_folder:
                raise ConfigError("the form 'host_path' leaves a copy behind: give `folder`, or use `expanded`")

    def of(self, parameter: str) -> Form:
        return self._forms.get(parameter, self._default)


async def _expand(
    arguments: Mapping[str, Any], store: ArtifactStore, scope: Scope, forms: _Forms, copies: Copies, caps: _Caps
) -> dict[str, Any]:
    by_form: dict[Form, dict[str, Any]] = {}
    for name, value in arguments.items():
        by_form.setdefault(forms.of(name), {})[name] = value
    ready: dict[str, Any] = {}
    found: dict[Form, Nested] = {}
    for form, values in by_form.items():
        copied = plain_copy(values)
        if copied is not None and not found_in_any(copied[1]):
            ready |= copied[0]
        else:
            found[form] = Nested(values, str, _WANTED[form], fresh=True)
    needs: dict[_Need, None] = {}
    for form, nested in found.items():
        needs.update((need, None) for text in cast("list[str]", nested.leaves) for need in _needs(text, form))
    records = await _look_up(list({need.handle: None for need in needs}), store, scope)
    caps.check(needs, records)
    made = {need: await _make(need, records[need.handle], store, scope, copies) for need in needs}

    for form, nested in found.items():
        ready |= nested.replaced(_replacement(form, made))
    return {name: ready[name] for name in arguments}


def _needs(text: str, form: Form) -> list[_Need]:
    handle = whole(text)
    if handle is not None:
        return [_Need(handle, form, embedded=False)]
    return [_Need(match.handle, form, embedded=True) for match in find(text)]


def _replacement(form: Form, made: Mapping[_Need, Any]) -> Callable[[Any, object], Any]:
    """Say what a text becomes: what was made of its handle, or the text with paths in the place of its handles."""

    def replacement(text: str, _: object) -> Any:  # noqa: ANN401
        handle = whole(text)
        if handle is not None:
            return made[_Need(handle, form, embedded=False)]
        pieces: list[str] = []
        end = 0
        for match in find(text):
            pieces += (text[end : match.start], made[_Need(match.handle, form, embedded=True)])
            end = match.end
        return "".join((*pieces, text[end:]))

    return replacement


async def _look_up(handles: list[str], store: ArtifactStore, scope: Scope) -> dict[str, Record]:
    """Return the records of all handles.

    Raises:
        ArtifactMissingError: some name nothing here.
    """
    records: dict[str, Record] = {}
    expired: list[str] = []
    unknown: list[str] = []
    for handle in handles:
        try:
            records[handle] = await store.stat(handle, scope=scope)
        except ArtifactExpiredError:
            expired.append(handle)
        except ArtifactMissingError:
            unknown.append(handle)
    if not expired and not unknown:
        return records
    says = [f"no artifact of this scope has the handle {handle}" for handle in unknown[:MAX_LIVE]]
    says += [f"the artifact {handle} has expired" for handle in expired[:MAX_LIVE]]
    kind = ArtifactMissingError if unknown else ArtifactExpiredError
    raise kind(f"{', '.join(says)}; {await _live(store, scope)}")


async def _live(store: ArtifactStore, scope: Scope) -> str:
    """Name the artifacts that a model could have meant."""
    names: list[str] = []
    async with aclosing(cast("AsyncGenerator[Record]", store.list(scope))) as records:
        async for record in records:
            if len(names) == MAX_LIVE:
                return f"the first {MAX_LIVE} that there are: {', '.join(names)}"
            names.append(f"{shown_name(record.name)!r} is {record.handle}")
    return f"those that there are: {', '.join(names)}" if names else "there are no artifacts yet"


async def _make(need: _Need, record: Record, store: ArtifactStore, scope: Scope, copies: Copies) -> bytes | str:
    if need.form == "host_path":
        return await copies.on_host(record, safe=need.embedded)
    if need.form == "env_path":
        return await copies.in_env(record, safe=need.embedded)
    data = await store.get(record.handle, scope=scope, max_bytes=max(record.size, 1))
    if need.form == "bytes":
        return data
    if record.size < _LONG:
        return _encoded(data, need.form, record)
    return await to_thread.run_sync(_encoded, data, need.form, record)


def _encoded(data: bytes, form: Form, record: Record) -> str:
    if form == "text":
        return _decoded(data, record)
    encoded = base64.b64encode(data).decode("ascii")
    if form == "base64":
        return encoded
    kind = ";".join(quote(piece.strip(), safe="/=+-._!$&'*") for piece in record.media_type.split(";"))
    return f"data:{kind};base64,{encoded}"


def _decoded(data: bytes, record: Record) -> str:
    """Decode by the mark at the start, by the declared character set, or as UTF-8.

    Nothing is replaced and no code is guessed: a tool that writes the text elsewhere would write the damage.

    Raises:
        ArtifactError: the bytes are no such text.
    """
    mark, code = next(((bom, code) for bom, code in _BOMS if data.startswith(bom)), (b"", None))
    code = code or charset(record.media_type) or "utf-8"
    try:
        return data[len(mark) :].decode(code)
    except UnicodeError as error:
        raise ArtifactError(
            f"{shown_name(record.name)!r} ({record.handle}, {record.media_type}) is no text in {code}: save it again "
            f"in UTF-8, or with its character set, as in 'text/csv; charset=windows-1252'"
        ) from error
