from __future__ import annotations

from pathlib import Path

import apsw

from mcpvectordb.database import Database
from mcpvectordb.storage.cache import Cache, key
from tests.support import Letters


def test_an_entry_is_found_by_all_of_its_inputs() -> None:
    cache = Cache()
    cache.write({key("rerank", "model", "query", "text"): 0.5, key("expansion", "query"): ["a"]})
    assert cache.read([key("rerank", "model", "query", "text"), key("expansion", "query")]) == {
        key("rerank", "model", "query", "text"): 0.5,
        key("expansion", "query"): ["a"],
    }
    other = [key("rerank", "model", "query", "other text"), key("rerank", "model", "query text")]
    assert cache.read(other) == {}


def test_keys_differ_when_text_moves_from_one_part_to_the_next() -> None:
    assert key("a", "bc") != key("ab", "c") != key("a", "b", "c")


def test_the_oldest_entries_are_dropped_beyond_the_bound() -> None:
    cache = Cache(most=10)
    for number in range(25):
        cache.write({key(str(number)): number, key("0"): "new"})
    kept = cache.read(key(str(number)) for number in range(25))
    assert list(kept.values()) == ["new", *range(16, 25)]


def test_compact_and_rebuild_empty_the_table_of_earlier_versions(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        for forget in (db.compact, db.rebuild):
            other = apsw.Connection(str(path))
            other.execute("INSERT INTO cache (key, value) VALUES (x'01', '[]')")
            forget()
            assert other.execute("SELECT count(*) FROM cache").get == 0
            other.close()
        assert db.check() == []
