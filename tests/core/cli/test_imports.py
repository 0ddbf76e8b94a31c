from __future__ import annotations

import json
from pathlib import Path

import apsw
import pytest

from mcpvectordb import Database
from tests.support_cli import Commands


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    sql = apsw.Connection(str(tmp_path / "shop.db"))
    sql.execute(
        "CREATE TABLE teas (sku TEXT PRIMARY KEY, name TEXT, note TEXT, price REAL);"
        "INSERT INTO teas VALUES ('a', 'Assam', 'Malty', 4.5), ('s', 'Sencha', 'Green', 6.0), "
        "('x', '', '', 1.0)"
    )
    sql.close()
    return tmp_path / "shop.db"


def test_import_prints_the_report(tmp_path: Path, shop: Path) -> None:
    shell = Commands(tmp_path)
    command = ("import", "sqlite", str(shop), "--table", "teas", "--text", "name,note")
    planned = shell.run(*command, "--dry-run")
    assert planned.splitlines()[:2] == [f"would import {shop} (sqlite)", "  new: 2 documents"]
    assert not shell.db.exists()
    done = shell.run(*command, "--no-embed", "--verbose").splitlines()
    assert done == [
        f"imported {shop} (sqlite)",
        "  new: 2 documents",
        "  skipped: 1 × no text in the named columns",
        "  embeddings: 2 × made anew: the source has none",
        "  2 passages still to be embedded: `mcpvectordb embed`",
        "  skipped teas/x: no text in the named columns",
    ]
    assert "  known: 2 documents" in shell.run(*command, "--no-embed").splitlines()
    assert "Malty" in shell.run("search", "--mode", "text", "malty")


def test_columns_and_library_are_options(tmp_path: Path, shop: Path) -> None:
    shell = Commands(tmp_path)
    done = json.loads(
        shell.run(
            "import", str(shop), "--table", "teas", "--text", "note", "--id", "sku",
            "--title", "name", "--metadata", "price", "--library", "drinks", "--no-embed", "--json",
        )
    )  # fmt: skip
    assert (done["kind"], done["added"]) == ("sqlite", {"documents": 2})
    with Database(shell.db) as db:
        [tea] = db.documents.browse(library="drinks", where={"title": "Assam"})
        assert (tea.source, tea.metadata["price"]) == ("teas/a", 4.5)
        assert tea.metadata.keys() == {"price", "imported"}


def test_what_is_wrong_is_one_line(tmp_path: Path, shop: Path) -> None:
    shell = Commands(tmp_path)
    assert shell.invoke("import", "qmd", "chroma", str(shop)).exit_code == 2
    failed = shell.invoke("import", str(shop))
    assert failed.exit_code == 1
    assert "name the table (--table): teas (sku, name, note, price)" in str(failed.exception)
