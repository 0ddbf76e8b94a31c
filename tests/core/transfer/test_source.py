"""SQLite files of other programs: in use, left by a killed program, damaged or hostile."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import apsw
import numpy as np
import pytest

from mcpvectordb import Damaged
from mcpvectordb.storage import vec0
from mcpvectordb.transfer.source import ForeignDatabase, Vec0Vectors, snapshot
from tests.core.transfer.conftest import execute, state
from tests.support import ROOT


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of the foreign program."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


Opened = Callable[..., ForeignDatabase]


@pytest.fixture
def opened(home: Path, tmp_path: Path) -> Opened:
    """Reads the file a.db of the program from a snapshot."""

    def read(**options: float) -> ForeignDatabase:
        snapshot(home / "a.db", tmp_path / "copy.db")
        return ForeignDatabase(home / "a.db", tmp_path / "copy.db", **options)

    return read


def made(path: Path, *statements: str, rows: int = 3) -> apsw.Connection:
    sql = apsw.Connection(str(path))
    for statement in statements:
        sql.execute(statement).fetchall()
    sql.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT)")
    with sql:
        sql.executemany("INSERT INTO notes VALUES (?, ?)", ((n, f"Note {n}") for n in range(rows)))
    return sql


def texts(database: ForeignDatabase, table: str = "notes") -> list[str]:
    return [row["text"] for row in database.rows(table)]


NOTES = ["Note 0", "Note 1", "Note 2"]


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_closed_file_is_read_without_a_trace(home: Path, opened: Opened, mode: str) -> None:
    made(home / "a.db", f"PRAGMA journal_mode = {mode}").close()
    before = state(home)
    home.chmod(0o500)
    try:
        assert texts(opened()) == NOTES
    finally:
        home.chmod(0o700)
    assert state(home) == before


@pytest.mark.parametrize("mode", ["wal", "delete", "truncate", "persist"])
def test_a_file_is_read_while_its_program_writes(home: Path, opened: Opened, mode: str) -> None:
    writer = made(home / "a.db", f"PRAGMA journal_mode = {mode}")
    writer.execute("BEGIN IMMEDIATE; INSERT INTO notes VALUES (9, 'not committed')")
    rows = opened().rows("notes")
    assert next(rows)["text"] == NOTES[0]
    writer.execute("DELETE FROM notes; COMMIT")  # would wait for a reader's lock
    assert [row["text"] for row in rows] == NOTES[1:]
    writer.close()
    assert {path.name for path in home.iterdir()} <= {"a.db", "a.db-journal"}


KILLED = """
import os, sys, apsw
sql = apsw.Connection(sys.argv[1])
sql.execute(f"PRAGMA journal_mode = {sys.argv[2]}; PRAGMA cache_size = 5").fetchall()
sql.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT)")
sql.execute("INSERT INTO notes VALUES (1, 'committed')")
sql.execute("BEGIN; UPDATE notes SET text = 'changed'")
sql.executemany("INSERT INTO notes VALUES (?, ?)", ((n, "x" * 3000) for n in range(2, 200)))
os._exit(9)
"""


@pytest.mark.parametrize(("mode", "shm"), [("wal", True), ("wal", False), ("delete", False)])
def test_what_a_killed_program_left_is_completed_in_the_copy_only(
    home: Path, opened: Opened, mode: str, shm: bool
) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(home / "a.db"), mode], cwd=ROOT, check=False)
    if not shm:
        (home / "a.db-shm").unlink(missing_ok=True)
    assert (home / f"a.db-{'wal' if mode == 'wal' else 'journal'}").stat().st_size
    before = state(home)
    assert texts(opened()) == ["committed"]
    after = state(home)
    for known in before, after:
        known.pop("a.db-shm", None)  # the memory that processes share is written by readers, too
    assert after == before


# Damage.


def test_a_damaged_table_is_read_around_the_damage(home: Path, opened: Opened) -> None:
    path = home / "a.db"
    made(path, "PRAGMA page_size = 1024", rows=2000).close()
    raw = bytearray(path.read_bytes())
    for page in (5, 11):
        raw[page * 1024 : page * 1024 + 1024] = b"\xff" * 1024
    path.write_bytes(raw)
    database = opened()
    found = texts(database)
    assert 1700 < len(found) == len(set(found)) < 2000
    assert database.unread == ["some rows of the table notes could not be read"]


def test_a_damaged_schema_hides_only_what_is_damaged(home: Path, opened: Opened) -> None:
    sql = made(home / "a.db")
    sql.execute("CREATE INDEX broken ON notes (text); PRAGMA writable_schema = ON")
    sql.execute("UPDATE sqlite_schema SET sql = 'CREATE INDEX nonsense' WHERE name = 'broken'")
    sql.close()
    database = opened()
    assert texts(database) == NOTES
    assert database.unread == ["a part of the schema is damaged"]


def test_a_file_that_was_cut_is_read_as_far_as_it_goes(home: Path, opened: Opened) -> None:
    path = home / "a.db"
    made(path, "PRAGMA page_size = 1024", rows=2000).close()
    path.write_bytes(path.read_bytes()[:20_000])
    database = opened()
    found = texts(database)
    assert 200 < len(found) < 2000 and found[:2] == NOTES[:2]
    assert len(database.unread) == 2


@pytest.mark.parametrize("beginning", [100, 20, 16])
def test_a_file_that_cannot_be_opened_is_an_error(
    home: Path, opened: Opened, beginning: int
) -> None:
    path = home / "a.db"
    made(path).close()
    path.write_bytes(path.read_bytes()[:beginning] + b"\x93" * 5000)
    with pytest.raises(Damaged, match="damaged or encrypted; nothing was imported"):
        opened()


def test_text_that_is_not_valid_is_read_as_far_as_it_is(home: Path, opened: Opened) -> None:
    sql = made(home / "a.db", rows=0)
    sql.execute("INSERT INTO notes VALUES (1, CAST(x'54656120ff20637570' AS TEXT))")
    sql.close()
    assert texts(opened()) == ["Tea \ufffd cup"]


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
def test_text_in_utf_16(home: Path, opened: Opened, encoding: str) -> None:
    made(home / "a.db", f"PRAGMA encoding = '{encoding}'").close()
    assert texts(opened()) == NOTES


# Hostile files.


@pytest.fixture
def hostile(home: Path, opened: Opened) -> ForeignDatabase:
    sql = made(home / "a.db")
    sql.execute(
        """
        CREATE VIEW endless AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)
            SELECT x AS text FROM n;
        CREATE VIRTUAL TABLE words USING fts5(text);
        CREATE TABLE huge (id INTEGER PRIMARY KEY, size,
            text AS (CASE WHEN size THEN hex(zeroblob(size)) ELSE 'small' END));
        INSERT INTO huge (id, size) VALUES (1, 0), (2, 60000000), (3, 0);
        CREATE TABLE "a""; DROP TABLE notes; --" ("text""; --" TEXT);
        INSERT INTO "a""; DROP TABLE notes; --" VALUES ('quoted');
        CREATE TABLE named (rowid TEXT, _rowid_ TEXT, oid TEXT, text TEXT);
        INSERT INTO named VALUES ('a', 'b', 'c', 'd'), ('a', 'b', 'c', 'd');
        CREATE TRIGGER pulled AFTER INSERT ON notes BEGIN DELETE FROM notes; END;
        """
    )
    sql.close()
    return opened()


def test_views_and_virtual_tables_are_no_tables(hostile: ForeignDatabase) -> None:
    assert not hostile.has("endless", "text") and not hostile.has("words", "text")
    assert texts(hostile, "endless") == texts(hostile, "words") == []
    assert hostile.virtual.keys() == {"words"}


def test_a_value_without_measure_costs_one_row(hostile: ForeignDatabase) -> None:
    assert [row["id"] for row in hostile.rows("huge")] == [1, 3]
    assert hostile.unread == ["some rows of the table huge could not be read"]


def test_a_statement_that_finds_nothing_for_long_is_stopped(home: Path, opened: Opened) -> None:
    made(home / "a.db", rows=100_000).close()
    database = opened(statement_seconds=0)
    assert list(database.lookup("notes", "text", "Note 99999")) == []
    assert database.unread == ["some rows of the table notes could not be read"]


def test_names_cannot_leave_their_quotes(hostile: ForeignDatabase) -> None:
    [table] = [name for name in hostile.columns if name.startswith('a"')]
    [column] = hostile.columns[table]
    assert [row[column] for row in hostile.rows(table)] == ["quoted"]
    assert texts(hostile) == NOTES


def test_columns_that_are_called_rowid_do_no_harm(hostile: ForeignDatabase) -> None:
    assert texts(hostile, "named") == ["d", "d"]
    assert next(hostile.rows("notes"))["rowid"] == 0


# Vectors of vec0 tables are read from their shadow tables as sqlite-vec itself reads them.

TABLES = {
    "plain": "embedding float[5]",
    "cosine": "embedding FLOAT[5] distance_metric=cosine, chunk_size=16",
    "parted": "embedding FLOAT[5] distance_metric=cosine, store TEXT partition key",
    "more": "embedding float[5], kind TEXT, +note TEXT, chunk_size=8",
    "by text": "key TEXT PRIMARY KEY, embedding float[5], chunk_size=8",
}
MORE = {"parted": {"store": "a"}, "more": {"kind": "k", "note": "n"}}


def vectors_of(path: Path, columns: str) -> apsw.Connection:
    sql = apsw.Connection(str(path))
    vec0.load(sql)
    sql.execute(f"CREATE VIRTUAL TABLE v USING vec0({columns})")
    return sql


@pytest.mark.parametrize("kind", TABLES)
def test_vectors_by_their_key(home: Path, opened: Opened, kind: str) -> None:
    sql = vectors_of(home / "a.db", TABLES[kind])
    key = "key" if kind == "by text" else "rowid"
    names = [key, "embedding", *MORE.get(kind, ())]
    marks = ", ".join("?" * len(names))
    numbers = np.random.default_rng(1).standard_normal((60, 5)).astype("<f4")
    for number, row in enumerate(numbers, 1):
        id = f"h_{number}" if key == "key" else number
        values = (id, row.tobytes(), *MORE.get(kind, {}).values())
        sql.execute(f"INSERT INTO v ({', '.join(names)}) VALUES ({marks})", values)
    sql.execute(f"DELETE FROM v WHERE {key} IN (7, 'h_7')")
    expected = dict(sql.execute(f"SELECT {key}, embedding FROM v"))
    sql.close()
    database = opened()
    vectors = Vec0Vectors(database, "v")
    assert vectors.dimension == 5 and len(expected) == 59
    assert {each: vectors.get(each) for each in expected} == expected
    for missing in (7, 999, "h_7", "h_99", None):
        assert vectors.get(missing) is None
    assert not database.unread


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
def test_crafted_shadow_tables_have_no_vectors(home: Path, opened: Opened, damage: str) -> None:
    sql = vectors_of(home / "a.db", "embedding float[3]")
    sql.execute("INSERT INTO v (rowid, embedding) VALUES (1, ?)", (bytes(12),))
    sql.close()
    execute(home / "a.db", damage)
    assert Vec0Vectors(opened(), "v").get(1) is None


def test_tables_of_other_kinds_have_none(home: Path, opened: Opened) -> None:
    sql = vectors_of(home / "a.db", "embedding bit[8]")
    sql.execute("CREATE TABLE plain (embedding)")
    sql.close()
    for table in ("v", "plain", "missing"):
        assert Vec0Vectors(opened(), table).get(1) is None
