from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import Change, Database, Entry, InvalidInput, NotFound, Scores
from mcpvectordb.contexts import search
from mcpvectordb.contexts.search import ContextRanking
from mcpvectordb.search import rerank
from mcpvectordb.text.query import Term
from tests.support import Letters

QUESTION = "how many people live in Berlin"
TEXTS = (
    "Berlin, Berlin, Berlin: a song about Berlin that everyone can sing along.",
    "Berlin had a population of 3,520,031 registered inhabitants in an area of 891 square "
    "kilometers.",
    "The museums of Berlin are closed on Mondays, which many visitors do not expect.",
)


@pytest.fixture
def berlin(path: Path) -> Iterator[Database]:
    with Database(path, embedder=Letters()) as db:
        if "rerank" in db.contexts.statistics().unavailable:
            pytest.skip("the extra quality is not installed")
        db.contexts.add_many([Entry(thread="t", source="user", text=text) for text in TEXTS])
        yield db


@pytest.mark.parametrize("mode", ["text", "vector", "hybrid"])
def test_the_cross_encoder_orders_what_was_found(berlin: Database, mode: str) -> None:
    results = berlin.contexts.search(QUESTION, mode=mode, rerank=True)
    assert results[0].item.text == TEXTS[1] and "rerank" in results.legs
    figures = [hit.scores.rerank or 0.0 for hit in results]
    assert (
        figures == sorted(figures, reverse=True) == [hit.score for hit in results]
        and figures[0] > 0.9
    )
    assert (results[0].scores.text is None) == (mode == "vector")
    page = berlin.contexts.search(QUESTION, mode=mode, rerank=True, limit=2, offset=1)
    assert [hit.item.id for hit in page] == [hit.item.id for hit in results[1:]]


def test_it_reads_the_nearest_chunk_of_a_long_context(berlin: Database) -> None:
    long = berlin.contexts.add(
        "t", "user", "nothing of interest here. " * 400 + TEXTS[1] + " and so on." * 400
    ).id
    results = berlin.contexts.search(QUESTION, mode="text", rerank=True)
    assert {hit.item.id for hit in results[:2]} == {2, long} and (
        results[1].scores.rerank or 0
    ) > 0.5


def test_without_it_the_order_stays_and_the_reason_is_told(
    berlin: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = berlin.contexts.search("Berlin", mode="text")
    monkeypatch.setattr(rerank, "DEFAULT", "a model that nobody has")
    results = berlin.contexts.search("Berlin", mode="text", rerank=True)
    assert [hit.item.id for hit in results] == [hit.item.id for hit in before]
    assert "a model that nobody has" in results.reasons["rerank"] and results.legs == ("text",)
    assert "a model that nobody has" in berlin.contexts.statistics().unavailable["rerank"]


def test_more_is_read_than_asked_for_but_never_too_much() -> None:
    assert [search.rerank_depth(wanted) for wanted in (0, 1, 5, 10, 30, 100)] == [
        0,
        4,
        20,
        40,
        40,
        100,
    ]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.lists(st.floats(0, 1), max_size=4))
def test_what_was_not_read_stays_behind_what_was(figures: list[float], rest: list[float]) -> None:
    ranking = ContextRanking(rows=[(number, 0.5, Scores()) for number in range(len(figures))])
    ranking.rows += [
        (100 + number, score, Scores()) for number, score in enumerate(sorted(rest, reverse=True))
    ]
    search.reorder(ranking, figures)
    scores = [score for _, score, _ in ranking.rows]
    assert scores == sorted(scores, reverse=True)
    assert [id for id, _, _ in ranking.rows if id >= 100] == [
        100 + number for number in range(len(rest))
    ]
    assert {id: score.rerank for id, _, score in ranking.rows if id < 100} == dict(
        enumerate(figures)
    )


@pytest.mark.parametrize(
    "text",
    [
        "apple pie",
        "x " * 1000 + "apple",
        "apple " + "x " * 1000,
        "x " * 1000 + "apple" + " x" * 1000,
    ],
)
def test_an_excerpt_is_where_the_words_stand(text: str) -> None:
    shown = search.excerpt(text, [Term("apples")], stemmed=True)
    assert "apple" in shown and shown in text and len(shown) == min(len(text), 750)


def test_items_can_be_checked_before_they_are_stored(db: Database) -> None:
    assert db.contexts.checked(
        Entry(thread=" t ", source="user", text=" x ", tags=["B", "a"])
    ) == Entry(thread="t", source="user", text="x", tags=("a", "b"))
    with pytest.raises(InvalidInput, match="source"):
        db.contexts.checked(Entry(thread="t", source="robot", text="x"))
    with pytest.raises(NotFound):
        db.contexts.checked(Change(id=1, text="x"))
    assert db.contexts.count() == 0


def test_statistics_tell_what_waits_and_what_is_lacking(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        assert db.contexts.model() == "letters"
        db.contexts.add("t", "user", "tea")
        stats = db.contexts.statistics()
        assert (stats.chunks, stats.embedded, "vector" in stats.unavailable) == (1, 1, False)
    with Database(path) as db:
        db.contexts.add("t", "user", "water")
        stats = db.contexts.statistics()
        assert (stats.contexts, stats.chunks, stats.embedded) == (2, 2, 1)
        assert "letters" in stats.unavailable["vector"] and db.contexts.model() == "letters"


@pytest.mark.parametrize(
    ("which", "index"),
    [
        ({"thread": "t", "source": "user"}, "contexts_by_thread"),
        ({"tags": ["a"], "source": "user"}, "context_tags_by_tag"),
        ({"source": "user"}, "contexts_by_source"),
    ],
)
def test_a_source_is_looked_up_only_where_nothing_narrows_more(
    db: Database, which: dict[str, Any], index: str
) -> None:
    db.contexts.add("t", "user", "tea", tags=["a"])
    page = db.contexts.browse(explain=True, **which)
    assert len(page) == 1 and page.explained is not None
    assert index in page.explained.plan and (
        index == "contexts_by_source" or "contexts_by_source" not in page.explained.plan
    )
