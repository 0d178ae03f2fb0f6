"""What is near to a text: the measure is exact, and the work is bounded whatever is compared."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from runenv.tools.nearest import BUDGET_CHARS, CLOSE, COMPARED_CHARS, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

words = st.text("abc.", max_size=12)


def ratio(one: str, other: str) -> float:
    """Twice the length of the longest common subsequence by all characters, the slow way."""
    row = [0] * (len(other) + 1)
    for a in one:
        diagonal = 0
        for at, b in enumerate(other, 1):
            diagonal, row[at] = row[at], diagonal + 1 if a == b else max(row[at], row[at - 1])
    return 2 * row[-1] / (len(one) + len(other)) if one or other else 0.0


@given(words, st.lists(words, max_size=6), st.integers(1, 4))
def test_the_nearest_come_first(wanted: str, texts: list[str], count: int) -> None:
    """Those that are near enough, by the longest common subsequence; the earlier of two that are as near."""
    ranked = sorted(range(len(texts)), key=lambda at: -ratio(wanted, texts[at]))
    assert nearest(wanted, texts, count) == [at for at in ranked if ratio(wanted, texts[at]) > CLOSE][:count]


def test_no_more_is_compared_than_the_budget() -> None:
    """Texts that differ only in the order of two letters: any of them could be the nearest."""
    letters = list("ab" * COMPARED_CHARS)
    looked_at = 0

    def texts() -> Iterator[str]:
        nonlocal looked_at
        while True:
            looked_at += 1
            random.Random(looked_at).shuffle(letters)
            yield "".join(letters)

    assert len(nearest("ab" * COMPARED_CHARS, texts(), 5)) == 5
    assert looked_at <= BUDGET_CHARS // COMPARED_CHARS + 1


def test_texts_of_another_length_cost_nothing_and_have_an_end() -> None:
    """An endless list of them is left."""
    endless = iter(lambda: "x", None)
    assert nearest("a" * 100, endless) == []
