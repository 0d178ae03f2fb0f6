"""Compiles the guest before a wheel or an editable install is made: C sources in, two static programs out.

Not a part of the package. hatchling calls `GuestHook`; the same by hand:

    python hatch_build.py                   compile for both machines, where an install looks for them
    python hatch_build.py --sanitize OUT    compile for this machine, with its own compiler, under ASan and UBSan

What is compiled already, from the same sources by the same compiler, is not compiled again. A first run on a machine
takes two minutes (the compiler builds its own C library, once per target, into the user's cache), a later one a second.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

if sys.platform != "win32":  # where a wheel can be built too: the Docker env works there
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

ROOT: Final = Path(__file__).resolve().parent
SOURCES: Final = Path("runenv/guest/src")
PROGRAMS: Final = Path("runenv/guest/bin")
MACHINES: Final = ("x86_64", "aarch64")
STAMP: Final = "stamp"
"""File beside the programs that says what they were made from."""

WARNINGS: Final = ("-std=c11", "-Wall", "-Wextra", "-Werror")
FLAGS: Final = (*WARNINGS, "-O2", "-static", "-s", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables")
SANITIZE_FLAGS: Final = (
    *WARNINGS,
    "-g",
    "-O1",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
)


class GuestHook(BuildHookInterface[Any]):
    """Called by hatchling before it collects files."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the guest, unless it is the sources that are packed."""
        del version, build_data
        if self.target_name == "wheel":
            compile_guest(Path(self.root))


def compile_guest(root: Path) -> None:
    """Make `guest-<machine>` for every machine, unless they are there and their sources are unchanged.

    Raises:
        RuntimeError: there are no sources, or the compiler refuses them.
    """
    if _is_made(root):
        return
    (root / PROGRAMS).mkdir(parents=True, exist_ok=True)
    with _compiler() as environment:
        if _is_made(root):  # by whoever held the lock before us
            return
        stamp = root / PROGRAMS / STAMP
        stamp.unlink(missing_ok=True)
        fingerprint = _fingerprint(root)  # before compiling: a change meanwhile must not look compiled
        with ThreadPoolExecutor(len(MACHINES)) as threads:
            list(threads.map(partial(_compile_for, root, environment), MACHINES))
        stamp.write_text(fingerprint)


def compile_sanitized(root: Path, target: Path) -> None:
    """Make a guest for this machine that ends with a report at the first memory error or undefined behaviour.

    Raises:
        RuntimeError: there is no compiler, or it refuses the sources.
    """
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang") or shutil.which("cc")
    if not compiler:
        raise RuntimeError("no C compiler is on PATH: install gcc or clang, or set CC")
    _run([compiler, *SANITIZE_FLAGS, "-o", str(target.absolute()), *_sources(root)], root, {})


def _is_made(root: Path) -> bool:
    stamp, *programs = [root / PROGRAMS / name for name in (STAMP, *(f"guest-{machine}" for machine in MACHINES))]
    return all(map(Path.is_file, (stamp, *programs))) and stamp.read_text() == _fingerprint(root)


def _compile_for(root: Path, environment: Mapping[str, str], machine: str) -> None:
    """Compile into a file beside the final one and move it there, so that no half-written guest is ever seen."""
    program = root / PROGRAMS / f"guest-{machine}"
    with tempfile.TemporaryDirectory(prefix=".compile-", dir=program.parent) as folder:
        made = Path(folder) / program.name
        compiler = (sys.executable, "-m", "ziglang", "cc", "-target", f"{machine}-linux-musl")
        _run([*compiler, *FLAGS, "-o", str(made), *_sources(root)], root, environment)
        made.chmod(0o755)
        made.replace(program)


@contextmanager
def _compiler() -> Generator[Mapping[str, str]]:
    """The environment that the compiler needs, for one build at a time.

    Its cache is good only for a compiler at the same path, and in an isolated build that is a new temporary folder
    each time. So it is told of its library by a name in the cache that does not change. (2026-11-28: 135 s without
    that, 0.1 s with it.) Who builds at the same time would point that name elsewhere, hence the lock.
    """
    cache = _cache_folder()
    environment = {"ZIG_GLOBAL_CACHE_DIR": str(cache), "ZIG_LOCAL_CACHE_DIR": str(cache)}
    with (cache / "lock").open("w") as lock:
        if sys.platform != "win32":
            fcntl.flock(lock, fcntl.LOCK_EX)
            library = cache / "lib"
            library.unlink(missing_ok=True)
            library.symlink_to(Path(str(distribution("ziglang").locate_file("ziglang"))).absolute() / "lib")
            environment["ZIG_LIB_DIR"] = str(library)
        yield environment


def _cache_folder() -> Path:
    """A folder that outlives this build, outside of the source tree; a temporary one where there is no home."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    cache = base / "runenv" / f"zig-{distribution('ziglang').version}"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache):
            return cache
    except OSError:
        return Path(tempfile.mkdtemp(prefix="runenv-zig-"))


def _sources(root: Path) -> list[str]:
    """The C files, relative to `root` so that the programs do not depend on where that is."""
    sources = sorted(str(path.relative_to(root)) for path in (root / SOURCES).glob("*.c"))
    if not sources:
        raise RuntimeError(f"there are no C files in {str(root / SOURCES)!r}")
    return sources


def _fingerprint(root: Path) -> str:
    """What the programs are made from: sources and headers, flags, compiler."""
    digest = hashlib.sha256(repr((FLAGS, MACHINES, distribution("ziglang").version)).encode())
    for path in sorted((root / SOURCES).glob("*.[ch]")):
        content = path.read_bytes()
        digest.update(f"\0{path.name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _run(command: list[str], root: Path, environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        command, cwd=root, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if done.returncode != 0:
        report = (done.stderr + done.stdout).decode(errors="replace").strip()
        raise RuntimeError(f"the guest does not compile ({' '.join(command)}):\n{report}")


def main() -> None:
    """Compile by hand."""
    parser = argparse.ArgumentParser(description="Compile the guest.")
    parser.add_argument("--sanitize", metavar="OUT", type=Path, help="compile for this machine under ASan and UBSan")
    sanitized: Path | None = parser.parse_args().sanitize
    if sanitized is None:
        compile_guest(ROOT)
    else:
        compile_sanitized(ROOT, sanitized)


if __name__ == "__main__":
    try:
        main()
    except RuntimeError as error:
        sys.exit(f"hatch_build: {error}")
