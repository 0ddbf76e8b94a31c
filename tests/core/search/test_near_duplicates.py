"""Which passages a better one covers."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.search.near_duplicates import SHINGLE, Cover, Shingles

PROSE = " ".join(
    f"w{number}".translate(str.maketrans("0123456789", "abcdefghij")) for number in range(60)
)

words = st.sampled_from("tea lamp boat is not the a 80 90 keeper light".split())
passages = st.lists(words, max_size=12).map(" ".join)


def covers(better: str, passage: str) -> bool:
    cover = Cover()
    cover.add(Shingles.of(better))
    return cover.covering(Shingles.of(passage)) == 0


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
        cover.add(Shingles.of(text))
    assert cover.covering(Shingles.of(PROSE)) == 1
    assert cover.covering(Shingles.of("no boat")) is None


def test_a_thousand_passages_that_share_their_beginning_are_told_apart() -> None:
    shuffled = random.Random(3)
    cover = Cover()
    for number in range(1_000):
        cover.add(Shingles.of(f"the same words come first here {number} {shuffled.random()}"))
    assert cover.covering(Shingles.of("the same words come first here 5000")) is None
    assert cover.covering(Shingles.of("the same words come first here 999")) == 999
