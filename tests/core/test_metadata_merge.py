from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.metadata import merge

keys = st.sampled_from("abcd")
scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.text("xyz", max_size=2)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=12,
)
objects = st.dictionaries(keys, values, max_size=4)


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
    assert merge(target, patch) == result


@given(target=values, patch=values)
def test_merge_modifies_neither_argument(target: Any, patch: Any) -> None:
    before = copy.deepcopy((target, patch))
    merge(target, patch)
    assert (target, patch) == before


@given(target=values, patch=values)
def test_merge_is_idempotent(target: Any, patch: Any) -> None:
    once = merge(target, patch)
    assert merge(once, patch) == once


@given(target=objects)
def test_an_empty_patch_changes_nothing(target: dict[str, Any]) -> None:
    assert merge(target, {}) == target


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
    assert merge(old, difference(old, new)) == new
