from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import apsw
import numpy as np
import pytest
from numpy.typing import NDArray

from mcpvectordb import Chunk, Config, Database, Results
from mcpvectordb.embedding import weights
from mcpvectordb.embedding.catalogue import CATALOGUE, RERANKER
from mcpvectordb.search.snippets import snippet
from tests.support import Letters, search_documents

needs_quality = pytest.mark.skipif(
    not weights.installed(CATALOGUE[RERANKER], Path("nowhere")),
    reason="the extra quality is not installed",
)

CITIES = {
    "museums.md": "# Berlin\n\nBerlin is well known for its museums, its parks and its many "
    "lakes.\n",
    "people.md": "# Berlin\n\nBerlin had a population of 3,520,031 registered inhabitants in "
    "2016.\n",
    "tea.md": "# Tea\n\nPour hot water over the leaves, then wait for three minutes.\n",
    "oil.md": "# Engines\n\nThe motor oil of a car should be changed every year or so.\n",
}
QUESTION = "How many people live in Berlin?"


class Topics:
    """An embedder that knows three topics by their words."""

    name = "topics"
    dimension = 3
    topics = (
        ("berlin", "city", "museums", "inhabitants"),
        ("tea", "leaves", "brew", "kettle"),
        ("oil", "engine", "motor"),
    )

    def embed(self, texts: list[str], *, query: bool = False) -> NDArray[np.float32]:
        return np.array(
            [
                [0.05 + sum(text.casefold().count(word) for word in topic) for topic in self.topics]
                for text in texts
            ],
            np.float32,
        )


@pytest.fixture
def cities(path: Path) -> Iterator[Database]:
    with Database(path, embedder=Topics()) as db:
        for source, text in CITIES.items():
            db.documents.ingest_text(text, source=source)
        yield db


def sources(results: Results[Chunk]) -> list[str]:
    return [hit.item.document.source for hit in results]


# Chunks, read again


@needs_quality
def test_a_reranked_search_keeps_the_raw_figure_beside_the_blend(cities: Database) -> None:
    plain, reranked = (cities.documents.search(QUESTION, rerank=each) for each in (False, True))
    assert plain.legs == ("text", "vector") and reranked.legs == ("text", "vector", "rerank")
    assert reranked[0].item.document.source == "people.md"
    assert reranked[0].scores.rerank is not None and reranked[0].scores.rerank > 0.9
    assert all(hit.scores.rerank is None for hit in plain)
    text = [sorted(hit.scores.text or 0 for hit in hits) for hits in (plain, reranked)]
    assert text[0] == pytest.approx(text[1], rel=1e-6)
    scores = [hit.score for hit in reranked]
    assert scores == sorted(scores, reverse=True) and all(0 <= score <= 1 for score in scores)


@needs_quality
def test_only_the_best_twenty_are_read_and_the_rest_stays_behind(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        for number in range(30):
            text = f"Remark number {number} about the tea that we drink " + "so often " * number
            db.documents.ingest_text(text, source=f"{number}")
        plain = db.documents.search("tea", mode="text", limit=30)
        reranked = db.documents.search("tea", mode="text", limit=30, rerank=True)
        assert [hit.scores.rerank is not None for hit in reranked] == [True] * 20 + [False] * 10
        assert sources(reranked)[20:] == sources(plain)[20:]
        assert [hit.score for hit in reranked] == sorted(
            (hit.score for hit in reranked), reverse=True
        )
        assert (
            sources(db.documents.search("tea", mode="text", limit=5, offset=18, rerank=True))
            == sources(reranked)[18:23]
        )


def test_a_query_longer_than_the_passages_is_not_reranked(cities: Database) -> None:
    results = cities.documents.search("berlin " * 40, rerank=True)
    assert "rerank" not in results.legs and "longer than the passages" in results.reasons["rerank"]
    assert sources(results) == sources(cities.documents.search("berlin " * 40))


# Whole documents


def test_a_document_is_as_near_as_its_nearest_chunk(path: Path) -> None:
    with Database(path, embedder=Topics(), config=Config(chunk_size=20)) as db:
        long = "\n\n".join(
            ["# Mixed"]
            + [f"Sentence {number} is about nothing in particular at all." for number in range(40)]
            + ["The tea kettle brews tea leaves and tea."]
        )
        db.documents.ingest_text(long, source="mixed.md")
        db.documents.ingest_text("A car has an engine with oil.", source="car.md")
        results = search_documents(db, "brew tea", mode="vector")
        assert sources(results) == ["mixed.md", "car.md"]
        assert "kettle" in results[0].item.text
        assert results[0].score == results[0].scores.vector == pytest.approx(1, abs=0.1)
        assert [hit.scores.vector_rank for hit in results] == [1, 2]
        assert results.legs == ("vector",)


def test_many_chunks_of_one_document_do_not_crowd_out_the_others(path: Path) -> None:
    with Database(path, embedder=Topics(), config=Config(chunk_size=16)) as db:
        db.documents.ingest_text(
            "\n\n".join(
                f"Tea leaves brew tea, number {number}, with a kettle." for number in range(200)
            ),
            source="all tea",
        )
        db.documents.ingest_text("Oil for the engine.", source="oil")
        assert sources(search_documents(db, "tea", mode="vector", limit=2)) == ["all tea", "oil"]
        assert sources(search_documents(db, "tea oil", limit=2, rerank=False)) == ["oil", "all tea"]


def test_all_steps_are_taken_and_told(cities: Database) -> None:
    results = search_documents(cities, QUESTION)
    assert results.legs[:3] == ("text", "vector", "expansion")
    assert ("rerank" in results.legs) != ("rerank" in results.reasons)
    assert set(sources(results)[:2]) == {"people.md", "museums.md"}
    assert len(results) == len(set(sources(results)))


def test_without_a_reranker_the_score_is_one_over_the_rank(cities: Database) -> None:
    results = search_documents(cities, QUESTION, rerank=False)
    assert [hit.score for hit in results] == [1 / rank for rank in range(1, len(results) + 1)]
    assert "rerank" not in results.legs and "rerank" not in results.reasons
    assert all(hit.scores.rrf for hit in results)
    assert (
        sources(search_documents(cities, QUESTION, rerank=False, min_score=0.5))
        == sources(results)[:2]
    )
    assert (
        sources(search_documents(cities, QUESTION, rerank=False, limit=1, offset=1))
        == sources(results)[1:2]
    )


@needs_quality
def test_ranks_and_figures_are_blended_by_position(cities: Database) -> None:
    ranks = sources(search_documents(cities, QUESTION, rerank=False))
    for hit in search_documents(cities, QUESTION):
        rank = ranks.index(hit.item.document.source) + 1
        trust = 0.75 if rank <= 3 else 0.6
        assert hit.score == pytest.approx(trust / rank + (1 - trust) * hit.scores.rerank)


def test_without_vectors_words_alone_answer(path: Path) -> None:
    with Database(path, embedder=Topics()) as db:
        db.documents.ingest_text(CITIES["tea.md"], source="tea.md", embed=False)
    with Database(path) as db:  # whose model this machine does not have
        results = search_documents(db, "leaves", rerank=False)
        assert sources(results) == ["tea.md"] and results.legs == ("text", "expansion")
        assert "topics" in results.reasons["vector"]


def test_meaning_alone_answers_what_has_no_words(cities: Database) -> None:
    results = search_documents(cities, "?!", rerank=False, expand=False)
    assert results.legs == ("vector",)
    assert results.reasons == {"text": "the query has no words to look for"}


def test_what_is_learned_finds_documents_that_share_no_word_with_the_query(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        for number in range(60):
            db.documents.ingest_text(
                f"Ordinary remarks, number {number}.", source=f"filler {number}", embed=False
            )
        db.documents.ingest_text(
            "Rotate keys: a zygomorphic one, the zygomorphic one.", source="first", embed=False
        )
        db.documents.ingest_text(
            "Something zygomorphic, and nothing else.", source="second", embed=False
        )
        plain, expanded = (
            search_documents(db, "rotate", rerank=False, expand=each) for each in (False, True)
        )
        assert sources(plain) == ["first"]
        assert sources(expanded)[:2] == ["first", "second"]


def test_a_strong_signal_needs_no_expansion(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        for number in range(150):
            db.documents.ingest_text(
                f"Ordinary remarks, number {number}.", source=f"filler {number}", embed=False
            )
        db.documents.ingest_text(
            "# Zygomorphic xylophone\n\nzygomorphic xylophone quartet", source="strong", embed=False
        )
        results = search_documents(db, "zygomorphic xylophone quartet", rerank=False)
        assert results[0].scores.text > 0.85 / 0.15
        assert results.reasons["expansion"] == "words alone point at one document"
        assert "expansion" not in results.legs


def test_a_code_comes_before_near_identical_siblings(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        for number in range(30):
            db.documents.ingest_text(
                f"The kettle reports E-40{number:02} when it is cold.", source=f"{number}"
            )
        assert sources(search_documents(db, "E-4021", rerank=False))[0] == "21"


def test_phrases_and_exclusions_bind_every_step(cities: Database) -> None:
    assert sources(search_documents(cities, '"registered inhabitants" berlin', rerank=False)) == [
        "people.md"
    ]
    assert "people.md" not in sources(search_documents(cities, "berlin -inhabitants", rerank=False))


def test_conditions_narrow_every_mode(cities: Database) -> None:
    cities.documents.ingest_text(
        "Berlin again, in a library of its own.", source="own.md", library="own"
    )
    for mode in ("text", "vector", "hybrid"):
        assert sources(search_documents(cities, "berlin", mode=mode, library="own")) == ["own.md"]
        assert sources(search_documents(cities, "berlin", mode=mode, library="unknown")) == []
        assert sources(
            search_documents(cities, "berlin", mode=mode, where={"source": "people.md"})
        ) == ["people.md"]
        assert sources(search_documents(cities, "berlin", mode=mode, limit=0)) == []


def test_a_file_that_cannot_be_written_answers_as_well(cities: Database, path: Path) -> None:
    expected = sources(search_documents(cities, QUESTION, rerank=False))
    cities.close()
    with Database(path, embedder=Topics(), config=Config(read_only=True)) as db:
        assert sources(search_documents(db, QUESTION, rerank=False)) == expected


@needs_quality
def test_a_search_with_all_its_steps_writes_nothing_to_the_file(
    cities: Database, path: Path
) -> None:
    other = apsw.Connection(str(path))
    # Or it would be written back meanwhile, which changes the number too.
    assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall() == [(0, 0, 0)]
    before = other.pragma("data_version")
    first, again = (search_documents(cities, QUESTION) for _ in range(2))
    assert {"expansion", "rerank"} <= set(first.legs)
    assert [(hit.item.id, hit.score) for hit in again] == [
        (hit.item.id, hit.score) for hit in first
    ]
    # SQLite changes this number with every commit of another connection.
    assert other.pragma("data_version") == before
    other.close()


@pytest.mark.parametrize("overlap", [0, 8])
def test_a_snippet_of_a_long_document_has_the_numbers_of_its_lines(
    path: Path, overlap: int
) -> None:
    config = Config(chunk_size=16, chunk_overlap=overlap)
    with Database(path, embedder=Letters(), config=config) as db:
        lines = [f"line{number} of a\n\n  longer text, you see." for number in range(2_000)]
        text = "kettle\n\n" + "\n".join(lines) + "\nthe end"
        db.documents.ingest_text(text, source="a.txt", embed=False)
        for number in (0, 90, 777, 1_999):
            [hit] = db.documents.search(f'"line{number}"', mode="text", limit=1)
            shown = db.documents.snippet(hit.item, f"line{number}", whole=True)
            assert shown == snippet(text, f"line{number}")
            own = db.documents.snippet(hit.item, f"line{number}")
            assert hit.snippet == own and f": line{number} of a" in own
            for line in own.split("\n"):  # a chunk begins and ends without white space
                assert re.sub(r": +", ": ", line) in re.sub(r": +", ": ", shown)
            far = db.documents.snippet(hit.item, "kettle", whole=True)
            assert ("1: kettle" in far) == (number < 100), "only the text around it is read"


def test_a_snippet_is_of_the_chunk_or_of_the_whole_document(path: Path) -> None:
    with Database(path, embedder=Letters(), config=Config(chunk_size=16)) as db:
        text = "\n\n".join(
            ["The kettle is here."]
            + [f"Line {number} of a longer text, you see." for number in range(20)]
            + ["Another kettle and tea."]
        )
        id = db.documents.ingest_text(text, source="a.md").document.id
        hit = next(
            hit for hit in db.documents.search("another", mode="text") if "Another" in hit.item.text
        )
        assert db.documents.snippet(hit.item, "kettle").endswith(
            f"{hit.item.last_line}: Another kettle and tea."
        )
        assert db.documents.snippet(hit.item, "kettle", whole=True).startswith(
            "1: The kettle is here."
        )
        assert db.documents.text(id) == text
