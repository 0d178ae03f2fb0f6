"""The frozen values that cross layers: what a command gave, what a file is, what a transfer did, what a model is shown.

Standard library only. Made by `runenv.envs`, `runenv.artifacts` and `runenv.tools`; read by providers, adapters and
users.
"""

from __future__ import annotations

import enum
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = (
    "DEFAULT",
    "BadCall",
    "Command",
    "Default",
    "ExecResult",
    "FileInfo",
    "FilePart",
    "FoundFile",
    "GlobResult",
    "GrepLine",
    "GrepResult",
    "ImagePart",
    "Output",
    "Part",
    "Progress",
    "Refused",
    "TextPart",
    "ToolCall",
    "ToolDefinition",
    "ToolResult",
    "TransferResult",
)

Command: TypeAlias = "str | Sequence[str | bytes]"
"""A string for the env's shell, or a list that is run as it is: argv, no shell, no quoting."""

Progress: TypeAlias = "Callable[[int, int | None], None]"
"""Called as `progress(done_bytes, total_bytes)` during a transfer; the total is None while it is unknown."""


class Default(enum.Enum):
    """The type of `DEFAULT`, for arguments whose None means something else."""

    DEFAULT = "default"


DEFAULT: Final = Default.DEFAULT
"""As an argument: what the env's configuration says."""


@dataclass(frozen=True, slots=True)
class Output:
    """One stream of a finished command: bounded, marked where it was cut, and counted.

    Attributes:
        data: the bytes that crossed the link: all of them, or the first and the last part.
        text: the view for a model: decoded as UTF-8 with replacement, terminal codes applied, cut in the middle
            with a marker at the cut.
        truncated: `text` leaves something out.
        total_bytes: what the command wrote.
        omitted_bytes: what `data` lacks of that (0: `data` is the whole stream).
        spill_path: file in the env that holds the stream from its start, or None when `text` is whole.
        spilled_bytes: how much of the stream that file holds; less than `total_bytes` at a quota or a full disk.
    """

    data: bytes = b""
    text: str = ""
    truncated: bool = False
    total_bytes: int = 0
    omitted_bytes: int = 0
    spill_path: str | None = None
    spilled_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ExecResult:
    """What a command did. A failure or a timeout is a result, not an exception.

    Attributes:
        exit_code: the command's own code; None only when the deadline or a signal ended it.
        signal: name of the signal that ended it, such as "SIGKILL", or None.
        stdout: what it wrote to stdout.
        stderr: what it wrote to stderr.
        timed_out: the deadline ended it; everything it had started was killed.
        oom_killed: the kernel's out-of-memory killer took the command or a process of it.
        background: the command ended, and something that it started is still running.
        duration: seconds from start to end, by the monotonic clock beside the command.
    """

    exit_code: int | None
    signal: str | None = None
    stdout: Output = Output()
    stderr: Output = Output()
    timed_out: bool = False
    oom_killed: bool = False
    background: bool = False
    duration: float = 0.0

    @property
    def ok(self) -> bool:
        """The command ended by itself with exit code 0."""
        return self.exit_code == 0


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One entry of the env's file system.

    Attributes:
        path: for `stat` the path as asked for, for `list` the name in the folder. Bytes that are not UTF-8 are
            surrogate escapes, as in `os.fsdecode`, and go back to the env unchanged.
        mode: type and permission bits, as in `os.stat_result.st_mode`.
        size: bytes.
        mtime: seconds since the epoch.
        uid: owner.
        gid: group.
        target: where a symbolic link points, else None.
    """

    path: str
    mode: int
    size: int
    mtime: float
    uid: int
    gid: int
    target: str | None = None

    @property
    def is_file(self) -> bool:
        """A regular file."""
        return stat.S_ISREG(self.mode)

    @property
    def is_dir(self) -> bool:
        """A folder."""
        return stat.S_ISDIR(self.mode)

    @property
    def is_symlink(self) -> bool:
        """A symbolic link (only where links were not followed)."""
        return stat.S_ISLNK(self.mode)


@dataclass(frozen=True, slots=True)
class Refused:
    """An entry of a tree that was not transferred, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class TransferResult:
    """What an upload or a download moved.

    Attributes:
        files: regular files moved.
        bytes: content bytes moved.
        refused: entries left out for safety or because they cannot be transferred; at most the first 1,000.
        refused_count: how many were left out in all.
    """

    files: int
    bytes: int
    refused: tuple[Refused, ...] = ()
    refused_count: int = 0


@dataclass(frozen=True, slots=True)
class GrepLine:
    """One line that a search shows.

    Attributes:
        path: of the file, relative to where the search began, or that path itself if it is a file.
        number: of the line, from 1.
        text: at most 2,000 bytes of the line, decoded as UTF-8 with replacement.
        is_match: the pattern is in it; else it stands near one that matches.
        omitted_before: bytes of the line before `text`.
        omitted_after: bytes of the line after it.
    """

    path: str
    number: int
    text: str
    is_match: bool
    omitted_before: int = 0
    omitted_after: int = 0


@dataclass(frozen=True, slots=True)
class GrepResult:
    """What a search for lines found.

    Attributes:
        lines: in the order of files and lines.
        files: those with a match, in the order of their names, folder by folder.
        searched: text files that were looked through.
        binary: files that were left out because they are binary.
        unreadable: files and folders that could not be read.
        complete: there is no more; else a limit or the deadline ended the search.
        timed_out: it was the deadline.
    """

    lines: tuple[GrepLine, ...]
    files: tuple[str, ...]
    searched: int
    binary: int
    unreadable: int
    complete: bool
    timed_out: bool


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that a search for names found: its path relative to where that began, bytes, seconds since the epoch."""

    path: str
    size: int
    mtime: float


@dataclass(frozen=True, slots=True)
class GlobResult:
    """What a search for names found.

    Attributes:
        files: the newest first, up to the limit.
        count: how many there are, as far as the search came.
        complete: `files` is all of them.
        timed_out: the deadline ended the search; then there are no files.
    """

    files: tuple[FoundFile, ...]
    count: int
    complete: bool
    timed_out: bool


@dataclass(frozen=True, slots=True)
class TextPart:
    """A piece of text for the model."""

    text: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    """An image for the model, as bytes; base64 is made only where a wire needs it.

    Attributes:
        data: the encoded image.
        media_type: what `data` is by its own first bytes: "image/png", "image/jpeg", "image/gif" or "image/webp".
        handle: the artifact that holds the image, or None; what may stand for it when a request has no room.
    """

    data: bytes
    media_type: str
    handle: str | None = None


@dataclass(frozen=True, slots=True)
class FilePart:
    """An artifact that the model is told of, never its bytes.

    Attributes:
        handle: `runenv+file://<uuid>`.
        filename: its name, for people.
        media_type: MIME type.
        size: bytes.
        sha256: of the content, in hexadecimal digits.
    """

    handle: str
    filename: str
    media_type: str
    size: int
    sha256: str


Part: TypeAlias = "TextPart | ImagePart | FilePart"
"""A piece of a tool result or of a message."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool gives to the model.

    Attributes:
        parts: in the order in which the model should see them.
        is_error: the call failed; the parts say what to do instead.
    """

    parts: tuple[Part, ...]
    is_error: bool = False

    @property
    def text(self) -> str:
        """Its text parts, one after the other."""
        return "\n".join(part.text for part in self.parts if isinstance(part, TextPart))


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool as a model is told of it.

    Attributes:
        name: letters, digits, "_" and "-", at most 64 of them (the strictest vendor's rule).
        description: what it does, its limits and what to do next, for the model.
        parameters: JSON schema of its arguments, an object.
    """

    name: str
    description: str
    parameters: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What a model asks for.

    Attributes:
        id: the vendor's name of this call, which the result must repeat; "" where a vendor gives none.
        name: of the tool.
        arguments: as the model wrote them, decoded from JSON but not checked.
    """

    id: str
    name: str
    arguments: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class BadCall(ToolCall):
    """A call whose arguments cannot be read; `arguments` is empty.

    Attributes:
        answer: the result to give for it, which tells the model what was wrong.
    """

    answer: ToolResult
