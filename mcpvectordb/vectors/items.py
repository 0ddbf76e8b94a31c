"""Vectors as items: one form for history, undo, merge, export and import.

The body of a version, and its content, are the numbers of the embedding as they are stored.
"""

from __future__ import annotations

import hashlib
from abc import ABC
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import apsw

from mcpvectordb import metadata
from mcpvectordb.errors import InvalidInput, quoted
from mcpvectordb.history.versions import LOCAL, Item, Version, VersionedShelf, body_name
from mcpvectordb.index import arrays
from mcpvectordb.index.metrics import METRICS
from mcpvectordb.metadata import from_base64, storable

if TYPE_CHECKING:
    from mcpvectordb.index.arrays import Floats

SHELF = "vectors"
MAX_NAME = 200  # characters of a store or namespace: it is shown in listings
MAX_ID = 4_096  # characters of an id: enough for any path or URL


class VectorItems(VersionedShelf, ABC):
    """The vectors of all stores."""

    shelf, noun = SHELF, "vector"
    key, stamp = "v.key", "v.stamp"
    identity = "s.name = :place AND v.id = :name AND v.namespace = :twin"
    select = (
        "SELECT s.name, v.id, v.namespace, v.stamp, s.metric, v.dimension, v.metadata, "
        "e.embedding FROM vectors v JOIN stores s ON s.key = v.store "
        "JOIN vector_embeddings e ON e.vector = v.key"
    )

    @classmethod
    def version(cls, sql: apsw.Connection, row: Sequence[Any]) -> Version:
        """The version in a row."""
        store, id, namespace, stamp, metric, dimension, values, raw = row
        fields = {
            "dimension": dimension,
            "metadata": values,
            "hash": hashlib.sha256(raw).hexdigest(),
            LOCAL: {"metric": metric},  # the store's, which may be another one in another file
        }
        return Version(Item(SHELF, store, id, namespace), stamp, fields, body_name(raw))

    @classmethod
    def body(cls, sql: apsw.Connection, version: Version) -> bytes:
        """The embedding of a stored vector, as it is stored; b"" without one."""
        row = sql.execute(f"{cls.select} WHERE {cls.identity}", version.item._asdict()).fetchone()
        return b"" if row is None else bytes(row[-1])

    @classmethod
    def content(cls, body: bytes) -> bytes:
        """The body itself."""
        return body

    @classmethod
    def label(cls, sql: apsw.Connection, version: Version) -> str:
        """store/namespace/id, without an empty namespace."""
        item = version.item
        return "/".join(filter(None, (item.place, item.twin, item.name)))

    @classmethod
    def check(cls, version: Version, content: bytes) -> None:
        """Raise an error unless a version has what a vector has."""
        fields = version.fields or {}
        dimension, metric = fields["dimension"], version.local["metric"]
        if not isinstance(metric, str) or metric not in METRICS:
            raise InvalidInput(f"metric must be {', '.join(METRICS)}, not {quoted(metric)}")
        if type(dimension) is not int or len(content) not in (4 * dimension, 8 * dimension):
            raise InvalidInput(f"raw has not the size of {quoted(dimension)} numbers")
        metadata.received(fields["metadata"])
        storable(version.item.place, "store", blank=False)
        storable(version.item.name, "id", blank=False)
        stored = arrays.packed(arrays.one(numbers(content, dimension)).rows)[0].tobytes()
        if hashlib.sha256(stored).hexdigest() != fields["hash"]:
            raise InvalidInput("its numbers are not as they are stored")

    @classmethod
    def line(cls, version: Version, content: bytes) -> dict[str, Any]:
        """A vector as an export has it."""
        item, fields = version.item, version.fields or {}
        return {
            "store": item.place,
            "namespace": item.twin,
            "id": item.name,
            "dimension": fields["dimension"],
            "raw": content,
            "metadata": metadata.decode(fields["metadata"]),
        }

    @classmethod
    def of_line(cls, line: Mapping[str, Any], metrics: Mapping[str, str]) -> tuple[Version, bytes]:
        """The vector of such a line, which may say anything; raises InvalidInput.

        `metrics` are those of the export's stores.
        """
        raw = from_base64(line.get("raw"), "raw")
        item = Item(SHELF, *(storable(line.get(each), each) for each in ("store", "id")))
        item = item._replace(twin=storable(line.get("namespace"), "namespace"))
        if max(len(item.place), len(item.twin)) > MAX_NAME or len(item.name) > MAX_ID:
            raise InvalidInput(f"an id has more than {MAX_ID}, or a name {MAX_NAME} characters")
        fields = {
            "dimension": line.get("dimension"),
            "metadata": metadata.encode(line.get("metadata")),
            "hash": hashlib.sha256(raw).hexdigest(),
            LOCAL: {"metric": metrics.get(item.place)},
        }
        version = Version(item, 0, fields)
        cls.check(version, raw)
        return version, raw


def numbers(raw: bytes, dimension: int) -> Floats:
    """The numbers of a stored embedding."""
    import numpy as np

    return np.frombuffer(raw, "<f4" if len(raw) == 4 * dimension else "<f8")
