"""Values of foreign sources, in the form in which they are stored here."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import metadata as stored_metadata
from mcpvectordb.importers import values


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (0, "1970-01-01T00:00:00.000000+00:00"),
        (1_700_000_000, "2023-11-14T22:13:20.000000+00:00"),
        (1_700_000_000.25, "2023-11-14T22:13:20.250000+00:00"),
        (1_700_000_000_250, "2023-11-14T22:13:20.250000+00:00"),
        (1_700_000_000_250_000, "2023-11-14T22:13:20.250000+00:00"),
        ("1700000000", "2023-11-14T22:13:20.000000+00:00"),
        ("2023-11-14 22:13:20", "2023-11-14T22:13:20.000000+00:00"),
        ("2023-11-14 22:13:20.801210+00:00", "2023-11-14T22:13:20.801210+00:00"),
        ("2023-11-14T23:13:20+01:00", "2023-11-14T22:13:20.000000+00:00"),
        ("20231114T221320", "2023-11-14T22:13:20.000000+00:00"),
        ("", ""),
        ("yesterday", ""),
        (None, ""),
        (True, ""),
        (math.nan, ""),
        (math.inf, ""),
        (1e300, ""),
        ("9" * 50, ""),
        (b"2023", ""),
    ],
)
def test_times(given: object, expected: str) -> None:
    assert values.time(given) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, {}),
        ("", {}),
        ("null", {}),
        ('{"a": 1}', {"a": 1}),
        (b'{"a": 1}', {"a": 1}),
        ("[1, 2]", {"value": [1, 2]}),
        ("no JSON", {"value": "no JSON"}),
        ({"a": math.nan, "b": b"\x00\xff", "c": 2**70}, {"a": "nan", "b": "00ff", "c": str(2**70)}),
        ({1: (2, 3), "s": "\ud800"}, {"1": [2, 3], "s": "?"}),
    ],
)
def test_metadata(given: object, expected: dict[str, object]) -> None:
    assert values.metadata(given) == expected


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
)


@given(ANYTHING)
def test_whatever_a_source_says_can_be_stored(value: object) -> None:
    stored_metadata.encode(values.metadata(value))


@pytest.mark.parametrize("depth", [33, 900, 100_000])
def test_deep_nesting_is_cut(depth: int) -> None:
    stored_metadata.encode(values.metadata("[" * depth + "]" * depth))
