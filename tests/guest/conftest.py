"""The compiled guest, as released and under AddressSanitizer and UBSan."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hatch_build
from tests.guest.client import Guest

ROOT = Path(__file__).resolve().parents[2]

Start = Callable[..., Guest]


@pytest.fixture(scope="session")
def release() -> Path:
    """The guest as a wheel carries it."""
    hatch_build.compile_guest(ROOT)
    return ROOT / hatch_build.PROGRAMS / f"guest-{platform.machine()}"


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The guest built to stop with a report at the first memory error or undefined behaviour."""
    binary = tmp_path_factory.mktemp("sanitized") / "guest"
    hatch_build.compile_sanitized(ROOT, binary)
    return binary


@pytest.fixture(params=["release", "sanitized"])
def start(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts guests in a folder of the test's own and ends them after it."""
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0")  # the guest ends by _exit with what the system takes back
    binary = request.getfixturevalue(request.param)
    (tmp_path / "work").mkdir()
    guests: list[Guest] = []

    def start_one(**settings: object) -> Guest:
        guest = Guest(binary, tmp_path / "work", spill=tmp_path / f"spill{len(guests)}", **settings)  # type: ignore[arg-type]
        guests.append(guest)
        return guest

    yield start_one
    for guest in guests:
        guest.end()
