from __future__ import annotations

from pathlib import Path

from tests.server.web.support_web_server import Served


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
