from __future__ import annotations

from pathlib import Path

import pytest

from mcpvectordb.records import Embedded
from tests.server.web.support_web_server import Served


def test_highlights_are_offsets_in_code_points_and_never_markup(filled: Served) -> None:
    found = filled.post("/api/search", query="japan -nothing", kind="documents", text=True)
    hit = found["hits"][0]
    assert [hit["text"][start:end] for start, end in hit["highlights"]] == ["Japan"]
    assert "<mark>" not in str(found) and "😀" in hit["text"]
    [line] = [each for each in hit["snippet"] if each["highlights"]]
    assert line["line"] == hit["line"] == 3
    assert [line["text"][start:end] for start, end in line["highlights"]] == ["Japan"]


def test_what_is_not_embedded_yet_is_found_by_words_and_said(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The server embeds in a thread, which may come to it before the search does.
    monkeypatch.setattr(served.db._encoder, "_embed_batch", lambda *_: (Embedded(), False))
    served.db.documents.ingest_text("green tea", source="a.md", embed=False)
    found = served.post("/api/search", query="tea")
    assert found["hits"] and found["legs"] == ["text"] and "vector" in found["reasons"]
    assert found["backlog"]["pending"] == 1 and found["backlog"]["note"]


def test_a_hit_says_that_its_file_changed_or_is_gone(served: Served, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.md").write_text(f"# {name}\n\nThe hose of {name} is long.\n")
        served.db.documents.ingest(tmp_path / f"{name}.md")
    (tmp_path / "a.md").write_text("# a\n\nIt is short now.\n")
    (tmp_path / "b.md").unlink()
    found = served.post("/api/search", query="hose", mode="text")["hits"]
    assert {each["title"]: each.get("file_state") for each in found} == {
        "a": "changed",
        "b": "gone",
        "c": None,
    }
