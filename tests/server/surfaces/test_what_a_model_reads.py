"""What reaches a model through hosts that pass on the structured content alone, if there is any.

Claude Code, Codex, VS Code and pydantic-ai do; others pass on the text blocks alone.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from mcp import Client

from mcpvectordb import Database
from mcpvectordb_server.surfaces import NAMES, load
from mcpvectordb_server.surfaces.desk import SURFACE
from tests.server.clients import service, talk
from tests.server.surfaces import readable
from tests.support import Letters


@pytest.fixture(scope="module")
def conversation(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[readable.Turn, Any]]:
    """Every turn and what was replied."""
    folder, names = tmp_path_factory.mktemp("conversation"), readable.exposed()

    async def hold(client: Client) -> list[tuple[readable.Turn, Any]]:
        return [
            (turn, await client.call_tool(names[turn.surface, turn.tool], turn.arguments))
            for turn in turns
        ]

    with Database(folder / "test.db", embedder=Letters()) as db:
        turns = readable.fill(db, folder)
        held: list[tuple[readable.Turn, Any]] = talk(service(db, *readable.surfaces()), hold)
    return held


def structure_first(result: Any) -> str:
    """What a host shows that prefers structured content."""
    if result.structured_content is not None and not result.is_error:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return texts_alone(result)


def texts_alone(result: Any) -> str:
    """What a host shows that knows text blocks and embedded texts only."""
    return "\n".join(
        block.text if block.type == "text" else block.resource.text for block in result.content
    )


@pytest.mark.parametrize("host", [structure_first, texts_alone])
def test_every_reply_of_every_tool_says_what_must_be_read(
    conversation: list[tuple[readable.Turn, Any]], host: Any
) -> None:
    called = {(turn.surface, turn.tool) for turn, _ in conversation}
    assert called == {(name, tool.name) for name in NAMES for tool in load(name).tools}
    for turn, result in conversation:
        seen = host(result)
        for part in turn.read:
            assert part in seen, f"{turn.surface} {turn.tool} {turn.arguments}: {seen}"


def test_desk_has_nothing_that_could_hide_its_text(
    conversation: list[tuple[readable.Turn, Any]],
) -> None:
    assert {
        tool.name: tool.arguments.output for tool in SURFACE.tools if tool.arguments.output
    } == {}
    for turn, result in conversation:
        assert turn.surface != "desk" or result.structured_content is None
