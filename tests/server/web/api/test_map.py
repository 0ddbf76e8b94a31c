from __future__ import annotations

import struct
from typing import Any

import numpy as np

from tests.server.web.support_web_server import Served


def points(raw: bytes) -> dict[str, Any]:
    """The arrays of /api/map/points, read as its description says."""
    magic, count = struct.unpack_from("<4sI", raw)
    assert magic == b"MAP2"
    at, found = 8, {}
    for name, kind in (
        ("ids", "<u4"),
        ("x", "<u2"),
        ("y", "<u2"),
        *((by, "<u1") for by in ("library", "folder", "type", "time")),
        ("cluster", "<u4"),
    ):
        found[name] = np.frombuffer(raw, kind, count, at)
        at += -(-found[name].nbytes // 4) * 4
    assert at == len(raw)
    return found


def test_the_map_has_a_point_for_every_passage(filled: Served) -> None:
    about = filled.get("/api/map")
    found = points(filled.raw("GET", "/api/map/points")[2])
    assert about["points"] == len(found["ids"]) > about["memories"] > 0
    for by, groups in about["groups"].items():
        assert [each["points"] for each in groups] == np.bincount(found[by]).tolist()
    names = {by: [each["name"] for each in groups] for by, groups in about["groups"].items()}
    assert names["library"] == ["code", "memories", "notes"]
    assert {"md", "py", "memories"} <= {*names["type"]} and "notes/tea/green" in names["folder"]
    assert max(np.ptp(found["x"]), np.ptp(found["y"])) > 65_000 and about["current"] is True
    ids = found["ids"].tolist()
    chunks, memories = ids[: -about["memories"]], ids[-about["memories"] :]
    shown = filled.post("/api/map/passages", chunks=chunks[:3], memories=memories[:1])["passages"]
    assert [each["chunk"] for each in shown[:3]] == chunks[:3] and shown[3]["id"] == memories[0]
    assert all(0 < len(each["text"]) <= 600 for each in shown)


def test_groups_of_points_are_named_by_their_words(served: Served) -> None:
    for number in range(6):
        served.db.documents.ingest_text(f"A kettle boils water {number}", source=f"k{number}.md")
        served.db.documents.ingest_text(f"A violin has strings {number}", source=f"v{number}.md")
    memory = served.db.memories.add(thread="a", source="user", text="Buy a trumpet").id
    chunks = [int(each) for each in points(served.raw("GET", "/api/map/points")[2])["ids"][:-1]]
    asked = {"chunks": [chunks[::2], chunks[1::2], []], "memories": [[], [], [memory]]}
    names = [set(each) for each in served.post("/api/map/names", **asked)["names"]]
    assert names[0] <= {"kettle", "boils", "water"} and names[1] <= {"violin", "strings"}
    assert names[0] and names[1] and "trumpet" in names[2]
    refused = served.ask("POST", "/api/map/names", {"chunks": [[1]], "memories": []})
    assert refused[0] == 400


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
