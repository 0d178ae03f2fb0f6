"""`Stream`: a connected socket as the byte stream of a link; and what a link that moves to one needs besides.

It reads into one buffer of its own. asyncio's plain protocols get a new 256 KiB object for each read, and making and
freeing that takes longer than all else that is done for a small call. Above it is whoever opens the socket.
"""

from __future__ import annotations

import asyncio
import hmac
from typing import TYPE_CHECKING, Final

from runenv.guest.forks import keep_from_children
from runenv.guest.frames import Kind, Tag, encode, encode_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from runenv.guest.link import Link

__all__ = ("LifeLine", "Newcomer", "Stream")

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


class Newcomer(asyncio.BufferedProtocol):
    """A connection that has yet to prove that it is the guest's: its first frame must be CONNECT with the token.

    Not a byte more than that frame is read here.

    Args:
        token: what the guest was told.
        welcome: called at once with the transport of a guest, to give it another protocol.
    """

    def __init__(self, token: bytes, welcome: Callable[[asyncio.Transport], None]) -> None:
        self.proved: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """Whether it was the guest, once that is known."""
        self._expected = encode(0, Kind.CONNECT, encode_fields([(Tag.TOKEN, token)]))
        self._welcome = welcome
        self._buffer = memoryview(bytearray(len(self._expected)))
        self._filled = 0
        self._transport: asyncio.Transport | None = None

    def abort(self) -> None:
        """Send it away, unless it has been welcomed."""
        if self._transport is not None and not self.proved.done():
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - streams have no other
        keep_from_children(transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Return where to read the rest of the frame to."""
        return self._buffer[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Look at the frame once it is whole."""
        self._filled += nbytes
        if self._filled < len(self._buffer) or self._transport is None or self.proved.done():
            return
        is_guest = hmac.compare_digest(self._buffer, self._expected)
        self.proved.set_result(is_guest)
        if is_guest:
            self._welcome(self._transport)
        else:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - a stranger's reason is of no interest
        """Hear that it left without a proof."""
        if not self.proved.done():
            self.proved.set_result(False)


class LifeLine(asyncio.Protocol):
    """The stream that a link has left: nothing comes over it, and its end is the end of the guest or of the engine."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def data_received(self, data: bytes) -> None:  # noqa: ARG002 - whatever it is
        """Give up a guest that speaks here."""
        self._link.lose("the guest broke the protocol: it spoke over the stream that it had left")

    def connection_lost(self, exc: Exception | None) -> None:
        """End the link too."""
        self._link.lose(str(exc) if exc else "the guest ended", ask=True)
