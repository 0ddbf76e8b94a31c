from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mcpvectordb import Config, Database
from mcpvectordb.index.chunks import QueryEmbedding
from mcpvectordb.index.resident import EVERYTHING
from mcpvectordb.ranking.meaning import MeaningRetriever, OwnerRetriever
from tests.support import Letters


def embedded(text: str, model: int = 1) -> QueryEmbedding:
    return QueryEmbedding(model, Letters().embed([text])[0].tobytes(), 0.5)


def test_cosines_are_those_of_the_index_or_of_its_codes(db: Database) -> None:
    for text in ("listen", "silent", "zzz"):
        db.documents.ingest_text(text, source=text)
    index, ids, query = db._indexes[0], np.array([1, 2, 3, 9]), embedded("listen")
    with db._file.reading() as sql:
        by_meaning = MeaningRetriever(sql, index, query)
        near = by_meaning.nearest(EVERYTHING, 2)
        assert near == index.vector.nearest(sql, 1, query.embedding, EVERYTHING, 2)
        exact = by_meaning.exact([1, 2, 3, 9])
        assert exact.keys() == {1, 2, 3} and exact[1] == near[0][1]
        found = by_meaning.candidates(EVERYTHING, 2)
        assert dict(found) == pytest.approx(dict(near), abs=0.01)
        by_codes = by_meaning.cosines(ids)
        assert by_codes[:3] == pytest.approx([exact[id] for id in (1, 2, 3)], abs=0.01)
        assert np.isnan(by_codes[3])
        assert by_meaning.cosines(ids, [3])[2] > by_codes[2]  # feedback moves the query towards it


def test_the_nearest_passage_of_a_memory_is_one_that_has_an_embedding(path: Path) -> None:
    with Database(path, embedder=Letters(), config=Config(chunk_size=16)) as db:
        db.memories.add("t", "user", "apples appear\n\n" * 3 + "zebra zone\n\n" * 30)
        with db._file.writing() as sql:
            sql.execute("DELETE FROM context_embeddings WHERE chunk > 1")
        with db._file.reading() as sql:
            by_owner = OwnerRetriever(sql, db._indexes[1], embedded("apples appear"))
            by_owner.candidates(EVERYTHING, 5)
            assert by_owner.cosines(np.array([1]))[0] > 0.5
            assert by_owner.passage == {1: 1}
            assert by_owner.exact([1])[1] > 0.5
