from __future__ import annotations

import pymupdf
import pytest

from tests.support_formats import read
from tests.support_pdf import FONT


def sheet_with_grid(xs: list[float], ys: list[float]) -> tuple[pymupdf.Document, pymupdf.Page]:
    """A page with these vertical and horizontal lines, all of full length."""
    document = pymupdf.open()
    sheet = document.new_page()
    for x in xs:
        sheet.draw_line((x, ys[0]), (x, ys[-1]))
    for y in ys:
        sheet.draw_line((xs[0], y), (xs[-1], y))
    return document, sheet


@pytest.mark.parametrize("vertical", [True, False])
def test_a_ruled_table_becomes_a_markdown_table_in_its_place(vertical: bool) -> None:
    xs, ys = [72, 192, 312, 432], [100, 120, 140, 160]
    document, sheet = sheet_with_grid(xs, ys) if vertical else sheet_with_grid([], [])
    for y in () if vertical else (100, 120, 160):
        sheet.draw_line((72, y), (432, y))
    rows = [["Fruit", "Price", "Stock"], ["green apple", "1.20", "17"], ["pear", "0.80", "4"]]
    for at, row in enumerate(rows):
        for across, cell in enumerate(row):
            sheet.insert_text((80 + across * 120, 115 + at * 20), cell)
    sheet.insert_text((72, 80), "Prices of the year are these:")
    sheet.insert_text((72, 300), "After the table.")
    assert read(document.tobytes(), "a.pdf").text == (
        "Prices of the year are these:\n\n| Fruit | Price | Stock |\n| --- | --- | --- |\n"
        "| green apple | 1.20 | 17 |\n| pear | 0.80 | 4 |\n\nAfter the table.\n"
    )


def test_rows_without_rules_between_them_stay_rows() -> None:
    document, sheet = sheet_with_grid([72, 172, 272, 372], [100, 120, 220])
    rows = [("Fruit", "Price", "Stock"), *((f"fruit{at}", f"{at}.20", f"{at}7") for at in range(5))]
    for at, row in enumerate(rows):
        for across, cell in enumerate(row):
            sheet.insert_text((80 + 100 * across, 115 + 20 * at), cell)
    text = read(document.tobytes(), "a.pdf").text
    assert text.startswith(
        "| Fruit | Price | Stock |\n| --- | --- | --- |\n| fruit0 | 0.20 | 07 |\n"
    )
    assert text.endswith("| fruit4 | 4.20 | 47 |\n")


def test_the_lines_of_a_long_cell_stay_one_cell() -> None:
    document, sheet = sheet_with_grid([72, 172, 372], [100, 120, 180, 240])
    sheet.insert_text((80, 115), "Fruit")
    sheet.insert_text((180, 115), "Remark")
    for at, fruit in enumerate(("apple", "pear")):
        sheet.insert_text((80, 135 + 60 * at), fruit)
        sheet.insert_text(
            (180, 135 + 60 * at), [f"the {fruit} is a fruit that grows on", "trees in many gardens"]
        )
    assert read(document.tobytes(), "a.pdf").text == (
        "| Fruit | Remark |\n| --- | --- |\n"
        "| apple | the apple is a fruit that grows on trees in many gardens |\n"
        "| pear | the pear is a fruit that grows on trees in many gardens |\n"
    )


def test_text_in_frames_is_not_a_table() -> None:
    document, sheet = sheet_with_grid([60, 300, 540], [80, 300, 520])
    text = "<p>" + "Some text that stands in one of four frames of this page. " * 6 + "</p>"
    for x in (65, 305):
        for y in (85, 305):
            sheet.insert_htmlbox((x, y, x + 230, y + 210), text)
    assert "|" not in read(document.tobytes(), "a.pdf").text


def test_a_drawing_of_boxes_is_not_a_table() -> None:
    document = pymupdf.open()
    sheet = document.new_page()
    labels = "start read parse check store stop".split()
    for at, label in enumerate(labels):
        x, y = 60 + 70 * at, 100 + 45 * at
        sheet.draw_rect((x, y, x + 60, y + 30))
        sheet.draw_line((x + 60, y + 15), (x + 100, y + 15))
        sheet.draw_line((x + 100, y + 15), (x + 100, y + 45))
        sheet.insert_text((x + 8, y + 20), label)
    text = read(document.tobytes(), "a.pdf").text
    assert "|" not in text and text.split() == labels


def test_a_line_that_begins_in_a_table_and_ends_outside_keeps_its_words() -> None:
    document, sheet = sheet_with_grid([72, 172, 272], [100, 120, 140, 160])
    for at in range(3):
        sheet.insert_text((80, 115 + 20 * at), f"left{at}")
        sheet.insert_text((180, 115 + 20 * at), f"right{at} with a long remark beside{at} the form")
    words = read(document.tobytes(), "a.pdf").text.replace("|", " ").replace("---", " ").split()
    expected = [
        word
        for at in range(3)
        for word in f"left{at} right{at} with a long remark beside{at} the form".split()
    ]
    assert sorted(words) == sorted(expected)


def test_ligatures_in_a_table_are_letters() -> None:
    document, sheet = sheet_with_grid([72, 172, 272], [100, 120, 140])
    writer = pymupdf.TextWriter(sheet.rect)
    for at, row in enumerate([("o\ufb03ce", "\ufb01sh"), ("\ufb02ow", "e\ufb00ort")]):
        for across, cell in enumerate(row):
            writer.append((80 + 100 * across, 115 + 20 * at), cell, font=FONT)
    writer.write_text(sheet)
    assert read(document.tobytes(), "a.pdf").text == (
        "| office | fish |\n| --- | --- |\n| flow | effort |\n"
    )


def test_two_tables_with_horizontal_rules_and_text_between_them_are_two() -> None:
    document = pymupdf.open()
    sheet = document.new_page()
    for top, name in ((100, "fruit"), (300, "stone")):
        for y in (top, top + 20, top + 60):
            sheet.draw_line((72, y), (372, y))
        for at in range(3):
            sheet.insert_text((80, top + 15 + 20 * at), f"{name}{at}")
            sheet.insert_text((280, top + 15 + 20 * at), f"{at}.50")
    sheet.insert_text((72, 230), "Between the two tables there is a line of text that is long.")
    text = read(document.tobytes(), "a.pdf").text
    assert text.startswith(
        "| fruit0 | 0.50 |\n| --- | --- |\n| fruit1 | 1.50 |\n| fruit2 | 2.50 |\n\n"
    )
    assert text.endswith("| stone0 | 0.50 |\n| --- | --- |\n| stone1 | 1.50 |\n| stone2 | 2.50 |\n")


def test_a_table_on_a_rotated_page_is_a_table() -> None:
    document, sheet = sheet_with_grid([100, 120, 140], [72, 172, 272])
    for at in range(2):
        for across in range(2):
            sheet.insert_text((115 + 20 * at, 262 - 100 * across), f"cell{at}{across}", rotate=90)
    assert read(document.tobytes(), "a.pdf").text == (
        "| cell00 | cell01 |\n| --- | --- |\n| cell10 | cell11 |\n"
    )
