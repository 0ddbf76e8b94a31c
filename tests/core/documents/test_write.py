"""Documents are written short in one transaction, long in slices; readers see all of one or nothing."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mcpvectordb import (
    Busy,
    Config,
    Database,
    Exists,
    Ingested,
    InvalidInput,
    NoText,
    NotFound,
    Progress,
    Source,
    TooLarge,
)
from mcpvectordb.documents import rows
from mcpvectordb.documents.items import DocumentChange
from mcpvectordb.documents.write import (
    MULTILINGUAL,
    DocumentWriter,
    GivenText,
    PreparedDocument,
    Written,
)
from mcpvectordb.embedding.catalogue import CATALOGUE
from mcpvectordb.embedding.weights import installed
from mcpvectordb.index.chunks import active_model
from mcpvectordb.index.tuning import Tuning
from mcpvectordb.records import Parsed
from mcpvectordb.recovery.salvage import salvage
from tests.support import Letters, python, scaled


@pytest.fixture
def writer(db: Database) -> DocumentWriter:
    return db.documents.writer


def prepared(writer: DocumentWriter, text: str) -> PreparedDocument:
    read = Source(source="a.txt", name="a.txt", raw=text.encode(), file_type="txt")
    parsed = Parsed(text=text, title="a.txt")
    return writer.prepare(GivenText(read, DocumentChange(), parsed=parsed), "notes")


def test_a_document_that_was_deleted_meanwhile_is_not_found(
    db: Database, writer: DocumentWriter
) -> None:
    [(_, key, _)] = writer.write_all([prepared(writer, "apple")])
    with db._file.writing() as sql:
        db.documents.unpublished.withdraw(sql, [key])
        with pytest.raises(NotFound, match="deleted meanwhile"):
            rows.by_key(sql, key)
    with pytest.raises(NotFound, match="deleted meanwhile"):
        writer.say(key, DocumentChange(keys={"a": 1}))


@pytest.mark.parametrize("text", [("word " * 9 + "\n\n") * 4, "word " * 16 * 4])
def test_a_text_of_more_chunks_than_the_limit_is_refused_and_nothing_is_stored(
    path: Path, text: str
) -> None:
    config = Config(max_chunks=3, chunk_size=16)
    with Database(path, embedder=Letters(), config=config) as db:
        with pytest.raises(TooLarge, match=r"'a' makes more than 3 chunks.*MCPVECTORDB_MAX_CHUNKS"):
            db.documents.ingest_text(text, source="a")
        assert db.documents.count() == 0
    with Database(path, embedder=Letters(), config=Config(max_chunks=4, chunk_size=16)) as db:
        assert db.documents.ingest_text(text, source="a").document.chunks == 4


@pytest.mark.long
def test_a_long_text_is_written_in_memory_of_few_times_its_size(writer: DocumentWriter) -> None:
    """Allocations are counted, so this does not depend on the machine."""
    text = "\n\n".join(
        " ".join(f"{number * 7919 % 999_983}" for _ in range(60)) for number in range(1000)
    )
    writer.write_all([prepared(writer, "loads the tokenizer")])
    tracemalloc.start()
    try:
        writer.write_all([prepared(writer, text)])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 24 * len(text)


def test_a_document_is_written_again_under_another_title_only_while_it_is_there(
    db: Database, writer: DocumentWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    [(_, old, before)] = writer.write_all([prepared(writer, "apple")])
    status, key, after = writer.say(old, DocumentChange(title="Zebra"))
    assert (status, after.title) == ("updated", "Zebra") and key != old
    assert (after.id, after.created_at) == (before.id, before.created_at)
    assert db.documents.text(after.id) == "apple" and db.check() == []
    write_all = writer.write_all

    def deleted_meanwhile(*arguments: Any, **options: Any) -> Any:
        db.documents.delete(after.id)
        return write_all(*arguments, **options)

    monkeypatch.setattr(writer, "write_all", deleted_meanwhile)
    with pytest.raises(NotFound, match="changed or deleted meanwhile"):
        writer.say(key, DocumentChange(title="Quagga"))
    assert not db.documents.browse()


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


def count(path: Path, table: str = "document_chunks") -> int:
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
        pending = db._encoder.pending(sql, active_model(sql))
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
        states, sizes = [seen(reader)], [count(path)]
        with after_each_commit(
            db, lambda _: (states.append(seen(reader)), sizes.append(count(path)))
        ):
            write(db, chunks)
        after = seen(reader)
        assert all(each in (states[0], after) for each in states)
        changes = [state != after for state in states]
        assert changes == sorted(changes, reverse=True), "what was visible went away again"
        assert count(path, "unpublished_documents") == 0 and count(path) == db.stats().chunks
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
        assert commits == [1, 2] and count(path) == 0


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
        writer = db.documents.writer

        def written(name: str, chunks: int, own: dict[str, Any], moved: int | None) -> Written:
            text = long_text("apple", chunks)
            source = Source(source=name, name=name, raw=text.encode(), file_type="txt")
            parsed = Parsed(text=text, title="a", metadata=own)
            given = GivenText(source, DocumentChange(), parsed=parsed)
            return writer.write_all([writer.prepare(given, "default", moved=moved)])[0]

        old = written("a", kept, {"n": 1}, None)
        db.embed_pending()
        found: list[int] = []

        def search(_: int) -> None:
            hits = reader.documents.search(
                "apple", mode="vector", where={"metadata.n": 1}, limit=100
            )
            found.append(len(hits))

        with after_each_commit(db, search):
            status, _, new = written("b", 7, {}, old.key)
        assert status == "indexed" and found[0] == kept and found[-1] == min(kept, 7)
        assert (new.id, new.created_at) == (old.document.id, old.document.created_at)
        assert (new.source, new.metadata, new.chunks) == ("b", {"n": 1}, 7)
        assert count(path) == 7 and db.check() == []


# Writers that end half-way.

KILLED = """
import os, signal, sys
from tests.core.documents.test_write import WRITES, after_each_commit, opened

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
    assert count(path, "unpublished_documents") == 1
    with opened(path) as db:
        assert seen(db) == state and db.check() == []
        copy = db.copy_to(tmp_path / "copy.db")
        with opened(copy) as other:
            assert seen(other) == state and other.check() == []
        assert count(copy, "unpublished_documents") == 0 and count(copy) == db.stats().chunks
        kept = salvage(path, tmp_path / "salvaged.db", embedder=Letters())
        assert (kept.incomplete, kept.lost) == ((), ())
        with opened(tmp_path / "salvaged.db") as other:
            assert seen(other)["texts"] == state["texts"] and other.check() == []
        db.rebuild()
        assert seen(db) == state and db.check() == []
        db.documents.ingest_text("next", source="next", library="other")
        assert count(path, "unpublished_documents") == 0 and count(path) == db.stats().chunks
        assert db.check() == []
        db.documents.remove_library("other")
        assert seen(db) == state


def test_compact_removes_what_a_killed_writer_left(path: Path) -> None:
    with opened(path) as db:
        db.documents.ingest_text("pear", source="a")
    python(KILLED, str(path), "a new document", "3")
    with opened(path) as db:
        db.compact()
        assert count(path) == 1 and db.check() == []
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
        assert count(path) == 5 and count(path, "unpublished_documents") == 0


# Several writers.


def test_another_process_leaves_what_a_live_one_is_writing(path: Path) -> None:
    program = """
import sys
from tests.core.documents.test_write import opened
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
        assert done.status == ("unchanged" if same else "replaced")
        assert [db.documents.text(each.id) for each in db.documents.browse()] == [mine]
        assert count(path) == 12 and count(path, "unpublished_documents") == 0 and db.check() == []


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
        assert seen(db) == before and count(path) == 5 and db.check() == []


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
        assert count(path, "document_pending WHERE model = 2") == 13


def test_folders_are_ingested_and_synced_in_slices(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    for name, chunks in (("a.md", 1), ("b.md", 11), ("c.md", 2)):
        (folder / name).write_text(long_text("apple", chunks))
    sizes: list[int] = []
    with opened(path) as db:
        db.documents.add_library("notes", folder)
        db.documents.ingest_text("pear", source="x")
        sizes.append(count(path))
        with after_each_commit(db, lambda _: sizes.append(count(path))):
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


TEXTS = [
    "# Tea\n\nGreen tea.",
    "def pour():\n    return 1\n",
    "---\nyear: 2024\n---\nOld.",
    "Plain.",
]
SOURCES = ["tea.md", "pour.py", "old.md", "notes/plain"]
TITLES = [None, "Pouring", None, None]
METADATA: list[dict[str, Any] | None] = [{"kind": "drink"}, None, {"year": 2026}, {}]


class Counting(Letters):
    """Remembers how many passages each call embeds."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        self.calls.append(len(texts))
        return super().embed(texts, query=query)


def facts(done: Ingested) -> dict[str, Any]:
    """What is the same of two documents in two files."""
    found = done.to_dict()
    del found["document"]["id"], found["document"]["created_at"], found["embedded"]
    return found


def test_many_texts_are_stored_as_one_by_one() -> None:
    with (
        Database(":memory:", embedder=Letters()) as db,
        Database(":memory:", embedder=Letters()) as other,
    ):
        for texts in (TEXTS, TEXTS, [*TEXTS[:3], "Replaced."], [f"{TEXTS[0]} Hot.", *TEXTS[1:]]):
            many = db.documents.ingest_many(
                iter(texts),
                sources=iter(SOURCES),
                titles=TITLES,
                metadata=METADATA,
                library="shelf",
            )
            one_by_one = [
                other.documents.ingest_text(
                    text, source=source, title=title, metadata=metadata, library="shelf"
                )
                for text, source, title, metadata in zip(
                    texts, SOURCES, TITLES, METADATA, strict=True
                )
            ]
            assert [facts(each) for each in many] == [facts(each) for each in one_by_one]
            for mine, its in zip(many, one_by_one, strict=True):
                assert db.documents.text(mine.document.id) == other.documents.text(its.document.id)
        assert db.check() == []


@pytest.mark.parametrize("source", ["a.md", "a.py", "a"])
@pytest.mark.parametrize(
    "text", ["\x00 \n\n", "\x00t\x00e", "t\x00e\x00", "\ufefftea", "\r\ntea\r"]
)
def test_a_text_is_never_taken_for_another_encoding(text: str, source: str) -> None:
    with Database(":memory:", embedder=Letters()) as db:
        done = db.documents.ingest_text(text, source=source)
        assert db.documents.text(done.document.id) == text


def test_many_texts_take_few_transactions_and_are_embedded_together(path: Path) -> None:
    embedder, steps = Counting(), list[Progress]()
    with Database(path, embedder=embedder) as db:
        done = db.documents.ingest_many(
            [f"note {number}" for number in range(100)],
            sources=[f"{number}.md" for number in range(100)],
            progress=steps.append,
        )
        assert [each.document.source for each in done] == [f"{number}.md" for number in range(100)]
        assert {(each.status, each.pending, each.note) for each in done} == {("indexed", 0, "")}
        assert [each.done for each in steps if each.step == "ingest"] == [32, 64, 96, 100]
        assert sum(embedder.calls) == 100 and len(embedder.calls) <= 4
        assert db.documents.search("note 42", mode="text")[0].item.document.source == "42.md"


def test_a_transaction_has_few_chunks_also_if_the_texts_are_long(path: Path) -> None:
    steps = list[Progress]()
    long = "\n\n".join(f"Paragraph {number} about tea and its leaves." * 8 for number in range(160))
    with Database(path, embedder=Letters()) as db:
        done = db.documents.ingest_many(
            [f"{long} {number}" for number in range(4)],
            sources=["a", "b", "c", "d"],
            embed=False,
            progress=steps.append,
        )
        assert all(each.document.chunks > 32 and each.pending for each in done)
        assert max(np.diff([0, *(each.done for each in steps)])) <= 2


def test_an_interrupted_call_is_continued_by_the_same_one(path: Path) -> None:
    texts, sources = [f"note {n}" for n in range(40)], [f"{n}.md" for n in range(40)]

    def interrupt(_: Progress) -> None:
        raise KeyboardInterrupt

    with Database(path, embedder=Letters()) as db:
        with pytest.raises(KeyboardInterrupt):
            db.documents.ingest_many(texts, sources=sources, progress=interrupt)
        assert db.documents.count() == 32
        done = db.documents.ingest_many(texts, sources=sources)
        assert [each.status for each in done] == ["unchanged"] * 32 + ["indexed"] * 8
        assert db.stats().pending == 0 and db.check() == []


def test_a_missing_model_is_said_of_each_text(path: Path) -> None:
    with Database(path, config=Config(model="nomic-embed-text-v1.5", models_dir="none")) as db:
        done = db.documents.ingest_many(["tea", "pie"], sources=["a", "b"])
        assert all(each.pending and "found by words, but not yet" in each.note for each in done)


@pytest.mark.parametrize("words", [1, 20_000])  # written in one transaction, and in several
def test_without_replace_another_text_of_the_same_name_stays(words: int) -> None:
    first, second = ("first " * words, "second " * words)
    with Database(":memory:", embedder=Letters(), config=Config(chunk_size=20)) as db:
        ingest = partial(db.documents.ingest_text, source="note.md", replace=False, embed=False)
        kept = ingest(first).document
        assert ingest(first).status == "unchanged"
        assert ingest(first, metadata={"a": 1}).status == "updated"
        with pytest.raises(Exists, match=r"library 'default' has another text named 'note.md'"):
            ingest(second)
        given = Source(source="note.md", name="note.md", raw=second.encode(), file_type="md")
        with pytest.raises(Exists):
            db.documents.ingest(given, replace=False, embed=False)
        assert db.documents.text(kept.id) == first and db.documents.count() == 1
        assert ingest(second, library="other").status == "indexed"
        assert ingest(second, replace=True).status == "replaced"
        assert db.check() == []


def test_of_two_who_store_under_one_name_at_once_one_is_told(path: Path) -> None:
    together = threading.Barrier(2)

    def store(text: str) -> str:
        with Database(path, embedder=Letters()) as db:
            together.wait(30)
            try:
                return db.documents.ingest_text(text, source="a.md", replace=False).status
            except Exists:
                return "refused"

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(store, ["one", "two"])) == ["indexed", "refused"]


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"sources": ["a", "b"]}, InvalidInput, "there are 3 texts, but 2 sources"),
        ({"titles": ["a"]}, InvalidInput, "but 1 titles"),
        ({"metadata": []}, InvalidInput, "but 0 metadata"),
        ({"sources": ["a", "b", "a"]}, InvalidInput, "'a' is given 2 times"),
        ({"sources": "abc"}, InvalidInput, "not one string"),
        ({"texts": "abc"}, InvalidInput, "not one string"),
        ({"texts": ["x", "y", " \n"]}, NoText, "the text of 'c' is blank"),
        ({"library": " "}, InvalidInput, "library"),
    ],
)
def test_nothing_is_stored_if_one_text_cannot_be(
    changes: dict[str, Any], error: type[Exception], said: str
) -> None:
    given = {"texts": ["x", "y", "z"], "sources": ["a", "b", "c"], **changes}
    with Database(":memory:", embedder=Letters(), config=Config(max_source_bytes=100)) as db:
        with pytest.raises(error, match=said):
            db.documents.ingest_many(given.pop("texts"), **given)
        assert db.documents.count() == 0
        assert db.documents.ingest_many([], sources=[]) == []


GERMAN = "Die Feuerwehr löschte den Brand in der Altstadt noch vor Mitternacht."
ENGLISH = "The fire brigade put out the fire in the old town before midnight."
MINILM = Config(model="all-MiniLM-L6-v2")


def notes(db: Database, *texts: str) -> list[str]:
    """The notes on texts that are ingested one by one."""
    start = db.documents.count()
    return [
        db.documents.ingest_text(text, source=f"{start + number}.md", embed=False).note
        for number, text in enumerate(texts)
    ]


def test_a_file_that_begins_in_another_language_says_once_that_a_model_for_it_exists(
    path: Path,
) -> None:
    with Database(path, config=MINILM) as db:
        first, *others = notes(db, GERMAN, GERMAN + " Ende.", ENGLISH)
    assert "not in English" in first and f"`mcpvectordb model use {MULTILINGUAL}`" in first
    assert others == ["", ""]
    with Database(path, config=MINILM) as db:
        assert notes(db, GERMAN + " Noch einmal.") == [""]
        assert db.check() == []


def test_the_advice_has_the_command_that_installs_what_is_missing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcpvectordb.documents.write.weights.installed", lambda *_: False)
    with Database(path, config=MINILM) as db:
        [note] = notes(db, GERMAN)
    assert f"run `{CATALOGUE[MULTILINGUAL].command}`, then `mcpvectordb model use" in note


def test_a_file_in_english_says_nothing_also_when_german_follows(path: Path) -> None:
    with Database(path, config=MINILM) as db:
        assert set(notes(db, *(f"{ENGLISH} {number}" for number in range(20)))) == {""}
        assert set(notes(db, *(f"{GERMAN} {number}" for number in range(30)))) == {""}


def test_a_file_that_turns_out_to_be_german_says_so_when_most_of_it_is(path: Path) -> None:
    with Database(path, config=MINILM) as db:
        found = notes(db, ENGLISH, GERMAN, GERMAN + " Ende.", GERMAN + " Schluss.")
    assert [bool(note) for note in found] == [False, False, True, False]


@pytest.mark.skipif(
    not installed(CATALOGUE["multilingual-e5-small"], Path("nowhere")),
    reason="the extra multilingual is not installed",
)
def test_a_file_with_the_multilingual_model_says_nothing(path: Path) -> None:
    with Database(path, config=Config(model="multilingual-e5-small")) as db:
        assert notes(db, GERMAN) == [""]


def test_a_file_with_an_embedder_of_the_users_own_says_nothing(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        assert notes(db, GERMAN) == [""]


def test_folders_and_many_texts_say_it_too(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.md").write_text(GERMAN)
    with Database(tmp_path / "folder.db", config=MINILM) as db:
        assert "not in English" in db.documents.ingest_folder(folder, embed=False).note
    with Database(tmp_path / "texts.db", config=MINILM) as db:
        done = db.documents.ingest_many([GERMAN, GERMAN + "!"], sources=["a", "b"], embed=False)
        assert [bool(each.note) for each in done] == [False, True]
