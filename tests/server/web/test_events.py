from __future__ import annotations

import http.client
import json
import queue
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mcpvectordb import Database
from mcpvectordb_server.web import events
from tests.server.web.support_web_server import TOKEN, Served
from tests.support import Letters, python


@contextmanager
def listening(served: Served) -> Iterator[Iterator[tuple[str, Any]]]:
    """The events that a page is told, as (name, data)."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    connection.request("GET", "/api/events", headers={"Authorization": f"Bearer {TOKEN}"})
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    assert answer.headers["Content-Type"].startswith("text/event-stream")

    def told() -> Iterator[tuple[str, Any]]:
        name = ""
        while line := answer.readline().decode():
            if line.startswith("event: "):
                name = line[7:].strip()
            elif line.startswith("data: "):
                yield name, json.loads(line[6:])

    try:
        yield told()
    finally:
        answer.close()
        connection.close()


def test_a_page_is_told_what_another_process_writes(served: Served) -> None:
    with listening(served) as told:
        assert next(told)[0] == "hello"
        done = python(
            "import sys; from mcpvectordb import Database; from tests.support import Letters\n"
            "with Database(sys.argv[1], embedder=Letters()) as db: db.memories.add('t', 'agent', 'x')",
            str(served.db.path),
        )
        assert done.returncode == 0, done.stderr
        data = next(data for name, data in told if name == "changed")
        assert data["revision"] >= 1
        assert served.get("/api/memories")["total"] == 1


def test_a_page_is_told_how_far_jobs_are(served: Served, tmp_path: Path) -> None:
    with listening(served) as told:
        started = served.post("/api/check")["job"]["id"]
        for name, data in told:
            if name == "job" and data["state"] == "done":
                assert data["id"] == started and data["result"] == {"problems": []}
                break


def test_a_page_that_is_slow_is_told_the_newest_of_each_subject_only(served: Served) -> None:
    with listening(served) as told:
        assert next(told)[0] == "hello"
        for number in range(500):
            served.site.events.publish("job", {"number": number}, "j1")
        names = []
        for name, data in told:
            names.append(name)
            if data.get("number") == 499:
                break
        assert names.count("job") <= 3


def test_only_so_many_pages_can_listen_and_those_that_leave_make_room(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MOST_STREAMS", 2)
    with listening(served) as first, listening(served) as second:
        next(first), next(second)
        status, answer = served.ask("GET", "/api/events")
        assert (status, answer["error"]["code"]) == (429, "too_many")
    deadline = time.monotonic() + 60
    while served.site.events._streams and time.monotonic() < deadline:
        time.sleep(0.05)
    with listening(served) as again:
        assert next(again)[0] == "hello"


def test_a_file_that_is_taken_away_is_said_once(served: Served) -> None:
    with listening(served) as told:
        assert next(told)[0] == "hello"
        served.db.path.rename(served.db.path.with_suffix(".moved"))
        name, data = next(told)
        assert name == "trouble" and "moved or deleted" in data["message"]
        assert served.ask("GET", "/api/status")[0] == 507
        served.db.path.with_suffix(".moved").rename(served.db.path)
        assert next(told)[0] == "changed"


def test_open_streams_do_not_keep_the_server_from_ending(tmp_path: Path) -> None:
    with Database(tmp_path / "page.db", embedder=Letters()) as db:
        served = Served(db)
        with listening(served) as told:
            next(told)
            served.stop()
            assert not served.thread.is_alive()


def test_a_file_that_is_away_when_its_watch_begins_is_said_and_then_followed(path: Path) -> None:
    told: queue.Queue[str] = queue.Queue()

    class Told(events.Events):
        def publish(self, event: str, data: Any, subject: str = "") -> None:
            told.put(event)

    with Database(path, embedder=Letters()) as db:
        path.rename(path.with_suffix(".moved"))
        watch = events.FileWatch(db, Told())
        watch.start()
        assert told.get(timeout=60) == "trouble"
        path.with_suffix(".moved").rename(path)
        assert told.get(timeout=60) == "changed"
        watch.close()
