"""`Bucket`: the few things that are done with objects, through obstore; the only file that imports it.

Retries since 2026-11-28: obstore's own, which knows which requests may be sent twice, bounded by `_RETRIES`; and above
them tenacity for a part of a download that breaks off in the middle, which obstore gives up. Errors become one sentence
without what obstore tells beside it: that holds URLs, and with them a signature where a service puts it there.
Above is `objects.py`, which knows what the objects are.
"""

from __future__ import annotations

import asyncio
import difflib
import re
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import anyio
import obstore
import tenacity
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import AzureStore, GCSStore, S3Store

from runenv.artifacts.backends.threads import to_its_end
from runenv.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence

    from obstore import ObjectMeta

    from runenv.artifacts.backends.backend import Chunks

__all__ = ("PART_BYTES", "Bucket", "TakenError")

PART_BYTES: Final = 8 * 1024 * 1024
"""Content is sent and read in parts of this size. S3 takes 10,000 of them: an artifact has at most 78 GiB there."""
PARTS_AT_ONCE: Final = 3
"""Parts of an upload that are under way."""
PAGE: Final = 1000
"""Objects that are listed, or deleted, at a time."""
READ_ATTEMPTS: Final = 4
"""How often a part is asked for that breaks off."""
_RETRIES: Final[Any] = {
    "max_retries": 5,
    "retry_timeout": timedelta(seconds=20),
    "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=3), "base": 2},
}
"""How often, how long and how densely obstore repeats a request that failed for now."""
_CLIENT: Final[Mapping[str, Any]] = {"connect_timeout": "5s", "timeout": "120s"}
"""Bounds one connection attempt, and one request with a part as its content."""

_STORES: Final[Mapping[str, Any]] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
_CLIENT_OPTIONS: Final = (
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
    "read_timeout",
    "root_certificate",
    "timeout",
    "user_agent",
)
_SWITCHES: Final = ("allow_http", "allow_invalid_certificates")
_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "s3": (
        "access_key_id",
        "checksum_algorithm",
        "container_authorization_token_file",
        "container_credentials_full_uri",
        "container_credentials_relative_uri",
        "default_region",
        "disable_tagging",
        "endpoint",
        "metadata_endpoint",
        "region",
        "request_payer",
        "role_arn",
        "role_session_name",
        "secret_access_key",
        "server_side_encryption",
        "session_token",
        "skip_signature",
        "sse_bucket_key_enabled",
        "sse_kms_key_id",
        "sts_endpoint",
        "unsigned_payload",
        "virtual_hosted_style_request",
        "web_identity_token_file",
    ),
    "gs": (
        "application_credentials",
        "base_url",
        "bearer_token",
        "service_account",
        "service_account_key",
        "skip_signature",
    ),
    "az": (
        "account_key",
        "account_name",
        "authority_host",
        "client_id",
        "client_secret",
        "disable_tagging",
        "endpoint",
        "federated_token_file",
        "msi_endpoint",
        "msi_resource_id",
        "object_id",
        "sas_key",
        "skip_signature",
        "tenant_id",
        "token",
        "use_azure_cli",
        "use_emulator",
    ),
}
_STATUS: Final = re.compile(r"status code: (\d{3})")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")


class TakenError(Exception):
    """The object that was to be created is there already."""


class Bucket:
    """Objects under a prefix of a bucket."""

    def __init__(self, scheme: str, name: str, prefix: str, options: Mapping[str, str]) -> None:
        self.uri = f"{scheme}://{name}" + (f"/{prefix}" if prefix else "")
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{self.uri!r} names no bucket: write '{scheme}://bucket/prefix'")
        config, client = _sorted(scheme, options)
        try:
            self._store = _STORES[scheme](
                name, prefix=prefix or None, config=config, client_options=client, retry_config=_RETRIES
            )
        except (BaseError, ValueError, TypeError):
            raise ConfigError(f"an option of {self.uri!r} has a value that is not understood") from None

    async def create(self, key: str, data: bytes) -> None:
        """Make an object that is not there.

        Raises:
            TakenError: it is.
        """
        with self.failures():
            try:
                await obstore.put_async(self._store, key, data, mode="create")
            except (AlreadyExistsError, PreconditionError) as error:
                raise TakenError from error

    async def put(self, key: str, data: bytes) -> None:
        """Make or replace a small object."""
        with self.failures():
            await obstore.put_async(self._store, key, data, use_multipart=False)

    async def upload(self, key: str, chunks: Chunks) -> None:
        """Make an object of a stream, in parts when it is large. What the stream raises is raised as it is."""
        first, size = list[bytes](), 0
        async for chunk in chunks:
            first.append(chunk)
            size += len(chunk)
            if size > PART_BYTES:
                break
        else:
            await self.put(key, b"".join(first))
            return
        async with self._upload(key) as send:
            for chunk in first:
                await send(chunk)
            async for chunk in chunks:
                await send(chunk)

    @asynccontextmanager
    async def _upload(self, key: str) -> AsyncGenerator[Callable[[bytes], Awaitable[None]]]:
        """Send pieces as an object, which is there when the block ends well; else its parts are removed.

        The task that sends is never cancelled, since obstore would leave the parts behind; it removes them when the
        stream that it reads fails.
        """
        pieces: asyncio.Queue[bytes | None] = asyncio.Queue(1)
        stopped = False

        async def stream() -> Chunks:
            while (piece := await pieces.get()) is not None:
                yield piece
            if stopped:
                raise _StoppedError

        async def upload() -> None:
            with self.failures():
                await obstore.put_async(
                    self._store, key, stream(), use_multipart=True, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE
                )

        async def send(piece: bytes | None) -> None:
            putting = asyncio.create_task(pieces.put(piece))
            try:
                await asyncio.wait((putting, uploading), return_when=asyncio.FIRST_COMPLETED)
            finally:
                putting.cancel()
            if uploading.done():  # it failed, and takes no more
                uploading.result()

        uploading = asyncio.create_task(upload())
        try:
            yield send
            await send(None)
            await asyncio.wait((uploading,))
        except BaseException:
            stopped = True
            if pieces.full():
                pieces.get_nowait()
            pieces.put_nowait(None)
            await to_its_end(asyncio.wait((uploading,)))
            uploading.exception()  # what is raised here says more
            raise
        uploading.result()

    async def get(self, key: str, max_bytes: int) -> bytes | None:
        """Return a small object, or None when there is none.

        Raises:
            StoreError: it is larger than it may be.
        """
        with self.failures():
            try:
                answer = await obstore.get_async(self._store, key)
            except FileNotFoundError:
                return None
            if answer.meta["size"] > max_bytes:
                raise StoreError(f"the object {key!r} in {self.uri!r} is larger than such an object can be")
            return bytes(await answer.bytes_async())

    async def get_range(self, key: str, start: int, length: int) -> tuple[bytes, int] | None:
        """Return a part of an object and the size of the whole, or None when there is none.

        A part that lies past the end is an error.
        """
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(_may_pass),
            wait=tenacity.wait_random_exponential(multiplier=0.1, max=2),
            stop=tenacity.stop_after_attempt(READ_ATTEMPTS),
            sleep=anyio.sleep,
            reraise=True,
        )

        async def attempt() -> tuple[bytes, int]:
            answer = await obstore.get_async(self._store, key, options={"range": (start, start + length)})
            return bytes(await answer.bytes_async()), answer.meta["size"]

        with self.failures():
            try:
                return await retrying(attempt)
            except FileNotFoundError:
                return None

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectMeta]:
        """Yield what is under a prefix, a folder, by its key; behind a key if one is given."""
        with self.failures():
            async for page in obstore.list(self._store, prefix, offset=after, chunk_size=PAGE):
                for meta in page:
                    yield meta

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, whether they are there or not."""
        with self.failures():
            for start in range(0, len(keys), PAGE):
                page = keys[start : start + PAGE]
                try:
                    await obstore.delete_async(self._store, page)
                except FileNotFoundError:  # some services say so, and which of them were deleted is unknown
                    for key in page:
                        await self._delete(key)

    async def _delete(self, key: str) -> None:
        try:
            await obstore.delete_async(self._store, key)
        except FileNotFoundError:
            return

    @contextmanager
    def failures(self) -> Generator[None]:
        """Raise `StoreError` for what obstore says, in one sentence."""
        try:
            yield
        except (BaseError, OSError, ValueError) as error:
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"the storage {self.uri!r} failed: {_reason(error)}") from None


class _StoppedError(Exception):
    """Nobody wants the upload any more."""


def _sorted(scheme: str, options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, Any]]:
    """Tell options of the service from those of the connection.

    obstore takes them apart, and panics when one of the latter is among the former.
    """
    config: dict[str, str] = {}
    client: dict[str, Any] = dict(_CLIENT)
    for key, value in options.items():
        if key in _OPTIONS[scheme]:
            config[key] = value
        elif key in _SWITCHES:
            if str(value).lower() not in {"true", "false"}:
                raise ConfigError(f"the option {key!r} is 'true' or 'false'")
            client[key] = str(value).lower() == "true"
        elif key in _CLIENT_OPTIONS:
            client[key] = value
        else:
            known = (*_OPTIONS[scheme], *_CLIENT_OPTIONS)
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}"
            raise ConfigError(f"{scheme}:// has no option {key!r}; {hint}")
    return config, client


def _may_pass(error: BaseException) -> bool:
    """Say whether a read that failed may succeed when it is tried again."""
    return isinstance(error, BaseError) and not isinstance(error, PermissionDeniedError | UnauthenticatedError)


def _reason(error: Exception) -> str:
    """Say why, in words that hold nothing of the request."""
    if isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return "the credentials are wrong, or may not do this"
    text = str(error)
    status = _STATUS.search(text)
    if isinstance(error, FileNotFoundError):
        return "there is no such bucket or object"
    if status is not None:
        return f"it answered with status {status[1]}"
    for sign, reason in (
        ("BadScheme", "plain HTTP is refused; set the option allow_http to 'true' to allow it"),
        ("URL scheme is not allowed", "plain HTTP is refused; set the option allow_http to 'true' to allow it"),
        ("Connect", "it cannot be reached; check the endpoint and the network"),
        ("Timeout", "it does not answer in time"),
        ("error sending request", "the connection to it broke"),
        ("Body", "the connection to it broke"),
    ):
        if sign in text:
            return reason
    return f"{type(error).__name__}"
