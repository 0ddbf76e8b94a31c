from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mcpvectordb import Database, EmbeddingFailed, InvalidInput, Progress, Unreadable
from mcpvectordb.index.tuning import Tuning
from tests.support import Letters, python


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
def folder(tmp_path: Path) -> Path:
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
    return [each.name for each in threading.enumerate() if each.name == "mcpvectordb-embed"]


def test_a_folder_is_ingested_once_with_its_metadata(db: Database, folder: Path) -> None:
    (folder / "program.bin").write_bytes(b"\x7fELF\2\0")
    done = db.documents.ingest_folder(folder, library="mine", metadata={"year": 2026})
    assert (done.library, done.indexed, done.skipped, done.failures) == (
        "mine",
        5,
        {"of no readable type": 1},
        (),
    )
    assert db.documents.count(library="mine", where={"metadata.year": 2026}) == 5
    assert (
        done.embedded.chunks == 5
        and done.embedded.tokens > 5
        and db.stats().pending == 0
        and db.check() == []
    )
    assert [each.root for each in db.documents.libraries()] == [""]


def test_a_second_ingest_reads_only_new_files_and_removes_nothing(
    db: Database, folder: Path
) -> None:
    db.documents.ingest_folder(folder)
    (folder / "0" / "0.md").write_text("# Note\n\nanother text")
    (folder / "1" / "1.md").rename(folder / "new.md")
    done = db.documents.ingest_folder(folder)
    assert (done.indexed, done.replaced, done.unchanged, done.moved, done.removed) == (
        1,
        1,
        3,
        0,
        0,
    )
    assert db.documents.count() == 6


def test_a_file_or_a_missing_folder_is_refused(db: Database, folder: Path) -> None:
    for wrong in (folder / "0" / "0.md", folder / "missing"):
        with pytest.raises(Unreadable, match=wrong.name):
            db.documents.ingest_folder(wrong)
    with pytest.raises(InvalidInput, match="library"):
        db.documents.ingest_folder(folder, library="")
    assert db.documents.count() == 0


def test_chunks_are_embedded_while_files_are_read(path: Path, folder: Path) -> None:
    recorder, beside = Recorder(), []

    def wait(progress: Progress) -> None:
        if progress.step == "ingest" and 0 < progress.done < 5:
            beside.append(recorder.begun.wait(30))

    with Database(path, embedder=recorder) as db:
        db._store.tuning = Tuning(documents_per_write=1)
        db.documents.ingest_folder(folder, progress=wait)
    assert beside == [True] * 4 and not at_work()


@pytest.mark.parametrize("place", ["test.db", ":memory:"])
def test_everything_is_embedded_when_it_returns(place: str, tmp_path: Path, folder: Path) -> None:
    write(folder, 200)
    with Database(
        place if place == ":memory:" else tmp_path / place, embedder=Recorder(0.01)
    ) as db:
        done = db.documents.ingest_folder(folder)
        assert (done.indexed, done.embedded.chunks, db.stats().pending) == (
            200,
            200,
            0,
        ) and db.check() == []


def test_an_ingest_without_embedding_starts_no_thread_and_loads_no_model(
    path: Path, folder: Path
) -> None:
    recorder, seen = Recorder(), []
    with Database(path, embedder=recorder) as db:
        done = db.documents.ingest_folder(
            folder, embed=False, progress=lambda progress: seen.extend(at_work())
        )
        assert not seen
        assert not recorder.seen and done.embedded.chunks == 0 and db.stats().pending == 5


def test_equal_texts_are_embedded_once(path: Path, tmp_path: Path) -> None:
    recorder = Recorder(0.005)
    for number in range(120):
        for library in ("a", "b"):
            (tmp_path / library).mkdir(exist_ok=True)
            (tmp_path / library / f"{number}.md").write_text(
                f"# Note\n\nabout number {number % 40}\n"
            )
    with Database(path, embedder=recorder) as db:
        for library in ("a", "b"):
            db.documents.add_library(library, tmp_path / library)
        done = db.documents.sync()
        assert sum(each.indexed for each in done) == 240
        assert sorted(recorder.seen) == sorted(set(recorder.seen)) and len(recorder.seen) == 40
        assert db.stats().pending == 0 and db.check() == []


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
    tmp_path: Path, folder: Path
) -> None:
    write(folder, 90)
    found = []
    for name, seconds, documents in (("fast", 0.0, 32), ("slow", 0.03, 32), ("single", 0.01, 1)):
        with Database(tmp_path / f"{name}.db", embedder=Recorder(seconds)) as db:
            db._store.tuning = Tuning(documents_per_write=documents)
            db.documents.ingest_folder(folder)
            found.append(contents(db))
    assert found[0] == found[1] == found[2] and len(found[0][2]) == 90


def test_a_callback_that_raises_ends_the_ingest_and_reported_files_are_stored(
    path: Path, folder: Path
) -> None:
    class Enough(BaseException):
        pass

    write(folder, 150)
    reported = []

    def stop(progress: Progress) -> None:
        reported.append(progress.done)
        if progress.done >= 64:
            raise Enough

    with Database(path, embedder=Recorder(0.01)) as db:
        with pytest.raises(Enough):
            db.documents.ingest_folder(folder, progress=stop)
        assert not at_work() and db.documents.count() == reported[-1] < 150 and db.check() == []
        done = db.documents.ingest_folder(folder)
        assert (done.unchanged, done.indexed, db.stats().pending) == (
            reported[-1],
            150 - reported[-1],
            0,
        ) and db.check() == []


def test_a_failing_model_is_reported_after_all_files_are_stored(path: Path, folder: Path) -> None:
    with Database(path, embedder=Recorder(failure=EmbeddingFailed("it is tired"))) as db:
        done = db.documents.ingest_folder(folder)
        assert done.indexed == 5 and "it is tired" in done.note and db.stats().pending == 5
        assert db.documents.search("number", mode="text").hits
    with (
        Database(path, embedder=Recorder(failure=ZeroDivisionError("a defect"))) as db,
        pytest.raises(ZeroDivisionError),
    ):
        db.documents.ingest_folder(folder)
    with Database(path, embedder=Letters()) as db:
        assert db.documents.ingest_folder(folder).embedded.chunks == 5 and db.check() == []


def test_progress_counts_files_then_chunks_and_ends_with_no_time_left(
    path: Path, folder: Path
) -> None:
    class Held(Recorder):
        """Holds its second batch until all files are stored, so that the rest is left for then."""

        def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
            if self.seen:
                stored.wait(30)
            return super().embed(texts, query=query)

    write(folder, 100)
    seen: list[Progress] = []
    stored = threading.Event()

    def listen(progress: Progress) -> None:
        seen.append(progress)
        if progress.done == progress.total:
            stored.set()

    with Database(path, embedder=Held(0.2)) as db:
        done = db.documents.ingest_folder(folder, progress=listen)
    files = [each for each in seen if each.step == "ingest"]
    assert [each.done for each in files] == sorted(each.done for each in files) and files[
        -1
    ].done == files[-1].total == 100
    assert files[-1].chunks_known == 100 and all(each.chunks <= each.chunks_known for each in files)
    chunks = [each for each in seen if each.step == "embed"]
    assert seen == files + chunks and (chunks[-1].done, chunks[-1].seconds_left) == (
        chunks[-1].total,
        0,
    )
    assert done.embedded.chunks == 100 and done.embedded.tokens_per_second > 0


MEASURE = """
import sys
from pathlib import Path
from mcpvectordb import Config, Database
from mcpvectordb.index.tuning import Tuning
from tests.support import Letters

def memory(*_):
    status = Path("/proc/self/status").read_text()
    measured.append(int(status.split("RssAnon:")[1].split()[0]))

measured = []
with Database(sys.argv[2], config=Config(chunk_size=2000, provisional=False), embedder=Letters()) as db:
    db.documents.ingest_folder(sys.argv[1] + "/0")  # what is loaded once
    memory()
    for folder in sys.argv[3:]:
        measured.clear()
        db.documents.ingest_folder(sys.argv[1] + "/" + folder, progress=memory)
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
