"""`EngineFault`: what the Docker engine, or the way to it, answered instead of a result; and trying again.

Internal to the envs: whoever calls the engine turns it into an error of ours. Above it is `engine.py`, which makes
faults of the SDK's errors; this file does not import the SDK itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import requests
import tenacity
import urllib3

from runenv.envs.docker.carriers import SshError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ("EngineFault", "attempt", "refusal", "way_fault")

_T = TypeVar("_T")

ATTEMPTS: Final = 4
"""How often a call with a transient fault is made in all."""
_FIRST_PAUSE_SECONDS: Final = 0.05
_LAST_PAUSE_SECONDS: Final = 1.0
_JITTER_SECONDS: Final = 0.1
_TRANSIENT_STATUS: Final = frozenset({429, 502, 503, 504})
_TRANSIENT_TEXTS: Final = (
    "context deadline exceeded",
    "device or resource busy",
    "i/o timeout",
    "tls handshake timeout",
    "connection reset by peer",
    "too many requests",
)
_START: Final = "start Docker, or name another engine in DOCKER_HOST or in the configuration"
_NOT_THERE: Final[dict[type[OSError], str]] = {
    FileNotFoundError: f"nothing is there; {_START}",
    NotADirectoryError: f"nothing is there; {_START}",
    ConnectionRefusedError: f"nobody listens there; {_START}",
    PermissionError: "permission denied; join the group docker, or run this as a user who may use the engine",
}
"""Permanent, as an engine that is not there does not come by waiting: that would only delay the news."""


class EngineFault(Exception):  # noqa: N818 - it is no error of the package: it never leaves the envs
    """No result.

    Attributes:
        status: HTTP status of the engine's refusal; None when there was no answer.
        transient: another try may succeed.
    """

    def __init__(self, text: str, *, status: int | None = None, transient: bool = False) -> None:
        super().__init__(text)
        self.status = status
        self.transient = transient


def attempt(function: Callable[[], _T]) -> _T:
    """Call it, and again after transient faults; pauses, so in a worker thread.

    Raises:
        EngineFault: a permanent fault, or the last transient one.
    """
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(lambda error: isinstance(error, EngineFault) and error.transient),
        stop=tenacity.stop_after_attempt(ATTEMPTS),
        wait=tenacity.wait_exponential(_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS)
        + tenacity.wait_random(0, _JITTER_SECONDS),
        reraise=True,
    )
    return retrying(function)


def refusal(text: str, status: int | None = None) -> EngineFault:
    """Return the fault for an answer of the engine, or of a registry through it."""
    text = " ".join(text.split())
    transient = status in _TRANSIENT_STATUS or any(part in text.lower() for part in _TRANSIENT_TEXTS)
    return EngineFault(text, status=status, transient=transient)


def way_fault(error: Exception) -> EngineFault:
    """Return the fault for an error on the way to the engine: the innermost cause knows what it is."""
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, SshError):
            return EngineFault(f"{cause}; look whether the same ssh with `docker version` works without questions")
        for kind, text in _NOT_THERE.items():
            if isinstance(cause, kind):
                return EngineFault(text)
        if isinstance(cause, (ConnectionResetError, BrokenPipeError)):
            return EngineFault("the connection broke", transient=True)
    # After those: urllib3 calls its error for a refused connection a timeout too.
    if any(isinstance(cause, (TimeoutError, requests.Timeout, urllib3.exceptions.TimeoutError)) for cause in causes):
        text = "no answer in time; look whether the address is right and the engine not hanging"
    else:
        text = f"{' '.join(str(causes[-1]).split()) or type(causes[-1]).__name__}; look whether the address is right"
    return EngineFault(text)


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    todo: list[object] = [error]
    while todo:
        current = todo.pop(0)
        if isinstance(current, BaseException) and id(current) not in seen:
            seen.add(id(current))
            yield current
            # requests and urllib3 carry the cause among the arguments as often as in __cause__
            todo += [current.__cause__, current.__context__, getattr(current, "reason", None), *current.args]
