from __future__ import annotations

import json
import re
import tomllib
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import InvalidInput
from mcpvectordb_server.settings import JSON, TOML, YAML, Entry, SettingsFormat

ENTRY: Entry = {"command": "/py", "args": ["-m", "x", 'C:\\a "b" # c']}
OLD: Entry = {"command": "old", "args": ["x"]}

ZED = """{
    // my theme
    "theme": "One", /* dark */
    "s": {
        "other": {"command": "//", "args": [",]"]}, // keep me
    },
}
"""
CODEX = """\
# mine
model = 'o3' # quick

[s.other]
command = 'x'

[s.other.env]
KEY = 'k'

[[tools]]
name = 'a'
"""
GOOSE = """\
# mine
GOOSE_MODEL: x  # quick
s:
    developer:
        enabled: true

        name: developer
last: 1
"""
COMMENT = re.compile(r"(?://|#|/\*) (mine|quick|my theme|dark|keep me)")
EMPTY_YAML = ["a: 1\n", "s:\n", "s: {}\n", "s: null\na: 1\n"]
TEXTS = [
    *[(JSON, each) for each in ("", "  \n", "{}", '{"s": {}}', '{"s": {"z": 1}}', ZED)],
    *[(TOML, each) for each in ("", "[s]\n", CODEX)],
    *[(YAML, each) for each in ("", GOOSE, *EMPTY_YAML)],
]


def parsed(form: SettingsFormat, text: str) -> Any:
    return {key: each for key, each in (form.parse(text) or {}).items() if each}


@pytest.mark.parametrize(("form", "text"), TEXTS)
def test_an_entry_comes_is_replaced_and_goes_and_everything_else_stays(
    form: SettingsFormat, text: str
) -> None:
    before, comments = parsed(form, text), COMMENT.findall(text)
    for entry in (OLD, ENTRY):
        text = form.changed(text, "s", "db", entry)
        assert parsed(form, text) == {**before, "s": {**before.get("s", {}), "db": entry}}
        assert form.changed(text, "s", "db", entry) == text
    left = form.changed(text, "s", "db", None)
    assert parsed(form, left) == before
    assert form.changed(left, "s", "db", None) == left
    assert COMMENT.findall(left) == comments


@pytest.mark.parametrize(
    ("form", "text", "changed"),
    [
        (JSON, '{\n\t"a": 1\n}\n', '{\n\t"s": {\n\t\t"db": {\n\t\t\t"k": 5\n\t\t}\n\t},\n\t"a": 1\n}\n'),
        (JSON, '{"s": {"z": 1}}', '{"s": {\n    "db": {\n      "k": 5\n    },\n    "z": 1}}'),
        (JSON, '\ufeff{\r\n  "s": {}\r\n}', '\ufeff{\r\n  "s": {\r\n    "db": {\r\n      "k": 5\r\n    }\r\n  }\r\n}'),
        (TOML, "# mine\na = 1\n", "# mine\na = 1\n\n[s.db]\nk = 5\n"),
        (YAML, "# mine\ns:\n    z: 1\n", "# mine\ns:\n    db:\n        k: 5\n    z: 1\n"),
    ],
)  # fmt: skip
def test_a_new_entry_has_the_layout_of_its_file(
    form: SettingsFormat, text: str, changed: str
) -> None:
    assert form.changed(text, "s", "db", {"k": 5}) == changed
    if form is not JSON:
        assert form.changed(changed, "s", "db", None) == text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('{"s": {"db": 1, "z": 2}}', '{"s": { "z": 2}}'),
        ('{"s": {"z": 2, "db": 1}}', '{"s": {"z": 2}}'),
        ('{"s": {\n  "z": 2, // two\n  "db": 1\n}}', '{"s": {\n  "z": 2 // two\n}}'),
    ],
)
def test_an_entry_of_json_is_removed_with_its_comma(text: str, left: str) -> None:
    assert JSON.changed(text, "s", "db", None) == left


def test_older_tables_go_with_their_subtables() -> None:
    old = "[s.db]\ncommand = 'a'\n[s.db.env]\nA = '1'\n[x]\nb = 1\n"
    assert tomllib.loads(TOML.changed(old, "s", "db", ENTRY)) == {"s": {"db": ENTRY}, "x": {"b": 1}}


@pytest.mark.parametrize(
    ("form", "text"),
    [
        *[(JSON, each) for each in ("{", '{"a": }', "[1]", "hello", '{"a": 1} {"b": 2}', "@")],
        *[(JSON, each) for each in ('{"a": "unterminated}', '{"s": [1]}', '{"s": null}')],
        (JSON, '{"s": {"db": 1}, "s": {"db": 2}}'),
        (TOML, "s = { db = { command = 'a' } }\n"),
        (TOML, "s.db.command = 'a'\n"),
        (TOML, "s = 3\n"),
        (TOML, 'text = """\n[s.db]\n"""\n[s.db]\n'),
        (TOML, "[s"),
        *[(YAML, each) for each in ("- a\n", "s: 3\n", "s: {a: {b: 1}}\n", "a: [\n", "{s: {}}\n")],
        (YAML, "t:\n  db: 1\ns:\n  db: 2\n"),
    ],
)
def test_what_is_not_understood_is_refused(form: SettingsFormat, text: str) -> None:
    with pytest.raises(InvalidInput):
        form.changed(text, "s", "db", ENTRY)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=4), VALUES, max_size=5), st.sampled_from([None, 2, "\t"]))
def test_any_json_keeps_all_but_the_entry(settings: dict[str, Any], indent: Any) -> None:
    settings.pop("s", None)
    changed = JSON.changed(json.dumps(settings, indent=indent), "s", "db", ENTRY)
    assert JSON.parse(changed) == {**settings, "s": {"db": ENTRY}}
    assert JSON.parse(JSON.changed(changed, "s", "db", None)) == {**settings, "s": {}}


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
def test_every_argument_is_written_as_it_is(arguments: list[str]) -> None:
    entry = {"command": "x", "args": arguments, "headers": {"a b": arguments[0]}}
    assert tomllib.loads(TOML.changed("", "s", "db", entry)) == {"s": {"db": entry}}
    assert yaml.safe_load(YAML.changed("", "s", "db", entry)) == {"s": {"db": entry}}
