from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import Config, Database
from mcpvectordb.index.chunks import QueryEmbedding
from mcpvectordb.index.resident import EVERYTHING
from mcpvectordb.ranking.meaning import (
    USUAL_DEVIATION,
    MeaningRetriever,
    OwnerRetriever,
    Spread,
)
from tests.support import Letters
from tests.support_static import needs_the_static_model

cosines = st.floats(-1, 1)
spreads = st.builds(Spread, cosines, st.floats(0.01, 0.5))


@given(spread=spreads, other=spreads, low=cosines, high=cosines)
def test_converted_cosines_keep_their_order_and_come_back(
    spread: Spread, other: Spread, low: float, high: float
) -> None:
    there = spread.convert(high, other)
    assert other.convert(there, spread) == pytest.approx(high, abs=1e-9)
    if low <= high:
        assert spread.convert(low, other) <= there


def test_a_cosine_deviates_as_much_in_the_other_spread() -> None:
    assert Spread(0.1, 0.1).convert(0.4, Spread(0.5, 0.05)) == pytest.approx(0.65)


@pytest.mark.parametrize("few", [[], [0.3], [0.3, 0.3]])
def test_too_few_cosines_have_the_usual_deviation(few: list[float]) -> None:
    spread = Spread.of(few)
    assert spread.deviation == USUAL_DEVIATION and spread.mean == pytest.approx(0.3 * bool(few))


def embedded(text: str, model: int = 1) -> QueryEmbedding:
    return QueryEmbedding(model, Letters().embed([text])[0].tobytes(), 0.5)


def test_with_one_model_the_cosines_are_those_of_the_index_or_of_its_codes(db: Database) -> None:
    for text in ("listen", "silent", "zzz"):
        db.documents.ingest_text(text, source=text)
    index, ids, query = db._indexes[0], np.array([1, 2, 3, 9]), embedded("listen")
    with db._file.reading() as sql:
        by_meaning = MeaningRetriever(sql, index, query)
        near = by_meaning.nearest(EVERYTHING, 2)
        assert near == index.vector.nearest(sql, 1, query.embedding, EVERYTHING, 2)
        assert by_meaning.compared([3]).keys() == {1, 2, 3}
        exact = by_meaning.exact([1, 2, 3, 9])
        assert exact.keys() == {1, 2, 3} and exact[1] == (near[0][1], False)
        found = by_meaning.candidates(EVERYTHING, 2)
        assert dict(found) == pytest.approx(dict(near), abs=0.01)
        by_codes = by_meaning.cosines(ids)
        assert by_codes[:3] == pytest.approx([exact[id][0] for id in (1, 2, 3)], abs=0.01)
        assert np.isnan(by_codes[3]) and not by_meaning.provisional(ids).any()
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
            assert by_owner.exact([1])[1][0] > 0.5


@contextmanager
def partly_embedded(path: Path) -> Iterator[tuple[Database, QueryEmbedding]]:
    """A file of eight documents, every other one by provisional embeddings, and a query."""
    with Database(path, embedder=Letters(), config=Config(provisional=True)) as db:
        words = ["tea", "soup", "house", "river", "engine", "letter", "music", "winter"]
        for number, word in enumerate(words):
            db.documents.ingest_text(f"about {word}", source=word, embed=number % 2 == 0)
        query = db._encoder.query_embedding("about music", db.documents.backlog())
        assert isinstance(query, QueryEmbedding) and query.provisional is not None
        yield db, query


@needs_the_static_model
def test_passages_of_both_models_are_ranked_on_the_scale_of_the_files_own(path: Path) -> None:
    with partly_embedded(path) as (db, query), db._file.reading() as sql:
        index, fast = db._indexes[0], query.provisional
        assert fast is not None
        by_meaning = MeaningRetriever(sql, index, query)
        near = by_meaning.nearest(EVERYTHING, 100)
        own = dict(index.vector.nearest(sql, 1, query.embedding, EVERYTHING, 9))
        other = dict(index.vector.nearest(sql, fast.model, fast.embedding, EVERYTHING, 9))
        compared = dict(near)
        assert {id: compared[id] for id in own} == own
        assert by_meaning.exact(list(compared)) == {
            **{id: (cosine, False) for id, cosine in own.items()},
            **{id: (cosine, True) for id, cosine in other.items()},
        }
        assert [cosine for _, cosine in near] == sorted(compared.values(), reverse=True)
        to = np.mean(list(own.values())), np.std(list(own.values()))
        scale = np.mean(list(other.values())), np.std(list(other.values()))
        for id, cosine in other.items():
            expected = to[0] + to[1] * (cosine - scale[0]) / scale[1]
            assert compared[id] == pytest.approx(expected, abs=1e-9)


@needs_the_static_model
def test_codes_of_both_models_are_ranked_on_the_scale_of_the_files_own(path: Path) -> None:
    with partly_embedded(path) as (db, query), db._file.reading() as sql:
        by_meaning = MeaningRetriever(sql, db._indexes[0], query)
        compared = dict(by_meaning.nearest(EVERYTHING, 100))
        found = dict(by_meaning.candidates(EVERYTHING, 100))
        ids = np.array(sorted(found))
        assert found == pytest.approx(compared, abs=0.03)
        by_codes = by_meaning.cosines(ids)
        assert by_codes == pytest.approx([compared[id] for id in ids.tolist()], abs=0.03)
        waiting = [fast for _, fast in by_meaning.exact(ids.tolist()).values()]
        assert by_meaning.provisional(ids).sum() == sum(waiting) == 4
        moved = by_meaning.cosines(ids, [int(ids[by_meaning.provisional(ids)][0])])
        assert not np.isnan(moved).any() and moved.tolist() != by_codes.tolist()


@needs_the_static_model
def test_a_group_that_vanished_since_the_query_was_embedded_is_left_out(path: Path) -> None:
    with partly_embedded(path) as (db, query):
        db.embed_pending()
        with db._file.reading() as sql:
            by_meaning = MeaningRetriever(sql, db._indexes[0], query)
            assert len(by_meaning.nearest(EVERYTHING, 20)) == 8
            assert not any(fast for _, fast in by_meaning.exact(range(1, 9)).values())
