"""Whole documents as qmd's specification ranks them: by reciprocal ranks, and by all terms."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mcpvectordb import Chunk, Config, Database, Hit, Results
from mcpvectordb.documents import whole_documents
from mcpvectordb.documents.whole_documents import expanded, mean_embedding, positioned, rewarded
from mcpvectordb.embedding import weights
from mcpvectordb.embedding.catalogue import CATALOGUE, RERANKER
from mcpvectordb.index.chunks import QueryEmbedding
from mcpvectordb.text.query import Query, parse_query
from tests.support import Letters, scaled, search_documents

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


@pytest.mark.parametrize("expand", [False, True])
def test_meaning_alone_answers_what_has_no_words(cities: Database, expand: bool) -> None:
    results = search_documents(cities, "?!", rerank=False, expand=expand)
    assert results.legs[0] == "vector" and sources(results)
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
    assert sources(search_documents(cities, '"registered inhabitants"', rerank=False)) == [
        "people.md"
    ]
    preferred = sources(search_documents(cities, '"registered inhabitants" berlin', rerank=False))
    assert "people.md" in preferred and len(preferred) > 1
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


def test_the_first_of_any_ranking_gets_a_bonus_and_second_and_third_a_smaller_one() -> None:
    fused = [(1, 0.04), (2, 0.03), (3, 0.02), (4, 0.01)]
    assert rewarded(fused, [[4, 3], [2, 9, 3]]) == [
        (2, pytest.approx(0.08)),
        (4, pytest.approx(0.06)),
        (1, 0.04),
        (3, pytest.approx(0.04)),
    ]
    assert rewarded(fused, [[4, 1], [1, 4]])[0] == (1, pytest.approx(0.09))


def test_high_ranks_weigh_more_than_the_reranker() -> None:
    assert positioned([], [0.0, 1.0]) == [(0, 0.75), (1, pytest.approx(0.75 / 2 + 0.25))]
    best = dict(positioned([], [0.5] * 12))
    assert best[2] == pytest.approx(0.75 / 3 + 0.125)
    assert best[3] == pytest.approx(0.6 / 4 + 0.2) and best[9] == pytest.approx(0.6 / 10 + 0.2)
    assert best[10] == pytest.approx(0.4 / 11 + 0.3)
    order = [position for position, _ in positioned([], [0.0] * 10 + [1.0])]
    assert order[:3] == [0, 10, 1]


# What the best passages add to a query.

FILLER = "Ordinary remarks about common things and other matters."


@pytest.fixture
def certified(db: Database) -> Database:
    db.documents.ingest_text(
        "Rotate keys: the certificate authority signs a certificate for them.", source="keys.md"
    )
    db.documents.ingest_text(
        "The certificate expires, renew the certificate; ordinary remarks.", source="renew.md"
    )
    for number in range(10):
        db.documents.ingest_text(f"{FILLER} Number {number}.", source=f"{number}.md")
    return db


def expansion(db: Database, query: str, *sources: str) -> tuple[Query, QueryEmbedding | None]:
    with db._file.reading() as sql:
        chunks = [
            id
            for (id,) in sql.execute(
                "SELECT c.id FROM document_chunks c JOIN documents d ON d.key = c.owner "
                "WHERE d.source IN (SELECT value FROM json_each(?))",
                (json.dumps(sources),),
            )
        ]
        embedding = db._encoder.asked(sql, query, "hybrid", db._indexes[0])[1]
        added = expanded(sql, db._indexes[0], parse_query(query), chunks)
        return added, mean_embedding(sql, embedding, chunks)


def test_words_that_are_frequent_in_the_passages_and_rare_elsewhere_are_added(
    certified: Database,
) -> None:
    found, _ = expansion(certified, "rotate keys", "keys.md", "renew.md")
    added = found.match.removeprefix('"rotate" OR "keys" OR ').split(" OR ")
    assert added[0] == '"certificate"' and '"authority"' in added
    assert not {'"the"', '"for"', '"rotate"', '"keys"', '"a"'} & set(added)
    assert added.index('"authority"') < added.index('"ordinary"')


def test_phrases_and_exclusions_of_the_query_stay_in_force(certified: Database) -> None:
    found, _ = expansion(certified, '"rotate keys" -renew', "keys.md")
    assert found.match.startswith('("rotate keys") AND (') and '"certificate"' in found.match
    assert found.excluded == '"renew"'


def test_the_second_embedding_is_the_mean_of_the_passages(certified: Database) -> None:
    _, mean = expansion(certified, "rotate keys", "keys.md", "renew.md")
    assert mean is not None
    with certified._file.reading() as sql:
        vectors = [
            np.frombuffer(each, np.float32)
            for (each,) in sql.execute(
                "SELECT embedding FROM document_embeddings ORDER BY chunk LIMIT 2"
            )
        ]
    assert np.allclose(np.frombuffer(mean.embedding, np.float32), np.mean(vectors, axis=0))


def test_passages_without_embeddings_give_no_second_embedding(db: Database) -> None:
    db.documents.ingest_text("some words", source="a.md", embed=False)
    assert expansion(db, "words", "a.md")[1] is None


def test_chinese_terms_are_bigrams(db: Database) -> None:
    db.documents.ingest_text("数据库很快", source="a.md")
    for number in range(5):
        db.documents.ingest_text(f"{FILLER} {number}", source=f"{number}.md")
    assert '"据库"' in expansion(db, "快", "a.md")[0].match


# Documents that have all terms.

PADDING = "\n\n".join(
    f"Paragraph {number} says nothing of interest, at some length, in many words."
    for number in range(60)
)


def add(db: Database, source: str, text: str, library: str = "default") -> None:
    db.documents.ingest_text(text, source=source, library=library, embed=False)


def hits(db: Database, query: str, **options: object) -> list[Hit[Chunk]]:
    return list(search_documents(db, query, mode="text", **options))


def found(db: Database, query: str, **options: object) -> list[str]:
    return [hit.item.document.source for hit in hits(db, query, **options)]


@pytest.fixture
def noted(db: Database) -> Database:
    add(db, "tea.md", f"# Tea\n\nGreen leaves.\n\n{PADDING}\n\nThe kettle whistles at the end.\n")
    add(db, "coffee.md", "# Coffee\n\nA kettle and beans, green ones too.\n")
    add(db, "plan.md", "# Plan\n\nVersion 1.0.21 of the multi-agent snake_case module; E-4021.\n")
    add(db, "zh.md", "# 数据库\n\n数据库很快。\n")
    return db


def test_all_words_may_be_anywhere_in_a_document(noted: Database) -> None:
    assert found(noted, "leaves kettle") == ["tea.md"]
    assert sorted(found(noted, "green kettle")) == ["coffee.md", "tea.md"]
    assert found(noted, "leaves beans") == []


def test_a_word_may_be_the_beginning_of_one(noted: Database) -> None:
    assert found(noted, "leav whist") == ["tea.md"]
    assert found(noted, "eaves") == []


@pytest.mark.parametrize(
    "word", ["organizations", "generated", "meeting", "notification", "happiness", "running", "tea"]
)
def test_a_word_is_found_by_any_of_its_beginnings_whatever_its_stem(
    db: Database, word: str
) -> None:
    add(db, "a.md", f"# Title\n\nIt is about {word} here.\n")
    add(db, "b.md", "# Other\n\nIt is about organs, meat, notes, happy rivers here.\n")
    for length in range(4, len(word) + 1):
        assert "a.md" in found(db, f"{word[:length]} about"), word[:length]
    assert found(db, f"{word}zzz") == []


def test_of_the_most_common_words_presence_counts_even_if_they_are_not_scored(
    noted: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = ("kettle green", "green kettle leaves", "kettle green beans", "plan 1.0.21")
    usual = {query: found(noted, query) for query in queries}
    monkeypatch.setattr(whole_documents, "SCORED", 0)
    assert {query: sorted(found(noted, query)) for query in usual} == {
        query: sorted(each) for query, each in usual.items()
    }
    assert found(noted, "kettle -green") == []


def test_there_is_one_hit_per_document_and_it_is_the_best_chunk(noted: Database) -> None:
    assert found(noted, "paragraph") == ["tea.md"]
    (hit,) = hits(noted, "tea whistles")
    assert "whistles" in hit.item.text and hit.item.first_line > 100


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ('"green leaves"', ["tea.md"]),
        ('"leaves green"', []),
        ("kettle -beans", ["tea.md"]),
        ('kettle -"green leaves"', ["coffee.md"]),
        ("-beans", []),
        ("multi-agent", ["plan.md"]),
        ("agent-multi", []),
        ("1.0.21", ["plan.md"]),
        ("21.0.1", []),
        ("snake_case", ["plan.md"]),
        ("E-4021", ["plan.md"]),
        ("E-4022", []),
        ("数据", ["zh.md"]),
        ("据库", ["zh.md"]),
        ("库据", []),
        ("", []),
        ("?!", []),
        ('"', []),
        ("AND OR NOT", []),
        ("kettle*", ["coffee.md", "tea.md"]),
        ("title:tea", []),
    ],
)
def test_the_rules_of_queries(noted: Database, query: str, expected: list[str]) -> None:
    assert sorted(found(noted, query)) == expected


def test_stop_words_are_let_go_when_they_leave_nothing(noted: Database) -> None:
    assert found(noted, "what are the beans") == ["coffee.md"]
    assert found(noted, "the kettle") == ["tea.md"]
    assert found(noted, "which zebra") == []


def test_a_score_is_bm25_on_a_scale_that_other_results_do_not_change(noted: Database) -> None:
    (hit,) = hits(noted, "beans")
    assert hit.scores.text is not None and hit.scores.text > 0
    assert hit.score == pytest.approx(hit.scores.text / (1 + hit.scores.text))
    assert [each.scores.text_rank for each in hits(noted, "kettle")] == [1, 2]
    assert search_documents(noted, "beans", mode="text").legs == ("text",)


def test_the_title_counts_most_and_the_path_more_than_the_text(db: Database) -> None:
    for number in range(12):
        add(db, f"filler{number}.md", "# Filler\n\nNothing to see here at all.\n")
    add(db, "body.md", "# Other\n\nzebra to see here at all.\n")
    add(db, "zebra.md", "# Other\n\nNothing to see here at all.\n")
    add(db, "title.md", "# Zebra\n\nNothing to see here at all.\n")
    assert found(db, "zebra") == ["title.md", "zebra.md", "body.md"]


def test_words_of_the_path_and_of_the_text_come_together(db: Database) -> None:
    add(db, "journal/2025-05-01.md", "# Monday\n\nbudget\n", library="work")
    add(db, "other.md", "# Tuesday\n\nbudget\n")
    assert found(db, "journal budget") == ["journal/2025-05-01.md"]
    assert found(db, "2025-05-01") == ["journal/2025-05-01.md"]
    assert found(db, "work budget") == ["journal/2025-05-01.md"]
    assert found(db, "budget -journal") == ["other.md"]
    (hit,) = hits(db, "journal")
    assert hit.item.position == 0


def test_the_folder_of_a_library_is_no_part_of_the_path(db: Database, tmp_path: Path) -> None:
    folder = tmp_path / "secretfolder"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "a.md").write_text("text\n")
    db.documents.add_library("notes", folder)
    db.documents.sync(embed=False)
    assert found(db, "secretfolder") == []
    assert found(db, "sub notes") == [str(folder / "sub" / "a.md")]


def test_a_library_narrows_before_the_cut(db: Database) -> None:
    for number in range(20):
        add(db, f"{number}.md", "tea tea tea")
    add(db, "far.md", "a long text in which the word tea occurs only once", library="small")
    assert found(db, "tea", library="small", limit=1) == ["far.md"]
    assert found(db, "tea", library="unknown") == []
    assert len(found(db, "tea", limit=3)) == 3 and found(db, "tea", limit=0) == []
    assert found(db, "tea", where={"source": "7.md"}) == ["7.md"]


words_of = st.lists(
    st.sampled_from(["tea", "team", "kettle", "green", "1.0"]), min_size=1, max_size=4
)


@settings(max_examples=scaled(40))
@given(
    texts=st.lists(words_of, min_size=1, max_size=5),
    query=words_of,
    library=st.sampled_from([None, "a"]),
)
def test_it_finds_what_a_plain_reading_finds(
    texts: list[list[str]], query: list[str], library: str | None
) -> None:
    with Database(":memory:", embedder=Letters()) as db:
        for number, text in enumerate(texts):
            add(db, f"x{number}", " ".join(text), library="ab"[number % 2])
        expected = {
            f"x{number}"
            for number, text in enumerate(texts)
            if all(
                any(have == word or (have.startswith(word) and "." not in word) for have in text)
                for word in query
            )
            and (library is None or number % 2 == 0)
        }
        assert set(found(db, " ".join(query), library=library)) == expected
