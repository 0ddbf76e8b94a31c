from __future__ import annotations

import pymupdf

from tests.support_formats import page, read

BODY = "Some text that stands on this page and is not repeated at its edges."


def book(*tops: str, number: bool = True, head: str = "", stamp: str = "") -> bytes:
    """A PDF with one page for each text at the top, with its number at the bottom."""
    document = pymupdf.open()
    for at, top in enumerate(tops, 1):
        sheet = document.new_page(width=595, height=842)
        sheet.insert_text((72, 70), top, fontsize=9)
        if head and at == 1:
            sheet.insert_text((72, 130), head, fontsize=24)
        sheet.insert_text((72, 200), [BODY, f"Page {'abcdefghij'[at]} says more of it."])
        if number:
            sheet.insert_text((300, 780), str(at), fontsize=9)
        if stamp:
            sheet.insert_text((30, 600), stamp, rotate=90)
    return bytes(document.tobytes())


def test_a_running_title_whose_words_are_in_the_text_is_removed_everywhere() -> None:
    text = read(book(*["The Fruit Office"] * 5, head="The Fruit Office"), "a.pdf").text
    assert text.count("The Fruit Office") == 1 and text.startswith("# The Fruit Office\n")


def test_a_running_title_that_is_nowhere_else_is_kept_once() -> None:
    parsed = read(book(*["The Fruit Office"] * 5), "a.pdf")
    assert parsed.text.count("The Fruit Office") == 1
    assert page(parsed, 1).startswith("The Fruit Office")


def test_titles_of_short_chapters_are_running_titles_too() -> None:
    tops = ["1 Apples"] * 3 + ["2 Pears"] * 2 + ["3 Plums"] * 2
    text = read(book(*tops), "a.pdf").text
    assert [text.count(each) for each in ("Apples", "Pears", "Plums")] == [1, 1, 1]


def test_page_numbers_are_removed_but_numbers_in_the_text_stay() -> None:
    document = pymupdf.open(stream=book(*["The Fruit Office"] * 5))
    document[2].insert_text((72, 760), "17")  # at another height than the page numbers
    text = read(document.tobytes(), "a.pdf").text
    assert [word for word in text.split() if word.isdigit()] == ["17"]


def test_a_large_title_in_the_margin_is_no_running_title() -> None:
    document = pymupdf.open(stream=book(*["The Fruit Office"] * 5))
    document[0].insert_text((72, 50), "The Fruit Office", fontsize=24)
    assert read(document.tobytes(), "a.pdf").title == "The Fruit Office"


def test_a_stamp_on_every_page_is_kept_once() -> None:
    text = read(book("a", "b", "c", "d", stamp="Downloaded by Ann"), "a.pdf").text
    assert text.count("Downloaded by Ann") == 1
