from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import (
    Chunk,
    Config,
    Database,
    Document,
    Hit,
    InvalidInput,
    Progress,
    Results,
    Scores,
)
from mcpvectordb.bench.known_items import KINDS, KnownItem
from mcpvectordb.bench.run import (
    BUDGET,
    LIMITS,
    BenchSizes,
    ItemRank,
    Report,
    bench,
    figures,
    percentile,
    share,
    spaced,
)
from mcpvectordb.cli.bench import _lines
from mcpvectordb.search.rerank import CachedReranker
from tests.support import Letters
from tests.support_bench import fill

ITEM = KnownItem(kind="terms", query="", document="d", start=100, end=200)
MODES = ["text", "vector", "hybrid"]

pytestmark = pytest.mark.long


@dataclass
class Measured:
    """A file, its bytes before it was measured, and the report."""

    path: Path
    before: bytes
    report: Report
    steps: list[Progress]


@pytest.fixture(autouse=True, scope="module")
def no_cross_encoder() -> Iterator[None]:
    """The cross-encoder takes a second for each query; one test has a faster one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CachedReranker, "missing_reason", lambda _: "it is not here")
        yield


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    path, steps = tmp_path_factory.mktemp("bench") / "measured.db", []
    with Database(path, embedder=Letters()) as db:
        fill(db, 24)
    before = path.read_bytes()
    return Measured(
        path, before, bench(path, embedder=Letters(), queries=80, progress=steps.append), steps
    )


@pytest.fixture
def filled(path: Path) -> Path:
    with Database(path, embedder=Letters()) as db:
        fill(db, 24)
    return path


def found(start: int, end: int, document: str = "d") -> Hit[Chunk]:
    of = Document(
        id=document,
        library="",
        source=document,
        title="",
        hash="",
        file_type="",
        size=0,
        modified="",
        created_at="",
        metadata={},
        chunks=1,
    )
    chunk = Chunk(
        id=1,
        document=of,
        position=0,
        text="",
        start=start,
        end=end,
        first_line=1,
        last_line=1,
        page=None,
        headings=(),
    )
    return Hit(item=chunk, score=1, scores=Scores())


def quick(path: Path, **options: object) -> Report:
    return bench(path, **{"embedder": Letters(), "queries": 24, "chunking": False, **options})  # type: ignore[arg-type]


def test_every_mode_has_figures_for_every_kind_and_for_all(measured: Measured) -> None:
    report = measured.report
    assert [(each.mode, each.kind) for each in report.figures] == [
        (mode, kind) for mode in MODES for kind in (*KINDS, "all")
    ]
    assert (report.documents, report.passages, report.model, report.queries) == (
        24,
        72,
        "letters",
        dict.fromkeys(KINDS, 20),
    )
    for each in report.figures:
        assert 0 <= each.recall_1 <= each.mrr_10 <= each.recall_10 <= 1
        assert 0 < each.p50 <= each.p95
        assert each.queries == (80 if each.kind == "all" else 20)
    by_words = next(
        each for each in report.figures if (each.mode, each.kind) == ("text", "heading")
    )
    assert by_words.recall_1 == 1  # no two sections have the same number


def test_the_file_is_not_changed_by_a_byte(measured: Measured) -> None:
    assert measured.path.read_bytes() == measured.before
    log = Path(f"{measured.path}-wal")
    assert not log.exists() or log.stat().st_size == 0


def test_the_printed_lines_have_every_value_that_was_tried_and_the_advice(
    measured: Measured,
) -> None:
    lines = "\n".join(_lines(measured.report))
    assert re.search(
        r"^vector_weight \(MRR@10, 80 queries\): 0\.2 [+-]0\.\d{3} ± .*, 0\.5 in force, ",
        lines,
        re.MULTILINE,
    )
    assert re.search(r"^chunk_size .*: 100 .*, 200 in force, 400 ", lines, re.MULTILINE)
    assert all(each.advice in lines for each in measured.report.comparisons)
    assert all(note in lines for note in measured.report.notes)


def test_the_same_seed_gives_the_same_figures(filled: Path) -> None:
    def ranks(seed: int) -> list[float]:
        return [each.mrr_10 for each in quick(filled, seed=seed, queries=12).figures]

    assert ranks(1) == ranks(1) != ranks(2)


def test_weights_and_chunk_sizes_are_compared_on_the_same_queries(measured: Measured) -> None:
    report = measured.report
    weight, size = report.comparisons
    assert (weight.setting, weight.current, weight.queries) == ("vector_weight", 0.5, 80)
    assert [each.value for each in weight.tried] == [0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
    in_force = next(each for each in report.figures if (each.mode, each.kind) == ("hybrid", "all"))
    assert next(each.score for each in weight.tried if each.value == 0.5) == pytest.approx(
        in_force.mrr_10
    )
    assert (size.setting, size.current, [each.value for each in size.tried]) == (
        "chunk_size",
        200,
        [100, 200, 400],
    )
    assert 20 <= size.queries <= 100
    assert all(0 < each.score <= 1 for each in size.tried)
    assert all(each.advice for each in report.comparisons)


def test_the_weight_in_force_is_the_configured_one(filled: Path) -> None:
    (weight,) = quick(filled, config=Config(vector_weight=0.35), queries=12).comparisons
    assert weight.current == 0.35
    assert 0.35 in [each.value for each in weight.tried]


def test_a_low_weight_is_advised_with_a_caveat_where_embeddings_say_little(
    filled: Path,
) -> None:
    (weight,) = quick(filled, config=Config(vector_weight=1.0)).comparisons
    assert weight.advised < weight.current
    assert "only if yours are like that" in weight.advice


def test_reranking_is_measured_where_there_is_a_cross_encoder(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CachedReranker, "missing_reason", lambda _: "")
    monkeypatch.setattr(
        CachedReranker,
        "scores",
        lambda _, query, passages: [
            len(set(query.split()) & set(passage.split())) / 100 for passage in passages
        ],
    )
    report = quick(filled, queries=28)
    again = next(each for each in report.figures if (each.mode, each.kind) == ("rerank", "all"))
    assert again.queries == 24
    _, rerank = report.comparisons
    assert (rerank.setting, rerank.queries) == ("rerank", 24)
    assert rerank.tried[1].score == pytest.approx(again.mrr_10)
    assert any(
        line.startswith("rerank (MRR@10, 24 queries): 0 in force, 1 ") for line in _lines(report)
    )


def test_progress_names_the_step_and_reaches_its_end(measured: Measured) -> None:
    last = {step.step: step for step in measured.steps}
    assert list(last) == [
        *(f"searching ({mode})" for mode in MODES),
        "trying weights",
        *(f"embedding chunks of {size} tokens" for size in (200, 100, 400)),
    ]
    assert all(step.done == step.total for step in last.values())


def test_the_notes_always_say_what_the_queries_favour(measured: Measured) -> None:
    assert measured.report.notes == (LIMITS, "Not reranked: it is not here")
    assert "favours keyword search over vector search" in LIMITS


def test_one_library_is_measured_by_itself(filled: Path) -> None:
    with Database(filled, embedder=Letters()) as db:
        db.documents.ingest_text("one more", source="more", library="other")
    assert quick(filled, library="default", queries=4).documents == 24
    with pytest.raises(InvalidInput, match="there are no documents in the library 'no such'"):
        quick(filled, library="no such")
    with pytest.raises(
        InvalidInput, match="there are 1 passages in the library 'other', too few to measure"
    ):
        quick(filled, library="other")


def test_an_empty_file_has_nothing_to_measure(path: Path) -> None:
    Database(path, embedder=Letters()).close()
    with pytest.raises(InvalidInput, match=r"there are no documents in .*: ingest some first"):
        quick(path)


def test_identical_passages_cannot_be_measured(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        for number in range(40):
            db.documents.ingest_text("All of us say the same.", source=f"{number}.md", title="Same")
    with pytest.raises(
        InvalidInput, match="none of the 40 passages has a title, a heading or words"
    ):
        quick(path)


def test_without_embeddings_only_keyword_search_is_measured_and_the_reason_is_noted(
    path: Path,
) -> None:
    with Database(path, embedder=Letters()) as db:
        for number in range(40):
            db.documents.ingest_text(
                f"# Walrus {number}\n\nA text of its own, {number}.",
                source=f"{number}.md",
                embed=False,
            )
    report = quick(path)
    assert {each.mode for each in report.figures} == {"text"}
    assert (
        report.notes[-1]
        == "Keyword search only: no passage is embedded yet (waiting: 40); run `mcpvectordb embed`"
    )
    other = quick(path, embedder=None)
    assert "letters" in other.notes[-1]
    assert not report.comparisons and not other.comparisons


def test_documents_without_embeddings_are_noted(filled: Path) -> None:
    with Database(filled, embedder=Letters()) as db:
        db.documents.ingest_text("A text that waits.", source="waits.md", embed=False)
    assert any(
        note.startswith("1 documents are not completely embedded yet")
        for note in quick(filled, queries=4).notes
    )


def test_chunk_sizes_are_compared_on_a_sample_that_does_not_grow_with_the_file(
    filled: Path,
) -> None:
    steps: list[Progress] = []
    sizes = BenchSizes(sampled_tokens=700)
    report = bench(filled, embedder=Letters(), queries=8, progress=steps.append, sizes=sizes)
    totals = {step.step: step.total for step in steps if step.step.startswith("embedding")}
    assert totals.keys() == {"embedding chunks of 200 tokens"}
    assert totals.popitem()[1] in (3, 4)
    assert (
        report.notes[-1]
        == "Chunk sizes are not compared: too few passages have words that no other has."
    )


def test_few_queries_are_noted(filled: Path) -> None:
    assert any("too few for figures to rely on" in note for note in quick(filled, queries=4).notes)
    with pytest.raises(InvalidInput, match="queries must be 4 or more"):
        quick(filled, queries=3)


@pytest.mark.parametrize(
    ("start", "end", "document", "expected"),
    [
        (100, 200, "d", True),
        (0, 150, "d", True),
        (0, 149, "d", False),
        (150, 400, "d", True),
        (120, 130, "d", True),
        (200, 300, "d", False),
        (100, 200, "e", False),
        (195, 215, "d", False),
        (100, 100, "d", False),
    ],
)
def test_a_passage_is_found_by_a_chunk_that_has_half_of_it_or_lies_half_in_it(
    start: int, end: int, document: str, expected: bool
) -> None:
    assert ITEM.found_in(found(start, end, document).item) is expected


def test_a_share_counts_characters_once_and_only_within_the_budget() -> None:
    def shared(*hits: Hit[Chunk]) -> float:
        return share(ITEM, Results(hits=hits, legs=()))

    assert shared(found(0, 150), found(140, 160)) == 0.6
    assert shared(found(0, 150, "e"), found(0, 50)) == 0
    assert shared(found(0, BUDGET - 25, "e"), found(100, 200)) == 0.25
    assert shared(found(0, BUDGET, "e"), found(100, 200)) == 0


def test_figures_are_means_and_percentiles() -> None:
    ranks = [ItemRank(ITEM, rank, float(time)) for time, rank in enumerate((1, 1, 2, None), 1)]
    all_of_them = figures("text", "all", ranks)
    assert (all_of_them.recall_1, all_of_them.recall_10, all_of_them.mrr_10) == (0.5, 0.75, 0.625)
    assert (all_of_them.p50, all_of_them.p95) == (2, 4)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 1))
def test_a_percentile_is_a_value_with_as_many_below_it(values: list[float], share: float) -> None:
    ordered = sorted(values)
    found = percentile(ordered, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values)


@given(st.integers(1, 60), st.integers(1, 80))
def test_spaced_items_are_different_ones_in_order(count: int, wanted: int) -> None:
    items = [
        KnownItem(kind="title", query=str(number), document="", start=0, end=1)
        for number in range(count)
    ]
    some = spaced(items, wanted)
    numbers = [int(item.query) for item in some]
    assert len(some) == min(count, wanted)
    assert numbers == sorted(set(numbers))
