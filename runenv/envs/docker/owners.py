"""Which process something belongs to, and whether that process still lives.

What an env makes outside of its process is marked with this, so that others can tell what a killed owner has left from
what is in use. Below `sweep.py` and all that makes such things.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
from pathlib import Path
from typing import Final

__all__ = ("lives", "mark", "mark_lives", "owner")

_DIGEST_DIGITS: Final = 8


def owner() -> str:
    """Name this process, so that another one on this machine can see whether it lives: `machine/pid/start`."""
    return f"{_machine()}/{os.getpid()}/{_started(os.getpid())}"


def lives(label: str) -> bool:
    """Tell whether the owner is a living process that we can see."""
    machine, _, rest = label.partition("/")
    pid, _, started = rest.partition("/")
    return machine == _machine() and pid.isdigit() and started == _started(int(pid))


def mark() -> str:
    """Name this process in a few characters that a file name may have: `digest of the machine-pid-start`."""
    return f"{_machine_digest()}-{os.getpid()}-{_started(os.getpid())}"


def mark_lives(text: str) -> bool | None:
    """Tell whether the process of a `mark` lives; None: it is none that we could see."""
    digest, _, rest = text.partition("-")
    pid, _, started = rest.partition("-")
    if digest != _machine_digest() or not pid.isdigit():
        return None
    return started == _started(int(pid))


@functools.cache
def _machine() -> str:
    # Process numbers mean something only to those who share boot and process namespace.
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}:{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return platform.node()


def _machine_digest() -> str:
    return hashlib.sha256(_machine().encode()).hexdigest()[:_DIGEST_DIGITS]


def _started(pid: int) -> str:
    """Return the start time of a process, "" when it is gone, "?" when this system does not tell."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        if Path("/proc/self/stat").exists():
            return ""
        try:
            os.kill(pid, 0)
        except OSError as error:
            return "?" if isinstance(error, PermissionError) else ""
        return "?"
    state, *fields = text.rpartition(")")[2].split()
    return "" if state in {"Z", "X"} else fields[18]
