"""`SyncRunEnv`: the verbs of `RunEnv` for callers without an event loop. The same core, on one loop in the background.

A thin facade over any async env: each verb starts the env's own on the loop of `envs/background.py` and waits. So it
works in scripts and notebooks, inside a running event loop (which it blocks, as any sync call does), from many threads
at once, and when `asyncio.run` is called again and again. Context variables of the caller are seen by the env.

When the waiting thread is interrupted (Ctrl-C), the work is cancelled and its end awaited before the exception goes on;
a second Ctrl-C does not wait. Inside a running loop Ctrl-C does not interrupt, it cancels the current task: that is
looked for while waiting, and ends the call with `asyncio.CancelledError`.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from anyio import CapacityLimiter, to_thread

from runenv.envs import open_env
from runenv.envs.background import Share
from runenv.errors import EnvError
from runenv.types import DEFAULT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from runenv.config import DockerConfig, LocalConfig
    from runenv.env import RunEnv
    from runenv.types import Command, Default, ExecResult, FileInfo, Progress, TransferResult

__all__ = ("SyncRunEnv", "open_env_sync")

_WHOLE: Final = (bytes, bytearray, memoryview, str)  # no pieces, though iterable; the env refuses text


def open_env_sync(config: LocalConfig | DockerConfig) -> SyncRunEnv:
    """Return the env that a configuration describes, not yet open: `with` opens it.

    Raises:
        ConfigError: `config` is no configuration of an env.
    """
    return SyncRunEnv(open_env(config))


class SyncRunEnv:
    """An env with sync verbs; they are those of `RunEnv`, where they are described. Safe to use from many threads.

    Verbs raise `EnvClosedError` too when the env was opened by another process, and `EnvError` on the background loop.
    """

    def __init__(self, env: RunEnv) -> None:
        """Wrap an env that was not opened; nobody else may use it."""
        self._env = env
        self._share = Share()

    def __enter__(self) -> Self:
        self._share.start()
        try:
            self._share.run(self._env.__aenter__)
        except BaseException:
            with suppress(EnvError):  # the first error says more
                self._share.stop(self._env.aclose)
            raise
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the env and everything that runs in it; harmless when called again, or in a forked child."""
        self._share.stop(self._env.aclose)

    @property
    def id(self) -> str:
        """Short name of this env."""
        return self._env.id

    @property
    def kind(self) -> str:
        """The `kind` of its configuration."""
        return self._env.kind

    @property
    def workdir(self) -> str:
        """Absolute path, inside the env, where relative paths start."""
        return self._env.workdir

    def describe(self) -> Mapping[str, object]:
        """What this env is and what its sandbox allows; see `RunEnv.describe`."""
        return self._env.describe()

    def exec(
        self,
        command: Command,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        stdin: bytes | None = None,
        timeout: float | Default | None = DEFAULT,
        max_output_bytes: int | None = None,
    ) -> ExecResult:
        """Run a command to its end and return what it did; see `RunEnv.exec`."""
        return self._share.run(
            lambda: self._env.exec(
                command,
                cwd=cwd,
                env=env,
                user=user,
                stdin=stdin,
                timeout=timeout,
                max_output_bytes=max_output_bytes,
            )
        )

    def read(self, path: str, *, offset: int = 0, length: int | None = None, max_bytes: int | None = None) -> bytes:
        """Return the content of a file, or a part of it; see `RunEnv.read`."""
        return self._share.run(lambda: self._env.read(path, offset=offset, length=length, max_bytes=max_bytes))

    @contextmanager
    def open_read(self, path: str, *, offset: int = 0, length: int | None = None) -> Generator[Iterator[bytes]]:
        """Stream a file of any size: `with env.open_read(path) as chunks: for chunk in chunks: ...`."""
        stream = self._env.open_read(path, offset=offset, length=length)
        chunks = self._share.run(stream.__aenter__)
        try:
            yield self._iterate(chunks)
        except BaseException as error:
            details = type(error), error, error.__traceback__
            if not self._share.run(lambda: stream.__aexit__(*details)):
                raise
        else:
            self._share.run(lambda: stream.__aexit__(None, None, None))

    def write(self, path: str, data: bytes | Iterable[bytes], *, mode: int | None = None, append: bool = False) -> None:
        """Make or replace a file, atomically, or append to it; an iterable is read in a worker thread."""
        content: Any = data if isinstance(data, _WHOLE) else _pieces(data)
        self._share.run(lambda: self._env.write(path, content, mode=mode, append=append))

    def stat(self, path: str, *, follow_symlinks: bool = True) -> FileInfo:
        """Describe one entry; see `RunEnv.stat`."""
        return self._share.run(lambda: self._env.stat(path, follow_symlinks=follow_symlinks))

    def list(self, path: str = ".") -> list[FileInfo]:
        """Return the entries of a folder, sorted by name; see `RunEnv.list`."""
        return self._share.run(lambda: self._env.list(path))

    def mkdir(self, path: str, *, parents: bool = True, exist_ok: bool = True) -> None:
        """Make a folder; see `RunEnv.mkdir`."""
        self._share.run(lambda: self._env.mkdir(path, parents=parents, exist_ok=exist_ok))

    def remove(self, path: str, *, recursive: bool = False, missing_ok: bool = False) -> None:
        """Delete a file, a link or a folder; see `RunEnv.remove`."""
        self._share.run(lambda: self._env.remove(path, recursive=recursive, missing_ok=missing_ok))

    def rename(self, source: str, target: str) -> None:
        """Move an entry within one file system; see `RunEnv.rename`."""
        self._share.run(lambda: self._env.rename(source, target))

    def upload(
        self,
        source: str | Path,
        target: str,
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        follow_symlinks: bool = False,
        progress: Progress | None = None,
    ) -> TransferResult:
        """Copy a file or a tree from the host into the env; see `RunEnv.upload`."""
        return self._share.run(
            lambda: self._env.upload(
                source,
                target,
                include=include,
                exclude=exclude,
                follow_symlinks=follow_symlinks,
                progress=progress,
            )
        )

    def download(
        self,
        source: str,
        target: str | Path,
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        progress: Progress | None = None,
    ) -> TransferResult:
        """Copy a file or a tree from the env to the host; see `RunEnv.download`."""
        return self._share.run(
            lambda: self._env.download(source, target, include=include, exclude=exclude, progress=progress)
        )

    def _iterate(self, chunks: AsyncIterator[bytes]) -> Iterator[bytes]:
        while (chunk := self._share.run(lambda: anext(chunks, None))) is not None:
            yield chunk


async def _pieces(data: Iterable[bytes]) -> AsyncIterator[bytes]:
    """Read an iterable that may block, outside the loop."""
    iterator, limiter = iter(data), CapacityLimiter(1)
    while (
        piece := await to_thread.run_sync(next, iterator, None, abandon_on_cancel=True, limiter=limiter)
    ) is not None:
        yield piece
