from __future__ import annotations

from pathlib import Path

from tests.server.web.support_web_server import Served


def test_the_status_counts_everything(filled: Served) -> None:
    found = filled.get("/api/status")
    assert (found["documents"], found["libraries"], found["memories"]) == (13, 2, 5)
    assert (found["threads"], found["tags"], found["vectors"], found["pending"]) == (2, 6, 2, 0)
    assert found["model"]["name"] == "letters" and found["model"]["state"] == "ready"
    assert found["coverage"]["embedded"] == 13 and found["file"]["bytes"] > 10_000


def test_what_takes_space_is_listed_the_largest_first(filled: Served) -> None:
    found = filled.get("/api/space")
    sizes = [each["bytes"] for each in found["parts"]]
    assert sizes == sorted(sizes, reverse=True) and sum(sizes) == found["bytes"]
    assert "texts of memories" in [each["name"] for each in found["parts"]]


def test_the_status_says_what_a_person_should_look_after(served: Served) -> None:
    assert served.get("/api/status")["notes"] == []
    aside = Path(f"{served.db.path}-wal-set-aside-1")
    aside.touch()
    assert str(aside) in served.get("/api/status")["notes"][0]


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
