from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from mcpvectordb import Config, EndpointFailed
from mcpvectordb.embedding.endpoint import EndpointReranker, UnusableReply, scores_by_index
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


GOOD = {"index": 0, "relevance_score": 0.5}


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ("yes", "no list of results"),
        ([1, 2], "no list of results"),
        ([GOOD], "not one for each of 2 passages"),
        ([GOOD, GOOD], "not one for each of 2 passages"),
        *(
            ([GOOD, {"index": index, "relevance_score": 0.1}], "not one for each")
            for index in (2, [1], True)
        ),
        *(
            ([GOOD, {"index": 1, "relevance_score": score}], "not a finite number")
            for score in (10**400, None, float("nan"), "0.1")
        ),
    ],
)
def test_an_answer_that_is_no_scores_is_unusable(results: Any, message: str) -> None:
    for answer in (results, {"results": results}):
        with pytest.raises(UnusableReply, match=message):
            scores_by_index(answer, 2)


def test_scores_beyond_one_where_there_were_none_are_an_error(
    server: EndpointServer, tmp_path: Path
) -> None:
    reranker = add(server, tmp_path)
    server.fault = says(200, {"results": [GOOD, {"index": 1, "relevance_score": 7}]})
    with pytest.raises(EndpointFailed, match="not 0 to 1"):
        reranker.scores(QUERY, PASSAGES)
    server.fault = says(200, {"results": [GOOD]})
    with pytest.raises(EndpointFailed, match="gave an unusable answer"):
        reranker.scores(QUERY, PASSAGES)


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
