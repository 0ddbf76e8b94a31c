from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mcpvectordb.embedding.catalogue import CATALOGUE, Model
from mcpvectordb.embedding.graph_cache import DIGESTS, GRAPH, WEIGHTS, GraphCache
from mcpvectordb.embedding.onnx import KEEP_AFTER, OnnxEmbedder
from mcpvectordb.embedding.weights import locate

MINILM = CATALOGUE["all-MiniLM-L6-v2"]
TEXTS = [
    "How do I rotate keys?",
    "",
    "x" * 300,
    "a b c d e f g h i j k l m n o p q r s t u v w x y z",
]
MANY = [f"text {number}" for number in range(KEEP_AFTER)]


def embedder(cache: Path | None, model: Model = MINILM) -> OnnxEmbedder:
    return OnnxEmbedder(model, locate(model, Path("nowhere")), cache=cache)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder with the graph of MiniLM."""
    folder = tmp_path_factory.mktemp("graphs")
    GraphCache(folder, MINILM.digest).keep(locate(MINILM, Path("nowhere"))["model"])
    return folder


def place(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


def test_the_optimized_graph_gives_the_same_bits(kept: Path) -> None:
    assert GraphCache(kept, MINILM.digest).find() == place(kept) / GRAPH
    expected, found = embedder(None).embed(TEXTS), embedder(kept).embed(TEXTS)
    assert np.array_equal(expected, found)


@pytest.mark.parametrize("name", [GRAPH, WEIGHTS])
@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_a_graph_that_is_not_what_was_kept_is_not_loaded(
    kept: Path, tmp_path: Path, name: str, damage: str
) -> None:
    copy = tmp_path / place(kept).name
    copy.mkdir()
    for each in (GRAPH, WEIGHTS, DIGESTS):
        (copy / each).write_bytes((place(kept) / each).read_bytes())
    assert GraphCache(tmp_path, MINILM.digest).find() == copy / GRAPH
    if damage == "missing":
        (copy / name).unlink()
    else:
        (copy / name).write_bytes((copy / name).read_bytes()[:-1] + b"!")
    assert GraphCache(tmp_path, MINILM.digest).find() is None
    assert embedder(tmp_path).embed(["a"]).shape == (1, 384)
    GraphCache(tmp_path, MINILM.digest).keep(locate(MINILM, Path("nowhere"))["model"])
    assert GraphCache(tmp_path, MINILM.digest).find() == copy / GRAPH


@pytest.mark.parametrize("content", ["", "[]", "{}", json.dumps({GRAPH: "0"})])
def test_a_list_of_digests_that_says_something_else_is_not_believed(
    kept: Path, tmp_path: Path, content: str
) -> None:
    copy = tmp_path / place(kept).name
    copy.mkdir()
    for each in (GRAPH, WEIGHTS):
        (copy / each).write_bytes((place(kept) / each).read_bytes())
    (copy / DIGESTS).write_text(content)
    assert GraphCache(tmp_path, MINILM.digest).find() is None


def test_another_build_of_a_model_has_a_graph_of_its_own(kept: Path) -> None:
    assert GraphCache(kept, "0" * 64).find() is None


def test_the_graph_is_kept_when_many_documents_were_embedded_and_by_no_search(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "cache"
    made = embedder(folder)
    made.embed(MANY[1:])
    made.embed(MANY, query=True)
    assert not folder.exists()
    made.embed(["one more"])
    assert GraphCache(folder, MINILM.digest).find()
    assert [each.name for each in folder.iterdir()] == [place(folder).name]  # nothing half-made


def test_where_nothing_can_be_written_nothing_is_kept_and_documents_are_embedded(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "file"
    folder.write_text("not a folder")
    assert embedder(folder).embed(MANY).shape == (KEEP_AFTER, 384)
    assert folder.read_text() == "not a folder"
