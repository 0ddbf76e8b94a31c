from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from mcpvectordb.embedding.embedder import checked
from mcpvectordb.errors import EmbeddingFailed


@dataclass(frozen=True)
class ModelRow:
    """A user's embedder that returns the given vectors."""

    vectors: Any
    name: str = "mine"
    dimension: int = 2

    def embed(self, texts, *, query=False):
        return self.vectors


def test_usable_vectors_come_back_as_contiguous_float32():
    given = np.asfortranarray(np.array([[3.0, 4.0], [0.0, 1.0]]))
    vectors = checked(ModelRow(given), ["a", "b"])
    assert (
        vectors.dtype == np.float32
        and vectors.flags.c_contiguous
        and vectors.tolist() == given.tolist()
    )


def test_no_texts_give_no_rows_without_a_call_of_the_embedder():
    assert checked(ModelRow(None, dimension=7), []).shape == (0, 7)


def test_the_query_flag_reaches_the_embedder():
    class Asked(ModelRow):
        def embed(self, texts, *, query=False):
            return [[1.0, float(query)] for _ in texts]

    assert checked(Asked(None), ["a"], query=True).tolist() == [[1, 1]]
    assert checked(Asked(None), ["a"]).tolist() == [[1, 0]]


@pytest.mark.parametrize("vectors", [[[1.0, 2.0, 3.0]], [[1.0, 2.0]] * 2, [1.0, 2.0], [[]]])
def test_a_wrong_shape_is_refused_with_both_shapes(vectors):
    with pytest.raises(
        EmbeddingFailed, match=r"mine gave an array of shape .* it must be \(1, 2\)"
    ):
        checked(ModelRow(vectors), ["a"])


@pytest.mark.parametrize("vectors", [[[1.0], [1.0, 2.0]], [["a", "b"]], [[None, object()]]])
def test_a_result_that_is_not_an_array_of_numbers_is_refused(vectors):
    with pytest.raises(EmbeddingFailed, match="mine gave no array of numbers"):
        checked(ModelRow(vectors), ["a"])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 0.0, 1e-24, 1e7, 1e200])
def test_a_vector_that_cannot_be_ranked_is_refused_with_its_text(bad):
    with pytest.raises(
        EmbeddingFailed,
        match=r"mine gave a vector that cannot be ranked .* for the text 'the second'",
    ):
        checked(
            ModelRow([[1.0, 0.0], [bad, 0.0], [bad, 0.0]]), ["the first", "the second", "the third"]
        )


@pytest.mark.parametrize("good", [1e-6, 1e6, -1.0])
def test_lengths_at_the_limits_are_accepted(good):
    assert checked(ModelRow([[good, 0.0]]), ["a"])[0, 0] == np.float32(good)


def test_the_error_has_only_the_beginning_of_a_long_text():
    with pytest.raises(EmbeddingFailed) as caught:
        checked(ModelRow([[0.0, 0.0]]), ["x" * 10_000])
    assert len(str(caught.value)) < 250 and "xxx…" in str(caught.value)
