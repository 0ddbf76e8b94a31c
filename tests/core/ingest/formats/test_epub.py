from __future__ import annotations

import zipfile
from io import BytesIO

import pytest

from mcpvectordb.errors import ParseFailed
from tests.support_formats import epub, page, read, with_member, zipped

CONTENTS = (
    '<item id="n" href="n.xhtml" media-type="application/xhtml+xml" properties="nav"/></manifest>'
)


def test_tables_numbered_lists_headings_and_descriptions_survive() -> None:
    chapter = (
        "<h1>Part One</h1><h2>Fruit</h2><ol><li>Boskoop</li><li>Elstar</li></ol>"
        "<table><tr><th>Sort</th><th>Price</th></tr><tr><td>Boskoop</td><td>1.20</td></tr></table>"
        '<p><img src="a.png" alt="A drawing of an apple tree in bloom"/></p>'
    )
    assert read(epub(chapter), "a.epub").text == (
        "# Part One\n\n## Fruit\n\n1. Boskoop\n2. Elstar\n\n| Sort | Price |\n| --- | --- |\n"
        "| Boskoop | 1.20 |\n\n![A drawing of an apple tree in bloom]\n"
    )


@pytest.mark.parametrize("chapter", [
    "<p>Kept<a id='x'/> whole.</p><div/><p>And&nbsp;more.</p>", "<p>Kept whole.<p>And more.", "<p>Kept whole.</p><br><p>And more.</b>",
])  # fmt: skip
def test_a_chapter_is_read_whether_it_is_well_formed_or_not(chapter: str) -> None:
    assert read(epub(chapter), "a.epub").text == "Kept whole.\n\nAnd more.\n"


def test_the_table_of_contents_names_chapters_without_a_heading_and_is_no_chapter() -> None:
    raw = epub("<p>It began.</p>", "<h2>Own</h2><p>It ended.</p>")
    package = (
        zipfile.ZipFile(BytesIO(raw)).read("book.opf").decode().replace("</manifest>", CONTENTS)
    )
    package = package.replace("<spine>", '<spine><itemref idref="n"/>')
    links = "<a href='c0.xhtml#a'>The Opening</a><a href='c1.xhtml'>The End</a>"
    raw = with_member(with_member(raw, "book.opf", package.encode()), "n.xhtml", links.encode())
    parsed = read(raw, "a.epub")
    assert len(parsed.pages) == 2
    assert page(parsed, 1).strip() == "# The Opening\n\nIt began."
    assert page(parsed, 2).strip() == "## Own\n\nIt ended."


def test_a_book_without_its_list_of_chapters_is_damaged() -> None:
    raw = zipped({"META-INF/container.xml": "<container/>"})
    with pytest.raises(ParseFailed, match=r"^a\.epub is damaged: its list of chapters"):
        read(raw, "a.epub")
