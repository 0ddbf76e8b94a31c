from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.errors import ParseFailed
from mcpvectordb.importers import json_files

scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=30)
values = st.recursive(
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


@given(st.lists(values, max_size=6), st.booleans(), st.integers(1, 50), st.booleans())
def test_every_element_comes_back(
    elements: list[Any], ascii: bool, most: int, indented: bool
) -> None:
    raw = json.dumps(elements, ensure_ascii=ascii, indent=2 if indented else None).encode()
    assert list(json_files.elements(Slow(raw, most))) == elements


def test_a_single_object_is_one_element() -> None:
    assert list(json_files.elements(io.BytesIO(b'\xef\xbb\xbf {"a": 1}\n'))) == [{"a": 1}]
    assert list(json_files.elements(io.BytesIO(b"  "))) == []


def test_an_element_larger_than_a_block_is_read_in_few_steps() -> None:
    long = {"text": "x" * (5 * json_files.ELEMENT_BLOCK)}
    assert list(json_files.elements(io.BytesIO(json.dumps([long, 1]).encode()))) == [long, 1]


@pytest.mark.parametrize(
    ("raw", "before", "message"),
    [
        (b'[{"a": 1}, {"a": ', 1, "it is not JSON"),
        (b'[{"a": 1} {"a": 2}]', 1, "a comma or the end of the list is missing"),
        (b'[{"a": 1}', 1, "a comma or the end of the list is missing"),
        (b"[1, " + b"[" * 100_000, 1, "nested too deep"),
        (b'[1, "' + b"x" * 2000 + b'"]', 1, "longer than 1,000 characters"),
    ],
)
def test_what_comes_before_damage_is_read(raw: bytes, before: int, message: str) -> None:
    found = []
    with pytest.raises(ParseFailed, match=message):
        for each in json_files.elements(Slow(raw, 100), longest=1000):
            found.append(each)
    assert len(found) == before
