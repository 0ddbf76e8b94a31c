"""What an importer yields, what it is asked for, and the report of an import.

An importer only reads: it yields the items below, in any order, and knows nothing of our file.
`transfer.write` stores them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

from mcpvectordb.memories.memory import Image, MemorySource
from mcpvectordb.records import Embedded, Metric, Record

Into = Literal["documents", "vectors"]


class ImportOptions(Record):
    """What the user asked for, as far as an importer needs it.

    library    the library for all documents; "" leaves the choice to the importer
    into       the shelf for items that have both a text and an embedding; "" as above
    table      the table of a database
    text       the columns or fields that make up the text, in their order
    id, title, embedding  the column or field that has it
    metadata   the columns or fields that become metadata; () means all others
    model      the name of the model that made the embeddings, where the source does not say it
    """

    library: str = ""
    into: Into | Literal[""] = ""
    table: str = ""
    text: Sequence[str] = ()
    id: str = ""
    title: str = ""
    embedding: str = ""
    metadata: Sequence[str] = ()
    model: str = ""


class ImportedDocument(Record):
    """A text of the source, and where it belongs.

    id          its identity in the source and its library: it becomes the document's `source`
    modified    ISO 8601, "" if unknown; `created_at` is the time of the import if it is ""
    embeddings  float32 values (little-endian), by the text that they were made from: the whole text
                or a passage of it
    model       the name of the model that made them, "" if the source does not say it
    origin      what distinguishes the source from others of its kind; "" means its path
    """

    id: str
    text: str
    library: str
    title: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    modified: str = ""
    created_at: str = ""
    embeddings: Mapping[str, bytes] = field(default_factory=dict)
    model: str = ""
    origin: str = ""


class ImportedMemory(Record):
    """A memory or a message of the source; the fields are those of a memory and of a document."""

    id: str
    thread: str
    source: MemorySource
    text: str
    created_at: str
    updated_at: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    tags: Sequence[str] = ()
    images: Sequence[Image] = ()
    embeddings: Mapping[str, bytes] = field(default_factory=dict)
    model: str = ""
    origin: str = ""


class ImportedVector(Record):
    """An embedding of the source as float32 values (little-endian), for the vectors shelf."""

    id: str
    values: bytes
    store: str
    namespace: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    metric: Metric = "cosine"
    origin: str = ""


class FollowedFolder(Record):
    """A library that follows a folder.

    `confirmed` says whether the user named the folder; one that only the source names must be
    confirmed before anything in it is read. `descriptions` are those of paths in it ("": all).
    """

    library: str
    root: str
    pattern: str
    ignore: Sequence[str] = ()
    descriptions: Mapping[str, str] = field(default_factory=dict)
    confirmed: bool = False


class OwnRecord(Record):
    """A line of our own export, as it is; the `kind` of the first one is "header"."""

    fields: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The text of an item; "" for other lines."""
        text = self.fields.get("text")
        return text if isinstance(text, str) else ""


class LeftOut(Record):
    """An item of the source that is not imported, and why."""

    id: str
    reason: str


class NotKept(Record):
    """A detail of imported items for which there is no place here, and of how many of them."""

    what: str
    count: int = 1


class UnreadPart(Record):
    """A part of the source that could not be read, as one sentence; it may be damaged."""

    what: str


TextItem = ImportedDocument | ImportedMemory
StoredItem = TextItem | ImportedVector
Item = StoredItem | FollowedFolder | OwnRecord | LeftOut | NotKept | UnreadPart


def document_or_vector(
    options: ImportOptions,
    place: str,
    text: str,
    embedding: bytes | None,
    *,
    id: str,
    metadata: Mapping[str, Any],
    metric: Metric = "cosine",
    origin: str = "",
    why_not: str,
    **of_document: str,
) -> ImportedDocument | ImportedVector | LeftOut:
    """A document if there is a text, unless vectors are asked for; otherwise a vector, if any.

    `place` is the library or the store, unless the options name another library.
    """
    if text.strip() and options.into != "vectors":
        return ImportedDocument(
            id=id,
            text=text,
            library=options.library or place,
            metadata=metadata,
            embeddings={text: embedding} if embedding else {},
            origin=origin,
            **of_document,
        )
    if not embedding:
        return LeftOut(id=id, reason=why_not)
    kept = {**metadata, **({"text": text} if text.strip() else {})}
    return ImportedVector(
        id=id, values=embedding, store=place, metadata=kept, metric=metric, origin=origin
    )


class Imported(Record):
    """The report of an import; items are counted by shelf: documents, memories, vectors, libraries.

    added, changed, known   items that are new here, that changed in the source since the last
                            import, and that are here already
    skipped                 items that were not imported, by reason
    skipped_items           (id, reason) of the first 1,000 of these
    not_kept                details of imported items that have no place here, with their number
    unread                  parts of the source that could not be read
    embeddings              what became of the embeddings of items, with the number of items:
                            "kept", or the reason why they are made anew
    pending                 how many passages wait for their embedding
    notes                   what else is to be known or done, one sentence each
    dry_run                 whether nothing was stored, and the figures say what would be
    embedded                what was embedded at the end
    """

    kind: str
    path: str
    added: Mapping[str, int] = field(default_factory=dict)
    changed: Mapping[str, int] = field(default_factory=dict)
    known: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    skipped_items: tuple[tuple[str, str], ...] = ()
    not_kept: Mapping[str, int] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    embeddings: Mapping[str, int] = field(default_factory=dict)
    pending: int = 0
    notes: tuple[str, ...] = ()
    dry_run: bool = False
    embedded: Embedded = Embedded()


SKIPPED_ITEMS = 1_000
MOST_REASONS, OTHERS = 50, "for other reasons"
OUTCOMES = ("added", "changed", "known")
_COUNTED = (*OUTCOMES, "skipped", "not_kept", "embeddings")


class ImportReport:
    """Counts what becomes of the items of an import, for an `Imported`."""

    def __init__(self, kind: str, path: str, *, dry_run: bool) -> None:
        self.kind, self.path, self.dry_run = kind, path, dry_run
        self.counts: dict[str, Counter[str]] = {each: Counter() for each in _COUNTED}
        self.skipped_items: list[tuple[str, str]] = []
        self.unread: list[str] = []
        self.notes: list[str] = []
        self._more_unread = 0

    @property
    def items(self) -> int:
        """How many items were dealt with so far."""
        return sum(self.counts[each].total() for each in (*OUTCOMES, "skipped"))

    def count(self, what: str, which: str, number: int = 1) -> None:
        """Count items: those added, changed or known by their shelf, others by a reason.

        Many different reasons, which a source can have, count as others.
        """
        counts = self.counts[what]
        if number:
            counts[which if which in counts or len(counts) < MOST_REASONS else OTHERS] += number

    def settle(self, shelf: str, id: str, outcome: str) -> bool:
        """Count an item by its outcome, or by the reason why it is not imported; whether it is."""
        if outcome in OUTCOMES:
            self.count(outcome, shelf)
            return True
        self.skip(id, outcome)
        return False

    def skip(self, id: str, reason: str) -> None:
        """Count an item that is not imported."""
        self.count("skipped", reason)
        if len(self.skipped_items) < SKIPPED_ITEMS:
            self.skipped_items.append((id, reason))

    def leave_unread(self, what: str) -> None:
        """Note a part of the source that could not be read; of very many, only how many."""
        if len(self.unread) < SKIPPED_ITEMS:
            self.unread.append(what)
        else:
            self._more_unread += 1

    def finished(self, **rest: Any) -> Imported:
        """The report as a record."""
        if self._more_unread:
            self.unread.append(f"{self._more_unread:,} other parts")
        rest |= {name: dict(counts) for name, counts in self.counts.items()}
        return Imported(
            kind=self.kind,
            path=self.path,
            skipped_items=tuple(self.skipped_items),
            unread=tuple(self.unread),
            notes=tuple(self.notes),
            dry_run=self.dry_run,
            **rest,
        )
