from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.index import dot


@given(
    rows=st.integers(0, 700), dimension=st.sampled_from([1, 3, 64, 384, 2_100]), seed=st.integers(0)
)
def test_both_kernels_give_the_exact_products(rows: int, dimension: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    query = random.integers(-127, 128, dimension).astype(np.int8)
    codes = random.integers(-127, 128, (rows, dimension)).astype(np.int8)
    exact = (codes.astype(np.int64) @ query.astype(np.int64)).tolist()
    assert dot.products(query, codes).tolist() == dot.widened(query, codes).tolist() == exact


@pytest.mark.parametrize("dimension", [dot.EXACT, dot.EXACT + 1, 16_384])
def test_the_largest_products_are_exact(dimension: int) -> None:
    query = np.full(dimension, 127, np.int8)
    for codes in (query[None, :], -query[None, :]):
        exact = 127 * 127 * dimension * (1 if codes[0, 0] > 0 else -1)
        assert dot.products(query, codes).tolist() == dot.widened(query, codes).tolist() == [exact]
