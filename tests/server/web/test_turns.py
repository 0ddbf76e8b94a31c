from __future__ import annotations

import http.client
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mcpvectordb_server.web.turns import MOST_PAGES, THREADS
from tests.server.little_surface import read_for_ever
from tests.server.web.support_web_server import TOKEN, Served


@pytest.fixture
def held(served: Served, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Searches wait for a gate; `held.begun` are the queries that have begun."""

    class Held:
        gate, begun, served = threading.Event(), list[str](), None

    original = served.db.search

    def search(query: Any, **options: Any) -> Any:
        Held.begun.append(query[0]["text"])
        assert Held.gate.wait(20)
        return original(query, **options)

    monkeypatch.setattr(served.db, "search", search)
    Held.begun.clear()
    return Held


def ask(served: Served, number: int, page: str = "p") -> int:
    headers = {"X-Page": page, "X-Sequence": str(number)}
    return served.ask("POST", "/api/search", {"query": f"{page}{number}"}, headers)[0]


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert condition()


def test_a_request_that_waited_while_a_newer_one_came_is_not_run(served: Served, held: Any) -> None:
    with ThreadPoolExecutor(THREADS + 10) as clients:
        busy = [clients.submit(ask, served, 1, f"busy{n}") for n in range(THREADS)]
        wait_for(lambda: len(held.begun) == THREADS)
        typed = []
        for number in range(1, 9):
            typed.append(clients.submit(ask, served, number))
            time.sleep(0.05)  # so that they arrive in this order
        held.gate.set()
        assert [each.result() for each in typed] == [409] * 7 + [200]
        assert [each.result() for each in busy] == [200] * THREADS
    assert [query for query in held.begun if query.startswith("p")] == ["p8"]


def test_of_the_requests_of_a_page_one_runs_at_a_time(served: Served, held: Any) -> None:
    with ThreadPoolExecutor(10) as clients:
        first = clients.submit(ask, served, 1)
        wait_for(lambda: held.begun == ["p1"])
        typed = []
        for number in range(2, 6):
            typed.append(clients.submit(ask, served, number))
            time.sleep(0.05)
        assert ask_tags(served) == 200 and held.begun == ["p1"]  # other requests go on
        held.gate.set()
        assert first.result() == 200
        assert [each.result() for each in typed] == [409] * 3 + [200]
    assert held.begun == ["p1", "p5"]


def ask_tags(served: Served) -> int:
    return served.ask("GET", "/api/tags", headers={"X-Page": "p", "X-Sequence": "1"})[0]


def test_a_request_whose_client_is_gone_is_not_run(served: Served, held: Any) -> None:
    with ThreadPoolExecutor(THREADS) as clients:
        busy = [clients.submit(ask, served, 1, f"busy{n}") for n in range(THREADS)]
        wait_for(lambda: len(held.begun) == THREADS)
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
        connection.request(
            "POST",
            "/api/search",
            json.dumps({"query": "gone"}),
            {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
        )
        time.sleep(0.2)
        connection.close()
        time.sleep(0.2)
        held.gate.set()
        assert [each.result() for each in busy] == [200] * THREADS
    assert ask(served, 2) == 200
    assert "gone" not in held.begun


def test_a_read_that_runs_ends_when_its_client_goes(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = threading.Event(), threading.Event()

    def search(query: Any, **options: Any) -> Any:
        read_for_ever(served.db, begun, ended)

    monkeypatch.setattr(served.db, "search", search)
    monkeypatch.setattr(served.db._file, "_read_timeout", 3600.0)
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    connection.request(
        "POST",
        "/api/search",
        json.dumps({"query": "gone"}),
        {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
    )
    assert begun.wait(60)
    assert not ended.is_set()
    connection.close()
    assert ended.wait(60)
    assert ask_tags(served) == 200


def test_pages_do_not_supersede_each_other_and_are_forgotten(served: Served) -> None:
    assert ask(served, 5, "a") == 200
    assert ask(served, 1, "b") == 200
    for number in range(MOST_PAGES + 5):
        assert (
            served.ask("GET", "/api/tags", headers={"X-Page": str(number), "X-Sequence": "1"})[0]
            == 200
        )


@pytest.mark.parametrize(("page", "number"), [("x" * 65, "1"), ("a", "x"), ("a", ""), ("a", "-1")])
def test_a_wrong_number_is_refused(page: str, number: str, served: Served) -> None:
    headers = {"X-Page": page, "X-Sequence": number}
    assert served.ask("GET", "/api/tags", headers=headers)[0] == 400
