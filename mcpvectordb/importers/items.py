"""What an importer yields, what it is asked for, and the report of an import.

An importer only reads: it yields the items below, in any order, and knows nothing of our file.
`importers.run` stores them.
"""

from __future__ import annotations

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
    """A line of our own export, as it is; its `kind` is "header" for the first one."""

    kind: str
    fields: Mapping[str, Any]
    text: str = ""


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


Item = (
    ImportedDocument
    | ImportedMemory
    | ImportedVector
    | FollowedFolder
    | OwnRecord
    | LeftOut
    | NotKept
    | UnreadPart
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
