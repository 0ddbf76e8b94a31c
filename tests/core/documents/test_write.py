from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from mcpvectordb import Config, Database, NotFound, Source, TooLarge
from mcpvectordb.documents import rows
from mcpvectordb.documents.write import DocumentWriter, PreparedDocument
from mcpvectordb.records import Parsed
from tests.support import Letters


@pytest.fixture
def writer(db: Database) -> DocumentWriter:
    return db.documents.writer


def prepared(writer: DocumentWriter, text: str) -> PreparedDocument:
    read = Source(source="a.txt", name="a.txt", raw=text.encode(), file_type="txt")
    return writer.prepare(read, Parsed(text=text, title="a.txt"), hash=text, library="notes")


def test_a_document_that_was_deleted_meanwhile_is_not_found(
    db: Database, writer: DocumentWriter
) -> None:
    _, key = writer.write(prepared(writer, "apple"))
    with db._file.writing() as sql:
        assert db.documents.unpublished.withdraw(sql, [key]) == 1
        with pytest.raises(NotFound, match="deleted meanwhile"):
            rows.by_key(sql, key)


@pytest.mark.parametrize("text", [("word " * 9 + "\n\n") * 4, "word " * 16 * 4])
def test_a_text_of_more_chunks_than_the_limit_is_refused_and_nothing_is_stored(
    path: Path, text: str
) -> None:
    config = Config(max_chunks=3, chunk_size=16)
    with Database(path, embedder=Letters(), config=config) as db:
        with pytest.raises(TooLarge, match=r"'a' makes more than 3 chunks.*MCPVECTORDB_MAX_CHUNKS"):
            db.documents.ingest_text(text, source="a")
        assert db.documents.count() == 0
    with Database(path, embedder=Letters(), config=Config(max_chunks=4, chunk_size=16)) as db:
        assert db.documents.ingest_text(text, source="a").document.chunks == 4


@pytest.mark.long
def test_a_long_text_is_written_in_memory_of_few_times_its_size(writer: DocumentWriter) -> None:
    """Allocations are counted, so this does not depend on the machine."""
    text = "\n\n".join(
        " ".join(f"{number * 7919 % 999_983}" for _ in range(60)) for number in range(1000)
    )
    writer.write(prepared(writer, "loads the tokenizer"))
    tracemalloc.start()
    try:
        writer.write(prepared(writer, text))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 24 * len(text)


def test_a_document_is_written_again_under_another_title_only_while_it_is_there(
    db: Database, writer: DocumentWriter
) -> None:
    _, old = writer.write(prepared(writer, "apple"))
    [before] = db.documents.browse()
    new = writer.retitle(old, "Zebra")
    [after] = db.documents.browse()
    assert (after.id, after.created_at, after.title) == (before.id, before.created_at, "Zebra")
    assert db.documents.text(after.id) == "apple" and db.check() == []
    for gone in (old, 99):
        with pytest.raises(NotFound, match="changed or deleted meanwhile"):
            writer.retitle(gone, "Quagga")
    assert [each.title for each in db.documents.browse()] == ["Zebra"] and new != old
