from __future__ import annotations

import socket
from typing import Any

import pytest
from starlette.datastructures import Headers

from mcpvectordb_server.web.gate import PageGate
from tests.server.web.support_web_server import TOKEN, Served

ALONE = {"Authorization": None}


@pytest.mark.parametrize(
    "path", ["/api/status", "/api/openapi.json", "/api/events", "/api", "/x", "/API/status", "//"]
)
def test_nothing_is_shown_without_the_token(path: str, filled: Served) -> None:
    for headers in ({}, {"Cookie": f"mcpvectordb_{filled.port}={TOKEN}; token={TOKEN}"}):
        status, answer = filled.ask("GET", path, headers={**ALONE, **headers})
        assert status == 401 and "mcpvectordb web" in answer["error"]["message"]


def test_the_page_itself_needs_no_token_and_has_nothing_stored_in_it(filled: Served) -> None:
    for path in ("/", "/static/app.js"):
        alone, let_in = (filled.raw("GET", path, headers=each) for each in (ALONE, {}))
        assert alone[0] == 200 and alone[2] == let_in[2]
        assert b"Tea" not in alone[2] and str(filled.db.path).encode() not in alone[2]


@pytest.mark.parametrize("given", ["wrong", "", TOKEN + "x", TOKEN[:-1], "ü"])
def test_a_wrong_token_lets_nobody_in(given: str, filled: Served) -> None:
    sent = f"Bearer {given}".encode().decode("latin-1")
    for header in (sent, f"Basic {TOKEN}", TOKEN):
        for path in ("/api/status", "/api/session", f"/api/status?token={TOKEN}"):
            status, _, _ = filled.raw("GET", path, headers={"Authorization": header})
            assert status == 401


@pytest.mark.parametrize(
    "query",
    [
        "&".join(f"a{number}=1" for number in range(25)),
        "token=&token=" + "&" * 2_000,
        "%00",
        "token=%ff%fe",
        "token=%zz%",
        "limit=1" * 5_000,
        "%ed%a0%80=%c3%28;=?",
    ],
)
def test_no_query_is_an_internal_error(query: str, filled: Served) -> None:
    assert filled.raw("GET", f"/?{query}", headers=ALONE)[0] == 200  # the page takes no parameters
    status, answer = filled.ask("GET", f"/api/documents?{query}")
    assert (status, answer["error"]["code"]) == (400, "invalid_argument")


def test_no_answer_sets_a_cookie(filled: Served) -> None:
    for path in ("/", f"/?token={TOKEN}", "/api/session", "/static/app.js", "/x"):
        for headers in ({}, ALONE):
            assert filled.raw("GET", path, headers=headers)[1].get("Set-Cookie") is None


def test_a_page_gets_a_token_of_its_own_which_ends_with_the_server(
    filled: Served, served: Served
) -> None:
    given = filled.get("/api/session")["token"]
    assert given != TOKEN and given == filled.get("/api/session")["token"]
    mine = {"Authorization": f"Bearer {given}"}
    assert filled.ask("GET", "/api/status", headers=mine)[0] == 200
    assert filled.ask("GET", "/api/session", headers=mine)[1]["token"] == given
    assert served.ask("GET", "/api/status", headers=mine)[0] == 401


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example:{port}",
        "127.0.0.1:1",
        "127.0.0.1",
        "127.0.0.1:0{port}",
        # Where another user may listen on the same port: their page would have the origin of ours.
        "localhost:{port}",
        "[::1]:{port}",
        "page.localhost:{port}",
        "127.1:{port}",
        "[::1",
        "",
        "@",
    ],
)
def test_another_host_is_not_served(host: str, filled: Served) -> None:
    status, answer = filled.ask(
        "GET", "/api/status", headers={"Host": host.format(port=filled.port)}
    )
    assert (status, answer["error"]["code"]) == (421, "wrong_host")


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "http://127.0.0.1:1",
        "http://localhost:{port}",
        "https://127.0.0.1:{port}",
        "",
    ],
)
def test_another_origin_is_refused_also_on_this_machine(origin: str, filled: Served) -> None:
    headers = {"Origin": origin.format(port=filled.port)}
    status, answer = filled.ask("POST", "/api/search", {"query": "tea"}, headers)
    assert (status, answer["error"]["code"]) == (403, "forbidden_origin")


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_another_page_makes_the_browser_fetch_is_refused(site: str, filled: Served) -> None:
    for path in ("/api/status", "/static/app.js"):
        status, answer = filled.ask("GET", path, headers={"Sec-Fetch-Site": site})
        assert (status, answer["error"]["code"]) == (403, "forbidden_origin")
    # A link to the page is no harm.
    assert filled.raw("GET", "/", headers={**ALONE, "Sec-Fetch-Site": site})[0] == 200
    assert filled.ask("GET", "/api/status", headers={"Sec-Fetch-Site": "same-origin"})[0] == 200


@pytest.mark.parametrize(
    "path", ["/", "/api/status", "/api/nothing", "/static/app.js", "/static/no"]
)
def test_every_answer_has_the_headers_that_browsers_keep_to(path: str, filled: Served) -> None:
    for headers in (ALONE, {}, {"Host": "evil.example"}):
        _, found, _ = filled.raw("GET", path, headers=headers)
        policy = found["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy and "http" not in policy
        assert found["X-Content-Type-Options"] == "nosniff"
        assert found["Referrer-Policy"] == "no-referrer"
        assert found["Cache-Control"] == ("no-store" if path.startswith("/api") else "no-cache")
        assert found.get("Access-Control-Allow-Origin") is None and found.get("Server") is None


def test_a_preflight_of_another_page_is_refused(filled: Served) -> None:
    headers = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    status, found, _ = filled.raw("OPTIONS", "/api/search", headers={**ALONE, **headers})
    assert status == 403 and found.get("Access-Control-Allow-Origin") is None


def test_a_websocket_is_closed(filled: Served) -> None:
    upgrade = (
        f"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1:{filled.port}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", filled.port), timeout=60) as client:
        client.sendall(upgrade.encode())
        assert b" 101 " not in client.recv(100)


def test_the_address_that_a_browser_is_started_with_lets_one_in_only() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("not reached")

    gate = PageGate(app, token=TOKEN, once="for-one-browser-only")

    def enter(token: str, path: str = "/api/session") -> int:
        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "headers": [
                (b"host", b"127.0.0.1:80"),
                (b"authorization", b"Bearer " + token.encode()),
            ],
            "server": ("127.0.0.1", 80),
        }
        answer = gate.answer(scope, Headers(scope=scope))
        return 200 if answer is None else answer.status_code

    assert enter("for-one-browser-only", "/api/status") == 401
    tokens = ("for-one-browser-only", "for-one-browser-only", "", TOKEN, TOKEN)
    assert [enter(token) for token in tokens] == [200, 401, 401, 200, 200]
