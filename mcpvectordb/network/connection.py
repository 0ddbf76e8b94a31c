"""HTTP requests with one deadline over resolving, connecting, TLS, sending and the whole reply.

A request goes to addresses that the caller has resolved and checked, or through a proxy; nothing is
taken from the environment, neither proxies nor .netrc, and redirects are not followed.
"""

from __future__ import annotations

import base64
import math
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from urllib.parse import unquote, urlsplit

from mcpvectordb.errors import quoted
from mcpvectordb.network.addresses import ParsedUrl

LONGEST_HEAD = 1 << 16  # bytes of a proxy's answer

Resolver = Callable[[str, int], list[str]]
"""From host and port to its addresses."""


class Deadline:
    """The time at which a request is aborted."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def passed(self) -> bool:
        """Whether the deadline is over."""
        return time.monotonic() >= self._end

    def ends_within(self, seconds: float) -> bool:
        """Whether so many seconds from now it is over."""
        return time.monotonic() + seconds >= self._end

    def left(self) -> float:
        """Return the seconds that are left; raises TimeoutError if there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    @contextmanager
    def shuts_down(self, connection: socket.socket) -> Iterator[None]:
        """Shut the connection down at the deadline: a socket's timeout restarts with every byte."""
        # A duplicate, because TLS takes the socket object over; both name the same connection.
        with closing(connection.dup()) as handle:
            timer = threading.Timer(self.left(), _shut, [handle])
            timer.daemon = True
            timer.start()
            try:
                yield
            finally:
                timer.cancel()
                timer.join()


def resolved(host: str, port: int, resolve: Resolver, deadline: Deadline) -> list[str]:
    """Resolve a host in a thread, because the system's resolver cannot be interrupted."""
    answer: list[list[str] | BaseException] = []

    def run() -> None:
        try:
            answer.append(resolve(host, port))
        except BaseException as error:
            answer.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(deadline.left())
    if not answer:
        raise TimeoutError
    if isinstance(answer[0], BaseException):
        raise answer[0]
    if not answer[0]:
        raise OSError("the name has no address")
    return answer[0]


def system_resolver(host: str, port: int) -> list[str]:
    """The addresses that this machine knows for a host."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


@contextmanager
def request(
    method: str,
    url: ParsedUrl,
    addresses: list[str],
    headers: Mapping[str, str],
    *,
    body: bytes | None = None,
    proxy: str = "",
    deadline: Deadline,
    connect_timeout: float = math.inf,
) -> Iterator[HTTPResponse]:
    """Send a request to one of these addresses, or to the proxy; no name is resolved again.

    Connecting to an address may take `connect_timeout` seconds, all together until the deadline.
    """
    secure, relay = url.scheme == "https", urlsplit(proxy)
    credentials = _proxy_credentials(relay.username, relay.password)
    if proxy:
        addresses, port = [str(relay.hostname)], relay.port or 3128
    else:
        port = url.port
    with (
        closing(_connect(addresses, port, deadline, connect_timeout)) as plain,
        deadline.shuts_down(plain),
    ):
        if proxy and secure:
            _tunnel(plain, url, credentials)
        with closing(_http_connection(url, plain, secure)) as connection:
            if proxy and not secure:
                whole = f"http://{url.authority}{url.target}"
                connection.request(method, whole, body, {**headers, **credentials})
            else:
                connection.request(method, url.target, body, {**headers})
            with connection.getresponse() as response:
                yield response


def _http_connection(url: ParsedUrl, plain: socket.socket, secure: bool) -> HTTPConnection:
    """HTTP over a connected socket; the certificate and the Host header are those of the name."""
    if not secure:
        connection = HTTPConnection(url.host, url.port)
        connection.sock = plain
        return connection
    context = tls()
    connection = HTTPSConnection(url.host, url.port, context=context)
    connection.sock = context.wrap_socket(plain, server_hostname=url.host)
    return connection


def _connect(addresses: list[str], port: int, deadline: Deadline, longest: float) -> socket.socket:
    """Connect to the first address that answers; each gets its share of the remaining time."""
    for tried, address in enumerate(addresses):
        try:
            share = deadline.left() / (len(addresses) - tried)
            connection = socket.create_connection((address, port), timeout=min(share, longest))
        except OSError:
            if tried == len(addresses) - 1:
                raise
        else:
            # The deadline itself is enforced by `shuts_down`.
            connection.settimeout(deadline.seconds)
            return connection
    raise AssertionError("no address to connect to")


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def tls() -> ssl.SSLContext:
    """A TLS context that trusts the system's authorities and certifi's: some systems have none.

    Reading them takes 50 ms of CPU, so they are kept for as long as they lie where they lay.
    """
    return _tls(ssl.get_default_verify_paths())


@lru_cache(maxsize=2)
def _tls(_: ssl.DefaultVerifyPaths) -> ssl.SSLContext:
    import certifi

    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    context.set_alpn_protocols(["http/1.1"])
    return context


def _proxy_credentials(user: str | None, password: str | None) -> dict[str, str]:
    if user is None:
        return {}
    pair = f"{unquote(user)}:{unquote(password or '')}".encode()
    return {"Proxy-Authorization": f"Basic {base64.b64encode(pair).decode('ascii')}"}


def _tunnel(connection: socket.socket, url: ParsedUrl, credentials: dict[str, str]) -> None:
    fields = {"Host": url.authority} | credentials
    lines = [
        f"CONNECT {url.authority} HTTP/1.1",
        *(f"{name}: {value}" for name, value in fields.items()),
        "",
        "",
    ]
    connection.sendall("\r\n".join(lines).encode("ascii"))
    head = b""
    # Byte by byte, because the bytes after the blank line belong to TLS.
    while (
        not head.endswith(b"\r\n\r\n") and len(head) < LONGEST_HEAD and (byte := connection.recv(1))
    ):
        head += byte
    status = head.split(b"\r\n")[0].decode("latin-1")
    if not re.match(r"HTTP/1\.[01] 2\d\d", status):
        raise HTTPException(f"the proxy answered {quoted(status)}")
