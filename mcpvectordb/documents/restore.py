"""Versions of documents for undo and merge: what is there, and how a version comes back."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import apsw

from mcpvectordb import metadata
from mcpvectordb.documents import rows, versions
from mcpvectordb.documents.libraries import checked_name
from mcpvectordb.documents.unpublished import UnpublishedDocuments
from mcpvectordb.documents.write import DocumentWriter
from mcpvectordb.errors import Damaged
from mcpvectordb.history.versions import Item, Version
from mcpvectordb.storage.file import File

_TYPES: Mapping[str, type] = {
    "title": str,
    "hash": str,
    "file_type": str,
    "size": int,
    "created_at": str,
    "metadata": str,
    "chunks": int,
}
_LOCAL_TYPES: Mapping[str, type] = {"id": str, "modified": str, "etag": str, "mtime_ns": int}


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
        self.check(version)
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

    def check(self, version: Version) -> None:
        """Raise Damaged unless a version has what a document has: it may come from another file."""
        try:
            fields: Mapping[str, Any] = version.fields or {}
            for values, types in ((fields, _TYPES), (version.local, _LOCAL_TYPES)):
                for name, kind in types.items():
                    if type(values[name]) is not kind:
                        raise ValueError
                    if kind is str:
                        metadata.storable(values[name], name)
                    elif not -(2**63) <= values[name] < 2**63:
                        raise ValueError
            metadata.decode(fields["metadata"])
            if fields["given"] is not None:
                metadata.decode(fields["given"])
            checked_name(version.item.place)
            metadata.storable(version.item.name, "source", blank=False)
        except (KeyError, TypeError, ValueError, RecursionError):
            raise Damaged("a document in the history is not what was written") from None
