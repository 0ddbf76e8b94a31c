"""Fusion of words and meaning, with an embedder whose vectors are written by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mcpvectordb import Config, Database, InvalidInput
from mcpvectordb.ranking.ranker import (
    AGREED,
    KEPT,
    Recency,
    StatementLog,
    blended,
    fuse,
    kept_high,
    rrf,
    tier_depth,
    tiers,
    weighed,
)
from mcpvectordb.storage.dialect import FileConnection
from mcpvectordb.storage.file import File


class ByHand:
    """Embeds a text into one of three directions by its words, and every query into the first."""

    name = "by hand"
    dimension = 3

    def __init__(self, vector_weight: float) -> None:
        self.vector_weight = vector_weight

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        kettle, teapot, other = ([1.0, 0.1, 0.1], [0.1, 1.0, 0.1], [0.1, 0.1, 1.0])
        return np.array(
            [
                kettle if query or "kettle" in text else teapot if "teapot" in text else other
                for text in texts
            ],
            np.float32,
        )


def first(db: Database, query: str) -> str:
    return db.documents.search(query)[0].item.document.source


@pytest.fixture
def filled(path: Path) -> Iterator[Path]:
    """Words find the code in the teapot's text only; the embedder relates all to the kettle."""
    with Database(path, embedder=ByHand(0.5)) as db:
        for source, text in {
            "kettle": "A kettle for the summer house.",
            "teapot": "A teapot, item E-4022, of porcelain.",
            "plate": "A plate for cake.",
            "spoon": "A spoon to stir with.",
        }.items():
            db.documents.ingest_text(text, source=source)
    yield path


@pytest.mark.parametrize(("weight", "best"), [(0.8, "kettle"), (0.2, "teapot")])
def test_the_model_sets_the_weight_of_meaning_and_words_get_the_rest(
    filled: Path, weight: float, best: str
) -> None:
    with Database(filled, embedder=ByHand(weight)) as db:
        assert first(db, "porcelain") == best


@pytest.mark.parametrize(("weight", "best"), [(0.8, "kettle"), (0.2, "teapot")])
def test_the_weight_in_the_configuration_overrides_the_models(
    filled: Path, weight: float, best: str
) -> None:
    with Database(filled, embedder=ByHand(1 - weight), config=Config(vector_weight=weight)) as db:
        assert first(db, "porcelain") == best


def test_a_code_is_ranked_by_words_at_any_weight_of_meaning(filled: Path) -> None:
    with Database(filled, embedder=ByHand(0.8)) as db:
        assert first(db, "E-4022") == "teapot"
        assert first(db, "E-4022 porcelain") == "teapot"


def test_a_code_that_no_text_has_takes_no_weight_from_meaning(filled: Path) -> None:
    with Database(filled, embedder=ByHand(0.8)) as db:
        assert first(db, "E-9999 of porcelain") == "kettle"


@pytest.mark.parametrize("mode", ["hybrid", "text", "vector"])
def test_a_question_is_answered_in_one_snapshot(
    path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Database(path, embedder=ByHand(0.5)) as db:
        db.documents.ingest_text("A kettle for the summer house.", source="kettle")
        db.memories.add("house", "user", "The kettle is in the summer house.")
        questions = {
            "passages": partial(db.documents.search, "kettle", mode=mode),
            "documents": partial(db.documents.search, "kettle", mode=mode, unit="document"),
            "memories": partial(db.memories.search, "kettle", mode=mode),
            "both": partial(db.search, "kettle"),
        }
        begun: list[str] = []
        begin = File._wait_for

        def counted(file: File, connection: Any, statement: str) -> None:
            begun.append(statement)
            begin(file, connection, statement)

        monkeypatch.setattr(File, "_wait_for", counted)
        for name, ask in questions.items():
            begun.clear()
            assert ask().hits and begun == ["BEGIN"], name


def test_a_document_is_as_good_as_its_best_passage(path: Path) -> None:
    long = "\n\n".join(f"# Part {number}\n\n" + "water " * 80 for number in range(40))
    with Database(path, embedder=ByHand(0.5), config=Config(chunk_size=32)) as db:
        db.documents.ingest_text(f"{long}\n\n# Tea\n\nA kettle of tea", source="long")
        for number in range(3):
            db.documents.ingest_text(f"A kettle, number {number}", source=f"{number}")
        for mode in ("hybrid", "text", "vector"):
            found = db.documents.search("kettle tea", mode=mode, unit="document", limit=4)
            best = db.documents.search("kettle tea", mode=mode, limit=50)
            sources = list(dict.fromkeys(hit.item.document.source for hit in best))[:4]
            assert [hit.item.document.source for hit in found] == sources


@given(st.lists(st.sampled_from(["kettle", "teapot", "plate", "spoon cake"]), max_size=9))
def test_memories_are_ranked_by_words_and_by_their_nearest_passage(words: list[str]) -> None:
    with Database(":memory:", embedder=ByHand(0.5)) as db:
        for number, word in enumerate(words):
            db.memories.add(f"{number}", "user", word)
        found = db.memories.search("kettle", limit=20)
        assert len(found) == len(words)
        assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)
        having = [("kettle" in hit.item.text) for hit in found]
        assert having == sorted(having, reverse=True)
        exclude = db.memories.search("teapot -kettle", limit=20)
        assert not any("kettle" in hit.item.text for hit in exclude)


# Arithmetic on scores.

scores = st.dictionaries(st.integers(1, 40), st.floats(0, 30, allow_nan=False), max_size=30)


def order(leg: dict[int, float]) -> list[int]:
    return sorted(leg, key=lambda id: (-leg[id], id))


def combined(
    legs: list[dict[int, float]],
    weights: list[float | dict[int, float]],
    tiers: dict[int, int],
    spans: Sequence[float] = (),
) -> list[tuple[int, float]]:
    """`fuse` of scores by id: an id that a leg lacks has none."""
    ids = sorted(tiers)
    order, scores = fuse(
        np.array(ids, np.int64),
        [np.array([leg.get(id, np.nan) for id in ids], np.float64) for leg in legs],
        [
            np.array([each[id] for id in ids], np.float64) if isinstance(each, dict) else each
            for each in weights
        ],
        np.array([tiers[id] for id in ids], np.int64),
        spans,
    )
    return list(zip(order.tolist(), scores.tolist(), strict=True))


def fused_by_rank(
    legs: list[dict[int, float]], weights: list[float], depth: int = 10
) -> list[tuple[int, float]]:
    return combined(legs, [*weights], tiers([order(leg) for leg in legs], depth))


@given(leg=scores)
def test_one_list_alone_keeps_its_order(leg: dict[int, float]) -> None:
    fused = fused_by_rank([leg], [1.0], depth=100)
    values = [leg[id] for id, _ in fused]
    assert values == sorted(values, reverse=True)


@given(first=scores, second=scores, weight=st.floats(0.1, 0.9))
def test_the_order_of_the_lists_does_not_matter(
    first: dict[int, float], second: dict[int, float], weight: float
) -> None:
    one = fused_by_rank([first, second], [weight, 1 - weight])
    other = fused_by_rank([second, first], [1 - weight, weight])
    assert {id for id, _ in one} == {id for id, _ in other} == first.keys() | second.keys()
    close = dict(other)
    assert all(abs(score - close[id]) < 1e-9 for id, score in one)


@given(first=scores, second=scores)
def test_scores_are_between_0_and_1_and_never_rise(
    first: dict[int, float], second: dict[int, float]
) -> None:
    values = [score for _, score in fused_by_rank([first, second], [0.4, 0.6])]
    assert all(0 <= value <= 1 for value in values)
    assert values == sorted(values, reverse=True)


@given(first=scores, second=scores, depth=st.integers(1, 10))
def test_a_longer_list_begins_with_the_shorter_one(
    first: dict[int, float], second: dict[int, float], depth: int
) -> None:
    rankings = [order(first), order(second)]
    short = tiers([each[:depth] for each in rankings], depth)
    long = tiers([each[: 2 * depth] for each in rankings], depth)
    few = combined([first, second], [0.5, 0.5], short)
    assert combined([first, second], [0.5, 0.5], long)[: len(few)] == few


def test_an_item_that_both_legs_rank_high_comes_before_the_first_of_one_leg() -> None:
    fused = fused_by_rank([{1: 10.0, 2: 9.0, 3: 0.0}, {3: 0.9, 2: 0.85, 1: 0.1}], [0.5, 0.5])
    assert fused[0][0] == 2


def test_an_item_without_a_score_in_one_leg_gets_that_of_the_other() -> None:
    fused = dict(fused_by_rank([{1: 10.0, 2: 5.0, 3: 0.0}, {2: 0.9, 3: 0.1}], [0.5, 0.5]))
    assert fused[1] == 1.0


@given(
    st.lists(st.floats(0, 1), min_size=5, max_size=20),
    st.sets(st.integers(0, 19), max_size=AGREED),
)
def test_what_both_retrievers_rank_high_is_among_the_first_of_the_fusion(
    scores: list[float], both: set[int]
) -> None:
    fused = list(enumerate(sorted(scores, reverse=True)))
    high = {id for id in both if id < len(fused)}
    kept = kept_high(fused, high)
    assert high <= {id for id, _ in kept[:KEPT]}
    assert sorted(id for id, _ in kept) == list(range(len(fused)))
    others = [id for id, _ in kept if id not in high]
    assert others == sorted(others)
    figures = [score for _, score in kept]
    assert figures == sorted(figures, reverse=True)
    if high <= set(range(KEPT)):
        assert kept == fused


def test_near_identical_cosines_score_nearly_the_same() -> None:
    cosines = {1: 0.595, 2: 0.591, 3: 0.577}
    stretched = [score for _, score in fused_by_rank([cosines], [1.0])]
    assert stretched == pytest.approx([1, 0.78, 0], abs=0.01)
    near = [score for _, score in combined([cosines], [1.0], dict.fromkeys(cosines, 0), [0.2])]
    assert near == pytest.approx([1, 0.98, 0.91], abs=0.01)


@given(leg=scores, depth=st.integers(1, 10), weights=scores)
def test_weighed_scores_never_rise_and_deeper_tiers_stay_behind(
    leg: dict[int, float], depth: int, weights: dict[int, float]
) -> None:
    tier = tiers([order(leg)], depth)
    found = weighed(combined([leg], [1.0], tier), weights, tier)
    values = [score for _, score in found]
    assert values == sorted(values, reverse=True)
    assert [tier[id] for id, _ in found] == sorted(tier.values())


def test_a_weight_changes_the_order() -> None:
    fused = [(1, 1.0), (2, 0.8), (3, 0.5)]
    assert weighed(fused, {1: 0.5}, dict.fromkeys((1, 2, 3), 0)) == [
        (2, 0.8),
        (1, 0.5),
        (3, 0.5),
    ]


@pytest.mark.parametrize(
    ("wanted", "depth"),
    [(0, 100), (1, 100), (100, 100), (101, 200), (200, 200), (201, 400), (1000, 1600)],
)
def test_retrievers_return_whole_tiers(wanted: int, depth: int) -> None:
    assert tier_depth(wanted) == depth


rankings = st.lists(st.lists(st.integers(1, 12), unique=True, max_size=10), max_size=3)


@given(lists=rankings, k=st.integers(1, 1000))
def test_rrf_is_the_sum_of_reciprocal_ranks(lists: list[list[int]], k: int) -> None:
    fused = rrf(lists, k)
    assert {id for id, _ in fused} == {id for each in lists for id in each}
    for id, score in fused:
        assert (
            abs(score - sum(1 / (k + each.index(id) + 1) for each in lists if id in each)) < 1e-12
        )
    assert [score for _, score in fused] == sorted((score for _, score in fused), reverse=True)


def test_rrf_prefers_items_of_two_lists_and_applies_weights() -> None:
    assert rrf([[1, 2, 3], [4, 2, 5]])[0] == (2, 2 / 62)
    assert rrf([[1], [2]], weights=[1, 2])[0] == (2, 2 / 61)
    assert [id for id, _ in rrf([[7], [5]])] == [5, 7]


def test_blended_weighs_scores_and_reranker_equally_on_the_scale_of_the_scores() -> None:
    assert blended([0.9, 0.8, 0.5], [0.1, 0.9, 0.2]) == [
        (1, pytest.approx(0.5 + 0.4 * (0.75 + 1) / 2)),
        (0, pytest.approx(0.5 + 0.4 * 0.5)),
        (2, pytest.approx(0.5 + 0.4 * 0.125 / 2)),
    ]
    assert blended([], []) == []
    assert blended([0.7, 0.7], [0.1, 0.9]) == [(1, 0.7), (0, 0.7)]


@given(scores=st.lists(st.floats(0, 1), max_size=8), data=st.data())
def test_blended_scores_never_rise_and_stay_between_the_given_ones(
    scores: list[float], data: st.DataObject
) -> None:
    figures = data.draw(st.lists(st.floats(0, 1), min_size=len(scores), max_size=len(scores)))
    found = blended(scores, figures)
    assert sorted(place for place, _ in found) == list(range(len(scores)))
    values = [score for _, score in found]
    assert values == sorted(values, reverse=True)
    assert all(min(scores) - 1e-9 <= value <= max(scores) + 1e-9 for value in values)


def test_a_candidate_may_have_weights_of_its_own() -> None:
    text, vector = {1: 2.0, 2: 1.0, 3: 0.0}, {1: 0.0, 2: 0.5, 3: 1.0}
    tier = dict.fromkeys(text, 0)
    same = combined([text, vector], [0.4, 0.6], tier)
    assert (
        combined([text, vector], [dict.fromkeys(text, 0.4), {1: 0.6, 2: 0.6, 3: 0.6}], tier) == same
    )
    doubted = combined([text, vector], [{1: 0.4, 2: 0.4, 3: 0.9}, {1: 0.6, 2: 0.6, 3: 0.1}], tier)
    assert dict(doubted) == pytest.approx({1: 0.4, 2: 0.5, 3: 0.1})


# Statements and their plans.


def connection() -> apsw.Connection:
    sql = FileConnection(":memory:")
    sql.execute("CREATE TABLE t (x INTEGER PRIMARY KEY, y); INSERT INTO t VALUES (1, 2), (3, 4)")
    return sql


def test_plans_are_recorded_for_the_selects_that_ran() -> None:
    sql = connection()
    with StatementLog(sql, True) as watch:
        sql.execute("SELECT y FROM t WHERE x = ?", (3,)).fetchall()
        sql.execute("INSERT INTO t VALUES (5, 6)")
        sql.execute("SELECT x FROM t WHERE y IN (SELECT x FROM t WHERE y > ?)", (1,)).fetchall()
    sql.execute("SELECT count(*) FROM t").fetchall()
    lines = watch.explained(2).plan.splitlines()
    assert lines[0] == "SEARCH t USING INTEGER PRIMARY KEY (rowid=?)"
    assert lines[1] == "SCAN t" and lines[2].startswith("LIST SUBQUERY") and lines[3] == "  SCAN t"
    assert watch.explained(2).rows == 2


def test_an_error_removes_the_trace() -> None:
    sql = connection()
    try:
        with StatementLog(sql, True):
            sql.execute("SELECT nonsense")
    except apsw.SQLError:
        pass
    assert sql.exec_trace is None


# Age.

NOW = datetime(2026, 1, 31, tzinfo=UTC)


def test_a_score_is_halved_with_every_half_life() -> None:
    recency = Recency.parse("30d", NOW)
    assert recency is not None and recency.half_life == timedelta(days=30)
    assert recency.weight("2026-01-31T00:00:00+00:00") == 1
    assert recency.weight("2026-01-01T00:00:00+00:00") == 0.5
    assert recency.weight("2025-12-02") == 0.25


def test_what_is_in_the_future_or_of_unknown_time_counts_as_new() -> None:
    recency = Recency(timedelta(days=1), NOW)
    assert recency.weight("2030-01-01T00:00:00+00:00") == recency.weight("some time ago") == 1


def test_ages_beyond_all_measure_count_nothing_and_fail_nothing() -> None:
    assert Recency(timedelta(microseconds=1), NOW).weight("0001-01-01") == 0


def test_no_preference_is_none_and_what_is_no_duration_is_refused() -> None:
    assert Recency.parse(None, NOW) is None
    with pytest.raises(InvalidInput, match="newer must be a duration such as 12h"):
        Recency.parse("soon", NOW)
