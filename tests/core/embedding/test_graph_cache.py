from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from mcpvectordb import Config
from mcpvectordb.embedding.catalogue import CATALOGUE, Model
from mcpvectordb.embedding.graph_cache import GRAPH, WEIGHTS, GraphCache, _digests, _record
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


def copied(kept: Path, folder: Path) -> Path:
    """A copy of what is kept, as if it had been kept there."""
    copy = folder / place(kept).name
    shutil.copytree(place(kept), copy)
    _record(copy).write_bytes(_record(place(kept)).read_bytes())
    return copy


def test_the_optimized_graph_gives_the_same_bits(kept: Path) -> None:
    assert GraphCache(kept, MINILM.digest).find() == place(kept) / GRAPH
    expected, found = embedder(None).embed(TEXTS), embedder(kept).embed(TEXTS)
    assert np.array_equal(expected, found)


@pytest.mark.parametrize("name", [GRAPH, WEIGHTS])
@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_a_graph_that_is_not_what_was_kept_is_not_loaded(
    kept: Path, tmp_path: Path, name: str, damage: str
) -> None:
    copy = copied(kept, tmp_path)
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
    _record(copied(kept, tmp_path)).write_text(content)
    assert GraphCache(tmp_path, MINILM.digest).find() is None


def test_a_graph_is_not_loaded_whatever_is_written_to_the_cache_folder(
    kept: Path, tmp_path: Path
) -> None:
    forged = tmp_path / place(kept).name
    shutil.copytree(place(kept), forged)
    (forged / "digests.json").write_text(json.dumps(_digests(forged)))  # where they were once
    assert GraphCache(tmp_path, MINILM.digest).find() is None
    moved = copied(kept, tmp_path / "other")
    assert GraphCache(tmp_path / "other", MINILM.digest).find() == moved / GRAPH
    (moved / GRAPH).write_bytes(b"another graph")
    (moved / WEIGHTS).write_bytes(b"other weights")
    (moved / "digests.json").write_text(json.dumps(_digests(moved)))
    assert GraphCache(tmp_path / "other", MINILM.digest).find() is None
    assert _record(moved).is_relative_to(Config.data_folder())


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
