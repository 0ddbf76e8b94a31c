from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mcpvectordb.text.quotation import QuotationPlace, find, fold

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200)
prose = st.lists(st.text("abcdefgäöüß", min_size=1, max_size=8), min_size=3, max_size=40).map(
    " ".join
)


@st.composite
def cut_from(draw: st.DrawFn, whole: st.SearchStrategy[str]) -> tuple[str, str]:
    """A text and a part of it that is not blank."""
    text = draw(whole)
    start = draw(st.integers(0, len(text) - 1))
    part = text[start : draw(st.integers(start + 1, len(text)))]
    assume(part.strip())
    return text, part


@given(cut_from(texts))
def test_any_part_of_a_text_is_found_exactly(given_: tuple[str, str]) -> None:
    text, part = given_
    found = find(text, part)
    assert found is not None and found.exact
    assert text[found.start : found.end] == part
    assert found.start == text.index(part)


@given(cut_from(prose), st.sampled_from(["\n", "  ", "\t", "\u00a0", " \r\n "]))
def test_a_part_with_other_white_space_is_found_as_such(
    given_: tuple[str, str], space: str
) -> None:
    text, part = given_
    assume(" " in part.strip())
    found = find(text, part.strip().replace(" ", space))
    assert found is not None and not found.exact
    assert text[found.start : found.end] == part.strip()


@given(cut_from(prose), st.integers(0, 10**6))
def test_a_part_with_another_word_is_never_found(given_: tuple[str, str], which: int) -> None:
    text, part = given_
    words = part.split()
    words[which % len(words)] = "xyz"
    assert find(text, " ".join(words)) is None


@pytest.mark.parametrize(
    ("text", "quotation"),
    [
        ("an exam-\n  ple of it", "an example of it"),
        ("an example of it", "an exam-\nple of it"),
        ("a long-term plan", "a longterm plan"),
        ("it\u00ad is soft\u00adly", "softly"),
        ("she said \u201cno\u201d", 'said "no"'),
        ("it\u2019s", "it's"),
        ("the \ufb01rst", "the first"),
        ("1990\u20131995", "1990-1995"),
        ("and so on\u2026", "so on..."),
        ("one\n\ntwo", "one two"),
    ],
)
def test_hyphens_marks_and_ligatures_may_differ(text: str, quotation: str) -> None:
    found = find(text, quotation)
    assert found is not None and not found.exact
    assert fold(text[found.start : found.end])[0].strip() == fold(quotation)[0].strip()


@pytest.mark.parametrize("quotation", ["the End", "theend", "the  ends", "no", " \n "])
def test_other_words_cases_and_blanks_are_not_found(quotation: str) -> None:
    assert find("this is the end", quotation) is None


@given(texts)
def test_every_character_of_the_folded_text_has_its_offset(text: str) -> None:
    folded, offsets = fold(text)
    assert len(folded) == len(offsets)
    assert offsets == sorted(offsets)
    assert all(0 <= each < len(text) for each in offsets)


def test_the_first_place_is_found() -> None:
    assert find("a b a b", "a b") == QuotationPlace(0, 3, True)
