from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from mcpvectordb import Config, Database
from mcpvectordb.embedding import weights
from mcpvectordb.embedding.catalogue import CATALOGUE, get
from mcpvectordb.embedding.embedder import checked
from mcpvectordb.embedding.static import StaticEmbedder, read_table
from mcpvectordb.errors import InvalidInput, ModelDamaged
from tests.support_static import WORDS, needs_the_static_model, safetensors, static_model


@pytest.fixture
def table() -> NDArray[np.float32]:
    return np.random.default_rng(3).normal(size=(len(WORDS), 4)).astype(np.float32)


def unit(row: NDArray[np.float32]) -> NDArray[np.float32]:
    return row / np.linalg.norm(row)


def test_a_text_is_the_mean_of_its_tokens_scaled_to_length_one(
    tmp_path: Path, table: NDArray[np.float32]
) -> None:
    embedder = StaticEmbedder(*static_model(tmp_path, table))
    got = embedder.embed(["Green tea", "cups", "tea tea the"])
    row = {word: table[place] for place, word in enumerate(WORDS)}
    expected = [
        row["green"] + row["tea"],
        row["cup"] + row["##s"],
        2 * row["tea"] + row["the"],
    ]
    assert np.allclose(got, [unit(each) for each in expected], atol=1e-6)
    assert embedder.tokens_embedded == 7


def test_unknown_tokens_count_for_nothing_unless_there_are_no_others(
    tmp_path: Path, table: NDArray[np.float32]
) -> None:
    embedder = StaticEmbedder(*static_model(tmp_path, table))
    got = embedder.embed(["tea 🙂 zebra", "tea", "🙂", "", "[CLS]"])
    assert np.array_equal(got[0], got[1])
    assert np.allclose(got[2:], unit(table[WORDS.index("[UNK]")]), atol=1e-6)


def test_a_text_is_cut_at_the_longest_input(tmp_path: Path, table: NDArray[np.float32]) -> None:
    embedder = StaticEmbedder(*static_model(tmp_path, table))
    assert np.array_equal(*embedder.embed(["tea " * 8, "tea " * 8 + "cup " * 100]))


def test_files_are_verified_before_they_are_read(
    tmp_path: Path, table: NDArray[np.float32]
) -> None:
    model, files = static_model(tmp_path, table)
    files["model"].write_bytes(safetensors(table + 1))
    with pytest.raises(ModelDamaged, match="SHA-256"):
        StaticEmbedder(model, files).embed(["tea"])


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "header has 0 bytes"),
        (b"\xff" * 8, "not a safetensors file"),
        (safetensors(np.ones((2, 4), np.float32), length=10**5), "not a safetensors file"),
        (safetensors(np.ones((2, 4), np.float32), [1]), "not a JSON object"),
        (safetensors(np.ones((2, 4), np.float32), length=5), "not a JSON object"),
        (safetensors(np.ones((2, 4), np.float32), {"weights": {}}), "does not hold one table"),
        (safetensors(np.ones((0, 4), np.float32)), "does not hold one table"),
        (safetensors(np.ones((2, 5), np.float32)), "does not hold one table"),
        (safetensors(np.ones((2, 4), np.float32)) + b"more", "does not hold one table"),
        (
            safetensors(
                np.ones((2, 4), np.float32),
                {"embeddings": {"dtype": "I64", "shape": [2, 4], "data_offsets": [0, 32]}},
            ),
            "does not hold one table",
        ),
    ],
)
def test_a_file_that_is_no_table_of_vectors_is_refused(
    tmp_path: Path, content: bytes, complaint: str
) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(ModelDamaged, match=complaint):
        read_table(path, 4)


def test_metadata_in_the_header_is_allowed(tmp_path: Path) -> None:
    table = np.ones((2, 4), np.float32)
    header = {
        "__metadata__": {"format": "pt"},
        "embeddings": {"dtype": "F32", "shape": [2, 4], "data_offsets": [0, 32]},
    }
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors(table, header))
    assert np.array_equal(read_table(path, 4), table)


def test_only_a_static_model_is_one() -> None:
    with pytest.raises(InvalidInput, match="not a static model"):
        StaticEmbedder(CATALOGUE["all-MiniLM-L6-v2"], {})


@needs_the_static_model
def test_the_real_model_knows_what_is_alike() -> None:
    model = get("potion-base-8M")
    embedder = StaticEmbedder(model, weights.locate(model, Config().models_folder()))
    car, vehicle, soup = checked(embedder, ["a fast car", "a quick vehicle", "a bowl of soup"])
    assert car @ vehicle > 0.5 > car @ soup


@needs_the_static_model
def test_a_file_changes_to_it_and_back(path: Path) -> None:
    with Database(path, config=Config(model="all-MiniLM-L6-v2", provisional=True)) as db:
        db.documents.ingest_text("The cat sleeps on the sofa.", source="cat")
        for name, dimension in (("potion-base-8M", 256), ("all-MiniLM-L6-v2", 384)):
            db.use_model(name)
            assert (db.stats().model, db.stats().dimension) == (name, dimension)
            assert db.documents.search("feline", mode="vector").legs == ("vector",)
            assert db.check() == []
