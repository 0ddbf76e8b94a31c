from __future__ import annotations

import pytest

from mcpvectordb.records import Embedded
from tests.server.web.support_web_server import Served


def test_a_hit_says_where_it_stands_and_why_it_was_found(filled: Served) -> None:
    found = filled.post("/api/search", query="green tea japan", kind="documents", limit=3)
    hit = found["hits"][0]
    assert hit["kind"] == "document" and hit["library"] == "notes"
    assert hit["place"] == f"{hit['path']}:{hit['line']}" and hit["citation"]
    assert found["legs"] == ["text", "vector"] and found["reasons"] == {}
    assert found["uncalibrated"] and hit["relevance"] is None  # this embedder is not calibrated
    assert found["milliseconds"] > 0 and found["more"] is True


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


def test_an_empty_file_and_an_empty_question_are_no_errors(served: Served) -> None:
    for query in ("", " ", "tea", '"', "-", "-tea"):
        assert served.post("/api/search", query=query)["hits"] == []
