from __future__ import annotations

import json
from pathlib import Path

import apsw
import pytest

from mcpvectordb import Database
from tests.support_cli import PLAN, TEA, Commands
from tests.support_postgres import published, rows


def filled(folder: Path) -> Commands:
    """A file with two documents in two libraries."""
    commands = Commands(folder)
    for name, text, library in (("tea", TEA, "default"), ("plan", PLAN, "work")):
        (folder / f"{name}.md").write_text(text)
        commands.run("ingest", "--no-embed", str(folder / f"{name}.md"), "--library", library)
    return commands


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
        "  skipped: 1 × neither text nor embedding",
        "  embeddings: 2 × made anew: the source has none",
        "  2 passages still to be embedded: `mcpvectordb embed`",
        "  skipped teas/x: neither text nor embedding",
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


def test_export_says_what_was_written(tmp_path: Path) -> None:
    shell, out = filled(tmp_path), tmp_path / "out.jsonl"
    assert f"exported to {out} (jsonl): 2 documents" in shell.run("export", str(out))
    assert len(out.read_text("utf-8").splitlines()) == 4
    refused = shell.invoke("export", str(out))
    assert refused.exit_code == 1
    assert "1 document" in shell.run("export", str(out), "--overwrite", "--library", "work")


def test_publish_says_what_was_sent_and_what_waits(tmp_path: Path, postgres_url: str) -> None:
    shell = filled(tmp_path)
    said = shell.invoke("publish", postgres_url, "--origin", "mine")
    assert said.exit_code == 0, said.output
    assert "published as mine in " in said.stdout
    assert "2 documents: 2 added, 0 updated, 0 deleted, 0 unchanged" in said.stdout
    assert "2 passages wait for their embedding" in said.stderr
    again = json.loads(shell.run("publish", postgres_url, "--origin", "mine", "--json"))
    assert again["documents"] == {"added": 0, "updated": 0, "deleted": 0, "unchanged": 2}


def test_publish_takes_libraries(tmp_path: Path, postgres_url: str) -> None:
    shell = filled(tmp_path)
    shell.run("publish", postgres_url, "--origin", "work", "--library", "work")
    assert {row["library"] for row in published(postgres_url, "work")["documents"]} == {"work"}
    refused = shell.invoke("publish", postgres_url, "--library", "wrok")
    assert refused.exit_code == 1 and "did you mean 'work'" in str(refused.exception)


def test_grant_lets_a_role_read_or_publish_or_do_nothing(tmp_path: Path, postgres_url: str) -> None:
    shell = filled(tmp_path)
    rows(postgres_url, "CREATE ROLE cli_reader LOGIN")
    try:
        shell.run("publish", postgres_url, "--origin", "mine")
        given = "SELECT origin, publishes FROM mcpvectordb.grants WHERE role = 'cli_reader'"
        assert "cli_reader may read: mine" in shell.run(
            "grant", postgres_url, "cli_reader", "--origin", "mine"
        )
        assert rows(postgres_url, given) == [(0, False)]
        assert "may read and publish: all origins" in shell.run(
            "grant", postgres_url, "cli_reader", "--publish"
        )
        assert rows(postgres_url, given) == [(None, True)]
        assert "cli_reader may do nothing" in shell.run(
            "grant", postgres_url, "cli_reader", "--none"
        )
        assert rows(postgres_url, given) == []
        assert "no role 'ghost'" in str(shell.invoke("grant", postgres_url, "ghost").exception)
    finally:
        rows(postgres_url, "DROP OWNED BY cli_reader")
        rows(postgres_url, "DROP ROLE cli_reader")


@pytest.mark.parametrize("command", ["publish", "grant"])
def test_a_server_that_cannot_be_reached_ends_the_command_without_the_password(
    tmp_path: Path, command: str
) -> None:
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install '.[test]'")
    role = ("someone",) if command == "grant" else ()
    done = filled(tmp_path).invoke(command, "postgresql://me:secret@127.0.0.1:9/db", *role)
    assert done.exit_code == 1 and "cannot be reached" in str(done.exception)
    assert "secret" not in f"{done.output}{done.exception}"
