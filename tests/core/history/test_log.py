"""What is kept, for how long, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcpvectordb import Config, Database, InvalidInput
from mcpvectordb.history import log
from mcpvectordb.index.tuning import Tuning
from tests.support import Letters

DAY = 86_400.0
IN_SLICES = Tuning(slice_chunks=2, slice_characters=150)


def opened(path: Path | str = ":memory:", **config: float) -> Database:
    return Database(path, embedder=Letters(), config=Config(**config), tuning=IN_SLICES)  # type: ignore[arg-type]


def rows(db: Database, table: str) -> int:
    with db._file.reading() as sql:
        return int(sql.execute(f"SELECT count(*) FROM {table}").get)


def test_what_is_new_takes_one_small_row_for_each_transaction() -> None:
    with opened() as db:
        db.documents.ingest_many(["a b c"] * 100, sources=[f"{n}.md" for n in range(100)])
        db.vectors.add_many([str(n) for n in range(100)], [[float(n), 1.0] for n in range(100)])
        assert rows(db, "history_versions") == rows(db, "history_bodies") == 0
        assert rows(db, "history_changes") <= 6
        assert [(each.count, each.action) for each in db.history()] == [(100, ""), (100, "ingest")]


def test_a_version_is_dropped_when_it_was_replaced_too_long_ago() -> None:
    with opened(history_days=30) as db:
        now = 1.8e9
        db._history.wall_clock = lambda: now
        for text in ("one", "two"):
            db.documents.ingest_text(text, source="a.md")
        now += 29 * DAY
        db.documents.ingest_text("three", source="a.md")
        assert rows(db, "history_versions") == 2
        now += 2 * DAY
        for number in range(16):  # it is not looked for what is too old at each change
            db.documents.ingest_text("other", source=f"{number}.md")
        assert rows(db, "history_versions") == 1 and rows(db, "history_bodies") == 1
        with pytest.raises(InvalidInput, match="the history of this file begins at"):
            db.documents.browse(as_of="2027-01-01")
        assert db.check() == []


def test_versions_take_a_share_of_the_file_and_the_newest_change_is_kept_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log, "ROOM", 3000)
    with opened(history_share=0.0) as db:
        for turn in range(40):
            db.documents.ingest_text(f"turn {turn} " + "word " * 50, source="a.md")
            assert db.stats().history_bytes < 12_000
        db.documents.ingest_many(
            [f"{n} " + "text " * 100 for n in range(60)], sources=[f"{n}.md" for n in range(60)]
        )
        assert db.documents.delete(library="default") == 61
        assert db.stats().history_bytes > 20_000
        assert len(db.undo().restored) == 61  # although each of its transactions makes room
        assert db.documents.count() == 61 and db.check() == []


def test_nothing_is_kept_where_history_is_off() -> None:
    with opened() as db:
        db.documents.ingest_text("one", source="a.md")
        db.documents.ingest_text("two", source="a.md")
        assert rows(db, "history_versions") == 1
        db.keep_history(False)
        db.documents.ingest_text("three", source="a.md")
        db.memories.delete([db.memories.add("t", "user", "x").id])
        assert rows(db, "history_versions") == rows(db, "history_changes") == 0
        assert db.history() == [] and db.check() == []
        db.keep_history(True)
        document = db.documents.ingest_text("four", source="a.md").document
        assert db.documents.text(document.id, as_of="today") == "four"
        assert [each.items[0].kind for each in db.history()] == ["replaced"]
    with opened(history_days=0) as db:
        db.documents.ingest_text("one", source="a.md")
        db.documents.ingest_text("two", source="a.md")
        assert rows(db, "history_versions") == 0 and db.history() == []


def test_a_long_document_is_kept_with_all_of_its_text(path: Path) -> None:
    text = "# Head\n\n" + "A sentence of a long document. " * 200
    with opened(path) as db:
        first = db.documents.ingest_text(text, source="a.md").document
        assert first.chunks > 2
        second = db.documents.ingest_text(text + "More.", source="a.md").document
        db.documents.delete(second.id)
        assert db.documents.text(first.id, as_of=1) == text
        assert len(db.undo().restored) == 1
        assert db.documents.text(second.id) == text + "More." and db.stats().pending == 0
        assert db.check() == []


def test_a_change_that_was_rolled_back_leaves_nothing() -> None:
    with opened() as db:
        db.documents.ingest_text("one", source="a.md")
        with pytest.raises(RuntimeError), db._file.writing():
            db.documents.ingest_text("two", source="a.md")
            raise RuntimeError
        assert [each.count for each in db.history()] == [1]
        db.documents.ingest_text("three", source="a.md")
        assert [each.items[0].kind for each in db.history()] == ["replaced", "added"]
        assert db.check() == []


def test_a_copy_has_the_history_unless_it_is_to_be_given_away(tmp_path: Path) -> None:
    with opened(tmp_path / "a.db") as db:
        db.documents.ingest_text("zanzibar", source="secret.md", title="Xylophone")
        db.documents.delete(db.documents.browse()[0].id)
        whole = db.copy_to(tmp_path / "whole.db")
        given = db.copy_to(tmp_path / "given.db", history=False)
    with opened(whole) as copy:
        assert copy.undo().restored == ("default/secret.md",)
    with opened(given) as copy:
        assert copy.history() == [] and copy.check() == []
    assert not [word for word in (b"Xyloph", b"zanzibar", b"secret") if word in given.read_bytes()]


def test_rebuild_repairs_what_check_finds() -> None:
    with opened() as db:
        for text in ("one", "two", "three"):
            db.documents.ingest_text(text, source="a.md")
        with db._file.writing() as sql:
            sql.execute("UPDATE history_state SET bytes = 7, clock = 1")
            sql.execute("UPDATE history_versions SET fields = '[' WHERE number = 1")
        assert db.check() == [
            "history_state: the clock is behind what was changed",
            f"history_state: the versions take {sizes(db)} bytes, not 7",
            "history_versions: 1 versions cannot be read",
        ]
        db.rebuild()
        assert db.check() == [] and rows(db, "history_versions") == 1


def sizes(db: Database) -> int:
    with db._file.reading() as sql:
        return int(sql.execute(log._BYTES).get)
