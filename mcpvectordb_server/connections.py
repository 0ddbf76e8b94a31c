"""HTTP connections: the listening socket, the server's limits, and who may ask. No MCP in it."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar
from urllib.parse import urlsplit

import uvicorn
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from mcpvectordb import InvalidInput

LET_IN = "mcpvectordb.let_in"
"""The key that a gate puts into the ASGI scope of a request that came with the right token."""

MIN_TOKEN = 16
"""Fewest characters of a bearer token."""

MAX_BODY = 16 * 1024 * 1024
"""Most bytes of one request: room for an image of 10 MB in base64."""

_POLICY_VIOLATION = 1008  # of RFC 6455, for a WebSocket that is closed because it is not allowed
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def half_of_the_descriptors() -> int:
    """How many connections leave enough descriptors for files: half of what the system allows."""
    most = 1_000
    if sys.platform != "win32":  # which has no such limit
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY:
            most = min(most, soft // 2)
    return max(most, 8)


class Gate:
    """Stands before an application: what `answer` answers does not reach it.

    WebSockets, and kinds of connection that are not known, never do.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def answer(self, scope: Scope, headers: Headers) -> Response | None:
        """A refusal, or an answer without secrets; None if the request may pass."""
        raise NotImplementedError

    def complete(self, scope: Scope, headers: MutableHeaders) -> None:
        """Add to the headers of every answer."""
        raise NotImplementedError

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on to the application."""

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.complete(scope, MutableHeaders(scope=message))
            await send(message)

        kind = scope["type"]
        if kind == "websocket":
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
        elif kind == "http":
            answered = self.answer(scope, Headers(scope=scope))
            await (answered or self._app)(scope, receive, sending)
        elif kind == "lifespan":
            await self._app(scope, receive, send)
        else:
            raise ValueError(f"the gate cannot check ASGI scopes of the type {kind!r}")


def usable_token(token: str, origin: str, remedy: str) -> str:
    """The token without blanks around it; one that could be guessed or not be sent is refused."""
    token = token.strip()
    if not (token.isascii() and token.isprintable()):  # zeros after a power failure, for example
        raise InvalidInput(f"{origin} has characters that no HTTP header can have; {remedy}")
    if len(token) < MIN_TOKEN:
        raise InvalidInput(
            f"{origin} has {len(token)} characters, and a token needs at least {MIN_TOKEN}; "
            f"{remedy}"
        )
    return token


def bearer_token(headers: Headers) -> str:
    """The token that a request has brought, or ""."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else ""


class SeldomLog:
    """A warning at most once a minute, with how often there was a reason for it since the last."""

    def __init__(self, message: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._message, self._clock = message, clock
        self._next, self._times = float("-inf"), 0

    def happened(self) -> None:
        """There is a reason, now."""
        now = self._clock()
        self._times += 1
        if now >= self._next:
            logging.getLogger(__name__).warning(self._message, self._times)
            self._next, self._times = now + 60, 0


class Connection(H11Protocol):
    """A connection that is closed when no request is let in and no whole head arrives in time.

    uvicorn would wait forever, and the gate sees only requests with a whole head: a client that
    opens connections and sends nothing, or byte by byte (Slowloris), or reads no answer, could
    exhaust the server. When there are too many, the oldest silent one is closed, without a request
    that was let in: whoever has no token can open as many as they like, and neither stops the
    server nor ends what others have asked for.
    """

    head_seconds: ClassVar[float]
    most: ClassVar[int]
    opened: ClassVar[dict[Connection, None]]  # those in front have been silent for longest
    log: ClassVar[SeldomLog]
    _timeout: asyncio.TimerHandle | None = None

    # The type of `transport` is the one that uvicorn declares.
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout, and close one if there are too many: this, if all others are busy."""
        super().connection_made(transport)
        self._restart()
        self.opened[self] = None
        if len(self.opened) > self.most:
            closed = next(each for each in self.opened if each.silent())
            del self.opened[closed]
            closed.transport.abort()
            self.log.happened()

    def data_received(self, data: bytes) -> None:
        """Start the timeout, anew with every request; bytes that are none do not prolong it."""
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            if self in self.opened:
                del self.opened[self]
                self.opened[self] = None
            self._restart()
        elif self._timeout is None:
            self._restart()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        super().connection_lost(exc)
        self.opened.pop(self, None)
        if self._timeout is not None:
            self._timeout.cancel()

    def silent(self) -> bool:
        """Whether no request is open that was let in."""
        return self.cycle is None or self.cycle.response_complete or LET_IN not in self.cycle.scope

    def _restart(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
        self._timeout = self.loop.call_later(self.head_seconds, self._expire)

    def _expire(self) -> None:
        self._timeout = None
        if self.silent():
            self.transport.abort()


def uvicorn_server(
    app: ASGIApp, *, head_timeout: float = 10.0, shutdown_seconds: int = 3, connections: int = 0
) -> uvicorn.Server:
    """The HTTP server for an application, with our limits and without logs of its own.

    A client has so many seconds for the head of a request, open requests have so many to finish
    when the server stops; so many connections are open at once, 0 for `half_of_the_descriptors`.
    """

    class Limited(Connection):
        head_seconds = head_timeout
        most = connections or half_of_the_descriptors()
        opened: ClassVar[dict[Connection, None]] = {}
        log = SeldomLog(
            f"%d connections were closed for newer ones: at most {most} are open at once"
        )

    config = uvicorn.Config(
        app,
        http=Limited,
        ws="none",  # an upgrade is answered as the request that it is
        log_config=None,
        log_level=logging.ERROR,  # it warns of every malformed request, which anybody can send
        access_log=False,
        server_header=False,
        lifespan="on",
        timeout_graceful_shutdown=shutdown_seconds,
    )
    return uvicorn.Server(config)


class Listener(socket.socket):
    """A listening socket from which one connection is taken in a turn of the event loop.

    asyncio takes all that wait before any of them can be counted. Where descriptors have run out,
    which may be due to others, it logs a traceback for each and tries again; here a descriptor that
    was kept for this is used to refuse whoever waits.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._taken, self._spare = False, socket.socket()
        self._log = SeldomLog("%d connections were refused: there are no descriptors left")

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection, but none directly after another."""
        if self._taken:
            self._taken = False
            raise BlockingIOError(errno.EAGAIN, "one in a turn")
        try:
            found = super().accept()
        except OSError as error:
            if error.errno not in _NO_DESCRIPTORS:
                raise
            self._refuse()
            raise BlockingIOError(errno.EAGAIN, "refused") from None
        self._taken = True
        return found

    def _refuse(self) -> None:
        self._log.happened()
        self._spare.close()
        try:
            super().accept()[0].close()
        except BlockingIOError:
            pass  # whoever waited has gone
        except OSError:
            time.sleep(0.01)  # others were quicker, and the loop will ask again at once
        with suppress(OSError):  # then there is none until the next time
            self._spare = socket.socket()

    def close(self) -> None:
        """Close it."""
        self._spare.close()
        super().close()


def listen(host: str, port: int) -> Listener:
    """A listening socket; an address or port that cannot be used raises InvalidInput."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.create_server(address[:2], family=family, backlog=128) as made:
            return Listener(fileno=made.detach())
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
