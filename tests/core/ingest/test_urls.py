from __future__ import annotations

import gzip
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.client import HTTPException
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.config import Config
from mcpvectordb.errors import FetchFailed, Refused, RetryLater
from mcpvectordb.ingest import urls
from mcpvectordb.ingest.urls import PIECE, decompressed, fetch
from mcpvectordb.records import Progress, Source
from tests.support_web import (
    HOSTILE,
    NAMES,
    Handler,
    Page,
    Site,
    huge_header,
    negative_chunks,
    no_http,
    nothing,
    page,
    short,
    slow_body,
    wrong_chunks,
)

OPEN = Config(allow_private_urls=True, host_interval=0, fetch_timeout=5)
STRICT = Config(host_interval=0, fetch_timeout=5)
PACKERS = {"": bytes, "identity": bytes, "gzip": gzip.compress}


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.close()


def loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


def got(url: str, config: Config = OPEN, **options: object) -> Source:
    found = fetch(url, config=config, **options)  # type: ignore[arg-type]
    assert found is not None
    return found


@pytest.fixture
def no_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **_: object) -> None:
        pytest.fail(f"a connection was tried: {arguments}")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


# --- the guard


@pytest.mark.usefixtures("no_connections")
def test_all_urls_are_refused_without_allow_urls() -> None:
    with pytest.raises(Refused, match="allow_urls"):
        fetch("https://example.com/", config=replace(STRICT, allow_urls=False))


@pytest.mark.usefixtures("no_connections")
@pytest.mark.parametrize("url", [
    "http://169.254.169.254/", "http://0.0.0.0/", "http://[::ffff:a9fe:a9fe]/", "http://metadata.google.internal/",
    "http://2130706433/", "http://u@127.0.0.1/",
])  # fmt: skip
def test_some_urls_are_refused_even_if_private_ones_are_allowed(url: str) -> None:
    with pytest.raises(Refused):
        fetch(url, config=OPEN, resolve=lambda host, port: ["169.254.169.254"])


def test_the_refusal_of_a_private_address_names_the_setting() -> None:
    with pytest.raises(Refused, match=r"10\.0\.0\.1.*private network.*allow_private_urls"):
        fetch("http://10.0.0.1/", config=STRICT)


def test_a_private_page_is_read_with_allow_private_urls(site: Site) -> None:
    site.pages["/"] = page()
    assert got(site.url("/")).raw == b"hello"
    headers = site.seen[0][1]
    assert headers["user-agent"].startswith("mcpvectordb/")
    assert headers["accept-encoding"] == "gzip"
    assert "if-none-match" not in headers and "if-modified-since" not in headers
    assert got(site.url("/", "localhost"), resolve=loopback).raw == b"hello"


def test_every_hop_is_resolved_and_checked_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name resolves to a public address at the first hop and to a private one at the second."""
    monkeypatch.setattr(
        urls.network, "blocked", lambda address, **_: "" if address == "127.0.0.1" else "private"
    )
    answers = iter([["127.0.0.1"], ["192.168.0.1"]])
    site.pages["/"] = page(status=302, Location="/secret")
    site.pages["/secret"] = page(b"secret")
    with pytest.raises(Refused, match=r"192\.168\.0\.1"):
        fetch(
            site.url("/", "rebinds.test"), config=STRICT, resolve=lambda host, port: next(answers)
        )
    assert [path for path, _ in site.seen] == ["/"]


def test_the_connection_goes_to_the_address_that_was_checked(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is resolved once: a resolver that changes its answer is not asked again."""
    asked = []

    def resolver(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["10.0.0.1"]

    connect = socket.create_connection
    connected = []

    def recording(address: tuple[str, int], timeout: float) -> socket.socket:
        connected.append(address)
        return connect(address, timeout)

    monkeypatch.setattr(socket, "create_connection", recording)
    site.pages["/"] = page()
    assert got(site.url("/", "name.test"), resolve=resolver).raw == b"hello"
    assert (asked, connected) == (["name.test"], [("127.0.0.1", site.port)])
    assert site.seen[0][1]["host"] == f"name.test:{site.port}"


def test_the_next_address_is_tried_when_one_does_not_answer(site: Site) -> None:
    site.pages["/"] = page()
    found = got(site.url("/", "two.test"), resolve=lambda host, port: ["127.0.0.9", "127.0.0.1"])
    assert found.raw == b"hello"


def test_neither_proxies_nor_netrc_are_taken_from_the_environment(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    site.pages["/"] = page()
    assert got(site.url("/")).raw == b"hello"
    assert "authorization" not in site.seen[0][1]


# --- the response


def test_a_page_has_media_type_modification_time_and_etag(site: Site) -> None:
    site.pages["/docs/My%20page.html"] = page(
        b"<p>hi",
        Content_Type="text/html; charset=latin-1",
        ETag='W/"v1"',
        Last_Modified="Fri, 02 Jan 2026 03:04:05 GMT",
    )
    url = site.url("/docs/My%20page.html?x=1#part")
    found = got(url)
    assert found == Source(
        source=url,
        name="My page.html",
        raw=b"<p>hi",
        file_type="url",
        modified="2026-01-02T03:04:05+00:00",
        media_type="text/html; charset=latin-1",
        etag='W/"v1"',
    )


def test_a_page_without_headers_has_empty_fields_and_the_hosts_name(site: Site) -> None:
    site.pages["/"] = page(Last_Modified="yesterday")
    found = got(site.url("/"))
    assert (found.modified, found.media_type, found.etag) == ("", "", "")
    assert found.name == f"127.0.0.1:{site.port}"


@pytest.mark.parametrize("date", [
    "Fri, 31 Dec 9999 23:59:59 -2359", "Mon, 01 Jan 2020 00:00:00 +99999999999999999999",
    "Mon, 32 Jan 2020 25:00:00 GMT", "1" * 5000,
])  # fmt: skip
def test_a_page_with_an_odd_date_is_read_without_it(site: Site, date: str) -> None:
    site.pages["/"] = page(Last_Modified=date)
    found = got(site.url("/"))
    assert (found.raw, found.modified) == (b"hello", "")


@pytest.mark.parametrize("etag", ['"a"\r\nX-Evil: yes', '"\u4e2d"', "\0"])
@pytest.mark.parametrize("modified", ["yesterday", "9999-12-31T23:59:59-23:59"])
def test_odd_versions_in_a_file_from_elsewhere_are_not_sent(
    site: Site, etag: str, modified: str
) -> None:
    site.pages["/"] = page()
    assert got(site.url("/"), etag=etag, modified=modified).raw == b"hello"
    assert not {"if-none-match", "if-modified-since", "x-evil"} & set(site.seen[0][1])


def test_an_unchanged_page_returns_none(site: Site) -> None:
    site.pages["/"] = lambda handler: handler.answer(
        status=304
        if handler.headers["If-None-Match"] == '"v1"' or handler.headers["If-Modified-Since"]
        else 200
    )
    assert fetch(site.url("/"), config=OPEN, etag='"v1"') is None
    assert fetch(site.url("/"), config=OPEN, modified="2026-01-02T03:04:05+00:00") is None
    assert fetch(site.url("/"), config=OPEN, etag='"v0"') is not None
    assert site.seen[1][1]["if-modified-since"] == "Fri, 02 Jan 2026 03:04:05 GMT"


@pytest.mark.parametrize("status", [304, 400, 401, 403, 404, 410, 429, 500, 503, 302])
def test_a_status_that_is_not_success_is_reported(site: Site, status: int) -> None:
    site.pages["/"] = page(b"", status)
    with pytest.raises(FetchFailed, match=f"answered {status}"):
        fetch(site.url("/"), config=OPEN)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_followed_and_the_source_keeps_the_url_as_given(
    site: Site, status: int
) -> None:
    site.pages["/"] = page(status=status, Location="/neu/Stra\u00dfe".encode().decode("latin-1"))
    site.pages["/neu/Stra%C3%9Fe"] = page(b"there")
    found = got(site.url("/"))
    assert (found.raw, found.source) == (b"there", site.url("/"))


def test_the_sixth_redirect_is_not_followed(site: Site) -> None:
    for number in range(9):
        site.pages[f"/{number}"] = page(status=302, Location=f"/{number + 1}")
    site.pages["/5"] = page(b"five")
    assert got(site.url("/0")).raw == b"five"
    site.pages["/5"] = page(status=302, Location="/6")
    site.pages["/6"] = page(b"six")
    with pytest.raises(FetchFailed, match="redirects more than 5 times"):
        fetch(site.url("/0"), config=OPEN)


@pytest.mark.parametrize(("encoding", "pack"), [
    ("gzip", gzip.compress), ("x-gzip", gzip.compress), ("GZIP ", gzip.compress), ("identity", bytes),
])  # fmt: skip
def test_a_compressed_page_is_decompressed(
    site: Site, encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    body = b"".join(b"line %d\n" % number for number in range(30_000))
    site.pages["/"] = page(pack(body), Content_Encoding=encoding)
    assert got(site.url("/")).raw == body
    if encoding == "gzip":  # of which several may follow each other
        site.pages["/"] = page(pack(b"one ") + pack(b"two"), Content_Encoding=encoding)
        assert got(site.url("/")).raw == b"one two"


@pytest.mark.parametrize(("encoding", "body"), [
    ("gzip", b"not gzip"), ("gzip", gzip.compress(b"x" * 999, mtime=0)[:-9]), ("gzip", gzip.compress(b"x", mtime=0) + b"junk"),
    ("deflate", zlib.compress(b"x")), ("gzip, br", b"x"), ("br", b"x"), ("zstd", b"x"),
])  # fmt: skip
def test_a_page_that_cannot_be_decompressed_is_a_failure(
    site: Site, encoding: str, body: bytes
) -> None:
    site.pages["/"] = page(body, Content_Encoding=encoding)
    with pytest.raises(FetchFailed, match=encoding.partition(",")[0]):
        fetch(site.url("/"), config=OPEN)


def test_progress_counts_received_bytes(site: Site) -> None:
    steps: list[Progress] = []
    site.pages["/"] = page(b"x" * 200_000)
    got(site.url("/"), progress=steps.append)
    assert [step.done for step in steps] == sorted({step.done for step in steps})
    assert steps[-1] == Progress(step="fetch", done=200_000, total=200_000)


# --- limits


def test_the_deadline_covers_all_redirects_together(site: Site) -> None:
    def later(handler: Handler) -> None:
        time.sleep(0.25)
        handler.answer(status=302, Location="/")

    site.pages["/"] = later
    with pytest.raises(FetchFailed, match=r"longer than 0\.6 seconds"):
        fetch(site.url("/"), config=replace(OPEN, fetch_timeout=0.6))


# --- failures


def test_a_name_that_does_not_resolve_is_reported() -> None:
    def unknown(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with pytest.raises(FetchFailed, match=r"nowhere\.test.*not known"):
        fetch("http://nowhere.test/", config=STRICT, resolve=unknown)
    with pytest.raises(FetchFailed, match=r"empty\.test.*no address"):
        fetch("http://empty.test/", config=STRICT, resolve=lambda host, port: [])


def test_a_closed_port_is_reported() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(FetchFailed, match=r"127\.0\.0\.1.*refused"):
            fetch(f"http://127.0.0.1:{free.getsockname()[1]}/", config=OPEN)


@pytest.mark.parametrize(
    "broken", [short, no_http, wrong_chunks, negative_chunks, nothing, huge_header]
)
def test_a_server_that_breaks_the_protocol_is_a_failure(site: Site, broken: Page) -> None:
    site.pages["/"] = broken
    with pytest.raises(FetchFailed, match=r"127\.0\.0\.1 could not be fetched from: ."):
        fetch(site.url("/"), config=OPEN)


# --- TLS


@pytest.fixture
def secure_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A site whose certificate is for name.test and trusted."""
    certificate = self_signed(tmp_path, "name.test")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    memory = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    memory.load_cert_chain(certificate)
    made = Site(memory)
    yield made
    made.close()


def self_signed(folder: Path, name: str) -> Path:
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / "certificate.pem"
    path.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path


def test_tls_is_checked_against_the_name_while_the_connection_goes_to_the_address(
    secure_site: Site,
) -> None:
    secure_site.pages["/"] = page()
    url = secure_site.url("/", "name.test", "https")
    assert got(url, resolve=loopback).raw == b"hello"
    assert secure_site.seen[0][1]["host"] == f"name.test:{secure_site.port}"


@pytest.mark.parametrize("host", ["other.test", "127.0.0.1"])
def test_a_certificate_for_another_name_is_a_failure(secure_site: Site, host: str) -> None:
    secure_site.pages["/"] = page()
    with pytest.raises(FetchFailed, match=host):
        fetch(secure_site.url("/", host, "https"), config=OPEN, resolve=loopback)
    assert secure_site.seen == []


def test_an_authority_that_is_not_trusted_is_a_failure(
    secure_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(FetchFailed, match="certificate verify failed"):
        fetch(secure_site.url("/", "name.test", "https"), config=OPEN, resolve=loopback)


def test_a_tls_handshake_that_hangs_is_cut_at_the_deadline() -> None:
    impatient = replace(OPEN, fetch_timeout=0.3)
    with (
        socket.create_server(("127.0.0.1", 0)) as mute,
        pytest.raises(FetchFailed, match=r"longer than 0\.3 seconds"),
    ):
        fetch(f"https://127.0.0.1:{mute.getsockname()[1]}/", config=impatient)


def test_a_slow_page_over_tls_is_cut_at_the_deadline(secure_site: Site) -> None:
    secure_site.pages["/"] = slow_body
    with pytest.raises(FetchFailed, match=r"longer than 0\.6 seconds"):
        impatient = replace(OPEN, fetch_timeout=0.6)
        fetch(secure_site.url("/", "name.test", "https"), config=impatient, resolve=loopback)


# --- a proxy


def test_a_configured_proxy_is_asked_with_its_password_and_the_whole_url(site: Site) -> None:
    site.pages["http://name.test:80/x"] = page(b"by proxy")
    config = replace(OPEN, proxy=f"http://me:p%40ss@127.0.0.1:{site.port}")
    assert got("http://name.test/x?y", config).raw == b"by proxy"
    path, headers = site.seen[0]
    assert path == "http://name.test:80/x?y"
    assert headers["proxy-authorization"] == "Basic bWU6cEBzcw=="


@pytest.mark.usefixtures("no_connections")
def test_addresses_are_also_checked_for_requests_through_a_proxy() -> None:
    config = replace(STRICT, proxy="http://127.0.0.1:9")
    for url in ("http://10.0.0.1/", "http://to-loopback.test/", "https://localhost/"):
        with pytest.raises(Refused):
            fetch(url, config=config, resolve=lambda host, port: NAMES[host])


class Tunnel(threading.Thread):
    """A proxy that answers one CONNECT and then passes bytes to `port` on loopback."""

    def __init__(self, port: int, answer: bytes) -> None:
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port, self.answer, self.asked = port, answer, b""
        self.start()

    def run(self) -> None:
        site = socket.create_connection(("127.0.0.1", self.port))
        with self.listener, self.listener.accept()[0] as client, site:
            while not self.asked.endswith(b"\r\n\r\n"):
                self.asked += client.recv(1)
            client.sendall(self.answer)
            back = threading.Thread(target=self.pump, args=[site, client], daemon=True)
            back.start()
            self.pump(client, site)
            back.join(5)

    def pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


def test_https_goes_through_a_tunnel_of_the_proxy_with_the_certificate_checked(
    secure_site: Site,
) -> None:
    secure_site.pages["/"] = page(b"tunnelled")
    tunnel = Tunnel(secure_site.port, b"HTTP/1.1 200 Connection established\r\n\r\n")
    config = replace(OPEN, proxy=f"http://me:pw@127.0.0.1:{tunnel.listener.getsockname()[1]}")
    assert got("https://name.test/", config).raw == b"tunnelled"
    tunnel.join(5)
    assert tunnel.asked.startswith(b"CONNECT name.test:443 HTTP/1.1\r\nHost: name.test:443\r\n")
    assert b"\r\nProxy-Authorization: Basic " in tunnel.asked


def test_a_proxy_that_refuses_the_tunnel_is_reported(site: Site) -> None:
    tunnel = Tunnel(site.port, b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
    config = replace(OPEN, proxy=f"http://127.0.0.1:{tunnel.listener.getsockname()[1]}")
    with pytest.raises(FetchFailed, match=r"the proxy answered .*407"):
        fetch("https://name.test/", config=config)
    tunnel.join(5)


# --- the pause between two fetches


def test_pages_of_one_host_are_fetched_with_pauses_from_the_second_on(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    site.pages["/"] = page()
    for host in ("first.test", "second.test", "first.test", "first.test"):
        got(site.url("/", host), replace(OPEN, host_interval=100), resolve=loopback)
    assert 50 < waits[0] <= 100 < 150 < waits[1] <= 200 and len(waits) == 2


def test_without_wait_a_pause_is_an_error_that_says_how_long_it_is(site: Site) -> None:
    site.pages["/"] = page()

    def resting(host: str) -> Source:
        config = replace(OPEN, host_interval=100)
        return got(site.url("/", host), config, wait=False, resolve=loopback)

    assert resting("third.test").raw == b"hello"
    for _ in range(3):  # who did not wait takes no turn
        with pytest.raises(RetryLater, match=r"third\.test") as caught:
            resting("third.test")
        assert 0 < caught.value.seconds <= 100
    assert resting("fourth.test").raw == b"hello" and len(site.seen) == 2


def cut(packed: bytes, size: int) -> Iterator[bytes]:
    return (packed[start : start + size] for start in range(0, len(packed), size))


@given(
    st.binary(max_size=500),
    st.integers(1, 50),
    st.sampled_from(sorted(PACKERS)),
    st.integers(1, 400),
)
def test_a_body_is_decompressed_from_pieces_of_any_size(
    part: bytes, times: int, encoding: str, size: int
) -> None:
    body = part * times
    assert b"".join(decompressed(cut(PACKERS[encoding](body), size), encoding)) == body


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_decompressed_or_refused(junk: bytes) -> None:
    with suppress(HTTPException):
        b"".join(decompressed(iter([junk]), "gzip"))


@given(st.binary(min_size=1, max_size=300), st.data())
def test_a_truncated_body_is_an_error(body: bytes, data: st.DataObject) -> None:
    packed = gzip.compress(body)
    kept = data.draw(st.integers(0, len(packed) - 1))
    with pytest.raises(HTTPException):
        b"".join(decompressed(iter([packed[:kept]]), "gzip"))


def test_a_decompression_bomb_is_decompressed_in_small_pieces() -> None:
    pieces = decompressed(iter([gzip.compress(bytes(20_000_000))]), "gzip")
    assert all(len(next(pieces)) <= 2 * PIECE for _ in range(20))


@pytest.mark.usefixtures("no_connections")
@pytest.mark.parametrize("url", HOSTILE)
def test_a_hostile_url_is_refused_before_any_connection(url: str) -> None:
    with pytest.raises(Refused) as caught:
        fetch(url, config=STRICT, resolve=lambda host, port: NAMES[host])
    assert len(str(caught.value)) > 20
