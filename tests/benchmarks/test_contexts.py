from __future__ import annotations

import json

import pytest

from benchmarks import contexts
from benchmarks.__main__ import main


def test_entries_and_documents_are_timed_on_the_same_texts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["contexts", "--sizes", "40", "80", "--rounds", "3", "--json"])
    small, large = json.loads(capsys.readouterr().out)
    assert (small["entries"], large["entries"]) == (40, 80) and large["chunks"] == 2 * small[
        "chunks"
    ] >= 80
    assert min(small["browse_indexed"], small["search_contexts"], small["search_documents"]) > 0
    assert small["ratio"] == pytest.approx(
        small["search_contexts"] / small["search_documents"], abs=0.02
    )


def test_the_same_texts_come_every_time() -> None:
    assert list(contexts.texts(3)) == list(contexts.texts(3)) != list(contexts.texts(3, seed=2))


def test_the_verdicts_are_in_words() -> None:
    small = contexts.Outcome(
        entries=1_000,
        chunks=1_000,
        browse_indexed=0.2,
        browse_unindexed=1.0,
        search_contexts=2.0,
        search_documents=4.0,
        ratio=0.5,
    )
    large = contexts.Outcome(
        entries=100_000,
        chunks=100_000,
        browse_indexed=0.4,
        browse_unindexed=90.0,
        search_contexts=60.0,
        search_documents=50.0,
        ratio=1.2,
    )
    first, second, third = contexts.summary([small, large]).split("\n")
    assert first.endswith("0.5 times, within the target of 1") and second.endswith(
        "1.2 times, ABOVE the target of 1"
    )
    assert third.endswith(
        "2.00 times as long in the largest file as in the smallest, ABOVE the target of 1.5"
    )
