from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mcpvectordb import Config, Database, DocumentHeading, InvalidFilter, InvalidInput, NotFound
from mcpvectordb.documents import rows
from mcpvectordb.index.tuning import Tuning
from tests.support import Letters


def test_the_outline_has_headings_with_their_lines(db: Database) -> None:
    text = "---\nkey: value\n---\n# Tea\n\ntext\n\n```\n# no heading\n```\n\n## Green *tea*\n\nBlack\n-----\n"
    id = db.documents.ingest_text(text, source="tea.md").document.id
    assert db.documents.outline(id) == [
        DocumentHeading(line=4, level=1, title="Tea"),
        DocumentHeading(line=12, level=2, title="Green tea"),
        DocumentHeading(line=14, level=2, title="Black"),
    ]


def test_a_document_without_pages_says_so(db: Database) -> None:
    id = db.documents.ingest_text("tea", source="tea.md").document.id
    with pytest.raises(NotFound, match="no pages"):
        db.documents.page_lines(id, 1)
    with pytest.raises(NotFound):
        db.documents.outline("nothing")


def test_the_id_of_an_earlier_version_finds_the_present_one(db: Database) -> None:
    ids = [
        db.documents.ingest_text(f"tea {number}", source="tea.md").document.id
        for number in range(25)
    ]
    assert not db.documents.lookup(ids[-1]).former
    for old in ids[5:-1]:
        place = db.documents.lookup(f"{old}:1")
        assert (place.document.id, place.line, place.former) == (ids[-1], 1, True)
    with pytest.raises(NotFound):  # only the newest are kept
        db.documents.lookup(ids[0])
    assert db.documents.candidates([ids[-2]]) == [[]]
    with pytest.raises(NotFound):
        db.documents.get(ids[-2])


def test_former_ids_go_with_their_document_and_with_a_moved_one(
    db: Database, tmp_path: Path
) -> None:
    file = tmp_path / "notes" / "tea.md"
    file.parent.mkdir()
    file.write_text("first version of some text")
    db.documents.add_library("notes", file.parent)
    db.documents.sync()
    old = db.documents.lookup("tea.md").document.id
    file.write_text("second version of some text")
    db.documents.sync()
    file.rename(file.with_name("renamed.md"))
    [done] = db.documents.sync()
    assert done.moved == 1
    assert db.documents.lookup(old).document.path == "notes/renamed.md"
    db.documents.delete(db.documents.lookup("renamed.md").document.id)
    with pytest.raises(NotFound):
        db.documents.lookup(old)
    assert db.check() == []


def test_a_long_document_that_was_replaced_is_found_by_its_former_id(path: Path) -> None:
    with Database(path, embedder=Letters(), tuning=Tuning(slice_chunks=2)) as db:
        old = db.documents.ingest_text("word " * 3000, source="long.md").document.id
        new = db.documents.ingest_text("other " * 3000, source="long.md").document.id
        assert db.documents.lookup(old).document.id == new
        assert db.check() == []


def filled(path: Path, count: int = 130) -> Database:
    db = Database(path, embedder=Letters())
    db.documents.ingest_many(
        [f"note {number} on {'tea' if number % 2 else 'pie'}" for number in range(count)],
        sources=[f"{number}.md" for number in range(count)],
        metadata=[{"number": number} for number in range(count)],
        library="notes",
    )
    db.documents.ingest_text("the other one on tea", source="other.md", library="other")
    return db


def test_documents_are_deleted_by_conditions(path: Path) -> None:
    with filled(path) as db:
        assert db.documents.delete(where={"metadata.number": {"gte": 10}}) == 120
        assert db.documents.delete(where={"metadata.number": {"gte": 10}}) == 0
        assert db.documents.delete(where={"source": "other.md"}, library="notes") == 0
        assert db.documents.count(library="notes") == 10 and db.documents.count() == 11
        found = db.documents.search("note tea", mode="text", limit=100)
        assert {hit.item.document.source for hit in found} == {
            *(f"{number}.md" for number in range(10)),
            "other.md",
        }
        assert db.documents.delete(library="notes") == 10
        assert [each.source for each in db.documents.browse()] == ["other.md"]
        assert db.check() == []


@pytest.mark.parametrize(
    "given", [{}, {"where": {}}, {"where": {}, "library": "notes"}, {"where": []}]
)
def test_an_empty_condition_deletes_nothing(given: dict[str, Any], path: Path) -> None:
    with filled(path, 3) as db:
        with pytest.raises(InvalidInput, match="delete needs ids, a condition"):
            db.documents.delete(**given)
        assert db.documents.count() == 4


def test_a_wrong_condition_deletes_nothing(path: Path) -> None:
    with filled(path, 3) as db:
        for where in ({"color": "red"}, {"size": {"gt": "abc"}}, {"page": 1}):
            with pytest.raises(InvalidFilter):
                db.documents.delete(where=where)
        with pytest.raises(InvalidInput):
            db.documents.delete(library="")
        assert db.documents.count() == 4


def test_a_document_that_stops_matching_meanwhile_stays(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with filled(path, 60) as db, Database(path, embedder=Letters()) as other:
        [last] = db.documents.browse(where={"source": "59.md"})
        clean = db.documents.unpublished.clean

        def between_transactions() -> None:
            clean()
            other.documents.update(last.id, metadata={"number": -1})

        monkeypatch.setattr(db.documents.unpublished, "clean", between_transactions)
        assert db.documents.delete(where={"metadata.number": {"gte": 0}}) == 59
        assert db.documents.get(last.id).metadata == {"number": -1}


def test_the_passages_of_a_document_are_read_in_their_order_and_by_pages(db: Database) -> None:
    text = "\n\n".join(f"## Part {n}\n\n" + f"word{n} " * 150 for n in range(5))
    id = db.documents.ingest_text(text, source="long.md").document.id
    chunks = db.documents.chunks(id)
    assert len(chunks) == db.documents.get(id).chunks > 4
    assert [chunk.position for chunk in chunks] == list(range(len(chunks)))
    assert all(text[chunk.start : chunk.end] == chunk.text for chunk in chunks)
    assert db.documents.chunks(id, limit=2, offset=1) == chunks[1:3]
    ids = [chunks[2].id, 10**9, chunks[0].id]
    assert db.documents.chunks_by_ids(ids) == [chunks[2], chunks[0]]
    with pytest.raises(NotFound):
        db.documents.chunks("no id")


def test_what_waits_for_its_embedding_is_named(db: Database) -> None:
    id = db.documents.ingest_text("tea", source="a.md", embed=False).document.id
    assert db.documents.waiting(id) == {chunk.id for chunk in db.documents.chunks(id)}
    db.embed_pending()
    assert db.documents.waiting(id) == frozenset()


def test_documents_are_listed_in_the_order_that_is_asked_for(db: Database) -> None:
    for title, source, text in (("b", "x/2.md", "a"), ("a", "x/1.md", "bbb"), ("c", "y.md", "cc")):
        db.documents.ingest_text(text, source=source, title=title)

    def titles(**order: Any) -> str:
        return "".join(each.title for each in db.documents.browse(**order))

    assert titles() == titles(sort="newest") == "cab"
    assert titles(sort="oldest") == "bac"
    assert titles(sort="title") == titles(sort="title", limit=2) + titles(sort="title", offset=2)
    assert titles(sort="title") == titles(sort="path") == "abc" and titles(sort="size") == "acb"
    with pytest.raises(InvalidInput, match="sort must be newest, oldest, title"):
        db.documents.browse(sort="random")  # type: ignore[arg-type]


def test_the_values_of_a_field_are_counted(db: Database) -> None:
    for source, library in (("a.md", "x"), ("tea/b.md", "x"), ("tea/c.txt", "x"), ("d.md", "y")):
        db.documents.ingest_text(source, source=source, library=library)
    assert list(db.documents.values("file_type").items()) == [("md", 3), ("txt", 1)]
    assert db.documents.values("folder", library="x") == {"x/tea": 2, "x": 1}
    assert db.documents.values("library", where={"file_type": "txt"}) == {"x": 1}
    with pytest.raises(InvalidInput, match="field must be one of id, library"):
        db.documents.values("color")


def test_all_documents_are_iterated_over_in_pages(db: Database) -> None:
    sources = [f"{number}.md" for number in range(5)]
    db.documents.ingest_many(sources, sources=sources)
    db._store.tuning = Tuning(rows_per_page=2)
    assert [each.source for each in db.documents] == sources


def test_one_document_is_got_or_those_that_there_are(db: Database) -> None:
    one, other = (db.documents.ingest_text(each, source=each).document for each in "ab")
    assert db.documents.get(one.id) == one
    assert db.documents.get([other.id, "no such", one.id, other.id]) == [other, one]
    with pytest.raises(NotFound):
        db.documents.get("no such")


def test_a_passage_has_neighbours(path: Path) -> None:
    with Database(path, config=Config(chunk_size=40, chunk_overlap=0)) as db:
        text = "\n\n".join(f"Paragraph {number}: " + "word " * 30 for number in range(6))
        chunks = db.documents.chunks(db.documents.ingest_text(text, source="a.md").document.id)
        assert len(chunks) > 4
        assert db.documents.neighbours(chunks[2]) == chunks[1:4]
        assert db.documents.neighbours(chunks[0], after=2) == chunks[:3]
        assert db.documents.neighbours(chunks[-1], before=2, after=9) == chunks[-3:]


@pytest.mark.parametrize("followed", [True, False])
def test_documents_are_filtered_by_their_path_and_folder(
    followed: bool, db: Database, tmp_path: Path
) -> None:
    folder = tmp_path / "n%o'tes"
    (folder / "tea").mkdir(parents=True)
    for name in ("top.md", "tea/a.md"):
        (folder / name).write_text(f"# {name}")
    if followed:
        db.documents.add_library("notes", folder)
        db.documents.sync("notes")
    else:
        db.documents.ingest_folder(folder, library="notes")
    for each in db.documents.browse():
        assert [*db.documents.browse(where={"path": each.path})] == [each]
        folder_of = each.path.rpartition("/")[0]
        assert [*db.documents.browse(where={"folder": folder_of})] == [each]
    assert db.documents.count(where={"path": {"starts_with": "notes/"}}) == 2
    found = db.documents.search("md", where={"path": {"ends_with": "tea/a.md"}})
    assert [hit.item.document.title for hit in found] == ["tea/a.md"]


def test_files_of_which_nothing_came_are_named_with_the_reason(
    db: Database, tmp_path: Path
) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "tea.md").write_text("# Tea")
    (folder / "empty.md").write_text(" ")
    db.documents.add_library("notes", folder)
    [done] = db.documents.sync("notes")
    found = db.documents.passed_over()
    assert [Path(each.path).name for each in found] == ["empty.md"] and found[0].reason
    assert db.documents.passed_over("other") == [] == db.documents.passed_over(offset=1)
    assert {reason for _, reason in done.skipped_paths} == {found[0].reason}


@pytest.mark.parametrize(
    ("source", "syntax"),
    [("a.md", "markdown"), ("a.py", "code"), ("a.txt", "text"), ("a", "markdown")],
)
def test_the_syntax_is_that_of_the_source(source: str, syntax: str, db: Database) -> None:
    id = db.documents.ingest_text("# x = 1", source=source).document.id
    assert db.documents.syntax(id) == syntax
    assert bool(db.documents.outline(id)) == (syntax == "markdown")


def test_what_waits_of_a_document_is_counted_without_reading_all_that_waits(db: Database) -> None:
    with db._file.reading() as sql:
        plan = [
            step
            for *_, step in sql.execute(
                f"EXPLAIN QUERY PLAN SELECT {rows.PENDING} FROM published_documents d"
            )
        ]
    [waiting] = [step for step in plan if step.startswith("SEARCH p ")]
    assert "chunk=?" in waiting
