"""How much this process' memory grew while something ran. Linux only, as is what it reads."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ("MIB", "Memory")

MIB: Final = 1024 * 1024
_INTERVAL: Final = 0.005
"""Seconds between two looks; what is there for a shorter time does not count."""


class Memory:
    """Watches the resident memory of this process: `with Memory() as memory: ...`, then `memory.growth_bytes`."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._begin = self._peak = 0

    @property
    def growth_bytes(self) -> int:
        """How far it was above the beginning at most."""
        return self._peak - self._begin

    def __enter__(self) -> Self:
        gc.collect()
        self._begin = self._peak = _resident_bytes()
        self._thread.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self._peak = max(self._peak, _resident_bytes())
            if self._stop.wait(_INTERVAL):
                return


def _resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
