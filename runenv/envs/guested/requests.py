"""What callers ask for, checked and put into the fields of a CALL. Pure; used by `env.py`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from runenv.envs.transfer.globs import matcher
from runenv.guest.frames import Flag, Tag

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runenv.types import Command

__all__ = ("MAX_KEPT_BYTES", "MIN_KEPT_BYTES", "Request", "exec_request", "path_bytes", "pattern_fields")

Request: TypeAlias = "list[tuple[Tag, int | bytes]]"

MIN_KEPT_BYTES: Final = 1024
MAX_KEPT_BYTES: Final = 64 * 1024 * 1024
"""Bounds of `max_output_bytes`: what the host may hold of one stream of one command."""
_MAX_TIMEOUT_MS: Final = 10**12
"""About 30 years: longer deadlines are the same, and stay far from the end of the guest's 64-bit clock."""


def path_bytes(path: str) -> bytes:
    """Return a path of the env as the guest takes it.

    Raises:
        ValueError: it is empty, no string, or holds a NUL.
    """
    if path == "":
        raise ValueError("a path in an env cannot be empty; '.' is the workdir")
    return _text(path, "path")


def pattern_fields(include: Sequence[str], exclude: Sequence[str]) -> Request:
    """Return the fields for include and exclude patterns.

    Raises:
        ValueError: one is no string or can match nothing, or they are one string and not a list.
    """
    fields: Request = []
    for tag, what, patterns in ((Tag.INCLUDE, "include", include), (Tag.EXCLUDE, "exclude", exclude)):
        if isinstance(patterns, str):
            raise ValueError(f"{what} takes a list of patterns, not the string {patterns!r}")  # noqa: TRY004 - the protocol says ValueError
        fields += [(tag, _text(pattern, what)) for pattern in patterns]
    matcher(include, exclude)  # says what is wrong with a pattern
    return fields


def exec_request(
    command: Command,
    *,
    cwd: str | None,
    env: Mapping[str, str] | None,
    has_stdin: bool,
    timeout: float | None,
    keep_bytes: int,
    spill_at_bytes: int,
) -> Request:
    """Return the fields of an EXEC.

    Raises:
        ValueError: an argument is not of its form.
    """
    fields = _command(command)
    if cwd is not None:
        fields.append((Tag.CWD, path_bytes(cwd)))
    if env:
        fields += [(Tag.ENV, variable(name, value)) for name, value in env.items()]
    if timeout is not None:
        fields.append((Tag.TIMEOUT_MS, _milliseconds(timeout)))
    if not MIN_KEPT_BYTES <= keep_bytes <= MAX_KEPT_BYTES:
        raise ValueError(
            f"max_output_bytes must be from {MIN_KEPT_BYTES:,} to {MAX_KEPT_BYTES:,} bytes, not {keep_bytes!r}"
        )
    fields += [(Tag.KEEP, int(keep_bytes)), (Tag.SPILL_AT, int(spill_at_bytes))]
    if has_stdin:
        fields.append((Tag.FLAGS, Flag.HAS_STDIN))
    return fields


def variable(name: str, value: str) -> bytes:
    """Return an environment variable as the guest takes it.

    Raises:
        ValueError: the name is empty or holds "=", one of them holds a NUL or is no string.
    """
    encoded = _text(name, "name of an environment variable")
    if not encoded or b"=" in encoded:
        raise ValueError(f"{name!r} cannot be the name of an environment variable")
    return b"%b=%b" % (encoded, _text(value, f"value of the environment variable {name!r}"))


# What follows takes objects: callers without a type checker get the same clear words.


def _milliseconds(timeout: object) -> int:
    if not isinstance(timeout, (int, float)) or not math.isfinite(timeout) or timeout <= 0:
        raise ValueError(f"timeout must be a positive number of seconds or None, not {timeout!r}")
    return max(1, round(min(timeout, _MAX_TIMEOUT_MS / 1000) * 1000))


def _command(command: object) -> Request:
    if isinstance(command, str):
        return [(Tag.SHELL, _text(command, "command"))]
    if not isinstance(command, Sequence) or isinstance(command, (bytes, bytearray, memoryview)) or not command:
        raise ValueError(f"a command is a string for the shell or a list of arguments, not {command!r}")
    return [(Tag.ARG, _text(item, "argument of a command", or_bytes=True)) for item in command]


def _text(value: object, what: str, *, or_bytes: bool = False) -> bytes:
    if isinstance(value, str):
        encoded = value.encode("utf-8", "surrogateescape")
    elif or_bytes and isinstance(value, bytes):
        encoded = value
    else:
        raise ValueError(f"the {what} must be a string, not {value!r}")
    if b"\0" in encoded:
        raise ValueError(f"the {what} cannot hold a NUL character: {value!r:.200}")
    return encoded
