from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from mcpvectordb.embedding.catalogue import CATALOGUE
from mcpvectordb.embedding.encoder_graph import VERSION, assemble
from tests.support_e5s1 import Tiny, computed


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> onnxruntime.InferenceSession:
    path = tmp_path_factory.mktemp("tiny") / "tiny.bin"
    path.write_bytes(Tiny().content())
    return onnxruntime.InferenceSession(assemble(path), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("ids", [[0, 2], [0, 5, 6, 2], [0, *range(4, 15), *range(4, 15), 2]])
def test_the_graph_computes_what_the_encoder_does(
    session: onnxruntime.InferenceSession, ids: list[int]
) -> None:
    [found] = session.run(None, {"input_ids": np.array([ids])})
    expected = computed(Tiny(), ids)
    assert found.shape == (1, len(ids), 32)
    cosines = (found[0] * expected).sum(1) / (
        np.linalg.norm(found[0], axis=1) * np.linalg.norm(expected, axis=1)
    )
    assert cosines.min() > 0.995  # int8 rounds weights and activations


def test_the_same_weights_give_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "tiny.bin").write_bytes(Tiny().content())
    assert assemble(tmp_path / "tiny.bin") == assemble(tmp_path / "tiny.bin")


def test_the_catalogue_names_the_version_that_assembles_a_graph() -> None:
    assert {each.assembly for each in CATALOGUE.values()} == {0, VERSION}
