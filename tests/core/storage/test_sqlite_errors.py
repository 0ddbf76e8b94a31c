from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from mcpvectordb import Busy, Closed, Damaged, Database, NotOurFile, ReadOnly, TooLarge, Unwritable
from mcpvectordb.index.tuning import Tuning
from mcpvectordb.storage.sqlite_errors import ours
from tests.support import Letters

MISTAKES: dict[str, tuple[type[Exception], str]] = {
    "a column that is not there": (apsw.SQLError, "SELECT nothing FROM documents"),
    "a word that is no SQL": (apsw.SQLError, "SELEKT 1"),
    "a question that FTS5 cannot read": (
        apsw.SQLError,
        "SELECT 1 FROM document_words WHERE document_words MATCH 'a AND'",
    ),
    "a query of another dimension": (
        apsw.SQLError,
        "SELECT rowid FROM document_meaning_1 WHERE embedding MATCH vec_int8(zeroblob(3)) AND k = "
        "1",
    ),
    "a row that lacks a value": (
        apsw.ConstraintError,
        "INSERT INTO document_chunks (owner) VALUES (1)",
    ),
    "a code that is there already": (
        apsw.SQLError,
        "INSERT INTO document_meaning_1 (rowid, embedding) VALUES (1, vec_int8(zeroblob(32)))",
    ),
}
DAMAGE = {
    "codes that are cut off": "UPDATE document_meaning_1_chunks SET rowids = x'00'",
    "codes of a chunk that waits": "INSERT INTO document_pending SELECT id, 1, 0 FROM "
    "document_chunks; DELETE FROM document_embeddings",
    "metadata that is no JSON": "UPDATE documents SET metadata = '{'",
    "texts of no length": "UPDATE document_words_docsize SET sz = 7",
    "words of another format": "UPDATE document_words_config SET v = 99",
    "a chunk without an owner": "PRAGMA foreign_keys = OFF; UPDATE document_chunks SET owner = 99 "
    "WHERE id = 1",
}


@pytest.fixture
def full(path: Path) -> Path:
    with Database(path, embedder=Letters(), tuning=Tuning(uncoded_chunks=0)) as db:
        for number in range(3):
            db.documents.ingest_text(f"apple {number}", source=str(number), metadata={"n": number})
    return path


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.parametrize("joined", [False, True])
def test_an_error_in_our_sql_is_not_reported_as_damage(full: Path, name: str, joined: bool) -> None:
    kind, statement = MISTAKES[name]
    with Database(full, embedder=Letters()) as db:
        with pytest.raises(kind) as raised:
            if joined:
                with db._file.writing(), db._file.writing() as sql:
                    # Damage that is rolled back does not explain the error.
                    sql.execute("UPDATE documents SET metadata = '{'")
                    sql.execute(statement).fetchall()
            else:
                with db._file.writing() as sql:
                    sql.execute(statement).fetchall()
        assert not isinstance(raised.value, Damaged) and db.check() == []


def test_an_exception_on_a_sound_file_is_raised_as_it_is(full: Path) -> None:
    with Database(full, embedder=Letters()) as db, pytest.raises(KeyError), db._file.reading():
        raise KeyError("mine")


@pytest.mark.parametrize("name", DAMAGE)
def test_an_error_that_only_a_damaged_file_causes_is_reported_as_damage(
    full: Path, name: str
) -> None:
    other = apsw.Connection(str(full))
    other.execute(DAMAGE[name])
    other.close()
    with Database(full, embedder=Letters(), tuning=Tuning(exact_rows=0)) as db:
        documents = db.documents
        asked: list[Callable[[], object]] = [
            lambda: documents.search("apple", mode="vector"),
            lambda: documents.search("apple", mode="text"),
            lambda: documents.search("apple", where={"metadata.n": {"gt": 1}}),
            db.embed_pending,
            lambda: documents.ingest_text("new", source="0"),
            lambda: documents.browse(limit=5),
        ]
        raised_errors = [error for question in asked if (error := failure(question)) is not None]
        assert raised_errors and all(isinstance(error, Damaged) for error in raised_errors), (
            raised_errors
        )
        assert db.check()


def failure(question: Callable[[], object]) -> Exception | None:
    try:
        question()
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (apsw.BusyError("locked"), Busy),
        (apsw.ProtocolError("locking protocol"), Busy),
        (apsw.ReadOnlyError("no"), ReadOnly),
        (apsw.FullError("full"), Unwritable),
        (apsw.IOError("disk"), Unwritable),
        (apsw.NotADBError("not"), NotOurFile),
        (apsw.CorruptError("malformed"), Damaged),
        (apsw.ConnectionClosedError("closed"), Closed),
        (apsw.TooBigError("big"), TooLarge),
        (PermissionError(13, "no", "/a/b.db"), Unwritable),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"), Damaged),
    ],
)
def test_an_error_about_the_file_is_translated(error: Exception, expected: type[Exception]) -> None:
    translated = ours(error, Path("/a/b.db"))
    assert type(translated) is expected
    assert "big" in str(error) or "/a/b.db" in str(translated)


@pytest.mark.parametrize(
    "error",
    [
        apsw.SQLError("no such column"),
        apsw.ConstraintError("unique"),
        apsw.MismatchError("type"),
        KeyError("x"),
        PermissionError(13, "no", "/a/other"),
    ],
)
def test_an_error_that_may_be_a_bug_is_not_translated(error: Exception) -> None:
    assert ours(error, Path("/a/b.db")) is None
