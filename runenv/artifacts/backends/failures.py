"""`failures`: what the disk or the database says, as an error of the store's in one sentence."""

from __future__ import annotations

import os
import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING

from runenv.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ("failures",)


@contextmanager
def failures(what: str) -> Generator[None]:
    """Raise `StoreError` for what the disk or the database says."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        reason = str(error)
        if isinstance(error, OSError) and error.strerror:
            place = f" ({os.fsdecode(error.filename)!r})" if isinstance(error.filename, str | bytes) else ""
            reason = error.strerror.lower() + place
        raise StoreError(f"{what}: {reason}") from error
