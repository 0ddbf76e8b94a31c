"""All embeddings of documents and memories, scaled to length 1, for what compares all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

import apsw

from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.models import ModelRow

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Name = tuple[Literal["documents", "memories"], str]


class UnitRows(NamedTuple):
    """Some rows, and of each the id of its passage, or of its memory, and its group."""

    ids: NDArray[np.int64]
    groups: NDArray[np.uint16]
    rows: NDArray[np.float32]


class UnitVectors:
    """The embeddings of both shelves by a model; `names` are those of the groups.

    A group is a library, or all memories. Passages of unpublished documents are left out.
    """

    def __init__(
        self, sql: apsw.Connection, model: ModelRow, documents: ChunkIndex, memories: ChunkIndex
    ) -> None:
        self._sql, self._model, self._indexes = sql, model, (documents, memories)
        libraries: list[str] = [
            name
            for (name,) in sql.execute(
                "SELECT DISTINCT library FROM published_documents ORDER BY library"
            )
        ]
        self.names: tuple[Name, ...] = tuple(("documents", name) for name in libraries)
        if memories.count(sql):
            self.names += (("memories", ""),)
        self._numbers = {name: number for number, name in enumerate(libraries)}
        self.passages = documents.count(sql) + memories.count(sql)
        self.pending = documents.count_pending(sql, model.key) + memories.count_pending(
            sql, model.key
        )

    def blocks(self) -> Iterator[UnitRows]:
        """The rows, some at a time: passages of documents by id, then those of memories."""
        import numpy as np

        for index, labels in zip(self._indexes, self._labels(), strict=True):
            chunks, ids, groups = (np.array(each, np.int64) for each in labels)
            for found, rows in index.vector.blocks(
                self._sql, self._model.key, self._model.dimension
            ):
                places = np.searchsorted(chunks, found)
                there = places < len(chunks)
                there[there] = chunks[places[there]] == np.array(found)[there]
                lengths = np.linalg.norm(rows, axis=1)
                there &= lengths > 0
                places = places[there]
                yield UnitRows(
                    ids[places],
                    groups[places].astype(np.uint16),
                    (rows[there] / lengths[there, None]).astype(np.float32),
                )

    def _labels(self) -> Iterator[tuple[list[int], list[int], list[int]]]:
        """(chunks in order, ids, groups) of each shelf."""
        of_documents: list[tuple[int, str]] = list(
            self._sql.execute(
                "SELECT c.id, d.library FROM document_chunks c "
                "JOIN published_documents d ON d.key = c.owner ORDER BY c.id"
            )
        )
        chunks = [chunk for chunk, _ in of_documents]
        yield chunks, chunks, [self._numbers[library] for _, library in of_documents]
        of_memories: list[tuple[int, int]] = list(
            self._sql.execute("SELECT id, owner FROM context_chunks ORDER BY id")
        )
        yield (
            [chunk for chunk, _ in of_memories],
            [owner for _, owner in of_memories],
            [len(self._numbers)] * len(of_memories),
        )
