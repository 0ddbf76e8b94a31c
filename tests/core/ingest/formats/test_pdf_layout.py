from __future__ import annotations

import random
import re
from collections import Counter

import pymupdf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import scaled
from tests.support_formats import page, read
from tests.support_pdf import FONT, WORDS, Drawn, columns_pdf, width_of


def words_of(text: str) -> list[str]:
    """The words of a Markdown text without its marks."""
    return re.sub(r"[#|\\`]|---", " ", text).split()


def in_order(text: str, words: list[str]) -> bool:
    """Whether the words that occur once come in this order, and all others as often."""
    found = words_of(text)
    once = {word for word, times in Counter(words).items() if times == 1}
    return [word for word in found if word in once] == [
        word for word in words if word in once
    ] and Counter(found) == Counter(words)


@pytest.mark.parametrize("drawn", ["columns", "lines", "any"])
@pytest.mark.parametrize("gutter", [5, 6, 7, 18])
@pytest.mark.parametrize("columns", [2, 3])
def test_columns_are_read_one_after_the_other_whatever_their_gutter(
    columns: int, gutter: float, drawn: Drawn
) -> None:
    for seed, justified in ((1, False), (2, True)):
        raw, words = columns_pdf(
            random.Random(seed), columns=columns, gutter=gutter, drawn=drawn, justified=justified
        )
        assert in_order(read(raw, "a.pdf").text, words)


@settings(max_examples=scaled(25), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    columns=st.integers(1, 4),
    gutter=st.floats(5, 25),
    drawn=st.sampled_from(["columns", "lines", "any"]),
    justified=st.booleans(),
    shift=st.sampled_from([0.0, 4.0, 7.0]),
    size=st.sampled_from([8.0, 9.0, 10.5]),
)
def test_generated_pages_are_read_in_order_without_losing_a_word(
    seed: int, columns: int, gutter: float, drawn: Drawn, justified: bool, shift: float, size: float
) -> None:
    if columns == 4:  # lines of less than three words may be cells
        size = min(size, 9.0)
    rng, options = random.Random(seed), {"justified": justified, "shift": shift, "size": size}
    raw, words = columns_pdf(rng, columns=columns, gutter=gutter, drawn=drawn, **options)  # type: ignore[arg-type]
    assert in_order(read(raw, "a.pdf").text, words)


def test_three_narrow_columns_of_justified_text_are_no_table() -> None:
    raw, words = columns_pdf(random.Random(1), columns=3, gutter=9, justified=True, size=8)
    text = read(raw, "a.pdf").text
    assert "|" not in text and in_order(text, words)


@pytest.mark.parametrize("aligned", ["bullets", "formulas"])
@pytest.mark.parametrize("seed", range(6))
def test_columns_with_aligned_bullets_or_formulas_do_not_interleave(
    seed: int, aligned: str
) -> None:
    rng, width, size = random.Random(seed), 225.0, 9.0
    writer = pymupdf.TextWriter(pymupdf.Rect(0, 0, 595, 842))
    words: list[str] = []

    def write(x: float, y: float, text: str) -> float:
        writer.append((x, y), text, font=FONT, fontsize=size)
        return y + 1.2 * size

    def prose(x: float, y: float, width: float, count: int) -> float:
        line = ""
        for _ in range(count):
            words.append(f"{rng.choice(WORDS)}{len(words)}")
            if line and size * width_of(f"{line} {words[-1]}") > width:
                y, line = write(x, y, line), ""
            line = f"{line} {words[-1]}".strip()
        return write(x, y, line)

    for x in (60.0, 60.0 + width + 16):
        y = 100.0
        for _ in range(3):
            y = prose(x, y, width, 30)
            for _ in range(5):
                if aligned == "bullets":
                    write(x, y, "•")
                    y = prose(x + 12, y, width - 12, rng.randint(2, 9))
                else:
                    words.append(f"a{len(words)}")
                    write(x + width - 20, y, f"({len(words)})")
                    y = write(x + 20, y, f"{words[-1]} = b + c")
    document = pymupdf.open()
    writer.write_text(document.new_page(width=595, height=842))
    found = words_of(read(document.tobytes(), "a.pdf").text)
    assert [word for word in found if word in set(words)] == words


@pytest.mark.parametrize("rotate", [90, 270])
def test_a_rotated_stamp_is_no_title_and_does_not_disturb_the_columns(rotate: int) -> None:
    raw, words = columns_pdf(random.Random(3), columns=2, gutter=12)
    stamp, document = "Stamp:2101.00001v1 [cs.XX] 1 Jan 2021", pymupdf.open(stream=raw)
    document[0].insert_text((30, 600 if rotate == 90 else 200), stamp, rotate=rotate, fontsize=20)
    parsed = read(document.tobytes(), "a.pdf")
    assert parsed.title == "A title that runs across all of the columns of this page"
    assert parsed.text.endswith(f"\n\n{stamp}\n")
    assert in_order(parsed.text.replace(stamp, ""), words)


@pytest.mark.parametrize("rotation", [90, 180, 270])
def test_a_page_that_is_shown_rotated_is_read_like_others(rotation: int) -> None:
    raw, words = columns_pdf(random.Random(4), columns=2, gutter=12)
    inner = pymupdf.open(stream=raw)
    document = pymupdf.open()
    turned = rotation % 180 != 0
    sheet = document.new_page(width=842 if turned else 595, height=595 if turned else 842)
    sheet.show_pdf_page(sheet.rect, inner, 0, rotate=rotation)
    assert in_order(read(document.tobytes(), "a.pdf").text, words)
    inner[0].set_rotation(rotation)
    assert in_order(read(inner.tobytes(), "a.pdf").text, words)


def test_a_heading_across_both_columns_ends_them() -> None:
    document = pymupdf.open()
    sheet = document.new_page()
    line = "some words of a column that fill"
    for part, top in (("upper", 100), ("lower", 400)):
        for side, left in (("left", 60), ("right", 310)):
            sheet.insert_text(
                (left, top), [f"{part} {side} {at} {line}" for at in range(8)], fontsize=11
            )
    sheet.insert_text((60, 300), "A heading that runs across both of the columns", fontsize=20)
    text = read(document.tobytes(), "a.pdf").text
    places = [
        text.index(each)
        for each in ("upper left", "upper right", "A heading", "lower left", "lower right")
    ]
    assert places == sorted(places)


def test_cells_without_rules_are_read_row_by_row() -> None:
    document = pymupdf.open()
    sheet = document.new_page()
    rows = [("Fruit", "Price"), ("apple", "1.20")]  # too few for a table
    for at, row in enumerate(rows):
        for across, cell in enumerate(row):
            sheet.insert_text((72 + 150 * across, 100 + 16 * at), cell)
    found = read(document.tobytes(), "a.pdf").text.split()
    assert found == [cell for row in rows for cell in row]


def test_a_word_that_is_hyphenated_at_the_end_of_a_column_is_joined() -> None:
    document = pymupdf.open()
    sheet = document.new_page()
    left = [f"left {at} some words of a column that fill" for at in range(7)]
    right = [f"right {at} some words of a column that fill" for at in range(7)]
    sheet.insert_text((60, 100), [*left, "and at the end of it is a hyphen-"], fontsize=11)
    sheet.insert_text((310, 100), ["ated word. " + right[0], *right[1:]], fontsize=11)
    assert "is a hyphenated word. right 0" in read(document.tobytes(), "a.pdf").text


def test_a_word_that_is_hyphenated_at_the_end_of_a_page_is_joined_there() -> None:
    document = pymupdf.open()
    document.new_page().insert_text((72, 100), ["The first page ends in a hyphen-"])
    document.new_page().insert_text((72, 100), ["ated word, and the second goes on."])
    parsed = read(document.tobytes(), "a.pdf")
    assert parsed.text == "The first page ends in a hyphenated\n\nword, and the second goes on.\n"
    assert parsed.pages == (0, parsed.text.index("word,"))


pieces = st.lists(
    st.tuples(
        st.floats(20, 550),
        st.floats(20, 820),
        st.lists(
            st.sampled_from("alpha office beta fish gamma delta".split()), min_size=1, max_size=9
        ),
        st.sampled_from([0, 0, 0, 90, 180, 270]),
        st.integers(6, 24),
    ),
    min_size=1,
    max_size=25,
)
boxes = st.lists(
    st.tuples(st.integers(2, 28), st.integers(2, 40), st.integers(2, 28), st.integers(2, 40)),
    max_size=25,
)


@settings(max_examples=scaled(60), deadline=None)
@given(pieces, boxes, st.sampled_from([0, 90, 180, 270]))
def test_no_word_of_a_page_vanishes_or_is_there_twice(
    texts: list[tuple[float, float, list[str], int, int]],
    frames: list[tuple[int, int, int, int]],
    rotation: int,
) -> None:
    document = pymupdf.open()
    sheet = document.new_page(width=595, height=842)
    for x, y, words, rotate, size in texts:
        sheet.insert_text((x, y), " ".join(words), rotate=rotate, fontsize=size)
    for x0, y0, x1, y1 in frames:
        sheet.draw_rect(
            pymupdf.Rect(
                20 * min(x0, x1), 20 * min(y0, y1), 20 * max(x0, x1) + 1, 20 * max(y0, y1) + 1
            )
        )
    sheet.set_rotation(rotation)
    flags = pymupdf.TEXT_PRESERVE_WHITESPACE | pymupdf.TEXT_MEDIABOX_CLIP
    there = Counter(word[4] for word in sheet.get_text("words", flags=flags))
    if there:
        assert Counter(words_of(read(document.tobytes(), "a.pdf").text)) == there


# --- running titles and page numbers

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


def test_two_pages_have_a_running_title_if_it_is_the_first_or_last_row_of_both() -> None:
    text = read(book("The Fruit Office", "The Fruit Office"), "a.pdf").text
    assert text.count("The Fruit Office") == 1
    assert not [word for word in text.split() if word.isdigit()]  # nor page numbers
    assert text.count(BODY) == 2


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


def test_words_of_hebrew_are_read_from_right_to_left_and_latin_between_them_to_the_right() -> None:
    document = pymupdf.open()
    text = "בשנת 2024 השתמשו המשרדים בתוכנה Free Linux שלהם וגם במחשבים ישנים"
    document.new_page().insert_htmlbox((60, 60, 500, 300), f"<p dir=rtl>{text}</p>")
    assert read(document.tobytes(), "a.pdf").text == f"{text}\n"


def test_a_card_of_terms_is_read_column_by_column() -> None:
    document = pymupdf.open()
    page = document.new_page()
    columns = []
    for left, space in ((60, 0), (320, 7)):
        lines, y = list[str](), 80.0
        for part in range(3):
            y += 12 + space * (part + 1)
            lines.append(f"Chapter{left}x{part}")
            page.insert_text((left, y), lines[-1], fontsize=14, fontname="hebo")
            for item in range(5):
                y += 14
                lines += [f"key{left}x{part}x{item}", f"meaning{left}x{part}x{item}"]
                page.insert_text((left, y), lines[-2], fontsize=9)
                page.insert_text((left + 90, y), lines[-1], fontsize=9)
        columns.append(lines)
    text = read(bytes(document.tobytes()), "a.pdf").text
    assert re.findall(r"\w+x\d(?:x\d)?", text) == [*columns[0], *columns[1]]
