"""A frozen little collection through the benchmark and the real model: it fails when ranking
breaks.

Six of its queries are codes and versions that only words can tell apart, eight say what is meant in
words that the passage does not have. Measured nDCG@10: hybrid 1.00, vector 0.80, text 0.52. So
hybrid falls below the bar when it loses the judgment of either leg, and a leg that breaks alone
falls below its own.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import quality
from benchmarks.__main__ import main
from benchmarks.collection import load
from benchmarks.store import filled
from mcpvectordb import Config, InvalidInput
from mcpvectordb.embedding import weights
from mcpvectordb.embedding.catalogue import CATALOGUE
from mcpvectordb.embedding.reranker import DEFAULT
from mcpvectordb.search.rerank import CachedReranker

LITTLE, CODES = Path(__file__).with_name("little"), Path(__file__).with_name("codes")
MODEL = "all-MiniLM-L6-v2"
BAR = 0.93

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def outcomes(cache: Path) -> dict[str, quality.Outcome]:
    return {
        each.mode: each for each in quality.measure([LITTLE], [MODEL], list(quality.QUICK), cache)
    }


def test_both_legs_together_put_the_right_passage_first(
    outcomes: dict[str, quality.Outcome],
) -> None:
    assert outcomes["hybrid"].ndcg_10 > BAR
    assert outcomes["hybrid"].recall_10 == 1


def test_one_leg_alone_stays_below_the_bar(outcomes: dict[str, quality.Outcome]) -> None:
    assert 0.5 < outcomes["text"].ndcg_10 < BAR
    assert 0.72 < outcomes["vector"].ndcg_10 < BAR


def test_versions_codes_and_headings_inside_of_questions_are_found(cache: Path) -> None:
    """38 passages that share most of their words; 0.85 when a code counts as any other word."""
    (outcome,) = quality.measure([CODES], [MODEL], ["hybrid"], cache)
    assert outcome.ndcg_10 > 0.95 and outcome.queries == 33


def test_an_outcome_says_what_it_was_measured_on(outcomes: dict[str, quality.Outcome]) -> None:
    hybrid = outcomes["hybrid"]
    assert (hybrid.data, hybrid.model, hybrid.queries, hybrid.chunks) == ("little", MODEL, 17, 30)
    assert 0 < hybrid.p50 <= hybrid.p95
    assert hybrid.chunks_per_second > 0
    assert hybrid.bytes > 30 * 384 * 4


def test_half_the_precision_ranks_as_well(
    cache: Path, outcomes: dict[str, quality.Outcome]
) -> None:
    halves = list(quality.measure([LITTLE], [MODEL], ["vector", "hybrid"], cache, None, "float16"))
    assert [each.ndcg_10 for each in halves] == pytest.approx(
        [outcomes[each.mode].ndcg_10 for each in halves], abs=0.01
    )
    assert f"| {MODEL}, float16 |" in quality.table(halves)


def test_a_file_is_made_once_for_the_same_data_and_model(
    cache: Path, outcomes: dict[str, quality.Outcome]
) -> None:
    collection = load(LITTLE)
    # With an empty corpus, only a file that is already there has chunks.
    again = filled(cache, collection.digest, [], Config(model=MODEL))
    assert again.chunks == outcomes["text"].chunks
    other = filled(cache, "other data", [], Config(model=MODEL))
    assert other.path != again.path
    assert other.chunks == 0


def test_the_command_prints_json_for_the_modes_and_queries_that_were_asked(
    cache: Path, outcomes: dict[str, quality.Outcome], capsys: pytest.CaptureFixture[str]
) -> None:
    main(
        [
            "quality",
            "--data",
            str(LITTLE),
            "--model",
            MODEL,
            "--mode",
            "text",
            "--queries",
            "3",
            "--cache",
            str(cache),
            "--json",
        ]
    )
    (printed,) = json.loads(capsys.readouterr().out)
    assert (printed["mode"], printed["queries"]) == ("text", 3)


@pytest.mark.skipif(
    not weights.installed(CATALOGUE[DEFAULT], Path("nowhere")),
    reason="the extra quality is not installed",
)
def test_a_second_look_keeps_what_is_right_and_takes_its_time(
    cache: Path, outcomes: dict[str, quality.Outcome]
) -> None:
    for _ in range(2):  # what the first run found out must not make the second one quick
        (rerank,) = quality.measure([LITTLE], [MODEL], ["rerank"], cache, 4)
        assert rerank.recall_10 == 1
        assert rerank.p50 > 3 * outcomes["hybrid"].p50


def test_the_whole_pipeline_of_documents_is_measured_too(
    cache: Path, outcomes: dict[str, quality.Outcome]
) -> None:
    (query,) = quality.measure([LITTLE], [MODEL], ["query"], cache, 4)
    assert (query.queries, query.recall_10) == (4, 1)


def test_reranking_that_cannot_be_done_is_an_error_and_no_figure(
    monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    monkeypatch.setattr(CachedReranker, "scores", lambda *_: "the model is not here")
    with pytest.raises(InvalidInput, match="nothing can be reranked: the model is not here"):
        list(quality.measure([LITTLE], [MODEL], ["rerank"], cache, 4))


def test_a_sample_of_queries_is_always_the_same_and_keeps_their_order() -> None:
    queries = {str(number): f"query {number}" for number in range(50)}
    some = quality.sample(queries, 10)
    assert list(some) == [id for id in queries if id in some] and len(some) == 10
    assert some == quality.sample(dict(reversed(queries.items())), 10)
    assert quality.sample(queries, 50) == quality.sample(queries, None) == queries


def test_the_table_has_a_line_per_outcome(outcomes: dict[str, quality.Outcome]) -> None:
    head, rule, *lines = quality.table(list(outcomes.values())).splitlines()
    assert head.count("|") == rule.count("|")
    assert [line.count("|") for line in lines] == [head.count("|")] * 3


def test_a_folder_in_another_layout_is_an_error_that_names_the_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"corpus\.jsonl"):
        load(tmp_path)
    for name in ("corpus.jsonl", "queries.jsonl"):
        (tmp_path / name).write_text('{"_id": "1", "text": "a"}\n')
    with pytest.raises(InvalidInput, match="qrels"):
        load(tmp_path)
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n1\t1\t0\n")
    with pytest.raises(InvalidInput, match="no query with a relevant document"):
        load(tmp_path)


def test_an_unknown_benchmark_names_those_there_are() -> None:
    with pytest.raises(SystemExit, match=r"(?s)quality .*\n  chunking "):
        main(["speed"])


def test_the_surface_desk_finds_what_the_library_finds(
    cache: Path, outcomes: dict[str, quality.Outcome]
) -> None:
    (outcome,) = quality.measure([LITTLE], [MODEL], ["desk"], cache)
    alike = ("ndcg_10", "recall_10", "recall_100", "mrr_10", "documents_10", "false_verdicts")
    for name in alike:
        assert getattr(outcome, name) == getattr(outcomes["hybrid"], name), name
