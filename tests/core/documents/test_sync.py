from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pymupdf
import pytest
from numpy.typing import NDArray

from mcpvectordb import (
    Config,
    Database,
    Document,
    EmbeddingFailed,
    InvalidInput,
    NotFound,
    Progress,
    ReadOnly,
    Refused,
    Synced,
    Unreadable,
)
from mcpvectordb.documents.sync import NEEDS_OCR
from mcpvectordb.index.tuning import Tuning
from mcpvectordb.ingest.ocr import Tesseract
from tests.core.ingest.test_ocr import scan
from tests.support import ROOT, Letters, python
from tests.support_files import KEYS, TOKENS

EXECUTABLE = b"\x7fELF\2" + b"\0" * 20
BROKEN_PDF = b"%PDF-1.7\nnot really"


class Folder:
    """A folder, and the library that follows it."""

    def __init__(self, db: Database, root: Path) -> None:
        self.db, self.root = db, root

    def write(self, path: str, content: str | bytes = "words") -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def sync(self) -> Synced:
        (done,) = self.db.documents.sync("notes", embed=False)
        return done

    def documents(self) -> dict[str, Document]:
        return {
            Path(each.source).relative_to(self.root).as_posix(): each
            for each in self.db.documents.browse(library="notes", limit=10_000)
        }

    def texts(self) -> dict[str, str]:
        return {path: self.db.documents.text(each.id) for path, each in self.documents().items()}


@pytest.fixture
def folder(db: Database, tmp_path: Path) -> Folder:
    root = tmp_path / "notes"
    root.mkdir()
    db.documents.add_library("notes", root)
    return Folder(db, root)


def counts(done: Synced) -> dict[str, int]:
    """All that was done, without what was not."""
    numbers = {
        name: getattr(done, name)
        for name in ("indexed", "replaced", "moved", "removed", "unchanged")
    }
    return {name: number for name, number in numbers.items() if number}


@contextlib.contextmanager
def same_time(file: Path) -> Iterator[None]:
    """What happens to a file inside leaves no trace in its modification time."""
    info = file.stat()
    yield
    os.utime(file, ns=(info.st_atime_ns, info.st_mtime_ns))


def test_a_file_is_opened_only_if_its_size_or_time_is_another(folder: Folder) -> None:
    file = folder.write("a.md", "one")
    folder.sync()
    before = folder.documents()["a.md"]
    for touched in (False, True):  # one that was touched is hashed once, and not read again
        if touched:
            os.utime(file, (1, 1))
            assert counts(folder.sync()) == {"unchanged": 1}
            after = folder.documents()["a.md"]
            assert after.id == before.id and after.modified.startswith("1970-01-01")
        with same_time(file):
            file.write_text("two")
        assert counts(folder.sync()) == {"unchanged": 1} and folder.texts() == {"a.md": "one"}
        with same_time(file):
            file.write_text("one")
    with same_time(file):
        file.write_text("three")
    assert counts(folder.sync()) == {"replaced": 1} and folder.texts() == {"a.md": "three"}


@pytest.mark.parametrize("digits", [0, 1])
def test_a_file_is_not_read_before_a_later_change_must_get_another_time(
    folder: Folder, digits: int
) -> None:
    folder.db._store.tuning = Tuning(mtime_tick_ns=400_000_000)
    file = folder.write("a.md")
    folder.db.documents.ingest_text("the file is made by now", source="x")
    now = time.time_ns() // 10**9 * 10**9 if digits == 0 else time.time_ns() | 1
    os.utime(file, ns=(now, now))
    folder.sync()
    assert time.time_ns() - now >= (2_000_000_000, 400_000_000)[digits]


def test_a_file_that_is_no_document_is_skipped_counted_and_not_read_again(folder: Folder) -> None:
    image, empty = folder.write("a.txt", EXECUTABLE), folder.write("empty.md", " \n")
    folder.write(".hidden.md")
    folder.write("x.log")
    folder.write(".gitignore", "*.log\n")
    expected = {"of no readable type": 1, "without text": 1, "hidden": 1, "ignored": 1}
    for content in (EXECUTABLE, b"a" * len(EXECUTABLE)):
        done = folder.sync()
        assert done.skipped == expected and not counts(done) and not done.failures
        assert done.skipped_paths == (
            (str(folder.root / ".hidden.md"), "hidden"),
            (str(image), "of no readable type"),
            (str(empty), "without text"),
            (str(folder.root / "x.log"), "ignored"),
        )
        with same_time(image):
            image.write_bytes(content)
    empty.write_text("not empty")
    assert counts(folder.sync()) == {"indexed": 1}
    image.write_text("a text after all")
    assert folder.sync().skipped == {"hidden": 1, "ignored": 1}
    assert folder.texts() == {"a.txt": "a text after all", "empty.md": "not empty"}


def test_a_file_that_another_version_of_the_program_skipped_is_read_again(folder: Folder) -> None:
    image = folder.write("a.txt", EXECUTABLE)
    folder.sync()
    with same_time(image):
        image.write_bytes(b"a" * len(EXECUTABLE))
    other = apsw.Connection(str(folder.db.path))
    other.execute("UPDATE library_skipped SET version = 'older'")
    assert counts(folder.sync()) == {"indexed": 1}
    assert other.execute("SELECT count(*) FROM library_skipped").get == 0
    other.close()


def test_a_file_that_was_skipped_for_lack_of_ocr_is_read_once_that_is_there(folder: Folder) -> None:
    if Tesseract.found(Config()) is None:
        pytest.skip("no Tesseract")
    document = pymupdf.open()
    document.new_page(width=595, height=300).insert_text((40, 100), "the lazy dog", fontsize=16)
    folder.write("a.png", document[0].get_pixmap(dpi=200).tobytes("png"))
    with Database(folder.db.path, config=Config(ocr_languages=""), embedder=Letters()) as without:
        for _ in range(2):
            [done] = without.documents.sync(embed=False)
            assert done.skipped == {NEEDS_OCR: 1}
    assert counts(folder.sync()) == {"indexed": 1}
    assert folder.texts() == {"a.png": "the lazy dog\n"}
    assert counts(folder.sync()) == {"unchanged": 1}


def test_pages_that_were_not_read_for_lack_of_ocr_are_read_once_that_is_there(
    folder: Folder,
) -> None:
    if Tesseract.found(Config()) is None:
        pytest.skip("no Tesseract")
    words = "Scanned words of a page"
    paper = folder.write("a.pdf", scan(None, words))
    with Database(folder.db.path, config=Config(ocr_languages=""), embedder=Letters()) as without:
        [done] = without.documents.sync(embed=False)
        assert done.indexed == 1 and "1 of 2 pages have no text" in done.partial[0][1]
        assert without.documents.browse()[0].metadata["unread_pages"] == [2]
        [again] = without.documents.sync(embed=False)
        assert again.unchanged == 1
        alone = without.documents.ingest(paper, library="other", embed=False)
        assert without.documents.ingest(paper, library="other", embed=False).status == "unchanged"
    assert counts(folder.sync()) == {"replaced": 1}
    assert counts(folder.sync()) == {"unchanged": 1}
    done_alone = folder.db.documents.ingest(paper, library="other", embed=False)
    assert done_alone.status == "replaced" and alone.document.chunks < done_alone.document.chunks
    for document in folder.db.documents.browse():
        assert words in folder.db.documents.text(document.id)
        assert "unread_pages" not in document.metadata


def test_secrets_are_skipped_counted_and_ingested_only_by_name(folder: Folder) -> None:
    folder.write("a.txt")
    named, key = folder.write("credentials.json", '{"a": "b"}'), folder.write("key.txt", KEYS[0])
    token = folder.write("t.txt", TOKENS[1])
    for expected in ({"indexed": 1}, {"unchanged": 1}):
        done = folder.sync()
        assert counts(done) == expected and done.skipped == {"a secret": 3} and not done.failures
    done = folder.db.documents.ingest_folder(folder.root, library="other", embed=False)
    assert counts(done) == {"indexed": 1} and done.skipped == {"a secret": 3}
    for path in (named, key, token):
        folder.db.documents.ingest(path, library="notes", embed=False)
    key.write_bytes(KEYS[0] + b"changed")
    done = folder.sync()
    assert not done.removed and not done.failures and done.skipped == {"a secret": 3}
    assert len(folder.documents()) == 4


def test_a_skipped_file_that_vanished_is_forgotten(folder: Folder) -> None:
    folder.write("a.png", EXECUTABLE).rename(folder.write("b.png", EXECUTABLE))
    folder.sync()
    (folder.root / "b.png").unlink()
    assert folder.sync().skipped == {}
    other = apsw.Connection(str(folder.db.path))
    assert other.execute("SELECT count(*) FROM library_skipped").get == 0
    other.close()


def test_a_skipped_file_that_was_ingested_by_hand_stays(folder: Folder) -> None:
    file = folder.write("a.txt", EXECUTABLE)
    folder.sync()
    file.write_text("a text after all")
    folder.db.documents.ingest(file, library="notes")
    for _ in range(2):
        assert counts(folder.sync()) == {"unchanged": 1}
        assert folder.texts() == {"a.txt": "a text after all"}


def test_a_file_that_fails_is_reported_once_and_does_not_stop_the_others(folder: Folder) -> None:
    folder.write("a.md")
    bad = folder.write("b.pdf", BROKEN_PDF)
    folder.write("c.md", "c")
    for content in (BROKEN_PDF, BROKEN_PDF + b"\n"):  # and again when it is another one
        bad.write_bytes(content)
        ((path, message),) = folder.sync().failures
        assert path == str(bad) and "b.pdf" in message
        known = folder.sync()
        assert not known.failures and counts(known) == {"unchanged": 2}
        assert known.skipped == {"encrypted or damaged": 1}
    assert set(folder.texts()) == {"a.md", "c.md"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (EXECUTABLE, "a program"),
        (b" \n ", "No text"),
        (BROKEN_PDF, "PDF"),
        (b"x" * 2001, "2001 bytes"),
    ],
)
def test_the_old_version_stays_when_the_new_one_cannot_be_read(
    path: Path, tmp_path: Path, content: bytes, message: str
) -> None:
    root = tmp_path / "notes"
    root.mkdir()
    with Database(path, embedder=Letters(), config=Config(max_source_bytes=2000)) as db:
        db.documents.add_library("notes", root)
        folder = Folder(db, root)
        file = folder.write("a.md", "precious")
        folder.sync()
        before = folder.documents()
        file.write_bytes(content)
        done = folder.sync()
        ((failed, why),) = done.failures
        assert failed == str(file)
        assert message in why
        assert "the previous version is kept" in why
        assert not done.skipped
        assert folder.documents() == before and folder.texts() == {"a.md": "precious"}
        file.write_text("readable again")
        assert counts(folder.sync()) == {"replaced": 1}


def test_a_renamed_file_keeps_its_id_and_gets_the_title_of_its_new_name(
    folder: Folder,
) -> None:
    file = folder.write("pear.txt", "green")
    document = folder.db.documents.ingest(
        file, library="notes", metadata={"kind": "fruit"}
    ).document
    folder.sync()
    file.rename(folder.root / "plum.txt")
    assert counts(folder.sync()) == {"moved": 1}
    after = folder.documents()["plum.txt"]
    assert (after.id, after.created_at, after.metadata) == (
        document.id,
        document.created_at,
        {"kind": "fruit"},
    )
    assert "plum" in after.title and "pear" in document.title
    assert [hit.item.document.id for hit in folder.db.documents.search("plum", mode="text")] == [
        document.id
    ]
    assert not folder.db.documents.search("pear", mode="text").hits
    assert folder.db.check() == []


def test_a_text_that_is_renamed_to_an_unknown_type_stays(folder: Folder) -> None:
    folder.write("a.md", "apple").rename(folder.root / "b.md")
    folder.sync()
    (folder.root / "b.md").rename(folder.root / "b.unheard-of")
    done = folder.sync()
    assert counts(done) == {"moved": 1} and not done.skipped


def test_the_pattern_and_ignore_list_of_the_library_select_files(folder: Folder) -> None:
    for path in ("a.md", "b.txt", "d/c.md", "d/drafts/e.md"):
        folder.write(path, path)
    folder.db.documents.add_library("notes", folder.root, pattern="**/*.md", ignore=["drafts/"])
    assert counts(folder.sync()) == {"indexed": 2} and set(folder.texts()) == {"a.md", "d/c.md"}
    folder.db.documents.add_library("notes", folder.root, pattern="*.{md,txt}")
    assert counts(folder.sync()) == {"indexed": 1, "removed": 1, "unchanged": 1}


def test_a_missing_folder_is_refused_and_nothing_is_lost(folder: Folder, tmp_path: Path) -> None:
    folder.write("a.md")
    folder.sync()
    folder.root.rename(tmp_path / "elsewhere")
    for name in ("notes", None):
        with pytest.raises(Unreadable, match=r"notes.*No such file.*nothing was removed"):
            folder.db.documents.sync(name)
    folder.root.mkdir()  # as a mount point is there, but empty, without its disk
    with pytest.raises(Refused, match="not mounted"):
        folder.sync()
    assert set(folder.texts()) == {"a.md"}
    folder.root.rmdir()
    (tmp_path / "elsewhere").rename(folder.root)
    assert counts(folder.sync()) == {"unchanged": 1}


def test_one_missing_folder_refuses_the_sync_of_all_libraries(folder: Folder) -> None:
    folder.write("a.md")
    folder.write("sub/b.md", "bear")
    folder.db.documents.add_library("sub", folder.root / "sub")
    shutil.rmtree(folder.root / "sub")
    with pytest.raises(Unreadable, match="library 'sub'"):
        folder.db.documents.sync()
    assert folder.texts() == {}


def test_a_folder_that_is_moved_away_during_a_sync_loses_no_document(
    folder: Folder, tmp_path: Path
) -> None:
    folder.write("a.md", "apple")
    folder.write("b.md", "bear")
    folder.sync()
    folder.write("a.md", "another apple")

    def take_away(progress: Progress) -> None:
        if not (tmp_path / "away").exists():
            folder.root.rename(tmp_path / "away")
            folder.root.mkdir()

    with pytest.raises(Refused, match="not mounted"):
        folder.db.documents.sync(progress=take_away)
    assert folder.db.documents.count(library="notes") == 2


def test_a_folder_that_became_a_link_is_still_the_same(folder: Folder, tmp_path: Path) -> None:
    folder.write("a.md")
    folder.sync()
    before = folder.documents()
    folder.root.rename(tmp_path / "elsewhere")
    folder.root.symlink_to(tmp_path / "elsewhere")
    folder.write("b.md", "bear")
    assert counts(folder.sync()) == {"indexed": 1, "unchanged": 1}
    assert folder.documents()["a.md"] == before["a.md"]
    assert counts(folder.sync()) == {"unchanged": 2}


def test_documents_below_an_unreadable_folder_stay(folder: Folder) -> None:
    folder.write("d/e/a.md", "apple")
    folder.write("b.md", "bear")
    folder.sync()
    rules = folder.write("d/.gitignore", b"x" * 1_000_001)
    (folder.root / "b.md").unlink()
    done = folder.sync()
    assert counts(done) == {"removed": 1}
    assert [path for path, _ in done.failures] == [str(folder.root / "d")]
    assert set(folder.texts()) == {"d/e/a.md"}
    rules.unlink()
    assert counts(folder.sync()) == {"unchanged": 1}


def test_the_database_does_not_ingest_itself(tmp_path: Path) -> None:
    with Database(tmp_path / "own.db", embedder=Letters()) as db:
        db.documents.add_library("notes", tmp_path)
        (tmp_path / "a.md").write_text("apple")
        (done,) = db.documents.sync()
        assert counts(done) == {"indexed": 1}
        assert done.skipped["the database itself"] >= 2
        assert not done.failures


def test_documents_from_elsewhere_stay_in_the_library(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "notes-too.md").write_text("a file beside the folder")
    folder.db.documents.ingest_text("a thought", source="thought", library="notes")
    folder.db.documents.ingest(tmp_path / "notes-too.md", library="notes")
    folder.write("a.md")
    assert counts(folder.sync()) == {"indexed": 1}
    (folder.root / "a.md").unlink()
    assert counts(folder.sync()) == {"removed": 1}
    assert folder.db.documents.count(library="notes") == 2


def test_a_file_that_was_ingested_by_hand_belongs_to_the_library(folder: Folder) -> None:
    file = folder.write("a.md")
    document = folder.db.documents.ingest(file, library="notes").document
    assert counts(folder.sync()) == {"unchanged": 1}
    assert folder.documents()["a.md"].id == document.id
    file.unlink()
    assert counts(folder.sync()) == {"removed": 1}


def test_several_documents_of_one_file_stay_until_it_vanishes(folder: Folder) -> None:
    file = folder.write("a.md")
    for _ in range(2):
        folder.db.documents.ingest(file, library="notes", duplicate=True)
    for _ in range(2):
        assert counts(folder.sync()) == {"unchanged": 1}
        assert folder.db.documents.count(library="notes") == 2
    file.unlink()
    assert counts(folder.sync()) == {"removed": 2}
    assert folder.db.documents.count(library="notes") == 0


def test_all_libraries_are_synced_or_the_named_one(folder: Folder) -> None:
    folder.write("sub/a.md")
    folder.db.documents.add_library("sub", folder.root / "sub")
    assert [(each.library, each.indexed) for each in folder.db.documents.sync()] == [
        ("notes", 1),
        ("sub", 1),
    ]
    folder.write("sub/b.md", "bear")
    assert [(each.library, each.indexed) for each in folder.db.documents.sync("sub")] == [
        ("sub", 1)
    ]
    with pytest.raises(NotFound, match="nowhere"):
        folder.db.documents.sync("nowhere")


def test_progress_counts_the_files_that_are_stored(
    folder: Folder,
) -> None:
    folder.db._store.tuning = Tuning(documents_per_write=2)
    seen: list[Progress] = []
    folder.write("known.md", "known")
    folder.sync()
    for number in range(3):
        folder.write(f"{number}.md", str(number))
    folder.db.documents.sync(embed=False, progress=seen.append)
    assert [(each.step, each.done, each.total) for each in seen] == [
        ("sync", done, 3) for done in (0, 0, 2, 3)
    ]


def test_a_file_open_for_reading_is_not_synced_but_may_be_up_to_date(
    folder: Folder, path: Path
) -> None:
    folder.write("a.md")
    folder.sync()
    with Database(path, config=Config(read_only=True), embedder=Letters()) as db:
        (done,) = db.documents.sync(embed=False)
        assert counts(done) == {"unchanged": 1}
        folder.write("b.md", "bear")
        with pytest.raises(ReadOnly):
            db.documents.sync(embed=False)


def test_a_sync_reads_stored_rows_in_pages(
    folder: Folder,
) -> None:
    folder.db._store.tuning = Tuning(rows_per_page=7)
    for number in range(40):
        folder.write(f"{number % 4}/{number}.md", str(number))
        folder.write(f"{number % 4}/{number}.png", EXECUTABLE + bytes([number]))
    folder.sync()
    done = folder.sync()
    assert counts(done) == {"unchanged": 40} and done.skipped == {"of no readable type": 40}
    assert [path for path, _ in done.skipped_paths] == sorted(map(str, folder.root.rglob("*.png")))
    (folder.root / "0").rename(folder.root / "9")
    assert counts(folder.sync()) == {"moved": 10, "unchanged": 30}
    (folder.root / "9").rename(folder.root / "0")
    assert counts(folder.sync()) == {"moved": 10, "unchanged": 30}


def test_two_syncs_at_once_are_safe(folder: Folder) -> None:
    for number in range(60):
        folder.write(f"a/{number}.md", f"number {number}")
    folder.sync()
    (folder.root / "a").rename(folder.root / "b")
    for number in range(60):
        folder.write(f"c/{number}.md", f"another {number}")
    done: list[Synced] = []
    threads = [threading.Thread(target=lambda: done.append(folder.sync())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 3 and not any(each.failures for each in done)
    folder.sync()
    assert folder.texts() == {f"b/{number}.md": f"number {number}" for number in range(60)} | {
        f"c/{number}.md": f"another {number}" for number in range(60)
    }
    assert counts(folder.sync()) == {"unchanged": 120} and folder.db.check() == []


PROGRAM = """
import sys
from mcpvectordb import Database
from tests.support import Letters
with Database(sys.argv[1], embedder=Letters()) as db:
    print("begun", flush=True)
    db.documents.sync()
"""


def test_a_sync_may_be_killed_at_any_time(folder: Folder) -> None:
    for number in range(150):
        folder.write(f"{number}.md", f"number {number}")
    for round in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(folder.db.path)], cwd=ROOT, stdout=subprocess.PIPE
        )
        assert process.stdout and process.stdout.readline() == b"begun\n"
        time.sleep(0.05 * (round + 1))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        shutil.move(folder.root / f"{round}.md", folder.root / f"moved {round}.md")
        (folder.root / f"{round + 50}.md").unlink()
        folder.write(f"{round + 100}.md", f"changed {round}")
        assert folder.db.check() == []
    assert python(PROGRAM, str(folder.db.path)).stdout == "begun\n"
    assert folder.texts() == {path.name: path.read_text() for path in folder.root.iterdir()}
    assert folder.db.stats().pending == 0 and counts(folder.sync()) == {"unchanged": 146}


class Recorder(Letters):
    """Records the texts that it embeds; can be made slow or to fail."""

    def __init__(self, seconds: float = 0.0, failure: Exception | None = None) -> None:
        self.seen: list[str] = []
        self.begun = threading.Event()
        self._seconds, self._failure = seconds, failure

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        self.begun.set()
        self.seen += texts
        time.sleep(self._seconds)
        if self._failure:
            raise self._failure
        return super().embed(texts, query=query)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    root = tmp_path / "notes"
    write(root, 5)
    return root


def write(root: Path, count: int) -> None:
    for number in range(count):
        (root / f"{number % 3}").mkdir(parents=True, exist_ok=True)
        (root / f"{number % 3}" / f"{number}.md").write_text(
            f"# Note {number}\n\nabout number {number}\n"
        )


def at_work() -> list[str]:
    return [
        each.name for each in threading.enumerate() if each.name.startswith("mcpvectordb-embed")
    ]


def test_a_folder_is_ingested_once_with_its_metadata(db: Database, notes: Path) -> None:
    (notes / "program.bin").write_bytes(b"\x7fELF\2\0")
    done = db.documents.ingest_folder(notes, library="mine", metadata={"year": 2026})
    assert (done.library, counts(done), done.failures) == ("mine", {"indexed": 5}, ())
    assert done.skipped == {"of no readable type": 1}
    assert db.documents.count(library="mine", where={"metadata.year": 2026}) == 5
    assert done.embedded.chunks == 5 and done.embedded.tokens > 5 and db.stats().pending == 0
    assert [each.root for each in db.documents.libraries()] == [""] and db.check() == []


def test_a_file_or_a_missing_folder_is_refused(db: Database, notes: Path) -> None:
    for wrong in (notes / "0" / "0.md", notes / "missing"):
        with pytest.raises(Unreadable, match=wrong.name):
            db.documents.ingest_folder(wrong)
    with pytest.raises(InvalidInput, match="library"):
        db.documents.ingest_folder(notes, library="")
    assert db.documents.count() == 0


def test_chunks_are_embedded_while_files_are_read(path: Path, notes: Path) -> None:
    recorder, beside = Recorder(), []

    def wait(progress: Progress) -> None:
        if progress.step == "ingest" and 0 < progress.done < 5:
            beside.append(recorder.begun.wait(30))

    with Database(path, embedder=recorder) as db:
        db._store.tuning = Tuning(documents_per_write=1)
        db.documents.ingest_folder(notes, progress=wait)
    assert beside == [True] * 4 and not at_work()


def test_everything_is_embedded_when_it_returns(notes: Path) -> None:
    write(notes, 200)
    with Database(":memory:", embedder=Recorder(0.01)) as db:
        done = db.documents.ingest_folder(notes)
        assert done.indexed == done.embedded.chunks == 200
        assert db.stats().pending == 0 and db.check() == []


def test_an_ingest_without_embedding_starts_no_thread_and_loads_no_model(
    path: Path, notes: Path
) -> None:
    recorder, seen = Recorder(), []
    with Database(path, embedder=recorder) as db:
        done = db.documents.ingest_folder(
            notes, embed=False, progress=lambda progress: seen.extend(at_work())
        )
        assert not seen
        assert not recorder.seen and done.embedded.chunks == 0 and db.stats().pending == 5


def contents(db: Database) -> list[Any]:
    with db._file.reading() as sql:
        return [
            list(sql.execute(statement))
            for statement in (
                "SELECT key, library, source, title, hash, size, mtime_ns FROM documents ORDER BY "
                "key",
                "SELECT id, owner, position, tile, headings, hash FROM document_chunks ORDER BY id",
                "SELECT chunk, model, embedding FROM document_embeddings ORDER BY chunk",
            )
        ]


def test_the_same_folder_gives_the_same_file_whatever_the_timing(
    tmp_path: Path, notes: Path
) -> None:
    write(notes, 90)
    found = []
    for name, seconds, documents in (("fast", 0.0, 32), ("slow", 0.03, 32), ("single", 0.01, 1)):
        with Database(tmp_path / f"{name}.db", embedder=Recorder(seconds)) as db:
            db._store.tuning = Tuning(documents_per_write=documents)
            db.documents.ingest_folder(notes)
            found.append(contents(db))
    assert found[0] == found[1] == found[2] and len(found[0][2]) == 90


def test_a_callback_that_raises_ends_the_ingest_and_reported_files_are_stored(
    path: Path, notes: Path
) -> None:
    class Enough(BaseException):
        pass

    write(notes, 150)
    reported = []

    def stop(progress: Progress) -> None:
        reported.append(progress.done)
        if progress.done >= 64:
            raise Enough

    with Database(path, embedder=Recorder(0.01)) as db:
        with pytest.raises(Enough):
            db.documents.ingest_folder(notes, progress=stop)
        assert not at_work() and db.documents.count() == reported[-1] < 150 and db.check() == []
        done = db.documents.ingest_folder(notes)
        assert (done.unchanged, done.indexed, db.stats().pending) == (
            reported[-1],
            150 - reported[-1],
            0,
        ) and db.check() == []


def test_a_failing_model_is_reported_after_all_files_are_stored(path: Path, notes: Path) -> None:
    with Database(path, embedder=Recorder(failure=EmbeddingFailed("it is tired"))) as db:
        done = db.documents.ingest_folder(notes)
        assert done.indexed == 5 and "it is tired" in done.note and db.stats().pending == 5
        assert db.documents.search("number", mode="text").hits
    with (
        Database(path, embedder=Recorder(failure=ZeroDivisionError("a defect"))) as db,
        pytest.raises(ZeroDivisionError),
    ):
        db.documents.ingest_folder(notes)
    with Database(path, embedder=Letters()) as db:
        assert db.documents.ingest_folder(notes).embedded.chunks == 5 and db.check() == []


MEASURE = """
import sys
from pathlib import Path
from mcpvectordb import Config, Database
from mcpvectordb.index.tuning import Tuning
from mcpvectordb.ingest.ocr import Tesseract
from tests.support import Letters

def memory(*_):
    status = Path("/proc/self/status").read_text()
    measured.append(int(status.split("RssAnon:")[1].split()[0]))

measured = []
with Database(sys.argv[2], config=Config(chunk_size=2000), embedder=Letters()) as db:
    db.documents.ingest_folder(sys.argv[1] + "/0")  # what is loaded once
    memory()
    for notes in sys.argv[3:]:
        measured.clear()
        db.documents.ingest_folder(sys.argv[1] + "/" + notes, progress=memory)
        print(max(measured))
"""


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the memory of a process is read from /proc"
)
@pytest.mark.long
def test_memory_does_not_grow_with_the_folder(tmp_path: Path) -> None:
    for name, count in (("0", 40), ("few", 40), ("many", 300)):
        (tmp_path / name).mkdir()
        for number in range(count):
            words = " ".join(f"{name}{number}" for _ in range(800))
            (tmp_path / name / f"{number}.txt").write_text(words)
    total = sum(each.stat().st_size for each in (tmp_path / "many").iterdir()) // 1024
    done = python(MEASURE, str(tmp_path), str(tmp_path / "test.db"), "few", "many")
    few, many = map(int, done.stdout.split())
    assert many - few < total, done.stderr  # it is less than the texts themselves


# Ingests a eight and waits to be killed when some of it is stored.
CUT_OFF = """
import sys
from mcpvectordb import Database
from mcpvectordb.index.tuning import Tuning
from mcpvectordb.ingest.ocr import Tesseract
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
def eight(tmp_path: Path) -> Path:
    eight = tmp_path / "the notes"
    eight.mkdir()
    for number in range(8):
        (eight / f"{number}.md").write_text(f"note number {number}")
    return eight


def reported(path: Path) -> tuple[str, ...]:
    with Database(path, embedder=Letters()) as db:
        return db.stats().notes


def test_an_ingest_that_was_killed_is_reported_until_it_was_finished(
    path: Path, eight: Path
) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CUT_OFF, str(path), str(eight)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin and child.stdout
    assert child.stdout.readline() == "some\n"
    assert reported(path) == ()  # it goes on in its process
    child.kill()
    child.wait()
    child.stdin.close()
    child.stdout.close()
    (note,) = reported(path)
    assert f"{eight} into the library my notes was cut off: 3 of 8 files are stored" in note
    command = shlex.split(note.split("`")[1])
    assert command == [
        *("mcpvectordb", "ingest", str(eight), "--library", "my notes"),
        *("--pattern", "*.md", "--metadata", "year=2026"),
    ]
    with Database(path, embedder=Letters()) as db:
        assert db.check() == []
        copied = db.copy_to(path.with_name("copy.db"))
        db.documents.ingest_folder(eight, library="my notes", pattern="*.md")
        assert db.stats().notes == ()
    assert reported(copied) == ()  # it does not go on in a copy


def fail(progress: Progress) -> None:
    raise KeyboardInterrupt


def test_an_ingest_that_fails_is_reported_until_it_was_finished(path: Path, eight: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        with pytest.raises(KeyboardInterrupt):
            db.documents.ingest_folder(eight, progress=fail)
        assert "0 of 8 files" in db.stats().notes[0]
        db.documents.ingest_folder(eight)
        assert db.stats().notes == ()


def test_a_sync_that_was_cut_off_goes_on_by_sync(path: Path, eight: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        db.documents.add_library("l", eight)
        with pytest.raises(KeyboardInterrupt):
            db.documents.sync("l", progress=fail)
        assert "`mcpvectordb sync l` goes on" in db.stats().notes[0]


@pytest.mark.parametrize("value", ["[]", "{}", '{"leased": "x"}', '"x"'])
def test_a_mark_that_was_never_written_like_that_is_no_error(path: Path, value: str) -> None:
    with Database(path, embedder=Letters()) as db:
        with db._file.writing() as sql:
            sql.execute("INSERT INTO settings VALUES ('ingest:x', ?)", (value,))
        assert db.stats().notes == ()
