from __future__ import annotations

from pathlib import Path

import pytest

from mcpvectordb import Database, DocumentHeading, NotFound
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


@pytest.mark.parametrize("source", ["code.py", "plain.txt"])
def test_code_and_plain_text_have_no_headings(db: Database, source: str) -> None:
    id = db.documents.ingest_text("# a comment\nx = 1\n", source=source).document.id
    assert db.documents.outline(id) == []


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
