"""What is in memory follows all writers: answers are those of an exact scan of the file."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from mcpvectordb import Config, Database
from mcpvectordb.index import resident
from mcpvectordb.index.arrays import Codes
from mcpvectordb.index.resident import (
    LOGGED,
    NOWHERE,
    Columns,
    ColumnSource,
    ResidentEntries,
    log_changes,
)
from mcpvectordb.index.tuning import DEFAULT, Tuning
from mcpvectordb.records import Condition
from tests.core.test_filters import COLUMNS, INSERT, Shelf, questions, written
from tests.support import Letters, kept_keys, scaled

DIMENSION = 8
KINDS = st.sampled_from([0, 1, 2, 0.5, "0", "a", True, None, ...])  # ... for no metadata
SOURCES = st.sampled_from(["a", "b", "bc"])
LIBRARIES = st.sampled_from(["default", "other"])
TEXTS = st.sampled_from(
    ["apple pie", "zebra quiz", "hum and ham", "# Pie\n\nzoo", "plum", "E-4021 naïve 東京 pie pie"]
)
QUERIES = TEXTS | st.sampled_from(
    ["pie -apple", "zoo E-4021", "東京 plum -naive", '"apple pie" zoo', "a pie b", "nothing"]
)


def vectors(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, DIMENSION)).astype(np.float32)


SMALL = Tuning(exact_rows=20)  # of more rows, codes choose candidates
TABLE = f"vector_meaning_{100_000 + DIMENSION}"


def found(db: Database, query: np.ndarray, limit: int = 5) -> list[str]:
    return [hit.item.id for hit in db.vectors.search(query, limit=limit)]


def expected(model: dict[str, np.ndarray], query: np.ndarray, limit: int = 5) -> list[str]:
    cosines = {
        id: float(np.dot(row.astype(float), query) / np.linalg.norm(row.astype(float)))
        for id, row in model.items()
    }
    return sorted(cosines, key=lambda id: -cosines[id])[:limit]


@contextlib.contextmanager
def filled(
    path: Path, count: int, metadata: Sequence[dict[str, Any]] | None = None, **config: Any
) -> Iterator[tuple[Database, dict[str, np.ndarray]]]:
    """A file of so many vectors that was asked twice: their codes are in memory, if they may be."""
    rows = vectors(count, count)
    model = {str(number): row for number, row in enumerate(rows)}
    with Database(path, config=Config(**config), tuning=SMALL) as db:
        db.vectors.add_many(list(model), rows, metadata=metadata)
        for _ in range(2):
            assert found(db, rows[0]) == expected(model, rows[0])
        yield db, model


@pytest.mark.parametrize("budget", [500, 10**6])
def test_codes_are_kept_as_far_as_the_memory_budget_allows(path: Path, budget: int) -> None:
    with filled(path, 100, resident_bytes=budget) as (db, _):
        assert bool(kept_keys(db._engine.resident, TABLE)) == (budget > 500)


def test_a_process_that_missed_more_changes_than_are_logged_reads_everything_again(
    path: Path,
) -> None:
    with filled(path, 60) as (db, model):
        model["late"] = vectors(1, 300)[0]
        db.vectors.add("late", model["late"])
        with db._file.writing() as sql:
            for _ in range(LOGGED // 1_000 + 1):
                log_changes(sql, "another index", range(1, 1_001))
        assert found(db, model["late"]) == expected(model, model["late"])


def filtered(db: Database, query: np.ndarray, key: str, value: object) -> list[str]:
    return [
        hit.item.id for hit in db.vectors.search(query, where={f"metadata.{key}": value}, limit=5)
    ]


def test_a_key_is_read_once_and_then_filters_on_any_value_of_it_are_answered_from_memory(
    path: Path,
) -> None:
    with filled(path, 200, [{"kind": number % 10} for number in range(200)]) as (db, model):
        asked: list[str] = []
        with db._file.reading() as sql:
            sql.trace_v2(apsw.SQLITE_TRACE_STMT, lambda event: asked.append(event["sql"]))
        for kind, once in ((3, True), (3, False), (4, False), (5, False)):
            asked.clear()
            query = vectors(1, 30 + kind)[0]
            of_kind = {id: row for id, row in model.items() if int(id) % 10 == kind}
            assert filtered(db, query, "kind", kind) == expected(of_kind, query)
            assert any("FROM vectors v WHERE" in statement for statement in asked) == once


def test_an_older_snapshot_is_not_filtered_by_newer_metadata(path: Path) -> None:
    with filled(path, 60, [{"new": False}] * 60) as (db, model):
        rows, query = list(model.values()), model["0"]
        assert len(filtered(db, query, "new", False)) == 5
        with db._file.reading() as sql:
            # The first read fixes the snapshot of this thread.
            sql.execute("SELECT count(*) FROM vectors").fetchall()

            def change() -> None:
                db.vectors.add_many(list(model), rows, metadata=[{"new": True}] * 60)
                assert len(filtered(db, query, "new", True)) == 5

            other = threading.Thread(target=change)
            other.start()
            other.join()
            assert filtered(db, query, "new", True) == []
            assert len(filtered(db, query, "new", False)) == 5


def test_uncommitted_changes_are_not_kept(path: Path) -> None:
    with filled(path, 60) as (db, model):
        with contextlib.suppress(ZeroDivisionError), db._file.writing():
            db.vectors.add("0", -model["0"])
            assert found(db, -model["0"])[0] == "0"
            raise ZeroDivisionError
        db.vectors.add("1", model["1"])  # gets the number that the change had in the log
        assert found(db, model["0"]) == expected(model, model["0"])


def test_repeatedly_rewritten_rows_do_not_fill_the_memory(path: Path) -> None:
    with filled(path, 60) as (db, model):
        query = model["0"]
        for step in range(50):
            model |= zip(model, vectors(60, 700 + step), strict=True)
            db.vectors.add_many(list(model), list(model.values()))
            assert found(db, query) == expected(model, query)
            assert 0 < db._engine.resident.size < 30 * Codes.bytes_for(60, DIMENSION)


class Thing:
    def __init__(self, size: int) -> None:
        self.size = size


def test_the_least_recently_used_entries_are_dropped_when_a_new_one_needs_their_room() -> None:
    memory, first = ResidentEntries(100), Thing(40)
    memory.put("index", "a", first)
    memory.put("other", "b", Thing(40))
    assert memory.get("index", "a") is first and memory.get("index", "b") is None
    memory.put("index", "c", Thing(40))
    assert kept_keys(memory, "index") == ["a", "c"] and memory.size == 80
    first.size = 101  # an entry that outgrows the budget is dropped itself
    memory.put("index", "a", first)
    assert kept_keys(memory, "index") == ["c"] and memory.size == 40
    memory.put("other", "d", Thing(100))
    assert kept_keys(memory, "other") == ["d"] and memory.size == 100
    memory.drop("other")
    assert memory.get("other", "d") is None and memory.size == 0


def test_loading_pays_from_the_second_query_on_or_for_many_rows() -> None:
    memory = ResidentEntries(100)
    assert [memory.worth_loading("a", 10, 10) for _ in range(3)] == [False, True, True]
    assert memory.worth_loading("b", 11, 10)
    assert memory.has_room(100) and not memory.has_room(101)


class SameAnswerMachine(RuleBasedStateMachine):
    """The same query gets the same result in every process, at any time, and with any budget.

    A process that has followed all changes, one that keeps nothing in memory and one that has just
    been started, each with other thresholds, agree on ids, scores, legs and reasons.
    """

    @initialize()
    def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "x.db"
        self.reader, self.writer = (Database(self.path, embedder=Letters()) for _ in range(2))
        self.forgetful = Database(
            self.path,
            embedder=Letters(),
            config=Config(resident_bytes=0),
            tuning=Tuning(exact_rows=2),
        )

    @rule(source=SOURCES, text=TEXTS, library=LIBRARIES, kind=KINDS, own=st.booleans())
    def ingest(self, source: str, text: str, library: str, kind: object, own: bool) -> None:
        given = {} if kind is ... else {"kind": kind}
        (self.reader if own else self.writer).documents.ingest_text(
            text, source=source, title=source.upper(), library=library, metadata=given
        )

    @rule(library=LIBRARIES, own=st.booleans(), data=st.data())
    def delete(self, library: str, own: bool, data: st.DataObject) -> None:
        if known := self.reader.documents.browse(library=library):
            (self.reader if own else self.writer).documents.delete(
                data.draw(st.sampled_from(known)).id
            )

    @rule(change=st.sampled_from(["compact", "rebuild"]))
    def make_again(self, change: str) -> None:
        getattr(self.writer, change)()

    @rule(
        query=QUERIES,
        asked=st.fixed_dictionaries(
            {
                "mode": st.sampled_from(["hybrid", "text", "vector"]),
                "library": st.none() | LIBRARIES,
                "where": st.sampled_from(
                    [
                        {},
                        {"metadata.kind": 1},
                        {"metadata.kind": {"not_exists": True}},
                        {"title": "A"},
                        {"page": {"is_null": True}},
                        {"source": {"starts_with": "b"}},  # this field is not kept in memory
                        {"metadata.kind": {"in": ["a", 0]}, "file_type": {"ne": "pdf"}},
                    ]
                ),
            }
        ),
        tuning=st.builds(
            Tuning,
            file_rows=st.sampled_from([-1, 2, 10**6]),
            exact_rows=st.sampled_from([0, 3, 5_000]),
        ),
    )
    def search(self, query: str, asked: dict[str, Any], tuning: Tuning) -> None:
        with Database(self.path, embedder=Letters(), tuning=tuning) as fresh:
            first, *others = (
                self.answer(db, query, asked) for db in (self.reader, self.forgetful, fresh, fresh)
            )
        assert all(each == first for each in others)

    def answer(self, db: Database, query: str, asked: dict[str, Any]) -> object:
        results = db.documents.search(query, limit=4, **asked)
        hits = [(hit.item, hit.score, hit.scores, hit.relevance) for hit in results]
        return hits, results.legs, results.reasons, results.verdict

    def teardown(self) -> None:
        if hasattr(self, "reader"):
            for each in (self.reader, self.writer, self.forgetful):
                each.close()
            self.folder.cleanup()


TestSameAnswer = SameAnswerMachine.TestCase
TestSameAnswer.settings = settings(max_examples=scaled(15), stateful_step_count=25)


SOURCE = ColumnSource(
    rows="items",
    of_group="items.key % {group} = 0",
    id="items.key",
    fields=COLUMNS,
    metadata="items.metadata",
)


@pytest.fixture(scope="module")
def shelf() -> Iterator[Shelf]:
    shelf = Shelf()
    yield shelf
    shelf.connection.close()


def numbered(shelf: Shelf, rows: list[tuple[Any, Any, Any]]) -> np.ndarray:
    """Add rows; their ids."""
    shelf.connection.executemany(
        INSERT, [(title, size, written(metadata)) for title, size, metadata in rows]
    )
    last = shelf.connection.last_insert_rowid()
    return np.arange(last - len(rows) + 1, last + 1)


def columns_of(
    shelf: Shelf, values: list[Any], tuning: Tuning = DEFAULT
) -> tuple[Columns, np.ndarray]:
    shelf.connection.execute("DELETE FROM items")
    return Columns(SOURCE, 1, tuning), numbered(shelf, [("", 0, {"k": value}) for value in values])


@settings(max_examples=scaled(300))
@given(questions())
def test_every_condition_selects_the_same_rows_as_in_the_file(
    shelf: Shelf, question: tuple[list[tuple[Any, Any, Any]], list[Condition]]
) -> None:
    rows, conditions = question
    shelf.fill(rows)
    chosen = Columns(SOURCE, 1).fulfilling(
        shelf.connection, conditions, np.arange(1, len(rows) + 1)
    )
    assert chosen is not None and np.flatnonzero(chosen).tolist() == shelf.select(conditions)


@settings(max_examples=scaled(50))
@given(questions(), questions())
def test_rows_that_are_added_later_are_selected_in_the_same_way(
    shelf: Shelf,
    first: tuple[list[tuple[Any, Any, Any]], list[Condition]],
    second: tuple[list[tuple[Any, Any, Any]], list[Condition]],
) -> None:
    shelf.connection.execute("DELETE FROM items")
    ids = numbered(shelf, first[0])
    asked = Columns(SOURCE, 1)
    asked.fulfilling(shelf.connection, first[1], ids)
    new = numbered(shelf, second[0])
    asked.append(shelf.connection, new)
    both = np.concatenate([ids, new])
    for conditions in (first[1], second[1]):
        chosen = asked.fulfilling(shelf.connection, conditions, both)
        assert chosen is not None and (both[chosen] - 1).tolist() == shelf.select(conditions)


def test_a_new_column_reads_only_the_rows_of_its_group(shelf: Shelf) -> None:
    shelf.fill([("", 0, {"k": number}) for number in range(10)])
    columns = Columns(SOURCE, 3)
    chosen = columns.fulfilling(
        shelf.connection, [Condition("metadata.k", "gte", 0)], np.array([3, 6, 9])
    )
    assert (
        chosen is not None and chosen.all() and len(columns._columns["metadata", "k"]._known) == 3
    )  # type: ignore[union-attr]


@pytest.mark.parametrize("tuning", [Tuning(column_values=2), Tuning(column_characters=9)])
def test_a_column_with_too_many_values_is_left_to_the_file_for_good(
    shelf: Shelf, tuning: Tuning
) -> None:
    few, ids = columns_of(shelf, ["a", "b", "a"], tuning)
    wanted = [Condition("metadata.k", "eq", "a")]
    chosen = few.fulfilling(shelf.connection, wanted, ids)
    assert chosen is not None and chosen.tolist() == [True, False, True]
    new = numbered(shelf, [("", 0, {"k": "cdefgh"})])
    few.append(shelf.connection, new)
    assert few.fulfilling(shelf.connection, wanted, np.concatenate([ids, new])) is None
    assert few.size == 0


def test_fields_outside_of_the_source_are_left_to_the_file(shelf: Shelf) -> None:
    shelf.fill([("t", 1, {"k": 1})])
    without = ColumnSource(rows="items", of_group="1", id="items.key")
    for source, field in itertools.product((NOWHERE, without), ("title", "metadata.k")):
        condition = Condition(field, "exists")
        found = Columns(source, 1).fulfilling(shelf.connection, [condition], np.array([1]))
        assert found is None


def test_the_number_of_columns_is_bounded(shelf: Shelf) -> None:
    many, ids = columns_of(shelf, [1, 2])
    for number in range(resident.MOST_COLUMNS + 5):
        many.fulfilling(shelf.connection, [Condition(("metadata", str(number)), "not_exists")], ids)
    assert len(many._columns) == resident.MOST_COLUMNS
