"""The comments of a text while it is printed: each is taken once, by whoever prints the place where it stands.

Not for: `##` lines that document a statement; those are part of the tree.
"""

from __future__ import annotations

from bisect import bisect_left

from placelang.syntax.ast import Comment


class Comments:
    def __init__(self, source: str, comments: tuple[Comment, ...]) -> None:
        self.source = source
        self._comments = comments
        self._starts = [comment.span.start for comment in comments]
        self._taken = [False] * len(comments)

    def take(self, start: int, end: int) -> list[Comment]:
        """The comments that begin in [start, end) and that nobody took; from now on they are taken."""
        found = []
        for i in range(bisect_left(self._starts, start), bisect_left(self._starts, end)):
            if not self._taken[i]:
                self._taken[i] = True
                found.append(self._comments[i])
        return found

    def peek(self, start: int, end: int) -> list[Comment]:
        """As `take`, without taking them."""
        indices = range(bisect_left(self._starts, start), bisect_left(self._starts, end))
        return [self._comments[i] for i in indices if not self._taken[i]]

    def beside(self, offset: int, comment: Comment) -> bool:
        """Whether a comment stands in the same line as what ends at an offset before it."""
        return "\n" not in self.source[offset : comment.span.start]
