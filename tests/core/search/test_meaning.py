from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import Config, Database
from mcpvectordb.index import EVERYTHING
from mcpvectordb.index.models import QueryEmbedding
from mcpvectordb.search.meaning import USUAL_DEVIATION, MeaningRetriever, Spread
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


def embedded(text: str, model: int) -> QueryEmbedding:
    return QueryEmbedding(model, Letters().embed([text])[0].tobytes(), 0.5)


def test_with_one_model_the_cosines_are_those_of_the_index(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        for text in ("listen", "silent", "zzz"):
            db.documents.ingest_text(text, source=text)
        index = db._indexes[0]
        with db._file.reading() as sql:
            query = embedded("listen", 1)
            leg = MeaningRetriever(sql, index, query)
            near = leg.nearest(EVERYTHING, 2)
            assert near == index.vector.nearest(sql, 1, query.embedding, EVERYTHING, 2)
            assert leg.complete([3]).keys() == {1, 2, 3}
            assert leg.cosine(1) == near[0][1] and leg.cosine(9) is None
            assert not any(map(leg.is_provisional, (1, 2, 3, 9)))


def test_candidates_are_ranked_by_codes_and_feedback_moves_the_query_towards_them(
    path: Path,
) -> None:
    with Database(path, embedder=Letters()) as db:
        for text in ("listen", "silent", "zzz"):
            db.documents.ingest_text(text, source=text)
        index, ids = db._indexes[0], np.array([1, 2, 3, 9])
        with db._file.reading() as sql:
            leg = MeaningRetriever(sql, index, embedded("listen", 1))
            exact = dict(leg.nearest(EVERYTHING, 9))
            found = leg.candidates(EVERYTHING, 2)
            assert dict(found) == pytest.approx({1: exact[1], 2: exact[2]}, abs=0.01)
            cosines = leg.cosines(ids)
            assert cosines[:3] == pytest.approx([exact[1], exact[2], exact[3]], abs=0.01)
            assert np.isnan(cosines[3]) and not leg.provisional(ids).any()
            assert leg.cosines(ids, [3])[2] > cosines[2]


@needs_the_static_model
def test_passages_of_both_models_are_ranked_on_the_scale_of_the_files_own(path: Path) -> None:
    with Database(path, embedder=Letters(), config=Config(provisional=True)) as db:
        words = ["tea", "soup", "house", "river", "engine", "letter", "music", "winter"]
        for number, word in enumerate(words):
            db.documents.ingest_text(f"about {word}", source=word, embed=number % 2 == 0)
        index, text = db._indexes[0], "about music"
        backlog = db.documents.backlog()
        query = db._encoder.query_embedding(text, backlog)
        assert isinstance(query, QueryEmbedding) and query.provisional is not None
        with db._file.reading() as sql:
            leg = MeaningRetriever(sql, index, query)
            near = leg.nearest(EVERYTHING, 100)
            own = dict(index.vector.nearest(sql, 1, query.embedding, EVERYTHING, 9))
            fast = query.provisional
            other = dict(index.vector.nearest(sql, fast.model, fast.embedding, EVERYTHING, 9))
        compared = dict(near)
        assert {id: compared[id] for id in own} == own
        assert {id: leg.cosine(id) for id in other} == other
        assert [leg.is_provisional(id) for id, _ in near] == [id in other for id, _ in near]
        assert [cosine for _, cosine in near] == sorted(compared.values(), reverse=True)
        to = np.mean(list(own.values())), np.std(list(own.values()))
        scale = np.mean(list(other.values())), np.std(list(other.values()))
        for id, cosine in other.items():
            expected = to[0] + to[1] * (cosine - scale[0]) / scale[1]
            assert compared[id] == pytest.approx(expected, abs=1e-9)


@needs_the_static_model
def test_a_group_that_vanished_since_the_query_was_embedded_is_left_out(path: Path) -> None:
    with Database(path, embedder=Letters(), config=Config(provisional=True)) as db:
        db.documents.ingest_text("one", source="one")
        db.documents.ingest_text("two", source="two", embed=False)
        query = db._encoder.query_embedding("one", db.documents.backlog())
        assert isinstance(query, QueryEmbedding) and query.provisional is not None
        db.embed_pending()
        with db._file.reading() as sql:
            leg = MeaningRetriever(sql, db._indexes[0], query)
            assert {id for id, _ in leg.nearest(EVERYTHING, 5)} == {1, 2}
            assert leg.complete([1, 2]).keys() == {1, 2} and not leg.is_provisional(2)


@needs_the_static_model
def test_codes_of_both_models_are_ranked_on_the_scale_of_the_files_own(path: Path) -> None:
    with Database(path, embedder=Letters(), config=Config(provisional=True)) as db:
        words = ["tea", "soup", "house", "river", "engine", "letter", "music", "winter"]
        for number, word in enumerate(words):
            db.documents.ingest_text(f"about {word}", source=word, embed=number % 2 == 0)
        query = db._encoder.query_embedding("about music", db.documents.backlog())
        assert isinstance(query, QueryEmbedding)
        with db._file.reading() as sql:
            leg = MeaningRetriever(sql, db._indexes[0], query)
            exact = dict(leg.nearest(EVERYTHING, 100))
            found = dict(leg.candidates(EVERYTHING, 100))
            ids = np.array(sorted(found))
            assert found == pytest.approx(exact, abs=0.03)
            assert leg.cosines(ids) == pytest.approx([exact[id] for id in ids.tolist()], abs=0.03)
            waiting = [leg.is_provisional(id) for id in ids.tolist()]
            assert leg.provisional(ids).tolist() == waiting and 0 < sum(waiting) < 8
            moved = leg.cosines(ids, [int(ids[np.argmax(waiting)])])
            assert not np.isnan(moved).any() and moved.tolist() != leg.cosines(ids).tolist()
