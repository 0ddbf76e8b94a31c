from __future__ import annotations

import pytest

from mcpvectordb.errors import NoText, ParseFailed
from tests.support_formats import read

WORDS = (
    "The harbour was quiet that morning, and the boats lay still upon the water while the men "
    "mended their nets. "
)
NEWS = f"""<!doctype html><html lang="en-GB"><head><title>Quiet harbour — The Gazette</title>
<meta name="description" content="A morning at the harbour."><link rel="canonical" href="https://example.org/harbour">
<meta property="article:published_time" content="2024-05-01T08:00:00Z">
<script type="application/ld+json">{{"@type": "NewsArticle", "dateModified": "2024-05-02"}}</script>
<style>p {{ color: red }}</style></head><body>
<div id="cookie-banner">We use cookies to improve your experience. <button>Accept all</button></div>
<header><a href="/">The Gazette</a><nav><ul><li><a href="/news">News</a><li><a href="/sport">Sport</a></ul></nav></header>
<main><article><header><h1>Quiet harbour</h1><p class="byline">By Ann Author</p></header>
<p>{WORDS}</p><h2>The boats</h2><p>{WORDS}See <a href="/nets">how nets are mended</a>.</p>
<ul><li>one boat<li>two boats<ul><li>a small one</ul></ul>
<form><input name="q"><label>Subscribe to our newsletter</label></form>
<aside>Read more: ten harbours you must see</aside></article></main>
<div class="sidebar"><p>Most read stories today</p></div>
<footer>© 2024 The Gazette. Imprint. Privacy.</footer><script>track("everything")</script></body></html>"""


def body(*parts: str) -> str:
    """The text of a page with this body."""
    return read(f"<html><body>{''.join(parts)}</body></html>", "a.html").text


def test_the_content_is_kept_without_boilerplate_and_metadata_comes_from_the_head() -> None:
    parsed = read(NEWS, "a.html")
    assert parsed.text == (
        f"# Quiet harbour\n\n{WORDS.strip()}\n\n## The boats\n\n{WORDS}"
        "See how nets are mended.\n\n- one boat\n- two boats\n  - a small one\n"
    )
    assert parsed.title == "Quiet harbour — The Gazette"
    assert parsed.metadata == {
        "description": "A morning at the harbour.",
        "language": "en-GB",
        "author": "Ann Author",
        "canonical_url": "https://example.org/harbour",
        "published": "2024-05-01T08:00:00Z",
        "modified": "2024-05-02",
    }


def test_a_page_without_marked_content_is_read_completely() -> None:
    table = f"<table><tr><td>{WORDS}</td></tr></table>"
    text = body(f"<div><h1>Head</h1><div>{WORDS}</div>{table}</div>")
    assert text.count("The harbour was quiet") == 2 and text.startswith("# Head")


@pytest.mark.parametrize("wrapper", [
    '<form id="aspnetForm">', '<div class="sidebar">', '<div style="display: none">', "<aside>", '<div id="cookies">', "<footer>",
    '<div role="dialog">', "<nav>", '<div aria-hidden="true">',
])  # fmt: skip
def test_an_element_with_most_of_the_text_is_never_boilerplate(wrapper: str) -> None:
    tag = wrapper[1:].split()[0].strip(">")
    assert WORDS * 2 in body(f"<p>Short.</p>{wrapper}<p>{WORDS * 3}</p></{tag}>")


def test_a_section_about_cookies_is_not_a_cookie_banner() -> None:
    text = body(
        f'<h1 id="menu">Menus</h1><p>{WORDS * 4}</p>',
        '<section id="cookies"><h2 id="cookies">Cookies</h2><p>Baked.</p></section>',
        '<div class="section" id="navigation"><h2>Navigation</h2><p>By stars.</p></div>',
    )
    assert text.startswith("# Menus")
    assert "## Cookies\n\nBaked." in text and "## Navigation\n\nBy stars." in text


def test_lists_of_links_are_left_out_like_menus_unless_the_page_consists_of_them() -> None:
    links = [f'<li><a href="/{n}">Section {n}</a></li>' for n in range(30)]
    text = body("<ul>", *links[:8], "</ul>", f"<p>{WORDS * 5}</p>")
    assert "Section" not in text and text.startswith("The harbour")
    assert body("<h1>Index</h1><ul>", *links, "</ul>").count("- Section") == 30


def test_a_headline_outside_of_the_content_is_kept() -> None:
    headline = "<header><h1>Head <i>line</i></h1></header>"
    parsed = read(f"<html><body>{headline}<main><p>{WORDS}</p></main></body></html>", "a.html")
    assert parsed.text.startswith("# Head line\n\nThe harbour")
    assert parsed.title == "Head line"


def test_tables_become_markdown_with_spans_filled() -> None:
    html = """<table><caption>Stock</caption><tr><th>Fruit<th>Kind<th>Price</tr>
<tr><td rowspan=2>Apple<td>red<td>1 | 2</tr><tr><td>green<td>3</tr><tr><td colspan=2>Pear<td>4</table>"""
    assert body(f"<p>{WORDS}</p>", html).endswith(
        "\n\nStock\n\n| Fruit | Kind | Price |\n| --- | --- | --- |\n| Apple | red | 1 \\| 2 |\n"
        "| Apple | green | 3 |\n| Pear |  | 4 |\n"
    )


def test_text_between_the_cells_of_a_table_is_kept() -> None:
    html = "<table>zero<tr><td>a</td>one<td>b</td></tr>two<tr>three<td>c</td></tr>four</table>"
    text = body(f"<p>{WORDS}</p>", html)
    assert all(word in text for word in "zero a one b two three c four".split())


def test_a_layout_table_is_not_written_as_a_table() -> None:
    data = "<table><tr><td>a</td><td>b</td></tr><tr><td>c</td><td>d</td></tr></table>"
    layout = f"<table><tr><td><h1>Head</h1><p>{WORDS}</p></td><td>{data}</td></tr></table>"
    assert body(layout) == f"# Head\n\n{WORDS.strip()}\n\n| a | b |\n| --- | --- |\n| c | d |\n"


def test_code_is_fenced_with_its_language_and_line_breaks() -> None:
    code = '<code class="language-python">def <b>f</b>():\n    return 1</code>'
    assert (
        body(f"<p>Use <code>f()</code>:</p><pre>{code}</pre>")
        == "Use `f()`:\n\n```python\ndef f():\n    return 1\n```\n"
    )


@pytest.mark.parametrize(("image", "found"), [
    ('<img alt="A chart of sales by year">', "![A chart of sales by year]"), ('<img alt="logo">', ""), ("<img>", ""),
    ('<figure><a href="/x"><img alt="A chart of sales by year"></a></figure>', "![A chart of sales by year]"),
    ('<figure><img alt="A chart of sales by year"><figcaption>Sales</figcaption></figure>', "Sales"),
    ('<p>Drawn for <img alt="A portrait of Ann the author"> Ann</p>', "Drawn for  Ann"), ('<img alt="港の工房の写真">', "![港の工房の写真]"),
])  # fmt: skip
def test_an_image_that_stands_alone_is_there_with_its_description(image: str, found: str) -> None:
    text = body(f"<p>{WORDS}</p>{image}<p>{WORDS}</p>")
    assert " ".join(text.replace(WORDS.strip(), "").split()) == " ".join(found.split())


def test_quotations_line_breaks_numbered_lists_and_what_looks_like_a_heading() -> None:
    quotation = "<blockquote><p>To be</p><footer>W. S.</footer></blockquote>"
    text = body(quotation, "<p>a<br>b</p><ol start=3><li>c<li>d</ol><p># not a heading</p>")
    assert text == "> To be\n\n> W. S.\n\na\nb\n\n3. c\n4. d\n\n\\# not a heading\n"


@pytest.mark.parametrize(("head", "encoding", "media_type"), [
    ("", "latin-1", "text/html; charset=ISO-8859-1"), ('<meta charset="windows-1252">', "cp1252", "text/html"),
    ("", "utf-8", "text/html; charset=latin-1"), ("", "utf-16", ""),
    ('<meta http-equiv="Content-Type" content="text/html; charset=utf-8">', "utf-8", ""),
])  # fmt: skip
def test_the_charset_comes_from_bytes_header_or_page(
    head: str, encoding: str, media_type: str
) -> None:
    raw = f"<html><head>{head}</head><body><p>Größe und Maß</p></body></html>".encode(encoding)
    if "utf-8" in head:
        raw += b"\xff"  # is replaced where UTF-8 is declared
    assert "Größe und Maß" in read(raw, "a.html", media_type).text


def test_a_page_is_recognised_by_its_content_and_by_its_media_type() -> None:
    assert read("<!DOCTYPE html><title>T</title><p>text", "page.pdf").title == "T"
    assert read("<p>text</p>", "page", "text/html; charset=utf-8").text == "text\n"


def test_thousands_of_nested_elements_fail_clearly() -> None:
    with pytest.raises(ParseFailed, match=r"^a\.html has elements nested more than two thousand"):
        body("<div>" * 100_000, "deep", "</div>" * 100_000)
    for tag in ("div", "ul><li", "blockquote", "b", "table><tr><td"):
        assert "deep" in body("<p>text</p>", f"<{tag}>" * 300, "deep")


@pytest.mark.long
def test_a_large_table_is_read_completely() -> None:
    row = "<tr><td>row {0}</td><td>value {0}</td><td><a href='/{0}'>link</a></td></tr>"
    rows = map(row.format, range(20_000))
    assert body("<table><tr><th>a<th>b<th>c</tr>", *rows, "</table>").count("| row") == 20_000


def test_external_entities_are_not_read() -> None:
    html = (
        '<?xml version="1.0"?><!DOCTYPE html [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
        "<html><body><p>a &x; b</p></body></html>"
    )
    assert "root:" not in read(html, "a.xhtml").text


@pytest.mark.parametrize(
    "raw", ["<html></html>", "<html><body><script>x()</script></body></html>", "<!doctype html>"]
)
def test_a_page_without_text_raises_no_text(raw: str) -> None:
    with pytest.raises(NoText, match=r"^No text found in a\.html"):
        read(raw, "a.html")


def test_a_truncated_page_keeps_its_text() -> None:
    text = read(NEWS[: NEWS.index("<ul><li>one boat")], "a.html").text
    assert "how nets are mended" in text
