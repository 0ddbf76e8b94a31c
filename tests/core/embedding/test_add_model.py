from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mcpvectordb.embedding.add_model import add
from mcpvectordb.embedding.catalogue import CATALOGUE
from mcpvectordb.embedding.embedder import OnnxEmbedder, checked
from mcpvectordb.embedding.weights import added, find, installed, locate
from mcpvectordb.errors import InvalidInput, ModelDamaged
from tests.support_onnx import WORDS, graph, table, write_model

ROWS = table(6)


@pytest.fixture
def mine(tmp_path):
    return write_model(tmp_path / "mine", graph(ROWS))


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "models"


def write(directory: Path, path: str, content: object) -> None:
    (directory / path).parent.mkdir(exist_ok=True)
    (directory / path).write_text(content if isinstance(content, str) else json.dumps(content))


def pooling_config(**modes: bool) -> dict[str, object]:
    return {
        "word_embedding_dimension": 6,
        "include_prompt": True,
        **{f"pooling_mode_{mode}": on for mode, on in modes.items()},
    }


def refused(directory: Path, folder: Path, message: str, **arguments: object) -> None:
    """Check that adding fails with this message and leaves no files."""
    before = sorted(folder.rglob("*")) if folder.exists() else []
    with pytest.raises(InvalidInput, match=message):
        add(directory, folder, **arguments)
    assert (sorted(folder.rglob("*")) if folder.exists() else []) == before


def test_an_added_model_is_listed_found_located_and_embeds(mine, folder):
    model = add(mine, folder)
    assert added(folder) == [model] and find("mine", folder) == model and installed(model, folder)
    rows = (
        ROWS[[WORDS.index(word) for word in ("[CLS]", "cat", "[SEP]")]]
        .astype(np.float64)
        .mean(axis=0)
    )
    found = checked(OnnxEmbedder(model, locate(model, folder)), ["cat"])[0]
    assert found == pytest.approx(rows / np.linalg.norm(rows), abs=1e-6)
    assert sorted(path.name for path in folder.iterdir()) == ["mine"]


def test_without_more_files_a_model_has_mean_pooling_no_prefixes_and_512_tokens(mine, folder):
    model = add(mine, folder)
    assert (
        model.name,
        model.dimension,
        model.pooling,
        model.query_prefix,
        model.document_prefix,
        model.max_tokens,
        model.vector_weight,
        model.kind,
    ) == ("mine", 6, "mean", "", "", 512, 0.5, "embedder")


def test_the_settings_of_sentence_transformers_are_read(mine, folder):
    write(
        mine,
        "modules.json",
        [
            {"type": f"sentence_transformers.models.{name}"}
            for name in ("Transformer", "Pooling", "Normalize")
        ],
    )
    write(mine, "1_Pooling/config.json", pooling_config(cls_token=True, mean_tokens=False))
    write(
        mine,
        "config_sentence_transformers.json",
        {"prompts": {"query": "ask: ", "passage": "tell: "}},
    )
    write(mine, "sentence_bert_config.json", {"max_seq_length": 128, "do_lower_case": False})
    write(mine, "tokenizer_config.json", {"model_max_length": 512})
    model = add(mine, folder)
    assert (model.pooling, model.query_prefix, model.document_prefix, model.max_tokens) == (
        "cls",
        "ask: ",
        "tell: ",
        128,
    )


@pytest.mark.parametrize(
    ("length", "tokens"), [(100, 100), (8192, 2048), (10**30, 512), (None, 512)]
)
def test_the_longest_input_is_that_of_the_tokenizer_within_limits(mine, folder, length, tokens):
    write(mine, "tokenizer_config.json", {"model_max_length": length})
    assert add(mine, folder).max_tokens == tokens


def test_arguments_win_over_the_settings_in_the_folder(mine, folder):
    write(mine, "1_Pooling/config.json", pooling_config(max_tokens=True))
    write(
        mine,
        "config_sentence_transformers.json",
        {"prompts": {"query": "ask: ", "document": "tell: "}},
    )
    model = add(
        mine, folder, name="other", pooling="cls", query_prefix="", document_prefix="passage: "
    )
    assert (model.name, model.pooling, model.query_prefix, model.document_prefix) == (
        "other",
        "cls",
        "",
        "passage: ",
    )
    assert added(folder) == [model]


@pytest.mark.parametrize(
    "name", ["model.onnx", "onnx/model.onnx", "encoder.onnx", "onnx/model_int8.onnx"]
)
def test_the_graph_is_found_under_its_usual_names(tmp_path, folder, name):
    model = add(write_model(tmp_path / "mine", graph(ROWS), name=name), folder)
    assert model.files["model"].path == name.rpartition("/")[2]
    assert checked(OnnxEmbedder(model, locate(model, folder)), ["cat"]).shape == (1, 6)


def test_of_several_graphs_model_onnx_is_taken(mine, folder):
    (mine / "model_int8.onnx").write_bytes(b"")
    assert add(mine, folder).files["model"].path == "model.onnx"


def test_weights_outside_of_the_graph_are_copied(mine, folder):
    (mine / "model.onnx_data").write_bytes(b"weights")
    model = add(mine, folder)
    assert locate(model, folder)["data"].read_bytes() == b"weights"
    locate(model, folder)["data"].write_bytes(b"damaged")
    with pytest.raises(ModelDamaged, match=r"model\.onnx_data is not the file it should be"):
        OnnxEmbedder(model, locate(model, folder)).embed(["cat"])


def test_a_graph_that_pools_itself_may_declare_an_unsupported_pooling(tmp_path, folder):
    mine = write_model(tmp_path / "mine", graph(ROWS, pooled=True))
    write(mine, "1_Pooling/config.json", pooling_config(max_tokens=True))
    assert add(mine, folder).dimension == 6


@pytest.mark.parametrize(
    ("config", "asked"),
    [
        (pooling_config(max_tokens=True), "max_tokens"),
        (pooling_config(lasttoken=True), "lasttoken"),
        (pooling_config(mean_tokens=True, cls_token=True), "mean_tokens and cls_token"),
        ({"pooling_mode": "max"}, "max"),
    ],
)
def test_an_unsupported_pooling_is_refused(mine, folder, config, asked):
    write(mine, "1_Pooling/config.json", config)
    refused(mine, folder, f"asks for {asked} pooling; only mean and cls are supported")


@pytest.mark.parametrize("pooling", [None, "mean"])
def test_a_dense_layer_after_the_graph_is_refused(mine, folder, pooling):
    write(mine, "modules.json", [{"type": "sentence_transformers.models.Dense"}])
    refused(
        mine,
        folder,
        "needs a step after the ONNX graph that is not supported: Dense",
        pooling=pooling,
    )


def test_a_folder_without_a_model_is_refused(tmp_path, folder):
    refused(tmp_path / "gone", folder, "gone is not a folder")
    (tmp_path / "empty").mkdir()
    refused(
        tmp_path / "empty",
        folder,
        "holds one ONNX file, or one called model.onnx; .*empty has none",
    )
    several = write_model(tmp_path / "several", b"", name="a.onnx")
    (several / "b.onnx").write_bytes(b"")
    refused(several, folder, r"has several: a\.onnx, b\.onnx")
    (several / "b.onnx").unlink()
    (several / "tokenizer.json").unlink()
    refused(several, folder, r"several has no tokenizer\.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no graph", "mine cannot be used as a model: ONNX Runtime .* cannot load"),
        (
            graph(ROWS, inputs=["input_ids", "pixels"]),
            "mine cannot be used as a model: .* needs an input 'pixels'",
        ),
        (graph(ROWS[:6]), "mine cannot be used as a model: mine failed on a text of"),
        (
            graph(ROWS * np.nan),
            "mine cannot be used as a model: mine gave a vector that cannot be ranked",
        ),
    ],
)
def test_a_graph_that_does_not_embed_is_refused(tmp_path, folder, content, message):
    refused(write_model(tmp_path / "mine", content), folder, message)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"model": {"type": "Unheard"}}'])
def test_a_tokenizer_that_cannot_be_used_is_refused(mine, folder, content):
    write(mine, "tokenizer.json", content)
    refused(mine, folder, r"tokenizer\.json cannot be used")


def test_a_file_beside_the_model_that_is_not_json_is_refused(mine, folder):
    write(mine, "tokenizer_config.json", "{")
    refused(mine, folder, r"tokenizer_config\.json is not JSON")
    write(mine, "tokenizer_config.json", [])
    refused(mine, folder, r"tokenizer_config\.json holds a JSON list where a dict was expected")


@pytest.mark.parametrize("name", ["../up", ".hidden", "a/b", "a b", "x" * 101])
def test_an_invalid_name_is_refused(mine, folder, name):
    refused(mine, folder, "a model's name is made of", name=name)


def test_a_name_that_is_taken_is_refused(mine, folder):
    refused(
        mine,
        folder,
        "is a model of the catalogue; give yours another name",
        name=next(iter(CATALOGUE)),
    )
    add(mine, folder)
    refused(mine, folder, "there is a model mine already; give another name, or remove")
