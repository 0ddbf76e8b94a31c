from __future__ import annotations

import functools
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import Condition, Config, Database, Entry, InvalidInput, Scores
from mcpvectordb.embedding import catalogue
from mcpvectordb.memories.search import PARSERS, MemoryQuestion, excerpt
from mcpvectordb.ranking.ranker import Ranking, blended
from mcpvectordb.text.query import Term
from tests.support import Letters

LONG = "alpha stands first. " + "filler words in between. " * 400 + "omega stands last."


def texts(results: Any) -> list[str]:
    return [hit.item.text for hit in results]


@pytest.fixture
def fruit(db: Database) -> Database:
    for text in (
        "red apple pie",
        "green apple",
        "red pear",
        "authentication of users",
        "running in the park",
    ):
        db.memories.add(
            text.split()[0], "user", text, tags=[text.split()[-1]], metadata={"size": len(text)}
        )
    return db


@pytest.mark.parametrize(
    ("words", "query", "expected"),
    [
        ("match", "red apples", {"red apple pie"}),
        ("match", "run", {"running in the park"}),
        ("match", "apple kiwi", {"red apple pie", "green apple"}),
        ("match", "AND", set()),
        ("match", "what's up?", set()),
        ("prefix", "authenticat", {"authentication of users"}),
        ("prefix", "re pe", {"red pear"}),
        ("prefix", "app*", {"red apple pie", "green apple"}),
        ("phrase", "apple pie", {"red apple pie"}),
        ("phrase", "pie apple", set()),
        ("boolean", "apple NOT pie", {"green apple"}),
        ("boolean", "(red OR green) AND apple", {"red apple pie", "green apple"}),
        ("boolean", '"red pear" OR users', {"red pear", "authentication of users"}),
        ("boolean", "OR", set()),
        ("boolean", "NOT red", set()),
        ("boolean", 'apple AND "pie', {"red apple pie"}),
    ],
)
def test_each_parser_reads_the_words_of_a_query_its_way(
    fruit: Database, words: str, query: str, expected: set[str]
) -> None:
    results = fruit.memories.search(query, mode="text", words=words)
    assert set(texts(results)) == expected
    assert results.counts["text"] == len(expected)


def test_a_malformed_boolean_query_is_answered_with_a_note(fruit: Database) -> None:
    results = fruit.memories.search("apple AND (pie", mode="text", words="boolean")
    assert texts(results) == ["red apple pie"] and "a ( is not closed" in results.note
    assert fruit.memories.search("apple", words="boolean").note == ""


def test_a_query_without_words_gives_the_reason_why_the_text_leg_did_not_run(
    fruit: Database,
) -> None:
    assert fruit.memories.search("?!", mode="text").reasons == {
        "text": "the query has no words to look for"
    }
    assert (
        "leaves things out"
        in fruit.memories.search("NOT red", mode="text", words="boolean").reasons["text"]
    )
    hybrid = fruit.memories.search("?!")
    assert hybrid.legs == ("vector",) and len(hybrid) == 5


def test_words_of_different_chunks_match_the_same_memory(db: Database) -> None:
    db.memories.add("t", "user", LONG)
    db.memories.add("t", "user", "alpha alone")
    assert texts(db.memories.search("alpha omega", mode="text", words="match")) == [LONG]
    assert len(db.memories.search("alpha omega", mode="text")) == 2
    assert texts(db.memories.search("alpha NOT omega", mode="text", words="boolean")) == [
        "alpha alone"
    ]
    assert db.memories.search("between. filler", mode="text", words="phrase").counts["text"] == 1


def test_a_memory_is_found_once_and_as_near_as_its_nearest_chunk(path: Path) -> None:
    with Database(path, embedder=Letters(), config=Config(chunk_size=16)) as db:
        db.memories.add("t", "user", "zebra zone\n\n" * 60 + "apples appear\n\n" * 60)
        db.memories.add("t", "user", "apple pancakes")
        results = db.memories.search("apples appear", mode="vector")
        assert [hit.item.id for hit in results] == [1, 2]
        assert results[0].passage.startswith("apples appear") and "zebra" not in results[0].passage
        assert results[0].scores.vector == pytest.approx(0.96, abs=0.01)


def test_one_memory_with_many_chunks_does_not_crowd_out_the_others(path: Path) -> None:
    with Database(path, embedder=Letters(), config=Config(chunk_size=16)) as db:
        db.memories.add("t", "user", "apple pie\n\n" * 2_000)
        for number in range(5):
            db.memories.add("t", "user", f"pear {number}")
        assert len(db.memories.search("apple pie", mode="vector", limit=6)) == 6


def test_hybrid_scores_combine_what_words_and_meaning_say_of_every_memory(fruit: Database) -> None:
    results = fruit.memories.search("red apple", limit=5)
    assert results.legs == ("text", "vector")
    assert results[0].item.text == "red apple pie" and results[0].scores.text_rank == 1
    for hit in results:
        assert hit.scores.text is not None and hit.scores.vector is not None
        assert 0 <= hit.score <= 1 and hit.scores.rrf is None
    assert [hit.score for hit in results] == sorted((hit.score for hit in results), reverse=True)
    assert results.counts == {"text": 3, "vector": 5, "both": 3, "total": 5}


def test_reciprocal_ranks_are_those_of_both_retrievers(fruit: Database) -> None:
    results = fruit.memories.search("red apple", fusion="rrf", words="match", limit=5, rrf_k=10)
    assert results.legs == ("text", "vector")
    best = results[0]
    assert best.item.text == "red apple pie" and best.scores.text_rank == 1
    for hit in results:
        ranks = [rank for rank in (hit.scores.text_rank, hit.scores.vector_rank) if rank]
        assert hit.scores.rrf == pytest.approx(sum(1 / (10 + rank) for rank in ranks))
        assert (hit.scores.text is None) == (hit.scores.text_rank is None)
        assert hit.scores.vector is not None
        assert hit.scores.distance == pytest.approx((2 - 2 * hit.scores.vector) ** 0.5)
        assert 0 <= hit.score <= 1
    assert [hit.score for hit in results] == sorted((hit.score for hit in results), reverse=True)
    assert results.counts == {"text": 1, "vector": 5, "both": 1, "total": 5}


def test_text_and_vector_modes_keep_the_order_of_their_leg(fruit: Database) -> None:
    by_words = fruit.memories.search("apple", mode="text", fusion="rrf")
    assert [hit.scores.text_rank for hit in by_words] == [1, 2]
    assert by_words[0].scores.vector is None
    assert by_words[0].item.text == "green apple"  # the shorter text
    assert [hit.scores.rrf for hit in by_words] == [1 / 61, 1 / 62]
    nearest = fruit.memories.search("apple", mode="vector")
    cosines = [hit.scores.vector or 0 for hit in nearest]
    assert cosines == sorted(cosines, reverse=True) and nearest.legs == ("vector",)
    assert [hit.score for hit in nearest] == cosines


@pytest.mark.parametrize("mode", ["text", "vector", "hybrid"])
@pytest.mark.parametrize(
    ("which", "allowed"),
    [
        ({"thread": "green"}, {"green apple"}),
        ({"tags": ["pie", "pear"]}, {"red apple pie", "red pear"}),
        ({"source": "agent"}, set()),
        ({"where": {"metadata.size": {"lt": 12}}}, {"green apple", "red pear"}),
        ({"content_type": "multimodal"}, set()),
        ({"start": "2100-01-01"}, set()),
        ({"end": "2100-01-01", "thread": "red"}, {"red apple pie", "red pear"}),
        ({"where": [Condition("thread", "starts_with", "G", False)]}, {"green apple"}),
    ],
)
def test_filters_apply_before_the_ranking(
    fruit: Database, mode: str, which: dict[str, Any], allowed: set[str]
) -> None:
    fruit.memories.add_many(
        [Entry(thread="noise", source="user", text="apple " * number) for number in range(1, 61)]
    )
    assert {memory.text for memory in fruit.memories.browse(**which)} == allowed
    for limit in (1, 10):
        found = texts(fruit.memories.search("apple", mode=mode, limit=limit, **which))
        matching = {text for text in allowed if mode != "text" or "apple" in text}
        assert set(found) <= matching and len(found) == min(limit, len(matching))


def test_pages_are_consecutive_parts_of_one_ranking(fruit: Database) -> None:
    everything = texts(fruit.memories.search("red apple", limit=5))
    pages = [fruit.memories.search("red apple", limit=1, offset=offset) for offset in range(5)]
    assert [text for page in pages for text in texts(page)] == everything
    assert texts(fruit.memories.search("red apple", limit=0)) == []
    assert texts(fruit.memories.search("red apple", offset=50)) == []


def test_equal_matches_come_newest_first(db: Database) -> None:
    for thread in "abc":
        db.memories.add(thread, "user", "the same words")
    assert [hit.item.thread for hit in db.memories.search("words", mode="text")] == ["c", "b", "a"]


def test_matching_words_can_be_highlighted(fruit: Database) -> None:
    (hit,) = fruit.memories.search("runs parks", mode="text", highlight=True)
    assert hit.highlighted == "<mark>running</mark> in the <mark>park</mark>"
    (hit,) = fruit.memories.search("authent", mode="text", words="prefix", highlight=True)
    assert hit.highlighted == "<mark>authentication</mark> of users"
    assert fruit.memories.search("apple", mode="text")[0].highlighted is None


def test_other_languages_are_not_stemmed(path: Path) -> None:
    with Database(path, embedder=Letters(), config=Config(language="german")) as db:
        db.memories.add("t", "user", "running")
        assert texts(db.memories.search("run", mode="text")) == []
        assert texts(db.memories.search("RUNNING", mode="text")) == ["running"]
    with Database(path, embedder=Letters(), config=Config(language="English")) as db:
        assert texts(db.memories.search("run", mode="text")) == ["running"]


def test_a_search_can_return_the_query_plan_of_each_leg(fruit: Database) -> None:
    results = fruit.memories.search("red apple", explain=True, thread="red")
    assert results.explained and results.explained.rows == 2
    assert set(results.explained.legs) == {"text", "vector"}
    assert "context_words" in results.explained.legs["text"].plan
    assert "contexts_by_thread" in results.explained.legs["vector"].plan
    assert (
        results.explained.milliseconds
        > sum(leg.milliseconds for leg in results.explained.legs.values())
        > 0
    )
    assert fruit.memories.search("red", explain=True, mode="text").explained.legs.keys() == {"text"}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "magic"}, "mode must be hybrid, text or vector"),
        ({"words": "fuzzy"}, "words must be any, match, prefix, phrase, boolean"),
        ({"rrf_k": 0}, "rrf_k must be"),
        ({"rrf_k": 1001}, "rrf_k must be"),
        ({"rrf_k": True}, "rrf_k must be"),
        ({"limit": -1}, "limit must be"),
        ({"offset": "1"}, "offset must be"),
        ({"limit": 4_000, "offset": 1_001}, "offset is 5,001, but at most 5,000"),
    ],
)
def test_invalid_search_arguments_are_refused(
    db: Database, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        db.memories.search("x", **arguments)


def test_the_least_and_the_greatest_constant_of_ranks_are_taken(fruit: Database) -> None:
    for k in (1, 1000):
        assert fruit.memories.search("red apple", fusion="rrf", rrf_k=k).hits


@functools.cache
def shelf() -> Database:
    db = Database(":memory:", embedder=Letters())
    db.memories.add("t", "user", "some words to look at")
    return db


@given(
    query=st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    words=st.sampled_from(sorted(PARSERS)),
)
def test_any_text_is_a_valid_query(query: str, words: str) -> None:
    results = shelf().memories.search(query, words=words, highlight=True)
    assert [hit.item.id for hit in results] == ([1] if query.strip() else [])


# Reranking.

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
        if "rerank" in db.memories.statistics().unavailable:
            pytest.skip("the extra quality is not installed")
        db.memories.add_many([Entry(thread="t", source="user", text=text) for text in TEXTS])
        yield db


@pytest.mark.parametrize("mode", ["text", "vector", "hybrid"])
def test_the_cross_encoder_orders_the_results(berlin: Database, mode: str) -> None:
    results = berlin.memories.search(QUESTION, mode=mode, rerank=True)
    assert results[0].item.text == TEXTS[1] and "rerank" in results.legs
    figures = [hit.scores.rerank or 0.0 for hit in results]
    assert figures == sorted(figures, reverse=True) == [hit.score for hit in results]
    assert figures[0] > 0.9
    assert (results[0].scores.text is None) == (mode == "vector")
    page = berlin.memories.search(QUESTION, mode=mode, rerank=True, limit=2, offset=1)
    assert [hit.item.id for hit in page] == [hit.item.id for hit in results[1:]]


def test_the_cross_encoder_reads_the_best_part_of_a_long_memory(berlin: Database) -> None:
    long = berlin.memories.add(
        "t", "user", "nothing of interest here. " * 400 + TEXTS[1] + " and so on." * 400
    ).id
    results = berlin.memories.search(QUESTION, mode="text", rerank=True)
    assert {hit.item.id for hit in results[:2]} == {2, long}
    assert (results[1].scores.rerank or 0) > 0.5


def test_without_a_cross_encoder_the_order_stays_and_the_reason_is_returned(
    berlin: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = berlin.memories.search("Berlin", mode="text")
    monkeypatch.setattr(catalogue, "RERANKER", "a model that nobody has")
    results = berlin.memories.search("Berlin", mode="text", rerank=True)
    assert [hit.item.id for hit in results] == [hit.item.id for hit in before]
    assert "a model that nobody has" in results.reasons["rerank"] and results.legs == ("text",)
    assert "a model that nobody has" in berlin.memories.statistics().unavailable["rerank"]


@pytest.mark.parametrize(
    ("wanted", "depth"), [(0, 0), (1, 4), (5, 20), (10, 40), (30, 40), (100, 100)]
)
def test_rerank_depth_is_four_times_the_wanted_but_limited(wanted: int, depth: int) -> None:
    assert MemoryQuestion(text="", today=date(2026, 1, 1), limit=wanted, rerank=True).depth == depth


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.lists(st.floats(0, 1), max_size=4))
def test_memories_that_were_not_reranked_stay_behind_those_that_were(
    figures: list[float], rest: list[float]
) -> None:
    ranking = Ranking(rows=[(number, 0.5, Scores()) for number in range(len(figures))])
    ranking.rows += [
        (100 + number, score, Scores()) for number, score in enumerate(sorted(rest, reverse=True))
    ]
    ranking.rerank(figures, blended)
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
def test_an_excerpt_contains_the_matching_words(text: str) -> None:
    shown = excerpt(text, [Term("apples")], stemmed=True)
    assert "apple" in shown and shown in text and len(shown) == min(len(text), 750)


# Age, and the lines that match.


def test_newer_memories_come_first_if_that_is_preferred(db: Database) -> None:
    for year in (2019, 2021, 2023):
        added = db.memories.add("t", "user", f"the lamp is lit {year}").memory.id
        with db._file.writing() as sql:
            moment = f"{year}-06-01T00:00:00.000000+00:00"
            sql.execute("UPDATE contexts SET updated_at = ? WHERE id = ?", (moment, added))
    for mode in ("hybrid", "text", "vector"):
        plain = db.memories.search("lamp lit 2019", mode=mode, words="match")
        newer = db.memories.search("lamp lit", mode=mode, newer="6m")
        assert texts(plain)[0] == "the lamp is lit 2019"
        assert [text[-4:] for text in texts(newer)] == ["2023", "2021", "2019"]
        assert {hit.scores.recency for hit in plain} == {None}
        weights = [hit.scores.recency for hit in newer]
        assert weights == sorted(weights, reverse=True)
    with pytest.raises(InvalidInput, match="newer must be a duration"):
        db.memories.search("lamp", newer="soon")


def test_a_memory_shows_the_lines_that_match(db: Database) -> None:
    db.memories.add("t", "user", "first\nsecond\nthe lamp is lit")
    (hit,) = db.memories.search("lamp")
    assert (hit.line, hit.snippet) == (3, "2: second\n3: the lamp is lit")
