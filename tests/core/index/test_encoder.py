from __future__ import annotations

import shutil
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import numpy as np
import pytest
from numpy.typing import NDArray

from mcpvectordb import Config, Damaged, Database, ModelMissing, Progress
from mcpvectordb.index.encoder import BATCH
from mcpvectordb.index.tuning import DEFAULT, Tuning
from mcpvectordb.storage.file import File
from tests.support import ROOT, Gated, Letters

MINILM = Config(model="all-MiniLM-L6-v2")


class Broken(Letters):
    """An embedder that returns NaN while `broken` is true."""

    broken = True

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        vectors = super().embed(texts, query=query)
        return vectors * np.nan if self.broken else vectors


def opened_gate() -> Gated:
    """An embedder that remembers what it has embedded."""
    embedder = Gated()
    embedder.gate.set()
    return embedder


def test_the_file_decides_on_model_and_chunk_sizes_and_not_the_configuration(path: Path) -> None:
    for config in (Config(chunk_size=50, chunk_overlap=10), Config(chunk_size=300)):
        with Database(path, embedder=Letters(), config=config) as db:
            for _ in range(2):  # a new file says what it would get
                stats = db.stats()
                assert (stats.model, stats.dimension) == ("letters", 32)
                assert (stats.chunk_size, stats.chunk_overlap) == (50, 10)
                db.documents.ingest_text("x", source="x")


def test_the_configuration_sets_the_weight_of_meaning_against_words(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        # An anagram of the query "listen" has the same embedding by Letters.
        for text in ("We listen to the radio.", "silent"):
            db.documents.ingest_text(text, source=text)
    for weight, first in ((0.0, "We listen to the radio."), (1.0, "silent")):
        with Database(path, embedder=Letters(), config=Config(vector_weight=weight)) as db:
            assert db.documents.search("listen")[0].item.text == first


def test_a_file_of_a_missing_model_is_searched_by_words_and_the_reason_given(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        db.documents.ingest_text("apple", source="a")
    with Database(path) as db:
        results = db.documents.search("apple")
        assert [hit.item.text for hit in results] == ["apple"]
        assert results.legs == ("text",) and "letters" in results.reasons["vector"]
        done = db.documents.ingest_text("pear", source="b")
        assert done.status == "indexed" and done.pending == 1 and "found by words" in done.note
        with pytest.raises(ModelMissing, match="letters"):
            db.embed_pending()
        assert db.check() == []
    with Database(path, embedder=Letters()) as db:
        assert db.embed_pending() == 1


def test_an_embedder_that_does_not_fit_the_file_is_refused(path: Path) -> None:
    class Other(Letters):
        name = "other"

    with Database(path, embedder=Letters()) as db:
        db.documents.ingest_text("apple", source="a")
    with Database(path, embedder=Other()) as db:
        assert "embedded with letters" in db.documents.search("apple").reasons["vector"]


def test_vectors_that_cannot_be_ranked_never_reach_the_file(path: Path) -> None:
    embedder = Broken()
    with Database(path, embedder=embedder) as db:
        done = db.documents.ingest_text("apple", source="a")
        assert done.pending == 1 and "cannot be ranked" in done.note
        assert "waiting: 1" in db.documents.search("apple").reasons["vector"]
        embedder.broken = False
        assert db.embed_pending() == 1
        assert db.documents.search("apple").legs == ("text", "vector")
        assert db.check() == []


def test_each_distinct_passage_is_embedded_once(path: Path) -> None:
    embedder = opened_gate()
    with Database(path, embedder=embedder) as db:
        for number in range(5):
            db.documents.ingest_text(
                "# Same title\n\nthe same passage", source=f"{number}.md", embed=False
            )
        assert db.stats().pending == 5
        assert db.embed_pending() == 5
        db.documents.ingest_text("# Same title\n\nthe same passage", source="late.md")
        assert len(embedder.seen) == 1 and db.check() == []


def test_a_replaced_document_embeds_only_what_is_new(path: Path) -> None:
    embedder = opened_gate()
    with Database(path, embedder=embedder) as db:
        sections = [
            f"## Part {number}\n\n{'some words here ' * 60}{number}\n\n" for number in range(6)
        ]
        db.documents.ingest_text("# T\n\n" + "".join(sections), source="a.md")
        before = len(embedder.seen)
        sections[3] = "## Part 3\n\nquite another text\n\n"
        db.documents.ingest_text("# T\n\n" + "".join(sections), source="a.md")
        assert before >= 6 and len(embedder.seen) - before <= 2 and db.check() == []


def test_progress_is_reported_and_ends_at_the_total(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        for number in range(70):
            db.documents.ingest_text(f"text {number}", source=str(number), embed=False)
        seen: list[Progress] = []
        db.embed_pending(progress=seen.append)
        assert [each.total for each in seen] == [70] * len(seen)
        assert [each.done for each in seen] == [BATCH, 2 * BATCH, 70]
        assert [(each.chunks, each.chunks_known) for each in seen] == [
            (each.done, 70) for each in seen
        ]
        assert (
            seen[-1].tokens >= 70 and seen[-1].tokens_per_second > 0 and seen[-1].seconds_left == 0
        )


def test_an_interrupted_run_is_resumed_without_loss_or_double_work(path: Path) -> None:
    class Killed(BaseException):
        pass

    def stop(progress: Progress) -> None:
        raise Killed

    embedder = opened_gate()
    with Database(path, embedder=embedder) as db:
        for number in range(70):
            db.documents.ingest_text(f"text {number}", source=str(number), embed=False)
        with pytest.raises(Killed):
            db.embed_pending(progress=stop)
        assert db.stats().pending == 70 - BATCH
        db.embed_pending()
        assert db.stats().pending == 0 and len(embedder.seen) == 70 and db.check() == []


@pytest.mark.parametrize("until", ["unixepoch('subsec') + 0.3", "unixepoch() + 100000", "1e300"])
def test_a_lease_that_ends_or_that_no_clock_can_have_given_is_given_again(
    path: Path, until: str
) -> None:
    """The process that had it died; or a clock was set back, or a bit flipped."""
    with Database(path, embedder=Letters()) as db:
        db.documents.ingest_text("apple", source="a", embed=False)
        with db._file.writing() as sql:
            sql.execute(f"UPDATE document_pending SET leased = {until}")
        assert db.embed_pending() == 1 and db.check() == []
    assert DEFAULT.lease_seconds < 60


def test_a_pending_chunk_that_does_not_exist_is_reported_as_damage(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        db.documents.ingest_text("apple", source="a", embed=False)
        with apsw.Connection(str(path)) as other:
            other.execute("INSERT INTO document_pending (model, chunk, leased) VALUES (1, 999, 0)")
        with pytest.raises(Damaged, match="chunks that are not there"):
            db.embed_pending()
        db.rebuild()
        assert db.embed_pending() == 1 and db.check() == []


def test_two_workers_embed_each_chunk_once(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        for number in range(100):
            db.documents.ingest_text(f"text {number}", source=str(number), embed=False)
    both = [opened_gate(), opened_gate()]
    gate = threading.Barrier(2)

    def work(embedder: Gated) -> None:
        with Database(path, embedder=embedder) as db:
            gate.wait()
            db.embed_pending()

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(work, both))
    seen = [text for embedder in both for text in embedder.seen]
    assert len(seen) == len(set(seen)) == 100
    with Database(path, embedder=Letters()) as db:
        assert db.stats().pending == 0 and db.check() == []


def test_using_another_model_embeds_again_and_switches_at_the_end(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        for number in range(3):
            db.documents.ingest_text(f"apple {number}", source=str(number))
    legs = []
    with Database(path) as db, Database(path, embedder=Letters()) as old:

        def meanwhile(_: Progress) -> None:
            legs.append(old.documents.search("apple").legs)
            old.documents.ingest_text("pear", source="b")

        db.use_model("all-MiniLM-L6-v2", progress=meanwhile)
        assert legs and set(legs) == {("text", "vector")}
        assert db.stats().model == "all-MiniLM-L6-v2" and db.stats().pending == 0
        assert len(db.documents.search("fruit", mode="vector")) == db.documents.count() == 4
        assert "all-MiniLM-L6-v2" in old.documents.search("apple").reasons["vector"]
        assert db.check() == []


def test_an_unknown_model_or_a_reranker_cannot_be_used(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        with pytest.raises(ModelMissing, match="did you mean all-MiniLM-L6-v2"):
            db.use_model("all-MiniLM-L6-v1")
        with pytest.raises(ValueError, match="cannot embed"):
            db.use_model("ms-marco-MiniLM-L-12-v2")


def test_searches_use_words_alone_until_the_model_is_loaded(path: Path) -> None:
    with Database(path, config=MINILM) as db:
        db.documents.ingest_text("apple", source="a")
    with Database(path, config=MINILM) as db:
        db.warm()
        first = db.documents.search("apple")
        assert first.legs == ("text", "vector") or "still loading" in first.reasons["vector"]
        while db.documents.search("apple").legs != ("text", "vector"):
            pass


def test_a_query_in_letters_unknown_to_the_model_is_ranked_by_words(path: Path) -> None:
    with Database(path, config=MINILM) as db:
        for number, text in enumerate(
            ["数据库索引很快", "天气很好，我们去公园", "他喜欢喝绿茶", "火车晚点了两个小时"]
        ):
            db.documents.ingest_text(text, source=str(number))
        for text in ("绿茶", "火车晚点", "公园天气"):
            hit = db.documents.search(text)[0]
            assert hit.scores.text_rank == 1


def test_a_file_with_an_invalid_model_can_be_read_but_not_embedded(
    path: Path,
) -> None:
    with Database(path, embedder=Letters(), tuning=Tuning(uncoded_chunks=0)) as db:
        for number in range(3):
            db.documents.ingest_text(f"apple {number}", source=str(number))
    other = apsw.Connection(str(path))
    other.execute("PRAGMA writable_schema = ON")
    other.execute(
        "UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = "
        "'document_meaning_1_rowids') WHERE name = 'models'"
    )
    other.close()
    before = path.read_bytes()
    with Database(path, embedder=Letters()) as db:
        assert db.check() and db.documents.count() == 3
        for question in (
            lambda: db.documents.ingest_text("new", source="new"),
            lambda: db.documents.search("apple", mode="vector"),
            db.stats,
        ):
            with pytest.raises(Damaged):
                question()
    assert path.read_bytes() == before


def former_file(path: Path) -> Path:
    """A file of an earlier version, with an embedding of what waits by a second model."""
    shutil.copy(ROOT / "tests" / "fixtures" / "version-12.db", path)
    File(path).close()  # the format is today's then
    return path


def test_a_second_model_of_earlier_versions_is_passed_over_in_a_file_open_for_reading(
    path: Path,
) -> None:
    with Database(former_file(path), embedder=Letters(), config=Config(read_only=True)) as db:
        assert db.check() == []
        found = db.documents.search("still waiting", mode="vector")
        assert {hit.item.document.source for hit in found} == {"boats.md", "odd.txt"}
        assert found.backlog.pending == 1
        assert db.documents.search("still waiting")[0].item.document.source == "waiting.txt"


def test_a_second_model_of_earlier_versions_is_dropped_when_a_file_is_opened(path: Path) -> None:
    with Database(former_file(path), embedder=Letters()) as db:
        with db._file.reading() as sql:
            assert sql.execute("SELECT count(*), max(name) FROM models").get == (1, "letters")
            assert sql.execute("SELECT DISTINCT model FROM document_embeddings").get == 1
        assert db.check() == [] and db.stats().pending == 1
        db.embed_pending()
        found = db.documents.search("still waiting", mode="vector")
        assert found[0].item.document.source == "waiting.txt"
        db.rebuild()
        assert db.check() == []


@pytest.mark.parametrize("value", ["1", "77", "tea"])
def test_a_setting_that_names_no_second_model_deletes_nothing(path: Path, value: str) -> None:
    with Database(former_file(path), embedder=Letters()) as db, db._file.writing() as sql:
        sql.execute("INSERT INTO settings (name, value) VALUES ('provisional', ?)", (value,))
    with Database(path, embedder=Letters()) as db:
        assert db.check() == [] and db.stats().pending == 1
        assert len(db.documents.search("boats", mode="vector")) == 2
