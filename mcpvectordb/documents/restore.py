"""Versions of documents for undo and merge: what is there, and how a version comes back."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import apsw

from mcpvectordb import dates, metadata
from mcpvectordb.documents import given, rows, versions
from mcpvectordb.documents.libraries import checked_name
from mcpvectordb.documents.unpublished import UnpublishedDocuments
from mcpvectordb.documents.write import DocumentWriter
from mcpvectordb.errors import Damaged
from mcpvectordb.history.versions import Item, Version
from mcpvectordb.storage.file import File

_TEXTS = ("title", "hash", "file_type")
_LOCAL_TEXTS = ("id", "modified", "etag")
_LONGEST_ID = 200  # what an import may bring, too


class RestoredDocuments:
    """The documents of a file as a `VersionedShelf`."""

    shelf = versions.SHELF

    def __init__(self, file: File, writer: DocumentWriter, unpublished: UnpublishedDocuments):
        self._file, self._writer, self._unpublished = file, writer, unpublished

    def find(self, sql: apsw.Connection, item: Item) -> Version | None:
        """The present version of a document; None if there is none."""
        return versions.find(sql, item)

    def present(
        self, sql: apsw.Connection, stamps: Collection[int] | None = None
    ) -> Iterator[Version]:
        """The present versions of all documents, or of those changed at these stamps."""
        return versions.present(sql, stamps)

    def body(self, sql: apsw.Connection, version: Version) -> bytes:
        """The packed text of a stored document."""
        return versions.packed_body(sql, versions.key_of(version))

    def text(self, body: bytes) -> str:
        """The text of a packed body."""
        return versions.unpacked_body(body)[0]

    def label(self, sql: apsw.Connection, version: Version) -> str:
        """The path of a document in listings."""
        library, source = version.item.place, version.item.name
        root = sql.execute("SELECT root FROM libraries WHERE name = ?", (library,)).get
        return rows.path(library, source, root or "")

    def owner(self, version: Version) -> int:
        """The key of a stored document."""
        return versions.key_of(version)

    def restore(self, version: Version, body: bytes) -> None:
        """Write a version as the present one; its embeddings are made again where none is known."""
        self.check(version, body)
        self._writer.restore(version, body)

    def remove(self, item: Item) -> None:
        """Delete a document, if it is there."""
        with self._file.reading(limited=False) as sql:
            found = versions.find(sql, item)
        packed = self._unpublished.pack_long([versions.key_of(found)] if found else [])
        with self._file.writing() as sql:
            found = versions.find(sql, item)
            self._unpublished.withdraw(sql, [versions.key_of(found)] if found else [], packed)
        self._unpublished.clean()

    def check(self, version: Version, body: bytes) -> None:
        """Raise Damaged unless a version has what a document has: it may come from another file."""
        try:
            fields: Mapping[str, Any] = version.fields or {}
            local = version.local
            for text in (
                *(fields[each] for each in _TEXTS),
                *(local[each] for each in _LOCAL_TEXTS),
            ):
                metadata.storable(text, "text")
            for number, least in ((fields["size"], 0), (local["mtime_ns"], -1)):
                if type(number) is not int or not least <= number < 2**63:
                    raise ValueError
            if not 0 < len(local["id"]) <= _LONGEST_ID:
                raise ValueError
            dates.check_stored(fields["created_at"])
            metadata.received(fields["metadata"])
            if fields["given"] is not None:
                given.decode(metadata.received(fields["given"]))
            checked_name(version.item.place)
            metadata.storable(version.item.name, "source", blank=False)
            if len(versions.unpacked_body(body)[1]) != fields["chunks"]:
                raise ValueError
        except (KeyError, TypeError, ValueError, RecursionError):
            raise Damaged(
                f"the document {version.item.name!r:.100} is not what was written"
            ) from None
