from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import chunking
from benchmarks.__main__ import main

MODEL = "all-MiniLM-L6-v2"
ranges = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 10)).map(lambda pair: (pair[0], sum(pair))),
    max_size=6,
)


def characters(some: list[chunking.Range]) -> set[int]:
    return {i for start, end in some for i in range(start, end)}


@given(one=ranges, other=ranges)
def test_ranges_are_sets_of_characters(
    one: list[chunking.Range], other: list[chunking.Range]
) -> None:
    assert chunking.length(one) == len(characters(one))
    assert chunking.common(one, other) == len(characters(one) & characters(other))


@given(count=st.integers(1, 50), wanted=st.integers(1, 60))
def test_a_sample_is_spread_over_all_questions(count: int, wanted: int) -> None:
    questions = [chunking.Question(str(i), "", []) for i in range(count)]
    chosen = [int(each.text) for each in chunking.spaced(questions, wanted)]
    assert len(set(chosen)) == len(chosen) == min(count, wanted)
    assert chosen[0] == 0
    assert all(
        b - a <= -(-count // len(chosen)) for a, b in zip(chosen, [*chosen[1:], count], strict=True)
    )


def test_chunks_are_graded_by_the_characters_that_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "# Bees\n\nA colony swarms in May.\n\n# Bread\n\nThe dough rests for a night.\n"
    answer = "The dough rests for a night."
    (tmp_path / "corpora").mkdir()
    (tmp_path / "corpora/farm.md").write_text(text)
    start = text.index(answer)
    with (tmp_path / "questions_df.csv").open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["question", "references", "corpus_id"])
        writer.writerow(
            [
                "how long does dough rest",
                json.dumps(
                    [{"content": answer, "start_index": start, "end_index": start + len(answer)}]
                ),
                "farm",
            ]
        )
    main(
        [
            "chunking",
            "--data",
            str(tmp_path),
            "--sizes",
            "16",
            "--model",
            MODEL,
            "--mode",
            "text",
            "--json",
        ]
    )
    (printed,) = json.loads(capsys.readouterr().out)
    assert (printed["chunks"], printed["recall"], printed["budget_recall"]) == (2, 1.0, 1.0)
    found = len("# Bread\n\n" + answer)  # only this chunk shares a word with the question
    assert printed["precision"] == pytest.approx(len(answer) / found, abs=1e-4)
    assert printed["iou"] == pytest.approx(len(answer) / found, abs=1e-4)
