from __future__ import annotations

import inspect
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from mcpvectordb import Config, Database, InvalidInput
from mcpvectordb.index.tuning import Tuning
from tests.support import Letters


def test_a_database_shows_its_path_and_state(path: Path) -> None:
    db = Database(path, embedder=Letters())
    assert repr(db) == f"<Database {str(path)!r}>"
    db.close()
    assert repr(db) == f"<Database {str(path)!r}, closed>"
    with Database(path, config=Config(read_only=True)) as reading:
        assert repr(reading) == f"<Database {str(path)!r}, read-only>"
    with Database(":memory:") as memory:
        assert repr(memory) == "<Database ':memory:'>"


def test_every_search_and_listing_has_the_same_default_limit(db: Database) -> None:
    for call in (
        *(db.search, db.similar),
        *(each.search for each in (db.documents, db.memories, db.vectors)),
        *(each.browse for each in (db.documents, db.memories, db.vectors)),
    ):
        assert inspect.signature(call).parameters["limit"].default == 10


def test_shelves_that_are_not_used_are_not_loaded(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        assert not {"vectors", "memories"} & vars(db).keys()
        db.memories.add("thread", "agent", "note")
        assert db.memories is db.memories
        assert db.check() == []


def test_the_version_changes_with_what_others_write(path: Path) -> None:
    busy = Tuning(idle_seconds=1_000)  # writing the log back changes it as well
    with (
        Database(path, embedder=Letters(), tuning=busy) as db,
        Database(path, embedder=Letters(), tuning=busy) as other,
    ):
        version = db.data_version()
        assert db.data_version() == version
        other.documents.ingest_text("tea", source="a.md")
        changed = db.data_version()
        assert changed != version and db.data_version() == changed
        id = other.memories.add("t", "user", "hello").id
        noted = db.data_version()
        other.memories.update(id, tags=["a"])
        assert len({changed, noted, db.data_version()}) == 3


def test_the_last_change_is_another_one_after_any_change_of_an_item(
    path: Path, tmp_path: Path
) -> None:
    with (
        Database(path, embedder=Letters()) as db,
        Database(tmp_path / "other.db", embedder=Letters()) as other,
    ):
        seen = [db.last_change()]

        def changed(done: object) -> None:
            assert db.last_change() not in seen, done
            seen.append(db.last_change())

        changed(db.documents.ingest_text("tea", source="a.md", embed=False))
        with Database(path, embedder=Letters()) as another:
            version = db.data_version()
            assert another.embed_pending() == 1
        assert (db.last_change(), db.data_version() == version) == (seen[-1], False)
        changed(db.documents.update(db.documents.browse()[0].id, title="Tea"))
        memory = db.memories.add("t", "user", "hello")
        changed(memory)
        changed(db.memories.update(memory.id, tags=["a"]))
        changed(db.keep_history(False))
        changed(db.memories.delete([memory.id]))
        changed(db.documents.delete(library="default"))
        other.memories.add("t", "user", "older than what was done here")
        changed(db.merge(other.path))


def test_a_model_is_loading_until_it_is_loaded(path: Path) -> None:
    embedder = Gate()
    with Database(path, embedder=embedder) as db:
        assert not db.loading
        embedder.open.set()
        db.documents.ingest_text("tea", source="a.md")
        embedder.open.clear()
        db.warm()
        assert db.loading
        assert db.documents.search("tea").legs == ("text",)
        embedder.open.set()
        assert db._encoder._warming is not None
        db._encoder._warming.join(10)
        assert not db.loading and "vector" in db.documents.search("tea").legs


class Gate(Letters):
    def __init__(self) -> None:
        self.open = threading.Event()

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        assert self.open.wait(10)
        return super().embed(texts, query=query)


@pytest.mark.parametrize(
    ("text", "query", "marked"),
    [
        ("The teas of Japan", "tea", ["teas"]),
        ("green tea and green", '"green tea"', ["green tea"]),
        ("tea without milk", "tea -milk", ["tea"]),
        ("the tea and the cup", "the tea", ["tea"]),
        ("绿茶很好喝", "绿茶", ["绿茶"]),
        ("Größe und Tür", "größe", ["Größe"]),
        ("😀 tea 😀", "tea", ["tea"]),
        ("nothing here", "tea", []),
        ("tea", "", []),
    ],
)
def test_highlights_are_offsets_of_what_the_search_compares(
    text: str, query: str, marked: list[str], db: Database
) -> None:
    assert [text[start:end] for start, end in db.highlights(text, query)] == marked


def test_texts_are_embedded_by_the_model_of_the_file(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        rows = db.embed([f"text {number}" for number in range(70)])  # more than one batch
        assert rows.shape == (70, db.stats().dimension) and rows.dtype == np.float32
        assert (rows[3] == Letters().embed(["text 3"])[0]).all() and db.model == Letters().name
        assert db.embed([]).shape == (0, rows.shape[1]) and db.documents.count() == 0
        with pytest.raises(InvalidInput, match="not one string"):
            db.embed("text")
