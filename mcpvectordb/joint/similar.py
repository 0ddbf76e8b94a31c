"""Texts that are similar to a stored one, by the stored embeddings; see `Database.similar`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import apsw

from mcpvectordb.documents import rows as document_rows
from mcpvectordb.index import Allowed
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.models import ModelRow
from mcpvectordb.joint.search import Kind
from mcpvectordb.memories import rows as memory_rows
from mcpvectordb.memories.memory import Memory
from mcpvectordb.records import Chunk, Hit, Results, Scores

MOST_CHUNKS = 1_000  # of the text that others are compared with
OVERFETCH = 4  # chunks that are ranked at first for each item: several may belong to one
NOT_EMBEDDED = "it has no embedding yet"


class SimilarTexts:
    """Ranks both shelves by the cosine to the mean direction of one text's chunks."""

    def __init__(
        self, sql: apsw.Connection, model: ModelRow, documents: ChunkIndex, memories: ChunkIndex
    ) -> None:
        self._sql, self._model = sql, model
        self._indexes: dict[Kind, ChunkIndex] = {"documents": documents, "memories": memories}

    def similar(
        self, kind: Kind, owner: int, wanted: tuple[Kind, ...], limit: int
    ) -> Results[Chunk | Memory]:
        """The items most similar to that of `owner`, without itself, each by its best chunk."""
        index = self._indexes[kind]
        ids = [
            id
            for (id,) in self._sql.execute(
                f"SELECT id FROM {index.chunks} WHERE owner = ? ORDER BY position LIMIT ?",
                (owner, MOST_CHUNKS),
            )
        ]
        direction = self._direction(index, ids)
        if direction is None:
            return Results(hits=(), legs=(), reasons={"vector": NOT_EMBEDDED})
        return self._results(
            [
                (cosine, each, chunk, found)
                for each in wanted
                for found, (chunk, cosine) in self._nearest(
                    each, direction, owner if each == kind else 0, limit
                ).items()
            ],
            limit,
        )

    def to_chunk(self, chunk: int, wanted: tuple[Kind, ...], limit: int) -> Results[Chunk | Memory]:
        """The passages of documents, and the memories, most similar to one passage."""
        direction = self._direction(self._indexes["documents"], [chunk])
        if direction is None:
            return Results(hits=(), legs=(), reasons={"vector": NOT_EMBEDDED})
        ranked: list[tuple[float, Kind, int, int]] = []
        if "documents" in wanted:
            others = Allowed(
                "SELECT id FROM document_chunks WHERE id != ? "
                "AND owner IN (SELECT key FROM published_documents)",
                (chunk,),
            )
            nearest = self._indexes["documents"].vector.nearest
            ranked += [
                (cosine, "documents", id, id)
                for id, cosine in nearest(self._sql, self._model.key, direction, others, limit)
            ]
        if "memories" in wanted:
            ranked += [
                (cosine, "memories", id, found)
                for found, (id, cosine) in self._nearest("memories", direction, 0, limit).items()
            ]
        return self._results(ranked, limit)

    def _results(
        self, ranked: list[tuple[float, Kind, int, int]], limit: int
    ) -> Results[Chunk | Memory]:
        """The hits for (cosine, kind, chunk, owner), best first."""
        best = sorted(ranked, key=lambda row: (-row[0], row[1], row[2]))[:limit]
        chunks = document_rows.chunks(
            self._sql, self._indexes["documents"], [row[2] for row in best if row[1] == "documents"]
        )
        memories = memory_rows.by_ids(
            self._sql,
            self._indexes["memories"],
            [row[3] for row in best if row[1] == "memories"],
            images=False,
        )
        return Results(
            hits=tuple(
                Hit(
                    item=chunks[chunk] if each == "documents" else memories[found],
                    score=min(1.0, max(0.0, cosine)),
                    scores=Scores(vector=cosine, vector_rank=rank),
                )
                for rank, (cosine, each, chunk, found) in enumerate(best, 1)
            ),
            legs=("vector",),
        )

    def _direction(self, index: ChunkIndex, ids: Sequence[int]) -> bytes | None:
        """The mean of the unit vectors of chunks as float32; None without embeddings."""
        import numpy as np

        model = self._model
        rows: Any = index.vector.embeddings(self._sql, model.key, model.dimension, ids).rows
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        rows = (rows / np.where(lengths > 0, lengths, 1))[lengths[:, 0] > 0]
        return rows.mean(axis=0).astype(np.float32).tobytes() if len(rows) else None

    def _nearest(
        self, kind: Kind, direction: bytes, besides: int, limit: int
    ) -> dict[int, tuple[int, float]]:
        """(best chunk, cosine) of the nearest owners."""
        index = self._indexes[kind]
        published = (
            " AND owner IN (SELECT key FROM published_documents)" if kind == "documents" else ""
        )
        allowed = Allowed(f"SELECT id FROM {index.chunks} WHERE owner != ?{published}", (besides,))
        depth = OVERFETCH * limit
        while True:
            chunks = index.vector.nearest(self._sql, self._model.key, direction, allowed, depth)
            owners = dict(
                self._sql.execute(
                    f"SELECT id, owner FROM {index.chunks} "
                    "WHERE id IN (SELECT value FROM json_each(?))",
                    (json.dumps([id for id, _ in chunks]),),
                )
            )
            nearest: dict[int, tuple[int, float]] = {}
            for chunk, cosine in chunks:
                nearest.setdefault(owners[chunk], (chunk, cosine))
            if len(nearest) >= limit or len(chunks) < depth:
                return nearest
            depth *= OVERFETCH
