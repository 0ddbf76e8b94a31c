"""The records of the vectors shelf."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from mcpvectordb.records import Metric, Record
from mcpvectordb.storage.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def numbers(raw: bytes, dimension: int) -> NDArray[np.floating[Any]]:
    """The numbers of a stored embedding."""
    return np.frombuffer(raw, "<f4" if len(raw) == 4 * dimension else "<f8")


class Vector(Record):
    """An embedding that the user made, with an id that is unique in a namespace of a store.

    `raw` is the embedding as it is stored: float32 if that represents every number exactly,
    otherwise float64.
    """

    id: str
    store: str
    namespace: str
    dimension: int
    raw: bytes
    metadata: Mapping[str, Any]

    @property
    def embedding(self) -> NDArray[np.floating[Any]]:
        """The numbers exactly as they were added, as a read-only array that is not a copy."""
        return numbers(self.raw, self.dimension)

    def to_dict(self) -> dict[str, Any]:
        """The fields in JSON's types, with the embedding as a list of numbers instead of `raw`."""
        values = super().to_dict()
        del values["raw"]
        return {**values, "embedding": self.embedding.tolist()}


class Added(Record):
    """The result of adding a vector."""

    status: Literal["added", "updated"]
    vector: Vector


class AddedMany(Record):
    """How many vectors were new, and how many replaced one with the same id."""

    added: int
    updated: int


class Store(Record):
    """A named set of vectors, the metric that ranks them, and their number."""

    name: str
    metric: Metric
    vectors: int


class Namespace(Record):
    """A part of a store in which ids are unique; the default one is ""."""

    name: str
    vectors: int
