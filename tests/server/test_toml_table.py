from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import InvalidInput
from mcpvectordb_server import toml_table

PATH = ("mcp_servers", "mcpvectordb")
ENTRY = {"command": "/py", "args": ["-m", "x", 'C:\\a "b"']}
OTHERS = [
    "",
    "# mine\nmodel = 'o3' # quick\n",
    "[mcp_servers.other]\ncommand = 'x'\n\n[mcp_servers.other.env]\nKEY = 'k'\n",
    "[mcp_servers]\n",
    "[[tools]]\nname = 'a'\n[[tools]]\nname = 'b'\n",
]


@pytest.mark.parametrize("text", OTHERS)
def test_the_table_comes_and_goes_and_everything_else_stays(text: str) -> None:
    changed = toml_table.put(text, PATH, ENTRY)
    assert tomllib.loads(changed)["mcp_servers"]["mcpvectordb"] == ENTRY
    assert changed.startswith(text.rstrip())
    assert toml_table.put(changed, PATH, ENTRY) == changed
    left = tomllib.loads(toml_table.drop(changed, PATH))
    assert left.get("mcp_servers", {}) == tomllib.loads(text).get("mcp_servers", {})


def test_an_older_entry_is_replaced_with_its_subtables() -> None:
    old = "[mcp_servers.mcpvectordb]\ncommand = 'a'\n[mcp_servers.mcpvectordb.env]\nA = '1'\n[x]\n"
    assert tomllib.loads(toml_table.put(old, PATH, ENTRY)) == {
        "mcp_servers": {"mcpvectordb": ENTRY},
        "x": {},
    }


@pytest.mark.parametrize(
    "text",
    [
        "mcp_servers = { mcpvectordb = { command = 'a' } }\n",
        "mcp_servers.mcpvectordb.command = 'a'\n",
        "mcp_servers = 3\n",
        'text = """\n[mcp_servers.mcpvectordb]\n"""\n[mcp_servers.mcpvectordb]\n',
        "[mcp_servers",
    ],
)
def test_what_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        toml_table.put(text, PATH, ENTRY)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
def test_every_argument_is_written_as_it_is(arguments: list[str]) -> None:
    entry = {"command": "x", "args": arguments, "http_headers": {"a b": arguments[0]}}
    assert tomllib.loads(toml_table.put("", PATH, entry))["mcp_servers"]["mcpvectordb"] == entry
