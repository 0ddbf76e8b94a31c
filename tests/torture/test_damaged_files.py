"""Damaged and foreign files do not crash the process and are not changed by reading.

The error names the cause, and what is left can be salvaged.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.guarantees import MOST_FAILURES, Guarantee
from tests.torture import crafted_files, shadow_tables
from tests.torture.damage import damage_and_inspect, exit_while_writing, forked, in_children, made
from tests.torture.support_torture import State, opened, start, state

pytestmark = pytest.mark.torture


def count(guarantee: Guarantee, base: Path, folder: Path, before: State) -> None:
    answers: Counter[str] = Counter()
    for number, inspection in in_children(
        damage_and_inspect, (base, folder, before), guarantee.numbers
    ):
        guarantee.rounds += 1
        answers[inspection.answer] += 1
        guarantee.failures += [f"round {number}: {wrong}" for wrong in inspection.wrong]
        if len(guarantee.failures) >= MOST_FAILURES:
            break
    guarantee.note = ", ".join(f"{number} {answer}" for answer, number in answers.most_common())
    guarantee.check_failures()


def test_a_damaged_file_causes_no_crash_and_no_wrong_text(
    guarantee: Callable[..., Guarantee], tmp_path: Path
) -> None:
    before = made(tmp_path / "base.db")
    count(
        guarantee("4 damaged files", full=9_000, short=30), tmp_path / "base.db", tmp_path, before
    )


def test_a_damaged_file_with_a_damaged_log_causes_no_crash_and_no_wrong_text(
    guarantee: Callable[..., Guarantee], tmp_path: Path
) -> None:
    made(tmp_path / "base.db")
    start(forked, exit_while_writing, tmp_path / "base.db").join()
    shutil.copytree(tmp_path, tmp_path / "copy")
    with opened(tmp_path / "copy" / "base.db") as db:
        before = state(db)
    count(guarantee("4 damaged logs", full=1_000, short=10), tmp_path / "base.db", tmp_path, before)


def test_invalid_rows_in_shadow_tables_crash_neither_vec0_nor_fts5(
    guarantee: Callable[..., Guarantee],
) -> None:
    tested = guarantee("4 damaged indexes", full=1_000, short=10)
    for number, inspection in in_children(shadow_tables.craft_and_ask, (), tested.numbers):
        tested.rounds += 1
        tested.failures += [f"round {number}: {wrong}" for wrong in inspection.wrong]
    tested.note = f"{shadow_tables.TRIES} files in each"
    tested.check_failures()


def test_a_crafted_file_is_treated_as_its_case_requires(
    guarantee: Callable[..., Guarantee], tmp_path: Path
) -> None:
    made(tmp_path / "base.db")
    cases = list(crafted_files.CASES)
    tested = guarantee("4 crafted files", full=len(cases), short=len(cases))
    for number, inspection in in_children(
        crafted_files.inspect_case, (tmp_path,), range(len(cases))
    ):
        tested.rounds += 1
        tested.failures += [f"{cases[number]}: {wrong}" for wrong in inspection.wrong]
    tested.check_failures()
