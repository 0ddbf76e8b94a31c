from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from mcpvectordb import InvalidInput, NotFound, Progress
from mcpvectordb_server.web.errors import HttpError
from mcpvectordb_server.web.jobs import MOST_KEPT, MOST_QUEUED, Job, Jobs
from tests.server.web.support_web_server import Served


def step(number: int) -> Progress:
    return Progress(step="ingest", done=number, total=3, seconds_left=1.5)


@pytest.fixture
def seen() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def jobs(seen: list[tuple[str, str]]) -> Iterator[Jobs]:
    made = Jobs(lambda job: seen.append((job.id, job.state)), workers=2)
    yield made
    made.close()


def ended(job: Job) -> Job:
    deadline = time.monotonic() + 60
    while not job.ended and time.monotonic() < deadline:
        time.sleep(0.005)
    return job


def test_a_job_reports_its_steps_and_its_result(jobs: Jobs, seen: list[tuple[str, str]]) -> None:
    def work(progress: Callable[[Progress], None]) -> Mapping[str, Any]:
        progress(step(2))
        return {"a": 1}

    job = ended(jobs.add("sync", "notes", work))
    reply = job.reply()
    assert (reply["state"], reply["result"], reply["error"]) == ("done", {"a": 1}, None)
    assert reply["progress"] is not None and reply["progress"].seconds_left == 1.5
    assert [state for _, state in seen] == ["queued", "running", "running", "done"]


def test_what_goes_wrong_is_the_jobs_error(jobs: Jobs, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(_: object) -> Mapping[str, Any]:
        raise InvalidInput("no such thing")

    def fail(_: object) -> Mapping[str, Any]:
        raise RuntimeError("secret")

    assert ended(jobs.add("url", "a", refuse)).reply()["error"] == {
        "code": "invalid_input",
        "message": "no such thing",
    }
    reply = ended(jobs.add("url", "b", fail)).reply()
    assert reply["error"] is not None and reply["error"]["code"] == "internal"
    assert "secret" not in str(reply) and "secret" in caplog.text


def test_a_job_is_cancelled_between_its_steps_or_before_it_begins(jobs: Jobs) -> None:
    going, done = threading.Event(), []

    def work(progress: Callable[[Progress], None]) -> Mapping[str, Any]:
        for number in range(1_000):
            done.append(number)
            going.set()
            time.sleep(0.01)
            progress(step(number))
        return {}

    first, second = jobs.add("sync", "a", work), jobs.add("sync", "b", work)
    third = jobs.add("sync", "c", work)
    assert going.wait(10)
    assert jobs.cancel(third.id).state == "cancelled"
    jobs.cancel(first.id)
    jobs.cancel(second.id)
    assert ended(first).state == ended(second).state == "cancelled" and len(done) < 1_000
    assert jobs.cancel(first.id).state == "cancelled"


def test_the_same_work_is_not_begun_twice_unless_it_is_a_file(jobs: Jobs) -> None:
    gate = threading.Event()

    def work(_: object) -> Mapping[str, Any]:
        gate.wait(10)
        return {}

    assert jobs.add("check", "x", work) is jobs.add("check", "x", work)
    assert jobs.add("upload", "x", work) is not jobs.add("upload", "x", work)
    with pytest.raises(InvalidInput, match="check cannot be stopped half-way"):
        while jobs.newest_first()[-1].state != "running":
            time.sleep(0.005)
        jobs.cancel("j1")
    gate.set()


def test_only_so_many_jobs_are_kept_and_wait(jobs: Jobs) -> None:
    for number in range(MOST_KEPT + 5):
        ended(jobs.add("upload", str(number), lambda _: {}))
    assert len(jobs.newest_first()) == MOST_KEPT
    with pytest.raises(NotFound):
        jobs.get("j1")
    gate = threading.Event()

    def work(_: object) -> Mapping[str, Any]:
        gate.wait(10)
        return {}

    with pytest.raises(HttpError, match="jobs are waiting"):
        for number in range(MOST_QUEUED + 1):
            jobs.add("upload", str(number), work)
    gate.set()


def test_check_and_compact_are_jobs(served: Served) -> None:
    served.db.documents.ingest_text("tea", source="a.md")
    assert served.job(served.post("/api/check"))["result"] == {"problems": []}
    assert served.job(served.post("/api/compact"))["result"]["freed"] >= 0
    assert [job["kind"] for job in served.get("/api/jobs")["jobs"]] == ["compact", "check"]
    assert served.ask("POST", "/api/jobs/j1/cancel", {})[1]["state"] == "done"
