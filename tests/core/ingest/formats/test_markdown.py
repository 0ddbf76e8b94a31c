from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.errors import NoText
from mcpvectordb.ingest.formats import markdown
from mcpvectordb.ingest.structure import outline
from tests.support_formats import NOT_ALLOWED, source


@given(st.text())
def test_clean_text_has_no_control_characters_and_can_be_encoded(text: str) -> None:
    cleaned = markdown.clean(text)
    assert not NOT_ALLOWED.search(cleaned)
    cleaned.encode()
    assert markdown.clean(cleaned) == cleaned


@given(st.text(alphabet="#`~=- ab\n", max_size=40))
def test_prose_is_never_taken_for_a_heading_or_a_fence(text: str) -> None:
    structure = outline("before\n" + markdown.prose(text) + "\nafter", "markdown")
    assert not structure.headings and not structure.blocks


def test_a_fence_is_longer_than_any_fence_inside() -> None:
    assert markdown.fence("````\nx") == "`````\n````\nx\n`````"
    assert markdown.fence(" \n") == ""


def test_a_table_leaves_out_empty_rows_and_columns_and_escapes_bars() -> None:
    assert (
        markdown.table([["a", "", "b|c"], ["", "", ""], ["1", "", "2"]])
        == "| a | b\\|c |\n| --- | --- |\n| 1 | 2 |"
    )


def test_a_long_table_is_one_block() -> None:
    table = markdown.table(
        [["name", "value"], *([f"row {number}", "x" * 40] for number in range(50))]
    )
    [block] = outline(table, "markdown").blocks
    assert (block.start, block.end) == (0, len(table))
    assert table.count("| row ") == 50


def test_a_single_row_or_column_is_written_as_plain_lines() -> None:
    assert markdown.table([["a", "b"]]) == "a, b"
    assert markdown.table([["a"], ["b"]]) == "a\nb"


@given(st.lists(st.text(max_size=20), min_size=1, max_size=6))
def test_the_offsets_of_pages_are_where_their_text_begins(pages: list[str]) -> None:
    given_pages = [markdown.clean(page).strip("\n").rstrip() for page in pages]
    if not any(given_pages):
        with pytest.raises(NoText):
            markdown.finish(source(b"", "a.x"), pages, title="a")
        return
    parsed = markdown.finish(source(b"", "a.x"), pages, title="a")
    assert len(parsed.pages) == len(pages)
    for at, page in zip(parsed.pages, given_pages, strict=True):
        assert parsed.text.startswith(page, at)


def test_metadata_is_short_and_without_empty_values() -> None:
    parsed = markdown.finish(
        source(b"", "a.x"),
        ["text"],
        title="a",
        metadata={"a": "", "b": "x\n" * 5000, "c": 0, "d": []},
    )
    assert (
        set(parsed.metadata) == {"b", "c"}
        and len(parsed.metadata["b"]) <= markdown.LONGEST_METADATA_TEXT
    )


def test_a_title_is_one_short_line() -> None:
    parsed = markdown.finish(source(b"", "a.x"), "text", title="two\n lines " + "x" * 300)
    assert parsed.title == ("two lines " + "x" * 300)[:200]


def test_the_title_is_that_of_the_metadata_or_a_heading_or_the_name() -> None:
    for metadata, text, title in (
        ({"title": "Given"}, "# Headed", "Given"),
        ({"title": "Untitled-1"}, "# Headed", "Headed"),
        ({}, "text", "a.x"),
    ):
        parsed = markdown.finish(source(b"", "a.x"), text, metadata)
        assert (parsed.title, parsed.metadata) == (title, {})
