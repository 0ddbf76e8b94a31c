from __future__ import annotations

import re

import apsw
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcpvectordb.postgres.keyword import (
    FTS5_LONGEST,
    LONGEST_TERM,
    Expression,
    Tokenizer,
    parse,
    stored_term,
)
from mcpvectordb.storage.fts5 import STEMMING
from mcpvectordb.text.query import boolean_query, match_query, parse_query, prefix_query
from mcpvectordb.text.tokens import index_text

PIECES = st.sampled_from(
    "parseHTMLDocument foo_bar e-mail Über naïve Ångström running caresses 数据库 緑茶を 한국어 "
    "हिन्दी 0x1F 3.14 C++ ~ ﬁle İstanbul".split()
) | st.sampled_from(
    ["\0", "\ufeff", "\n", "x" * 300, "é" * 200, "字" * 150, "\U0001f600", "\ue000", "a\u0301"]
)
TEXTS = st.lists(PIECES | st.text(max_size=8), max_size=12).map(" ".join) | st.text(max_size=40)


def indexed_by_fts5(columns: tuple[str, str, str], stemmed: bool) -> list[tuple[str, int, str]]:
    """(column, place, token) of a row of an FTS5 table like ours."""
    sql = apsw.Connection(":memory:")
    name, arguments = STEMMING if stemmed else (STEMMING[1][0], STEMMING[1][1:])
    sql.execute(
        "CREATE VIRTUAL TABLE words USING fts5 (title, headings, text, content='', "
        f"contentless_delete=1, tokenize='{' '.join([name, *arguments])}')"
    )
    sql.execute("INSERT INTO words (rowid, title, headings, text) VALUES (1, ?, ?, ?)", columns)
    sql.execute("CREATE VIRTUAL TABLE instances USING fts5vocab('words', 'instance')")
    return sorted(
        (column, place, token)
        for token, _, column, place in sql.execute("SELECT term, doc, col, offset FROM instances")
    )


@pytest.mark.parametrize("stemmed", [True, False])
@given(TEXTS, TEXTS, TEXTS)
@example("Tea time", "", "a" * (FTS5_LONGEST + 10))
@example("", "", "")
def test_words_are_those_that_fts5_indexes(
    stemmed: bool, title: str, headings: str, text: str
) -> None:
    words, count = Tokenizer(stemmed=stemmed).words((title, headings, text))
    parts = words.split("\n")
    assert len(parts) == 3 and all(part[0] == part[-1] == " " for part in parts)
    found = sorted(
        (column, place, token)
        for column, part in zip(("title", "headings", "text"), parts, strict=True)
        for place, token in enumerate(part.split())
    )
    expected = indexed_by_fts5((index_text(title), index_text(headings), index_text(text)), stemmed)
    assert found == [(column, place, stored_term(token)) for column, place, token in expected]
    assert count == len(expected)


@given(st.text("aé字", min_size=1, max_size=600), st.text("aé字", min_size=1, max_size=600))
def test_stored_terms_fit_an_index_and_differ_where_tokens_do(one: str, other: str) -> None:
    assert len(stored_term(one).encode()) <= LONGEST_TERM
    assert (stored_term(one) == stored_term(other)) == (one == other)
    assert one.startswith(stored_term(one).partition("~")[0])


def read(text: str) -> Expression:
    return parse(text, str.split)


def shown(found: Expression) -> str:
    """An expression with all of its parentheses."""
    if found.operator == "phrase":
        return "_".join(found.phrase.terms) + "*" * found.phrase.prefix
    return "(" + f" {found.operator} ".join(map(shown, found.parts)) + ")"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"a" OR "b" OR "c"', "(a OR b OR c)"),
        ('"a" OR "b" AND "c" NOT "d"', "(a OR (b AND (c NOT d)))"),
        ('(("a") AND ("b")) NOT ("c" OR "d e" *)', "((a AND b) NOT (c OR d_e*))"),
        ('"say ""hello"""', 'say_"hello"'),
        ('""', ""),
    ],
)
def test_expressions_are_read_as_fts5_reads_them(text: str, expected: str) -> None:
    assert shown(read(text)) == expected


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
        quoted = re.findall(r'"(?:[^"]|"")*"', expression)
        assert len(read(expression).phrases) == len(quoted) >= 1
