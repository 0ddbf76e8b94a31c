"""SQLite files of other programs: in use, left by a killed program, damaged or hostile."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from mcpvectordb import Damaged
from mcpvectordb.importers.foreign_database import ForeignDatabase
from tests.core.importers.conftest import opened, state
from tests.support import ROOT


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of the foreign program."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return tmp_path / "scratch"


def made(path: Path, *statements: str, rows: int = 3) -> apsw.Connection:
    sql = apsw.Connection(str(path))
    for statement in statements:
        sql.execute(statement).fetchall()
    sql.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT)")
    with sql:
        sql.executemany("INSERT INTO notes VALUES (?, ?)", ((n, f"Note {n}") for n in range(rows)))
    return sql


def texts(path: Path, scratch: Path) -> list[str]:
    return [text for (text,) in opened(path, scratch).rows("notes", "text")]


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_closed_file_is_read_without_a_trace(home: Path, scratch: Path, mode: str) -> None:
    made(home / "a.db", f"PRAGMA journal_mode = {mode}").close()
    before = state(home)
    assert texts(home / "a.db", scratch) == ["Note 0", "Note 1", "Note 2"]
    assert state(home) == before


@pytest.mark.parametrize("mode", ["wal", "delete", "truncate", "persist"])
def test_a_file_is_read_while_its_program_writes(home: Path, scratch: Path, mode: str) -> None:
    writer = made(home / "a.db", f"PRAGMA journal_mode = {mode}")
    writer.execute("BEGIN IMMEDIATE; INSERT INTO notes VALUES (9, 'not committed')")
    assert texts(home / "a.db", scratch) == ["Note 0", "Note 1", "Note 2"]
    writer.execute("COMMIT")  # nobody holds a lock
    writer.close()
    assert {path.name for path in home.iterdir()} <= {"a.db", "a.db-journal"}


def test_the_snapshot_does_not_keep_the_program_waiting(home: Path, scratch: Path) -> None:
    writer = made(home / "a.db")
    database = opened(home / "a.db", scratch)
    rows = database.rows("notes", "text")
    assert next(rows) == ("Note 0",)
    writer.execute("BEGIN EXCLUSIVE; DELETE FROM notes; COMMIT")  # would wait for a reader's lock
    assert [text for (text,) in rows] == ["Note 1", "Note 2"]


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


@pytest.mark.parametrize("mode", ["wal", "delete"])
@pytest.mark.parametrize("shm", [True, False])
def test_what_a_killed_program_left_is_completed_in_the_copy_only(
    home: Path, scratch: Path, mode: str, shm: bool
) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(home / "a.db"), mode], cwd=ROOT, check=False)
    if not shm:
        (home / "a.db-shm").unlink(missing_ok=True)
    assert (home / f"a.db-{'wal' if mode == 'wal' else 'journal'}").stat().st_size
    before = state(home)
    assert texts(home / "a.db", scratch) == ["committed"]
    after = state(home)
    for known in before, after:
        known.pop("a.db-shm", None)  # the memory that processes share is written by readers, too
    assert after == before


def test_a_damaged_table_is_read_around_the_damage(home: Path, scratch: Path) -> None:
    path = home / "a.db"
    made(path, "PRAGMA page_size = 1024", rows=2000).close()
    raw = bytearray(path.read_bytes())
    for page in (5, 11):
        raw[page * 1024 : page * 1024 + 1024] = b"\xff" * 1024
    path.write_bytes(raw)
    database = opened(path, scratch)
    found = [text for (text,) in database.rows("notes", "text")]
    assert 1700 < len(found) < 2000
    assert len(set(found)) == len(found)
    assert database.unread == ["some rows of the table notes could not be read"]


def test_a_damaged_schema_hides_only_what_is_damaged(home: Path, scratch: Path) -> None:
    path = home / "a.db"
    sql = made(path)
    sql.execute("CREATE INDEX broken ON notes (text); PRAGMA writable_schema = ON")
    sql.execute("UPDATE sqlite_schema SET sql = 'CREATE INDEX nonsense' WHERE name = 'broken'")
    sql.close()
    database = opened(path, scratch)
    assert len(list(database.rows("notes", "text"))) == 3
    assert database.unread == ["a part of the schema is damaged"]


def test_a_file_that_was_cut_is_read_as_far_as_it_goes(home: Path, scratch: Path) -> None:
    path = home / "a.db"
    made(path, "PRAGMA page_size = 1024", rows=2000).close()
    path.write_bytes(path.read_bytes()[:20_000])
    database = opened(path, scratch)
    found = [text for (text,) in database.rows("notes", "text")]
    assert 200 < len(found) < 2000
    assert found[:2] == ["Note 0", "Note 1"]
    assert len(database.unread) == 2


@pytest.mark.parametrize("beginning", [100, 20, 16])
def test_a_file_that_cannot_be_opened_is_an_error(
    home: Path, scratch: Path, beginning: int
) -> None:
    path = home / "a.db"
    made(path).close()
    path.write_bytes(path.read_bytes()[:beginning] + b"\x93" * 5000)
    with pytest.raises(Damaged, match="damaged or encrypted; nothing was imported"):
        opened(path, scratch)


def test_text_that_is_not_valid_is_read_as_far_as_it_is(home: Path, scratch: Path) -> None:
    sql = made(home / "a.db", rows=0)
    sql.execute("INSERT INTO notes VALUES (1, CAST(x'54656120ff20637570' AS TEXT))")
    sql.close()
    assert texts(home / "a.db", scratch) == ["Tea \ufffd cup"]


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
def test_text_in_utf_16(home: Path, scratch: Path, encoding: str) -> None:
    made(home / "a.db", f"PRAGMA encoding = '{encoding}'").close()
    assert texts(home / "a.db", scratch) == ["Note 0", "Note 1", "Note 2"]


# Hostile files.


@pytest.fixture
def hostile(home: Path, scratch: Path) -> ForeignDatabase:
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
    return opened(home / "a.db", scratch)


def test_views_and_virtual_tables_are_no_tables(hostile: ForeignDatabase) -> None:
    assert not hostile.has("endless", "text")
    assert not hostile.has("words", "text")
    assert list(hostile.rows("endless", "text")) == list(hostile.rows("words", "text")) == []
    assert hostile.virtual.keys() == {"words"}


def test_a_value_without_measure_costs_one_row(hostile: ForeignDatabase) -> None:
    assert list(hostile.rows("huge", "id", "text")) == [(1, "small"), (3, "small")]
    assert hostile.unread == ["some rows of the table huge could not be read"]


def test_a_statement_that_finds_nothing_for_long_is_stopped(home: Path, scratch: Path) -> None:
    made(home / "a.db", rows=100_000).close()
    database = opened(home / "a.db", scratch, statement_seconds=0)
    assert list(database.lookup("notes", ["id"], "text", ["Note 99999"])) == []
    assert database.unread == ["some rows of the table notes could not be read"]


def test_names_cannot_leave_their_quotes(hostile: ForeignDatabase) -> None:
    [table] = [name for name in hostile.columns if name.startswith('a"')]
    [column] = hostile.columns[table]
    assert list(hostile.rows(table, column)) == [("quoted",)]
    assert len(list(hostile.rows("notes", "text"))) == 3


def test_columns_that_are_called_rowid_do_no_harm(hostile: ForeignDatabase) -> None:
    assert list(hostile.rows("named", "text")) == [("d",), ("d",)]


def test_a_copy_of_a_folder_that_is_read_only(home: Path, scratch: Path) -> None:
    made(home / "a.db", "PRAGMA journal_mode = wal").close()
    home.chmod(0o500)
    try:
        assert len(texts(home / "a.db", scratch)) == 3
    finally:
        home.chmod(0o700)
        shutil.rmtree(scratch)
