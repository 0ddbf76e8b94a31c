from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import numpy as np
import pytest

from mcpvectordb import Database
from mcpvectordb.index.arrays import CodedRows, encode
from mcpvectordb.index.resident import Allowed, ResidentEntries
from mcpvectordb.index.tuning import Tuning
from mcpvectordb.index.vector import EmbeddingTable, VectorIndex
from mcpvectordb.storage.file import File
from tests.core.index.test_arrays import clustered, cosines
from tests.support import Letters

DIMENSION = 16


@pytest.fixture
def sql() -> Iterator[apsw.Connection]:
    file = File(":memory:")
    with file.writing() as connection:
        connection.execute("CREATE TEMP TABLE things (id INTEGER, space INTEGER, embedding BLOB)")
        yield connection
    file.close()


def filled(sql: apsw.Connection, vectors: np.ndarray, exact_rows: int = 5_000) -> VectorIndex:
    tuning = Tuning(exact_rows=exact_rows)
    things = EmbeddingTable("thing", "things", "id", "space")
    space = VectorIndex(things, ResidentEntries(10**9, tuning))
    space.fill(sql, 1, vectors.shape[1])
    for id, vector in enumerate(vectors.astype(np.float32), 1):
        sql.execute("INSERT INTO things VALUES (?, 1, ?)", (id, vector.tobytes()))
        space.add_many(sql, 1, [id], vector.reshape(1, -1))
    return space


@pytest.mark.parametrize("exact_rows", [5_000, 10])
def test_the_nearest_are_those_of_an_exact_scan(sql: apsw.Connection, exact_rows: int) -> None:
    vectors = clustered(600, DIMENSION)
    space = filled(sql, vectors, exact_rows)
    for query in clustered(5, DIMENSION, seed=1):
        exact = cosines(vectors, query)
        found = space.nearest(sql, 1, query.tobytes(), Allowed(), 10)
        assert [id for id, _ in found] == [
            int(position) + 1 for position in np.argsort(-exact)[:10]
        ]
        assert all(abs(score - exact[id - 1]) < 1e-5 for id, score in found)


@pytest.mark.parametrize("exact_rows", [5_000, 10])
@pytest.mark.parametrize("filtered", [False, True])
def test_codes_are_the_same_from_memory_from_the_table_and_from_embeddings(
    sql: apsw.Connection, exact_rows: int, filtered: bool
) -> None:
    vectors = clustered(300, DIMENSION)
    space = filled(sql, vectors, exact_rows)
    allowed = Allowed("SELECT id FROM things WHERE id % 3 = ?", (0,)) if filtered else Allowed()
    view = space.code_view(sql, 1, DIMENSION, allowed)
    ids = np.arange(3, 301, 3)
    assert (view.rows(ids).codes == encode(vectors[ids - 1])).all()
    query = clustered(1, DIMENSION, seed=3)[0]
    among = ids if filtered else np.arange(1, 301)
    assert view.best(query, 10) == CodedRows.of(among, vectors[among - 1]).best(query, 10)


def test_a_group_without_a_table_has_no_codes(sql: apsw.Connection) -> None:
    space = filled(sql, clustered(3, DIMENSION))
    assert space.code_view(sql, 2, DIMENSION, Allowed()).best(clustered(1, DIMENSION)[0], 10) == []


def test_removed_codes_are_reported_until_a_rebuild_from_the_stored_embeddings(
    sql: apsw.Connection,
) -> None:
    vectors = clustered(50, DIMENSION)
    space = filled(sql, vectors)
    space.remove(sql, 1, [1, 2, 3, 999])
    assert len(list(space.problems(sql, 1, DIMENSION))) == 3
    space.rebuild(sql, 1, DIMENSION)
    assert list(space.problems(sql, 1, DIMENSION)) == []


def test_damaged_and_missing_embeddings_are_reported(sql: apsw.Connection) -> None:
    space = filled(sql, clustered(5, DIMENSION))
    sql.execute("UPDATE things SET embedding = zeroblob(8) WHERE id = 2")
    sql.execute("DELETE FROM things WHERE id = 4")
    reported = " ".join(space.problems(sql, 1, DIMENSION))
    assert (
        "embedding of 2 has 2 values instead of 16" in reported
        and "rows without an embedding" in reported
    )


def test_vacuum_does_not_change_the_codes(tmp_path: Path) -> None:
    """vec0's own tables have no INTEGER PRIMARY KEY, so a VACUUM may renumber their rows."""
    file = File(tmp_path / "v.db")
    vectors = clustered(2_000, DIMENSION)
    space = VectorIndex(EmbeddingTable("document", "document_embeddings", "chunk", "model"))
    with file.writing() as sql:
        sql.execute("PRAGMA defer_foreign_keys = ON")
        space.fill(sql, 1, DIMENSION)
        for id, vector in enumerate(vectors, 1):
            space.add_many(sql, 1, [id], vector.reshape(1, -1))
        space.remove(sql, 1, list(range(1, 1_500)))
    with file.outside() as sql:
        sql.execute("VACUUM")
    with file.reading() as sql:
        stored = dict(sql.execute("SELECT rowid, embedding FROM document_meaning_1"))
        codes = encode(vectors)
        assert stored == {id: codes[id - 1].tobytes() for id in range(1_500, 2_001)}
        rows = sql.execute(
            "SELECT rowid FROM document_meaning_1 WHERE embedding MATCH vec_int8(?) AND k = 1",
            (codes[1_700].tobytes(),),
        ).fetchall()
        assert rows == [(1_701,)]
    file.close()


def test_a_centre_is_stored_when_a_group_has_grown_and_every_reader_uses_it(
    sql: apsw.Connection,
) -> None:
    space = filled(sql, clustered(4_300, DIMENSION))
    known, middle = space._centre(sql, 1, DIMENSION)
    assert known == 16 and middle is not None and np.linalg.norm(middle) < 1
    space.drop(sql, 1)
    assert space._centre(sql, 1) == (0, None)


def test_a_damaged_centre_is_reported(sql: apsw.Connection) -> None:
    space = filled(sql, clustered(4_300, DIMENSION))
    for damage in ("16", '[16, "AAAA"]', '["x", "AAAA"]', '[16, "!!"]', "x"):
        sql.execute("UPDATE settings SET value = ?", (damage,))
        assert "not what was written" in " ".join(space.problems(sql, 1, DIMENSION))


@pytest.mark.parametrize("uncoded", [0, 5, 10, 10_000])
def test_a_shelf_gets_codes_in_the_file_when_it_is_large_and_answers_stay_the_same(
    path: Path, uncoded: int
) -> None:
    random = np.random.default_rng(2)
    words = ["".join(map(chr, random.integers(97, 123, 6))) for _ in range(60)]
    texts = [" ".join(random.choice(words, 5)) for _ in range(12)]
    answers = []
    for rows in (0, uncoded):
        with Database(
            path.with_name(f"{rows}-{len(answers)}.db"),
            embedder=Letters(),
            tuning=Tuning(exact_rows=3, uncoded_chunks=rows),
        ) as db:
            found: list[object] = []
            for number, text in enumerate(texts):
                db.documents.ingest_text(text, source=f"{number}.md")
                if number % 4 == 3:
                    db.documents.delete(db.documents.lookup(f"{number - 1}.md").document.id)
                for mode in ("vector", "hybrid"):
                    hits = db.documents.search(words[number], mode=mode)  # type: ignore[arg-type]
                    found.append([(hit.item.text, hit.score) for hit in hits])
            with db._file.reading() as sql:
                stored, coded = len(texts) - 3, db._indexes[0].vector.coded(sql)
                assert db._indexes[0].vector.count(sql, 1) == stored
            assert db.check() == []
            assert coded == ([1] if rows < stored else [])
            db.rebuild()
            assert db.check() == []
            answers.append(found)
    assert answers[0] == answers[1]
