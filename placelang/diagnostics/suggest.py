"""The nearest known word to an unknown one, for "did you mean".

Not for: deciding that a word is unknown, or the sentence around the suggestion.
"""

from __future__ import annotations

from collections.abc import Iterable

_LONGEST = 64  # of a word worth a suggestion; bounds the work on hostile input


def did_you_mean(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate that `word` most probably stands for, or None if none is near.

    In this order: equal but for case and the marks `-`, `_`, `.`; nearest in edit distance (insert, delete, replace,
    swap of neighbours) within a third of the word's length; the only candidate that begins with the word. Ties go to
    the candidate that comes first in the alphabet, so the answer does not depend on the order of `candidates`.
    """
    if not word or len(word) > _LONGEST:
        return None
    wanted = _plain(word)
    names = sorted({c for c in candidates if c and c != word and len(c) <= _LONGEST})
    for name in names:
        if _plain(name) == wanted:
            return name
    limit = max(1, len(word) // 3) if len(word) > 1 else 0
    best: str | None = None
    for name in names:
        distance = _distance(wanted, _plain(name), limit)
        if distance <= limit and distance < len(_plain(name)):
            best, limit = name, distance - 1
    if best is not None:
        return best
    beginning = [name for name in names if len(wanted) > 1 and _plain(name).startswith(wanted)]
    return beginning[0] if len(beginning) == 1 else None


def _plain(word: str) -> str:
    folded = word.casefold()
    return folded.replace("_", "").replace("-", "").replace(".", "") or folded


def _distance(a: str, b: str, limit: int) -> int:
    """The optimal string alignment distance of `a` and `b`, or `limit + 1` as soon as it must exceed `limit`."""
    if abs(len(a) - len(b)) > limit:
        return limit + 1
    before: list[int] = []
    above = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        row = [i]
        for j, y in enumerate(b, start=1):
            cost = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and y == a[i - 2]:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        if min(row) > limit and min(above) > limit:
            return limit + 1
        before, above = above, row
    return above[-1]
