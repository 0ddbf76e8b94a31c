from __future__ import annotations

from collections.abc import Callable

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.text.query import (
    MAX_DISTINCT_TERMS,
    MAX_JOINED,
    MAX_REPEATS,
    FulltextQuery,
    match_query,
    parse_all_terms,
    parse_query,
    phrase_query,
    prefix_query,
    snippet_terms,
    without_operators,
)
from mcpvectordb.text.tokens import index_text, is_non_latin

queries = st.text(st.characters(exclude_categories=["Cs"]), max_size=60) | st.lists(
    st.sampled_from(
        [
            '"',
            "-",
            "AND",
            "OR",
            "NOT",
            "NEAR",
            "(",
            ")",
            "*",
            "^",
            ":",
            "title:",
            "数据库",
            "it's",
            "E-4021",
            "parseHTML",
            " ",
            "\x00",
            "{",
            "}",
            "+",
            "\u0301",
            "word",
        ]
    ),
    max_size=12,
).map(" ".join)


def index(*texts: str) -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    connection.execute(
        "CREATE VIRTUAL TABLE t USING fts5(text, tokenize='porter unicode61 remove_diacritics 2')"
    )
    connection.executemany(
        "INSERT INTO t (text) VALUES (?)", [(index_text(text),) for text in texts]
    )
    return connection


def found(query: str, *texts: str) -> list[int]:
    parsed = parse_query(query)
    if not parsed.match:
        return []
    expression = f"({parsed.match}) NOT ({parsed.excluded})" if parsed.excluded else parsed.match
    rows = index(*texts).execute(
        "SELECT rowid FROM t WHERE t MATCH ? ORDER BY bm25(t), rowid", (expression,)
    )
    return [row - 1 for (row,) in rows]


@given(query=queries)
def test_any_string_is_a_valid_query(query: str) -> None:
    found(query, "some words to look at", "数据库")
    parsed = parse_query(query)
    for expression in (parsed.required, parsed.excluded):
        if expression:
            index("x").execute("SELECT rowid FROM t WHERE t MATCH ?", (expression,)).fetchall()


@given(
    text=st.text(st.characters(categories=["Ll", "Lu", "Lo", "Nd", "Zs"]), min_size=1, max_size=40)
)
def test_a_text_of_letters_finds_itself(text: str) -> None:
    assert found(text, text) == ([0] if parse_query(text).match else [])


def test_words_after_a_minus_exclude() -> None:
    assert found("apple -pie", "apple pie", "apple tree") == [1]
    assert found('apple -"green pie"', "apple green pie", "apple pie green") == [1]


def test_exclusions_alone_find_nothing() -> None:
    assert found("-pie", "apple pie", "apple tree") == []


def test_a_dash_that_is_inside_a_word_or_alone_or_doubled_does_not_exclude() -> None:
    assert found("well-known", "well known") == [0]
    assert found("- apple", "apple") == [0]
    assert found("--verbose", "the flag --verbose") == [0]


def test_a_quoted_phrase_must_occur_and_other_words_only_add_to_the_score() -> None:
    texts = ("red apple here", "apple red", "red apple with worms")
    assert found('"red apple" worms', *texts) == [2, 0]


@given(st.text(max_size=30) | st.text('a- "', max_size=12))
def test_a_plain_query_requires_and_excludes_nothing(query: str) -> None:
    read = parse_query(without_operators(query))
    assert (read.required, read.excluded) == ("", "")


def test_an_unclosed_quote_is_read_as_words() -> None:
    assert found('5" apple', "apple") == [0]


def test_stop_words_count_only_in_a_query_of_nothing_else() -> None:
    assert found("what is the answer", "the what is", "answer") == [1]
    assert found("to be or not to be", "to be", "apple") == [0]


def test_repeated_words_weigh_more() -> None:
    texts = ("apple", "pear")
    assert found("apple pear pear", *texts)[0] == 1
    assert found("apple apple pear", *texts)[0] == 0


def test_codes_become_phrases_and_a_query_of_codes_is_exact() -> None:
    texts = ("error E 4022 and 4021 E", "error E-4021", "version 1.0.21", "version 21.1.0")
    assert found("E-4021", *texts) == [1]
    assert found("1.0.21", *texts) == [2]
    assert parse_query("E-4021").exact and parse_query("1.0.21 E-4021").exact
    assert not parse_query("error E-4021").exact and not parse_query("").exact


def test_the_beginning_of_a_version_finds_it_with_or_without_a_v() -> None:
    texts = ("## 0.28.0", "## v0.28.1", "## 0.2.8", "## 10.28", "0.280")
    assert found("0.28", *texts) == found("v0.28", *texts) == [0, 1]
    assert found("0.2", *texts) == [2]
    assert found("v0.28.1", *texts) == [1]


def test_a_code_in_a_question_counts_as_two_words_and_a_plain_number_as_one() -> None:
    query = parse_query("what changed in version 0.28 since 2024")
    assert query.terms.count('"0.28"') == 2 * query.terms.count('"version"') == 2
    assert query.terms.count('"2024"') == 1
    assert query.codes == {'"0.28"', '"2024"'} and query.spellings == ('"v0.28"', '"v0.28"')


@pytest.mark.parametrize("query", ["parse", "HTML", "document", "parseHTMLDocument", "parse_html"])
def test_identifiers_are_found_by_their_parts(query: str) -> None:
    assert found(query, "call parseHTMLDocument(x)", "nothing") == [0]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("数据", [0]),
        ("据库", [0]),
        ("数据库", [0]),
        ("库", [0]),
        ("黑猫", [1]),
        ("猫", [1]),
        ("데이터", [2]),
        ("カメラ", [3]),
        ('"据库很"', [0]),
        ("SQLite数据库", [0]),
        ("狗", []),
    ],
)
def test_cjk_text_is_found_by_any_part_of_it(query: str, expected: list[int]) -> None:
    assert found(query, "数据库很快", "那只黑猫", "데이터베이스", "カメラの話") == expected


def test_accents_case_and_endings_are_ignored() -> None:
    assert found("cafes", "CAFÉ") == [0]
    assert found("Smith's", "a smith") == [0]


def test_a_long_query_is_cut_to_a_bounded_expression() -> None:
    parsed = parse_query(" ".join(f"word{number} common" for number in range(5_000)))
    terms = parsed.match.split(" OR ")
    assert len(set(terms)) <= MAX_DISTINCT_TERMS
    assert terms.count('"common"') == MAX_REPEATS


def spelled(*texts: str) -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    connection.execute(
        "CREATE VIRTUAL TABLE t USING fts5(text, tokenize='unicode61 remove_diacritics 2')"
    )
    connection.executemany(
        "INSERT INTO t (text) VALUES (?)", [(index_text(text),) for text in texts]
    )
    return connection


def asked(asked: FulltextQuery, *texts: str, stemmed: bool = True) -> list[int]:
    """What the first interpretation that finds anything finds."""
    connection = (index if stemmed else spelled)(*texts)
    for reading in asked.interpretations:
        rows = connection.execute(
            "SELECT rowid - 1 FROM t WHERE t MATCH ? ORDER BY rowid", (reading.expression,)
        ).fetchall()
        if rows:
            return [row for (row,) in rows]
    return []


@pytest.mark.parametrize("read", [match_query, prefix_query])
def test_words_beyond_the_bound_are_ignored_and_the_note_says_so(
    read: Callable[[str], FulltextQuery],
) -> None:
    few, many = read("tea leaf " * 100), read(" ".join(f"w{number}" for number in range(33)))
    assert [term.text for term in few.interpretations[0].terms] == [
        "tea",
        "leaf",
    ] and few.note == ""
    assert all(len(reading.terms) <= MAX_JOINED for reading in many.interpretations)
    assert many.note == "only the first 32 words of the query were looked for"


def test_a_single_letter_is_a_prefix_only_as_the_whole_query() -> None:
    assert asked(prefix_query("c"), "c", "compiler") == [0, 1]
    assert asked(prefix_query("c comp"), "a c compiler", "a cc compiler") == [0]
    assert asked(prefix_query("数 comp"), "数据 compiler") == [0]


@given(query=queries)
def test_any_string_is_valid_for_every_kind_of_full_text_query(query: str) -> None:
    for read in (match_query, prefix_query, phrase_query):
        for stemmed in (True, False):
            asked(read(query), "some words to look at", "数据库", stemmed=stemmed)


def test_match_requires_all_words_and_falls_back_to_any() -> None:
    texts = ("red apples", "red pears", "green apples in the box")
    assert asked(match_query("red apple"), *texts) == [0]
    assert asked(match_query("red apple the"), *texts) == [0, 1, 2]
    assert asked(match_query("apple box kiwi"), *texts) == [0, 2]
    assert asked(match_query("what is a kiwi"), *texts) == []


def test_match_reads_operators_and_signs_as_words() -> None:
    assert asked(match_query('"red AND apple'), "red and apple", "red apple") == [0]
    assert asked(match_query("what's up?"), "what's up doc") == [0]
    assert asked(match_query("c++"), "c is fun") == [0]
    assert asked(match_query("well-known"), "well known", "known well") == [0]
    assert asked(match_query("1.0.21"), "version 1.0.21", "21.0.1") == [0]


@given(
    word=st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=12), length=st.integers(1, 12)
)
def test_prefix_finds_a_word_by_any_of_its_beginnings(word: str, length: int) -> None:
    assert asked(prefix_query(word[:length]), f"before {word} after", stemmed=False) == [0]


@pytest.mark.parametrize(
    "word", "authentication hoping sensibility happiness relational abilities flies agreed".split()
)
def test_prefix_finds_words_that_a_stemmer_changes(word: str) -> None:
    for length in range(1, len(word) + 1):
        assert asked(prefix_query(word[:length]), word, stemmed=False) == [0]
    assert asked(prefix_query(word + "x"), word, stemmed=False) == []


def test_prefix_requires_all_words_and_ignores_a_star() -> None:
    texts = ("authentication tokens", "authors", "tokens")
    assert asked(prefix_query("auth* tok*"), *texts, stemmed=False) == [0]
    assert asked(prefix_query("auth"), *texts, stemmed=False) == [0, 1]
    assert asked(prefix_query("数"), "数据库", stemmed=False) == [0]


def test_phrase_requires_the_words_in_their_order() -> None:
    texts = ("the red apple", "apple red", "red and apple", "Red Apples!")
    assert asked(phrase_query("red apple"), *texts) == [0, 3]
    assert asked(phrase_query('"red" (apple)'), *texts) == [0, 3]
    assert asked(phrase_query("AND"), *texts) == [2]


@pytest.mark.parametrize("read", [match_query, prefix_query, phrase_query])
@pytest.mark.parametrize("query", ["", "  ", "?!", '"', "*", "\x00"])
def test_a_query_without_words_has_no_interpretation(
    read: Callable[[str], FulltextQuery], query: str
) -> None:
    assert read(query).interpretations == ()


def test_a_long_query_is_cut_at_a_word_and_the_note_says_so() -> None:
    query = "apple " * 400
    for read in (match_query, prefix_query, phrase_query):
        assert "2,000 characters" in read(query).note
    assert phrase_query(query).interpretations[0].terms[0].text == " ".join(["apple"] * 333)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("数据库索引 in", True),
        ("что такое индекс", True),
        ("naïve café œuvre", False),
        ("Ærøskøbing ệ", False),
        ("123 ???", False),
        ("", False),
        ("SQLite 数", False),
    ],
)
def test_a_text_is_non_latin_when_most_of_its_letters_are(text: str, expected: bool) -> None:
    assert is_non_latin(text) is expected


def test_identifiers_with_digits_are_found_whole_and_by_their_parts() -> None:
    assert found("withPBKDF2", "uses withPBKDF2 here") == [0]
    assert found("withPBKDF2", "a text about pbkdf") == [0]
    assert parse_query("E-4021").match == '"E-4021"'


def wanted(query: str) -> tuple[list[str], list[str]]:
    found = parse_all_terms(query)
    return [term.expression for term in found.terms], [term.expression for term in found.excluded]


@pytest.mark.parametrize(
    ("query", "terms", "excluded"),
    [
        ("green tea", ['"green" *', '"tea" *'], []),
        ('"green tea" leaf', ['"green tea"', '"leaf" *'], []),
        ('tea -green -"black tea"', ['"tea" *'], ['"green"', '"black tea"']),
        ("multi-agent 1.0.21 snake_case", ['"multi-agent"', '"1.0.21"', '"snake_case" *'], []),
        ("数据库 SQLite数据库", ['"数据 据库" *', '"SQLite 数据 据库" *'], []),
        ("tea tea Tea", ['"tea" *', '"Tea" *'], []),
        ("c compiler", ['"c"', '"compiler" *'], []),
        ("c", ['"c" *'], []),
        ("a* b", ['"a*"', '"b"'], []),
        ("-green", [], []),
        ("- ?! ()", [], []),
        ("", [], []),
        ('""', [], []),
    ],
)
def test_all_words_are_required_each_as_a_prefix(
    query: str, terms: list[str], excluded: list[str]
) -> None:
    assert wanted(query) == (terms, excluded)


def test_content_terms_leave_out_stop_words() -> None:
    assert [
        term.text for term in parse_all_terms("How do I rotate the “keys”?").content_terms.terms
    ] == [
        "rotate",
        "“keys”?",
    ]


@given(query=queries)
def test_every_term_of_any_query_is_a_valid_fts5_expression(query: str) -> None:
    found = parse_all_terms(query)
    for term in (*found.terms, *found.excluded):
        index("x").execute("SELECT rowid FROM t WHERE t MATCH ?", (term.expression,)).fetchall()
    assert len(found.terms) <= MAX_JOINED and len(found.excluded) <= MAX_JOINED


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("How do I Rotate keys?", ["rotate", "keys"]),
        ('"The Keys" -lost', ["keys"]),
        ("the", ["the"]),
        ("这个数据库", ["这个", "个数", "数据", "据库"]),
        ("parseHTML", ["parsehtml", "parse", "html"]),
        ("?!", []),
        ("", []),
    ],
)
def test_snippets_look_for_content_words_and_cjk_parts(query: str, expected: list[str]) -> None:
    assert snippet_terms(query) == expected
