from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import Condition, Config, Damaged, Database, InvalidInput, filters
from mcpvectordb.filters.dialect import FUNCTIONS
from mcpvectordb.index.metadata_index import folded, index_condition
from mcpvectordb.metadata import encode
from mcpvectordb.storage.schema import key_index, migrate
from tests.support import Letters

NAMES = ("s", "a.b")
STRINGS = [*"Straße STRASSE strasse 10 10.0 1e1 true False K k".split(), "", "x" * 250, "X" * 300]
values = (
    st.sampled_from(STRINGS)
    | st.sampled_from([10, 10.0, 1, 0, 1.0, -0.0, 2**53, 2**63 - 1, 1e300, 0.1])
    | st.booleans()
    | st.none()
    | st.lists(st.integers(0, 1), max_size=1)
    | st.dictionaries(st.just("b"), st.sampled_from([10, "k", None]), max_size=1)
)
objects = st.dictionaries(st.sampled_from(["s", "a", "a.b"]), values, max_size=3)
scalars = values.filter(lambda value: isinstance(value, str | int | float))
fields = st.sampled_from(["metadata.s", "metadata.a.b", ("metadata", "a.b"), "metadata.a"])
conditions = (
    st.builds(Condition, fields, st.just("eq"), values, st.booleans())
    | st.builds(
        Condition, fields, st.just("in"), st.lists(scalars, min_size=1, max_size=3), st.booleans()
    )
    | st.builds(Condition, fields, st.just("ne"), values, st.booleans())
)


@given(metadata=objects, where=st.lists(conditions, min_size=1, max_size=2))
def test_narrowing_by_the_index_never_loses_a_match(
    metadata: dict[str, Any], where: list[Condition]
) -> None:
    sql = apsw.Connection(":memory:")
    for name, (function, arguments) in FUNCTIONS.items():
        sql.create_scalar_function(name, function, arguments, deterministic=True)
    sql.execute("CREATE TABLE contexts (metadata TEXT, folded TEXT)")
    sql.execute(
        "INSERT INTO contexts VALUES (?, ?)",
        (encode(metadata), folded(NAMES, metadata)),
    )
    condition, bindings = filters.compile(filters.conditions(where), {}, "x.metadata")
    narrowed, candidates = index_condition(NAMES, filters.conditions(where))
    select = "SELECT 1 FROM contexts x WHERE"
    plain = sql.execute(f"{select} {condition}", bindings).fetchall()
    assert (
        sql.execute(f"{select} {narrowed} AND {condition}", [*candidates, *bindings]).fetchall()
        == plain
    )


def plan(db: Database, *where: Any) -> str:
    explained = db.memories.browse(where=where, explain=True).explained
    assert explained
    return explained.plan


def filled(path: Path, **config: Any) -> Database:
    db = Database(path, embedder=Letters(), config=Config(**config))
    for number in range(20):
        db.memories.add(
            "t",
            "user",
            f"text {number}",
            metadata={
                "status": "Open" if number % 5 else "Done",
                "project": number,
                "deep": {"key": number % 2},
            },
        )
    return db


def test_a_new_file_indexes_the_configured_keys(path: Path) -> None:
    with filled(path, indexed_metadata=" project , deep.key") as db:
        assert db.memories.indexed_keys() == ("project", "deep.key")
        assert "context_key_project (<expr>=?)" in plan(db, ("metadata.project", "eq", 5))
        assert "context_key_deep.key (<expr>=?)" in plan(db, ("metadata.deep.key", "eq", 1))
        assert "context_key" not in plan(db, ("metadata.status", "eq", "Open"))
    with Database(path, embedder=Letters()) as db:  # the file wins over the configuration
        assert db.memories.indexed_keys() == ("project", "deep.key")
        assert db.check() == []


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        (("metadata.status", "eq", "Open"), 16),
        (("metadata.status", "eq", "open"), 0),
        (("metadata.status", "eq", "OPEN", False), 16),
        (("metadata.status", "in", ["done", "x"], False), 4),
        (("metadata.project", "eq", 5), 1),
        (("metadata.project", "eq", 5.0), 1),
        (("metadata.project", "in", ["5", 7]), 2),
    ],
)
def test_eq_and_in_use_the_index(path: Path, condition: Any, count: int) -> None:
    with filled(path) as db:
        assert f"context_key_{condition[0].split('.')[1]} (<expr>=?)" in plan(db, condition)
        assert db.memories.count(where=[condition]) == count
        results = db.memories.search("text", mode="text", limit=20, where=[condition], explain=True)
        assert (
            len(results) == count and results.explained and "context_key_" in results.explained.plan
        )


def test_other_keys_can_be_indexed_later(path: Path) -> None:
    with filled(path) as db:
        before = db.memories.browse(where={"metadata.deep.key": 1})
        db.memories.index_keys(["deep.key", "deep.key"])
        assert db.memories.indexed_keys() == ("deep.key",) and db.check() == []
        assert "context_key_deep.key" in plan(db, ("metadata.deep.key", "eq", 1))
        assert db.memories.browse(where={"metadata.deep.key": 1}).items == before.items
        db.memories.update(1, metadata_patch={"deep": {"key": 5}})
        assert [each.id for each in db.memories.browse(where={"metadata.deep.key": 5})] == [1]
        db.memories.index_keys([])
        assert db.memories.indexed_keys() == () and db.check() == []
    with Database(path, embedder=Letters()) as db:
        db.memories.add("t", "user", "more", metadata={"status": "x"})
        assert db.memories.indexed_keys() == () and db.check() == []


@pytest.mark.parametrize(
    "names",
    [
        *([name] for name in ("a b", "a'b", 'a"b', "", "a..b", ".a", "é", "x" * 65, 5)),
        ["a", "A"],
        [f"k{number}" for number in range(31)],
    ],
)
def test_keys_that_cannot_be_indexed_are_refused(db: Database, names: list[Any]) -> None:
    with pytest.raises(InvalidInput, match="index"):
        db.memories.index_keys(names)


def test_a_file_with_a_foreign_index_on_a_key_is_refused(path: Path) -> None:
    filled(path).close()
    with apsw.Connection(str(path)) as other:
        other.execute(
            'CREATE INDEX "context_key_x" ON contexts (json_extract(folded, \'$."y"\'), created_at)'
        )
    with pytest.raises(Damaged, match="tables of format"):
        Database(path, embedder=Letters())


def test_a_file_of_an_older_format_with_a_key_index_is_refused(path: Path) -> None:
    old = apsw.Connection(str(path))
    migrate(old, 0)
    old.execute("CREATE TABLE contexts (folded TEXT, created_at TEXT)")
    old.execute(key_index("status"))
    old.close()
    with pytest.raises(Damaged, match="tables of format 1"):
        Database(path, embedder=Letters())


def test_check_reports_a_missing_key_index(path: Path) -> None:
    with filled(path) as db:
        with db._file.writing() as sql:
            sql.execute('DROP INDEX "context_key_status"')
        assert db.check() == [
            "contexts: the metadata keys that have an index are not those of the settings"
        ]
