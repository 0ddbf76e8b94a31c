from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import InvalidInput
from mcpvectordb_server import yaml_block

PATH = ("extensions", "mcpvectordb")
ENTRY = {"enabled": True, "type": "stdio", "args": ["-m", "a: b # c"], "timeout": 300}
OTHER = """\
# mine
GOOSE_MODEL: x  # quick
extensions:
    developer:
        enabled: true

        name: developer
last: 1
"""


def test_the_block_comes_and_goes_and_everything_else_stays() -> None:
    changed = yaml_block.put(OTHER, PATH, ENTRY)
    assert yaml.safe_load(changed)["extensions"]["mcpvectordb"] == ENTRY
    assert "# mine\nGOOSE_MODEL: x  # quick\n" in changed
    assert yaml_block.put(changed, PATH, ENTRY) == changed
    assert yaml_block.drop(changed, PATH) == OTHER


@pytest.mark.parametrize(
    "text", ["", "a: 1\n", "extensions:\n", "extensions: {}\n", "extensions: null\na: 1\n"]
)
def test_a_section_is_made_where_there_is_none_or_an_empty_one(text: str) -> None:
    changed = yaml_block.put(text, PATH, ENTRY)
    assert yaml.safe_load(changed)["extensions"] == {"mcpvectordb": ENTRY}
    assert (yaml.safe_load(changed).get("a") or 1) == 1
    assert not yaml.safe_load(yaml_block.drop(changed, PATH))["extensions"]


def test_an_older_block_is_replaced() -> None:
    old = "extensions:\n  mcpvectordb:\n    cmd: old\n    args:\n      - x\n\n  b:\n    c: 1\n"
    assert yaml.safe_load(yaml_block.put(old, PATH, ENTRY)) == {
        "extensions": {"mcpvectordb": ENTRY, "b": {"c": 1}}
    }


@pytest.mark.parametrize(
    "text",
    ["- a\n", "extensions: 3\n", "extensions: {a: {b: 1}}\n", "a: [\n", "{extensions: {}}\n"],
)
def test_what_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        yaml_block.put(text, PATH, ENTRY)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
def test_every_argument_is_written_as_it_is(arguments: list[str]) -> None:
    entry = {"cmd": "x", "args": arguments}
    assert yaml.safe_load(yaml_block.put("", PATH, entry))["extensions"]["mcpvectordb"] == entry
