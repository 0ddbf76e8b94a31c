from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from mcpvectordb import Database, Entry, Progress
from mcpvectordb.errors import EmbeddingFailed
from mcpvectordb.index.background import BackgroundEmbedder, until
from mcpvectordb.records import Embedded
from tests.support import Gated, Letters, embed_in_the_background, python

LONG = 60.0  # seconds that nothing here takes


@pytest.fixture
def embedder() -> Iterator[Gated]:
    made = Gated()
    yield made
    made.gate.set()


@pytest.fixture
def db(path: Path, embedder: Gated) -> Iterator[Database]:
    with Database(path, embedder=embedder) as database:
        yield database
        embedder.gate.set()


def test_a_small_document_is_found_by_meaning_when_its_ingest_replies(
    db: Database, embedder: Gated
) -> None:
    embedder.gate.set()
    db.embed_in_background(wait=LONG)
    done = db.documents.ingest_text("apple", source="a")
    # Who has embedded it, this call or the thread before it was asked, is left to chance.
    assert (done.status, done.pending, done.note) == ("indexed", 0, "")
    assert len(db.documents.search("apple", mode="vector")) == 1


def test_an_ingest_does_not_wait_longer_than_it_may_and_the_rest_is_embedded_later(
    db: Database, embedder: Gated
) -> None:
    db.embed_in_background(wait=0)
    done = db.documents.ingest_text("apple", source="a")
    assert (done.status, done.pending) == ("indexed", 1)
    assert done.note == "found by words now; by meaning as embedding proceeds, 1 passage waiting"
    found = db.documents.search("apple")
    assert (len(found), found.legs) == (1, ("text",))
    assert found.reasons["vector"] == (
        "no passage is embedded yet (waiting: 1); embedding goes on in the background"
    )
    embedder.gate.set()
    assert embed_in_the_background(db) == ""
    assert db.documents.search("apple").legs == ("text", "vector")


def test_progress_is_reported_while_an_ingest_waits(db: Database, embedder: Gated) -> None:
    db.embed_in_background(wait=LONG)
    seen: list[Progress] = []

    def report(progress: Progress) -> None:
        seen.append(progress)
        embedder.gate.set()

    db.documents.ingest_text("one two three four.\n\n" * 400, source="a", progress=report)
    figures = [(each.step, each.done) for each in seen]
    assert figures[0] == ("embed", 0) and figures == sorted(figures) and len(set(figures)) > 1
    assert seen[-1].done == seen[-1].total and seen[0].seconds_left is None


def test_an_ingest_that_is_repeated_meanwhile_says_what_still_waits(
    db: Database, embedder: Gated
) -> None:
    db.embed_in_background(wait=0)
    db.documents.ingest_text("apple", source="a")
    again = db.documents.ingest_text("apple", source="a")
    assert (again.status, again.pending) == ("skipped", 1)
    assert again.note == "already stored; 1 of 1 passage still wait for embedding"
    embedder.gate.set()
    assert embed_in_the_background(db) == ""
    again = db.documents.ingest_text("apple", source="a")
    assert (again.status, again.pending, again.note) == ("skipped", 0, "")


def test_a_cancelled_ingest_is_embedded_in_the_background(db: Database, embedder: Gated) -> None:
    def cancel(progress: Progress) -> None:
        if progress.step == "embed":
            raise KeyboardInterrupt

    db.embed_in_background(wait=LONG, start=False)
    with pytest.raises(KeyboardInterrupt):
        db.documents.ingest_text("apple", source="a", progress=cancel)
    embedder.gate.set()
    assert embed_in_the_background(db) == "" and embedder.seen == ["a\napple"]


def test_what_is_pending_when_it_starts_is_embedded(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        db.documents.ingest_text("apple", source="a", embed=False)
    with Database(path, embedder=Letters()) as db:
        db.embed_in_background()
        assert embed_in_the_background(db) == "" and db.documents.coverage().embedded == 1


def test_it_can_begin_when_the_model_is_loaded(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        db.documents.ingest_text("apple", source="a", embed=False)
        db.embed_in_background(start=False)
        background = db._encoder.background
        assert background is not None and background._thread is None
        db.warm()
        done = lambda: not db.stats().pending  # noqa: E731
        assert background.wait_until(done, 1, time.monotonic() + LONG) == "" and done()


def test_what_was_stored_last_is_embedded_first(db: Database, embedder: Gated) -> None:
    embedder.gate.set()
    for number in range(70):
        db.documents.ingest_text(f"text {number}", source=str(number), embed=False)
    db.embed_pending()
    newest = [int(text.split()[-1]) for text in embedder.seen[:32]]
    assert sorted(newest) == list(range(38, 70))


def test_what_was_asked_for_is_embedded_before_what_was_stored_last(
    db: Database, embedder: Gated
) -> None:
    for number in range(30):
        db.documents.ingest_text(f"text {number}", source=str(number), embed=False)
    db.embed_in_background(wait=0, start=False)
    db.documents.ingest_text("text 3", source="3")
    embedder.gate.set()
    assert embed_in_the_background(db) == "" and embedder.seen[0] == "3\ntext 3"


def test_what_a_search_found_by_words_alone_is_embedded_before_what_was_stored_last(
    db: Database, embedder: Gated
) -> None:
    for number in range(30):
        db.documents.ingest_text(f"text {number}", source=str(number), embed=False)
    db.embed_in_background(wait=0, start=False)
    assert len(db.documents.search("3", limit=1)) == 1
    embedder.gate.set()
    assert embed_in_the_background(db) == "" and embedder.seen[0] == "3\ntext 3"


def test_a_model_that_fails_is_reported_and_tried_again_with_the_next_ingest(
    db: Database, embedder: Gated
) -> None:
    embedder.broken = True
    embedder.gate.set()
    db.embed_in_background(wait=LONG)
    done = db.documents.ingest_text("apple", source="a")
    assert done.note == (
        "stored and found by words, but not yet by meaning: the model is out of order"
    )
    assert db.documents.backlog().outlook == "embedding failed: the model is out of order"
    embedder.broken = False
    assert db.documents.ingest_text("pear", source="b").note == ""
    assert embed_in_the_background(db) == "" and db.documents.coverage().embedded == 2


def test_after_a_failure_it_waits_for_the_next_request() -> None:
    calls: list[Any] = []

    def fail(index: Any, owners: Any = None, *, alone: bool = False) -> Embedded | None:
        calls.append(owners)
        raise RuntimeError("no")

    background = BackgroundEmbedder(fail, [object()], wait=LONG, retry=LONG)  # type: ignore[list-item]
    for times in (1, 2, 3):
        request = background.ask()
        assert background.wait_until(lambda: False, request, time.monotonic() + LONG) == "no"
        assert len(calls) == times
    background.close()


def test_what_another_process_embeds_is_left_to_it_unless_somebody_asks(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        for number in range(3):
            db.documents.ingest_text(f"text {number}", source=str(number), embed=False)
        other = apsw.Connection(str(path))
        other.execute("UPDATE document_pending SET leased = unixepoch() + 10 WHERE chunk = 1")
        db.embed_in_background(wait=LONG)
        done = db.documents.ingest_text("text 2", source="2")
        assert (done.pending, db.stats().pending) == (0, 2)
        other.execute("UPDATE document_pending SET leased = 0")
        assert embed_in_the_background(db) == ""


def test_another_process_at_work_is_named_in_the_outlook(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        db.documents.ingest_text("apple", source="a", embed=False)
        assert db.documents.backlog().outlook == "run `mcpvectordb embed`"
        apsw.Connection(str(path)).execute("UPDATE document_pending SET leased = unixepoch() + 10")
        assert db.documents.backlog().outlook == "another process is embedding"


def test_a_memory_is_stored_without_waiting_longer_than_it_may(
    db: Database, embedder: Gated
) -> None:
    db.embed_in_background(wait=0)
    stored = db.memories.add("t", "user", "apple")
    assert stored.note == "found by words now; by meaning as embedding proceeds, 1 passage waiting"
    assert db.memories.search("apple").legs == ("text",)
    assert "waiting: 1" in db.memories.search("apple", mode="vector").reasons["vector"]
    changed = db.memories.update(stored.id, text="pear")
    assert changed.fields == ("text",) and "1 passage waiting" in changed.note
    batch = [Entry(thread="t", source="user", text=text) for text in ("plum", "fig")]
    for atomic in (True, False):
        assert all(each.result for each in db.memories.add_many(batch, atomic=atomic))
    embedder.gate.set()
    assert embed_in_the_background(db) == "" and db.memories.search("pear").legs == (
        "text",
        "vector",
    )
    assert db.check() == []


def test_a_memory_is_embedded_at_once_where_that_is_quick(db: Database, embedder: Gated) -> None:
    embedder.gate.set()
    db.embed_in_background(wait=LONG)
    assert db.memories.add("t", "user", "apple").note == "" and db.stats().pending == 0
    embedder.broken = True
    with pytest.raises(EmbeddingFailed):
        db.memories.add("t", "user", "pear")
    assert db.memories.count() == 1


def test_a_file_that_is_open_for_reading_only_is_left_as_it_is(path: Path) -> None:
    from mcpvectordb import Config

    with Database(path, embedder=Letters()) as db:
        db.documents.ingest_text("apple", source="a", embed=False)
    with Database(path, embedder=Letters(), config=Config(read_only=True)) as db:
        db.embed_in_background()
        assert db._encoder.background is None and db.stats().pending == 1


def test_a_model_that_never_answers_does_not_keep_the_process_alive(path: Path) -> None:
    program = (
        "import sys, threading\n"
        "from mcpvectordb import Database\n"
        "from tests.support import Letters\n"
        "class Endless(Letters):\n"
        "    def embed(self, texts, *, query=False):\n"
        "        threading.Event().wait()\n"
        "db = Database(sys.argv[1], embedder=Endless())\n"
        "db.embed_in_background(wait=0)\n"
        "print(db.documents.ingest_text('apple', source='a').note)\n"
        "print(db.memories.add('t', 'user', 'apple').note)\n"
    )
    done = python(program, str(path))
    assert done.returncode == 0 and done.stdout.count("1 passage waiting") == 2


@pytest.mark.parametrize("seconds", [None, LONG])
def test_items_that_come_in_time_are_all_returned(seconds: float | None) -> None:
    deadline = None if seconds is None else time.monotonic() + seconds
    assert list(until(deadline, iter(range(3)))) == [0, 1, 2]


def test_items_after_the_deadline_are_not_waited_for() -> None:
    gate, taken = threading.Event(), threading.Event()

    def items() -> Iterator[str]:
        yield "in time"
        taken.set()
        gate.wait(LONG)
        yield "late"

    assert list(until(time.monotonic() + 0.05, items())) in (["in time"], [])
    gate.set()
    assert list(until(time.monotonic() - 1, items())) == []


@pytest.mark.parametrize("deadline", [lambda: None, lambda: time.monotonic() + LONG])
def test_what_items_raise_is_raised(deadline: Callable[[], float | None]) -> None:
    def items() -> Iterator[str]:
        yield "one"
        raise EmbeddingFailed("two")

    with pytest.raises(EmbeddingFailed, match="two"):
        list(until(deadline(), items()))
