from __future__ import annotations

import copy
import dataclasses
import pickle
import re
from pathlib import Path

import pytest

from mcpvectordb import Chunk, Config, Database, Results
from mcpvectordb.embedding import weights
from mcpvectordb.embedding.catalogue import CATALOGUE, RERANKER
from mcpvectordb.ranking.snippets import Snippets, snippet
from tests.support import Letters

needs_quality = pytest.mark.skipif(
    not weights.installed(CATALOGUE[RERANKER], Path("nowhere")),
    reason="the extra quality is not installed",
)

QUESTION = "How many people live in Berlin?"


@pytest.fixture
def cities(db: Database) -> Database:
    for source, text in {
        "museums.md": "Berlin is well known for its museums, its parks and its many lakes.",
        "people.md": "Berlin had a population of 3,520,031 registered inhabitants in 2016.",
        "tea.md": "Pour hot water over the leaves, then wait for three minutes.",
    }.items():
        db.documents.ingest_text(text, source=source)
    return db


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


# Snippets


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


def test_a_snippet_is_made_when_it_is_first_asked_for(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    make = Snippets.of
    monkeypatch.setattr(Snippets, "of", lambda *of: made.append(of[1]) or make(*of))
    db.documents.ingest_text("first\n\nthe kettle", source="a.md")
    [hit] = db.documents.search("kettle")
    same = copy.deepcopy(hit)
    assert not made
    assert (hit.line, hit.snippet) == (3, "2: \n3: the kettle") and len(made) == 1
    assert same == hit == dataclasses.replace(hit)
    assert pickle.loads(pickle.dumps(hit)) == hit and hit.to_dict()["line"] == 3
    assert repr(hit) == repr(same) and not hasattr(hit, "nothing")


# A word that is typed half


@pytest.mark.parametrize("warm", [False, True])
def test_a_word_that_is_typed_half_finds_documents_and_memories_from_the_file_and_from_memory(
    cities: Database, warm: bool
) -> None:
    cities.memories.add(thread="t", source="user", text="The inhabitants were counted twice.")
    for query in ("inhab*", "inhabitant*") * (3 if warm else 1):
        found = cities.search([{"words": query}])
        assert {getattr(hit.item, "thread", None) for hit in found} == {None, "t"}
        assert len(found) == 2
    assert not cities.search([{"words": "inhab"}]) and not cities.search([{"words": "inhax*"}])


def test_what_a_begun_word_finds_is_marked_and_does_not_change_its_meaning(
    cities: Database,
) -> None:
    text = "Registered inhabitants; an inhabited place."
    for query in ("inhab*", "register inhabitan*"):
        marked = [text[start:end] for start, end in cities.highlights(text, query)]
        assert "inhabitants" in marked and ("Registered" in marked) == ("register" in query)
    plain, begun = (
        cities.documents.search(query, mode="vector") for query in ("berlin lakes", "berlin lakes*")
    )
    assert [hit.score for hit in plain] == [hit.score for hit in begun]
