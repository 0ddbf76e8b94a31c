from __future__ import annotations

from pathlib import Path

import pymupdf

from tests.server.web.support_web_server import Served


def test_what_will_be_deleted_is_told_before(served: Served, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "tea.md").write_text("# Tea")
    served.db.documents.add_library("notes", tmp_path / "notes")
    served.db.documents.sync("notes")
    served.db.documents.ingest_text("other", source="b.md")
    ids = [each["id"] for each in served.get("/api/documents")["documents"]]
    told = served.post("/api/documents/delete", ids=[*ids, "gone"], dry_run=True)
    assert told["count"] == 2 and told["chunks"] == 2 and told["missing"] == ["gone"]
    assert [each["followed"] for each in told["documents"]] == [False, True]
    assert "2 documents and 2 passages" in told["consequences"][0]
    assert "1 of them is in a library that follows a folder" in told["consequences"][1]
    assert served.ask("POST", "/api/documents/delete", {"ids": ids, "dry_run": None})[0] == 400
    assert served.db.documents.count() == 2
    done = served.post("/api/documents/delete", ids=ids)
    assert done["dry_run"] is False and done["count"] == 2 and served.db.documents.count() == 0
    assert (tmp_path / "notes" / "tea.md").exists()


def test_near_duplicates_of_a_passage_are_marked(served: Served) -> None:
    for number, text in enumerate(["green tea", "green tea", "zzzz qqqq"]):
        served.db.documents.ingest_text(text, source=f"{number}.md", title="t")
    [chunk] = served.get("/api/documents?sort=path&limit=1")["documents"]
    [passage] = served.get(f"/api/documents/{chunk['id']}/chunks")["chunks"]
    found = served.get(f"/api/chunks/{passage['id']}/similar")
    assert [hit["near_duplicate"] for hit in found["hits"]] == [True, False]
    assert found["hits"][0]["cosine"] > 0.99 and found["hits"][0]["text"] == "green tea"
    assert len(served.get(f"/api/documents/{chunk['id']}/similar?limit=1")["hits"]) == 1


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


def test_a_page_is_sent_as_a_png_that_was_made_here_and_never_of_a_secret(
    served: Served, tmp_path: Path
) -> None:
    document = pymupdf.open()
    for text in ("one", "two"):
        document.new_page(width=300, height=200).insert_text((20, 40), text)
    (tmp_path / ".ssh").mkdir()
    ids = {}
    for folder in (tmp_path, tmp_path / ".ssh"):
        (folder / "a.pdf").write_bytes(document.tobytes())
        ids[folder] = served.db.documents.ingest(folder / "a.pdf").document.id
    path = f"/api/documents/{ids[tmp_path]}"
    assert served.get(path)["file_state"] == "current"
    assert served.get(f"{path}/text")["pages"] == [[1, 1], [2, 3]]
    status, headers, png = served.raw("GET", f"{path}/picture?page=2&most_pixels=400")
    assert (status, headers["Content-Type"], headers["Cache-Control"]) == (
        200,
        "image/png",
        "no-store",
    )
    assert pymupdf.Pixmap(png).width == 399
    assert served.raw("GET", f"{path}/picture", headers={"Authorization": None})[0] == 401
    for asked in ("page=0", "page=-1", "most_pixels=3001", "most_pixels=1", "page=x", "path=/etc"):
        assert served.ask("GET", f"{path}/picture?{asked}")[0] == 400
    status, answer = served.ask("GET", f"{path}/picture?page=3")
    assert status == 422 and "has no page 3" in answer["error"]["message"]
    status, answer = served.ask("GET", f"/api/documents/{ids[tmp_path / '.ssh']}/picture")
    assert status == 403 and "where secrets are kept" in answer["error"]["message"]
