"""MCP Apps on the wire: hosts that show views are told of one, others get what they always got."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp.client.extension import advertise

from mcpvectordb import Database
from mcpvectordb_server.apps import EXTENSION, MEDIA_TYPE, URI, VIEW
from mcpvectordb_server.surfaces import load
from tests.server.clients import service, talk
from tests.support import Letters, python

MODES = ("legacy", "auto")
HOST = {"extensions": [advertise(EXTENSION, {"mimeTypes": [MEDIA_TYPE]})]}
OTHERS: list[dict[str, Any]] = [
    {},
    {"extensions": [advertise(EXTENSION)]},
    {"extensions": [advertise(EXTENSION, {"mimeTypes": ["text/html"]})]},
]
CALLS = [
    ("search", {"query": "green tea"}),
    ("read", {"place": "tea.md:3"}),
    ("read", {"place": "memory:1"}),
    ("verify", {"quotation": "eighty degrees"}),
]
TEA = "# Tea\n\nGreen tea is brewed\nat eighty degrees.\n"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "notes.db", embedder=Letters()) as db:
        db.documents.ingest_text(TEA, source="tea.md")
        db.memories.add("kitchen", "user", "Tea is out.", metadata={"a": 1})
        yield db


async def everything(client: Client) -> dict[str, Any]:
    """What a host sees: capabilities, tools and replies, as they are on the wire."""
    replies = [await client.call_tool(*call) for call in CALLS]
    tools = (await client.list_tools()).tools
    able = client.server_capabilities
    seen = {"able": [able], "tools": tools, "replies": replies}
    return {
        name: [each.model_dump(by_alias=True, exclude_none=True) for each in values]
        for name, values in seen.items()
    }


@pytest.mark.parametrize("mode", MODES)
def test_a_host_that_shows_views_is_told_of_them_and_others_are_not(
    db: Database, mode: str
) -> None:
    made = service(db, load("desk"))
    shown = talk(made, everything, mode=mode, **HOST)
    others = [talk(made, everything, mode=mode, **each) for each in OTHERS]
    assert others[0] == others[1] == others[2]
    assert not {"mcpvectordb/view", "ui://"} & set(json.dumps(others[0]).split('"'))
    # Without what the extension adds, nothing is left that others do not have.
    assert shown["able"][0]["extensions"].pop(EXTENSION) == {}
    shown["able"][0].pop("resources")
    for each in shown["able"] + others[0]["able"]:
        each.pop("extensions", None)
        each.pop("resources", None)
    linked = {tool["name"]: tool.pop("_meta") for tool in shown["tools"] if "_meta" in tool}
    assert linked == {name: {"ui": {"resourceUri": URI}} for name in ("search", "read", "verify")}
    for reply in shown["replies"]:
        assert reply["_meta"].pop(VIEW)["reads"] == "read"
    assert shown == others[0]


def test_a_reply_has_what_its_view_shows(db: Database) -> None:
    found, part, memory, verdict = (
        each["_meta"][VIEW]
        for each in talk(service(db, load("desk")), everything, mode="auto", **HOST)["replies"]
    )
    assert (found["kind"], found["query"]) == ("results", "green tea")
    assert {each["kind"] for each in found["hits"]} == {"document", "memory"}
    [row] = [row for hit in found["hits"] for row in hit["snippet"] if row["line"] == 3]
    marked = {row["text"][start:end] for start, end in row["highlights"]}
    assert marked == {"Green", "tea"}
    start, end = part["cited"]["start"], part["cited"]["end"]
    assert part["text"][start:end] == "Green tea is brewed"
    assert (part["first_line"], part["last_line"], part["lines"]) == (3, 4, 4)
    assert (memory["kind"], memory["text"]) == ("memory", "Tea is out.")
    assert (verdict["kind"], verdict["status"]) == ("verdict", "exact")
    assert (verdict["place"]["first_line"], verdict["place"]["last_line"]) == (4, 4)


@pytest.mark.parametrize("mode", MODES)
def test_the_view_is_one_document_without_an_address(db: Database, mode: str) -> None:
    read = talk(
        service(db, load("desk")), lambda client: client.read_resource(URI), mode=mode, **HOST
    )
    [content] = read.contents
    assert (content.uri, content.mime_type) == (URI, MEDIA_TYPE)
    assert content.meta == {"ui": {"prefersBorder": True}}
    assert "default-src 'none'; script-src 'sha256-" in content.text
    for other in (" src=", "href=", "@import", "url(", "unsafe-inline", "import("):
        assert other not in content.text.replace('setAttribute("href', ""), other


@pytest.mark.parametrize("mode", MODES)
def test_who_shows_no_views_cannot_read_one(db: Database, mode: str) -> None:
    async def read(client: Client) -> str:
        with pytest.raises(MCPError) as refused:
            await client.read_resource(URI)
        return str(refused.value)

    assert "Unknown resource" in talk(service(db, load("desk")), read, mode=mode)


def test_what_is_disabled_has_no_view(db: Database) -> None:
    made = service(db, load("qmd"))
    with pytest.raises(MCPError, match="Unknown resource"):
        talk(made, lambda client: client.read_resource(URI), **HOST)
    for tool in talk(made, lambda client: client.list_tools(), **HOST).tools:
        assert tool.meta is None


def test_a_view_reads_on_by_the_name_that_the_tool_has_here(db: Database) -> None:
    made = service(db, load("qmd"), load("desk"))
    called = talk(
        made, lambda client: client.call_tool("desk_search", {"query": "tea"}), mode="auto", **HOST
    )
    assert called.meta[VIEW]["reads"] == "read"


def test_a_start_makes_no_view() -> None:
    done = python(
        "import sys, mcpvectordb_server.server, mcpvectordb_server.surfaces.desk\n"
        "print([each for each in sys.modules if each.startswith('mcpvectordb_server.web')])"
    )
    assert done.stdout.strip() == "[]", done.stderr
