"""Any table of a SQLite database: a document for each row."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcpvectordb import Database, InvalidInput
from tests.core.importers.conftest import execute


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    execute(
        path,
        "CREATE TABLE tea (id INTEGER PRIMARY KEY, name TEXT, note TEXT, price REAL);"
        "INSERT INTO tea VALUES (1, 'Assam', 'Malty and strong', 4.5), "
        "(2, 'Sencha', 'Green and fresh', 6), (3, NULL, NULL, 1)",
    )
    return path


def test_a_row_becomes_a_document(db: Database, shop: Path) -> None:
    done = db.import_from(shop, "sqlite", table="tea", text=["note"], title="name")
    assert (done.added, done.skipped) == ({"documents": 2}, {"no text in the named columns": 1})
    [tea] = db.documents.search("malty", mode="text")
    document = tea.item.document
    assert (document.library, document.source, document.title) == ("shop", "tea/1", "Assam")
    assert document.metadata["price"] == 4.5
    assert done.pending == 0


def test_again_brings_only_what_is_new_or_changed(db: Database, shop: Path) -> None:
    def again() -> list[int]:
        done = db.import_from(shop, "sqlite", table="tea", text=["note"])
        return [each.get("documents", 0) for each in (done.added, done.changed, done.known)]

    assert again() == [2, 0, 0]
    assert again() == [0, 0, 2]
    execute(
        shop, "UPDATE tea SET note = 'Grassy' WHERE id = 2; INSERT INTO tea (note) VALUES ('Red')"
    )
    assert again() == [1, 1, 1]
    assert db.documents.count() == 3
    assert not db.documents.search("fresh", mode="text")


def test_the_columns_are_named_where_one_is_wrong(db: Database, shop: Path) -> None:
    with pytest.raises(InvalidInput, match=r"name the table .*tea \(id, name, note, price\)"):
        db.import_from(shop, "sqlite")
    with pytest.raises(InvalidInput, match="has no column 'notes'; it has id, name, note, price"):
        db.import_from(shop, "sqlite", table="tea", text=["notes"])
