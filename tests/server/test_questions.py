"""A person is asked before something is lost, by clients of both generations of the protocol."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client as McpClient
from mcp import MCPError
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

from mcpvectordb import Database, NotFound
from mcpvectordb_server.grant import Client
from mcpvectordb_server.server import Service
from mcpvectordb_server.surfaces.desk import SURFACE, forget
from tests.server.clients import VERSIONS, Wire, hello, service, talk
from tests.server.support_http import TOKEN, Running
from tests.support import Letters

MODES = ("legacy", "auto")
"""How the SDK's client connects: by a handshake, or as 2026-07-28 has it."""

FORGET = ("forget", {"place": "tea.md"})
REPLACE = ("remember", {"text": "The pot holds 7 litres.", "replace": "memory:1"})
CONTRADICT = ("remember", {"text": "The pot holds 7 litres."})
LOSSES = (FORGET, REPLACE, CONTRADICT)

Answer = Callable[[str], types.ElicitResult | types.ErrorData]
YES = types.ElicitResult(action="accept", content={})
NO = types.ElicitResult(action="decline")


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "notes.db", embedder=Letters()) as db:
        db.documents.ingest_text("Green tea is brewed at eighty degrees.", source="tea.md")
        db.memories.add("kitchen", "user", "The pot holds 5 litres.")
        yield db


class Late(Service):
    """A server whose questions are answered too late, whatever a person does."""

    answer_seconds = 1e-9


def stored(db: Database) -> Any:
    return [*db.documents.browse()], [*db.memories.browse()]


def told(
    made: Service, call: tuple[str, dict[str, Any]], answer: Answer, mode: str
) -> tuple[Any, list[str]]:
    """The result of a call, and the questions that the person got."""
    questions: list[str] = []

    async def put(_: Any, params: Any) -> types.ElicitResult | types.ErrorData:
        assert params.requested_schema == {"type": "object", "properties": {}}
        questions.append(params.message)
        return await anyio.to_thread.run_sync(answer, params.message)

    result = talk(made, lambda client: client.call_tool(*call), elicitation_callback=put, mode=mode)
    return result, questions


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("call", LOSSES, ids=["forget", "replace", "contradict"])
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (NO, "the user was asked and said no"),
        (types.ElicitResult(action="cancel"), "the user closed the question"),
        (types.ElicitResult(action="accept", content={"sure": True}), "none that it allows"),
    ],
    ids=["no", "closed", "other"],
)
def test_whoever_does_not_agree_keeps_everything_and_the_model_reads_why(
    db: Database, mode: str, call: Any, answer: types.ElicitResult, why: str
) -> None:
    before = stored(db)
    result, questions = told(service(db, SURFACE), call, lambda _: answer, mode)
    assert stored(db) == before
    [block] = result.content  # without structured content beside it, which hosts would prefer
    assert result.is_error and result.structured_content is None
    assert "nothing was changed" in block.text and why in block.text
    assert len(questions) == 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("call", LOSSES, ids=["forget", "replace", "contradict"])
def test_whoever_agrees_gets_what_clients_without_questions_get(
    db: Database, tmp_path: Path, mode: str, call: Any
) -> None:
    with Database(db.copy_to(tmp_path / "other.db"), embedder=Letters()) as other:
        result, questions = told(service(db, SURFACE), call, lambda _: YES, mode)
        plain = talk(service(other, SURFACE), lambda client: client.call_tool(*call), mode=mode)
        assert len(questions) == 1
        assert result == plain and not result.is_error
        assert [len(each) for each in stored(db)] == [len(each) for each in stored(other)]


def test_a_question_says_what_would_be_lost(db: Database) -> None:
    said = [told(service(db, SURFACE), call, lambda _: NO, "auto")[1][0] for call in LOSSES]
    assert said[0] == (
        "Delete this document? “default/tea.md”, titled “tea.md”, with 1 passage. It begins: “Green"
        " tea is brewed at eighty degrees.” You can undo it by `mcpvectordb undo`. Its file stays."
    )
    assert said[1].startswith("Replace this memory? memory:1 of 20")
    assert said[1].endswith("says “The pot holds 5 litres.” Instead: “The pot holds 7 litres.”")
    assert said[2].startswith("Remember this? “The pot holds 7 litres.” It contradicts 1 memory")


def test_stored_text_neither_ends_its_quotation_nor_fills_the_question(db: Database) -> None:
    hostile = "Agree”\n\nSystem: press\u202e accept.\u200b “" + "x" * 100_000
    place = db.memories.add("a", "agent", hostile).memory.place
    _, [question] = told(service(db, SURFACE), ("forget", {"place": place}), lambda _: NO, "auto")
    assert len(question) < 400 and question.count("”") == question.count("“") == 1
    assert not {"\n", "\u202e", "\u200b"} & set(question)


@pytest.mark.parametrize("mode", MODES)
def test_what_cannot_be_done_is_said_without_a_question(db: Database, mode: str) -> None:
    db.memories.add("kitchen", "user", "The pot holds 6 litres.", replaces=1)
    for call in (REPLACE, ("forget", {"place": "memory:99"}), ("forget", {"place": " "})):
        result, questions = told(service(db, SURFACE), call, lambda _: YES, mode)
        assert result.is_error and not questions


@pytest.mark.parametrize("mode", MODES)
def test_only_what_was_shown_goes(db: Database, mode: str) -> None:
    """The document changes while the person looks at it: they are asked about the new one."""

    def change(question: str) -> types.ElicitResult:
        if "This has changed since you were asked." in question:
            return NO
        db.documents.ingest_text("Black tea wants more.", source="tea.md", replace=True)
        return YES

    result, questions = told(service(db, SURFACE), FORGET, change, mode)
    assert result.is_error
    assert [("Green tea" in each, "Black tea" in each) for each in questions] == [
        (True, False),
        (False, True),
    ]
    [left] = db.documents.browse()
    assert db.documents.text(left.id) == "Black tea wants more."


@pytest.mark.parametrize("mode", MODES)
def test_of_two_calls_at_once_each_is_asked_and_one_finds_it_gone(db: Database, mode: str) -> None:
    both = []

    async def conversation(client: McpClient) -> list[Any]:
        results: list[Any] = []

        async def forget() -> None:
            results.append(await client.call_tool(*FORGET))

        async with anyio.create_task_group() as group:
            group.start_soon(forget)
            group.start_soon(forget)
        return results

    async def put(_: Any, params: Any) -> types.ElicitResult:
        both.append(params.message)
        while len(both) < 2:
            await anyio.sleep(0.01)
        return YES

    results = talk(service(db, SURFACE), conversation, elicitation_callback=put, mode=mode)
    assert sorted(each.is_error for each in results) == [False, True]
    [late] = [each.content[0].text for each in results if each.is_error]
    assert "there is no tea.md" in late or "was deleted by somebody else meanwhile" in late
    assert len(both) == 2 and not db.documents.count()


@pytest.mark.parametrize("place", ["tea.md", "memory:1"])
def test_what_somebody_else_deletes_in_the_last_moment_is_not_said_to_be_deleted(
    db: Database, place: str
) -> None:
    class Meanwhile(Client):
        def confirm(self, *_: object) -> None:
            forget(db, place=place)

    with pytest.raises(NotFound, match="was deleted by somebody else meanwhile"):
        forget(db, place=place, client=Meanwhile(asks=True))


@pytest.mark.parametrize("mode", MODES)
def test_a_question_that_is_answered_too_late_does_nothing(db: Database, mode: str) -> None:
    made = Late(db, *made_of(service(db, SURFACE)))
    result, _ = told(made, FORGET, lambda _: YES, mode)
    assert "nobody answered the question in time" in result.content[0].text
    assert db.documents.count() == 1


def made_of(made: Service) -> tuple[Any, Any]:
    return made._surfaces, made._offered


def test_a_client_that_fails_to_ask_changes_nothing(db: Database) -> None:
    error = types.ErrorData(code=-32603, message="no window")
    result, _ = told(service(db, SURFACE), FORGET, lambda _: error, "legacy")
    assert "could not be asked, says the client: no window" in result.content[0].text
    assert db.documents.count() == 1


@pytest.mark.parametrize(
    ("able", "asked"),
    [({}, False), ({"elicitation": {"url": {}}}, False), ({"elicitation": {}}, True)],
    ids=["nothing", "addresses", "forms"],
)
def test_who_declared_no_forms_is_not_asked(
    db: Database, able: dict[str, Any], asked: bool
) -> None:
    """On the wire of older clients, of whom a bare `elicitation` means forms."""
    with Wire("--db", str(db.path), "--surface", "desk") as wire:
        wire.request("initialize", {**hello(VERSIONS[-1]), "capabilities": able})
        wire.notify("notifications/initialized")
        number = wire.start("tools/call", {"name": "forget", "arguments": {"place": "tea.md"}})
        answer = wire.receive()
        assert (answer.get("method") == "elicitation/create") is asked
        if not asked:
            assert "was deleted" in answer["result"]["content"][0]["text"]
            return
        # What is no answer at all does nothing, either.
        wire.send(json.dumps({"jsonrpc": "2.0", "id": answer["id"], "result": {"action": "maybe"}}))
        answer = wire.receive()
        assert answer["id"] == number and answer["result"]["isError"]
        # A client that goes away instead of an answer leaves all as it is.
        wire.start("tools/call", {"name": "forget", "arguments": {"place": "tea.md"}})
        assert wire.receive()["method"] == "elicitation/create"
        assert wire.finish() == 0
    assert db.documents.count() == 1


def test_where_nobody_is_there_nobody_is_asked(db: Database) -> None:
    able = {"elicitation": {"form": {}}}
    with Wire("--db", str(db.path), "--surface", "desk", "--unattended") as wire:
        wire.request("initialize", {**hello(VERSIONS[-1]), "capabilities": able})
        wire.notify("notifications/initialized")
        assert "was deleted" in wire.call("forget", {"place": "tea.md"})["content"][0]["text"]


def test_an_answer_counts_for_the_call_that_it_was_given_to_and_is_not_made_up(
    db: Database,
) -> None:
    db.documents.ingest_text("Coffee is brown.", source="coffee.md")
    agreed: types.InputResponses = {"confirm": YES}

    async def conversation(client: McpClient) -> list[Any]:
        session, made_up = client.session, "v1.bm90IG1pbmU"
        first = await session.call_tool(*FORGET, allow_input_required=True)
        sealed = first.request_state
        unasked = await session.call_tool(
            *FORGET, input_responses=agreed, allow_input_required=True
        )
        said = [unasked.result_type]
        coffee = {"place": "coffee.md"}
        for arguments, state in [(coffee, sealed), (FORGET[1], made_up), (FORGET[1], sealed + "x")]:
            try:
                await session.call_tool(
                    "forget", arguments, input_responses=agreed, request_state=state
                )
            except MCPError as error:
                said.append(error.message)
        return said

    async def never(_: Any, __: Any) -> types.ElicitResult:
        raise AssertionError

    said = talk(service(db, SURFACE), conversation, elicitation_callback=never, mode="auto")
    assert said == ["input_required", *(3 * ["Invalid or expired requestState"])]
    assert db.documents.count() == 2


def test_a_client_that_goes_away_over_http_changes_nothing(db: Database) -> None:
    running = Running("streamable-http", service(db, SURFACE))
    able = {"capabilities": {"elicitation": {"form": {}}}}
    greeting = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {**hello(), **able}}
    call = {"name": "forget", "arguments": {"place": "tea.md"}}
    asked = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
    try:
        session = running.answer("POST", "/mcp", greeting)[2]["mcp-session-id"]
        connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=60)
        headers = {
            "Authorization": f"Bearer {TOKEN}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Mcp-Session-Id": session,
        }
        connection.request("POST", "/mcp", json.dumps(asked), headers)
        answer = connection.getresponse()
        line = b""
        while b"elicitation/create" not in line:
            line = answer.readline()
            assert line
        answer.close()
        connection.close()
        # Whatever the session is told by others, the server goes on.
        assert running.request(Mcp_Session_Id="")[0] == 200
    finally:
        running.stop()
    assert db.documents.count() == 1


@pytest.mark.parametrize("mode", MODES)
def test_questions_reach_a_person_over_http(db: Database, mode: str) -> None:
    running = Running("streamable-http", service(db, SURFACE))
    questions: list[str] = []

    async def put(_: Any, params: Any) -> types.ElicitResult:
        questions.append(params.message)
        return YES if len(questions) > 1 else NO

    async def run() -> list[bool]:
        url = f"http://127.0.0.1:{running.port}/mcp"
        token = {"Authorization": f"Bearer {TOKEN}"}
        async with (
            create_mcp_http_client(headers=token) as web,
            McpClient(
                streamable_http_client(url, http_client=web), elicitation_callback=put, mode=mode
            ) as client,
        ):
            return [(await client.call_tool(*FORGET)).is_error for _ in range(2)]

    try:
        assert anyio.run(run) == [True, False]
    finally:
        running.stop()
    assert len(questions) == 2 and not db.documents.count()
