"""Vectors of vec0 tables (sqlite-vec) of other programs, read from their shadow tables as data.

sqlite-vec itself may crash on shadow tables that are damaged or crafted, so it is not asked. A
vec0 table T keeps vectors in chunks of equal size: T_rowids (rowid, id, chunk_id, chunk_offset) has
the place of each row, and its id if the primary key is text; T_vector_chunks00 (rowid = chunk_id,
vectors) the float32 values of the first vector column. The layout is that of versions 0.1.0 to
0.1.9.
"""

from __future__ import annotations

import re
from collections import OrderedDict

from mcpvectordb.importers.foreign_database import ForeignDatabase

_VECTOR = re.compile(r"\bfloat(?:32)?\s*\[\s*(\d{1,5})\s*\]", re.IGNORECASE)
_MAX_CHUNK_BYTES = 32_000_000  # sqlite-vec makes chunks of 1,024 vectors
_CHUNKS = 4  # that stay in memory: neighbours in one table are mostly neighbours in the other


class Vec0Vectors:
    """The vectors of one table; there are none if the table is not there or of another layout."""

    def __init__(self, database: ForeignDatabase, table: str) -> None:
        self._database, self._table = database, table
        found = _VECTOR.search(database.virtual.get(table, ""))
        self.dimension = int(found[1]) if found else 0
        self._places = f"{table}_rowids"
        self._vectors = f"{table}_vector_chunks00"
        self._chunks: OrderedDict[int, bytes] = OrderedDict()
        if not database.has(self._places, "rowid", "chunk_id", "chunk_offset") or not database.has(
            self._vectors, "rowid", "vectors"
        ):
            self.dimension = 0

    def get(self, key: int | str) -> bytes | None:
        """The float32 values of the vector with this rowid, or with this id if that is text."""
        if not self.dimension:
            return None
        column = "id" if isinstance(key, str) else "rowid"
        for chunk, offset in self._database.lookup(
            self._places, ("chunk_id", "chunk_offset"), column, [key]
        ):
            if isinstance(chunk, int) and isinstance(offset, int) and offset >= 0:
                size = 4 * self.dimension
                values = self._chunk(chunk)[offset * size : (offset + 1) * size]
                return values if len(values) == size else None
        return None

    def _chunk(self, number: int) -> bytes:
        if number not in self._chunks:
            rows = self._database.lookup(self._vectors, ("vectors",), "rowid", [number])
            value = next(rows, (b"",))[0]
            self._chunks[number] = (
                value if isinstance(value, bytes) and len(value) <= _MAX_CHUNK_BYTES else b""
            )
            if len(self._chunks) > _CHUNKS:
                self._chunks.popitem(last=False)
        self._chunks.move_to_end(number)
        return self._chunks[number]
