from __future__ import annotations

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.search import highlight as highlighting
from mcpvectordb.search.highlight import highlight
from mcpvectordb.text import boolean
from mcpvectordb.text.query import Term, match_query

WORDS = [
    "run",
    "running",
    "runs",
    "café",
    "CAFE",
    "a",
    "b",
    "x-y",
    "what's",
    "naïve",
    "Ölung",
    "e\u0301tude",
    "_x_",
    "3.14",
]
texts = st.lists(st.sampled_from([*WORDS, "\n", ", ", "—"]), max_size=30).map(" ".join)
terms = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)


def marked(text: str, *asked: str | Term, stemmed: bool = True) -> str:
    return highlight(
        text,
        [Term(each) if isinstance(each, str) else each for each in asked],
        stemmed=stemmed,
        before="[",
        after="]",
    )


@given(
    text=texts,
    asked=st.lists(terms, min_size=1, max_size=3),
    stemmed=st.booleans(),
    prefix=st.booleans(),
)
def test_marks_are_where_fts5_finds_the_terms(
    text: str, asked: list[str], stemmed: bool, prefix: bool
) -> None:
    connection = apsw.Connection(":memory:")
    tokenizer = "porter " * stemmed + highlighting.TOKENIZER
    connection.execute(f"CREATE VIRTUAL TABLE t USING fts5(text, tokenize='{tokenizer}')")
    connection.execute("INSERT INTO t (text) VALUES (?)", (text,))
    wanted = [Term(each, prefix=prefix) for each in asked]
    expression = " OR ".join(term.expression for term in wanted)
    rows = connection.execute(
        "SELECT highlight(t, 0, '[', ']') FROM t WHERE t MATCH ?", (expression,)
    ).fetchall()
    assert marked(text, *wanted, stemmed=stemmed) == (rows[0][0] if rows else text)


@given(
    text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="[]"), max_size=80),
    query=texts,
)
def test_removing_the_marks_restores_the_text(text: str, query: str) -> None:
    found = [
        term for reading in match_query(query + text[:10]).interpretations for term in reading.terms
    ]
    assert marked(text, *found).replace("[", "").replace("]", "") == text


def test_all_forms_of_a_word_are_marked_when_words_are_stemmed() -> None:
    assert marked("He runs; running, RUN!", "run") == "He [runs]; [running], [RUN]!"
    assert marked("He runs; running, RUN!", "run", stemmed=False) == "He runs; running, [RUN]!"


def test_a_phrase_is_one_mark_and_overlapping_ones_become_one() -> None:
    assert marked("a red apple pie, red pie", "red apple") == "a [red apple] pie, red pie"
    assert marked("a red apple pie", "red apple", "apple pie") == "a [red apple pie]"
    assert marked("a red apple pie", "red", "apple") == "a [red] [apple] pie"


def test_a_prefix_marks_the_whole_word() -> None:
    assert (
        marked("authentication by author", Term("auth", prefix=True), stemmed=False)
        == "[authentication] by [author]"
    )


@pytest.mark.parametrize(
    ("text", "asked", "expected"),
    [
        ("数据库很快", "数据库", "[数据库]很快"),
        ("数据库很快", "库很", "数据[库很]快"),
        ("那只黑猫", "猫", "那只黑[猫]"),
        ("use 数据库 now", "now", "use 数据库 [now]"),
        ("カメラ・レンズ", "レンズ", "カメラ・[レンズ]"),
        ("猫猫猫", "猫", "[猫猫猫]"),
    ],
)
def test_cjk_is_marked_where_it_was_found(text: str, asked: str, expected: str) -> None:
    assert marked(text, asked) == expected


def test_parts_of_identifiers_are_marked_inside_them() -> None:
    assert marked("call parseHTMLDocument(x)", "html") == "call parse[HTML]Document(x)"
    assert marked("call parseHTMLDocument(x)", "parse html") == "call [parseHTML]Document(x)"
    assert marked("call parseHTMLDocument(x)", "parseHTMLDocument") == "call [parseHTMLDocument](x)"


def test_a_phrase_is_found_across_the_windows_of_a_long_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "one two three four five " * 3
    whole = marked(text, "two three four", "five one")
    monkeypatch.setattr(highlighting, "WINDOW", 1)
    assert (
        marked(text, "two three four", "five one")
        == whole
        == ("one [two three four] [five one] [two three four] [five one] [two three four] five ")
    )


def test_negated_terms_of_a_boolean_query_are_not_marked() -> None:
    (reading,) = boolean.boolean_query("apple NOT pie").interpretations
    assert highlight("apple pie", reading.terms, stemmed=True) == "<mark>apple</mark> pie"
