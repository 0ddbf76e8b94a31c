from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest

from mcpvectordb import (
    Condition,
    Config,
    Damaged,
    Database,
    InvalidFilter,
    InvalidInput,
    NotFound,
)
from mcpvectordb.index.tuning import Tuning
from mcpvectordb.storage.file import File


def ids(results: Any) -> list[str]:
    return [hit.item.id for hit in results]


def scores(results: Any) -> list[float]:
    return [hit.score for hit in results]


def clustered(count: int, dimension: int = 32, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(15, dimension))
    return (
        centres[random.integers(0, 15, count)] + 0.4 * random.normal(size=(count, dimension))
    ).astype(np.float32)


def names(count: int) -> list[str]:
    return [f"v{number}" for number in range(count)]


def nearest_by_cosine(rows: np.ndarray, query: np.ndarray, limit: int) -> list[str]:
    wide = rows.astype(np.float64)
    cosines = wide @ query / np.linalg.norm(wide, axis=1)
    return [f"v{place}" for place in np.argsort(-cosines, kind="stable")[:limit]]


FEW_ARE_EXACT = Tuning(exact_rows=50)  # codes choose candidates already among few vectors


@pytest.fixture
def coded(path: Path) -> Iterator[Database]:
    with Database(path, tuning=FEW_ARE_EXACT) as db:
        yield db


# Adding, reading, deleting.


def test_an_embedding_is_returned_as_it_was_given(db: Database) -> None:
    numbers = [0.1, 1e-3, 1e6, -1e300]
    added = db.vectors.add("a", numbers, metadata={"n": 1, "deep": {"x": [None, True]}})
    vector = db.vectors.get("a")
    assert added.status == "added" and added.vector == vector
    assert vector.embedding.tolist() == numbers and not vector.embedding.flags.writeable
    assert (vector.id, vector.store, vector.namespace, vector.dimension) == ("a", "default", "", 4)
    assert vector.metadata == {"n": 1, "deep": {"x": [None, True]}}


def test_float32_stays_float32_and_is_read_without_a_copy(db: Database) -> None:
    given = np.array([0.1, 0.2], np.float32)
    vector = db.vectors.add("a", given).vector
    assert vector.embedding.dtype == np.float32 and np.array_equal(vector.embedding, given)
    assert np.shares_memory(vector.embedding, np.frombuffer(vector.raw, np.uint8))


def test_ids_are_kept_as_given_and_unique_in_their_namespace_only(db: Database) -> None:
    for id in (" a ", "a", "A", "日本", "a\x00b", "x" * 4096):
        assert db.vectors.add(id, [1.0]).status == "added"
        assert db.vectors.get(id).id == id
    assert db.vectors.add("a", [2.0], namespace="n").status == "added"
    assert db.vectors.add("a", [3.0], store="s").status == "added"
    assert db.vectors.get("a").embedding.tolist() == [1.0]
    assert db.vectors.get("a", namespace="n").embedding.tolist() == [2.0]
    assert db.vectors.get("a", store="s").embedding.tolist() == [3.0]


@pytest.mark.parametrize(
    "arguments",
    [
        {"id": "  "},
        {"id": 5},
        {"id": "\ud800"},
        {"id": "x" * 4097},
        {"store": ""},
        {"store": "s" * 201},
        {"store": 1},
        {"namespace": None},
        {"namespace": "n" * 201},
        {"metadata": [1]},
        {"metadata": {"x": float("nan")}},
        {"metric": "manhattan"},
        {"metric": ["dot"]},
        {"embedding": []},
    ],
)
def test_invalid_input_is_refused_and_creates_no_store(
    db: Database, arguments: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput, match=next(iter(arguments))):
        db.vectors.add(**{"id": "a", "embedding": [1.0], **arguments})
    assert db.vectors.stores() == [] and db.vectors.count(store=None) == 0


def test_delete_counts_what_existed_and_leaves_ids_in_other_namespaces(db: Database) -> None:
    db.vectors.add_many(["a", "b"], [[1.0], [2.0]])
    db.vectors.add("a", [1.0], namespace="n")
    assert db.vectors.delete("a", store="unknown") == 0
    assert db.vectors.delete(["a", "b", "no such"]) == 2 and db.vectors.delete("a") == 0
    assert db.vectors.get("a", namespace="n")
    with pytest.raises(NotFound):
        db.vectors.get("a")


def test_one_vector_is_got_or_those_that_there_are(db: Database) -> None:
    db.vectors.add_many(["a", "b"], [[1.0], [2.0]])
    assert [each.id for each in db.vectors.get(["b", "no such", "a", "b"])] == ["b", "a"]
    db.vectors.add("c", [3.0], store="other")
    assert [each.id for each in db.vectors] == ["a", "b", "c"]


def test_a_search_is_explained_on_request(db: Database) -> None:
    db.vectors.add("a", [1.0])
    assert db.vectors.search([1.0]).explained is None
    explained = db.vectors.search([1.0], explain=True).explained
    assert explained and explained.rows == 1 and "vectors" in explained.plan


def test_many_are_accepted_as_a_matrix_or_as_a_list_of_mixed_dimensions(db: Database) -> None:
    done = db.vectors.add_many([], [])
    assert (done.added, done.updated) == (0, 0) and db.vectors.stores() == []
    done = db.vectors.add_many(["a", "b"], np.eye(2, dtype=np.float32), metadata=[{"n": 1}, None])
    assert (done.added, done.updated) == (2, 0)
    done = db.vectors.add_many(np.array(["b", "c", "d"]), [[1, 2, 3], (4,), np.array([5.5])])
    assert (done.added, done.updated) == (2, 1)
    assert {each.id: each.embedding.tolist() for each in db.vectors.browse()} == {
        "a": [1, 0],
        "b": [1, 2, 3],
        "c": [4],
        "d": [5.5],
    }
    assert db.vectors.get("a").metadata == {"n": 1} and db.vectors.get("b").metadata == {}


def test_many_are_all_stored_or_none(db: Database) -> None:
    for arguments, message in (
        ({"embeddings": [[1.0], [float("nan")]]}, r"embeddings\[1\]\[0\]"),
        ({"embeddings": [[1.0]]}, "2 ids, but embeddings has 1"),
        ({"metadata": [{}]}, "2 ids, but metadata has 1"),
        ({"metadata": [{}, {"x": object()}]}, r"metadata\[1\].x"),
        ({"metadata": {"x": 1}}, "metadata must be a list"),
        ({"ids": ["a", "a"]}, r"ids\[0\] and ids\[1\] are the same"),
        ({"ids": ["a", ""]}, r"ids\[1\] must not be blank"),
        ({"ids": "ab"}, "ids must be a list"),
        ({"ids": 7}, "ids must be a list"),
    ):
        with pytest.raises(InvalidInput, match=message):
            db.vectors.add_many(**{"ids": ["a", "b"], "embeddings": [[1.0], [2.0]], **arguments})
    assert db.vectors.stores() == []


def test_a_failure_in_the_middle_is_rolled_back(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.vectors.add("a", [1.0, 2.0])

    def fail(*_: object) -> None:
        raise RuntimeError("power cut")

    monkeypatch.setattr("mcpvectordb.vectors.store.VectorStore._remove_codes", fail)
    with pytest.raises(RuntimeError, match="power cut"):
        db.vectors.add_many(["a", "b"], [[3.0], [4.0]])
    monkeypatch.undo()
    assert db.vectors.count() == 1
    assert db.vectors.get("a").embedding.tolist() == [1.0, 2.0]
    assert db.check() == []


# Stores, namespaces, counts.


def test_a_store_keeps_the_metric_it_was_made_with(db: Database) -> None:
    db.vectors.add("a", [1.0], store="far", metric="euclidean")
    db.vectors.add("b", [1.0], store="far")
    db.vectors.add("c", [1.0])
    with pytest.raises(
        InvalidInput, match="'far' ranks by euclidean, which cannot be changed to cosine"
    ):
        db.vectors.add("d", [1.0], store="far", metric="cosine")
    db.vectors.delete("c")
    assert [(each.name, each.metric, each.vectors) for each in db.vectors.stores()] == [
        ("default", "cosine", 0),
        ("far", "euclidean", 2),
    ]


def test_browsing_goes_by_pages_newest_first(db: Database) -> None:
    db.vectors.add_many(names(5), np.eye(5))
    db.vectors.add("elsewhere", [1.0], store="other")
    assert [each.id for each in db.vectors.browse(limit=2, offset=1)] == ["v3", "v2"]
    assert [each.id for each in db.vectors.browse(store=None, limit=1)] == ["elsewhere"]
    assert [each.id for each in db.vectors.browse(where=[("id", "in", ["v0", "v9"])])] == ["v0"]
    with pytest.raises(InvalidInput, match="limit"):
        db.vectors.browse(limit=-1)


# Searching.


def test_conditions_apply_before_the_cut(db: Database) -> None:
    rows = clustered(60)
    db.vectors.add_many(
        names(60), rows, metadata=[{"odd": bool(n % 2), "n": n, "a.b": n} for n in range(60)]
    )
    query = clustered(1, seed=7)[0]
    odd = [id for id in nearest_by_cosine(rows, query, 60) if int(id[1:]) % 2]
    assert ids(db.vectors.search(query, where={"metadata.odd": True}, limit=5)) == odd[:5]
    assert ids(db.vectors.search(query, where={"metadata.odd": True}, limit=100)) == odd
    assert ids(db.vectors.search(query, where=[Condition(("metadata", "a.b"), "eq", 7)])) == ["v7"]
    assert ids(
        db.vectors.search(
            query, where={"id": "v9", "dimension": 32, "store": "default", "namespace": ""}
        )
    ) == ["v9"]
    assert ids(db.vectors.search(query, namespace="other")) == []
    with pytest.raises(InvalidFilter, match="unknown field"):
        db.vectors.search(query, where={"metadta.odd": True})


def test_an_unknown_store_is_an_empty_one_and_stays_unknown(db: Database) -> None:
    empty = db.vectors.search([1.0, 2.0], store="unknown")
    assert len(empty) == 0 and db.vectors.stores() == []
    assert "there is no store 'unknown'" in empty.note


def test_limits_are_whole_numbers_and_may_exceed_what_is_there(db: Database) -> None:
    db.vectors.add_many(names(3), np.eye(3))
    assert len(db.vectors.search([1, 0, 0], limit=10**9)) == 3
    assert len(db.vectors.search([1, 0, 0], limit=0)) == 0
    for limit in (-1, 2.5, True, "3"):
        with pytest.raises(InvalidInput, match="limit"):
            db.vectors.search([1, 0, 0], limit=limit)  # type: ignore[arg-type]


# The index.


def parts(db: Database) -> list[str]:
    file = File(db.path, read_only=True)
    with file.reading() as sql:
        rows = sql.execute(
            "SELECT name FROM sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL TABLE vector\\_%' "
            "ESCAPE '\\'"
        )
        found = sorted(name for (name,) in rows)
    file.close()
    return found


def test_only_large_parts_of_cosine_stores_are_coded(coded: Database) -> None:
    coded.vectors.add_many(names(50), clustered(50))
    coded.vectors.add_many(names(60), clustered(60), store="dot", metric="dot")
    assert parts(coded) == []
    coded.vectors.add("one more", clustered(1)[0])
    coded.vectors.add_many(names(51), clustered(51, 8), store="other")
    assert parts(coded) == ["vector_meaning_100032", "vector_meaning_300008"]
    assert coded.check() == []


def test_more_numbers_than_vec0_takes_are_compared_exactly(coded: Database) -> None:
    rows = clustered(60, 9_000)
    coded.vectors.add_many(names(60), rows)
    assert parts(coded) == []
    assert ids(coded.vectors.search(rows[3], limit=1)) == ["v3"]
    assert coded.check() == []


def test_compact_frees_the_space_of_overwritten_vectors(path: Path) -> None:
    without_history = Config(history_days=0)
    with Database(path, tuning=FEW_ARE_EXACT, config=without_history) as db:
        rows = clustered(1_000)
        db.vectors.add_many(names(1_000), rows)
        db.compact()
        fresh = db.stats().bytes
        for turn in range(5):
            db.vectors.add_many(names(1_000), rows + turn)
        db.vectors.add_many(names(1_000), rows)
        expected = ids(db.vectors.search(rows[0]))
        db.compact()
        assert db.stats().bytes <= 1.1 * fresh
        assert ids(db.vectors.search(rows[0])) == expected
        assert db.check() == []


def test_compact_drops_vec0_tables_of_parts_that_became_small(coded: Database) -> None:
    coded.vectors.add_many(names(60), clustered(60))
    for id in names(30):
        coded.vectors.delete(id)
    assert parts(coded) != [] and coded.check() == []
    coded.compact()
    assert parts(coded) == [] and coded.check() == []


PUT = "UPDATE vector_embeddings SET embedding ="


@pytest.mark.parametrize(
    ("statement", "message", "repaired"),
    [
        (f"{PUT} zeroblob(128) WHERE vector = 3", "3 is missing or differs", True),
        (f"{PUT} zeroblob(99) WHERE vector = 3", "3 has 24 values instead of 32", False),
        (f"{PUT} X'{128 * 'ff'}' WHERE vector = 3", "3 has values that are no", False),
        (f"{PUT} zeroblob(64) WHERE vector = 3", "3 has lost a half of its bytes", False),
        ("UPDATE vectors SET dimension = 31 WHERE key = 3", "3 has 32 values instead of 31", False),
        ("DELETE FROM vector_embeddings WHERE vector = 3", "3 has no embedding", False),
        ("DELETE FROM vectors WHERE key = 3", "rows without an embedding", False),
        ("INSERT INTO vector_embeddings VALUES (999, X'00')", "refers to a missing row", False),
    ],
)
def test_check_reports_damaged_vectors_and_rebuild_repairs_codes(
    path: Path, statement: str, message: str, repaired: bool
) -> None:
    with Database(path, tuning=FEW_ARE_EXACT) as db:
        db.vectors.add_many(names(60), clustered(60))
    _changed(path, statement)
    with Database(path, tuning=FEW_ARE_EXACT) as db:
        assert any(message in problem for problem in db.check())
        if repaired:
            db.rebuild()
            assert db.check() == []


def test_damaged_numbers_are_never_ranked(path: Path) -> None:
    with Database(path) as db:
        db.vectors.add_many(names(5), clustered(5))
    _changed(path, f"UPDATE vector_embeddings SET embedding = X'{128 * 'ff'}' WHERE vector = 2")
    with Database(path) as db, pytest.raises(Damaged, match="no numbers"):
        db.vectors.search(clustered(1)[0])


# The file.


def test_an_index_that_names_missing_vectors_is_reported_as_damage(path: Path) -> None:
    with Database(path) as db:
        db.vectors.add_many(names(20), [[1.0, number] for number in range(20)])
    row = _changed(path, "SELECT * FROM sqlite_schema WHERE name = 'vectors_by_part'")[0]
    _changed(path, "DELETE FROM sqlite_schema WHERE name = 'vectors_by_part'")
    _changed(path, "DELETE FROM vectors WHERE key = 3")  # without a change of the index
    _changed(path, "INSERT INTO sqlite_schema VALUES (?, ?, ?, ?, ?)", row)
    with Database(path) as db:
        with pytest.raises(Damaged, match="vector 3, which is not there"):
            db.vectors.search([1.0, 3.0], limit=20)
        assert db.check()


def _changed(path: Path, statement: str, bindings: tuple[Any, ...] = ()) -> list[Any]:
    """The rows that a statement of another program returns, which may change the schema, too."""
    other = apsw.Connection(str(path))
    other.execute("PRAGMA writable_schema = ON")
    rows = other.execute(statement, bindings).fetchall()
    other.close()
    return rows
