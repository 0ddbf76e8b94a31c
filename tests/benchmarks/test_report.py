from __future__ import annotations

import json

import pytest

from benchmarks import report


def test_a_table_has_numbers_to_the_right_and_dashes_for_nothing() -> None:
    assert report.table(
        [{"engine": "a", "ms": 1.234, "rows": 10_000}, {"engine": "b", "ms": None, "rows": 5}]
    ) == ("| engine | ms | rows |\n|---|--:|--:|\n| a | 1.23 | 10,000 |\n| b | – | 5 |")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12_345.6, "12,346"),
        (99.95, "100.0"),
        (12.34, "12.3"),
        (1.0, "1.00"),
        (0.1234, "0.123"),
        (-150.4, "-150"),
        (7, "7"),
        ("x", "x"),
    ],
)
def test_a_number_has_about_three_digits(value: float | str, text: str) -> None:
    assert report.written(value) == text


def test_a_verdict_is_loud_when_it_is_bad() -> None:
    assert report.verdict(2.0, 2.0) == "within the target of 2"
    assert report.verdict(2.1, 2.0) == "ABOVE the target of 2"


def test_what_is_shown_begins_with_the_machine(capsys: pytest.CaptureFixture[str]) -> None:
    report.show([{"n": 1}], ["A note."])
    machine, *_, note = capsys.readouterr().out.splitlines()
    assert "Python 3" in machine and "SQLite 3" in machine and note == "A note."
    report.show([{"n": 1}], ["A note."], as_json=True)
    assert json.loads(capsys.readouterr().out) == {
        "machine": report.machine(),
        "rows": [{"n": 1}],
        "notes": ["A note."],
    }
