from __future__ import annotations

import pytest

from mcpvectordb import Database, DocumentHeading, NotFound


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
