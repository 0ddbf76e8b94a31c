from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest
from numpy.typing import NDArray

from mcpvectordb import Config, Database, Entry, Progress
from mcpvectordb.errors import EmbeddingFailed
from mcpvectordb.index import keyword
from mcpvectordb.index.background import BackgroundEmbedder, read_ahead
from mcpvectordb.index.encoder import BATCH
from mcpvectordb.records import Embedded
from tests.support import Gated, Letters, embed_in_the_background, kept_keys, python

SOME, LONG = 0.3, 60.0  # seconds that nothing here takes


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
    assert (again.status, again.pending) == ("unchanged", 1)
    assert again.note == "already stored; 1 of 1 passage still wait for embedding"
    embedder.gate.set()
    assert embed_in_the_background(db) == ""
    again = db.documents.ingest_text("apple", source="a")
    assert (again.status, again.pending, again.note) == ("unchanged", 0, "")


def test_a_cancelled_ingest_is_embedded_in_the_background(db: Database, embedder: Gated) -> None:
    def cancel(progress: Progress) -> None:
        if progress.step == "embed":
            raise KeyboardInterrupt

    db.embed_in_background(wait=LONG, start=False)
    with pytest.raises(KeyboardInterrupt):
        db.documents.ingest_text("apple", source="a", progress=cancel)
    embedder.gate.set()
    assert embed_in_the_background(db) == "" and embedder.seen == ["a\napple"]


@pytest.mark.parametrize("warm", [False, True])
def test_what_is_pending_is_embedded_when_it_starts_or_when_the_model_is_loaded(
    path: Path, warm: bool
) -> None:
    with Database(path, embedder=Letters()) as db:
        db.documents.ingest_text("apple", source="a", embed=False)
    with Database(path, embedder=Letters()) as db:
        db.embed_in_background(start=not warm)
        background = db._encoder.background
        assert background is not None and (background._thread is None) == warm
        if warm:
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


@pytest.mark.parametrize("found", [False, True])
def test_what_was_asked_for_or_found_by_words_is_embedded_before_what_was_stored_last(
    db: Database, embedder: Gated, found: bool
) -> None:
    for number in range(30):
        db.documents.ingest_text(f"text {number}", source=str(number), embed=False)
    db.embed_in_background(wait=0, start=False)
    if found:
        assert len(db.documents.search("3", limit=1)) == 1
    else:
        db.documents.ingest_text("text 3", source="3")
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
    with Database(path, embedder=Letters()) as db:
        db.documents.ingest_text("apple", source="a", embed=False)
    with Database(path, embedder=Letters(), config=Config(read_only=True)) as db:
        db.embed_in_background()
        assert db._encoder.background is None and db.stats().pending == 1


def test_nobody_is_said_to_embed_a_file_that_is_open_for_reading_only(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        db.documents.ingest_text("apple", source="a", embed=False)
    apsw.Connection(str(path)).execute("UPDATE document_pending SET leased = unixepoch() + 10")
    with Database(path, embedder=Letters(), config=Config(read_only=True)) as db:
        assert db.documents.backlog().outlook == (
            "the file is open for reading only, so nothing can be embedded here"
        )


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


def test_texts_that_a_slow_model_embeds_before_the_deadline_are_returned(path: Path) -> None:
    class Slow(Letters):
        def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
            if "b 0" in texts:
                late.wait(LONG)
            return super().embed(texts, query=query)

    late = threading.Event()
    with Database(path, embedder=Slow()) as db:
        db.documents.ingest_text("x", source="x")
        texts = [*(f"a {number}" for number in range(BATCH)), "b 0"]
        _, found = db._encoder.embed_texts(db._indexes[1], texts, deadline=time.monotonic() + SOME)
        late.set()
        assert found.keys() <= set(texts[:BATCH])
        _, found = db._encoder.embed_texts(db._indexes[1], texts, deadline=time.monotonic() + LONG)
        assert list(found) == texts


TEXTS = {
    "one.md": "The harbour lights are lit at dusk.",
    "two.md": "The harbour master lights the lamp.",
    "three.md": "Harbours and lamps, the master said.",
    "four.md": "Nothing about any of it.",
}


def filled(path: Path) -> Database:
    db = Database(path, embedder=Letters())
    for source, text in TEXTS.items():
        db.documents.ingest_text(text, source=source)
    return db


def keys(db: Database) -> set[object]:
    return {
        *kept_keys(db._engine.resident, "document_words"),
        *kept_keys(db._engine.resident, "document_meaning_1"),
    }


def test_codes_and_common_words_are_in_memory_before_the_first_question(path: Path) -> None:
    with filled(path) as db:
        assert not keys(db)
        db.warm(wait=True)
        assert {"codes", keyword.ROWS, "harbour", "lamp"} <= keys(db)
        assert "the" not in keys(db)  # questions are asked without it
    with Database(path, embedder=Letters(), config=Config(resident_bytes=0)) as db:
        db.warm(wait=True)
        assert not keys(db)


def test_where_memories_stand_is_in_memory_before_the_first_question(path: Path) -> None:
    with filled(path) as db:
        db.warm(wait=True)
        assert not kept_keys(db._engine.resident, "contexts")
        db.memories.add("t", "user", "Where is the lamp?")
    with Database(path, embedder=Letters()) as db:
        db.warm(wait=True)
        assert "turns" in kept_keys(db._engine.resident, "contexts")
        assert "codes" in kept_keys(db._engine.resident, "context_meaning_1")
    with Database(path, embedder=Letters(), config=Config(resident_bytes=0)) as db:
        db.warm(wait=True)
        assert not kept_keys(db._engine.resident, "contexts")


def test_words_with_one_stem_are_read_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with filled(path) as db:
        db.warm(wait=True)
        read: list[str] = []
        known = keyword.fts5.token_counts

        def counting(sql: object, table: str, token: str, weight: int) -> object:
            read.append(token)
            return known(sql, table, token, weight)  # type: ignore[arg-type]

        monkeypatch.setattr(keyword.fts5, "token_counts", counting)
        found = db.documents.search("harbours", mode="text")
        assert {hit.item.document.source for hit in found} == {"one.md", "two.md", "three.md"}
        db.documents.search("unheard", mode="text")
        assert read == ["unheard"]


def test_answers_are_the_same_with_and_without_it_and_after_later_changes(path: Path) -> None:
    filled(path).close()

    def answers(db: Database) -> list[list[tuple[str, float]]]:
        return [
            [(hit.item.document.source, hit.score) for hit in db.documents.search(query)]
            for query in ("harbour lamp", "the master", "lights -dusk", "nothing")
        ]

    with Database(path, embedder=Letters()) as cold, Database(path, embedder=Letters()) as warm:
        warm.warm(wait=True)
        assert answers(warm) == answers(cold)
        cold.documents.ingest_text("A lamp in the harbour.", source="five.md")
        cold.documents.delete(cold.documents.lookup("two.md").document.id)
        assert answers(warm) == answers(cold)


@pytest.mark.parametrize("texts", [0, 4])
def test_closing_ends_it_at_any_time(path: Path, texts: int) -> None:
    with filled(path) if texts else Database(path, embedder=Letters()) as db:
        db.warm()
    assert not any(each.name == "mcpvectordb-read-ahead" for each in threading.enumerate())


def test_it_ends_when_it_is_stopped(path: Path) -> None:
    with filled(path) as db:
        read_ahead(db._file, db._indexes[0], 10**9, lambda: True)
        assert keys(db) <= {"codes"}  # no word after it was stopped
