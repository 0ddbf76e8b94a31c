from __future__ import annotations

import base64
import http.client
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ResourcesListChanged, ResourceUpdated
from mcp.shared._httpx_utils import create_mcp_http_client

from mcpvectordb import Database
from mcpvectordb_server import resources
from mcpvectordb_server.surface import Surface
from mcpvectordb_server.surfaces import load
from tests.server.clients import VERSIONS, Wire, exchange, refusal, service, talk
from tests.server.support_http import TOKEN, Running
from tests.support import Letters

DESK = load("desk")
TEA = "mcpvectordb://documents/default/tea.md"
MODERN = "2026-07-28"

# The SDK's client warns of subscribing to one resource, which older clients do.
pytestmark = pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")


@pytest.fixture
def db(path: Path) -> Iterator[Database]:
    with Database(path, embedder=Letters()) as opened:
        opened.documents.ingest_text("# Tea\n\n80 degrees.\n", source="tea.md", embed=False)
        opened.memories.add("drinks", "agent", "Tea is green.", tags=["hot"])
        yield opened


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "LOOK_SECONDS", 0.02)


def changed_by_another(db: Database, change: Callable[[Database], object]) -> Awaitable[None]:
    """Change the file as another process does."""

    def run() -> None:
        with Database(db.path, embedder=Letters()) as other:
            change(other)

    return anyio.to_thread.run_sync(run)


def told_older(made: Any, uris: list[str], then: Callable[[Client], Awaitable[Any]]) -> list[str]:
    """What a client of 2025 that subscribes to resources is told while something is done."""
    told: list[str] = []
    news = anyio.Event()

    async def heard(message: Any) -> None:
        nonlocal news
        if isinstance(message, types.ResourceUpdatedNotification):
            told.append(str(message.params.uri))
            news.set()
            news = anyio.Event()

    async def conversation(client: Client) -> None:
        for uri in uris:
            await client.subscribe_resource(uri)
        await then(client)
        with anyio.move_on_after(0.3):
            while True:
                await news.wait()

    talk(made, conversation, mode="legacy", message_handler=heard)
    return told


def test_resources_are_listed_read_and_completed_by_clients_of_every_version(db: Database) -> None:
    for version in VERSIONS:
        hello, listed, templates, read, completed = exchange(
            service(db, DESK),
            version,
            ("resources/list", {}),
            ("resources/templates/list", {}),
            ("resources/read", {"uri": "mcpvectordb://memories/1"}),
            (
                "completion/complete",
                {
                    "ref": {"type": "ref/resource", "uri": "mcpvectordb://documents/{+path}"},
                    "argument": {"name": "path", "value": "default/t"},
                },
            ),
        )
        assert hello["capabilities"]["resources"]["subscribe"] is True
        assert [each["uri"] for each in listed["resources"]] == [TEA, "mcpvectordb://memories/1"]
        assert "nextCursor" not in listed
        assert listed["_meta"]["mcpvectordb/untrusted"] is True
        assert [
            each["uriTemplate"].rpartition("/")[2] for each in templates["resourceTemplates"]
        ] == [
            "{+path}",
            "{id}",
            "{+library}",
            "{+thread}",
            "{+tag}",
        ]
        assert "Tea is green." in read["contents"][0]["text"]
        assert read["_meta"]["mcpvectordb/untrusted"] is True
        assert completed["completion"]["values"] == ["default/tea.md"]


def test_a_stateless_client_pages_through_everything_and_is_told_how_long_it_may_keep_it(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcpvectordb_server.surfaces.desk_resources.PAGE", 2)
    db.documents.ingest_many(["a", "b"], sources=["a.md", "b.md"], embed=False)

    async def conversation(client: Client) -> tuple[list[str], Any, Any]:
        assert client.protocol_version == MODERN
        found, cursor = [], None
        while True:
            page = await client.list_resources(cursor=cursor)
            found += [each.name for each in page.resources]
            if not (cursor := page.next_cursor):
                return found, page, await client.list_tools()

    found, page, tools = talk(service(db, DESK), conversation)
    assert found == ["default/a.md", "default/b.md", "default/tea.md", "memory:1"]
    assert (page.ttl_ms, page.cache_scope) == (0, "private")
    assert (tools.ttl_ms, tools.cache_scope) == (300_000, "private")


def test_a_stream_tells_of_what_another_process_changes_and_deletes(db: Database) -> None:
    async def conversation(client: Client) -> list[Any]:
        wanted = [TEA, "mcpvectordb://memories/1"]
        async with client.listen(
            resources_list_changed=True, resource_subscriptions=wanted
        ) as news:
            assert list(news.honored.resource_subscriptions or ()) == wanted
            told = []

            async def until(*events: Any) -> None:
                left = set(events)
                while left:
                    told.append(await anext(news))
                    left.discard(told[-1])

            await changed_by_another(
                db, lambda other: other.documents.ingest_text("New.", source="tea.md", replace=True)
            )
            await until(ResourceUpdated(TEA), ResourcesListChanged())
            await changed_by_another(db, lambda other: other.memories.delete([1]))
            await until(ResourceUpdated(wanted[1]), ResourcesListChanged())
            db.documents.delete(where={"source": "tea.md"})
            await until(ResourceUpdated(TEA), ResourcesListChanged())
        return told

    assert talk(service(db, DESK), conversation).count(ResourceUpdated(TEA)) == 2


def test_embedding_changes_no_resource(db: Database) -> None:
    async def conversation(client: Client) -> list[Any]:
        uris = [TEA, "mcpvectordb://memories/1"]
        async with client.listen(resources_list_changed=True, resource_subscriptions=uris) as news:
            before = db.data_version()
            await changed_by_another(db, lambda other: other.embed_pending())
            assert db.data_version() != before
            told = []
            with anyio.move_on_after(0.3):
                told.append(await anext(news))
        return told

    assert talk(service(db, DESK), conversation) == []


def test_what_does_not_exist_is_left_out_of_a_stream(db: Database) -> None:
    async def conversation(client: Client) -> Any:
        wanted = [
            TEA,
            "mcpvectordb://documents/default/none.md",
            "other://x",
            "mcpvectordb://memories/x",
        ]
        async with client.listen(resource_subscriptions=wanted) as news:
            return news.honored.resource_subscriptions

    assert talk(service(db, DESK), conversation) == [TEA]


def test_an_older_client_is_told_of_what_it_subscribed_to_until_it_unsubscribes(
    db: Database,
) -> None:
    async def change(client: Client) -> None:
        await client.subscribe_resource(TEA)  # twice is once
        await changed_by_another(
            db, lambda other: other.documents.ingest_text("New.", source="tea.md", replace=True)
        )
        await anyio.sleep(0.3)
        await client.unsubscribe_resource(TEA)
        await client.unsubscribe_resource(TEA)
        db.documents.delete(where={"source": "tea.md"})

    made = service(db, DESK)
    assert told_older(made, [TEA], change) == [TEA]
    watch = made.server.get_request_handler("resources/subscribe").handler.__self__
    assert (watch._watched, watch._older) == ({}, {})


def test_nobody_is_watched_for_after_the_clients_have_gone(db: Database) -> None:
    made = service(db, DESK)
    watch = made.server.get_request_handler("resources/subscribe").handler.__self__

    async def nothing(client: Client) -> None:
        assert set(watch._watched) == {TEA}

    told_older(made, [TEA], nothing)
    assert (watch._watched, watch._older) == ({}, {})

    async def listens(client: Client) -> None:
        async with client.listen(resource_subscriptions=[TEA]):
            assert watch._watched[TEA].watchers == 1
        with anyio.fail_after(10):
            while watch._watched or not watch._task.done():
                await anyio.sleep(0.01)

    talk(made, listens)


def test_too_many_resources_and_streams_are_refused_with_the_limit(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "MOST_WATCHED", 1)
    monkeypatch.setattr(resources, "MOST_STREAMS", 2)

    async def conversation(client: Client) -> None:
        async with (
            client.listen(resource_subscriptions=[TEA]),
            client.listen(resource_subscriptions=[TEA]),
        ):
            for more in ([], ["mcpvectordb://memories/1"]):
                with pytest.raises(MCPError, match=r"limit reached|At most 1 resources"):
                    async with client.listen(resource_subscriptions=more, tools_list_changed=True):
                        pass

    talk(service(db, DESK), conversation)


HOSTILE = [
    "mcpvectordb://documents/" + "../" * 50 + "etc/passwd",
    "mcpvectordb://documents/%2e%2e%2fetc%2fpasswd",
    "mcpvectordb://documents//etc/passwd",
    "mcpvectordb://documents/",
    "mcpvectordb://documents/%",
    "mcpvectordb://documents/%00%ff%fe",
    "mcpvectordb://documents/x' OR 1=1 --",
    "mcpvectordb://memories/1; DROP TABLE contexts",
    "mcpvectordb://memories/-1",
    "mcpvectordb://memories/" + "9" * 5000,
    "mcpvectordb://memories/1/../2",
    "mcpvectordb://nothing/x",
    "mcpvectordb://",
    "file:///etc/passwd",
    "MCPVECTORDB://documents/default/tea.md",
    "x" * 100_000,
]


@pytest.mark.parametrize("method", ["resources/read", "resources/subscribe"])
@pytest.mark.parametrize("uri", HOSTILE, ids=lambda each: each[:40])
def test_a_hostile_uri_is_refused_in_few_words(db: Database, method: str, uri: str) -> None:
    error = refusal(service(db, DESK), method, {"uri": uri})
    assert error["code"] == types.INVALID_PARAMS
    assert len(error["message"]) < 1000


@pytest.mark.parametrize(
    "cursor",
    [
        "not base64",
        "ä",
        base64.urlsafe_b64encode(b"[" * 100_000).decode(),
        *(
            base64.urlsafe_b64encode(json.dumps(each).encode()).decode()
            for each in (
                None,
                {},
                [1, 2, 3],
                ["documents"],
                ["memories", "x", "1"],
                ["a", "b", "c"],
            )
        ),
    ],
    ids=lambda each: each[:20],
)
def test_a_cursor_that_is_none_of_ours_is_refused(db: Database, cursor: str) -> None:
    error = refusal(service(db, DESK), "resources/list", {"cursor": cursor})
    assert error["code"] == types.INVALID_PARAMS
    assert len(error["message"]) < 500


@pytest.mark.parametrize(
    ("ref", "name"),
    [
        ({"type": "ref/resource", "uri": "mcpvectordb://documents/{+path}"}, "id"),
        ({"type": "ref/resource", "uri": "other://{x}"}, "x"),
        ({"type": "ref/prompt", "name": "guide"}, "x"),
    ],
)
def test_what_cannot_be_completed_is_refused_with_what_can(
    db: Database, ref: dict[str, str], name: str
) -> None:
    params = {"ref": ref, "argument": {"name": name, "value": ""}}
    error = refusal(service(db, DESK), "completion/complete", params)
    assert error["code"] == types.INVALID_PARAMS
    assert "mcpvectordb://memories/{id}" in error["message"]


def test_at_most_a_hundred_values_complete_one_and_more_are_announced(db: Database) -> None:
    sources = [f"t{number:03}.md" for number in range(150)]
    db.documents.ingest_many(sources, sources=sources, embed=False)
    params = {
        "ref": {"type": "ref/resource", "uri": "mcpvectordb://documents/{+path}"},
        "argument": {"name": "path", "value": "default/t"},
    }
    _, made = exchange(service(db, DESK), VERSIONS[-1], ("completion/complete", params))
    assert len(made["completion"]["values"]) == 100
    assert made["completion"]["hasMore"] is True


@pytest.mark.parametrize(
    "name", ["mcpvectordb", "vector_store", "openrag", "context_server", "qmd"]
)
def test_the_published_surfaces_offer_what_they_did(db: Database, name: str) -> None:
    surface: Surface = load(name)

    async def conversation(client: Client) -> Any:
        tools = await client.list_tools()
        return client.server_capabilities, tools.ttl_ms

    for mode in ("legacy", "auto"):
        capabilities, ttl = talk(service(db, surface), conversation, mode=mode)
        assert capabilities.completions is None
        assert ttl in (0, None)
        if name == "qmd":
            assert capabilities.resources.subscribe is False
        else:
            assert capabilities.resources is None
    error = refusal(service(db, surface), "resources/subscribe", {"uri": TEA})
    assert error["code"] == types.METHOD_NOT_FOUND


def test_a_stream_over_stdio_does_not_keep_the_server_from_ending(db: Database) -> None:
    envelope = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    with Wire("--db", str(db.path), "--surface", "desk") as wire:
        number = wire.start(
            "subscriptions/listen",
            {"_meta": envelope, "notifications": {"resourceSubscriptions": [TEA]}},
        )
        acknowledged = wire.receive()
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        db.documents.delete(where={"source": "tea.md"})
        told = wire.receive()
        assert (told["method"], told["params"]["uri"]) == ("notifications/resources/updated", TEA)
        assert told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == number
        waiting = threading.Timer(4.0, wire.process.kill)  # less than open calls are waited for
        waiting.start()
        assert wire.finish() == 0
        waiting.cancel()


@contextmanager
def over_http(db: Database) -> Iterator[Running]:
    running = Running("streamable-http", service(db, DESK))
    try:
        yield running
    finally:
        running.stop()


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_clients_of_both_generations_are_told_over_http(db: Database, mode: str) -> None:
    told: list[str] = []

    async def run(running: Running) -> None:
        news = anyio.Event()

        async def heard(message: Any) -> None:
            if isinstance(message, types.ResourceUpdatedNotification):
                told.append(str(message.params.uri))
                news.set()

        headers = {"Authorization": f"Bearer {TOKEN}"}
        with anyio.fail_after(30):
            async with create_mcp_http_client(headers=headers) as http:
                url = f"http://127.0.0.1:{running.port}/mcp"
                transport = streamable_http_client(url, http_client=http)
                async with Client(transport, mode=mode, message_handler=heard) as client:
                    if mode == "legacy":
                        await client.subscribe_resource(TEA)
                        await anyio.sleep(0.5)  # until the client's stream for news is open
                        db.documents.delete(where={"source": "tea.md"})
                        await news.wait()
                    else:
                        async with client.listen(resource_subscriptions=[TEA]) as stream:
                            db.documents.delete(where={"source": "tea.md"})
                            assert await anext(stream) == ResourceUpdated(TEA)

    with over_http(db) as running:
        anyio.run(run, running)
    assert told == [TEA]


def test_many_streams_of_which_some_are_cut_are_all_told_and_leave_nothing(db: Database) -> None:
    with over_http(db) as running:
        listening = [Stream(running.port) for _ in range(20)]
        for each in listening[::2]:
            each.cut()
        db.documents.delete(where={"source": "tea.md"})
        for each in listening[1::2]:
            assert each.next()["params"]["uri"] == TEA
            each.cut()
        watch = running.made.server.get_request_handler("resources/subscribe").handler.__self__
        deadline = time.monotonic() + 20
        while watch._watched and time.monotonic() < deadline:
            time.sleep(0.02)
        assert (watch._watched, watch._listening) == ({}, 0)


class Stream:
    """A client of 2026-07-28 that listens for changes of one document, over a socket of its own."""

    def __init__(self, port: int) -> None:
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        params = {"_meta": meta, "notifications": {"resourceSubscriptions": [TEA]}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        self._connection.request(
            "POST",
            "/mcp",
            json.dumps(body),
            {
                "Authorization": f"Bearer {TOKEN}",
                "Content-Type": "application/json",
                "Accept": "application/json, text/event-stream",
                "MCP-Protocol-Version": MODERN,
                "Mcp-Method": "subscriptions/listen",
            },
        )
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200
        assert self.next()["method"] == "notifications/subscriptions/acknowledged"

    def next(self) -> dict[str, Any]:
        while not (line := self._answer.readline().decode()).startswith("data: "):
            assert line, "the stream has ended"
        message: dict[str, Any] = json.loads(line.removeprefix("data: "))
        return message

    def cut(self) -> None:
        self._answer.close()
        self._connection.close()
