from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path
from typing import NoReturn

import apsw
import pytest

from mcpvectordb import Config, Database, InvalidInput, Unwritable, maintenance
from mcpvectordb.index.tuning import Tuning
from tests.support import Letters

NO_HISTORY = Config(history_days=0)
CODED = Tuning(uncoded_chunks=0)


def filled(
    path: Path, count: int = 20, config: Config | None = None, tuning: Tuning | None = None
) -> Database:
    db = Database(path, embedder=Letters(), config=config, tuning=tuning)
    for number in range(count):
        db.documents.ingest_text(
            f"# Note {number}\n\napple {number} {'pie ' * (number % 5)}", source=f"{number}.md"
        )
    return db


def answers(db: Database) -> list[tuple[str, float]]:
    return [(hit.item.text, hit.score) for hit in db.documents.search("apple pie 3", limit=10)]


def test_a_copy_is_one_complete_file_that_only_its_owner_can_read(
    path: Path, tmp_path: Path
) -> None:
    with filled(path) as db:
        target = db.copy_to(tmp_path / "copy.db")
        assert stat.S_IMODE(target.stat().st_mode) == 0o600
        expected = answers(db)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    shutil.move(target, moved / "renamed.db")
    with Database(moved / "renamed.db", embedder=Letters()) as copy:
        assert answers(copy) == expected and copy.check() == []
        assert copy.documents.ingest_text("new", source="new").status == "indexed"
    assert [each.name for each in moved.iterdir()] == ["renamed.db"]


def test_a_copy_to_a_disk_that_is_read_only_is_a_clear_error(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.EROFS, "Read-only file system")

    with filled(path, 1) as db, monkeypatch.context() as patched:
        for owner, name in ((os, "open"), (Path, "unlink"), (Path, "iterdir")):
            patched.setattr(owner, name, refuse)
        for write in (db.copy_to, db.export_to):
            with pytest.raises(Unwritable, match=r"out\.jsonl cannot be written: Read-only"):
                write(tmp_path / "out.jsonl")


def test_a_copy_never_replaces_a_file(path: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    with filled(path, 1) as db:
        with pytest.raises(InvalidInput, match="exists already"):
            db.copy_to(tmp_path / "mine")
        with pytest.raises(InvalidInput, match="exists already"):
            db.copy_to(path)
        with pytest.raises(Unwritable, match="does not exist"):
            db.copy_to(tmp_path / "no" / "copy.db")
    assert (tmp_path / "mine").read_text() == "precious"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["mine", "test.db"]


WORDS = (b"zanzibar", b"quixot", b"xylophon", b"embargo", b"wombat", b"vanish", b"gazelle")


def with_deleted_text(path: Path, others: int) -> Database:
    """A database from which everything that had one of WORDS was deleted or replaced."""
    db = filled(path, others, NO_HISTORY)
    gone = db.documents.ingest_text("zanzibar was quixotic", source="a", title="Xylophone")
    db.documents.ingest_text("the embargo of before", source="b")
    db.documents.ingest_text("what came after it", source="b")
    memory = db.memories.add("thread", "user", "a wombat vanished", metadata={"of": "a gazelle"})
    db.vectors.add("v", [1.0, 2.0], metadata={"of": "a gazelle"})
    db.documents.search("zanzibar embargo", unit="document", fusion="rrf", expand=True)
    db.documents.delete(gone.document.id)
    db.memories.delete([memory.id])
    db.vectors.delete("v")
    return db


def found(content: bytes) -> list[bytes]:
    return [word for word in WORDS if word in content.lower()]


def test_a_copy_replaces_a_file_only_when_asked_and_only_when_it_is_complete(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, link = tmp_path / "copy.db", tmp_path / "link.db"
    with filled(path, 1) as db:
        first = db.copy_to(target, overwrite=True).read_bytes()
        db.documents.ingest_text("pear", source="pear")
        link.symlink_to(target)

        def broken(_: Path) -> None:
            assert target.read_bytes() == first
            raise OSError(errno.ENOSPC, "no space left")

        with monkeypatch.context() as patch:
            patch.setattr(maintenance, "_verify", broken)
            with pytest.raises(Unwritable, match="no space left"):
                db.copy_to(target, overwrite=True)
        assert target.read_bytes() == first
        assert db.copy_to(link, overwrite=True) == target and link.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    with Database(target, embedder=Letters()) as copy:
        assert copy.documents.count() == 2 and copy.check() == []
    assert {each.name for each in tmp_path.iterdir()} == {"test.db", "copy.db", "link.db"}


def test_a_copy_never_replaces_its_own_database_nor_one_that_is_in_use_nor_a_folder(
    path: Path, tmp_path: Path
) -> None:
    same, used, left = (tmp_path / name for name in ("same.db", "used.db", "left.db"))
    with filled(path, 1) as db, filled(used, 2) as other:
        same.hardlink_to(path)
        for each in (path, same):
            with pytest.raises(InvalidInput, match="the database itself"):
                db.copy_to(each, overwrite=True)
        with pytest.raises(InvalidInput, match="not a file"):
            db.copy_to(tmp_path, overwrite=True)
        # SQLite would apply the log of the old file to the new one.
        for name in ("used.db", "used.db-wal"):
            shutil.copy(tmp_path / name, tmp_path / name.replace("used", "left"))
        for each in (used, left):
            with pytest.raises(Unwritable, match="open in a process, or was not closed"):
                db.copy_to(each, overwrite=True)
        assert other.documents.count() == 2 and other.check() == []
    with Database(left, embedder=Letters()) as recovered:
        assert recovered.documents.count() == 2


@pytest.mark.parametrize("others", [0, 30])
def test_a_copy_has_nothing_of_deleted_text(path: Path, tmp_path: Path, others: int) -> None:
    with with_deleted_text(path, others) as db:
        expected = answers(db)
        assert found(db.copy_to(tmp_path / "copy.db").read_bytes()) == []
    with Database(tmp_path / "copy.db", embedder=Letters()) as copy:
        assert answers(copy) == expected and copy.check() == []


@pytest.mark.parametrize("others", [0, 30])
def test_a_compacted_file_has_nothing_of_deleted_text(path: Path, others: int) -> None:
    with with_deleted_text(path, others) as db:
        expected = answers(db)
        db.compact()
        assert found(path.read_bytes() + Path(f"{path}-wal").read_bytes()) == []
        assert answers(db) == expected and db.check() == []


def test_deleted_sentences_are_not_in_the_file_when_it_is_closed(path: Path) -> None:
    """Single words may be, in the indexes, until the file is compacted."""
    sentences = [f"the {word.decode()} of {word.decode()} island" for word in WORDS]
    with filled(path, 30, NO_HISTORY) as db:
        documents = [db.documents.ingest_text(text * 30, source=text) for text in sentences]
        memories = [db.memories.add("thread", "user", f"a {text}") for text in sentences]
        for text in sentences:
            db.vectors.add(text, [1.0, 2.0], metadata={"text": text})
        for document in documents:
            db.documents.delete(document.document.id)
        for memory in memories:
            db.memories.delete([memory.id])
        for text in sentences:
            db.vectors.delete(text)
    content = path.read_bytes()
    assert [text for text in sentences if text.encode() in content] == []


def without_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk like FAT, which has no hard links."""

    def link(source: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)


def test_a_copy_needs_no_hard_links(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_links(monkeypatch)
    with filled(path) as db:
        target = db.copy_to(tmp_path / "copy.db")
        assert stat.S_IMODE(target.stat().st_mode) == 0o600
        expected = answers(db)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["copy.db", "test.db"]
    with Database(target, embedder=Letters()) as copy:
        assert answers(copy) == expected and copy.check() == []


@pytest.mark.parametrize("links", [True, False])
def test_a_copy_does_not_replace_a_file_that_came_meanwhile(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    if not links:
        without_links(monkeypatch)
    target, verify = tmp_path / "copy.db", maintenance._verify

    def slow(part: Path) -> None:
        verify(part)
        target.write_text("precious")

    monkeypatch.setattr(maintenance, "_verify", slow)
    with filled(path, 1) as db, pytest.raises(InvalidInput, match="exists already"):
        db.copy_to(target)
    assert target.read_text() == "precious"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["copy.db", "test.db"]


def test_a_copy_that_cannot_get_its_name_leaves_nothing(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_links(monkeypatch)

    def replace(source: Path, target: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "replace", replace)
    with filled(path, 1) as db, pytest.raises(Unwritable, match="Input/output error"):
        db.copy_to(tmp_path / "copy.db")
    assert [each.name for each in tmp_path.iterdir()] == ["test.db"]


def test_what_killed_copies_left_is_removed_and_nothing_else(path: Path, tmp_path: Path) -> None:
    code = "0123456789abcdef" * 2
    stale = [f".copy.db.{code}.part", f".copy.db.{code}.part-journal"]
    others = [f".other.db.{code}.part", ".copy.db.part", f"copy.db.{code}.part", ".copyXdb.part"]
    running = f".copy.db.{code[::-1]}.part"
    for name in (*stale, *others, running):
        (tmp_path / name).write_text("x")
        os.utime(tmp_path / name, (0, 0)) if name != running else None
    with filled(path, 1) as db:
        db.copy_to(tmp_path / "copy.db")
    left = {each.name for each in tmp_path.iterdir()}
    assert left == {"copy.db", "test.db", running, *others}


def test_a_database_in_memory_can_be_copied_to_a_file(tmp_path: Path) -> None:
    with Database(":memory:", embedder=Letters()) as db:
        db.documents.ingest_text("apple", source="a")
        assert db.check() == [] and db.stats().documents == 1
        db.copy_to(tmp_path / "kept.db")
    with Database(tmp_path / "kept.db", embedder=Letters()) as db:
        assert db.documents.count() == 1


def test_compacting_frees_space_and_changes_no_results(path: Path) -> None:
    with filled(path, 120) as db:
        for document in db.documents.browse(limit=100):
            db.documents.delete(document.id)
        expected, before = answers(db), db.stats().bytes
        freed = db.compact()
        assert freed > 0 and db.stats().bytes == before - freed
        assert answers(db) == expected and db.check() == []


@pytest.mark.parametrize(
    ("statement", "reported"),
    [
        ("DELETE FROM document_embeddings WHERE chunk = 3", "neither embedded nor waiting"),
        (
            "UPDATE document_chunks SET tile = 'xyz' || substr(tile, 4) WHERE id = 5",
            "text of chunk 5 is not the one that came in",
        ),
        (
            "UPDATE document_chunks SET tile = tile || '*' WHERE id = 5",
            "text of chunk 5 is not the one that came in",
        ),
        ("UPDATE document_chunks SET tile_start = 7 WHERE id = 5", "does not follow"),
        ("DELETE FROM document_words WHERE rowid = 4", "words in the index are not those"),
        (
            "UPDATE document_words_docsize SET sz = 7 WHERE id = 4",
            "words in the index are not those",
        ),
        (
            "UPDATE document_embeddings SET embedding = zeroblob(128) WHERE chunk = 2",
            "missing or differs",
        ),
        ("INSERT INTO document_pending SELECT 4, key, 0 FROM models", "both embedded and waiting"),
        (
            "UPDATE document_meaning_1_chunks SET validity = zeroblob(32)",
            "not every row of it can be found by nearness",
        ),
        ("UPDATE document_meaning_1_chunks SET rowids = x'00'", "contradicts itself"),
        (
            "INSERT INTO document_embeddings VALUES (999, 1, zeroblob(128))",
            "refers to a missing row",
        ),
        (
            "UPDATE settings SET value = 'nonsense' WHERE name = 'model'",
            "the value of model is invalid",
        ),
        (
            "UPDATE settings SET value = 'many' WHERE name = 'chunk_overlap'",
            "the value of chunk_overlap is invalid",
        ),
        ("DELETE FROM settings WHERE name = 'model'", "has only ['chunk_overlap', 'chunk_size']"),
        (
            "UPDATE documents SET metadata = '[]' WHERE key < 4",
            "the metadata of 3 rows is not a JSON object",
        ),
    ],
)
def test_check_reports_what_is_wrong_and_rebuild_repairs_the_indexes(
    path: Path, statement: str, reported: str
) -> None:
    filled(path, tuning=CODED).close()
    other = apsw.Connection(str(path))
    other.execute(statement)
    other.close()
    with Database(path, embedder=Letters(), tuning=CODED) as db:
        assert any(reported in problem for problem in db.check())
        db.rebuild()
        left = db.check()
        truth_is_broken = any(
            word in statement for word in ("SET tile", "999", "metadata", "settings")
        )
        assert bool(left) == truth_is_broken


def test_rebuild_changes_no_results(path: Path) -> None:
    with filled(path) as db:
        expected = answers(db)
        db.rebuild()
        assert answers(db) == expected and db.check() == []


def test_stats_count_what_is_there(path: Path) -> None:
    with filled(path, 3) as db:
        db.documents.ingest_text("later", source="later", library="other", embed=False)
        stats = db.stats()
        assert (stats.documents, stats.libraries, stats.chunks, stats.pending) == (4, 2, 4, 1)
        assert (stats.model, stats.dimension, stats.path) == ("letters", 32, str(path))
        assert stats.bytes > 0


def test_rows_that_are_missing_in_an_index_of_sqlite_are_reported(path: Path) -> None:
    filled(path, 3).close()
    other = apsw.Connection(str(path))
    other.execute("PRAGMA writable_schema = ON")
    index = other.execute(
        "SELECT * FROM sqlite_schema WHERE name = 'document_chunks_by_hash'"
    ).fetchall()[0]
    other.execute("DELETE FROM sqlite_schema WHERE name = 'document_chunks_by_hash'")
    other.close()
    other = apsw.Connection(str(path))
    other.execute(
        "INSERT INTO document_chunks SELECT id + 10, owner, position + 1, tile, tile_start + "
        "length(tile), start, "
        '"end", first_line, last_line, page, headings, hash, header, footer FROM document_chunks'
    )
    other.execute("PRAGMA writable_schema = ON")
    other.execute("INSERT INTO sqlite_schema VALUES (?, ?, ?, ?, ?)", index)
    other.close()
    with Database(path, embedder=Letters()) as db:
        assert any("document_chunks_by_hash" in problem for problem in db.check())


def test_the_space_of_a_file_is_told_by_what_takes_it(path: Path) -> None:
    with Database(path, embedder=Letters(), tuning=CODED) as db:
        _check_space(db)


def _check_space(db: Database) -> None:
    before = db.space()
    db.documents.ingest_text("green tea " * 5000, source="a.md")
    db.memories.add("t", "user", "hello")
    space = db.space()
    assert space["texts of documents"] > before["texts of documents"]
    assert {"words of documents", "embeddings of memories", "codes of embeddings"} <= space.keys()
    db._file._keeper.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    assert sum(space.values()) == db.stats().bytes
    db.documents.delete(library="default")
    assert db.space()["unused"] > space["unused"]


def test_compact_and_rebuild_empty_the_table_of_earlier_versions(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        for forget in (db.compact, db.rebuild):
            other = apsw.Connection(str(path))
            other.execute("INSERT INTO cache (key, value) VALUES (x'01', '[]')")
            forget()
            assert other.execute("SELECT count(*) FROM cache").get == 0
            other.close()
        assert db.check() == []
