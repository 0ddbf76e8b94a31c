from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import Damaged
from mcpvectordb.history import versions
from mcpvectordb.history.versions import LOCAL, Item, Version, pack, unpack

ITEM = Item("documents", "one", "a.md")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON)
def test_a_packed_value_is_unpacked_as_it_was(value: object) -> None:
    assert unpack(pack(value)) == value


@pytest.mark.parametrize("body", [b"", b"x", zlib.compress(b"{")[:-1], zlib.compress(b"{")])
def test_what_was_not_packed_is_damaged(body: bytes) -> None:
    with pytest.raises(Damaged, match="not what was written"):
        unpack(body)


def test_a_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "MOST_UNPACKED", 1000)
    assert unpack(pack("x" * 990)) == "x" * 990
    with pytest.raises(Damaged):
        unpack(pack("x" * 1000))


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b'["' + b"x" * 30_000_000 + b'",[]]', id="many times its size"),
        pytest.param(b'["",[' + b"[]," * 5_000_000 + b"[]]]", id="values of little text"),
        pytest.param(b"[" * 1_000_000, id="nested too deep"),
    ],
)
def test_a_small_body_does_not_become_a_large_value(raw: bytes) -> None:
    body = zlib.compress(raw)
    assert len(body) < 50_000
    with pytest.raises(Damaged, match="not what was written"):
        unpack(body)


def test_a_text_that_repeats_itself_is_packed_so_that_it_can_be_unpacked() -> None:
    text = "the same line\n" * 2_000_000
    assert unpack(pack([text, []])) == [text, []]


def test_versions_are_ordered_by_stamp_then_content_and_a_deletion_comes_first() -> None:
    fields = {"title": "A", LOCAL: {"id": "1"}}
    other = {"title": "B", LOCAL: {"id": "1"}}
    same = {"title": "A", LOCAL: {"id": "2"}}
    one = Version(ITEM, 1, fields)
    assert one.order == Version(ITEM, 1, same).order
    assert one.order != Version(ITEM, 1, other).order
    assert Version(ITEM, 1, None).order < one.order < Version(ITEM, 2, None).order
