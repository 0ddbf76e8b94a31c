from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import Config, Database
from mcpvectordb_server.surfaces.context_server import preview
from tests.server.surfaces.context_server.client import Tools, opened

ENTRY = {
    "id",
    "thread_id",
    "source",
    "content_type",
    "text_content",
    "metadata",
    "tags",
    "created_at",
    "updated_at",
}
SEARCHES = (
    "search_context",
    "semantic_search_context",
    "fts_search_context",
    "hybrid_search_context",
)
PIXEL = "aGVsbG8="


@pytest.fixture
def db(path: Path) -> Iterator[Database]:
    with opened(path) as database:
        yield database


@pytest.fixture
def tools(db: Database) -> Tools:
    return Tools(db)


@pytest.fixture
def fruit(tools: Tools) -> Tools:
    """1 red apple pie, 2 green apple, 3 red pear, 4 authentication of users, 5 running in the park"""
    texts = (
        "red apple pie",
        "green apple",
        "red pear",
        "authentication of users",
        "running in the park",
    )
    for number, text in enumerate(texts):
        tools.store(
            text,
            thread_id=f"thread {number % 2}",
            source=("user", "agent")[number // 3],
            tags=[text.split()[-1]],
            metadata={"n": number},
            images=[{"data": PIXEL}] if number == 1 else [],
        )
    return tools


@pytest.fixture
def without_model(fruit: Tools, db: Database, path: Path) -> Iterator[Tools]:
    """The same file on a machine that does not have its model."""
    db.close()
    with Database(path, config=Config(rerank_memories=False)) as reopened:
        yield Tools(reopened)


def asked(name: str) -> dict[str, str]:
    return {} if name == "search_context" else {"query": "apple"}


# search_context, get_context_by_ids, list_threads, get_statistics


def test_listed_texts_are_cut_at_a_space(tools: Tools) -> None:
    tools.store("word " * 100)
    tools.store("x" * 150)
    tools.store("y" * 151)
    entries = tools.search_context()["results"]
    assert [(entry["text_content"], entry["is_truncated"]) for entry in entries] == [
        ("y" * 150 + "...", True),
        ("x" * 150, False),
        ("word " * 29 + "word...", True),
    ]


@given(text=st.text(st.sampled_from("ab \n"), max_size=200))
def test_a_preview_is_a_beginning_of_the_text(text: str) -> None:
    shown = preview(text)
    if len(text) <= 150:
        assert shown == text
    else:
        assert (
            shown.endswith("...") and text.startswith(shown[:-3]) and 106 <= len(shown) - 3 <= 150
        )
        assert len(shown) == 153 or text[len(shown) - 3] == " "


def test_statistics_of_a_query_are_real(fruit: Tools) -> None:
    assert "stats" not in fruit.search_context()
    filters = {
        "thread_id": "thread 0",
        "tags": ["pie"],
        "source": "user",
        "metadata": {"n": 0},
        "metadata_filters": [{"key": "n", "operator": "exists"}],
        "start_date": "2020-01-01",
    }
    for name in SEARCHES[:3]:
        stats = getattr(fruit, name)(**asked(name), **filters, explain_query=True)["stats"]
        assert set(stats) == {
            "execution_time_ms",
            "filters_applied",
            "rows_returned",
            "backend",
            "query_plan",
        }
        assert (stats["filters_applied"], stats["rows_returned"]) == (
            2 if name == "search_context" else 6,
            1,
        )
        assert (
            stats["backend"] == "sqlite"
            and round(stats["execution_time_ms"], 2) == stats["execution_time_ms"] > 0
        )
        assert "contexts_by_thread" in stats["query_plan"]


def test_statistics_say_what_is_not_available(without_model: Tools) -> None:
    without_model.store("kiwi")
    semantic = without_model.get_statistics()["semantic_search"]
    assert (semantic["available"], semantic["embedding_count"], semantic["context_count"]) == (
        False,
        5,
        6,
    )
    assert "letters" in semantic["reason"]


# Filters


def test_bad_filters_are_a_normal_result_with_a_message_for_each(fruit: Tools) -> None:
    bad = [
        {"key": "a b"},
        {"value": 5},
        {"key": "a", "operator": "like", "value": "x"},
        {"key": "a", "operator": "in", "value": []},
        {"key": "a", "operator": "in", "value": "x"},
        {"key": "a", "operator": "contains", "value": 5},
        {"key": 5},
        {"key": "a", "operator": "array_contains", "value": None},
        {"key": "a", "case_sensitive": "yes"},
        {"key": "a..b"},
    ]
    headers = {
        "search_context": {},
        "semantic_search_context": {"query": "apple", "model": "letters"},
        "fts_search_context": {"query": "apple", "mode": "match", "language": "english"},
        "hybrid_search_context": {
            "query": "apple",
            "fusion_method": "rrf",
            "search_modes_used": [],
            "fts_count": 0,
            "semantic_count": 0,
        },
    }
    for name in SEARCHES:
        reply = getattr(fruit, name)(
            **asked(name), metadata={"a'b": 1}, metadata_filters=[*bad, {"key": "n", "value": 0}]
        )
        messages = reply.pop("validation_errors")
        assert reply == {
            "results": [],
            "count": 0,
            "error": "Metadata filter validation failed",
            **headers[name],
        }
        assert [message.split(":")[0] for message in messages] == [
            "metadata",
            *(f"metadata_filters[{place}]" for place in range(len(bad))),
        ]
    assert "did you mean" in messages[3] or "operators are" in messages[3]
    explained = fruit.fts_search_context(query="apple", metadata={"a'b": 1}, explain_query=True)
    assert explained["stats"]["rows_returned"] == 0
    assert (
        "at most 32"
        in fruit.search_context(metadata_filters=[{"key": "n", "value": 0}] * 33)[
            "validation_errors"
        ][0]
    )


# semantic_search_context


def test_without_a_model_the_error_of_semantic_search_says_what_to_install(
    without_model: Tools,
) -> None:
    assert without_model.refused("semantic_search_context", query="apple").startswith(
        "Semantic search is not available: "
    )


def test_blank_queries_are_errors_and_an_empty_store_is_none(tools: Tools) -> None:
    for name in SEARCHES[1:]:
        assert tools.refused(name, query=" \n") == "query must not be blank"
        assert tools.found(name, query="apple") == []


# hybrid_search_context


@pytest.mark.parametrize(
    ("modes", "used", "counts"),
    [
        (["fts"], ["fts"], (2, 0)),
        (["semantic"], ["semantic"], (0, 5)),
        (["semantic", "fts"], ["fts", "semantic"], (2, 5)),
        (["fts", "fts"], ["fts"], (2, 0)),
        (None, ["fts", "semantic"], (2, 5)),
    ],
)
def test_hybrid_search_with_a_single_mode_uses_that_mode_only(
    fruit: Tools, modes: list[str] | None, used: list[str], counts: tuple[int, int]
) -> None:
    reply = fruit.hybrid_search_context(query="apple", search_modes=modes)
    assert (reply["search_modes_used"], (reply["fts_count"], reply["semantic_count"])) == (
        used,
        counts,
    )
    assert all(
        len(entry["scores"]) == 6 and entry["scores"]["rrf"] > 0 for entry in reply["results"]
    )


def test_without_a_model_hybrid_search_uses_words_and_semantic_mode_alone_is_an_error(
    without_model: Tools,
) -> None:
    reply = without_model.hybrid_search_context(query="apple")
    assert (reply["search_modes_used"], reply["count"]) == (["fts"], 2)
    assert reply["note"].startswith("not searched by meaning: ")
    assert without_model.refused("hybrid_search_context", query="?!").startswith(
        "No search mode is available: "
    )
    assert "No search mode" in without_model.refused(
        "hybrid_search_context", query="apple", search_modes=["semantic"]
    )
    assert without_model.found("hybrid_search_context", query="?!", search_modes=["fts"]) == []


def test_the_statistics_of_both_modes_and_of_their_fusion(fruit: Tools) -> None:
    stats = fruit.hybrid_search_context(
        query="red apple", explain_query=True, rrf_k=7, source="user"
    )["stats"]
    assert set(stats) == {"execution_time_ms", "fts_stats", "semantic_stats", "fusion_stats"}
    assert stats["fusion_stats"] == {
        "rrf_k": 7,
        "total_unique_documents": 3,
        "documents_in_both": 1,
        "documents_fts_only": 0,
        "documents_semantic_only": 2,
    }
    assert (stats["fts_stats"]["rows_returned"], stats["semantic_stats"]["rows_returned"]) == (1, 3)
    assert (
        stats["fts_stats"]["filters_applied"] == 1
        and "context_words" in stats["fts_stats"]["query_plan"]
    )
    assert stats["execution_time_ms"] >= stats["semantic_stats"]["execution_time_ms"] > 0
    alone = fruit.hybrid_search_context(query="apple", explain_query=True, search_modes=["fts"])[
        "stats"
    ]
    assert alone["semantic_stats"] is None and alone["fts_stats"]["rows_returned"] == 2


# Reranking


@pytest.fixture
def reranked(path: Path) -> Iterator[Tools]:
    """Three entries that share a word, with the cross-encoder in use."""
    with opened(path, rerank=True) as db:
        if "rerank" in db.memories.statistics().unavailable:
            pytest.skip("the extra quality is not installed")
        tools = Tools(db)
        for text in (
            "Berlin, Berlin, Berlin: a song about Berlin that everyone can sing along.",
            "Berlin had a population of 3,520,031 registered inhabitants in an area of 891 square "
            "kilometers.",
            "The museums of Berlin are closed on Mondays, which many visitors do not expect.",
        ):
            tools.store(text)
        yield tools


@pytest.mark.parametrize("name", SEARCHES[1:])
def test_reranked_entries_are_ordered_by_their_rerank_score(reranked: Tools, name: str) -> None:
    results = getattr(reranked, name)(query="how many people live in Berlin")["results"]
    scores = [entry["scores"]["rerank_score"] for entry in results]
    assert (
        results[0]["id"] == 2
        and scores == sorted(scores, reverse=True)
        and 1 >= scores[0] > 0.9
        and scores[-1] < 0.5
    )
    second = getattr(reranked, name)(query="how many people live in Berlin", limit=1, offset=1)[
        "results"
    ]
    assert [entry["id"] for entry in second] == [results[1]["id"]]


def test_searches_with_a_reranker_write_nothing_to_the_file(reranked: Tools, path: Path) -> None:
    other = apsw.Connection(str(path))
    # Or it would be written back meanwhile, which changes the number too.
    assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall() == [(0, 0, 0)]
    before = other.pragma("data_version")
    for name in ("fts_search_context", "hybrid_search_context"):
        getattr(reranked, name)(query="how many people live in Berlin")
    assert other.pragma("data_version") == before
    other.close()


def test_a_reranker_that_fails_leaves_the_order(
    reranked: Tools, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue("without_reranker")
    results = reranked.fts_search_context(query="Berlin")["results"]
    assert results[0]["id"] == 1 and all("rerank_score" not in entry["scores"] for entry in results)
    assert (
        reranked.hybrid_search_context(query="Berlin")["results"][0]["scores"]["rerank_score"]
        is None
    )
    assert reranked.get_statistics()["reranking"]["available"] is False


def test_reranking_can_be_turned_off(reranked: Tools, path: Path) -> None:
    with opened(path, rerank=False) as db:
        results = Tools(db).fts_search_context(query="Berlin")["results"]
        assert results[0]["id"] == 1 and "rerank_score" not in results[0]["scores"]
