from __future__ import annotations

from tests.server.web.support_web_server import Served


def test_a_deletion_is_listed_with_who_made_it_and_undone(served: Served) -> None:
    served.post("/api/ingest/text", text="Green tea.", source="tea.md", library="notes")
    [tea] = served.get("/api/documents")["documents"]
    told = served.post("/api/documents/delete", ids=[tea["id"]], dry_run=True)
    assert "undone" in told["consequences"][-1]
    served.post("/api/documents/delete", ids=[tea["id"]])
    deletion, ingest = served.get("/api/history")["changes"]
    assert deletion["actor"] == ingest["actor"] == "web page"
    assert [each["kind"] for each in deletion["items"]] == ["deleted"]
    assert served.get(f"/api/history?name={deletion['items'][0]['name']}")["changes"]
    undone = served.post("/api/undo", change=deletion["number"])
    assert len(undone["restored"]) == 1 and undone["kept"] == []
    assert [each["title"] for each in served.get("/api/documents")["documents"]] == [tea["title"]]


def test_a_change_that_is_not_there_is_not_undone(served: Served) -> None:
    assert served.ask("POST", "/api/undo", {"change": 99})[0] == 404
    assert served.ask("GET", "/api/history/99/diff")[0] == 404
