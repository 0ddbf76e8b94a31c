from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mcpvectordb.embedding import weights
from mcpvectordb.embedding.catalogue import CATALOGUE, RERANKER
from mcpvectordb.embedding.onnx import Reranker
from mcpvectordb.errors import InvalidInput

NOWHERE = Path("nowhere")
QUERY = "How many people live in Berlin?"
PASSAGES = [
    "Berlin had a population of 3,520,031 registered inhabitants in an area of 891.82 square "
    "kilometers.",
    "Berlin is well known for its museums.",
]


@pytest.fixture(scope="module")
def reranker() -> Iterator[Reranker]:
    model = CATALOGUE[RERANKER]
    if not weights.installed(model, NOWHERE):
        pytest.skip("the extra quality is not installed")
    made = Reranker(model, weights.locate(model, NOWHERE))
    yield made
    made.close()


def test_the_example_of_the_model_card_gives_its_published_scores(reranker: Reranker) -> None:
    assert reranker.logits(QUERY, PASSAGES) == pytest.approx([9.2, -4.1], abs=0.4)


def test_scores_are_between_0_and_1_in_the_order_of_the_passages(reranker: Reranker) -> None:
    good, bad = reranker.scores(QUERY, PASSAGES)
    assert 0 < bad < 0.1 < 0.9 < good < 1
    assert reranker.scores(QUERY, PASSAGES[::-1]) == [bad, good]


def test_a_score_does_not_depend_on_the_other_passages(reranker: Reranker) -> None:
    together = reranker.logits(
        QUERY, [*PASSAGES, "short", "a much longer passage " * 30, PASSAGES[0]]
    )
    assert (
        together[:2]
        == reranker.logits(QUERY, PASSAGES)
        == [reranker.logits(QUERY, [each])[0] for each in PASSAGES]
    )
    assert together[4] == together[0]


@pytest.mark.parametrize(
    ("query", "passage"), [("", ""), ("x", ""), ("", "y"), ("word " * 2000, "word " * 5000)]
)
def test_empty_and_very_long_pairs_are_scored(reranker: Reranker, query: str, passage: str) -> None:
    assert len(reranker.scores(query, [passage])) == 1


def test_an_embedder_is_refused_as_a_reranker() -> None:
    with pytest.raises(InvalidInput, match="embedder"):
        Reranker(CATALOGUE["all-MiniLM-L6-v2"], {})
