"""Postings in memory give FTS5's own results after any changes of the file."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from mcpvectordb import Config, Database
from mcpvectordb.index import Allowed, changes
from mcpvectordb.index.keyword import KeywordIndex, KeywordMatch
from mcpvectordb.index.resident import ResidentEntries
from mcpvectordb.index.tuning import Tuning
from mcpvectordb.storage.fts5 import varints
from mcpvectordb.text.query import parse_query
from tests.support import Letters, scaled

WORDS = ("apple", "banana", "cherry", "date", "elder", "fig", "grape", "E-4021", "東京", "naïve")
QUERIES = (
    "apple",
    "banana cherry",
    "date date fig",
    "elder -apple",
    "E-4021 grape",
    "東京",
    "naive fig -banana -date",
    "apple banana cherry date elder fig grape",
    "nothing",
)
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join)


IN_FILE = Tuning(file_rows=10**9)
IN_MEMORY = Tuning(file_rows=-1)


def from_memory(budget: int = 10_000_000) -> KeywordIndex:
    """An index that answers from postings, from the first query on."""
    return KeywordIndex("document_words", "document_chunks", ResidentEntries(budget), IN_MEMORY)


def from_file() -> KeywordIndex:
    """An index that was never used before and has FTS5 answer at any cost."""
    return KeywordIndex("document_words", "document_chunks", ResidentEntries(0), IN_FILE)


def assert_alike(found: KeywordMatch, expected: KeywordMatch, ids: list[int]) -> None:
    assert found.best == expected.best
    assert found.full_score == expected.full_score
    assert found.scores(ids) == expected.scores(ids)


def fill(db: Database, *contents: str) -> None:
    for number, text in enumerate(contents):
        db.documents.ingest_text(text, source=f"{number}.txt", embed=False)


class Following(RuleBasedStateMachine):
    """Connections of two processes write; postings in memory follow, and give FTS5's results."""

    @initialize()
    def open(self) -> None:
        self._stack = ExitStack()
        path = Path(self._stack.enter_context(TemporaryDirectory())) / "a.db"
        config = Config(resident_bytes=0)
        self.databases = [
            self._stack.enter_context(Database(path, config=config, embedder=Letters()))
            for _ in range(2)
        ]
        self.kept = from_memory()

    @rule(
        which=st.integers(0, 1),
        source=st.integers(0, 5),
        text=texts,
        title=st.sampled_from(["", *WORDS]),
    )
    def ingest(self, which: int, source: int, text: str, title: str) -> None:
        self.databases[which].documents.ingest_text(
            text, source=f"{source}.txt", title=title or None, embed=False
        )

    @rule(which=st.integers(0, 1), source=st.integers(0, 5))
    def delete(self, which: int, source: int) -> None:
        documents = self.databases[which].documents
        for document in documents.browse():
            if document.source == f"{source}.txt":
                documents.delete(document.id)

    @rule(which=st.integers(0, 1))
    def compact(self, which: int) -> None:
        self.databases[which].compact()

    @rule(text=st.sampled_from(QUERIES), limit=st.sampled_from([1, 3, 100]))
    def search(self, text: str, limit: int) -> None:
        query = parse_query(text)
        with self.databases[0]._file.reading() as sql:
            ids = [id for (id,) in sql.execute("SELECT id FROM document_chunks")]
            assert_alike(
                self.kept.match(sql, query, Allowed(), limit),
                from_file().match(sql, query, Allowed(), limit),
                ids,
            )

    def teardown(self) -> None:
        if hasattr(self, "_stack"):
            self._stack.close()


TestFollowing = Following.TestCase
TestFollowing.settings = settings(max_examples=scaled(20))  # each is a real file with many commits


@contextmanager
def opened(*contents: str) -> Iterator[apsw.Connection]:
    with Database(":memory:", embedder=Letters()) as db:
        fill(db, *contents)
        with db._file.reading() as sql:
            yield sql


@given(
    st.lists(texts, min_size=1, max_size=20), st.sets(st.integers(1, 20)), st.sampled_from(QUERIES)
)
def test_only_allowed_ids_are_found(contents: list[str], some: set[int], text: str) -> None:
    allowed = Allowed(
        f"SELECT id FROM document_chunks WHERE id IN ({', '.join(map(str, some)) or 'NULL'})"
    )
    with opened(*contents) as sql:
        query = parse_query(text)
        found = from_memory().match(sql, query, allowed, 5)
        assert_alike(found, from_file().match(sql, query, allowed, 5), list(range(1, 31)))
        assert {id for id, _ in found.best} <= some


def test_uncommitted_rows_are_not_kept(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        fill(db, "apple", "banana")
        matching = from_memory()
        with pytest.raises(ZeroDivisionError), db._file.writing() as sql:
            db.documents.ingest_text("cherry", source="undone", embed=False)
            assert [
                id for id, _ in matching.match(sql, parse_query("cherry"), Allowed(), 5).best
            ] == [3]
            raise ZeroDivisionError
        db.documents.ingest_text("date", source="done", embed=False)
        with db._file.reading() as sql:
            assert matching.match(sql, parse_query("cherry"), Allowed(), 5).best == []
            assert [
                id for id, _ in matching.match(sql, parse_query("date"), Allowed(), 5).best
            ] == [3]


@pytest.mark.parametrize("deleted", [1, 2, 3])
def test_transactions_that_began_earlier_do_not_see_later_rows(path: Path, deleted: int) -> None:
    with Database(path, embedder=Letters()) as early, Database(path, embedder=Letters()) as late:
        fill(early, "apple fig", "apple", "apple apple date")
        matching, query = from_memory(), parse_query("apple fig date")
        with early._file.reading() as old:
            before = matching.match(old, query, Allowed(), 5).best
            late.documents.delete(
                early.documents.browse(where={"source": f"{deleted - 1}.txt"})[0].id
            )
            for number in range(2):
                late.documents.ingest_text("apple fig fig", source=f"new {number}", embed=False)
                with late._file.reading() as new:
                    ids = [id for (id,) in new.execute("SELECT id FROM document_chunks")]
                    assert_alike(
                        matching.match(new, query, Allowed(), 5),
                        from_file().match(new, query, Allowed(), 5),
                        ids,
                    )
                again = matching.match(old, query, Allowed(), 5).best
                assert {id for id, _ in again} <= {id for id, _ in before}
        with late._file.reading() as new:
            assert_alike(
                matching.match(new, query, Allowed(), 5),
                from_file().match(new, query, Allowed(), 5),
                [1, 2, 3, 4, 5],
            )


def test_the_first_query_of_a_process_goes_to_the_file_and_later_ones_to_memory() -> None:
    with opened("apple", "banana") as sql:
        memory = ResidentEntries(10_000)
        matching = KeywordIndex("document_words", "document_chunks", memory)
        for kept in ([], ["", "appl"]):
            matching.match(sql, parse_query("apple"), Allowed(), 5)
            assert memory.keys("document_words") == kept


def test_a_first_query_that_concerns_many_rows_is_answered_from_memory() -> None:
    with opened("apple", "apple", "banana") as sql:
        for rows, kept in ((2, False), (1, True)):
            memory = ResidentEntries(10_000)
            matching = KeywordIndex(
                "document_words", "document_chunks", memory, Tuning(file_rows=rows)
            )
            matching.match(sql, parse_query("apple"), Allowed(), 5)
            assert bool(memory.size) == kept


def test_a_quoted_phrase_is_looked_up_in_the_file() -> None:
    with opened("apple pie", "pie apple") as sql:
        memory = ResidentEntries(10_000)
        matching = KeywordIndex("document_words", "document_chunks", memory, IN_MEMORY)
        found = matching.match(sql, parse_query('"apple pie"'), Allowed(), 5)
        assert [id for id, _ in found.best] == [1] and not memory.size


def test_the_least_recently_used_terms_are_dropped_beyond_the_budget() -> None:
    with opened(*["apple banana cherry"] * 40) as sql:
        memory = ResidentEntries(40 * 21 + 2 * 40 * 2)  # the rows and two terms
        matching = KeywordIndex("document_words", "document_chunks", memory, IN_MEMORY)
        for text in ("apple", "banana", "apple", "cherry", "apple cherry", "banana"):
            query = parse_query(text)
            assert_alike(
                matching.match(sql, query, Allowed(), 5),
                from_file().match(sql, query, Allowed(), 5),
                [1, 2],
            )
            assert memory.size <= 40 * 21 + 160
        assert "banana" in memory.keys("document_words")


def test_postings_are_read_again_after_a_rebuild(path: Path) -> None:
    with Database(path, embedder=Letters()) as db, Database(path, embedder=Letters()) as other:
        fill(db, "apple", "banana")
        with other._file.writing() as sql:
            sql.execute("DELETE FROM document_words WHERE rowid = 1")
            sql.execute("INSERT INTO document_words (rowid, text) VALUES (1, 'cherry')")
            changes.record_everything(sql, "document_words")

        def found(query: str) -> list[str]:
            return [hit.item.document.source for hit in db.documents.search(query, mode="text")]

        assert [found("apple"), found("apple"), found("cherry")] == [[], [], ["0.txt"]]
        other.rebuild()
        assert [found("apple"), found("cherry")] == [["0.txt"], []]


def test_a_long_title_counts_twice() -> None:
    with Database(":memory:", embedder=Letters()) as db:
        db.documents.ingest_text("some fruit", source="a", title="apple", embed=False)
        db.documents.ingest_text("some apple", source="b", title="fruit", embed=False)
        with db._file.reading() as sql:
            query = parse_query("apple")
            assert_alike(
                from_memory().match(sql, query, Allowed(), 5),
                from_file().match(sql, query, Allowed(), 5),
                [1, 2],
            )


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
    with Database(path, embedder=Letters()) as db, Database(path, embedder=Letters()) as writer:
        fill(db, *WORDS)
        done = threading.Event()

        def search() -> int:
            asked = 0
            while not done.is_set() or not asked:
                for query in QUERIES:
                    db.documents.search(query, mode="text")
                    asked += 1
            return asked

        with ThreadPoolExecutor(3) as threads:
            asking = [threads.submit(search) for _ in range(3)]
            for number in range(60):
                writer.documents.ingest_text(
                    " ".join(WORDS[number % 7 :]), source=f"{number % 9}.txt", embed=False
                )
                if number % 4 == 3:
                    writer.documents.delete(writer.documents.browse(limit=1)[0].id)
            done.set()
            assert all(each.result() for each in asking)
        with Database(path, embedder=Letters(), config=Config(resident_bytes=0)) as fresh:
            for query in QUERIES:
                found, expected = (
                    each.documents.search(query, mode="text", limit=50) for each in (db, fresh)
                )
                assert [(hit.item.text, hit.score) for hit in found] == [
                    (hit.item.text, hit.score) for hit in expected
                ]
