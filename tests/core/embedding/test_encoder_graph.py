"""Weights become a graph; `test_multilingual` has the real ones of 4 bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from mcpvectordb.embedding.catalogue import CATALOGUE
from mcpvectordb.embedding.embedder import OnnxEmbedder
from mcpvectordb.embedding.encoder_graph import (
    FLOAT,
    VERSION,
    OnnxGraph,
    _multiplied,
    assemble,
    read_e5s1,
)
from mcpvectordb.embedding.weights import locate
from mcpvectordb.errors import ModelDamaged
from tests.support_e5s1 import PIECES, SCORES, Tiny, computed

CONTENT = Tiny().content()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "tiny.bin"
    path.write_bytes(CONTENT)
    return path


@pytest.mark.parametrize("ids", [[0, 2], [0, 5, 6, 2], [0, *range(4, 15), *range(4, 15), 2]])
def test_the_graph_computes_what_the_encoder_does(tiny: Path, ids: list[int]) -> None:
    session = onnxruntime.InferenceSession(assemble(tiny), providers=["CPUExecutionProvider"])
    [found] = session.run(None, {"input_ids": np.array([ids])})
    expected = computed(Tiny(), ids)
    assert found.shape == (1, len(ids), 32)
    cosines = (found[0] * expected).sum(1) / (
        np.linalg.norm(found[0], axis=1) * np.linalg.norm(expected, axis=1)
    )
    assert cosines.min() > 0.995  # int8 rounds weights and activations


def test_pieces_are_what_was_written(tiny: Path) -> None:
    weights = read_e5s1(tiny)
    assert weights.texts == "".join(PIECES).encode() and weights.scores.tolist() == SCORES
    assert np.diff(weights.starts).tolist() == [len(piece.encode()) for piece in PIECES]
    assert (weights.begin, weights.end, weights.unknown) == (0, 2, 3)


@pytest.mark.parametrize(
    "content",
    [None, b"", CONTENT[:200], CONTENT[:900], b"GGUF" + CONTENT[4:], CONTENT[:4] + b"\2"],
)
def test_another_or_a_shortened_file_is_damaged(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "other.bin"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelDamaged, match=r"other\.bin cannot be read as weights"):
        read_e5s1(path)


@pytest.mark.parametrize("by_token", [False, True])
@pytest.mark.parametrize("largest", [63, 127, -63, -127])
def test_the_largest_weights_and_values_overflow_on_no_processor(
    largest: int, by_token: bool
) -> None:
    """Without VNNI two products are added in 16 bits: 255 · 127 · 2 is more than they hold."""
    matrix, scales = np.full((384, 32), largest, np.int8), np.full(32, 0.01, np.float32)
    graph = OnnxGraph()
    out = _multiplied(graph, "values", matrix, scales, [], by_token=by_token)
    content = graph.file({"values": FLOAT}, {"out": out}, ("batch", "outputs"))
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    [found] = session.run(None, {"values": np.ones((3, 384), np.float32)})
    assert found == pytest.approx(np.full((3, 32), 3.84 * largest))


MINILM = CATALOGUE["all-MiniLM-L6-v2"]
TEXTS = [
    "The sea is deep.",
    "def area(radius):\n    return 3.14159 * radius ** 2  # of a circle",
    "Käse, 東京, 42 % of 1,000; " * 12,
    "x",
    "",
    "A long sentence about lighthouses, their keepers and the ships that pass by night. " * 15,
]


def test_minilm_in_int8_gives_vectors_that_compare_with_those_of_its_own_graph() -> None:
    files = locate(MINILM, Path("nowhere"))
    new = OnnxEmbedder(MINILM, files).embed(TEXTS)
    own = OnnxEmbedder(replace(MINILM, assembly=0), files).embed(TEXTS)
    assert (new * own).sum(axis=1).min() > 0.99
    assert not np.array_equal(new, own)  # it is another graph


def test_minilm_gives_a_text_the_same_vector_alone_and_in_company_on_any_number_of_threads() -> (
    None
):
    embedder = OnnxEmbedder(MINILM, locate(MINILM, Path("nowhere")))
    alone = [embedder.embed([text])[0] for text in reversed(TEXTS)]
    for threads in (1, 2, 7):
        embedder.threads = threads
        together = embedder.embed(TEXTS)
        assert together.tobytes() == np.array(alone[::-1]).tobytes()


@pytest.mark.parametrize("content", [None, b"\x3a", b"\x08\x09", b"nonsense"])
def test_another_file_than_minilms_graph_is_damaged(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "other.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelDamaged, match=r"other\.onnx cannot be read as weights"):
        assemble(path)


def test_the_catalogue_names_the_version_that_assembles_a_graph() -> None:
    assert {each.assembly for each in CATALOGUE.values()} == {0, VERSION}
