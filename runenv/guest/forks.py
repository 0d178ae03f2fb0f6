"""Forked children of the owner must not hold its envs: a stream ends for the guest when no process has it open.

`subprocess` and `exec` close descriptors by themselves; a plain `os.fork`, as multiprocessing's default on Linux is,
copies them, and an owner that is killed would leave its envs to its children. Used by whoever opens a stream.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

if TYPE_CHECKING:
    import asyncio

__all__ = ("keep_from_children",)

_transports: Final[WeakSet[asyncio.BaseTransport]] = WeakSet()


def keep_from_children(transport: asyncio.BaseTransport) -> None:
    """Have every later fork of this process give the child nothing of this transport's socket."""
    if hasattr(os, "register_at_fork"):
        _register()
        _transports.add(transport)


@cache
def _register() -> None:
    os.register_at_fork(after_in_child=_let_go)


def _let_go() -> None:
    # Replaced, not closed: the child's copy of the transport still knows the number, and may close it some day.
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for transport in tuple(_transports):
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.fileno() >= 0:
            os.dup2(null, connection.fileno(), inheritable=False)
    os.close(null)
    _transports.clear()
