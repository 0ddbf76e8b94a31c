from __future__ import annotations

from pathlib import Path

import pytest

from mcpvectordb import Config, Database
from mcpvectordb.documents.notes import MULTILINGUAL
from mcpvectordb.embedding.catalogue import CATALOGUE
from mcpvectordb.embedding.weights import installed
from tests.support import Letters

GERMAN = "Die Feuerwehr löschte den Brand in der Altstadt noch vor Mitternacht."
ENGLISH = "The fire brigade put out the fire in the old town before midnight."
MINILM = Config(model="all-MiniLM-L6-v2")


def notes(db: Database, *texts: str) -> list[str]:
    """The notes on texts that are ingested one by one."""
    start = db.documents.count()
    return [
        db.documents.ingest_text(text, source=f"{start + number}.md", embed=False).note
        for number, text in enumerate(texts)
    ]


def test_a_file_that_begins_in_another_language_says_once_that_a_model_for_it_exists(
    path: Path,
) -> None:
    with Database(path, config=MINILM) as db:
        first, *others = notes(db, GERMAN, GERMAN + " Ende.", ENGLISH)
    assert "not in English" in first and f"`mcpvectordb model use {MULTILINGUAL}`" in first
    assert others == ["", ""]
    with Database(path, config=MINILM) as db:
        assert notes(db, GERMAN + " Noch einmal.") == [""]
        assert db.check() == []


def test_the_advice_has_the_command_that_installs_what_is_missing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcpvectordb.documents.notes.weights.installed", lambda *_: False)
    with Database(path, config=MINILM) as db:
        [note] = notes(db, GERMAN)
    assert f"run `{CATALOGUE[MULTILINGUAL].command}`, then `mcpvectordb model use" in note


def test_a_file_in_english_says_nothing_also_when_german_follows(path: Path) -> None:
    with Database(path, config=MINILM) as db:
        assert set(notes(db, *(f"{ENGLISH} {number}" for number in range(20)))) == {""}
        assert set(notes(db, *(f"{GERMAN} {number}" for number in range(30)))) == {""}


def test_a_file_that_turns_out_to_be_german_says_so_when_most_of_it_is(path: Path) -> None:
    with Database(path, config=MINILM) as db:
        found = notes(db, ENGLISH, GERMAN, GERMAN + " Ende.", GERMAN + " Schluss.")
    assert [bool(note) for note in found] == [False, False, True, False]


@pytest.mark.skipif(
    not installed(CATALOGUE["multilingual-e5-small"], Path("nowhere")),
    reason="the extra multilingual is not installed",
)
def test_a_file_with_the_multilingual_model_says_nothing(path: Path) -> None:
    with Database(path, config=Config(model="multilingual-e5-small")) as db:
        assert notes(db, GERMAN) == [""]


def test_a_file_with_an_embedder_of_the_users_own_says_nothing(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        assert notes(db, GERMAN) == [""]


def test_folders_and_many_texts_say_it_too(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.md").write_text(GERMAN)
    with Database(tmp_path / "folder.db", config=MINILM) as db:
        assert "not in English" in db.documents.ingest_folder(folder, embed=False).note
    with Database(tmp_path / "texts.db", config=MINILM) as db:
        done = db.documents.ingest_many([GERMAN, GERMAN + "!"], sources=["a", "b"], embed=False)
        assert [bool(each.note) for each in done] == [False, True]
