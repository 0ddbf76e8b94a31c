"""Codes in memory follow all writers: searches return the same as an exact scan of the file."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from pathlib import Path
from typing import Any, ClassVar

import apsw
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from mcpvectordb import Config, Database
from mcpvectordb.index import changes
from mcpvectordb.index.codes import Codes
from mcpvectordb.index.resident import ResidentEntries
from mcpvectordb.index.tuning import Tuning
from tests.support import Letters, scaled
from tests.support_elsewhere import Elsewhere

DIMENSION = 8
KINDS = st.sampled_from([0, 1, 2, 0.5, "0", "a", True, None, ...])  # ... for no metadata
SOURCES = st.sampled_from(["a", "b", "bc"])
LIBRARIES = st.sampled_from(["default", "other"])
TEXTS = st.sampled_from(["apple pie", "zebra quiz", "hum and ham", "# Pie\n\nzoo", "plum"])


def vectors(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, DIMENSION)).astype(np.float32)


SMALL = Tuning(exact_rows=20)  # of more rows, codes choose candidates
TABLE = f"vector_meaning_{100_000 + DIMENSION}"


def opened(path: Path, **config: Any) -> Database:
    return Database(path, config=Config(**config), tuning=SMALL)


def found(db: Database, query: np.ndarray, limit: int = 5) -> list[str]:
    return [hit.item.id for hit in db.vectors.search(query, limit=limit)]


def expected(model: dict[str, np.ndarray], query: np.ndarray, limit: int = 5) -> list[str]:
    cosines = {
        id: float(np.dot(row.astype(float), query) / np.linalg.norm(row.astype(float)))
        for id, row in model.items()
    }
    return sorted(cosines, key=lambda id: -cosines[id])[:limit]


def kept(db: Database) -> bool:
    return bool(db._engine.resident.keys(TABLE))


def test_queries_over_many_rows_are_answered_from_memory(path: Path) -> None:
    rows = vectors(100, 1)
    model = {str(number): row for number, row in enumerate(rows)}
    with opened(path) as db:
        db.vectors.add_many(list(model), rows)
        for seed in (2, 3, 4):
            query = vectors(1, seed)[0]
            assert found(db, query) == expected(model, query)
            assert kept(db)


def test_nothing_is_kept_without_a_memory_budget(path: Path) -> None:
    rows = vectors(100, 1)
    with opened(path, resident_bytes=500) as db:
        db.vectors.add_many([str(number) for number in range(100)], rows)
        for _ in range(3):
            found(db, rows[0])
        assert not kept(db)


def test_a_process_that_missed_more_changes_than_are_logged_reads_everything_again(
    path: Path,
) -> None:
    rows = vectors(60, 6)
    model = {str(number): row for number, row in enumerate(rows)}
    with opened(path) as db:
        db.vectors.add_many(list(model), rows)
        found(db, rows[0])
        late = vectors(1, 300)[0]
        db.vectors.add("late", late)
        model["late"] = late
        with db._file.writing() as sql:
            for _ in range(changes.LOGGED // 1_000 + 1):
                changes.record(sql, "another index", range(1, 1_001))
        query = vectors(1, 7)[0]
        assert found(db, query) == expected(model, query)


@pytest.mark.parametrize("change", ["compact", "rebuild"])
def test_a_rebuilt_table_is_read_again(path: Path, change: str) -> None:
    rows = vectors(60, 8)
    model = {str(number): row for number, row in enumerate(rows)}
    with opened(path) as db:
        db.vectors.add_many(list(model), rows)
        for _ in range(2):
            found(db, rows[0])
        getattr(db, change)()
        query = vectors(1, 9)[0]
        assert found(db, query) == expected(model, query)


def test_threads_search_while_another_writes(path: Path) -> None:
    rows = vectors(300, 11)
    failures: list[BaseException] = []
    with opened(path) as db:
        db.vectors.add_many([str(number) for number in range(300)], rows)

        def search() -> None:
            try:
                for seed in range(40):
                    assert len(found(db, vectors(1, seed)[0])) == 5
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=search) for _ in range(3)]
        for thread in threads:
            thread.start()
        for step in range(40):
            db.vectors.add(f"n{step}", vectors(1, 500 + step)[0])
            db.vectors.delete(str(step))
        for thread in threads:
            thread.join()
    assert not failures


def filtered(db: Database, query: np.ndarray, limit: int = 5, **where: object) -> list[str]:
    return [
        hit.item.id
        for hit in db.vectors.search(
            query, where={f"metadata.{key}": value for key, value in where.items()}, limit=limit
        )
    ]


def test_a_key_is_read_once_and_then_filters_on_any_value_of_it_are_answered_from_memory(
    path: Path,
) -> None:
    rows = vectors(200, 12)
    with opened(path) as db:
        db.vectors.add_many(
            [str(number) for number in range(200)],
            rows,
            metadata=[{"kind": n % 10} for n in range(200)],
        )
        for _ in range(2):
            found(db, rows[0])
        asked: list[str] = []
        with db._file.reading() as sql:
            sql.trace_v2(apsw.SQLITE_TRACE_STMT, lambda event: asked.append(event["sql"]))
        for kind, once in ((3, True), (3, False), (4, False), (5, False)):
            asked.clear()
            query = vectors(1, 30 + kind)[0]
            of_kind = {str(number): rows[number] for number in range(kind, 200, 10)}
            assert filtered(db, query, kind=kind) == expected(of_kind, query)
            assert any("FROM vectors v WHERE" in statement for statement in asked) == once


def test_a_condition_on_a_field_that_is_not_kept_is_evaluated_in_the_file(path: Path) -> None:
    rows = vectors(100, 14)
    with opened(path) as db:
        db.vectors.add_many(
            [str(number) for number in range(100)],
            rows,
            metadata=[{"odd": n % 2 == 1} for n in range(100)],
        )
        for seed in range(4):
            query = vectors(1, 40 + seed)[0]
            hits = db.vectors.search(
                query, where={"id": {"starts_with": "7"}, "metadata.odd": True}, limit=5
            )
            sevens = {id: rows[int(id)] for id in ("7", "71", "73", "75", "77", "79")}
            assert [hit.item.id for hit in hits] == expected(sevens, query)


def test_an_older_snapshot_is_not_filtered_by_newer_metadata(path: Path) -> None:
    rows = vectors(60, 15)
    ids = [str(number) for number in range(60)]
    with opened(path) as db:
        db.vectors.add_many(ids, rows, metadata=[{"new": False}] * 60)
        for _ in range(3):
            filtered(db, rows[0], new=False)
        with db._file.reading() as sql:
            # The first read fixes the snapshot of this thread.
            sql.execute("SELECT count(*) FROM vectors").fetchall()

            def change() -> None:
                db.vectors.add_many(ids, rows, metadata=[{"new": True}] * 60)
                assert len(filtered(db, rows[0], new=True)) == 5

            other = threading.Thread(target=change)
            other.start()
            other.join()
            assert filtered(db, rows[0], new=True) == []
            assert len(filtered(db, rows[0], new=False)) == 5


def test_uncommitted_changes_are_not_kept(path: Path) -> None:
    rows = vectors(60, 16)
    model = {str(number): row for number, row in enumerate(rows)}
    with opened(path) as db:
        db.vectors.add_many(list(model), rows)
        for _ in range(2):
            found(db, rows[0])
        with contextlib.suppress(ZeroDivisionError), db._file.writing():
            db.vectors.add("0", -rows[0])
            assert found(db, -rows[0])[0] == "0"
            raise ZeroDivisionError
        db.vectors.add("1", rows[1])  # gets the number that the rolled back change had in the log
        assert found(db, rows[0]) == expected(model, rows[0])


def test_repeatedly_rewritten_rows_do_not_fill_the_memory(path: Path) -> None:
    rows = vectors(60, 17)
    model = {str(number): row for number, row in enumerate(rows)}
    with opened(path) as db:
        db.vectors.add_many(list(model), rows)
        for step in range(50):
            again = vectors(60, 700 + step)
            db.vectors.add_many(list(model), again)
            model = dict(zip(model, again, strict=True))
            assert found(db, rows[0]) == expected(model, rows[0])
            assert 0 < db._engine.resident.size < 30 * Codes.bytes_for(60, DIMENSION)


class Thing:
    def __init__(self, size: int) -> None:
        self.size = size


def test_old_entries_are_dropped_when_a_new_one_needs_their_room() -> None:
    memory = ResidentEntries(100)
    for key, size in (("a", 60), ("b", 30), ("c", 50)):
        memory.put("index", key, Thing(size))
    assert memory.keys("index") == ["b", "c"] and memory.size == 80
    memory.drop("index")
    assert memory.get("index", "b") is None and memory.size == 0


def test_the_least_recently_used_entry_is_dropped_first() -> None:
    memory = ResidentEntries(100)
    memory.put("index", "a", Thing(40))
    memory.put("other", "b", Thing(40))
    memory.get("index", "a")
    memory.put("index", "c", Thing(40))
    assert memory.keys("index") == ["a", "c"] and memory.keys("other") == []


def test_an_entry_that_outgrows_the_budget_is_dropped() -> None:
    memory, thing = ResidentEntries(100), Thing(40)
    memory.put("index", "a", thing)
    thing.size = 101
    memory.put("index", "a", thing)
    assert memory.keys("index") == [] and memory.size == 0


def test_loading_pays_from_the_second_query_on_or_for_many_rows() -> None:
    memory = ResidentEntries(100)
    assert [memory.worth_loading("a", 10, 10) for _ in range(3)] == [False, True, True]
    assert memory.worth_loading("b", 11, 10)


class FollowingMachine(RuleBasedStateMachine):
    """Two processes write, one of them searches: each result is that of an exact scan."""

    writer: ClassVar[Elsewhere | None] = None

    @initialize()
    def start(self) -> None:
        FollowingMachine.writer = FollowingMachine.writer or Elsewhere()
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name) / "x.db"
        tuning = Tuning(exact_rows=5, column_values=4)
        self.reader = Database(path, tuning=tuning)
        self.writer.open(path, tuning)
        rows = vectors(12, 1)
        self.model: dict[str, tuple[np.ndarray, object]] = {
            str(number): (row, number % 3) for number, row in enumerate(rows)
        }
        self.writer.ask(
            "vectors.add_many",
            list(self.model),
            rows,
            metadata=[{"kind": kind} for _, kind in self.model.values()],
        )

    def put(self, own: bool, id: int, row: np.ndarray, kind: object) -> None:
        metadata = {} if kind is ... else {"kind": kind}
        if own:
            self.reader.vectors.add(str(id), row, metadata=metadata)
        else:
            self.writer.ask("vectors.add", str(id), row, metadata=metadata)
        self.model[str(id)] = row, kind

    @rule(id=st.integers(0, 30), seed=st.integers(0, 1000), kind=KINDS, own=st.booleans())
    def add(self, id: int, seed: int, kind: object, own: bool) -> None:
        self.put(own, id, vectors(1, seed)[0], kind)

    @rule(id=st.integers(0, 30), kind=KINDS, own=st.booleans())
    def change_only_metadata(self, id: int, kind: object, own: bool) -> None:
        if str(id) in self.model:
            self.put(own, id, self.model[str(id)][0], kind)

    @rule(id=st.integers(0, 30), own=st.booleans())
    def delete(self, id: int, own: bool) -> None:
        deleted = (
            self.reader.vectors.delete(str(id))
            if own
            else self.writer.ask("vectors.delete", str(id))
        )
        assert deleted == (self.model.pop(str(id), None) is not None)

    @rule()
    def compact(self) -> None:
        self.writer.ask("compact")

    @rule(seed=st.integers(2000, 3000))
    def search(self, seed: int) -> None:
        query = vectors(1, seed)[0]
        assert found(self.reader, query, 3) == expected(
            {id: row for id, (row, _) in self.model.items()}, query, 3
        )

    @rule(seed=st.integers(2000, 3000), kind=KINDS.filter(lambda kind: kind is not ...))
    def search_by_kind(self, seed: int, kind: object) -> None:
        query = vectors(1, seed)[0]
        of_kind = {
            id: row
            for id, (row, its) in self.model.items()
            if its == kind and type(its) is type(kind)
        }
        assert filtered(self.reader, query, 3, kind=kind) == expected(of_kind, query, 3)

    @rule(seed=st.integers(2000, 3000))
    def search_without_kind(self, seed: int) -> None:
        query = vectors(1, seed)[0]
        without = {id: row for id, (row, kind) in self.model.items() if kind in (..., None)}
        hits = self.reader.vectors.search(
            query, where={"metadata.kind": {"not_exists": True}}, limit=3
        )
        assert [hit.item.id for hit in hits] == expected(without, query, 3)

    def teardown(self) -> None:
        if hasattr(self, "reader"):
            self.reader.close()
            self.writer.close()
            self.folder.cleanup()


TestFollowing = FollowingMachine.TestCase
TestFollowing.settings = settings(max_examples=scaled(40), stateful_step_count=25)


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

    @rule()
    def rebuild(self) -> None:
        self.writer.rebuild()

    @rule(
        query=TEXTS,
        mode=st.sampled_from(["hybrid", "text", "vector"]),
        library=st.none() | LIBRARIES,
        where=st.sampled_from(
            [
                {},
                {"metadata.kind": 1},
                {"metadata.kind": {"not_exists": True}},
                {"title": "A"},
                {"page": {"is_null": True}},
                {"source": {"starts_with": "b"}},
                {"metadata.kind": {"in": ["a", 0]}, "file_type": {"ne": "pdf"}},
            ]
        ),
        tuning=st.builds(
            Tuning,
            file_rows=st.sampled_from([-1, 2, 10**6]),
            exact_rows=st.sampled_from([0, 3, 5_000]),
        ),
    )
    def search(
        self,
        query: str,
        mode: str,
        library: str | None,
        where: dict[str, object],
        tuning: Tuning,
    ) -> None:
        with Database(self.path, embedder=Letters(), tuning=tuning) as fresh:
            first, *others = (
                self.answer(db, query, mode, library, where)
                for db in (self.reader, self.forgetful, fresh, fresh)
            )
        assert all(each == first for each in others)

    def answer(
        self, db: Database, query: str, mode: str, library: str | None, where: dict[str, object]
    ) -> object:
        results = db.documents.search(query, mode=mode, library=library, where=where, limit=4)
        hits = [(hit.item, hit.score, hit.scores, hit.relevance) for hit in results]
        return hits, results.legs, results.reasons, results.verdict

    def teardown(self) -> None:
        if hasattr(self, "reader"):
            for each in (self.reader, self.writer, self.forgetful):
                each.close()
            self.folder.cleanup()


TestSameAnswer = SameAnswerMachine.TestCase
TestSameAnswer.settings = settings(max_examples=scaled(15), stateful_step_count=25)
