from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from mcpvectordb import Database
from tests.support import Letters
from tests.support_postgres import Role, filled, rows


@pytest.fixture
def role(postgres_url: str) -> Iterator[Role]:
    """Makes a role; the URL by which it logs in."""
    made: list[str] = []

    def make(name: str) -> str:
        quoted = '"' + name.replace('"', '""') + '"'
        rows(postgres_url, f"CREATE ROLE {quoted} LOGIN")
        made.append(quoted)
        return postgres_url.replace("postgres@", f"{quote(name, safe='')}@")

    yield make
    for each in made:
        rows(postgres_url, f"DROP OWNED BY {each} CASCADE")
        rows(postgres_url, f"DROP ROLE {each}")


@pytest.fixture
def two(postgres_url: str, tmp_path: Path) -> str:
    """A database with two origins."""
    for name in ("one", "two"):
        with Database(tmp_path / f"{name}.db", embedder=Letters()) as db:
            filled(db, name)
            db.publish(postgres_url, origin=name)
    return postgres_url
