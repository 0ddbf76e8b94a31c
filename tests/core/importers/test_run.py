"""Imports as a whole: again, killed, at the same time, and what was changed on both sides."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import apsw
import pytest

from mcpvectordb import Database, Progress, UnsupportedFormat
from tests.core.importers.conftest import execute
from tests.support import ROOT, Letters

TIME = "2024-05-06T07:08:09.000000+00:00"


def memories(path: Path, texts: dict[str, str], *, updated: float = 1.7e9) -> Path:
    """A database of mcp-memory-service with these memories, by hash."""
    sql = apsw.Connection(str(path))
    sql.execute(
        "CREATE TABLE IF NOT EXISTS memories (id INTEGER PRIMARY KEY, content_hash TEXT UNIQUE, "
        "content TEXT, tags TEXT, memory_type TEXT, metadata TEXT, created_at REAL, "
        "updated_at REAL, deleted_at REAL)"
    )
    with sql:
        sql.executemany(
            "INSERT INTO memories (content_hash, content, tags, created_at, updated_at) "
            "VALUES (?, ?, 'a,b', 1.6e9, ?) "
            "ON CONFLICT (content_hash) DO UPDATE SET content = excluded.content",
            ((hash, text, updated) for hash, text in texts.items()),
        )
    sql.close()
    return path


def test_a_dry_run_says_the_same_and_stores_nothing(db: Database, tmp_path: Path) -> None:
    source = memories(tmp_path / "m.db", {"a": "Tea is hot", "b": " ", "c": "Ice is cold"})
    plan = db.import_from(source, dry_run=True)
    assert plan.dry_run
    assert db.memories.count() == 0
    done = db.import_from(source)
    assert (plan.added, plan.skipped) == (done.added, done.skipped)
    assert (done.added, done.skipped) == ({"memories": 2}, {"it has no text": 1})


def test_times_are_those_of_the_source(db: Database, tmp_path: Path) -> None:
    db.import_from(memories(tmp_path / "m.db", {"a": "Tea is hot"}))
    [memory] = db.memories.browse()
    assert memory.created_at == "2020-09-13T12:26:40.000000+00:00"
    assert memory.updated_at == "2023-11-14T22:13:20.000000+00:00"


def test_equal_texts_stay_apart(db: Database, tmp_path: Path) -> None:
    done = db.import_from(memories(tmp_path / "m.db", {"a": "Tea is hot", "b": "Tea is hot"}))
    # the same thread, source, time and text: one of them is enough
    assert (done.added, done.known) == ({"memories": 1}, {"memories": 1})


def test_what_changed_here_is_kept_and_what_changed_there_too_is_said(
    db: Database, tmp_path: Path
) -> None:
    source = tmp_path / "m.db"
    db.import_from(memories(source, {"a": "Tea is hot", "b": "Ice is cold"}))
    [tea, ice] = sorted(db.memories.browse(), key=lambda each: each.id)
    db.memories.update(tea.id, text="Tea is warm")
    done = db.import_from(source)
    assert done.known == {"memories": 2}
    memories(source, {"a": "Tea is very hot", "b": "Ice is very cold"})
    done = db.import_from(source)
    assert (done.changed, list(done.skipped.values())) == ({"memories": 1}, [1])
    assert "changed both here and in its source" in next(iter(done.skipped))
    assert {each.text for each in db.memories.browse()} == {"Tea is warm", "Ice is very cold"}
    [now] = db.memories.get([ice.id])
    assert now.text == "Ice is very cold"
    assert db.import_from(source).known == {"memories": 1}


def test_a_memory_whose_mark_was_removed_is_known_by_its_text(db: Database, tmp_path: Path) -> None:
    source = memories(tmp_path / "m.db", {"a": "Tea is hot"})
    db.import_from(source)
    [memory] = db.memories.browse()
    db.memories.update(memory.id, metadata={})
    assert db.import_from(source).known == {"memories": 1}


def test_a_document_of_the_same_name_is_not_overwritten(db: Database, tmp_path: Path) -> None:
    db.documents.ingest_text("My own text", source="tea/1", library="shop")
    execute(
        tmp_path / "shop.db",
        "CREATE TABLE tea (id INTEGER PRIMARY KEY, note); INSERT INTO tea VALUES (1, 'x')",
    )
    done = db.import_from(tmp_path / "shop.db", table="tea", text=["note"])
    assert (done.added, list(done.skipped.values())) == ({}, [1])
    assert "choose another library" in next(iter(done.skipped))
    [document] = db.documents.browse()
    assert db.documents.text(document.id) == "My own text"


def test_a_source_that_moved_is_known(db: Database, tmp_path: Path) -> None:
    source = memories(tmp_path / "m.db", {"a": "Tea is hot"})
    db.import_from(source)
    moved = source.rename(tmp_path / "elsewhere.db")
    assert db.import_from(moved).known == {"memories": 1}


def test_metadata_that_is_called_as_the_mark_is_kept(db: Database, tmp_path: Path) -> None:
    execute(
        tmp_path / "shop.db",
        "CREATE TABLE tea (id INTEGER PRIMARY KEY, note, imported);"
        "INSERT INTO tea VALUES (1, 'x', 'from China')",
    )
    db.import_from(tmp_path / "shop.db", table="tea", text=["note"])
    [document] = db.documents.browse()
    assert document.metadata["imported_"] == "from China"
    assert document.metadata["imported"]["kind"] == "sqlite"


def test_progress_is_told(db: Database, tmp_path: Path) -> None:
    seen: list[Progress] = []
    source = memories(tmp_path / "m.db", {str(n): f"Note {n}" for n in range(600)})
    db.import_from(source, progress=seen.append)
    steps = [(each.done, each.total) for each in seen if each.step == "import"]
    assert steps == [(256, 600), (512, 600), (600, 600)]


def test_what_is_no_source_is_said(db: Database, tmp_path: Path) -> None:
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    with pytest.raises(UnsupportedFormat, match="none of the sources that can be recognised"):
        db.import_from(tmp_path / "picture.png")
    with pytest.raises(
        UnsupportedFormat, match=r"mcpvectordb itself: export it .* and import that"
    ):
        db.import_from(db.path)
    with pytest.raises(OSError, match="does not exist"):
        db.import_from(tmp_path / "missing.db")


def test_nothing_is_left_beside_the_database(db: Database, tmp_path: Path) -> None:
    source = memories(tmp_path / "m.db", {"a": "Tea is hot"})
    db.import_from(source)
    known = {"m.db", "notes.db", "notes.db-wal", "notes.db-shm"}
    assert {path.name for path in tmp_path.iterdir()} <= known


IMPORT = """
import sys
from mcpvectordb import Database
from tests.support import Letters
with Database(sys.argv[1], embedder=Letters()) as db:
    print("ready", flush=True)
    done = db.import_from(sys.argv[2], progress=lambda each: print(each.done, flush=True))
"""


def test_a_killed_import_is_completed_by_the_next_one(tmp_path: Path) -> None:
    source = memories(tmp_path / "m.db", {str(n): f"Note {n}" for n in range(700)})
    command = [sys.executable, "-c", IMPORT, str(tmp_path / "notes.db"), str(source)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == "256":
                process.kill()
                break
    with Database(tmp_path / "notes.db", embedder=Letters()) as db:
        first = db.memories.count()
        assert 0 < first < 700
        done = db.import_from(source)
        assert (done.known["memories"], done.added["memories"]) == (first, 700 - first)
        assert done.pending == 0
        assert db.memories.count() == 700
        assert not db.check()
    [left] = tmp_path.glob(".mcpvectordb-import-*")
    os.utime(left, (0, 0))
    with Database(tmp_path / "notes.db", embedder=Letters()) as db:
        db.import_from(source, dry_run=True)
    assert not left.exists()


def test_two_imports_at_once_store_everything_once(tmp_path: Path) -> None:
    source = memories(tmp_path / "m.db", {str(n): f"Note {n}" for n in range(800)})
    path, added = tmp_path / "notes.db", []

    def run() -> None:
        with Database(path, embedder=Letters()) as mine:
            done = mine.import_from(source)
            added.append(done.added.get("memories", 0))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with Database(path, embedder=Letters()) as db:
        assert (sum(added), db.memories.count()) == (800, 800)
        assert not db.check()
