from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from http.client import HTTPException
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.errors import Refused
from mcpvectordb.network import (
    NEVER,
    PRIVATE,
    Deadline,
    blocked,
    parse_url,
    request,
    resolved,
    system_resolver,
)
from tests.support_web import (
    Site,
    endless_continue,
    page,
    silence,
    slow_body,
    slow_headers,
    slow_open_body,
    slow_status,
)

PUBLIC = (
    "1.1.1.1 8.8.8.8 93.184.216.34 172.32.0.1 100.128.0.1 2606:4700::1111 2a00:1450:4001::8a"
).split()
PRIVATE_ADDRESSES = (
    "127.0.0.1 10.1.2.3 172.16.0.1 192.168.1.1 100.64.0.1 169.254.1.1 ::1 fd12::1 fe80::1 "
    "fe80::1%eth0 fec0::1 ::ffff:127.0.0.1 64:ff9b::a00:1 2002:7f00:1::"
).split()
NEVER_ADDRESSES = (
    "169.254.169.254 169.254.170.2 100.100.100.200 168.63.129.16 fd00:ec2::254 0.0.0.0 0.1.2.3 "
    "192.0.0.8 192.0.2.1 198.18.0.1 198.51.100.7 203.0.113.9 224.0.0.1 239.255.255.250 240.0.0.1 "
    "255.255.255.255 :: ::7f00:1 ::ffff:0:127.0.0.1 100::1 2001::1 2001:0:7f00:1:: 2001:10::1 "
    "2001:20::1 2001:db8::1 3fff::1 5f00::1 ff02::1 64:ff9b:1::1 4000::1 ::ffff:169.254.169.254 "
    "64:ff9b::169.254.169.254 2002:a9fe:a9fe::"
).split()


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_allowed(address: str) -> None:
    assert blocked(address) == blocked(address, allow_private=True) == ""


@pytest.mark.parametrize("address", PRIVATE_ADDRESSES)
def test_a_private_address_is_allowed_only_by_configuration(address: str) -> None:
    assert blocked(address)
    assert not blocked(address, allow_private=True)


@pytest.mark.parametrize("address", NEVER_ADDRESSES)
def test_metadata_services_and_addresses_of_no_host_are_never_allowed(address: str) -> None:
    assert blocked(address)
    assert blocked(address, allow_private=True)


@given(
    st.sampled_from([*PRIVATE, *NEVER]).flatmap(
        lambda network: st.integers(0, network.num_addresses - 1).map(
            lambda offset: network[offset]
        )
    )
)
def test_every_address_of_a_listed_network_is_blocked(address: IPv4Address | IPv6Address) -> None:
    assert blocked(str(address))


@given(st.ip_addresses())
def test_addresses_that_python_does_not_call_global_are_blocked(
    address: IPv4Address | IPv6Address,
) -> None:
    if not address.is_global:
        assert blocked(str(address))


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("http://example.com", ("http", "example.com", 80, "/")),
        ("HTTPS://Example.COM./a/b?c=d#e", ("https", "example.com", 443, "/a/b?c=d")),
        ("http://example.com:8080?x", ("http", "example.com", 8080, "/?x")),
        ("http://example.com:/", ("http", "example.com", 80, "/")),
        (
            "http://bücher.example/straße?q=ü",
            ("http", "xn--bcher-kva.example", 80, "/stra%C3%9Fe?q=%C3%BC"),
        ),
        ("http://example.com/a%20b%2Fc/@x:y", ("http", "example.com", 80, "/a%20b%2Fc/@x:y")),
        ("http://[2606:4700::1111]:81/x", ("http", "2606:4700::1111", 81, "/x")),
        ("http://1.1.1.1./", ("http", "1.1.1.1", 80, "/")),
        ("http://a_b.example.com/", ("http", "a_b.example.com", 80, "/")),
        ("http://１.１.１.１/", ("http", "1.1.1.1", 80, "/")),
    ],
)
def test_a_url_is_parsed_into_its_parts(url: str, place: tuple[str, str, int, str]) -> None:
    assert parse_url(url) == place


def test_the_authority_writes_ipv6_in_brackets() -> None:
    assert parse_url("https://[2606:4700::1111]/").authority == "[2606:4700::1111]:443"
    assert parse_url("https://example.com/").authority == "example.com:443"


@given(
    st.text(max_size=60)
    | st.text(alphabet="htps:/.@[]%#?\\0123456789abcxé。 ", max_size=40).map("http://".__add__)
)
def test_arbitrary_text_is_parsed_or_refused(url: str) -> None:
    try:
        place = parse_url(url)
    except Refused:
        return
    assert place.scheme in ("http", "https")
    assert place.host.isascii() and place.target.isascii() and place.target.startswith("/")
    assert not set(place.host + place.target) & set(" \\@\r\n\t") - {"@"}


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.close()


def get(site: Site, seconds: float = 20, **options: Any) -> bytes:
    deadline = Deadline(seconds)
    url = parse_url(site.url("/"))
    with request("GET", url, ["127.0.0.1"], {"X": "y"}, deadline=deadline, **options) as response:
        body = response.read()
        deadline.left()
        return bytes(body)


def test_a_request_goes_to_the_address_with_its_headers(site: Site) -> None:
    site.pages["/"] = page(b"hello")
    assert get(site) == b"hello" and site.seen[0][1]["x"] == "y"


@pytest.mark.parametrize(
    "slow", [slow_body, slow_open_body, slow_headers, slow_status, endless_continue, silence]
)
def test_the_deadline_ends_whatever_a_server_drips(site: Site, slow: Callable[..., None]) -> None:
    site.pages["/"] = slow
    with pytest.raises((OSError, HTTPException)):
        get(site, seconds=0.3)


def test_connecting_has_a_time_of_its_own(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []

    def never(address: object, timeout: float) -> socket.socket:
        given.append(timeout)
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", never)
    with pytest.raises(TimeoutError):
        get(site, connect_timeout=3.0)
    with pytest.raises(TimeoutError):
        get(site, seconds=2.0, connect_timeout=3.0)
    assert given[0] == 3.0 and given[1] <= 2.0


def test_a_resolver_that_hangs_is_left_behind() -> None:
    def hangs(host: str, port: int) -> list[str]:
        time.sleep(5)
        return []

    with pytest.raises(TimeoutError):
        resolved("slow.test", 80, hangs, Deadline(0.1))


def test_a_name_without_addresses_is_an_error() -> None:
    with pytest.raises(OSError, match="no address"):
        resolved("empty.test", 80, lambda host, port: [], Deadline(5))
    assert resolved("127.0.0.1", 80, system_resolver, Deadline(5)) == ["127.0.0.1"]


def test_a_deadline_knows_what_is_left() -> None:
    deadline = Deadline(50)
    assert not deadline.passed() and 49 < deadline.left() <= 50
    assert deadline.ends_within(51) and not deadline.ends_within(40)
    with pytest.raises(TimeoutError):
        Deadline(0).left()
