"""Small collections in five languages, searched by words and by meaning with the real model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcpvectordb import Config, Database
from mcpvectordb.embedding.catalogue import CATALOGUE
from mcpvectordb.embedding.weights import installed
from tests.support import ROOT

pytestmark = pytest.mark.skipif(
    not installed(CATALOGUE["multilingual-e5-small"], Path("nowhere")),
    reason="the extra multilingual is not installed",
)
LANGUAGES: dict[str, list[dict[str, Any]]] = {
    path.stem: json.loads(path.read_text("utf-8"))["entries"]
    for path in sorted((ROOT / "tests" / "fixtures" / "languages").glob("*.json"))
}
# Of twelve questions that share few words with their passage, among the 60 passages of all
# languages: how many find it first at least.
FIRST = {"ar": 7, "de": 11, "es": 10, "hi": 9, "ru": 9}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    path = tmp_path_factory.mktemp("languages") / "test.db"
    with Database(path, config=Config(model="multilingual-e5-small")) as db:
        entries = [
            (f"{name}/{number}.md", entry)
            for name, entries in LANGUAGES.items()
            for number, entry in enumerate(entries)
        ]
        db.documents.ingest_many(
            [entry["text"] for _, entry in entries],
            sources=[source for source, _ in entries],
            titles=[entry["title"] for _, entry in entries],
        )
        yield db


@pytest.mark.parametrize("mode", ["vector", "hybrid"])
@pytest.mark.parametrize("name", LANGUAGES)
def test_questions_find_their_passages_first(filled: Database, name: str, mode: Any) -> None:
    found = [
        [
            hit.item.document.source
            for hit in filled.documents.search(each["question"], mode=mode, limit=10)
        ]
        for each in LANGUAGES[name]
    ]
    right = [f"{name}/{number}.md" for number in range(12)]
    assert (
        sum(ranked[0] == wanted for ranked, wanted in zip(found, right, strict=True)) >= FIRST[name]
    )
    assert all(wanted in ranked for ranked, wanted in zip(found, right, strict=True))


@pytest.mark.parametrize("name", LANGUAGES)
def test_words_find_the_passage_that_has_them_and_cite_it(filled: Database, name: str) -> None:
    for number, entry in enumerate(LANGUAGES[name]):
        [hit, *_] = filled.documents.search(entry["text"][:40], mode="text")
        assert hit.item.document.source == f"{name}/{number}.md"
        assert hit.item.text == entry["text"] and hit.line == 1
        assert hit.item.citation == f"{entry['title']}, line 1 ({name}/{number}.md)"


def test_a_question_is_answered_in_another_language(filled: Database) -> None:
    [best, *_] = filled.documents.search("How do bees survive the winter?", mode="vector")
    assert best.item.document.source == "de/0.md"
    found = filled.documents.search("Which lake is the deepest in the world?", mode="vector")
    assert found[0].item.document.source == "ru/3.md" and found[0].relevance is None
    assert not found.verdict and "language of the query" in found.uncalibrated


def test_chunks_are_measured_in_tokens_of_the_model(tmp_path: Path) -> None:
    long = "这是一个很长的文本，用来测试分块。" * 200
    config = Config(model="multilingual-e5-small", chunk_size=100)
    with Database(tmp_path / "long.db", config=config) as db:
        done = db.documents.ingest_text(long, source="long.md", embed=False)
        tokens = db._encoder.tokens()
        assert done.document.chunks > 10
        assert db.documents.text(done.document.id) == long
        sizes = [
            tokens.count(hit.item.text)
            for hit in db.documents.search("文本分块", mode="text", limit=100)
        ]
        assert sizes and max(sizes) <= 110
