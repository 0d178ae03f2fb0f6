"""The errors of runenv, and the one way foreign errors become ours.

A command that fails or times out is never an exception: it is an `ExecResult`. An error here means that the
environment, the storage or the caller's request failed. File errors are the builtins (`FileNotFoundError`,
`PermissionError`, ...) with `filename` set. Imported by every other module; imports nothing of the package.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

__all__ = (
    "ArtifactError",
    "ArtifactExpiredError",
    "ArtifactMissingError",
    "ConfigError",
    "EnvClosedError",
    "EnvError",
    "EnvLostError",
    "EnvStartError",
    "HandleError",
    "LimitError",
    "RunEnvError",
    "StoreError",
    "ToolError",
    "translate",
)


class RunEnvError(Exception):
    """Root of every error that runenv raises by its own name."""


class ConfigError(RunEnvError, ValueError):
    """The configuration contradicts itself or the host."""


class EnvError(RunEnvError):
    """The environment failed, not the command."""


class EnvStartError(EnvError):
    """The image, the container or the process did not come up; nothing of it is left behind."""


class EnvLostError(EnvError):
    """The link to the environment broke; the fate of the command is unknown."""


class EnvClosedError(EnvError):
    """The environment was used before it was opened or after it was closed."""


class LimitError(RunEnvError):
    """More bytes than the caller or the configuration allowed."""


class ArtifactError(RunEnvError):
    """The artifact store could not do what was asked."""


class HandleError(ArtifactError, ValueError):
    """The text is not a handle, or not a reference that this store serves."""


class ArtifactMissingError(ArtifactError, FileNotFoundError):
    """No such artifact in this scope: unknown, deleted or of another scope, which all read alike."""


class ArtifactExpiredError(ArtifactMissingError):
    """The artifact was of this scope, and its time is over."""


class StoreError(ArtifactError):
    """The storage behind the artifact store failed, is not reachable or holds damaged data."""


class ToolError(RunEnvError):
    """Text for the model: becomes an error result, and never escapes a tool."""


@contextmanager
def translate(table: Mapping[type[BaseException], type[RunEnvError]], message: str) -> Generator[None]:
    """Raise ours for theirs: any error of a type in `table` leaves as the mapped one, chained.

    Args:
        table: foreign exception types and what each becomes; the first match in order wins.
        message: what was being done, one clause; the foreign error's text is added to it.

    Raises:
        RunEnvError: the mapped type, with the foreign error as its cause.
    """
    try:
        yield
    except tuple(table) as error:
        ours = next(ours for theirs, ours in table.items() if isinstance(error, theirs))
        detail = " ".join(str(error).split()) or type(error).__name__
        raise ours(f"{message}: {detail}") from error
