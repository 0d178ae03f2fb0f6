"""`Stream`: a connected socket as the byte stream of a link.

It reads into one buffer of its own. asyncio's plain protocols get a new 256 KiB object for each read, and making and
freeing that takes longer than all else that is done for a small call. Above it is whoever opens the socket.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from runenv.guest.forks import keep_from_children

if TYPE_CHECKING:
    from runenv.guest.link import Link

__all__ = ("Stream",)

_BUFFER_BYTES: Final = 256 * 1024
"""What is taken from the socket at a time: two of the largest frames."""


class Stream(asyncio.BufferedProtocol):
    """Passes on to a link what the transport says."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Give the link the write side."""
        keep_from_children(transport)
        self._link.connection_made(transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Return where to read to; what was there has been used."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Give the link what was read."""
        self._link.data_received(self._buffer[:nbytes])

    def pause_writing(self) -> None:
        """Pass it on."""
        self._link.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._link.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass it on."""
        self._link.connection_lost(exc)
