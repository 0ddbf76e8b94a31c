from __future__ import annotations

from pathlib import Path

import pytest

from mcpvectordb import Database, InvalidInput, is_database_url
from mcpvectordb.storage.dialect import SQLITE, FileConnection


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


def test_a_connection_says_whether_its_transaction_has_written() -> None:
    sql = FileConnection(":memory:")
    sql.execute("CREATE TABLE notes (text); BEGIN")
    assert sql.dialect is SQLITE and not SQLITE.origins and not sql.may_roll_back
    sql.execute("INSERT INTO notes VALUES ('a')")
    assert sql.may_roll_back
