"""Deadlines that are over at a given check instead of at a time."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Iterator

from mcpvectordb.storage import deadline
from mcpvectordb.storage.deadline import ReadTime


class CountedChecks(ReadTime):
    """Over at the `last`-th check of a step, or of any step; `seen` counts them by step."""

    def __init__(self, step: str = "", last: float = math.inf) -> None:
        super().__init__(1e6)
        self._step, self._last = step, last
        self.seen: Counter[str] = Counter()

    def check(self, step: str) -> None:
        self.seen[step] += 1
        super().check(step)

    def over(self) -> bool:
        return (self.seen[self._step] if self._step else self.seen.total()) >= self._last


@contextlib.contextmanager
def counted_checks(step: str = "", last: float = math.inf) -> Iterator[CountedChecks]:
    """Let the reads of the block stop at a check."""
    token = deadline._current.set(counted := CountedChecks(step, last))
    try:
        yield counted
    finally:
        deadline._current.reset(token)
