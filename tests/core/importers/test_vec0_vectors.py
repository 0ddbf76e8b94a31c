"""Vectors of vec0 tables are read from their shadow tables as sqlite-vec itself reads them."""

from __future__ import annotations

from pathlib import Path

import apsw
import numpy as np
import pytest

from mcpvectordb.importers.vec0_vectors import Vec0Vectors
from mcpvectordb.storage import vec0
from tests.core.importers.conftest import opened

TABLES = {
    "plain": "embedding float[5]",
    "cosine": "embedding FLOAT[5] distance_metric=cosine, chunk_size=16",
    "parted": "content_embedding FLOAT[5] distance_metric=cosine, store TEXT partition key",
    "more": "embedding float[5], kind TEXT, +note TEXT, chunk_size=8",
}


@pytest.mark.parametrize("kind", TABLES)
def test_vectors_by_rowid(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    sql = apsw.Connection(str(path))
    vec0.load(sql)
    sql.execute(f"CREATE VIRTUAL TABLE v USING vec0({TABLES[kind]})")
    column = "content_embedding" if kind == "parted" else "embedding"
    rows = np.random.default_rng(1).standard_normal((60, 5)).astype("<f4")
    extra = {"parted": ", store", "more": ", kind, note"}.get(kind, "")
    values = {"parted": ", 'a'", "more": ", 'k', 'n'"}.get(kind, "")
    for number, row in enumerate(rows, 1):
        sql.execute(
            f"INSERT INTO v (rowid, {column}{extra}) VALUES (?, ?{values})", (number, row.tobytes())
        )
    sql.execute("DELETE FROM v WHERE rowid % 7 = 0")
    expected = dict(sql.execute(f"SELECT rowid, {column} FROM v"))
    sql.close()
    database = opened(path, tmp_path / "scratch")
    vectors = Vec0Vectors(database, "v")
    assert vectors.dimension == 5
    assert {key: vectors.get(key) for key in range(1, 61) if key % 7} == expected
    assert vectors.get(7) is None
    assert vectors.get(999) is None
    assert not database.unread


def test_vectors_by_a_text(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    sql = apsw.Connection(str(path))
    vec0.load(sql)
    sql.execute("CREATE VIRTUAL TABLE v USING vec0(hash_seq TEXT PRIMARY KEY, embedding float[3])")
    rows = {f"h_{n}": np.full(3, n, "<f4").tobytes() for n in range(1, 40)}
    sql.executemany("INSERT INTO v VALUES (?, ?)", rows.items())
    sql.close()
    database = opened(path, tmp_path / "scratch")
    vectors = Vec0Vectors(database, "v")
    assert {key: vectors.get(key) for key in rows} == rows
    assert vectors.get("h_99") is None


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE v_rowids SET chunk_offset = 100000",
        "UPDATE v_rowids SET chunk_offset = -1",
        "UPDATE v_rowids SET chunk_id = 'x', chunk_offset = NULL",
        "UPDATE v_vector_chunks00 SET vectors = x'00'",
        "UPDATE v_vector_chunks00 SET vectors = 'text'",
        "DELETE FROM v_vector_chunks00",
        "DROP TABLE v_rowids",
        "DROP TABLE v_vector_chunks00",
    ],
)
def test_crafted_shadow_tables_have_no_vectors(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    sql = apsw.Connection(str(path))
    vec0.load(sql)
    sql.execute("CREATE VIRTUAL TABLE v USING vec0(embedding float[3])")
    sql.execute("INSERT INTO v (rowid, embedding) VALUES (1, ?)", (bytes(12),))
    sql.close()
    sql = apsw.Connection(str(path))
    sql.execute(damage)
    sql.close()
    database = opened(path, tmp_path / "scratch")
    assert Vec0Vectors(database, "v").get(1) is None


def test_tables_of_other_kinds_have_none(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    sql = apsw.Connection(str(path))
    vec0.load(sql)
    sql.execute("CREATE VIRTUAL TABLE bits USING vec0(embedding bit[8])")
    sql.execute("CREATE TABLE plain (embedding)")
    sql.close()
    database = opened(path, tmp_path / "scratch")
    for table in ("bits", "plain", "missing"):
        assert Vec0Vectors(database, table).get(1) is None
