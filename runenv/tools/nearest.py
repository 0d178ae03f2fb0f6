"""Which of many texts are nearest to one, for words on a name or a line that is not there. Pure, and bounded.

What is compared is hostile, and `difflib` takes cubic time at worst: seconds for two lines of 300 characters. Here the
longest common subsequence of two texts is counted with the bits of one number (Hyyrö, "Bit-parallel LCS-length
computation revisited", 2004), in a time that their lengths alone decide; the ratio is the one that `difflib` estimates.
"""

from __future__ import annotations

import heapq
from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ("BUDGET_CHARS", "nearest")

CLOSE: Final = 0.6
"""From which ratio on a text is near another: twice the common characters by all characters."""
COMPARED_CHARS: Final = 300
"""Characters of each text that count."""
BUDGET_CHARS: Final = 500_000
"""Characters that are compared in one search: about 0.2 s of work at worst. Texts behind them are not looked at."""
MAX_TEXTS: Final = 20_000
"""Texts that are looked at in one search."""


def nearest(wanted: str, texts: Iterable[str], count: int = 1) -> list[int]:
    """Return which texts are near one, the nearest first.

    Args:
        wanted: what was not found.
        texts: what there is.
        count: how many are returned at most.

    Returns:
        Their places in `texts`, from 0.
    """
    wanted = wanted[:COMPARED_CHARS]
    bits: dict[str, int] = {}
    for at, char in enumerate(wanted):
        bits[char] = bits.get(char, 0) | 1 << at
    found: list[tuple[float, int]] = []
    left = BUDGET_CHARS
    for at, text in enumerate(islice(texts, MAX_TEXTS)):
        candidate = text[:COMPARED_CHARS]
        length = len(wanted) + len(candidate)
        if 2 * min(len(wanted), len(candidate)) <= CLOSE * length:
            continue
        left -= len(candidate)
        if left < 0:
            break
        ratio = 2 * _common(bits, len(wanted), candidate) / length
        if ratio > CLOSE:
            found.append((ratio, -at))
    return [-at for _, at in heapq.nlargest(count, found)]


def _common(bits: dict[str, int], length: int, text: str) -> int:
    """Return the length of the longest common subsequence of a text and that of which the places are given."""
    full = (1 << length) - 1
    unmatched = full
    for char in text:
        matched = unmatched & bits.get(char, 0)
        unmatched = ((unmatched + matched) | (unmatched - matched)) & full
    return length - unmatched.bit_count()
