from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.ingest.structure import (
    BODY,
    HEADING,
    STACKED,
    Outline,
    body_start,
    front_matter,
    opening_heading,
    outline,
    plain,
)


def markdown(text: str) -> list[tuple[int, tuple[str, ...]]]:
    return [(each.level, each.path) for each in outline(text, "markdown").headings]


def blocks(text: str) -> list[str]:
    return [text[each.start : each.end] for each in outline(text, "markdown").blocks]


def strengths(result: Outline, text: str) -> dict[str, int]:
    return {
        text[at:].split()[0]: strength
        for at, strength in zip(result.cuts, result.strengths, strict=True)
    }


@pytest.mark.parametrize(("line", "level", "text"), [
    ("# Plain", 1, "Plain"), ("###### Six", 6, "Six"), ("## Closed ##", 2, "Closed"), ("# C#", 1, "C#"), ("#", 1, ""),
    ("   # Three spaces", 1, "Three spaces"), ("# Tabs\tinside\r", 1, "Tabs inside"), ("\ufeff# Marked", 1, "Marked"),
    ("Over\n====", 1, "Over"), ("Under\r\n---\r", 2, "Under"), ("# A\nUnder\n--", 1, "A"),
])  # fmt: skip
def test_a_heading_has_a_level_and_a_text(line: str, level: int, text: str) -> None:
    assert markdown(f"{line}\n\nbody")[0] == (level, (text,))


@pytest.mark.parametrize("line", [
    "#tag", "####### seven", "    # indented code", r"\# escaped", "> # quoted", "- # item", "```\n# code\n```", "a\nb\n---",
    "- item\n---", "1. item\n---", "| table\n---", "a | b\n---|---", "text\n\n---", "text\n-", "text\n    ---",
])  # fmt: skip
def test_lines_that_resemble_headings_are_not_headings(line: str) -> None:
    assert markdown(f"{line}\n\nbody") == []


def test_a_heading_path_has_the_open_headings_from_the_outermost_on() -> None:
    found = ["".join(path) for _, path in markdown("# A\n### B\n## C\n### D\n# E\n")]
    assert found == ["A", "AB", "AC", "ACD", "E"]


@pytest.mark.parametrize(("heading", "text"), [
    ("**Bold**, _em_ and `code`", "Bold, em and code"), ("[Link](http://a.b/c_d) here", "Link here"),
    ("![Logo](a.png) Name", "Logo Name"), ("snake_case_name", "snake_case_name"), ("2 * 3 * 4", "2 * 3 * 4"),
    ("Anchor {#id}", "Anchor"), ("<a name='x'></a>Tag", "Tag"), (r"5 \* 3", "5 * 3"), ("a < b", "a < b"),
    ("  two\nlines ", "two lines"), ("x" * 300, "x" * 200),
])  # fmt: skip
def test_inline_markup_is_removed_from_a_heading(heading: str, text: str) -> None:
    assert plain(heading) == text


@pytest.mark.parametrize("fence", [
    "```\na\n```", "~~~\n```\n~~~", "````\n```\n````", "```py x=1\na\n``````", "```\na", "> ```\n> a\n> ```",
    "- ```\n  a\n  ```", "```\n```py\n```", "```\n- ```\n```",
])  # fmt: skip
def test_a_fence_ends_with_matching_marks_or_with_the_text(fence: str) -> None:
    assert blocks(f"before\n\n{fence}") == [fence]


def test_several_fences_are_separate_blocks_and_inline_code_is_none() -> None:
    assert blocks("```not a fence```\n\ntext") == []
    assert blocks("```\na\n```\ntext\n~~~\nb\n~~~\n") == ["```\na\n```", "~~~\nb\n~~~"]


def test_front_matter_is_yaml_between_dashes_at_the_top() -> None:
    assert front_matter("---\na: 1\n\nb: 2\n---\n# Head") == ("a: 1\n\nb: 2\n", 18)
    assert front_matter("\ufeff---\r\na: 1\r\n...\r\n") == ("a: 1\r\n", 16)
    assert front_matter("---\n---\n") == ("", 7)


@pytest.mark.parametrize(
    "text",
    ["---\n\na: 1\n---\n", "---\na: 1\n", "---\n# Head\n---\n", "\n---\na: 1\n---\n", "--- a: 1"],
)
def test_other_dashes_are_not_front_matter(text: str) -> None:
    assert front_matter(text) == ("", 0)


def test_cuts_below_a_heading_are_the_weakest() -> None:
    text = "# A\n## B\nbody\n\n## C\n\n```\nx\n```\n"
    assert outline(text, "markdown").strengths == [HEADING + 5, STACKED, BODY, HEADING + 4, BODY]
    assert outline("# A\nB\n---\nbody", "markdown").strengths == [HEADING + 5, STACKED, BODY]


def test_in_prose_a_blank_line_is_stronger_than_an_item_and_an_item_than_a_line() -> None:
    text = "first\nSecond\n  - inner\n- outer\n\nlast"
    found = strengths(
        outline(text, "text"), text.replace("- inner", "inner   ").replace("- outer", "outer  ")
    )
    assert found["last"] > found["outer"] > found["inner"] > found["Second"]


def test_a_line_that_continues_a_sentence_is_not_a_cut() -> None:
    assert outline("One two\nthree four.\nfive", "text").cuts.tolist() == [0, 20]


def test_in_code_a_statement_at_top_level_is_stronger_than_any_line_inside_of_one() -> None:
    text = "first {\n  inner\n  }\nafter\n\n  indented\n\nsecond"
    found = strengths(outline(text, "code"), text)
    assert found["second"] > found["after"] > found["indented"] > found["inner"] > found["}"]
    text = "one\n  two\n  three\n    four\n  five"
    found = strengths(outline(text, "code"), text)
    assert found["five"] > found["three"]


def test_lines_of_a_block_are_cuts_only_if_it_does_not_fit() -> None:
    text = "```\na\nb\n```\n"
    assert outline(text, "markdown", lambda start, end: end - start < 20).cuts.tolist() == [0]
    assert outline(text, "markdown", lambda start, end: end - start < 5).cuts.tolist() == [0, 6, 8]


def test_a_block_stays_whole_only_together_with_the_headings_above_it() -> None:
    text = "# A\n\n## B\n\n```\na\nb\n```\n"
    end, second = len(text) - 1, text.index("b")
    for room, cut in ((end, end), (len("```\na\nb\n```"), second)):

        def fits(start: int, end: int, room: int = room) -> bool:
            return end - start <= room

        assert [each.first_cut for each in outline(text, "markdown", fits).blocks] == [cut]


@pytest.mark.parametrize(("table", "header"), [
    ("| a | b |\n|---|---|\n| 1 | 2 |", "| a | b |\n|---|---|"), ("a | b\n:-- | --:\n1 | 2\n3 | 4", "a | b\n:-- | --:"),
    ("| a |\n| - |", "| a |\n| - |"),
])  # fmt: skip
def test_a_table_is_a_block_with_a_header(table: str, header: str) -> None:
    [block] = outline(f"before\n\n{table}\nafter", "markdown").blocks
    assert (block.start, block.end, block.header) == (8, 8 + len(table), header)


@pytest.mark.parametrize("text", [
    "| a | b |\n| 1 | 2 |", "a | b\n\n---|---", "text\n|---|", "a | b\n-----",
])  # fmt: skip
def test_other_lines_with_bars_are_not_tables(text: str) -> None:
    assert outline(text, "markdown").blocks == []


def test_rows_of_a_table_that_is_cut_are_cuts_from_the_second_on() -> None:
    text = "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n| 5 | 6 |\n"
    result = outline(text, "markdown", lambda start, end: False)
    assert [text[at : at + 5] for at in result.cuts] == ["| a |", "| 3 |", "| 5 |"]


def test_the_body_begins_after_front_matter_unless_that_is_all_there_is() -> None:
    front = "---\na: 1\n---"
    assert body_start(f"{front}\n\ntext", "markdown") == len(front)
    assert body_start(f"{front}\n\n", "markdown") == 0
    assert body_start(f"{front}\n\ntext", "text") == 0
    assert body_start("\ufefftext", "markdown") == 1


@given(
    st.lists(
        st.sampled_from(
            (
                *("# One", "## *Two*", "#tag", "   # Three", "    # code", "| # a |", "|---|"),
                *("Text", "---", "a: b", "===", "```", "", "#", "\ufeff# BOM"),
            )
        ),
        max_size=6,
    )
)
def test_an_opening_heading_is_the_first_one_of_the_outline(lines: list[str]) -> None:
    text = "\n".join(lines)
    if heading := opening_heading(text):
        assert outline(text, "markdown").headings[0].path == (heading,)


@pytest.mark.parametrize("text", ["# Tea", "\n\n# Tea\n", "---\na: b\n---\n# Tea", "\ufeff# Tea"])
def test_a_heading_in_the_first_line_is_found_without_an_outline(text: str) -> None:
    assert opening_heading(text) == "Tea"
