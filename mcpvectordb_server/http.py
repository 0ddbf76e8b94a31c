"""Clients over HTTP: streamable HTTP at /mcp, or the older SSE at /sse, both behind an access gate.

A request passes when its Host is allowed, its Origin (if it has one) too, and its bearer token is
right. With a public URL (`oauth.py`) OAuth clients come in, too, and may do what their scopes say.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import sys
import tempfile
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import INVALID_REQUEST
from pydantic_core import from_json
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mcpvectordb import InvalidInput
from mcpvectordb_server.connections import (
    LET_IN,
    MAX_BODY,
    Gate,
    bearer_token,
    host_of,
    is_loopback,
    usable_token,
)
from mcpvectordb_server.stdio import unanswerable

if TYPE_CHECKING:
    from mcpvectordb_server.oauth import AuthorizationServer

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
# The answer to a CORS preflight: what a page of an allowed origin may send.
_PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST, DELETE",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, Accept, Last-Event-ID, "
    "Mcp-Session-Id, Mcp-Protocol-Version, Mcp-Method, Mcp-Name",
    "Access-Control-Max-Age": "600",
}
_MEMBERS = {"method", "result", "error"}  # of which a message has one
# The SDK's protection against DNS rebinding is off, because AccessGate checks Host and Origin.
_SDK_SECURITY = TransportSecuritySettings(enable_dns_rebinding_protection=False)


class AccessGate(Gate):
    """Checks every request but `/health`: Host (421), Origin (403), then the bearer token (401).

    CORS preflights of allowed origins are answered, and nothing is found under `/.well-known/`
    but by OAuth, whose endpoints need no token.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str,
        hosts: Iterable[str],
        oauth: AuthorizationServer | None = None,
    ) -> None:
        super().__init__(app)
        self._oauth = oauth
        self._token = usable_token(token, "the token of the gate", "give a longer one").encode()
        self._hosts = {host.lower() for host in hosts}

    def answer(self, scope: Scope, headers: Headers) -> Response | None:
        """The answer to what does not reach the application."""
        if scope["path"] == "/health":
            return PlainTextResponse("ok")
        if host_of(f"//{headers.get('host', '')}") not in self._hosts:
            return PlainTextResponse("this Host is not served here; see --allow-host", 421)
        if "origin" in headers and host_of(headers["origin"]) not in self._hosts:
            return PlainTextResponse("requests from this Origin are not accepted", 403)
        if scope.get("method") == "OPTIONS" and "access-control-request-method" in headers:
            return Response(status_code=204, headers=_PREFLIGHT)
        if self._oauth is not None and self._oauth.is_open(scope["path"]):
            return None
        if scope["path"].startswith("/.well-known/"):
            # Clients look for OAuth here, and take 401 for a broken one.
            return PlainTextResponse("there is nothing here: send the bearer token", 404)
        given = bearer_token(headers)
        if not hmac.compare_digest(given.encode(), self._token):
            if self._oauth is None:
                challenge = {"WWW-Authenticate": "Bearer"}
            elif user := self._oauth.user(given):
                challenge, scope["user"] = {}, user
            else:
                challenge = self._oauth.challenge(error="invalid_token" if given else "")
            if challenge:
                return PlainTextResponse("a bearer token is needed", 401, challenge)
        scope[LET_IN] = True
        return None

    def complete(self, scope: Scope, headers: MutableHeaders) -> None:
        """Let a page of an allowed origin read the answer, as CORS wants it."""
        origin = Headers(scope=scope).get("origin", "")
        if host_of(origin) in self._hosts:
            headers["Access-Control-Allow-Origin"] = origin
            headers["Access-Control-Expose-Headers"] = "Mcp-Session-Id, WWW-Authenticate"
            headers.add_vary_header("Origin")


class AnsweredMessages:
    """Stands before the SDK: a message that it would not answer is refused (400), with the reason.

    As MCP 2025-03-26 has it for input that a server cannot accept, the error has no id. What the
    scopes of an OAuth client do not allow is refused, too (403), and from it what is not JSON: the
    SDK reads more than is checked here.
    """

    def __init__(self, app: ASGIApp, oauth: AuthorizationServer | None = None) -> None:
        self._app, self._oauth = app, oauth

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the message in a request's body, or pass the request on with it."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        read: deque[Message] = deque()
        body, more = bytearray(), True
        while more and len(body) <= MAX_BODY:
            read.append(await receive())
            body += read[-1].get("body", b"")
            more = read[-1].get("more_body", False)
        user, content = scope.get("user"), None
        reason = "" if user is None else "not JSON in UTF-8"
        with suppress(ValueError):  # which the SDK answers, and a body beyond the limit
            content = from_json(body) if len(body) <= MAX_BODY else None
            reason = _refusal(content)
        if len(body) > MAX_BODY:
            reason = ""
        elif (
            self._oauth is not None
            and user is not None
            and not reason
            and (missing := self._oauth.missing(content, user.scopes))
        ):
            await self._oauth.refusal(missing)(scope, receive, send)
            return
        if reason:
            error = {"code": INVALID_REQUEST, "message": f"Invalid request: {reason}"}
            answer = JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 400)
            await answer(scope, receive, send)
            return

        async def again() -> Message:
            return read.popleft() if read else await receive()

        await self._app(scope, again, send)


def _refusal(content: Any) -> str:
    """Why the content of a body is no message, or none that is answered; "" if it is one."""
    if reason := unanswerable(content):
        return reason
    if isinstance(content, dict) and content.get("jsonrpc") == "2.0" and _MEMBERS & content.keys():
        return ""
    return "not a JSON-RPC 2.0 message"


def application(
    server: Server[Any],
    transport: str,
    *,
    token: str,
    hosts: Iterable[str],
    oauth: AuthorizationServer | None = None,
) -> ASGIApp:
    """The ASGI application for a transport, behind the access gate."""
    app: ASGIApp
    if transport != "sse":
        app = server.streamable_http_app(
            max_request_body_size=MAX_BODY, transport_security=_SDK_SECURITY
        )
    else:
        sse = SseServerTransport(
            "/messages/", security_settings=_SDK_SECURITY, max_request_body_size=MAX_BODY
        )

        async def connect(request: Request) -> Response:
            async with sse.connect_sse(request.scope, request.receive, request._send) as streams:
                await server.run(streams[0], streams[1], server.create_initialization_options())
            return Response()

        routes = [Route("/sse", connect), Mount("/messages/", app=sse.handle_post_message)]
        app = Starlette(routes=routes)
    app = AnsweredMessages(app, oauth)
    if oauth is not None:
        app = oauth.beside(app)
    return AccessGate(app, token=token, hosts=hosts, oauth=oauth)


def hosts_of(bound: str, allowed: Iterable[str]) -> set[str]:
    """The Host names that requests may carry: this machine's, the bound one, the allowed ones."""
    return {*_LOOPBACK, bound, socket.gethostname(), *allowed}


def token_for(host: str, given: str | None, folder: Path) -> str:
    """The token that clients must send: the given one, else the one kept in `folder`.

    Where there is neither, a token is made, kept in `folder` and shown once on stderr.
    """
    if given is not None:
        return usable_token(
            given,
            "MCPVECTORDB_TOKEN",
            "give a longer one, or unset it to use the one in the data folder",
        )
    if not is_loopback(host):
        raise InvalidInput(
            f"to serve on {host}, beyond this machine, set MCPVECTORDB_TOKEN to a token of your "
            f"choice"
        )
    path = folder / "token"
    try:
        if not path.exists():
            _make_token(path)
        with path.open(encoding="utf-8") as file:
            if os.name == "posix" and os.fstat(file.fileno()).st_mode & 0o077:
                raise InvalidInput(f"{path} can be read by others; run: chmod 600 {path}")
            kept = file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(
            f"the token file {path} cannot be read or made: {reason}; repair this, or set "
            f"MCPVECTORDB_TOKEN to a token of your choice"
        ) from None
    return usable_token(kept, f"the token file {path}", "remove it to have a new token made")


def _make_token(path: Path) -> None:
    """Keep a new token in `path`, whole or not at all; a token that another process kept stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    token = secrets.token_urlsafe(32)
    # mkstemp makes the file for its owner only.
    number, name = tempfile.mkstemp(prefix=".token-", dir=path.parent)
    try:
        with os.fdopen(number, "w") as file:
            file.write(token + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(name, path)
    except FileExistsError:
        return
    finally:
        Path(name).unlink()
    sys.stderr.write(f"New token, shown only now and kept in {path}:\n{token}\n")
