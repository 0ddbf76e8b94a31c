from __future__ import annotations

import pytest

from mcpvectordb import Database, NotFound, Source
from mcpvectordb.documents import rows
from mcpvectordb.documents.write import DocumentWriter, PreparedDocument
from mcpvectordb.records import Parsed


@pytest.fixture
def storing(db: Database) -> DocumentWriter:
    return db.documents._storing


def ready(
    storing: DocumentWriter, text: str, source: str = "a.txt", moved: int | None = None
) -> PreparedDocument:
    read = Source(source=source, name=source, raw=text.encode(), file_type="txt")
    return storing.ready(
        read,
        Parsed(text=text, title=source),
        hash=text,
        library="notes",
        given={"n": 1},
        moved=moved,
    )


def test_what_is_ready_has_let_go_of_the_raw_bytes(storing: DocumentWriter) -> None:
    made = ready(storing, "apple pie")
    assert (made.source.raw, made.size, made.text, made.metadata) == (
        b"",
        9,
        "apple pie",
        '{"n":1}',
    ) and len(made.spans) == 1


def test_what_is_there_already_is_not_written_again(db: Database, storing: DocumentWriter) -> None:
    first, second = ready(storing, "apple"), ready(storing, "apple")
    status, key = storing.write(first)
    assert (status, storing.known("a.txt", "notes", "apple")) == ("indexed", key)
    assert storing.write(second) == ("skipped", key) and db.documents.count() == 1
    assert storing.write(second, duplicate=True)[0] == "indexed" and db.documents.count() == 2


def test_another_content_takes_the_place_of_the_one_before(
    db: Database, storing: DocumentWriter
) -> None:
    storing.write(ready(storing, "apple"))
    status, key = storing.write(ready(storing, "pear"))
    assert status == "replaced" and db.documents.count() == 1 and db.check() == []
    assert (
        storing.known("a.txt", "notes", "apple") is None
        and storing.known("a.txt", "notes", "pear") == key
    )


def test_a_moved_document_takes_over_the_identity_of_the_old_one(
    db: Database, storing: DocumentWriter
) -> None:
    _, old = storing.write(ready(storing, "apple"))
    (before,) = db.documents.browse()
    storing.write(ready(storing, "apple", "b.txt", moved=old))
    (after,) = db.documents.browse()
    assert (after.id, after.created_at, after.source) == (
        before.id,
        before.created_at,
        "b.txt",
    ) and db.check() == []


def test_a_document_that_was_deleted_meanwhile_is_told(
    db: Database, storing: DocumentWriter
) -> None:
    _, key = storing.write(ready(storing, "apple"))
    with db._file.writing() as sql:
        assert storing.remove(sql, key) == 1
        with pytest.raises(NotFound, match="deleted meanwhile"):
            rows.by_key(sql, key)
