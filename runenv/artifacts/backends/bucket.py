"""`Bucket`: the few things that are done with objects, through obstore; the only file that imports it.

Retries since 2026-11-28: obstore's own, which knows which requests may be sent twice, bounded by `_RETRIES`; and above
them tenacity for a part of a download that breaks off in the middle, which obstore gives up. Errors become one sentence
without what obstore tells beside it: that holds URLs, and with them a signature where a service puts it there.

Before Python 3.14 a thread that wants the interpreter back while that ends is unwound, which a thread of Rust does not
survive: the process aborts. obstore's threads are there when they wake the event loop, and a program may end at that
(2026-11-28: one in eight runs of a short command that failed, on a busy machine). So its end waits for them.

Above is `objects.py`, which knows what the objects are.
"""

from __future__ import annotations

import asyncio
import atexit
import re
import sys
import time
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

from runenv.artifacts.backends.backend import CHUNK_BYTES
from runenv.artifacts.backends.options import split_options
from runenv.artifacts.backends.threads import ended
from runenv.artifacts.chunks import joined
from runenv.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
    from types import FrameType

    from obstore import Bytes, BytesStream, GetResult, ObjectMeta

    from runenv.artifacts.backends.backend import Chunks

__all__ = ("Bucket", "Download", "TakenError")

PART_BYTES: Final = 8 * 1024 * 1024
"""Content is sent in parts of this size. S3 takes 10,000 of them: an artifact has at most 78 GiB there."""
PARTS_AT_ONCE: Final = 3
"""Parts of an upload that are under way."""
SENT_BYTES: Final = 2 * 1024 * 1024
"""obstore is given pieces of at least this size: to hand one over takes as long as to copy a megabyte (2026-11-28)."""
PIECE_BYTES: Final = 512 * 1024
"""What is read is taken from obstore in pieces of at least this size."""
PAGE: Final = 1000
"""Objects that are listed, or deleted, at a time."""
READ_ATTEMPTS: Final = 4
"""How often a piece is asked for that does not come."""
_RETRIES: Final[Any] = {
    "max_retries": 5,
    "retry_timeout": timedelta(seconds=20),
    "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=3), "base": 2},
}
"""How often, how long and how densely obstore repeats a request that failed for now."""

_END_SECONDS: Final = 5.0
"""How long the end of the interpreter waits for the threads of obstore, which need microseconds."""

_STORES: Final[Mapping[str, Any]] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
_METADATA: Final = re.compile(r"/latest/(api/token|meta-data)|/computeMetadata/|/metadata/identity/")
"""Where AWS, GCS and Azure give credentials to their own machines: asked last, when there are none anywhere else."""
_STATUS: Final = re.compile(r"status code: (\d{3})")
_NOT_THERE: Final = "416"
"""The status for a range that begins behind the end: the object is shorter than it was."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")


class TakenError(Exception):
    """The object that was to be created is there already."""


class Bucket:
    """Objects under a prefix of a bucket."""

    def __init__(self, scheme: str, name: str, prefix: str, options: Mapping[str, str]) -> None:
        self.uri = f"{scheme}://{name}" + (f"/{prefix}" if prefix else "")
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"{self.uri!r} names no bucket: write '{scheme}://bucket/prefix', the bucket in two or more letters,"
                " digits, '.', '_' or '-'"
            )
        config, client = split_options(scheme, options)
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
            first.clear()
            async for piece in joined(chunks, SENT_BYTES):
                await send(piece)

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
            await ended(uploading)  # what is raised here says more
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

    async def open_range(self, key: str, start: int, end: int) -> Download | None:
        """Ask for a part of an object, which comes when its pieces are taken; None when the object ends before."""
        download = Download(self, key, start, end)
        with self.failures():
            try:
                await download.begin()
            except FileNotFoundError:
                return None
            except BaseError as error:
                if _status(error) == _NOT_THERE:
                    return None
                raise
        return download

    async def ask(self, key: str, start: int, end: int) -> GetResult:
        """Ask for a part of an object once; errors are obstore's."""
        return await obstore.get_async(self._store, key, options={"range": (start, end)})

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


class Download:
    """A part of an object that was asked for. Who takes nothing of it leaves it to the network to wait.

    Args:
        bucket: where it is.
        key: of the object.
        start: bytes from its beginning.
        end: the same.
    """

    def __init__(self, bucket: Bucket, key: str, start: int, end: int) -> None:
        self.size = 0
        """Bytes of the whole object."""
        self._bucket = bucket
        self._key = key
        self._start = start
        self._end = end
        self._stream: BytesStream | None = None
        self._retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(_may_pass),
            wait=tenacity.wait_random_exponential(multiplier=0.1, max=2),
            stop=tenacity.stop_after_attempt(READ_ATTEMPTS),
            sleep=anyio.sleep,
            reraise=True,
        )

    async def begin(self) -> None:
        """Ask for it."""
        await self._retrying(self._ask)

    async def pieces(self) -> AsyncGenerator[bytes]:
        """Yield it, and wait for the next piece while one is worked on; what breaks off is asked for again."""
        coming: asyncio.Task[bytes] = asyncio.create_task(self._piece())
        try:
            with self._bucket.failures():
                while piece := await coming:
                    coming = asyncio.create_task(self._piece())
                    yield piece
        finally:
            coming.cancel()
            await ended(coming)

    async def _piece(self) -> bytes:
        try:
            return await self._next()
        except BaseError as error:
            if not _may_pass(error):
                raise
            return bytes(await self._retrying(self._next))

    async def _ask(self) -> BytesStream:
        answer = await self._bucket.ask(self._key, self._start, self._end)
        self.size = answer.meta["size"]
        self._stream = answer.stream(min_chunk_size=PIECE_BYTES)
        return self._stream

    async def _next(self) -> bytes:
        """Return the next piece; nothing at the end."""
        if self._start >= self._end:
            return b""
        stream, self._stream = self._stream or await self._ask(), None  # it is good for nothing after an error
        parts: list[bytes | Bytes] = []
        size = 0
        while size < CHUNK_BYTES and (part := await anext(stream, b"")):
            parts.append(part)
            size += len(part)
        piece = b"".join(parts)  # obstore's own joining takes four times the memory
        self._stream = stream
        self._start += len(piece)
        return piece


class _StoppedError(Exception):
    """Nobody wants the upload any more."""


def _let_threads_leave() -> None:
    """Wait while a thread wakes an event loop."""
    deadline = time.monotonic() + _END_SECONDS
    while time.monotonic() < deadline and any(map(_wakes_loop, sys._current_frames().values())):  # noqa: SLF001 - documented
        time.sleep(0.001)


def _wakes_loop(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code is asyncio.BaseEventLoop.call_soon_threadsafe.__code__:
            return True
        frame = frame.f_back
    return False


if sys.version_info < (3, 14):
    atexit.register(_let_threads_leave)


def _may_pass(error: BaseException) -> bool:
    """Say whether a read that failed may succeed when it is tried again."""
    lasting = isinstance(error, PermissionDeniedError | UnauthenticatedError) or _status(error) == _NOT_THERE
    return isinstance(error, BaseError) and not lasting


def _status(error: BaseException) -> str:
    """Return the status that a service answered with, or nothing where it said none."""
    found = _STATUS.search(str(error))
    return found[1] if found is not None else ""


def _reason(error: Exception) -> str:
    """Say why, in words that hold nothing of the request."""
    if isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return "the credentials are wrong, or may not do this"
    text = str(error)
    if isinstance(error, FileNotFoundError):
        return "there is no such bucket or object"
    if _METADATA.search(text):
        return "no credentials were found; give them as options, or where the vendor's own tools look"
    if status := _status(error):
        return f"it answered with status {status}"
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
