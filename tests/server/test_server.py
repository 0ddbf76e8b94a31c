from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError

from mcpvectordb import Config, Database
from mcpvectordb_server.server import IS_DATA, WARM_AFTER, WORKERS
from mcpvectordb_server.surface import READS, Tool
from tests.server.clients import VERSIONS, ask, exchange, refusal, service, talk
from tests.server.little_surface import FLAGGING, LITTLE, Shelf, read_for_ever
from tests.support import Letters


def test_descriptions_use_the_exposed_names_of_other_tools() -> None:
    listed = talk(service(Shelf(), FLAGGING, LITTLE), lambda client: client.list_tools()).tools
    [add] = [each for each in listed if each.name == "add"]
    assert add.description == "Keep a note. See `little_find` for finding it."


def test_agents_and_hosts_see_that_replies_are_data_from_outside() -> None:
    async def conversation(client: Client) -> Any:
        tools = (await client.list_tools()).tools
        results = [
            await client.call_tool("find", {"word": "tea"}),
            await client.call_tool("flagging_find", {"word": "tea"}),
            await client.read_resource("little://a.md"),
        ]
        return tools, results

    tools, results = talk(service(Shelf(), LITTLE, FLAGGING), conversation)
    for tool in tools:
        assert tool.description.endswith(IS_DATA) is tool.annotations.read_only_hint, tool.name
    assert {tool.annotations.read_only_hint for tool in tools} == {True, False}
    for result in results:
        assert result.meta["mcpvectordb/untrusted"] is True


def test_instructions_use_the_exposed_names() -> None:
    async def instructions(client: Client) -> Any:
        return client.instructions

    text = talk(service(Shelf(), LITTLE, FLAGGING), instructions)
    assert text.startswith("mcpvectordb 9.9.9:")
    assert "Keep notes with add; find them with find." in text
    assert "A second one: flagging_find, flagging_broken." in text
    assert "Tools of the surface flagging 2.0: flagging_find, flagging_broken." in text


@pytest.mark.parametrize("version", VERSIONS)
def test_an_embedded_resource_is_sent_with_name_and_title(version: str) -> None:
    made = service(Shelf(), LITTLE)
    _, result = exchange(
        made, version, ("tools/call", {"name": "read", "arguments": {"file": "a.md"}})
    )
    assert result["content"] == [
        {"type": "text", "text": "first a notice"},
        {
            "type": "resource",
            "resource": {
                "uri": "little://a.md",
                "name": "a.md",
                "title": "The a.md",
                "mimeType": "text/markdown",
                "text": "1: body",
            },
        },
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_protocol_version_with_a_handshake_is_served(version: str) -> None:
    hello, listed, called = exchange(
        service(Shelf(), LITTLE),
        version,
        ("tools/list", {}),
        ("tools/call", {"name": "add", "arguments": {"note": "tea"}}),
    )
    assert hello["protocolVersion"] == version
    assert hello["serverInfo"] == {"name": "mcpvectordb", "version": "9.9.9"}
    assert len(listed["tools"]) == len(LITTLE.tools)
    assert called["content"] == [{"type": "text", "text": '{"status": "added", "count": 1}'}]


def test_an_unknown_tool_is_a_protocol_error_that_lists_the_known_ones() -> None:
    with pytest.raises(MCPError, match="Unknown tool: fly; there are find, broken"):
        ask(service(Shelf(), FLAGGING), "fly")


def test_errors_repeat_only_the_beginning_of_a_long_name() -> None:
    made, long = service(Shelf(), LITTLE, FLAGGING), "x" * 1_000_000
    requests: list[tuple[str, dict[str, Any]]] = [
        ("tools/call", {"name": long}),
        ("resources/read", {"uri": f"other://{long}"}),
        ("prompts/get", {"name": long}),
        ("tools/call", {"name": {"no": long}}),
        (long, {}),
    ]
    for method, params in requests:
        error = refusal(made, method, params)
        assert len(str(error)) < 5000, method[:20]
    assert "Unknown tool: xxx" in refusal(made, *requests[0])["message"]
    assert len(refusal(made, *requests[0])["message"]) < 500
    assert refusal(made, "little/unknown", {})["data"] == "little/unknown"


def test_an_unknown_argument_is_named_once_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    made = service(Shelf(), LITTLE)
    for _ in range(3):
        assert (
            ask(made, "add", {"note": "tea", "colour": "green"}).structured_content["status"]
            == "added"
        )
    assert caplog.text.count("add ignores the unknown argument 'colour'") == 1


def test_a_tool_gets_the_granted_folders(tmp_path: Path) -> None:
    assert ask(service(Shelf(), LITTLE), "roots").structured_content == {"roots": None}
    assert ask(service(Shelf(), LITTLE, roots=(tmp_path,)), "roots").structured_content == {
        "roots": [str(tmp_path)]
    }


def test_a_template_reads_documents_and_none_are_listed() -> None:
    async def conversation(client: Client) -> Any:
        templates = await client.list_resource_templates()
        contents = await client.read_resource("little://a%20b/c.md")
        return (
            templates.resource_templates,
            contents.contents[0],
            (await client.list_resources()).resources,
        )

    templates, content, listed = talk(service(Shelf(), FLAGGING), conversation)
    assert [each.uri_template for each in templates] == ["little://{+path}"]
    assert (content.text, content.mime_type) == ("note a b/c.md: []", "text/markdown")
    assert listed == []


def test_resource_errors_have_no_details_and_long_resources_are_truncated() -> None:
    made = service(Shelf(), FLAGGING)
    with pytest.raises(MCPError, match="no such note"):
        talk(made, lambda client: client.read_resource("little://missing"))
    with pytest.raises(MCPError, match="something went wrong inside the server"):
        talk(made, lambda client: client.read_resource("little://broken"))
    with pytest.raises(MCPError, match="Unknown resource: other://x"):
        talk(made, lambda client: client.read_resource("other://x"))
    text = talk(made, lambda client: client.read_resource("little://long")).contents[0].text
    assert text.endswith("[… 100,000 more characters; ask for less]")


def test_a_prompt_uses_the_exposed_names() -> None:
    async def conversation(client: Client) -> Any:
        prompts = (await client.list_prompts()).prompts
        return prompts, await client.get_prompt("guide")

    prompts, prompt = talk(service(Shelf(), LITTLE, FLAGGING), conversation)
    assert [each.name for each in prompts] == ["guide"]
    assert prompt.messages[0].content.text == "Call flagging_find first."


def test_only_offered_capabilities_are_announced() -> None:
    async def capabilities(client: Client) -> Any:
        return client.server_capabilities

    plain = talk(service(Shelf(), LITTLE), capabilities)
    assert plain.resources is None
    assert plain.prompts is None
    assert talk(service(Shelf(), FLAGGING), capabilities).prompts is not None


def test_progress_only_grows_and_names_the_step_and_its_pace() -> None:
    seen: list[tuple[float, float | None, str | None]] = []

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    async def conversation(client: Client) -> Any:
        return await client.call_tool("slow", {"steps": 12}, progress_callback=listen)

    assert talk(service(Shelf(), LITTLE), conversation).structured_content == {"steps": 12}
    figures = [progress for progress, _, _ in seen]
    assert figures == sorted(set(figures))
    assert (12.0, 12.0, "work") in seen
    assert seen[-1] == (13.0, 13.0, "tidy: 1,234 tokens/s, 0:01:01 left")


def test_a_call_that_the_client_cancels_stops_at_its_next_step() -> None:
    db = Shelf()

    async def conversation(client: Client) -> bool:
        with anyio.move_on_after(0.2):
            await client.call_tool("slow", {"steps": 1000})
        return await anyio.to_thread.run_sync(lambda: db.stopped.wait(5))

    assert talk(service(db, LITTLE), conversation)


def test_a_read_that_the_client_cancels_stops_inside_of_its_statement(tmp_path: Path) -> None:
    begun, ended = threading.Event(), threading.Event()

    def endless(db: Database) -> str:
        """Read for ever."""
        read_for_ever(db, begun, ended)
        return "it ended"

    tools = (Tool(endless, "Endless", READS),)
    surface = replace(LITTLE, instructions="Wait.", tools=tools)

    async def conversation(client: Client) -> bool:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "endless", {})
            assert await anyio.to_thread.run_sync(lambda: begun.wait(60))
            group.cancel_scope.cancel()
        return await anyio.to_thread.run_sync(lambda: ended.wait(60))

    config = Config(read_timeout=3600)
    with Database(tmp_path / "x.db", embedder=Letters(), config=config) as db:
        assert talk(service(db, surface), conversation)
        assert db.documents.count() == 0  # the file is as usable as before


def test_other_calls_are_served_while_one_is_slow() -> None:
    async def conversation(client: Client) -> bool:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "slow", {"steps": 1000})
            await anyio.sleep(0.1)
            with anyio.fail_after(2):
                found = await client.call_tool("add", {"note": "tea"})
            group.cancel_scope.cancel()
        return bool(found.structured_content["count"] == 1)

    assert talk(service(Shelf(), LITTLE), conversation)


def test_no_call_waits_for_ingests_however_many_there_are() -> None:
    async def conversation(client: Client) -> Any:
        async with anyio.create_task_group() as group:
            for _ in range(3 * WORKERS):
                group.start_soon(client.call_tool, "slow", {"steps": 1500})
            await anyio.sleep(0.2)
            with anyio.fail_after(15):
                added = await client.call_tool("add", {"note": "tea"})
                read = await client.read_resource("little://a.md")
            group.cancel_scope.cancel()
        return added.structured_content["count"], read.contents[0].text

    made = service(Shelf(), LITTLE, FLAGGING)
    assert talk(made, conversation) == (1, "note a.md: ['tea']")


def test_a_fetch_that_waits_for_its_host_occupies_no_thread() -> None:
    db, fetched = Shelf(), []

    async def conversation(client: Client) -> Any:
        async def fetch() -> None:
            fetched.append(await client.call_tool("fetch", {}))

        async with anyio.create_task_group() as group:
            for _ in range(3 * WORKERS):
                group.start_soon(fetch)
            # Without a free thread for ingests this call would never be answered.
            ingested = await client.call_tool("slow", {"steps": 1})
            assert fetched == []
            db.rested.set()
        return ingested.structured_content

    # Nothing here is decided by how soon a host wants its reply.
    assert talk(service(db, LITTLE, reply_seconds=3600), conversation) == {"steps": 1}
    assert [each.structured_content for each in fetched] == 3 * WORKERS * [{"fetched": True}]


def test_a_fetch_that_would_wait_longer_than_a_host_is_answered_at_once() -> None:
    db = Shelf()
    db.pause = 10_000
    result = ask(service(db, LITTLE), "fetch", {})
    assert result.structured_content == {"status": "error", "error": "not yet"}


def test_the_model_is_loaded_some_time_after_the_handshake() -> None:
    db = Shelf()

    async def conversation(client: Client) -> bool:
        await client.list_tools()
        early = db.warmed.is_set()
        await anyio.sleep(WARM_AFTER + 0.3)
        return not early and db.warmed.is_set()

    assert talk(service(db, LITTLE), conversation)
