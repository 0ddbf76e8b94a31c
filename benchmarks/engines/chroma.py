"""Chroma's persistent client: HNSW with its default parameters."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.engines import GROUPS, NEAREST


class Engine:
    """One collection; its embedding function is not used."""

    packages = ("chromadb",)

    def __init__(self, folder: Path, ef: int = 100) -> None:
        chromadb = import_module("chromadb")
        self._client = chromadb.PersistentClient(
            str(folder), chromadb.Settings(anonymized_telemetry=False)
        )
        self._collection = self._client.get_or_create_collection(
            "vectors", metadata={"hnsw:space": "cosine"}, embedding_function=None
        )
        if ef != 100:  # which is its default
            self._collection.modify(configuration={"hnsw": {"ef_search": ef}})
            self._collection = self._client.get_collection("vectors", embedding_function=None)

    def add_vectors(self, rows: Any) -> None:
        """As many at once as it takes."""
        batch = self._client.get_max_batch_size()
        for start in range(0, len(rows), batch):
            numbers = range(start, min(start + batch, len(rows)))
            self._collection.add(
                ids=[str(number) for number in numbers],
                embeddings=rows[numbers.start : numbers.stop],
                metadatas=[{"group": number % GROUPS} for number in numbers],
            )

    def nearest(self, query: Any, group: int | None) -> list[int]:
        """Ids only."""
        where = None if group is None else {"group": group}
        found = self._collection.query(
            query_embeddings=[query], n_results=NEAREST, where=where, include=[]
        )
        return [int(id) for id in found["ids"][0]]

    def close(self) -> None:
        """It has no closing."""
