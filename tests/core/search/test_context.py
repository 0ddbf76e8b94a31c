from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import Database, InvalidInput
from mcpvectordb.search.context import CUT, LEAD, REMARKS, CitedPassage, excerpt, fitted

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
    fit = fitted(passages("A sentence of some length. " * 60), 400)
    assert fit.kept == 1 and fit.text.endswith(CUT)


def test_a_context_cites_what_fits_into_its_budget(db: Database) -> None:
    for number in range(5):
        text = f"# Tea {number}\n\n" + "Green tea is brewed at 80 degrees. " * 20
        db.documents.ingest_text(text, source=f"{number}.md", library="tea")
    note = db.memories.add("kitchen", "user", "Tea is in the left cupboard").memory
    whole = db.context("green tea", budget=10_000)
    assert whole.shown == len(whole.found) and not whole.shortened and whole.needed < 10_000
    places = [line.split(" · ")[0] for line in whole.text.split("\n") if line.startswith("[")]
    assert places == [f"[{n}] {hit.item.place}" for n, hit in enumerate(whole.found, 1)]
    assert f"memory:{note.id}" in whole.text
    small = db.context(whole.found, budget=200, reserved=100)
    assert 0 < small.shown < len(small.found) and len(small.text) <= 700 and small.shortened
    assert db.context("green tea", library="tea", limit=2).shown == 2
    with pytest.raises(InvalidInput, match="budget must be 100 tokens or more, not 99"):
        db.context("tea", budget=99)
