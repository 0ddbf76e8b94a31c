"""Words of chunks: what FTS5 is asked for, and how much."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mcpvectordb import Config, Database
from mcpvectordb.index import Allowed, keyword
from mcpvectordb.index.keyword import KeywordIndex
from mcpvectordb.search import hybrid
from mcpvectordb.text.query import parse_query
from tests.support import Letters, search_documents

EVERYTHING = Allowed()


@pytest.fixture
def db() -> Iterator[Database]:
    """Ten chunks that have "common", five that have "frequent", two that have "seldom" and one that
    has "single".
    """
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


def match(db: Database, text: str, allowed: Allowed = EVERYTHING) -> tuple[set[int], str]:
    with db._file.reading() as sql:
        found = KeywordIndex("document_words", "document_chunks", 0).match(
            sql, parse_query(text), allowed, 100
        )
        return {id for id, _ in found.best}, found.note


def test_every_word_is_looked_for_while_the_budget_lasts(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyword, "ROWS", 17)
    assert match(db, "common frequent seldom") == (set(range(1, 11)), "")


@pytest.mark.parametrize(
    ("rows", "found", "left_out"),
    [(12, {2, 4, 5, 6, 8, 10}, '"common"'), (6, {4, 5}, '"common", "frequent"')],
)
def test_the_rarest_words_are_looked_for_first(
    db: Database, monkeypatch: pytest.MonkeyPatch, rows: int, found: set[int], left_out: str
) -> None:
    monkeypatch.setattr(keyword, "ROWS", rows)
    assert match(db, "common frequent seldom") == (
        found,
        f"so many chunks have {left_out} that only the other words were looked for",
    )


def test_when_all_words_are_common_the_chunks_that_have_them_all_are_looked_at(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyword, "ROWS", 4)
    assert match(db, "common frequent") == (
        {2, 4, 6, 8},
        'so many chunks have "common", "frequent" that only some of them were looked at',
    )


def test_when_no_chunk_has_them_all_those_with_the_first_are_looked_at(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyword, "ROWS", 0)
    assert (
        match(db, "single seldom")[1]
        == 'so many chunks have "single", "seldom" that only some of them were looked at'
    )
    monkeypatch.setattr(keyword, "ROWS", 1)
    assert match(db, "frequent zebra seldom", Allowed("SELECT 2")) == (
        set(),
        'so many chunks have "frequent", "seldom" that only the other words were looked for',
    )
    assert match(db, "frequent seldom", Allowed("SELECT 2")) == (
        {2},
        'so many chunks have "frequent", "seldom" that only some of them were looked at',
    )


def test_a_repeated_word_is_counted_once(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyword, "ROWS", 12)
    assert match(db, "common common seldom") == (set(range(1, 11)), "")


def test_quoted_phrases_are_always_looked_for(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyword, "ROWS", 5)
    assert match(db, '"common frequent" seldom') == ({2, 4, 6, 8, 10}, "")


def test_the_score_of_other_chunks_is_by_the_same_words(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyword, "ROWS", 6)
    with db._file.reading() as sql:
        query = parse_query("common frequent seldom")
        found = KeywordIndex("document_words", "document_chunks", 0).match(
            sql, query, EVERYTHING, 1
        )
        scores = found.scores([1, 4, 5])
    assert (
        scores[1] == 0 < scores[4] < scores[5]
    )  # the first two have only passed-over words, but for "seldom"
    assert found.best == [(5, scores[5])]


def test_a_search_says_which_words_it_passed_over(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyword, "ROWS", 6)
    assert db.documents.search("seldom single", mode="text").reasons == {}
    for found in (
        db.documents.search("common seldom", mode="text"),
        search_documents(db, "common seldom", expand=False),
    ):
        assert (
            found.reasons["common words"]
            == 'so many chunks have "common" that only the other words were looked for'
        )


def test_nothing_is_said_when_nothing_was_passed_over() -> None:
    assert hybrid.common_words(hybrid.NOTHING) == {}
