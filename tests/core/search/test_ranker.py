"""Fusion of words and meaning, with an embedder whose vectors are written by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from mcpvectordb import Config, Database


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


def test_stop_words_do_not_decide_the_ranking(path: Path) -> None:
    with Database(path, embedder=ByHand(0.5)) as db:
        db.documents.ingest_text(
            "How do I get what I want, and why should it be so?", source="questions"
        )
        for number in range(8):
            db.documents.ingest_text(f"def porcelain_{number}(): ...", source=f"{number}")
        db.documents.ingest_text("def glaze(teapot): return porcelain(teapot)", source="glaze")
        (best, *_) = db.documents.search("How do I glaze it, and why should it be so?", mode="text")
        assert best.item.document.source == "glaze"
        assert db.documents.search("how do I", mode="text")[0].item.document.source == "questions"
