"""The figures of an import while it runs, and the marks by which the next one knows its items."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from mcpvectordb.importers.items import (
    Imported,
    ImportedDocument,
    ImportedMemory,
    ImportedVector,
)

SKIPPED_ITEMS = 1_000
MOST_REASONS, OTHERS = 50, "for other reasons"
MARK = "imported"
"""The metadata key under which an imported item has its mark."""

Outcome = Literal["added", "changed", "known"]
StoredItem = ImportedDocument | ImportedMemory | ImportedVector

ANOTHER = (
    "another item of this name is here already, which was not imported from this source: choose "
    "another library"
)


class ImportMark(NamedTuple):
    """Where an item came from, and the hash of what it was then."""

    kind: str
    origin: str
    id: str
    hash: str
    updated_at: str = ""

    @classmethod
    def read(cls, metadata: Mapping[str, Any] | None) -> ImportMark | None:
        """The mark in the metadata of a stored item; None if it was not imported."""
        found = (metadata or {}).get(MARK)
        if not isinstance(found, Mapping):
            return None
        values = [found.get(name, "") for name in ("kind", "from", "id", "hash", "updated_at")]
        return cls(*map(str, values))

    def of_same_item(self, other: ImportMark) -> bool:
        """Whether both are of one item, in whatever state."""
        return self[:3] == other[:3]

    def added_to(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Metadata with the mark in it; a key of this name that the source has gets another one."""
        moved = {f"{MARK}_" if key == MARK else key: value for key, value in metadata.items()}
        mark = {"kind": self.kind, "from": self.origin, "id": self.id, "hash": self.hash}
        return {**moved, MARK: {**mark, **({"updated_at": self.updated_at} if self[4] else {})}}


class Marker(NamedTuple):
    """Makes the marks of the items of one source."""

    kind: str
    path: str

    def mark(self, item: StoredItem) -> ImportMark:
        """The mark of an item as it is in its source now."""
        updated = item.updated_at or item.created_at if isinstance(item, ImportedMemory) else ""
        return ImportMark(self.kind, item.origin or self.path, item.id, item_hash(item), updated)


def item_hash(item: StoredItem) -> str:
    """A hash of everything that can change in an item, except for the embeddings of its text."""
    left_out = {"embeddings", "model"}
    if isinstance(item, ImportedDocument):
        left_out.add("created_at")  # of no use once it is stored, and unknown in Chroma's queue
    fields = {name: value for name, value in vars(item).items() if name not in left_out}
    text = json.dumps(fields, sort_keys=True, default=_hashed)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def _hashed(value: Any) -> Any:
    """Bytes by their hash, records and mappings by their fields."""
    if isinstance(value, bytes):
        return hashlib.sha256(value).hexdigest()
    return dict(value if isinstance(value, Mapping) else vars(value))


def add(counts: Counter[str], reason: str, number: int = 1) -> None:
    """Count a reason; many different ones, which a source can have, count as others."""
    counts[reason if reason in counts or len(counts) < MOST_REASONS else OTHERS] += number


class ImportReport:
    """Counts what becomes of the items of an import."""

    def __init__(self, kind: str, path: str, *, dry_run: bool) -> None:
        self.kind, self.path, self.dry_run = kind, path, dry_run
        self.outcomes: dict[Outcome, Counter[str]] = {
            "added": Counter(),
            "changed": Counter(),
            "known": Counter(),
        }
        self.skipped: Counter[str] = Counter()
        self.skipped_items: list[tuple[str, str]] = []
        self.not_kept: Counter[str] = Counter()
        self.embeddings: Counter[str] = Counter()
        self.unread: list[str] = []
        self._unread = 0
        self.notes: list[str] = []

    @property
    def items(self) -> int:
        """How many items were dealt with so far."""
        return self.skipped.total() + sum(each.total() for each in self.outcomes.values())

    def count(self, shelf: str, outcome: Outcome, items: int = 1) -> None:
        """Count items of a shelf."""
        if items:
            self.outcomes[outcome][shelf] += items

    def skip(self, id: str, reason: str) -> None:
        """Count an item that is not imported."""
        add(self.skipped, reason)
        if len(self.skipped_items) < SKIPPED_ITEMS:
            self.skipped_items.append((id, reason))

    def leave_unread(self, what: str) -> None:
        """Note a part of the source that could not be read; of very many, only how many."""
        self._unread += 1
        if len(self.unread) < SKIPPED_ITEMS:
            self.unread.append(what)

    def embedded(self, outcomes: Mapping[str, int]) -> None:
        """Count what became of embeddings."""
        for outcome, number in outcomes.items():
            add(self.embeddings, outcome, number)

    def finished(self, **rest: Any) -> Imported:
        """The report as a record."""
        if self._unread > len(self.unread):
            self.unread.append(f"{self._unread - len(self.unread):,} other parts")
        return Imported(
            kind=self.kind,
            path=self.path,
            added=dict(self.outcomes["added"]),
            changed=dict(self.outcomes["changed"]),
            known=dict(self.outcomes["known"]),
            skipped=dict(self.skipped),
            skipped_items=tuple(self.skipped_items),
            not_kept=dict(self.not_kept),
            unread=tuple(self.unread),
            embeddings=dict(self.embeddings),
            notes=tuple(self.notes),
            dry_run=self.dry_run,
            **rest,
        )
