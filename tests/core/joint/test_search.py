from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from mcpvectordb import Chunk, Database, InvalidFilter, InvalidInput, Memory, Results


@pytest.fixture
def filled(db: Database) -> Database:
    db.documents.ingest_text("# Tea\n\nGreen tea at 80 degrees.", source="tea.md")
    db.documents.ingest_text(
        "# Pump\n\nThe pump P-4021 fails.",
        source="pump.md",
        library="work",
        metadata={"year": 2024},
    )
    db.memories.add("kitchen", "user", "I like green tea", tags=["drink"], metadata={"year": 2024})
    db.memories.add("garage", "agent", "The pump was repaired", metadata={"year": 2025})
    return db


def shown(found: Results[Any]) -> list[str]:
    return [
        hit.item.document.source if isinstance(hit.item, Chunk) else f"{hit.item.thread}"
        for hit in found
    ]


def test_both_kinds_are_found_in_one_ranking(filled: Database) -> None:
    assert set(shown(filled.search("green tea", limit=4))[:2]) == {"tea.md", "kitchen"}


def test_documents_keep_the_order_of_their_own_search(filled: Database) -> None:
    alone = filled.documents.search("the green pump", limit=4)
    together = filled.search("the green pump", limit=10)
    assert [hit.item for hit in together if isinstance(hit.item, Chunk)] == [
        hit.item for hit in alone
    ]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"kind": "documents"}, {"tea.md", "pump.md"}),
        ({"kind": "memories"}, {"kitchen", "garage"}),
        ({"library": "work"}, {"pump.md"}),
        ({"thread": "garage"}, {"garage"}),
        ({"tags": ["drink"]}, {"kitchen"}),
        ({"where": {"metadata.year": 2024}}, {"pump.md", "kitchen"}),
        ({"where": {"metadata.year": {"gte": 2025}}}, {"garage"}),
        ({"where": {"file_type": "md"}}, {"tea.md", "pump.md"}),
        ({"where": {"thread": "kitchen"}}, {"kitchen"}),
        ({"since": "1d"}, {"tea.md", "pump.md", "kitchen", "garage"}),
        ({"until": "2001-01-01"}, set()),
        ({"until": "1d"}, set()),
        (
            {"since": "2001-01-01", "until": "9999-01-01", "kind": "documents"},
            {"tea.md", "pump.md"},
        ),
    ],
)
def test_filters_leave_out_the_kind_that_cannot_match(
    filled: Database, filters: dict[str, Any], expected: set[str]
) -> None:
    assert set(shown(filled.search("tea or pump", limit=10, **filters))) == expected


@pytest.mark.parametrize(
    "wrong",
    [
        {"library": "work", "thread": "kitchen"},
        {"kind": "memories", "library": "work"},
        {"kind": "pictures"},
        {"since": "soon"},
        {"since": "2025-01-01", "until": "2024-01-01"},
        {"limit": -1},
        {"min_relevance": 2},
    ],
)
def test_filters_that_cannot_be_are_refused(filled: Database, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        filled.search("tea", **wrong)


def test_an_unknown_field_is_refused(filled: Database) -> None:
    with pytest.raises(InvalidFilter, match="flavour"):
        filled.search("tea", where={"flavour": "green"})


def test_typed_searches_are_fused(filled: Database) -> None:
    found = filled.search([{"words": "P-4021"}, {"words": "repaired"}], limit=2)
    assert shown(found) == ["pump.md", "garage"]
    assert found.legs == ("text",)
    assert shown(filled.search([{"meaning": "green tea"}], kind="memories", limit=1)) == ["kitchen"]


@pytest.mark.parametrize(
    "query",
    [[], [{}], [{"words": "a", "text": "b"}], [{"regex": "a"}], ["a"], [{"words": 1}], 7, [{}] * 9],
)
def test_a_query_of_another_form_is_refused(filled: Database, query: Any) -> None:
    with pytest.raises(InvalidInput):
        filled.search(query)


def test_pages_follow_each_other(filled: Database) -> None:
    whole = shown(filled.search("tea or pump", limit=4))
    parts = [shown(filled.search("tea or pump", limit=2, offset=offset)) for offset in (0, 2, 4)]
    assert [each for part in parts for each in part] == whole


def test_an_empty_file_finds_nothing_and_loads_no_memories(db: Database) -> None:
    assert len(db.search("tea")) == 0
    assert "memories" not in vars(db)


def test_the_date_of_a_document_is_that_of_its_file(db: Database, tmp_path: Any) -> None:
    import os

    old = tmp_path / "old.md"
    old.write_text("# Old tea\n")
    os.utime(old, (10**9, 10**9))
    db.documents.ingest(old)
    assert len(db.search("tea", since="2001-09-01", until="2001-09-30")) == 1
    assert len(db.search("tea", since="30d")) == 0
    assert [each.title for each in db.documents.browse(where={"date": {"lt": "2002"}})] == [
        "Old tea"
    ]


def test_a_memory_is_a_memory(filled: Database) -> None:
    found = filled.search("green tea", kind="memories", limit=1)
    assert isinstance(found[0].item, Memory)


def test_newer_memories_and_documents_come_first(db: Database) -> None:
    db.memories._clock = lambda: datetime(2001, 1, 1, tzinfo=UTC)
    db.memories.add("old", "user", "tea time")
    db.memories._clock = lambda: datetime.now(UTC)
    db.memories.add("new", "user", "tea time of another kind")
    assert shown(db.search("tea time")) == ["old", "new"]
    assert shown(db.search("tea time", newer="30d")) == ["new", "old"]


def test_one_passage_of_each_document_comes_first(db: Database) -> None:
    long = "\n\n".join(f"# Tea {number}\n\n" + "green tea " * 200 for number in range(3))
    db.documents.ingest_text(long, source="long.md")
    db.documents.ingest_text("tea and coffee", source="short.md")
    for query in ("green tea", [{"words": "green tea"}, {"words": "tea"}]):
        assert set(shown(db.search(query, group=True, limit=2))) == {"long.md", "short.md"}
