"""Copies that were changed on two machines become one; the laws are held by
`tests/properties/test_merge_machine.py`.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from mcpvectordb import (
    Config,
    Damaged,
    Database,
    InvalidInput,
    MCPVectorDBError,
    NewerFile,
    NotOurFile,
)
from mcpvectordb.history import clock
from tests.support import Gated, Letters

FIXTURES = Path(__file__).parents[2] / "fixtures"


class Counted(Letters):
    """Counts the texts that it embeds."""

    def __init__(self) -> None:
        self.texts = 0

    def embed(self, texts, *, query=False):  # type: ignore[no-untyped-def]
        self.texts += len(texts)
        return super().embed(texts, query=query)


def opened(path: Path, embedder: Letters | None = None, **config: object) -> Database:
    return Database(path, embedder=embedder or Letters(), config=Config(**config))  # type: ignore[arg-type]


def texts(db: Database) -> dict[str, str]:
    return {each.path: db.documents.text(each.id) for each in db.documents.browse(limit=1000)}


@pytest.fixture
def copies(tmp_path: Path) -> tuple[Path, Path]:
    """Two copies of a file with three documents, a memory and a vector."""
    laptop, desktop = tmp_path / "laptop.db", tmp_path / "desktop.db"
    with opened(laptop) as db:
        for name in "abc":
            db.documents.ingest_text(f"{name} of before", source=f"{name}.md")
        db.contexts.add("t", "user", "before")
        db.vectors.add("v", [1.0, 2.0])
        db.copy_to(desktop)
    return laptop, desktop


def test_what_was_changed_on_either_is_in_both_afterwards(copies: tuple[Path, Path]) -> None:
    laptop, desktop = copies
    with opened(laptop) as db:
        db.documents.ingest_text("a of the laptop", source="a.md")
        db.documents.ingest_text("new on the laptop", source="l.md")
        db.documents.delete(db.documents.lookup("c.md").document.id)
        db.contexts.add("t", "user", "of the laptop")
    with opened(desktop) as db:
        db.documents.ingest_text("a of the desktop", source="a.md")
        db.documents.ingest_text("b of the desktop", source="b.md")
        db.contexts.update(1, text="of the desktop")
        db.vectors.delete("v")
    counted = Counted()
    with opened(laptop, counted) as db:
        here, there = db.sync_with(desktop)
        assert (here.updated, here.lost) == (("default/b.md", "memory:1"), ("default/a.md",))
        assert here.deleted == ("default/v",) and here.embedded == 3
        assert set(there.added) == {"default/l.md", "memory:2"}
        assert there.deleted == ("default/c.md",) and there.lost == ()
        assert texts(db) == {
            "default/a.md": "a of the desktop",
            "default/b.md": "b of the desktop",
            "default/l.md": "new on the laptop",
        }
        assert {each.text for each in db.contexts.browse()} == {"of the laptop", "of the desktop"}
        assert db.vectors.count() == 0 and db.stats().pending == 0 and db.check() == []
        mine = [each for each in db.history("a.md") if each.items[0].kind == "replaced"]
        assert "a of the laptop" in "".join(db.diff(each.number) for each in mine)
        with opened(desktop) as other:
            assert texts(other) == texts(db) and other.check() == []
    assert counted.texts == 0


def test_a_deletion_is_not_undone_by_an_old_copy(copies: tuple[Path, Path]) -> None:
    laptop, old = copies
    with opened(laptop) as db:
        db.documents.delete(db.documents.lookup("a.md").document.id)
        db.contexts.delete([1])
        db.vectors.delete("v")
        done = db.merge(old)
        assert (done.added, done.updated, done.deleted, done.lost) == ((), (), (), ())
        assert db.documents.count() == 2 and db.contexts.count() == 0 and db.vectors.count() == 0


def test_a_later_change_wins_although_its_clock_is_behind(copies: tuple[Path, Path]) -> None:
    """Whoever has seen a change makes later ones only, whatever the wall clock says."""
    laptop, desktop = copies
    with opened(laptop) as db:
        db._history.wall_clock = lambda: 2.0e9
        db.documents.ingest_text("from the future", source="a.md")
    with opened(desktop) as db:
        db._history.wall_clock = lambda: 1.9e9
        db.merge(laptop)
        db._history.wall_clock = lambda: 1.8e9
        db.documents.ingest_text("after that", source="a.md")
    with opened(laptop) as db:
        assert db.merge(desktop).updated == ("default/a.md",)
        assert texts(db)["default/a.md"] == "after that"


def test_contexts_with_the_same_id_in_both_files_are_both_there(copies: tuple[Path, Path]) -> None:
    laptop, desktop = copies
    for path in copies:
        with opened(path) as db:
            assert db.contexts.add("t", "user", f"second on {path.stem}").id == 2
    with opened(laptop) as db:
        db.merge(desktop)
        assert {each.id: each.text for each in db.contexts.browse()} == {
            1: "before",
            2: "second on laptop",
            3: "second on desktop",
        }
        assert db.contexts.search("desktop", mode="text")[0].item.id == 3 and db.check() == []


def test_duplicates_of_one_source_are_all_kept(copies: tuple[Path, Path], tmp_path: Path) -> None:
    laptop, desktop = copies
    (tmp_path / "d.md").write_text("one")
    for path in copies:
        with opened(path) as db:
            db.documents.ingest(tmp_path / "d.md", duplicate=True)
    with opened(laptop) as db:
        db.merge(desktop)
        assert db.documents.count(where={"source": str(tmp_path / "d.md")}) == 2


def test_a_change_that_came_by_a_merge_can_be_undone(copies: tuple[Path, Path]) -> None:
    laptop, desktop = copies
    with opened(desktop) as db:
        db.documents.delete(db.documents.lookup("b.md").document.id)
    with opened(laptop) as db:
        db.merge(desktop)
        assert "default/b.md" not in texts(db)
        db.undo()
        assert texts(db)["default/b.md"] == "b of before" and db.check() == []


def test_a_new_file_gets_everything_with_its_embeddings(
    copies: tuple[Path, Path], tmp_path: Path
) -> None:
    gated = Gated()  # embeds nothing
    with opened(tmp_path / "new.db", gated) as db:
        assert db.merge(copies[0]).embedded == 4
        assert db.stats().pending == 0 and db.check() == []
        assert db.documents.search("before", mode="vector").legs == ("vector",)


def test_embeddings_of_another_model_stay_where_they_are(
    copies: tuple[Path, Path], tmp_path: Path
) -> None:
    class Others(Letters):
        name = "others"

    with opened(tmp_path / "new.db", Others()) as db:
        db.documents.ingest_text("mine", source="mine.md")
        done = db.merge(copies[0])
        assert (done.embedded, done.note) == (0, "waiting for their embeddings: 4 passages")
        assert db.embed_pending() == 4 and db.check() == []


@pytest.mark.parametrize("version", ["1", "6", "10"])
def test_a_file_of_an_older_format_is_merged_and_not_changed(version: str, tmp_path: Path) -> None:
    old = tmp_path / "old.db"
    shutil.copy(FIXTURES / f"version-{version}.db", old)
    before = old.read_bytes()
    with opened(tmp_path / "new.db") as db:
        assert set(db.merge(old).added) == {
            "work/boats.md",
            "default/odd.txt",
            "default/waiting.txt",
        }
        assert db.check() == []
        assert db.merge(old).added == ()
    assert old.read_bytes() == before


def test_copies_of_an_old_file_that_were_migrated_apart_are_the_same(tmp_path: Path) -> None:
    for name in ("one.db", "two.db"):
        shutil.copy(FIXTURES / "version-10.db", tmp_path / name)
    with opened(tmp_path / "one.db") as db:
        done = db.merge(tmp_path / "two.db")
        assert (done.added, done.updated, done.lost) == ((), (), ())


def test_a_file_in_use_is_merged_as_it_is_committed(copies: tuple[Path, Path]) -> None:
    laptop, desktop = copies
    with opened(desktop) as other, opened(laptop) as db:
        other.documents.ingest_text("just now", source="n.md")
        with other._file.writing() as sql:
            sql.execute("DELETE FROM vectors")  # not committed
            assert db.merge(desktop).added == ("default/n.md",)
            sql.execute("ROLLBACK")
            sql.execute("BEGIN")


def test_stores_of_two_metrics_become_one_the_older(tmp_path: Path) -> None:
    one, two = tmp_path / "one.db", tmp_path / "two.db"
    with opened(one) as db:
        db._history.wall_clock = lambda: 1.8e9
        db.vectors.add("a", [1.0, 0.0], store="s", metric="dot")
    with opened(two) as db:
        db._history.wall_clock = lambda: 1.9e9
        db.vectors.add("b", [0.0, 1.0], store="s", metric="cosine")
    with opened(two) as db:
        db._history.wall_clock = lambda: 1.9e9
        db.sync_with(one)
        assert [(each.metric, each.vectors) for each in db.vectors.stores()] == [("dot", 2)]
        assert db.check() == []
    with opened(one) as db:
        assert [(each.metric, each.vectors) for each in db.vectors.stores()] == [("dot", 2)]


def test_what_cannot_be_merged_is_refused_and_nothing_changes(
    copies: tuple[Path, Path], tmp_path: Path
) -> None:
    laptop, _ = copies
    (tmp_path / "text.db").write_text("no database")
    apsw.Connection(str(tmp_path / "foreign.db")).execute("CREATE TABLE x (y)")
    newer = tmp_path / "newer.db"
    shutil.copy(laptop, newer)
    with apsw.Connection(str(newer)) as raw:
        raw.execute("PRAGMA user_version = 999")
    raw.close()
    with opened(laptop) as db:
        before = texts(db)
        for path, error in (
            (laptop, InvalidInput),
            (tmp_path / "missing.db", InvalidInput),
            (tmp_path, InvalidInput),
            (tmp_path / "text.db", NotOurFile),
            (tmp_path / "foreign.db", NotOurFile),
            (newer, NewerFile),
        ):
            with pytest.raises(error):
                db.merge(path)
        assert texts(db) == before and db.check() == []
    with (
        opened(laptop, read_only=True) as db,
        pytest.raises(MCPVectorDBError, match="reading only"),
    ):
        db.merge(copies[1])


def tampered(sql: apsw.Connection, statement: str, *bindings: object) -> None:
    sql.execute(statement, bindings)  # type: ignore[arg-type]


FIELDS = json.dumps({"title": 7})
HOSTILE: dict[str, Callable[[apsw.Connection], None]] = {
    "a clock of the far future": lambda sql: tampered(
        sql, "UPDATE history_state SET clock = ?", clock.LAST
    ),
    "no clock": lambda sql: tampered(sql, "DELETE FROM history_state"),
    "a stamp below zero": lambda sql: tampered(
        sql, "UPDATE documents SET stamp = -1, source = 'x' WHERE key = 1"
    ),
    "metadata that is none": lambda sql: tampered(
        sql, "UPDATE documents SET metadata = '[', source = 'x' WHERE key = 1"
    ),
    "chunks that are not the text": lambda sql: [  # type: ignore[dict-item]
        tampered(sql, "UPDATE documents SET source = 'x' WHERE key = 1"),
        tampered(sql, "UPDATE document_chunks SET start = 5 WHERE owner = 1"),
    ],
    "a history of no shelf": lambda sql: tampered(
        sql,
        "INSERT INTO history_versions (shelf, place, name, twin, stamp, until, digest, fields) "
        "VALUES ('x', '', '', '', 1, 1, zeroblob(16), '{}')",
    ),
    "a history of odd fields": lambda sql: tampered(
        sql,
        "INSERT INTO history_versions (shelf, place, name, twin, stamp, until, digest, fields) "
        "VALUES ('documents', 'l', 's', '', 1, 1, zeroblob(16), ?)",
        FIELDS,
    ),
    "a store of no metric": lambda sql: tampered(sql, "UPDATE stores SET metric = 'x'"),
}


@pytest.mark.parametrize("attack", HOSTILE)
def test_a_file_that_was_tampered_with_is_refused_and_nothing_changes(
    copies: tuple[Path, Path], attack: str
) -> None:
    laptop, desktop = copies
    raw = apsw.Connection(str(desktop))
    HOSTILE[attack](raw)
    raw.close()
    with opened(laptop) as db:
        before = texts(db)
        with pytest.raises(Damaged, match="was not merged, and nothing changed"):
            db.merge(desktop)
        assert texts(db) == before and db.check() == []


def test_embeddings_that_cannot_be_ranked_do_not_come_along(
    copies: tuple[Path, Path], tmp_path: Path
) -> None:
    raw = apsw.Connection(str(copies[0]))
    raw.execute("UPDATE document_embeddings SET embedding = zeroblob(128)")
    raw.close()
    with opened(tmp_path / "new.db") as db:
        assert db.merge(copies[0]).embedded == 1  # the memory's
        assert db.stats().pending == 3 and db.embed_pending() == 3 and db.check() == []


def test_a_body_that_unpacks_to_many_times_its_size_is_not_taken_in(
    copies: tuple[Path, Path],
) -> None:
    laptop, desktop = copies
    with opened(desktop) as db:
        for text in ("a of the desktop", "a again"):
            db.documents.ingest_text(text, source="a.md")
    with contextlib.closing(apsw.Connection(str(desktop))) as sql:
        bomb = zlib.compress(b'["",[' + b"[]," * 8_000_000 + b"[]]]", 9)
        sql.execute("UPDATE history_bodies SET body = ?", (bomb,))
        assert sql.changes() == 2 and len(bomb) < 30_000
    with opened(laptop) as db, opened(desktop) as other:
        with pytest.raises(Damaged, match="not what was written"):
            other.diff(other.history()[0].number)
        before = texts(db)
        with pytest.raises(Damaged, match="not what was written"):
            db.merge(desktop)
        assert texts(db) == before and not db.check()
