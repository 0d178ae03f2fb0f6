"""What a model is told when a tool could not do what it was asked: what is wrong, and what to do instead.

For errors of files, limits and artifacts, which every tool can meet. What only one tool can meet it says itself, with
`ToolError`.
"""

from __future__ import annotations

import errno
import posixpath
from typing import TYPE_CHECKING, Final

from anyio import to_thread

from runenv.errors import ArtifactError, ArtifactMissingError, EnvError, LimitError, StoreError, ToolError
from runenv.tools.nearest import nearest
from runenv.tools.opened import short
from runenv.tools.paths import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Collection

    from runenv.env import RunEnv
    from runenv.tools.paths import PathRules

__all__ = ("explain", "similar")

MAX_NAME_BYTES: Final = 255
"""Of one name in a path, on nearly all systems."""
_SIMILAR: Final = 5
"""Names that are shown in the place of one that is not there."""
_LOOKED_AT: Final = 10_000
"""Names of a folder that are compared with it."""
_INLINE: Final = 200
"""Names up to which they are compared on the event loop; more of them go to a thread."""


async def explain(
    error: OSError | LimitError | ArtifactError, env: RunEnv, *, tools: Collection[str], paths: PathRules
) -> str:
    """Say in a text for the model what an error means to it.

    Args:
        error: what was raised.
        env: where it happened, to look for names that were perhaps meant.
        tools: names of the tools that the model has.
        paths: which names it may learn.
    """
    if isinstance(error, OSError) and not isinstance(error, ArtifactError):
        path = _text(error.filename)
        if error.errno == errno.ENAMETOOLONG:
            return (
                f"The argument path is too long{'' if path is None else f': {short(path)}'}. A path has at most"
                f" {MAX_BYTES:,} bytes, and each name in it at most {MAX_NAME_BYTES}. Give a shorter one."
            )
        if isinstance(error, FileNotFoundError) and path is not None:
            return await _not_found(env, path, paths)
        return _sentence(error) if path is None else _of_path(error, path, env, tools)
    if isinstance(error, StoreError):
        return (
            f"The artifact storage is not available now ({_plain(error)}). Nothing in the sandbox is lost:"
            " go on without it, and try again later."
        )
    see = " See artifact_list for those that there are." if "artifact_list" in tools else ""
    return f"{_sentence(error)}{see if isinstance(error, ArtifactMissingError) else ''}"


async def similar(env: RunEnv, path: str, paths: PathRules) -> list[str]:
    """Return allowed paths that may have been meant by one that is not there, the nearest first; at most 5."""
    folder, name = posixpath.split(path.rstrip("/"))
    try:
        is_allowed = await paths.filter(env, folder or ".")
        names = [entry.path for entry in (await env.list(folder or "."))[:_LOOKED_AT] if is_allowed(entry.path)]
    except (OSError, LimitError, EnvError, ToolError):
        return []
    found = _similar(name, names) if len(names) <= _INLINE else await to_thread.run_sync(_similar, name, names)
    return [posixpath.join(folder, one) for one in found]


def _similar(name: str, names: list[str]) -> list[str]:
    stem = posixpath.splitext(name)[0].lower()
    same = [one for one in names if one.lower() == name.lower()]
    same += [one for one in names if stem and posixpath.splitext(one)[0].lower() == stem]
    by_lower: dict[str, str] = {}
    for one in names:
        by_lower.setdefault(one.lower(), one)
    all_names = list(by_lower.values())
    close = [all_names[at] for at in nearest(name.lower(), by_lower, _SIMILAR)]
    return list(dict.fromkeys([*same, *close]))[:_SIMILAR]


async def _not_found(env: RunEnv, path: str, paths: PathRules) -> str:
    """Name what is near, or the first folder on the way that is not there."""
    near = await similar(env, path, paths)
    if near:
        return f"There is no {short(path)}. Similar names: {', '.join(map(repr, near))}."
    where = "" if path.startswith("/") else f" Relative paths start at {env.workdir}."
    where = " '~' is not replaced: give an absolute path." if path.startswith("~") else where
    folder = posixpath.dirname(path.rstrip("/"))
    while folder and folder != "/":
        try:
            await env.stat(folder)
        except FileNotFoundError:
            path, folder = folder, posixpath.dirname(folder)
            near = await similar(env, path, paths)
            if near:
                return f"There is no folder {short(path)}. Similar names: {', '.join(map(repr, near))}."
        except (OSError, EnvError):
            break
        else:
            break
    return f"There is no {short(path)}.{where}"


def _of_path(error: OSError, path: str, env: RunEnv, tools: Collection[str]) -> str:
    listing = "List it with file_list." if "file_list" in tools else "Give the path of a file."
    shown = short(path)
    says: dict[type[OSError], str] = {
        IsADirectoryError: f"{shown} is a folder, not a file. {listing}",
        NotADirectoryError: f"{shown} is not a folder, or a folder in it is a file. Give another path.",
        PermissionError: f"Not allowed: {shown} ({_reason(error)}). Use another path, such as one in {env.workdir}.",
        FileExistsError: f"{shown} exists already. Use another path, or remove it first.",
    }
    return next((text for kind, text in says.items() if isinstance(error, kind)), f"{shown}: {_reason(error)}.")


def _text(path: object) -> str | None:
    if isinstance(path, bytes):
        return path.decode("utf-8", "surrogateescape")
    return path if isinstance(path, str) and path else None


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__


def _plain(error: Exception) -> str:
    """Return the message of an error; that of an `OSError` made from one text is this text."""
    text = str(error.args[0]) if len(error.args) == 1 else str(error)
    return " ".join(text.split()) or type(error).__name__


def _sentence(error: Exception) -> str:
    text = _plain(error)
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."
