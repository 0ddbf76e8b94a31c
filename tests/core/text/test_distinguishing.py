from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import distinguishing_words
from mcpvectordb.text.tokens import ENGLISH

TEXTS = st.lists(
    st.lists(
        st.sampled_from("kettle Kettle kettles violin 茶叶 the and 42 x1 parse parser a".split()),
        max_size=8,
    ).map(" ".join),
    max_size=6,
)


@given(st.lists(TEXTS, max_size=4), TEXTS, st.integers(1, 4))
def test_names_are_words_of_the_group_without_stop_words_or_numbers(
    groups: list[list[str]], among: list[str], limit: int
) -> None:
    found = distinguishing_words(groups, among, limit=limit)
    assert len(found) == len(groups)
    for words, texts in zip(found, groups, strict=True):
        assert len(words) == len({word.casefold() for word in words}) <= limit
        for word in words:
            assert any(word in text for text in texts)
            assert word.casefold() not in ENGLISH and word.isalpha()


@given(st.lists(TEXTS, max_size=4), TEXTS, st.randoms())
def test_the_order_of_texts_does_not_matter(groups, among, random) -> None:  # type: ignore[no-untyped-def]
    mixed = [random.sample(texts, len(texts)) for texts in groups]
    again = distinguishing_words(mixed, random.sample(among, len(among)))
    assert again == distinguishing_words(groups, among)


def test_what_every_group_says_names_none_of_them() -> None:
    groups = [[f"copyright notice {word} {n}" for n in range(8)] for word in ("violin", "kettle")]
    assert [words[0] for words in distinguishing_words(groups)] == ["violin", "kettle"]


def test_a_word_common_in_the_file_gives_way_to_a_rare_one() -> None:
    [words] = distinguishing_words([["error code beacon"] * 5], ["error code"] * 50, limit=1)
    assert words == ("beacon",)


def test_addresses_and_numbers_are_no_words() -> None:
    texts = ["https://example.org/beacon 4021 lamp"] * 4
    assert distinguishing_words([texts]) == [("lamp",)]
