"""Requests to other machines: which URLs and addresses are public, and HTTP under one deadline.

URLs are parsed strictly. An address is public only if it is in none of the networks listed below
(protection against SSRF). A request has one deadline over resolving, connecting, TLS, sending and
the whole reply. It goes to addresses that the caller has resolved and checked, or through a proxy;
nothing is taken from the environment, neither proxies nor .netrc, and redirects are not followed.
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
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from mcpvectordb.errors import Refused, quoted

MAX_URL = 8_000

Network = IPv4Network | IPv6Network


def _table(networks: dict[str, str]) -> dict[Network, str]:
    return {
        ip_network(each): reason for reason, listed in networks.items() for each in listed.split()
    }


# Allowed with `allow_private_urls`. An IPv6 address that embeds an IPv4 one is then checked by the
# IPv4 address.
PRIVATE = _table(
    {
        "this machine": "127.0.0.0/8 ::1/128",
        "in a private network": "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7 fec0::/10",
        "in a carrier's internal network": "100.64.0.0/10",
        "link-local": "169.254.0.0/16 fe80::/10",
        "an embedded IPv4 address": "::ffff:0:0/96 64:ff9b::/96 2002::/16",
    }
)
# Never allowed.
NEVER = _table(
    {
        "a cloud's metadata service": "169.254.169.254 169.254.170.2 169.254.170.23 "
        "100.100.100.200 168.63.129.16 192.0.0.192 fd00:ec2::254 fd00:ec2::23 fd20:ce::254",
        "not an address of any host": "0.0.0.0/8 ::/128",
        "for documentation": "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20",
        "for benchmarks": "198.18.0.0/15",
        "multicast": "224.0.0.0/4 ff00::/8",
        "reserved": "192.0.0.0/24 192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.175.48.0/24 "
        "240.0.0.0/4 2001::/23 2620:4f:8000::/48",
    }
)
# IPv6 is public only in this network, so that tunnels and unassigned ranges need no entry above.
PUBLIC_IPV6 = ip_network("2000::/3")
NAT64 = ip_network("64:ff9b::/96")
PRIVATE_NAMES = re.compile(
    r"(?:.*\.)?(?:localhost|local|localdomain|internal|intranet|lan|home|corp|home\.arpa)"
)


class ParsedUrl(NamedTuple):
    """The parts of a URL: `host` is an ASCII name or an address, `target` the path and query."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def authority(self) -> str:
        """Host and port as a URL writes them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_url(url: str) -> ParsedUrl:
    """Return the parts of a URL; Refused if two programs could parse it differently."""
    if len(url) > MAX_URL:
        raise Refused(f"{url[:60]}…: longer than {MAX_URL} characters")
    if not url.isprintable() or " " in url or "\\" in url:
        raise Refused(
            f"{url!r}: spaces, backslashes and invisible characters must be percent-encoded"
        )
    parts = re.fullmatch(r"(https?)://([^/?#]*)([^?#]*)(\?[^#]*)?(?:#.*)?", url, re.IGNORECASE)
    if not parts:
        raise Refused(f"{url}: only http:// and https:// URLs can be fetched")
    scheme, authority, path, query = parts[1].lower(), parts[2], parts[3], parts[4] or ""
    if "@" in authority or "%" in authority:
        raise Refused(
            f"{url}: no user name, password, zone or percent-encoding is allowed in the host part"
        )
    host_port = re.fullmatch(r"(\[[^\[\]]*\]|[^:\[\]]+)(?::([0-9]{0,5}))?", authority)
    if not host_port:
        raise Refused(f"{url}: {authority!r} is not a host and port")
    port = int(host_port[2] or (443 if scheme == "https" else 80))
    if not 1 <= port <= 65_535:
        raise Refused(f"{url}: there is no port {port}")
    # A path without a slash can only be empty here. Non-ASCII characters are sent as UTF-8 bytes.
    target = quote((path or "/") + query, safe="!\"$%&'()*+,-./:;=?@[]_~|{}^`<>")
    return ParsedUrl(scheme, _host(host_port[1]), port, target)


def _host(text: str) -> str:
    if text.startswith("["):
        try:
            return str(IPv6Address(text[1:-1]))
        except ValueError:
            raise Refused(f"{text} is not an IPv6 address") from None
    name = text
    if not name.isascii():
        import idna

        try:
            name = idna.encode(name, uts46=True).decode("ascii")
        except idna.IDNAError as error:
            raise Refused(f"{text!r} is not a host name: {error}") from None
    name = name.lower().removesuffix(".")
    if len(name) > 253 or not re.fullmatch(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*", name):
        raise Refused(f"{text!r} is not a host name")
    if re.fullmatch(r"[0-9]+|0x[0-9a-f]*", name.rpartition(".")[2]):
        try:
            return str(IPv4Address(name))
        except ValueError:
            raise Refused(
                f"{text!r} is an obfuscated IPv4 address; write it as four decimal numbers"
            ) from None
    return name


def blocked(address: str, *, allow_private: bool = False) -> str:
    """Return why this address must not be fetched from, or "" if it may."""
    parsed = ip_address(address.partition("%")[0])
    for network, reason in NEVER.items():
        if parsed in network:
            return reason
    for network, reason in PRIVATE.items():
        if parsed in network:
            if not allow_private:
                return reason
            inner = None  # the IPv4 address in one of IPv6: mapped, NAT64 or 6to4
            if parsed.version == 6:
                last = IPv4Address(int(parsed) & 0xFFFFFFFF) if parsed in NAT64 else None
                inner = last or parsed.ipv4_mapped or parsed.sixtofour
            return blocked(str(inner), allow_private=True) if inner else ""
    if parsed.version == 6 and parsed not in PUBLIC_IPV6:
        return "not a public address"
    return ""


# --- HTTP

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

            def shut() -> None:
                with suppress(OSError):
                    handle.shutdown(socket.SHUT_RDWR)

            timer = threading.Timer(self.left(), shut)
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
    secure, relay, port = url.scheme == "https", urlsplit(proxy), url.port
    credentials: dict[str, str] = {}
    if relay.username is not None:
        pair = f"{unquote(relay.username)}:{unquote(relay.password or '')}".encode()
        credentials["Proxy-Authorization"] = f"Basic {base64.b64encode(pair).decode('ascii')}"
    if proxy:
        addresses, port = [str(relay.hostname)], relay.port or 3128
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


def _tunnel(connection: socket.socket, url: ParsedUrl, credentials: dict[str, str]) -> None:
    fields = ({"Host": url.authority} | credentials).items()
    lines = [f"CONNECT {url.authority} HTTP/1.1", *(f"{name}: {text}" for name, text in fields)]
    connection.sendall("\r\n".join([*lines, "", ""]).encode("ascii"))
    head = b""
    # Byte by byte, because the bytes after the blank line belong to TLS.
    while (
        not head.endswith(b"\r\n\r\n") and len(head) < LONGEST_HEAD and (byte := connection.recv(1))
    ):
        head += byte
    status = head.split(b"\r\n")[0].decode("latin-1")
    if not re.match(r"HTTP/1\.[01] 2\d\d", status):
        raise HTTPException(f"the proxy answered {quoted(status)}")
