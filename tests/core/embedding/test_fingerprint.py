from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.embedding import fingerprint
from mcpvectordb.embedding.catalogue import CATALOGUE
from mcpvectordb.embedding.fingerprint import TEXT, digest, of, same, similarity
from mcpvectordb.embedding.onnx import OnnxEmbedder
from mcpvectordb.embedding.weights import locate

RANDOM = np.random.default_rng(7)
VECTOR = RANDOM.normal(size=384)


def test_the_same_model_with_rounding_is_the_same() -> None:
    near = VECTOR + 0.1 * RANDOM.normal(size=384)
    assert same(digest([384], of(VECTOR)), digest([384], of(near * 1e4)))
    assert similarity(digest([384], of(VECTOR)), VECTOR) == pytest.approx(1, abs=1e-5)


def test_another_model_dimension_or_processing_is_not() -> None:
    known = digest([384], of(VECTOR))
    assert not same(known, digest([384], of(RANDOM.normal(size=384))))
    assert not same(known, digest([384], of(VECTOR[:383])))
    assert not same(known, digest([384, "query: "], of(VECTOR)))


def test_digests_of_other_models_are_compared_exactly() -> None:
    known = CATALOGUE["all-MiniLM-L6-v2"].digest
    assert same(known, known) and not same(known, known[:-1] + "0")
    assert not same(known, digest([], of(VECTOR))) and not fingerprint.is_endpoint(known)


@given(st.text(max_size=40))
def test_a_damaged_fingerprint_is_like_no_other(text: str) -> None:
    damaged = digest([384], text)
    assert similarity(damaged, VECTOR) == 0.0
    assert not same(damaged, digest([384], of(VECTOR)))
    assert not same(digest([384], of(VECTOR)), damaged)


@given(st.binary(min_size=768, max_size=768))
def test_any_values_give_a_cosine(values: bytes) -> None:
    cosine = similarity(digest([], base64.b64encode(values).decode()), VECTOR)
    assert -1.001 <= cosine <= 1.001


def test_another_pooling_of_the_same_network_is_noticed() -> None:
    model = CATALOGUE["all-MiniLM-L6-v2"]
    files = locate(model, Path("nowhere"))
    vectors = [
        OnnxEmbedder(each, files).embed([TEXT])[0]
        for each in (model, replace(model, pooling="cls"))
    ]
    assert similarity(digest([], of(vectors[0])), vectors[1]) < fingerprint.SAME
