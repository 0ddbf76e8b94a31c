from __future__ import annotations

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import words

queries = st.text(st.characters(exclude_categories=["Cs"]), max_size=60) | st.lists(
    st.sampled_from(['"', "-", "AND", "OR", "NOT", "NEAR", "(", ")", "*", "^", ":", "title:", "数据库", "it's", "E-4021",
                     "parseHTML", " ", "\x00", "{", "}", "+", "\u0301", "word"]), max_size=12).map(" ".join)


def index(*texts: str) -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE VIRTUAL TABLE t USING fts5(text, tokenize='porter unicode61 remove_diacritics 2')")
    connection.executemany("INSERT INTO t (text) VALUES (?)", [(words.indexed(text),) for text in texts])
    return connection


def found(query: str, *texts: str) -> list[int]:
    parsed = words.parse(query)
    if not parsed.match:
        return []
    expression = f"({parsed.match}) NOT ({parsed.excluded})" if parsed.excluded else parsed.match
    rows = index(*texts).execute("SELECT rowid FROM t WHERE t MATCH ? ORDER BY bm25(t), rowid", (expression,))
    return [row - 1 for (row,) in rows]


@given(query=queries)
def test_any_string_is_a_valid_query(query: str) -> None:
    found(query, "some words to look at", "数据库")
    parsed = words.parse(query)
    for expression in (parsed.required, parsed.excluded):
        if expression:
            index("x").execute("SELECT rowid FROM t WHERE t MATCH ?", (expression,)).fetchall()


@given(text=st.text(st.characters(categories=["Ll", "Lu", "Lo", "Nd", "Zs"]), min_size=1, max_size=40))
def test_a_text_of_letters_finds_itself(text: str) -> None:
    assert found(text, text) == ([0] if words.parse(text).match else [])


def test_words_after_a_minus_exclude() -> None:
    assert found("apple -pie", "apple pie", "apple tree") == [1]
    assert found('apple -"green pie"', "apple green pie", "apple pie green") == [1]


def test_exclusions_alone_find_nothing() -> None:
    assert found("-pie", "apple pie", "apple tree") == []


def test_a_dash_inside_or_alone_or_doubled_is_no_exclusion() -> None:
    assert found("well-known", "well known") == [0]
    assert found("- apple", "apple") == [0]
    assert found("--verbose", "the flag --verbose") == [0]


def test_a_quoted_phrase_must_occur_and_other_words_only_help() -> None:
    texts = ("red apple here", "apple red", "red apple with worms")
    assert found('"red apple" worms', *texts) == [2, 0]


def test_an_unclosed_quote_is_read_as_words() -> None:
    assert found('5" apple', "apple") == [0]


def test_stop_words_count_only_when_there_is_nothing_else() -> None:
    assert found("what is the answer", "the what is", "answer") == [1]
    assert found("to be or not to be", "to be", "apple") == [0]


def test_repeated_words_weigh_more() -> None:
    texts = ("apple", "pear")
    assert found("apple pear pear", *texts)[0] == 1
    assert found("apple apple pear", *texts)[0] == 0


def test_codes_are_phrases_and_known_as_exact() -> None:
    texts = ("error E 4022 and 4021 E", "error E-4021", "version 1.0.21", "version 21.1.0")
    assert found("E-4021", *texts) == [1]
    assert found("1.0.21", *texts) == [2]
    assert words.parse("E-4021").exact and words.parse("1.0.21 E-4021").exact
    assert not words.parse("error E-4021").exact and not words.parse("").exact


@pytest.mark.parametrize("query", ["parse", "HTML", "document", "parseHTMLDocument", "parse_html"])
def test_identifiers_are_found_by_their_parts(query: str) -> None:
    assert found(query, "call parseHTMLDocument(x)", "nothing") == [0]


@pytest.mark.parametrize(("query", "expected"), [
    ("数据", [0]), ("据库", [0]), ("数据库", [0]), ("库", [0]), ("黑猫", [1]), ("猫", [1]), ("데이터", [2]), ("カメラ", [3]),
    ('"据库很"', [0]), ("SQLite数据库", [0]), ("狗", []),
])
def test_cjk_text_is_found_by_any_part_of_it(query: str, expected: list[int]) -> None:
    assert found(query, "数据库很快", "那只黑猫", "데이터베이스", "カメラの話") == expected


def test_accents_case_and_endings_do_not_matter() -> None:
    assert found("cafes", "CAFÉ") == [0]
    assert found("Smith's", "a smith") == [0]


def test_a_long_query_is_cut_to_a_bounded_expression() -> None:
    parsed = words.parse(" ".join(f"word{number} common" for number in range(5_000)))
    terms = parsed.match.split(" OR ")
    assert len(set(terms)) <= words.MAX_DISTINCT_TERMS
    assert terms.count('"common"') == words.MAX_REPEATS
