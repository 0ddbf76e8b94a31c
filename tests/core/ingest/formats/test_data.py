from __future__ import annotations

import csv
import json
from io import StringIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.errors import NoText, ParseFailed
from mcpvectordb.ingest.formats.data import delimiter, parse_csv, parse_json
from mcpvectordb.ingest.formats.markdown import MOST_COLUMNS
from tests.support_formats import read, source

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@pytest.mark.parametrize(("name", "raw"), [
    ("a.csv", ""), ("a.csv", "\n\n"), ("a.csv", ",,\n,,\n"), ("a.json", "{}"), ("a.json", "[]"), ("a.json", '""'),
    ("a.json", "  "),
])  # fmt: skip
def test_data_without_values_has_no_text(name: str, raw: str) -> None:
    with pytest.raises((NoText, ParseFailed), match=name):
        read(raw, name)


# --- CSV


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_rows_are_a_table_below_the_names_of_its_columns(mark: str) -> None:
    rows = ["Sort¦Price¦Note", "Boskoop¦1.20¦", 'Pear¦3¦"soft, sweet; good"', ""]
    parsed = read("\n".join(rows).replace("¦", mark), "a.csv")
    assert parsed.text == (
        "| Sort | Price | Note |\n| --- | --- | --- |\n| Boskoop | 1.20 |  |\n"
        "| Pear | 3 | soft, sweet; good |\n"
    )
    assert parsed.metadata == {"columns": ["Sort", "Price", "Note"], "rows": 2}
    assert parsed.title == "a.csv"


@pytest.mark.parametrize(("raw", "text"), [
    ("1,2\n3,4\n", "|  |  |\n| --- | --- |\n| 1 | 2 |\n| 3 | 4 |\n"),  # without a header
    (",name\n0,Ann\n", "|  | name |\n| --- | --- |\n| 0 | Ann |\n"),  # an unnamed column
    ("Region,2019,2020\nNorth,1,2\n", "| Region | 2019 | 2020 |\n| --- | --- | --- |\n| North | 1 | 2 |\n"),
    ('name,text\nAnn,"one\r\ntwo"\r\n', "| name | text |\n| --- | --- |\n| Ann | one two |\n"),
    ("a,b\n1\n1,2,3\n", "| a | b |  |\n| --- | --- | --- |\n| 1 |  |  |\n| 1 | 2 | 3 |\n"),  # shorter and longer rows
    ("Größe;Maß\ngroß;schön\n".encode("cp1252"), "| Größe | Maß |\n| --- | --- |\n| groß | schön |\n"),
    ("a\tb\nx\ty\n".encode("utf-16"), "| a | b |\n| --- | --- |\n| x | y |\n"),
    ("name\nAnn\nBob\n", "name\nAnn\nBob\n"),  # one column
])  # fmt: skip
def test_cells_are_kept_in_every_kind_of_table(raw: str | bytes, text: str) -> None:
    assert read(raw, "a.csv").text == text


@given(
    st.lists(st.lists(st.text('abc ,;\t|"\n', max_size=5), min_size=3, max_size=3), min_size=4),
    st.sampled_from(",;\t|"),
)
def test_every_cell_is_in_the_text(rows: list[list[str]], mark: str) -> None:
    out = StringIO()
    csv.writer(out, delimiter=mark, quoting=csv.QUOTE_ALL).writerows(
        [["one", "two", "three"], *rows]
    )
    assert delimiter(out.getvalue()) == mark
    try:
        text = parse_csv(source(out.getvalue(), "a.csv")).text
    except NoText:
        assert not "".join(map("".join, rows)).strip()
        return
    written = text.replace("\\|", "|")
    assert all(" ".join(cell.split()) in written for row in rows for cell in row)


def test_rows_with_long_texts_are_records_with_the_names_of_their_columns() -> None:
    words = "The boats lay still upon the water while the men mended their nets. " * 5
    parsed = read(f"name,said,,n\nAnn,{words},more,\n", "a.csv")
    assert parsed.text == f"name: Ann\nsaid: {words.strip()}\nmore\n"


def test_a_table_of_very_many_columns_is_refused_with_their_number() -> None:
    assert read("x," * (MOST_COLUMNS - 1) + "x\n", "a.csv").metadata["rows"] == 1
    with pytest.raises(ParseFailed, match=f"has {MOST_COLUMNS + 1} columns.* turn its columns"):
        read("x," * MOST_COLUMNS + "x\n", "a.csv")


# --- JSON


def test_plain_values_come_first_and_nested_ones_under_headings() -> None:
    server = {"host": "localhost", "ports": [80, 443], "tls": {"on": True}}
    parsed = read(json.dumps({"title": "Config", "server": server, "debug": None}), "a.json")
    assert parsed.title == "Config" and parsed.text == (
        "title: Config\ndebug: null\n\n"
        "# server\n\nhost: localhost\nports: 80, 443\n\n## tls\n\non: true\n"
    )


def test_the_records_of_a_list_are_separate_blocks() -> None:
    ann, bob = (
        {"name": "Ann", "address": {"city": "Oslo"}},
        {"name": "Bob", "pets": [{"kind": "cat"}]},
    )
    parsed = read(json.dumps([ann, bob]), "people.json")
    assert parsed.text == "name: Ann\naddress.city: Oslo\n\nname: Bob\npets[0].kind: cat\n"
    assert parsed.title == "people.json"


@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "a.json"])
def test_each_line_of_json_lines_is_a_record(name: str) -> None:
    assert read('{"n": 1}\n\n{"n": 2}\n', name).text == "n: 1\n\nn: 2\n"


@pytest.mark.parametrize(("raw", "message"), [
    ('{"n": 1}\n{"n": \n', "not valid JSON: line 2"), ('{"a": ', "not valid JSON: Expecting"),
    ("{'a': 1}", "not valid JSON: Expecting"), ('{"a": 1,\n "b": }\n', "not valid JSON: Expecting"),
    ("[" * 200_000, "(nested too deeply|not valid JSON)"), ('{"a":' * 200_000, "(nested too deeply|not valid JSON)"),
    ("[" * 100_000 + "]" * 100_000, "(nested too deeply|not valid JSON)"),
])  # fmt: skip
def test_an_invalid_or_deeply_nested_document_fails_clearly(raw: str, message: str) -> None:
    with pytest.raises(ParseFailed, match=rf"^a\.json is {message}"):
        read(raw, "a.json")


def test_lone_surrogates_and_control_characters_are_removed() -> None:
    assert read('{"a": "x\\ud800y\\u0000z", "\\ud800": 1}', "a.json").text == "a: xyz\n: 1\n"


@given(VALUES)
def test_every_number_in_a_document_is_found(value: object) -> None:
    try:
        text = parse_json(source(json.dumps(value), "a.json")).text
    except NoText:
        return
    text.encode()
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict | list):
            waiting += each.values() if isinstance(each, dict) else each
        elif isinstance(each, int):
            assert json.dumps(each) in text


# --- notebooks


def notebook(*cells: dict[str, Any]) -> str:
    about = {"kernelspec": {"language": "python"}, "language_info": {"name": "python"}}
    return json.dumps({"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5})


def code(source: list[str] | str, *outputs: dict[str, Any]) -> dict[str, Any]:
    return {"cell_type": "code", "source": source, "outputs": outputs, "execution_count": 1}


def test_cells_come_in_order_with_code_and_outputs_fenced() -> None:
    result = {"text/plain": ["2"], "text/html": ["<b>2</b>"]}
    raw = notebook(
        {"cell_type": "markdown", "source": ["# Analysis\n", "\n", "Some words."]},
        code(["x = 1\n", "print(x)"], {"output_type": "stream", "name": "stdout", "text": ["1\n"]}),
        code("x + 1", {"output_type": "execute_result", "data": result}),
        code("1 / 0", {"output_type": "error", "ename": "DivisionError", "evalue": "by zero"}),
    )
    parsed = read(raw, "a.ipynb")
    assert parsed.text == (
        "# Analysis\n\nSome words.\n\n```python\nx = 1\nprint(x)\n```\n\n```\n1\n```\n\n```python\n"
        "x + 1\n```\n\n```\n2\n```\n\n```python\n1 / 0\n```\n\n```\nDivisionError: by zero\n```\n"
    )
    assert parsed.title == "Analysis" and parsed.metadata == {"language": "python"}


def test_pictures_are_left_out_and_long_outputs_shortened() -> None:
    raw = notebook(
        code(
            "plot()", {"output_type": "display_data", "data": {"image/png": "iVBORw0KGgo" * 1000}}
        ),
        code("log()", {"output_type": "stream", "text": "line\n" * 10_000}),
    )
    written = read(raw, "a.ipynb").text
    assert "iVBOR" not in written and len(written) < 3000 and "\n…\n```" in written


def test_notebooks_of_version_3_are_read() -> None:
    cells = [
        {"cell_type": "heading", "level": 2, "source": "Old"},
        {"cell_type": "code", "input": "1+1", "outputs": [{"output_type": "pyout", "text": ["2"]}]},
    ]
    raw = json.dumps({"worksheets": [{"cells": cells}], "metadata": {}, "nbformat": 3})
    assert read(raw, "a.ipynb").text == "## Old\n\n```python\n1+1\n```\n\n```\n2\n```\n"


@pytest.mark.parametrize(
    "raw", ['{"a": 1}', "[]", "3", '{"cells": "none"}', '{"cells": [1, null]}']
)
def test_json_that_is_not_a_notebook_fails_clearly(raw: str) -> None:
    with pytest.raises(ParseFailed, match=r"a\.ipynb is not a notebook: it has no cells"):
        read(raw, "a.ipynb")


def test_invalid_cells_are_ignored() -> None:
    odd = {"cell_type": 5, "source": {"a": 1}}, {"source": [1, "words", None]}
    raw = notebook(*odd, code("x", {"data": 3}, {"text": 7}))
    assert read(raw, "a.ipynb").text == "words\n\n```python\nx\n```\n"


# --- XML

HEAD = '<?xml version="1.0" encoding="UTF-8"?>'
RECORDS = '<stock><item id="1"><sort>Boskoop</sort><price>1.20</price></item><item id="2"><sort>Pear</sort></item></stock>'
NAMESPACES = '<a:x xmlns:a="urn:one" xmlns:b="urn:two"><a:y b:z="attribute">text</a:y></a:x>'
ENTITIES = (
    '<!DOCTYPE x [<!ENTITY name "The Fruit Office"><!ENTITY lt "&#38;#60;">'
    '<!ENTITY nbsp "&#160;">]><x a="&name;">by &name;,&nbsp;1 &lt; 2</x>'
)


@pytest.mark.parametrize(("raw", "text"), [
    (RECORDS, "id: 1\nsort: Boskoop\nprice: 1.20\n\nid: 2\nsort: Pear\n"), (NAMESPACES, "y (z: attribute): text\n"),
    ("<p>one <i>two</i> <b>three</b> four</p>", "one two three four\n"),
    (ENTITIES, "x (a: The Fruit Office): by The Fruit Office, 1 < 2\n"),
    ('<!DOCTYPE x SYSTEM "http://127.0.0.1:1/x.dtd"><x>text</x>', "x: text\n"),  # which is not fetched
])  # fmt: skip
def test_elements_become_lines_of_name_and_text(raw: str, text: str) -> None:
    assert read(HEAD + raw, "a.xml").text == text


def test_titles_become_headings_of_their_depth() -> None:
    chapter = "<chapter><title>{0}</title><para>{0} are <b>ripe</b>.</para></chapter>"
    book = "<title>Fruit</title>" + chapter.format("Apples") + chapter.format("Pears")
    parsed = read(f"{HEAD}<book>{book}</book>", "a.xml")
    assert parsed.title == "Fruit" and parsed.text == (
        "# Fruit\n\n## Apples\n\npara: Apples are ripe.\n\n## Pears\n\npara: Pears are ripe.\n"
    )


def test_the_items_of_a_feed_are_sections() -> None:
    item = "<title>One</title><link>http://a.example/1</link><description><![CDATA[It <b>is</b>.]]></description>"
    raw = (
        f'{HEAD}<rss version="2.0"><channel><title>News</title><item>{item}</item></channel></rss>'
    )
    text = read(raw, "feed.rss").text
    assert all(each in text for each in ("## News", "### One", "link: http://a.example/1", "<b>is"))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1"])
def test_the_declared_encoding_is_used(encoding: str) -> None:
    raw = f'<?xml version="1.0" encoding="{encoding}"?><a>Größe</a>'.encode(encoding)
    assert read(raw, "a.xml").text == "a: Größe\n"


LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))


@pytest.mark.parametrize("hostile", [
    f'<!DOCTYPE x [<!ENTITY l0 "lol">{LAUGHS}]><x>&l9;</x>', '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><x>&e;</x>',
    '<!DOCTYPE x [<!ENTITY % p SYSTEM "http://127.0.0.1/x.dtd"> %p;]><x>a</x>',
    f'<!DOCTYPE x [<!ENTITY big "{"a" * 50_000}">]><x>{"&big;" * 5000}</x>',
    '<!DOCTYPE x [<!ENTITY e "<y>markup</y>">]><x>&e;</x>', '<!DOCTYPE x [<!ENTITY % p "text"> ]><x>a</x>',
])  # fmt: skip
def test_entities_are_refused(hostile: str) -> None:
    with pytest.raises(ParseFailed, match=r"^a\.xml declares XML entities"):
        read(HEAD + hostile, "a.xml")


@pytest.mark.parametrize(("raw", "message"), [
    (HEAD + "<a><b>text</a>", "is not well-formed XML"), (HEAD + "<a>text", "is not well-formed XML"),
    (HEAD + "<a>&unknown;</a>", "is not well-formed XML"), ("plain", "is not well-formed XML"),
    (HEAD + "<a>" * 100_000 + "x" + "</a>" * 100_000, "has elements nested more than 1000 deep"),
])  # fmt: skip
def test_xml_that_is_not_well_formed_or_too_deep_fails_clearly(raw: str, message: str) -> None:
    with pytest.raises(ParseFailed, match=rf"^a\.xml {message}"):
        read(raw, "a.xml")


def test_an_article_in_jats_has_its_title_and_plain_paragraphs() -> None:
    reference = "<ref><article-title>Of ropes</article-title></ref>"
    article = (
        '<!DOCTYPE article PUBLIC "-//NLM//DTD JATS" "JATS.dtd"><article><front>'
        "<article-title>On nets</article-title><abstract><p>We mend <italic>nets</italic>.</p>"
        f"</abstract></front><back>{reference}</back></article>"
    )
    parsed = read(article, "a.nxml")
    assert parsed.title == "On nets"
    assert "# On nets\n\nWe mend nets.\n\narticle-title: Of ropes\n" in parsed.text
