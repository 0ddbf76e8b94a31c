from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb_server.arguments import MAX_DEPTH, ArgumentError, Arguments, arguments_of, coerce
from tests.server.little_surface import add, bounded, find


def read(function: Callable[..., Any], /, **raw: Any) -> dict[str, Any]:
    return arguments_of(function).read(raw, max_text=1000)


def refused(function: Callable[..., Any], /, **raw: Any) -> str:
    with pytest.raises(ArgumentError) as caught:
        read(function, **raw)
    return str(caught.value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"a": 1}, {"a": 1}),
        ('{"a": 1}', {"a": 1}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ("null", None),
        (None, None),
    ],
)
def test_an_object_may_come_as_a_json_string_even_twice_encoded(given: Any, expected: Any) -> None:
    assert read(add, note="x", extra=given)["extra"] == expected


def test_json_strings_are_decoded_inside_arrays_too() -> None:
    given = '[{"text": "[1]", "weight": "2", "extra": "{\\"b\\": [1]}"}]'
    expected = [{"text": "[1]", "weight": 2, "extra": {"b": [1]}}]
    assert read(bounded, parts=given)["parts"] == expected


def test_text_that_looks_like_json_stays_text() -> None:
    assert read(add, note='{"a": 1}')["note"] == '{"a": 1}'
    assert read(add, note="5")["note"] == "5"


@pytest.mark.parametrize("value", [5, 5.0, "5", "5.0"])
def test_a_whole_number_in_any_notation_is_an_integer(value: Any) -> None:
    assert read(add, note="x", times=value)["times"] == 5


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (True, "true"),
        (2.5, "2.5"),
        ("many", '"many"'),
        ("true", "true"),
        ([5], "an array"),
        ({}, "an object"),
    ],
)
def test_values_that_are_not_integers_are_refused(value: Any, shown: str) -> None:
    assert refused(add, note="x", times=value) == f"times must be a whole number, not {shown}"


def test_null_for_an_optional_argument_is_the_same_as_leaving_it_out() -> None:
    assert read(add, note="x", times=None)["times"] == 1
    assert refused(add, note=None) == "note must be text, not null"


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({}, "note is required"),
        ({"note": 5}, "note must be text, not 5"),
        ({"note": "x", "extra": "abc"}, 'extra must be an object, not "abc"'),
        ({"note": "x", "extra": [1]}, "extra must be an object, not an array"),
        ({"note": "a\ud800b"}, "note contains half of a surrogate pair, which is not a character"),
        (
            {"note": "x", "extra": {"\udfff": 1}},
            "extra contains half of a surrogate pair, which is not a character",
        ),
        (
            {"note": "x", "extra": {"a": [float("nan")]}},
            "extra contains nan, which is not a number that can be stored",
        ),
        (
            {"note": "x", "extra": '{"a": -Infinity}'},
            "extra contains -inf, which is not a number that can be stored",
        ),
        ({"note": "x", "extra": {"a": 2**63}}, "extra contains an integer beyond 64 bits"),
        ({"note": "x", "extra": {"a": -(2**63) - 1}}, "extra contains an integer beyond 64 bits"),
        ({"note": "x" * 1001}, "note is 1,001 characters long; 1,000 are allowed"),
    ],
)
def test_a_bad_argument_is_named_in_the_error(raw: dict[str, Any], message: str) -> None:
    assert refused(add, **raw) == message


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"limit": 0}, "limit must be at least 1, not 0"),
        ({"limit": 101}, "limit must be at most 100, not 101"),
        ({"source": "nobody"}, "source must be 'user' or 'agent', not \"nobody\""),
        ({"vector": [1, True]}, "vector[1] must be a number, not true"),
        (
            {"vector": ["a", "b"]},
            'vector[0] must be a number, not "a"; vector[1] must be a number, not "b"',
        ),
        ({"exact": 1}, "exact must be true or false, not 1"),
        ({"parts": [{}]}, "parts[0].text is required"),
        ({"parts": [{"text": "a"}] * 4}, "parts must have at most 3 items, not an array"),
    ],
)
def test_an_argument_out_of_bounds_is_named_in_the_error(raw: dict[str, Any], message: str) -> None:
    assert refused(bounded, **raw) == message


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


def test_nesting_ends_at_32_levels() -> None:
    assert read(add, note="x", extra=nested(MAX_DEPTH))["extra"] == nested(MAX_DEPTH)
    said = refused(add, note="x", extra=nested(MAX_DEPTH + 1))
    assert said == "extra is nested deeper than 32 levels"
    said = refused(add, note="x", extra='{"a":' * 100_000)  # without recursion
    assert said == "extra is 500,000 characters long; 1,000 are allowed"


def test_the_largest_integers_fit() -> None:
    largest = {"a": 2**63 - 1, "b": -(2**63)}
    assert read(add, note="x", extra=largest)["extra"] == largest


def test_the_error_knows_its_argument() -> None:
    with pytest.raises(ArgumentError) as caught:
        read(bounded, vector="x")
    assert caught.value.argument == "vector"
    assert caught.value.code == "invalid_argument"


def test_unknown_arguments_are_ignored_and_can_be_named() -> None:
    assert read(find, word="x", colour="red") == {"word": "x"}
    assert arguments_of(find).unknown({"word": "x", "colour": "red"}) == ["colour"]


def test_a_remark_names_the_argument_that_was_meant() -> None:
    def ignored(function: Any, **raw: Any) -> str:
        return arguments_of(function).ignored(raw)

    assert ignored(find, word="x") == "" and ignored(find, random_string="x") == ""
    assert ignored(find, wrod="x") == (
        '"wrod" is an unknown argument and was ignored; did you mean word?'
    )
    assert ignored(bounded, Limit=3) == (
        '"Limit" is an unknown argument and was ignored; did you mean limit? It was not given, so '
        "it is 5."
    )
    assert ignored(bounded, limits=3, limit=4).endswith("did you mean limit?")
    assert ignored(find, colour="red").endswith("was ignored; there are word.")
    many = ignored(find, **{f"x{number}" * 99: 1 for number in range(9)})
    assert many.endswith("4 more unknown arguments were ignored.") and len(many) < 1000


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.sampled_from(["note", "times", "extra", "limit", "parts", "vector", "other"]),
        json_values,
    )
)
def test_any_json_is_accepted_or_refused_with_one_line(raw: dict[str, Any]) -> None:
    for function in (add, bounded):
        try:
            arguments_of(function).read(raw, max_text=1000)
        except ArgumentError as error:
            assert "\n" not in str(error)


def test_a_long_list_of_untyped_items_is_not_coerced_item_by_item() -> None:
    items = [1.0] * 10
    assert coerce(list[Any], items) is items
    assert coerce(list[int], items) == [1] * 10


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (5, "query must be text, not 5"),
        (["tea"], 'query[0] must be an object, not "tea"'),
        ([{"words": "tea"}, {"words": 5}], "query[1].words must be text, not 5"),
    ],
)
def test_an_error_names_no_types_of_a_parameter_that_takes_several(
    given: Any, message: str
) -> None:
    def tool(db: object, *, query: str | list[dict[str, str]]) -> None: ...

    with pytest.raises(ArgumentError) as refused:
        Arguments(tool).read({"query": given}, max_text=100)
    assert str(refused.value) == message
