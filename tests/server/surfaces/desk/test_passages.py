from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import InvalidInput
from mcpvectordb_server.surfaces.desk import (
    CUT,
    LEAD,
    REMARKS,
    CitedPassage,
    excerpt,
    fitted,
    room_of,
)

prose = st.lists(st.text("abc", min_size=1, max_size=9), min_size=1, max_size=60).map(
    lambda words: ". ".join(words) + "."
)


@given(st.text(max_size=300), st.integers(10, 300))
def test_an_excerpt_is_a_beginning_that_fits(text: str, most: int) -> None:
    part = excerpt(text, most)
    assert len(part) <= max(most, len(CUT) + 1)
    if part != text.strip():
        assert part.endswith(CUT) and text.strip().startswith(part.removesuffix(CUT).rstrip())


@given(prose, st.integers(60, 200))
def test_an_excerpt_of_sentences_ends_with_one(text: str, most: int) -> None:
    part = excerpt(text, most)
    assert part == text or part.removesuffix(CUT).endswith(".")


def test_a_long_sentence_is_cut_between_words() -> None:
    assert excerpt("one two three four five", 18) == f"one two three{CUT}"
    assert excerpt("x" * 50, 20) == "x" * 16 + CUT


@given(prose, st.integers(60, 200), st.integers(0, 600))
def test_an_excerpt_has_its_focus(text: str, most: int, focus: int) -> None:
    part = excerpt(text, most, focus)
    assert len(part) <= most
    shown = part.removeprefix(LEAD).removesuffix(CUT)
    assert shown in text
    if focus < len(text) and part.startswith(LEAD):
        begin = text.rindex(shown) if text.count(shown) == 1 else text.index(shown)
        assert text.count(shown) > 1 or begin <= focus


def test_an_excerpt_begins_with_the_sentence_that_matters() -> None:
    text = "First things first. " * 20 + "The answer is 42. And so on. " + "Last. " * 20
    assert excerpt(text, 60, text.index("answer")) == (
        f"{LEAD}The answer is 42. And so on. Last. Last. Last. Last.{CUT}"
    )


def passages(*texts: str) -> list[CitedPassage]:
    return [CitedPassage(f"[{number}] place", text) for number, text in enumerate(texts, 1)]


@given(st.lists(prose, max_size=12), st.integers(400, 4000))
def test_what_is_kept_fits(texts: list[str], room: int) -> None:
    fit = fitted(passages(*texts), room)
    assert len(fit.text) + REMARKS <= room
    assert fit.kept >= min(1, len(texts))
    if fit.needed <= room:
        assert (fit.kept, fit.shortened) == (len(texts), 0)


def test_passages_are_cut_alike_before_any_is_dropped() -> None:
    long = "A sentence of some length. " * 60
    fit = fitted(passages(long, long, long), 3000)
    assert (fit.kept, fit.shortened) == (3, 3)
    fit = fitted(passages(*[long] * 20), 3000)
    assert 3 < fit.kept < 20


def test_one_passage_always_stays() -> None:
    fit = fitted(passages("A sentence of some length. " * 60), room_of(100))
    assert fit.kept == 1 and fit.text.endswith(CUT)


@pytest.mark.parametrize("budget", [0, 99, 40_001, -5])
def test_a_budget_has_bounds(budget: int) -> None:
    with pytest.raises(InvalidInput, match="budget"):
        room_of(budget)
