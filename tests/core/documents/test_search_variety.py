"""Grouping, folding and the preference for newer documents, in searches of documents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpvectordb import Chunk, Config, Database, InvalidInput, Results
from mcpvectordb.records import WEAK
from tests.support import Letters, scaled

LAMP = "The lamp of the lighthouse is lit at dusk by the keeper."
PARAGRAPH = "Ropes of boat number {0} are checked before the boat leaves the harbour. " * 8
MODES = ["hybrid", "text", "vector"]


@pytest.fixture
def harbour(db: Database) -> Database:
    """One long document with many passages about boats, short ones, and copies of one sentence."""
    boats = "\n\n".join(PARAGRAPH.format(number) for number in range(20))
    db.documents.ingest_text(boats, source="boats.txt", title="boats")
    db.documents.ingest_text("A boat needs ropes and a keeper.", source="needs.txt", title="needs")
    for source in ("a.txt", "b.txt", "c.txt"):
        db.documents.ingest_text(LAMP, source=source, title=f"about {source * 3}")
    return db


def sources(results: Results[Chunk]) -> list[str]:
    return [hit.item.document.source for hit in results]


@pytest.mark.parametrize("mode", MODES)
def test_a_list_repeats_documents_unless_it_is_grouped(harbour: Database, mode: str) -> None:
    plain = harbour.documents.search("ropes of the boat", mode=mode, limit=4)
    grouped = harbour.documents.search("ropes of the boat", mode=mode, limit=4, group=True)
    assert sources(plain).count("boats.txt") > 1
    assert len(grouped) == 4
    first = list(dict.fromkeys(sources(grouped)))
    assert sources(grouped)[: len(first)] == first and len(first) > len(set(sources(plain)))
    (boats, *_) = [hit for hit in grouped if hit.item.document.source == "boats.txt"]
    assert boats.more > 5


def test_further_passages_fill_the_list_where_documents_run_out(harbour: Database) -> None:
    found = harbour.documents.search("harbour", mode="text", limit=3, group=True)
    assert sources(found) == ["boats.txt"] * 3


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("unit", ["passage", "document"])
def test_equal_passages_are_folded_into_the_best_which_names_them(
    harbour: Database, mode: str, unit: str
) -> None:
    options = {"mode": mode, "unit": unit, "limit": 4}
    plain = harbour.documents.search("lamp lighthouse", **options)
    assert {"a.txt", "b.txt", "c.txt"} <= set(sources(plain))
    folded = harbour.documents.search("lamp lighthouse", fold=True, **options)
    (lamp,) = [hit for hit in folded if hit.item.text == LAMP]
    assert {lamp.item.document.source, *(each.document.source for each in lamp.folded)} == {
        "a.txt",
        "b.txt",
        "c.txt",
    }
    assert all(not hit.folded for hit in plain)


def test_pages_of_grouped_and_folded_results_follow_each_other(harbour: Database) -> None:
    def ids(limit: int, offset: int) -> list[int]:
        found = harbour.documents.search(
            "ropes lamp", limit=limit, offset=offset, group=True, fold=True
        )
        return [hit.item.id for hit in found]

    assert ids(2, 0) + ids(2, 2) == ids(4, 0)


def test_folding_leaves_reranked_results_whole(tmp_path: Path) -> None:
    with Database(tmp_path / "r.db", config=Config(model="all-MiniLM-L6-v2")) as db:
        for source in ("a.txt", "b.txt"):
            db.documents.ingest_text(LAMP, source=source)
        db.documents.ingest_text("The keeper has a boat.", source="boat.txt")
        found = db.documents.search("who lights the lamp?", rerank=True, fold=True, group=True)
        assert found[0].item.text == LAMP and len(found[0].folded) == 1 and len(found) == 2


texts = st.lists(
    st.lists(st.sampled_from(["lamp", "lit", "dusk", "not", "80", "90", "boat"]), max_size=6).map(
        " ".join
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=scaled(25))
@given(texts, st.booleans(), st.sampled_from(MODES))
def test_no_answer_is_lost_by_folding(texts: list[str], group: bool, mode: str) -> None:
    with Database(":memory:", embedder=Letters()) as db:
        for number, text in enumerate(texts):
            db.documents.ingest_text(f"lamp {text}", source=f"{number}.txt", title="t")
        plain = db.documents.search("lamp", mode=mode, limit=50)
        folded = db.documents.search("lamp", mode=mode, limit=50, fold=True, group=group)
        kept = [hit.item for hit in folded]
        covered = [each for hit in folded for each in hit.folded]
        assert {each.id for each in (*kept, *covered)} == {hit.item.id for hit in plain}
        for hit in folded:
            for each in hit.folded:
                assert set(each.text.split()) <= set(hit.item.text.split())


# Equal figures.


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    path = tmp_path_factory.mktemp("copies") / "copies.db"
    with Database(path, config=Config(model="all-MiniLM-L6-v2")) as db:
        titles = ("x", "Rules of the keeper", "Whales, dolphins and other animals of the sea")
        for title in titles:
            db.documents.ingest_text(LAMP, source=f"{title}.txt", title=title)
        db.documents.ingest_text(LAMP.replace("dusk", "sunset"), source="sunset.txt", title="x")
        db.documents.ingest_text("Bread is baked in the morning.", source="bread.txt")
        yield db


@pytest.mark.parametrize("mode", MODES)
def test_equal_passages_are_all_strong_and_score_nearly_the_same(
    copies: Database, mode: str
) -> None:
    found = copies.documents.search("when does the keeper light the lamp?", mode=mode, limit=4)
    assert {hit.confidence for hit in found} == {"strong"}
    if mode == "hybrid":  # where scores are relative
        assert min(hit.score for hit in found) > 0.4


def test_what_nothing_answers_does_not_look_like_a_perfect_hit(copies: Database) -> None:
    found = copies.documents.search("xylophone quantum banana")
    assert max(hit.relevance for hit in found) < WEAK and found[0].score < 0.7


def test_a_model_that_was_not_calibrated_is_named_as_the_reason(harbour: Database) -> None:
    found = harbour.documents.search("lamp")
    assert {hit.relevance for hit in found} == {None}
    assert found.uncalibrated == "it is not calibrated for this way of searching or this model"
    assert harbour.documents.search("lamp", mode="text").uncalibrated == ""


# Recency.


@pytest.fixture
def dated(db: Database) -> Database:
    for year in (2019, 2021, 2023):
        db.documents.ingest_text(f"The lamp was lit. {year}", source=f"{year}.txt", title="t")
    for number in range(9):
        db.documents.ingest_text(f"Bread number {number}.", source=f"bread {number}", title="t")
    with db._file.writing() as sql:
        sql.execute("UPDATE documents SET modified = '2001-01-01T00:00:00.000000+00:00'")
        for year in (2019, 2021, 2023):
            sql.execute(
                "UPDATE documents SET modified = ? WHERE source = ?",
                (f"{year}-06-01T00:00:00.000000+00:00", f"{year}.txt"),
            )
    return db


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("unit", ["passage", "document"])
def test_newer_documents_come_first_if_that_is_preferred(
    dated: Database, mode: str, unit: str
) -> None:
    found = dated.documents.search("lamp lit 2019", mode=mode, unit=unit, newer="6m", limit=3)
    assert sources(found) == ["2023.txt", "2021.txt", "2019.txt"]
    weights = [hit.scores.recency for hit in found]
    assert weights == sorted(weights, reverse=True) and 0 < weights[-1] < weights[0] < 1
    plain = dated.documents.search("lamp lit 2019", mode=mode, unit=unit)
    assert sources(plain)[0] == "2019.txt"
    assert {hit.scores.recency for hit in plain} == {None}


def test_a_document_without_a_time_of_its_own_counts_from_its_ingest(db: Database) -> None:
    db.documents.ingest_text("The lamp was lit.", source="now.txt")
    (hit,) = db.documents.search("lamp", newer="1y")
    assert hit.scores.recency == pytest.approx(1, abs=0.01)


def test_what_is_no_half_life_is_refused(db: Database) -> None:
    with pytest.raises(InvalidInput, match="newer must be a duration"):
        db.documents.search("lamp", newer="lately")


# Snippets.


def test_a_hit_shows_the_lines_that_match(db: Database) -> None:
    text = "\n".join(
        ["# Notes", *(f"line {n} of nothing" for n in range(2, 9)), "The lamp is lit."]
    )
    db.documents.ingest_text(text, source="notes.md")
    (hit,) = db.documents.search("lamp")
    assert hit.line == 9 and hit.snippet == "8: line 8 of nothing\n9: The lamp is lit."
    assert db.documents.snippet(hit.item, "lamp") == hit.snippet
