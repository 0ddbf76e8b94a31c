from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mcpvectordb import Config, Database
from mcpvectordb.embedding import weights
from mcpvectordb.embedding.catalogue import CATALOGUE, PROVISIONAL
from mcpvectordb.embedding.embedder import StaticEmbedder
from mcpvectordb.index.encoder import BATCH
from mcpvectordb.recovery.salvage import salvage
from tests.support import Gated, Letters, embed_in_the_background
from tests.support_static import needs_the_static_model

pytestmark = needs_the_static_model

ON, OFF = Config(provisional=True), Config(provisional=False)
# By Letters an anagram is nearest; by meaning, the sentence about the animal is.
TEXTS = {
    "cat": "The cat sleeps on the sofa.",
    "bank": "Interest rates rise again this year.",
    "soup": "Cook the lentils with onions and garlic.",
}
QUESTION = "a feline dozing on the couch"


@pytest.fixture
def db(path: Path) -> Iterator[Database]:
    with Database(path, embedder=Letters(), config=ON) as database:
        yield database


def ingest(db: Database, texts: dict[str, str] = TEXTS) -> None:
    for source, text in texts.items():
        db.documents.ingest_text(text, source=source, embed=False)


def leftovers(db: Database) -> list[str]:
    """What of the provisional model is in the file."""
    with db._file.reading() as sql:
        names = [f"model {name}" for (name,) in sql.execute("SELECT name FROM models")]
        names += [name for (name,) in sql.execute("SELECT name FROM settings")]
        names += [name for (name,) in sql.execute("SELECT name FROM sqlite_schema")]
    return [
        name for name in names if "potion" in name or "provisional" in name or "_meaning_2" in name
    ]


def test_what_waits_is_found_by_meaning_at_once(db: Database) -> None:
    ingest(db)
    for mode, legs in (("hybrid", ("text", "vector")), ("vector", ("vector",))):
        found = db.documents.search(QUESTION, mode=mode)
        assert found.legs == legs and found.reasons == {}
        assert found[0].item.document.source == "cat" and found[0].scores.provisional
        assert (found.backlog.pending, found.backlog.provisional) == (3, 3)
        assert found[0].relevance is not None
    assert found.backlog.note == (
        "of all 3 passages, 0 are searched by their own embeddings so far, 3 by provisional ones; "
        "run `mcpvectordb embed`"
    )
    found = db.documents.search(QUESTION, mode="vector", where={"source": "soup"})
    assert [hit.item.document.source for hit in found] == ["soup"]
    assert db.check() == []


def test_nothing_provisional_is_left_when_nothing_waits(db: Database) -> None:
    ingest(db)
    assert leftovers(db)
    assert db.embed_pending() == 3
    assert leftovers(db) == [] and db.check() == []
    found = db.documents.search("cat", mode="vector")
    assert not any(hit.scores.provisional for hit in found)
    assert found.backlog.provisional == 0


def test_both_kinds_of_embeddings_make_one_ranking(db: Database) -> None:
    ingest(db)
    db.documents.ingest_text("The dog barks.", source="dog")  # this one is embedded at once
    found = db.documents.search(QUESTION, mode="vector")
    assert (found.backlog.embedded, found.backlog.provisional) == (1, 3)
    flags = {hit.item.document.source: hit.scores.provisional for hit in found}
    assert flags == {"cat": True, "bank": True, "soup": True, "dog": False}
    scores = [hit.score for hit in found]
    assert scores == sorted(scores, reverse=True)
    assert {hit.item.document.source for hit in db.documents.search(QUESTION)} == set(flags)
    documents = db.documents.search(QUESTION, unit="document", fusion="rrf", expand=True)
    assert {hit.item.document.source: hit.scores.provisional for hit in documents} == flags
    assert db.check() == []


def test_a_file_goes_to_a_machine_without_the_static_model_and_back(path: Path) -> None:
    with Database(path, embedder=Letters(), config=ON) as db:
        ingest(db)
        copy = db.copy_to(path.with_name("copy.db"))
    with Database(copy, embedder=Letters(), config=OFF) as db:
        assert db.check() == []
        found = db.documents.search("sofa")
        assert found.legs == ("text",) and "waiting: 3" in found.reasons["vector"]
        db.documents.ingest_text("A stool in the corner.", source="stool", embed=False)
    with Database(copy, embedder=Letters(), config=ON) as db:
        backlog = db.documents.backlog()
        assert (backlog.pending, backlog.provisional) == (4, 3)
        assert "3 by provisional ones and 1 by words alone" in backlog.note
        assert db.check() == []
    with Database(copy, embedder=Letters(), config=OFF) as db:
        assert db.documents.backlog().provisional == 0
        assert db.embed_pending() == 4
        assert leftovers(db) == [] and db.check() == []


def test_a_file_whose_model_is_missing_is_searched_by_provisional_embeddings(path: Path) -> None:
    with Database(path, embedder=Letters(), config=OFF) as db:
        ingest(db)
    with Database(path, config=ON) as db:  # the embedder is not on this machine
        done = db.documents.ingest_text("Kittens play with yarn.", source="kitten")
        assert done.note.startswith(
            "stored and found by words and provisional embeddings, but not yet by its own: "
        )
        found = db.documents.search("young cats", mode="vector")
        assert [hit.item.document.source for hit in found] == ["kitten"]
        assert found.backlog.provisional == 1  # those from before come with the next `embed`
        assert db.check() == []


def test_a_file_that_is_open_for_reading_is_searched_and_not_changed(path: Path) -> None:
    with Database(path, embedder=Letters(), config=ON) as db:
        ingest(db)
    before = path.read_bytes()
    with Database(path, embedder=Letters(), config=replace(ON, read_only=True)) as db:
        assert db.documents.search(QUESTION)[0].item.document.source == "cat"
        assert db.check() == []
    assert path.read_bytes() == before


def test_the_model_of_a_file_changes_while_passages_wait(path: Path) -> None:
    with Database(path, config=replace(ON, model="all-MiniLM-L6-v2")) as db:
        ingest(db)
        db.use_model("potion-base-8M")
        assert db.stats().model == "potion-base-8M" and db.stats().pending == 0
        found = db.documents.search(QUESTION, mode="vector")
        assert found[0].item.document.source == "cat" and not found[0].scores.provisional
        assert db.check() == []
        ingest(db, {"dog": "The dog barks."})
        assert db.documents.backlog().provisional == 0  # it would be the same embedding
        db.use_model("all-MiniLM-L6-v2")
        assert db.documents.backlog().pending == 0
        assert leftovers(db) == [] and db.check() == []


def test_another_model_that_comes_in_leaves_provisional_embeddings_until_it_is_there(
    path: Path,
) -> None:
    with Database(path, embedder=Letters(), config=ON) as db:
        ingest(db)
        with db._file.writing() as sql:
            new = db._encoder.register(sql, "all-MiniLM-L6-v2", "another", 384)
            db._indexes[0].settle(sql, new.key, [(1, bytes(4 * 383) + b"\0\0\x80?")])
        assert db.documents.backlog().provisional == 3
        assert db.check() == []


def test_check_finds_a_provisional_embedding_beside_the_own_one_and_rebuild_removes_it(
    db: Database,
) -> None:
    ingest(db)
    with db._file.writing() as sql:
        row = sql.execute("SELECT * FROM document_embeddings WHERE chunk = 3").fetchone()
    db._encoder.embed_some(db._indexes[0], most=1)
    with db._file.writing() as sql:
        sql.execute("INSERT INTO document_embeddings VALUES (?, ?, ?)", row)
    assert db.check() == ["document_chunks: chunk 3 has a provisional embedding beside its own"]
    db.rebuild()
    assert db.check() == [] and db.documents.backlog().provisional == 2


def test_a_salvaged_file_is_sound_and_embedded_as_before(path: Path) -> None:
    with Database(path, embedder=Letters(), config=ON) as db:
        ingest(db)
    salvage(path, path.with_name("saved.db"), embedder=Letters())
    with Database(path.with_name("saved.db"), embedder=Letters(), config=ON) as db:
        assert db.check() == []
        assert db.embed_pending() == 3
        assert leftovers(db) == [] and db.check() == []


def test_a_setting_that_names_no_model_is_reported(db: Database) -> None:
    ingest(db)
    with db._file.writing() as sql:
        sql.execute("UPDATE settings SET value = '77' WHERE name = 'provisional'")
    assert "settings: the value of provisional is invalid" in db.check()


def test_a_setting_that_names_the_files_own_model_deletes_nothing(path: Path) -> None:
    with Database(path, embedder=Letters(), config=ON) as db:
        db.documents.ingest_text(TEXTS["cat"], source="cat")
        with db._file.writing() as sql:
            sql.execute("INSERT INTO settings (name, value) VALUES ('provisional', '1')")
    with Database(path, embedder=Letters(), config=ON) as db:
        assert db.check() == ["settings: the value of provisional is invalid"]
        db.documents.ingest_text(TEXTS["soup"], source="soup")
        found = db.documents.search("lentil soup", mode="vector")
        assert len(found) == 2 and not any(hit.scores.provisional for hit in found)
        salvage(path, path.with_name("saved.db"), embedder=Letters())
    with Database(path.with_name("saved.db"), embedder=Letters(), config=ON) as db:
        assert db.check() == [] and len(db.documents.search("lentil soup", mode="vector")) == 2


def test_few_passages_that_are_embedded_in_the_same_call_get_no_provisional_embedding(
    db: Database,
) -> None:
    db.documents.ingest_text(TEXTS["cat"], source="cat")
    db.documents.ingest_many(list(TEXTS.values()), sources=list(TEXTS))
    assert "_embedder" not in db._encoder.provisional.__dict__ or leftovers(db) == []
    with db._file.reading() as sql:  # a second model would have got the key 2
        assert sql.execute("SELECT seq FROM sqlite_sequence WHERE name = 'models'").get == 1


def test_many_passages_are_found_by_meaning_while_the_model_works(path: Path) -> None:
    model = Gated()
    with Database(path, embedder=model, config=ON) as db:
        db.embed_in_background(wait=0.0, start=False)
        ingest(db, {f"filler {n}": f"Filler number {n}." for n in range(BATCH + 1)})
        done = db.documents.ingest_text(TEXTS["cat"], source="cat")
        assert done.note == (
            "found by words and provisional embeddings now; by its own as embedding proceeds, "
            "1 passage waiting"
        )
        found = db.documents.search(QUESTION, mode="vector", limit=1)
        assert found[0].item.document.source == "cat" and found[0].scores.provisional
        model.gate.set()
        assert embed_in_the_background(db) == ""
        assert leftovers(db) == [] and db.check() == []


def test_what_agents_remember_is_found_by_meaning_while_it_waits(path: Path) -> None:
    with Database(path, embedder=Letters(), config=OFF) as db:
        db.documents.ingest_text("x", source="x")
    with Database(path, config=ON) as db:  # the embedder is not on this machine
        for text in TEXTS.values():
            done = db.memories.add("t", "user", text)
            assert "provisional embeddings" in done.note
        for mode in ("vector", "hybrid"):
            found = db.memories.search(QUESTION, mode=mode)
            assert found[0].item.text == TEXTS["cat"] and found[0].scores.provisional
            assert found.backlog.provisional == 3
        assert db.check() == []
    with Database(path, embedder=Letters(), config=ON) as db:
        db._encoder.embed_some(db._indexes[1], most=1)
        found = db.memories.search(QUESTION, mode="vector")
        assert sorted(hit.scores.provisional for hit in found) == [False, True, True]
        db.embed_pending()
        assert leftovers(db) == [] and db.check() == []


def test_a_damaged_model_is_said_and_words_still_find(path: Path, tmp_path: Path) -> None:
    spec = CATALOGUE[PROVISIONAL]
    files = weights.locate(spec, Config().models_folder())
    damaged = Path(shutil.copy(files["model"], tmp_path))
    damaged.write_bytes(damaged.read_bytes()[:-4] + b"\0\0\0\1")
    with Database(path, embedder=Letters(), config=ON) as db:
        broken = StaticEmbedder(spec, {**files, "model": damaged})
        db._encoder.provisional.__dict__["_embedder"] = broken
        ingest(db)
        found = db.documents.search("sofa")
        assert [hit.item.document.source for hit in found] == ["cat"]
        assert "no provisional embeddings: " in found.reasons["vector"]
        assert "SHA-256" in found.reasons["vector"]
        assert leftovers(db) == [] and db.check() == []


def test_two_processes_may_embed_the_same_passages(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        Database(path, embedder=Letters(), config=OFF) as first,
        Database(path, embedder=Letters(), config=ON) as second,
        Database(path, embedder=Letters(), config=ON) as third,
    ):
        ingest(first)
        provisional = second._encoder.provisional
        look = provisional._lacking

        def look_and_be_late(*asked: Any) -> list[tuple[int, str]]:
            found = look(*asked)
            third._encoder.provisional.fill(third._indexes[0])
            return found

        monkeypatch.setattr(provisional, "_lacking", look_and_be_late)
        provisional.fill(second._indexes[0])
        assert second.check() == [] and second.documents.backlog().provisional == 3
