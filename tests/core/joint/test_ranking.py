from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import Chunk, Document, Hit, Memory, Scores
from mcpvectordb.joint.ranking import Found, fuse, grouped, key, merge

DOCUMENT = Document(
    id="d",
    library="default",
    source="s",
    title="t",
    hash="",
    file_type="md",
    size=1,
    modified="",
    created_at="",
    metadata={},
    chunks=1,
)


def passage(id: int, relevance: float | None) -> Found:
    chunk = Chunk(
        id=id,
        document=DOCUMENT,
        position=0,
        text="",
        start=0,
        end=0,
        first_line=1,
        last_line=1,
        page=None,
        headings=(),
    )
    return Hit(item=chunk, score=1.0, scores=Scores(), relevance=relevance)


def memory(id: int, relevance: float | None) -> Found:
    memory = Memory(
        id=id,
        thread="t",
        source="user",
        text="",
        content_type="text",
        metadata=None,
        tags=(),
        images=(),
        created_at="",
        updated_at="",
    )
    return Hit(item=memory, score=1.0, scores=Scores(), relevance=relevance)


relevances = st.lists(st.floats(0, 1), max_size=8)


@given(relevances, relevances)
def test_merging_keeps_each_order_and_loses_nothing(left: list[float], right: list[float]) -> None:
    documents = [passage(id, each) for id, each in enumerate(left, 1)]
    memories = [memory(id, each) for id, each in enumerate(right, 1)]
    merged = merge(documents, memories)
    assert [hit for hit in merged if isinstance(hit.item, Chunk)] == documents
    assert [hit for hit in merged if isinstance(hit.item, Memory)] == memories


@given(relevances, relevances)
def test_sorted_rankings_are_merged_by_relevance(left: list[float], right: list[float]) -> None:
    documents = [passage(id, each) for id, each in enumerate(sorted(left, reverse=True), 1)]
    memories = [memory(id, each) for id, each in enumerate(sorted(right, reverse=True), 1)]
    found = [hit.relevance for hit in merge(documents, memories)]
    assert found == sorted([*left, *right], reverse=True)


def test_a_better_hit_below_a_weak_one_pulls_both_up() -> None:
    merged = merge([passage(1, 0.1), passage(2, 0.9)], [memory(1, 0.5)])
    assert [key(hit) for hit in merged] == [2, 4, 3]


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
