from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from mcpvectordb import Database
from mcpvectordb.recovery.repair import repair
from tests.support import Letters

LONG = "# T\n\n" + "\n\n".join(
    f"Paragraph {number} says something of its own, at some length." * 8 for number in range(12)
)


def repaired_after(path: Path, *statements: str) -> tuple[list[str], list[str]]:
    """Change a file by statements, and repair it: what was incomplete, and what was removed."""
    with Database(path, embedder=Letters()) as db:
        db.documents.ingest_text(LONG, source="long.md")
        db.documents.ingest_text("short", source="short.md", metadata={"a": 1})
        db.vectors.add("v", [1.0, 2.0])
    other = apsw.Connection(str(path))
    for statement in statements:
        other.execute(statement)
    other.close()
    with Database(path, embedder=Letters()) as db, db._file.writing() as sql:
        repaired = repair(sql, db._indexes)
    with Database(path, embedder=Letters()) as db:
        db.rebuild()
        assert db.check() == []
    return repaired


def text(path: Path, source: str) -> str:
    with Database(path, embedder=Letters()) as db:
        return db.documents.text(db.documents.browse(where={"source": source})[0].id)


def test_a_sound_file_stays_as_it_is(path: Path) -> None:
    assert repaired_after(path) == ([], [])
    assert text(path, "long.md") == LONG


@pytest.mark.parametrize("position", ["= 0", "= 1", "IN (1, 2)"])
def test_gaps_of_a_text_are_closed_and_the_text_is_reported(path: Path, position: str) -> None:
    incomplete, _ = repaired_after(
        path, f"DELETE FROM document_chunks WHERE owner = 1 AND position {position}"
    )
    assert incomplete == ["long.md"]
    assert 0 < len(text(path, "long.md")) < len(LONG)


def test_a_text_that_lost_its_end_is_reported(path: Path) -> None:
    incomplete, _ = repaired_after(
        path,
        "DELETE FROM document_chunks WHERE id = (SELECT max(id) FROM document_chunks WHERE owner = "
        "1)",
    )
    assert incomplete == ["long.md"] and LONG.startswith(text(path, "long.md"))


def test_a_text_whose_end_belongs_to_another_document_is_reported(path: Path) -> None:
    incomplete, _ = repaired_after(
        path,
        "UPDATE document_chunks SET owner = 77 WHERE id = (SELECT max(id) FROM document_chunks "
        "WHERE owner = 1)",
    )
    assert incomplete == ["long.md", "salvaged/77"] and LONG.startswith(text(path, "long.md"))


@pytest.mark.parametrize("blank", ["*", "\v", "\ufffd"])
def test_a_changed_character_between_two_chunks_is_reported(path: Path, blank: str) -> None:
    incomplete, _ = repaired_after(
        path,
        f"UPDATE document_chunks SET tile = substr(tile, 1, length(tile) - 1) || '{blank}' "
        "WHERE owner = 1 AND position = 1",
    )
    assert incomplete == ["long.md"] and blank in text(path, "long.md")


def test_impossible_offsets_are_replaced(path: Path) -> None:
    repaired_after(
        path,
        'UPDATE document_chunks SET start = 99999, "end" = 5, tile_start = 77 WHERE position = 1',
    )
    assert text(path, "long.md") == LONG


def test_a_changed_text_is_reported(path: Path) -> None:
    incomplete, _ = repaired_after(
        path, "UPDATE document_chunks SET tile = 'Short' WHERE owner = 2"
    )
    assert incomplete == ["short.md"] and text(path, "short.md") == "Short"


@pytest.mark.parametrize(
    ("statement", "lost"),
    [
        ("UPDATE documents SET metadata = '{'", "the metadata of 2 rows"),
        ("UPDATE documents SET metadata = '7'", "the metadata of 2 rows"),
        ("UPDATE document_chunks SET headings = '[7]' WHERE owner = 2", "the headings of 1 rows"),
        ("DELETE FROM document_chunks WHERE owner = 2", "the whole text of document short.md"),
        ("UPDATE vector_embeddings SET embedding = x'00'", "the vector 'v'"),
        ("UPDATE vector_embeddings SET embedding = x'0000807f0000807f'", "the vector 'v'"),
        ("DELETE FROM vector_embeddings", "the vector 'v'"),
        (
            "INSERT INTO library_notes VALUES ('none', '', 'text')",
            "1 rows of the table library_notes",
        ),
    ],
)
def test_what_is_removed_is_reported(path: Path, statement: str, lost: str) -> None:
    assert any(lost in each for each in repaired_after(path, statement)[1])


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE document_embeddings SET embedding = x'00'",
        "DELETE FROM document_embeddings",
        "DELETE FROM models",
        "UPDATE models SET dimension = 0",
        "DELETE FROM settings",
        "UPDATE settings SET value = 'x' WHERE name <> 'model'",
        """INSERT INTO settings VALUES ('indexed_metadata', '["s|atus"]')""",
    ],
)
def test_chunks_without_a_sound_embedding_get_a_new_one(path: Path, statement: str) -> None:
    repaired_after(path, statement)
    with Database(path, embedder=Letters()) as db:
        db.documents.ingest_text("another", source="another")
        db.embed_pending()
        assert (
            db.stats().pending == 0
            and db.documents.search("short", mode="vector").hits
            and db.check() == []
        )


def test_texts_and_vectors_without_an_owner_get_a_new_one(path: Path) -> None:
    incomplete, _ = repaired_after(
        path, "DELETE FROM documents WHERE key = 2", "DELETE FROM stores"
    )
    assert "salvaged/2" in incomplete and text(path, "salvaged/2") == "short"
    with Database(path) as db:
        assert db.vectors.get("v", store="salvaged 1").dimension == 2
