"""Who may ask: only this machine, only our own page, and only with the token.

Pages of other sites, and of other ports of this machine, run in the same browser. What keeps them
out: the Host must be this server's (DNS rebinding), an Origin must be our own, and so must be what
browsers say in Sec-Fetch-Site; the cookie is HttpOnly and SameSite=Strict; a write needs a token
that only our page can read. Programs send the bearer token instead of the cookie.
"""

from __future__ import annotations

import hmac
import secrets
import threading
from collections import OrderedDict
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mcpvectordb_server.web.errors import HttpError, refusal

MOST_SESSIONS = 64
"""Browsers that are let in at once; the one that has asked for nothing for longest goes first."""

_HOSTS = ("127.0.0.1", "localhost", "::1")
_POLICY_VIOLATION = 1008  # of RFC 6455
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_OPEN_AGAIN = (
    "Open the address that `mcpvectordb web` has printed, with its token: the server was started "
    "again, or this browser was not let in yet.\n"
)


class Sessions:
    """The browsers that came with the token: the value of their cookie, and their CSRF token."""

    def __init__(self) -> None:
        self._tokens: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def begin(self) -> str:
        """The cookie of a new session."""
        with self._lock:
            cookie = secrets.token_urlsafe(32)
            self._tokens[cookie] = secrets.token_urlsafe(32)
            if len(self._tokens) > MOST_SESSIONS:
                self._tokens.popitem(last=False)
            return cookie

    def csrf_token(self, cookie: str) -> str | None:
        """The token that writes of a session need; None if there is no such session."""
        with self._lock:
            found = self._tokens.get(cookie)
            if found is not None:
                self._tokens.move_to_end(cookie)
            return found


class PageGate:
    """Checks Host, Origin and who asks, and adds the headers that browsers keep to.

    What passes has `scope["csrf"]`: the token that a write must repeat, None for a program that has
    sent the bearer token. `once` lets one browser in: the address that a browser is started with is
    seen by everybody who may list the processes of this machine.
    """

    def __init__(self, app: ASGIApp, *, token: str, once: str = "") -> None:
        self._app, self._token, self._sessions = app, token.encode(), Sessions()
        self._once = once.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer what may not pass, and pass on the rest."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
        elif scope["type"] != "http":
            await self._app(scope, receive, send)
        else:
            answer = self._answer(scope, Headers(scope=scope))
            await (answer or self._app)(scope, receive, _with_headers(scope, send))

    def _answer(self, scope: Scope, headers: Headers) -> Response | None:
        """The answer to what does not reach the application."""
        try:
            _check_host(scope, headers)
            _check_origin(headers)
            if scope["path"] == "/" and (given := _token_in(scope)) is not None:
                return self._enter(scope, given)
            _check_site(scope, headers)
            scope["csrf"] = self._csrf_token(scope, headers)
        except HttpError as error:
            if error.status == 401 and not scope["path"].startswith("/api/"):
                return PlainTextResponse(_OPEN_AGAIN, 401)
            return refusal(error, {"WWW-Authenticate": "Bearer"} if error.status == 401 else None)
        return None

    def _enter(self, scope: Scope, given: str) -> Response:
        """Begin a session and take the token out of the address."""
        if self._once and hmac.compare_digest(given.encode(), self._once):
            self._once = b""
        elif not hmac.compare_digest(given.encode(), self._token):
            raise HttpError(401, "unauthorized", _OPEN_AGAIN)
        answer = RedirectResponse("/", 303, {"Cache-Control": "no-store"})
        answer.set_cookie(
            _cookie_name(scope), self._sessions.begin(), path="/", httponly=True, samesite="strict"
        )
        return answer

    def _csrf_token(self, scope: Scope, headers: Headers) -> str | None:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            if hmac.compare_digest(given.strip().encode(), self._token):
                return None
            raise HttpError(401, "unauthorized", "the bearer token is not the one of this server")
        found = self._sessions.csrf_token(_cookie(scope, headers))
        if found is None:
            raise HttpError(401, "unauthorized", _OPEN_AGAIN.strip())
        return found


def check_csrf(scope: Scope) -> None:
    """Refuse a write of a page that does not repeat its session's token."""
    expected = scope["csrf"]
    given = Headers(scope=scope).get("x-csrf-token", "")
    if expected is not None and not hmac.compare_digest(given.encode(), expected.encode()):
        raise HttpError(
            403, "csrf", "the header X-CSRF-Token must have the value from /api/session"
        )


def _check_host(scope: Scope, headers: Headers) -> None:
    try:
        asked = urlsplit(f"//{headers.get('host', '')}")
        allowed = asked.hostname in _HOSTS and (asked.port or 80) == scope["server"][1]
    except ValueError:
        allowed = False
    if not allowed:
        raise HttpError(421, "wrong_host", "this Host is not served here: use the printed address")


def _check_origin(headers: Headers) -> None:
    origin = headers.get("origin")
    if origin is not None and origin.lower() != f"http://{headers.get('host', '').lower()}":
        raise HttpError(403, "forbidden_origin", "requests from this Origin are not accepted")


def _check_site(scope: Scope, headers: Headers) -> None:
    """Refuse what a page of another site or port makes the browser fetch; links to us may be."""
    site = headers.get("sec-fetch-site", "none")
    if scope["path"] != "/" and site not in ("none", "same-origin"):
        raise HttpError(403, "forbidden_origin", "requests from other pages are not accepted")


def _token_in(scope: Scope) -> str | None:
    query = scope["query_string"].decode("latin-1")
    return parse_qs(query, max_num_fields=20).get("token", [None])[0] if query else None


def _cookie_name(scope: Scope) -> str:
    """With the port, because browsers send the cookies of one port to all ports of a host."""
    return f"mcpvectordb_{scope['server'][1]}"


def _cookie(scope: Scope, headers: Headers) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(_cookie_name(scope))
    except CookieError:
        return ""
    return found.value if found else ""


def _with_headers(scope: Scope, send: Send) -> Send:
    static = not scope["path"].startswith("/api/")

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update(_HEADERS)
            headers.setdefault("Cache-Control", "no-cache" if static else "no-store")
        await send(message)

    return sending
