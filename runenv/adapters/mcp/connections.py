"""The connections of the server over HTTP, before anybody has shown a token: how long, and how many.

uvicorn bounds neither: a client that begins a request and does not go on keeps its connection for good, and enough of
them take all descriptors of the process. Here a request has `REQUEST_SECONDS` to arrive whole, and where connections
become too many the one that has kept us waiting longest makes room. Above is `http.py`; what is asked for is not known
here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from resource import RLIMIT_NOFILE, getrlimit
from typing import TYPE_CHECKING, Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

__all__ = ("MAX_CONNECTIONS", "REQUEST_SECONDS", "Crowd", "TimedProtocol")

REQUEST_SECONDS: Final = 30.0
"""For the headers and the body of a request to arrive."""
MAX_CONNECTIONS: Final = 512
"""At a time; at most half of the descriptors that this process may have, since envs need some too."""
_SENDING: Final = (h11.IDLE, h11.SEND_BODY)


@dataclass(slots=True)
class Crowd:
    """The connections of one server that are waited for.

    Attributes:
        request_seconds: for a request to arrive whole.
        most: connections at a time, waited for or not.
        waiting: who has waited longest comes first.
    """

    request_seconds: float = REQUEST_SECONDS
    most: int = field(default_factory=lambda: min(MAX_CONNECTIONS, getrlimit(RLIMIT_NOFILE)[0] // 2))
    waiting: dict[TimedProtocol, asyncio.TimerHandle] = field(default_factory=dict)


class TimedProtocol(H11Protocol):
    """A connection whose client has to say what it wants: `partial(TimedProtocol, Crowd())` is uvicorn's `http`."""

    def __init__(self, crowd: Crowd, *args: Any, **more: Any) -> None:  # noqa: ANN401 - uvicorn's
        super().__init__(*args, **more)
        self._crowd = crowd

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request, and let somebody go where there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self._crowd.most:
            next(iter(self._crowd.waiting), self).transport.abort()
        self._watch()

    def data_received(self, data: bytes) -> None:
        """See whether the request is whole."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Wait for the next request if the client has begun one."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _watch(self) -> None:
        is_kept = self.timeout_keep_alive_task is not None  # between two requests, which uvicorn bounds
        if is_kept or self.conn.their_state not in _SENDING or self.transport.is_closing():
            self._stop_waiting()
        elif self not in self._crowd.waiting:
            timer = self.loop.call_later(self._crowd.request_seconds, self.transport.abort)
            self._crowd.waiting[self] = timer

    def _stop_waiting(self) -> None:
        timer = self._crowd.waiting.pop(self, None)
        if timer is not None:
            timer.cancel()
