from __future__ import annotations

import json
from array import array

import pytest

pytest.importorskip("psycopg", reason="psycopg is not installed: pip install '.[test]'")

from mcpvectordb.postgres.session import FetchedRows, bound_vector, numbered


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SELECT ? WHERE a = ?", b"SELECT $1 WHERE a = $2"),
        ("a = ?1 OR b = ?1 LIMIT ?2", b"a = $1 OR b = $1 LIMIT $2"),
        ("SELECT '?', \"?\", ?", b"SELECT '?', \"?\", $1"),
        ("SELECT 'it''s ?' || ?", b"SELECT 'it''s ?' || $1"),
    ],
)
def test_bindings_are_numbered_outside_of_quotes(statement: str, expected: bytes) -> None:
    assert numbered(statement) == expected


def test_rows_are_fetched_as_from_sqlite() -> None:
    rows = FetchedRows([(1, 2), (3, 4)])
    assert rows.fetchone() == (1, 2) and rows.fetchall() == [(3, 4)] and rows.fetchone() is None
    assert FetchedRows([(7,)]).get == 7 and FetchedRows([(1, 2)]).get == (1, 2)
    assert FetchedRows([]).get is None


def test_an_embedding_is_sent_with_all_of_its_digits() -> None:
    numbers = array("f", [0.1, -2.5, 1e-30])
    assert array("f", json.loads(bound_vector(numbers.tobytes()))) == numbers
