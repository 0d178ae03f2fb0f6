"""`PathRules`: which paths of an env the tools of one agent may touch. Not a boundary; the env is that.

A path is judged by where it leads: links in it are followed in the env, component by component, and what is passed on
to the env is the path without links. There is no verb that opens a file and says where it is, so that between the look
and the use a program in the env can put a link into the path, and be followed. A hard link and a bind mount are files
under another name, which nobody can tell. And a command of the `exec` tool goes wherever its user may: an agent that
must not see a file has no `exec`, or an env without the file.

What is searched or listed in a folder is judged too, by its name alone: links below the folder are not followed there.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import posixpath
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from runenv.artifacts.handles import whole
from runenv.errors import ConfigError, ToolError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from runenv.env import RunEnv

__all__ = ("PathRules", "real_path")

MAX_BYTES: Final = 4095
"""Bytes of a path that a system takes."""
MAX_LINKS: Final = 40
"""Links that are followed in one path, as the kernel does."""
MAX_COMPONENTS: Final = 256
"""Components of a path that are looked at, those of links in it included; each costs a question to the env."""

_FOR_HANDLES: Final = {
    "artifact_read": "read it with artifact_read",
    "artifact_load": "put it into a file with artifact_load",
}
_Path: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PathRules:
    """Globs for paths of an env. Without any, everything is allowed and nothing is looked at.

    A pattern with a leading "/" is for absolute paths, one with a "/" in it for paths below the workdir, any other for
    a name at any depth (below the workdir, or outside of it). "." is the workdir and "/" everything. `*`, `?` and
    `[a-z]` stay within a name, `**` as a whole name stands for any number of folders, none included. What a pattern
    fits it holds for with all that is below it. A pattern is compared with paths whose links are resolved, so that one
    for `/var/run` says nothing of `/run`, where that leads: write it for the real path.

    Attributes:
        allow: only these; None for all.
        deny: not these, whatever `allow` says.

    Raises:
        ConfigError: a pattern is empty, or has ".." in it.
    """

    allow: Sequence[str] | None = None
    deny: Sequence[str] = ()
    _allow: tuple[_Pattern, ...] = field(init=False, repr=False, compare=False)
    _deny: tuple[_Pattern, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, patterns in (("allow", self.allow or ()), ("deny", self.deny)):
            if isinstance(patterns, str):
                raise ConfigError(f"{name} is a list of patterns, not one text: write [{patterns!r}]")
            object.__setattr__(self, f"_{name}", tuple(_Pattern(pattern) for pattern in patterns))

    @property
    def is_free(self) -> bool:
        """Everything is allowed."""
        return self.allow is None and not self.deny

    @property
    def words(self) -> str:
        """What a model is told of the rules beforehand: a sentence with a blank before it, or nothing."""
        only = [f"only {_listed(self._allow) or 'none'}"] if self.allow is not None else []
        never = [f"never {_listed(self._deny)}"] if self._deny else []
        return f" Paths that you may use: {', '.join((*only, *never))}." if only or never else ""

    async def check(self, env: RunEnv, path: str, *, tools: Collection[str] = ()) -> str:
        """Return the path as it may be passed to the env: as it is without rules, else without links.

        Args:
            env: where it is.
            path: as a model gave it; it need not exist.
            tools: names of the tools that the model has.

        Raises:
            ToolError: it is not allowed, or leads through too many links, or is no path but a handle.
            OSError: it is longer than any path.
        """
        if (handle := whole(path)) is not None:
            ways = [text for tool, text in _FOR_HANDLES.items() if tool in tools]
            how = " or ".join(ways) if ways else "give the path of a file"
            raise ToolError(f"{handle} is the handle of an artifact, not a path: {how}.")
        if len(path.encode("utf-8", "replace")) > MAX_BYTES:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)
        if self.is_free:
            return path
        home = await _resolve(env, env.workdir)
        real = await _resolve(env, path)
        given = _split(posixpath.normpath(posixpath.join(env.workdir, path)))
        if (reason := self._refusal(real, home, env.workdir, given)) is not None:
            leads = "" if real == given else f", which leads to {_join(real)!r},"
            raise ToolError(f"The path {path!r}{leads} is not allowed: {reason}. Use another path.")
        return _join(real)

    async def filter(self, env: RunEnv, folder: str) -> Callable[[str], bool]:
        """Return what says of paths relative to a folder, without links in them, whether they are allowed.

        Args:
            env: where it is.
            folder: an allowed folder, as `check` returned it.
        """
        if self.is_free:
            return lambda _: True
        workdir, home, base = env.workdir, await _resolve(env, env.workdir), await _resolve(env, folder)

        def is_allowed(path: str) -> bool:
            real = (*base, *_split(path))
            return self._refusal(real, home, workdir, real) is None

        return is_allowed

    async def excluded(self, env: RunEnv, folder: str) -> list[str]:
        """Return what is denied below a folder as patterns of `Searches`, so that it is not even looked into.

        Args:
            env: where it is.
            folder: an allowed folder, as `check` returned it, from which a search begins: all below it is allowed,
                but for what is denied.

        Returns:
            Patterns relative to the folder. Above the workdir they may say less than `filter` does.
        """
        if not self._deny:
            return []
        names = _Names(await _resolve(env, folder), await _resolve(env, env.workdir), env.workdir)
        return [glob for pattern in self._deny for glob in pattern.globs(names)]

    def _refusal(self, real: _Path, home: _Path, workdir: str, given: _Path) -> str | None:
        """Say why a path is refused, or None. `given` is another name of it, to which only `deny` listens."""
        names = _Names(real, home, workdir)
        others = _Names(given, home, workdir)
        for pattern in self._deny:
            if pattern.fits(names) or pattern.fits(others):
                return f"it is one of {pattern.text!r}, which is denied"
        if self.allow is None or any(pattern.fits(names) for pattern in self._allow):
            return None
        return f"only {_listed(self._allow) or 'nothing'} is allowed"


class _Names:
    """What one place is called: absolutely, through the workdir's own name too, from the workdir; the ways there."""

    def __init__(self, path: _Path, home: _Path, workdir: str) -> None:
        named = _split(workdir)
        base = next((base for base in (home, named) if path[: len(base)] == base), None)
        self.inner = None if base is None else path[len(base) :]
        self.absolute = {path} if self.inner is None else {path, (*named, *self.inner)}
        self.components = path if self.inner is None else self.inner
        self.ways = {base[len(path) :] for base in (home, named) if self.inner is None and base[: len(path)] == path}


class _Pattern:
    """One pattern, by its names."""

    def __init__(self, text: str) -> None:
        names = _split(text)
        if not text or ".." in names:
            raise ConfigError(f"the path pattern {text!r} is empty or has '..' in it, and could not fit any path")
        self.text = text
        self._is_absolute = text.startswith("/")
        self._is_name = len(names) == 1 and "/" not in text.rstrip("/")
        self._texts = names
        self._names = [None if name == "**" and not self._is_name else _name(name) for name in names]

    def fits(self, names: _Names) -> bool:
        """Say whether a place or a folder above it is meant."""
        if self._is_name:
            wanted = self._names[0]
            return any(wanted is not None and wanted(name) for name in names.components)
        if self._is_absolute:
            return any(_begins(path, self._names) for path in names.absolute)
        return names.inner is not None and _begins(names.inner, self._names)

    def globs(self, names: _Names) -> list[str]:
        """Return the patterns, relative to a folder that it does not fit, of what this one fits below it."""
        if self._is_name:
            wanted = self._names[0]
            is_exact = wanted is not None and not any(wanted(name) for way in names.ways for name in way)
            return [_glob(self._texts[0])] if is_exact else []
        if self._is_absolute:
            places = names.absolute
        elif names.inner is not None:
            places = {names.inner}
        else:
            return ["/" + "/".join((*map(_literal, way), *map(_glob, self._texts))) for way in sorted(names.ways)]
        rests = {state for place in places for state in list(_passed(place, self._names))[-1]}
        return ["/" + "/".join(map(_glob, self._texts[state:])) for state in sorted(rests)]


def _listed(patterns: Iterable[_Pattern]) -> str:
    return ", ".join(pattern.text for pattern in patterns)


def _name(pattern: str) -> Callable[[str], object]:
    return re.compile(fnmatch.translate(pattern)).match


def _literal(name: str) -> str:
    return re.sub(r"([*?\[\\])", r"\\\1", name)


def _glob(name: str) -> str:
    """Return a pattern for one name as a search takes it: there a backslash escapes, and two stars cross folders."""
    return name if name == "**" else re.sub(r"\*{2,}", "*", name.replace("\\", "\\\\"))


def _begins(path: _Path, pattern: Sequence[Callable[[str], object] | None]) -> bool:
    """Say whether a pattern fits a path or the beginning of one."""
    return any(len(pattern) in states for states in _passed(path, pattern))


def _passed(path: _Path, pattern: Sequence[Callable[[str], object] | None]) -> Iterator[set[int]]:
    """Yield, before and after each name of a path, which parts of a pattern may come next.

    Each name is compared with each part once.
    """
    states = {0}
    for name in (*path, None):
        for state in range(len(pattern)):
            if state in states and pattern[state] is None:  # `**` may stand for nothing
                states.add(state + 1)
        yield states
        if name is not None:
            states = {
                state if wanted is None else state + 1
                for state in states
                if state < len(pattern) and ((wanted := pattern[state]) is None or wanted(name))
            }


async def real_path(env: RunEnv, path: str) -> str:
    """Return the one absolute path by which a file is known, whatever links lead to it.

    Each component costs a question to the env, but for those of the workdir, which is called as the env calls it.

    Args:
        env: where it is.
        path: as it is passed to the env; it need not exist.

    Raises:
        ToolError: it leads through too many links or components.
    """
    workdir = _split(env.workdir)
    real = await _resolve(env, path, start=workdir)
    if real[: len(workdir)] != workdir:
        home = await _resolve(env, env.workdir)
        if real[: len(home)] == home:
            real = (*workdir, *real[len(home) :])
    return _join(real)


async def _resolve(env: RunEnv, path: str, *, start: _Path = ()) -> _Path:
    """Return where a path leads. What is not there, or may not be looked at, counts as it is called.

    Args:
        env: where it is.
        path: relative to the workdir, or absolute.
        start: a folder that is not looked at where the path begins with it.

    Raises:
        ToolError: it has too many links or components.
    """
    names = _split(posixpath.join(env.workdir, path))
    done = list(start) if names[: len(start)] == start else []
    waiting = list(reversed(names[len(done) :]))
    links = looked_at = 0
    while waiting:
        name = waiting.pop()
        if name == "..":
            del done[-1:]
            continue
        looked_at += 1
        target = await _target(env, _join((*done, name)))
        if target is None:
            done.append(name)
        else:
            links += 1
            if target.startswith("/"):
                done.clear()
            waiting.extend(reversed(_split(target)))
        if links > MAX_LINKS or looked_at > MAX_COMPONENTS:
            raise ToolError(f"The path {path!r} leads through too many links or folders. Use another path.")
    return tuple(done)


async def _target(env: RunEnv, path: str) -> str | None:
    """Return where a link points, or None for anything else."""
    try:
        return (await env.stat(path, follow_symlinks=False)).target or None
    except OSError:
        return None


def _split(path: str) -> _Path:
    return tuple(name for name in path.split("/") if name not in {"", "."})


def _join(path: Sequence[str]) -> str:
    return "/" + "/".join(path)
