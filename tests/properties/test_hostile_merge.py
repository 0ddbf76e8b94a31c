"""Any value of a received file may be any value: a merge refuses it and changes nothing, or what
comes of it is sound, and what was one's own is as it was.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import apsw
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mcpvectordb import Config, Damaged, Database, Image
from mcpvectordb.history import clock
from tests.support import Letters

CONFIG = Config(chunk_size=16, chunk_overlap=4)
# Tables of FTS5 and vec0, and SQLite's own: a merge reads none of them.
INDEXES = ("_words", "_spellings", "_meaning", "sqlite_")


@cache
def folder() -> Path:
    """A folder with ours.db and theirs.db: copies that were both changed in every way."""
    made = Path(tempfile.mkdtemp())
    with Database(made / "ours.db", embedder=Letters(), config=CONFIG) as db:
        for name in ("a", "b", "c"):
            db.documents.ingest_text(f"{name} before. " * 20, source=f"{name}.md")
        db.memories.add("t", "user", "a thought", tags=["x"], images=[Image(data=b"1")])
        db.memories.add("t", "user", "another thought")
        db.vectors.add("v", [1.0, 2.0])
        db.vectors.add("w", [1.0, 3.0], store="s", metric="dot")
        db.documents.add_library("lib", made, description="of both")
        db.copy_to(made / "theirs.db")
    for which in ("ours", "theirs"):
        with Database(made / f"{which}.db", embedder=Letters(), config=CONFIG) as db:
            db.documents.ingest_text(f"a of {which}. " * 20, source="a.md")
            db.documents.ingest_text(f"only {which}. " * 20, source=f"{which}.md")
            db.documents.update(db.documents.lookup("b.md").document.id, title=f"B of {which}")
            db.memories.update(1, text=f"a thought of {which}")
            db.memories.add("t", "agent", f"new of {which}")
            db.vectors.add("v", [2.0, float(len(which))])
            db.documents.describe("lib", "part", f"by {which}")
            db.documents.ingest_text("short-lived", source=f"gone-{which}.md")
            db.documents.delete(db.documents.lookup(f"gone-{which}.md").document.id)
            db.memories.delete([2])
    return made


def ordinary_tables(raw: apsw.Connection) -> list[str]:
    found = raw.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' "
        "ORDER BY name"
    )
    return [name for (name,) in found if not any(each in name for each in INDEXES)]


def columns(*kinds: str) -> Iterator[tuple[str, str]]:
    """The columns of these types in all tables."""
    with contextlib.closing(apsw.Connection(str(folder() / "theirs.db"))) as raw:
        for table in ordinary_tables(raw):
            for _, name, kind, _, _, _, hidden in raw.execute(f"PRAGMA table_xinfo({table})"):
                if kind in kinds and not hidden:
                    yield table, name


def rows_of(path: Path) -> list[Any]:
    with contextlib.closing(apsw.Connection(str(path))) as raw:
        return [raw.execute(f"SELECT * FROM {each}").fetchall() for each in ordinary_tables(raw)]


EXTREMES = st.sampled_from(
    [0, 1, -1, 2, 7, 2**31, 2**32, 2**53, 2**62 - 1, 2**62, 2**63 - 1, -(2**63)]
)
YEAR = 365 * 86_400
TIMES = st.sampled_from([-40 * YEAR, -86_400, 0, 3_600, 86_400, 3 * 86_400, 9 * YEAR]).map(
    lambda seconds: clock.next_stamp(0, time.time() + seconds)
)
NUMBERS = st.one_of(
    st.tuples(st.just("set"), EXTREMES | TIMES | st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just("add"), st.sampled_from([1, -1, 2, 1 << 20, 1 << 40])),
    st.tuples(st.just("swap"), st.just(0)),
)
JSON = [
    "[",
    "[]",
    "{}",
    '{"a":NaN}',
    '{"a":"\\ud800"}',
    "[" * 2000,
    "null",
    '{"local":[]}',
    "1" * 5000,
]
TEXTS = st.tuples(
    st.sampled_from(["set", "swap"]),
    st.sampled_from(["", " ", "\0", "x\n+++ y\x1b[2J\u2028", "x" * 5000, "memory:1", *JSON])
    | st.text(max_size=5),
)
BYTES = st.tuples(
    st.sampled_from(["set", "swap"]),
    st.sampled_from([b"", b"1", b"99", b"\xff" * 16, b"\0" * 128, b"\0\0\xc0\x7f" * 2])
    | st.binary(max_size=20),
)
RAW_TEXTS = st.tuples(st.just("text"), st.sampled_from([b"\xff", b"a\xc3", b"\xed\xa0\x80"]))


def mutations(kinds: tuple[str, ...], values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    chosen = st.deferred(lambda: st.sampled_from(list(columns(*kinds))))
    return st.tuples(chosen, values, st.integers(0, 5))


MUTATED_NUMBERS = st.lists(mutations(("INTEGER", "REAL"), NUMBERS), min_size=1, max_size=3)
MUTATED_VALUES = st.lists(
    mutations(("TEXT",), TEXTS | RAW_TEXTS) | mutations(("BLOB",), BYTES), min_size=1, max_size=2
)


def mutate(path: Path, mutations: list[Any]) -> None:
    with contextlib.closing(apsw.Connection(str(path))) as raw:
        raw.execute("PRAGMA foreign_keys = OFF")
        for (table, column), (how, value), place in mutations:
            try:
                rows: list[Any] = raw.execute(f'SELECT DISTINCT "{column}" FROM {table}').fetchall()
            except UnicodeDecodeError:  # it was mutated before
                return
            assume(rows)
            old = rows[place % len(rows)][0]
            new = value
            if how == "add":
                new = (old or 0) + value
            elif how == "swap":
                new = rows[0][0]
            assume(new is not None and new != old)
            assume(not isinstance(new, int) or -(2**63) <= new < 2**63)
            given = "CAST(? AS TEXT)" if how == "text" else "?"
            try:
                raw.execute(
                    f'UPDATE {table} SET "{column}" = {given} WHERE "{column}" IS ?', (new, old)
                )
            except (apsw.ConstraintError, apsw.SQLError):  # its schema does not let it in
                assume(False)


@given(MUTATED_NUMBERS)
@settings(max_examples=12, deadline=None)
def test_any_number_is_refused_or_does_no_harm(mutations: list[Any]) -> None:
    merge_mutated(mutations)


@given(MUTATED_VALUES)
@settings(max_examples=12, deadline=None)
def test_any_value_is_refused_or_does_no_harm(mutations: list[Any]) -> None:
    merge_mutated(mutations)


def merge_mutated(mutations: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as name:
        ours, theirs = Path(name) / "ours.db", Path(name) / "theirs.db"
        shutil.copy(folder() / "ours.db", ours)
        shutil.copy(folder() / "theirs.db", theirs)
        mutate(theirs, mutations)
        before = rows_of(ours)
        with Database(ours, embedder=Letters(), config=CONFIG) as db:
            own = db.documents.lookup("ours.md").document
            shared = db.documents.lookup("a.md").document
            change = db.history("a.md")[0].number
            last = db.history(limit=1)[0].number
            try:
                db.merge(theirs)
            except Damaged as error:
                assert "\n" not in str(error)
                db.close()
                assert rows_of(ours) == before
                return
            assert db.check() == []
            assert db.documents.text(own.id) == "only ours. " * 20
            # What theirs replaced or deleted is in the history, at the time that it had.
            assert db.documents.text(shared.id, as_of=change) == "a of ours. " * 20
            was = {each.text for each in db.memories.browse(limit=100, as_of=last)}
            assert {"a thought of ours", "new of ours"} <= was
            again = db.merge(theirs)
            assert not (again.added or again.updated or again.deleted or again.lost)
            for text in ("one", "two"):
                memory = db.memories.add("t", "user", text).id
                db.documents.ingest_text(text, source="edit.md")
            assert memory < 2**53
            db.undo()
            assert db.documents.text(db.documents.lookup("edit.md").document.id) == "one"
            with db._file.reading() as sql:
                assert sql.execute("SELECT clock FROM history_state").get <= clock.latest(
                    time.time()
                )
            assert db.check() == []
