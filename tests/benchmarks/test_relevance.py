from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import relevance
from benchmarks.__main__ import main
from benchmarks.relevance import Result, calibration_error, chances, fit, report, shares
from mcpvectordb import Scores
from mcpvectordb.search.relevance import Weights

TRUTH = Weights(base=-6.0, cosine=5.0, coverage=4.0)


def invented(data: str, of: str, count: int, low: float, high: float, seed: int) -> list[Result]:
    """Results whose relevance is drawn with the chance that TRUTH gives to their evidence;
    foreign queries' are all irrelevant.
    """
    draw = np.random.default_rng(seed)
    results = []
    for number in range(count):
        scores = Scores(vector=draw.uniform(low, high), text=draw.uniform(0, 20), reach=10.0)
        relevant = of == data and draw.random() < TRUTH.chance(scores)
        results.append(Result(data, of, str(number // 10), scores, relevant))
    return results


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return [
        *invented("a", "a", 6000, 0.2, 1, 1),
        *invented("b", "b", 6000, 0, 0.8, 2),
        *invented("a", "b", 500, -0.9, -0.5, 3),
        *invented("b", "a", 500, -0.9, -0.5, 4),
    ]


def test_the_weights_that_made_the_judgments_are_found_again(results: list[Result]) -> None:
    found = fit(results, ("cosine", "coverage"))
    assert found.base == pytest.approx(TRUTH.base, abs=0.7)
    assert found.cosine == pytest.approx(TRUTH.cosine, abs=0.7)
    assert found.coverage == pytest.approx(TRUTH.coverage, abs=0.7)


def test_every_collection_and_its_foreign_queries_count_the_same(results: list[Result]) -> None:
    counted = shares(results)
    for data in "ab":
        for of in "ab":
            of_these = [
                share
                for share, each in zip(counted, results, strict=True)
                if (each.data, each.of) == (data, of)
            ]
            assert sum(of_these) == pytest.approx(1)


def test_the_truth_is_well_calibrated_and_a_boast_is_not(results: list[Result]) -> None:
    own = [each for each in results if not each.foreign]
    relevant = np.array([each.relevant for each in own], float)
    assert calibration_error(chances(own, TRUTH), relevant) < 0.02
    assert calibration_error(np.ones(len(own)), relevant) == pytest.approx(1 - relevant.mean())


def test_the_table_shows_what_was_told_of_unseen_collections(results: list[Result]) -> None:
    title, _, head, rule, *lines = report("a model", "hybrid", results).splitlines()
    assert title == "### hybrid, a model"
    assert head == "| relevance | a, own | a, foreign | b, own | b, foreign |" and head.count(
        "|"
    ) == rule.count("|")
    buckets = lines[: len(relevance.EDGES) - 1]
    counts = [cell for line in buckets for cell in line.split("|")[2:-1]]
    own = sum(int(cell.split("(")[1].rstrip(") ")) for cell in counts if "(" in cell)
    assert (own, sum(int(cell) for cell in counts if cell.strip() and "(" not in cell)) == (
        12_000,
        1_000,
    )
    verdicts, error = lines[len(buckets) : len(buckets) + 2]
    # For all queries about things that are not in the collection.
    assert verdicts.split("|")[3].strip() == verdicts.split("|")[5].strip() == "1.000"
    assert all(float(cell) < 0.05 for cell in error.split("|")[2:-1])
    assert "fitted on all: Weights(base=-" in lines[-1]


def write(folder: Path, texts: dict[str, str], queries: dict[str, str]) -> Path:
    """A collection in which query i is answered by document i."""
    (folder / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", texts), ("queries", queries)):
        lines = [json.dumps({"_id": id, "text": text}) + "\n" for id, text in rows.items()]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    (folder / "qrels/test.tsv").write_text(
        "query-id\tcorpus-id\tscore\n" + "".join(f"{id}\t{id}\t1\n" for id in queries)
    )
    return folder


def test_the_command_asks_each_collection_its_own_questions_and_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tea = write(
        tmp_path / "tea",
        {
            "1": "Green tea wants water at eighty degrees.",
            "2": "Black tea wants boiling water.",
            "3": "A samovar keeps hot.",
        },
        {"1": "green tea degrees", "2": "boiling water or green"},
    )
    car = write(
        tmp_path / "car",
        {
            "1": "Motor oil is changed every year.",
            "2": "Summer tyres are soft in water.",
            "3": "A battery dies in frost.",
        },
        {"1": "motor oil for tea", "3": "Что с аккумулятором?"},
    )
    main(
        [
            "relevance",
            "--data",
            str(tea),
            "--data",
            str(car),
            "--model",
            "all-MiniLM-L6-v2",
            "--mode",
            "text",
            "--cache",
            str(tmp_path / "cache"),
        ]
    )
    printed = capsys.readouterr().out
    assert (
        "### text, all-MiniLM-L6-v2" in printed
        and "| relevance | tea, own | tea, foreign | car, own |" in printed
    )
    assert "coverage=" in printed.splitlines()[-2]


def test_one_collection_is_not_enough(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        relevance.main(["--data", str(tmp_path)])
