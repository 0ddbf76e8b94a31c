from __future__ import annotations

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.ranking import snippets
from mcpvectordb.ranking.snippets import (
    LONGEST,
    TOKENIZER,
    Snippets,
    highlight,
    snippet,
)
from mcpvectordb.text.query import Term, match_query, parse_query

TEXT = "# Tea\n\nWater at 80 degrees.\nLeaves and water: green tea.\nPour it.\nWait.\nDrink.\n"


def best_line(text: str, query: str, first_line: int = 1) -> int:
    return Snippets(parse_query(query)).of(text, first_line)[0]


def test_the_line_with_most_words_is_shown_between_its_neighbours() -> None:
    assert (
        snippet(TEXT, "green water")
        == "3: Water at 80 degrees.\n4: Leaves and water: green tea.\n5: Pour it.\n6: Wait."
    )


def test_of_several_best_lines_the_first_is_shown() -> None:
    assert snippet(TEXT, "water").startswith("2: \n3: Water")


def test_a_row_of_a_table_is_shown_before_its_header() -> None:
    table = "| name | phone |\n| --- | --- |\n| Ana | 123 |\n| Bo | 456 |"
    assert "4: | Bo | 456 |" in snippet(table, "what phone does Bo have")
    assert snippet(table, "phone").startswith("1: | name | phone |")


def test_words_match_inside_of_words_in_any_case() -> None:
    assert "3: Water" in snippet(TEXT, "WAT degree")


def test_the_first_and_the_last_line_have_one_neighbour_less() -> None:
    assert snippet(TEXT, "# tea") == "1: # Tea\n2: \n3: Water at 80 degrees."
    assert snippet(TEXT, "drink") == "6: Wait.\n7: Drink."


def test_without_a_match_the_beginning_is_shown() -> None:
    assert snippet(TEXT, "zebra") == snippet(TEXT, "") == "1: # Tea\n2: \n3: Water at 80 degrees."
    assert snippet("\n\n \nfirst words\n", "zebra") == "4: first words"


def test_a_part_of_a_text_keeps_its_line_numbers() -> None:
    part = "Leaves and water: green tea.\nPour it.\n"
    assert snippet(part, "pour", 4) == "4: Leaves and water: green tea.\n5: Pour it."
    assert snippet("\n\nwords", "zebra", 7) == "9: words"


def test_the_line_that_matches_best_is_named() -> None:
    assert best_line(TEXT, "green water") == 4
    assert best_line(TEXT, "pour", 11) == 15
    assert best_line("\n\nwords", "zebra", 7) == 9


def test_other_forms_of_a_word_match() -> None:
    text = "first\nsecond\nthird\nOne can merge a file.\n"
    assert best_line(text, "merging files") == 4
    assert best_line("a\nb\nthe query", "queries") == 3


def test_a_code_counts_more_than_two_words() -> None:
    text = "# Changelog: what changed in a version\n\n## 0.28.0\n"
    assert best_line(text, "what changed in version 0.28") == 3


def test_of_a_long_line_the_part_with_most_words_is_shown() -> None:
    line = "needle " + "before " * 100 + "thread and needle in the eye " + "after " * 100
    assert "thread and needle" in snippet(line, "needle thread eye")


def test_letters_that_change_their_length_in_lower_case_shift_nothing() -> None:
    assert "needle" in snippet("İ" * 400 + " needle here", "needle")


def test_excluded_and_empty_words_are_not_looked_for() -> None:
    assert snippet(TEXT, "pour -water").split("\n")[1] == "5: Pour it."
    assert (
        snippet("how to do it\nrotate keys", "how do I rotate") == "1: how to do it\n2: rotate keys"
    )


def test_chinese_is_found_by_its_parts() -> None:
    assert "2: 数据库很快" in snippet("第一行\n数据库很快\n", "这个数据库快吗")


def test_a_long_snippet_is_cut() -> None:
    shown = snippet("\n".join(["tea " * 30] * 4), "tea")
    assert shown.endswith("...") and len(shown) - 3 * len("1: ") <= LONGEST


def test_found_words_stay_visible_in_long_lines() -> None:
    assert "needle" in snippet(
        "x " * 400 + "\n" + "before " * 100 + "needle " + "after " * 100, "needle"
    )
    assert "needle" in snippet("before " * 40 + "\nneedle\n" + "after " * 100, "needle")


@given(
    text=st.text(st.sampled_from("ab \n\r"), max_size=200),
    query=st.text("ab ", max_size=5),
    first=st.integers(1, 9),
)
def test_every_line_is_shown_under_its_own_number(text: str, query: str, first: int) -> None:
    lines = text.removesuffix("\n").split("\n")
    line, shown = Snippets(parse_query(query)).of(text, first)
    for each in shown.split("\n"):
        number, _, content = each.partition(": ")
        assert (
            lines[int(number) - first]
            .rstrip()
            .startswith(content.removesuffix("...").removeprefix("..."))
            or len(content) > 50
        )
    assert f"\n{line}: " in f"\n{shown}"


# Marks.

WORDS = "run running runs café CAFE a b x-y what's naïve Ölung e\u0301tude _x_ 3.14".split()
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
    tokenizer = "porter " * stemmed + TOKENIZER
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
    monkeypatch.setattr(snippets, "WINDOW", 1)
    assert (
        marked(text, "two three four", "five one")
        == whole
        == ("one [two three four] [five one] [two three four] [five one] [two three four] five ")
    )
