"""Who may ask: only this machine, only our own page, and only with a token.

Pages of other sites, and of other ports of this machine, run in the same browser. What keeps them
out is that the page sends its token as a header: a browser adds a cookie to whatever goes to this
host, on every port, but never this header, and the storage that the page keeps the token in belongs
to its origin, port included. So there is no cookie, and the files of the page, which have nothing
stored in them, need no token. Besides, the Host must be this server's (DNS rebinding), an Origin
must be our own, and so must be what browsers say in Sec-Fetch-Site.

The page has one name, 127.0.0.1: `localhost` may be ::1, where another user may listen on the same
port, and that would be the same origin.
"""

from __future__ import annotations

import hmac
import secrets

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Scope

from mcpvectordb_server.connections import LET_IN, Gate, bearer_token
from mcpvectordb_server.web.errors import HttpError, refusal

HOST = "127.0.0.1"
"""The only address that is listened on, and the only Host that is served."""

SESSION = "/api/session"
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
    "open the address that `mcpvectordb web` has printed, with its token: the server was started "
    "again, or this browser was not let in yet"
)


class PageGate(Gate):
    """Checks Host, Origin and who asks, and adds the headers that browsers keep to.

    `token` is that of programs and of the printed address. `once` lets one browser in: the address
    that a browser is started with is seen by everybody who may list the processes of this machine.
    What passes SESSION with either is told `scope["page_token"]`, which lasts as long as the
    server: a page keeps that one, so that no browser has a token that outlives it.
    """

    def __init__(self, app: ASGIApp, *, token: str, once: str = "") -> None:
        super().__init__(app)
        self._token, self._once = token, once
        self._page_token = secrets.token_urlsafe(32)

    def answer(self, scope: Scope, headers: Headers) -> Response | None:
        """The answer to what does not reach the application."""
        try:
            self._check(scope, headers)
        except HttpError as error:
            return refusal(error, {"WWW-Authenticate": "Bearer"} if error.status == 401 else None)
        return None

    def complete(self, scope: Scope, headers: MutableHeaders) -> None:
        """Add what browsers keep to."""
        headers.update(_HEADERS)
        static = not scope["path"].startswith("/api/")
        headers.setdefault("Cache-Control", "no-cache" if static else "no-store")

    def _check(self, scope: Scope, headers: Headers) -> None:
        path, port, host = scope["path"], scope["server"][1], headers.get("host", "")
        if host not in (f"{HOST}:{port}", *([HOST] if port == 80 else [])):
            raise HttpError(
                421, "wrong_host", f"this Host is not served here: use http://{HOST}:{port}/"
            )
        origin = headers.get("origin")
        if origin is not None and origin.lower() != f"http://{host.lower()}":
            raise HttpError(403, "forbidden_origin", "requests from this Origin are not accepted")
        # What a page of another site or port makes the browser fetch; links to us may be.
        if path != "/" and headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise HttpError(403, "forbidden_origin", "requests from other pages are not accepted")
        if path == "/" or path.startswith("/static/"):
            return
        given = bearer_token(headers)
        if path == SESSION and self._once and _same(given, self._once):
            self._once = ""
        elif not (_same(given, self._page_token) or _same(given, self._token)):
            raise HttpError(401, "unauthorized", _OPEN_AGAIN)
        scope[LET_IN] = True
        scope["page_token"] = self._page_token


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())
