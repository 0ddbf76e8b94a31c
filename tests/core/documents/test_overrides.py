"""What people say of documents: `update`, metadata on a known source, and what a change keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import Damaged, Database, InvalidInput, NotFound
from mcpvectordb.documents.overrides import Overrides, of_keys
from tests.support import Letters

FRONT = "---\nyear: {year}\ndraft: true\n---\n# Boats\n\nSails catch the {word}.\n"


@pytest.fixture
def note(tmp_path: Path) -> Path:
    path = tmp_path / "boats.md"
    path.write_text(FRONT.format(year=2020, word="wind"))
    return path


def change(path: Path, year: int = 2021) -> None:
    path.write_text(FRONT.format(year=year, word=f"breeze of {year}"))


def test_metadata_of_a_known_file_is_updated(db: Database, note: Path) -> None:
    first = db.documents.ingest(note)
    assert db.documents.ingest(note).status == "skipped"
    done = db.documents.ingest(note, metadata={"year": 2024, "who": "Ann"})
    assert (done.status, done.document.id) == ("updated", first.document.id)
    assert done.document.metadata == {"year": 2024, "draft": True, "who": "Ann"}
    assert db.documents.ingest(note, metadata={"year": 2024}).status == "skipped"
    assert db.documents.search("sails", where={"metadata.year": 2024}).hits
    assert not db.documents.search("sails", where={"metadata.year": 2020}).hits
    assert db.check() == []


def test_a_caller_may_leave_the_metadata_of_a_known_file_as_it_is(db: Database, note: Path) -> None:
    db.documents.ingest(note)
    done = db.documents.ingest(note, metadata={"year": 2024}, update_metadata=False)
    assert (done.status, done.document.metadata["year"]) == ("skipped", 2020)


def test_metadata_and_title_of_a_known_text_are_updated(db: Database) -> None:
    db.documents.ingest_text("some words", source="a", title="Old")
    done = db.documents.ingest_text("some words", source="a", title="New", metadata={"k": 1})
    assert (done.status, done.document.title, done.document.metadata) == (
        "updated",
        "New",
        {"k": 1},
    )
    assert db.documents.search("new", mode="text")[0].item.document.title == "New"
    assert db.documents.ingest_text("some words", source="a", title="New").status == "skipped"
    assert db.check() == []


def test_a_changed_file_keeps_what_a_person_gave_and_follows_its_front_matter(
    db: Database, note: Path
) -> None:
    db.documents.ingest(note, metadata={"who": "Ann", "draft": False})
    change(note)
    replaced = db.documents.ingest(note)
    assert replaced.status == "replaced"
    assert replaced.document.metadata == {"year": 2021, "draft": False, "who": "Ann"}
    note.write_text("# Boats\n\nNothing in front.\n")
    assert db.documents.ingest(note, metadata={"place": 1}).document.metadata == {
        "who": "Ann",
        "draft": False,
        "place": 1,
    }


def test_what_a_person_gave_wins_even_if_the_file_said_the_same(db: Database, note: Path) -> None:
    db.documents.ingest(note, metadata={"year": 2020})
    change(note)
    assert db.documents.ingest(note).document.metadata["year"] == 2020


def test_a_sync_keeps_what_a_person_gave(db: Database, note: Path) -> None:
    db.documents.add_library("notes", note.parent)
    db.documents.sync()
    [document] = db.documents.browse()
    db.documents.update(document.id, metadata_patch={"draft": None, "who": "Ann"}, title="Ships")
    change(note)
    [done] = db.documents.sync()
    [document] = db.documents.browse()
    assert (done.replaced, document.title) == (1, "Ships")
    assert document.metadata == {"year": 2021, "who": "Ann"}
    note.rename(note.with_name("renamed.md"))
    [done] = db.documents.sync()
    [document] = db.documents.browse()
    assert (done.moved, document.title) == (1, "Ships")
    change(note.with_name("renamed.md"), 2022)
    db.documents.sync()
    [document] = db.documents.browse()
    assert (document.title, document.metadata) == ("Ships", {"year": 2022, "who": "Ann"})
    assert db.documents.search("ships", mode="text").hits and db.check() == []


def test_metadata_of_known_files_of_a_folder_is_updated(db: Database, note: Path) -> None:
    (note.parent / "other.txt").write_text("another text")
    db.documents.ingest_folder(note.parent)
    (note.parent / "new.txt").write_text("a new text")
    done = db.documents.ingest_folder(note.parent, metadata={"year": 2024})
    assert (done.indexed, done.updated, done.unchanged) == (1, 2, 0)
    assert db.documents.count(where={"metadata.year": 2024}) == 3
    done = db.documents.ingest_folder(note.parent, metadata={"year": 2024})
    assert (done.indexed, done.updated, done.unchanged) == (0, 0, 3)
    (note.parent / "other.txt").touch()
    done = db.documents.ingest_folder(note.parent, metadata={"year": 2025})
    assert (done.updated, done.unchanged) == (3, 0) and db.check() == []


def test_update_replaces_or_patches_metadata(db: Database) -> None:
    id = db.documents.ingest_text(
        "words", source="a", metadata={"a": {"x": 1, "y": 2}, "b": 1}
    ).document.id
    patched = db.documents.update(id, metadata_patch={"a": {"x": None, "z": 3}, "b": None})
    assert (patched.status, patched.document.metadata) == ("updated", {"a": {"y": 2, "z": 3}})
    assert db.documents.update(id, metadata={"only": None}).document.metadata == {"only": None}
    assert db.documents.update(id, metadata={"only": None}).status == "skipped"
    assert db.documents.get(id).metadata == {"only": None}
    assert db.documents.update(id, metadata={}).document.metadata == {}


def test_a_new_title_is_indexed_and_embedded(db: Database) -> None:
    long = "".join(f"## Part {number}\n\n{'word ' * 300}\n\n" for number in range(3))
    before = db.documents.ingest_text(long, source="a", title="Zebra").document
    other = db.documents.ingest_text("something else", source="b").document
    vector = db.documents.search("zebra", mode="vector", where={"source": "a"})[0].scores.vector
    pending = db.documents.update(before.id, title="Quagga", embed=False)
    assert pending.pending == pending.document.chunks == before.chunks > 1
    assert db.documents.text(before.id) == long
    assert not db.documents.search("zebra", mode="text").hits and db.check() == []
    assert db.documents.search("quagga", mode="text")[0].item.document.id == before.id
    assert db.embed_pending() == before.chunks and db.check() == []
    assert (
        db.documents.search("zebra", mode="vector", where={"source": "a"})[0].scores.vector
        != vector
    )
    after = db.documents.get(before.id)
    assert (after.created_at, after.chunks, after.hash) == (
        before.created_at,
        before.chunks,
        before.hash,
    )
    assert [each.id for each in db.documents.browse()] == [other.id, before.id]
    assert db.documents.update(before.id, title="Quagga").status == "skipped"


@pytest.mark.parametrize("mode", ["text", "vector", "hybrid"])
def test_searches_in_this_and_other_processes_follow_an_update(path: Path, mode: str) -> None:
    """What is kept in memory for filters is brought up to date."""
    with Database(path, embedder=Letters()) as db, Database(path, embedder=Letters()) as other:
        id = db.documents.ingest_text("some tea", source="a", metadata={"k": 1}).document.id
        db.documents.ingest_text("more tea", source="b", metadata={"k": 1})

        def found(each: Database, where: dict[str, Any]) -> set[str]:
            hits = each.documents.search("tea", mode=mode, where=where)
            return {hit.item.document.source for hit in hits}

        for _ in range(3):  # the first search asks the file, later ones the memory
            for each in (db, other):
                assert found(each, {"metadata.k": 1, "library": "default"}) == {"a", "b"}
        db.documents.update(id, metadata_patch={"k": 2})
        for each in (db, other):
            assert found(each, {"metadata.k": 2}) == {"a"}
            assert found(each, {"metadata.k": 1}) == {"b"}
        db.documents.update(id, library="elsewhere", title="Tea time")
        for each in (db, other):
            assert found(each, {"library": "elsewhere"}) == {"a"}
            assert found(each, {"library": "default"}) == {"b"}
            assert found(each, {"title": "Tea time"}) == {"a"}


def test_a_document_is_not_moved_onto_another_of_its_source(db: Database) -> None:
    one = db.documents.ingest_text("words", source="a").document
    two = db.documents.ingest_text("words", source="a", library="work").document
    with pytest.raises(InvalidInput, match=rf"'work' already has a document of 'a' \({two.id}\)"):
        db.documents.update(one.id, library="work", metadata={"k": 1})
    assert db.documents.get(one.id) == one
    assert db.documents.update(one.id, library="default").status == "skipped"
    moved = db.documents.update(one.id, library="home").document
    assert (moved.library, moved.id) == ("home", one.id)
    assert {each.name for each in db.documents.libraries()} == {"home", "work"}


def test_an_update_that_cannot_be_made_is_refused(db: Database) -> None:
    id = db.documents.ingest_text("words", source="a").document.id
    for arguments, message in [
        ({}, "nothing to change"),
        ({"metadata": {}, "metadata_patch": {}}, "not both"),
        ({"title": " "}, "title must not be blank"),
        ({"library": ""}, "library must not be blank"),
        ({"metadata": {"a": float("nan")}}, "metadata.a is nan"),
        ({"metadata_patch": ["a"]}, "metadata_patch must be an object"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            db.documents.update(id, **arguments)
    with pytest.raises(NotFound):
        db.documents.update("nobody", title="x")
    assert db.documents.get(id).metadata == {}


def test_documents_from_before_keep_what_their_source_does_not_say(
    db: Database, note: Path
) -> None:
    db.documents.ingest(note, metadata={"who": "Ann"})
    with db._file.writing() as sql:
        sql.execute("UPDATE documents SET given = NULL")
    change(note)
    assert db.documents.ingest(note).document.metadata == {
        "year": 2021,
        "draft": True,
        "who": "Ann",
    }


def test_damage_in_what_is_given_is_reported(db: Database, note: Path) -> None:
    db.documents.ingest(note)
    with db._file.writing() as sql:
        sql.execute("""UPDATE documents SET given = '{"title":1,"metadata":{}}'""")
    change(note)
    with pytest.raises(Damaged, match="run `mcpvectordb check`"):
        db.documents.ingest(note)
    with db._file.writing() as sql:
        sql.execute("UPDATE documents SET given = '['")
    assert db.check() != []


keys = st.sampled_from("abcd")
said = st.dictionaries(keys, st.lists(st.none() | st.integers(0, 3), max_size=1))
own = st.dictionaries(keys, st.none() | st.integers(0, 3))


@given(first=said, later=said, own=own)
def test_what_was_said_later_wins_and_both_win_over_the_source(
    first: dict[str, Any], later: dict[str, Any], own: dict[str, Any]
) -> None:
    together = Overrides(metadata=first).then(Overrides(metadata=later))
    assert together.over(own) == Overrides(metadata=later).over(Overrides(metadata=first).over(own))
    for key in "abcd":
        expected = later.get(key, first.get(key, [own[key]] if key in own else []))
        assert of_keys([key], together.over(own)) == {key: expected}
