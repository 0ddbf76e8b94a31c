"""hnswlib in memory with Chroma's parameters, written to a file at the end of adding."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.engines import GROUPS, NEAREST


class Engine:
    """One index; a condition is a function that it calls for each row it meets."""

    packages = ("hnswlib", "numpy")

    def __init__(self, folder: Path, ef: str = "100") -> None:
        self._ef = int(ef)
        self._make = import_module("hnswlib").Index
        self._path = folder / "vectors.bin"
        self._index: Any = None

    def add_vectors(self, rows: Any) -> None:
        """All at once."""
        index = self._make("cosine", rows.shape[1])
        index.init_index(max_elements=len(rows), ef_construction=100, M=16)
        index.add_items(rows, range(len(rows)))
        index.save_index(str(self._path))

    def nearest(self, query: Any, group: int | None) -> list[int]:
        """With a condition, fewer rows may be returned than there are.

        It raises an error if it finds too few; the result is then empty.
        """
        if self._index is None:
            self._index = self._make("cosine", len(query))
            self._index.load_index(str(self._path))
            self._index.set_ef(self._ef)
        fits = None if group is None else lambda number: number % GROUPS == group
        try:
            return [int(id) for id in self._index.knn_query(query, k=NEAREST, filter=fits)[0][0]]
        except RuntimeError:
            return []

    def close(self) -> None:
        """It has no closing."""
