from __future__ import annotations

import csv
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.errors import NoText, ParseFailed
from mcpvectordb.ingest.formats.csv import delimiter, parse
from mcpvectordb.ingest.formats.markdown_writer import MOST_COLUMNS
from tests.support_formats import read, source


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_each_row_has_the_names_of_its_columns(mark: str) -> None:
    raw = (
        f'Sort{mark}Price{mark}Note\nBoskoop{mark}1.20{mark}\nPear{mark}3{mark}"soft, sweet; '
        f'good"\n'
    )
    parsed = read(raw, "a.csv")
    assert (
        parsed.text
        == "Sort: Boskoop\nPrice: 1.20\n\nSort: Pear\nPrice: 3\nNote: soft, sweet; good\n"
    )
    assert parsed.metadata == {"columns": ["Sort", "Price", "Note"], "rows": 2}
    assert parsed.title == "a.csv"


def test_a_table_without_a_header_gets_names() -> None:
    assert (
        read("1,2\n3,4\n", "a.csv").text == "column 1: 1\ncolumn 2: 2\n\ncolumn 1: 3\ncolumn 2: 4\n"
    )


def test_a_header_with_an_unnamed_first_column_is_recognised() -> None:
    assert (
        read(",name\n0,Ann\n1,Bob\n", "a.csv").text
        == "column 1: 0\nname: Ann\n\ncolumn 1: 1\nname: Bob\n"
    )


def test_quoted_line_breaks_stay_in_their_cell() -> None:
    assert read('name,text\nAnn,"one\r\ntwo"\r\n', "a.csv").text == "name: Ann\ntext: one two\n"


def test_longer_and_shorter_rows_are_kept() -> None:
    assert read("a,b\n1\n1,2,3\n", "a.csv").text == "a: 1\n\na: 1\nb: 2\ncolumn 3: 3\n"


def test_other_encodings_are_read() -> None:
    assert "Größe: groß" in read("Größe;Maß\ngroß;schön\nweiß;süß\n".encode("cp1252"), "a.csv").text
    assert read("a\tb\nx\ty\n".encode("utf-16"), "a.tsv").text == "a: x\nb: y\n"


def test_a_column_name_that_looks_like_a_heading_is_escaped() -> None:
    assert read("# id,name\n1,Ann\n", "a.csv").text == "\\# id: 1\nname: Ann\n"


@pytest.mark.parametrize("raw", ["", "\n\n", ",,\n,,\n"])
def test_an_empty_table_has_no_text(raw: str) -> None:
    with pytest.raises(NoText, match=r"a\.csv"):
        read(raw, "a.csv")


@given(
    st.lists(
        st.lists(st.text('abc ,;\t|"\n', max_size=5), min_size=3, max_size=3),
        min_size=4,
        max_size=8,
    ),
    st.sampled_from(",;\t|"),
)
def test_every_cell_is_in_the_text(rows: list[list[str]], mark: str) -> None:
    out = StringIO()
    csv.writer(out, delimiter=mark, quoting=csv.QUOTE_ALL).writerows(
        [["one", "two", "three"], *rows]
    )
    assert delimiter(out.getvalue()) == mark
    try:
        text = parse(source(out.getvalue(), "a.csv")).text
    except NoText:
        assert not "".join(map("".join, rows)).strip()
        return
    assert all(" ".join(cell.split()) in text for row in rows for cell in row)


def test_a_table_of_very_many_columns_is_refused_with_their_number() -> None:
    assert read("x," * (MOST_COLUMNS - 1) + "x\n", "a.csv").metadata["rows"] == 1
    with pytest.raises(ParseFailed, match=f"has {MOST_COLUMNS + 1} columns.* turn its columns"):
        read("x," * MOST_COLUMNS + "x\n", "a.csv")
