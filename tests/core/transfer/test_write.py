"""Imports as a whole: again, killed, at the same time, and what was changed on both sides."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import apsw
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mcpvectordb import Database, Progress
from mcpvectordb.transfer.items import MOST_REASONS, SKIPPED_ITEMS, ImportReport
from tests.core.transfer.conftest import execute
from tests.support import ROOT, Letters, scaled


def memories(path: Path, texts: dict[str, str]) -> Path:
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
            "VALUES (?, ?, 'a,b', 1.6e9, 1.7e9) "
            "ON CONFLICT (content_hash) DO UPDATE SET content = excluded.content",
            texts.items(),
        )
    sql.close()
    return path


def test_a_dry_run_says_the_same_and_stores_nothing(db: Database, tmp_path: Path) -> None:
    source = memories(tmp_path / "m.db", {"a": "Tea is hot", "b": " ", "c": "Ice is cold"})
    plan = db.import_from(source, dry_run=True)
    assert db.memories.count() == 0
    done = db.import_from(source)
    assert (plan.added, plan.skipped, plan.dry_run) == (done.added, done.skipped, True)
    assert (done.added, done.skipped) == ({"memories": 2}, {"it has no text": 1})
    assert db.import_from(source, dry_run=True).known == {"memories": 2}
    known = {"m.db", "notes.db", "notes.db-wal", "notes.db-shm"}
    assert {path.name for path in tmp_path.iterdir()} <= known


def test_a_memory_is_known_by_its_text_time_and_thread_too(db: Database, tmp_path: Path) -> None:
    source = memories(tmp_path / "m.db", {"a": "Tea is hot", "b": "Tea is hot"})
    done = db.import_from(source)
    assert (done.added, done.known) == ({"memories": 1}, {"memories": 1})
    [memory] = db.memories.browse()
    db.memories.update(memory.id, metadata={})  # without its mark
    assert db.import_from(source).known == {"memories": 2}
    moved = source.rename(tmp_path / "elsewhere.db")
    assert db.import_from(moved).known == {"memories": 2}


def test_what_changed_on_both_sides_stays_and_is_said(db: Database, tmp_path: Path) -> None:
    source = memories(tmp_path / "m.db", {"a": "Tea is hot"})
    db.import_from(source)
    [tea] = db.memories.browse()
    db.memories.update(tea.id, text="Tea is warm")
    memories(source, {"a": "Tea is very hot"})
    [reason] = db.import_from(source).skipped
    assert "changed both here and in its source" in reason
    assert db.memories.get([tea.id])[0].text == "Tea is warm"


def shop(path: Path, columns: str = "", values: str = "") -> Path:
    """A database with a table of one tea."""
    execute(
        path,
        f"CREATE TABLE tea (id INTEGER PRIMARY KEY, note{columns});"
        f"INSERT INTO tea VALUES (1, 'x'{values})",
    )
    return path


def test_a_document_of_the_same_name_is_not_overwritten(db: Database, tmp_path: Path) -> None:
    db.documents.ingest_text("My own text", source="tea/1", library="shop")
    done = db.import_from(shop(tmp_path / "shop.db"), table="tea", text=["note"])
    assert (done.added, list(done.skipped.values())) == ({}, [1])
    assert "choose another library" in next(iter(done.skipped))
    [document] = db.documents.browse()
    assert db.documents.text(document.id) == "My own text"


def test_a_vector_of_the_same_name_is_not_overwritten(db: Database, tmp_path: Path) -> None:
    db.vectors.add("a", [9.0, 9.0], store="rows")
    rows = [{"id": "a", "embedding": [1, 2]}, {"id": "b", "embedding": [3, 4.5]}]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = db.import_from(path)
    assert (done.added, len(done.skipped)) == ({"vectors": 1}, 1)
    assert db.vectors.get("a", store="rows").embedding.tolist() == [9.0, 9.0]
    path.write_text(json.dumps({"id": "b", "embedding": [5, 6]}))
    assert db.import_from(path).changed == {"vectors": 1}
    assert db.vectors.get("b", store="rows").embedding.tolist() == [5.0, 6.0]


def test_an_item_that_cannot_be_stored_is_skipped_with_the_reason(
    db: Database, tmp_path: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [{"id": "b", "text": "Milk"}, {"id": "a", "text": "Tea", "note": "x" * 1_000_001}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = db.import_from(path)
    assert done.added == {"documents": 1}
    [(id, reason)] = done.skipped_items
    assert id == "a" and "at most 1,000,000 are allowed" in reason


def test_metadata_that_is_called_as_the_mark_is_kept(db: Database, tmp_path: Path) -> None:
    source = shop(tmp_path / "shop.db", ", imported", ", 'from China'")
    db.import_from(source, table="tea", text=["note"])
    [document] = db.documents.browse()
    assert document.metadata["imported_"] == "from China"
    assert document.metadata["imported"]["kind"] == "sqlite"


def test_progress_is_told(db: Database, tmp_path: Path) -> None:
    seen: list[Progress] = []
    source = memories(tmp_path / "m.db", {str(n): f"Note {n}" for n in range(600)})
    db.import_from(source, progress=seen.append)
    steps = [(each.done, each.total) for each in seen if each.step == "import"]
    assert steps == [(256, 600), (512, 600), (600, 600)]


def test_the_report_of_a_source_with_very_many_faults_is_short() -> None:
    report = ImportReport("jsonl", "a.jsonl", dry_run=False)
    for number in range(1_200):
        report.skip(str(number), f"reason {number}")
        report.leave_unread(f"line {number}")
    done = report.finished()
    assert len(done.skipped_items) == SKIPPED_ITEMS and sum(done.skipped.values()) == 1_200
    assert len(done.skipped) == MOST_REASONS + 1 and done.skipped["for other reasons"] == 1_150
    assert done.unread[-1] == "200 other parts" and len(done.unread) == SKIPPED_ITEMS + 1


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
        assert (done.pending, db.memories.count()) == (0, 700)
        assert not db.check()
        [left] = tmp_path.glob(".mcpvectordb-import-*")
        os.utime(left, (0, 0))
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


HASHES = st.sampled_from("abcd")
TEXTS = st.sampled_from(["tea", "coffee", "milk and sugar", "# Heading\n\nwater"])


class ImportMachine(RuleBasedStateMachine):
    """The source changes, memories here change, and imports bring one to the other: what is here
    after an import is the source, except for what was changed or deleted here.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.source = memories(Path(self.folder.name) / "m.db", {})
        self.db = Database(":memory:", embedder=Letters())
        self.there: dict[str, str] = {}
        self.imported: dict[str, str] = {}  # as the last import brought it
        self.here: dict[str, str] = {}
        self.ids: dict[str, int] = {}
        self.changes = 0

    @rule(hash=HASHES, text=TEXTS)
    def change_there(self, hash: str, text: str) -> None:
        self.there[hash] = f"{hash}: {text}"
        memories(self.source, {hash: self.there[hash]})

    @rule(hash=HASHES)
    def delete_there(self, hash: str) -> None:
        self.there.pop(hash, None)
        execute(self.source, f"DELETE FROM memories WHERE content_hash = '{hash}'")

    @rule(hash=HASHES)
    def change_here(self, hash: str) -> None:
        if hash in self.here:
            self.changes += 1
            self.here[hash] = f"my own {self.changes}"
            self.db.memories.update(self.ids[hash], text=self.here[hash])

    @rule(hash=HASHES)
    def delete_here(self, hash: str) -> None:
        if hash in self.here:
            del self.here[hash], self.imported[hash]
            self.db.memories.delete([self.ids.pop(hash)])

    @rule()
    def import_all(self) -> None:
        done = self.db.import_from(self.source)
        expected = dict.fromkeys(("added", "changed", "known", "skipped"), 0)
        for hash, text in self.there.items():
            if hash not in self.here:
                outcome = "added"
            elif text == self.imported[hash]:
                outcome = "known"
            else:
                outcome = "changed" if self.here[hash] == self.imported[hash] else "skipped"
            expected[outcome] += 1
            if outcome in ("added", "changed"):
                self.here[hash] = self.imported[hash] = text
        assert {name: sum(getattr(done, name).values()) for name in expected} == expected
        self.ids = {
            each.metadata["imported"]["id"]: each.id
            for each in self.db.memories.browse(limit=100)
            if each.metadata
        }

    @invariant()
    def what_is_here_is_what_is_expected(self) -> None:
        texts = sorted(each.text for each in self.db.memories.browse(limit=100))
        assert texts == sorted(self.here.values())

    def teardown(self) -> None:
        assert not self.db.check()
        self.db.close()
        self.folder.cleanup()


TestImportMachine = pytest.mark.long(ImportMachine.TestCase)
TestImportMachine.settings = settings(max_examples=scaled(20), stateful_step_count=15)
