"""Long documents are written and removed in slices; readers see all of one or nothing."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpvectordb import Busy, Config, Database, Source
from mcpvectordb.index import models
from mcpvectordb.index.tuning import Tuning
from mcpvectordb.records import Parsed
from mcpvectordb.recovery.salvage import salvage
from tests.support import Letters, python, scaled

CONFIG = Config(chunk_size=16, busy_timeout=0.1)
SLICES = Tuning(slice_chunks=3)
# Both legs from memory, from the first question on.
IN_MEMORY = Tuning(slice_chunks=3, file_rows=0, exact_rows=0)


def opened(path: Path, tuning: Tuning = SLICES, **options: Any) -> Database:
    return Database(path, embedder=Letters(), config=replace(CONFIG, **options), tuning=tuning)


def long_text(word: str, chunks: int) -> str:
    """A text of so many chunks, all with this word and each with a word of its own."""
    return "\n\n".join(f"{word} {number} {'pear ' * 9}" for number in range(chunks))


@contextlib.contextmanager
def after_each_commit(db: Database, act: Callable[[int], object]) -> Iterator[None]:
    """Call `act` with the number of each commit, 1 and so on, before the next transaction."""
    commits = 0

    def committed(*_: object) -> int:
        nonlocal commits
        commits += 1
        act(commits)
        return apsw.SQLITE_OK

    with db._file.outside() as sql:
        sql.set_wal_hook(committed)
        try:
            yield
        finally:
            sql.set_wal_hook(None)


def rows(path: Path, table: str = "document_chunks") -> int:
    """How many rows a table has, seen or unseen."""
    with contextlib.closing(apsw.Connection(str(path))) as sql:
        return int(sql.execute(f"SELECT count(*) FROM {table}").get)


def seen(db: Database) -> dict[str, object]:
    """Everything that a reader can see of documents; not the scores, which depend on all words."""
    documents = db.documents.browse(limit=100)

    def found(**options: Any) -> set[tuple[str, int]]:
        results = db.documents.search("apple pear plum", limit=1000, **options)
        return {(hit.item.document.id, hit.item.position) for hit in results}

    with db._file.reading() as sql:
        stored = [each.source for each in documents if db.documents.lookup(each.path)]
        pending = db._encoder.pending(sql, models.active(sql))
    stats = db.stats()
    return {
        "documents": [(each.id, each.source, each.chunks) for each in documents],
        "texts": {each.id: db.documents.text(each.id) for each in documents},
        "counts": (db.documents.count(), stats.documents, stats.chunks, stats.pending, pending),
        "libraries": [
            (each.name, each.documents, each.chunks) for each in db.documents.libraries()
        ],
        "paths": [stored, [each.path for each in db.documents.matching("**")]],
        "coverage": db.documents.coverage(),
        "words": found(mode="text"),
        "meaning": found(mode="vector"),
        "filtered": found(mode="vector", where={"size": {"gt": 1}}),
        "both": found(mode="hybrid"),
        "whole": {
            chunk
            for mode in ("text", "vector", "hybrid")
            for chunk in found(mode=mode, unit="document", library="default")
        },
    }


WRITES: dict[str, Callable[[Database, int], object]] = {
    "a new document": lambda db, n: db.documents.ingest_text(
        long_text("apple", n), source="new", embed=False
    ),
    "a new version": lambda db, n: db.documents.ingest_text(
        long_text("plum", n), source="old", embed=False
    ),
    "a short version": lambda db, n: db.documents.ingest_text("plum", source="old", embed=False),
    "a deleted document": lambda db, n: db.documents.delete(db.documents.lookup("old").document.id),
    "a removed library": lambda db, n: db.documents.remove_library("default"),
}


@pytest.mark.parametrize("tuning", [SLICES, IN_MEMORY], ids=["file", "memory"])
@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
@settings(max_examples=scaled(4))
@given(before=st.integers(1, 12), chunks=st.integers(1, 12))
def test_a_reader_sees_a_document_completely_or_not_at_all(
    tmp_path_factory: pytest.TempPathFactory,
    tuning: Tuning,
    write: Callable[[Database, int], object],
    before: int,
    chunks: int,
) -> None:
    path = tmp_path_factory.mktemp("seen") / "test.db"
    with opened(path) as db, opened(path, tuning) as reader:
        db.documents.ingest_text(long_text("apple", before), source="old")
        states, sizes = [seen(reader)], [rows(path)]
        with after_each_commit(
            db, lambda _: (states.append(seen(reader)), sizes.append(rows(path)))
        ):
            write(db, chunks)
        after = seen(reader)
        assert all(each in (states[0], after) for each in states)
        changes = [state != after for state in states]
        assert changes == sorted(changes, reverse=True), "what was visible went away again"
        assert rows(path, "unpublished_documents") == 0 and rows(path) == db.stats().chunks
        # A transaction writes or removes a slice, or a short document with the one it replaces.
        assert all(abs(new - old) <= 3 for old, new in pairwise(sizes))
        assert db.check() == []


def test_what_is_being_written_is_not_counted_as_embedded(path: Path) -> None:
    with opened(path) as db, opened(path) as reader:
        db.documents.ingest_text(long_text("plum", 2), source="waits", embed=False)
        before, meanwhile = reader.documents.backlog(), []
        with after_each_commit(db, lambda _: meanwhile.append(reader.documents.backlog())):
            db.documents.ingest_text(long_text("apple", 9), source="new", embed=False)
        assert (before.passages, before.pending) == (2, 2)
        assert len(meanwhile) > 3 and meanwhile[:-1] == [before] * (len(meanwhile) - 1)
        assert reader.documents.backlog().pending == 11
        assert "vector" not in reader.documents.search("plum").legs


def test_a_short_document_is_written_in_one_transaction(path: Path) -> None:
    commits: list[int] = []
    with opened(path) as db:
        db.documents.ingest_text("apple", source="old", embed=False)
        with after_each_commit(db, commits.append):
            db.documents.ingest_text(long_text("pear", 3), source="old", embed=False)
            assert commits == [1]
            db.documents.delete(db.documents.browse()[0].id)
        assert commits == [1, 2] and rows(path) == 0


def test_a_slice_is_bounded_in_characters_too(path: Path) -> None:
    commits: list[int] = []
    with opened(path, Tuning(slice_characters=120)) as db:
        db.documents.ingest_text("apple", source="a")
        with after_each_commit(db, commits.append):
            db.documents.ingest_text(long_text("pear", 6), source="b", embed=False)
        assert len(commits) > 4 and db.check() == []


@pytest.mark.parametrize("kept", [1, 40])
def test_a_long_document_that_moved_keeps_its_identity(path: Path, kept: int) -> None:
    with opened(path) as db, opened(path, IN_MEMORY) as reader:
        text, writer = long_text("apple", 7), db.documents.writer
        old = db.documents.ingest_text(long_text("apple", kept), source="a", metadata={"n": 1})
        source = Source(source="b", name="b", raw=text.encode(), file_type="txt")
        key = rows_of(path, "SELECT key FROM documents")[0]
        moved = writer.prepare(
            source, Parsed(text=text, title="a"), hash="h", library="default", moved=key
        )
        found: list[int] = []

        def search(_: int) -> None:
            hits = reader.documents.search(
                "apple", mode="vector", where={"metadata.n": 1}, limit=100
            )
            found.append(len(hits))

        with after_each_commit(db, search):
            assert writer.write(moved)[0] == "indexed"
        assert found[0] == kept and found[-1] == min(kept, 7)
        (new,) = db.documents.browse()
        assert (new.id, new.created_at, new.source) == (
            old.document.id,
            old.document.created_at,
            "b",
        )
        assert (new.metadata, new.chunks, rows(path)) == ({"n": 1}, 7, 7) and db.check() == []


def rows_of(path: Path, statement: str) -> list[Any]:
    with contextlib.closing(apsw.Connection(str(path))) as sql:
        return [value for (value,) in sql.execute(statement)]


# Writers that end half-way.

KILLED = """
import os, signal, sys
from tests.core.documents.test_unpublished import WRITES, after_each_commit, opened

path, write, last = sys.argv[1], sys.argv[2], int(sys.argv[3])
with opened(path) as db:
    kill = lambda commit: commit == last and os.kill(os.getpid(), signal.SIGKILL)
    with after_each_commit(db, kill):
        WRITES[write](db, 10)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no kill -9")
@pytest.mark.parametrize(
    ("write", "last"),
    [
        ("a new document", 1),
        ("a new document", 3),
        ("a new version", 5),
        ("a new version", 7),
        ("a deleted document", 1),
        ("a deleted document", 3),
    ],
)
def test_what_a_killed_writer_leaves_is_invisible_and_removed_by_the_next_writer(
    path: Path, tmp_path: Path, write: str, last: int
) -> None:
    with opened(path) as db:
        db.documents.ingest_text(long_text("apple", 10), source="old")
        expected = seen(db)
    done = python(KILLED, str(path), write, str(last))
    assert done.returncode == -signal.SIGKILL, done.stderr
    published = write == "a deleted document" or last == 7
    with opened(path, read_only=True) as db:
        state = seen(db)
        assert (state == expected) is not published and db.check() == []
    assert rows(path, "unpublished_documents") == 1
    with opened(path) as db:
        assert seen(db) == state and db.check() == []
        copy = db.copy_to(tmp_path / "copy.db")
        with opened(copy) as other:
            assert seen(other) == state and other.check() == []
        assert rows(copy, "unpublished_documents") == 0 and rows(copy) == db.stats().chunks
        kept = salvage(path, tmp_path / "salvaged.db", embedder=Letters())
        assert (kept.incomplete, kept.lost) == ((), ())
        with opened(tmp_path / "salvaged.db") as other:
            assert seen(other)["texts"] == state["texts"] and other.check() == []
        db.rebuild()
        assert seen(db) == state and db.check() == []
        db.documents.ingest_text("next", source="next", library="other")
        assert rows(path, "unpublished_documents") == 0 and rows(path) == db.stats().chunks
        assert db.check() == []
        db.documents.remove_library("other")
        assert seen(db) == state


def test_compact_removes_what_a_killed_writer_left(path: Path) -> None:
    with opened(path) as db:
        db.documents.ingest_text("pear", source="a")
    python(KILLED, str(path), "a new document", "3")
    with opened(path) as db:
        db.compact()
        assert rows(path) == 1 and db.check() == []
    assert b"apple" not in path.read_bytes()


@pytest.mark.parametrize("last", [1, 2, 4])
def test_an_error_while_a_document_is_written_leaves_nothing_of_it(path: Path, last: int) -> None:
    class Interrupted(BaseException):
        pass

    def interrupt(commit: int) -> None:
        if commit == last:
            raise Interrupted

    with opened(path) as db:
        db.documents.ingest_text(long_text("apple", 5), source="old")
        before = seen(db)
        with pytest.raises(Interrupted), after_each_commit(db, interrupt):
            db.documents.ingest_text(long_text("plum", 12), source="old")
        assert seen(db) == before and db.check() == []
        assert rows(path) == 5 and rows(path, "unpublished_documents") == 0


# Several writers.


def test_others_write_while_a_long_document_is_written(path: Path) -> None:
    with opened(path) as db, opened(path) as other:
        db.documents.ingest_text("apple", source="a")

        def write(commit: int) -> None:
            other.documents.ingest_text(f"plum {commit}", source=f"{commit}")

        with after_each_commit(db, write):
            db.documents.ingest_text(long_text("pear", 12), source="long")
        assert db.documents.count() > 6 and db.check() == []
        assert db.documents.lookup("long").document.chunks == 12


def test_another_process_leaves_what_a_live_one_is_writing(path: Path) -> None:
    program = """
import sys
from tests.core.documents.test_unpublished import opened
with opened(sys.argv[1]) as db:
    db.documents.ingest_text("plum", source="other")
    db.compact()
"""
    with opened(path, busy_timeout=5) as db:
        db.documents.ingest_text("apple", source="a")

        def write(commit: int) -> None:
            if commit == 3:
                done = python(program, str(path))
                assert done.returncode == 0, done.stderr

        with after_each_commit(db, write):
            db.documents.ingest_text(long_text("pear", 12), source="long")
        assert {each.source: each.chunks for each in db.documents.browse()} == {
            "a": 1,
            "other": 1,
            "long": 12,
        }
        assert db.check() == []


@pytest.mark.parametrize("same", [False, True])
def test_two_writers_of_one_source_leave_one_document(path: Path, same: bool) -> None:
    mine, theirs = long_text("pear", 12), long_text("pear" if same else "plum", 12)
    with opened(path) as db, opened(path) as other:
        db.documents.ingest_text(long_text("apple", 7), source="a")

        def write(commit: int) -> None:
            if commit == 3:
                assert other.documents.ingest_text(theirs, source="a").status == "replaced"

        with after_each_commit(db, write):
            done = db.documents.ingest_text(mine, source="a")
        assert done.status == ("skipped" if same else "replaced")
        assert [db.documents.text(each.id) for each in db.documents.browse()] == [mine]
        assert rows(path) == 12 and rows(path, "unpublished_documents") == 0 and db.check() == []


def test_a_writer_whose_lease_has_ended_changes_nothing(path: Path) -> None:
    impatient = replace(SLICES, writer_seconds=0)
    with opened(path) as db, opened(path, impatient) as other:
        db.documents.ingest_text(long_text("apple", 5), source="a")
        before = seen(db)

        def write(commit: int) -> None:
            if commit == 3:
                other.documents.delete("unknown")

        with pytest.raises(Busy, match="ingest it again"), after_each_commit(db, write):
            db.documents.ingest_text(long_text("pear", 12), source="a")
        assert seen(db) == before and rows(path) == 5 and db.check() == []


def test_another_model_is_used_while_a_long_document_is_written(path: Path) -> None:
    """Chunks written before the model came, and those written after, wait for it alike."""
    with opened(path) as db, opened(path) as other:
        db.documents.ingest_text("apple", source="a")

        def register(commit: int) -> None:
            if commit == 3:
                with other._file.writing() as sql:
                    other._encoder.register(sql, "more letters", "", 32)

        with after_each_commit(db, register):
            db.documents.ingest_text(long_text("pear", 12), source="long")
        assert db.check() == []
        assert rows(path, "document_pending WHERE model = 2") == 13


def test_folders_are_ingested_and_synced_in_slices(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    for name, chunks in (("a.md", 1), ("b.md", 11), ("c.md", 2)):
        (folder / name).write_text(long_text("apple", chunks))
    sizes: list[int] = []
    with opened(path) as db:
        db.documents.add_library("notes", folder)
        db.documents.ingest_text("pear", source="x")
        sizes.append(rows(path))
        with after_each_commit(db, lambda _: sizes.append(rows(path))):
            assert db.documents.sync(embed=False)[0].indexed == 3
            (folder / "b.md").rename(folder / "d.md")
            assert db.documents.sync(embed=False)[0].moved == 1
            (folder / "d.md").unlink()
            assert db.documents.sync(embed=False)[0].removed == 1
            assert db.documents.remove_library("notes") == 2
        assert max(sizes) == 15 + 11, "under another name it is written again"
        assert sizes[-1] == 1
        assert all(abs(new - old) <= 3 for old, new in pairwise(sizes))
        assert db.check() == []
