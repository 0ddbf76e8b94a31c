"""Qdrant's client in local mode: points in SQLite, compared one by one in numpy."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.engines import GROUPS, NEAREST

BATCH = 1_000


class Engine:
    """One collection; the condition is on the payload."""

    packages = ("qdrant-client",)

    def __init__(self, folder: Path) -> None:
        self._models = import_module("qdrant_client.models")
        self._client = import_module("qdrant_client").QdrantClient(path=str(folder))

    def add_vectors(self, rows: Any) -> None:
        """A thousand at a time."""
        models = self._models
        self._client.create_collection(
            "vectors", models.VectorParams(size=rows.shape[1], distance=models.Distance.COSINE)
        )
        for start in range(0, len(rows), BATCH):
            numbers = range(start, min(start + BATCH, len(rows)))
            self._client.upsert(
                "vectors",
                models.Batch(
                    ids=list(numbers),
                    vectors=rows[numbers.start : numbers.stop].tolist(),
                    payloads=[{"group": number % GROUPS} for number in numbers],
                ),
            )

    def nearest(self, query: Any, group: int | None) -> list[int]:
        """Ids only."""
        models = self._models
        where = (
            None
            if group is None
            else models.Filter(
                must=[models.FieldCondition(key="group", match=models.MatchValue(value=group))]
            )
        )
        found = self._client.query_points(
            "vectors", query.tolist(), query_filter=where, limit=NEAREST, with_payload=False
        )
        return [int(point.id) for point in found.points]

    def close(self) -> None:
        """Close the files."""
        self._client.close()
