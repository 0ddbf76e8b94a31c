"""The figures of an import while it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from mcpvectordb.importers.items import Imported

SKIPPED_ITEMS = 1_000
MOST_REASONS, OTHERS = 50, "for other reasons"


def add(counts: Counter[str], reason: str, number: int = 1) -> None:
    """Count a reason; many different ones, which a source can have, count as others."""
    counts[reason if reason in counts or len(counts) < MOST_REASONS else OTHERS] += number


class ImportReport:
    """Counts what becomes of the items of an import; the figures are those of `Imported`."""

    def __init__(self, kind: str, path: str, *, dry_run: bool) -> None:
        self.kind, self.path, self.dry_run = kind, path, dry_run
        self.added: Counter[str] = Counter()
        self.changed: Counter[str] = Counter()
        self.known: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.not_kept: Counter[str] = Counter()
        self.embeddings: Counter[str] = Counter()
        self.skipped_items: list[tuple[str, str]] = []
        self.unread: list[str] = []
        self.notes: list[str] = []
        self._outcomes = {"added": self.added, "changed": self.changed, "known": self.known}
        self._more_unread = 0

    @property
    def items(self) -> int:
        """How many items were dealt with so far."""
        return self.skipped.total() + sum(each.total() for each in self._outcomes.values())

    def count(self, shelf: str, outcome: str, items: int = 1) -> None:
        """Count items of a shelf that are added, changed or known."""
        if items:
            self._outcomes[outcome][shelf] += items

    def settle(self, shelf: str, id: str, outcome: str) -> bool:
        """Count an item by its outcome, or by the reason why it is not imported; whether it is."""
        if outcome in self._outcomes:
            self.count(shelf, outcome)
            return True
        self.skip(id, outcome)
        return False

    def skip(self, id: str, reason: str) -> None:
        """Count an item that is not imported."""
        add(self.skipped, reason)
        if len(self.skipped_items) < SKIPPED_ITEMS:
            self.skipped_items.append((id, reason))

    def leave_unread(self, what: str) -> None:
        """Note a part of the source that could not be read; of very many, only how many."""
        if len(self.unread) < SKIPPED_ITEMS:
            self.unread.append(what)
        else:
            self._more_unread += 1

    def embedded(self, outcomes: Mapping[str, int]) -> None:
        """Count what became of embeddings."""
        for outcome, number in outcomes.items():
            add(self.embeddings, outcome, number)

    def finished(self, **rest: Any) -> Imported:
        """The report as a record."""
        if self._more_unread:
            self.unread.append(f"{self._more_unread:,} other parts")
        for name, value in vars(self).items():
            if not name.startswith("_"):
                rest[name] = (
                    tuple(value)
                    if isinstance(value, list)
                    else dict(value)
                    if isinstance(value, Counter)
                    else value
                )
        return Imported(**rest)
