from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.postgres.expression import Expression, Node, Phrase, parse
from mcpvectordb.text.boolean import boolean_query
from mcpvectordb.text.query import match_query, parse_query, prefix_query


def read(text: str) -> Expression:
    return parse(text, str.split)


def shown(node: Node, phrases: tuple[Phrase, ...]) -> str:
    """An expression with all of its parentheses."""
    if node.operator == "phrase":
        found = phrases[node.number]
        return "_".join(found.terms) + "*" * found.prefix
    return "(" + f" {node.operator} ".join(shown(each, phrases) for each in node.parts) + ")"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"tea"', "tea"),
        ('"green tea"', "green_tea"),
        ('"gre" *', "gre*"),
        ('"a" OR "b" OR "c"', "(a OR b OR c)"),
        ('"a" AND "b" OR "c"', "((a AND b) OR c)"),
        ('"a" OR "b" AND "c" NOT "d"', "(a OR (b AND (c NOT d)))"),
        ('("a" OR "b") AND ("c")', "((a OR b) AND c)"),
        ('(("a") AND ("b")) NOT ("c" OR "d e" *)', "((a AND b) NOT (c OR d_e*))"),
        ('"AND" OR "(x) NOT"', "(AND OR (x)_NOT)"),
        ('"say ""hello"""', 'say_"hello"'),
        ('""', ""),
    ],
)
def test_expressions_are_read_as_fts5_reads_them(text: str, expected: str) -> None:
    assert shown(*read(text)) == expected


def test_a_repeated_phrase_is_listed_as_often() -> None:
    found = read('("a") AND ("a" OR "b")')
    assert found.phrases == (Phrase(("a",)), Phrase(("a",)), Phrase(("b",)))
    assert [number for number, _ in found.root.leaves()] == [0, 1, 2]


def test_leaves_know_what_they_are_part_of() -> None:
    leaves = dict(read('("a" AND "b") OR "c"').root.leaves())
    assert [node.operator for node in leaves[0]] == ["OR", "AND"]
    assert [node.operator for node in leaves[2]] == ["OR"]


@pytest.mark.parametrize(
    ("text", "simple"),
    [
        ('"a"', True),
        ('"a" OR "b" OR "a"', True),
        ('"a b" OR "c"', False),
        ('"a" * OR "c"', False),
        ('"a" AND "b"', False),
        ('("a") NOT ("b")', False),
    ],
)
def test_only_whole_terms_of_which_any_may_match_need_no_more_than_postings(
    text: str, simple: bool
) -> None:
    assert read(text).is_any_term is simple


@given(st.text(max_size=60))
def test_every_expression_that_queries_make_is_read_to_its_end(text: str) -> None:
    made = [
        parse_query(text).match,
        *(each.expression for each in match_query(text).interpretations),
        *(each.expression for each in prefix_query(text).interpretations),
        *(each.expression for each in boolean_query(text).interpretations),
    ]
    for expression in filter(None, made):
        found = read(expression)
        assert len(list(found.root.leaves())) == len(found.phrases) >= 1
