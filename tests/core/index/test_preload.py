from __future__ import annotations

import threading
from pathlib import Path

import pytest

from mcpvectordb import Config, Database
from mcpvectordb.index import postings
from mcpvectordb.index.preload import Preload
from tests.support import Letters

TEXTS = {
    "one.md": "The harbour lights are lit at dusk.",
    "two.md": "The harbour master lights the lamp.",
    "three.md": "Harbours and lamps, the master said.",
    "four.md": "Nothing about any of it.",
}


def filled(path: Path, **config: int) -> Database:
    db = Database(path, embedder=Letters(), config=Config(**config))
    for source, text in TEXTS.items():
        db.documents.ingest_text(text, source=source)
    return db


def keys(db: Database) -> set[object]:
    return {
        *db._engine.resident.keys("document_words"),
        *db._engine.resident.keys("document_meaning_1"),
    }


def test_codes_and_common_words_are_in_memory_before_the_first_question(path: Path) -> None:
    with filled(path) as db:
        assert not keys(db)
        db.warm(wait=True)
        assert {"codes", postings.ROWS, "harbour", "lamp"} <= keys(db)
        assert "the" not in keys(db)  # questions are asked without it


def test_words_with_one_stem_are_read_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with filled(path) as db:
        db.warm(wait=True)
        read: list[str] = []
        known = postings.fts5.token_counts

        def counting(sql: object, table: str, token: str, weight: int) -> object:
            read.append(token)
            return known(sql, table, token, weight)  # type: ignore[arg-type]

        monkeypatch.setattr(postings.fts5, "token_counts", counting)
        found = db.documents.search("harbours", mode="text")
        assert {hit.item.document.source for hit in found} == {"one.md", "two.md", "three.md"}
        db.documents.search("unheard", mode="text")
        assert read == ["unheard"]


def test_answers_are_the_same_with_and_without_it_and_after_later_changes(path: Path) -> None:
    filled(path).close()

    def answers(db: Database) -> list[list[tuple[str, float]]]:
        return [
            [(hit.item.document.source, hit.score) for hit in db.documents.search(query)]
            for query in ("harbour lamp", "the master", "lights -dusk", "nothing")
        ]

    with Database(path, embedder=Letters()) as cold, Database(path, embedder=Letters()) as warm:
        warm.warm(wait=True)
        assert answers(warm) == answers(cold)
        cold.documents.ingest_text("A lamp in the harbour.", source="five.md")
        cold.documents.delete(cold.documents.lookup("two.md").document.id)
        assert answers(warm) == answers(cold)


def test_no_more_is_read_than_the_budget_allows(path: Path) -> None:
    with filled(path, resident_bytes=0) as db:
        db.warm(wait=True)
        assert not keys(db)


@pytest.mark.parametrize("texts", [0, 4])
def test_closing_ends_it_at_any_time(path: Path, texts: int) -> None:
    with filled(path) if texts else Database(path, embedder=Letters()) as db:
        db.warm()
    assert not any(each.name == "mcpvectordb-preload" for each in threading.enumerate())


def test_it_runs_once_and_ends_when_it_is_stopped(path: Path) -> None:
    with filled(path) as db:
        reader = Preload(db._file, db._indexes[0], 10**9)
        reader.close()  # before it has begun
        reader.start()
        reader.start()
        reader.wait()
        assert keys(db) <= {"codes"}  # no word after it was stopped
