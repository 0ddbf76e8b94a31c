"""Versions of vectors for undo and merge: what is there, and how a version comes back."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator

import apsw

from mcpvectordb.errors import Damaged
from mcpvectordb.history.versions import Item, Version
from mcpvectordb.index import arrays
from mcpvectordb.index.metrics import METRICS
from mcpvectordb.metadata import received, storable
from mcpvectordb.storage.file import File
from mcpvectordb.vectors import versions
from mcpvectordb.vectors.store import VectorStore


class RestoredVectors:
    """The vectors of a file as a `VersionedShelf`."""

    shelf = versions.SHELF

    def __init__(self, file: File, store: VectorStore) -> None:
        self._file, self._store = file, store

    def find(self, sql: apsw.Connection, item: Item) -> Version | None:
        """The present version of a vector; None if there is none."""
        return versions.find(sql, item)

    def present(
        self, sql: apsw.Connection, stamps: Collection[int] | None = None
    ) -> Iterator[Version]:
        """The present versions of all vectors, or of those changed at these stamps."""
        return versions.present(sql, stamps)

    def body(self, sql: apsw.Connection, version: Version) -> bytes:
        """The embedding of a stored vector, as it is stored."""
        return versions.embedding(sql, version.item)

    def text(self, body: bytes) -> str:
        """Nothing: a vector has no text."""
        return ""

    def label(self, sql: apsw.Connection, version: Version) -> str:
        """store/namespace/id, without an empty namespace."""
        item = version.item
        return "/".join(filter(None, (item.place, item.twin, item.name)))

    def owner(self, version: Version) -> int:
        """None: a vector has no chunks."""
        return 0

    def check(self, version: Version, body: bytes) -> None:
        """Raise Damaged unless a version has what a vector has."""
        _checked_group(version, body)

    def restore(self, version: Version, body: bytes) -> None:
        """Store a vector as it was."""
        item, fields = version.item, version.fields or {}
        group = _checked_group(version, body)
        with self._file.writing() as sql:
            row = self._store.find(sql, item.place)
            row = row or self._store.create(sql, item.place, version.local["metric"])
            self._store.put(
                sql, row, item.twin, [item.name], [fields["metadata"]], [group], anew=True
            )

    def remove(self, item: Item) -> None:
        """Delete a vector, if it is there."""
        with self._file.writing() as sql:
            row = self._store.find(sql, item.place)
            if row is not None:
                self._store.remove(sql, row, item.twin, item.name)


def _checked_group(version: Version, body: bytes) -> arrays.Group:
    """The embedding of a version; raises Damaged if anything is not as it is written."""
    import numpy as np

    try:
        fields = version.fields or {}
        dimension, metric = fields["dimension"], version.local["metric"]
        if type(dimension) is not int or not isinstance(metric, str) or metric not in METRICS:
            raise ValueError
        received(fields["metadata"])
        for name, text in zip(("store", "id"), version.item[1:3], strict=True):
            storable(text, name, blank=False)
        kind = np.float32 if len(body) == 4 * dimension else np.float64
        group = arrays.one(np.frombuffer(body, kind))
        stored = arrays.packed(group.rows)[0].tobytes()
        if (group.dimension, hashlib.sha256(stored).hexdigest()) != (dimension, fields["hash"]):
            raise ValueError
    except (KeyError, TypeError, ValueError, RecursionError):
        raise Damaged(f"the vector {version.item.name!r:.100} is not what was written") from None
    return group
