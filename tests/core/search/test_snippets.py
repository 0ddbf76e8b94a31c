from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.search.snippets import LONGEST, Snippets, numbered, snippet

TEXT = "# Tea\n\nWater at 80 degrees.\nLeaves and water: green tea.\nPour it.\nWait.\nDrink.\n"


def test_the_line_with_most_words_is_shown_between_its_neighbours() -> None:
    assert (
        snippet(TEXT, "green water")
        == "3: Water at 80 degrees.\n4: Leaves and water: green tea.\n5: Pour it.\n6: Wait."
    )


def test_of_several_best_lines_the_first_is_shown() -> None:
    assert snippet(TEXT, "water").startswith("2: \n3: Water")


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
    assert Snippets("green water").of(TEXT) == (4, snippet(TEXT, "green water"))
    assert Snippets("pour").of(TEXT, 11).line == 15
    assert Snippets("zebra").of("\n\nwords", 7).line == 9


def test_other_forms_of_a_word_match() -> None:
    text = "first\nsecond\nthird\nOne can merge a file.\n"
    assert Snippets("merging files").of(text).line == 4
    assert Snippets("queries").of("a\nb\nthe query").line == 3


def test_a_code_counts_more_than_two_words() -> None:
    text = "# Changelog: what changed in a version\n\n## 0.28.0\n"
    assert Snippets("what changed in version 0.28").of(text).line == 3


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
    line, shown = Snippets(query).of(text, first)
    for each in shown.split("\n"):
        number, _, content = each.partition(": ")
        assert (
            lines[int(number) - first]
            .rstrip()
            .startswith(content.removesuffix("...").removeprefix("..."))
            or len(content) > 50
        )
    assert f"\n{line}: " in f"\n{shown}"


def test_lines_are_numbered_from_where_they_begin() -> None:
    assert numbered("a\nb", 7) == "7: a\n8: b"
