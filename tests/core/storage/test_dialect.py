from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from mcpvectordb import Database, InvalidInput, is_database_url
from mcpvectordb.storage.dialect import SQLITE, dialect_of


def test_urls_of_postgresql_are_told_from_paths() -> None:
    for url in ("postgresql://h", "postgres://h", "POSTGRESQL://h", " postgresql+psycopg://h/db"):
        assert is_database_url(url)
    assert not any(map(is_database_url, ("notes.db", "C:/a.db", Path("postgres://h/db"), None)))


@pytest.mark.parametrize("url", ["http://h/db", "mysql://me:secret@h/db", "postgre://me:secret@h"])
def test_another_url_is_refused_and_not_repeated(url: str, tmp_path: Path) -> None:
    for attempt in (is_database_url, Database):
        with pytest.raises(InvalidInput, match="postgresql://user:password@host/name") as caught:
            attempt(url)  # type: ignore[operator]
        assert "secret" not in str(caught.value)


def test_a_connection_to_sqlite_has_its_dialect() -> None:
    assert dialect_of(apsw.Connection(":memory:")) is SQLITE
    assert not SQLITE.origins
