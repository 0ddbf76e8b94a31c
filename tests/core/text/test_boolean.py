from __future__ import annotations

import functools
import itertools

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.text import boolean

LETTERS = ("aaa", "bbb", "ccc")
TEXTS = [
    " ".join(chosen) for length in range(4) for chosen in itertools.combinations(LETTERS, length)
]
Tree = str | tuple[str, ...]

PIECES = [
    '"',
    "(",
    ")",
    "AND",
    "OR",
    "NOT",
    "NEAR",
    "aaa",
    "bb*",
    "*",
    "-",
    ":",
    "数据库",
    "&&",
    "\x00",
    "^",
]
junk = st.lists(st.sampled_from(PIECES), max_size=25).map(" ".join) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=60
)


@functools.cache
def table() -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    connection.execute(
        "CREATE VIRTUAL TABLE t USING fts5(text, tokenize='porter unicode61 remove_diacritics 2')"
    )
    connection.executemany("INSERT INTO t (rowid, text) VALUES (?, ?)", enumerate(TEXTS))
    return connection


def found(query: str) -> set[str]:
    for reading in boolean.boolean_query(query).interpretations:
        rows = (
            table().execute("SELECT rowid FROM t WHERE t MATCH ?", (reading.expression,)).fetchall()
        )
        if rows:
            return {TEXTS[row] for (row,) in rows}
    return set()


def written(tree: Tree) -> str:
    match tree:
        case ("NOT", inner):
            return f"NOT {written(inner)}"
        case (operator, one, other):
            return f"({written(one)} {operator} {written(other)})"
    return str(tree)


def holds(tree: Tree, text: str) -> bool:
    match tree:
        case ("NOT", inner):
            return not holds(inner, text)
        case ("AND" | "", one, other):
            return holds(one, text) and holds(other, text)
        case ("OR", one, other):
            return holds(one, text) or holds(other, text)
    return str(tree) in text.split()


trees = st.recursive(
    st.sampled_from(LETTERS),
    lambda inner: (
        st.tuples(st.just("NOT"), inner) | st.tuples(st.sampled_from(["AND", "OR"]), inner, inner)
    ),
    max_leaves=10,
)


@given(tree=trees)
def test_a_query_matches_exactly_the_texts_that_fulfil_its_formula(tree: Tree) -> None:
    expected = {text for text in TEXTS if holds(tree, text)}
    asked = boolean.boolean_query(written(tree))
    if "" in expected:  # true for a text without words, so it only leaves things out
        assert not asked.interpretations and "leaves things out" in asked.note
    else:
        assert found(written(tree)) == expected and asked.note == ""


@given(query=junk)
def test_any_string_is_accepted_as_a_query(query: str) -> None:
    found(query)


@pytest.mark.parametrize(
    ("query", "same"),
    [
        ("aaa bbb", "aaa AND bbb"),
        ("aaa NOT bbb", "aaa AND NOT bbb"),
        ("NOT bbb AND aaa", "aaa NOT bbb"),
        ("aaa OR bbb AND ccc", "aaa OR (bbb AND ccc)"),
        ("aaa OR bbb NOT ccc", "aaa OR (bbb NOT ccc)"),
        ("aaa NOT bbb ccc", "aaa NOT (bbb AND ccc)"),
        ("NOT NOT aaa", "aaa"),
        ("aaa AND &&", "aaa"),
        ("(aaa) (bbb OR ccc)", "aaa AND (bbb OR ccc)"),
        ("aa* NOT bbb", "aaa NOT bbb"),
        ('"aaa bbb" OR "ccc"', '"aaa bbb" OR ccc'),
    ],
)
def test_groups_bind_before_not_before_and_before_or(query: str, same: str) -> None:
    assert boolean.boolean_query(query).note == ""
    assert found(query) == found(same) != set()


def test_a_phrase_matches_its_words_in_order_only() -> None:
    assert found('"aaa bbb"') == {"aaa bbb", "aaa bbb ccc"}
    assert found('"bbb aaa"') == set()


def test_operators_in_lower_case_are_words() -> None:
    assert found("aaa or bbb") == set()
    assert [
        term.text
        for reading in boolean.boolean_query("aaa or bbb").interpretations
        for term in reading.terms
    ] == ["aaa", "or", "bbb"]


@pytest.mark.parametrize(
    "query", ["AND", "NOT", "AND OR NOT", "(AND)", "( )", "", "   ", "&& || !", '"', '""']
)
def test_a_query_without_words_finds_nothing(query: str) -> None:
    assert boolean.boolean_query(query).interpretations == ()


@pytest.mark.parametrize(
    "query", ["NOT aaa", "NOT (aaa OR bbb)", "NOT aaa NOT bbb", "aaa OR NOT bbb"]
)
def test_a_query_of_exclusions_alone_finds_nothing_and_its_note_says_so(query: str) -> None:
    asked = boolean.boolean_query(query)
    assert asked.interpretations == () and "say what to look for" in asked.note


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("aaa AND", "nothing between AND and its end"),
        ("AND aaa", "nothing between its beginning and AND"),
        ("aaa OR AND bbb", "nothing between OR and AND"),
        ("(aaa bbb", "a ( is not closed"),
        ("aaa bbb)", "a ) closes nothing"),
        ('aaa "bbb', 'a " is not closed'),
        ("aaa () bbb", "nothing between ( and )"),
        ("aaa bbb NOT", "NOT and its end"),
        ("(" * 40 + "aaa bbb" + ")" * 40, "nested more than 10 deep"),
        ("aaa bbb " * 40, "more than 32 words"),
        ("aaa OR b*", "b* is the beginning of too many words"),
    ],
)
def test_a_malformed_query_is_read_as_words_and_its_note_says_why(query: str, reason: str) -> None:
    asked = boolean.boolean_query(query)
    assert reason in asked.note and asked.note.endswith("its words were looked for instead")
    assert found(query) >= {"aaa bbb"}


def test_fts5_accepts_a_query_of_the_greatest_allowed_depth() -> None:
    query = "aaa"
    for _ in range(boolean.MAX_DEPTH):
        query = f"(ccc OR bbb AND {query} AND NOT ddd)"
    assert boolean.boolean_query(query).note == ""
    assert "aaa bbb" in found(query)


def test_negated_terms_are_not_among_the_terms_to_highlight() -> None:
    (reading,) = boolean.boolean_query("aaa AND NOT (bbb NOT ccc)").interpretations
    assert [term.text for term in reading.terms] == ["aaa", "ccc"]
