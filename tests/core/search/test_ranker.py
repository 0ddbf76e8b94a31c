"""Fusion of words and meaning, with an embedder whose vectors are written by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mcpvectordb import Config, Database
from mcpvectordb.storage.file import File


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


@pytest.mark.parametrize("mode", ["hybrid", "text", "vector"])
def test_a_question_is_answered_in_one_snapshot(
    path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Database(path, embedder=ByHand(0.5)) as db:
        db.documents.ingest_text("A kettle for the summer house.", source="kettle")
        db.memories.add("house", "user", "The kettle is in the summer house.")
        questions = {
            "passages": partial(db.documents.search, "kettle", mode=mode),
            "documents": partial(db.documents.search, "kettle", mode=mode, unit="document"),
            "memories": partial(db.memories.search, "kettle", mode=mode),
            "both": partial(db.search, "kettle"),
        }
        begun: list[str] = []
        begin = File._begin

        def counted(file: File, connection: Any, statement: str) -> None:
            begun.append(statement)
            begin(file, connection, statement)

        monkeypatch.setattr(File, "_begin", counted)
        for name, ask in questions.items():
            begun.clear()
            assert ask().hits and begun == ["BEGIN"], name


def test_a_document_is_as_good_as_its_best_passage(path: Path) -> None:
    long = "\n\n".join(f"# Part {number}\n\n" + "water " * 80 for number in range(40))
    with Database(path, embedder=ByHand(0.5), config=Config(chunk_size=32)) as db:
        db.documents.ingest_text(f"{long}\n\n# Tea\n\nA kettle of tea", source="long")
        for number in range(3):
            db.documents.ingest_text(f"A kettle, number {number}", source=f"{number}")
        for mode in ("hybrid", "text", "vector"):
            found = db.documents.search("kettle tea", mode=mode, unit="document", limit=4)
            best = db.documents.search("kettle tea", mode=mode, limit=50)
            sources = list(dict.fromkeys(hit.item.document.source for hit in best))[:4]
            assert [hit.item.document.source for hit in found] == sources


@given(st.lists(st.sampled_from(["kettle", "teapot", "plate", "spoon cake"]), max_size=9))
def test_memories_are_ranked_by_words_and_by_their_nearest_passage(words: list[str]) -> None:
    with Database(":memory:", embedder=ByHand(0.5)) as db:
        for number, word in enumerate(words):
            db.memories.add(f"{number}", "user", word)
        found = db.memories.search("kettle", limit=20)
        assert len(found) == len(words)
        assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)
        having = [("kettle" in hit.item.text) for hit in found]
        assert having == sorted(having, reverse=True)
        exclude = db.memories.search("teapot -kettle", limit=20)
        assert not any("kettle" in hit.item.text for hit in exclude)
