"""Versions of memories for undo and merge: what is there, and how a version comes back."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import apsw

from mcpvectordb.history.versions import Item, Version
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.memories import versions
from mcpvectordb.memories.versions import MemoryBody
from mcpvectordb.memories.write import MemoryWriter
from mcpvectordb.storage.file import File


class RestoredMemories:
    """The memories of a file as a `VersionedShelf`."""

    shelf = versions.SHELF

    def __init__(self, file: File, writer: MemoryWriter, index: ChunkIndex) -> None:
        self._file, self._writer, self._index = file, writer, index

    def find(self, sql: apsw.Connection, item: Item) -> Version | None:
        """The present version of a memory; None if there is none."""
        return versions.find(sql, item)

    def present(
        self, sql: apsw.Connection, stamps: Collection[int] | None = None
    ) -> Iterator[Version]:
        """The present versions of all memories, or of those changed at these stamps."""
        return versions.present(sql, stamps)

    def body(self, sql: apsw.Connection, version: Version) -> bytes:
        """The packed text and images of a stored memory."""
        return versions.packed_body(sql, self._index, version.local["id"])

    def text(self, body: bytes) -> str:
        """The text of a packed body."""
        return MemoryBody(body).text

    def label(self, sql: apsw.Connection, version: Version) -> str:
        """memory:7, by the id that it has or had in this file."""
        return f"memory:{version.local.get('id', '?')}"

    def owner(self, version: Version) -> int:
        """The id of a stored memory."""
        return int(version.local["id"])

    def check(self, version: Version, body: bytes) -> None:
        """Raise Damaged unless a version has what a memory has."""
        versions.check(version, MemoryBody(body))

    def restore(self, version: Version, body: bytes) -> None:
        """Store a version as the present one; its embeddings are made again where none is known."""
        unpacked = MemoryBody(body)
        with self._file.writing() as sql:
            self._writer.restore(sql, version, unpacked)

    def remove(self, item: Item) -> None:
        """Delete a memory, if it is there."""
        with self._file.writing() as sql:
            found = versions.find(sql, item)
            self._writer.remove(sql, [found.local["id"]] if found else [])
