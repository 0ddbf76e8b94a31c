from __future__ import annotations

import pytest

from mcpvectordb.errors import ParseFailed
from tests.support_formats import read

HEAD = '<?xml version="1.0" encoding="UTF-8"?>'


def test_records_are_lines_of_element_and_text() -> None:
    raw = HEAD + (
        '<stock><item id="1"><sort>Boskoop</sort><price>1.20</price></item>'
        '<item id="2"><sort>Pear</sort></item></stock>'
    )
    assert read(raw, "a.xml").text == "id: 1\nsort: Boskoop\nprice: 1.20\n\nid: 2\nsort: Pear\n"


def test_titles_become_headings_of_their_depth() -> None:
    raw = HEAD + (
        "<book><title>Fruit</title><chapter><title>Apples</title><para>Apples are "
        "<b>red</b>.</para></chapter>"
        "<chapter><title>Pears</title><para>Pears are green.</para></chapter></book>"
    )
    parsed = read(raw, "a.xml")
    assert (
        parsed.text
        == "# Fruit\n\n## Apples\n\npara: Apples are red.\n\n## Pears\n\npara: Pears are green.\n"
    )
    assert parsed.title == "Fruit"


def test_the_items_of_a_feed_are_sections() -> None:
    raw = (
        HEAD
        + """<rss version="2.0"><channel><title>News</title><item><title>One</title><link>http://a.example/1</link>
<description><![CDATA[Something <b>happened</b>.]]></description></item></channel></rss>"""
    )
    text = read(raw, "feed.rss").text
    assert (
        "## News" in text
        and "### One" in text
        and "link: http://a.example/1" in text
        and "happened" in text
    )


def test_mixed_content_becomes_a_paragraph() -> None:
    assert (
        read(HEAD + "<p>one <i>two</i> <b>three</b> four</p>", "a.xml").text
        == "p: one two three four\n"
    )


def test_namespaces_are_not_shown() -> None:
    raw = HEAD + '<a:x xmlns:a="urn:one" xmlns:b="urn:two"><a:y b:z="attribute">text</a:y></a:x>'
    assert read(raw, "a.xml").text == "y (z: attribute): text\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1"])
def test_the_declared_encoding_is_used(encoding: str) -> None:
    raw = f'<?xml version="1.0" encoding="{encoding}"?><a>Größe</a>'.encode(encoding)
    assert read(raw, "a.xml").text == "a: Größe\n"


BILLION_LAUGHS = (
    '<!DOCTYPE x [<!ENTITY l0 "lol">'
    + "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    + "]><x>&l9;</x>"
)


@pytest.mark.parametrize(
    "hostile",
    [
        BILLION_LAUGHS,
        '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><x>&e;</x>',
        '<!DOCTYPE x [<!ENTITY % p SYSTEM "http://127.0.0.1/x.dtd"> %p;]><x>a</x>',
        f'<!DOCTYPE x [<!ENTITY big "{"a" * 50_000}">]><x>{"&big;" * 5000}</x>',
        '<!DOCTYPE x [<!ENTITY e "<y>markup</y>">]><x>&e;</x>',
        '<!DOCTYPE x [<!ENTITY % p "text"> ]><x>a</x>',
    ],
)
def test_entities_are_refused(hostile: str) -> None:
    with pytest.raises(ParseFailed, match=r"^a\.xml declares XML entities"):
        read(HEAD + hostile, "a.xml")


def test_short_internal_entities_are_expanded() -> None:
    raw = (
        '<!DOCTYPE x [<!ENTITY name "The Fruit Office"><!ENTITY lt "&#38;#60;">'
        '<!ENTITY nbsp "&#160;">]><x a="&name;">by &name;,&nbsp;1 &lt; 2</x>'
    )
    assert read(HEAD + raw, "a.xml").text == "x (a: The Fruit Office): by The Fruit Office, 1 < 2\n"


def test_an_external_document_type_is_not_fetched() -> None:
    assert (
        read(HEAD + '<!DOCTYPE x SYSTEM "http://127.0.0.1:1/x.dtd"><x>text</x>', "a.xml").text
        == "x: text\n"
    )


def test_deep_nesting_fails_clearly() -> None:
    with pytest.raises(ParseFailed, match=r"a\.xml has elements nested more than 1000 deep"):
        read(HEAD + "<a>" * 100_000 + "x" + "</a>" * 100_000, "a.xml")


@pytest.mark.parametrize(
    "raw", [HEAD + "<a><b>text</a>", HEAD + "<a>text", HEAD + "<a>&unknown;</a>", "plain"]
)
def test_xml_that_is_not_well_formed_fails_clearly(raw: str) -> None:
    with pytest.raises(ParseFailed, match=r"^a\.xml is not well-formed XML"):
        read(raw, "a.xml")
