"""The line that stands for an artifact is one line, whoever writes it."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from runenv.artifacts.artifact import Record, Scope
from runenv.artifacts.handles import part, placeholder
from runenv.providers.lines import file_line

H = "runenv+file://0f8fad5b-d9cb-469f-a165-70867728950e"


@given(st.text(st.characters(), max_size=300), st.text(max_size=200), st.integers(0, 2**60))
@example("photo\u202egnp.exe", "text/plain", 1)
@example("hidden\U000e0100.txt", "text/plain\u200b", 1024**2 - 1)
@example("half\ud800.txt", "", 2**60)
@example("", "image/png", 1024)
def test_a_store_and_a_request_write_the_same_line(name: str, kind: str, size: int) -> None:
    """A model that was shown one of them finds the other again."""
    record = Record(H, name, 0, Scope(run="run-1"), size, "0123456789abcdef" * 4, kind, None, 0.0, None, {}, "memory:")
    assert file_line(part(record)) == placeholder(record)
