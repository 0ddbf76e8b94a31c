from __future__ import annotations

import zipfile
from io import BytesIO

import pptx
import pymupdf
import pytest
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.presentation import Presentation
from pptx.util import Inches

from mcpvectordb.errors import NoText
from tests.support_formats import page, read, saved, with_member

PNG = pymupdf.Pixmap(pymupdf.csRGB, (0, 0, 4, 4), False).tobytes("png")


def talk() -> Presentation:
    presentation = pptx.Presentation()
    first = presentation.slides.add_slide(presentation.slide_layouts[0])
    first.shapes.title.text = "Fruit"
    first.placeholders[1].text = "A talk"
    second = presentation.slides.add_slide(presentation.slide_layouts[1])
    second.shapes.title.text = "Apples"
    frame = second.placeholders[1].text_frame
    frame.text = "red"
    deeper = frame.add_paragraph()
    deeper.text, deeper.level = "mostly", 1
    second.notes_slide.notes_text_frame.text = "Show the apple now."
    third = presentation.slides.add_slide(presentation.slide_layouts[6])
    table = third.shapes.add_table(2, 2, Inches(1), Inches(1), Inches(4), Inches(1)).table
    for at, text in enumerate(["Sort", "Price", "Boskoop", "1.20"]):
        table.cell(at // 2, at % 2).text = text
    third.shapes.add_textbox(
        Inches(1), Inches(3), Inches(2), Inches(1)
    ).text_frame.text = "Prices of 2024"
    presentation.core_properties.author = "Ann Author"
    return presentation


def test_a_slide_is_a_page_with_its_title_as_heading() -> None:
    parsed = read(saved(talk()), "a.pptx")
    assert parsed.metadata["slides"] == 3 and parsed.metadata["author"] == "Ann Author"
    assert page(parsed, 1) == "# Fruit\n\nA talk"
    assert page(parsed, 2) == "# Apples\n\n- red\n  - mostly\n\nNotes: Show the apple now."
    assert (
        page(parsed, 3) == "| Sort | Price |\n| --- | --- |\n| Boskoop | 1.20 |\n\nPrices of 2024"
    )


def test_the_title_is_that_of_the_properties_or_of_the_first_slide() -> None:
    presentation = talk()
    assert read(saved(presentation), "a.pptx").title == "Fruit"
    presentation.core_properties.title = "Fruit for Beginners"
    assert read(saved(presentation), "a.pptx").title == "Fruit for Beginners"


def test_an_empty_slide_still_counts() -> None:
    presentation = talk()
    presentation.slides.add_slide(presentation.slide_layouts[6])
    last = presentation.slides.add_slide(presentation.slide_layouts[5])
    last.shapes.title.text = "End"
    assert page(read(saved(presentation), "a.pptx"), 5) == "# End"


def test_slides_come_in_the_order_of_the_presentation_not_of_their_files() -> None:
    presentation = talk()
    order = presentation.slides._sldIdLst
    order.insert(0, order[2])
    assert page(read(saved(presentation), "a.pptx"), 1).startswith("| Sort")


def test_titles_come_first_and_other_shapes_in_the_order_of_the_slide() -> None:
    presentation = pptx.Presentation()
    shapes = presentation.slides.add_slide(presentation.slide_layouts[5]).shapes
    shapes.title.text = "Title"
    for text in ("one", "two"):
        shapes.add_textbox(0, 0, Inches(1), Inches(1)).text_frame.text = text
    shapes._spTree.append(shapes.title._element)  # drawn last
    assert read(saved(presentation), "a.pptx").text == "# Title\n\none\n\ntwo\n"


def test_text_in_grouped_shapes_is_found() -> None:
    presentation = pptx.Presentation()
    group = presentation.slides.add_slide(presentation.slide_layouts[6]).shapes.add_group_shape()
    group.shapes.add_textbox(0, 0, Inches(1), Inches(1)).text_frame.text = "inside"
    assert read(saved(presentation), "a.pptx").text == "inside\n"


def test_slides_of_pictures_have_no_text() -> None:
    presentation = pptx.Presentation()
    presentation.slides.add_slide(presentation.slide_layouts[6])
    with pytest.raises(NoText, match=r"^No text found in a\.pptx; its slides hold pictures only"):
        read(saved(presentation), "a.pptx")


def test_charts_alternative_texts_links_and_comments_are_kept() -> None:
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[5])
    slide.shapes.title.text = "Prices"
    data = CategoryChartData()
    data.categories = ["Boskoop", "Conference"]
    data.add_series("2024", (1.2, 3))
    data.add_series("2025", (1.4, 2.5))
    slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, 0, 0, 5_000_000, 3_000_000, data)
    picture = slide.shapes.add_picture(BytesIO(PNG), 0, 0)
    picture._element.nvPicPr.cNvPr.set("descr", "a basket of apples")
    paragraph = slide.shapes.add_textbox(0, 0, 900_000, 900_000).text_frame.paragraphs[0]
    paragraph.add_run().text = "see "
    run = paragraph.add_run()
    run.text, run.hyperlink.address = "the list", "https://fruit.example/list"
    raw = saved(presentation)
    rels = "ppt/slides/_rels/slide1.xml.rels"
    with zipfile.ZipFile(BytesIO(raw)) as archive:
        old = archive.read(rels)
    comment = (
        b'<p:cmLst xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main">'
        b"<p:cm authorId='0'><p:text>too cheap</p:text></p:cm></p:cmLst>"
    )
    relation = (
        b'<Relationship Id="rId99" Target="../comments/comment1.xml" Type="http://schemas.'
        b'openxmlformats.org/officeDocument/2006/relationships/comments"/></Relationships>'
    )
    raw = with_member(raw, rels, old.replace(b"</Relationships>", relation))
    text = read(with_member(raw, "ppt/comments/comment1.xml", comment), "a.pptx").text
    assert "|  | 2024 | 2025 |\n| --- | --- | --- |\n| Boskoop | 1.2 | 1.4 |" in text
    assert "[Image: a basket of apples]" in text
    assert "see [the list](https://fruit.example/list)" in text
    assert "Comment: too cheap" in text
