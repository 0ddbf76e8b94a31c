from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.embedding.tokenizer import LONGEST_RUN, LONGEST_WORD, WordStarts, windows


class Halves:
    """Two tokens for every run; counts how many runs it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, run: str) -> list[int]:
        self.asked.append(run)
        return [] if run.isspace() else [0, len(run) // 2]


def test_a_word_is_encoded_once():
    halves = Halves()
    words = WordStarts(halves)
    assert words.find("salt and salt").tolist() == [0, 2, 5, 6, 9, 11]
    assert words.find("and salt").tolist() == [0, 1, 4, 6]
    assert words.find("salt  and\nsalt").tolist() == [0, 2, 6, 7, 10, 12]
    assert halves.asked == ["salt", "and", "  ", "\n"]


def test_runs_longer_than_a_word_are_not_remembered():
    halves = Halves()
    words, run = WordStarts(halves), "x" * (LONGEST_WORD + 1)
    words.find(run)
    words.find(run)
    assert halves.asked == [run, run]


def test_a_run_without_end_is_cut():
    halves = Halves()
    WordStarts(halves).find("好" * (2 * LONGEST_RUN + 1))
    assert [len(run) for run in halves.asked] == [LONGEST_RUN, LONGEST_RUN, 1]


def test_too_many_words_are_forgotten_and_found_again():
    words = WordStarts(Halves(), most=3)
    text = "one two three four five one two"
    assert words.find(text).tolist() == WordStarts(Halves()).find(text).tolist()


@given(st.text("a \n\t好", max_size=60), st.integers(1, 20))
def test_windows_join_to_the_text(text, size):
    parts = list(windows(text, size))
    assert "".join(parts) == text
    assert all(0 < len(part) <= size for part in parts)


@pytest.mark.parametrize("text", ["", " ", "\0"])
def test_a_text_without_words_has_the_tokens_of_its_encoder(text):
    assert WordStarts(lambda run: []).find(text).tolist() == []


@given(
    st.lists(
        st.sampled_from(["salt", "x" * 17, "好", ".", " ", " " * 18, "\n", "\t", "\xa0"]),
        max_size=20,
    )
)
def test_the_space_after_a_word_changes_no_start(parts):
    text, place, expected = "".join(parts), 0, []
    for run in re.findall(r"[ \t\n\r]+|[!-/:-@\[-`{-~]|[^ \t\n\r!-/:-@\[-`{-~]+", text):
        expected += [place + start for start in every_third(run)]
        place += len(run)
    assert WordStarts(every_third).find(text).tolist() == expected


def every_third(run: str) -> list[int]:
    """Also tokens in long white space, of which some count."""
    return list(range(3 if run.isspace() else 0, len(run), 3))
