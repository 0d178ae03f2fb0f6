"""The way to a vendor's server: plain HTTPS with the standard library, no SDK. What goes over it is `wires.py`'s.

A key goes to the server it is for and nowhere else: redirects are not followed, and nothing is sent without TLS but to
this machine itself. Where the server is may be said as the vendors' own SDKs have it, with `ANTHROPIC_BASE_URL` and
`OPENAI_BASE_URL`.
"""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlsplit

import anyio
import anyio.to_thread

from runenv.cli.demo.agent.wires import ANTHROPIC, OPENAI
from runenv.errors import ConfigError, LimitError, RunEnvError
from runenv.providers import fit, strip_media

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from runenv.cli.demo.agent.wires import Json, Wire

__all__ = ("Model", "ModelError", "Send", "choose")

SECONDS: Final = 300.0
"""Silence of a server after which the request has failed; models think for minutes."""
TRIES: Final = 4
"""Requests for one reply, when the server is busy or refuses an image."""
WAITS: Final = (2.0, 8.0, 20.0)
"""Seconds before each further one, unless the server says how long; then at most the last of these."""
MAX_BYTES: Final = 32 * 1024 * 1024
"""Of a response."""
_SHOWN: Final = 300
"""Characters of an error that are repeated."""
_BUSY: Final = frozenset({408, 429, 500, 502, 503, 504, 529})
_HANDLERS: Final = (
    urllib.request.ProxyHandler,
    urllib.request.HTTPHandler,
    urllib.request.HTTPSHandler,
    urllib.request.HTTPErrorProcessor,
    urllib.request.HTTPDefaultErrorHandler,
)
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})

Send: TypeAlias = "Callable[[Json], Awaitable[Json]]"
"""Takes the body of a request and returns the response."""


class ModelError(RunEnvError):
    """The model's server cannot be reached, or refuses."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model: its name, the form of its conversation, and the way to it.

    Attributes:
        name: as the vendor has it.
        wire: of the vendor.
        send: gets a reply.
        is_played: a script plays it.
    """

    name: str
    wire: Wire
    send: Send
    is_played: bool = False


@dataclass(frozen=True, slots=True)
class _Vendor:
    names: re.Pattern[str]
    key: str
    base: str
    url: str
    path: str
    wire: Wire
    headers: Callable[[str], dict[str, str]]


_VENDORS: Final = (
    _Vendor(
        re.compile(r"claude\b"),
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_BASE_URL",
        "https://api.anthropic.com",
        "/v1/messages",
        ANTHROPIC,
        lambda key: {"x-api-key": key, "anthropic-version": "2023-06-01"},
    ),
    _Vendor(
        re.compile(r"(?:gpt|chatgpt|codex|o\d)(?=-|$)"),
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "https://api.openai.com/v1",
        "/responses",
        OPENAI,
        lambda key: {"Authorization": f"Bearer {key}"},
    ),
)


def choose(name: str, environ: Mapping[str, str]) -> Model:
    """Return a vendor's model.

    Args:
        name: of the model, as the vendor has it.
        environ: variables of this process; the vendor's key is one of them.

    Raises:
        ConfigError: it is no vendor's that is known here, its key is missing, or its server has no TLS.
    """
    vendor = next((vendor for vendor in _VENDORS if vendor.names.match(name)), None)
    if vendor is None:
        raise ConfigError(
            f"the model {name!r} is of no vendor known here: name one of Anthropic (claude-...) or OpenAI (gpt-...)"
        )
    key = environ.get(vendor.key, "").strip()
    if not key:
        raise ConfigError(f"the model {name!r} needs a key: set {vendor.key}, or leave out --model for a played one")
    url = (environ.get(vendor.base) or vendor.url).rstrip("/") + vendor.path
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        raise ConfigError(f"a key is sent over TLS only: {vendor.base} must be an https URL, not {url!r}")
    return Model(name, vendor.wire, _Api(url, vendor.headers(key), vendor.wire).send)


class _Refused(Exception):  # noqa: N818 - an answer, which is looked at
    """A server answered with something else than success; in the form that `strip_media` reads."""

    def __init__(self, status_code: int, body: object, text: str, wait: str | None) -> None:
        super().__init__(text)
        self.status_code = status_code
        self.body = body
        self.wait = float(wait) if wait is not None and re.fullmatch(r"\d{1,4}", wait) else None


class _Api:
    """One endpoint of a server."""

    def __init__(self, url: str, headers: Mapping[str, str], wire: Wire) -> None:
        self._url = url
        self._headers = {**headers, "Content-Type": "application/json", "Accept": "application/json"}
        self._wire = wire
        self._opener = urllib.request.OpenerDirector()  # not the usual one, which follows redirects, with the key
        for handler in _HANDLERS:
            self._opener.add_handler(handler())

    async def send(self, request: Json) -> Json:
        """Get a reply; images that the vendor does not take give way to lines.

        Raises:
            ModelError: there is none.
        """
        request = fit(request, self._wire.limits).request
        for wait in (*WAITS[: TRIES - 1], None):
            try:
                return await anyio.to_thread.run_sync(self._post, request, abandon_on_cancel=True)
            except _Refused as error:
                lighter = strip_media(error, request)
                if wait is None or not (lighter.removed or error.status_code in _BUSY):
                    vendor = self._wire.limits.vendor
                    raise ModelError(f"{vendor} refuses the request ({error.status_code}): {error}") from error
                request = lighter.request
                if not lighter.removed:
                    await anyio.sleep(wait if error.wait is None else min(error.wait, WAITS[-1]))
        raise AssertionError  # pragma: no cover - the last try returns or raises

    def _post(self, request: Json) -> Json:
        """Send one request. Blocks, for a worker thread."""
        body = json.dumps(request, ensure_ascii=False).encode()
        post = urllib.request.Request(self._url, body, self._headers, method="POST")  # noqa: S310 - see `choose`
        try:
            with self._opener.open(post, timeout=SECONDS) as answer:
                data = answer.read(MAX_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                raise _refused(error) from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise ModelError(f"the model's server does not answer at {self._url!r}: {reason}") from error
        if len(data) > MAX_BYTES:
            raise LimitError(f"the response of {self._url!r} is larger than {MAX_BYTES:,} bytes")
        response = _json(data)
        if not isinstance(response, dict):
            raise ModelError(f"the response of {self._url!r} is no JSON object; is that the right server?")
        return response


def _refused(error: urllib.error.HTTPError) -> _Refused:
    data = error.read(MAX_BYTES)
    body = _json(data)
    inner = body.get("error") if isinstance(body, dict) else None
    message = inner.get("message") if isinstance(inner, dict) else None
    text = message if isinstance(message, str) else data.decode(errors="replace") or str(error.reason)
    return _Refused(error.code, body, " ".join(text.split())[:_SHOWN], error.headers.get("Retry-After"))


def _json(data: bytes) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(data)
    except ValueError:
        return None
