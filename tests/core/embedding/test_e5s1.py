from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpvectordb.embedding import e5s1
from mcpvectordb.embedding.encoder_graph import assemble
from mcpvectordb.errors import ModelDamaged
from tests.support import scaled
from tests.support_e5s1 import PIECES, SCORES, Tiny, unpacked

TINY = Tiny()
CONTENT = TINY.content()


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.bin"
    path.write_bytes(CONTENT)
    return path


def test_shape_pieces_and_tensors_are_what_was_written(tiny: Path) -> None:
    tensors = TINY.tensors()
    weights = e5s1.read(tiny)
    assert (weights.shape.hidden, weights.shape.heads, weights.shape.positions) == (32, 4, 24)
    assert (weights.pieces.texts, weights.pieces.begin, weights.pieces.end) == (PIECES, 0, 2)
    assert weights.pieces.scores == SCORES
    words = weights.blocks("emb.word", TINY.vocabulary, TINY.hidden)
    assert np.array_equal(words.values(), unpacked(tensors["emb.word"]))
    assert np.array_equal(weights.floats("emb.pos", 24, 32), tensors["emb.pos"])


@pytest.mark.parametrize("end", [b"\x00\x00\xc0\x7f", b"\x00\x00\x80\xff"])
def test_weights_that_are_no_numbers_are_refused(tmp_path: Path, end: bytes) -> None:
    path = tmp_path / "tiny.bin"
    path.write_bytes(CONTENT[:-4] + end)
    with pytest.raises(ModelDamaged, match=r"l1.oln.b has values that are no numbers"):
        assemble(path)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Tiny(hidden=64, heads=5), "do not divide"),
        (Tiny(block=16), "do not divide"),
        (Tiny(epsilon=float("nan")), "epsilon"),
        (Tiny(special=(0, 2, 1, 99)), "do not fit"),
        (Tiny(pieces=[*PIECES[:-1], PIECES[0]]), "not distinct"),
        (Tiny(scores=[*SCORES[:-1], float("nan")]), "no numbers"),
        (Tiny(rename={"l1.fo.w": "l1.fo.x"}), "no tensor l1.fo.w"),
        (Tiny(rename={"l0.q.w": "l0.fi.w", "l0.fi.w": "l0.q.w"}), "another type or size"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_what_is_wrong(
    tmp_path: Path, wrong: Tiny, message: str
) -> None:
    path = tmp_path / "wrong.bin"
    path.write_bytes(wrong.content())
    with pytest.raises(ModelDamaged, match=f"wrong.bin cannot be read as weights: .*{message}"):
        assemble(path)


@pytest.mark.parametrize(
    "content", [b"", b"E5S1", b"GGUF" + CONTENT[4:], CONTENT[:4] + b"\2" + CONTENT[5:]]
)
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.bin"
    path.write_bytes(content)
    with pytest.raises(ModelDamaged):
        e5s1.read(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelDamaged, match="No such file"):
        e5s1.read(tmp_path / "nowhere.bin")


@settings(max_examples=scaled(150))
@given(st.data())
def test_a_damaged_file_is_read_or_refused_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(CONTENT)
    # The head decides what is read, so most damage is done there.
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(st.integers(0, 900) | st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    del content[data.draw(st.integers(0, len(content)) | st.just(len(content))) :]
    path = tmp_path_factory.mktemp("damaged") / "tiny.bin"
    path.write_bytes(content)
    try:
        assert len(assemble(path)) > 1000
    except ModelDamaged as error:
        assert str(path) in str(error)
