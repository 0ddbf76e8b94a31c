from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.errors import NoText, ParseFailed
from mcpvectordb.ingest.formats.json import parse
from tests.support_formats import read, source

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def test_plain_values_come_first_and_nested_ones_under_headings() -> None:
    value = {
        "title": "Config",
        "server": {"host": "localhost", "ports": [80, 443], "tls": {"on": True}},
        "debug": None,
    }
    parsed = read(json.dumps(value), "a.json")
    assert parsed.text == (
        "title: Config\n"
        "debug: null\n"
        "\n"
        "# server\n"
        "\n"
        "host: localhost\n"
        "ports: 80, 443\n"
        "\n"
        "## tls\n"
        "\n"
        "on: true\n"
    )
    assert parsed.title == "Config"


def test_the_records_of_a_list_are_separate_blocks() -> None:
    value = [
        {"name": "Ann", "address": {"city": "Oslo"}},
        {"name": "Bob", "pets": [{"kind": "cat"}]},
    ]
    parsed = read(json.dumps(value), "people.json")
    assert parsed.text == "name: Ann\naddress.city: Oslo\n\nname: Bob\npets[0].kind: cat\n"
    assert parsed.title == "people.json"


@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "a.json"])
def test_each_line_of_json_lines_is_a_record(name: str) -> None:
    assert read('{"n": 1}\n\n{"n": 2}\n', name).text == "n: 1\n\nn: 2\n"


def test_an_invalid_line_is_reported_with_its_number() -> None:
    with pytest.raises(ParseFailed, match=r"a\.jsonl is not valid JSON: line 2"):
        read('{"n": 1}\n{"n": \n', "a.jsonl")


@pytest.mark.parametrize("raw", ['{"a": ', "{'a': 1}", '{"a": 1,\n "b": }\n'])
def test_an_invalid_document_fails_clearly(raw: str) -> None:
    with pytest.raises(ParseFailed, match=r"^a\.json is not valid JSON: Expecting"):
        read(raw, "a.json")


@pytest.mark.parametrize("raw", ["[" * 200_000, '{"a":' * 200_000, "[" * 100_000 + "]" * 100_000])
def test_deep_nesting_fails_clearly(raw: str) -> None:
    with pytest.raises(ParseFailed, match=r"^a\.json is (nested too deeply|not valid JSON)"):
        read(raw, "a.json")


def test_lone_surrogates_and_control_characters_are_removed() -> None:
    assert read('{"a": "x\\ud800y\\u0000z", "\\ud800": 1}', "a.json").text == "a: xyz\n: 1\n"


@pytest.mark.parametrize("raw", ["{}", "[]", '""', "  "])
def test_a_document_without_values_raises_no_text(raw: str) -> None:
    with pytest.raises((NoText, ParseFailed), match=r"a\.json"):
        read(raw, "a.json")


@given(VALUES)
def test_every_text_in_a_document_is_found(value: object) -> None:
    try:
        text = parse(source(json.dumps(value), "a.json")).text
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
