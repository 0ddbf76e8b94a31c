"""A server on loopback with hostile clients.

Requests without the token are refused, and no client can keep others from being served.
"""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest

from mcpvectordb import Database
from mcpvectordb_server.http import MAX_BODY
from mcpvectordb_server.surfaces import load
from tests.guarantees import Guarantee
from tests.server.clients import Wire, service
from tests.server.support_http import HELLO, TOKEN, Running
from tests.torture.support_torture import opened

pytestmark = pytest.mark.torture

CLIENTS = 8

TOKENS = [
    *("", TOKEN, "Bearer wrong", "Bearer ", "Bearer " + "x" * 8_000, f"Basic {TOKEN}"),
    *(f"Bearer {each}" for each in (f"{TOKEN}x", TOKEN[:-1], TOKEN.upper(), f"{TOKEN}, Bearer x")),
]
HOSTS = """
    evil.example 127.0.0.1.evil.example evil.example:80 [::1 @localhost@x localhost.evil.example
    0.0.0.0 evil.example#localhost 2130706433
""".split()
ORIGINS = """
    http://evil.example null http://localhost.evil.example file:// http://evil.example/localhost
    http://localhost@evil.example javascript:localhost
""".split()
REFUSED = [
    *({"Authorization": each} for each in TOKENS),
    *({"Host": each} for each in HOSTS),
    *({"Origin": each} for each in ORIGINS),
]
HEAD = (
    f"Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\nAccept: application/json, "
    f"text/event-stream\r\n"
)
MALFORMED = [
    b"\r\n\r\n",
    b"hello\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"\x16\x03\x01\x02\x00" * 20,
    bytes(2_000),
    b"POST /mcp HTTP/1.1\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000,
    b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    b"POST /mcp HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\nzz\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    b"POST /mcp HTTP/1.1\nHost: local\x00host\n\n",
    *(
        f"POST /mcp HTTP/1.1\r\n{HEAD}Content-Type: application/{kind}\r\n\r\n".encode() + body
        for kind, body in (
            ("text\r\nContent-Length: 2", b"{}"),
            ("json\r\nContent-Length: 2", b"[]"),
            ("json\r\nContent-Length: 3", b'{"a'),
            ("json\r\nContent-Length: 0", b""),
            ("json\r\nContent-Length: 20000", b"[" * 20_000),
            ("json\r\nTransfer-Encoding: chunked", b"zz\r\n"),
            (f"json\r\nContent-Length: {MAX_BODY + 1}", b"{"),
            ("json\r\nMcp-Session-Id: ../../x\r\nContent-Length: 2", b"{}"),
        )
    ),
    f"DELETE /mcp HTTP/1.1\r\n{HEAD}\r\n".encode(),
    f"PUT /mcp HTTP/1.1\r\n{HEAD}Content-Length: 0\r\n\r\n".encode(),
    f"GET /../../etc/passwd HTTP/1.1\r\n{HEAD}\r\n".encode(),
    f"GET /%2e%2e/x HTTP/1.1\r\n{HEAD}\r\n".encode(),
]


@contextmanager
def served(path: Path) -> Iterator[Running]:
    with opened(path) as db:
        running = Running("streamable-http", service(db, load("mcpvectordb"), roots=()))
        try:
            yield running
        finally:
            running.stop()


def test_requests_without_the_token_and_malformed_requests_are_refused(
    guarantee: Callable[..., Guarantee], path: Path
) -> None:
    cases = len(REFUSED) + len(MALFORMED)
    tested = guarantee("9 requests to be refused", full=2_000, short=cases)
    with served(path) as running:

        def round(number: int, rng: random.Random) -> None:
            place = number % cases
            if place < len(REFUSED):
                asked = rng.choice(["/mcp", "/", "/sse", "/messages/", "/mcp/../mcp"])
                status, text = running.request(path=asked, **REFUSED[place])
                assert status in (400, 401, 403, 421) and "serverInfo" not in text, (
                    REFUSED[place],
                    status,
                )
            else:
                malformed(running.port, MALFORMED[place - len(REFUSED)])
            if number % 5 == 0:
                assert running.request()[0] == 200

        tested.run_rounds(round)
        assert running.request()[0] == 200


def malformed(port: int, request: bytes) -> None:
    """Send bytes that are no valid request; the reply is a refusal, or the connection ends."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        try:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(100)
        except (ConnectionResetError, BrokenPipeError):
            return
    assert answer == b"" or answer.split(b" ")[1][:1] == b"4", (request[:60], answer)


def test_open_connections_do_not_keep_other_clients_out(
    guarantee: Callable[..., Guarantee], path: Path
) -> None:
    """Idle ones, slow headers, slow bodies with and without the token, and endless bodies."""
    tested = guarantee("9 connections that are kept open", full=200, short=40)
    body = f"POST /mcp HTTP/1.1\r\n{HEAD}Content-Type: application/json\r\n"
    begun = [
        b"",
        b"POST /mcp HTTP/1.1\r\nHost: local",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
        f"{body}Content-Length: 1000\r\n\r\n".encode(),
        f"{body}Transfer-Encoding: chunked\r\n\r\n".encode(),
    ]
    waits: list[float] = []
    with served(path) as running, ExitStack() as stack:
        dripping: list[socket.socket] = []

        def round(number: int, rng: random.Random) -> None:
            connection = stack.enter_context(
                socket.create_connection(("127.0.0.1", running.port), timeout=30)
            )
            connection.sendall(begun[number % len(begun)])
            dripping.append(connection)
            for each in rng.sample(dripping, min(5, len(dripping))):
                try:
                    each.sendall(b"1\r\nx\r\n" if rng.random() < 0.5 else b"x")
                except OSError:
                    dripping.remove(each)  # it was closed, which is just as well
            started = time.monotonic()
            assert running.request()[0] == 200
            waits.append(time.monotonic() - started)

        tested.run_rounds(round)
        endless(running.port, body)
        assert running.request()[0] == 200
    tested.note = (
        f"others waited {1000 * sorted(waits)[len(waits) // 2]:.0f} ms, at most "
        f"{1000 * max(waits):.0f}"
    )


def endless(port: int, head: str) -> None:
    """A body that is longer than the limit is not read."""
    piece = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        try:
            for _ in range(2 * MAX_BODY // 0x10000):
                connection.sendall(piece)
            answer = connection.recv(100)
        except (ConnectionResetError, BrokenPipeError):
            return
    assert b" 413 " in answer or answer == b"", answer


def test_a_server_process_serves_many_clients_at_once(
    guarantee: Callable[..., Guarantee], path: Path
) -> None:
    tested = guarantee("9 load over HTTP", full=4_000, short=64)
    with Database(path) as db:
        for number in range(20):
            db.documents.ingest_text(
                f"# {number}\n\nThe keeper lights the lamp of harbour {number}.",
                source=f"{number}.md",
            )
    with Wire.over_http("--db", str(path), token=TOKEN, patience=20_000) as wire:
        port = wire.port
        seconds: list[float] = []
        clients = [
            threading.Thread(
                target=client,
                args=[port, tested.planned // CLIENTS, number, seconds, tested.failures],
            )
            for number in range(CLIENTS)
        ]
        for each in clients:
            each.start()
        for each in clients:
            each.join()
        wire.process.terminate()
        wire.process.wait(30)
        assert "Traceback" not in wire.errors
    tested.rounds = len(seconds)
    ordered = sorted(seconds)
    tested.note = (
        f"{CLIENTS} clients, p50 {1000 * ordered[len(ordered) // 2]:.0f} ms, "
        f"p99 {1000 * ordered[len(ordered) * 99 // 100]:.0f} ms, {len(tested.failures)} errors"
    )
    tested.check_failures()


CALLS: list[dict[str, Any]] = [
    {"name": "search", "arguments": {"query": "lamp"}},
    {"name": "search", "arguments": {"query": "who lights it?"}},
    {"name": "list_documents", "arguments": {"limit": 5}},
    {"name": "list_libraries", "arguments": {}},
    {"name": "get_document", "arguments": {"doc_id": "x"}},
]


def client(port: int, count: int, seed: int, seconds: list[float], failures: list[str]) -> None:
    """A client that calls tools one after the other, and begins a new session now and then."""
    rng = random.Random(seed)
    for start in range(0, count, 50):
        with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            session = post(connection, HELLO)[1]
            for number in range(start, min(count, start + 50)):
                call = rng.choice(CALLS)
                started = time.monotonic()
                answer, _ = post(
                    connection,
                    {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call},
                    session,
                )
                seconds.append(time.monotonic() - started)
                if answer.get("id") != number or "result" not in answer:
                    failures.append(f"{call}: {answer}")


def post(
    connection: HTTPConnection, message: dict[str, Any], session: str = ""
) -> tuple[dict[str, Any], str]:
    """Send a message; returns the reply, or what was wrong, and its session."""
    headers = {
        "Authorization": f"Bearer {TOKEN}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        **({"Mcp-Session-Id": session} if session else {}),
    }
    try:
        connection.request("POST", "/mcp", json.dumps(message), headers)
        response = connection.getresponse()
        text = response.read().decode()
        found: dict[str, Any] = json.loads(text.partition("data: ")[2] or text)
        return found, response.getheader("Mcp-Session-Id", "")
    except (OSError, HTTPException, ValueError) as error:
        return {"failed": f"{type(error).__name__}: {error}"}, ""
