"""Damaged and foreign files: no crash, no change by reading, an error that says what it is, and
what is left is saved.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from mcpvectordb import Database
from tests.support import Letters
from tests.torture import crafted_files, shadow_tables
from tests.torture.damage import die_while_writing, forked, in_children, made, spoil_and_look
from tests.torture.support_torture import MOST_FAILURES, Promise, State, start, state

pytestmark = pytest.mark.torture


def count(promise: Promise, base: Path, folder: Path, before: State) -> None:
    answers: Counter[str] = Counter()
    for number, look in in_children(spoil_and_look, (base, folder, before), promise.numbers):
        promise.rounds += 1
        answers[look.answer] += 1
        promise.failures += [f"round {number}: {wrong}" for wrong in look.wrong]
        if len(promise.failures) >= MOST_FAILURES:
            break
    promise.note = ", ".join(f"{number} {answer}" for answer, number in answers.most_common())
    promise.kept()


def test_a_damaged_file_neither_ends_the_process_nor_lies(
    promise: Callable[..., Promise], tmp_path: Path
) -> None:
    before = made(tmp_path / "base.db")
    count(promise("4 damaged files", full=9_000, short=30), tmp_path / "base.db", tmp_path, before)


def test_a_damaged_file_with_a_damaged_log_neither_ends_the_process_nor_lies(
    promise: Callable[..., Promise], tmp_path: Path
) -> None:
    made(tmp_path / "base.db")
    start(forked, die_while_writing, tmp_path / "base.db").join()
    shutil.copytree(tmp_path, tmp_path / "copy")
    with Database(tmp_path / "copy" / "base.db", embedder=Letters()) as db:
        before = state(db)
    count(promise("4 damaged logs", full=1_000, short=10), tmp_path / "base.db", tmp_path, before)


def test_neither_vec0_nor_fts5_ends_the_process_over_rows_that_nobody_wrote(
    promise: Callable[..., Promise],
) -> None:
    kept = promise("4 damaged indexes", full=1_000, short=10)
    for number, look in in_children(shadow_tables.craft_and_ask, (), kept.numbers):
        kept.rounds += 1
        kept.failures += [f"round {number}: {wrong}" for wrong in look.wrong]
    kept.note = f"{shadow_tables.TRIES} files in each"
    kept.kept()


def test_a_crafted_file_is_received_as_it_should_be(
    promise: Callable[..., Promise], tmp_path: Path
) -> None:
    made(tmp_path / "base.db")
    cases = list(crafted_files.CASES)
    kept = promise("4 crafted files", full=len(cases), short=len(cases))
    for number, look in in_children(crafted_files.received, (tmp_path,), range(len(cases))):
        kept.rounds += 1
        kept.failures += [f"{cases[number]}: {wrong}" for wrong in look.wrong]
    kept.kept()
