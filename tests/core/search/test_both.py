from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import (
    Chunk,
    Database,
    Document,
    Hit,
    InvalidFilter,
    InvalidInput,
    Memory,
    Results,
    Scores,
)
from mcpvectordb.search.both import FIRST, Found, fuse, grouped, key, merge


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


def test_what_has_just_the_least_relevance_is_kept(filled: Database) -> None:
    query = [{"words": "P-4021"}]
    [hit] = filled.search(query, kind="documents")
    assert hit.relevance and len(filled.search(query, min_relevance=hit.relevance)) == 1
    assert not filled.search(query, min_relevance=hit.relevance + 0.001).hits


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


def test_a_document_that_has_a_date_of_its_own_is_of_that_date(db: Database, tmp_path: Any) -> None:
    note = tmp_path / "note.md"
    note.write_text("---\ndate: 2019-05-06\n---\n\n# Old tea\n")
    mail = tmp_path / "mail.eml"
    mail.write_text("Subject: Mailed tea\nDate: Tue, 07 May 2019 23:30:00 -0200\n\nGreen tea.\n")
    for each in (note, mail):
        db.documents.ingest(each)
    db.documents.ingest_text("No date of tea", source="x", metadata={"date": "last summer"})
    titles = [hit.item.document.title for hit in db.search("tea", since="2019", until="2019")]
    assert sorted(titles) == ["Mailed tea", "Old tea"]
    assert [each.title for each in db.documents.browse(where={"date": "2019-05-08"})] == [
        "Mailed tea"
    ]
    newest = db.documents.search("tea", newer="30d")[0]
    assert newest.item.document.source == "x" and newest.scores.recency == pytest.approx(1)
    assert {each.date[:10] for each in db.documents} > {"2019-05-06", "2019-05-08"}


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


# One ranking of several.


def passage(id: int, relevance: float | None) -> Found:
    empty = dict.fromkeys(("library", "source", "title", "hash", "modified", "created_at"), "")
    document = Document(id="d", file_type="md", size=1, metadata={}, chunks=1, **empty)
    places = dict.fromkeys(("position", "start", "end", "first_line", "last_line"), 0)
    chunk = Chunk(id=id, document=document, text="", page=None, headings=(), **places)
    return Hit(item=chunk, score=1.0, scores=Scores(), relevance=relevance)


def memory(id: int, relevance: float | None) -> Found:
    empty = dict.fromkeys(("thread", "text", "created_at", "updated_at"), "")
    memory = Memory(
        id=id,
        source="user",
        content_type="text",
        metadata=None,
        tags=(),
        images=(),
        provenance="person",
        **empty,
    )
    return Hit(item=memory, score=1.0, scores=Scores(), relevance=relevance)


relevances = st.lists(st.floats(0, 1), max_size=8).map(lambda each: sorted(each, reverse=True))


@given(relevances, relevances)
def test_merging_keeps_each_order_and_loses_nothing(left: list[float], right: list[float]) -> None:
    documents = [passage(id, each) for id, each in enumerate(left, 1)]
    memories = [memory(id, each) for id, each in enumerate(right, 1)]
    merged = [key(hit) for hit in merge(documents, memories)]
    for ranking in (documents, memories):
        keys = [key(hit) for hit in ranking]
        assert [each for each in merged if each in keys] == keys
    assert len(merged) == len(left) + len(right)


@given(relevances, relevances)
def test_rankings_are_merged_by_relevance_and_the_strong_first_of_each_is_near_the_top(
    left: list[float], right: list[float]
) -> None:
    documents = [passage(id, each) for id, each in enumerate(left, 1)]
    memories = [memory(id, each) for id, each in enumerate(right, 1)]
    merged = merge(documents, memories)
    found = [hit.relevance for hit in merged]
    assert found == sorted(found, reverse=True)
    first = [ranking[0] for ranking in (documents, memories) if ranking]
    strong = {key(hit) for hit in first if hit.confidence == "strong"}
    assert strong <= {key(hit) for hit in merged[:FIRST]}
    if strong == {key(hit) for hit in first}:
        return
    assert found == sorted([*left, *right], reverse=True)


def test_rankings_alternate_where_a_relevance_is_unknown() -> None:
    merged = merge([passage(1, 0.1), passage(2, 0.1)], [memory(1, None), memory(2, 0.9)])
    assert [key(hit) for hit in merged] == [2, 3, 4, 5]


def test_the_first_of_several_searches_counts_double() -> None:
    first, second = passage(1, 0.3), passage(2, 0.3)
    fused = fuse([[first, second], [second], [second]])
    assert [key(hit) for hit in fused] == [4, 2]
    assert [key(hit) for hit in fuse([[first, second], [second, first]])] == [2, 4]


def test_a_fused_hit_has_its_highest_relevance_and_a_score_up_to_one() -> None:
    [hit] = fuse([[passage(1, 0.2)], [passage(1, 0.7)], [passage(1, None)]])
    assert (hit.relevance, hit.score) == (0.7, 1.0)


def test_one_search_is_left_as_it_is() -> None:
    ranking = [passage(2, 0.1), passage(1, None)]
    assert fuse([ranking]) == ranking


def test_the_best_passage_of_each_document_and_all_memories_come_first() -> None:
    hits = [passage(1, 0.9), passage(2, 0.8), memory(1, 0.7), memory(2, 0.6)]
    assert [key(hit) for hit in grouped(hits)] == [2, 3, 5, 4]


def test_age_counts_in_a_merge() -> None:
    old = replace(passage(1, 0.9), scores=Scores(recency=0.1))
    new = replace(memory(1, 0.5), scores=Scores(recency=1.0))
    assert [key(hit) for hit in merge([old], [new])] == [3, 2]


def test_a_key_that_only_one_kind_has_is_not_called_unknown(db: Database) -> None:
    db.documents.ingest_text("Green tea", source="tea.md", metadata={"owner": "Ana"})
    db.memories.add("kitchen", "user", "I like tea")
    for query in ("tea", '"no such phrase"'):
        found = db.search(query, where={"metadata.owner": "Ana"})
        assert (len(found), "owner" in found.note) == (query == "tea", False)
    assert "no metadata key 'ower'" in db.search("tea", where={"metadata.ower": "Ana"}).note


def test_of_two_kinds_the_reason_that_is_no_unknown_name_is_given(db: Database) -> None:
    db.documents.ingest_text("Green tea", source="tea.md", metadata={"owner": "Ana"})
    db.memories.add("kitchen", "user", "I like tea")
    where = {"metadata.owner": "Ben"}
    assert db.memories.why_empty(where=where) and not db.documents.why_empty(where=where)
    assert db.search("tea", where=where).note == db.documents.search("tea", where=where).note


def test_a_tag_that_only_documents_have_is_found_as_the_note_says(db: Database) -> None:
    db.documents.ingest_text("Green tea", source="tea.md", metadata={"tags": ["drink"]})
    db.memories.add("kitchen", "user", "I like tea", tags=["home"])
    note = db.search("tea", tags=["drink"]).note
    assert "1 document has it" in note
    where = json.loads(note.partition("where=")[2])
    assert shown(db.search("tea", where=where)) == ["tea.md"]
