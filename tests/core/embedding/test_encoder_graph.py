"""Weights in 4 bits become a graph; `test_multilingual` has the real ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from mcpvectordb.embedding.catalogue import CATALOGUE
from mcpvectordb.embedding.encoder_graph import VERSION, assemble, read_e5s1
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
    assert weights.pieces == list(zip(PIECES, SCORES, strict=True))
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


def test_the_catalogue_names_the_version_that_assembles_a_graph() -> None:
    assert {each.assembly for each in CATALOGUE.values()} == {0, VERSION}
