"""JSON from outside: what is counted, and what is refused before it is made."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import TooLarge
from mcpvectordb.text import json_text

values = st.recursive(
    st.none() | st.integers() | st.text(alphabet='",[{\\a\u00e9\U0001f600', max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('"\\,a'), inner),
    max_leaves=20,
)


def structure(value: Any) -> int:
    """Brackets and commas of a value's JSON text, counted without its text."""
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return 0
    return 1 + max(0, len(value) - 1) + sum(map(structure, value))


@given(values)
def test_what_is_in_strings_does_not_count(value: Any) -> None:
    count = structure(value)
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        assert not json_text.has_more_values(text, count)
        assert count == 0 or json_text.has_more_values(text, count - 1)
        assert json_text.loads(text, count) == json_text.loads(text.encode(), count) == value


@pytest.mark.parametrize(
    "text", ["[[],[],[],[]]", '[1,2,3,4,5,"a"]', '{"a":1,"b":[2,3],"c":{}}', '[1,2,3,4,5,"open']
)
def test_too_many_values_are_refused(text: str) -> None:
    with pytest.raises(TooLarge, match="it has more than 3 values"):
        json_text.loads(text, 3)


def test_a_text_of_commas_and_quotes_is_one_value() -> None:
    said = ',[{"\\' * 1000
    assert json_text.loads(json.dumps([said]), 2) == [said]


def test_a_text_that_is_nested_too_deep_is_refused() -> None:
    with pytest.raises(ValueError, match="nested too deep"):
        json_text.loads("[" * 200_000)
