from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from tests.server.web.support_web_server import Served


def first(served: Served, **which: str) -> dict[str, object]:
    query = "&".join(f"{name}={quote(value)}" for name, value in which.items())
    found: dict[str, object] = served.get(f"/api/documents?{query}")["documents"][0]
    return found


def test_a_list_is_filtered_sorted_and_paged(filled: Served) -> None:
    whole = filled.get("/api/documents?library=notes&sort=title&limit=500")
    assert whole["total"] == 12 == len(whole["documents"])
    titles = [each["title"] for each in whole["documents"]]
    assert titles == sorted(titles)
    page = filled.get("/api/documents?library=notes&sort=title&limit=5&offset=5")
    assert [each["title"] for each in page["documents"]] == titles[5:10] and page["total"] == 12
    assert filled.get("/api/documents?title=TEA%201")["total"] == 3  # 1, 10 and 11
    assert filled.get("/api/documents?file_type=py")["total"] == 1
    assert filled.get("/api/documents?pending=true")["total"] == 0
    assert filled.get("/api/documents?since=today")["total"] == 13
    assert filled.get("/api/documents?until=2001")["total"] == 0
    assert "notes" in filled.get("/api/documents?library=nots")["note"]


def test_folders_lead_to_their_documents(filled: Served) -> None:
    top = filled.get("/api/folders?library=notes")
    assert top["folders"] == [{"name": "tea", "path": "tea", "documents": 12}]
    tea = filled.get("/api/folders?library=notes&path=tea")
    assert [each["documents"] for each in tea["folders"]] == [6, 6] and tea["documents"] == 0
    for folder, direct, total in (
        ("tea", "false", 12),
        ("tea", "true", 0),
        ("tea/green", "true", 6),
    ):
        path = f"/api/documents?library=notes&folder={folder}&direct={direct}"
        assert filled.get(path)["total"] == total
    assert filled.ask("GET", "/api/documents?folder=tea")[0] == 400


def test_a_document_is_read_line_by_line_with_its_outline(filled: Served) -> None:
    document = first(filled, title="Tea 3")
    details = filled.get(f"/api/documents/{document['id']}")
    assert details["syntax"] == "markdown" and details["metadata"] == {"number": 3}
    assert details["pending"] == 0 and details["former"] is False
    whole = filled.get(f"/api/documents/{document['id']}/text")
    assert whole["outline"] == [
        {"line": 1, "level": 1, "title": "Tea 3"},
        {"line": 5, "level": 2, "title": "More"},
    ]
    assert whole["lines"] == 7 and whole["more"] is False
    part = filled.get(f"/api/documents/{document['id']}/text?line=3&lines=2")
    assert (part["first_line"], part["last_line"], part["more"]) == (3, 4, True)
    assert whole["text"][part["start"] :].startswith(part["text"]) and "Green tea" in part["text"]
    beyond = filled.get(f"/api/documents/{document['id']}/text?line=100")
    assert beyond["text"] == "" and beyond["last_line"] == 99


def test_title_metadata_and_library_are_changed(served: Served) -> None:
    id = served.db.documents.ingest_text(
        "tea", source="a.md", metadata={"a": 1, "b": 2}
    ).document.id
    status, done = served.ask(
        "PATCH", f"/api/documents/{id}", {"metadata_patch": {"a": None, "c": 3}}
    )
    assert status == 200 and done["document"]["metadata"] == {"b": 2, "c": 3}
    _, done = served.ask("PATCH", f"/api/documents/{id}", {"title": "New"})
    assert done["status"] == "updated" and done["document"]["title"] == "New"
    old = served.get(f"/api/documents/{id}")  # also by the id that it had before
    assert old["title"] == "New" and old["id"] == done["document"]["id"]
    _, done = served.ask("PATCH", f"/api/documents/{old['id']}", {"library": "other"})
    assert done["document"]["library"] == "other"
    assert served.ask("PATCH", f"/api/documents/{old['id']}", {"title": " "})[0] == 400
    assert served.ask("PATCH", "/api/documents/none", {"title": "x"})[0] == 404


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
