"""The tools `grep` and `glob`: lines and files found in the env by itself, for an env that offers `Searches`.

What is found is shown as `path:line: text`, in the order of files, with paths that other tools take as they are. An
answer is bounded in characters, since it is never offloaded, and says what was skipped, why it ended, and how to get at
the rest. Folders of tools that hold what nobody looks for are left out unless they are named or asked for.
"""

from __future__ import annotations

import errno
import os
import posixpath
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

from pydantic import Field

from runenv.env import Searches
from runenv.errors import ConfigError, ToolError
from runenv.tools.schema import Arguments, EnvPath, Glob, Globs
from runenv.tools.text import visible
from runenv.tools.tool import make_tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from runenv.tools.tool import Context, Tool
    from runenv.types import FoundFile, GlobResult, GrepLine, GrepResult

__all__ = ("make_glob", "make_grep", "shown_path")

EXCLUDED: Final = (".git", "node_modules", "__pycache__", ".venv")
"""Folders that are not searched unless the model names one or asks for everything."""
MAX_CHARS: Final = 30_000
"""Characters of what was found in one answer; as many as of a command's output."""
MAX_CONTEXT_CHARS: Final = 300
"""Characters of a line that is only there for context."""
MAX_LIMIT: Final = 1000
MAX_ALTERNATIVES: Final = 16
"""Patterns that the braces of one may stand for."""


class GrepArguments(Arguments):
    """What `grep` takes."""

    pattern: str
    """What to find in a line: a regular expression without lookaround and back references, or a text if `literal`."""
    path: EnvPath = "."
    """File, or folder to search with all below it."""
    literal: bool = False
    """The pattern is the text itself, nothing in it is special."""
    ignore_case: bool = False
    """Match letters in both cases."""
    include: Globs = ()
    """Search only files that fit one of these globs, such as `*.py` or `src/**/*.ts`; relative to `path`."""
    exclude: Globs = ()
    """Leave out files and folders that fit one of these globs."""
    context: Annotated[int, Field(ge=0, le=20)] = 0
    """Lines to show before and after each match."""
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = 100
    """Matching lines (with `files_only`: files) after which the search ends."""
    files_only: bool = False
    """Show only which files match."""
    everything: bool = False
    """Search .git, node_modules, __pycache__ and .venv too."""


class GlobArguments(Arguments):
    """What `glob` takes."""

    pattern: Glob
    """Glob for file names: `*.py` at any depth, `src/**/*.py` from `path` on. `*` and `?` stay within a name."""
    path: EnvPath = "."
    """Folder to look in."""
    exclude: Globs = ()
    """Leave out files and folders that fit one of these globs."""
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = 200
    """Files to show, the newest first."""
    everything: bool = False
    """Look into .git, node_modules, __pycache__ and .venv too."""


def make_grep(context: Context) -> Tool:
    """Make the tool that finds lines.

    Raises:
        ConfigError: the env does not search.
    """
    env = _searching(context)

    async def run(given: GrepArguments) -> str:
        base = posixpath.normpath(posixpath.join(context.env.workdir, given.path))
        include = [one for pattern in given.include for one in _alternatives(pattern, base)]
        exclude = [one for pattern in given.exclude for one in _alternatives(pattern, base)]
        excluded = _excluded(given.path, (*include, *exclude), everything=given.everything)
        path = await context.path(given.path)
        info = await context.env.stat(path)
        if not info.is_dir and not info.is_file:
            raise ToolError(f"{given.path!r} is neither a file nor a folder. Give another path.")
        never = await context.paths.excluded(context.env, path) if info.is_dir else []
        try:
            found = await env.grep(
                given.pattern,
                path,
                literal=given.literal,
                ignore_case=given.ignore_case,
                include=include,
                exclude=[*exclude, *excluded, *never],
                context=0 if given.files_only else given.context,
                max_matches=given.limit,
                files_only=given.files_only,
            )
        except ConfigError:
            raise
        except ValueError as error:
            raise ToolError(_refused(error, literal=given.literal)) from error
        if info.is_dir:
            found = _allowed(found, await context.paths.filter(context.env, path))
        return _Found(given, found, info.is_dir, excluded).text()

    description = (
        "Find lines in text files of the sandbox. Answers with `path:line: text`, and `path-line- text` for context, "
        f"in the order of names. Hidden files are searched; {', '.join(EXCLUDED)} are not, unless `path` or a glob"
        " names them or `everything` is true. Binary files are skipped. A pattern cannot span lines."
    )
    return make_tool(context, "grep", description, GrepArguments, run)


def make_glob(context: Context) -> Tool:
    """Make the tool that finds files.

    Raises:
        ConfigError: the env does not search.
    """
    env = _searching(context)

    async def run(given: GlobArguments) -> str:
        folder, pattern = _anchored(given.path, given.pattern, context.env.workdir)
        base = posixpath.normpath(posixpath.join(context.env.workdir, folder))
        patterns = _alternatives(pattern, base)
        exclude = [one for text in given.exclude for one in _alternatives(text, base)]
        excluded = _excluded(folder, (*patterns, *exclude), everything=given.everything)
        path = await context.path(folder)
        if not (await context.env.stat(path)).is_dir:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)
        exclude += [*excluded, *await context.paths.excluded(context.env, path)]
        try:
            results = [await env.glob(one, path, exclude=exclude, max_files=given.limit) for one in patterns]
        except ConfigError:
            raise
        except ValueError as error:
            raise ToolError(f"{_sentence(error)} Give a glob such as '*.py' or 'src/**/*.py'.") from error
        is_allowed = await context.paths.filter(context.env, path)
        return _files_text(given, folder, results, is_allowed, excluded)

    listing = context.hint("file_list", "For the folders in a folder use file_list.")
    description = (
        "Find files of the sandbox by name, the newest first. Links are not followed, folders are not listed."
        f"{listing} {', '.join(EXCLUDED)} are left out, unless `path` or the pattern names them or `everything` is"
        " true."
    )
    return make_tool(context, "glob", description, GlobArguments, run)


def shown_path(path: str) -> str:
    """Return a path for one line of an answer: as it is, or quoted with escapes when it would not stay on the line."""
    return path if path.isprintable() else repr(path)


def _searching(context: Context) -> Searches:
    if not isinstance(context.env, Searches):
        raise ConfigError(f"an env of kind {context.env.kind!r} does not search: leave out grep and glob")
    return context.env


def _excluded(path: str, patterns: Sequence[str], *, everything: bool) -> list[str]:
    """Return the patterns of the folders that are left out, without those that the model names."""
    named = {name for text in (path, *patterns) for name in text.split("/")}
    return [] if everything else [f"{name}/" for name in EXCLUDED if name not in named]


def _alternatives(pattern: str, base: str) -> list[str]:
    """Write out `{a,b}`, which the env's own patterns do not have, and take away a `./` or the folder's own path.

    Args:
        pattern: as the model wrote it.
        base: absolute path of the folder that is searched.

    Raises:
        ToolError: it stands for too many, or for one that fits nothing.
    """
    if pattern.startswith(f"{base.rstrip('/')}/"):
        pattern = pattern[len(base.rstrip("/")) :]
    texts, done = [pattern.removeprefix("./")], list[str]()
    while texts:
        text = texts.pop()
        end = text.find("}")
        begin = text.rfind("{", 0, end) if end >= 0 else -1
        if begin < 0 or "," not in text[begin:end]:
            done.append(text)
        else:
            texts += [text[:begin] + one + text[end + 1 :] for one in reversed(text[begin + 1 : end].split(","))]
        if len(texts) + len(done) > MAX_ALTERNATIVES:
            raise ToolError(f"The braces of {pattern!r} stand for more than {MAX_ALTERNATIVES} globs. Give fewer.")
    if any({"", ".", ".."} & set(text.removeprefix("/").removesuffix("/").split("/")) for text in done):
        raise ToolError(f"The glob {pattern!r} can match nothing. Give one such as '*.py' or 'src/**/*.py'.")
    return list(dict.fromkeys(done))


def _anchored(path: str, pattern: str, workdir: str) -> tuple[str, str]:
    """Take the folders at the start of an absolute glob as the folder to look in."""
    if not pattern.startswith("/") or path not in {".", "./", workdir, "/"}:
        return path, pattern
    names = pattern.split("/")
    special = next((at for at, name in enumerate(names) if set("*?[{\\") & set(name)), len(names) - 1)
    return "/".join(names[:special]) or "/", "/" + "/".join(names[special:])


def _refused(error: ValueError, *, literal: bool) -> str:
    hint = "" if literal else " To find a text as it is, set literal to true."
    return f"{_sentence(error)}{hint}"


def _sentence(error: ValueError) -> str:
    text = str(error)
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _allowed(found: GrepResult, is_allowed: Callable[[str], bool]) -> GrepResult:
    """Return what may be shown of a result, as if nothing else were there."""
    verdicts = {path: is_allowed(path) for path in {*found.files, *(line.path for line in found.lines)}}
    files = tuple(path for path in found.files if verdicts[path])
    return replace(found, files=files, lines=tuple(line for line in found.lines if verdicts[line.path]))


class _Shown(NamedTuple):
    """Lines of an answer, and how many of the matches they show."""

    lines: list[str]
    matches: int


class _Found:
    """What a search found, as a text."""

    def __init__(
        self,
        given: GrepArguments,
        found: GrepResult,
        is_dir: bool,  # noqa: FBT001 - what was searched
        excluded: Sequence[str],
    ) -> None:
        self._given = given
        self._found = found
        self._is_dir = is_dir
        self._excluded = excluded

    def text(self) -> str:
        """Return all of it."""
        found = self._found
        count = len(found.files) if self._given.files_only else sum(line.is_match for line in found.lines)
        shown = _fitting(self._file_lines() if self._given.files_only else self._grep_lines())
        return "\n".join([self._head(count), *shown.lines, *self._notes(count, shown.matches)])

    def _path(self, path: str) -> str:
        """Return a path of the result as other tools take it; one file is called as the model called it."""
        return shown_path(_joined(self._given.path, path) if self._is_dir else self._given.path)

    def _head(self, count: int) -> str:
        where = f"in {_where(self._given.path)}"
        what = _cut(repr(self._given.pattern), 200)
        if not count:
            return f"No match of {what} {where}{'' if self._found.complete else ' so far'}."
        files = _count(len(self._found.files), "file")
        least = "" if self._found.complete else "At least "
        if self._given.files_only:
            return f"{least}{files} with a match of {what} {where}:"
        lines = f"{count:,} matching line{'' if count == 1 else 's'}"
        return f"{least}{lines} in {files}, for {what} {where}:"

    def _file_lines(self) -> Iterator[tuple[str, bool]]:
        for path in self._found.files:
            yield self._path(path), True

    def _grep_lines(self) -> Iterator[tuple[str, bool]]:
        """Yield lines, and whether each is a match; files and pieces of a file are set apart."""
        before: GrepLine | None = None
        for line in self._found.lines:
            if before is not None and line.path != before.path:
                yield "", False
            elif before is not None and self._given.context and line.number != before.number + 1:
                yield "--", False
            path = self._path(line.path)
            text = visible(line.text.removesuffix("\r"))
            text = text if line.is_match else _cut(text, MAX_CONTEXT_CHARS)
            start = f"[... {line.omitted_before:,} bytes] " if line.omitted_before else ""
            end = f" [{line.omitted_after:,} bytes ...]" if line.omitted_after else ""
            mark = (":", ": ") if line.is_match else ("-", "- ")
            yield f"{path}{mark[0]}{line.number}{mark[1]}{start}{text}{end}", line.is_match
            before = line

    def _notes(self, count: int, shown: int) -> list[str]:
        """Say what is missing, and how to get it."""
        given, found = self._given, self._found
        unit = "files" if given.files_only else "matching lines"
        narrower = "a narrower path, include or pattern" + ("" if given.files_only else ", or files_only")
        notes: list[str] = []
        if shown < count:
            notes.append(f"Only the first {shown:,} {unit} are shown, which is what an answer holds. Use {narrower}.")
        elif found.timed_out:
            notes.append(f"The search ended at its deadline, so there may be more. Use {narrower}.")
        elif not found.complete:
            more = f", or a larger limit (at most {MAX_LIMIT:,})" if given.limit < MAX_LIMIT else ""
            notes.append(f"The search ended at its limit, so there may be more. Use {narrower}{more}.")
        return [*notes, *self._skipped(count)]

    def _skipped(self, count: int) -> list[str]:
        found = self._found
        skipped = [_count(found.binary, "binary file")] if found.binary else []
        skipped += [f"{found.unreadable:,} unreadable"] if found.unreadable else []
        skipped += [" ".join(self._excluded)] if self._excluded and (not count or skipped) else []
        if not skipped and count:
            return []
        searched = f"Searched {_count(found.searched, 'text file')}"
        hint = ""
        if not count and not self._given.literal and set("()[]{}*+?|\\^$") & set(self._given.pattern):
            hint = " If you mean the text itself, set literal to true."
        return [f"{searched}{'; skipped: ' + ', '.join(skipped) if skipped else ''}.{hint}"]


def _files_text(
    given: GlobArguments,
    folder: str,
    results: Sequence[GlobResult],
    is_allowed: Callable[[str], bool],
    excluded: Sequence[str],
) -> str:
    """Say which files were found; those that are not allowed are as if they were not there."""
    by_path: dict[str, FoundFile] = {file.path: file for result in results for file in result.files}
    files = sorted(by_path.values(), key=lambda file: file.mtime, reverse=True)
    count = results[0].count if len(results) == 1 else max(len(files), *(result.count for result in results))
    denied = [file for file in files if not is_allowed(file.path)]
    files = [file for file in files if file not in denied]
    count -= len(denied)
    shown = _fitting((shown_path(_joined(folder, file.path)), True) for file in files[: given.limit])
    where = f"{_cut(repr(given.pattern), 200)} in {_where(folder)}"
    skipped = f" Not looked into: {' '.join(excluded)}." if excluded else ""
    if any(result.timed_out for result in results):
        return f"The search for {where} ended at its deadline without a result. Use a narrower path.{skipped}"
    if not files:
        return f"No file fits {where}.{skipped}"
    notes: list[str] = []
    if shown.matches < count:
        more = f" or a larger limit (at most {MAX_LIMIT:,})" if given.limit < MAX_LIMIT else ""
        notes.append(f"Only the newest {shown.matches:,} are shown. Use a narrower path or pattern{more}.")
    return "\n".join([f"{_count(count, 'file')} for {where}, the newest first:", *shown.lines, *notes])


def _fitting(lines: Iterator[tuple[str, bool]]) -> _Shown:
    """Take lines as long as there is room for them."""
    taken, matches, room = list[str](), 0, MAX_CHARS
    for text, is_match in lines:
        room -= len(text) + 1
        if room < 0:
            break
        taken.append(text)
        matches += is_match
    while taken and taken[-1] in {"", "--"}:
        taken.pop()
    return _Shown(taken, matches)


def _where(path: str) -> str:
    return "the working folder" if path in {".", "./"} else shown_path(path)


def _joined(folder: str, path: str) -> str:
    return path if folder in {"", ".", "./"} else posixpath.join(folder, path)


def _cut(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[:chars]}..."


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
