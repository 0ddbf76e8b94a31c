from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.memories.near import difference, nearly_same, plain, wording


@pytest.mark.parametrize(
    ("ours", "theirs", "found"),
    [
        ("The port is 5433.", "The port is 5432", ("5433", "5432")),
        ("We meet at 10:30", "We meet at 11:30", ("10:30", "11:30")),
        ("Deploys happen on Friday", "Deploys happen on Monday", ("Friday", "Monday")),
        ("Anna owns the billing", "Boris owns the billing", ("Anna", "Boris")),
        ("Anna likes tea", "Anna doesn’t like tea", ("not negated", "negated")),
        ("The build is not reproducible", "The build is reproducible", ("negated", "not negated")),
    ],
)
def test_another_number_name_or_negation_is_a_contradiction(
    ours: str, theirs: str, found: tuple[str, str]
) -> None:
    assert difference(ours, theirs) == found
    assert difference(theirs, ours) == found[::-1]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("The port is 5432 since 2024", "The port is 5432"),  # it adds one
        ("The port is 5432", "the port is: 5432!"),
        ("The port is 5432", "Our cat is 7 years old"),
        ("5432", "80"),
        ("We like tea", "They like tea"),  # stop words are no names
        ("Never", "tea"),
        ("", ""),
    ],
)
def test_what_says_something_else_or_more_is_none(ours: str, theirs: str) -> None:
    assert difference(ours, theirs) is None
    assert difference(theirs, ours) is None


@given(st.text(max_size=60), st.text(max_size=60))
def test_a_contradiction_is_seen_from_both_sides_and_never_with_itself(
    ours: str, theirs: str
) -> None:
    found = difference(ours, theirs)
    assert difference(theirs, ours) == (found and found[::-1])
    assert difference(ours, ours) is None


def test_the_words_of_a_text_are_told_apart() -> None:
    found = wording("Ann said: use v1.2 of E-4021. Not Redis, don't")
    assert found.numbers == {"v1.2": "v1.2", "e-4021": "E-4021"}
    assert found.names == {"redis": "Redis"}
    assert found.negated and found.first == "Ann"
    assert found.words == {"ann", "said", "use", "of"}


def test_most_words_in_common_are_nearly_the_same() -> None:
    assert nearly_same("Warm the cup first.", "warm the cup, first!")
    assert plain(" Warm -- the cup!") == "warm the cup"
    assert not nearly_same("Warm the cup first.", "Sails catch the wind")
    assert not nearly_same("", "")
