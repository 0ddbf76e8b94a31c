"""Columns in memory choose the same rows as the SQL that filters are compiled to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from mcpvectordb.index import columns
from mcpvectordb.index.columns import NOWHERE, Columns, ColumnSource
from mcpvectordb.index.tuning import DEFAULT, Tuning
from mcpvectordb.records import Condition
from tests.core.test_filters import COLUMNS, INSERT, Shelf, questions, written
from tests.support import scaled

SOURCE = ColumnSource(
    rows="items",
    of_group="items.key % {group} = 0",
    id="items.key",
    fields=COLUMNS,
    metadata="items.metadata",
)


@pytest.fixture(scope="module")
def shelf() -> Iterator[Shelf]:
    shelf = Shelf()
    yield shelf
    shelf.connection.close()


def numbered(shelf: Shelf, rows: list[tuple[Any, Any, Any]]) -> np.ndarray:
    """Add rows; their ids."""
    shelf.connection.executemany(
        INSERT, [(title, size, written(metadata)) for title, size, metadata in rows]
    )
    last = shelf.connection.last_insert_rowid()
    return np.arange(last - len(rows) + 1, last + 1)


def kept(shelf: Shelf, values: list[Any], tuning: Tuning = DEFAULT) -> tuple[Columns, np.ndarray]:
    shelf.connection.execute("DELETE FROM items")
    return Columns(SOURCE, 1, tuning), numbered(shelf, [("", 0, {"k": value}) for value in values])


@settings(max_examples=scaled(300))
@given(questions())
def test_every_condition_selects_the_same_rows_as_in_the_file(
    shelf: Shelf, question: tuple[list[tuple[Any, Any, Any]], list[Condition]]
) -> None:
    rows, conditions = question
    shelf.fill(rows)
    chosen = Columns(SOURCE, 1).fulfilling(
        shelf.connection, conditions, np.arange(1, len(rows) + 1)
    )
    assert chosen is not None and np.flatnonzero(chosen).tolist() == shelf.select(conditions)


@settings(max_examples=scaled(50))
@given(questions(), questions())
def test_rows_that_are_added_later_are_selected_in_the_same_way(
    shelf: Shelf,
    first: tuple[list[tuple[Any, Any, Any]], list[Condition]],
    second: tuple[list[tuple[Any, Any, Any]], list[Condition]],
) -> None:
    shelf.connection.execute("DELETE FROM items")
    ids = numbered(shelf, first[0])
    asked = Columns(SOURCE, 1)
    asked.fulfilling(shelf.connection, first[1], ids)
    new = numbered(shelf, second[0])
    asked.append(shelf.connection, new)
    both = np.concatenate([ids, new])
    for conditions in (first[1], second[1]):
        chosen = asked.fulfilling(shelf.connection, conditions, both)
        assert chosen is not None and (both[chosen] - 1).tolist() == shelf.select(conditions)


def test_a_new_column_reads_only_the_rows_of_its_group(shelf: Shelf) -> None:
    shelf.fill([("", 0, {"k": number}) for number in range(10)])
    columns = Columns(SOURCE, 3)
    chosen = columns.fulfilling(
        shelf.connection, [Condition("metadata.k", "gte", 0)], np.array([3, 6, 9])
    )
    assert (
        chosen is not None and chosen.all() and len(columns._columns["metadata", "k"]._known) == 3
    )  # type: ignore[union-attr]


@pytest.mark.parametrize("tuning", [Tuning(column_values=2), Tuning(column_characters=9)])
def test_a_column_with_too_many_values_is_left_to_the_file_for_good(
    shelf: Shelf, tuning: Tuning
) -> None:
    few, ids = kept(shelf, ["a", "b", "a"], tuning)
    wanted = [Condition("metadata.k", "eq", "a")]
    chosen = few.fulfilling(shelf.connection, wanted, ids)
    assert chosen is not None and chosen.tolist() == [True, False, True]
    new = numbered(shelf, [("", 0, {"k": "cdefgh"})])
    few.append(shelf.connection, new)
    assert few.fulfilling(shelf.connection, wanted, np.concatenate([ids, new])) is None
    assert few.size == 0


@pytest.mark.parametrize(
    "source", [NOWHERE, ColumnSource(rows="items", of_group="1", id="items.key", fields={})]
)
def test_fields_outside_of_the_source_are_left_to_the_file(
    shelf: Shelf, source: ColumnSource
) -> None:
    shelf.fill([("t", 1, {"k": 1})])
    for field in ("title", "metadata.k"):
        assert (
            Columns(source, 1).fulfilling(
                shelf.connection, [Condition(field, "exists")], np.array([1])
            )
            is None
        )


def test_the_number_of_columns_is_bounded(shelf: Shelf) -> None:
    many, ids = kept(shelf, [1, 2])
    for number in range(columns.MOST_COLUMNS + 5):
        many.fulfilling(shelf.connection, [Condition(("metadata", str(number)), "not_exists")], ids)
    assert len(many._columns) == columns.MOST_COLUMNS


def test_a_group_without_rows_has_an_empty_mask(shelf: Shelf) -> None:
    none, _ = kept(shelf, [])
    chosen = none.fulfilling(
        shelf.connection, [Condition("metadata.k", "eq", 1)], np.empty(0, np.int64)
    )
    assert chosen is not None and chosen.tolist() == []
