"""What may be the name of an artifact or the id of a scope, and how either is written into a key. Pure.

A name is a relative path of one or more segments, since people save `charts/q3.png`; what could mean another place, on
this system or on the one where the artifact is saved in the end, is refused. Ids are single segments under the same
rule. Nothing is changed on the way: a name comes back as it was given.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final
from urllib.parse import quote

from runenv.errors import HandleError

__all__ = ("USER_PREFIX", "check_id", "check_name", "encode", "encoded_start", "split_user")

USER_PREFIX: Final = "user:"
"""At the start of a name: the artifact is the user's, whatever run or session saves it."""
MAX_SEGMENT_BYTES: Final = 255
"""Bounds one segment of a name, and an id: what file systems take."""
MAX_NAME_BYTES: Final = 512
"""Bounds a whole name in UTF-8."""
MAX_ENCODED: Final = 200
"""Characters of a name or an id in a key; keys of object storage have 1,024 bytes at most, its prefix included."""
_KEPT_ENCODED: Final = 130
"""What is left of one that is longer, before its hash."""

_DRIVE: Final = re.compile(r"[A-Za-z]:")
_RESERVED: Final = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])\s*(\..*)?", re.IGNORECASE | re.DOTALL)
"""Devices of Windows, with any extension."""
_FORBIDDEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters and line breaks; what makes a name look like another one, such as `gpj.exe` like `exe.jpg`; and
halves of surrogate pairs, which UTF-8 has no place for."""


def check_name(name: str) -> str:
    """Return a name that may be one, without the `user:` prefix.

    Raises:
        HandleError: it may not; the message says why.
    """
    _check(name, "name")
    if len(name.encode()) > MAX_NAME_BYTES:
        raise HandleError(f"the name {_shown(name)} is too long: {MAX_NAME_BYTES} bytes at most")
    if name.startswith(USER_PREFIX):
        raise HandleError(f"the name {_shown(name)} starts with {USER_PREFIX!r} twice")
    if name.startswith("/"):
        raise HandleError(f"the name {_shown(name)} is absolute: give a relative one")
    for segment in name.split("/"):
        _check_segment(segment, name, "name")
    return name


def check_id(value: str, what: str) -> str:
    """Return an id of a run, session or user that may be one.

    Raises:
        HandleError: it may not; the message says why.
    """
    _check(value, f"id of a {what}")
    if "/" in value:
        raise HandleError(f"the id of a {what} {_shown(value)} has a slash in it: an id is a single segment")
    _check_segment(value, value, f"id of a {what}")
    return value


def split_user(name: str) -> tuple[str, bool]:
    """Return a name without its `user:` prefix, and whether it had one."""
    return (name.removeprefix(USER_PREFIX), True) if name.startswith(USER_PREFIX) else (name, False)


def encode(text: str) -> str:
    """Return a name or an id as one segment of a key: letters, digits, `_`, `-`, `.` and `=`, and bounded.

    Two texts never share a segment; those with the same beginning keep it, so that keys list by name. `=` is the
    escape: obstore escapes `%` and `~` once more.
    """
    escaped = _escape(text)
    if len(escaped) <= MAX_ENCODED:
        return escaped
    return f"{escaped[:_KEPT_ENCODED]}=={hashlib.sha256(text.encode()).hexdigest()}"


def encoded_start(prefix: str) -> str:
    """Return how the segments of all texts with a prefix begin."""
    return _escape(prefix)[:_KEPT_ENCODED]


def _escape(text: str) -> str:
    escaped = quote(text, safe="").replace("~", "%7E").replace("%", "=")
    return f"=2E{escaped[1:]}" if escaped.startswith(".") else escaped  # `.` and `..` are no segments


def _check(text: object, what: str) -> None:
    if not isinstance(text, str):
        raise HandleError(f"the {what} {_shown(repr(text))} is no text")
    if not text:
        raise HandleError(f"the {what} is empty")
    if (found := _FORBIDDEN.search(text)) is not None:
        raise HandleError(f"the {what} {_shown(text)} has the character {found[0]!a} in it, which no {what} may have")
    if "\\" in text:
        raise HandleError(f"the {what} {_shown(text)} has a backslash in it: separate with '/'")


def _check_segment(segment: str, whole: str, what: str) -> None:
    shown = f"the {what} {_shown(whole)}"
    if segment in {"", ".", ".."}:
        raise HandleError(f"{shown} has an empty segment, '.' or '..' in it")
    if _DRIVE.match(segment):
        raise HandleError(f"{shown} has a drive in it")
    if len(segment.encode()) > MAX_SEGMENT_BYTES:
        raise HandleError(f"{shown} is too long: {MAX_SEGMENT_BYTES} bytes at most between slashes")
    if _RESERVED.fullmatch(segment):
        raise HandleError(f"{shown} is the name of a device on Windows")
    if segment[0] == " " or segment[-1] in " .":
        raise HandleError(f"{shown} has a blank at an end, or ends with a dot")


def _shown(text: str) -> str:
    """Return a text for a message, cut."""
    return repr(text if len(text) <= 80 else f"{text[:77]}...")  # noqa: PLR2004
