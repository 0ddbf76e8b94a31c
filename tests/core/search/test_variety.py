from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.search.near_duplicates import Cover, Shingles
from mcpvectordb.search.variety import Variety, choose

texts = st.lists(
    st.lists(st.sampled_from("tea lamp boat not 80".split()), min_size=1, max_size=5).map(" ".join),
    max_size=20,
)
owners = st.lists(st.integers(0, 5), min_size=20, max_size=20)
wanted = st.integers(0, 22)


def covered(better: str, text: str) -> bool:
    cover = Cover()
    cover.add(Shingles.of(better))
    return cover.covering(Shingles.of(text)) is not None


@given(texts, wanted)
def test_folding_removes_only_what_a_better_row_covers(texts: list[str], wanted: int) -> None:
    found = choose(range(len(texts)), wanted, text=texts.__getitem__)
    folded = [(row, each) for row, rows in found.folded.items() for each in rows]
    assert all(row < each and covered(texts[row], texts[each]) for row, each in folded)
    assert list(found.chosen) == sorted(found.chosen) and len(found.chosen) <= wanted
    assert not {each for _, each in folded} & set(found.chosen)


@given(texts, wanted)
def test_no_distinct_row_is_lost_and_the_list_is_filled(texts: list[str], wanted: int) -> None:
    everything = choose(range(len(texts)), len(texts), text=texts.__getitem__)
    known = {*everything.chosen, *(each for rows in everything.folded.values() for each in rows)}
    assert known == set(range(len(texts)))
    some = choose(range(len(texts)), wanted, text=texts.__getitem__)
    assert list(some.chosen) == list(everything.chosen)[:wanted]


@given(owners, wanted, st.sets(st.integers(0, 19)))
def test_grouping_shows_each_document_once_before_any_twice_and_fills_the_list(
    owners: list[int], wanted: int, weak: set[int]
) -> None:
    found = choose(range(20), wanted, owner=owners.__getitem__, weak=weak.__contains__)
    assert len(found.chosen) == min(wanted, 20) == len(set(found.chosen))
    strong = list(dict.fromkeys(owners[row] for row in range(20) if row not in weak))[:wanted]
    first = [owners[row] for row in found.chosen[: len(strong)]]
    assert sorted(first) == sorted(strong)


def test_other_passages_of_a_document_are_counted() -> None:
    of = {1: 7, 2: 7, 3: 7, 4: 8, 5: 9}
    assert choose(list(of), 2, owner=of.get) == Variety([1, 4], {}, {1: 2}, True)


def test_further_passages_follow_where_documents_run_out() -> None:
    of = {1: 7, 2: 7, 3: 8, 4: 7}
    found = choose(list(of), 3, owner=of.get)
    assert (found.chosen, found.more, found.complete) == ([1, 3, 2], {1: 1}, False)


def test_a_weak_row_of_another_document_does_not_displace_a_further_passage() -> None:
    of = {1: 7, 2: 7, 3: 8}
    found = choose(list(of), 2, owner=of.get, weak={3}.__contains__)
    assert (found.chosen, found.complete) == ([1, 2], True)


def test_a_document_whose_best_passage_is_folded_is_shown_by_its_next() -> None:
    of, text = {1: 7, 2: 8, 3: 8}, {1: "tea", 2: "Tea!", 3: "boat"}
    found = choose(list(of), 2, owner=of.get, text=text.__getitem__)
    assert (found.chosen, found.folded) == ([1, 3], {1: [2]})
