from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from mcpvectordb import Damaged, Database
from mcpvectordb.storage.fts5 import Deleter, tombstone_problems
from tests.support import Letters

PAGES = "WHERE id >= 1 << 53"
SPOILED = {
    "one id all over": "CAST(printf('%.*c', 136, 'x') AS BLOB)",
    "one id all over, in four bytes each": "CAST(x'0400000000000020' || CAST(printf('%.*c', 128, "
    "'x') AS BLOB) AS BLOB)",
    "an erased page": "unhex(replace(hex(zeroblob(136)), '00', 'FF'))",
    "another number of ids": "CAST(substr(block, 1, 4) || x'000000ff' || substr(block, 9) AS BLOB)",
    "text": "'text'",
    "nothing": "x''",
    "ids of no size": "CAST(x'00' || substr(block, 2) AS BLOB)",
}


def words(count: int) -> apsw.Connection:
    """An FTS5 table like ours with so many rows."""
    sql = apsw.Connection(":memory:")
    sql.execute("CREATE VIRTUAL TABLE words USING fts5 (text, content='', contentless_delete=1)")
    with sql:
        sql.executemany(
            "INSERT INTO words (rowid, text) VALUES (?, 'apple')",
            ((id,) for id in range(1, count + 1)),
        )
    return sql


@pytest.mark.parametrize("first", [1, 2**40])  # ids of four bytes, and of eight
def test_deleted_rows_are_not_found_and_their_tombstones_are_sound(first: int) -> None:
    sql = words(3_000)
    sql.execute("INSERT INTO words (rowid, text) VALUES (?, 'pear')", (first + 10_000,))
    removals = Deleter("words")
    for start in range(1, 2_000, 97):
        with sql:
            removals.delete(sql, [*range(start, start + 90), first + 10_000, 77_777])
        assert tombstone_problems(sql, "words") == []
    assert (
        sql.execute("SELECT count(*) FROM words WHERE words MATCH 'apple'").get == 3_000 - 21 * 90
    )
    assert not sql.execute("SELECT rowid FROM words WHERE words MATCH 'pear'").fetchall()


def test_fts5_writes_a_tombstone_page() -> None:
    sql = words(300)
    Deleter("words").delete(sql, range(1, 11))
    assert sql.execute(f"SELECT count(*) FROM words_data {PAGES}").get == 1


@pytest.mark.parametrize("name", SPOILED)
def test_damaged_tombstones_are_reported_before_fts5_reads_them_and_rebuild_repairs_them(
    path: Path, name: str
) -> None:
    with Database(path, embedder=Letters()) as db:
        ids = [
            db.documents.ingest_text(f"apple {number}", source=str(number)).document.id
            for number in range(30)
        ]
        threads = [db.memories.add(f"t{number}", "user", "pear").id for number in range(3)]
        db.compact()  # one segment
        db.documents.delete(ids[0])
        db.memories.delete(ids=threads[:1])
    other = apsw.Connection(str(path))
    tables = ("document_words", "context_words", "context_spellings")
    for table in tables:
        other.execute(f"UPDATE {table}_data SET block = {SPOILED[name]} {PAGES}")
        assert other.changes() == 1
    other.close()
    with Database(path, embedder=Letters()) as db:
        assert sum("not those that were removed" in problem for problem in db.check()) == len(
            tables
        )
        with pytest.raises(Damaged, match="rebuild"):
            db.documents.delete(ids[1])
        with pytest.raises(Damaged, match="rebuild"):
            db.memories.delete(ids=threads[1:2])
        db.rebuild()
        assert db.check() == []
        db.documents.delete(ids[1])
        db.memories.delete(ids=threads[1:2])
        assert db.check() == [] and db.documents.count() == 28
