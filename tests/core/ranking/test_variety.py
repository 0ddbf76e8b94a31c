"""Which passages a better one covers, and which rows of a ranking are shown."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.ranking.variety import SHINGLE, Cover, Variety, choose, shingles

PROSE = " ".join(
    f"w{number}".translate(str.maketrans("0123456789", "abcdefghij")) for number in range(60)
)

words = st.sampled_from("tea lamp boat is not the a 80 90 keeper light".split())
passages = st.lists(words, max_size=12).map(" ".join)


def covers(better: str, passage: str) -> bool:
    cover = Cover()
    cover.add(shingles(better))
    return cover.covering(shingles(passage)) == 0


@given(passages)
def test_a_passage_covers_itself_in_any_case_spacing_and_punctuation(passage: str) -> None:
    assert covers(passage, passage)
    if passage:
        assert covers(passage, f"  {passage.upper().replace(' ', ',  ')}!\n")


@given(passages, st.integers(0, 12), st.integers(SHINGLE, 12))
def test_a_passage_covers_every_part_of_itself(passage: str, start: int, length: int) -> None:
    part = passage.split()[start : start + length]
    assert len(part) < SHINGLE or covers(passage, " ".join(part))


@given(passages, passages)
def test_what_is_covered_has_no_word_of_its_own(better: str, passage: str) -> None:
    if covers(better, passage):
        assert set(passage.split()) <= set(better.split())


@pytest.mark.parametrize(
    ("better", "passage"),
    [
        ("the lamp is lit", "the lamp is not lit"),
        ("the lamp is not lit", "the lamp is lit"),
        (f"{PROSE} Alice pays", f"{PROSE} Bob pays"),
        (f"{PROSE} it costs 12", f"{PROSE} it costs 13"),
        (f"Alice 5 Bob 7 {PROSE}", f"Alice 7 Bob 5 {PROSE}"),
        (f"lit by day not by night {PROSE}", f"not lit by day by night {PROSE}"),
        (PROSE, f"{PROSE} and more"),
        ("---", "==="),
        ("", "tea"),
        ("灯塔在黄昏点亮", "灯塔在黄昏不点亮"),
    ],
)
def test_what_says_something_else_is_not_covered(better: str, passage: str) -> None:
    assert not covers(better, passage)


@pytest.mark.parametrize(
    ("better", "passage"),
    [
        (f"{PROSE} an old lamp", f"{PROSE} a lamp an old"),
        ("# The lamp\n\nis **lit**", "The lamp is lit."),
        ("---", " --- "),
        ("灯塔在黄昏点亮。", "灯塔在黄昏点亮"),
        (f"{PROSE} the end", " ".join(PROSE.split()[5:])),
    ],
)
def test_what_says_the_same_is_covered(better: str, passage: str) -> None:
    assert covers(better, passage.replace(" a lamp", " lamp"))


def test_the_first_of_several_that_cover_it_is_named() -> None:
    cover = Cover()
    for text in ("a boat", f"{PROSE} tea", PROSE):
        cover.add(shingles(text))
    assert cover.covering(shingles(PROSE)) == 1
    assert cover.covering(shingles("no boat")) is None


def test_a_thousand_passages_that_share_their_beginning_are_told_apart() -> None:
    shuffled = random.Random(3)
    cover = Cover()
    for number in range(1_000):
        cover.add(shingles(f"the same words come first here {number} {shuffled.random()}"))
    assert cover.covering(shingles("the same words come first here 5000")) is None
    assert cover.covering(shingles("the same words come first here 999")) == 999


texts = st.lists(
    st.lists(st.sampled_from("tea lamp boat not 80".split()), min_size=1, max_size=5).map(" ".join),
    max_size=20,
)
owners = st.lists(st.integers(0, 5), min_size=20, max_size=20)
wanted = st.integers(0, 22)


@given(texts, wanted)
def test_folding_removes_only_what_a_better_row_covers(texts: list[str], wanted: int) -> None:
    found = choose(range(len(texts)), wanted, text=texts.__getitem__)
    folded = [(row, each) for row, rows in found.folded.items() for each in rows]
    assert all(row < each and covers(texts[row], texts[each]) for row, each in folded)
    assert list(found.chosen) == sorted(found.chosen) and len(found.chosen) <= wanted
    assert not {each for _, each in folded} & set(found.chosen)


@given(texts, wanted)
def test_no_distinct_row_is_lost_and_the_list_is_filled(texts: list[str], wanted: int) -> None:
    everything = choose(range(len(texts)), len(texts), text=texts.__getitem__)
    known = {*everything.chosen, *(each for rows in everything.folded.values() for each in rows)}
    assert known == set(range(len(texts)))
    some = choose(range(len(texts)), wanted, text=texts.__getitem__)
    assert list(some.chosen) == list(everything.chosen)[:wanted]


@given(owners, wanted)
def test_grouping_shows_each_document_once_before_any_twice_and_fills_the_list(
    owners: list[int], wanted: int
) -> None:
    found = choose(range(20), wanted, owner=owners.__getitem__)
    assert len(found.chosen) == min(wanted, 20) == len(set(found.chosen))
    each = list(dict.fromkeys(owners))[:wanted]
    assert [owners[row] for row in found.chosen[: len(each)]] == each


def test_other_passages_of_a_document_are_counted() -> None:
    of = {1: 7, 2: 7, 3: 7, 4: 8, 5: 9}
    assert choose(list(of), 2, owner=of.get) == Variety([1, 4], {}, {1: 2}, True)


def test_further_passages_follow_where_documents_run_out() -> None:
    of = {1: 7, 2: 7, 3: 8, 4: 7}
    found = choose(list(of), 3, owner=of.get)
    assert (found.chosen, found.more, found.complete) == ([1, 3, 2], {1: 1}, False)


def test_a_document_whose_best_passage_is_folded_is_shown_by_its_next() -> None:
    of, text = {1: 7, 2: 8, 3: 8}, {1: "tea", 2: "Tea!", 3: "boat"}
    found = choose(list(of), 2, owner=of.get, text=text.__getitem__)
    assert (found.chosen, found.folded) == ([1, 3], {1: [2]})
