from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import Config, Database
from mcpvectordb_server.surfaces.context_server.replies import preview
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


def test_entries_are_listed_newest_first_and_filters_apply_together(fruit: Tools) -> None:
    assert fruit.found() == [5, 4, 3, 2, 1]
    assert fruit.found(limit=2, offset=1) == [4, 3]
    assert fruit.found(thread_id=" thread 0 ") == [5, 3, 1]
    assert fruit.found(source="agent") == [5, 4]
    assert fruit.found(tags=[" PIE ", "pear", "none"]) == [3, 1]
    assert fruit.found(tags=[" ", ""]) == [5, 4, 3, 2, 1]
    assert fruit.found(content_type="multimodal") == [2]
    assert fruit.found(
        thread_id="thread 0", source="user", content_type="text", tags=["pear", "park"]
    ) == [3]
    assert fruit.found(thread_id="nowhere") == []


@pytest.mark.parametrize("name", SEARCHES)
def test_empty_results_say_which_thread_tag_or_key_does_not_exist(fruit: Tools, name: str) -> None:
    def note(**arguments: Any) -> str:
        reply = getattr(fruit, name)(**asked(name), **arguments)
        assert reply["results"] == []
        return str(reply.get("note", ""))

    assert "no thread 'thread O'; did you mean 'thread 0'" in note(thread_id="thread O")
    assert "there is no tag 'pire'; did you mean 'pie'" in note(tags=["pire"])
    assert "there is no metadata key 'm'" in note(metadata={"m": 1})
    assert note(thread_id="thread 0", metadata={"n": 1}) == ""


def test_entries_have_the_specified_fields(fruit: Tools) -> None:
    assert all(
        set(entry) == ENTRY | {"is_truncated"} for entry in fruit.search_context()["results"]
    )
    entries = fruit.get_context_by_ids(context_ids=[2, 99, 4, 2])
    assert [entry["id"] for entry in entries] == [4, 2]
    assert (set(entries[0]), set(entries[1])) == (ENTRY, ENTRY | {"images"})
    assert (
        entries[0]["metadata"] == {"n": 3}
        and entries[0]["text_content"] == "authentication of users"
    )


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


def test_threads_are_listed_by_their_newest_entry(fruit: Tools) -> None:
    first, second = fruit.list_threads()["threads"]
    entries = {entry["id"]: entry for entry in fruit.search_context()["results"]}
    assert first == {
        "thread_id": "thread 0",
        "entry_count": 3,
        "source_types": 2,
        "multimodal_count": 0,
        "first_entry": entries[1]["created_at"],
        "last_entry": entries[5]["created_at"],
        "last_id": 5,
    }
    assert (second["thread_id"], second["multimodal_count"]) == ("thread 1", 1)
    assert fruit.list_threads()["total_threads"] == 2


def test_statistics_count_what_is_there(fruit: Tools, path: Path) -> None:
    stats = fruit.get_statistics()
    assert {
        name: stats[name]
        for name in (
            "total_entries",
            "by_source",
            "by_content_type",
            "total_images",
            "unique_tags",
            "total_threads",
            "avg_entries_per_thread",
            "backend",
        )
    } == {
        "total_entries": 5,
        "by_source": {"user": 3, "agent": 2},
        "by_content_type": {"text": 4, "multimodal": 1},
        "total_images": 1,
        "unique_tags": 5,
        "total_threads": 2,
        "avg_entries_per_thread": 2.5,
        "backend": "sqlite",
    }
    assert stats["most_active_threads"] == [
        {"thread_id": "thread 0", "count": 3},
        {"thread_id": "thread 1", "count": 2},
    ]
    assert {"tag": "pie", "count": 1} in stats["top_tags"]
    size = sum(
        each.stat().st_size
        for each in path.parent.glob("test.db*")
        if not each.name.endswith("-shm")
    )
    assert stats["database_size_mb"] == pytest.approx(size / 2**20, abs=0.01)
    semantic = stats["semantic_search"]
    assert (
        semantic["available"],
        semantic["model"],
        semantic["dimensions"],
        semantic["coverage_percentage"],
    ) == (True, "letters", 32, 100.0)
    assert (stats["fts"]["language"], stats["reranking"]["enabled"]) == ("english", False)
    assert (
        stats["chunking"]["chunk_size"] == 200 and stats["connection_metrics"]["read_only"] is False
    )


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


@pytest.fixture
def marked(tools: Tools) -> Tools:
    """1 to 5 have metadata of many kinds, 6 has none."""
    for number, metadata in enumerate(
        (
            {"s": "Äpfel", "n": 5, "deep": {"k": "v"}, "list": ["X", 1, True]},
            {"s": "äpfel 100%", "n": "5", "deep": {"k": None}},
            {"s": None, "n": 10, "b": True},
            {"n": 5.0, "b": False, "list": "X"},
            {"n": "ten", "one": 1},
            None,
        )
    ):
        tools.store(f"apple {number}", metadata=metadata)
    return tools


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"n": 5}, [4, 1]),
        ({"n": "5"}, [2]),
        ({"s": "Äpfel"}, [1]),
        ({"s": "äpfel"}, []),
        ({"deep.k": "v"}, [1]),
        ({"b": True}, [3]),
        ({"one": True}, []),
        ({"n": 5, "s": "Äpfel"}, [1]),
        ({"s": None}, [3]),
        ({"list": ["X", 1, True]}, [1]),
        ({}, [6, 5, 4, 3, 2, 1]),
    ],
)
def test_simple_filters_compare_exactly(
    marked: Tools, metadata: dict[str, Any], expected: list[int]
) -> None:
    for name in SEARCHES:
        assert sorted(marked.found(name, **asked(name), metadata=metadata, limit=10)) == sorted(
            expected
        )


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"key": "s", "value": "ÄPFEL"}, [1]),
        ({"key": "s", "value": "ÄPFEL", "case_sensitive": True}, []),
        ({"key": "s", "operator": "ne", "value": "äpfel"}, [2]),
        ({"key": "n", "operator": "gt", "value": 5}, [3]),
        ({"key": "n", "operator": "gte", "value": 5}, [4, 3, 2, 1]),
        ({"key": "n", "operator": "lt", "value": 10}, [4, 2, 1]),
        ({"key": "n", "operator": "lte", "value": "6"}, [2]),
        ({"key": "n", "operator": "in", "value": ["10", "TEN"]}, [5, 3]),
        ({"key": "b", "operator": "in", "value": [True]}, [3]),
        ({"key": "n", "operator": "not_in", "value": [5, 10]}, [5]),
        ({"key": "s", "operator": "exists", "value": "whatever"}, [2, 1]),
        ({"key": "s", "operator": "not_exists"}, [6, 5, 4, 3]),
        ({"key": "s", "operator": "is_null", "value": False}, [3]),
        ({"key": "deep.k", "operator": "is_not_null"}, [1]),
        ({"key": "s", "operator": "contains", "value": "00%"}, [2]),
        ({"key": "s", "operator": "contains", "value": "_"}, []),
        ({"key": "s", "operator": "starts_with", "value": "Ä"}, [2, 1]),
        ({"key": "s", "operator": "starts_with", "value": "Ä", "case_sensitive": True}, [1]),
        ({"key": "s", "operator": "ends_with", "value": "EL"}, [1]),
        ({"key": "n", "operator": "starts_with", "value": "1"}, [3]),
        ({"key": "list", "operator": "array_contains", "value": "x"}, [1]),
        ({"key": "list", "operator": "array_contains", "value": 1}, [1]),
        ({"key": "n", "operator": None, "value": 5, "case_sensitive": None}, [4, 1]),
    ],
)
def test_every_operator_filters_as_specified(
    marked: Tools, condition: dict[str, Any], expected: list[int]
) -> None:
    assert marked.found(metadata_filters=[condition]) == expected
    found = marked.found(
        "hybrid_search_context", query="apple", limit=10, metadata_filters=[condition]
    )
    assert sorted(found) == sorted(expected)


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


def at(path: Path, *times: str) -> None:
    """Say that the entries were created then."""
    sql = apsw.Connection(str(path))
    for id, time in enumerate(times, 1):
        sql.execute("UPDATE contexts SET created_at = ? WHERE id = ?", (f"{time}+00:00", id))
    sql.close()


@pytest.mark.parametrize(
    ("period", "expected"),
    [
        ({"start_date": "2025-11-29"}, [3, 2, 1]),
        ({"end_date": "2025-11-29"}, [2, 1]),
        ({"end_date": "2025-11-28"}, []),
        ({"start_date": "2025-11-29T10:00:00"}, [3, 2]),
        ({"start_date": "2025-11-29T23:59:59.999999Z"}, [3, 2]),
        ({"end_date": "2025-11-29T00:00:00Z"}, [1]),
        ({"start_date": "2025-11-30T01:00:00+02:00"}, [3, 2]),
        ({"start_date": "2025-11-29 10:00:00", "end_date": "2025-11-30"}, [3, 2]),
        ({"start_date": "2025-11-29T01:00:00+02:00", "end_date": "2025-11-29T00:00:00Z"}, [1]),
    ],
)
def test_dates_are_accepted_in_all_iso_8601_forms(
    tools: Tools, path: Path, period: dict[str, str], expected: list[int]
) -> None:
    for number in range(3):
        tools.store(f"apple {number}")
    at(
        path,
        "2025-11-29T00:00:00.000000",
        "2025-11-29T23:59:59.999999",
        "2025-11-30T00:00:00.000000",
    )
    for name in SEARCHES:
        assert sorted(tools.found(name, **asked(name), **period)) == sorted(expected)


@pytest.mark.parametrize("name", SEARCHES)
def test_a_bad_date_is_named(fruit: Tools, name: str) -> None:
    for bad in ("yesterday", "2025-13-01", "29.11.2025", "", "2025-11-29T25:00:00"):
        assert fruit.refused(name, **asked(name), start_date=bad).startswith(
            "start_date must be a date such as "
        )
        assert fruit.refused(name, **asked(name), end_date=bad).startswith(
            "end_date must be a date such as "
        )
    message = fruit.refused(
        name, **asked(name), start_date="2025-11-30", end_date="2025-11-29T10:00:00-05:00"
    )
    assert message == "start_date (2025-11-30) lies after end_date (2025-11-29T10:00:00-05:00)"


def test_the_time_of_an_entry_is_a_date_to_filter_by(fruit: Tools) -> None:
    time = fruit.get_context_by_ids(context_ids=[3])[0]["created_at"]
    assert fruit.found(start_date=time, end_date=time) == [3]
    later = (datetime.fromisoformat(time) + timedelta(microseconds=1)).isoformat()
    assert 3 not in fruit.found(start_date=later)


# semantic_search_context


def test_the_nearest_entries_come_with_their_distance(fruit: Tools) -> None:
    reply = fruit.semantic_search_context(query="red apple pie")
    assert set(reply) == {"query", "results", "count", "model"}
    assert (reply["query"], reply["count"], reply["model"]) == ("red apple pie", 5, "letters")
    assert all(set(entry) == ENTRY | {"scores"} for entry in reply["results"])
    distances = [entry["scores"]["semantic_distance"] for entry in reply["results"]]
    assert (
        distances == sorted(distances)
        and distances[0] == pytest.approx(0, abs=0.01)
        and distances[-1] <= 2
    )
    assert [entry["scores"] for entry in reply["results"]] == [
        {"semantic_distance": distance, "semantic_rank": None} for distance in distances
    ]
    assert fruit.found("semantic_search_context", query="red apple pie", limit=2, offset=1) == [
        entry["id"] for entry in reply["results"][1:3]
    ]


def test_search_results_have_whole_texts(tools: Tools) -> None:
    tools.store("apple " * 200)
    for name in SEARCHES[1:]:
        assert (
            getattr(tools, name)(query="apple")["results"][0]["text_content"]
            == ("apple " * 200).strip()
        )


def test_filters_apply_before_the_ranking(tools: Tools) -> None:
    for number in range(40):
        tools.store(f"apple {number}", thread_id="near")
    for number in range(5):
        tools.store(f"zebra {number} apple", thread_id="far", tags=["x"])
    for name in SEARCHES[1:]:
        assert len(tools.found(name, query="apple", thread_id="far", limit=5)) == 5
        assert len(tools.found(name, query="apple", tags=["X"], limit=3, offset=3)) == 2


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


# fts_search_context


def test_entries_that_have_the_words_come_with_their_score(fruit: Tools) -> None:
    reply = fruit.fts_search_context(query="red apple")
    (entry,) = reply.pop("results")
    assert reply == {"query": "red apple", "mode": "match", "count": 1, "language": "english"}
    assert set(entry) == ENTRY | {"scores"} and set(entry["scores"]) == {"fts_score", "fts_rank"}
    assert entry["scores"]["fts_score"] > 0 and entry["scores"]["fts_rank"] is None
    scores = [
        each["scores"]["fts_score"]
        for each in fruit.fts_search_context(query="apple OR red", mode="boolean")["results"]
    ]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    ("mode", "query", "expected"),
    [
        ("match", "red apples", [1]),
        ("match", "run", [5]),
        ("match", "apple kiwi", [1, 2]),
        ("match", "c++ pears!", [3]),
        ("match", "what's up?", []),
        ("match", "AND", []),
        ("match", '"unterminated', []),
        ("match", "1.0.21", []),
        ("match", "?!", []),
        ("prefix", "authenticat", [4]),
        ("prefix", "re pe", [3]),
        ("prefix", "app*", [1, 2]),
        ("prefix", "runnin", [5]),
        ("phrase", "apple pie", [1]),
        ("phrase", "pie apple", []),
        ("boolean", "apple NOT pie", [2]),
        ("boolean", "(red OR green) AND apple", [1, 2]),
        ("boolean", '"red pear" OR users', [3, 4]),
        ("boolean", "OR", []),
        ("boolean", "NOT red", []),
        ("boolean", "apple AND (pie", [1]),
        ("boolean", 'apple AND "pie', [1]),
    ],
)
def test_each_mode_matches_words_as_specified(
    fruit: Tools, mode: str, query: str, expected: list[int]
) -> None:
    assert sorted(fruit.found("fts_search_context", query=query, mode=mode)) == expected


def test_a_malformed_boolean_query_says_how_it_was_read(fruit: Tools) -> None:
    assert (
        "a ( is not closed"
        in fruit.fts_search_context(query="apple AND (pie", mode="boolean")["note"]
    )
    assert "note" not in fruit.fts_search_context(query="apple AND pie", mode="boolean")
    assert fruit.fts_search_context(query="?!")["note"] == "the query has no words to look for"


def test_highlights_are_returned_on_request(fruit: Tools) -> None:
    (entry,) = fruit.fts_search_context(query="run parks", highlight=True)["results"]
    assert entry["highlighted"] == "<mark>running</mark> in the <mark>park</mark>"
    assert "highlighted" not in fruit.fts_search_context(query="run")["results"][0]
    assert "highlighted" not in fruit.hybrid_search_context(query="run")["results"][0]


def test_another_language_does_not_stem(path: Path) -> None:
    with opened(path, language="german") as db:
        tools = Tools(db)
        tools.store("apple pies")
        assert tools.found("fts_search_context", query="apples") == []
        reply = tools.fts_search_context(query="Apple")
        assert (reply["language"], reply["count"]) == ("german", 1)


# hybrid_search_context


@pytest.mark.parametrize("k", [1, 60, 1000])
def test_both_rankings_are_fused_by_their_ranks(fruit: Tools, k: int) -> None:
    reply = fruit.hybrid_search_context(query="red apple", rrf_k=k)
    results = reply.pop("results")
    assert reply == {
        "query": "red apple",
        "count": 5,
        "fusion_method": "rrf",
        "search_modes_used": ["fts", "semantic"],
        "fts_count": 1,
        "semantic_count": 5,
    }
    by_meaning = fruit.found("semantic_search_context", query="red apple")
    for entry in results:
        scores = entry["scores"]
        assert set(scores) == {
            "rrf",
            "fts_rank",
            "semantic_rank",
            "fts_score",
            "semantic_distance",
            "rerank_score",
        }
        assert scores["fts_rank"] == (1 if entry["id"] == 1 else None) and (
            scores["fts_score"] is None
        ) == (entry["id"] != 1)
        assert (
            scores["semantic_rank"] == by_meaning.index(entry["id"]) + 1
            and scores["rerank_score"] is None
        )
        ranks = [rank for rank in (scores["fts_rank"], scores["semantic_rank"]) if rank]
        assert scores["rrf"] == pytest.approx(sum(1 / (k + rank) for rank in ranks))
    fused = [entry["scores"]["rrf"] for entry in results]
    assert fused == sorted(fused, reverse=True)


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


def test_a_long_question_finds_by_some_of_its_words(fruit: Tools) -> None:
    reply = fruit.hybrid_search_context(
        query="How do I bake a really good pie for all of my guests?"
    )
    assert reply["fts_count"] == 1


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
