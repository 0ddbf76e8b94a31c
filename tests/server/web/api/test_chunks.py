from __future__ import annotations

from tests.server.web.support_web_server import Served


def test_passages_are_shown_as_the_index_has_them_between_their_neighbours(served: Served) -> None:
    text = "\n\n".join(f"## Part {n}\n\n" + f"word{n} " * 150 for n in range(4))
    id = served.db.documents.ingest_text(text, source="long.md").document.id
    found = served.get(f"/api/documents/{id}/chunks?limit=3&offset=1")
    assert found["total"] == served.db.documents.get(id).chunks and len(found["chunks"]) == 3
    middle = found["chunks"][1]
    assert text[middle["start"] : middle["end"]] == middle["text"] and middle["embedded"] is True
    around = served.get(f"/api/chunks/{middle['id']}")
    assert around["before"] == found["chunks"][0] and around["after"] == found["chunks"][2]
    assert served.get(f"/api/chunks/{served.db.documents.chunks(id)[0].id}")["before"] is None


def test_near_duplicates_of_a_passage_are_marked(served: Served) -> None:
    for number, text in enumerate(["green tea", "green tea", "zzzz qqqq"]):
        served.db.documents.ingest_text(text, source=f"{number}.md", title="t")
    [chunk] = served.get("/api/documents?sort=path&limit=1")["documents"]
    [passage] = served.get(f"/api/documents/{chunk['id']}/chunks")["chunks"]
    found = served.get(f"/api/chunks/{passage['id']}/similar")
    assert [hit["near_duplicate"] for hit in found["hits"]] == [True, False]
    assert found["hits"][0]["cosine"] > 0.99 and found["hits"][0]["text"] == "green tea"
    assert len(served.get(f"/api/documents/{chunk['id']}/similar?limit=1")["hits"]) == 1
