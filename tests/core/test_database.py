from __future__ import annotations

from pathlib import Path

from mcpvectordb import Config, Database
from tests.support import Letters


def test_a_database_shows_its_path_and_state(path: Path) -> None:
    db = Database(path, embedder=Letters())
    assert repr(db) == f"<Database {str(path)!r}>"
    db.close()
    assert repr(db) == f"<Database {str(path)!r}, closed>"
    with Database(path, config=Config(read_only=True)) as reading:
        assert repr(reading) == f"<Database {str(path)!r}, read-only>"
    with Database(":memory:") as memory:
        assert repr(memory) == "<Database ':memory:'>"


def test_shelves_that_are_not_used_are_not_loaded(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        assert not {"vectors", "contexts"} & vars(db).keys()
        db.contexts.add("thread", "agent", "note")
        assert db.contexts is db.contexts
        assert db.check() == []
