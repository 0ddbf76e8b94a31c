"""HTTP connections: the listening socket, the server's limits, and who may ask. No MCP in it."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from mcpvectordb import InvalidInput


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpLimits:
    """Limits of the HTTP server.

    max_body          bytes of one request: room for an image of 10 MB in base64
    head_seconds      time for a client to send the head of a request
    shutdown_seconds  time for open requests to finish when the server stops
    """

    max_body: int = 16 * 1024 * 1024
    head_seconds: float = 10.0
    shutdown_seconds: int = 3


LIMITS = HttpLimits()


class IdleTimeoutProtocol(H11Protocol):
    """A connection that is closed when no request is open and no whole head arrives in time.

    uvicorn would wait forever, and the gate sees only requests with a whole head: a client that
    opens connections and sends nothing, or byte by byte (Slowloris), could exhaust the server.
    """

    head_seconds = LIMITS.head_seconds
    _timeout: asyncio.TimerHandle | None = None

    # The type of `transport` is the one that uvicorn declares.
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout."""
        super().connection_made(transport)
        self._restart()

    def data_received(self, data: bytes) -> None:
        """Stop the timeout when a request has begun, start it when one has ended."""
        super().data_received(data)
        self._restart()

    def _restart(self) -> None:
        if not self._idle() and self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None
        elif self._idle() and self._timeout is None:
            self._timeout = self.loop.call_later(self.head_seconds, self._expire)

    def _idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _expire(self) -> None:
        self._timeout = None
        if self._idle():
            self.transport.close()


def uvicorn_server(app: ASGIApp, limits: HttpLimits = LIMITS) -> uvicorn.Server:
    """The HTTP server for an application, with our limits and without logs of its own."""

    class Connection(IdleTimeoutProtocol):
        head_seconds = limits.head_seconds

    config = uvicorn.Config(
        app,
        http=Connection,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        timeout_graceful_shutdown=limits.shutdown_seconds,
    )
    return uvicorn.Server(config)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; an address or port that cannot be used raises InvalidInput."""
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


def host_of(url: str) -> str:
    """The host in a URL, without port and brackets; "" when there is none."""
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""
