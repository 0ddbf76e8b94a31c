"""Codes in memory follow the file: whoever writes, in whatever process, searches answer as the exact scan does."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from mcpvectordb import Config, Database, meaning, resident
from mcpvectordb.resident import Kept, Resident, Residents

DIMENSION = 8


def vectors(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, DIMENSION)).astype(np.float32)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "EXACT_ROWS", 20)


def found(db: Database, query: np.ndarray, limit: int = 5) -> list[str]:
    return [hit.item.id for hit in db.vectors.search(query, limit=limit)]


def expected(model: dict[str, np.ndarray], query: np.ndarray, limit: int = 5) -> list[str]:
    cosines = {id: float(np.dot(row.astype(float), query) / np.linalg.norm(row.astype(float))) for id, row in model.items()}
    return sorted(cosines, key=lambda id: -cosines[id])[:limit]


def kept(db: Database) -> dict[str, Kept]:
    return db.vectors._index._meaning._residents._kept


def test_the_second_question_and_later_ones_are_answered_from_memory(path: Path) -> None:
    rows = vectors(100, 1)
    model = {str(number): row for number, row in enumerate(rows)}
    with Database(path) as db:
        db.vectors.add_many(list(model), rows)
        for seed, memory in ((2, 0), (3, 1), (4, 1)):
            query = vectors(1, seed)[0]
            assert found(db, query) == expected(model, query)
            assert len(kept(db)) == memory


def test_nothing_is_kept_where_memory_is_not_granted(path: Path) -> None:
    rows = vectors(100, 1)
    with Database(path, config=Config(resident_bytes=500)) as db:
        db.vectors.add_many([str(number) for number in range(100)], rows)
        for _ in range(3):
            found(db, rows[0])
        assert not kept(db)


def test_another_connections_changes_are_followed(path: Path) -> None:
    rows = vectors(60, 5)
    model = {str(number): row for number, row in enumerate(rows)}
    with Database(path) as reader, Database(path) as writer:
        writer.vectors.add_many(list(model), rows)
        for step in range(12):
            query = vectors(1, 100 + step)[0]
            assert found(reader, query) == expected(model, query)
            fresh = vectors(1, 200 + step)[0]
            writer.vectors.add(f"new{step}", fresh)
            writer.vectors.add("0", -fresh)
            writer.vectors.delete(str(step + 1))
            model[f"new{step}"], model["0"] = fresh, -fresh
            del model[str(step + 1)]
        assert kept(reader) and not kept(writer)


def test_a_process_that_was_away_for_long_reads_everything_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "LOGGED", 20)
    rows = vectors(60, 6)
    model = {str(number): row for number, row in enumerate(rows)}
    with Database(path) as db:
        db.vectors.add_many(list(model), rows)
        for _ in range(2):
            found(db, rows[0])
        for step in range(30):
            row = vectors(1, 300 + step)[0]
            db.vectors.add(f"late{step}", row)
            model[f"late{step}"] = row
        query = vectors(1, 7)[0]
        assert found(db, query) == expected(model, query)


@pytest.mark.parametrize("change", ["compact", "rebuild"])
def test_a_table_made_anew_is_read_anew(path: Path, change: str) -> None:
    rows = vectors(60, 8)
    model = {str(number): row for number, row in enumerate(rows)}
    with Database(path) as db:
        db.vectors.add_many(list(model), rows)
        for _ in range(2):
            found(db, rows[0])
        getattr(db, change)()
        query = vectors(1, 9)[0]
        assert found(db, query) == expected(model, query)


def test_filters_hold_in_memory_too(path: Path) -> None:
    rows = vectors(200, 10)
    with Database(path) as db:
        db.vectors.add_many([str(number) for number in range(200)], rows, metadata=[{"even": n % 2 == 0} for n in range(200)])
        for seed in range(4):
            query = vectors(1, 20 + seed)[0]
            even = {str(number): rows[number] for number in range(0, 200, 2)}
            hits = db.vectors.search(query, where={"metadata.even": True}, limit=5)
            assert [hit.item.id for hit in hits] == expected(even, query)


def test_threads_search_while_another_writes(path: Path) -> None:
    rows = vectors(300, 11)
    failures: list[BaseException] = []
    with Database(path) as db:
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


def test_what_no_longer_fits_beside_a_new_table_is_dropped() -> None:
    def some(count: int) -> Kept:
        return Kept(Resident(np.arange(count), np.ones((count, 8), np.int8)), 1)

    residents = Residents(Resident.bytes_for(100, 8))
    residents.keep("a", some(60))
    residents.keep("b", some(30))
    residents.keep("c", some(50))
    assert residents.get("a") is None and residents.get("b") and residents.get("c")
    residents.drop()
    assert residents.get("b") is None


class FollowingMachine(RuleBasedStateMachine):
    """Two connections write, one of them searches: the answers are those of an exact scan, whatever came between."""

    @initialize()
    def start(self) -> None:
        import tempfile

        self.folder = tempfile.TemporaryDirectory()
        self.exact, meaning.EXACT_ROWS = meaning.EXACT_ROWS, 5
        self.signs, resident.SIGN_ROWS = resident.SIGN_ROWS, 0
        path = Path(self.folder.name) / "x.db"
        self.reader, self.writer = Database(path), Database(path)
        rows = vectors(12, 1)
        self.model = {str(number): row for number, row in enumerate(rows)}
        self.writer.vectors.add_many(list(self.model), rows)

    @rule(id=st.integers(0, 30), seed=st.integers(0, 1000), own=st.booleans())
    def add(self, id: int, seed: int, own: bool) -> None:
        row = vectors(1, seed)[0]
        (self.reader if own else self.writer).vectors.add(str(id), row)
        self.model[str(id)] = row

    @rule(id=st.integers(0, 30), own=st.booleans())
    def delete(self, id: int, own: bool) -> None:
        assert (self.reader if own else self.writer).vectors.delete(str(id)) == (self.model.pop(str(id), None) is not None)

    @rule()
    def compact(self) -> None:
        self.writer.compact()

    @rule(seed=st.integers(2000, 3000))
    def search(self, seed: int) -> None:
        query = vectors(1, seed)[0]
        assert found(self.reader, query, 3) == expected(self.model, query, 3)

    def teardown(self) -> None:
        if hasattr(self, "reader"):
            self.reader.close()
            self.writer.close()
            self.folder.cleanup()
            meaning.EXACT_ROWS, resident.SIGN_ROWS = self.exact, self.signs


TestFollowing = FollowingMachine.TestCase
TestFollowing.settings = settings(max_examples=20, stateful_step_count=20)
