from __future__ import annotations

from pathlib import Path

import apsw

from mcpvectordb import is_database_url
from mcpvectordb.storage.dialect import SQLITE, dialect_of


def test_urls_of_postgresql_are_told_from_paths() -> None:
    assert is_database_url("postgresql://h/db") and is_database_url("postgres://h/db")
    assert not any(map(is_database_url, ("notes.db", "http://h/db", Path("postgres://h/db"), None)))


def test_a_connection_to_sqlite_has_its_dialect() -> None:
    assert dialect_of(apsw.Connection(":memory:")) is SQLITE
    assert not SQLITE.origins
