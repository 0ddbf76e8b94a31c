"""Files of every earlier format can be opened."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mcpvectordb import Config, Database
from mcpvectordb.storage.file import File
from mcpvectordb.storage.schema import (
    MIGRATIONS,
    RECORDED,
    VERSION,
    expected_rows,
    made_rows,
    recorded_rows,
)
from tests.support import Letters

FIXTURES = sorted((Path(__file__).parents[2] / "fixtures").glob("version-*.db"))


def test_migrations_are_numbered_without_gap() -> None:
    assert [int(each.name.split("_")[0]) for each in MIGRATIONS] == list(range(1, VERSION + 1))


def test_the_recorded_schema_is_the_one_that_migrations_make(
    request: pytest.FixtureRequest,
) -> None:
    made = made_rows(VERSION, frozenset(), frozenset())
    if request.config.getoption("--renew"):
        rows = sorted(made, key=lambda row: tuple(map(str, row)))
        RECORDED.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", "utf-8")
    assert recorded_rows() == made, "a migration is new: run this test with --renew"


def test_tables_and_indexes_that_come_and_go_are_expected_as_they_are_made() -> None:
    tables, keys = frozenset({("document_meaning_3", 8)}), frozenset({"a.b", "c"})
    made = made_rows(VERSION, tables, keys)
    assert expected_rows(VERSION, made) == made
    for row in made:
        if not str(row[1]).startswith("context_key_"):  # these are there or not
            assert expected_rows(VERSION, made - {row}) != made - {row}
        other = (*row[:3], f"{row[3]} ")
        assert expected_rows(VERSION, made - {row} | {other}) != made - {row} | {other}


def test_there_is_a_fixture_of_version_1() -> None:
    assert FIXTURES and FIXTURES[0].name == "version-1.db"


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.stem)
def test_an_old_file_opens_with_all_of_its_content(fixture: Path, path: Path) -> None:
    shutil.copy(fixture, path)
    with Database(path, embedder=Letters()) as db:
        assert db.stats().format == VERSION and db.check() == []
        texts = {each.source: db.documents.text(each.id) for each in db.documents.browse()}
        assert texts == {
            "boats.md": "---\nauthor: Ann\n---\n# Boats\n\n## Sails\n\nSails catch the wind.\n",
            "odd.txt": "数据库 and naïve café\r\n\x00",
            "waiting.txt": "still waiting",
        }
        boats = db.documents.browse(library="work")[0]
        assert (boats.title, boats.metadata) == ("Boats", {"author": "Ann", "year": 2026})
        assert db.documents.search("sails wind", library="work")[0].item.document == boats
        assert db.documents.search("据库", mode="text")[0].item.document.source == "odd.txt"
        assert db.stats().pending == 1 and db.embed_pending() == 1
        assert db.documents.ingest_text("new", source="new").status == "indexed"
    with Database(path, embedder=Letters()) as db:
        assert db.check() == []


def test_memories_of_an_old_file_hold_and_can_be_replaced(path: Path) -> None:
    shutil.copy(FIXTURES[0].with_name("version-12.db"), path)
    with Database(path, embedder=Letters()) as db:
        [old] = db.memories
        assert (old.text, old.tags, old.provenance) == ("Sail on Monday.", ("boats",), "person")
        assert (old.validity, old.valid_from, old.valid_to) == ("", None, None)
        new = db.memories.add("plans", "user", "Sail on Tuesday.", replaces=old.id)
        assert [hit.item.id for hit in db.memories.search("sail")] == [new.id]
        assert db.check() == []


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.stem)
def test_an_old_file_that_cannot_be_migrated_is_refused(fixture: Path, path: Path) -> None:
    """Read-only media cannot be migrated; today's queries need today's tables."""
    shutil.copy(fixture, path)
    before = path.read_bytes()
    if fixture.stem == f"version-{VERSION}":
        with Database(path, embedder=Letters(), config=Config(read_only=True)) as db:
            assert db.documents.count() == 3
    else:
        with pytest.raises(PermissionError, match="format"):
            Database(path, config=Config(read_only=True))
    assert path.read_bytes() == before


def test_a_migration_is_applied_completely_or_not_at_all(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copy(FIXTURES[0], path)
    broken = tmp_path / "999_broken.sql"
    broken.write_text("CREATE TABLE half (x TEXT) STRICT; SELECT no_such_function();")
    monkeypatch.setattr("mcpvectordb.storage.schema.MIGRATIONS", (*MIGRATIONS, broken))
    monkeypatch.setattr("mcpvectordb.storage.schema.VERSION", VERSION + 1)
    with pytest.raises(Exception, match="no_such_function"):
        File(path)
    monkeypatch.undo()
    with Database(path, embedder=Letters()) as db:
        assert db.documents.count() == 3 and db.check() == []
