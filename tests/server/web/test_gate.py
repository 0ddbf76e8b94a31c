from __future__ import annotations

import http.client
import json
import socket
from typing import Any

import pytest
from starlette.datastructures import Headers

from mcpvectordb_server.web.gate import MOST_SESSIONS, PageGate, Sessions
from tests.server.web.support_web_server import TOKEN, Served

ALONE = {"Authorization": None}


@pytest.mark.parametrize("path", ["/", "/static/app.js", "/api/status", "/api/openapi.json", "/x"])
def test_nothing_is_shown_without_the_token(path: str, filled: Served) -> None:
    status, headers, body = filled.raw("GET", path, headers=ALONE)
    assert status == 401 and b"mcpvectordb web" in body
    assert b"Tea" not in body and headers.get("Set-Cookie") is None


@pytest.mark.parametrize("given", ["wrong", "", TOKEN + "x", TOKEN[:-1], "ü"])
def test_a_wrong_token_lets_nobody_in(given: str, filled: Served) -> None:
    for path, headers in (
        ("/api/status", {"Authorization": f"Bearer {given}".encode().decode("latin-1")}),
        (f"/?token={given.encode().hex()}", ALONE),
    ):
        status, answer, _ = filled.raw("GET", path, headers=headers)
        assert status == 401 and answer.get("Set-Cookie") is None


def test_the_token_in_the_address_becomes_a_cookie_and_goes(filled: Served) -> None:
    status, headers, _ = filled.raw("GET", f"/?token={TOKEN}", headers=ALONE)
    assert (status, headers["Location"], headers["Cache-Control"]) == (303, "/", "no-store")
    cookie = headers["Set-Cookie"]
    assert TOKEN not in cookie and f"mcpvectordb_{filled.port}=" in cookie
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))


def test_a_session_reads_by_its_cookie_and_writes_with_its_own_csrf_token(served: Served) -> None:
    browser, other = served.browser(), served.browser()
    assert browser.ask("GET", "/api/status")[0] == 200
    memory = {"thread": "t", "text": "hello"}
    for token in (None, "", "wrong", other.csrf):
        status, answer = browser.ask("POST", "/api/memories", memory, X_CSRF_Token=token)
        assert (status, answer["error"]["code"]) == (403, "csrf")
    assert served.db.contexts.count() == 0
    assert browser.ask("POST", "/api/memories", memory, X_CSRF_Token=browser.csrf)[0] == 200


def test_a_program_with_the_bearer_token_needs_no_csrf_token(served: Served) -> None:
    assert served.get("/api/session")["csrf"] is None
    assert served.post("/api/memories", thread="t", text="hello")["status"] == "added"


def test_an_unknown_cookie_is_no_session(filled: Served) -> None:
    for cookie in (f"mcpvectordb_{filled.port}=x", "a=b", "=;;", "\x7f", f"mcpvectordb_1={TOKEN}"):
        status, _, _ = filled.raw("GET", "/api/status", headers={**ALONE, "Cookie": cookie})
        assert status == 401


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example:{port}", "127.0.0.1:1", "localhost", "[::1", "", "@"],
)
def test_another_host_is_not_served(host: str, filled: Served) -> None:
    status, answer = filled.ask(
        "GET", "/api/status", headers={"Host": host.format(port=filled.port)}
    )
    assert (status, answer["error"]["code"]) == (421, "wrong_host")


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "[::1]:{port}"])
def test_this_machines_own_names_are_served(host: str, filled: Served) -> None:
    name = host.format(port=filled.port)
    headers = {"Host": name, "Origin": f"http://{name}"}
    assert filled.ask("GET", "/api/status", headers=headers)[0] == 200


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
    browser = filled.browser()
    status, answer = browser.ask("GET", "/api/status", Sec_Fetch_Site=site)
    assert (status, answer["error"]["code"]) == (403, "forbidden_origin")
    headers = {**ALONE, "Cookie": browser.cookie, "Sec-Fetch-Site": site}
    assert filled.raw("GET", "/", headers=headers)[0] == 200  # a link to the page is no harm
    assert browser.ask("GET", "/api/status", Sec_Fetch_Site="same-origin")[0] == 200


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
    with socket.create_connection(("127.0.0.1", filled.port), timeout=10) as client:
        client.sendall(upgrade.encode())
        assert b" 101 " not in client.recv(100)


def test_two_cookies_of_two_ports_do_not_disturb_each_other(filled: Served, served: Served) -> None:
    first, second = filled.browser(), served.browser()
    both = f"{first.cookie}; {second.cookie}"
    for each in (filled, served):
        connection = http.client.HTTPConnection("127.0.0.1", each.port, timeout=60)
        connection.request("GET", "/api/session", headers={"Cookie": both})
        assert json.loads(connection.getresponse().read())["path"] == str(each.db.path)
        connection.close()


def test_only_so_many_sessions_are_kept_and_those_in_use_stay() -> None:
    sessions = Sessions()
    first, second = sessions.begin(), sessions.begin()
    for _ in range(MOST_SESSIONS - 1):
        assert sessions.csrf_token(first)
        sessions.begin()
    assert sessions.csrf_token(first) and sessions.csrf_token(second) is None


def test_the_address_that_a_browser_is_started_with_lets_one_in_only() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("not reached")

    gate = PageGate(app, token=TOKEN, once="for-one-browser-only")

    def enter(token: str) -> int:
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/",
            "query_string": f"token={token}".encode(),
            "headers": [(b"host", b"127.0.0.1:80")],
            "server": ("127.0.0.1", 80),
        }
        answer = gate._answer(scope, Headers(scope=scope))
        assert answer is not None
        return answer.status_code

    tokens = ("for-one-browser-only", "for-one-browser-only", "", TOKEN, TOKEN)
    assert [enter(token) for token in tokens] == [303, 401, 401, 303, 303]
