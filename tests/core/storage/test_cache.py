from __future__ import annotations

from pathlib import Path

from mcpvectordb.database import Database
from mcpvectordb.storage.cache import Cache, key
from mcpvectordb.storage.file import File
from tests.support import Letters


def rows(file: File) -> int:
    with file.reading() as sql:
        return int(sql.execute("SELECT count(*) FROM cache").get)


def test_an_entry_is_found_by_all_of_its_inputs(path: Path) -> None:
    file = File(path)
    Cache(file).write(
        {key("rerank", "model", "query", "text"): 0.5, key("expansion", "query"): ["a", "b"]}
    )
    file.close()
    again = Cache(File(path))
    assert again.read([key("rerank", "model", "query", "text")]) == {
        key("rerank", "model", "query", "text"): 0.5
    }
    assert list(again.read([key("expansion", "query")]).values()) == [["a", "b"]]
    assert (
        again.read(
            [key("rerank", "model", "query", "other text"), key("rerank", "model", "query text")]
        )
        == {}
    )


def test_keys_differ_when_text_moves_from_one_part_to_the_next() -> None:
    assert key("a", "bc") != key("ab", "c") != key("a", "b", "c")


def test_a_new_entry_replaces_an_old_one(path: Path) -> None:
    file = File(path)
    for value in (0.1, 0.2):
        Cache(file).write({key("x"): value})
    assert Cache(file).read([key("x")]) == {key("x"): 0.2}
    assert rows(file) == 1


def test_the_oldest_entries_are_deleted_beyond_the_bound(path: Path) -> None:
    file = File(path)
    for number in range(25):
        Cache(file, most=10).write({key(str(number)): number})
    assert list(Cache(file).read(key(str(number)) for number in range(25)).values()) == list(
        range(15, 25)
    )
    assert rows(file) == 10


def test_nothing_is_cached_in_a_read_only_file(path: Path) -> None:
    File(path).close()
    file = File(path, read_only=True)
    Cache(file).write({key("x"): 1})
    assert Cache(file).read([key("x")]) == {}


def test_nothing_is_cached_while_the_file_stays_locked(path: Path) -> None:
    file, other = File(path, busy_timeout=0), File(path)
    with other.writing():
        Cache(file).write({key("x"): 1})
    assert Cache(file).read([key("x")]) == {}


def test_compact_and_rebuild_empty_the_cache(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        for forget in (db.compact, db.rebuild):
            Cache(db._file).write({key("x"): 1})
            forget()
            assert rows(db._file) == 0
        assert db.check() == []
