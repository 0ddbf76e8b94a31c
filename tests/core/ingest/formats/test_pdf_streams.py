from __future__ import annotations

from collections.abc import Sequence

import pymupdf
import pytest

from mcpvectordb.ingest.formats.pdf_streams import is_numeric
from tests.support_formats import read

ROWS = [
    ["Fruit", "Price", "In stock"],
    ["green apple", "1.20", "17"],
    ["pear", "0.80", "1,204"],
    ["plum of the year", "12.00", "4"],
    ["quince", "3.50", "250"],
]
PROSE = "The brown fox jumps over the lazy dog while the band plays on and on."


def placed(
    rows: Sequence[Sequence[str]], starts: Sequence[float], *, aligned: str, by_column: bool = False
) -> list[tuple[float, float, str]]:
    """Where cells are; a letter for each column says whether it is aligned left or right."""
    cells = []
    for down, row in enumerate(rows):
        for across, cell in enumerate(row):
            width = pymupdf.get_text_length(cell, fontsize=11)
            x = starts[across] - (width if aligned[across] == "r" else 0)
            cells.append((x, 100.0 + 16 * down, cell))
    return sorted(cells) if by_column else cells


def sheet(cells: Sequence[tuple[float, float, str]]) -> bytes:
    document = pymupdf.open()
    page = document.new_page()
    for x, y, text in cells:
        page.insert_text((x, y), text)
    return bytes(document.tobytes())


def table(rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, f"|{' --- |' * len(rows[0])}")
    return "\n".join(lines)


@pytest.mark.parametrize("aligned", ["lll", "lrr", "lrl"])
@pytest.mark.parametrize("by_column", [True, False])
def test_aligned_cells_are_a_table_in_whatever_order_the_file_has_them(
    aligned: str, by_column: bool
) -> None:
    cells = placed(ROWS, [72, 240, 330], aligned=aligned, by_column=by_column)
    raw = sheet([*cells, (72, 70, PROSE), (72, 220, PROSE)])
    assert read(raw, "a.pdf").text == f"{PROSE}\n\n{table(ROWS)}\n\n{PROSE}\n"


def test_cells_without_a_value_and_titles_of_groups_stay_in_their_column() -> None:
    rows = [*ROWS[:2], ["Stone fruit", "", ""], ["plum", "", "4"], ["cherry", "7.10", ""]]
    text = read(sheet(placed(rows, [72, 240, 330], aligned="lrr")), "a.pdf").text
    assert text == f"{table(rows)}\n"


def test_the_lines_of_a_wrapped_cell_are_one_cell() -> None:
    rows = [
        ["Fruit", "Price", "Remark"],
        ["apple", "1.20", "grows on trees in many"],
        ["", "", "old gardens of the north"],
        ["pear", "0.80", "is eaten"],
        ["plum", "3.20", "is dried and put into all"],
        ["", "", "kinds of bread"],
    ]
    text = read(sheet(placed(rows, [72, 180, 230], aligned="lrl")), "a.pdf").text
    assert "| apple | 1.20 | grows on trees in many old gardens of the north |" in text
    assert "| plum | 3.20 | is dried and put into all kinds of bread |" in text


def test_cells_in_the_middle_of_taller_ones_are_in_their_row() -> None:
    cells = [(72.0, 100.0, "Fruit"), (200.0, 100.0, "Remark of the gardener")]
    for at, fruit in enumerate(("apple", "pear", "plum")):
        y = 130.0 + 40 * at
        cells += [(72, y + 6, fruit), (200, y, f"{fruit} trees are old and"), (200, y + 12, "tall")]
    text = read(sheet(cells), "a.pdf").text
    for fruit in ("apple", "pear", "plum"):
        assert f"| {fruit} | {fruit} trees are old and tall |" in text


def test_a_table_beside_a_column_of_text_does_not_mix_with_it() -> None:
    words = "one two three four five six seven eight nine ten eleven twelve".split()
    prose = [
        (330.0, 62.0 + 13.5 * at, f"line {word} of a text in a column of it")
        for at, word in enumerate(words)
    ]
    raw = sheet([*placed(ROWS, [60, 200, 280], aligned="lrr"), *prose])
    text = read(raw, "a.pdf").text
    assert table(ROWS) in text
    assert " ".join(line for *_, line in prose) in text.replace("\n", " ")


def test_bullets_formulas_and_numbered_lines_are_no_tables() -> None:
    bullets = [
        (72.0 + 18 * (at % 2), 100.0 + 16 * (at // 2), "•" if at % 2 == 0 else "some item")
        for at in range(10)
    ]
    formulas = [
        (72.0 + 300 * (at % 2), 300.0 + 20 * (at // 2), f"({at})" if at % 2 else "a = b + c")
        for at in range(8)
    ]
    numbered = [
        (72.0 + 40 * (at % 2), 500.0 + 16 * (at // 2), "word" if at % 2 else str(at // 2 + 7))
        for at in range(12)
    ]
    text = read(sheet([*bullets, *formulas, *numbered]), "a.pdf").text
    assert "|" not in text
    assert "a = b + c  (1)\na = b + c  (3)" in text


def test_two_columns_of_text_are_no_table() -> None:
    document = pymupdf.open()
    page = document.new_page()
    for column in range(2):
        text = " ".join(f"word{column}{at} goes on and" for at in range(60))
        page.insert_htmlbox((50 + 260 * column, 60, 290 + 260 * column, 600), f"<p>{text}</p>")
    found = read(document.tobytes(), "a.pdf").text
    assert "|" not in found
    starts = [word for word in found.split() if word.startswith("word")]
    assert starts == [f"word{column}{at}" for column in range(2) for at in range(60)]


@pytest.mark.parametrize(
    ("cells", "numeric"),
    [
        (["1", "2.5", "-3%"], True),
        (["$1,200", "(4)", "–", "n/a"], True),
        (["12 (3.4)", "5 ± 2", "7*"], True),
        (["one", "2", "three"], False),
        (["C", "3", "x"], False),
    ],
)
def test_columns_of_numbers_are_told_from_text(cells: list[str], numeric: bool) -> None:
    assert is_numeric(cells) is numeric


@pytest.mark.parametrize("down", [0.0, 7.0, 14.0])
def test_names_of_columns_in_several_lines_are_one_row(down: float) -> None:
    """Short names stand at the top, in the middle or at the bottom of long ones."""
    names = [(72.0, 72.0 + down, "Fruit"), (240.0, 72.0, "Price"), (240.0, 86.0, "in euros")]
    names.append((330.0, 72.0 + down, "Stock"))
    rows = placed(ROWS[1:], [72, 240, 330], aligned="lll")
    expected = table([["Fruit", "Price in euros", "Stock"], *ROWS[1:]])
    assert read(sheet([*names, *rows]), "a.pdf").text == f"{expected}\n"


def test_the_name_of_several_columns_is_in_the_first_of_them() -> None:
    rows = [["Fruit", "Price", "Sold", "Left"], *([*row, "3"] for row in ROWS[1:])]
    cells = placed(rows, [72, 220, 300, 380], aligned="llll")
    text = read(sheet([(330, 84, "In stock"), *cells]), "a.pdf").text
    assert text == f"{table([['', '', 'In stock', ''], *rows])}\n"
