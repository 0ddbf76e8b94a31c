"""Values of foreign sources, in the form in which they are stored here, and JSON of any size."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import metadata as stored_metadata
from mcpvectordb.errors import ParseFailed, TooLarge
from mcpvectordb.metadata import MAX_DEPTH
from mcpvectordb.transfer import values


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


def test_what_is_nested_less_deep_is_kept() -> None:
    lists: list[Any] = []
    objects: dict[str, Any] = {}
    for _ in range(MAX_DEPTH - 2):
        lists, objects = [lists], {"a": objects}
    assert values.storable([lists, objects]) != [lists, objects]
    for kept in lists, objects:
        assert values.storable(kept) == kept


scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=30)
JSON = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


class Slow(io.BytesIO):
    """Gives some bytes at a time, whatever is asked for."""

    def __init__(self, raw: bytes, most: int) -> None:
        super().__init__(raw)
        self.most = most

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(self.most)


@given(st.lists(JSON, max_size=6), st.booleans(), st.integers(1, 50), st.booleans())
def test_every_element_comes_back(
    elements: list[Any], ascii: bool, most: int, indented: bool
) -> None:
    raw = json.dumps(elements, ensure_ascii=ascii, indent=2 if indented else None).encode()
    assert list(values.elements(Slow(raw, most))) == elements


def test_a_single_object_is_one_element() -> None:
    assert list(values.elements(io.BytesIO(b'\xef\xbb\xbf {"a": 1}\n'))) == [{"a": 1}]
    assert list(values.elements(io.BytesIO(b"  "))) == []


def test_an_element_larger_than_a_block_is_read_in_few_steps() -> None:
    long = {"text": "x" * (5 * values.ELEMENT_BLOCK)}
    assert list(values.elements(io.BytesIO(json.dumps([long, 1]).encode()))) == [long, 1]


@pytest.mark.parametrize(
    ("raw", "before", "message"),
    [
        (b'[{"a": 1}, {"a": ', 1, "it is not JSON"),
        (b'[{"a": 1} {"a": 2}]', 1, "a comma or the end of the list is missing"),
        (b'[{"a": 1}', 1, "a comma or the end of the list is missing"),
        (b"[1, " + b"[" * 100_000, 1, "nested too deep|longer than 1,000"),  # 3.13 nests deeper
        (b'[1, "' + b"x" * 2000 + b'"]', 1, "longer than 1,000 characters"),
    ],
)
def test_what_comes_before_damage_is_read(raw: bytes, before: int, message: str) -> None:
    found = []
    with pytest.raises(ParseFailed, match=message):
        for each in values.elements(Slow(raw, 100), longest=1000):
            found.append(each)
    assert len(found) == before


def test_a_packed_file_may_unpack_to_a_hundred_times_its_size(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(bytes(1_000))
    values.check_unpacked(path, 10_100_000)
    with pytest.raises(TooLarge, match=r"a\.gz unpacks to more than 100 times its size or 32 GB"):
        values.check_unpacked(path, 10_100_001)
