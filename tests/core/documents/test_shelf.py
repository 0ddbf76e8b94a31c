from __future__ import annotations

import os
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import apsw
import pymupdf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import (
    Backlog,
    Condition,
    Config,
    Damaged,
    Database,
    InvalidFilter,
    InvalidInput,
    NoText,
    NotFound,
    Progress,
    Refused,
    Source,
    TooLarge,
    Unreadable,
    UnsupportedFormat,
)
from mcpvectordb.documents.items import Overrides, of_keys
from tests.support import Letters

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=400).filter(
    lambda text: bool(text.strip())
)
ARTICLE = """# Boats

Intro about boats.

## Sails

Sails catch the wind. They are made of cloth.

## Hulls

The hull keeps water out.
"""


def texts(results: Any) -> list[str]:
    return [hit.item.text for hit in results]


@given(text=TEXTS)
def test_any_text_comes_back_byte_for_byte(text: str) -> None:
    with Database(
        ":memory:", embedder=Letters(), config=Config(chunk_size=16, chunk_overlap=4)
    ) as db:
        document = db.documents.ingest_text(text, source="x").document
        assert db.documents.text(document.id) == text
        for hit in db.documents.search(text, mode="vector", limit=100):
            assert text[hit.item.start : hit.item.end] == hit.item.text
        assert db.check() == []


def test_browse_and_count_take_conditions(db: Database) -> None:
    for year in (2023, 2024, 2025):
        db.documents.ingest_text(
            f"report of {year}", source=f"{year}.md", library="work", metadata={"year": year}
        )
    db.documents.ingest_text("a letter", source="letter", library="home")
    assert {
        each.source for each in db.documents.browse(where={"metadata.year": {"gte": 2024}})
    } == {"2024.md", "2025.md"}
    assert (
        db.documents.count(library="work", where=[Condition("source", "starts_with", "2023")]) == 1
    )
    assert db.documents.count(where={"file_type": "unknown"}) == 1
    with pytest.raises(InvalidFilter, match=r"metadata\.year"):
        db.documents.browse(where={"year": 2024})


def test_conditions_apply_before_the_cut_to_limit(db: Database) -> None:
    for number in range(150):
        db.documents.ingest_text(
            f"apple number {number}", source=str(number), metadata={"n": number}
        )
    for mode in ("text", "vector", "hybrid"):
        results = db.documents.search("apple", mode=mode, where={"metadata.n": 149}, limit=5)
        assert [hit.item.document.metadata["n"] for hit in results] == [149], mode


def test_pages_of_results_together_are_the_whole_list(db: Database) -> None:
    for number in range(130):
        db.documents.ingest_text(
            f"apple {chr(97 + number % 26) * (number % 7)} {number}", source=str(number)
        )
    for mode in ("hybrid", "text", "vector"):
        whole = [hit.item.id for hit in db.documents.search("apple", mode=mode, limit=130)]
        parts = [
            hit.item.id
            for offset in range(0, 130, 13)
            for hit in db.documents.search("apple", mode=mode, limit=13, offset=offset)
        ]
        assert len(set(whole)) == 130 and parts == whole, mode


def test_hits_below_min_score_are_left_out(db: Database) -> None:
    for number in range(10):
        db.documents.ingest_text("apple " + "x" * number, source=str(number))
    hits = db.documents.search("apple", mode="vector", limit=10)
    threshold = hits[4].score
    found = db.documents.search("apple", mode="vector", limit=10, min_score=threshold)
    assert [*found] == [hit for hit in hits if hit.score >= threshold] != [*hits]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "fuzzy"}, "hybrid, text or vector"),
        ({"limit": -1}, "limit must be"),
        ({"limit": True}, "limit must be"),
        ({"limit": 2.5}, "limit must be"),
        ({"offset": -1}, "offset must be"),
        ({"limit": 5_001}, "at most 5,000"),
        ({"library": " "}, "library must not be blank"),
        ({"where": {"nonsense": 1}}, "nonsense"),
        ({"query": 5}, "query must be text"),
        ({"expand": True}, "expand applies to reciprocal ranks"),
        ({"unit": "page"}, "unit must be passage or document, not 'page'"),
        ({"query": "\ud800"}, "surrogate"),
    ],
)
def test_bad_arguments_are_refused_by_name(
    db: Database, arguments: dict[str, Any], message: str
) -> None:
    db.documents.ingest_text("x", source="x")
    with pytest.raises(InvalidInput, match=message):
        db.documents.search(**{"query": "x", **arguments})


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"text": ""}, NoText, "blank"),
        ({"text": " \n\t"}, NoText, "blank"),
        ({"text": "\ud800"}, InvalidInput, "surrogate"),
        ({"text": None}, InvalidInput, "text must be text"),
        ({"source": ""}, InvalidInput, "source must not be blank"),
        ({"library": ""}, InvalidInput, "library must not be blank"),
        ({"library": "x" * 201}, InvalidInput, "at most 200"),
        ({"metadata": {"a": float("nan")}}, InvalidInput, r"metadata\.a is nan"),
        ({"metadata": [1]}, InvalidInput, "metadata must be an object"),
        ({"title": " "}, InvalidInput, "title must not be blank"),
        ({"text": "x" * 101}, TooLarge, "at most 100"),
    ],
)
def test_bad_texts_are_refused_and_nothing_is_stored(
    path: Path, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with Database(path, embedder=Letters(), config=Config(max_source_bytes=100)) as db:
        with pytest.raises(error, match=message):
            db.documents.ingest_text(**{"text": "x", "source": "x", **arguments})
        assert db.documents.count() == 0


def test_a_file_whose_documents_were_all_deleted_has_nothing_that_waits(db: Database) -> None:
    db.documents.delete(db.documents.ingest_text("apple", source="a").document.id)
    found = db.documents.search("apple")
    assert (len(found), found.reasons, found.backlog) == (0, {}, Backlog())


def test_a_missing_model_is_the_outlook_of_what_waits(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        db.documents.ingest_text("apple", source="a", embed=False)
    with Database(path) as db:
        assert "letters" in db.documents.backlog().outlook
        assert "letters" in db.documents.search("apple", mode="vector").reasons["vector"]


def test_an_ingest_reports_that_it_parses_and_how_many_chunks_there_are(
    db: Database, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("apple")
    seen: list[Progress] = []
    db.documents.ingest(tmp_path / "a.txt", progress=seen.append)
    steps = [(each.step, each.done, each.total, each.chunks_known) for each in seen]
    assert steps[:2] == [("parse", 0, 1, 0), ("parse", 1, 1, 1)]
    assert steps[-1] == ("embed", 1, 1, 1)


def test_a_skipped_text_is_embedded_if_it_was_not_before(db: Database) -> None:
    db.documents.ingest_text("apple", source="a", embed=False)
    again = db.documents.ingest_text("apple", source="a")
    assert (again.status, again.pending) == ("unchanged", 0) and db.stats().pending == 0


def test_a_condition_can_compare_the_text_of_a_chunk(path: Path) -> None:
    with Database(path, embedder=Letters(), config=Config(chunk_size=16, chunk_overlap=6)) as db:
        db.documents.ingest_text(" ".join(f"word{number}" for number in range(60)), source="a")
        for hit in db.documents.search("word", mode="vector", limit=50):
            found = db.documents.search("word", mode="vector", where={"text": hit.item.text})
            assert [each.item.id for each in found] == [hit.item.id]


def test_a_document_may_have_chunk_sizes_of_its_own(db: Database, tmp_path: Path) -> None:
    file = tmp_path / "words.txt"
    file.write_text(" ".join(f"word{number}" for number in range(300)))
    small, large = (
        db.documents.ingest(file, chunk_size=size, chunk_overlap=8, duplicate=True)
        for size in (50, 400)
    )
    usual = db.documents.ingest(file, duplicate=True)
    assert small.document.chunks > usual.document.chunks > large.document.chunks
    hits = db.documents.search("word1", where={"id": small.document.id}, limit=100)
    first, second = sorted((hit.item for hit in hits), key=lambda chunk: chunk.position)[:2]
    assert second.start < first.end
    assert (db.stats().chunk_size, db.stats().chunk_overlap) == (200, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"metadata": {"a": float("inf")}}, "metadata"),
        ({"chunk_size": 5}, "chunk_size must be"),
        ({"chunk_size": 100, "chunk_overlap": 51}, "chunk_overlap must be"),
        ({"chunk_overlap": -1}, "chunk_overlap must be"),
    ],
)
def test_invalid_arguments_are_refused_before_anything_is_read(
    db: Database, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        db.documents.ingest("/nowhere/at/all", **arguments)


def test_a_duplicate_is_stored_beside_what_is_there(db: Database, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("apple")
    first, second = db.documents.ingest(file), db.documents.ingest(file, duplicate=True)
    assert (first.status, second.status) == ("indexed", "indexed")
    file.write_text("apple pie")
    third = db.documents.ingest(file, duplicate=True)
    assert [each.id for each in db.documents.browse()] == [
        each.document.id for each in (third, second, first)
    ]
    assert db.documents.ingest(file).document == third.document
    file.write_text("apple cake")
    assert db.documents.ingest(file).status == "replaced"  # all that were there
    assert db.documents.count() == 1 and db.check() == []


def test_a_reader_replaces_the_parser(db: Database, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_bytes(b"<html>apple</html>")
    done = db.documents.ingest(file, reader=lambda source: source.raw.decode().upper())
    assert db.documents.text(done.document.id) == "<HTML>APPLE</HTML>"
    assert (done.document.title, done.document.file_type) == ("page.html", "html")
    with pytest.raises(NoText, match=r"page\.html"):
        db.documents.ingest(file, duplicate=True, reader=lambda _: "\ufeff \n")
    with pytest.raises(InvalidInput, match="surrogate"):
        db.documents.ingest(file, duplicate=True, reader=lambda _: "\ud800")
    with pytest.raises(ZeroDivisionError):
        db.documents.ingest(file, duplicate=True, reader=lambda _: str(1 / 0))
    assert db.documents.count() == 1


@pytest.mark.parametrize("unit", ["passage", "document"])
def test_a_plain_query_has_no_operators(db: Database, unit: Any) -> None:
    db.documents.ingest_text("red apples", source="a")
    for mode in ("text", "vector", "hybrid"):
        found, plain = (
            texts(db.documents.search('"green tea" -red apples', mode=mode, unit=unit, plain=each))
            for each in (False, True)
        )
        assert (found, plain) == ([], ["red apples"]), mode


def test_documents_can_be_filtered_by_pending_chunks(db: Database) -> None:
    waiting = db.documents.ingest_text("apple", source="a", embed=False)
    db.documents.ingest_text("pear", source="b")
    assert [each.id for each in db.documents.browse(where={"pending": {"gt": 0}})] == [
        waiting.document.id
    ]
    assert db.documents.count(where={"pending": 0}) == 1
    db.embed_pending()
    assert db.documents.count(where={"pending": 0}) == 2


def test_an_index_with_entries_of_missing_passages_is_reported(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        for number in range(3):
            db.documents.ingest_text(f"apple {number}", source=str(number))
    other = apsw.Connection(str(path))
    other.execute("DELETE FROM document_chunks WHERE id = 2")
    other.close()
    with Database(path, embedder=Letters()) as db:
        with pytest.raises(Damaged, match="passage 2, which is not there"):
            db.documents.search("apple")
        assert db.check()


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
    assert db.documents.ingest(note).status == "unchanged"
    done = db.documents.ingest(note, metadata={"year": 2024, "who": "Ann"})
    assert (done.status, done.document.id) == ("updated", first.document.id)
    assert done.document.metadata == {"year": 2024, "draft": True, "who": "Ann"}
    assert db.documents.ingest(note, metadata={"year": 2024}).status == "unchanged"
    assert db.documents.search("sails", where={"metadata.year": 2024}).hits
    assert not db.documents.search("sails", where={"metadata.year": 2020}).hits
    assert db.check() == []


def test_a_caller_may_leave_the_metadata_of_a_known_file_as_it_is(db: Database, note: Path) -> None:
    db.documents.ingest(note)
    done = db.documents.ingest(note, metadata={"year": 2024}, update_metadata=False)
    assert (done.status, done.document.metadata["year"]) == ("unchanged", 2020)


def test_metadata_and_title_of_a_known_text_are_updated(db: Database) -> None:
    db.documents.ingest_text("some words", source="a", title="Old")
    done = db.documents.ingest_text("some words", source="a", title="New", metadata={"k": 1})
    assert (done.status, done.document.title, done.document.metadata) == (
        "updated",
        "New",
        {"k": 1},
    )
    assert db.documents.search("new", mode="text")[0].item.document.title == "New"
    assert db.documents.ingest_text("some words", source="a", title="New").status == "unchanged"
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
    assert db.documents.update(id, metadata={"only": None}).status == "unchanged"
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
    assert db.documents.update(before.id, title="Quagga").status == "unchanged"


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


class Page:
    """A page of the web, in place of what reads one, and under which conditions it was asked."""

    url = "https://example.org/page.md"

    def __init__(self) -> None:
        self.text, self.etag, self.modified, self.conditional = "first", '"1"', "2015", True
        self.asked: list[tuple[str, str]] = []

    def read(self, source: str, *, etag: str, modified: str, **_: object) -> Source | None:
        self.asked.append((etag, modified))
        if self.conditional and self.asked[-1] == (self.etag, self.modified):
            return None
        marks = {"etag": self.etag, "modified": self.modified}
        return Source(
            source=source, name="page.md", raw=self.text.encode(), file_type="md", **marks
        )


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Page:
    page = Page()
    monkeypatch.setattr("mcpvectordb.ingest.sources.read", page.read)
    return page


def test_a_page_is_fetched_again_only_if_it_has_changed(db: Database, page: Page) -> None:
    first, again = (db.documents.ingest(page.url) for _ in range(2))
    assert (first.status, again.status) == ("indexed", "unchanged")
    assert again.document == first.document and again.pending == 0
    assert page.asked == [("", ""), ('"1"', "2015")]
    assert db.documents.ingest(page.url, metadata={"a": 1}).status == "updated"
    page.text, page.etag, page.modified = "second", '"2"', ""
    assert db.documents.ingest(page.url).status == "replaced"
    assert db.documents.ingest(page.url).status == "unchanged" and page.asked[-1] == ('"2"', "")
    page.conditional = False  # a server may send it all the same: its content decides
    assert db.documents.ingest(page.url).status == "unchanged"
    assert db.documents.text(db.documents.browse()[0].id) == "second"


def test_a_page_is_known_only_in_its_library_and_until_it_is_deleted(
    db: Database, page: Page
) -> None:
    one = db.documents.ingest(page.url, library="one")
    assert db.documents.ingest(page.url, library="two").status == "indexed"
    db.documents.delete(one.document.id)
    assert db.documents.ingest(page.url, library="one").status == "indexed"
    assert page.asked == [("", "")] * 3


def test_a_passage_has_neighbours(db: Database) -> None:
    text = "\n\n".join(f"# Part {number}\n\n" + "green tea " * 300 for number in range(3))
    document = db.documents.ingest_text(text, source="long.md", embed=False).document
    first, second, third, *_ = chunks = db.documents.chunks(document.id)
    assert db.documents.neighbours(second) == [first, second, third]
    assert db.documents.neighbours(first, before=5, after=0) == [first]
    assert db.documents.neighbours(chunks[-1], before=1, after=9) == chunks[-2:]
    db.documents.delete(document.id)
    with pytest.raises(NotFound):
        db.documents.neighbours(first)


def test_what_became_of_a_file_since_it_was_read(db: Database, tmp_path: Path) -> None:
    file, other = tmp_path / "tea.md", tmp_path / "other.md"
    file.write_text("green tea")
    other.write_text("black tea")
    stored = db.documents.ingest(file).document
    db.documents.ingest_folder(tmp_path, library="folder")
    [synced] = db.documents.browse(library="folder", where={"source": str(other)})
    assert db.documents.state(stored) == db.documents.state(synced) == "current"
    os.utime(file, (10**9, 10**9))  # the same bytes with another time, as after a checkout
    assert db.documents.state(stored) == "current"
    file.write_text("white tea")
    os.utime(file, (10**9, 10**9))
    assert db.documents.state(stored) == "changed"
    assert db.documents.state(db.documents.ingest(file).document) == "current"
    file.write_text("no tea at all")
    assert db.documents.state(db.documents.lookup(str(file)).document) == "changed"
    file.unlink()
    other.unlink()
    other.mkdir()
    assert db.documents.state(stored) == db.documents.state(synced) == "gone"


def test_a_file_written_twice_in_the_second_of_its_ingest_has_changed(
    db: Database, tmp_path: Path
) -> None:
    file = tmp_path / "tea.md"
    file.write_text("green tea")
    stored = db.documents.ingest(file).document
    second = datetime.fromisoformat(stored.created_at).replace(microsecond=0)
    stored = replace(stored, modified=second.isoformat())
    file.write_text("white tea")
    os.utime(file, (second.timestamp(), second.timestamp()))
    assert db.documents.state(stored) == "changed"


@pytest.mark.parametrize("source", ["notes/tea.md", "/nowhere/tea.md", "https://tea.test/a.md"])
def test_what_is_no_file_has_no_state(db: Database, source: str) -> None:
    text = db.documents.ingest_text("green tea", source=source).document
    assert db.documents.state(text) == ""
    page = Source(
        source="https://tea.test/b.md",
        name="b.md",
        raw=b"black tea",
        file_type="md",
        modified="2025-11-29T10:00:00+00:00",
    )
    assert db.documents.state(db.documents.ingest(page).document) == ""


def report(*texts: str) -> bytes:
    """A PDF with a page for each text."""
    document = pymupdf.open()
    for text in texts:
        document.new_page(width=300, height=200).insert_text((20, 50), text)
    return bytes(document.tobytes())


def test_pages_are_drawn_from_the_file_and_its_text_says_on_which_lines_they_are(
    db: Database, tmp_path: Path
) -> None:
    file = tmp_path / "report.pdf"
    file.write_bytes(report("The first page.", "", "The third page."))
    document = db.documents.ingest(file).document
    assert list(db.documents.pages(document.id)) == [1, 3]
    assert db.documents.pages(document.id)[3] == db.documents.page_lines(document.id, 3)
    pages = [pymupdf.Pixmap(db.documents.draw(document.id, page)) for page in (1, 2, 3)]
    assert [page.is_unicolor for page in pages] == [False, True, False]
    assert pages[0].width == 1250  # at 300 dots per inch
    small = pymupdf.Pixmap(db.documents.draw(document.id, most_pixels=200))
    assert max(small.width, small.height) <= 200
    for page, pixels in ((0, 200), (-1, 200), (1, 0), (1, 3_001)):
        with pytest.raises(InvalidInput, match="counted from 1, and pixels up to 3,000"):
            db.documents.draw(document.id, page, most_pixels=pixels)
    with pytest.raises(NotFound):
        db.documents.draw("abcdef")


def test_a_file_that_changed_or_is_gone_is_not_drawn(db: Database, tmp_path: Path) -> None:
    file = tmp_path / "report.pdf"
    file.write_bytes(report("One."))
    document = db.documents.ingest(file).document
    file.write_bytes(report("Another, which nobody has ingested."))
    with pytest.raises(Unreadable, match="was changed since it was read: ingest it again"):
        db.documents.draw(document.id)
    file.unlink()
    with pytest.raises(Unreadable, match="is gone: it was moved or deleted since it was read"):
        db.documents.draw(document.id)
    file.mkdir()
    with pytest.raises(Unreadable, match="is gone"):
        db.documents.draw(document.id)
    text = db.documents.ingest_text("No file.", source=str(tmp_path / "x.pdf")).document
    with pytest.raises(Unreadable, match="was not read from a file that can be seen here"):
        db.documents.draw(text.id)
    note = tmp_path / "note.md"
    note.write_text("Words.")
    with pytest.raises(UnsupportedFormat, match=r"note\.md is neither a PDF nor a picture"):
        db.documents.draw(db.documents.ingest(note).document.id)


def test_drawing_keeps_to_the_folders_and_secrets_that_ingest_keeps_to(
    db: Database, tmp_path: Path
) -> None:
    private = tmp_path / ".ssh"
    private.mkdir()
    (tmp_path / "open").mkdir()
    file = private / "report.pdf"
    file.write_bytes(report("One."))
    document = db.documents.ingest(file).document
    assert db.documents.draw(document.id)
    with pytest.raises(Refused, match="where secrets are kept"):
        db.documents.draw(document.id, guard=True)
    with pytest.raises(Refused, match="outside of the folders"):
        db.documents.draw(document.id, roots=[tmp_path / "open"])
    small = Database(db.path, config=Config(max_source_bytes=100))
    with small, pytest.raises(TooLarge, match="more than the limit of 100"):
        small.documents.draw(document.id)
