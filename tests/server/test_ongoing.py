from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from mcpvectordb import Progress
from mcpvectordb_server import ongoing
from mcpvectordb_server.grant import Grant
from mcpvectordb_server.ongoing import OngoingCall, OngoingCalls, UnderWay
from mcpvectordb_server.replies import Reply, Text
from mcpvectordb_server.surface import Surface, Tool
from tests.server.clients import ask, service
from tests.server.little_surface import INGESTS, dict_dialect

LONG = 60.0


class Slow:
    """A source whose reading begins, and ends when the test says so."""

    def __init__(self) -> None:
        self.read, self.begun = 0, threading.Event()
        self.end = threading.Event()

    def warm(self) -> None:
        """Load nothing."""

    def acting_as(self, name: str) -> AbstractContextManager[None]:
        """There is no history."""
        return nullcontext()


def ingest(db: Slow, *, path: str, grant: Grant = Grant()) -> dict[str, Any]:  # noqa: B008
    """Read a source."""
    db.read += 1
    db.begun.set()
    grant.progress(Progress(step="parse", done=0, total=1))
    assert db.end.wait(LONG)
    grant.progress(Progress(step="parse", done=1, total=1))
    return {"status": "indexed", "path": path}


SLOW = Surface(
    name="slow",
    version="1",
    instructions="{ingest}",
    tools=(Tool(function=ingest, title="Ingest", hints=INGESTS),),
    failure=dict_dialect,
)


def reply(text: str) -> Reply:
    return Reply(content=(Text(text=text),))


def ignore(_: Progress) -> None:
    """No client listens."""


def test_a_call_that_takes_too_long_goes_on_and_the_same_call_gets_its_reply() -> None:
    db = Slow()
    made = service(db, SLOW, reply_seconds=0)
    first = ask(made, "ingest", {"path": "a"}).structured_content
    assert first["status"] == "error" and "call it again with the same arguments" in first["error"]
    assert ask(made, "ingest", {"path": "a"}).structured_content == first
    db.end.set()
    patient = service(db, SLOW, reply_seconds=LONG)
    patient._ongoing = made._ongoing
    assert ask(patient, "ingest", {"path": "a"}).structured_content["status"] == "indexed"
    assert db.read == 1
    ask(patient, "ingest", {"path": "a"})
    assert db.read == 2


def test_other_arguments_are_another_call() -> None:
    calls, end = OngoingCalls(), threading.Event()

    def wait(_: Any) -> Reply:
        assert end.wait(LONG)
        return reply("a")

    with pytest.raises(UnderWay):
        calls.run("ingest", {"path": "a"}, wait, ignore, 0)
    assert calls.run("ingest", {"path": "b"}, lambda _: reply("b"), ignore, LONG) == reply("b")
    end.set()
    assert calls.run("ingest", {"path": "a"}, lambda _: reply("b"), ignore, LONG) == reply("a")


def test_a_client_that_stops_listening_ends_the_work() -> None:
    ended = threading.Event()

    def work(report: Any) -> Reply:
        try:
            while True:
                report(Progress(step="parse", done=0, total=1))
        finally:
            ended.set()

    def gone(_: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        OngoingCall("ingest", work).wait(gone, LONG)
    assert ended.wait(LONG)


def test_too_many_calls_under_way_are_refused() -> None:
    calls, end = OngoingCalls(), threading.Event()

    def wait(_: Any) -> Reply:
        assert end.wait(LONG)
        return reply("")

    for number in range(ongoing.MOST_ONGOING):
        with pytest.raises(UnderWay, match="goes on in the background"):
            calls.run("ingest", {"path": number}, wait, ignore, 0)
    with pytest.raises(UnderWay, match="other ingests are under way"):
        calls.run("ingest", {"path": "more"}, wait, ignore, LONG)
    end.set()
    assert calls.run("ingest", {"path": 0}, wait, ignore, LONG) == reply("")


def test_calls_that_go_on_are_listed_with_how_far_they_are() -> None:
    calls, db = OngoingCalls(), Slow()
    assert calls.listed() == []

    def work(report: Any) -> Reply:
        report(Progress(step="ingest", done=3, total=7))
        db.begun.set()
        assert db.end.wait(LONG)
        return reply("done")

    with pytest.raises(UnderWay):
        calls.run("ingest", {"number": 1, "source": "notes"}, work, lambda _: None, 0)
    assert db.begun.wait(LONG)
    assert calls.listed() == ["ingest notes: ingest 3 of 7"]
    db.end.set()
    arguments = {"number": 1, "source": "notes"}
    assert calls.run("ingest", arguments, work, lambda _: None, LONG) == reply("done")
    assert calls.listed() == []
