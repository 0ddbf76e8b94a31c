from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import Damaged, InvalidInput, metadata

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(value=st.dictionaries(texts, values, max_size=5))
def test_metadata_survives_encoding_and_decoding(value: dict[str, Any]) -> None:
    assert metadata.decode(metadata.encode(value)) == value


def test_no_metadata_is_an_empty_object() -> None:
    assert metadata.decode(metadata.encode(None)) == {}


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"k": value}
    return value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (["a"], "metadata must be an object"),
        ("text", "metadata must be an object"),
        ({1: "a"}, "keys must be text"),
        ({"a": {"b": 2**63}}, r"metadata\.a\.b is too large"),
        ({"a": [1, math.nan]}, r"metadata\.a\[1\] is nan"),
        ({"a": math.inf}, "is inf"),
        ({"a": object()}, "JSON cannot hold"),
        ({"a": "\ud800"}, "surrogate"),
        ({"\ud800": 1}, "surrogate"),
        (nested(40), "nested more than 32 deep"),
        ({"a": "x" * 1_000_001}, "at most 1,000,000"),
    ],
)
def test_an_unstorable_value_is_refused_with_its_path(value: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        metadata.encode(value)


@pytest.mark.parametrize("value", [None, 3, b"x", "\udfff", "", "  \n"])
def test_a_non_string_a_lone_surrogate_or_a_blank_text_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match="title"):
        metadata.storable(value, "title", blank=False)


@pytest.mark.parametrize("text", ["7", "[]", '"a"', "null"])
def test_stored_metadata_that_is_not_an_object_is_damaged(text: str) -> None:
    with pytest.raises(Damaged, match="metadata is not the object"):
        metadata.decode(text)


def test_a_stored_list_of_texts_comes_back() -> None:
    assert metadata.decode_list('["a", "日本"]') == ("a", "日本")
    for text in ("7", "{}", "[1]", '["a", null]'):
        with pytest.raises(Damaged, match="list of texts"):
            metadata.decode_list(text)


# patches

keys = st.sampled_from("abcd")
scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.text("xyz", max_size=2)
small = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=12,
)
objects = st.dictionaries(keys, small, max_size=4)


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        # the examples of RFC 7396, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_the_examples_of_the_rfc(target: Any, patch: Any, result: Any) -> None:
    assert metadata.merge(target, patch) == result


@given(target=small, patch=small)
def test_merge_modifies_neither_argument(target: Any, patch: Any) -> None:
    before = copy.deepcopy((target, patch))
    metadata.merge(target, patch)
    assert (target, patch) == before


@given(target=small, patch=small)
def test_merge_is_idempotent(target: Any, patch: Any) -> None:
    once = metadata.merge(target, patch)
    assert metadata.merge(once, patch) == once


@given(target=objects)
def test_an_empty_patch_changes_nothing(target: dict[str, Any]) -> None:
    assert metadata.merge(target, {}) == target


def difference(old: Any, new: Any) -> Any:
    """The patch that leads from one object to another that has no nulls in it."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return {
        **dict.fromkeys(old.keys() - new.keys()),
        **{
            key: difference(old.get(key), value)
            for key, value in new.items()
            if key not in old or old[key] != value
        },
    }


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    return value


@given(old=objects, new=objects.map(without_nulls))
def test_a_patch_leads_from_any_object_to_any_other_without_nulls(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    assert metadata.merge(old, difference(old, new)) == new
