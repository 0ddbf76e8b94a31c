"""Keyword search gives the same result from the file and from memory, after any changes."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import Config, Database
from mcpvectordb.index.keyword import KeywordIndex, WordTable, _rows, find
from mcpvectordb.index.resident import Allowed, ResidentEntries, log_rebuilt
from mcpvectordb.index.tuning import Tuning
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.storage.fts5 import varints
from mcpvectordb.text.query import K1, B, idf, parse_query
from tests.support import Letters, kept_keys

EVERYTHING = Allowed()
WORDS = "common frequent seldom single E-4021 v0.28.1 東京都 parseHTMLDocument naïve".split()


@pytest.fixture
def db() -> Iterator[Database]:
    """Ten chunks with "common", five with "frequent", two with "seldom", one with "single"."""
    with Database(":memory:", embedder=Letters(), config=Config(resident_bytes=0)) as db:
        for number in range(10):
            there = (True, number % 2, number in (3, 4), number == 9)
            text = " ".join(itertools.compress(WORDS, there))
            db.documents.ingest_text(text, source=f"{number}.txt", title="a title", embed=False)
        yield db


def index(file_rows: int, budget: int = 10**9) -> KeywordIndex:
    tuning = Tuning(file_rows=file_rows)
    return KeywordIndex(
        WordTable("document_words", "document_chunks"), ResidentEntries(budget, tuning)
    )


def test_every_chunk_that_has_any_word_is_found_even_if_the_word_is_common(db: Database) -> None:
    with db._file.reading() as sql:
        for file_rows in (0, 10**9):
            query = parse_query("common frequent seldom")
            found = index(file_rows).match(sql, query, EVERYTHING, 100)
            assert {id for id, _ in found.best} == set(range(1, 11))


def test_quoted_phrases_must_occur(db: Database) -> None:
    with db._file.reading() as sql:
        found = index(0).match(sql, parse_query('"common frequent"'), EVERYTHING, 100)
        assert {id for id, _ in found.best} == {2, 4, 6, 8, 10}


def test_scores_of_other_chunks_are_computed_from_the_same_terms(db: Database) -> None:
    with db._file.reading() as sql:
        for file_rows in (0, 10**9):
            found = index(file_rows).match(sql, parse_query("frequent seldom"), EVERYTHING, 1)
            scores = found.scores(np.array([1, 2, 4, 5])).tolist()
            assert scores[0] == 0 < scores[1] < scores[2] < scores[3]
            assert found.best == [(5, scores[3])]


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
    contents=st.lists(st.tuples(texts, texts), min_size=1, max_size=15),
    query=queries,
    some=st.none() | st.sets(st.integers(1, 15)),
    limit=st.integers(1, 20),
    file_rows=st.sampled_from([-1, 0, 3, 10, 10**9]),
    budget=st.sampled_from([0, 100, 500, 10**9]),
    times=st.integers(1, 3),
)
def test_the_same_question_gets_the_same_answer_from_the_file_and_from_memory(
    contents: list[tuple[str, str]],
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
    parsed, everything = parse_query(query), np.arange(1, 20)
    with Database(":memory:", embedder=Letters()) as db:
        for number, (title, text) in enumerate(contents):
            db.documents.ingest_text(text, source=f"{number}.txt", title=title, embed=False)
        with db._file.reading() as sql:
            expected = index(10**9, 0).match(sql, parsed, allowed, limit)
            asked = index(file_rows, budget)
            for _ in range(times):
                found = asked.match(sql, parsed, allowed, limit)
                assert found.best == expected.best
                assert found.scores(everything).tolist() == expected.scores(everything).tolist()
                assert found.full_score == expected.full_score
                assert found.code_share == expected.code_share


def filled(path: Path, *contents: str) -> Database:
    db = Database(path, embedder=Letters())
    for number, text in enumerate(contents):
        db.documents.ingest_text(text, source=f"{number}.txt", embed=False)
    return db


def best(matching: KeywordIndex, sql: Sql, text: str) -> list[tuple[int, float]]:
    return matching.match(sql, parse_query(text), EVERYTHING, 5).best


def test_uncommitted_rows_are_not_kept(path: Path) -> None:
    with filled(path, "apple", "banana") as db:
        matching = index(-1)
        with pytest.raises(ZeroDivisionError), db._file.writing() as sql:
            db.documents.ingest_text("cherry", source="undone", embed=False)
            assert [id for id, _ in best(matching, sql, "cherry")] == [3]
            raise ZeroDivisionError
        db.documents.ingest_text("date", source="done", embed=False)
        with db._file.reading() as sql:
            assert best(matching, sql, "cherry") == []
            assert [id for id, _ in best(matching, sql, "date")] == [3]


@pytest.mark.parametrize("deleted", [0, 1, 2])
def test_transactions_that_began_earlier_do_not_see_later_rows(path: Path, deleted: int) -> None:
    matching, query = index(-1), "apple fig date"
    with (
        filled(path, "apple fig", "apple", "apple apple date") as early,
        Database(path, embedder=Letters()) as late,
        early._file.reading() as old,
    ):
        before = best(matching, old, query)
        late.documents.delete(early.documents.lookup(f"{deleted}.txt").document.id)
        for number in range(2):
            late.documents.ingest_text("apple fig fig", source=f"new {number}", embed=False)
            for _ in range(2):
                with late._file.reading() as new:
                    assert best(matching, new, query) == best(index(10**9, 0), new, query)
                assert best(matching, old, query) == before


def test_a_process_keeps_postings_from_its_second_query_on_or_for_many_rows(path: Path) -> None:
    with filled(path, "apple", "apple", "banana") as db, db._file.reading() as sql:
        for rows, kept in ((2, [[], ["", "appl"]]), (1, [["", "appl"]])):
            memory = ResidentEntries(10_000, Tuning(file_rows=rows))
            matching = KeywordIndex(WordTable("document_words", "document_chunks"), memory)
            for keys in kept:
                best(matching, sql, "apple")
                assert kept_keys(memory, "document_words") == keys


def test_postings_are_read_again_after_a_rebuild(path: Path) -> None:
    with filled(path, "apple", "banana") as db, Database(path, embedder=Letters()) as other:
        with other._file.writing() as sql:
            sql.execute("DELETE FROM document_words WHERE rowid = 1")
            sql.execute("INSERT INTO document_words (rowid, text) VALUES (1, 'cherry')")
            log_rebuilt(sql, "document_words")

        def found(query: str) -> list[str]:
            return [hit.item.document.source for hit in db.documents.search(query, mode="text")]

        assert [found("apple"), found("apple"), found("cherry")] == [[], [], ["0.txt"]]
        other.rebuild()
        assert [found("apple"), found("cherry")] == [["0.txt"], []]


@given(st.lists(st.integers(0, 2**40)))
def test_varints_of_any_size_are_read(numbers: list[int]) -> None:
    def written(number: int) -> bytes:
        groups = [
            number >> shift & 0x7F
            for shift in range(0, max(1, math.ceil(number.bit_length() / 7)) * 7, 7)
        ]
        return bytes([*(group | 0x80 for group in groups[:0:-1]), groups[0]])

    assert varints(b"".join(map(written, numbers))) == numbers


def test_threads_search_while_another_connection_writes(path: Path) -> None:
    def answers(db: Database) -> list[list[tuple[str, float]]]:
        found = (db.documents.search(query, limit=50) for query in (*WORDS, "seldom -single", "x"))
        return [[(hit.item.text, hit.score) for hit in each] for each in found]

    tuning = Tuning(exact_rows=3)  # of more passages, codes are kept too
    with (
        Database(path, embedder=Letters(), tuning=tuning) as db,
        Database(path, embedder=Letters()) as writer,
    ):
        done = threading.Event()

        def search() -> int:
            asked = 0
            while not done.is_set() or not asked:
                asked += len(answers(db))
            return asked

        with ThreadPoolExecutor(3) as threads:
            asking = [threads.submit(search) for _ in range(3)]
            for number in range(60):
                text = " ".join(WORDS[number % 7 :])
                writer.documents.ingest_text(text, source=f"{number % 9}.txt")
                if number % 4 == 3:
                    writer.documents.delete(writer.documents.browse(limit=1)[0].id)
            done.set()
            assert all(each.result() for each in asking)
        with Database(path, embedder=Letters(), config=Config(resident_bytes=0)) as fresh:
            assert answers(db) == answers(fresh)


def test_the_words_of_whole_memories_are_checked_and_made_again(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        db.memories.add("t", "user", "apple pie")
        with db._file.writing() as sql:
            sql.execute("INSERT INTO context_spellings (rowid, text) VALUES (9, 'pie')")
        problem = "context_spellings: the words in the index are not those of the contexts"
        assert db.check() == [problem]
        db.rebuild()
        assert db.check() == [] and len(db.memories.search("pie", mode="text")) == 1


@given(
    rows=st.lists(st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join), max_size=8),
    query=st.lists(st.sampled_from([*WORDS, '"common frequent"', "single"]), min_size=1).map(
        " ".join
    ),
    stemmed=st.booleans(),
    deleted=st.integers(0, 3),
)
def test_occurrences_are_those_that_bm25_counts(
    rows: list[str], query: str, stemmed: bool, deleted: int
) -> None:
    with Database(":memory:", embedder=Letters()) as db:
        for number, text in enumerate(rows):
            db.memories.add(f"t{number % 2}", "user", f"{text} filler {number}")
        ids = [memory.id for memory in db.memories]
        db.memories.delete(ids[:deleted])
        kept, parsed = np.array(ids[deleted:], np.int64), parse_query(query)
        fulltext = db._store.fulltext
        keyword = fulltext.stems if stemmed else fulltext.spellings
        allowed = Allowed("SELECT id FROM contexts WHERE thread = ?", ("t0",))
        with db._file.reading() as sql:
            found = keyword.match(sql, parsed, EVERYTHING, 1).occurrences(kept)
            narrowed = keyword.match(sql, parsed, allowed, 1).occurrences(kept)
            names = (*parsed.phrases, *parsed.terms, *parsed.spellings)
            having = [keyword.frequency(sql, each) for each in names]
            inside = allowed.ids(sql)
            scores = keyword.match(sql, parsed, EVERYTHING, 1).scores(kept)
        assert found.frequencies.tolist() == (found.counts > 0).sum(axis=1).tolist() == having
        assert found.rows == len(kept) and narrowed.rows == len(inside)
        assert (
            narrowed.frequencies.tolist()
            == (found.counts[:, np.isin(kept, inside)] > 0).sum(axis=1).tolist()
        )
        if not parsed.phrases:
            norms = K1 * (1 - B + B * found.lengths / found.average)
            weights = np.array([[idf(found.rows, each)] for each in having])
            ours = (weights * found.counts * (K1 + 1) / (found.counts + norms)).sum(axis=0)
            assert ours == pytest.approx(scores, abs=1e-9)


def test_occurrences_include_what_the_transaction_itself_has_written(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        db.memories.add("t", "user", "tea")
        with db._file.writing() as sql:
            db.memories.add("t", "agent", "more tea")
            ids = np.array([1, 2], np.int64)
            match = db._store.fulltext.stems.match(sql, parse_query("tea"), EVERYTHING, 1)
            found = match.occurrences(ids)
        assert found.counts.tolist() == [[1, 1]] and found.lengths.tolist() == [1, 2]


@given(st.sets(st.integers(1, 40)), st.lists(st.integers(0, 45)))
def test_the_place_of_an_id_is_found_among_ids_with_gaps_and_without(
    stored: set[int], asked: list[int]
) -> None:
    ids = np.array(sorted(stored), np.int64)
    rows = _rows(ids, np.ones(len(ids)), np.ones(len(ids), bool), len(ids), 1, 1)
    expected = [sorted(stored).index(id) if id in stored else -1 for id in asked]
    assert rows.find(np.array(asked, np.int64)).tolist() == expected
    whole = np.arange(7, 30)
    rows = _rows(whole, np.ones(23), np.ones(23, bool), 23, 1, 1)
    assert rows.find(np.array(asked, np.int64)).tolist() == [
        id - 7 if 7 <= id < 30 else -1 for id in asked
    ]


@given(ids=st.sets(st.integers(1, 40)), wanted=st.lists(st.integers(-2, 45)))
def test_ids_are_found_at_their_places_with_and_without_a_gap_between_them(
    ids: set[int], wanted: list[int]
) -> None:
    ascending = sorted(ids)
    places = [ascending.index(id) if id in ids else -1 for id in wanted]
    assert find(np.array(ascending, int), np.array(wanted, int)).tolist() == places
