"""Keyword search gives the same result from the file and from memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import Config, Database
from mcpvectordb.index import Allowed
from mcpvectordb.index.keyword import KeywordIndex
from mcpvectordb.index.resident import ResidentEntries
from mcpvectordb.index.tuning import Tuning
from mcpvectordb.text.query import parse_query
from tests.support import Letters

EVERYTHING = Allowed()
WORDS = [
    "common",
    "frequent",
    "seldom",
    "single",
    "E-4021",
    "v0.28.1",
    "東京都",
    "parseHTMLDocument",
    "naïve",
]


@pytest.fixture
def db() -> Iterator[Database]:
    """Ten chunks with "common", five with "frequent", two with "seldom", one with "single"."""
    with Database(":memory:", embedder=Letters(), config=Config(resident_bytes=0)) as db:
        for number in range(10):
            found = {
                "common": True,
                "frequent": number % 2,
                "seldom": number in (3, 4),
                "single": number == 9,
            }
            text = " ".join(word for word, there in found.items() if there)
            db.documents.ingest_text(text, source=f"{number}.txt", title="a title", embed=False)
        yield db


def index(file_rows: int, budget: int = 10**9) -> KeywordIndex:
    tuning = Tuning(file_rows=file_rows)
    return KeywordIndex("document_words", "document_chunks", ResidentEntries(budget), tuning)


def test_every_chunk_that_has_any_word_is_found_even_if_the_word_is_common(db: Database) -> None:
    with db._file.reading() as sql:
        for file_rows in (0, 10**9):
            query = parse_query("common frequent seldom")
            found = index(file_rows).match(sql, query, EVERYTHING, 100)
            assert {id for id, _ in found.best} == set(range(1, 11))


def test_quoted_phrases_must_occur(db: Database) -> None:
    with db._file.reading() as sql:
        found = index(0).match(sql, parse_query('"common frequent" seldom'), EVERYTHING, 100)
        assert {id for id, _ in found.best} == {2, 4, 6, 8, 10}


def test_scores_of_other_chunks_are_computed_from_the_same_terms(db: Database) -> None:
    with db._file.reading() as sql:
        for file_rows in (0, 10**9):
            found = index(file_rows).match(sql, parse_query("frequent seldom"), EVERYTHING, 1)
            scores = found.scores([1, 2, 4, 5])
            assert scores[1] == 0 < scores[2] < scores[4] < scores[5]
            assert found.best == [(5, scores[5])]


def test_a_frequency_is_counted_up_to_a_bound(db: Database) -> None:
    with db._file.reading() as sql:
        assert index(0).frequency(sql, '"common"') == 10
        assert index(0).frequency(sql, '"common"', 3) == 3


texts = st.lists(st.sampled_from([*WORDS, "the", "of"]), min_size=1, max_size=12).map(" ".join)
queries = st.lists(
    st.sampled_from([*WORDS, "-common", "-single", '"common frequent"', "nothing", "東", "html"]),
    min_size=1,
    max_size=8,
).map(" ".join)


@given(
    contents=st.lists(texts, min_size=1, max_size=15),
    query=queries,
    some=st.none() | st.sets(st.integers(1, 15)),
    limit=st.integers(1, 20),
    file_rows=st.sampled_from([-1, 0, 3, 10, 10**9]),
    budget=st.sampled_from([0, 100, 500, 10**9]),
    times=st.integers(1, 3),
)
def test_the_same_question_gets_the_same_answer_from_the_file_and_from_memory(
    contents: list[str],
    query: str,
    some: set[int] | None,
    limit: int,
    file_rows: int,
    budget: int,
    times: int,
) -> None:
    allowed = EVERYTHING
    if some is not None:
        ids = ", ".join(map(str, some)) or "NULL"
        allowed = Allowed(f"SELECT id FROM document_chunks WHERE id IN ({ids})")
    parsed, everything = parse_query(query), list(range(1, 20))
    with Database(":memory:", embedder=Letters()) as db:
        for number, text in enumerate(contents):
            db.documents.ingest_text(text, source=f"{number}.txt", embed=False)
        with db._file.reading() as sql:
            expected = index(10**9, 0).match(sql, parsed, allowed, limit)
            asked = index(file_rows, budget)
            for _ in range(times):
                found = asked.match(sql, parsed, allowed, limit)
                assert found.best == expected.best
                assert found.scores(everything) == expected.scores(everything)
                assert found.full_score == expected.full_score
                assert found.code_share == expected.code_share
