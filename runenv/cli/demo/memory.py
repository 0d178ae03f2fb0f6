"""How much this process has grown while something ran, looked at again and again; where Linux tells."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio.to_thread

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ("Memory",)

INTERVAL: Final = 0.005
"""Seconds between two looks; what is there for a shorter time does not count."""


class Memory:
    """Looks at the resident memory of this process while its `async with` block runs, in a thread of its own.

    Attributes:
        grown: bytes that it was above the beginning at most; None where the system does not say.
    """

    def __init__(self) -> None:
        self.grown: int | None = None
        self._begin: int | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    async def __aenter__(self) -> Self:
        self._begin = await anyio.to_thread.run_sync(_resident)
        self._thread.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()

    def _watch(self) -> None:
        while self._begin is not None and not self._stop.wait(INTERVAL):
            now = _resident()
            if now is not None:
                self.grown = max(self.grown or 0, now - self._begin)


def _resident() -> int | None:
    with suppress(OSError, ValueError, IndexError):
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    return None
