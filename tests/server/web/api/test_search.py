from __future__ import annotations

import pytest

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


def test_documents_and_memories_are_found_together_or_alone(filled: Served) -> None:
    def kinds(**which: object) -> set[str]:
        return {hit["kind"] for hit in filled.post("/api/search", query="tea", **which)["hits"]}

    assert kinds() == {"document", "memory"}
    assert (
        kinds(kind="documents") == kinds(library="notes") == kinds(file_type="py") == {"document"}
    )
    assert (
        kinds(kind="memories") == kinds(tags=["drinks"]) == kinds(thread="thread 0") == {"memory"}
    )


def test_filters_apply_before_the_cut(filled: Served) -> None:
    found = filled.post("/api/search", query="tea", where={"metadata.number": 7}, limit=5)
    assert [hit["title"] for hit in found["hits"]] == ["Tea 7"] * len(found["hits"])
    assert (
        filled.post("/api/search", query="tea", file_type="py")["hits"][0]["path"] == "code/tea.py"
    )
    assert filled.post("/api/search", query="tea", until="2001")["hits"] == []
    assert "notes" in filled.post("/api/search", query="tea", library="nots")["note"]


def test_pages_follow_each_other(filled: Served) -> None:
    whole = filled.post("/api/search", query="tea", limit=10)["hits"]
    pages = [filled.post("/api/search", query="tea", limit=5, offset=n)["hits"] for n in (0, 5)]
    assert [hit["place"] for page in pages for hit in page] == [hit["place"] for hit in whole]


@pytest.mark.parametrize("mode", ["text", "vector", "hybrid"])
def test_a_mode_runs_its_legs(mode: str, filled: Served) -> None:
    legs = filled.post("/api/search", query="tea", mode=mode)["legs"]
    assert set(legs) == ({"text", "vector"} if mode == "hybrid" else {mode})


def test_the_same_question_is_compared_by_words_by_meaning_and_by_both(filled: Served) -> None:
    found = filled.post("/api/compare", query="tea", limit=3, kind="documents")
    assert [set(each["legs"]) for each in found.values()] == [
        {"text"},
        {"vector"},
        {"text", "vector"},
    ]
    assert all(len(each["hits"]) == 3 for each in found.values())


def test_what_is_not_embedded_yet_is_found_by_words_and_said(served: Served) -> None:
    served.db.documents.ingest_text("green tea", source="a.md", embed=False)
    found = served.post("/api/search", query="tea")
    assert found["hits"] and found["legs"] == ["text"] and "vector" in found["reasons"]
    assert found["backlog"]["pending"] == 1 and found["backlog"]["note"]


def test_an_empty_file_and_an_empty_question_are_no_errors(served: Served) -> None:
    for query in ("", " ", "tea", '"', "-", "-tea"):
        assert served.post("/api/search", query=query)["hits"] == []
