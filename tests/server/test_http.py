from __future__ import annotations

import json
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client
from starlette.responses import PlainTextResponse

from mcpvectordb import InvalidInput
from mcpvectordb_server import connections
from mcpvectordb_server import http as served
from tests.server.clients import Wire, service
from tests.server.little_surface import LITTLE, Shelf
from tests.server.support_http import HELLO, TOKEN, Running


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    made = Running("streamable-http", service(Shelf(), LITTLE))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def strict() -> Iterator[Running]:
    """A server that closes a connection after 0.2 seconds without a request."""
    made = Running("streamable-http", service(Shelf(), LITTLE), head_seconds=0.2)
    yield made
    made.stop()


def test_a_request_with_the_right_token_is_served(running: Running) -> None:
    status, text = running.request()
    assert status == 200
    assert '"serverInfo":{"name":"mcpvectordb"' in text.replace(" ", "")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": ""}, 401),
        ({"Authorization": f"Bearer {TOKEN}x"}, 401),
        ({"Authorization": f"bearer  {TOKEN}"}, 200),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "[::1]:80"}, 200),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:5173"}, 200),
        ({"Host": "evil.example", "Authorization": ""}, 421),
    ],
)
def test_the_gate_checks_host_origin_and_token(
    headers: dict[str, str], status: int, running: Running
) -> None:
    assert running.request(**headers)[0] == status


def test_health_needs_no_token_and_reveals_nothing(running: Running) -> None:
    assert running.request("GET", "/health", Authorization="", Host="10.0.0.7") == (200, "ok")


def test_a_body_beyond_the_limit_is_refused(running: Running) -> None:
    assert running.request(body=b'{"a": "' + b"x" * connections.MAX_BODY + b'"}')[0] == 413


@pytest.mark.parametrize(
    "sent", [b"", b"POST /mcp HT", b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n", b"refused"]
)
def test_a_connection_on_which_no_request_begins_is_closed(sent: bytes, strict: Running) -> None:
    with socket.create_connection(("127.0.0.1", strict.port), timeout=10) as silent:
        if sent == b"refused":  # its body never ends
            silent.sendall(
                b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nx"
            )
            answer = b""
            while not answer.endswith(b"is needed"):
                answer += silent.recv(1000)
            silent.sendall(b"x")
        else:
            silent.sendall(sent)
        assert silent.recv(1000) == b""
    assert strict.request()[0] == 200


def test_a_request_whose_head_has_arrived_is_not_timed_out(strict: Running) -> None:
    body = json.dumps(HELLO).encode()
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()
    with socket.create_connection(("127.0.0.1", strict.port), timeout=10) as slow:
        slow.sendall(head + body[:10])
        time.sleep(0.5)
        slow.sendall(body[10:])
        assert slow.recv(1000).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("path", ["/mcp?" + "a=1&" * 1_000, "/mcp?%ff=%00", "/%00%ff", "/mcp%2f.."])
def test_no_path_and_no_query_is_an_internal_error(path: str, running: Running) -> None:
    assert running.request(path=path)[0] == (200 if "?" in path else 404)
    assert running.request(path=path, Authorization="")[0] == 401


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ('{"jsonrpc":"2.0","id":1.5,"method":"ping"}', "ping needs an id: text or whole number"),
        ('{"jsonrpc":"2.0","id":true,"method":"ping"}', "ping needs an id: text or whole number"),
        ('{"jsonrpc":"2.0","id":null,"method":"ping"}', "ping needs an id: text or whole number"),
        (json.dumps([HELLO, HELLO]), "batches are not supported: send each message by itself"),
        ("[]", "batches are not supported: send each message by itself"),
        ('{"jsonrpc":"2.0","id":8}', "not a JSON-RPC 2.0 message"),
        ('"text"', "not a JSON-RPC 2.0 message"),
    ],
)
def test_a_message_that_gets_no_answer_is_refused_with_the_reason(
    body: str, told: str, running: Running
) -> None:
    status, text = running.request(body=body)
    error = {"code": -32600, "message": f"Invalid request: {told}"}
    assert (status, json.loads(text)) == (400, {"jsonrpc": "2.0", "id": None, "error": error})


def test_a_notification_is_accepted_without_an_answer(running: Running) -> None:
    session = running.answer("POST", "/mcp")[2]["mcp-session-id"]
    told = '{"jsonrpc":"2.0","method":"notifications/initialized"}'
    assert running.request("POST", "/mcp", told, Mcp_Session_Id=session) == (202, "")


def test_a_body_that_is_not_json_is_answered_with_a_parse_error(running: Running) -> None:
    for body in ("hello", '{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\\ud800"}}'):
        status, text = running.request(body=body)
        assert status == 400
        assert json.loads(text)["error"]["code"] == -32700
    assert running.request()[0] == 200


def talk_http(port: int, conversation: Any) -> Any:
    async def run() -> Any:
        url = f"http://127.0.0.1:{port}/mcp"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with (
            create_mcp_http_client(headers=headers) as web,
            Client(streamable_http_client(url, http_client=web)) as client,
        ):
            return await conversation(client)

    return anyio.run(run)


def test_the_official_client_calls_tools_over_sse() -> None:
    made = Running("sse", service(Shelf(), LITTLE))

    async def run() -> Any:
        transport = sse_client(
            f"http://127.0.0.1:{made.port}/sse", headers={"Authorization": f"Bearer {TOKEN}"}
        )
        async with Client(transport) as client:
            return (await client.call_tool("add", {"note": "tea"})).structured_content

    try:
        assert anyio.run(run) == {"status": "added", "count": 1}
        assert made.request("GET", "/sse", Authorization="")[0] == 401
        assert made.request("POST", "/messages/?session_id=0", Authorization="")[0] == 401
    finally:
        made.stop()


def test_the_token_is_made_once_kept_private_and_shown_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = served.token_for("127.0.0.1", None, tmp_path / "data")
    assert len(token) >= 32
    assert token in capsys.readouterr().err
    assert stat.S_IMODE((tmp_path / "data" / "token").stat().st_mode) == 0o600
    assert served.token_for("127.0.0.1", None, tmp_path / "data") == token
    assert capsys.readouterr().err == ""


def test_a_given_token_is_taken_and_a_short_one_is_not(tmp_path: Path) -> None:
    assert served.token_for("0.0.0.0", f" {TOKEN}\n", tmp_path) == TOKEN
    for short in ("", " ", "x" * 15, " " * 20 + "secret"):
        with pytest.raises(InvalidInput, match=r"MCPVECTORDB_TOKEN has \d+ char.* at least 16"):
            served.token_for("127.0.0.1", short, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        *(
            (each, r"token has \d+ char.*remove it to have a new")
            for each in (b"", b"\n", b"x" * 15)
        ),
        *(
            (each, "no HTTP header can have; remove it to have a new")
            for each in (bytes(40), b"x" * 20 + b"\x1b" + b"x" * 20, "é".encode() * 20)
        ),
        (b"\xff" * 40, r"the token file .* cannot be read or made: "),
        ("folder", r"the token file .* cannot be read or made: "),
        ("dangling link", r"the token file .* cannot be read or made: "),
        ("for all", "can be read by others; run: chmod 600"),
    ],
)
def test_a_token_file_that_cannot_be_used_is_a_clear_error_and_stays(
    kept: bytes | str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    if kept == "folder":
        path.mkdir(0o700)
    elif kept == "dangling link":
        path.symlink_to(tmp_path / "nowhere")
    else:
        path.touch(0o644 if kept == "for all" else 0o600)
        path.write_bytes(kept if isinstance(kept, bytes) else b"x" * 40)
    with pytest.raises(InvalidInput, match=message) as error:
        served.token_for("127.0.0.1", None, tmp_path)
    assert "x" * 15 not in str(error.value)
    assert list(tmp_path.iterdir()) == [path]
    assert not isinstance(kept, bytes) or path.read_bytes() == kept


def test_the_gate_refuses_to_work_with_an_empty_or_short_token() -> None:
    for short in ("", " " * 20, "x" * 15):
        with pytest.raises(InvalidInput, match="the token of the gate has"):
            served.AccessGate(PlainTextResponse("reached"), token=short, hosts=["localhost"])


@pytest.mark.parametrize("kind", ["websocket", "webtransport"])
def test_the_gate_lets_only_http_and_lifespan_through(kind: str) -> None:
    reached: list[str] = []
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope["type"])

    async def receive() -> Any:
        return {"type": f"{kind}.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    async def connect(kind: str) -> None:
        gate = served.AccessGate(app, token=TOKEN, hosts=["localhost"])
        headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {TOKEN}".encode())]
        await gate({"type": kind, "path": "/mcp", "headers": headers}, receive, send)

    if kind == "websocket":
        anyio.run(connect, kind)
        assert sent == [{"type": "websocket.close", "code": 1008}]
    else:
        with pytest.raises(ValueError, match="cannot check ASGI scopes of the type 'webtransport'"):
            anyio.run(connect, kind)
    assert reached == []
    for known in ("http", "lifespan"):
        anyio.run(connect, known)
    assert reached == ["http", "lifespan"]


def test_first_starts_at_the_same_time_agree_on_one_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    starts = 8

    def start(folder: Path, together: threading.Barrier) -> str:
        together.wait(30)
        return served.token_for("127.0.0.1", None, folder)

    with ThreadPoolExecutor(starts) as pool:
        for number in range(50):
            folder, together = tmp_path / str(number), threading.Barrier(starts)
            begun = [pool.submit(start, folder, together) for _ in range(starts)]
            tokens = {each.result(30) for each in begun}
            assert tokens == {(folder / "token").read_text().strip()}
            assert [each.name for each in folder.iterdir()] == ["token"]
    assert capsys.readouterr().err.count("New token") == 50


def test_a_full_disk_at_the_first_start_is_a_clear_error_and_leaves_no_file(tmp_path: Path) -> None:
    code = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from mcpvectordb_server.http import token_for\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "token_for('127.0.0.1', None, Path(sys.argv[1]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert "InvalidInput: the token file" in done.stderr
    assert "cannot be read or made: File too large; repair this, or set" in done.stderr
    assert list(tmp_path.iterdir()) == []


LOCAL = ("127.0.0.1", "127.8.8.8", "::1", "localhost")


@pytest.mark.parametrize("host", [*LOCAL, "0.0.0.0", "::", "192.168.1.5", "example.org"])
def test_serving_other_machines_needs_a_given_token(host: str, tmp_path: Path) -> None:
    assert connections.is_loopback(host) is (host in LOCAL)
    if host not in LOCAL:
        with pytest.raises(InvalidInput, match="set MCPVECTORDB_TOKEN"):
            served.token_for(host, None, tmp_path)


def test_a_port_in_use_is_a_clear_error() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(
            InvalidInput, match=r"cannot listen on 127.0.0.1 port \d+: Address already in use"
        ),
    ):
        connections.listen("127.0.0.1", taken.getsockname()[1])


def test_the_whole_server_over_http_needs_a_root_for_files_and_stops_on_a_signal(
    tmp_path: Path,
) -> None:
    note = tmp_path / "in" / "tea.md"
    note.parent.mkdir()
    note.write_text("# Tea\n\nWater at 80 degrees.\n")

    def ask(*arguments: str) -> dict[str, Any]:
        with Wire.over_http("--db", str(tmp_path / "a.db"), *arguments, token=TOKEN) as wire:
            port = wire.port

            async def conversation(client: Client) -> Any:
                called = await client.call_tool("ingest_file", {"path": str(note)})
                return called.structured_content

            reply: dict[str, Any] = talk_http(port, conversation)
            wire.process.terminate()
            wire.process.wait(15)
            assert wire.process.stdout is not None
            assert wire.process.stdout.read() == ""
            assert "Traceback" not in wire.errors
            return reply

    assert ask() == {
        "status": "error",
        "error": "Ingestion failed: files can be ingested over HTTP only from folders "
        "the server was started with (--root DIR)",
    }
    assert ask("--root", str(note.parent))["status"] == "indexed"


def test_a_preflight_of_an_allowed_origin_is_answered_without_a_token(running: Running) -> None:
    asked = {"Origin": "http://localhost:5173", "Access_Control_Request_Method": "POST"}
    status, _, headers = running.answer("OPTIONS", "/mcp", Authorization="", **asked)
    assert status == 204
    assert headers["access-control-allow-origin"] == "http://localhost:5173"
    assert "POST" in headers["access-control-allow-methods"]
    allowed = headers["access-control-allow-headers"].lower()
    for name in ("authorization", "content-type", "mcp-protocol-version"):
        assert name in allowed


@pytest.mark.parametrize("host", ["localhost", "evil.example"])
def test_no_answer_can_be_read_by_a_page_of_another_origin(running: Running, host: str) -> None:
    asked = {"Origin": "http://evil.example", "Access_Control_Request_Method": "POST"}
    for method in ("OPTIONS", "POST", "GET"):
        status, _, headers = running.answer(method, "/mcp", Host=host, **asked)
        assert status in (403, 421)
        assert "access-control-allow-origin" not in headers


def test_an_answer_to_an_allowed_origin_says_so_and_shows_the_session(running: Running) -> None:
    asked = {"Authorization": "", "Origin": "http://localhost:5173"}
    status, _, headers = running.answer("GET", "/mcp", **asked)
    assert status == 401
    assert headers["access-control-allow-origin"] == "http://localhost:5173"
    assert headers["access-control-expose-headers"] == "Mcp-Session-Id, WWW-Authenticate"
    assert "origin" in headers["vary"].lower()
    assert "access-control-allow-origin" not in running.answer("GET", "/mcp")[2]


@pytest.mark.parametrize(
    "path",
    ["/.well-known/oauth-protected-resource", "/.well-known/oauth-authorization-server/mcp"],
)
def test_a_client_that_looks_for_oauth_finds_none(running: Running, path: str) -> None:
    assert running.request("GET", path, Authorization="")[0] == 404
