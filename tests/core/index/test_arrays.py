from __future__ import annotations

import array
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as strategies

from mcpvectordb import Damaged, InvalidInput
from mcpvectordb.index import arrays

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ([], "has no numbers; an embedding has 1 to 16,384"),
        ([0.0] * 16_385, "has 16,385 numbers"),
        ([1.0, float("nan")], r"embedding\[1\] is nan"),
        ([float("-inf"), 1.0], r"embedding\[0\] is -inf"),
        ([1.0, 2.0, True], r"embedding\[2\] must be a number, not a bool"),
        ([1.0, "2"], r"embedding\[1\] must be a number, not a str"),
        ([1.0, None], r"embedding\[1\] must be a number, not null"),
        ([[1.0, 2.0]], r"embedding\[0\] must be a number, not a list"),
        ([1, 10**400], r"embedding\[1\] is too large"),
        ([1j], r"embedding\[0\] must be a number, not a complex"),
        ("0.1, 0.2", "must be a list of numbers, not a str"),
        (b"0123", "must be a list of numbers, not a bytes"),
        (None, "must be a list of numbers, not null"),
        ({"0": 1.0}, "must be a list of numbers, not a dict"),
        ({1.0, 2.0}, "must be a list of numbers, not a set"),
        (3.0, "must be a list of numbers, not a float"),
        (np.float64(3.0), r"must have one axis, but its shape is \(\)"),
        (np.ones((2, 2)), r"must have one axis, but its shape is \(2, 2\)"),
        (np.array([True, False]), r"embedding\[0\] must be a number, not a bool"),
        (np.array([1.0, np.nan], np.float32), r"embedding\[1\] is nan"),
        (np.array(["1"]), r"embedding\[0\] must be a number, not a str"),
        (np.array([1 + 2j]), r"embedding\[0\] must be a number, not a complex"),
        (np.array([], np.float32), "has no numbers"),
    ],
)
def test_an_invalid_embedding_is_refused_and_its_place_named(given_: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        arrays.one(given_)


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ([[1.0], [2.0, True]], r"embeddings\[1\]\[1\] must be a number, not a bool"),
        ([[1.0], []], r"embeddings\[1\] has no numbers"),
        ([[1.0], "ab"], r"embeddings\[1\] must be a list of numbers, not a str"),
        ([1.0, 2.0], r"embeddings\[0\] must be a list of numbers, not a float"),
        (np.array([1.0, 2.0]), r"embeddings\[0\] must have one axis"),
        (np.ones((2, 2, 2)), r"embeddings\[0\] must have one axis"),
        (np.array([[1.0, 2.0], [3.0, np.inf]]), r"embeddings\[1\]\[1\] is inf"),
        (np.ones((3, 0)), "has no numbers"),
        ("ab", "must be a list of embeddings or a matrix, not a str"),
        (None, "must be a list of embeddings or a matrix, not null"),
        ({"a": [1.0]}, "must be a list of embeddings or a matrix, not a dict"),
        (np.float32(1), "must be a list of embeddings or a matrix"),
    ],
)
def test_invalid_embeddings_are_refused_and_row_and_place_named(given_: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        arrays.many(given_)


@pytest.mark.parametrize(
    "given_",
    [
        [1, 2.5, -3],
        (1, 2.5, -3),
        np.array([1, 2.5, -3]),
        np.array([1, 2.5, -3], np.float32),
        np.array([1, 2.5, -3], np.float16),
        np.array([1, 2.5, -3], ">f8"),
        np.array([9, 1, 9, 2.5, 9, -3])[1::2],
        [np.float32(1), np.int8(1) * 2.5, -3],
        array.array("d", [1, 2.5, -3]),
        np.array([1, 2.5, -3], object),
    ],
)
def test_an_embedding_is_accepted_as_a_list_or_as_any_array(given_: Any) -> None:
    group = arrays.one(given_)
    assert (
        group.rows.tolist() == [[1, 2.5, -3]]
        and group.dimension == 3
        and list(group.positions) == [0]
    )
    assert [each.rows.tolist() for each in arrays.many([given_, given_])] == [[[1, 2.5, -3]] * 2]


def test_a_matrix_of_float32_is_not_copied() -> None:
    matrix = np.ones((5, 4), np.float32)
    [group] = arrays.many(matrix)
    assert np.shares_memory(group.rows, matrix)
    assert all(np.shares_memory(row, matrix) for row in arrays.packed(group.rows))


def test_mixed_dimensions_are_grouped_and_keep_their_positions() -> None:
    groups = arrays.many([[1, 2], [3], [4, 5], np.array([6], np.float32)])
    assert [(list(group.positions), group.rows.tolist()) for group in groups] == [
        ([0, 2], [[1, 2], [4, 5]]),
        ([1, 3], [[3], [6]]),
    ]


def test_an_empty_list_of_embeddings_has_no_groups() -> None:
    assert arrays.many([]) == arrays.many(np.empty((0, 7))) == []


@given(
    rows=strategies.arrays(
        np.float64, st.tuples(st.integers(1, 5), st.integers(1, 4)), elements=NUMBERS
    )
)
def test_every_number_comes_back_exactly(rows: np.ndarray) -> None:
    blobs = [row.tobytes() for row in arrays.packed(arrays.many(rows)[0].rows)]
    assert np.array_equal(arrays.unpacked(blobs, rows.shape[1]), rows)
    assert all(arrays.fits(blob, rows.shape[1]) for blob in blobs)


@given(
    row=strategies.arrays(
        np.float32, 3, elements=st.floats(width=32, allow_nan=False, allow_infinity=False)
    )
)
def test_numbers_that_float32_holds_are_stored_in_four_bytes(row: np.ndarray) -> None:
    for given_ in (row, row.tolist(), row.astype(np.float64)):
        assert len(arrays.packed(arrays.one(given_).rows)[0].tobytes()) == 12


def test_an_embedding_of_the_wrong_length_is_damage() -> None:
    with pytest.raises(Damaged, match="3 values"):
        arrays.unpacked([b"x" * 12, b"x" * 13], 3)


EMBEDDINGS = strategies.arrays(
    np.float32, st.tuples(st.integers(1, 5), st.just(4)), elements=st.floats(-1e5, 1e5, width=32)
).filter(lambda rows: bool((np.linalg.norm(rows.astype(np.float64), axis=1) >= 1e-6).all()))


@given(rows=EMBEDDINGS)
def test_float16_keeps_the_direction_of_embeddings_of_any_length(rows: np.ndarray) -> None:
    blobs = arrays.in_precision([row.tobytes() for row in rows], 4, "float16")
    assert {len(blob) for blob in blobs} == {8}
    assert all(arrays.is_rankable(blob, 4) and arrays.fits(blob, 4) for blob in blobs)
    wide = rows.astype(np.float64)
    unit = wide / np.linalg.norm(wide, axis=1, keepdims=True)
    np.testing.assert_allclose(arrays.unpacked(blobs, 4), unit, rtol=2**-10, atol=2**-24)


@given(rows=EMBEDDINGS)
def test_what_has_the_precision_of_the_file_already_is_not_rounded_again(rows: np.ndarray) -> None:
    wide = [row.tobytes() for row in rows]
    narrow = arrays.in_precision(wide, 4, "float16")
    assert arrays.in_precision(wide, 4, "float32") == wide
    assert arrays.in_precision(narrow, 4, "float16") == narrow
    widened = arrays.in_precision(narrow, 4, "float32")
    assert np.array_equal(arrays.unpacked(widened, 4), arrays.unpacked(narrow, 4))
    mixed = arrays.in_precision([*wide, *narrow], 4, "float16")
    assert mixed == [*narrow, *narrow]


def test_embeddings_of_users_are_never_float16() -> None:
    half = np.ones(4, np.float16).tobytes()
    assert arrays.fits(half, 4) and not arrays.fits(half, 4, of_user=True)
    assert arrays.fits(np.ones(4).tobytes(), 4, of_user=True)
