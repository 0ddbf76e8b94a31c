from __future__ import annotations

from mcpvectordb import Image
from tests.server.web.support_web_server import Served


def test_memories_are_a_timeline_that_can_be_filtered(filled: Served) -> None:
    found = filled.get("/api/memories?limit=2&offset=1")
    assert [each["id"] for each in found["memories"]] == [4, 3] and found["total"] == 5
    assert filled.get("/api/memories?thread=thread%201")["total"] == 2
    assert filled.get("/api/memories?tags=n1&tags=n2")["total"] == 2
    assert filled.get("/api/memories?source=user")["total"] == 0
    assert filled.get("/api/memories?since=today")["total"] == 5
    assert filled.get("/api/memories?until=2001")["total"] == 0
    assert "drinks" in filled.get("/api/memories?tags=drink")["note"]


def test_a_memory_is_stored_changed_and_deleted(served: Served) -> None:
    made = served.post("/api/memories", thread="t", text="tea", tags=["A"], metadata={"x": 1})
    assert made["status"] == "added" and made["memory"]["source"] == "user"
    assert served.post("/api/memories", thread="t", text="tea")["status"] == "repeated"
    id = made["memory"]["id"]
    status, done = served.ask("PATCH", f"/api/memories/{id}", {"text": "coffee", "tags": ["b"]})
    assert status == 200 and {"text", "tags"} <= set(done["fields"])
    assert served.get(f"/api/memories/{id}")["text"] == "coffee"
    assert served.ask("PATCH", f"/api/memories/{id}", {})[0] == 400
    told = served.post("/api/memories/delete", ids=[id, 99], dry_run=True)
    assert told["memories"] == [{"id": id, "thread": "t", "text": "coffee"}]
    assert told["missing"] == [99] and "1 memory is removed" in told["consequences"][0]
    assert served.db.memories.count() == 1
    assert served.post("/api/memories/delete", ids=[id])["count"] == 1
    assert served.db.memories.count() == 0


def test_images_are_shown_unless_they_could_run_scripts(served: Served) -> None:
    svg = Image(data=b"<svg onload='alert(1)'/>", mime_type="image/svg+xml")
    png = Image(data=b"\x89PNG\r\n\x1a\n", mime_type="image/png")
    html = Image(data=b"<script>", mime_type="text/html")
    kept = []
    for image in (png, svg, html):
        try:
            kept.append(served.db.memories.add("t", "user", image.mime_type, images=[image]).id)
        except ValueError:
            continue  # the library refuses it already
    first = served.get(f"/api/memories/{kept[0]}")["images"][0]
    status, headers, body = served.raw("GET", first["url"])
    assert (status, headers["Content-Type"], body) == (200, "image/png", png.data)
    for id in kept[1:]:
        assert served.get(f"/api/memories/{id}")["images"][0]["url"] is None
        assert served.raw("GET", f"/api/memories/{id}/images/0")[0] == 404
    assert served.raw("GET", f"/api/memories/{kept[0]}/images/1")[0] == 404
