"""Files that another program made, by accident or on purpose, and how each must be treated."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import apsw

from mcpvectordb.storage.schema import APPLICATION_ID, VERSION
from tests.torture.damage import Inspection, exit_while_writing, forked, inspect_file, write_to

NOT_OURS, DAMAGED, NEWER = ("refused: NotOurFile",), ("refused: Damaged",), ("refused: NewerFile",)
UNUSABLE, SOUND = ("refused: Unwritable",), ("sound",)
TOLD = ("refused: Damaged", "damage reported")
Maker = Callable[[Path], object]


def ours(path: Path) -> None:
    """A sound file; the test has made one in the parent folder."""
    shutil.copyfile(path.parent.parent / "base.db", path)


def written(content: bytes) -> Maker:
    """A file with these bytes."""
    return lambda path: path.write_bytes(content)


def changed(*statements: str, wal: bool = True) -> Maker:
    """A file of ours that another program has changed."""

    def make(path: Path) -> None:
        ours(path)
        other = apsw.Connection(str(path))
        for statement in statements:
            other.execute(f"PRAGMA writable_schema = {int('sqlite_schema' in statement)}")
            other.execute(statement).fetchall()
        if wal:
            other.execute("PRAGMA journal_mode = WAL").fetchall()
        other.close()

    return make


def patched(place: int, content: bytes) -> Maker:
    """A file of ours with other bytes at an offset."""

    def make(path: Path) -> None:
        ours(path)
        data = bytearray(path.read_bytes())
        data[place : place + len(content)] = content
        path.write_bytes(data)

    return make


def foreign(*statements: str) -> Maker:
    """A database of another program."""

    def make(path: Path) -> None:
        other = apsw.Connection(str(path))
        for statement in statements:
            other.execute(statement).fetchall()
        other.close()

    return make


def _root(one: str, other: str) -> str:
    return (
        "UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = "
        f"'{other}') WHERE name = '{one}'"
    )


def _log_of_another_program(path: Path) -> None:
    ours(path)
    other = path.with_name("other")
    forked(_die_with_a_foreign_log, other)
    Path(f"{other}-wal").replace(f"{path}-wal")
    other.unlink()


def _die_with_a_foreign_log(path: Path) -> None:
    other = apsw.Connection(str(path))
    other.execute(
        "PRAGMA page_size = 8192; PRAGMA journal_mode = WAL; CREATE TABLE notes (text); "
        "INSERT INTO notes VALUES ('mine')"
    ).fetchall()
    os._exit(0)


def _log_of_another_file_of_ours(path: Path) -> None:
    other = path.with_name("other")
    ours(other)
    forked(exit_while_writing, other)
    ours(path)
    Path(f"{other}-wal").replace(f"{path}-wal")
    other.unlink()
    Path(f"{other}-shm").unlink(missing_ok=True)


def _sparse(path: Path) -> None:
    ours(path)
    os.truncate(path, 1 << 36)


def _loop(path: Path) -> None:
    path.symlink_to(path.with_name("other"))
    path.with_name("other").symlink_to(path)


DEEP = '{"a":' * 5_000 + "1" + "}" * 5_000

# what it is: (how it is made, how it may be received)
CASES: Mapping[str, tuple[Maker, tuple[str, ...]]] = {
    "no bytes at all": (written(b""), SOUND),
    "a text": (written(b"precious notes\n"), NOT_OURS),
    "a PDF": (written(b"%PDF-1.7\n" + bytes(2_000)), NOT_OURS),
    "encrypted noise": (written(random.Random(1).randbytes(50_000)), NOT_OURS),
    "the magic bytes only": (written(b"SQLite format 3\0"), (*NOT_OURS, *DAMAGED)),
    "the magic bytes and noise": (
        written(b"SQLite format 3\0" + random.Random(2).randbytes(50_000)),
        (*NOT_OURS, *DAMAGED),
    ),
    "a folder": (Path.mkdir, NOT_OURS),
    "a named pipe": (os.mkfifo, NOT_OURS),
    "a device": (lambda path: path.symlink_to("/dev/null"), NOT_OURS),
    "an endless device": (lambda path: path.symlink_to("/dev/zero"), NOT_OURS),
    "a link to itself": (_loop, UNUSABLE),
    "another program's database": (foreign("CREATE TABLE notes (text)"), NOT_OURS),
    "another program's database with our mark": (
        foreign(
            "CREATE TABLE notes (text)",
            f"PRAGMA application_id = {APPLICATION_ID}",
            "PRAGMA user_version = 1",
        ),
        DAMAGED,
    ),
    "another program's database of five thousand tables": (
        foreign("BEGIN", *(f"CREATE TABLE t{number} (x)" for number in range(5_000)), "COMMIT"),
        NOT_OURS,
    ),
    "a newer format": (changed(f"PRAGMA user_version = {VERSION + 1}"), NEWER),
    "a format before the first": (changed("PRAGMA user_version = 0"), DAMAGED),
    "a trigger that deletes": (
        changed("CREATE TRIGGER t AFTER INSERT ON documents BEGIN DELETE FROM documents; END"),
        DAMAGED,
    ),
    "a view in place of a table": (
        changed(
            "ALTER TABLE models RENAME TO old",
            "CREATE VIEW models AS SELECT * FROM old, old AS other",
        ),
        DAMAGED,
    ),
    "a view without end": (
        changed(
            "CREATE VIEW v AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) "
            "SELECT x FROM n"
        ),
        DAMAGED,
    ),
    "a virtual table of an unknown kind": (
        changed(
            "INSERT INTO sqlite_schema VALUES ('table', 'x', 'x', 0, 'CREATE VIRTUAL TABLE x USING "
            "none(a)')"
        ),
        DAMAGED,
    ),
    "a default that calls a function": (
        changed("CREATE TABLE t (x DEFAULT (load_extension('evil')))"),
        DAMAGED,
    ),
    "a renamed vec0 table": (
        changed(
            "UPDATE sqlite_schema SET name = 'document_meaning_2', tbl_name = 'document_meaning_2' "
            "WHERE name = 'document_meaning_1'"
        ),
        DAMAGED,
    ),
    "a renamed shadow table": (
        changed(
            "UPDATE sqlite_schema SET name = 'document_meaning_1_rows', tbl_name = "
            "'document_meaning_1_rows', sql = replace(sql, '_rowids', '_rows') WHERE name = "
            "'document_meaning_1_rowids'"
        ),
        DAMAGED,
    ),
    "a missing shadow table": (
        changed("DELETE FROM sqlite_schema WHERE name = 'document_meaning_1_chunks'"),
        DAMAGED,
    ),
    "statistics that are noise": (
        changed(
            "ANALYZE",
            "UPDATE sqlite_stat1 SET stat = '9999999999999999999 -1 x'",
            "DELETE FROM sqlite_stat4",
            "INSERT INTO sqlite_stat4 VALUES ('documents', 'documents_by_source', '1 1', '0 0', '0 "
            "0', randomblob(30))",
        ),
        SOUND,
    ),
    "another size of pages": (
        changed("PRAGMA journal_mode = DELETE", "PRAGMA page_size = 65536", "VACUUM"),
        SOUND,
    ),
    "a header that lies about the size of pages": (patched(16, b"\x00\x01"), (*NOT_OURS, *DAMAGED)),
    "a header that lies about the number of pages": (patched(28, b"\x7f\xff\xff\xff"), TOLD),
    "a header that asks for another encoding": (
        patched(56, b"\x00\x00\x00\x02"),
        (*NOT_OURS, *DAMAGED),
    ),
    "many gigabytes of nothing behind it": (_sparse, (*SOUND, *TOLD)),
    "the log of another program": (_log_of_another_program, NOT_OURS),
    "the log of another file of ours": (_log_of_another_file_of_ours, (*SOUND, *TOLD)),
    "two tables in one place": (changed(_root("documents", "document_chunks")), TOLD),
    "an index that is a table": (changed(_root("documents_by_source", "documents")), TOLD),
    "a vec0 table over another's rows": (
        changed(_root("document_meaning_1_rowids", "document_meaning_1_chunks")),
        TOLD,
    ),
    "models over a vec0 table": (changed(_root("models", "document_meaning_1_rowids")), TOLD),
    "a vec0 table over words": (
        changed(_root("document_meaning_1_chunks", "document_words_data")),
        TOLD,
    ),
    "vec0 validity that is too short": (
        changed("UPDATE document_meaning_1_chunks SET validity = x'ff'"),
        TOLD,
    ),
    "vec0 validity that is no BLOB": (
        changed("UPDATE document_meaning_1_chunks SET validity = 'x'"),
        TOLD,
    ),
    "vec0 rowids that are too short": (
        changed("UPDATE document_meaning_1_chunks SET rowids = x'00'"),
        TOLD,
    ),
    "vec0 rowids that are no BLOB": (
        changed("UPDATE document_meaning_1_chunks SET rowids = 7"),
        TOLD,
    ),
    "vec0 chunks of another size": (
        changed("UPDATE document_meaning_1_chunks SET size = 100000"),
        (*SOUND, *TOLD),
    ),
    "vec0 codes that are too short": (
        changed("UPDATE document_meaning_1_vector_chunks00 SET vectors = x'00'"),
        TOLD,
    ),
    "vec0 codes that are no BLOB": (
        changed("UPDATE document_meaning_1_vector_chunks00 SET vectors = 3.5"),
        TOLD,
    ),
    "vec0 codes that are gone": (changed("DELETE FROM document_meaning_1_vector_chunks00"), TOLD),
    "vec0 rows far outside": (
        changed("UPDATE document_meaning_1_rowids SET chunk_offset = 1000000000"),
        TOLD,
    ),
    "vec0 rows before the start": (
        changed("UPDATE document_meaning_1_rowids SET chunk_offset = -1000000"),
        TOLD,
    ),
    "vec0 rows in chunks that are not there": (
        changed("UPDATE document_meaning_1_rowids SET chunk_id = 999"),
        TOLD,
    ),
    "vec0 rows that are gone": (changed("DELETE FROM document_meaning_1_rowids"), TOLD),
    "words of another version": (changed("UPDATE document_words_config SET v = 99"), TOLD),
    "words that are noise": (
        changed("UPDATE document_words_data SET block = randomblob(200)"),
        TOLD,
    ),
    "words that are gone": (changed("DELETE FROM document_words_data"), TOLD),
    "a model that is none": (
        changed("UPDATE settings SET value = 'nonsense' WHERE name = 'model'"),
        TOLD,
    ),
    "a model of no dimension": (changed("UPDATE models SET dimension = 0"), TOLD),
    "a model of a vast dimension": (changed("UPDATE models SET dimension = 1000000000"), TOLD),
    "a chunk size that is no number": (
        changed("UPDATE settings SET value = 'many' WHERE name = 'chunk_size'"),
        TOLD,
    ),
    "metadata that is no JSON": (changed("UPDATE documents SET metadata = '{'"), TOLD),
    "metadata that is deep": (changed(f"UPDATE documents SET metadata = '{DEEP}'"), TOLD),
    "headings that are no list": (changed("UPDATE document_chunks SET headings = '7'"), TOLD),
    "text that is not UTF-8": (
        changed("UPDATE document_chunks SET tile = CAST(x'fffe80' AS TEXT)"),
        TOLD,
    ),
    "embeddings of one byte": (changed("UPDATE document_embeddings SET embedding = x'00'"), TOLD),
    "embeddings of infinity": (
        changed(f"UPDATE document_embeddings SET embedding = x'{'0000807f' * 32}'"),
        TOLD,
    ),
}


def inspect_case(folder: Path, number: int) -> Inspection:
    """Make the file of a case, read it, and write to it if it opens.

    Returns what was not as the case requires.
    """
    name = list(CASES)[number]
    make, expected = CASES[name]
    path = folder / str(number) / "crafted.db"
    path.parent.mkdir()
    make(path)
    inspection = inspect_file(path, {}, save=False, new=name == "no bytes at all")
    if inspection.answer not in expected:
        inspection.wrong.append(f"{inspection.answer} instead of {' or '.join(expected)}")
    if not inspection.answer.startswith("refused"):
        write_to(path, inspection)
    return inspection
