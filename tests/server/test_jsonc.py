from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import InvalidInput
from mcpvectordb_server.jsonc import drop, parse, put

ZED = """{
    // my theme
    "theme": "One", /* dark */
    "context_servers": {
        "other": {"command": "a"}, // keep me
    },
}
"""


def test_comments_and_trailing_commas_are_understood() -> None:
    assert parse(ZED) == {"theme": "One", "context_servers": {"other": {"command": "a"}}}
    assert parse('["//", "/* no */", ",]"]') == ["//", "/* no */", ",]"]


def test_a_new_entry_leaves_every_other_byte_as_it_was() -> None:
    changed = put(ZED, ("context_servers", "db"), {"command": "x"})
    assert changed == ZED.replace(
        '"a"}, // keep me',
        '"a"},\n        "db": {\n            "command": "x"\n        } // keep me',
    )


def test_an_existing_entry_is_replaced_in_place() -> None:
    assert put('{"s": {"db": {"old": [1]}, "z": 1}}', ("s", "db"), 5) == '{"s": {"db": 5, "z": 1}}'


def test_missing_sections_are_made() -> None:
    assert (
        put('{\n\t"a": 1\n}\n', ("s", "db"), 5) == '{\n\t"a": 1,\n\t"s": {\n\t\t"db": 5\n\t}\n}\n'
    )


@pytest.mark.parametrize("empty", ["", "  \n", "{}"])
def test_an_empty_file_becomes_one_with_the_entry(empty: str) -> None:
    assert parse(put(empty, ("s", "db"), 5)) == {"s": {"db": 5}}


def test_line_endings_and_byte_order_mark_stay() -> None:
    assert put('\ufeff{\r\n  "a": 1\r\n}', ("b",), {"c": 2}) == (
        '\ufeff{\r\n  "a": 1,\r\n  "b": {\r\n    "c": 2\r\n  }\r\n}'
    )


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('{"s": {"db": 1, "z": 2}}', '{"s": { "z": 2}}'),
        ('{"s": {"z": 2, "db": 1}}', '{"s": {"z": 2}}'),
        ('{"s": {\n  "z": 2, // two\n  "db": 1\n}}', '{"s": {\n  "z": 2 // two\n}}'),
        ('{"s": {"db": 1}}', '{"s": {}}'),
    ],
)
def test_an_entry_is_removed_with_its_comma(text: str, left: str) -> None:
    assert drop(text, ("s", "db")) == left


def test_dropping_a_missing_entry_changes_nothing() -> None:
    assert drop(ZED, ("context_servers", "db")) == ZED
    assert drop(ZED, ("nothing", "db")) == ZED
    assert drop(ZED, ("theme", "db")) == ZED


@pytest.mark.parametrize(
    "broken", ["{", '{"a": }', "[1]", "hello", '{"a": 1} {"b": 2}', '{"a": "unterminated}', "@"]
)
def test_a_text_that_is_not_json_is_refused(broken: str) -> None:
    with pytest.raises(InvalidInput):
        put(broken, ("s", "db"), 1)


def test_a_text_that_cannot_be_changed_safely_is_refused() -> None:
    with pytest.raises(InvalidInput, match="cannot be changed safely"):
        put('{"s": {"db": 1}, "s": {"db": 2}}', ("s", "db"), 3)
    with pytest.raises(InvalidInput, match="'s' in it is not an object"):
        put('{"s": [1]}', ("s", "db"), 3)


objects = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=4), objects, max_size=5), st.sampled_from([None, 2, "\t"]))
def test_putting_and_dropping_change_only_the_entry(settings: dict[str, Any], indent: Any) -> None:
    settings.pop("s", None)
    text = json.dumps(settings, indent=indent)
    changed = put(text, ("s", "db"), {"command": "x"})
    assert parse(changed) == {**settings, "s": {"db": {"command": "x"}}}
    assert parse(drop(changed, ("s", "db"))) == {**settings, "s": {}}
