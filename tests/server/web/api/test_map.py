from __future__ import annotations

import struct
from typing import Any

import numpy as np

from tests.server.web.support_web_server import Served


def points(raw: bytes) -> dict[str, Any]:
    """The arrays of /api/map/points, read as its description says."""
    magic, count = struct.unpack_from("<4sI", raw)
    assert magic == b"MAP1"
    at, found = 8, {}
    for name, kind in (
        ("ids", "<u4"),
        ("x", "<u2"),
        ("y", "<u2"),
        ("group", "<u2"),
        ("cluster", "<u4"),
    ):
        found[name] = np.frombuffer(raw, kind, count, at)
        at += -(-found[name].nbytes // 4) * 4
    assert at == len(raw)
    return found


def test_the_map_has_a_point_for_every_passage(filled: Served) -> None:
    about = filled.get("/api/map")
    found = points(filled.raw("GET", "/api/map/points")[2])
    assert about["points"] == len(found["ids"]) == sum(each["points"] for each in about["groups"])
    assert [each["name"] for each in about["groups"]] == ["code", "notes", "memories"]
    assert max(np.ptp(found["x"]), np.ptp(found["y"])) > 65_000 and about["current"] is True
    kinds = [about["groups"][group]["kind"] for group in found["group"]]
    memories = [int(id) for id, kind in zip(found["ids"], kinds, strict=True) if kind == "memories"]
    chunks = [int(id) for id, kind in zip(found["ids"], kinds, strict=True) if kind == "documents"]
    shown = filled.post("/api/map/passages", chunks=chunks[:3], memories=memories[:1])["passages"]
    assert [each["chunk"] for each in shown[:3]] == chunks[:3] and shown[3]["id"] == memories[0]
    assert all(0 < len(each["text"]) <= 600 for each in shown)


def test_the_map_is_kept_until_the_file_changes(served: Served) -> None:
    served.db.documents.ingest_text("tea", source="a.md")
    first = served.get("/api/map")
    assert served.site.map.current() is served.site.map.current()
    served.db.documents.ingest_text("coffee", source="b.md")
    served.site.watch.revision += 1  # the watch notices it within half a second
    assert served.get("/api/map?newest=false")["points"] == first["points"] == 1
    assert served.get("/api/map?newest=false")["current"] is False
    assert served.get("/api/map")["points"] == 2


def test_near_duplicates_are_listed_and_have_the_number_of_their_points(served: Served) -> None:
    for number, text in enumerate(["green tea", "green tea", "zzzz qqqq"]):
        served.db.documents.ingest_text(text, source=f"{number}.md", title="t")
    [cluster] = served.get("/api/duplicates")["clusters"]
    assert (cluster["number"], cluster["size"]) == (1, 2)
    assert [each["source"] for each in cluster["passages"]] == ["0.md", "1.md"]
    assert points(served.raw("GET", "/api/map/points")[2])["cluster"].tolist() == [1, 1, 0]
    assert served.get("/api/duplicates?offset=1") == {"clusters": [], "total": 1}


def test_an_empty_file_has_an_empty_map(served: Served) -> None:
    assert served.get("/api/map")["points"] == 0
    assert len(points(served.raw("GET", "/api/map/points")[2])["ids"]) == 0
    assert served.get("/api/duplicates")["total"] == 0
