from __future__ import annotations

import base64
from pathlib import Path

import pymupdf

from mcpvectordb import Image
from tests.web.support_page import Looker


def _open(looker: Looker, query: str, place: str) -> None:
    looker.search(query)
    looker.wait(".hit", place).locator(".hit-link").click()
    looker.wait(".reading .prose > *")


def test_markdown_has_its_structure_and_nothing_is_loaded_for_it(looker: Looker) -> None:
    _open(looker, "green tea sencha", "notes/drinks/tea.md")
    text = looker.find(".prose")
    assert looker.find("h1").text_content() == "Tea"
    assert text.locator("h2.level-1").count() == 0  # the title stands above the text already
    assert text.locator("strong").first.text_content() == "eighty degrees"
    assert text.locator("p code").text_content() == "sencha"
    assert text.locator("th").all_text_contents() == ["kind", "minutes"]
    assert text.locator("td.end").all_text_contents() == ["2", "4"]
    assert text.locator("ol > li").count() == 2
    assert text.locator("ol ul > li").count() == 2
    assert text.locator("blockquote").text_content() == "A quotation about tea."
    assert text.locator("pre.code").text_content() == "def brew(minutes): ..."
    link = text.locator("a.outwards")
    assert link.get_attribute("href") == "https://example.org/tea"
    assert (link.get_attribute("rel"), link.get_attribute("target")) == (
        "noopener noreferrer",
        "_blank",
    )
    assert link.get_attribute("title") == "https://example.org/tea"
    assert text.locator(".image").text_content() == "image a pot"
    assert text.locator("img").count() == 0


def test_the_cited_passage_is_marked_in_sight_and_its_neighbours_are_one_step_away(
    looker: Looker,
) -> None:
    _open(looker, "long report subject 650", "reports/long.md")
    assert looker.wait("mark.cited").is_visible()
    looker.until(
        "(box => box.top > 0 && box.bottom < innerHeight)(document.querySelector('mark.cited mark').getBoundingClientRect())"
    )
    assert "650" in looker.find("mark.cited mark").all_text_contents()
    before = looker.find(".bar-place").text_content()
    looker.page.keyboard.press("n")
    looker.until("document.querySelector('.bar-place').textContent !== it", before)
    looker.page.keyboard.press("p")
    looker.until("document.querySelector('.bar-place').textContent === it", before)
    address = looker.page.url
    looker.page.reload()
    looker.wait("mark.cited")
    assert (looker.page.url, looker.find(".bar-place").text_content()) == (address, before)
    looker.button("Do not mark a passage").click()
    looker.until("!document.querySelector('mark.cited')")


def test_long_texts_are_read_in_parts(looker: Looker) -> None:
    _open(looker, "long report subject 650", "reports/long.md")
    assert looker.find(".prose h3", "Part 2").count() == 0
    looker.button("Show earlier lines", exact=False).click()
    looker.until(
        "[...document.querySelectorAll('.prose h3')].some(each => each.textContent === 'Part 450')"
    )
    looker.find("#tab-about").click()
    looker.button("Part 3", exact=True).click()
    looker.until("document.querySelector('.prose h3')?.textContent === 'Part 3'")
    looker.button("Show more", exact=False).click()
    looker.until(
        "[...document.querySelectorAll('.prose h3')].some(each => each.textContent === 'Part 300')"
    )


def test_passages_are_shown_as_the_index_has_them_with_what_is_similar(looker: Looker) -> None:
    _open(looker, "green tea sencha", "notes/drinks/tea.md")
    looker.find("#tab-passages").click()
    assert looker.wait(".chunks [aria-current]", "lines").is_visible()
    looker.find("#tab-passages").focus()
    looker.page.keyboard.press("ArrowRight")
    assert looker.wait(".panel .brief", "notes/copy.md").locator(".duplicate").count() == 1
    looker.find(".panel .brief", "notes/copy.md").locator("a").click()
    looker.wait(".head-facts", "notes/copy.md")


def test_what_is_known_of_a_document_stands_beside_it(looker: Looker) -> None:
    _open(looker, "green tea sencha", "notes/drinks/tea.md")
    looker.find("#tab-about").click()
    facts = looker.find("[data-panel=about]").text_content() or ""
    assert all(each in facts for each in ("drinks/tea.md", "SHA-256", "year", "2025", "Passages"))
    looker.find(".outline button", "Storage").click()
    looker.until(
        "Math.abs(document.querySelectorAll('.prose h3')[1].getBoundingClientRect().top) < 200 || scrollY > 0"
    )


def test_a_citation_is_copied(looker: Looker) -> None:
    looker.memory.grant_permissions(["clipboard-read", "clipboard-write"])
    _open(looker, "green tea sencha", "notes/drinks/tea.md")
    looker.button("Copy citation").click()
    looker.wait(".notice", "Copied")
    copied = looker.page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("Tea, lines ") and copied.endswith("(drinks/tea.md)")


def test_code_keeps_its_lines(looker: Looker) -> None:
    _open(looker, "def brew return", "code/brew.py")
    assert looker.find(".program-line").nth(1).get_attribute("data-line") == "2"
    assert looker.find(".program-line").nth(1).text_content() == "    return 'tea'\n"


def test_chinese_is_found_marked_and_set_as_chinese(looker: Looker) -> None:
    _open(looker, "绿茶", "notes/茶.md")
    assert "绿茶" in (looker.find(".prose").text_content() or "")
    assert looker.find(".prose mark mark").first.text_content() in ("绿茶", "绿", "茶")
    assert looker.find(".prose").get_attribute("lang") == "zh"
    looker.go("#/memory/1")
    looker.wait(".prose strong", "buy")
    assert looker.find(".prose").get_attribute("lang") == ""  # not the page's English: unknown


def test_a_memory_is_read_edited_and_deleted(writer: Looker) -> None:
    writer.search("mint shed")
    writer.wait(".hit", "garden").locator(".hit-link").click()
    assert writer.wait(".prose mark").is_visible()
    writer.button("Edit").click()
    writer.page.locator("dialog textarea").first.fill("Mint grows in the **bed**.")
    writer.page.get_by_label("Tags, with commas between them").fill("plants, herbs")
    writer.page.get_by_label("Metadata, as JSON").fill("[1]")
    writer.button("Save").click()
    writer.wait("dialog .bad", "must be an object")
    writer.page.get_by_label("Metadata, as JSON").fill('{"row": 3}')
    writer.button("Save").click()
    writer.wait(".prose strong", "bed")
    assert writer.find(".head-facts .chip").all_text_contents() == ["herbs", "plants"]
    writer.button("Delete").click()
    writer.wait("dialog", "1 memory")
    writer.button("Cancel").click()
    assert writer.served.db.stats().memories == 3
    writer.button("Delete").click()
    writer.button("Delete 1 memory").click()
    writer.wait(".notice", "1 memory deleted")
    assert writer.served.db.stats().memories == 2


def test_a_document_is_edited_and_deleted_and_says_what_that_does(writer: Looker) -> None:
    writer.search("coffee ninety")
    writer.wait(".hit", "notes/drinks/coffee.txt").locator(".hit-link").click()
    writer.button("Edit").click()
    writer.page.get_by_label("Title").fill("About coffee")
    writer.page.get_by_label("Metadata, as JSON").fill('{"kind": "drink"}')
    writer.button("Save").click()
    writer.wait("h1", "About coffee")
    [document] = writer.served.db.documents.browse(where={"title": "About coffee"})
    assert document.metadata == {"kind": "drink"}
    writer.button("Delete").click()
    said = writer.wait("dialog").text_content() or ""
    assert (
        "the files and pages they came from stay as they are" in said
        and "notes/drinks/coffee.txt" in said
    )
    writer.button("Delete 1 document").click()
    writer.wait(".notice", "1 document deleted")
    assert writer.served.db.stats().documents == 5


def test_what_others_delete_while_it_is_read_says_so(writer: Looker) -> None:
    documents = writer.served.db.documents
    document = documents.ingest_text("Soon gone.", source="gone.md").document
    writer.expected = ("Failed to load resource",)  # 404
    writer.go(f"#/document/{document.id}")
    writer.wait(".prose", "Soon gone.")
    documents.delete(document.id)
    writer.wait(".reading-head .gone", "deleted while you read it")
    assert writer.find(".prose", "Soon gone.").is_visible()


def test_the_history_of_a_document_shows_its_changes_and_takes_one_back(writer: Looker) -> None:
    db = writer.served.db
    db.documents.ingest_text("The kettle is blue.", source="kettle.md", title="Kettle")
    changed = ["The kettle is green.", "The pot is new."]  # in one change, of which it has a part
    db.documents.ingest_many(changed, sources=["kettle.md", "pot.md"], titles=["Kettle", "Pot"])
    [kettle] = db.documents.browse(where=[("source", "eq", "kettle.md")])
    writer.go(f"#/document/{kettle.id}")
    writer.wait(".prose > *", "green")
    writer.find("#tab-history").click()
    row = writer.wait(".changes li", "replaced").first
    row.get_by_role("button", name="Differences").click()
    shown = writer.wait(".diff", "kettle").first.text_content() or ""
    assert "+The kettle is green." in shown and "pot" not in shown
    row.get_by_role("button", name="Undo").click()
    writer.until(
        "[...document.querySelectorAll('.prose > *')].some((e) => e.textContent.includes('blue'))"
        " || location.hash === '#/search'"
    )
    [kettle] = db.documents.browse(where=[("source", "eq", "kettle.md")])
    assert db.documents.text(kettle.id) == "The kettle is blue."


def test_the_images_of_a_memory_are_shown(writer: Looker) -> None:
    dot = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAAAAAAALAAAAAABAAEAAAIBRAA7")
    kept = writer.served.db.memories.add(
        "kitchen", "user", "a dot", images=[Image(mime_type="image/gif", data=dot)]
    )
    writer.go(f"#/memory/{kept.id}")
    writer.wait("figure img")
    writer.until("document.querySelector('figure img').naturalWidth === 1")


def test_a_table_is_sorted_by_its_headings(writer: Looker) -> None:
    text = "| kind | grams |\n|---|--:|\n| oolong | 1,200 |\n| black | 90 |\n| green | 400 |\n"
    stored = writer.served.db.documents.ingest_text(text, source="stock.md")
    writer.go(f"#/document/{stored.document.id}")
    writer.wait(".prose th")
    cells = writer.find(".prose td:first-child")
    writer.button("grams").click()
    assert cells.all_text_contents() == ["black", "green", "oolong"]
    writer.button("grams").click()
    assert cells.all_text_contents() == ["oolong", "green", "black"]
    writer.button("kind").click()
    assert cells.all_text_contents() == ["black", "green", "oolong"]


def test_the_title_and_the_way_back_stay_in_one_bar(looker: Looker) -> None:
    _open(looker, "long report subject 650", "reports/long.md")
    looker.until("document.querySelector('.reading-bar').classList.contains('scrolled')")
    assert looker.find(".bar-title").text_content() == looker.find("h1").text_content()
    assert looker.button("Results").is_visible()


def _report(*colours: tuple[float, float, float]) -> bytes:
    """A PDF with a page of text for each colour."""
    document = pymupdf.open()
    for number, colour in enumerate(colours, 1):
        page = document.new_page(width=300, height=400)
        page.draw_rect(page.rect, fill=colour, color=None)
        text = f"Chapter {number} is about subject{number}. " + "It goes on and on. " * 40
        page.insert_textbox(pymupdf.Rect(20, 20, 280, 380), text, fontsize=9)
    return bytes(document.tobytes())


RED, GREEN, BLUE = (1, 0, 0), (0, 1, 0), (0, 0, 1)
# The colour near the picture's lower right corner, as the browser has decoded it.
CORNER = """(() => {
    const image = document.querySelector('.sheet img');
    if (!image?.complete || !image.naturalWidth) return null;
    const canvas = new OffscreenCanvas(1, 1).getContext('2d');
    canvas.drawImage(image, 20 - image.naturalWidth, 20 - image.naturalHeight);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map(each => Math.round(each / 255)).join();
})()"""


def test_the_page_of_a_pdf_stands_beside_its_text_and_both_follow_each_other(
    writer: Looker, tmp_path: Path
) -> None:
    file = tmp_path / "report.pdf"
    file.write_bytes(_report(RED, GREEN, BLUE))
    writer.served.db.documents.ingest(file)
    _open(writer, "subject2", "report.pdf")
    writer.until(f"{CORNER} === '0,1,0'")  # the cited page
    assert writer.find(".original-place").text_content() == "Page 2 of 3"
    assert "Page 2 of 3" in (writer.find(".sheet img").get_attribute("alt") or "")
    # Next to the text, not below it.
    text, sheet = (writer.find(each).bounding_box() for each in (".reading-text", ".sheet"))
    assert text and sheet and sheet["x"] >= text["x"] + text["width"]
    assert sheet["y"] < 800
    writer.page.keyboard.press("]")
    writer.until(f"{CORNER} === '0,0,1'")
    assert writer.find(".original-bar [title^=Next]").is_disabled()
    writer.until("scrollY > 0")
    writer.page.evaluate("scrollTo(0, 0)")
    writer.until(f"{CORNER} === '1,0,0'")  # the text is at its first page again
    writer.page.keyboard.press("n")  # the passage after the cited one
    writer.until("document.querySelector('.original-place').textContent !== 'Page 1 of 3'")
    writer.button("Enlarge").click()
    writer.until("document.querySelector('.sheet img').naturalHeight > 1400")


def test_on_a_phone_text_and_page_are_a_switch(writer: Looker, tmp_path: Path) -> None:
    file = tmp_path / "report.pdf"
    file.write_bytes(_report(RED, GREEN))
    writer.served.db.documents.ingest(file)
    writer.page.set_viewport_size({"width": 390, "height": 844})
    _open(writer, "subject2", "report.pdf")
    assert writer.find(".reading-text").is_visible() and not writer.find(".sheet").is_visible()
    writer.find("#tab-original").click()
    writer.until(f"{CORNER} === '0,1,0'")
    assert not writer.find(".reading-text").is_visible()
    box = writer.find(".sheet img").bounding_box()
    assert box and box["x"] >= 0 and box["x"] + box["width"] <= 390


def test_a_picture_is_shown_and_a_file_that_changed_or_is_gone_is_named(
    writer: Looker, tmp_path: Path
) -> None:
    writer.expected = ("422",)
    documents = writer.served.db.documents
    file = tmp_path / "report.pdf"
    file.write_bytes(_report(GREEN))
    gone = documents.ingest(file).document
    writer.go(f"#/document/{gone.id}")
    writer.until(f"{CORNER} === '0,1,0'")
    assert writer.find("#tab-original").text_content() == "Original"
    assert not writer.find(".original-bar [title^=Next]").is_visible()
    for change, words in (
        (lambda: file.write_bytes(_report(RED, BLUE)), "was changed since it was read"),
        (file.unlink, "is gone: it was moved or deleted"),
    ):
        change()
        writer.page.reload()
        writer.wait(".facts", "SHA-256")  # not the page that cannot be drawn
        writer.find("#tab-original").click()
        assert writer.wait(".sheet .warn", words)
    writer.go("#/search?q=coffee")
    writer.wait(".hit", "coffee.txt").locator(".hit-link").click()
    writer.wait(".reading .prose > *")
    writer.until("!document.querySelector('#tab-original')")  # a text has no page to show


HTML_TABLE = """# Options

<table>
<tr><th>name</th><th>minutes</th></tr>
<tr><td><b>green</b></td><td>2</td></tr>
<tr><td>black <a href="https://example.org/b">leaf</a></td><td>14</td></tr>
<tr><td><script>window.__xss = 1</script></td><td>3</td></tr>
</table>

```sh
brew --with-care and --in-time
```
"""


def test_a_table_of_html_is_a_table_that_sorts_and_options_are_no_keywords(writer: Looker) -> None:
    document = writer.served.db.documents.ingest_text(HTML_TABLE, source="o.md").document
    writer.go(f"#/document/{document.id}")
    table = writer.wait(".prose table")
    assert table.locator("th").all_text_contents() == ["name", "minutes"]
    assert table.locator("td.end").all_text_contents() == ["2", "14", "3"]
    assert table.locator("td b, td strong").text_content() == "green"
    assert table.locator("a.outwards").get_attribute("href") == "https://example.org/b"
    assert table.locator("script").count() == 0
    writer.find(".sort", "minutes").click()
    assert table.locator("td.end").all_text_contents() == ["2", "3", "14"]
    keywords = writer.find("pre .keyword, pre [class*=keyword]").all_text_contents()
    assert keywords == ["and"]
