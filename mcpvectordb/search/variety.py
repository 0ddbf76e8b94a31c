"""Which rows of a ranking to show, so that few of them repeat each other. Pure."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mcpvectordb.search.near_duplicates import Cover, Shingles


@dataclass(frozen=True, slots=True)
class Variety:
    """The rows that were chosen and, by these, the rows that each of them stands for.

    `folded` are rows whose text a chosen one covers; `more` is the number of other rows of its
    document. `complete` says that a longer ranking would not give more variety.
    """

    chosen: Sequence[int] = ()
    folded: Mapping[int, Sequence[int]] = field(default_factory=dict)
    more: Mapping[int, int] = field(default_factory=dict)
    complete: bool = True


EVERYTHING = Variety()


def choose(
    ranked: Sequence[int],
    wanted: int,
    *,
    owner: Callable[[int], int | None] | None = None,
    text: Callable[[int], str] | None = None,
    weak: Callable[[int], bool] = lambda row: False,
) -> Variety:
    """Choose the `wanted` best rows.

    With `owner` (the document of a row) the best row of every document comes first, unless it is
    `weak`; weak and other rows follow, in their order, only if there are too few such documents.
    With `text`, rows whose text is covered by a chosen one are folded into it. Rows are looked at
    until enough are chosen and the next one is not covered.
    """
    choice = _Choice(wanted, text)
    if owner is None:
        complete = not all(map(choice.take, ranked)) or choice.is_full
        return Variety(choice.chosen, choice.folded, complete=complete)
    shown: set[int | None] = set()
    waiting: list[int] = []
    for row in ranked:
        if owner(row) in shown or weak(row):
            waiting.append(row)
        elif not choice.take(row):
            break
        elif choice.chosen[-1] == row:
            shown.add(owner(row))
    # where other documents have weak rows only, deeper rows are weak, too
    complete = choice.is_full or any(owner(row) not in shown for row in waiting)
    left = list(itertools.dropwhile(choice.take, waiting))
    first = {owner(row): row for row in reversed(choice.chosen)}
    more = Counter(first[owner(row)] for row in left if owner(row) in first)
    return Variety(choice.chosen, choice.folded, more, complete)


class _Choice:
    """Rows that were chosen so far, and those that were folded into them."""

    def __init__(self, wanted: int, text: Callable[[int], str] | None) -> None:
        self._wanted, self._text, self._cover = wanted, text, Cover()
        self.chosen: list[int] = []
        self.folded: dict[int, list[int]] = {}

    @property
    def is_full(self) -> bool:
        return len(self.chosen) >= self._wanted

    def take(self, row: int) -> bool:
        """Fold or choose a row; False if it is not covered and enough are chosen already."""
        shingles = None if self._text is None else Shingles.of(self._text(row))
        better = None if shingles is None else self._cover.covering(shingles)
        if better is not None:
            self.folded.setdefault(self.chosen[better], []).append(row)
            return True
        if self.is_full:
            return False
        if shingles is not None:
            self._cover.add(shingles)
        self.chosen.append(row)
        return True
