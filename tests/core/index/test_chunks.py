from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mcpvectordb import Config, Database
from mcpvectordb.index.tuning import Tuning
from mcpvectordb.storage import fts5
from tests.support import Letters

SAME = "the log says that nothing has happened since then\n\n"
OPERATIONS = 100  # of SQLite's virtual machine, after which it reports


def opened(path: Path) -> Database:
    return Database(path, embedder=Letters(), config=Config(chunk_size=16))


def work(db: Database, act: Callable[[], object]) -> int:
    """How many operations SQLite carries out, in hundreds: unlike time, the same on any machine."""
    reports = 0

    def report() -> bool:
        nonlocal reports
        reports += 1
        return False

    with db._file.outside() as sql:
        sql.set_progress_handler(report, OPERATIONS, id="work")
        try:
            act()
        finally:
            sql.set_progress_handler(None, id="work")
    return reports


def test_equal_passages_cost_twice_as_much_when_they_are_twice_as_many(tmp_path: Path) -> None:
    """Writing, embedding, replacing (which copies embeddings) and removing them."""
    costs: list[list[int]] = []
    for count in (600, 1200):
        with opened(tmp_path / f"{count}.db") as db:
            db.documents.ingest_text("first", source="first")
            write = db.documents.ingest_text
            costs.append(
                [
                    work(db, lambda: write(SAME * count, source="a", embed=False)),  # noqa: B023
                    work(db, db.embed_pending),
                    work(db, lambda: write(SAME * count + "x", source="a", embed=False)),  # noqa: B023
                    work(db, lambda: db.documents.delete(db.documents.browse()[0].id)),
                ]
            )
            assert db.stats().chunks == 1 and db.check() == []
    assert all(few > 100 for few in costs[0])
    ratios = [many / few for few, many in zip(*costs, strict=True)]
    assert all(ratio < 2.4 for ratio in ratios), ratios


@pytest.mark.parametrize(("allowed", "left"), [(40, 0), (1000, 41)])
def test_words_of_deleted_rows_are_merged_out_of_the_index_once_they_are_many(
    path: Path, allowed: int, left: int
) -> None:
    tuning = Tuning(deleted_rows=allowed, slice_pages=1)
    with Database(path, embedder=Letters(), config=Config(chunk_size=16), tuning=tuning) as db:
        for source in ("a", "b"):
            db.documents.ingest_text(SAME * 41, source=source)
        db.documents.delete(db.documents.lookup("a").document.id)
        with db._file.reading() as sql:
            assert fts5.count_deleted(sql, "document_words") == left
        assert db.check() == []


def test_words_are_merged_out_while_others_write(path: Path) -> None:
    with (
        Database(path, embedder=Letters(), tuning=Tuning(deleted_rows=0, slice_pages=1)) as db,
        opened(path) as other,
    ):
        for number in range(40):
            db.documents.ingest_text(f"apple {number}", source=f"{number}")
        for number in range(30):
            db.documents.delete(db.documents.lookup(f"{number}").document.id)
            other.documents.ingest_text(f"pear {number}", source=f"{number}")
        found = db.documents.search("apple", mode="text", limit=100)
        assert {int(hit.item.document.source) for hit in found} == set(range(30, 40))
        assert db.check() == []
