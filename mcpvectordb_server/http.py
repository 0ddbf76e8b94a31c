"""Clients over HTTP: streamable HTTP at /mcp, or the older SSE at /sse; both behind one gate.

The gate lets a request in when its Host is ours, its Origin (if it has one) too, and its bearer
token is right.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import os
import secrets
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from mcpvectordb import InvalidInput

MAX_BODY = 16 * 1024 * 1024
"""Bytes in one request: room for a 10 MB image in base64."""

SHUTDOWN = 3
"""Seconds that open requests get when the server is told to stop."""

HEAD = 10.0
"""Seconds that a client gets to send the head of a request."""

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_GATE_IS_OURS = TransportSecuritySettings(enable_dns_rebinding_protection=False)


class Impatient(H11Protocol):
    """A connection that ends when no request is under way and none begins in time.

    uvicorn would wait forever, and the gate only sees those who have said what they want: whoever
    opens connections and keeps silent, or drips, could shut everybody else out.
    """

    _patience: asyncio.TimerHandle | None = None

    # as in uvicorn
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Go on waiting until a whole head is there."""
        super().data_received(data)
        self._wait()

    def _wait(self) -> None:
        if not self._idle() and self._patience is not None:
            self._patience.cancel()
            self._patience = None
        elif self._idle() and self._patience is None:
            self._patience = self.loop.call_later(HEAD, self._give_up)

    def _idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _give_up(self) -> None:
        self._patience = None
        if self._idle():
            self.transport.close()


class Gate:
    """Checks every request but `/health`: Host (421), Origin (403), then the bearer token (401)."""

    def __init__(self, app: ASGIApp, *, token: str, hosts: Iterable[str]) -> None:
        self._app = app
        self._token = token.encode()
        self._hosts = {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or pass on."""
        if scope["type"] == "http" and (refusal := self._refusal(scope)) is not None:
            await refusal(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        if scope["path"] == "/health":
            return PlainTextResponse("ok")
        headers = Headers(scope=scope)
        if _name(f"//{headers.get('host', '')}") not in self._hosts:
            return PlainTextResponse("this Host is not served here; see --allow-host", 421)
        if "origin" in headers and _name(headers["origin"]) not in self._hosts:
            return PlainTextResponse("requests from this Origin are not accepted", 403)
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(
            given.strip().encode(), self._token
        ):
            return PlainTextResponse(
                "a bearer token is needed", 401, {"WWW-Authenticate": "Bearer"}
            )
        return None


def application(
    server: Server[Any], transport: str, *, token: str, hosts: Iterable[str]
) -> ASGIApp:
    """The ASGI application for a transport, gate included."""
    if transport == "sse":
        app = _sse(server)
    else:
        app = server.streamable_http_app(
            max_request_body_size=MAX_BODY, transport_security=_GATE_IS_OURS
        )
    return Gate(app, token=token, hosts=hosts)


def _sse(server: Server[Any]) -> Starlette:
    transport = SseServerTransport(
        "/messages/", security_settings=_GATE_IS_OURS, max_request_body_size=MAX_BODY
    )

    async def connect(request: Request) -> Response:
        async with transport.connect_sse(request.scope, request.receive, request._send) as (
            reader,
            writer,
        ):
            await server.run(reader, writer, server.create_initialization_options())
        return Response()

    return Starlette(
        routes=[Route("/sse", connect), Mount("/messages/", app=transport.handle_post_message)]
    )


async def serve(
    server: Server[Any],
    listener: socket.socket,
    transport: str,
    *,
    token: str,
    hosts: Iterable[str],
) -> None:
    """Serve on a listening socket until told to stop."""
    app = application(server, transport, token=token, hosts=hosts)
    config = uvicorn.Config(
        app,
        http=Impatient,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        timeout_graceful_shutdown=SHUTDOWN,
    )
    await uvicorn.Server(config).serve(sockets=[listener])


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; InvalidInput says why there is none."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=128)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(f"cannot listen on {host} port {port}: {reason}") from None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server bound to `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def hosts_of(bound: str, allowed: Iterable[str]) -> set[str]:
    """The Host names that requests may carry: this machine's, the bound one, and those the user
    allows.
    """
    return {*_LOOPBACK, bound, socket.gethostname(), *allowed}


def token_for(host: str, given: str | None, folder: Path) -> str:
    """The token clients must send: the one given, else the one in `folder`, made (and shown once)
    if there is none.
    """
    if given is not None:
        if not given.strip():
            raise InvalidInput(
                "MCPVECTORDB_TOKEN is empty; give a token, or unset it to use the data folder's"
            )
        return given.strip()
    if not is_loopback(host):
        raise InvalidInput(
            f"to serve on {host}, beyond this machine, set MCPVECTORDB_TOKEN to a token of your "
            f"choice"
        )
    return _token_file(folder / "token")


def _token_file(path: Path) -> str:
    if path.exists():
        if os.name == "posix" and path.stat().st_mode & 0o077:
            raise InvalidInput(f"{path} can be read by others; run: chmod 600 {path}")
        return path.read_text().strip()
    path.parent.mkdir(parents=True, exist_ok=True)
    token = secrets.token_urlsafe(32)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token + "\n")
    sys.stderr.write(f"New token, shown only now and kept in {path}:\n{token}\n")
    return token


def _name(url: str) -> str:
    """The host part of a Host or Origin header, without port and brackets; "" when there is
    none.
    """
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""
