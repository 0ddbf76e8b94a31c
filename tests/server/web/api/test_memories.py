from __future__ import annotations

from mcpvectordb import Image
from tests.server.web.support_web_server import Served


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


def test_memories_and_threads_are_those_of_a_project(served: Served) -> None:
    for thread in ("plant", "plant/claude-code 1", "plants", "works"):
        served.db.memories.add(thread, "user", f"Said in {thread}.")
    served.db.projects.chosen("plant", new=True)
    found = served.get("/api/memories?project=plant")
    assert {each["thread"] for each in found["memories"]} == {"plant", "plant/claude-code 1"}
    threads = served.get("/api/threads?project=plant")["threads"]
    assert {each["name"] for each in threads} == {"plant", "plant/claude-code 1"}
    [listed] = served.get("/api/projects")["projects"]
    assert (listed["name"], listed["memories"], listed["threads"]) == ("plant", 2, 2)
    hits = served.post("/api/search", query="said", project="plant")["hits"]
    assert {each["thread"] for each in hits} == {"plant", "plant/claude-code 1"}
