"""What context_server adds to memories; its replies to usual calls are on record in goldens."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import Config, Database
from mcpvectordb_server.replies import MAX_REPLY
from mcpvectordb_server.surfaces.context_server import SURFACE, preview
from tests.server.clients import ask, service, valid
from tests.support import Letters

SEARCHES = (
    "search_context",
    "semantic_search_context",
    "fts_search_context",
    "hybrid_search_context",
)
PIXEL = base64.b64encode(b"\x89PNG one pixel").decode()
ORDERS = {
    "search_context": "thread_id source tags content_type metadata metadata_filters start_date "
    "end_date limit offset include_images explain_query",
    "fts_search_context": "query mode limit offset thread_id source tags content_type start_date "
    "end_date metadata metadata_filters highlight include_images explain_query",
}
SCHEMAS = {tool.name: tool.arguments.output for tool in SURFACE.tools}


class Tools:
    """`tools.name(...)` is the tool's reply, validated; `tools.refused("name", ...)` its error text."""

    def __init__(self, db: Database) -> None:
        self._service = service(db, SURFACE)

    def __getattr__(self, name: str) -> Any:
        def call(**arguments: Any) -> Any:
            result = ask(self._service, name, arguments)
            assert result.is_error is False, result.content[0].text
            shown = json.loads(result.content[0].text)
            if SCHEMAS[name] is None:
                assert {"result": shown} == result.structured_content
            else:
                assert shown == result.structured_content
                valid(shown, SCHEMAS[name])
            return shown

        return call

    def refused(self, name: str, **arguments: Any) -> str:
        result = ask(self._service, name, arguments)
        assert result.is_error is True, result.structured_content
        assert result.structured_content is None
        (block,) = result.content
        text: str = block.text
        assert "something went wrong" not in text and "\n" not in text
        return text

    def store(self, text: str, thread_id: str = "t", source: str = "user", **more: Any) -> int:
        id: int = self.store_context(thread_id=thread_id, source=source, text=text, **more)[
            "context_id"
        ]
        return id

    def found(self, tool: str = "search_context", **arguments: Any) -> list[int]:
        """The ids of a search's results."""
        reply = getattr(self, tool)(**arguments)
        assert reply["count"] == len(reply["results"])
        return [entry["id"] for entry in reply["results"]]


def opened(path: Path | str, *, rerank: bool = False, **config: Any) -> Database:
    """A database for these tests; the cross-encoder is used only where `rerank` is true."""
    return Database(path, embedder=Letters(), config=Config(rerank_memories=rerank, **config))


@pytest.fixture
def db(path: Path) -> Iterator[Database]:
    with opened(path) as database:
        yield database


@pytest.fixture
def tools(db: Database) -> Tools:
    return Tools(db)


@pytest.fixture
def fruit(tools: Tools) -> Tools:
    """Five entries, by two sources in two threads, one with an image."""
    texts = "red apple pie, green apple, red pear, authentication of users, running in the park"
    for number, text in enumerate(texts.split(", ")):
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


def asked(name: str, query: str = "apple") -> dict[str, str]:
    return {} if name == "search_context" else {"query": query}


# search_context, get_context_by_ids, list_threads, get_statistics


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
        assert stats["filters_applied"] == (2 if name == "search_context" else 6)
        assert stats["rows_returned"] == 1 and "contexts_by_thread" in stats["query_plan"]
        assert round(stats["execution_time_ms"], 2) == stats["execution_time_ms"] > 0


def test_statistics_say_what_is_not_available(without_model: Tools) -> None:
    without_model.store("kiwi")
    semantic = without_model.get_statistics()["semantic_search"]
    assert semantic["available"] is False
    assert (semantic["embedding_count"], semantic["context_count"]) == (5, 6)
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
    many = fruit.search_context(metadata_filters=[{"key": "n", "value": 0}] * 33)
    assert "at most 32" in many["validation_errors"][0]


# semantic_search_context


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
    assert reply["search_modes_used"] == used
    assert (reply["fts_count"], reply["semantic_count"]) == counts
    scores = [entry["scores"] for entry in reply["results"]]
    assert all(len(each) == 6 and each["rrf"] > 0 for each in scores)


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
    assert stats["fusion_stats"] == {
        "rrf_k": 7,
        "total_unique_documents": 3,
        "documents_in_both": 1,
        "documents_fts_only": 0,
        "documents_semantic_only": 2,
    }
    assert (stats["fts_stats"]["rows_returned"], stats["semantic_stats"]["rows_returned"]) == (1, 3)
    assert stats["fts_stats"]["filters_applied"] == 1
    assert "context_words" in stats["fts_stats"]["query_plan"]
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
        tools.store("Berlin, Berlin, Berlin: a song about Berlin that everyone can sing along.")
        tools.store("Berlin had a population of 3,520,031 registered inhabitants.")
        tools.store("The museums of Berlin are closed on Mondays, which many do not expect.")
        yield tools


@pytest.mark.parametrize("name", SEARCHES[1:])
def test_reranked_entries_are_ordered_by_their_rerank_score(reranked: Tools, name: str) -> None:
    search = partial(getattr(reranked, name), query="how many people live in Berlin")
    results = search()["results"]
    scores = [entry["scores"]["rerank_score"] for entry in results]
    assert results[0]["id"] == 2 and scores == sorted(scores, reverse=True)
    assert 1 >= scores[0] > 0.9 and scores[-1] < 0.5
    assert [entry["id"] for entry in search(limit=1, offset=1)["results"]] == [results[1]["id"]]


def test_without_a_reranker_only_hybrid_search_has_a_key_for_its_score(
    reranked: Tools, path: Path, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue("without_reranker")
    with opened(path, rerank=False) as off:
        for tools in (reranked, Tools(off)):
            results = tools.fts_search_context(query="Berlin")["results"]
            assert results[0]["id"] == 1 and "rerank_score" not in results[0]["scores"]
            [first, *_] = tools.hybrid_search_context(query="Berlin")["results"]
            assert first["scores"]["rerank_score"] is None
    assert reranked.get_statistics()["reranking"]["available"] is False


def whole(tools: Tools, id: int) -> dict[str, Any]:
    (entry,) = tools.get_context_by_ids(context_ids=[id])
    assert isinstance(entry, dict)
    return entry


# store_context


def test_images_come_back_as_they_went_in(tools: Tools) -> None:
    data = base64.b64encode(b"jpg").decode()
    second = {"data": data, "mime_type": "image/jpeg", "metadata": {"w": 5}}
    id = tools.store("tea", images=[{"data": f" {PIXEL}\n"}, second])
    expected = [{"data": PIXEL, "mime_type": "image/png"}, second]
    entry = whole(tools, id)
    assert (entry["content_type"], entry["images"]) == ("multimodal", expected)
    assert "images" not in tools.get_context_by_ids(context_ids=[id], include_images=False)[0]
    for name in SEARCHES:
        search = partial(getattr(tools, name), **asked(name, "tea"))
        assert search(include_images=True)["results"][0]["images"] == expected
        assert "images" not in search()["results"][0]
    plain = tools.store("no picture")
    assert "images" not in whole(tools, plain) and whole(tools, plain)["content_type"] == "text"


# Batches


def entries(*texts: str, **more: Any) -> list[dict[str, Any]]:
    return [{"thread_id": "t", "source": "user", "text": text, **more} for text in texts]


def test_an_atomic_batch_with_one_bad_item_stores_nothing(tools: Tools) -> None:
    bad = [{"thread_id": " ", "source": "user", "text": "x"}, {"thread_id": "t", "source": "user"}]
    message = tools.refused("store_context_batch", entries=[*entries("A"), *bad])
    assert message == (
        "2 of 3 items cannot be stored, so none was; the first is at index 1: thread_id must not "
        "be blank"
    )
    assert tools.found() == []
    id = tools.store("tea")
    message = tools.refused(
        "update_context_batch",
        updates=[{"context_id": id, "text": "x"}, {"context_id": 99, "text": "y"}],
    )
    assert message.endswith("the first is at index 1: Context not found: no context has the id 99")
    assert whole(tools, id)["text_content"] == "tea"


# Bounds


def test_truncated_replies_report_what_is_missing_and_how_to_get_it(
    tools: Tools, db: Database
) -> None:
    ids = [db.memories.add("t", "user", f"tea {number} " + "x" * 20_000).id for number in range(15)]
    reply = tools.fts_search_context(query="tea", limit=15)
    assert reply["count"] == len(reply["results"]) < 15
    assert "get_context_by_ids" in reply["truncated"]
    result = ask(service(db, SURFACE), "get_context_by_ids", {"context_ids": ids})
    assert len(result.structured_content["result"]) < 15
    assert "ask for the other ids" in result.content[1].text
    images = [{"data": PIXEL}, {"data": base64.b64encode(b"x" * MAX_REPLY).decode()}]
    large = tools.store("large", thread_id="large", images=images)
    (entry,) = tools.search_context(thread_id="large", include_images=True)["results"]
    omitted = f"200,000 bytes; call get_context_by_ids with {large} to get them"
    assert entry["images"][0] == {"data": PIXEL, "mime_type": "image/png"}
    assert entry["images"][1] == {"mime_type": "image/png", "omitted": omitted}
    assert len(base64.b64decode(whole(tools, large)["images"][1]["data"])) == MAX_REPLY


@pytest.mark.parametrize("name", ORDERS)
def test_parameters_are_listed_in_the_order_of_the_specification(name: str) -> None:
    [tool] = [each for each in SURFACE.tools if each.name == name]
    assert list(tool.arguments.schema["properties"]) == ORDERS[name].split()
