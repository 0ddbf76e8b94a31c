"""How words and meaning become one ranking, with an embedder whose vectors are written by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from mcpvectordb import Config, Database


class ByHand:
    """Looks texts up: what a text says lies in one of three directions, and a query in the
    first.
    """

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
    """By words the code is only in the teapot's text; by meaning every query is about the
    kettle.
    """
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
def test_meaning_weighs_what_its_model_says_and_words_the_rest(
    filled: Path, weight: float, best: str
) -> None:
    with Database(filled, embedder=ByHand(weight)) as db:
        assert first(db, "porcelain") == best


@pytest.mark.parametrize(("weight", "best"), [(0.8, "kettle"), (0.2, "teapot")])
def test_the_weight_of_the_configuration_comes_before_the_models(
    filled: Path, weight: float, best: str
) -> None:
    with Database(filled, embedder=ByHand(1 - weight), config=Config(vector_weight=weight)) as db:
        assert first(db, "porcelain") == best


def test_for_a_code_words_decide_however_much_meaning_weighs(filled: Path) -> None:
    with Database(filled, embedder=ByHand(0.8)) as db:
        assert first(db, "E-4022") == "teapot"
        assert first(db, "E-4022 porcelain") == "kettle"  # which is more than a code


def test_words_that_every_question_has_do_not_decide(path: Path) -> None:
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
