from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.text.query import (
    MAX_DEPTH,
    MAX_DISTINCT_TERMS,
    MAX_JOINED,
    MAX_REPEATS,
    FulltextQuery,
    boolean_query,
    idf,
    match_query,
    parse_all_terms,
    parse_query,
    phrase_query,
    prefix_query,
    saturate,
    without_operators,
    without_star,
)
from mcpvectordb.text.tokens import index_text

PIECES = """
    " - AND OR NOT NEAR ( ) * ^ : title: 数据库 it's E-4021 parseHTML { } + && bb* aaa word
""".split()
queries = st.text(st.characters(exclude_categories=["Cs"]), max_size=60) | st.lists(
    st.sampled_from([*PIECES, " ", "\x00", "\u0301"]), max_size=25
).map(" ".join)


@functools.lru_cache(maxsize=200)
def table(*texts: str, stemmed: bool = True) -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    tokenizer = "porter " * stemmed + "unicode61 remove_diacritics 2"
    connection.execute(f"CREATE VIRTUAL TABLE t USING fts5(text, tokenize='{tokenizer}')")
    connection.executemany(
        "INSERT INTO t (text) VALUES (?)", [(index_text(text),) for text in texts]
    )
    return connection


def matching(expression: str, *texts: str, stemmed: bool = True) -> list[int]:
    """The numbers of the texts that an FTS5 expression matches, best first."""
    rows = table(*texts, stemmed=stemmed).execute(
        "SELECT rowid FROM t WHERE t MATCH ? ORDER BY bm25(t), rowid", (expression,)
    )
    return [row - 1 for (row,) in rows]


def found(query: str, *texts: str) -> list[int]:
    parsed = parse_query(query)
    expression = f"({parsed.match}) NOT ({parsed.excluded})" if parsed.excluded else parsed.match
    return matching(expression, *texts) if parsed.match else []


def asked(asked: FulltextQuery, *texts: str, stemmed: bool = True) -> list[int]:
    """What the first interpretation that finds anything finds."""
    readings = (
        matching(each.expression, *texts, stemmed=stemmed) for each in asked.interpretations
    )
    return sorted(next(filter(None, readings), []))


@given(query=queries)
def test_any_string_is_a_valid_query(query: str) -> None:
    texts = ("some words to look at", "数据库")
    found(query, *texts)
    parsed, all_terms = parse_query(query), parse_all_terms(query)
    terms = [term.expression for term in (*all_terms.terms, *all_terms.excluded)]
    for expression in filter(None, (parsed.required, parsed.excluded, *terms)):
        matching(expression, *texts)
    assert len(all_terms.terms) <= MAX_JOINED and len(all_terms.excluded) <= MAX_JOINED
    for read in (match_query, prefix_query, phrase_query, boolean_query):
        for stemmed in (True, False):
            asked(read(query), *texts, stemmed=stemmed)


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


def test_a_quoted_phrase_must_occur_in_a_query_of_nothing_else_and_is_preferred_in_others() -> None:
    texts = ("red apple here", "apple red", "red apple with worms")
    assert sorted(found('"red apple"', *texts)) == [0, 2]
    assert found('"red apple" worms', *texts) == [2, 0, 1]
    assert found('+worms +"red apple"', *texts) == [2]


def test_a_minus_excludes_beside_keywords_and_not_in_a_question() -> None:
    texts = ("an apple and the option v", "an apple")
    assert found("apple -option", *texts) == [1]
    assert found("what does the option -v do with an apple", *texts) == [0, 1]


@given(st.text(max_size=30) | st.text('a- "', max_size=12))
def test_a_plain_query_requires_and_excludes_nothing(query: str) -> None:
    read = parse_query(without_operators(query))
    assert read.excluded == "" and (not read.required or set(read.content_words) <= read.stops)


def test_an_unclosed_quote_is_read_as_words() -> None:
    assert found('5" apple', "apple") == [0]


def test_stop_words_count_only_in_a_query_of_nothing_else() -> None:
    assert found("what is the answer", "the what is", "answer") == [1]
    assert found("to be or not to be", "he said: to be or not to be", "to be", "apple") == [0]


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
    text = f"before {word} after"
    assert asked(prefix_query(word[:length]), text, stemmed=False) == [0]
    assert asked(prefix_query(f"{word}x"), text, stemmed=False) == []


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
    assert parse_query(query).content_words == expected


# Boolean queries.

LETTERS = ("aaa", "bbb", "ccc")
TEXTS = [
    " ".join(chosen) for length in range(4) for chosen in itertools.combinations(LETTERS, length)
]
Tree = str | tuple[str, ...]


def chosen(query: str) -> set[str]:
    return {TEXTS[number] for number in asked(boolean_query(query), *TEXTS)}


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
    asked = boolean_query(written(tree))
    if "" in expected:  # true for a text without words, so it only leaves things out
        assert not asked.interpretations and "leaves things out" in asked.note
    else:
        assert chosen(written(tree)) == expected and asked.note == ""


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
    assert boolean_query(query).note == ""
    assert chosen(query) == chosen(same) != set()


def test_a_phrase_matches_its_words_in_order_only() -> None:
    assert chosen('"aaa bbb"') == {"aaa bbb", "aaa bbb ccc"}
    assert chosen('"bbb aaa"') == set()


def test_operators_in_lower_case_are_words() -> None:
    assert chosen("aaa or bbb") == set()
    assert [
        term.text
        for reading in boolean_query("aaa or bbb").interpretations
        for term in reading.terms
    ] == ["aaa", "or", "bbb"]


@pytest.mark.parametrize(
    "query", ["AND", "NOT", "AND OR NOT", "(AND)", "( )", "", "   ", "&& || !", '"', '""']
)
def test_a_query_without_words_finds_nothing(query: str) -> None:
    assert boolean_query(query).interpretations == ()


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
    asked = boolean_query(query)
    assert reason in asked.note and asked.note.endswith("its words were looked for instead")
    assert chosen(query) >= {"aaa bbb"}


def test_fts5_accepts_a_query_of_the_greatest_allowed_depth() -> None:
    query = "aaa"
    for _ in range(MAX_DEPTH):
        query = f"(ccc OR bbb AND {query} AND NOT ddd)"
    assert boolean_query(query).note == ""
    assert "aaa bbb" in chosen(query)


def test_negated_terms_are_not_among_the_terms_to_highlight() -> None:
    (reading,) = boolean_query("aaa AND NOT (bbb NOT ccc)").interpretations
    assert [term.text for term in reading.terms] == ["aaa", "ccc"]


# BM25.


def test_saturated_bm25_keeps_order_and_stays_below_1() -> None:
    values = [saturate(score) for score in (0, 0.5, 1, 10, 1000)]
    assert values == sorted(values) and values[0] == 0 and values[-1] < 1


def test_a_rarer_term_has_a_higher_idf_and_no_idf_is_zero() -> None:
    worths = [idf(1_000, having) for having in (0, 1, 10, 499, 500, 1_000)]
    assert worths == sorted(worths, reverse=True) and worths[-1] == worths[-2] == 1e-6


def completed(query: str, *texts: str) -> list[int]:
    """The texts that a query finds whose last word is only begun, best first."""
    parsed = parse_query(query).completed(lambda expression: bool(matching(expression, *texts)))
    return matching(parsed.match, *texts) if parsed.match else []


@pytest.mark.parametrize("length", range(2, len("configuration")))
def test_a_word_that_is_typed_half_is_found_at_every_letter(length: int) -> None:
    texts = ("The configuration is a file.", "An environment of its own.", "Nothing of that.")
    assert completed("configuration"[:length] + "*", *texts) == [0]
    assert set(completed("file " + "environment"[: min(length, 10)] + "*", *texts)) == {0, 1}


def test_the_whole_word_comes_before_longer_ones_and_other_words_stay_as_they_are() -> None:
    texts = ("A teapot is made of clay, and so on.", "Tea is a drink, and so on and on.", "Clay.")
    assert completed("tea*", *texts) == [1, 0]
    assert completed("tea", *texts) == [1]
    for query in ("te* clay", '"tea"*', "-tea*", "clay -te*", "t*", "tea **", "the*"):
        assert not parse_query(query).begun
    assert completed("clay te *", *texts) == completed("clay te", *texts)
    assert completed("lens*", "The lens.", "The length.") == [0]
    assert completed("zzz*", *texts) == [] and completed("", *texts) == []
    assert parse_query("E-40*").begun == "E-40" and completed("E-40*", "E-4021 failed", "E-5") == [
        0
    ]


def test_the_mark_of_a_begun_word_is_taken_off_and_no_other() -> None:
    assert without_star("green te* ") == "green te" and without_star("te*") == "te"
    for query in ("a * b", "te* green", '"te"*', "**te**", "*", ""):
        assert without_star(query) == query


@given(queries)
def test_completing_a_query_never_fails_and_only_adds_to_what_is_found(query: str) -> None:
    text = "green tea and configuration of E-4021"

    def known(expression: str) -> bool:
        return bool(matching(expression, text))

    plain, more = parse_query(query), parse_query(query).completed(known)
    if plain.match and not plain.strict:
        assert set(matching(plain.match, text)) <= set(matching(more.match, text))
