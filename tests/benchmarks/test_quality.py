"""A frozen little collection through the benchmark and the real model: it fails when ranking
breaks.

Six of its queries are codes and versions that only words can tell apart, eight say what is meant in
words that the passage does not have. Measured nDCG@10: hybrid 1.00, vector 0.80, text 0.52. So
hybrid falls below the bar when it loses the judgment of either leg, and a leg that breaks alone
falls below its own.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import quality

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


def test_half_the_precision_ranks_as_well(
    cache: Path, outcomes: dict[str, quality.Outcome]
) -> None:
    halves = list(quality.measure([LITTLE], [MODEL], ["vector", "hybrid"], cache, None, "float16"))
    assert [each.ndcg_10 for each in halves] == pytest.approx(
        [outcomes[each.mode].ndcg_10 for each in halves], abs=0.01
    )
    assert f"| {MODEL}, float16 |" in quality.table(halves)


def test_the_surface_desk_finds_what_the_library_finds(
    cache: Path, outcomes: dict[str, quality.Outcome]
) -> None:
    (outcome,) = quality.measure([LITTLE], [MODEL], ["desk"], cache)
    alike = ("ndcg_10", "recall_10", "recall_100", "mrr_10", "documents_10", "false_verdicts")
    for name in alike:
        assert getattr(outcome, name) == getattr(outcomes["hybrid"], name), name
