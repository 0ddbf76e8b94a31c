"""Copies that were changed on two machines become one; the laws are held by
`tests/properties/test_merge_machine.py`.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import time
import zlib
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
from mcpvectordb import merge as merge_module
from mcpvectordb.history import clock, log
from tests.support import Gated, Letters

YEAR = 365 * 86_400.0
FIXTURES = Path(__file__).parents[1] / "fixtures"


class Counted(Letters):
    """Counts the texts that it embeds."""

    def __init__(self) -> None:
        self.texts = 0

    def embed(self, texts, *, query=False):  # type: ignore[no-untyped-def]
        self.texts += len(texts)
        return super().embed(texts, query=query)


def opened(path: Path, embedder: Letters | None = None, **config: object) -> Database:
    return Database(path, embedder=embedder or Letters(), config=Config(**config))  # type: ignore[arg-type]


def tamper(path: Path, statement: str, bindings: tuple[object, ...] = ()) -> None:
    with contextlib.closing(apsw.Connection(str(path))) as raw:
        raw.execute(statement, bindings)  # type: ignore[arg-type]


def texts(db: Database) -> dict[str, str]:
    return {each.path: db.documents.text(each.id) for each in db.documents.browse(limit=1000)}


@pytest.fixture
def copies(tmp_path: Path) -> tuple[Path, Path]:
    """Two copies of a file with three documents, a memory and a vector."""
    laptop, desktop = tmp_path / "laptop.db", tmp_path / "desktop.db"
    with opened(laptop) as db:
        for name in "abc":
            db.documents.ingest_text(f"{name} of before", source=f"{name}.md")
        db.memories.add("t", "user", "before")
        db.vectors.add("v", [1.0, 2.0])
        db.copy_to(desktop)
    return laptop, desktop


def test_what_was_changed_on_either_is_in_both_afterwards(copies: tuple[Path, Path]) -> None:
    laptop, desktop = copies
    with opened(laptop) as db:
        db.documents.ingest_text("a of the laptop", source="a.md")
        db.documents.ingest_text("new on the laptop", source="l.md")
        db.documents.delete(db.documents.lookup("c.md").document.id)
        db.memories.add("t", "user", "of the laptop")
    with opened(desktop) as db:
        db.documents.ingest_text("a of the desktop", source="a.md")
        db.documents.ingest_text("b of the desktop", source="b.md")
        db.memories.update(1, text="of the desktop")
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
        assert {each.text for each in db.memories.browse()} == {"of the laptop", "of the desktop"}
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
        db.memories.delete([1])
        db.vectors.delete("v")
        done = db.merge(old)
        assert (done.added, done.updated, done.deleted, done.lost) == ((), (), (), ())
        assert db.documents.count() == 2 and db.memories.count() == 0 and db.vectors.count() == 0


def test_a_later_change_wins_although_its_clock_is_behind(copies: tuple[Path, Path]) -> None:
    """Whoever has seen a change makes later ones only, whatever the wall clock says."""
    laptop, desktop = copies
    now = time.time()
    with opened(laptop) as db:
        db._history.wall_clock = lambda: now + 86_400
        db.documents.ingest_text("from tomorrow", source="a.md")
    with opened(desktop) as db:
        db.merge(laptop)
        db._history.wall_clock = lambda: now - 86_400
        db.documents.ingest_text("after that", source="a.md")
    with opened(laptop) as db:
        assert db.merge(desktop).updated == ("default/a.md",)
        assert texts(db)["default/a.md"] == "after that"


def test_memories_with_the_same_id_in_both_files_are_both_there(copies: tuple[Path, Path]) -> None:
    laptop, desktop = copies
    for path in copies:
        with opened(path) as db:
            assert db.memories.add("t", "user", f"second on {path.stem}").id == 2
    with opened(laptop) as db:
        db.merge(desktop)
        assert {each.id: each.text for each in db.memories.browse()} == {
            1: "before",
            2: "second on laptop",
            3: "second on desktop",
        }
        assert db.memories.search("desktop", mode="text")[0].item.id == 3 and db.check() == []


def test_a_merge_names_memories_by_the_ids_that_they_have_here(tmp_path: Path) -> None:
    here, there = tmp_path / "here.db", tmp_path / "there.db"
    with opened(here) as db, opened(there) as other:
        db.memories.add("t", "user", "mine")
        other.memories.add("t", "user", "theirs")
        assert db.merge(there).added == ("memory:2",)
        assert [each.items[0].name for each in db.history()] == ["memory:2", "memory:1"]
        other.memories.update(1, text="theirs again")
        assert db.merge(there).updated == ("memory:2",)
        other.memories.update(1, text="theirs for the third time")
        db.memories.update(2, text="theirs, changed here")
        assert db.merge(there).lost == ("memory:2",)
        db.memories.delete([2])
        assert db.memories.get([1])[0].text == "mine"
        assert [each.kind for each in db.history("memory:2", limit=1)[0].items] == ["deleted"]


def test_a_memory_that_never_had_an_id_here_is_named_by_its_uid(tmp_path: Path) -> None:
    """As another one has the id here that it had where it was made."""
    here, there = tmp_path / "here.db", tmp_path / "there.db"
    with opened(here) as db, opened(there) as other:
        db.memories.add("t", "user", "mine")
        other.memories.add("t", "user", "theirs")
        other.memories.delete([1])
        db.merge(there)
        deleted, added, mine = (each.items[0].name for each in db.history())
        assert deleted == added != mine == "memory:1"
        assert len(db.history(added)) == 2 and len(db.history(mine)) == 1


def test_duplicates_of_one_source_are_all_kept(copies: tuple[Path, Path], tmp_path: Path) -> None:
    laptop, desktop = copies
    (tmp_path / "d.md").write_text("one")
    for path in copies:
        with opened(path) as db:
            db.documents.ingest(tmp_path / "d.md", duplicate=True)
    with opened(laptop) as db:
        db.merge(desktop)
        assert db.documents.count(where={"source": str(tmp_path / "d.md")}) == 2


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
        db._history.wall_clock = lambda: 1.6e9
        db.vectors.add("a", [1.0, 0.0], store="s", metric="dot")
    with opened(two) as db:
        db._history.wall_clock = lambda: 1.7e9
        db.vectors.add("b", [0.0, 1.0], store="s", metric="cosine")
    with opened(two) as db:
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


FORMER = (
    "INSERT INTO history_versions (shelf, place, name, twin, stamp, until, digest, fields, body) "
)
LATER = clock.next_stamp(0, time.time() + 10 * YEAR)
HOSTILE = {
    "a clock of the far future": f"UPDATE history_state SET clock = {clock.LAST}",
    "a clock ten years ahead": f"UPDATE history_state SET clock = {LATER}",
    "no clock": "DELETE FROM history_state",
    "a stamp below zero": "UPDATE documents SET stamp = -1, source = 'x' WHERE key = 1",
    "metadata that is none": "UPDATE documents SET metadata = '[', source = 'x' WHERE key = 1",
    "chunks that are not the text": "UPDATE documents SET source = 'x' WHERE key = 1; "
    "UPDATE document_chunks SET start = 5 WHERE owner = 1",
    "a history of no shelf": f"{FORMER} VALUES ('x', '', '', '', 1, 1, zeroblob(16), '{{}}', NULL)",
    "a history of odd fields": f"{FORMER} VALUES ('documents', 'l', 's', '', 1, 1, zeroblob(16), "
    """'{"title":7}', NULL)""",
    "a store of no metric": "UPDATE stores SET metric = 'x'",
    "a text that is no UTF-8": "UPDATE documents SET source = 'x', title = CAST(x'ff' AS TEXT) "
    "WHERE key = 1",
    "metadata of numbers that are none": "UPDATE documents SET source = 'x', "
    """metadata = '{"a":NaN}' WHERE key = 1""",
    "metadata too deep": "UPDATE contexts SET uid = 'x', "
    f"""metadata = '{{"a":{"[" * 100}{"]" * 100}}}'""",
    "a time that is none": "UPDATE contexts SET uid = 'x', created_at = 'soon'",
    "a size below zero": "UPDATE documents SET source = 'x', size = -1 WHERE key = 1",
    "what people said in another form": "UPDATE documents SET source = 'x', given = '{}' "
    "WHERE key = 1",
    "a text that is not the one of its hash": "UPDATE contexts SET uid = 'x', hash = zeroblob(32)",
    "a vector that is no number": "UPDATE vectors SET id = 'x'; "
    "UPDATE vector_embeddings SET embedding = x'0000c07f0000c07f'",
    "a deletion that has a text": f"{FORMER} VALUES ('documents', 'l', 's', '', 1, 1, x'', NULL, "
    "x'31')",
    "a former version without its text": f"{FORMER} SELECT 'documents', library, 's', '', 1, 1, "
    "zeroblob(16), json_object('title', title, 'hash', hash, 'file_type', file_type, 'size', size, "
    "'created_at', created_at, 'metadata', metadata, 'given', NULL, 'chunks', 1, 'local', "
    "json_object('id', 'x', 'modified', '', 'etag', '', 'mtime_ns', -1)), x'3939' "
    "FROM documents WHERE key = 1",
    "a former version of no JSON": f"{FORMER} VALUES ('documents', 'l', 's', '', 1, 1, "
    "zeroblob(16), '[', NULL)",
    **{
        f"{table} changed later than its clock": f"UPDATE {table} SET stamp = {clock.LAST}"
        for table in ("documents", "contexts", "vectors", "stores", "history_changes")
    },
}


@pytest.mark.parametrize("attack", HOSTILE)
def test_a_file_that_was_tampered_with_is_refused_and_nothing_changes(
    copies: tuple[Path, Path], attack: str
) -> None:
    laptop, desktop = copies
    tamper(desktop, HOSTILE[attack])
    with opened(laptop) as db:
        before = texts(db)
        with pytest.raises(Damaged, match="was not merged, and nothing changed"):
            db.merge(desktop)
        assert texts(db) == before and db.check() == []


def test_embeddings_that_cannot_be_ranked_do_not_come_along(
    copies: tuple[Path, Path], tmp_path: Path
) -> None:
    tamper(copies[0], "UPDATE document_embeddings SET embedding = zeroblob(128)")
    with opened(tmp_path / "new.db") as db:
        assert db.merge(copies[0]).embedded == 1  # the memory's
        assert db.stats().pending == 3 and db.embed_pending() == 3 and db.check() == []


# A clock that is wrong.


def test_an_undo_that_came_by_a_merge_takes_back_the_same_change_here(
    copies: tuple[Path, Path],
) -> None:
    laptop, desktop = copies
    with opened(laptop) as db:
        db.documents.ingest_text("x", source="x.md")
        db.documents.ingest_text("y", source="y.md")
    with opened(desktop) as db:
        db.documents.ingest_text("a of the desktop", source="a.md")
        db.undo()
    with opened(laptop) as db:
        db.merge(desktop)
        edit, undo = (each.number for each in reversed(db.history("a.md")[:2]))
        assert db.history("a.md")[0].action == f"undo {edit}"
        assert db.next_undo(redo=True).number == undo
        assert db.undo().removed == ("default/y.md",)


def test_copies_of_a_file_with_a_wrong_clock_merge_with_each_other(
    copies: tuple[Path, Path], tmp_path: Path
) -> None:
    laptop, desktop = copies
    with opened(laptop) as db:
        db._history.wall_clock = lambda: time.time() + 9.9 * YEAR
        db.documents.ingest_text("a of 2036", source="a.md")
        db.copy_to(desktop, overwrite=True)
    with opened(desktop) as db:
        db.documents.ingest_text("b after that", source="b.md")
    with opened(laptop) as db:
        assert db.merge(desktop).updated == ("default/b.md",)
    for path in copies:  # mended one after the other, they still agree on the order of changes
        with opened(path) as db:
            db.rebuild(clock=True)
            db.documents.ingest_text(f"{path.stem} now", source=f"{path.stem}.md")
    with opened(laptop) as db:
        done = db.merge(desktop)
        assert (done.added, done.updated, done.lost) == (("default/desktop.md",), (), ())
        assert db.check() == []


def test_a_file_whose_stamps_were_spoilt_before_is_mended(copies: tuple[Path, Path]) -> None:
    """By a merge of an earlier version, which took stamps that the other clock never showed."""
    laptop, desktop = copies
    raw = apsw.Connection(str(laptop))
    raw.execute("UPDATE documents SET stamp = ? WHERE key = 1", (clock.LAST,))
    raw.execute("UPDATE documents SET stamp = -7 WHERE key = 2")
    raw.execute("UPDATE history_state SET dropped = ?", (clock.LAST,))
    raw.close()
    with opened(laptop) as db:
        assert len(db.check()) == 2
        db.rebuild(clock=True)
        assert db.check() == []
        db.documents.ingest_text("a of now", source="a.md")
        db.undo()
        assert texts(db)["default/a.md"] == "a of before"
    with opened(desktop) as db:
        db.merge(laptop)
        assert db.check() == []


def test_a_clock_at_its_end_is_a_clear_error(copies: tuple[Path, Path]) -> None:
    tamper(copies[0], "UPDATE history_state SET clock = 9223372036854775807")
    with opened(copies[0]) as db:
        with pytest.raises(Damaged, match="rebuild --clock"):
            db.documents.ingest_text("a", source="a.md")
        db.rebuild(clock=True)
        db.documents.ingest_text("a", source="a.md")
        assert db.check() == []


# What is one's own stays.


def state(db: Database) -> tuple[int, int]:
    with db._file.reading() as sql:
        return sql.execute("SELECT clock, dropped FROM history_state").get  # type: ignore[no-any-return]


def test_what_another_file_has_dropped_is_not_dropped_here(copies: tuple[Path, Path]) -> None:
    laptop, desktop = copies
    tamper(desktop, "UPDATE history_state SET dropped = ?", (clock.LAST,))
    with opened(laptop) as db:
        id = db.documents.ingest_text("a of the laptop", source="a.md").document.id
        edit = db.history()[0].number
        db.documents.ingest_text("a again", source="a.md")
        before = state(db)
        db.merge(desktop)
        assert state(db)[1] == before[1]
        assert db.documents.text(id, as_of=edit) == "a of the laptop"
        for number in range(40):
            db.documents.ingest_text("x", source=f"{number}.md")
        assert edit in [each.number for each in db.history(limit=1000)]
        db.undo(next(each.number for each in db.history("a.md")))
        assert texts(db)["default/a.md"] == "a of the laptop"


def test_what_a_merge_replaces_is_kept_from_then_on(tmp_path: Path) -> None:
    """Although the other file replaced it so long ago that its own history has dropped it."""
    laptop, desktop = tmp_path / "laptop.db", tmp_path / "desktop.db"
    with opened(laptop) as db:
        db._history.wall_clock = lambda: time.time() - 90 * 86_400
        mine = db.documents.ingest_text("only here", source="x.md").document.id
    with opened(desktop) as db:
        db._history.wall_clock = lambda: time.time() - 80 * 86_400
        db.documents.ingest_text("x of the desktop", source="x.md")
    with opened(laptop) as db:
        assert db.merge(desktop).lost == ("default/x.md",)
        for number in range(40):
            db.documents.ingest_text("x", source=f"{number}.md")
        with db._file.reading() as sql:
            kept = sql.execute("SELECT stamp FROM history_versions WHERE name = 'x.md'").get
        assert db.documents.text(mine, as_of=clock.moment(kept)) == "only here"
        assert db.check() == []


def test_the_history_of_another_file_pushes_none_of_ones_own_out(
    copies: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    laptop, desktop = copies
    with opened(desktop) as db:
        for number in range(16):
            text = random.Random(number).randbytes(4_000).hex()
            db.documents.ingest_text(text, source="n.md", embed=False)
    monkeypatch.setattr(log, "ROOM", 20_000)
    monkeypatch.setattr(merge_module, "MOST_CHANGES", 10)
    monkeypatch.setattr(log, "MOST_CHANGES", 10)
    with opened(laptop, history_share=0.0) as db:
        db.documents.ingest_text("a of the laptop", source="a.md")
        edit = db.history()[0].number
        db.merge(desktop)
        assert db.stats().history_bytes < 20_000
        for number in range(4):
            db.documents.ingest_text("x", source=f"{number}.md")
        db.undo(edit)
        assert texts(db)["default/a.md"] == "a of before" and db.check() == []


def test_a_former_id_is_not_taken_by_a_document_of_another_file(
    copies: tuple[Path, Path],
) -> None:
    laptop, desktop = copies
    with opened(laptop) as db:
        former = db.documents.ingest_text("mine", source="m.md").document.id
        db.documents.ingest_text("mine again", source="m.md")
    with opened(desktop) as db:
        db.documents.ingest_text("theirs", source="t.md")
    tamper(desktop, "UPDATE documents SET id = ? WHERE source = 't.md'", (former,))
    with opened(laptop) as db:
        db.merge(desktop)
        assert db.documents.lookup(former).document.source == "m.md"
        assert texts(db)["default/t.md"] == "theirs" and db.check() == []


def test_a_change_of_ones_own_takes_no_other_along(copies: tuple[Path, Path]) -> None:
    """The log of the other file says that two changes of this one were one."""
    laptop, desktop = copies
    with opened(laptop) as db:
        db.documents.ingest_text("a of the laptop", source="a.md")
        db.documents.ingest_text("b of the laptop", source="b.md")
        db.copy_to(desktop, overwrite=True)
    raw = apsw.Connection(str(desktop))
    last = raw.execute("SELECT change FROM history_changes ORDER BY number DESC LIMIT 1").get
    raw.execute(f"UPDATE history_changes SET change = {last}")
    raw.close()
    with opened(laptop) as db:
        db.merge(desktop)
        assert db.undo(db.history()[0].number).restored == ("default/b.md",)
        assert texts(db)["default/a.md"] == "a of the laptop"


def test_names_in_the_log_of_another_file_are_one_line(copies: tuple[Path, Path]) -> None:
    laptop, desktop = copies
    with opened(desktop) as db:
        db.documents.ingest_text("new", source="n.md")
    tamper(desktop, "UPDATE history_changes SET actor = ?", ("shell\n1  now  python" + "x" * 1000,))
    with opened(laptop) as db:
        db.merge(desktop)
        actors = {each.actor for each in db.history()}
        assert all(len(each) <= 200 and "\n" not in each for each in actors)


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


def test_a_number_that_another_file_made_up_does_not_move_ones_own(
    copies: tuple[Path, Path],
) -> None:
    laptop, desktop = copies
    raw = apsw.Connection(str(desktop))
    raw.execute("PRAGMA foreign_keys = OFF")
    raw.execute("UPDATE contexts SET id = 4611686018427387903, uid = 'x'")
    raw.execute("UPDATE context_chunks SET owner = 4611686018427387903")
    raw.close()
    with opened(laptop) as db:
        db.merge(desktop)
        assert db.memories.add("t", "user", "next").id == 3 and db.check() == []


def test_one_write_with_a_wrong_clock_is_mended_by_its_owner(copies: tuple[Path, Path]) -> None:
    laptop, desktop = copies
    with opened(desktop) as db:
        db._history.wall_clock = lambda: time.time() + 9.9 * YEAR
        db.documents.ingest_text("a of 2036", source="a.md")
        db._history.wall_clock = time.time
        db.documents.ingest_text("b after that", source="b.md")
    with opened(laptop) as db:
        clock_before = state(db)
        with pytest.raises(Damaged, match=r"nothing changed: the clock is ahead.*rebuild --clock"):
            db.merge(desktop)
        assert state(db) == clock_before
    with opened(desktop) as db:
        [problem] = db.check()
        assert "the clock is ahead" in problem and "rebuild --clock" in problem
        db.rebuild(clock=True)
        assert db.check() == []
        assert [each.items[0].name for each in db.history()][:2] == ["default/b.md", "default/a.md"]
        db.undo()
        assert texts(db)["default/b.md"] == "b of before"
        db.redo()
    with opened(laptop) as db:
        db.documents.ingest_text("a of the laptop, later", source="a.md")
        assert db.merge(desktop).updated == ("default/b.md",)
        assert texts(db)["default/a.md"] == "a of the laptop, later"
        assert texts(db)["default/b.md"] == "b after that" and db.check() == []
