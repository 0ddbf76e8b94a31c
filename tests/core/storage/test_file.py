from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path

import apsw
import pytest

from mcpvectordb import Busy, Closed, Damaged, NewerFile, NotOurFile, ReadOnly, Unwritable
from mcpvectordb.storage.file import File
from mcpvectordb.storage.log import Mark
from mcpvectordb.storage.schema import APPLICATION_ID, VERSION
from mcpvectordb.storage.vec0 import create_statement
from tests.support import python


def made(path: Path) -> Path:
    File(path).close()
    return path


def altered(path: Path, *statements: str) -> Path:
    """A sound file after another program has changed it."""
    made(path)
    other = apsw.Connection(str(path))
    for statement in statements:
        other.execute(f"PRAGMA writable_schema = {int('sqlite_schema' in statement)}")
        other.execute(statement)
    other.close()
    return path


def test_a_new_file_is_private_and_leaves_no_log_after_close(path: Path) -> None:
    made(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_new_file_has_our_application_id_version_and_settings(path: Path) -> None:
    with (file := File(path)).reading() as sql:
        assert sql.pragma("application_id") == APPLICATION_ID
        assert Mark.of(sql.pragma("user_version")).version == VERSION
        assert sql.pragma("journal_mode") == "wal"
        assert sql.pragma("synchronous") == 2
        assert sql.pragma("foreign_keys") == 1
        assert sql.pragma("trusted_schema") == 0
        assert sql.pragma("secure_delete") == 1
    file.close()


def test_another_programs_log_is_not_written_back(path: Path) -> None:
    done = python(
        """
import apsw, os, sys
other = apsw.Connection(sys.argv[1])
other.pragma("journal_mode", "wal")
other.execute("CREATE TABLE notes (text); INSERT INTO notes VALUES ('mine')")
os._exit(0)
""",
        str(path),
    )
    assert done.returncode == 0
    before = path.read_bytes()
    with pytest.raises(NotOurFile, match="another program"):
        File(path)
    assert path.read_bytes() == before
    other = apsw.Connection(str(path))
    assert other.execute("SELECT text FROM notes").fetchall() == [("mine",)]


def test_a_missing_folder_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(Unwritable, match="does not exist: make it first"):
        File(tmp_path / "no" / "x.db")


def test_a_newer_file_is_refused(path: Path) -> None:
    altered(path, f"PRAGMA user_version = {VERSION + 1}")
    with pytest.raises(NewerFile, match="upgrade"):
        File(path)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE extra (x)",
        "CREATE TRIGGER t AFTER INSERT ON documents BEGIN DELETE FROM documents; END",
        "CREATE VIEW v AS SELECT 1",
        "DROP INDEX documents_by_source",
        "DROP TABLE settings",
        "ALTER TABLE documents ADD COLUMN x TEXT",
        "UPDATE sqlite_schema SET sql = replace(sql, 'porter ', '') WHERE name = 'document_words'",
        "DELETE FROM sqlite_schema WHERE name = 'document_words_docsize'",
        "PRAGMA user_version = 0",
    ],
)
def test_a_file_with_any_other_schema_is_refused_unchanged(path: Path, statement: str) -> None:
    altered(path, statement)
    before = path.read_bytes()
    with pytest.raises(Damaged, match="tables of format"):
        File(path)
    assert path.read_bytes() == before


def planted(kind: str, name: str, table: str, sql: str, root: str = "0") -> str:
    """The statement that writes a row of the schema past SQLite's check of reserved names."""
    return f"INSERT INTO sqlite_schema VALUES ('{kind}', '{name}', '{table}', {root}, '{sql}')"


DELETES = "AFTER INSERT ON documents BEGIN DELETE FROM documents; END"
A_ROOT = "(SELECT rootpage FROM sqlite_schema WHERE name = 'documents_by_source')"
RENAMED = (
    "UPDATE sqlite_schema SET name = 'sqlite_stat4', sql = replace(sql, 'extra', 'sqlite_stat4')"
)


@pytest.mark.parametrize(
    "statements",
    [
        [planted("trigger", name, "documents", f"CREATE TRIGGER {name} {DELETES}")]
        for name in ("sqlite_stat_evil", "sqlite_stat1", "sqlite_stat4")
    ]
    + [
        [planted("view", "sqlite_stat1", "sqlite_stat1", "CREATE VIEW sqlite_stat1 AS SELECT 1")],
        ["CREATE INDEX extra ON documents (source)", f"{RENAMED} WHERE name = 'extra'"],
    ]
    + [
        [planted("table", name, name, f"CREATE TABLE {name}({columns})", A_ROOT)]
        for name, columns in (("sqlite_stat1", "tbl,idx,stat,more"), ("sqlite_stat2", "tbl,idx"))
    ],
)
def test_a_name_like_that_of_sqlites_statistics_excuses_nothing(
    path: Path, statements: list[str]
) -> None:
    altered(path, *statements)
    before = path.read_bytes()
    with pytest.raises(Damaged, match="left as it is"):
        File(path)
    assert path.read_bytes() == before


def test_a_block_that_raises_is_rolled_back(path: Path) -> None:
    file = File(path)
    with pytest.raises(RuntimeError), file.writing() as sql:
        sql.execute("INSERT INTO settings VALUES ('a', 'b')")
        raise RuntimeError
    with file.reading() as sql:
        assert not sql.execute("SELECT * FROM settings").fetchall()
    file.close()


def test_a_reader_sees_one_snapshot(path: Path) -> None:
    file = File(path)

    def write() -> None:
        with file.writing() as sql:
            sql.execute("INSERT INTO settings VALUES ('a', 'b')")

    with file.reading() as sql:
        count = "SELECT count(*) FROM settings"
        assert sql.execute(count).fetchall() == [(0,)]
        writer = threading.Thread(target=write)
        writer.start()
        writer.join()
        assert sql.execute(count).fetchall() == [(0,)]
    with file.reading() as sql:
        assert sql.execute(count).fetchall() == [(1,)]
    file.close()


@pytest.mark.parametrize("name", ["file", ":memory:"])
def test_threads_share_a_database_each_with_its_own_connection(tmp_path: Path, name: str) -> None:
    file = File(name if name == ":memory:" else tmp_path / name)

    def write(number: int) -> None:
        for step in range(20):
            with file.writing() as sql:
                sql.execute("INSERT INTO settings VALUES (?, '')", (f"{number}-{step}",))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with file.reading() as sql:
        assert sql.execute("SELECT count(*) FROM settings").fetchall() == [(120,)]
    file.close()


def test_databases_in_memory_share_nothing(tmp_path: Path) -> None:
    one, other = File(":memory:"), File(":memory:")
    with one.writing() as sql:
        sql.execute("INSERT INTO settings VALUES ('a', 'b')")
    with other.reading() as sql:
        assert not sql.execute("SELECT * FROM settings").fetchall()
    one.close()
    other.close()


def test_a_writer_that_waits_too_long_raises_busy(path: Path) -> None:
    holder, waiter = File(path), File(path, busy_timeout=0.01)
    with holder.writing(), pytest.raises(Busy, match="locked"), waiter.writing():
        pass
    with waiter.writing():
        pass
    holder.close()
    waiter.close()


def test_a_writer_waits_once_for_the_whole_timeout(path: Path) -> None:
    holder, waiter = File(path), File(path, busy_timeout=0.01)
    now, attempts = 0.0, []

    def attempted(_: apsw.Cursor, statement: str, __: object) -> bool:
        nonlocal now
        now += 0.01  # SQLite waits in the attempt itself
        attempts.append(statement)
        return True

    waiter._clock = lambda: now
    waiter._keeper.exec_trace = attempted
    with holder.writing(), pytest.raises(Busy), waiter.writing():
        pass
    waiter._keeper.exec_trace = None
    assert attempts == ["BEGIN IMMEDIATE"]
    assert waiter._keeper.pragma("busy_timeout") == 10
    holder.close()
    waiter.close()


def test_using_a_closed_file_raises_closed(path: Path) -> None:
    file = File(path)
    file.close()
    with pytest.raises(Closed), file.reading():
        pass


def test_a_read_only_file_is_not_changed(path: Path) -> None:
    before = made(path).read_bytes()
    file = File(path, read_only=True)
    with pytest.raises(ReadOnly), file.writing():
        pass
    with file.reading() as sql:
        assert Mark.of(sql.pragma("user_version")).version == VERSION
    file.close()
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_read_only_file_keeps_the_log_of_others(path: Path) -> None:
    made(path)
    writer = File(path)
    with writer.writing() as sql:
        sql.execute("INSERT INTO settings VALUES ('chunk_size', '100')")
    reader = File(path, read_only=True)
    reader.close()
    assert {each.name for each in path.parent.iterdir()} == {
        path.name,
        f"{path.name}-wal",
        f"{path.name}-shm",
    }
    with writer.reading() as sql:
        assert sql.execute("SELECT value FROM settings WHERE name = 'chunk_size'").get == "100"
    writer.close()
    assert list(path.parent.iterdir()) == [path]


def test_opening_for_reading_does_not_create_a_file(path: Path) -> None:
    with pytest.raises(Unwritable, match="does not exist"):
        File(path, read_only=True)
    assert not path.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_in_a_folder_that_cannot_be_written_opens_for_reading(path: Path) -> None:
    made(path)
    path.parent.chmod(0o500)
    try:
        file = File(path)
        assert file.read_only
        with file.reading() as sql:
            assert Mark.of(sql.pragma("user_version")).version == VERSION
        file.close()
    finally:
        path.parent.chmod(0o700)


@pytest.mark.parametrize(
    "name",
    ["with space.db", "per%cent.db", "what?.db", "hash#tag.db", "日本.db", "file:x", "a&b=c"],
)
def test_any_file_name_works(tmp_path: Path, name: str) -> None:
    made(tmp_path / name)
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_a_link_to_a_file_opens_the_file_itself(tmp_path: Path, path: Path) -> None:
    made(path)
    link = tmp_path / "elsewhere"
    link.mkdir()
    (link / "link.db").symlink_to(path)
    file = File(link / "link.db")
    assert file.path == path.resolve()
    with file.writing() as sql:
        sql.execute("INSERT INTO settings VALUES ('a', 'b')")
        assert [each.name for each in link.iterdir()] == ["link.db"]
    file.close()


def test_a_forked_child_opens_its_own_connection(path: Path) -> None:
    done = python(
        """
import os, sys, warnings
warnings.simplefilter("ignore")
from mcpvectordb.storage.file import File
from mcpvectordb.storage.log import Mark
file = File(sys.argv[1])
with file.writing() as sql: sql.execute("INSERT INTO settings VALUES ('parent', '')")
child = os.fork()
if child == 0:
    with file.writing() as sql: sql.execute("INSERT INTO settings VALUES ('child', '')")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
with file.reading() as sql: print(sorted(name for (name,) in sql.execute("SELECT name FROM settings")))
""",
        str(path),
    )
    assert done.stdout.strip() == "['child', 'parent']", done.stderr


def test_processes_that_make_one_file_at_once_all_succeed(path: Path) -> None:
    program = """
import subprocess, sys
code = "import sys; from mcpvectordb.storage.file import File; f = File(sys.argv[1]); f.writing().__enter__(); f.close()"
running = [subprocess.Popen([sys.executable, "-c", code, sys.argv[1]]) for _ in range(6)]
sys.exit(max(each.wait() for each in running))
"""
    done = python(program, str(path))
    assert done.returncode == 0, done.stderr
    File(path).close()


@pytest.mark.parametrize("value", ["CAST(x'ff80' AS TEXT)", "'[' || char(10)"])
def test_a_stored_text_that_cannot_be_decoded_is_damage(path: Path, value: str) -> None:
    altered(path, f"INSERT INTO settings VALUES ('a', {value})")
    file = File(path)
    with pytest.raises(Damaged, match="not what was written"), file.reading() as sql:
        json.loads(sql.execute("SELECT value FROM settings").get)
    file.close()


def test_an_error_is_damage_only_where_the_file_explains_it(path: Path) -> None:
    file = File(path)
    with pytest.raises(TypeError), file.reading():
        raise TypeError("a mistake of ours")
    file.close()
    altered(path, "INSERT INTO document_embeddings VALUES (999, 999, x'00')")
    file = File(path)
    with pytest.raises(Damaged, match="TypeError: a missing row"), file.reading():
        raise TypeError("a missing row")
    file.close()


@pytest.mark.parametrize("kind", [b"\0\0", b"\2\0", b"\1\2", b"\2\1", b"\x82\2"])
def test_a_file_whose_journal_is_of_no_known_kind_is_left_as_it_is(path: Path, kind: bytes) -> None:
    data = bytearray(made(path).read_bytes())
    data[18:20] = kind
    path.write_bytes(data)
    with pytest.raises(Damaged, match="left as it is"):
        File(path)
    assert path.read_bytes() == data and [each.name for each in path.parent.iterdir()] == [
        path.name
    ]


MEANWHILE = {
    "a lost shadow table": ("DROP TABLE document_meaning_1_rowids", "Damaged"),
    "a renamed shadow table": ("ALTER TABLE document_meaning_1_rowids RENAME TO other", "Damaged"),
    "a foreign table": ("CREATE TABLE other (x)", "Damaged"),
    "a hostile trigger": (
        "CREATE TRIGGER t AFTER INSERT ON document_chunks BEGIN DELETE FROM documents; END",
        "Damaged",
    ),
    "a newer format": (f"PRAGMA user_version = {VERSION + 1}", "NewerFile"),
}


@pytest.mark.parametrize("name", MEANWHILE)
def test_changes_of_the_schema_by_others_are_noticed_before_the_next_read(
    path: Path, name: str
) -> None:
    statement, expected = MEANWHILE[name]
    done = python(
        """
import sys, apsw
from mcpvectordb import Database
from mcpvectordb.index.tuning import Tuning
from tests.support import Letters
with Database(sys.argv[1], embedder=Letters(), tuning=Tuning(exact_rows=0, uncoded_chunks=0)) as db:
    id = db.documents.ingest_text("apple", source="a").document.id
    db.documents.search("apple", mode="vector")
    other = apsw.Connection(sys.argv[1])
    other.execute(sys.argv[2])
    before = other.execute("SELECT count(*) FROM documents").get
    for deed in (lambda: db.documents.search("apple", mode="vector"), lambda: db.documents.delete(id),
                 lambda: db.documents.ingest_text("pear", source="b")):
        try:
            deed()
        except Exception as error:
            print(type(error).__name__)
    assert other.execute("SELECT count(*) FROM documents").get == before == 1
""",
        str(path),
        statement,
    )
    assert (done.returncode, done.stdout.split()) == (0, [expected] * 3), done.stderr


def test_changes_of_the_schema_by_this_library_are_accepted_while_the_file_is_open(
    path: Path,
) -> None:
    file, other = File(path), File(path)
    with file.reading() as sql:
        assert sql.execute("SELECT count(*) FROM documents").get == 0
    for statement in (create_statement("document_meaning_1", 8), "DROP TABLE document_meaning_1"):
        with other.writing() as sql:
            sql.execute(statement)
        with file.writing() as sql:
            assert sql.execute("SELECT count(*) FROM documents").get == 0
    file.close()
    other.close()


def test_a_change_is_not_acknowledged_when_the_file_went_away_meanwhile(path: Path) -> None:
    file = File(path)
    with pytest.raises(Unwritable, match="moved or deleted"), file.writing() as sql:
        sql.execute("INSERT INTO settings VALUES ('a', 'b')")
        path.unlink()
    file.close()


def test_opening_waits_while_another_process_reads_the_file_in_the_old_journal_mode(
    path: Path,
) -> None:
    altered(path, "PRAGMA journal_mode = DELETE")
    holding, done = threading.Event(), threading.Event()

    def hold() -> None:
        other = apsw.Connection(str(path))
        other.execute("BEGIN; SELECT * FROM settings").fetchall()
        holding.set()
        done.wait(0.3)
        other.close()

    reader = threading.Thread(target=hold)
    reader.start()
    holding.wait()
    File(path).close()
    done.set()
    reader.join()


def test_a_file_name_that_the_system_refuses_raises_unwritable(tmp_path: Path) -> None:
    with pytest.raises(Unwritable, match="cannot be read or written"):
        File(tmp_path / ("x" * 300))


# A journal that takes a file back to no pages at all, as SQLite writes it.
EMPTYING = (
    b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
    + b"".join(number.to_bytes(4, "big") for number in (0, 1, 0, 512, 8192))
).ljust(512, b"\0")


@pytest.mark.parametrize("torn", [b"", bytes(512), None], ids=["unwritten", "torn", "written"])
def test_a_file_whose_making_was_cut_off_is_made_again(path: Path, torn: bytes | None) -> None:
    """A power cut leaves the journal of the very first transaction, and of the first page whatever
    it likes.
    """
    sql = apsw.Connection(str(path))
    sql.execute("PRAGMA page_size = 8192; PRAGMA journal_mode = WAL").fetchall()
    sql.close()
    page = path.read_bytes()
    assert len(page) == 8192
    Path(f"{path}-journal").write_bytes(EMPTYING)
    if torn is not None:
        path.write_bytes(torn + page[len(torn) :] if torn else b"")
    made(path)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_another_programs_journal_is_not_rolled_back(path: Path) -> None:
    done = python(
        """
import apsw, os, sys
sql = apsw.Connection(sys.argv[1])
sql.execute("CREATE TABLE notes (text); INSERT INTO notes VALUES ('mine'); BEGIN; UPDATE notes SET text = 'half'")
sql.cache_flush()
os._exit(0)
""",
        str(path),
    )
    assert done.returncode == 0 and Path(f"{path}-journal").stat().st_size, done.stderr
    before = path.read_bytes()
    with pytest.raises(NotOurFile, match="another program"):
        File(path)
    assert path.read_bytes() == before and Path(f"{path}-journal").exists()


def other_programs(path: Path, *statements: str) -> bytes:
    other = apsw.Connection(str(path))
    other.execute("; ".join(statements))
    other.close()
    return path.read_bytes()


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TABLE notes (text)", "INSERT INTO notes VALUES ('mine')"],
        ["PRAGMA user_version = 7"],
        ["PRAGMA application_id = 7"],
    ],
)
def test_a_planted_journal_does_not_empty_another_programs_database(
    path: Path, statements: list[str]
) -> None:
    before, journal = other_programs(path, *statements), Path(f"{path}-journal")
    journal.write_bytes(EMPTYING)
    with pytest.raises((NotOurFile, Damaged), match="left as it is"):
        File(path)
    assert path.read_bytes() == before and journal.read_bytes() == EMPTYING


@pytest.mark.parametrize(
    "content", [b"hello", b"x" * 9000, bytes(600) + b"x", bytes(9000), b"SQLite format 3\x00" * 99]
)
def test_a_planted_journal_does_not_empty_any_other_file(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    Path(f"{path}-journal").write_bytes(EMPTYING)
    with pytest.raises((NotOurFile, Damaged), match="left as it is"):
        File(path)
    assert path.read_bytes() == content


def test_a_planted_journal_does_not_empty_our_own_file(path: Path) -> None:
    before, journal = made(path).read_bytes(), Path(f"{path}-journal")
    journal.write_bytes(EMPTYING)
    with pytest.raises(Damaged, match="move the journal away"):
        File(path)
    assert path.read_bytes() == before and journal.read_bytes() == EMPTYING
    journal.unlink()
    File(path).close()


def test_another_programs_database_is_refused_unchanged(path: Path) -> None:
    other = apsw.Connection(str(path))
    other.execute("CREATE TABLE notes (text); INSERT INTO notes VALUES ('mine')")
    other.close()
    before = path.read_bytes()
    with pytest.raises(NotOurFile, match="another program"):
        File(path)
    assert path.read_bytes() == before
