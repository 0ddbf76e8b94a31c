from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from mcpvectordb import Database
from mcpvectordb.records import Progress
from tests.support import ROOT, Letters

# Ingests a folder and waits to be killed when some of it is stored.
PROGRAM = """
import sys
from mcpvectordb import Database
from mcpvectordb.index.tuning import Tuning
from tests.support import Letters

def progressed(progress):
    if progress.done == 3:
        print("some", flush=True)
        sys.stdin.read()

db = Database(sys.argv[1], embedder=Letters())
db._store.tuning = Tuning(documents_per_write=1)
db.documents.ingest_folder(
    sys.argv[2], library="my notes", metadata={"year": 2026}, pattern="*.md", progress=progressed
)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "the notes"
    folder.mkdir()
    for number in range(8):
        (folder / f"{number}.md").write_text(f"note number {number}")
    return folder


def notes(path: Path) -> tuple[str, ...]:
    with Database(path, embedder=Letters()) as db:
        return db.stats().notes


def test_an_ingest_that_was_killed_is_reported_until_it_was_finished(
    path: Path, folder: Path
) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(path), str(folder)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin and child.stdout
    assert child.stdout.readline() == "some\n"
    assert notes(path) == ()  # it goes on in its process
    child.kill()
    child.wait()
    child.stdin.close()
    child.stdout.close()
    (note,) = notes(path)
    assert f"{folder} into the library my notes was cut off: 3 of 8 files are stored" in note
    command = shlex.split(note.split("`")[1])
    assert command == [
        *("mcpvectordb", "ingest", str(folder), "--library", "my notes"),
        *("--pattern", "*.md", "--metadata", "year=2026"),
    ]
    with Database(path, embedder=Letters()) as db:
        assert db.check() == []
        copied = db.copy_to(path.with_name("copy.db"))
        db.documents.ingest_folder(folder, library="my notes", pattern="*.md")
        assert db.stats().notes == ()
    assert notes(copied) == ()  # it does not go on in a copy


def test_an_ingest_that_fails_is_reported_until_it_was_finished(path: Path, folder: Path) -> None:
    def fail(progress: Progress) -> None:
        raise KeyboardInterrupt

    with Database(path, embedder=Letters()) as db:
        with pytest.raises(KeyboardInterrupt):
            db.documents.ingest_folder(folder, progress=fail)
        assert "0 of 8 files" in db.stats().notes[0]
        db.documents.ingest_folder(folder)
        assert db.stats().notes == ()


def test_a_sync_that_was_cut_off_goes_on_by_sync(path: Path, folder: Path) -> None:
    def fail(progress: Progress) -> None:
        raise KeyboardInterrupt

    with Database(path, embedder=Letters()) as db:
        db.documents.add_library("l", folder)
        with pytest.raises(KeyboardInterrupt):
            db.documents.sync("l", progress=fail)
        assert "`mcpvectordb sync l` goes on" in db.stats().notes[0]


@pytest.mark.parametrize("value", ["[]", "{}", '{"leased": "x"}', '"x"'])
def test_a_mark_that_was_never_written_like_that_is_no_error(path: Path, value: str) -> None:
    with Database(path, embedder=Letters()) as db:
        with db._file.writing() as sql:
            sql.execute("INSERT INTO settings VALUES ('ingest:x', ?)", (value,))
        assert db.stats().notes == ()
