from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from mcpvectordb import Database
from mcpvectordb.recovery.raw_pages import DamagedFile, Row, tables
from mcpvectordb.storage.file import PAGE_SIZE
from mcpvectordb.storage.schema import VERSION
from tests.support import Letters


@pytest.fixture
def settings(path: Path) -> list[tuple[str, str]]:
    """The rows of a table without rowids, in a file that has many rows in another table too."""
    with Database(path, embedder=Letters()) as db:
        db.documents.ingest_text("x", source="x")
        with db._file.writing() as sql:
            sql.executemany(
                "INSERT INTO settings VALUES (?, ?)",
                ((f"name {n:04}", "value " * 20) for n in range(500)),
            )
            sql.executemany(
                "INSERT INTO models (name, digest, dimension) VALUES (?, ?, 3)",
                ((f"model {n}", "digest " * 20) for n in range(500)),
            )
            return list(sql.execute("SELECT * FROM settings"))


def read(path: Path, name: str) -> tuple[set[Row], bool]:
    """The rows of a table that could be read, and whether some could not."""
    file = DamagedFile(path, path.with_name("copy.db"))
    found = set(file.rows(next(each for each in file.tables if each.name == name)))
    return found, name in file.unreadable


def spoil(path: Path, name: str, *leaves: int) -> None:
    """Overwrite some of the leaf pages of a table."""
    sql = apsw.Connection(str(path))
    pages = [
        page
        for (page,) in sql.execute(
            "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf' ORDER BY path", (name,)
        )
    ]
    sql.close()
    with path.open("rb+") as file:
        for leaf in leaves:
            file.seek((pages[leaf] - 1) * PAGE_SIZE)
            file.write(b"\xff" * PAGE_SIZE)


def test_only_ordinary_tables_are_read(path: Path) -> None:
    names = {each.name for each in tables(VERSION)}
    assert {"documents", "document_chunks", "settings", "models"} <= names
    assert not [
        name for name in names if "words" in name or "meaning" in name or name.startswith("sqlite")
    ]


def test_rows_on_both_sides_of_damaged_pages_are_read(
    path: Path, settings: list[tuple[str, str]]
) -> None:
    spoil(path, "models", 2, 5)
    found, unreadable = read(path, "models")
    assert unreadable and 350 < len(found) < 501
    assert {1, 501} <= {row[0] for row in found}


def test_a_table_without_rowids_is_read_from_both_ends(
    path: Path, settings: list[tuple[str, str]]
) -> None:
    spoil(path, "settings", 3)
    found, unreadable = read(path, "settings")
    assert unreadable and 350 < len(found) < len(settings) and found < set(settings)
    assert {settings[0], settings[-1]} <= found


def test_bytes_that_are_not_utf_8_are_replaced_in_a_text(
    path: Path, settings: list[tuple[str, str]]
) -> None:
    data = path.read_bytes()
    place = data.index(b"model 77")
    path.write_bytes(data[:place] + b"m\xffdel" + data[place + 5 :])
    found, unreadable = read(path, "models")
    assert not unreadable and "m\ufffddel 77" in {row[1] for row in found}


def test_bytes_that_became_text_are_read_as_bytes(
    path: Path, settings: list[tuple[str, str]]
) -> None:
    data = path.read_bytes()
    # One bit in the header of the row (1, 1, 128 bytes).
    as_blob, as_text = b"\x05\x09\x09\x82\x0c", b"\x05\x09\x09\x82\x0d"
    assert data.count(as_blob) == 1
    path.write_bytes(data.replace(as_blob, as_text))
    found, _ = read(path, "document_embeddings")
    assert [(row[0], row[1], type(row[2]), len(row[2])) for row in found] == [(1, 1, bytes, 128)]  # type: ignore[arg-type]
