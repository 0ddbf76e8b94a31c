from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from mcpvectordb import Config, EndpointFailed
from mcpvectordb.embedding.endpoint_embedder import UnusableReply
from mcpvectordb.embedding.endpoint_reranker import EndpointReranker, scores_by_index
from mcpvectordb.search.rerank import CachedReranker
from mcpvectordb.storage.cache import Cache
from tests.support_endpoint import EndpointServer, added, json_values, says, serving

QUERY = "who steeps tea"
PASSAGES = ["the budget was approved in the end", "the one who steeps green tea"]


@pytest.fixture
def server() -> Iterator[EndpointServer]:
    with serving(EndpointServer()) as state:
        yield state


def add(server: EndpointServer, folder: Path) -> EndpointReranker:
    return EndpointReranker(added(server, folder, kind="reranker"))


def test_the_dialect_of_cohere_and_jina(server: EndpointServer, tmp_path: Path) -> None:
    assert add(server, tmp_path).scores(QUERY, PASSAGES) == [0.0, 1.0]
    path, _, body = server.asked[0]
    assert path == "/v1/rerank" and body == {
        "model": "letters-1",
        "query": QUERY,
        "documents": PASSAGES,
    }


def test_the_dialect_of_tei_is_found_when_it_is_added(
    server: EndpointServer, tmp_path: Path
) -> None:
    server.scores = "score"
    assert add(server, tmp_path).scores(QUERY, PASSAGES) == [0.0, 1.0]
    assert server.asked[0][2] == {"query": QUERY, "texts": PASSAGES, "truncate": True}


def logits(handler: Any, body: Any) -> None:
    """As llama.cpp answers: logits, best first."""
    best = max(range(2), key=lambda n: "tea" in body["documents"][n].casefold())
    results = [
        {"index": best, "relevance_score": 8.6},
        {"index": 1 - best, "relevance_score": -5.4},
    ]
    handler.send(200, {"object": "list", "results": results})


def test_logits_become_scores(server: EndpointServer, tmp_path: Path) -> None:
    server.fault = logits
    assert add(server, tmp_path).scores(QUERY, PASSAGES) == pytest.approx(
        [0.0045, 0.9998], abs=1e-4
    )


def result(*rows: Any) -> Any:
    return says(200, {"results": list(rows)})


GOOD = {"index": 0, "relevance_score": 0.5}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (says(200, {"scores": [1, 2]}), "no list of results"),
        (says(200, "yes"), "no list of results"),
        (result(1, 2), "no list of results"),
        (result(GOOD), "not one for each of 2 passages"),
        (result(GOOD, GOOD), "not one for each of 2 passages"),
        (result(GOOD, {"index": 2, "relevance_score": 0.1}), "not one for each"),
        (result(GOOD, {"index": [1], "relevance_score": 0.1}), "not one for each"),
        (result(GOOD, {"index": True, "relevance_score": 0.1}), "not one for each"),
        (result(GOOD, {"index": 1, "relevance_score": 10**400}), "not a finite number"),
        (result(GOOD, {"index": 1}), "not a finite number"),
        (result(GOOD, {"index": 1, "relevance_score": float("nan")}), "not a finite number"),
        (result(GOOD, {"index": 1, "relevance_score": "0.1"}), "not a finite number"),
        (result(GOOD, {"index": 1, "relevance_score": 7}), "not 0 to 1"),
        (says(500, {"error": "out of memory"}), "out of memory"),
        (says(503), "503"),
        (says(200, b" " * 2_000_000), "answered with more than"),
    ],
)
def test_an_unusable_answer_is_an_error(
    server: EndpointServer, tmp_path: Path, answer: Any, message: str
) -> None:
    reranker = add(server, tmp_path)
    server.fault = answer
    with pytest.raises(EndpointFailed, match=message):
        reranker.scores(QUERY, PASSAGES)
    assert len(server.asked) == 1


@given(json_values(["results", "data", "index", "score", "relevance_score"]))
def test_any_json_is_scores_or_one_error(answer: Any) -> None:
    try:
        assert all(math.isfinite(score) for score in scores_by_index(answer, 2))
    except UnusableReply as error:
        assert len(str(error)) < 100


def test_the_configured_reranker_is_asked_once_for_the_same_passages(
    server: EndpointServer, tmp_path: Path
) -> None:
    added(server, tmp_path, "judge", kind="reranker")
    reranking = CachedReranker(Config(models_dir=str(tmp_path), reranker="judge"), Cache())
    assert reranking.missing_reason() == "" and not server.asked
    assert reranking.scores(QUERY, PASSAGES) == [0.0, 1.0]
    assert reranking.scores(QUERY, PASSAGES[::-1]) == [1.0, 0.0] and len(server.asked) == 1
    server.fault = says(503)
    assert "503" in str(reranking.scores(QUERY, ["another passage about green tea"]))
    reranking.close()


def test_a_reranker_that_is_none_is_a_reason(server: EndpointServer, tmp_path: Path) -> None:
    added(server, tmp_path)
    reranking = CachedReranker(Config(models_dir=str(tmp_path), reranker="mine"), Cache())
    assert "no reranker" in str(reranking.scores(QUERY, PASSAGES))
    assert "no reranker" in reranking.missing_reason()
