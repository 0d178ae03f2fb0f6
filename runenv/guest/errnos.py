"""ERROR frames as exceptions: Linux numbers from the guest become the host's builtin file errors.

The guest always runs on Linux, the host need not: error numbers differ between systems, their names do not, so each
number is taken by its name. Above it is `call.py`; it knows frames and the package's errors.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final

from runenv.errors import LimitError
from runenv.guest.frames import FrameError, Tag, Verb

if TYPE_CHECKING:
    from runenv.guest.frames import Fields

__all__ = ("failure", "plain", "system_error")

_NAMES: Final = {
    1: "EPERM", 2: "ENOENT", 3: "ESRCH", 4: "EINTR", 5: "EIO", 6: "ENXIO", 7: "E2BIG", 8: "ENOEXEC", 9: "EBADF",
    10: "ECHILD", 11: "EAGAIN", 12: "ENOMEM", 13: "EACCES", 14: "EFAULT", 15: "ENOTBLK", 16: "EBUSY", 17: "EEXIST",
    18: "EXDEV", 19: "ENODEV", 20: "ENOTDIR", 21: "EISDIR", 22: "EINVAL", 23: "ENFILE", 24: "EMFILE", 25: "ENOTTY",
    26: "ETXTBSY", 27: "EFBIG", 28: "ENOSPC", 29: "ESPIPE", 30: "EROFS", 31: "EMLINK", 32: "EPIPE", 33: "EDOM",
    34: "ERANGE", 35: "EDEADLK", 36: "ENAMETOOLONG", 37: "ENOLCK", 38: "ENOSYS", 39: "ENOTEMPTY", 40: "ELOOP",
    61: "ENODATA", 71: "EPROTO", 74: "EBADMSG", 75: "EOVERFLOW", 84: "EILSEQ", 88: "ENOTSOCK", 95: "EOPNOTSUPP",
    103: "ECONNABORTED", 104: "ECONNRESET", 105: "ENOBUFS", 107: "ENOTCONN", 110: "ETIMEDOUT", 111: "ECONNREFUSED",
    116: "ESTALE", 122: "EDQUOT", 123: "ENOMEDIUM", 125: "ECANCELED", 130: "EOWNERDEAD",
}  # fmt: skip

_LIMITS: Final = {Verb.EXEC: 7, Verb.GET: 27, Verb.LIST: 27}
"""What a verb answers, as a Linux number, when more was asked of it than the caller or the kernel allows."""

_MAX_MESSAGE: Final = 300
"""Characters kept of a text that the guest sent."""
_MAX_PATH_BYTES: Final = 4096
"""Linux paths are not longer."""


def plain(text: bytes) -> str:
    """Return a guest's text as one bounded line of printable characters."""
    line = " ".join(text[: 4 * _MAX_MESSAGE].decode("utf-8", "replace").split())
    return "".join(char for char in line if char.isprintable())[:_MAX_MESSAGE]


def failure(verb: Verb, fields: Fields) -> OSError | LimitError:
    """Return what an ERROR frame means.

    Raises:
        FrameError: it has no valid error number.
    """
    error = system_error(fields)
    if _LIMITS.get(verb) == fields[Tag.ERRNO]:
        return LimitError(f"{error.filename!r}: {error.strerror}" if error.filename else error.strerror)
    return error


def system_error(fields: Fields) -> OSError:
    """Return what the system of the guest answered it, with the error number of this one.

    Raises:
        FrameError: there is no valid error number.
    """
    number = fields.get(Tag.ERRNO)
    if not isinstance(number, int) or not 0 < number < 4096:  # noqa: PLR2004 - the kernel's own bound, MAX_ERRNO
        raise FrameError("an error without its number")
    name = _NAMES.get(number)
    host_number = getattr(errno, name, errno.EIO) if name else errno.EIO
    message = _text(fields, Tag.MESSAGE) or (os.strerror(host_number) if name else f"Linux error {number}")
    return OSError(host_number, message, _path(fields, Tag.PATH), None, _path(fields, Tag.TARGET))


def _text(fields: Fields, tag: Tag) -> str:
    value = fields.get(tag)
    return plain(value) if isinstance(value, bytes) else ""


def _path(fields: Fields, tag: Tag) -> str | None:
    value = fields.get(tag)
    if not isinstance(value, bytes) or not 0 < len(value) <= _MAX_PATH_BYTES:
        return None
    return value.decode("utf-8", "surrogateescape")
