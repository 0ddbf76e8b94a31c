from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.embedding import pooling
from mcpvectordb.embedding.pooling import sigmoid

numbers = st.floats(-1e3, 1e3, width=32)
outputs = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 6)).flatmap(
    lambda shape: st.lists(numbers, min_size=math.prod(shape), max_size=math.prod(shape)).map(
        lambda values: np.array(values, np.float32).reshape(shape)
    )
)


def naive_unit(row: list[float]) -> list[float]:
    length = math.sqrt(math.fsum(value * value for value in row))
    return [value / length if length else 0.0 for value in row]


def naive_layer_norm(row: list[float]) -> list[float]:
    mean = math.fsum(row) / len(row)
    variance = math.fsum((value - mean) ** 2 for value in row) / len(row)
    return [(value - mean) / math.sqrt(variance + 1e-5) for value in row]


def naive_mean(tokens: list[list[float]]) -> list[float]:
    return [math.fsum(column) / len(tokens) for column in zip(*tokens, strict=True)]


@given(outputs)
def test_a_vector_is_the_mean_of_the_tokens_or_the_first_one_scaled_to_length_one(output):
    means = [naive_unit(naive_mean(tokens)) for tokens in output.tolist()]
    firsts = [naive_unit(tokens[0]) for tokens in output.tolist()]
    assert pooling.vectors(output, pooling="mean") == pytest.approx(np.array(means), abs=1e-5)
    assert pooling.vectors(output, pooling="cls") == pytest.approx(np.array(firsts), abs=1e-6)
    assert pooling.vectors(output, pooling="mean").dtype == np.float32


@given(outputs, st.integers(1, 6))
def test_a_matryoshka_cut_comes_after_the_layer_norm_and_before_the_scaling(output, dimension):
    expected = [
        naive_unit(naive_layer_norm(naive_mean(tokens))[:dimension]) for tokens in output.tolist()
    ]
    found = pooling.vectors(output, pooling="mean", layer_norm=True, dimension=dimension)
    assert found == pytest.approx(np.array(expected), abs=1e-4)


@given(outputs)
def test_an_output_that_is_pooled_already_is_only_scaled(output):
    sentences = output[:, 0]
    expected = [naive_unit(row) for row in sentences.tolist()]
    assert pooling.vectors(sentences, pooling="mean") == pytest.approx(np.array(expected), abs=1e-6)


def test_a_zero_vector_stays_zero_and_a_nan_stays_a_nan():
    output = np.array([[0.0, 0.0], [math.nan, 1.0]], np.float32)
    assert pooling.vectors(output, pooling="mean")[0].tolist() == [0, 0]
    assert np.isnan(pooling.vectors(output, pooling="mean")[1]).all()


def test_half_precision_output_is_accepted():
    assert pooling.vectors(np.array([[3, 4]], np.float16), pooling="mean")[
        0
    ].tolist() == pytest.approx([0.6, 0.8])


@given(log_odds=st.floats(-1e4, 1e4))
def test_a_probability_is_between_0_and_1_and_keeps_the_order(log_odds: float) -> None:
    assert 0 <= sigmoid(log_odds) <= 1
    assert sigmoid(log_odds) <= sigmoid(log_odds + 1)
    assert sigmoid(log_odds) + sigmoid(-log_odds) == pytest.approx(1)
