from __future__ import annotations

import pytest

from mcpvectordb import Chunk, Database, InvalidInput, Memory, NotFound


@pytest.fixture
def filled(db: Database) -> Database:
    db.documents.ingest_text("aaa aaa aab", source="a.md", title="a")
    db.documents.ingest_text("aaa aaa abb", source="b.md", title="a")
    db.documents.ingest_text("zzz zzz zzy", source="z.md", title="z")
    db.memories.add("t", "user", "aaa aaa aab")
    return db


def test_the_nearest_come_first_and_the_text_itself_is_left_out(filled: Database) -> None:
    found = filled.similar(document="a.md", limit=10)
    assert [
        hit.item.document.source if isinstance(hit.item, Chunk) else "context" for hit in found
    ] == ["context", "b.md", "z.md"]
    assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)


def test_a_memory_has_similar_ones(filled: Database) -> None:
    found = filled.similar(memory=1, limit=1)
    assert isinstance(found[0].item, Chunk) and found[0].item.document.source == "a.md"


def test_one_kind_can_be_asked_for(filled: Database) -> None:
    assert all(isinstance(h.item, Memory) for h in filled.similar(document="a.md", kind="memories"))
    assert len(filled.similar(document="a.md", kind="documents", limit=9)) == 2


def test_without_an_embedding_there_is_a_reason(db: Database) -> None:
    db.documents.ingest_text("aaa", source="a.md", embed=False)
    found = db.similar(document="a.md")
    assert not found.hits and "vector" in found.reasons


def test_one_text_must_be_named(filled: Database) -> None:
    with pytest.raises(InvalidInput):
        filled.similar()
    with pytest.raises(InvalidInput):
        filled.similar(document="a.md", memory=1)
    with pytest.raises(NotFound):
        filled.similar(document="nowhere.md")
    with pytest.raises(NotFound):
        filled.similar(memory=7)


def test_many_passages_of_one_document_leave_room_for_others(db: Database) -> None:
    db.documents.ingest_text("start", source="start.md")
    db.documents.ingest_text("\n\n".join(f"start {n} " * 300 for n in range(40)), source="long.md")
    for number in range(5):
        db.documents.ingest_text(f"zzz {number}", source=f"{number}.md")
    assert len(db.similar(document="start.md", limit=5)) == 5


def test_a_passage_has_similar_ones_also_of_its_own_document(db: Database) -> None:
    parts = ["aaa aaa " * 60, "zzz zzz " * 60, "aaa aab " * 60]
    id = db.documents.ingest_text(
        "\n\n".join(f"# {p[0]}\n\n{p}" for p in parts), source="a.md"
    ).document.id
    db.memories.add("t", "user", "aaa aaa aab")
    chunks = db.documents.chunks(id)
    found = db.similar(chunk=chunks[0].id, limit=10)
    assert chunks[0].id not in [hit.item.id for hit in found if isinstance(hit.item, Chunk)]
    assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)
    assert {type(hit.item) for hit in found} == {Chunk, Memory} and len(found) == len(chunks)
    assert len(db.similar(chunk=chunks[0].id, kind="memories")) == 1


def test_an_unknown_passage_is_not_found_and_one_item_must_be_named(filled: Database) -> None:
    with pytest.raises(NotFound, match="no passage has the id 999"):
        filled.similar(chunk=999)
    with pytest.raises(InvalidInput, match="either a document or a context"):
        filled.similar()
