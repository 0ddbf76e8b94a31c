"""Hostile URLs and pages, and a site on the loopback interface that serves them."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# URLs that must be refused before any connection is made.
HOSTILE = [
    # other schemes
    "ftp://example.com/x",
    "file:///etc/passwd",
    "file://localhost/etc/passwd",
    "gopher://example.com/_x",
    "javascript:alert(1)",
    "data:text/html,x",
    "ws://example.com/",
    "jar:http://example.com!/",
    "//example.com/",
    "",
    "example.com",
    "http:example.com",
    "http:/example.com",
    "http//example.com",
    "view-source:http://example.com/",
    # this machine
    "http://127.0.0.1/",
    "http://127.0.0.1:6379/",
    "http://127.8.9.10/",
    "http://localhost/",
    "http://LOCALHOST/",
    "http://localhost./",
    "http://foo.localhost/",
    "http://127.0.0.1./",
    "http://[::1]/",
    "http://[0:0:0:0:0:0:0:1]/",
    "http://0.0.0.0/",
    "http://0/",
    "http://[::]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[::127.0.0.1]/",
    "http://[::ffff:0:127.0.0.1]/",
    # obfuscated addresses
    "http://2130706433/",
    "http://017700000001/",
    "http://0x7f000001/",
    "http://0x7f.1/",
    "http://0177.0.0.1/",
    "http://127.1/",
    "http://127.0.1/",
    "http://0x7f.0x0.0x0.0x1/",
    "http://00000177.0.0.1/",
    "http://127.0.0.01/",
    "http://１２７.０.０.１/",
    "http://①②⑦.0.0.1/",
    "http://127。0。0。1/",
    "http://ｌｏｃａｌｈｏｓｔ/",
    "http://%31%32%37.0.0.1/",
    "http://127%2e0.0.1/",
    "http://127.0.0.1%00.example.com/",
    "http://4294967296/",
    "http://999.1.1.1/",
    "http://1.2.3.4.5/",
    "http://foo.0x7f/",
    # private, internal, special networks
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://172.31.255.255/",
    "http://192.168.0.1/",
    "http://100.64.0.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://169.254.170.2/",
    "http://100.100.100.200/",
    "http://168.63.129.16/",
    "http://metadata.google.internal/",
    "http://[fd00:ec2::254]/",
    "http://[fc00::1]/",
    "http://[fe80::1]/",
    "http://[fe80::1%25eth0]/",
    "http://[fe80::1%eth0]/",
    "http://[fec0::1]/",
    "http://224.0.0.1/",
    "http://255.255.255.255/",
    "http://240.0.0.1/",
    "http://192.0.2.1/",
    "http://198.18.0.1/",
    "http://198.51.100.1/",
    "http://203.0.113.1/",
    "http://[2001:db8::1]/",
    "http://[ff02::1]/",
    "http://[64:ff9b::127.0.0.1]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[2002:7f00:1::]/",
    "http://[2001::1]/",
    "http://[100::1]/",
    "http://printer.local/",
    "http://nas.home.arpa/",
    "http://wiki.corp/",
    # userinfo and confusion
    "http://user@example.com/",
    "http://user:pw@example.com/",
    "http://example.com@127.0.0.1/",
    "http://@127.0.0.1/",
    "http://example.com\\@127.0.0.1/",
    "http://127.0.0.1\\@example.com/",
    "http://exa\tmple.com/",
    "http://example.com\n/",
    " http://example.com/",
    "http://example.com/ x",
    "http://example.com\u200b/",
    "http://example.com:80@127.0.0.1/",
    "http://[::1/",
    "http://::1/",
    "http://[::1]x/",
    "http://[127.0.0.1]/",
    "http://example.com:0/",
    "http://example.com:65536/",
    "http://example.com:-1/",
    "http://example.com:８０/",
    "http://example.com:80:81/",
    "http:///etc/passwd",
    "http://?x",
    "http://.example.com/",
    "http://exam..ple.com/",
    "http://" + "a" * 64 + ".com/",
    "http://" + "a." * 150 + "com/",
    "http://example.com/" + "a" * 9000,
    "http://exa<mple.com/",
    "http://exa'mple.com/",
    # names that resolve to addresses that are not public
    "http://to-loopback.test/",
    "http://to-metadata.test/",
    "http://to-v6-private.test/",
    "http://to-both.test/",
    "http://to-zone.test/",
    "http://router/",
]
NAMES = {
    "to-loopback.test": ["127.0.0.1"],
    "to-metadata.test": ["169.254.169.254"],
    "to-v6-private.test": ["fd00::1"],
    "to-both.test": ["93.184.216.34", "10.0.0.1"],
    "to-zone.test": ["fe80::1%lo"],
    "router": ["192.168.0.1"],
}

Page = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    pages: dict[str, Page]
    seen: list[tuple[str, dict[str, str]]]

    def do_GET(self) -> None:
        self.seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        with suppress(BrokenPipeError, ConnectionResetError):  # the client closed the connection
            self.pages[self.path.partition("?")[0]](self)
        self.close_connection = True

    def answer(self, body: bytes = b"", status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in ({"Content_Length": str(len(body))} | headers).items():
            if value:
                self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Site:
    """A web site on the loopback interface: `site.pages["/x"] = page`."""

    def __init__(self, memory: ssl.SSLContext | None = None) -> None:
        self.pages: dict[str, Page] = {}
        self.seen: list[tuple[str, dict[str, str]]] = []
        handler = type("SiteHandler", (Handler,), {"pages": self.pages, "seen": self.seen})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.handle_error = lambda *_: None  # type: ignore[method-assign]
        if memory:
            plain = self.server.socket
            self.server.socket = memory.wrap_socket(
                plain, server_side=True, do_handshake_on_connect=False
            )
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, args=[0.02])
        self.thread.start()

    def url(self, path: str, host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def page(body: bytes = b"hello", status: int = 200, **headers: str) -> Page:
    return lambda handler: handler.answer(body, status, **headers)


# Slow pages. They end only when the client closes the connection, so a test of a deadline needs no
# clock: without the deadline the fetch would never return.


def drip(handler: Handler, piece: bytes) -> None:
    while True:
        handler.wfile.write(piece)
        handler.wfile.flush()
        time.sleep(0.05)


def slow_body(handler: Handler) -> None:
    handler.answer(Content_Length=str(10**7))
    drip(handler, b"x")


def slow_open_body(handler: Handler) -> None:
    handler.answer(Content_Length="")
    drip(handler, b"x")


def slow_status(handler: Handler) -> None:
    drip(handler, b"H")


def slow_headers(handler: Handler) -> None:
    handler.wfile.write(b"HTTP/1.0 200 OK\r\nX-Y: ")
    drip(handler, b"z")


def endless_continue(handler: Handler) -> None:
    drip(handler, b"HTTP/1.1 100 Continue\r\n\r\n")


def silence(handler: Handler) -> None:
    handler.rfile.read(1)


# Responses that break the protocol.


def short(handler: Handler) -> None:
    handler.answer(Content_Length="100")
    handler.wfile.write(b"only this")


def no_http(handler: Handler) -> None:
    handler.wfile.write(b"220 smtp.example.com ESMTP\r\n")


def wrong_chunks(handler: Handler) -> None:
    handler.protocol_version = "HTTP/1.1"
    handler.answer(Content_Length="", Transfer_Encoding="chunked")
    handler.wfile.write(b"zz\r\n")


def negative_chunks(handler: Handler) -> None:
    handler.protocol_version = "HTTP/1.1"
    handler.answer(Content_Length="", Transfer_Encoding="chunked")
    handler.wfile.write(b"-5\r\nhello\r\n0\r\n\r\n")


def nothing(handler: Handler) -> None:
    pass


def huge_header(handler: Handler) -> None:
    handler.answer(X="y" * 100_000)
