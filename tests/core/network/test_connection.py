from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from http.client import HTTPException
from typing import Any

import pytest

from mcpvectordb.network.addresses import parse_url
from mcpvectordb.network.connection import Deadline, request, resolved, system_resolver
from tests.support_web import Site, page, silence, slow_body, slow_headers, slow_status


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


@pytest.mark.parametrize("slow", [slow_body, slow_headers, slow_status, silence])
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
